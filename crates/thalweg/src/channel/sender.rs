//! Sender threads: one per class, started with the first flow of that class, and one per channel that has scheduling of its own.
//!
//! A submitted flow brings its send right along. The thread drains the flow whenever its socket has room, and passes the right
//! on if the flow has another thread by then.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use super::flow::{Drained, Flow};
use super::retransmitter::Retransmitter;
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use qos::Class;
use qos::priority::PrioritySettings;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The sender threads of a node.
pub(crate) struct Senders {
    classes: [ClassSender; 4],
    own: PiMutex<Vec<(Arc<Own>, JoinHandle<()>)>>,
    pub retransmitter: Retransmitter,
    stop: Arc<AtomicBool>,
    tell: Tell,
}

/// News of a flow for its node, each at most once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlowNews {
    /// The flow sends bulk: a sample above 64 KiB.
    Bulk,
    /// The flow ended because no thread could take over its waiting messages.
    NoThread(String),
}

/// The receiver of the news, with the flow's id.
pub(crate) type Tell = Box<dyn Fn(u32, FlowNews) + Send + Sync>;

#[derive(Default)]
struct ClassSender {
    intake: PiMutex<Option<Arc<Intake>>>,
    thread: PiMutex<Option<JoinHandle<()>>>,
}

struct Intake {
    class: Class,
    arrivals: PiMutex<Vec<Arrival>>,
    waker: Waker,
}

enum Arrival {
    /// With its send right.
    Drain(Arc<Flow>),
    /// There may be room for waiting messages.
    Look(Arc<Flow>),
    /// A batch to be looked at then, and as long as it has messages.
    Flush(Arc<Flow>, Instant),
    /// Some flow has another thread now: flows that are no longer this thread's are passed on.
    Moved,
}

impl Senders {
    pub(crate) fn new(tell: Tell) -> Self {
        Self {
            classes: Default::default(),
            own: PiMutex::default(),
            retransmitter: Retransmitter::default(),
            stop: Arc::default(),
            tell,
        }
    }

    pub(crate) fn tell(&self, flow: &Flow, news: FlowNews) {
        (self.tell)(flow.settings.id, news);
    }

    /// Receives the feedback of the flow's subscribers, and retransmits.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub(crate) fn receive_feedback(&self, flow: &Arc<Flow>) -> io::Result<()> {
        self.retransmitter.add(flow, &self.stop)
    }

    /// Takes over a flow whose send right was given to the thread of its class.
    pub(crate) fn submit(&self, flow: Arc<Flow>) {
        match self.intake(flow.class()) {
            Ok(Some(intake)) => intake.take(Arrival::Drain(flow)),
            Ok(None) => {} // the node is closing
            Err(error) => {
                let why = format!(
                    "no thread for what waits: {error}; raise the limits of threads and open files (ulimit -u, -n)"
                );
                flow.end();
                self.tell(&flow, FlowNews::NoThread(why));
            }
        }
    }

    /// The thread that has the flow's send right looks again whether there is room.
    pub(crate) fn look(&self, flow: &Arc<Flow>) {
        if let Ok(Some(intake)) = self.intake(flow.class()) {
            intake.take(Arrival::Look(flow.clone()));
        }
    }

    /// Watches the flow's batch from then on, as long as it has messages. `false`: there is no thread for it.
    pub(crate) fn watch_batch(&self, flow: &Arc<Flow>, within: Duration) -> bool {
        let intake = self.intake(flow.class()).ok().flatten();
        intake.inspect(|intake| intake.take(Arrival::Flush(flow.clone(), Instant::now() + within))).is_some()
    }

    /// Starts the class's thread before a flow of it needs one: otherwise a late publishing thread would make the twelve allocations.
    /// If the kernel gives no thread now, the first flow with a waiting message tries again.
    pub(crate) fn prepare(&self, class: Class) {
        let _ = self.intake(class);
    }

    /// The class's thread, started if need be; `None` when the node is closing.
    fn intake(&self, class: Class) -> io::Result<Option<Arc<Intake>>> {
        let sender = &self.classes[class as usize];
        let mut slot = sender.intake.lock();
        if slot.is_none() && !self.stop.load(Ordering::Relaxed) {
            let arrivals = PiMutex::new(Vec::with_capacity(256));
            let intake = Arc::new(Intake { class, arrivals, waker: Waker::new()? });
            let thread = SenderThread::new(intake.clone(), self.stop.clone())?;
            let settings = Settings::named(format!("send-{class:?}").to_lowercase());
            *sender.thread.lock() = Some(linux::thread::spawn(settings, move || {
                crate::guard::or_abort("a sending thread", || thread.run())
            })?);
            *slot = Some(intake);
        }
        Ok(slot.clone())
    }

    /// Starts a thread for the flow alone. It sends no message before [`Flow::move_to`].
    ///
    /// # Errors
    /// The kernel gives no thread, or not with this scheduling: a [`linux::sched::SchedError`] within.
    pub(crate) fn start_own(&self, flow: &Arc<Flow>, settings: &PrioritySettings) -> io::Result<Arc<Own>> {
        let own = Arc::new(Own::new());
        let (mine, flow, stop) = (own.clone(), flow.clone(), self.stop.clone());
        let wanted = Settings {
            affinity: settings.affinity.clone(),
            scheduling: settings.sched,
            ..Settings::named(format!("send-{:x}", flow.settings.id))
        };
        let (thread, tid) = linux::thread::start(wanted, move || {
            crate::guard::or_abort("a sending thread", || mine.run(&flow, &stop))
        })?;
        own.started(tid);
        let mut all = self.own.lock();
        all.retain(|(_, thread)| !thread.is_finished());
        all.push((own.clone(), thread));
        Ok(own)
    }

    /// Announces that a flow has another thread now: its former thread passes it on.
    pub(crate) fn moved(&self) {
        for sender in &self.classes {
            let intake = sender.intake.lock().clone();
            if let Some(intake) = intake {
                intake.take(Arrival::Moved);
            }
        }
    }

    /// Ends the threads; messages that still wait are dropped.
    pub(crate) fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let mut threads = Vec::new();
        for sender in &self.classes {
            if let Some(intake) = sender.intake.lock().take() {
                intake.waker.wake();
            }
            threads.extend(sender.thread.lock().take());
        }
        for (own, thread) in std::mem::take(&mut *self.own.lock()) {
            own.leave();
            threads.push(thread);
        }
        threads.extend(self.retransmitter.close());
        for thread in threads.into_iter().filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Intake {
    fn take(&self, arrival: Arrival) {
        self.arrivals.lock().push(arrival);
        self.waker.wake();
    }
}

