//! A wide-area link between two network namespaces, in user space over TAP: delay, jitter, loss, reordering, rate and
//! queue. It needs only `/dev/net/tun` of the kernel, and reports how exact it was.
//!
//! Each direction has a thread of its own, FIFO 50, that sleeps until shortly before a frame is due and then looks at the
//! clock (at 10 ms delay and 1000 frames a second: late by 12 µs in the middle, 20 µs at p99; SCHED_OTHER 3 ms at p99).
//! Frames are never larger than the devices' MTU, as on a real link: TAP takes no super-packets.
//!
//! A line with a rate is a wire: a frame leaves when its last bit would, and is never early. When its thread stood still (the
//! machine was elsewhere), the line's clock stands still, too: it makes up for [`SLACK`] at most. In any window the line exceeds
//! its rate by no more than that and two frames, the first of which was stamped late. [`LinkReport`] has both as measured.

mod line;

pub use line::{Behaviour, Counts, RateExcess};

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::statistics::Latencies;
use crate::topology::Namespace;
use line::Line;
use linux::clock::monotonic_ns;
use linux::tap::Tap;
use qos::priority::{Policy, Scheduling};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
pub struct Wan {
    stop: Arc<AtomicBool>,
    loss: Arc<AtomicU64>, // the bits of a share, from when it is set on; NaN: as asked for
    directions: Vec<JoinHandle<LinkReport>>,
}

/// Measured behaviour of one direction.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// The behaviour that was asked for.
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

impl Wan {
    /// Connects `a` and `b`; `there` holds from `a` to `b`. The same seed gives the same losses and delays, frame by frame.
    ///
    /// # Errors
    /// PermissionDenied without CAP_NET_ADMIN and CAP_SYS_ADMIN (to enter the namespaces); see [`Tap::open`].
    pub fn start(a: &End, b: &End, there: Behaviour, back: Behaviour, seed: u64) -> io::Result<Self> {
        let open = |end: &End| {
            linux::namespace::Namespace::named(&end.namespace)?.run(|| Tap::open(&end.device))?.map(Arc::new)
        };
        let (a, b) = (open(a)?, open(b)?);
        let loss = Arc::new(AtomicU64::new(f64::NAN.to_bits()));
        let mut wan = Self { stop: Arc::default(), loss, directions: Vec::new() };
        wan.direct(a.clone(), b.clone(), there, seed)?;
        wan.direct(b, a, back, seed ^ u64::MAX)?;
        Ok(wan)
    }

    fn direct(&mut self, from: Arc<Tap>, to: Arc<Tap>, behaviour: Behaviour, seed: u64) -> io::Result<()> {
        let (stop, loss) = (self.stop.clone(), self.loss.clone());
        let body = move || Direction::new(from, to, behaviour, seed).run(&stop, &loss);
        let thread = std::thread::Builder::new().name("wan".into()).spawn(body)?;
        self.directions.push(thread);
        Ok(())
    }

