//! Meeting of two measuring processes without arguments: a unix socket of a known name.
//!
//! The name lies in the abstract namespace, so a killed process leaves no file behind. The stream it gives stays
//! open as the control line: terms, addresses and results pass over it, and its end means that the peer is gone.

use crate::{Payload, Terms, invalid};
use linux::poll;
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"thlwg-b1");
const RETRY: Duration = Duration::from_millis(2);
/// After this wait a process knows that it is alone.
const ALONE: Duration = Duration::from_secs(1);

/// A place where the two ends of one measurement find each other.
#[derive(Clone, Debug)]
pub struct Meeting {
    name: String,
    patience: Duration,
    alone: Option<fn()>,
}

impl Meeting {
    /// The place for `what` (such as "raw-latency-tcp"), one per user, waiting up to 30 s for the other.
    pub fn new(what: &str) -> Self {
        let user = rustix::process::getuid().as_raw();
        Self { name: format!("thalweg-bench-{user}/{what}"), patience: Duration::from_secs(30), alone: None }
    }

    /// A place that only processes with the same `key` find, so that several measurements can run side by side.
    pub fn private(what: &str, key: &str) -> Self {
        Self::new(&format!("{what}/{key}"))
    }

    /// A place for one test of this process.
    #[cfg(test)]
    pub(crate) fn test(what: &str) -> Self {
        Self::private(what, &std::process::id().to_string())
    }

    /// The same place, with another limit to waiting.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same place; a process that waits there for longer than 1 s calls `act`, once.
    pub fn when_alone(self, act: fn()) -> Self {
        Self { alone: Some(act), ..self }
    }

    /// Waits here for `count` others.
    ///
    /// # Errors
    /// TimedOut when they don't come; AddrInUse when another process waits here all the time.
    pub fn host(&self, count: usize) -> io::Result<Vec<UnixStream>> {
        let until = Instant::now() + self.patience;
        let mut alone = Alone::new(self.alone);
        let listener = self.retry(until, &mut alone, || UnixListener::bind_addr(&self.address()?))?;
        let mut came = Vec::with_capacity(count);
        while came.len() < count {
            let next = alone.due().map_or(until, |due| due.min(until));
            let waited = poll::wait_readable(&listener, Some(next.saturating_duration_since(Instant::now())))?;
            if !waited {
                alone.tell();
            }
            if !waited && Instant::now() >= until {
                return Err(self.nobody(format!("{} of {count} came", came.len())));
            }
            listener.set_nonblocking(true)?;
            match listener.accept() {
                Ok((stream, _)) if own(&stream)? => came.push(prepared(stream, self.patience)?),
                Ok(_) => {} // another user's process: not let in
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(came)
    }

    /// Connects to the waiting end.
    ///
    /// # Errors
    /// TimedOut if no process waits there; PermissionDenied if another user took the name.
    pub fn join(&self) -> io::Result<UnixStream> {
        let until = Instant::now() + self.patience;
        let stream = self.retry(until, &mut Alone::new(self.alone), || UnixStream::connect_addr(&self.address()?))?;
        if !own(&stream)? {
            let text = format!("\"{}\" is held by a process of another user", self.name);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        prepared(stream, self.patience)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(&self.name)
    }

    fn retry<T>(&self, until: Instant, alone: &mut Alone, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::AddrInUse) => {
                    if Instant::now() >= until {
                        return Err(self.nobody(e.to_string()));
                    }
                    alone.tell();
                    std::thread::sleep(RETRY);
                }
                other => return other,
            }
        }
    }

