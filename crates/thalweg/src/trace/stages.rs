//! Latency of a channel's samples, stage by stage (F-5; V-11; P-33, Table 4).
//!
//! Samples are measured only on request ([`admin::Request::Measure`](crate::admin::Request::Measure), `thalweg delay
//! --stages`). Then one sample in N is measured, chosen by its sequence number: both ends of a channel
//! measure the same samples, and the means of their stages add up. Without a measurement a sample costs each end one
//! load and a branch. The measurement ends if its figures are not requested for [`LEASE`], so a killed client leaves
//! no measurement behind.
//!
//! | stage | end | from | to | in Velox (V-11) | in Table 4 (P-33) |
//! |---|---|---|---|---|---|
//! | `publish` | publisher | `publish` is called | the encoded message is offered to the channel | T_appmid | pub cpu |
//! | `queue` | publisher | there | its first byte is given to the carrier; 0 when sent inline | T_pub | pub cpu |
//! | `send` | publisher | there | the carrier has all of it | P | pub com |
//! | `wire` | both | there | it was received (below: and reached the kernel) | D | pub com |
//! | `receive` | subscriber | the kernel had the packet (`udp`, `mcast`) | the reading thread has it | P1, T_sub | sub ipc |
//! | `decode` | subscriber | there | the callback is called, or the sample waits to be taken | T_midapp | sub cpu |
//! | `mailbox` | subscriber | it waits to be taken, or for its port's thread (`local`) | it is taken | T_midapp | sub cpu |
//! | `callback` | subscriber | there | it returns | | sub cpu |
//! | `transit` | subscriber | `publish` is called | it was received | | |
//! | `total` | subscriber | `publish` is called | the callback returns, or the sample waits to be taken | | |
//!
//! If a relay hosts the stream, the relay is an end, too: `relay`. Its `publish` is the whole way from the source's `publish`
//! until it offers the sample to the channel that leads from it, if both read one clock; `queue` and `send` are its own. The
//! channel from the source to it has ends like any other.
//!
//! `transit` and `total` need both ends to read one clock. `wire` is not measured: it is the mean of `transit` less the means
//! of `publish`, `queue`, `send` and `receive` (see [`wire_us`]). On one host it may be below 0, because the packet has arrived
//! before the carrier's call returns. On a port with many channels, `publish` includes the sends of those before it. Samples of
//! carrier `local` have `publish`, then `mailbox` unless the callback runs on the publisher's thread, then `decode`, and
//! `callback` and `total` where there is a callback; both ends are one, and report once.

#![allow(clippy::disallowed_methods)] // stages are measured

mod figures;
mod lateness;

pub use figures::{End, Figures, StagesReport, wire_us};
pub(crate) use lateness::Arrived;
pub use lateness::{Asked, LateAfter, LatenessReport, Latest, MOST_LATENESS};

use crate::trace;
use figures::Record;
use lateness::Since;
use linux::clock::monotonic_ns;
use linux::lock::PiMutex;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A stage that is measured at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the table above
pub enum Stage {
    Publish,
    Queue,
    Send,
    Receive,
    Decode,
    Mailbox,
    Callback,
    Transit,
    Total,
}

impl Stage {
    /// All, in the order of a sample's way.
    pub const ALL: [Self; 9] = [
        Self::Publish,
        Self::Queue,
        Self::Send,
        Self::Receive,
        Self::Decode,
        Self::Mailbox,
        Self::Callback,
        Self::Transit,
        Self::Total,
    ];

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Queue => "queue",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Decode => "decode",
            Self::Mailbox => "mailbox",
            Self::Callback => "callback",
            Self::Transit => "transit",
            Self::Total => "total",
        }
    }
}

/// The stages of one end of a channel.
#[derive(Default)]
pub(crate) struct Stages {
    every: AtomicU32, // 0: nothing is measured
    until: AtomicU64, // the end of the lease
    record: OnceLock<Box<PiMutex<Record>>>,
    missed: AtomicU64,
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {}", self.every.load(Relaxed))
    }
}

impl Stages {
    /// Measures one in `every` samples from `now` on, with empty figures; 0: stops. Memory is allocated here, at
    /// most once.
    pub(crate) fn measure(&self, now: u64, every: u32) {
        if every > 0 {
            self.record.get_or_init(Default::default).lock().clear();
            self.missed.store(0, Relaxed);
            self.renew(now);
        }
        let before = self.every.swap(every, Relaxed);
        if (before > 0) != (every > 0) {
            crate::trace::measure(every > 0);
        }
    }

    fn renew(&self, now: u64) {
        self.until.store(now.saturating_add(LEASE.as_nanos() as u64), Relaxed);
    }

    /// Ends the measurement if its figures were not requested for long; `true` if it has ended.
    fn is_over(&self, now: u64) -> bool {
        let over = now > self.until.load(Relaxed);
        if over {
            self.measure(now, 0);
        }
        over
    }