struct SenderThread {
    intake: Arc<Intake>,
    stop: Arc<AtomicBool>,
    poller: Poller,
    flows: Vec<Option<Working>>,
    timers: Vec<(Instant, Due)>,
}

struct Working {
    flow: Arc<Flow>,
    polled: bool, // registered with the poller, waiting for room
}

enum Due {
    Drain(usize),
    Flush(Arc<Flow>),
}

impl SenderThread {
    fn new(intake: Arc<Intake>, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&intake.waker, WAKER, Readiness::IN)?;
        Ok(Self { intake, stop, poller, flows: Vec::new(), timers: Vec::new() })
    }

    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        while !self.stop.load(Ordering::Relaxed) {
            let next = self.timers.iter().map(|(due, _)| *due).min();
            let timeout = next.map(|due| due.saturating_duration_since(Instant::now()));
            if self.poller.wait(&mut ready, timeout).is_err() {
                // Only a broken epoll set fails here: flows are then polled.
                std::thread::sleep(NO_DESCRIPTOR_PAUSE);
                self.take_arrivals();
                (0..self.flows.len()).for_each(|index| self.visit(index));
            }
            for event in &ready {
                match event.token {
                    WAKER => self.take_arrivals(),
                    token => self.visit(token as usize),
                }
            }
            self.run_timers();
        }
    }

    fn take_arrivals(&mut self) {
        self.intake.waker.clear();
        loop {
            let Some(arrival) = self.intake.arrivals.lock().pop() else { return };
            match arrival {
                Arrival::Drain(flow) => {
                    let index = self.flows.iter().position(Option::is_none).unwrap_or(self.flows.len());
                    if index == self.flows.len() {
                        self.flows.push(None);
                    }
                    self.flows[index] = Some(Working { flow, polled: false });
                    self.visit(index);
                }
                Arrival::Look(flow) => {
                    let is_its = |w: &Option<Working>| w.as_ref().is_some_and(|w| Arc::ptr_eq(&w.flow, &flow));
                    if let Some(index) = self.flows.iter().position(is_its) {
                        self.timers.retain(|(_, due)| !matches!(due, Due::Drain(other) if *other == index));
                        self.visit(index);
                    }
                }
                Arrival::Flush(flow, due) => self.timers.push((due, Due::Flush(flow))),
                Arrival::Moved => {
                    let moved = |w: &Option<Working>| w.as_ref().is_some_and(|w| !w.flow.is_sent_by(self.intake.class));
                    let gone: Vec<usize> = (0..self.flows.len()).filter(|i| moved(&self.flows[*i])).collect();
                    gone.into_iter().for_each(|index| self.visit(index));
                }
            }
        }
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        while let Some(index) = self.timers.iter().position(|(due, _)| *due <= now) {
            match self.timers.swap_remove(index).1 {
                Due::Drain(flow) => self.visit(flow),
                Due::Flush(flow) => {
                    if let Some(pause) = flow.flush_due(linux::clock::monotonic_ns()) {
                        self.timers.push((now + pause, Due::Flush(flow)));
                    }
                }
            }
        }
    }

    fn visit(&mut self, index: usize) {
        let Some(Some(working)) = self.flows.get_mut(index) else { return };
        if !working.flow.is_sent_by(self.intake.class) {
            working.stop_polling(&self.poller);
            if let Some(working) = self.flows[index].take() {
                working.flow.pass_on();
            }
            return;
        }
        match working.flow.drain() {
            Drained::Empty => {
                working.stop_polling(&self.poller);
                self.flows[index] = None;
            }
            Drained::Blocked => {
                if !working.start_polling(&self.poller, index) {
                    self.timers.push((Instant::now() + NO_DESCRIPTOR_PAUSE, Due::Drain(index)));
                }
            }
            Drained::Pause(pause) => {
                working.stop_polling(&self.poller);
                self.timers.push((Instant::now() + pause, Due::Drain(index)));
            }
        }
    }
}

