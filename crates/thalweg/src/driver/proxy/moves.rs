//! Moving a proxy while samples flow. The subscriber owns the move: a second channel opens beside the present one, and
//! takes over when it has caught up.

use crate::carrier;
use crate::channel::Channel;
use crate::channel::inbound::Inbound;
use crate::channel::proxy::handover::Handover;
use crate::channel::proxy::{Passage, Proxy, Role, Selection};
use crate::driver::channels::has_history;
use crate::driver::control::{Command, Control};
use crate::driver::dial::Dial;
use crate::driver::entries::Entry;
use crate::driver::matching::{Candidate, Pair};
use crate::driver::priority::Side;
use crate::driver::reader::ServedBy;
use crate::port::AnyInlet;
use linux::poll::Readiness;
use qos::Place;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pause before a move that failed is tried again, as long as the channel is not where it should be.
const RETRY: Duration = Duration::from_millis(500);

/// A new channel that has not come abreast of the old one by then is given up, and tried again.
const ABREAST: Duration = Duration::from_secs(5);

/// Samples that a move can hold at least, whatever the depth of the queue.
const LEAST_HELD: usize = 1024;

/// The proxy of an open channel that is to move.
pub(crate) struct Move {
    pub(super) ways: Vec<Candidate>,
    pub(super) stage: Stage,
    /// Away from a relay that gives no sign of life: what it may still have is not waited for.
    pub(super) leaves: bool,
    /// A person was told that it failed.
    pub(super) told: bool,
}

pub(super) enum Stage {
    /// Tried again then.
    Waiting(Instant),
    /// A handshake is under way.
    Dialing,
    /// Both channels are open.
    Passing(Passing),
    /// Away from a silent relay: the channel that begins when its one has ended, and what was asked for.
    Leaving(Box<Inbound>, Proxy),
}

/// Both channels of a move are open.
pub(super) struct Passing {
    new: Arc<Channel>,
    inlet: Arc<dyn AnyInlet>,
    passage: Arc<Passage>,
    /// By then the new one has taken over, or is given up.
    until: Instant,
    /// When it is looked at whether samples come at all, and the last that had come by the old channel before.
    look: Instant,
    came: u64,
}

impl Control {
    /// Opens the channel that is to take over.
    pub(super) fn begin_move(&mut self, pair: Pair) {
        let Some(wanted) = self.matching.get(&pair) else { return };
        let mut ways = wanted.candidates.clone();
        let is_local = self.open_channel(&pair).is_some_and(|open| open.carrier == carrier::Name::Local);
        if is_local && ways.first().is_some_and(|way| way.carrier == carrier::Name::Local) {
            return self.try_local(pair);
        }
        ways.retain(|way| way.carrier != carrier::Name::Local); // its samples pass no gate
        let waits = self.has_history_under_way(&pair);
        let stage = if waits { Stage::Waiting(Instant::now() + RETRY) } else { Stage::Dialing };
        self.moves.insert(pair, Move { ways, stage, leaves: false, told: false });
        if !waits {
            self.try_move(pair);
        }
    }

    /// Tries the next way of a move.
    pub(super) fn try_move(&mut self, pair: Pair) {
        let (Some(wanted), Some(moving)) = (self.matching.get(&pair), self.moves.get_mut(&pair)) else { return };
        let Some(way) = moving.ways.first().cloned() else { return };
        moving.stage = Stage::Dialing;
        let dial = Dial::start(&self.state, pair, wanted, &way, &self.carriers, true);
        let watched = dial.map(|dial| self.watch(Entry::Dial(Box::new(dial)), Readiness::OUT));
        match watched {
            Ok(Some(_)) => {}
            Ok(None) => self.move_failed(pair, "the connection cannot be watched: out of descriptors?"),
            Err(why) => self.move_failed(pair, &why),
        }
    }

