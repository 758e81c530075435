//! Adaptive coalescing: it detects a publishing thread that outruns the system calls that send its samples.
//!
//! One call per sample is the shortest way for a sample that comes alone, and the limit of a thread that publishes in a loop:
//! 64 B over tcp, 0.3 M/s. A thread that spends four fifths of its time in those calls, [`FIRST`] samples in a row, gains more
//! than it loses when small samples leave together, within [`WITHIN`]. As with rent and purchase (Karlin et al., "Competitive
//! snoopy caching", Algorithmica 3, 1988), a burst that ends just then is at most as late again as it was long.
//!
//! Two threads that answer each other look the same where both run on one processor, because a call to send contains the
//! answer. There coalescing ends with its first sample: each time it did not pay, twice as many samples pass
//! unseen until it may begin again, up to 65,536: 10⁶ round trips meet it 25 times.
//!
//! The thread outruns its calls, so the samples of all its ports count: a port that is published in turn with others has the others'
//! calls between two of its samples. The samples of a port gather as long as they are frequent among the thread's ([`NEAR`]). A
//! channel that takes every tenth sample lets nine pass without a call, at little cost: calls count, not samples.
//!
//! A pure state machine: all times are nanoseconds of the publisher's monotonic clock.

#![allow(clippy::disallowed_methods)] // the threads that send and receive read the clock

use std::cell::RefCell;
use std::time::Duration;

/// The longest that a small sample waits for others, from the one that is the first of them.
pub(crate) const WITHIN: Duration = Duration::from_micros(50);
/// Calls further apart than this many call durations leave too few samples that could leave together.
const APART: u64 = 4;
/// A port with less than every eighth of the thread's samples does not gather: in [`WITHIN`] there would be one or two.
const NEAR: u64 = 8;
/// Samples in a row whose calls took most of the time, before samples leave together: their calls take about twice [`WITHIN`].
const FIRST: u32 = 32;
/// The same after coalescing that paid: on a loaded machine a loop is interrupted every few milliseconds.
const AGAIN: u32 = 8;
/// Samples that pass unseen after coalescing that did not pay: twice as many each time, up to this.
const MOST: u32 = 1 << 16;
/// Samples that pass unseen after one whose call did not take most of the time.
const UNSEEN: u32 = 7;
/// Coalescing of fewer samples than this did not pay.
const PAYS: u32 = 64;
/// Samples further apart than this (start to start) do not outrun their calls: no clock is read for them.
const NEAR_NS: u64 = 200_000;
/// Slow samples in a row that end coalescing: a single one may be the scheduler's doing.
const SLOW: u32 = 2;

thread_local! {
    static THREAD: RefCell<Coalescing> = const { RefCell::new(Coalescing::new()) };
}

/// A sample is published by this thread at `now`.
#[inline]
pub(crate) fn begins(now: u64) {
    THREAD.with_borrow_mut(|thread| thread.begins(now));
}

/// The time of this thread's last sample; and `true` if this sample, which a channel of this port takes, leaves with others if
/// it is small.
#[inline]
pub(crate) fn gathers(port: &mut Turn) -> (u64, bool) {
    THREAD.with_borrow_mut(|thread| (thread.begun_ns, thread.gathers(port)))
}

/// The system calls of this thread's last sample are over.
#[inline]
pub(crate) fn ended() {
    THREAD.with_borrow_mut(|thread| {
        if thread.measures || thread.on {
            thread.ended(linux::clock::monotonic_ns());
        }
    });
}

/// The position, among its thread's samples, of a port's last sample that a channel took.
#[derive(Debug, Default)]
pub(crate) struct Turn(u64);

/// A thread's record of publishing.
#[derive(Debug)]
struct Coalescing {
    on: bool,
    begun_ns: u64,
    ended_ns: u64,
    /// Duration of the last call, time since the start of the one before, and whether the last call was for the sample before.
    took_ns: u64,
    apart_ns: u64,
    called: bool,
    /// Samples that a channel took, and whether the last one came soon after the one before of its port.
    taken: u64,
    near: bool,
    /// The shortest call of those in a row.
    call_ns: u64,
    in_a_row: u32,
    /// Samples that still pass before their distance is looked at again.
    unseen: u32,
    /// The last number of those after coalescing that did not pay.
    backoff: u32,
    together: u32,
    slow: u32,
    measures: bool,
}

impl Coalescing {
    const fn new() -> Self {
        Self {
            on: false,
            begun_ns: 0,
            ended_ns: 0,
            took_ns: 0,
            apart_ns: 0,
            called: false,
            taken: NEAR,
            near: false,
            call_ns: 0,
            in_a_row: 0,
            unseen: 0,
            backoff: FIRST,
            together: 0,
            slow: 0,
            measures: false,
        }
    }

