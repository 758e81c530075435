//! Reader threads. The first channels of a node have a blocking reader each (one call per sample). So have channels with a priority of
//! their own, and those that would hold up others. The rest share one thread per class that waits for all of them.

mod priority;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use priority::{ServedBy, ThreadError};

use crate::carrier::TICK;
use crate::channel::Channel;
use crate::channel::inbound::{Inbound, Step};
use crate::event::Events;
use crate::guard::guarded;
use crate::port::AnySubscriber;
use linux::futex::{self, Scope};
use linux::lock::PiMutex;
use linux::sched;
use linux::thread::Settings;
use qos::Class;
use qos::priority::{Policy, Scheduling};
use shared::{Arrival, Intake};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Called when a channel is over, with its inbound half and the reason.
pub(crate) type Ended = Arc<dyn Fn(&Inbound, String) + Send + Sync>;

/// The reader threads of a node.
pub(crate) struct Readers(Arc<Hub>);

/// The state that the reader threads share.
struct Hub {
    ended: Ended,
    events: Events,
    stop: AtomicBool,
    /// Threads that count towards the limits below.
    permits: AtomicUsize,
    shared: PiMutex<[Option<Arc<Intake>>; 4]>,
    served: PiMutex<BTreeMap<u64, Arc<Served>>>,
    threads: PiMutex<Vec<JoinHandle<()>>>,
    /// A thread whose processors and nice value are the default: the control thread, once that runs.
    model: AtomicI32,
}

/// A channel of a subscriber of this node, and the thread that serves it.
struct Served {
    channel: Weak<Channel>,
    id: u64,
    class: Class,
    /// The channel is to return to the thread it came from.
    leaves: AtomicBool,
    place: PiMutex<Place>,
}

/// The thread that serves a channel. A thread ends only with this locked, so that the thread id in it is alive.
enum Place {
    /// A thread that serves this channel alone. `home`: the shared reader to which the channel returns.
    Own { tid: i32, home: Option<Arc<Intake>> },
    /// The shared reader of its class.
    Shared(Arc<Intake>),
    /// The thread that runs the callbacks of its port.
    Port(Weak<dyn AnySubscriber>),
    /// A thread that is not the node's.
    Elsewhere(ServedBy),
    /// No thread: not served yet, or over.
    Gone,
}

/// One of the threads that count; released when the thread ends.
struct ThreadPermit(Arc<Hub>);

