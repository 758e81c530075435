//! The thread that serves many channels: one wait call per wake-up, one receive call per sample.

use super::{Hub, Place, READER_THREADS, Served, Slot, ThreadPermit, step};
use crate::channel::flow::BULK;
use crate::channel::inbound::{HELD_PAUSE, Inbound, Step};
use crate::event::Event;
use linux::lock::PiMutex;
use linux::poll::{Poller, Readiness, Ready, Waker};
use qos::Class;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The queue by which other threads give channels to a shared reader.
pub(super) struct Intake {
    arrivals: PiMutex<Arrivals>,
    pub waker: Waker,
    pub class: Class,
    pub tid: AtomicI32,
}

struct Arrivals {
    waiting: Vec<Arrival>,
    over: bool, // the reader has ended
}

pub(super) enum Arrival {
    /// A channel, to be served from now on.
    Serve(Arc<Served>, Inbound),
    /// The channel with this number leaves for a thread of its own.
    HandOver(u64, Arc<Slot>),
}

impl Intake {
    /// Passes this to the reader; gives it back if the reader has ended.
    pub(super) fn push(&self, arrival: Arrival) -> Result<(), Arrival> {
        let mut arrivals = self.arrivals.lock();
        if arrivals.over {
            return Err(arrival);
        }
        arrivals.waiting.push(arrival);
        drop(arrivals);
        self.waker.wake();
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.arrivals.lock().over
    }
}

/// Starts the shared reader of a class.
pub(super) fn start(hub: &Arc<Hub>, class: Class, permit: ThreadPermit) -> io::Result<Arc<Intake>> {
    let arrivals = Arrivals { waiting: Vec::new(), over: false };
    let intake =
        Arc::new(Intake { arrivals: PiMutex::new(arrivals), waker: Waker::new()?, class, tid: AtomicI32::new(0) });
    let poller = Poller::new()?;
    poller.add(&intake.waker, WAKER, Readiness::IN)?;
    let reader = SharedReader {
        hub: hub.clone(),
        intake: intake.clone(),
        poller,
        members: Vec::new(),
        timed: Vec::new(),
        starved: Vec::new(),
        _seat: permit,
    };
    let tid = hub.start(&format!("read-{class:?}").to_lowercase(), None, move || reader.run())?;
    intake.tid.store(tid, Ordering::Relaxed);
    Ok(intake)
}

struct SharedReader {
    hub: Arc<Hub>,
    intake: Arc<Intake>,
    poller: Poller,
    members: Vec<Option<Member>>,
    /// Places of members with timers: those of reliable flows over datagrams.
    timed: Vec<usize>,
    /// Places of members whose next message waits for memory. Their sockets stay readable, so they are not watched meanwhile. A publisher
    /// that has used up its memory holds up no other.
    starved: Vec<usize>,
    _seat: ThreadPermit,
}

/// A channel on a shared reader.
struct Member {
    served: Arc<Served>,
    inbound: Inbound,
    slow: u32,  // visits that took too long
    score: u32, // grows with slow visits, falls with others
    told: Option<Instant>,
}