impl Working {
    fn start_polling(&mut self, poller: &Poller, index: usize) -> bool {
        let Some(descriptor) = self.flow.descriptor() else { return false };
        if !self.polled {
            self.polled = poller.add(descriptor, index as u64, Readiness::OUT).is_ok();
        }
        self.polled
    }

    fn stop_polling(&mut self, poller: &Poller) {
        if let Some(descriptor) = self.flow.descriptor().filter(|_| self.polled) {
            let _ = poller.remove(descriptor);
        }
        self.polled = false;
    }
}

/// Access to a flow's own sender thread: while its channel has scheduling or processors of its own, every sample is handed over to it,
/// so that the channel's priority governs and not the publishing thread's.
///
/// The thread waits on a word: [`WORK`] brings the send right along, [`LEAVE`] ends the thread. A right that it still has then
/// goes to the thread of the flow's class.
pub(crate) struct Own {
    word: AtomicU32,
    tid: AtomicU32,
}

impl Own {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), tid: AtomicU32::new(0) }
    }

    /// The id of its thread, once the thread has started.
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Relaxed) as i32
    }

    fn started(&self, tid: i32) {
        self.tid.store(tid as u32, Ordering::Relaxed);
    }

    /// Gives the thread the flow's send right. Callers of this and of the end of the thread hold the flow's lock on it, so that
    /// no right comes after the end. The wake-up may follow without that lock.
    pub(crate) fn give(&self) {
        self.word.fetch_or(WORK, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.word.fetch_or(LEAVE, Ordering::Release);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        futex::wake(&self.word, 1, Scope::Private);
    }

    /// The thread's work.
    fn run(&self, flow: &Arc<Flow>, stop: &AtomicBool) {
        let mut holds = false;
        loop {
            let word = self.word.fetch_and(!WORK, Ordering::AcqRel);
            holds |= word & WORK != 0;
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if word & LEAVE != 0 {
                if holds {
                    flow.pass_on();
                }
                return;
            }
            if !holds {
                futex::wait(&self.word, 0, None, Scope::Private);
                continue;
            }
            match flow.drain() {
                Drained::Empty => holds = false,
                Drained::Blocked => flow.wait_room(FULL_PAUSE),
                Drained::Pause(pause) => {
                    if !pause.is_zero() {
                        futex::wait(&self.word, 0, Some(pause), Scope::Private);
                    }
                }
            }
        }
    }
}

const WAKER: u64 = u64::MAX;
/// Pause before another look at a full carrier that has no descriptor to wait for.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(1);

const WORK: u32 = 1;
const LEAVE: u32 = 2;
/// Time after which a full socket is looked at again even without an event: the thread may have to leave.
const FULL_PAUSE: Duration = Duration::from_millis(20);
