//! The moves of proxies while samples flow. This machine decides which way is tried next, when a move is tried again, and when a new
//! channel is given up. Pure: the caller says what happened and when, opens the ways that it gets back, and ends the channels.
//!
//! | what happened | method |
//! |---|---|
//! | a channel should come another way | [`begin`](Moves::begin), [`leave`](Moves::leave), [`wait_for_relay`](Moves::wait_for_relay) |
//! | a way failed | [`failed`](Moves::failed), [`leaving_failed`](Moves::leaving_failed) |
//! | the new channel is open | [`passes`](Moves::passes), [`arrives`](Moves::arrives) |
//! | it has taken over, or the old one ended | [`finish`](Moves::finish), [`arrived`](Moves::arrived) |
//! | the move is not wanted any more | [`give_up`](Moves::give_up) |
//! | time passed | [`look`](Moves::look), [`laggards`](Moves::laggards), [`due`](Moves::due), [`retry`](Moves::retry), at [`next_deadline`](Moves::next_deadline) |

use super::handshake_client::ATTEMPT;
use super::matching::{Candidate, Pair};
use crate::channel::proxy::Proxy;
use qos::Place;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pause before a failed move is tried again, as long as the channel is not at its wanted place.
const RETRY: Duration = Duration::from_millis(500);
/// The patience of a handshake doubles each time that all ways of its move failed, so often: to 2 s. A channel that is to become thinner has to open its
/// thinner one over a link that is full. The present one goes on meanwhile.
const DOUBLINGS: u32 = 2;
/// A new channel that has not caught up with the old one within this time is given up, and tried again. The time begins when it has something to bring.
pub(super) const LONGEST_BOTH_OPEN: Duration = Duration::from_secs(5);

/// Both channels of a move, open at the same time.
pub(super) trait Passing {
    /// `true` if the new channel has taken over.
    fn is_taken_over(&self) -> bool;
    /// Keeps the old channel, and gives up the new one; `false`: the new one has taken over already.
    fn keep_old(&self) -> bool;
    /// `true` if the new channel should have brought a sample when the old one has brought this one: a thinner stream begins later.
    fn is_due(&self, _came: u64) -> bool {
        true
    }
}

/// The proxy of an open channel that is to move.
struct Move<P, L> {
    ways: Vec<Candidate>,
    stage: Stage<P, L>,
    /// The move leaves a silent relay: samples that the relay may still have are not waited for.
    leaves: bool,
    /// The times that all ways failed.
    failures: u32,
    /// The failure of this move was reported.
    told: bool,
}

enum Stage<P, L> {
    /// The move is tried again at this time.
    Waiting(Instant),
    /// A handshake is under way.
    Handshake,
    /// Both channels are open.
    Passing(BothOpen<P>),
    /// The move leaves a silent relay: this channel begins when the relay's channel has ended.
    Leaving(L),
}

/// Two open channels, of which the new one has to catch up.
struct BothOpen<P> {
    passing: P,
    /// The time at which the new channel is given up unless it has taken over.
    until: Instant,
    /// The time of the next look whether samples arrive, and the last sample that the old channel had brought at the look before.
    look: Instant,
    came: u64,
}

/// The next step after a way failed.
#[derive(Debug, PartialEq)]
pub(super) enum Failed {
    /// The next way is tried.
    Try(Candidate),
    /// All ways are tried again later; `tell`: the reason is reported, once per move.
    Later { tell: bool },
    /// The channel was not to move.
    Nothing,
}

/// The state of a move when it was given up.
#[derive(Debug, PartialEq)]
pub(super) enum GivenUp<P> {
    /// The move is over: the new channel has taken over.
    Over,
    /// Both channels were open: the new one is to end.
    Passing(P),
    /// At most a handshake was under way.
    Handshake,
    /// The channel was not to move.
    Nothing,
}

/// An open channel, as far as a move depends on it.
pub(super) struct Open {
    /// The place where the stream is scaled.
    pub at: Option<Place>,
    /// The channel selects or scales otherwise than wanted.
    pub differs: bool,
    /// The channel's history is still arriving: a move now would lose the rest of it.
    pub has_history: bool,
}

