//! One publisher, many subscriber processes, one sample each millisecond: the latency of the last subscriber.

use crate::link::ring::{Ring, Shape};
use crate::link::{AnyLink, End, Link, each};
use crate::meeting::{self, Meeting};
use crate::{Carrier, Terms, invalid};
use linux::clock::monotonic_ns;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The smallest sample: a time stamp and a sequence number.
pub const MIN_SIZE: usize = 16;

/// Report of a subscriber that missed a sample, instead of a latency.
pub const MISSED: u64 = u64::MAX;

/// The end that publishes.
pub struct Publisher {
    output: Output,
    controls: Vec<UnixStream>,
    pace: Pace,
    sequence: u64,
}

enum Output {
    Each(Vec<AnyLink>),
    All(Ring),
}

impl Publisher {
    /// Meets `subscribers` others and sends them the terms.
    ///
    /// # Errors
    /// If the terms do not suit the carrier, too few are met, or the kernel refuses.
    pub fn open(meeting: &Meeting, carrier: Carrier, subscribers: usize, terms: &Terms) -> io::Result<Self> {
        terms.check(carrier)?;
        if terms.size < MIN_SIZE {
            return Err(invalid(format!("{} bytes per sample: at least {MIN_SIZE} for the stamp", terms.size)));
        }
        let controls = meeting.host(subscribers)?;
        controls.iter().try_for_each(|control| meeting::tell(control, terms))?;
        let output = open_output(carrier, &controls, terms.size)?;
        for control in &controls {
            meeting::read_words::<1>(control)?; // ready
        }
        Ok(Self { output, controls, pace: Pace::new(Duration::from_millis(1)), sequence: 0 })
    }

    /// Publishes `count` samples, one per millisecond.
    ///
    /// # Errors
    /// If a subscriber leaves or the kernel refuses.
    pub fn run(&mut self, count: u64) -> io::Result<()> {
        self.pace.restart();
        for _ in 0..count {
            self.pace.wait();
            let mut head = [0; MIN_SIZE];
            head[8..].copy_from_slice(&self.sequence.to_le_bytes());
            head[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
            match &mut self.output {
                Output::Each(links) => links.iter_mut().try_for_each(|any| each!(any, link => send(link, &head)))?,
                Output::All(ring) => send(ring, &head)?,
            }
            self.sequence += 1;
        }
        Ok(())
    }

    /// Asks all subscribers for their latencies: per measured sample the one of the last subscriber in nanoseconds,
    /// or [`MISSED`] when one of them never got it.
    ///
    /// # Errors
    /// If a subscriber left.
    pub fn collect(&mut self, terms: &Terms) -> io::Result<Vec<u64>> {
        self.end_datagrams();
        let mut last = vec![0; terms.count as usize];
        for control in &self.controls {
            merge(&mut last, control)?;
        }
        Ok(last)
    }
}

impl Publisher {
    /// The last datagram may be lost like any other: samples after the last one end the waiting. A subscriber that left is no error.
    fn end_datagrams(&mut self) {
        let Output::Each(links) = &mut self.output else { return };
        let mut head = [0; MIN_SIZE];
        head[8..].copy_from_slice(&self.sequence.to_le_bytes());
        for link in links.iter_mut() {
            if let AnyLink::Udp(link) = link {
                (0..3).for_each(|_| _ = send(link, &head));
            }
        }
    }
}

/// Reads one subscriber's latencies and keeps the later of each pair.
///
/// # Errors
/// If the subscriber left.
pub fn merge(last: &mut [u64], mut control: &UnixStream) -> io::Result<()> {
    let mut bytes = vec![0; last.len() * 8];
    control.read_exact(&mut bytes)?;
    for (worst, latency) in last.iter_mut().zip(bytes.chunks_exact(8)) {
        *worst = (*worst).max(latency.try_into().map_or(MISSED, u64::from_le_bytes));
    }
    Ok(())
}

fn open_output(carrier: Carrier, controls: &[UnixStream], size: usize) -> io::Result<Output> {
    let shape = Shape::broadcast(size);
    if carrier == Carrier::Shm {
        let (ring, fd) = Ring::unwatched(shape)?;
        controls.iter().try_for_each(|control| Ring::pass(control, &fd))?;
        return Ok(Output::All(ring));
    }
    let open = |control| AnyLink::open(carrier, control, End::Active, size, shape);
    controls.iter().map(open).collect::<io::Result<_>>().map(Output::Each)
}

#[inline]
fn send<L: Link>(link: &mut L, head: &[u8; MIN_SIZE]) -> io::Result<()> {
    link.send(|slot| slot[..MIN_SIZE].copy_from_slice(head))
}

/// Meets a publisher, takes its samples and reports the latency of each.
///
/// # Errors
/// If no publisher is met, the publisher leaves early, or the kernel refuses.
pub fn subscribe(meeting: &Meeting, carrier: Carrier) -> io::Result<()> {
    let mut control = meeting.join()?;
    let terms = meeting::hear(&control)?;
    terms.check(carrier)?;
    if terms.size < MIN_SIZE {
        return Err(invalid(format!("{} bytes per sample", terms.size)));
    }
    let mut any = AnyLink::open(carrier, &control, End::Passive, terms.size, Shape::broadcast(terms.size))?;
    let mut late = Late::new(&terms);
    meeting::write_words(&control, &[1])?;
    match &mut any {
        AnyLink::Shm(ring) => late.take_all(|late| ring.receive_latest(|bytes| late.note(bytes)))?,
        other => late.take_all(|late| each!(other, link => link.receive(|bytes| late.note(bytes))))?,
    }
    let bytes: Vec<u8> = late.nanoseconds.iter().flat_map(|ns| ns.to_le_bytes()).collect();
    control.write_all(&bytes)
}

/// The latency of each measured sample as one subscriber saw it.
pub struct Late {
    nanoseconds: Vec<u64>,
    warmup: u64,
}

impl Late {
    /// The start, before any sample has arrived.
    pub fn new(terms: &Terms) -> Self {
        Self { nanoseconds: vec![MISSED; terms.count as usize], warmup: terms.warmup }
    }