    #[inline]
    fn begins(&mut self, now: u64) {
        let gap = now.saturating_sub(self.begun_ns.max(self.ended_ns));
        if self.on {
            self.goes_on(now, gap);
        } else if self.unseen > 0 {
            self.unseen -= 1;
        } else if now.saturating_sub(self.begun_ns) < NEAR_NS || self.measures {
            self.counts(now, gap);
        } else {
            self.in_a_row = 0;
        }
        (self.begun_ns, self.called) = (now, false);
    }

    #[inline]
    fn gathers(&mut self, port: &mut Turn) -> bool {
        self.taken += 1;
        self.near = self.taken.wrapping_sub(port.0) <= NEAR;
        port.0 = self.taken;
        let gathers = self.on && self.near;
        self.together = self.together.saturating_add(u32::from(gathers));
        gathers
    }

    fn ended(&mut self, now: u64) {
        self.apart_ns = self.begun_ns.saturating_sub(self.ended_ns);
        (self.ended_ns, self.took_ns) = (now, now.saturating_sub(self.begun_ns));
        self.called = true;
    }

    /// Evaluates a sample that comes `gap` after the start of the one before, or after the end of its call.
    fn counts(&mut self, now: u64, gap: u64) {
        let follows = gap.saturating_mul(4) < self.took_ns;
        let alike = self.near && (self.in_a_row == 0 || self.apart_ns / APART < self.took_ns);
        if self.called && follows && alike {
            self.call_ns = if self.in_a_row == 0 { self.took_ns } else { self.call_ns.min(self.took_ns) };
            self.in_a_row += 1;
        } else if self.called || !follows {
            (self.in_a_row, self.unseen) = (0, if self.took_ns > 0 { UNSEEN } else { 0 });
            self.took_ns = 0;
        }
        self.measures = self.in_a_row > 0 || (self.unseen == 0 && now.saturating_sub(self.begun_ns) < NEAR_NS);
        if self.in_a_row >= FIRST {
            (self.on, self.together, self.slow) = (true, 0, 0);
        }
    }