impl Drop for ThreadPermit {
    fn drop(&mut self) {
        self.0.permits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Readers {
    pub(crate) fn new(ended: Ended, events: Events) -> Self {
        Self(Arc::new(Hub {
            ended,
            events,
            stop: AtomicBool::new(false),
            permits: AtomicUsize::new(0),
            shared: PiMutex::default(),
            served: PiMutex::default(),
            threads: PiMutex::default(),
            model: AtomicI32::new(0),
        }))
    }

    /// Makes the calling thread the model: threads without settings have its processors and its nice value.
    pub(crate) fn as_this_thread(&self) {
        self.0.model.store(sched::current(), Ordering::Relaxed);
    }

    /// `true` if the next channel gets a thread of its own, though so many that are being opened will need one.
    pub(crate) fn has_own_thread_left(&self, opening: usize) -> bool {
        self.0.permits.load(Ordering::Relaxed) + opening < OWN_THREADS
    }

    /// Serves the channel from now on.
    pub(crate) fn serve(&self, inbound: Inbound, class: Class) {
        let served = self.0.enter(&inbound.channel, class, Place::Gone);
        let alone = inbound.descriptor().is_none() || inbound.subscriber_port.blocks();
        let permit = if alone { Some(self.0.permit_beyond_limit()) } else { self.0.permit(OWN_THREADS) };
        if let Some(permit) = permit {
            match self.0.serve_alone(&served, permit) {
                Ok(slot) => return slot.put(inbound),
                Err(error) if alone => {
                    return self.0.end(&served, &inbound, format!("no thread could be started to receive it: {error}"));
                }
                Err(_) => {} // a thread that exists already may serve it too
            }
        }
        self.0.serve_together(served, inbound);
    }

    /// Registers a channel that no reader thread serves, so that it is reported like the others.
    pub(crate) fn served_elsewhere(&self, channel: &Arc<Channel>, by: ServedBy) {
        self.0.enter(channel, Class::Normal, Place::Elsewhere(by));
    }

    /// Registers a `local` channel whose callbacks run on its port's thread.
    pub(crate) fn served_by_port(&self, channel: &Arc<Channel>, subscriber_port: &Arc<dyn AnySubscriber>) {
        self.0.enter(channel, Class::Normal, Place::Port(Arc::downgrade(subscriber_port)));
    }

    /// Runs `body` on a thread of this node until it returns; `body` is given the stop flag. Returns the thread's id.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(crate) fn run(&self, name: &str, body: impl FnOnce(&AtomicBool) + Send + 'static) -> io::Result<i32> {
        let (hub, permit) = (self.0.clone(), self.0.permit_beyond_limit());
        self.0.start(name, None, move || {
            body(&hub.stop);
            drop(permit);
        })
    }

    /// Ends all readers. Returns when they are gone (at most one tick later), unless called on one of them.
    pub(crate) fn close(&self) {
        let hub = &self.0;
        hub.stop.store(true, Ordering::Relaxed);
        let shared = std::mem::take(&mut *hub.shared.lock());
        shared.iter().flatten().for_each(|intake| intake.waker.wake());
        let served = std::mem::take(&mut *hub.served.lock());
        for served in served.values().filter(|s| !matches!(*s.place.lock(), Place::Elsewhere(_))) {
            if let Some(channel) = served.channel.upgrade() {
                channel.cut();
            }
        }
        let threads = std::mem::take(&mut *hub.threads.lock());
        // The node was dropped within a callback. Other readers may wait for that callback; they end by themselves after it.
        if threads.iter().any(|t| t.thread().id() == std::thread::current().id()) {
            return;
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Hub {
    fn enter(&self, channel: &Arc<Channel>, class: Class, place: Place) -> Arc<Served> {
        let served = Arc::new(Served {
            channel: Arc::downgrade(channel),
            id: channel.id,
            class,
            leaves: AtomicBool::new(false),
            place: PiMutex::new(place),
        });
        let mut all = self.served.lock();
        all.retain(|_, served| served.channel.strong_count() > 0);
        all.insert(channel.id, served.clone());
        served
    }

    /// A permit, if fewer than `limit` are taken.
    fn permit(self: &Arc<Self>, limit: usize) -> Option<ThreadPermit> {
        let take = |taken: usize| (taken < limit).then_some(taken + 1);
        self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| ThreadPermit(self.clone()))
    }

    /// A permit beyond any limit, for a channel that cannot be served otherwise.
    fn permit_beyond_limit(self: &Arc<Self>) -> ThreadPermit {
        self.permits.fetch_add(1, Ordering::Relaxed);
        ThreadPermit(self.clone())
    }

    /// Starts a thread with these settings or the default ones, and keeps it until the node closes.
    fn start(&self, name: &str, to: Option<Wanted>, body: impl FnOnce() + Send + 'static) -> io::Result<i32> {
        // Only settings that were asked for may fail: a kernel without these calls still has threads.
        let best_effort = to.is_none();
        let Wanted { scheduling, affinity } = to.unwrap_or_else(|| self.default_settings());
        let (scheduling, affinity) = (Some(scheduling), Some(affinity));
        let settings = Settings { scheduling, affinity, best_effort, stack: STACK, ..Settings::named(name) };
        let (thread, tid) = linux::thread::start(settings, body)?;
        let mut threads = self.threads.lock();
        threads.retain(|t| !t.is_finished());
        threads.push(thread);
        Ok(tid)
    }

    fn default_settings(&self) -> Wanted {
        let model = sched::read(self.model.load(Ordering::Relaxed)).or_else(|_| sched::read(0));
        let (nice, affinity) = model.map(|m| (m.nice, m.affinity)).unwrap_or_default();
        Wanted { scheduling: Scheduling { policy: Policy::Other, nice }, affinity }
    }

    /// Serves the channel on a thread of its own permanently, as soon as its half is put into the slot.
    fn serve_alone(self: &Arc<Self>, served: &Arc<Served>, permit: ThreadPermit) -> io::Result<Arc<Slot>> {
        let mut place = served.place.lock();
        let (slot, tid) = self.start_own(served, None, Some(permit))?;
        *place = Place::Own { tid, home: None };
        Ok(slot)
    }

    /// Starts a thread for this channel alone, which waits for its half. A thread without a permit returns the channel when asked.
    fn start_own(
        self: &Arc<Self>,
        served: &Arc<Served>,
        to: Option<Wanted>,
        permit: Option<ThreadPermit>,
    ) -> io::Result<(Arc<Slot>, i32)> {
        let slot = Arc::new(Slot::default());
        let (hub, served, waiting) = (self.clone(), served.clone(), slot.clone());
        let goes_back = permit.is_none();
        let tid = self.start("reader", to, move || {
            serve_own(&hub, &served, &waiting, goes_back);
            drop(permit);
        })?;
        Ok((slot, tid))
    }

    fn serve_together(self: &Arc<Self>, served: Arc<Served>, inbound: Inbound) {
        let intake = match self.intake(served.class) {
            Ok(intake) => intake,
            Err(error) => {
                return self.end(&served, &inbound, format!("no thread could be started to receive it: {error}"));
            }
        };
        *served.place.lock() = Place::Shared(intake.clone());
        self.pass(&intake, served, inbound);
    }

    /// Passes a channel to a shared reader.
    fn pass(&self, intake: &Intake, served: Arc<Served>, inbound: Inbound) {
        if let Err(Arrival::Serve(served, inbound)) = intake.push(Arrival::Serve(served, inbound)) {
            self.end(&served, &inbound, "the thread that served it is gone".to_owned());
        }
    }

    /// The shared reader of this class, started if need be. At the limit of threads it is another class's reader.
    fn intake(self: &Arc<Self>, class: Class) -> io::Result<Arc<Intake>> {
        let mut shared = self.shared.lock();
        if let Some(intake) = shared[class as usize].as_ref().filter(|intake| !intake.is_over()) {
            return Ok(intake.clone());
        }
        let permit = match (self.permit(READER_THREADS), shared.iter().flatten().find(|intake| !intake.is_over())) {
            (Some(permit), _) => permit,
            (None, Some(other)) => return Ok(other.clone()),
            (None, None) => self.permit_beyond_limit(),
        };
        let intake = shared::start(self, class, permit)?;
        shared[class as usize] = Some(intake.clone());
        Ok(intake)
    }

    /// A channel is over. Its owner learns the reason, unless the node is closing.
    fn end(&self, served: &Served, inbound: &Inbound, why: String) {
        *served.place.lock() = Place::Gone;
        self.served.lock().remove(&served.id);
        if !self.stop.load(Ordering::Relaxed) {
            (self.ended)(inbound, why);
        }
    }
}

/// The scheduling and processors of a thread.
#[derive(Clone)]
struct Wanted {
    scheduling: Scheduling,
    affinity: Vec<u16>,
}

/// One step of a channel. A panic in it (in a callback) ends the channel with the panic's message, not the thread with all its channels.
fn step(inbound: &mut Inbound, wait: bool) -> Step {
    guarded(CALLBACK, || inbound.step(wait)).unwrap_or_else(Step::Ended)
}

/// The place in which a thread that was started for a channel gets its inbound half.
#[derive(Default)]
struct Slot {
    half: PiMutex<Option<Inbound>>,
    /// 0: nothing yet; 1: the half is there; 2: it will not come.
    state: AtomicU32,
}

impl Slot {
    /// Hands the half over.
    fn put(&self, inbound: Inbound) {
        *self.half.lock() = Some(inbound);
        self.tell(1);
    }

    /// The channel ended before its half could be handed over.
    fn close(&self) {
        self.tell(2);
    }

    fn tell(&self, state: u32) {
        self.state.store(state, Ordering::Release);
        futex::wake(&self.state, 1, Scope::Private);
    }

    fn take(&self, hub: &Hub) -> Option<Inbound> {
        while self.state.load(Ordering::Acquire) == 0 {
            if hub.stop.load(Ordering::Relaxed) {
                return None;
            }
            futex::wait(&self.state, 0, Some(TICK), Scope::Private);
        }
        self.half.lock().take()
    }
}

/// Serves one channel until it ends or returns, and waits in the receive call itself. A channel that may return keeps its tick, because
/// interrupting a wait without a limit may lose bytes.
fn serve_own(hub: &Hub, served: &Arc<Served>, slot: &Slot, goes_back: bool) {
    let Some(mut inbound) = slot.take(hub) else { return }; // the former thread has reported its end
    if !goes_back {
        inbound.wait_without_end();
    }
    while !hub.stop.load(Ordering::Relaxed) {
        if served.leaves.load(Ordering::Relaxed) {
            match go_back(hub, served, inbound) {
                None => return,
                Some(stays) => inbound = stays,
            }
        }
        if let Step::Ended(why) = step(&mut inbound, true) {
            return hub.end(served, &inbound, why);
        }
    }
    *served.place.lock() = Place::Gone;
}

/// Returns the channel to the shared reader; `Some`: the return was revoked, and the half stays.
fn go_back(hub: &Hub, served: &Arc<Served>, inbound: Inbound) -> Option<Inbound> {
    let mut place = served.place.lock();
    let Place::Own { home: Some(home), .. } = &*place else { return Some(inbound) };
    if !served.leaves.swap(false, Ordering::Relaxed) {
        return Some(inbound);
    }
    let home = home.clone();
    *place = Place::Shared(home.clone());
    // The half is passed with the place locked, so that a later request for the half follows it in the queue.
    let passed = home.push(Arrival::Serve(served.clone(), inbound));
    drop(place);
    if let Err(Arrival::Serve(served, inbound)) = passed {
        hub.end(&served, &inbound, "the thread that served it is gone".to_owned());
    }
    None
}

/// Stack of a reader thread. Callbacks run on it, and the repair of lost fragments takes 128 KiB of it. Untouched stack costs nothing.
const STACK: usize = 1 << 20;
/// Threads up to which channels get a blocking reader of their own. A readiness call costs 10–12 % of a round trip on the machines
/// measured, but a thread per channel does not scale.
const OWN_THREADS: usize = 8;
/// All reader threads of a node, without those that were given a priority. Threads beyond [`OWN_THREADS`] are for shared readers, and for
/// channels that would hold those up.
const READER_THREADS: usize = 12;
/// Name of the code that runs when a sample is delivered, in messages of panics.
pub(super) const CALLBACK: &str = "its callback";