const WAKER: u64 = u64::MAX;
/// Pause between two searches for channels that this side closed.
const SWEEP: Duration = Duration::from_millis(500);
/// A visit that holds the thread longer is reported: the other channels wait meanwhile.
const SLOW_NS: u64 = 1_000_000;
/// The rise of a channel's score by a slow visit; any other visit lowers it by one.
const SLOW_SCORE: u32 = 4;
/// The score at which a channel leaves: three slow visits in a row, or more than one in five for long. Single slow visits may be caused by
/// the scheduler.
const LEAVES_AT: u32 = 3 * SLOW_SCORE;
/// Least time between two reports of one channel.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl SharedReader {
    fn run(mut self) {
        crate::driver::serves_others();
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        let mut swept = Instant::now();
        while !self.hub.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.poller.wait(&mut ready, Some(self.pause())) {
                crate::guard::abort(&format!("the thread that reads for subscribers cannot wait any more: {error}"));
            }
            for event in &ready {
                match event.token {
                    WAKER => self.take_arrivals(),
                    token => self.visit(token as usize),
                }
            }
            self.visit_timed();
            self.visit_starved();
            if swept.elapsed() >= SWEEP {
                self.sweep();
                swept = Instant::now();
            }
        }
    }

    /// Time until a member is due without a wake-up.
    fn pause(&self) -> Duration {
        let timed = self.timed.iter().filter_map(|index| self.members[*index].as_ref()?.inbound.until_timer());
        let most = if self.starved.is_empty() { SWEEP } else { HELD_PAUSE };
        timed.min().unwrap_or(most).min(most)
    }

    fn visit_timed(&mut self) {
        for place in 0..self.timed.len() {
            let Some(index) = self.timed.get(place).copied() else { return };
            let due = self.members[index].as_ref().and_then(|member| member.inbound.until_timer());
            if due.is_some_and(|left| left.is_zero()) {
                self.visit(index);
            }
        }
    }

    #[cold]
    fn starve(&mut self, index: usize) {
        let fd = self.members.get(index).and_then(|member| member.as_ref()?.inbound.descriptor());
        fd.map(|fd| self.poller.remove(fd));
        self.starved.push(index);
    }

    /// Members that wait for memory continue, or wait again.
    fn visit_starved(&mut self) {
        for index in std::mem::take(&mut self.starved) {
            match self.watch(index) {
                Some(Ok(())) => self.visit(index),
                Some(Err(error)) => self.remove(index, format!("its socket cannot be watched: {error}")),
                None => {}
            }
        }
    }

    fn watch(&self, index: usize) -> Option<io::Result<()>> {
        let member = self.members.get(index)?.as_ref()?;
        Some(match member.inbound.descriptor() {
            Some(fd) => self.poller.add(fd, index as u64, Readiness::IN),
            None => Err(io::ErrorKind::Unsupported.into()),
        })
    }

    fn take_arrivals(&mut self) {
        self.intake.waker.clear();
        let arrivals = std::mem::take(&mut self.intake.arrivals.lock().waiting);
        for arrival in arrivals {
            match arrival {
                Arrival::Serve(served, inbound) => {
                    self.serve(Member { served, inbound, slow: 0, score: 0, told: None })
                }
                Arrival::HandOver(id, slot) => {
                    match self.members.iter().position(|g| g.as_ref().is_some_and(|g| g.served.id == id)) {
                        Some(index) => drop(self.leave(index).map(|member| slot.put(member.inbound))),
                        None => slot.close(),
                    }
                }
            }
        }
    }

    fn serve(&mut self, member: Member) {
        let index = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        let watched = match member.inbound.descriptor() {
            Some(fd) => self.poller.add(fd, index as u64, Readiness::IN),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if let Err(error) = watched {
            return self.hub.end(&member.served, &member.inbound, format!("its socket cannot be watched: {error}"));
        }
        if index == self.members.len() {
            self.members.push(None);
        }
        if member.inbound.is_reliable() {
            self.timed.push(index);
        }
        self.members[index] = Some(member);
    }

    /// Removes a channel from this reader.
    fn leave(&mut self, index: usize) -> Option<Member> {
        let member = self.members.get_mut(index)?.take()?;
        self.timed.retain(|timed| *timed != index);
        self.starved.retain(|starved| *starved != index);
        if let Some(fd) = member.inbound.descriptor() {
            let _ = self.poller.remove(fd);
        }
        Some(member)
    }

    fn visit(&mut self, index: usize) {
        let Some(Some(member)) = self.members.get_mut(index) else { return };
        let before = member.inbound.channel.counters.bytes.load(Ordering::Relaxed);
        match step(&mut member.inbound, false) {
            Step::Nothing | Step::Delivered(0) => {}
            Step::Starved => self.starve(index),
            Step::Delivered(count) => {
                let bytes = member.inbound.channel.counters.bytes.load(Ordering::Relaxed) - before;
                let took = linux::clock::monotonic_ns().saturating_sub(member.inbound.received_ns());
                if took > SLOW_NS {
                    return self.slow(index, took);
                }
                member.score = member.score.saturating_sub(1);
                if bytes > BULK as u64 * u64::from(count) {
                    self.isolate(index);
                }
            }
            Step::Ended(why) => self.remove(index, why),
        }
    }

    #[cold]
    fn slow(&mut self, index: usize, took_ns: u64) {
        let Some(Some(member)) = self.members.get_mut(index) else { return };
        member.slow = member.slow.saturating_add(1);
        member.score = (member.score + SLOW_SCORE).min(LEAVES_AT);
        let (count, leaves, channel) = (member.slow, member.score >= LEAVES_AT, member.inbound.channel.clone());
        let due = member.told.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if due {
            member.told = Some(Instant::now());
        }
        let isolated = leaves && self.isolate(index);
        if !due && !isolated {
            return;
        }
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        let took_us = took_ns / 1000;
        self.hub.events.push(Event::SlowCallback { publisher, subscriber, took_us, count, isolated });
    }

    /// Gives a channel a thread of its own permanently, if there is one left.
    #[cold]
    fn isolate(&mut self, index: usize) -> bool {
        let Some(permit) = self.hub.permit(READER_THREADS) else { return false };
        let Some(served) = self.members.get(index).and_then(Option::as_ref).map(|member| member.served.clone()) else {
            return false;
        };
        let mut place = served.place.lock();
        if !matches!(*place, Place::Shared(_)) {
            return false; // the channel is leaving already
        }
        let Ok((slot, tid)) = self.hub.start_own(&served, None, Some(permit)) else { return false };
        *place = Place::Own { tid, home: None };
        drop(place);
        match self.leave(index) {
            Some(member) => slot.put(member.inbound),
            None => slot.close(),
        }
        true
    }

    fn remove(&mut self, index: usize, why: String) {
        if let Some(member) = self.leave(index) {
            self.hub.end(&member.served, &member.inbound, why);
        }
    }

    fn sweep(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].as_ref().is_some_and(|member| member.inbound.is_over()) {
                self.remove(index, "closed".to_owned());
            }
        }
    }
}

/// At any end of the thread, also by a panic, the end of each of its channels is reported.
impl Drop for SharedReader {
    fn drop(&mut self) {
        let arrivals = {
            let mut arrivals = self.intake.arrivals.lock();
            arrivals.over = true;
            std::mem::take(&mut arrivals.waiting)
        };
        for arrival in arrivals {
            match arrival {
                Arrival::Serve(served, inbound) => {
                    self.members.push(Some(Member { served, inbound, slow: 0, score: 0, told: None }));
                }
                Arrival::HandOver(_, slot) => slot.close(),
            }
        }
        for member in std::mem::take(&mut self.members).into_iter().flatten() {
            self.hub.end(&member.served, &member.inbound, "the thread that served it ended".to_owned());
        }
    }
}