    fn nobody(&self, because: String) -> io::Error {
        let text = format!("nobody met at \"{}\" within {:?} ({because})", self.name, self.patience);
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// The action of a process that finds itself alone, and its time.
struct Alone(Option<(Instant, fn())>);

impl Alone {
    fn new(act: Option<fn()>) -> Self {
        Self(act.map(|act| (Instant::now() + ALONE, act)))
    }

    fn due(&self) -> Option<Instant> {
        self.0.map(|(due, _)| due)
    }

    fn tell(&mut self) {
        if let Some((_, act)) = self.0.take_if(|(due, _)| Instant::now() >= *due) {
            act();
        }
    }
}

fn own(stream: &UnixStream) -> io::Result<bool> {
    Ok(linux::socket::peer_user(stream)? == rustix::process::getuid().as_raw())
}

fn prepared(stream: UnixStream, patience: Duration) -> io::Result<UnixStream> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(stream)
}

/// Tells the other end the terms.
///
/// # Errors
/// The error of writing to the control line.
pub fn tell(control: &UnixStream, terms: &Terms) -> io::Result<()> {
    let payload = match terms.payload {
        Payload::Copied => 0,
        Payload::Untouched => 1,
        Payload::Checked => 2,
    };
    write_words(control, &[MAGIC, terms.size as u64, terms.count, terms.warmup, payload, terms.batched.into()])
}

/// Hears the terms from the other end.
///
/// # Errors
/// InvalidData when the other end is another version.
pub fn hear(control: &UnixStream) -> io::Result<Terms> {
    let [magic, size, count, warmup, payload, batched] = read_words(control)?;
    let payload = match (magic, payload) {
        (MAGIC, 0) => Payload::Copied,
        (MAGIC, 1) => Payload::Untouched,
        (MAGIC, 2) => Payload::Checked,
        _ => return Err(invalid("the other process measures by another version".to_owned())),
    };
    let size = usize::try_from(size).map_err(|_| invalid(format!("{size} bytes per message")))?;
    Ok(Terms { size, count, warmup, payload, batched: batched != 0 })
}

/// Writes numbers to the control line.
///
/// # Errors
/// The error of writing.
pub fn write_words(mut control: &UnixStream, words: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    control.write_all(&bytes)
}

/// Reads numbers from the control line.
///
/// # Errors
/// The error of reading; UnexpectedEof if the other end is gone.
pub fn read_words<const N: usize>(mut control: &UnixStream) -> io::Result<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let mut bytes = [0; 8];
        control.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

/// A sleeping thread that acts when the peer hangs up, so that the measured loop needs no time-out.
pub struct Watch {
    control: UnixStream,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `act` when the peer hangs up, and again every 10 ms until the watch is dropped.
    ///
    /// # Errors
    /// The error of duplicating the descriptor or of starting a thread.
    pub fn start(control: &UnixStream, act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (seen, stop) = (OwnedFd::from(control.try_clone()?), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = linux::thread::spawn(linux::thread::Settings::named("bench-watch"), move || {
            wait_for_the_end(&seen);
            while !stopped.load(Ordering::Acquire) {
                act();
                std::thread::sleep(Duration::from_millis(10));
            }
        })?;
        Ok(Self { control: control.try_clone()?, stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.control.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn wait_for_the_end(control: &OwnedFd) {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::RDHUP)];
        match rustix::event::poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn terms_reach_the_other_end_in_either_order_of_arrival() {
        let terms = Terms { payload: Payload::Checked, batched: true, ..Terms::new(1 << 20, 7, 3) };
        for late in [false, true] {
            let meeting = Meeting::test("test-terms");
            let other = meeting.clone();
            let host = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(if late { 30 } else { 0 }));
                hear(&other.host(1).unwrap()[0]).unwrap()
            });
            tell(&meeting.join().unwrap(), &terms).unwrap();
            assert_eq!(host.join().unwrap(), terms);
        }
    }

    #[test]
    fn a_failed_meeting_is_reported_on_both_sides() {
        let meeting = Meeting::test("test-nobody").patience(Duration::from_millis(20));
        let alone = meeting.join().unwrap_err();
        assert_eq!((alone.kind(), alone.to_string().contains("nobody met")), (io::ErrorKind::TimedOut, true));
        assert!(meeting.host(2).unwrap_err().to_string().contains("0 of 2 came"));
    }

    #[test]
    fn a_watch_acts_when_the_peer_hangs_up_and_not_before() {
        let (a, b) = UnixStream::pair().unwrap();
        let acted = Arc::new(AtomicU32::new(0));
        let count = acted.clone();
        let watch = Watch::start(&a, move || _ = count.fetch_add(1, Ordering::Relaxed)).unwrap();
        write_words(&b, &[1]).unwrap();
        assert_eq!((read_words::<1>(&a).unwrap(), acted.load(Ordering::Relaxed)), ([1], 0));
        drop(b);
        while acted.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        drop(watch);
    }
}