    /// `true` if this sample is measured.
    #[inline(always)]
    pub(crate) fn measures(&self, seq: u64) -> bool {
        let every = self.every.load(Relaxed);
        every != 0 && seq.is_multiple_of(u64::from(every))
    }

    /// Records at `now` the duration of stages of one sample, in nanoseconds. A record that would have to wait for a
    /// report is left out, counted.
    pub(crate) fn note(&self, now: u64, took: &[(Stage, u64)]) {
        let Some(record) = self.record.get() else { return };
        if self.is_over(now) {
            return;
        }
        match record.try_lock() {
            Some(mut record) => took.iter().for_each(|(stage, ns)| record.add(*stage, *ns)),
            None => drop(self.missed.fetch_add(1, Relaxed)),
        }
    }

    /// Records the stages of a sample that was just delivered, and its lateness.
    pub(crate) fn note_arrived(&self, took: &[(Stage, u64)], arrived: &Arrived) {
        let Some(record) = self.record.get() else { return };
        if self.is_over(arrived.done_ns) {
            return;
        }
        match record.try_lock() {
            Some(mut record) => record.arrive(took, arrived),
            None => drop(self.missed.fetch_add(1, Relaxed)),
        }
    }

    /// Lateness of samples since the last call. From now on samples count as late above `after_ns` by the
    /// clocks of both ends. Starts the measurement if necessary.
    pub(crate) fn take_lateness(&self, now: u64, after_ns: i64, asked: Asked) -> Since {
        if self.every.load(Relaxed) == 0 {
            self.measure(now, 1);
        }
        self.renew(now);
        self.record.get_or_init(Default::default).lock().take(after_ns, asked)
    }

    /// Times of the whole way of samples since the measurement began. `None`: none is known.
    pub(crate) fn total(&self) -> Option<Figures> {
        // A sample that finds the record locked is left out: so the figures are computed from a copy.
        let times = self.record.get()?.lock().times(Stage::Total)?;
        times.figures()
    }

    /// The measurements so far, requested at `now`. `None`: nothing was measured.
    pub(crate) fn figures(&self, now: u64) -> Option<Measured> {
        let every = Some(self.every.load(Relaxed)).filter(|every| *every > 0)?;
        self.renew(now);
        let record = self.record.get()?.lock();
        Some(Measured { every, missed: self.missed.load(Relaxed), stages: record.figures() })
    }
}

/// The measurements of one end: one of `every` samples, less those that were left out, and each stage that was seen.
pub(crate) struct Measured {
    pub every: u32,
    pub missed: u64,
    pub stages: Vec<(Stage, Figures)>,
}

impl Drop for Stages {
    fn drop(&mut self) {
        self.measure(0, 0);
    }
}

