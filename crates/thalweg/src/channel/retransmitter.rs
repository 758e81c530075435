//! The thread that receives feedback for this node's reliable flows over datagrams, and retransmits missing messages. There is
//! one per node, started with the first such flow; it has all their timers.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use crate::channel::flow::Flow;
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Access to the thread.
#[derive(Default)]
pub(crate) struct Retransmitter {
    intake: PiMutex<Option<Arc<Intake>>>,
    thread: PiMutex<Option<JoinHandle<()>>>,
    /// End of the thread's sleep, by the monotonic clock; 0: it does not sleep.
    sleeps_until: Arc<AtomicU64>,
}

struct Intake {
    arrivals: PiMutex<Vec<Arc<Flow>>>,
    waker: Waker,
    stop: Arc<AtomicBool>,
}

impl Retransmitter {
    /// From now on the feedback for the flow is received.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub(crate) fn add(&self, flow: &Arc<Flow>, stop: &Arc<AtomicBool>) -> io::Result<()> {
        let mut slot = self.intake.lock();
        if slot.is_none() {
            let intake = Arc::new(Intake { arrivals: PiMutex::default(), waker: Waker::new()?, stop: stop.clone() });
            let poller = Poller::new()?;
            poller.add(&intake.waker, WAKER, Readiness::IN)?;
            let hearing =
                Hearing { intake: intake.clone(), poller, flows: Vec::new(), sleeps_until: self.sleeps_until.clone() };
            *self.thread.lock() = Some(linux::thread::spawn(Settings::named("retransmit"), move || {
                crate::guard::or_abort("the thread that receives feedback", || hearing.run());
            })?);
            *slot = Some(intake);
        }
        if let Some(intake) = slot.as_ref() {
            intake.arrivals.lock().push(flow.clone());
            intake.waker.wake();
        }
        Ok(())
    }

    /// Announces work at this time: the thread is woken if it would sleep longer.
    #[inline]
    pub(crate) fn look_by(&self, due_ns: u64) {
        if due_ns < self.sleeps_until.load(SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One wake-up is enough: the thread looks at all flows before it sleeps again.
        self.sleeps_until.store(0, SeqCst);
        if let Some(intake) = self.intake.lock().as_ref() {
            intake.waker.wake();
        }
    }

    /// Ends the thread, if there is one.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        if let Some(intake) = self.intake.lock().take() {
            intake.waker.wake();
        }
        self.thread.lock().take()
    }
}

struct Hearing {
    intake: Arc<Intake>,
    poller: Poller,
    flows: Vec<Option<Listened>>,
    sleeps_until: Arc<AtomicU64>,
}

struct Listened {
    flow: Weak<Flow>,
    watched: bool, // by the poller; otherwise the flow is polled
}

const WAKER: u64 = u64::MAX;
/// Interval at which ended flows are looked for without other events.
const SWEEP_NS: u64 = 1_000_000_000;

/// Interval at which a flow without a descriptor to watch is polled (a carrier around it holds datagrams back).
const UNWATCHED_NS: u64 = 1_000_000;

impl Hearing {
    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        while !self.intake.stop.load(SeqCst) {
            // The time of sleep is stored before the last look: a message sent after that look finds the thread asleep.
            let first = self.retransmit();
            self.sleeps_until.store(first, SeqCst);
            let until = self.retransmit().min(first);
            let pause = Duration::from_nanos(until.saturating_sub(monotonic_ns()));
            if let Err(error) = self.poller.wait(&mut ready, Some(pause)) {
                crate::guard::abort(&format!("the thread that receives feedback cannot wait any more: {error}"));
            }
            self.sleeps_until.store(0, SeqCst);
            for event in &ready {
                match event.token {
                    WAKER => self.take_arrivals(),
                    token => self.receive_feedback(token as usize),
                }
            }
        }
    }

    fn take_arrivals(&mut self) {
        self.intake.waker.clear();
        let arrivals = std::mem::take(&mut *self.intake.arrivals.lock());
        for flow in arrivals {
            let index = self.flows.iter().position(Option::is_none).unwrap_or(self.flows.len());
            if index == self.flows.len() {
                self.flows.push(None);
            }
            let watched = flow.descriptor().map(|fd| self.poller.add(fd, index as u64, Readiness::IN));
            self.flows[index] =
                Some(Listened { flow: Arc::downgrade(&flow), watched: matches!(watched, Some(Ok(()))) });
        }
    }

    fn receive_feedback(&mut self, index: usize) {
        if let Some(flow) = self.flows.get(index).and_then(Option::as_ref).and_then(|l| l.flow.upgrade()) {
            flow.receive_feedback();
        }
    }

    /// Sends the due retransmits of all flows. Returns the time of the next look.
    fn retransmit(&mut self) -> u64 {
        let now = monotonic_ns();
        let mut next = now + SWEEP_NS;
        for slot in &mut self.flows {
            let Some(Listened { flow, watched }) = slot else { continue };
            let (flow, watched) = (flow.upgrade(), *watched);
            match flow {
                Some(flow) if !flow.has_ended() => {
                    if !watched {
                        flow.receive_feedback();
                        next = next.min(now + UNWATCHED_NS);
                    }
                    next = flow.retransmit(now).unwrap_or(next).min(next);
                }
                Some(flow) => {
                    flow.descriptor().filter(|_| watched).map(|fd| self.poller.remove(fd));
                    *slot = None;
                }
                None => *slot = None, // its descriptor was closed, and left the set by that
            }
        }
        next
    }
}
