//! Reader threads: the first channels of a node have a blocking reader each (one call per sample); the others share
//! one thread that waits for all of them.

use crate::channel::inbound::{Inbound, Step};
use crate::port::Channel;
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use linux::thread::Settings;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Channels with a blocking reader of their own. Any readiness call costs 10–12 % of a round trip on the machines
/// measured, but a thread per channel does not scale.
const OWN_THREADS: usize = 8;

/// Told when a channel is over: its inbound half and why.
pub(crate) type Ended = Arc<dyn Fn(&Inbound, String) + Send + Sync>;

/// The reader threads of a node.
pub(crate) struct Readers {
    own: Arc<AtomicUsize>,
    shared: Mutex<Option<Arc<Shared>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stop: Arc<AtomicBool>,
    ended: Ended,
    /// The channels served, to be cut when the node closes.
    serving: Mutex<Vec<Weak<Channel>>>,
}

struct Shared {
    arrivals: PiMutex<Vec<Inbound>>,
    waker: Waker,
}

impl Readers {
    pub fn new(ended: Ended) -> Self {
        Self {
            own: Arc::default(),
            shared: Mutex::default(),
            threads: Mutex::default(),
            stop: Arc::default(),
            ended,
            serving: Mutex::default(),
        }
    }

    /// Whether the next channel gets a thread of its own.
    pub fn has_own_thread_left(&self) -> bool {
        self.own.load(Ordering::Relaxed) < OWN_THREADS
    }

    /// Serves the channel from now on.
    pub fn serve(&self, inbound: Inbound) {
        {
            let mut serving = self.serving.lock().unwrap_or_else(|e| e.into_inner());
            serving.retain(|channel| channel.strong_count() > 0);
            serving.push(Arc::downgrade(&inbound.channel));
        }
        if self.has_own_thread_left() || inbound.descriptor().is_none() {
            self.serve_alone(inbound);
        } else {
            self.serve_together(inbound);
        }
    }

    /// Runs `body` on a thread of this node until it returns; `body` is given the stop flag.
    pub fn run(&self, name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) {
        let (stop, own) = (self.stop.clone(), self.own.clone());
        own.fetch_add(1, Ordering::Relaxed);
        let started = linux::thread::spawn(Settings::named(name), move || {
            body(&stop);
            own.fetch_sub(1, Ordering::Relaxed);
        });
        match started {
            Ok(thread) => self.keep(thread),
            Err(_) => drop(self.own.fetch_sub(1, Ordering::Relaxed)),
        }
    }

    fn keep(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads.lock().unwrap_or_else(|e| e.into_inner());
        threads.retain(|t| !t.is_finished());
        threads.push(thread);
    }

    fn serve_alone(&self, mut inbound: Inbound) {
        let ended = self.ended.clone();
        inbound.wait_without_end();
        self.run("reader", move |stop| {
            while !stop.load(Ordering::Relaxed) {
                if let Step::Ended(why) = inbound.step(true) {
                    ended(&inbound, why);
                    return;
                }
            }
        });
    }

    fn serve_together(&self, inbound: Inbound) {
        let mut slot = self.shared.lock().unwrap_or_else(|e| e.into_inner());
        if slot.is_none() {
            let Ok(waker) = Waker::new() else { return };
            let shared = Arc::new(Shared { arrivals: PiMutex::new(Vec::new()), waker });
            let (seen, stop, ended) = (shared.clone(), self.stop.clone(), self.ended.clone());
            let body = move || SharedReader::new(seen, stop, ended).map_or((), SharedReader::run);
            let Ok(thread) = linux::thread::spawn(Settings::named("readers"), body) else { return };
            self.keep(thread);
            *slot = Some(shared);
        }
        if let Some(shared) = slot.as_ref() {
            shared.arrivals.lock().push(inbound);
            shared.waker.wake();
        }
    }

    /// Ends all readers. Returns when they are gone (at the latest one tick later), unless called on one of them.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(shared) = self.shared.lock().unwrap_or_else(|e| e.into_inner()).take() {
            shared.waker.wake();
        }
        for channel in std::mem::take(&mut *self.serving.lock().unwrap_or_else(|e| e.into_inner())) {
            if let Some(channel) = channel.upgrade() {
                channel.cut();
            }
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(|e| e.into_inner()));
        // Dropped within a callback: the other readers may wait for that very callback. They end by themselves after it.
        if threads.iter().any(|t| t.thread().id() == std::thread::current().id()) {
            return;
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// The thread that serves many channels: one wait per wake-up, one receive per sample.
struct SharedReader {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    ended: Ended,
    poller: Poller,
    inbounds: Vec<Option<Inbound>>,
}

const WAKER: u64 = u64::MAX;
/// How often channels that were closed by this side are looked for.
const SWEEP: Duration = Duration::from_millis(500);

impl SharedReader {
    fn new(shared: Arc<Shared>, stop: Arc<AtomicBool>, ended: Ended) -> Option<Self> {
        let poller = Poller::new().ok()?;
        poller.add(&shared.waker, WAKER, Readiness::IN).ok()?;
        Some(Self { shared, stop, ended, poller, inbounds: Vec::new() })
    }

    fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        let mut swept = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            if self.poller.wait(&mut ready, Some(SWEEP)).is_err() {
                return;
            }
            for event in &ready {
                match event.token {
                    WAKER => self.take_arrivals(),
                    token => self.visit(token as usize),
                }
            }
            if swept.elapsed() >= SWEEP {
                self.sweep();
                swept = Instant::now();
            }
        }
    }

    fn take_arrivals(&mut self) {
        self.shared.waker.clear();
        let arrivals = std::mem::take(&mut *self.shared.arrivals.lock());
        for inbound in arrivals {
            let index = self.inbounds.iter().position(Option::is_none).unwrap_or(self.inbounds.len());
            if index == self.inbounds.len() {
                self.inbounds.push(None);
            }
            if let Some(fd) = inbound.descriptor() {
                let _ = self.poller.add(fd, index as u64, Readiness::IN);
            }
            self.inbounds[index] = Some(inbound);
        }
    }

    fn visit(&mut self, index: usize) {
        let Some(Some(inbound)) = self.inbounds.get_mut(index) else { return };
        if let Step::Ended(why) = inbound.step(false) {
            self.remove(index, why);
        }
    }

    fn remove(&mut self, index: usize, why: String) {
        if let Some(inbound) = self.inbounds.get_mut(index).and_then(Option::take) {
            if let Some(fd) = inbound.descriptor() {
                let _ = self.poller.remove(fd);
            }
            (self.ended)(&inbound, why);
        }
    }

    fn sweep(&mut self) {
        for index in 0..self.inbounds.len() {
            if self.inbounds[index].as_ref().is_some_and(|i| i.is_over()) {
                self.remove(index, "closed".to_owned());
            }
        }
    }
}
