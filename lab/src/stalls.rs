//! Stalls: times at which not even the highest-priority thread of a processor could run. The host took the processor away, or the
//! kernel let no thread in: interrupts were off, or, in a kernel without preemption, a long system call or soft interrupt went on. That
//! may be the doing of the load under test, so stalls excuse a value only if they are as frequent without the experiment
//! ([`Rates::attribution`]), and only a largest value: percentiles are of all samples, but for one (docs/decisions/0016-stalls.md).
//!
//! One thread per processor, FIFO 80, pinned, sleeps for a quarter of a millisecond at a time and notes when it wakes too late.
//! A stall is bounded on both sides: it began after the thread last ran, and ended before it ran again. (At a period of one
//! millisecond, a stall as long as that could begin and end between two looks.)

use crate::results::Stalled;
use linux::clock::monotonic_ns;
use qos::priority::{Policy, Scheduling};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// One stall of one processor, by CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Stall {
    /// The processor.
    pub cpu: u16,
    /// Last time the thread ran before, in nanoseconds: the stall began later than that.
    pub from_ns: u64,
    /// Time it ran again.
    pub to_ns: u64,
    /// Delay of that wake-up.
    pub late_ns: u64,
}

/// A measured time, by CLOCK_MONOTONIC. Written as `[from, ns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Beginning, in nanoseconds.
    pub from_ns: u64,
    /// Duration.
    pub ns: u64,
}

impl Serialize for Timed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.from_ns, self.ns).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Timed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <(u64, u64)>::deserialize(from).map(|(from_ns, ns)| Self { from_ns, ns })
    }
}

/// All stalls of a time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Stalls {
    /// The stalls, by processor, then by time.
    pub stalls: Vec<Stall>,
    /// Processors that were watched.
    pub cpus: Vec<u16>,
    /// Wake-ups later than this count as a stall, in nanoseconds.
    pub threshold_ns: u64,
}

impl Stalls {
    /// `true` if stalls may account for half or more of the time from `from_ns` to `to_ns`. (Leaving out every sample that met a
    /// stall would leave out the longest ones, which meet more of them.)
    pub(crate) fn hit(&self, from_ns: u64, to_ns: u64) -> bool {
        let met = self.stalls.iter().filter(|stall| stall.from_ns <= to_ns && from_ns <= stall.to_ns);
        let late: Vec<u64> = met.map(|stall| stall.late_ns).collect();
        !late.is_empty() && late.iter().sum::<u64>() * 2 >= to_ns.saturating_sub(from_ns)
    }

    /// The time from `from_ns` to `to_ns` less the stalls in it, in nanoseconds.
    pub(crate) fn without(&self, from_ns: u64, to_ns: u64) -> u64 {
        let met = self.stalls.iter().filter(|stall| stall.from_ns < to_ns && from_ns < stall.to_ns);
        let mut met: Vec<(u64, u64)> = met.map(|stall| (stall.from_ns.max(from_ns), stall.to_ns.min(to_ns))).collect();
        met.sort_unstable();
        let (mut left, mut seen) = (to_ns.saturating_sub(from_ns), from_ns);
        for (from, to) in met {
            left -= to.saturating_sub(from.max(seen)); // stalls of two processors at once count once
            seen = seen.max(to);
        }
        left
    }

    /// The latency of each sample less the stalls during it, and less its wait for a backlog that a stall left, in nanoseconds.
    /// After a stall, samples leave one at a time: one that is sent while earlier ones still wait is late by the same stall,
    /// although that is over.
    pub(crate) fn without_backlog(&self, samples: &[Timed]) -> Vec<u64> {
        let mut samples = samples.to_vec();
        samples.sort_unstable_by_key(|sample| sample.from_ns);
        let (mut busy_from, mut busy_to) = (0, 0);
        let left = |sample: Timed| {
            let Timed { from_ns: from, ns } = sample;
            if from > busy_to {
                busy_from = from;
            }
            // By an earlier stall it is late only as long as others are still under way.
            let before = (from - busy_from) - self.without(busy_from, from);
            let waited = before.min(busy_to.saturating_sub(from));
            busy_to = busy_to.max(from + ns);
            self.without(from, from + ns).saturating_sub(waited)
        };
        samples.into_iter().map(left).collect()
    }

