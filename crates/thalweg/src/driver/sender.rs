//! Sender threads: one per class, started when the first flow of that class has to wait.
//!
//! A flow that is submitted brings its send right along; the thread drains it whenever its socket has room.

use crate::channel::flow::{Drained, Flow};
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use qos::Class;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The sender threads of a node.
pub(crate) struct Senders {
    classes: [ClassSender; 4],
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct ClassSender {
    intake: PiMutex<Option<Arc<Intake>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Intake {
    arrivals: PiMutex<Vec<Arrival>>,
    waker: Waker,
}

enum Arrival {
    /// With its send right.
    Drain(Arc<Flow>),
    /// A batch that must leave by then.
    Flush(Arc<Flow>, Instant),
}

impl Senders {
    pub fn new() -> Self {
        Self { classes: Default::default(), stop: Arc::default() }
    }

    /// Takes over a flow whose send right was given to the thread.
    pub fn submit(&self, flow: Arc<Flow>) {
        self.arrive(flow.settings.class, Arrival::Drain(flow));
    }

    /// Flushes the flow's batch after `within`.
    pub fn submit_later(&self, flow: Arc<Flow>, within: Duration) {
        self.arrive(flow.settings.class, Arrival::Flush(flow, Instant::now() + within));
    }

    fn arrive(&self, class: Class, arrival: Arrival) {
        if let Some(intake) = self.intake(class) {
            intake.arrivals.lock().push(arrival);
            intake.waker.wake();
        }
    }

    /// The class's thread, started if need be; `None` only when the kernel gives no thread or the node is closing.
    fn intake(&self, class: Class) -> Option<Arc<Intake>> {
        let sender = &self.classes[class as usize];
        let mut slot = sender.intake.lock();
        if slot.is_none() && !self.stop.load(Ordering::Relaxed) {
            let intake =
                Arc::new(Intake { arrivals: PiMutex::new(Vec::with_capacity(256)), waker: Waker::new().ok()? });
            let (seen, stop) = (intake.clone(), self.stop.clone());
            let body = move || SenderThread::new(seen, stop).map_or((), SenderThread::run);
            let thread = linux::thread::spawn(Settings::named(format!("send-{class:?}").to_lowercase()), body).ok()?;
            *sender.thread.lock().unwrap_or_else(|e| e.into_inner()) = Some(thread);
            *slot = Some(intake);
        }
        slot.clone()
    }

    /// Ends the threads; what still waits is dropped.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for sender in &self.classes {
            if let Some(intake) = sender.intake.lock().take() {
                intake.waker.wake();
            }
            let thread = sender.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
            if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
                let _ = thread.join();
            }
        }
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

const WAKER: u64 = u64::MAX;
/// Pause before another look at a full carrier that has no descriptor to wait for.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(1);

impl SenderThread {
    fn new(intake: Arc<Intake>, stop: Arc<AtomicBool>) -> Option<Self> {
        let poller = Poller::new().ok()?;
        poller.add(&intake.waker, WAKER, Readiness::IN).ok()?;
        Some(Self { intake, stop, poller, flows: Vec::new(), timers: Vec::new() })
    }

    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        while !self.stop.load(Ordering::Relaxed) {
            let next = self.timers.iter().map(|(due, _)| *due).min();
            let timeout = next.map(|due| due.saturating_duration_since(Instant::now()));
            if self.poller.wait(&mut ready, timeout).is_err() {
                return;
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
                Arrival::Flush(flow, due) => self.timers.push((due, Due::Flush(flow))),
            }
        }
    }

    fn run_timers(&mut self) {
        let now = Instant::now();
        while let Some(index) = self.timers.iter().position(|(due, _)| *due <= now) {
            match self.timers.swap_remove(index).1 {
                Due::Drain(flow) => self.visit(flow),
                Due::Flush(flow) => {
                    if !flow.flush_due() {
                        self.timers.push((now + NO_DESCRIPTOR_PAUSE, Due::Flush(flow)));
                    }
                }
            }
        }
    }

    fn visit(&mut self, index: usize) {
        let Some(Some(working)) = self.flows.get_mut(index) else { return };
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
