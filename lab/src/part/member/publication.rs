//! A stream that is published, on a thread of its own.

use super::{Stream, StreamReport, hold};
use crate::error::{Error, Result};
use crate::part::picture;
use crate::part::threads::Thread;
use qos::priority::Scheduling;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg::Publisher;
use thalweg::codec::Raw;

/// A port, and the number of samples that it published.
#[derive(Clone)]
pub(super) struct Counted {
    pub port: Arc<Mutex<Publisher<Raw>>>,
    pub count: Arc<AtomicU64>,
    pub name: Arc<str>,
}

impl From<Publisher<Raw>> for Counted {
    fn from(port: Publisher<Raw>) -> Self {
        let name = port.name().into();
        Self { port: Arc::new(Mutex::new(port)), count: Arc::default(), name }
    }
}

/// A stream that is published.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    port: Counted,
    before: u64,
    /// Its thread's number, once it has its scheduling.
    tid: Arc<AtomicI32>,
    sched: Option<Scheduling>,
    thread: JoinHandle<Result>,
}

impl Running {
    pub(super) fn start(port: Counted, stream: Stream, most: Option<u64>) -> Result<Self> {
        let (stop, before) = (Arc::new(AtomicBool::new(false)), port.count.load(Relaxed));
        let (asked, counted, sched, tid) = (stop.clone(), port.clone(), stream.sched, Arc::new(AtomicI32::new(-1)));
        let (most, mine) = (most.unwrap_or(u64::MAX), tid.clone());
        let body = move || {
            schedule(&stream, &mine)?;
            publish(&mut hold(&counted.port), &stream, most, &asked, &counted.count)
        };
        let thread = std::thread::Builder::new().name("publish".into()).spawn(body)?;
        Ok(Self { stop, port, before, tid, sched, thread })
    }

    /// `true` if it is published by this port.
    pub(super) fn is_of(&self, port: &Counted) -> bool {
        Arc::ptr_eq(&self.port.port, &port.port)
    }

    /// Its thread, as the kernel has it.
    pub(super) fn thread(&self) -> Thread {
        Thread::read(self.tid.load(Relaxed), self.sched)
    }

    pub(super) fn finish(self) -> Result<StreamReport> {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::Failed("a publishing thread failed".into())))?;
        Ok(StreamReport { count: self.port.count.load(Relaxed) - self.before, ..StreamReport::default() })
    }
}

/// Gives this thread the stream's scheduling, and says which one it is.
fn schedule(stream: &Stream, tid: &AtomicI32) -> Result {
    let wrong = |e| Error::System(format!("the thread that publishes {}: {e}", stream.topic));
    stream.sched.map_or(Ok(()), |sched| linux::sched::set(0, &sched)).map_err(wrong)?;
    tid.store(linux::sched::current(), Relaxed);
    Ok(())
}

/// Publishes at even intervals, and catches up when late.
fn publish(port: &mut Publisher<Raw>, stream: &Stream, most: u64, stop: &AtomicBool, count: &AtomicU64) -> Result {
    let message = stream.picture.map_or_else(|| vec![0x5a; stream.size], picture::message);
    let start = Instant::now();
    for number in 0..most {
        let due = start + Duration::from_secs_f64(number as f64 / stream.hz);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Relaxed) {
            break;
        }
        port.publish(&message)?;
        count.fetch_add(1, Relaxed);
    }
    Ok(())
}