    /// Records one sample that arrives now; `true` if it was the last one.
    #[inline]
    pub fn note(&mut self, sample: &[u8]) -> bool {
        let now = monotonic_ns();
        let word = |at: usize| sample.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let (stamp, sequence) = (word(0), word(8));
        let Some(index) = sequence.checked_sub(self.warmup) else { return false };
        if let Some(slot) = self.nanoseconds.get_mut(index as usize) {
            *slot = now.saturating_sub(stamp);
        }
        index + 1 >= self.nanoseconds.len() as u64
    }

    /// The latencies in the order of the samples, [`MISSED`] for a missing one.
    pub fn nanoseconds(&self) -> &[u64] {
        &self.nanoseconds
    }

    fn take_all(&mut self, mut take: impl FnMut(&mut Self) -> io::Result<bool>) -> io::Result<()> {
        while !take(self)? {}
        Ok(())
    }
}

/// Absolute ticks, so that a late sample does not delay the next.
pub struct Pace {
    period: u64,
    next: u64,
}

impl Pace {
    /// A tick every `period`, the first one period after [`Pace::restart`].
    pub fn new(period: Duration) -> Self {
        Self { period: period.as_nanos() as u64, next: monotonic_ns() }
    }

    /// Counts from now on.
    pub fn restart(&mut self) {
        self.next = monotonic_ns();
    }

    /// Sleeps until the next tick.
    pub fn wait(&mut self) {
        self.next += self.period;
        let until =
            Timespec { tv_sec: (self.next / 1_000_000_000) as i64, tv_nsec: (self.next % 1_000_000_000) as i64 };
        while clock_nanosleep_absolute(ClockId::Monotonic, &until).is_err() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_subscribers_report_every_sample_on_every_carrier() {
        for carrier in [Carrier::Tcp, Carrier::Udp, Carrier::Unix, Carrier::Shm] {
            let meeting = Meeting::test(&format!("test-fanout-{}", carrier.name()));
            let join = |_| {
                let other = meeting.clone();
                std::thread::spawn(move || subscribe(&other, carrier))
            };
            let subscribers: Vec<_> = (0..3).map(join).collect();
            let terms = Terms::new(64, 20, 5);
            let mut publisher = Publisher::open(&meeting, carrier, 3, &terms).unwrap();
            publisher.run(25).unwrap();
            let last = publisher.collect(&terms).unwrap();
            assert!(last.len() == 20 && last.iter().all(|ns| *ns > 0 && *ns < MISSED), "{carrier:?} {last:?}");
            subscribers.into_iter().for_each(|s| s.join().unwrap().unwrap());
        }
    }

    #[test]
    fn the_last_of_two_counts_and_a_missed_sample_stays_missed() {
        let mut last = vec![5, 9, 3];
        let (theirs, mut ours) = UnixStream::pair().unwrap();
        [7, 2, MISSED].iter().for_each(|v: &u64| ours.write_all(&v.to_le_bytes()).unwrap());
        merge(&mut last, &theirs).unwrap();
        assert_eq!(last, [7, 9, MISSED]);
    }
}
