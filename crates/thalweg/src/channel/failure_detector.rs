//! A failure detector for the peer that serves a stream, where the stream has another way. Pure: time is an argument.
//!
//! The peer is asked for a heartbeat at a steady pace. A sample counts as a heartbeat, too: a link that is too full for requests still
//! carries samples.

use qos::Qos;
use qos::control::{QUESTIONS, SHORTEST_SILENCE};
use std::time::{Duration, Instant};

/// Longest silence before the stream goes another way.
const LONGEST: Duration = Duration::from_secs(2);

/// The state of one peer.
#[derive(Debug)]
pub(crate) struct FailureDetector {
    limit: Duration,
    /// Time of the oldest unanswered question, and the number unanswered.
    unanswered: Option<(Instant, u32)>,
    samples: u64,
    /// The peer lives, but has no source of samples.
    no_source: bool,
}

impl FailureDetector {
    /// The state for a subscriber of this QoS. Its limit of silence is the deadline or lease, whichever is shorter, but at
    /// least 500 ms and at most 2 s.
    pub(crate) fn new(qos: &Qos) -> Self {
        let stated = qos.deadline.into_iter().chain(qos.liveliness.lease).min();
        let limit = stated.unwrap_or(LONGEST).clamp(SHORTEST_SILENCE, LONGEST);
        Self { limit, unanswered: None, samples: 0, no_source: false }
    }

    /// Time from one question to the next.
    pub(crate) fn period(&self) -> Duration {
        self.limit / QUESTIONS
    }

    /// A question was asked.
    pub(crate) fn asked(&mut self, now: Instant) {
        let (since, count) = self.unanswered.unwrap_or((now, 0));
        self.unanswered = Some((since, count.saturating_add(1)));
    }

    /// The peer answered. `has_source`: it has a source of the samples that it serves.
    pub(crate) fn answered(&mut self, has_source: bool) {
        (self.unanswered, self.no_source) = (None, !has_source);
    }

    /// The peer takes no questions, so its silence is no sign.
    pub(crate) fn excused(&mut self) {
        self.answered(true);
    }

    /// Notes the number of samples that came so far.
    pub(crate) fn brought(&mut self, samples: u64) {
        if std::mem::replace(&mut self.samples, samples) != samples {
            self.answered(true);
        }
    }

    /// `true` if no samples can be expected of the peer: it has no source, or does not answer. The clock alone does not decide: a node
    /// that was stopped itself has to ask again first.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        let late = |(since, count): (Instant, u32)| count >= QUESTIONS && now.duration_since(since) >= self.limit;
        self.no_source || self.unanswered.is_some_and(late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Liveliness;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The time after which silence is noticed, with questions at the pace from `start` on.
    fn noticed(detector: &mut FailureDetector, start: Instant) -> Duration {
        let mut now = start;
        while !detector.is_silent(now) {
            detector.asked(now);
            now += detector.period();
        }
        now - start
    }

    #[test]
    fn silence_is_noticed_within_what_the_policies_say() {
        let lease = |lease| Liveliness { lease: Some(ms(lease)), ..Liveliness::default() };
        let cases = [
            (Qos::default(), 2000),
            (Qos { deadline: Some(ms(10)), ..Qos::default() }, 500),
            (Qos { deadline: Some(ms(60_000)), ..Qos::default() }, 2000),
            (Qos { deadline: Some(ms(1500)), liveliness: lease(1000), ..Qos::default() }, 1000),
        ];
        for (qos, limit) in cases {
            assert_eq!(noticed(&mut FailureDetector::new(&qos), Instant::now()), ms(limit), "{qos:?}");
        }
    }

    #[test]
    fn answers_and_samples_are_signs_and_one_that_has_no_source_is_silent_at_once() {
        let (mut detector, start) = (FailureDetector::new(&Qos::default()), Instant::now());
        (0..20).for_each(|tick| detector.asked(start + ms(tick * 100)));
        assert!(detector.is_silent(start + ms(2000)));
        detector.answered(true);
        assert!(!detector.is_silent(start + ms(9000)));
        assert_eq!(noticed(&mut detector, start + ms(9000)), ms(2000));
        detector.brought(7);
        assert!(!detector.is_silent(start + ms(20_000)), "what brings samples lives");
        detector.brought(7);
        assert_eq!(noticed(&mut detector, start + ms(20_000)), ms(2000), "the same samples are no sign");
        detector.answered(false);
        assert!(detector.is_silent(start + ms(30_000)), "it says that it has no source");
        detector.excused();
        assert!(!detector.is_silent(start + ms(90_000)));
    }

    #[test]
    fn a_stopped_node_asks_again_before_it_judges() {
        let (mut detector, start) = (FailureDetector::new(&Qos::default()), Instant::now());
        detector.asked(start);
        let back = start + ms(60_000);
        detector.asked(back);
        assert!(!detector.is_silent(back));
    }
}
