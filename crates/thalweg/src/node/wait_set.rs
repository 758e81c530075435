//! Waiting for several things at once: samples of subscribers and events of nodes (V-01; DDS 1.4, §2.2.2.1.6).

#![allow(clippy::disallowed_methods)] // a user waits

use super::Subscriber;
use crate::codec::Message;
use crate::event::EventReader;
use linux::futex::{self, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

/// A source that a [`WaitSet`] waits for: a [`Subscriber`] (one with a mailbox and not
/// [`polled`](super::SubscriberBuilder::polled)), or the events of a node.
pub trait Waitable {
    /// `true` if a sample can be taken; otherwise `waker` is woken when it can. One waker at a time.
    fn is_ready(&self, waker: &Waker) -> bool;
}

impl<M: Message> Waitable for Subscriber<M> {
    fn is_ready(&self, waker: &Waker) -> bool {
        self.subscriber_port.is_ready_or_wakes(waker)
    }
}

impl Waitable for EventReader {
    fn is_ready(&self, waker: &Waker) -> bool {
        self.is_ready_or_wakes(waker)
    }
}

/// Waits until at least one of several sources is ready.
///
/// ```no_run
/// # use std::time::Duration;
/// # fn take(node: &thalweg::Node) -> thalweg::Result<()> {
/// let (mut poses, mut alarms) = (node.subscriber::<f64>("/pose").open()?, node.subscriber::<String>("/alarm").open()?);
/// let mut waits = thalweg::WaitSet::new();
/// while let [pose, alarm] = *waits.wait(&[&poses, &alarms], Duration::from_secs(1)) {
///     pose.then(|| poses.take());
///     alarm.then(|| alarms.take());
/// }
/// # Ok(())
/// # }
/// ```
pub struct WaitSet {
    signal: Arc<Signal>,
    waker: Waker,
    ready: Vec<bool>,
}

/// A counter of wake-ups, on which the waiting thread sleeps.
struct Signal(AtomicU32);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.0, u32::MAX >> 1, Scope::Private);
    }
}

impl Default for WaitSet {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitSet {
    /// An empty wait set.
    pub fn new() -> Self {
        let signal = Arc::new(Signal(AtomicU32::new(0)));
        Self { waker: signal.clone().into(), signal, ready: Vec::new() }
    }

    /// Waits until at least one source is ready, at most `timeout`. Returns for each source whether it is ready. Allocates only
    /// in the first call with this number of sources.
    pub fn wait(&mut self, all: &[&dyn Waitable], timeout: Duration) -> &[bool] {
        let until = Instant::now() + timeout;
        loop {
            let seen = self.signal.0.load(Ordering::SeqCst);
            self.ready.clear();
            self.ready.extend(all.iter().map(|one| one.is_ready(&self.waker)));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.ready.contains(&true) {
                return &self.ready;
            }
            futex::wait(&self.signal.0, seen, Some(left), Scope::Private);
        }
    }
}