/// The next step of a channel that opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Another proxy is wanted meanwhile: the channel moves.
    Move,
    /// The channel fell back, and moves when its relay is there.
    Wait,
    /// It is as wanted.
    Stay,
}

/// The moves of a node's channels. `P`: two open channels. `L`: a channel that waits for the end of a silent relay's.
pub(super) struct Moves<P, L> {
    all: BTreeMap<Pair, Move<P, L>>,
}

impl<P, L> Default for Moves<P, L> {
    fn default() -> Self {
        Self { all: BTreeMap::new() }
    }
}

impl<P, L> Moves<P, L> {
    /// A channel is to move by one of these ways; returns the first one to try. `waits`: none yet, because the channel's history is still
    /// arriving.
    pub(super) fn begin(&mut self, pair: Pair, ways: Vec<Candidate>, waits: bool, now: Instant) -> Option<Candidate> {
        // There are no ways while the publisher's node is not known: they are looked up again later.
        let later = waits || ways.is_empty();
        let stage = if later { Stage::Waiting(now + RETRY) } else { Stage::Handshake };
        self.all.insert(pair, Move { ways, stage, leaves: false, failures: 0, told: false });
        if later { None } else { self.next_way(pair) }
    }

    /// A channel is to leave its silent relay by one of these ways; returns the first one to try.
    pub(super) fn leave(&mut self, pair: Pair, ways: Vec<Candidate>) -> Option<Candidate> {
        if ways.is_empty() {
            return None;
        }
        self.all.insert(pair, Move { ways, stage: Stage::Handshake, leaves: true, failures: 0, told: false });
        self.next_way(pair)
    }

    /// A channel waits for a relay that is preferred to the present one. `false`: a move is there already.
    pub(super) fn wait_for_relay(&mut self, pair: Pair, now: Instant) -> bool {
        if self.all.contains_key(&pair) {
            return false;
        }
        let stage = Stage::Waiting(now + RETRY);
        self.all.insert(pair, Move { ways: Vec::new(), stage, leaves: false, failures: 0, told: false });
        true
    }

    fn next_way(&mut self, pair: Pair) -> Option<Candidate> {
        let moving = self.all.get_mut(&pair)?;
        let way = moving.ways.first()?.clone();
        moving.stage = Stage::Handshake;
        Some(way)
    }

    /// The time that a handshake of this move may take.
    pub(super) fn patience(&self, pair: &Pair) -> Duration {
        let failures = self.all.get(pair).map_or(0, |moving| moving.failures);
        ATTEMPT.saturating_mul(1 << failures.min(DOUBLINGS))
    }

    /// `true` if this channel is to move, now or later.
    pub(super) fn contains(&self, pair: &Pair) -> bool {
        self.all.contains_key(pair)
    }

    /// `true` if a handshake or a second channel of this move is open.
    pub(super) fn is_under_way(&self, pair: &Pair) -> bool {
        self.all.get(pair).is_some_and(|moving| !matches!(moving.stage, Stage::Waiting(_)))
    }

    pub(super) fn is_in_handshake(&self, pair: &Pair) -> bool {
        self.all.get(pair).is_some_and(|moving| matches!(moving.stage, Stage::Handshake))
    }

    /// `true` if the move leaves a silent relay.
    pub(super) fn leaves(&self, pair: &Pair) -> bool {
        self.all.get(pair).is_some_and(|moving| moving.leaves)
    }

    /// The two channels of a move, if both are open.
    pub(super) fn passing(&self, pair: &Pair) -> Option<&P> {
        match &self.all.get(pair)?.stage {
            Stage::Passing(both_open) => Some(&both_open.passing),
            _ => None,
        }
    }