    /// Samples in µs of which no stall may be half or more, and the sum of the others.
    pub(crate) fn apart(&self, samples: &[Timed]) -> (Vec<f64>, Stalled) {
        let us = |sample: &Timed| sample.ns as f64 / 1000.0;
        let (hit, clean): (Vec<Timed>, Vec<Timed>) =
            samples.iter().copied().partition(|sample| self.hit(sample.from_ns, sample.from_ns + sample.ns));
        let max = hit.iter().map(us).fold(0.0, f64::max);
        (clean.iter().map(us).collect(), Stalled { n: hit.len() as u64, max })
    }

    /// Number, longest in µs, and sum in µs.
    pub(crate) fn summary(&self) -> Summary {
        let late = || self.stalls.iter().map(|stall| stall.late_ns);
        Summary {
            count: self.stalls.len() as u64,
            longest_us: late().max().unwrap_or(0) / 1000,
            total_us: late().sum::<u64>() / 1000,
            cpus: self.cpus.len() as u64,
            threshold_us: self.threshold_ns / 1000,
        }
    }
}

/// Figures of [`Stalls`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// Stalls of all processors.
    pub count: u64,
    /// The longest, in µs too late.
    pub longest_us: u64,
    /// All together, in µs too late.
    pub total_us: u64,
    /// Processors that were watched.
    pub cpus: u64,
    /// Least delay that counts as a stall, in µs.
    pub threshold_us: u64,
}

/// Watches all processors until it is dropped.
pub(crate) struct Monitor {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Stall>>>,
    cpus: Vec<u16>,
    began_ns: u64,
}

/// Stalls that the monitors of this process have found, and the time that they watched, in ns summed over processors.
static FOUND: AtomicU64 = AtomicU64::new(0);
static WATCHED_NS: AtomicU64 = AtomicU64::new(0);

/// Watches the processors for this long while nothing is measured: the stalls, and the seconds summed over processors. What monitors
/// find later counts from nothing ([`found`]).
///
/// # Errors
/// As [`Monitor::start`].
pub(crate) fn idle(time: Duration) -> io::Result<(u64, f64)> {
    found();
    let monitor = Monitor::start()?;
    std::thread::sleep(time);
    monitor.finish();
    Ok(found())
}

/// The stalls that all monitors have found since the last call, and the seconds that they watched, summed over processors.
pub(crate) fn found() -> (u64, f64) {
    (FOUND.swap(0, Ordering::Relaxed), WATCHED_NS.swap(0, Ordering::Relaxed) as f64 / 1e9)
}

/// Time of all processors since the machine began, in ticks: what its host took away while the machine wanted to run, and all (proc_stat(5)).
///
/// # Errors
/// `/proc/stat` cannot be read.
pub fn processor_time() -> io::Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; what guests used is in user and nice already.
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
    Ok((ticks.get(7).copied().unwrap_or(0), ticks.iter().sum()))
}

impl Monitor {
    /// Begins to watch the processors that this process may use.
    ///
    /// # Errors
    /// The kernel's refusal: FIFO needs CAP_SYS_NICE.
    pub(crate) fn start() -> io::Result<Self> {
        let began_ns = monotonic_ns();
        let mut monitor = Self { stop: Arc::default(), threads: Vec::new(), cpus: Vec::new(), began_ns };
        for cpu in linux::sched::read(0)?.affinity {
            let stop = monitor.stop.clone();
            let (tell, told) = std::sync::mpsc::channel();
            let body = move || {
                let scheduling = Scheduling::from(Policy::Fifo(PRIORITY));
                let answer = linux::sched::apply(0, Some(&scheduling), Some(&[cpu]));
                let refused = answer.is_err();
                let _ = tell.send(answer);
                if refused { Vec::new() } else { watch(cpu, &stop) }
            };
            monitor.threads.push(std::thread::Builder::new().name(format!("stalls-{cpu}")).spawn(body)?);
            monitor.cpus.push(cpu);
            told.recv().map_err(io::Error::other)?.map_err(io::Error::other)?;
        }
        Ok(monitor)
    }