    /// One way of a move failed: the next one, or all again later. The present channel goes on.
    pub(in crate::driver) fn move_failed(&mut self, pair: Pair, why: &str) {
        if self.leaves(pair) {
            return self.leaving_failed(pair);
        }
        let Some(wanted) = self.matching.get(&pair) else { return drop(self.moves.remove(&pair)) };
        let open = self.open_channel(&pair).and_then(|open| place(open)).cloned().unwrap_or_default();
        let again = wanted.candidates.clone();
        let Some(moving) = self.moves.get_mut(&pair) else { return };
        let failed = (!moving.ways.is_empty()).then(|| moving.ways.remove(0));
        // Where it is already is not better than where it cannot be: a relay that is away is asked again.
        let another = |way: &Candidate| failed.as_ref().is_some_and(|failed| failed.place == way.place);
        if moving.ways.first().is_some_and(|way| way.place != open || another(way)) {
            return self.try_move(pair);
        }
        let first = failed.is_some() && !std::mem::replace(&mut moving.told, true);
        (moving.ways, moving.stage) = (again, Stage::Waiting(Instant::now() + RETRY));
        if first {
            let (publisher, subscriber) = (&wanted.publisher.name, &wanted.subscriber.name);
            let place = &wanted.proxy.place;
            self.warn(format!("{publisher} to {subscriber}: its proxy is not at {place} yet: {why}"));
        }
    }

    /// The channel that is to take over is open, and brings what follows sample `after`: both deliver through one passage
    /// until it has.
    pub(in crate::driver) fn begin_passage(&mut self, pair: Pair, inbound: Inbound, after: u64) {
        if !self.moves.contains_key(&pair) || !self.matching.is_wanted(&pair) {
            return;
        }
        let Some(inlet) = self.state.inlet(pair.1.port) else { return };
        let Some(old) = self.open_channel(&pair).cloned() else {
            // The old one ended meanwhile: it takes its place.
            self.moves.remove(&pair);
            return self.begin(pair, inbound);
        };
        let (Some(wanted), Some(moving)) = (self.matching.get(&pair), self.moves.get_mut(&pair)) else { return };
        let selection = wanted_of(&old);
        let last = came_by(&old);
        let depth = wanted.subscriber.qos.queue.limit() as usize;
        let state = self.state.clone();
        let taken_over = Box::new(move || state.command(Command::Moved(pair)));
        let handover = Handover::new(selection, last, depth.max(LEAST_HELD));
        let handover = handover.to_one_after(wanted_of(&inbound.channel), after);
        let (has_history, account) = (has_history(wanted, &inbound.channel), inbound.channel.account.clone());
        let passage = Arc::new(Passage::new(handover, has_history, account, taken_over));
        inbound.channel.gate.shut(Role::New, inbound.inlet.as_ref(), passage.clone());
        old.gate.shut(Role::Old, inbound.inlet.as_ref(), passage.clone());
        let (new, now) = (inbound.channel.clone(), Instant::now());
        let (look, until) = (now + RETRY, now + ABREAST);
        moving.stage = Stage::Passing(Passing { new, inlet, passage, look, until, came: u64::MAX });
        self.serve_inbound(pair, inbound);
    }

    /// A receive half gets its thread.
    pub(in crate::driver) fn serve_inbound(&mut self, pair: Pair, inbound: Inbound) {
        let Some(inlet) = self.state.inlet(pair.1.port) else { return };
        let channel = inbound.channel.clone();
        self.expect_samples_of(&channel, inlet.as_ref());
        let class = self.matching.get(&pair).map_or(qos::Class::Normal, |wanted| wanted.publisher.qos.class);
        match inlet.adopt(inbound) {
            Some(inbound) => self.state.readers.serve(inbound, class),
            None => self.state.readers.served_elsewhere(&channel, ServedBy::Waiter),
        }
    }

    /// A move is said to be over. What says so may have been overtaken by the next one.
    pub(in crate::driver) fn moved(&mut self, pair: Pair) {
        let over = |moving: &Move| matches!(&moving.stage, Stage::Passing(passing) if passing.passage.is_taken_over());
        if self.moves.get(&pair).is_some_and(over) {
            self.proxy_moved(pair);
        }
    }

    /// The new channel has taken over: the old one ends.
    pub(in crate::driver) fn proxy_moved(&mut self, pair: Pair) {
        let Some(Move { stage: Stage::Passing(Passing { new, inlet, passage, .. }), .. }) = self.moves.remove(&pair)
        else {
            return;
        };
        if !self.matching.is_wanted(&pair) {
            return;
        }
        let old = self.open_channel(&pair).cloned();
        if let Some(late) = passage.late() {
            new.gate.wait_for_history(late.clone());
            self.fetch_history(pair, &new, inlet, late.clone());
        }
        self.opened(pair, new.clone());
        if let Some(old) = old {
            self.drop_channel(&old); // after the new one is there: its publisher has not left
            old.cut();
        }
        self.prioritise_opened(Side::Subscriber, &new);
        let wanted = self.matching.get(&pair).map(|wanted| wanted.proxy.clone()).unwrap_or_default();
        self.settle(pair, &wanted);
    }

