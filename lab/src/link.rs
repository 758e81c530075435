//! A link between two network namespaces, in user space over TAP: rate, queue, delay, jitter, loss and reordering. It needs
//! only `/dev/net/tun` of the kernel, and reports how exact it was.
//!
//! Each direction has a thread of its own, FIFO 50, that sleeps until shortly before a frame is due and then looks at the
//! clock (at 10 ms delay and 1000 frames a second: late by 12 µs in the middle, 20 µs at p99; SCHED_OTHER 3 ms at p99).
//! Frames are never larger than the devices' MTU, as on a real link: TAP takes no super-packets.
//!
//! A line with a rate is a wire: a frame leaves when its last bit would, and is never early. When its thread stood still (the
//! machine was elsewhere), the line's clock stands still, too: it makes up for [`SLACK`] at most. In any window the line exceeds
//! its rate by no more than that and two frames, the first of which was stamped late. [`LinkReport`] has both as measured.

mod line;
mod periodic;

pub use line::{Behaviour, Counts, RateExcess, StandStill};

use crate::statistics::Latencies;
use line::Line;
use linux::clock::monotonic_ns;
use linux::tap::Tap;
use periodic::{Flow, Periodic};
use qos::priority::{Policy, Scheduling};
use serde::Serialize;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// One end of the link.
#[derive(Clone, Debug)]
pub struct End {
    /// Name of the network namespace.
    pub namespace: String,
    /// Name of the device that is made there, at most 15 bytes. It is down at first: addresses are the caller's business.
    pub device: String,
}

/// A running link. Dropping it ends it; the devices vanish with it.
#[derive(Debug)]
pub struct Link {
    stop: Arc<AtomicBool>,
    wanted: Vec<Arc<Wanted>>, // by direction
    datagrams: Vec<Arc<Datagrams>>,
    noted: Vec<Arc<Noted>>,
    directions: Vec<JoinHandle<LinkReport>>,
}

/// The behaviour that a direction takes on as soon as its thread looks.
#[derive(Debug)]
struct Wanted {
    version: AtomicU64,
    behaviour: Mutex<Behaviour>,
}

impl Wanted {
    fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap_or_else(|e| e.into_inner()));
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Whole datagrams that came in, with the bytes of their frames.
#[derive(Debug, Default)]
struct Datagrams {
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// Events of a direction so far.
#[derive(Debug, Default)]
struct Noted {
    stood: Mutex<Vec<StandStill>>,
    overflowed: AtomicU64,
}

impl Noted {
    fn stood(&self) -> MutexGuard<'_, Vec<StandStill>> {
        self.stood.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Measured behaviour of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// The last behaviour that was asked for.
    pub asked: Behaviour,
    /// Counts of frames.
    pub counts: Counts,
    /// Share of the frames that really vanished, in percent; those that found the queue full are not in it.
    pub loss_percent: f64,
    /// Bits per second while the line was busy for 10 ms and more, by the times at which frames really left.
    pub rate: Option<f64>,
    /// Delay of frames behind their due time, in µs.
    pub lateness_us: Lateness,
    /// The most bytes that left within any window beyond the rate, by the times at which frames really left; the first
    /// frame of a window counts.
    pub ahead: u64,
    /// Time that the line stood still with its thread, in ms.
    pub stood_still_ms: f64,
}

/// Percentiles of the lateness in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Half were less late.
    pub p50: f64,
    /// One in a hundred was later.
    pub p99: f64,
    /// One in a thousand was later.
    pub p999: f64,
    /// The latest.
    pub max: f64,
}

impl Link {
    /// Connects `a` and `b`; `there` holds from `a` to `b`. The same seed gives the same losses and delays, frame by frame. Its
    /// threads run on `processor`, or anywhere.
    ///
    /// # Errors
    /// PermissionDenied without CAP_NET_ADMIN and CAP_SYS_ADMIN (to enter the namespaces); see [`Tap::open`].
    pub fn start(
        [a, b]: [&End; 2],
        [there, back]: [Behaviour; 2],
        processor: Option<u16>,
        seed: u64,
    ) -> io::Result<Self> {
        let open = |end: &End| {
            linux::namespace::Namespace::named(&end.namespace)?.run(|| Tap::open(&end.device))?.map(Arc::new)
        };
        let (a, b) = (open(a)?, open(b)?);
        let mut link = Self {
            stop: Arc::default(),
            wanted: Vec::new(),
            datagrams: Vec::new(),
            noted: Vec::new(),
            directions: Vec::new(),
        };
        link.direct(Direction::new(a.clone(), b.clone(), there, seed), processor)?;
        link.direct(Direction::new(b, a, back, seed ^ u64::MAX), processor)?;
        Ok(link)
    }

