//! A channel that one of this node's subscribers wants, and its progress.

use super::Candidate;
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::PortInfo;
use qos::{Qos, Reliability};
use std::time::{Duration, Instant};

/// A publisher's and a subscriber's port.
pub(crate) type Pair = (PortRef, PortRef);

/// A channel that was open for this time was a success.
const LIVED: Duration = Duration::from_secs(1);
/// First pause before a failed channel is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause: a stream resumes within a second after an outage (P-16).
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// The time for which a publisher that vanished without closing is still tried: its host may only be cut off.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The progress of a wanted channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Waiting: the next attempt is at this time.
    Idle(Instant),
    /// A handshake is under way.
    Dialing,
    /// The channel is open, under this number.
    Open(u64),
    /// The publisher refused for a reason that only changes with the ports.
    Refused,
}

/// One wanted channel.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub publisher: PortInfo,
    pub subscriber: PortInfo,
    pub by_name: bool,
    /// The proxy that the subscriber wants for the stream.
    pub proxy: Proxy,
    pub candidates: Vec<Candidate>,
    pub next: usize,
    pub progress: Progress,
    /// Incarnation and sequence number up to which samples were delivered on an earlier channel.
    pub delivered: Option<(u64, u64)>,
    failures: u32,
    opened_at: Option<Instant>,
    /// Time since which the directory does not know the publisher's node.
    lost_since: Option<Instant>,
}

impl Wanted {
    pub(crate) fn new(
        publisher: PortInfo,
        subscriber: PortInfo,
        candidates: Vec<Candidate>,
        by_name: bool,
        now: Instant,
    ) -> Self {
        let progress = Progress::Idle(now);
        Self {
            publisher,
            subscriber,
            by_name,
            proxy: Proxy::default(),
            candidates,
            next: 0,
            progress,
            delivered: None,
            failures: 0,
            opened_at: None,
            lost_since: None,
        }
    }

    /// The way to try next.
    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        self.candidates.get(self.next)
    }

    /// The last sample that was delivered on an earlier channel of this incarnation of the publisher's node; 0: none.
    pub(crate) fn delivered_of(&self, incarnation: u64) -> u64 {
        self.delivered.filter(|(of, _)| *of == incarnation).map_or(0, |(_, seq)| seq)
    }

    /// The way that was tried failed: the next one is tried at once, or all again after a pause.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.next += 1;
        let mut pause = Duration::ZERO;
        if self.next >= self.candidates.len() {
            pause = self.pause();
        }
        self.progress = Progress::Idle(now + pause);
    }

    /// The channel is open.
    pub(crate) fn opened(&mut self, channel: u64, now: Instant) {
        self.next = 0;
        self.opened_at = Some(now);
        self.progress = Progress::Open(channel);
    }

    /// The channel ended: it is tried again after a pause, the first pause unless it was open for less than [`LIVED`] (a callback that
    /// always panics).
    pub(crate) fn ended(&mut self, now: Instant) {
        if self.opened_at.is_some_and(|opened| now.duration_since(opened) >= LIVED) {
            self.failures = 0;
        }
        self.progress = Progress::Idle(now + self.pause());
    }

    fn pause(&mut self) -> Duration {
        self.next = 0;
        self.failures += 1;
        FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE)
    }

    /// The publisher's node left the directory or came back.
    pub(crate) fn seen(&mut self, present: bool, now: Instant) {
        self.lost_since = if present { None } else { self.lost_since.or(Some(now)) };
    }

    /// `true` if the publisher's node has been gone for [`PATIENCE`], and no channel or handshake is open.
    pub(crate) fn is_hopeless(&self, now: Instant) -> bool {
        let lost = self.lost_since.is_some_and(|since| now.duration_since(since) > PATIENCE);
        lost && !matches!(self.progress, Progress::Open(_) | Progress::Dialing)
    }
}

/// `true` if a channel loses no samples: both ends ask for that. By a fallback a reliable subscriber may get best effort.
pub(crate) fn is_reliable(publisher: &Qos, subscriber: &Qos) -> bool {
    [publisher, subscriber].iter().all(|qos| qos.reliability == Reliability::Reliable)
}

#[cfg(test)]
mod tests {
    use super::super::Route;
    use super::*;
    use qos::Place;

    #[test]
    fn pauses_double_up_to_the_longest_and_every_way_is_tried() {
        let start = Instant::now();
        let ways = ["shm", "tcp"]
            .map(|c| Candidate { carrier: c.into(), route: Route::Process, place: Place::default() })
            .to_vec();
        let info = crate::testing::port_info("/p");
        let mut wanted = Wanted::new(info.clone(), info, ways, false, start);
        let mut pauses = Vec::new();
        for _ in 0..16 {
            wanted.failed(start);
            if let Progress::Idle(at) = wanted.progress {
                pauses.push((wanted.candidate().map(|c| c.carrier.clone()), at - start));
            }
        }
        let millis: Vec<u64> = pauses.iter().skip(1).step_by(2).map(|(_, p)| p.as_millis() as u64).collect();
        assert_eq!(millis, [20, 40, 80, 160, 320, 400, 400, 400]);
        assert!(pauses.iter().step_by(2).all(|(c, p)| *c == Some(crate::carrier::Name::Tcp) && p.is_zero()));
    }
}
