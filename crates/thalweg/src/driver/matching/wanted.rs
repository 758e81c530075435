//! A channel that one of this node's subscribers wants: its progress, the ends of its handshakes and channels, and the next attempt.

use super::grant::incompatible_there;
use super::{Action, Candidate, Known, Matching, Route};
use crate::carrier::Name;
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::PortInfo;
use crate::control::directory::PortKey;
use crate::event::Event;
use crate::handshake::{Reaction, Refused};
use qos::{Qos, Reliability};
use std::time::{Duration, Instant};

/// A publisher's and a subscriber's port.
pub(crate) type Pair = (PortRef, PortRef);
/// The time for which a publisher that vanished without closing is still tried: its host may only be cut off.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The progress of a wanted channel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Waiting: the next attempt is at this time.
    Idle(Instant),
    /// A handshake is under way.
    Handshake,
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
    /// Time at which the publisher's port closed.
    pub(super) closed_at: Option<Instant>,
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
            closed_at: None,
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

    /// `true` if the publisher's port closed, and no handshake with it is under way any more.
    pub(super) fn is_over(&self) -> bool {
        self.closed_at.is_some() && self.progress != Progress::Handshake
    }

    /// `true` if the publisher's node has been gone for [`PATIENCE`], and no channel or handshake is open.
    pub(crate) fn is_hopeless(&self, now: Instant) -> bool {
        let lost = self.lost_since.is_some_and(|since| now.duration_since(since) > PATIENCE);
        lost && !matches!(self.progress, Progress::Open(_) | Progress::Handshake)
    }
}

/// `true` if a channel loses no samples: both ends ask for that. By a fallback a reliable subscriber may get best effort.
pub(crate) fn is_reliable(publisher: &Qos, subscriber: &Qos) -> bool {
    [publisher, subscriber].iter().all(|qos| qos.reliability == Reliability::Reliable)
}

impl Matching {
    /// Tries the next way of a channel.
    pub(crate) fn try_next(&mut self, pair: Pair) -> Option<Action> {
        let wanted = self.wanted.get_mut(&pair)?;
        let candidate = wanted.candidate()?.clone();
        wanted.progress = Progress::Handshake;
        Some(Action::Try(pair, candidate))
    }