    /// One way failed: the next one is tried, or all of `again` later. The present channel, at `open`, continues.
    pub(super) fn failed(&mut self, pair: Pair, open: &Place, again: Vec<Candidate>, now: Instant) -> Failed {
        let Some(moving) = self.all.get_mut(&pair) else { return Failed::Nothing };
        let failed = (!moving.ways.is_empty()).then(|| moving.ways.remove(0));
        // A way to the present place is no gain over a way to another place that failed. A relay that is away is asked again later.
        let another = |way: &Candidate| failed.as_ref().is_some_and(|failed| failed.place == way.place);
        if let Some(way) = moving.ways.first().filter(|way| way.place != *open || another(way)) {
            moving.stage = Stage::Handshake;
            return Failed::Try(way.clone());
        }
        moving.failures = moving.failures.saturating_add(u32::from(failed.is_some()));
        (moving.ways, moving.stage) = (again, Stage::Waiting(now + RETRY));
        Failed::Later { tell: failed.is_some() && !std::mem::replace(&mut moving.told, true) }
    }

    /// One way past a silent relay failed: returns the next one. Without one the move is over.
    pub(super) fn leaving_failed(&mut self, pair: Pair) -> Option<Candidate> {
        let moving = self.all.get_mut(&pair)?;
        moving.ways.drain(..moving.ways.len().min(1));
        let way = self.next_way(pair);
        if way.is_none() {
            self.all.remove(&pair);
        }
        way
    }

    /// The channel is not to move any more.
    pub(super) fn forget(&mut self, pair: &Pair) {
        self.all.remove(pair);
    }

    /// The channel that is to take over is open: both deliver until it has taken over.
    pub(super) fn passes(&mut self, pair: Pair, passing: P, now: Instant) {
        if let Some(moving) = self.all.get_mut(&pair) {
            let (look, until) = (now + RETRY, now + LONGEST_BOTH_OPEN);
            moving.stage = Stage::Passing(BothOpen { passing, look, until, came: u64::MAX });
        }
    }

    /// The channel past a silent relay is open: it begins when the relay's channel has ended.
    pub(super) fn arrives(&mut self, pair: Pair, leaving: L) {
        let stage = Stage::Leaving(leaving);
        self.all.insert(pair, Move { ways: Vec::new(), stage, leaves: true, failures: 0, told: false });
    }

    /// The relay's channel has ended: returns the channel that begins in its place, if any.
    pub(super) fn arrived(&mut self, pair: Pair) -> Option<L> {
        self.all.get(&pair).filter(|moving| matches!(moving.stage, Stage::Leaving(_)))?;
        match self.all.remove(&pair)?.stage {
            Stage::Leaving(leaving) => Some(leaving),
            _ => None,
        }
    }

    /// The move is over: returns the two channels that were open.
    pub(super) fn finish(&mut self, pair: Pair) -> Option<P> {
        match self.all.remove(&pair)?.stage {
            Stage::Passing(both_open) => Some(both_open.passing),
            _ => None,
        }
    }

    /// The next time at which a move is to be tried again, or looked at.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let at = |moving: &Move<P, L>| match &moving.stage {
            Stage::Waiting(at) => Some(*at),
            Stage::Passing(both_open) => Some(both_open.look),
            Stage::Handshake | Stage::Leaving(_) => None,
        };
        self.all.values().filter_map(at).min()
    }

    /// The moves of which both channels are open.
    pub(super) fn both_open(&self) -> impl Iterator<Item = &Pair> {
        self.all.iter().filter(|(_, moving)| matches!(moving.stage, Stage::Passing(_))).map(|(pair, _)| pair)
    }

    /// The waiting moves that are due.
    pub(super) fn due(&self, now: Instant) -> Vec<Pair> {
        let due = |moving: &Move<P, L>| matches!(moving.stage, Stage::Waiting(at) if at <= now);
        self.all.iter().filter(|(_, moving)| due(moving)).map(|(pair, _)| *pair).collect()
    }

    /// A move to `wanted` is due again, by one of these ways. Returns the way to try, if it leads to a better place than the channel's. A
    /// channel that is not open is asked for by its ordinary ways: by a second handshake it would be open twice.
    pub(super) fn retry(
        &mut self,
        pair: Pair,
        ways: Vec<Candidate>,
        (open, wanted): (Option<&Open>, &Place),
        now: Instant,
    ) -> Option<Candidate> {
        let better = open.is_some_and(|open| !open.has_history && is_better(ways.first(), open, wanted));
        let moving = self.all.get_mut(&pair)?;
        (moving.ways, moving.stage) = (ways, Stage::Waiting(now + RETRY));
        if better { self.next_way(pair) } else { None }
    }
}