    fn goes_on(&mut self, now: u64, gap: u64) {
        self.slow = if gap <= self.call_ns { 0 } else { self.slow + 1 };
        if self.slow >= SLOW || u128::from(gap) > WITHIN.as_nanos() {
            let paid = self.together > PAYS;
            self.backoff = if paid { FIRST } else { (self.backoff * 2).min(MOST) };
            self.unseen = if paid { 0 } else { self.backoff };
            (self.on, self.measures, self.ended_ns) = (false, paid, now);
            // A thread that was interrupted needs fewer samples to show that it still publishes in a loop.
            (self.in_a_row, self.took_ns) = if paid { (FIRST - AGAIN, self.call_ns) } else { (0, 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: u64 = 4_000;

    /// A thread that publishes, and its clock.
    struct Thread {
        now: u64,
        state: Coalescing,
    }

    impl Thread {
        fn new() -> Self {
            Self { now: 1_000_000, state: Coalescing::new() }
        }

        /// Publishes a sample `pause` after the one before was sent; its call takes `call`. `true`: it was kept for others.
        fn publishes_for(&mut self, port: &mut Turn, pause: u64, call: u64) -> bool {
            self.passes(pause);
            let together = self.state.gathers(port);
            self.now += if together { 100 } else { call };
            if !together && (self.state.measures || self.state.on) {
                self.state.ended(self.now);
            }
            together
        }

        fn publishes(&mut self, port: &mut Turn, pause: u64) -> bool {
            self.publishes_for(port, pause, CALL)
        }

        /// Publishes a sample that no channel takes.
        fn passes(&mut self, pause: u64) {
            self.now += pause;
            self.state.begins(self.now);
        }

        /// Publishes `count` samples. Returns how many left together.
        fn publish(&mut self, port: &mut Turn, count: u32, pause: u64) -> u32 {
            (0..count).map(|_| u32::from(self.publishes(port, pause))).sum()
        }
    }

    #[test]
    fn a_loop_that_does_nothing_else_coalesces_after_its_first_samples() {
        let (mut port, mut thread) = (Turn::default(), Thread::new());
        // The first two are not known to follow each other at once.
        assert_eq!(thread.publish(&mut port, FIRST + 1, 200), 0);
        assert_eq!(thread.publish(&mut port, 1000, 200), 1000);
        // A thread that was interrupted continues to coalesce; one that has become slow does not.
        assert_eq!(thread.publish(&mut port, 1, 10_000), 1);
        assert_eq!(thread.publish(&mut port, 1000, 200), 1000);
        assert_eq!(thread.publish(&mut port, 1000, 10_000), 1);
        let again = thread.publish(&mut port, FIRST + 100, 200);
        assert!((100 - UNSEEN..=101).contains(&again), "{again}");
        // After an interruption longer than samples may wait it begins again sooner, since it paid.
        assert_eq!(thread.publish(&mut port, 1, 60_000), 0, "alone after a pause");
        assert_eq!(thread.publish(&mut port, AGAIN + 100, 200), 101);
    }

    /// Samples that no channel takes are no pauses: every tenth sample is a call, and the calls follow each other closely.
    #[test]
    fn a_loop_of_which_channels_take_every_tenth_coalesces_too() {
        let (mut port, mut thread) = (Turn::default(), Thread::new());
        let mut publish = |samples: u32, pause: u64| -> u32 {
            let takes = |sample| sample % 10 == 0;
            let mut one = |sample| match takes(sample) {
                true => u32::from(thread.publishes(&mut port, pause)),
                false => {
                    thread.passes(pause);
                    0
                }
            };
            (0..samples).map(&mut one).sum()
        };
        assert_eq!(publish(10 * (FIRST + 1), 200), 0);
        assert_eq!(publish(10_000, 200), 1000);
        assert!(publish(10_000, 10_000) <= 1, "it does other things");
    }

    /// With one call in a hundred samples, calls take a tenth of the time: no samples could leave together.
    #[test]
    fn calls_far_from_each_other_are_left_alone() {
        let (mut port, mut thread) = (Turn::default(), Thread::new());
        for sample in 0..100_000 {
            match sample % 100 {
                0 => assert!(!thread.publishes(&mut port, 300)),
                _ => thread.passes(300),
            }
        }
    }

    /// The result is the same whether or not both threads began to look at their calls at the same time.
    #[test]
    fn ports_published_in_turn_coalesce_all() {
        for late in 0..10 {
            let (mut ports, mut thread) = ([(); 3].map(|()| Turn::default()), Thread::new());
            thread.publish(&mut ports[1], late, 2_000);
            let mut rounds = |rounds: u32, pause| -> u32 {
                (0..rounds)
                    .map(|_| ports.iter_mut().map(|port| u32::from(thread.publishes(port, pause))).sum::<u32>())
                    .sum()
            };
            rounds(2 * FIRST, 200);
            assert_eq!(rounds(1000, 200), 3000, "{late}");
            assert!(rounds(1000, 10_000) <= 6, "it does other things");
        }
    }

    /// Fifty topics of one control loop, a sample each: no sample of a port closely follows another of the same port.
    #[test]
    fn a_round_of_many_ports_is_no_loop() {
        let (mut ports, mut thread) = ([(); 50].map(|()| Turn::default()), Thread::new());
        for _ in 0..1000 {
            thread.now += 1_000_000;
            assert!(ports.iter_mut().all(|port| !thread.publishes(port, 200)));
        }
    }

    #[test]
    fn samples_with_pauses_and_short_bursts_leave_one_by_one() {
        for pause in [1_500, 5_000, 30_000, 1_000_000] {
            let (mut port, mut thread) = (Turn::default(), Thread::new());
            assert_eq!(thread.publish(&mut port, 100_000, pause), 0, "{pause} ns");
        }
        let (mut port, mut thread) = (Turn::default(), Thread::new());
        for _ in 0..1000 {
            assert_eq!(thread.publish(&mut port, FIRST, 200), 0);
            thread.now += 1_000_000;
        }
    }

    /// A round trip that looks like a call: the answer is there when the call returns, unless the sample was kept back.
    #[test]
    fn round_trips_on_one_processor_meet_it_a_few_times_only() {
        let (mut port, mut thread, mut kept) = (Turn::default(), Thread::new(), 0);
        for _ in 0..1_000_000 {
            // Kept back, it is answered when the batch left.
            if thread.publishes_for(&mut port, 500, 12_000) {
                (kept, thread.now) = (kept + 1, thread.now + 2 * WITHIN.as_nanos() as u64);
            }
        }
        assert!((1..=27).contains(&kept), "{kept} of a million were kept back");
    }

    /// Each sample is late at most by the time that single calls would have taken, and [`WITHIN`].
    #[test]
    fn bursts_of_one_length_are_soon_left_alone() {
        let (mut port, mut thread) = (Turn::default(), Thread::new());
        let kept: u32 = (0..1000)
            .map(|_| {
                thread.now += 1_000_000;
                thread.publish(&mut port, FIRST + 20, 200)
            })
            .sum();
        assert!(kept <= 12 * 20, "{kept} of {}", 1000 * (FIRST + 20));
    }
}