    /// A channel ended that is part of a move. `true`: it was the new one, and the old one goes on.
    pub(in crate::driver) fn ended_in_move(&mut self, channel: &Arc<Channel>) -> bool {
        let pair = (channel.publisher, channel.subscriber);
        let Some(Move { stage: Stage::Passing(Passing { new, passage, .. }), .. }) = self.moves.get(&pair) else {
            return false;
        };
        if !Arc::ptr_eq(new, channel) {
            if self.is_open(channel) {
                passage.end_old(came_by(channel));
                self.proxy_moved(pair);
            }
            return false;
        }
        if !passage.keep_old() {
            self.proxy_moved(pair); // what says so is on its way: it ended as any channel does
            return false;
        }
        self.move_failed(pair, "its channel ended before it had taken over");
        true
    }

    /// The channel that was to move has ended: the ordinary ways are tried, which are the same.
    pub(in crate::driver) fn give_up_dialing(&mut self, pair: Pair) {
        if self.moves.get(&pair).is_some_and(|moving| matches!(moving.stage, Stage::Dialing)) {
            self.give_up_move(pair);
        }
    }

    /// Ends what a move has opened, if anything.
    pub(in crate::driver) fn give_up_move(&mut self, pair: Pair) {
        if let Some(Move { stage: Stage::Passing(Passing { passage, .. }), .. }) = self.moves.get(&pair)
            && !passage.keep_old()
        {
            return self.proxy_moved(pair); // what says so is on its way
        }
        let Some(moving) = self.moves.remove(&pair) else { return };
        if let Stage::Passing(Passing { new, .. }) = &moving.stage {
            self.drop_channel(new);
            new.cut();
        }
        let dialing = |entry: &Option<Entry>| matches!(entry, Some(Entry::Dial(d)) if d.pair == pair && d.moves);
        if let Some(index) = self.entries.iter().position(dialing) {
            self.unwatch(index);
        }
    }

    /// A channel opened as `asked`. What was wanted may be something else by now; and one that had to fall back moves to
    /// its relay as soon as that is there.
    pub(in crate::driver) fn settle(&mut self, pair: Pair, asked: &Proxy) {
        let (Some(wanted), Some(channel)) = (self.matching.get(&pair), self.open_channel(&pair)) else { return };
        let other_place =
            asked.place != wanted.proxy.place && !wanted.proxy.place_is_relay() && !wanted.proxy.is_nothing();
        if other_place || (asked.selection, asked.picture) != (wanted.proxy.selection, wanted.proxy.picture) {
            return self.begin_move(pair);
        }
        let (publisher, subscriber) = (&channel.publisher_name, &channel.subscriber_name);
        let relay = |at: &&Place| at.relays().next().is_some();
        let by = place(channel).filter(relay).map_or("the publisher".to_owned(), Place::to_string);
        let preferred = wanted.proxy.place.relays().next().unwrap_or_default();
        let text = format!("{publisher} to {subscriber}: comes from {by} as long as relay:{preferred} is not there");
        if self.wait_for_relay(pair) {
            self.warn(text);
        }
    }

    /// Whether a channel that is open has to wait for a relay that is preferred to what serves it.
    pub(super) fn wait_for_relay(&mut self, pair: Pair) -> bool {
        let (Some(wanted), Some(channel)) = (self.matching.get(&pair), self.open_channel(&pair)) else { return false };
        let preferred = wanted.proxy.place.relays().next();
        let fell_back = preferred.is_some_and(|name| place(channel).and_then(|at| at.relays().next()) != Some(name));
        let waits = fell_back && !self.moves.contains_key(&pair);
        if waits {
            let stage = Stage::Waiting(Instant::now() + RETRY);
            self.moves.insert(pair, Move { ways: Vec::new(), stage, leaves: false, told: false });
        }
        waits
    }

    /// Who moves now gets no more of the history that an open channel began with.
    fn has_history_under_way(&self, pair: &Pair) -> bool {
        self.open_channel(pair).is_some_and(|open| open.gate.has_history_under_way())
    }