thread_local! {
    /// Start of this thread's last callback during a measurement.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// The callback is called now.
pub(crate) fn begin_callback() {
    BEGUN.set(linux::clock::monotonic_ns());
}

/// Start of the callback, on this thread, of the sample received at `received`; `None`: it has none.
pub(crate) fn callback_begun(received: u64) -> Option<u64> {
    Some(BEGUN.take()).filter(|begun| *begun >= received)
}

thread_local! {
    /// The stages of the sample that this thread delivers now, if they are noted.
    static DELIVERED: RefCell<Option<Arc<Stages>>> = const { RefCell::new(None) };
}

/// Calls `deliver` for a measured sample; `true` if it waits in a mailbox now.
#[cold]
pub(crate) fn delivering(stages: &Arc<Stages>, deliver: impl FnOnce()) -> bool {
    DELIVERED.set(Some(stages.clone()));
    deliver();
    DELIVERED.take().is_none()
}

/// A measured sample's stay in a mailbox: it waits to be taken, or for the thread that runs the callbacks of carrier `local`.
pub(crate) struct Stay {
    stages: Arc<Stages>,
    /// Start of its stay: in the mailbox, then out of it.
    since: u64,
    /// Time spent in the mailbox.
    waited: u64,
}

impl Stay {
    /// The sample that this thread delivers begins to wait, if it is measured.
    #[inline]
    pub(crate) fn begin() -> Option<Self> {
        if trace::is_measured() { Self::of_delivered() } else { None }
    }

    #[cold]
    fn of_delivered() -> Option<Self> {
        let stages = DELIVERED.take()?;
        Some(Self { stages, since: monotonic_ns(), waited: 0 })
    }

    /// Records that it left the mailbox.
    pub(crate) fn end(self) -> Self {
        let now = monotonic_ns();
        Self { since: now, waited: now.saturating_sub(self.since), ..self }
    }

    /// Records that it was taken.
    pub(crate) fn taken(self) {
        self.stages.note(self.since, &[(Stage::Mailbox, self.waited)]);
    }

    /// Records that it was published within this process, and its callback has returned.
    pub(crate) fn called(self, sample: Published, size: usize) {
        note_called(&self.stages, self.since, sample, size, (Stage::Mailbox, self.waited));
    }
}

/// A sample as its publisher numbered and stamped it.
#[derive(Clone, Copy)]
pub(crate) struct Published {
    pub seq: u64,
    pub at_ns: u64,
}

/// Notes the stages of a callback within the publisher's process that was to be called at `since` and has returned, and
/// the one before it.
#[cold]
pub(crate) fn note_called(stages: &Stages, since: u64, sample: Published, size: usize, before: (Stage, u64)) {
    let end = monotonic_ns();
    let begun = callback_begun(since).unwrap_or(end);
    let took = [
        before,
        (Stage::Decode, begun.saturating_sub(since)),
        (Stage::Callback, end.saturating_sub(begun)),
        (Stage::Total, end.saturating_sub(sample.at_ns)),
    ];
    let arrived = Arrived { seq: sample.seq, size, published_ns: sample.at_ns, done_ns: end };
    stages.note_arrived(&took, &arrived);
}

/// Longest interval between two requests for the figures; measuring ends with the next sample that would have been measured
/// after it.
pub const LEASE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_measured_on_request_only_and_at_the_asked_interval() {
        let stages = Stages::default();
        stages.note(1, &[(Stage::Send, 5)]);
        assert!(!stages.measures(0) && stages.figures(1).is_none());
        stages.measure(1, 3);
        assert_eq!((0..7).map(|seq| stages.measures(seq)).filter(|m| *m).count(), 3);
        stages.note(1, &[(Stage::Send, 1000), (Stage::Queue, 0)]);
        stages.note(1, &[(Stage::Send, 3000)]);
        let Measured { every, missed, stages: found } = stages.figures(1).unwrap();
        let of = |stage| found.iter().find(|(s, _)| *s == stage).map(|(_, figures)| figures.clone());
        let send = of(Stage::Send).unwrap();
        assert!(stages.total().is_none());
        stages.note(1, &[(Stage::Total, 7000)]);
        assert_eq!(stages.total().map(|total| (total.n, total.mean_us)), Some((1, 7.0)));
        assert_eq!((every, missed, send.n, send.mean_us), (3, 0, 2, 2.0));
        assert!((send.min_us - 1.0).abs() < 0.02 && (send.max_us - 3.0).abs() < 0.05, "{send:?}");
        assert_eq!(of(Stage::Queue).map(|queue| (queue.n, queue.max_us)), Some((1, 0.0)));
        assert!(of(Stage::Total).is_none());
        stages.measure(1, 1);
        assert!(stages.figures(1).unwrap().stages.is_empty(), "it begins from nothing");
        stages.measure(1, 0);
        assert!(stages.figures(1).is_none() && !stages.measures(3));
    }

    #[test]
    fn it_ends_when_nobody_asks_for_the_figures_any_more() {
        let (stages, lease) = (Stages::default(), LEASE.as_nanos() as u64);
        stages.measure(100, 1);
        stages.note(100 + lease, &[(Stage::Send, 5)]);
        assert_eq!(stages.figures(100 + lease).map(|found| found.stages[0].1.n), Some(1));
        stages.note(100 + 2 * lease, &[(Stage::Send, 5)]);
        assert!(stages.measures(1), "who asks renews it");
        stages.note(101 + 2 * lease, &[(Stage::Send, 5)]);
        assert!(!stages.measures(1) && stages.figures(101 + 2 * lease).is_none());
    }

    /// A node that was stopped answers too late: the next answer contains that answer, too.
    #[test]
    fn an_answer_that_did_not_arrive_is_told_again() {
        let stages = Stages::default();
        let arrived = |seq, ns| Arrived { seq, size: 1, published_ns: 0, done_ns: ns };
        let ask = |asker, look, received| {
            let since = stages.take_lateness(1, 100, Asked { asker, look, received });
            let report = since.report("/p", "/s", End::Subscriber);
            (report.samples, report.late, report.latest.map(|latest| latest.done_ns))
        };
        assert_eq!(ask(7, 1, 0), (0, 0, None));
        stages.note_arrived(&[], &arrived(1, 500));
        assert_eq!(ask(7, 2, 1), (1, 1, Some(500)));
        stages.note_arrived(&[], &arrived(2, 50));
        assert_eq!(ask(7, 3, 1), (2, 1, Some(500)), "the second answer did not arrive");
        stages.note_arrived(&[], &arrived(3, 60));
        assert_eq!(ask(7, 4, 3), (1, 0, Some(60)), "the third one did");
        assert_eq!(ask(8, 1, 0), (0, 0, None), "somebody else's is nobody's affair");
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let stages = Stages::default();
        stages.measure(1, 1);
        stages.note(1, &[(Stage::Total, u64::MAX), (Stage::Total, 0)]);
        assert_eq!(stages.figures(1).unwrap().stages[0].1.n, 2);
    }
}