    /// From now on this share of the frames vanishes in either direction, 0 to 1.
    pub fn lose(&self, share: f64) {
        self.loss.store(share.to_bits(), Ordering::Relaxed);
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

impl Drop for Wan {
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
    spare: Vec<Frame>,
    lateness: Latencies,
    stretch: Stretch,
    busy: (u64, u64), // bits of long stretches, and the nanoseconds in which they left
    ahead: RateExcess,
    still: u64, // ns that the line stood still so far: its clock is so much behind
}

impl Direction {
    fn new(from: Arc<Tap>, to: Arc<Tap>, behaviour: Behaviour, seed: u64) -> Self {
        let lateness = Latencies::up_to(Duration::from_secs(60));
        let (line, spare) = (Line::new(behaviour, seed), Vec::new());
        let ahead = RateExcess::new(behaviour.rate);
        Self { from, to, behaviour, line, spare, lateness, stretch: Stretch::default(), busy: (0, 0), ahead, still: 0 }
    }

    fn run(mut self, stop: &AtomicBool, loss: &AtomicU64) -> LinkReport {
        // Without the right to it the link still works, and its lateness tells.
        let _ = linux::sched::set(0, &Scheduling::from(Policy::Fifo(PRIORITY)));
        while !stop.load(Ordering::Relaxed) {
            let share = f64::from_bits(loss.load(Ordering::Relaxed));
            if !share.is_nan() {
                self.line.lose(share);
            }
            self.take();
            self.give();
            self.wait();
        }
        self.report()
    }

    /// The line's clock.
    fn now(&self) -> u64 {
        monotonic_ns() - self.still
    }

    /// Stops the line's clock for as long as the thread is late beyond the slack.
    fn stand_still(&mut self) {
        let late = self.line.next_at().map_or(0, |at| self.now().saturating_sub(at));
        if self.behaviour.rate.is_some() {
            self.still += late.saturating_sub(SLACK);
        }
    }

    /// Takes the frames that came in; no more than a batch, for others are due.
    fn take(&mut self) {
        for _ in 0..BATCH {
            let new = || Frame { buffer: vec![0; LARGEST].into_boxed_slice(), length: 0 };
            let mut frame = self.spare.pop().unwrap_or_else(new);
            let Ok(Some(length)) = self.from.read(&mut frame.buffer) else { return self.spare.push(frame) };
            frame.length = length;
            self.spare.extend(self.line.arrive(self.now(), length as u64, frame));
        }
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

/// Interface of either host.
pub const DEVICE: &str = "wan0";

/// Hosts 1 and 2, which are 10.98.0.1 and 10.98.0.2. They know each other's hardware address: no question for it is lost.
pub struct Hosts {
    wan: Option<Wan>, // before the hosts: it ends first
    hosts: [Namespace; 2],
}

impl Hosts {
    /// Makes and connects them; `there` holds from host 1 to host 2.
    ///
    /// # Errors
    /// As [`Namespace::new`] and [`Wan::start`].
    pub fn new(lab: &Lab, there: Behaviour, back: Behaviour) -> Result<Self> {
        let hosts = [Namespace::new(lab, "a")?, Namespace::new(lab, "b")?];
        let end = |n: usize| End { namespace: hosts[n].name().to_owned(), device: DEVICE.into() };
        let wan = Wan::start(&end(0), &end(1), there, back, lab.options.seed)
            .map_err(|e| Error::system("the wide-area link", &e, "run it as root, where there is /dev/net/tun"))?;
        let hardware = |n: u8| format!("02:00:00:00:00:0{n}");
        for (host, (me, other)) in hosts.iter().zip([(1, 2), (2, 1)]) {
            host.ip(&["address", "add", &format!("{}/24", Self::address_of(me)), "dev", DEVICE])?;
            host.ip(&["link", "set", DEVICE, "address", &hardware(me), "up"])?;
            let (address, hardware) = (Self::address_of(other).to_string(), hardware(other));
            host.ip(&["neighbor", "replace", &address, "lladdr", &hardware, "nud", "permanent", "dev", DEVICE])?;
        }
        Ok(Self { wan: Some(wan), hosts })
    }

    /// Host 1 or 2.
    pub fn host(&self, n: u8) -> &Namespace {
        &self.hosts[usize::from(n) - 1]
    }

    /// The address of host `n`.
    pub fn address_of(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 98, 0, n).into()
    }

    /// From now on this percentage of the frames is lost in either direction, by the seed. A link may thus be better while programs
    /// find each other than while they are measured.
    pub fn lose(&self, percent: u8) {
        if let Some(wan) = &self.wan {
            wan.lose(f64::from(percent) / 100.0);
        }
    }

    /// Ends the link, and says how it was: from host 1 to host 2, and back.
    pub fn end(&mut self) -> Vec<LinkReport> {
        self.wan.take().map(Wan::finish).unwrap_or_default()
    }
}

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