    /// When a move is to be tried again, or looked at.
    pub(in crate::driver) fn next_move(&self) -> Option<Instant> {
        let at = |moving: &Move| match &moving.stage {
            Stage::Waiting(at) => Some(*at),
            Stage::Passing(passing) => Some(passing.look),
            Stage::Dialing | Stage::Leaving(..) => None,
        };
        self.moves.values().filter_map(at).min()
    }

    /// Looks at moves that go on: where no samples come, none tells that the old channel has brought all that it has.
    fn look_at_passages(&mut self, now: Instant) {
        let passing = self.moves.iter().filter(|(_, moving)| matches!(moving.stage, Stage::Passing(_)));
        let came = passing.filter_map(|(pair, _)| Some((*pair, came_by(self.open_channel(pair)?))));
        for (pair, came) in came.collect::<Vec<_>>() {
            let Some(Move { stage: Stage::Passing(passing), .. }) = self.moves.get_mut(&pair) else { continue };
            if passing.look > now {
                continue;
            }
            passing.look = now + RETRY;
            if std::mem::replace(&mut passing.came, came) == came {
                passing.passage.nothing_comes(came, linux::clock::monotonic_ns());
            }
        }
        self.give_up_laggards(now);
    }

    /// Gives up moves whose new channel does not come abreast: the old one goes on, and it is tried again later.
    fn give_up_laggards(&mut self, now: Instant) {
        let lags = |moving: &Move| match &moving.stage {
            Stage::Passing(passing) if passing.until <= now && passing.passage.keep_old() => Some(passing.new.clone()),
            _ => None,
        };
        let laggards: Vec<_> = self.moves.iter().filter_map(|(pair, moving)| Some((*pair, lags(moving)?))).collect();
        for (pair, new) in laggards {
            self.drop_channel(&new);
            new.cut();
            if let Some(moving) = self.moves.get_mut(&pair) {
                moving.ways.dedup_by(|next, way| next.place == way.place); // another route is no faster
            }
            self.move_failed(pair, &format!("what comes by it lags (looked at for {ABREAST:?})"));
        }
    }

    /// Tries moves again whose time has come.
    pub(in crate::driver) fn retry_moves(&mut self, now: Instant) {
        self.look_at_passages(now);
        let due = |moving: &Move| matches!(moving.stage, Stage::Waiting(at) if at <= now);
        let due: Vec<Pair> = self.moves.iter().filter(|(_, moving)| due(moving)).map(|(pair, _)| *pair).collect();
        for pair in due {
            let Some(wanted) = self.matching.get(&pair) else { return drop(self.moves.remove(&pair)) };
            let (offered, asked, proxy) = (wanted.publisher.clone(), wanted.subscriber.clone(), wanted.proxy.clone());
            let waits = self.has_history_under_way(&pair);
            let channel = self.open_channel(&pair);
            let open = channel.and_then(|open| place(open)).cloned();
            let picture = |open: &Channel| open.provenance().and_then(|provenance| provenance.picture);
            let other =
                channel.is_some_and(|open| (wanted_of(open), picture(open)) != (proxy.selection, proxy.picture));
            let ways = self.ways(pair, &offered, &asked, &proxy);
            self.matching.has_ways(pair, ways.clone());
            // The first relay that is there, unless the channel is at it or at one that is better.
            let rank =
                |place: &Place| place.relays().next().and_then(|at| proxy.place.relays().position(|name| name == at));
            let at = open.as_ref().and_then(rank).unwrap_or(usize::MAX);
            let there = ways.first().is_some_and(|way| match rank(&way.place) {
                Some(rank) => rank < at || other,
                None => way.place == proxy.place,
            });
            if let Some(moving) = self.moves.get_mut(&pair) {
                (moving.ways, moving.stage) = (ways, Stage::Waiting(now + RETRY));
            }
            if there && !waits {
                self.try_move(pair);
            }
        }
    }
}

/// The last sample that a channel brought.
fn came_by(channel: &Channel) -> u64 {
    channel.counters.last_seq.load(Ordering::Relaxed).max(channel.gate.last())
}

/// Which samples arrive at a subscriber by a channel.
fn wanted_of(channel: &Channel) -> Selection {
    channel.provenance().map_or(Selection::ALL, |provenance| provenance.selection)
}

pub(super) fn place(channel: &Channel) -> Option<&Place> {
    channel.proxied.as_ref().map(|proxied| &proxied.place)
}