    /// Ends watching, and gives the stalls.
    pub(crate) fn finish(mut self) -> Stalls {
        let stalls = self.end();
        let watched = (monotonic_ns() - self.began_ns) * self.cpus.len() as u64;
        WATCHED_NS.fetch_add(watched, Ordering::Relaxed);
        FOUND.fetch_add(stalls.len() as u64, Ordering::Relaxed);
        Stalls { stalls, cpus: std::mem::take(&mut self.cpus), threshold_ns: THRESHOLD }
    }

    fn end(&mut self) -> Vec<Stall> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).filter_map(|thread| thread.join().ok()).flatten().collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(cpu: u16, stop: &AtomicBool) -> Vec<Stall> {
    let mut found = Vec::new();
    let mut ran = monotonic_ns();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_nanos(PERIOD));
        let now = monotonic_ns();
        found.extend(stall(cpu, ran, now));
        ran = now;
    }
    found
}

/// The stall of a thread that ran at `ran`, slept for a period and woke at `now`; `None` if it woke in time.
fn stall(cpu: u16, ran: u64, now: u64) -> Option<Stall> {
    let late_ns = now.saturating_sub(ran + PERIOD);
    (late_ns > THRESHOLD).then_some(Stall { cpu, from_ns: ran, to_ns: now, late_ns })
}

/// Above everything that is measured here (30 to 50).
const PRIORITY: u8 = 80;
/// Sleep between two looks, in nanoseconds.
const PERIOD: u64 = 250_000;
/// Least delay of a stall, in nanoseconds: five times the cost of a wake-up on a loaded machine of this kind (p99 40 µs).
const THRESHOLD: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_a_wake_up_that_is_too_late() {
        assert_eq!(stall(0, 0, PERIOD + THRESHOLD), None);
        let found = stall(1, 10, 10 + PERIOD + THRESHOLD + 1).unwrap();
        assert_eq!((found.cpu, found.from_ns, found.late_ns), (1, 10, THRESHOLD + 1));
    }

    #[test]
    fn a_sample_that_may_be_half_a_stall_was_hit() {
        let stalls = Stalls {
            stalls: vec![Stall { cpu: 0, from_ns: 100, to_ns: 200, late_ns: 50 }],
            cpus: vec![0],
            threshold_ns: THRESHOLD,
        };
        for (from, to, hit) in
            [(0, 99, false), (0, 100, true), (150, 160, true), (200, 300, true), (201, 300, false), (99, 200, false)]
        {
            assert_eq!(stalls.hit(from, to), hit, "{from} to {to}");
        }
        assert_eq!(stalls.summary().count, 1);
        for (from, to, left) in [(0, 100, 100), (0, 150, 100), (120, 180, 0), (150, 260, 60), (50, 250, 100)] {
            assert_eq!(stalls.without(from, to), left, "{from} to {to}");
        }
        let waited =
            [(220, 20), (90, 120), (150, 180), (300, 60), (400, 70)].map(|(from_ns, ns)| Timed { from_ns, ns });
        // The second took 80 more than the stall; the fourth waits for it for 30, the last one does not wait.
        assert_eq!(stalls.without_backlog(&waited), [20, 80, 0, 30, 70]);
        let both = [(100, 200), (150, 250), (160, 170), (300, 310)];
        let both = both.map(|(from_ns, to_ns)| Stall { cpu: 0, from_ns, to_ns, late_ns: 1 });
        let both = Stalls { stalls: both.to_vec(), ..Stalls::default() };
        assert_eq!(both.without(0, 400), 240, "stalls of two processors overlap");
        let samples = [Timed { from_ns: 120, ns: 100 }, Timed { from_ns: 300, ns: 4000 }];
        assert_eq!(stalls.apart(&samples), (vec![4.0], Stalled { n: 1, max: 0.1 }));
    }
}