    /// An attempt begins without [`Action::Try`].
    pub(crate) fn tries(&mut self, pair: Pair) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.progress = Progress::Handshake;
        }
    }

    /// Too many handshakes are under way to begin another one.
    pub(crate) fn had_no_room(&mut self, pair: Pair, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.progress = Progress::Idle(now + NO_ROOM_PAUSE);
        }
    }

    /// A way cannot be used at present, which is not reported.
    pub(crate) fn pass_over(&mut self, pair: Pair, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.failed(now);
        }
    }

    /// The channel is open under this number.
    pub(crate) fn opened(&mut self, pair: Pair, channel: u64, now: Instant) {
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.opened(channel, now);
        }
    }

    /// A way that was tried failed.
    pub(crate) fn failed(&mut self, pair: Pair, why: &str, known: Known, now: Instant) -> Option<Action> {
        let wanted = self.wanted.get_mut(&pair)?;
        let carrier = wanted.candidate().map(|c| c.carrier.clone()).unwrap_or_default();
        let relay = wanted.candidate().map(|way| &way.place).filter(|place| place.relays().next().is_some());
        let reason = relay.map_or(why.to_owned(), |relay| format!("{relay}: {why}"));
        // A node of this host that has left the directory and does not answer is dead, not cut off.
        if wanted.candidate().is_some_and(is_here) && known.directory.node(pair.0.node).is_none() {
            return Some(Action::End { pair, why: "its process is gone", cut: false });
        }
        if wanted.closed_at.is_some() {
            return Some(Action::End { pair, why: CLOSED, cut: false });
        }
        let (publisher, subscriber) = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        wanted.failed(now);
        Some(Action::Tell(Event::CarrierFailed { publisher, subscriber, carrier, reason }))
    }

    /// The publisher's node, or a relay in its stead, refused.
    pub(crate) fn refused(
        &mut self,
        pair: Pair,
        by_relay: bool,
        refused: Refused,
        known: Known,
        now: Instant,
    ) -> Vec<Action> {
        if by_relay || is_of_the_way(&refused) {
            return self.failed(pair, &refusal_text(&refused), known, now).into_iter().collect();
        }
        // Another node is at that address. The address may be one of several of the publisher's node, or exist on many hosts (172.17.0.1).
        // The directory says whether the publisher's node is gone.
        let reaction = refused.policy.reaction();
        if reaction == Reaction::AnotherAddress && known.directory.port(key_of(pair)).is_some() {
            return self.failed(pair, &refusal_text(&refused), known, now).into_iter().collect();
        }
        if matches!(reaction, Reaction::AnotherAddress | Reaction::Forget) {
            return vec![Action::End { pair, why: CLOSED, cut: false }];
        }
        let Some(wanted) = self.wanted.get_mut(&pair) else { return Vec::new() };
        wanted.progress = Progress::Refused;
        let names = (wanted.publisher.name.clone(), wanted.subscriber.name.clone());
        incompatible_there(&names, refused)
    }

    /// The open channel of this number ended by itself. `delivered`: the incarnation of its publisher's node, and the last sample that was
    /// delivered. `false`: it was an older channel; the present one continues.
    pub(crate) fn ended(&mut self, pair: Pair, channel: u64, delivered: Option<(u64, u64)>, now: Instant) -> bool {
        let open = |wanted: &&mut Wanted| wanted.progress == Progress::Open(channel);
        let Some(wanted) = self.wanted.get_mut(&pair).filter(open) else { return false };
        wanted.delivered = delivered.or(wanted.delivered);
        wanted.ended(now);
        true
    }

    /// The steps after the end of a channel: its publisher may be gone. If it was offered along with another one before its node was known,
    /// ways to it are looked up.
    pub(crate) fn after_end(&mut self, pair: Pair, known: Known, now: Instant) -> Vec<Action> {
        let Some(wanted) = self.wanted.get(&pair) else { return Vec::new() };
        if known.directory.node(pair.0.node).is_some_and(|node| !node.ports.contains_key(&pair.0.port)) {
            return vec![Action::End { pair, why: CLOSED, cut: false }];
        }
        if !wanted.candidates.is_empty() {
            return Vec::new();
        }
        let (offered, asked, delivered) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.delivered);
        self.wanted.remove(&pair);
        let actions = self.want(pair, (&offered, &asked), false, known, now);
        if let Some(wanted) = self.wanted.get_mut(&pair) {
            wanted.delivered = delivered;
        }
        actions
    }

    /// Tries the ways that are due, and ends the channels without hope, and those whose publisher closed during their handshake.
    pub(crate) fn time(&mut self, now: Instant) -> Vec<Action> {
        let due = |wanted: &Wanted| matches!(wanted.progress, Progress::Idle(at) if at <= now) && !wanted.is_over();
        let due: Vec<Pair> = self.wanted.iter().filter(|(_, wanted)| due(wanted)).map(|(pair, _)| *pair).collect();
        let mut actions: Vec<Action> = due.into_iter().filter_map(|pair| self.try_next(pair)).collect();
        let hopeless = self.wanted.iter().filter(|(_, wanted)| wanted.is_hopeless(now));
        actions.extend(hopeless.map(|(pair, _)| Action::End { pair: *pair, why: "its node is gone", cut: false }));
        let over = self.wanted.iter().filter(|(_, wanted)| wanted.is_over());
        actions.extend(over.map(|(pair, _)| Action::End { pair: *pair, why: CLOSED, cut: false }));
        actions
    }

    /// The next time at which [`Self::time`] has work.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = |wanted: &Wanted| match wanted.progress {
            _ if wanted.is_over() => wanted.closed_at,
            Progress::Idle(at) => wanted.candidate().map(|_| at),
            _ => None,
        };
        self.wanted.values().filter_map(next).min()
    }

    /// `true` if a channel that is offered along with another one can be taken. `open`: the carrier of the channel that the two ports have
    /// already.
    pub(crate) fn has_room_for_offered(&self, pair: &Pair, open: Option<&Name>) -> bool {
        let Some(wanted) = self.wanted.get(pair) else { return true };
        match wanted.progress {
            Progress::Open(_) => open == Some(&Name::Tcp),
            Progress::Handshake => wanted.candidate().is_none_or(|way| way.carrier == Name::Tcp),
            Progress::Idle(_) | Progress::Refused => true,
        }
    }
}

/// `true` if the ports fit, so that another way, or the same one later, may succeed.
pub(crate) fn is_of_the_way(refused: &Refused) -> bool {
    refused.policy.reaction() == Reaction::AnotherWay
}

/// The reason of a handshake that failed by a refusal.
pub(crate) fn refusal_text(refused: &Refused) -> String {
    format!("refused: {}", refused.remedy)
}

/// The publisher's port.
fn key_of((publisher, _): Pair) -> PortKey {
    PortKey { node: publisher.node, port: publisher.port }
}

fn is_here(way: &Candidate) -> bool {
    match &way.route {
        Route::Unix(_) | Route::Process => true,
        Route::Tcp(address) => address.ip().is_loopback(),
    }
}

/// The reason for the end of a channel whose publisher's port is gone.
pub(super) const CLOSED: &str = "the publisher closed";
/// A channel that was open for this time was a success.
const LIVED: Duration = Duration::from_secs(1);
/// First pause before a failed channel is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause: a stream resumes within a second after an outage (P-16).
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// Pause before the next attempt after one for which there was no room.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
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