impl<P: Passing, L> Moves<P, L> {
    /// `true` if a move is over. The message that it is over may arrive late, when the next move has begun.
    pub(super) fn is_over(&self, pair: &Pair) -> bool {
        self.passing(pair).is_some_and(Passing::is_taken_over)
    }

    /// Looks whether samples arrive, in the moves whose look is due. `came`: the last sample that each old channel brought. Returns the
    /// moves in which none arrived since the last look, with that sample: no further sample shows then that the old channel has brought
    /// all.
    pub(super) fn look(&mut self, now: Instant, came: &BTreeMap<Pair, u64>) -> Vec<(Pair, u64)> {
        let mut still = Vec::new();
        for (pair, moving) in &mut self.all {
            let Stage::Passing(both_open) = &mut moving.stage else { continue };
            let Some(came) = came.get(pair).copied().filter(|_| both_open.look <= now) else { continue };
            both_open.look = now + RETRY;
            if !both_open.passing.is_due(came) {
                both_open.until = now + LONGEST_BOTH_OPEN;
            }
            if std::mem::replace(&mut both_open.came, came) == came {
                still.push((*pair, came));
            }
        }
        still
    }

    /// Gives up a move that is not wanted any more.
    pub(super) fn give_up(&mut self, pair: Pair) -> GivenUp<P> {
        if self.passing(&pair).is_some_and(|passing| !passing.keep_old()) {
            return GivenUp::Over;
        }
        match self.all.remove(&pair).map(|moving| moving.stage) {
            Some(Stage::Passing(both_open)) => GivenUp::Passing(both_open.passing),
            Some(_) => GivenUp::Handshake,
            None => GivenUp::Nothing,
        }
    }

    /// The moves whose new channel did not catch up in time, and does not take over any more. The caller reports each as [`Moves::failed`].
    pub(super) fn laggards(&mut self, now: Instant) -> Vec<Pair> {
        let lags = |moving: &Move<P, L>| match &moving.stage {
            Stage::Passing(both_open) => both_open.until <= now && both_open.passing.keep_old(),
            _ => false,
        };
        let mut laggards = Vec::new();
        for (pair, moving) in self.all.iter_mut().filter(|(_, moving)| lags(moving)) {
            moving.ways.dedup_by(|next, way| next.place == way.place); // another route is no faster
            laggards.push(*pair);
        }
        laggards
    }
}

/// The next step of a channel that opened as `asked`, with the proxy at this place.
pub(super) fn settled(asked: &Proxy, wanted: &Proxy, at: Option<&Place>) -> Settled {
    let other_place = asked.place != wanted.place && !wanted.place_is_relay() && !wanted.is_nothing();
    if other_place || (asked.selection, asked.picture) != (wanted.selection, wanted.picture) {
        return Settled::Move;
    }
    if fell_back(wanted, at) { Settled::Wait } else { Settled::Stay }
}

/// `true` if a relay is preferred to the place of an open channel's proxy.
pub(super) fn fell_back(wanted: &Proxy, at: Option<&Place>) -> bool {
    let preferred = wanted.place.relays().next();
    preferred.is_some_and(|name| at.and_then(|at| at.relays().next()) != Some(name))
}

/// `true` if this way leads to a better place than the channel's: to a relay that is preferred to the channel's place, to any wanted relay
/// if the channel is to select or scale otherwise, or to the wanted place that is no relay.
fn is_better(way: Option<&Candidate>, open: &Open, wanted: &Place) -> bool {
    let rank = |place: &Place| place.relays().next().and_then(|at| wanted.relays().position(|name| name == at));
    let at = open.at.as_ref().and_then(rank).unwrap_or(usize::MAX);
    way.is_some_and(|way| match rank(&way.place) {
        Some(rank) => rank < at || open.differs,
        None => way.place == *wanted,
    })
}

#[cfg(test)]
mod tests;