    fn direct(&mut self, direction: Direction, processor: Option<u16>) -> io::Result<()> {
        let behaviour = Mutex::new(direction.behaviour);
        let wanted = Arc::new(Wanted { version: AtomicU64::new(0), behaviour });
        self.wanted.push(wanted.clone());
        self.datagrams.push(direction.datagrams.clone());
        self.noted.push(direction.noted.clone());
        let stop = self.stop.clone();
        let body = move || direction.run(&stop, &wanted, processor);
        self.directions.push(std::thread::Builder::new().name("link".into()).spawn(body)?);
        Ok(())
    }

    /// Changes the behaviour of both directions for frames that come in from now on.
    pub fn change(&self, change: impl Fn(&mut Behaviour)) {
        self.wanted.iter().for_each(|wanted| wanted.change(&change));
    }

    /// Changes the behaviour from `b` to `a` for frames that come in from now on.
    pub fn change_back(&self, change: impl FnOnce(&mut Behaviour)) {
        if let Some(back) = self.wanted.last() {
            back.change(change);
        }
    }

    /// UDP datagrams that came in so far, from `a` and from `b`: their number, and the bytes of their frames.
    pub fn datagrams(&self) -> Vec<(u64, u64)> {
        self.datagrams.iter().map(|d| (d.frames.load(Ordering::Relaxed), d.bytes.load(Ordering::Relaxed))).collect()
    }

    /// Each time that a direction stood still so far, by direction, then by time.
    pub fn stood_still(&self) -> Vec<StandStill> {
        self.noted.iter().flat_map(|noted| noted.stood().clone()).collect()
    }

    /// Frames that found the queue of either direction full so far.
    pub fn overflowed(&self) -> u64 {
        self.noted.iter().map(|noted| noted.overflowed.load(Ordering::Relaxed)).sum()
    }

    /// Ends the link, and says how it was: from `a` to `b`, and back.
    pub fn finish(mut self) -> Vec<LinkReport> {
        self.end()
    }

    fn end(&mut self) -> Vec<LinkReport> {
        self.stop.store(true, Ordering::Relaxed);
        self.directions.drain(..).filter_map(|thread| thread.join().ok()).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

/// A frame in a buffer that is used again.
struct Frame {
    buffer: Box<[u8]>,
    length: usize,
}

/// Frames that left back to back.
#[derive(Clone, Copy, Default)]
struct Stretch {
    from: u64, // ns: when the first one left
    to: u64,   // when the last one left
    bits: u64, // of all but the first
}

struct Direction {
    from: Arc<Tap>,
    to: Arc<Tap>,
    behaviour: Behaviour,
    line: Line<Frame>,
    periodic: Periodic<Frame>,
    datagrams: Arc<Datagrams>,
    spare: Vec<Frame>,
    lateness: Latencies,
    stretch: Stretch,
    busy: (u64, u64), // bits of long stretches, and the nanoseconds in which they left
    ahead: RateExcess,
    still: u64, // ns that the line stood still so far: its clock is so much behind
    noted: Arc<Noted>,
    waits: usize, // the last of them that have not drained yet
}

impl Direction {
    fn new(from: Arc<Tap>, to: Arc<Tap>, behaviour: Behaviour, seed: u64) -> Self {
        let lateness = Latencies::up_to(Duration::from_secs(60));
        let (line, spare) = (Line::new(behaviour, seed), Vec::new());
        let (ahead, periodic) = (RateExcess::new(behaviour.rate), Periodic::new());
        let (datagrams, stretch, busy, noted) = (Arc::default(), Stretch::default(), (0, 0), Arc::default());
        let (still, waits) = (0, 0);
        Self {
            from,
            to,
            behaviour,
            line,
            periodic,
            datagrams,
            spare,
            lateness,
            stretch,
            busy,
            ahead,
            still,
            noted,
            waits,
        }
    }

    fn run(mut self, stop: &AtomicBool, wanted: &Wanted, processor: Option<u16>) -> LinkReport {
        // Without the right to it the link still works, and its lateness tells.
        let _ = linux::sched::apply(
            0,
            Some(&Scheduling::from(Policy::Fifo(PRIORITY))),
            processor.as_ref().map(std::slice::from_ref),
        );
        let mut seen = 0;
        while !stop.load(Ordering::Relaxed) {
            let version = wanted.version.load(Ordering::Acquire);
            if version != seen {
                seen = version;
                self.behave(*wanted.behaviour.lock().unwrap_or_else(|e| e.into_inner()));
            }
            self.take();
            self.give();
            self.wait();
        }
        self.report()
    }

    /// Takes on another behaviour.
    fn behave(&mut self, behaviour: Behaviour) {
        self.behaviour = behaviour;
        self.line.behave(behaviour);
        self.ahead.change_rate(behaviour.rate);
        if !behaviour.periodic {
            let waiting: Vec<Frame> = self.periodic.release().collect();
            waiting.into_iter().for_each(|frame| self.arrive(frame));
        }
    }

    /// The line's clock.
    fn now(&self) -> u64 {
        monotonic_ns() - self.still
    }

    /// Stops the line's clock for as long as the thread is late beyond the slack.
    fn stand_still(&mut self) {
        let late = self.line.next_at().map_or(0, |at| self.now().saturating_sub(at));
        if self.behaviour.rate.is_some() && late > SLACK {
            let ns = late - SLACK;
            self.still += ns;
            self.noted.stood().push(StandStill { ns, to_ns: monotonic_ns(), drained_ns: None });
            self.waits += 1;
        }
    }

    /// Notes that the line is idle, if it is: nothing waits any more because it stood still.
    fn drained(&mut self) {
        if self.waits > 0 && self.line.free_at() <= self.now() {
            let at = Some(self.line.free_at() + self.still);
            self.noted.stood().iter_mut().rev().take(self.waits).for_each(|one| one.drained_ns = at);
            self.waits = 0;
        }
    }

    /// Takes the frames that came in; no more than a batch, for others are due.
    fn take(&mut self) {
        for _ in 0..BATCH {
            let new = || Frame { buffer: vec![0; LARGEST].into_boxed_slice(), length: 0 };
            let mut frame = self.spare.pop().unwrap_or_else(new);
            let Ok(Some(length)) = self.from.read(&mut frame.buffer) else { return self.spare.push(frame) };
            frame.length = length;
            let flow = Flow::of(&frame.buffer[..length]);
            if flow.is_some() {
                self.datagrams.frames.fetch_add(1, Ordering::Relaxed);
                self.datagrams.bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            let leaves = match flow.filter(|_| self.behaviour.periodic) {
                Some(flow) => self.periodic.exchange(flow, frame),
                None => Some(frame),
            };
            leaves.into_iter().for_each(|frame| self.arrive(frame));
        }
    }

    fn arrive(&mut self, frame: Frame) {
        self.drained();
        self.spare.extend(self.line.arrive(self.now(), frame.length as u64, frame));
        self.noted.overflowed.store(self.line.counts().overflowed, Ordering::Relaxed);
    }

    fn give(&mut self) {
        loop {
            self.stand_still();
            let Some(leaving) = self.line.leave(self.now()) else { return };
            // A device that is down takes no frames, like a cable that is not plugged in.
            let _ = self.to.write(&leaving.frame.buffer[..leaving.frame.length]);
            let real = monotonic_ns();
            self.ahead.left(real, leaving.frame.length as u64);
            let late = self.now().saturating_sub(leaving.at);
            self.lateness.record(late);
            self.left(real, leaving.back_to_back);
            self.spare.push(leaving.frame);
        }
    }

    /// Long stretches only: how late their first and last frame were must not matter.
    fn left(&mut self, now: u64, back_to_back: Option<u64>) {
        if let Some(bits) = back_to_back {
            self.stretch.bits += bits;
        } else {
            let Stretch { from, to, bits } = self.stretch;
            if to - from >= STRETCH {
                self.busy = (self.busy.0 + bits, self.busy.1 + (to - from));
            }
            self.stretch = Stretch { from: now, to: now, bits: 0 };
        }
        self.stretch.to = now;
    }

    /// Sleeps until a frame comes in or is nearly due.
    fn wait(&self) {
        let left = self.line.next_at().map(|at| at.saturating_sub(self.now()));
        match left.map(Duration::from_nanos) {
            Some(left) if left <= SPIN => std::hint::spin_loop(),
            left => {
                let most = left.map_or(TICK, |left| (left - SPIN).min(TICK));
                let _ = linux::poll::wait_readable(&*self.from, Some(most));
            }
        }
    }

    fn report(mut self) -> LinkReport {
        self.left(monotonic_ns(), None);
        let counts = self.line.counts();
        let through = (counts.arrived - counts.overflowed).max(1);
        let (bits, ns) = self.busy;
        LinkReport {
            asked: self.behaviour,
            counts,
            loss_percent: counts.lost as f64 * 100.0 / through as f64,
            rate: (ns > 0).then(|| bits as f64 * 1e9 / ns as f64),
            lateness_us: Lateness::of(&self.lateness),
            ahead: self.ahead.most(),
            stood_still_ms: self.still as f64 / 1e6,
        }
    }
}

impl Lateness {
    fn of(late: &Latencies) -> Self {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| late.quantile_us(quantile));
        Self { p50, p99, p999, max: late.max_us() }
    }
}

/// Lateness that a line with a rate makes up for, in nanoseconds: a few late wake-ups.
pub const SLACK: u64 = 250_000;

/// Above measured programs (30), below the monitor of the machine's stalls (80).
const PRIORITY: u8 = 50;
/// Time before a frame is due in which its thread looks at the clock instead of sleeping: the cost of a wake-up.
const SPIN: Duration = Duration::from_micros(60);
/// Within this time a thread notices that the link ends.
const TICK: Duration = Duration::from_millis(50);
/// Frames taken before those that are due are looked at.
const BATCH: usize = 64;
/// Stretches that a rate is measured over, in nanoseconds.
const STRETCH: u64 = 10_000_000;
/// Room for a jumbo frame.
const LARGEST: usize = 9216;
