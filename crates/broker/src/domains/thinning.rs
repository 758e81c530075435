//! Sessions that get fewer samples for a while, because a pipe of some domain is smaller than its contract says.
//!
//! Whoever has a smaller pipe decides how many samples of each session have room there (`ledger/grants`), and tells the domain before, which tells
//! the one before that, each with what it has room for itself. The first domain knows what all of them have room for then, and tells those behind;
//! in the last one the agent of the subscriber's host sets it, and the publisher sends no more than that. What is sold stays sold: nobody has to
//! ask again when the pipe is as large as before.
//!
//! | rule | reason |
//! |---|---|
//! | a message has all sessions that get fewer samples | one that is lost, late or doubled changes nothing for good |
//! | a message has a number, higher than earlier ones, also after a new start | an earlier one that comes late is ignored |
//! | it is told at once, after [`REPEAT`], and then in twice the time each, up to [`PRESENT_EVERY`] | most losses last no longer |
//! | what a neighbour has not told between [`SILENT`] of its summaries is over | its last message may be lost, and its disk |
//! | no session gets fewer samples than it admits, whatever a neighbour tells | it is its user's word |

use super::{Crossing, Domains, Effect, LONGEST_REASON, PRESENT_EVERY, Phase, REPEAT};
use agent::peer::{Key, MOST_SESSIONS, Message, Thinned};
use qos::admission::Bucket;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Summaries of a neighbour between which it tells of sessions that get fewer samples, if there are some.
const SILENT: u32 = 3;

/// What a neighbour is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Telling {
    /// Something has changed since the last message.
    is_news: bool,
    number: u64,
    /// When it is told next, and the time from then to the next time.
    next: Duration,
    pause: Duration,
}

/// What was heard of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hearing {
    /// The number of its last message.
    number: u64,
    /// Its summaries since then.
    summaries: u32,
}

impl Domains {
    /// From now on these pipes (by name) are so large, for this reason, and all others as the contract says. Sessions get fewer samples, as far as
    /// they admit that; those that have no room even so are lost. What is to be done for each of them is a list of its own.
    pub fn resize_pipes(&mut self, now: Duration, sizes: &BTreeMap<String, Bucket>, because: &str) -> Vec<Vec<Effect>> {
        self.because = because.chars().take(LONGEST_REASON).collect();
        let lost = self.ledger.resize(sizes);
        let mut all: Vec<Vec<Effect>> = lost.iter().map(|(key, offer)| self.displaced(now, key, *offer)).collect();
        all.push(self.thin());
        all
    }

    /// The pipes that are smaller now, with their sizes.
    pub fn sizes(&self) -> BTreeMap<String, Bucket> {
        self.ledger.sizes()
    }

    /// A session has no room in a pipe that is smaller, beside those that come before it.
    fn displaced(&mut self, now: Duration, key: &Key, offer: Option<u32>) -> Vec<Effect> {
        let offer = offer.map_or_else(
            || "ask for it again later".to_owned(),
            |most| format!("with scale_max = {most} it would have stayed"),
        );
        let because: String = self.because.chars().take(LONGEST_REASON / 2).collect();
        let because = format!("domain {}: {because}: what is at least as important takes it; {offer}", self.name);
        let because: String = because.chars().take(LONGEST_REASON).collect();
        self.end_for(now, key, &because)
    }

    /// Time has passed: sessions get what others have left, and neighbours are told.
    pub(super) fn tick_thinned(&mut self, now: Duration) -> Vec<Effect> {
        let lost = self.ledger.settle();
        let mut effects: Vec<Effect> = lost.iter().flat_map(|(key, offer)| self.displaced(now, key, *offer)).collect();
        effects.extend(self.thin());
        effects.extend(self.tell_thinned(now));
        effects
    }

    /// Sessions of which the own pipes have room for another part than before.
    fn thin(&mut self) -> Vec<Effect> {
        let names = self.ledger.take_changed();
        let versions = |(first, session): &(String, String)| {
            self.versions(first, session).map(|one| one.key.clone()).collect::<Vec<_>>()
        };
        let keys: Vec<Key> = names.iter().flat_map(versions).collect();
        keys.iter().filter_map(|key| self.limit(key)).collect()
    }

    /// What a session gets here and behind, if that is another part than before.
    fn limit(&mut self, key: &Key) -> Option<Effect> {
        let own = self.ledger.scales(key);
        let crossing = self.crossings.get(key).filter(|one| one.lives())?;
        let mut limits: Vec<u32> = crossing.flows.iter().map(|flow| flow.scale).collect();
        let mut reasons = BTreeSet::new();
        let behind = crossing.legs.iter().flat_map(|leg| {
            leg.flows.iter().zip(&leg.scales).map(move |(flow, scale)| (*flow, *scale, leg.because.as_str()))
        });
        let own = own.into_iter().enumerate().map(|(flow, scale)| (flow, scale, self.because.as_str()));
        for (flow, scale, because) in own.chain(behind) {
            let Some((asked, limit)) = crossing.flows.get(flow).zip(limits.get_mut(flow)) else { continue };
            let scale = asked.thinned(scale);
            if scale > asked.scale {
                reasons.insert(because);
            }
            *limit = scale.max(*limit);
        }
        let reasons: Vec<&str> = reasons.into_iter().collect();
        let because: String = reasons.join("; ").chars().take(LONGEST_REASON).collect();
        let limits = crossing.unless_asked(limits);
        let scales = if crossing.passed.is_empty() { limits.clone() } else { crossing.scales.clone() };
        self.set_thinned(key, limits, scales, because)
    }

    /// The first domain has decided which part of its samples a session gets.
    fn decided(&mut self, key: &Key, scales: &[u32]) -> Option<Effect> {
        let crossing = self.crossings.get(key).filter(|one| one.lives())?;
        let each = crossing.flows.iter().enumerate();
        let scales = each.map(|(at, flow)| flow.thinned(scales.get(at).copied().unwrap_or(flow.scale))).collect();
        let (scales, limits) = (crossing.unless_asked(scales), crossing.limits.clone());
        let because = crossing.thinned.clone();
        self.set_thinned(key, limits, scales, because)
    }

    fn set_thinned(&mut self, key: &Key, limits: Vec<u32>, scales: Vec<u32>, because: String) -> Option<Effect> {
        let crossing = self.crossings.get_mut(key)?;
        let before = (&crossing.limits, &crossing.scales, &crossing.thinned);
        if before == (&limits, &scales, &because) {
            return None;
        }
        let upstream = crossing.passed.last().filter(|_| crossing.limits != limits);
        let behind = crossing.legs.iter().map(|leg| &leg.domain).filter(|_| crossing.scales != scales);
        for neighbour in upstream.into_iter().chain(behind) {
            self.tellings.entry(neighbour.clone()).or_default().is_news = true;
        }
        (crossing.limits, crossing.scales, crossing.thinned) = (limits, scales, because);
        crossing.kept.then(|| self.keep(key))
    }

    /// After a new start: neighbours are told again what they were told before, and have to tell again what was heard of them.
    pub(super) fn tell_again(&mut self) {
        for crossing in self.crossings.values() {
            let legs = crossing.legs.iter().filter(|leg| !leg.scales.is_empty()).map(|leg| &leg.domain);
            for neighbour in legs.chain(crossing.passed.last().filter(|_| !crossing.scales.is_empty())) {
                self.hearings.entry(neighbour.clone()).or_default();
            }
            let upstream = crossing.passed.last().filter(|_| !crossing.limits.is_empty());
            let behind = crossing.legs.iter().map(|leg| &leg.domain).filter(|_| !crossing.scales.is_empty());
            for neighbour in upstream.into_iter().chain(behind) {
                self.tellings.entry(neighbour.clone()).or_default().is_news = true;
            }
        }
    }

    fn tell_thinned(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut tellings = std::mem::take(&mut self.tellings);
        tellings.retain(|neighbour, telling| {
            if std::mem::take(&mut telling.is_news) {
                self.number += 1;
                *telling = Telling { number: self.number, next: now, pause: REPEAT, is_news: false };
            }
            if now < telling.next {
                return true;
            }
            let message = self.thinned_with(neighbour, telling.number);
            let is_over = message.sessions.is_empty() && telling.pause >= PRESENT_EVERY;
            effects.push(Effect::Send(neighbour.clone(), Message::Thinned(message)));
            telling.next = now + telling.pause;
            telling.pause = (telling.pause * 2).min(PRESENT_EVERY);
            !is_over
        });
        self.tellings = tellings;
        effects
    }

    /// The sessions that a neighbour has a part in and that get fewer samples: those that come from it with what there is room for here and behind,
    /// and those that go to it with what was decided.
    fn thinned_with(&self, neighbour: &str, number: u64) -> Thinned {
        let (mut sessions, mut reasons) = (Vec::new(), BTreeSet::new());
        for crossing in self.crossings.values().filter(|one| one.lives()) {
            let scales = if crossing.passed.last().map(String::as_str) == Some(neighbour) {
                crossing.limits.clone()
            } else {
                let leg = crossing.legs.iter().find(|leg| leg.domain == neighbour);
                let flows = leg.into_iter().flat_map(|leg| &leg.flows);
                flows.filter_map(|flow| crossing.scales.get(*flow).copied()).collect()
            };
            if !scales.is_empty() && sessions.len() < MOST_SESSIONS {
                sessions.push((crossing.key.clone(), scales));
                reasons.insert(crossing.thinned.as_str());
            }
        }
        let reasons: Vec<&str> = reasons.into_iter().filter(|reason| !reason.is_empty()).collect();
        let because = reasons.join("; ").chars().take(LONGEST_REASON).collect();
        Thinned { number, sessions, because }
    }

    /// A neighbour tells which sessions get fewer samples.
    pub(super) fn hear_thinned(&mut self, from: &str, Thinned { number, sessions, because }: Thinned) -> Vec<Effect> {
        let hearing = self.hearings.entry(from.to_owned()).or_default();
        if number < hearing.number {
            return Vec::new();
        }
        *hearing = Hearing { number, summaries: 0 };
        self.take_over(from, &sessions.into_iter().collect(), &because)
    }

    /// A neighbour has told its summary, and nothing about sessions that get fewer samples since the last ones.
    pub(super) fn hear_nothing(&mut self, from: &str) -> Vec<Effect> {
        let Some(hearing) = self.hearings.get_mut(from) else { return Vec::new() };
        hearing.summaries += 1;
        if hearing.summaries < SILENT {
            return Vec::new();
        }
        self.hearings.remove(from);
        self.take_over(from, &BTreeMap::new(), "")
    }

    /// Of the sessions that a neighbour has a part in, these get fewer samples, and all others what they asked for.
    fn take_over(&mut self, from: &str, sessions: &BTreeMap<Key, Vec<u32>>, because: &str) -> Vec<Effect> {
        let of_neighbour = |one: &&Crossing| {
            let is_told = sessions.contains_key(&one.key);
            let from_it = one.passed.last().is_some_and(|last| last == from) && (is_told || !one.scales.is_empty());
            let to_it = |leg: &super::Leg| leg.domain == from && (is_told || !leg.scales.is_empty());
            from_it || one.legs.iter().any(to_it)
        };
        let keys: Vec<Key> = self.crossings.values().filter(of_neighbour).map(|one| one.key.clone()).collect();
        let take = |key: Key| {
            let scales = sessions.get(&key).cloned().unwrap_or_default();
            let crossing = self.crossings.get_mut(&key)?;
            if crossing.passed.last().is_some_and(|last| last == from) {
                return self.decided(&key, &scales);
            }
            let leg = crossing.legs.iter_mut().find(|leg| leg.domain == from)?;
            let because: String =
                if scales.is_empty() { String::new() } else { because.chars().take(LONGEST_REASON).collect() };
            if (&leg.scales, &leg.because) == (&scales, &because) {
                return None;
            }
            (leg.scales, leg.because) = (scales, because);
            let kept = crossing.kept;
            // What was heard is on disk, too, so that a broker that starts again does not give it back for a moment.
            self.limit(&key).or_else(|| kept.then(|| self.keep(&key)))
        };
        keys.into_iter().filter_map(take).collect()
    }
}

impl Crossing {
    /// `true` if it has parts of pipes.
    fn lives(&self) -> bool {
        matches!(self.phase, Phase::Holding | Phase::Held | Phase::Starting | Phase::Committed)
    }

    /// These ratios; none, if they are those that were asked for.
    fn unless_asked(&self, scales: Vec<u32>) -> Vec<u32> {
        if self.flows.iter().map(|flow| flow.scale).eq(scales.iter().copied()) { Vec::new() } else { scales }
    }

    /// The ratio of the publisher's samples to those that a flow (index) gets now.
    pub(super) fn scale(&self, flow: usize) -> u32 {
        self.scales.get(flow).or(self.flows.get(flow).map(|flow| &flow.scale)).copied().unwrap_or(1)
    }

    /// The subscribers that get fewer samples than they asked for, and why.
    pub fn thinned_words(&self) -> Option<String> {
        let fewer = self.flows.iter().zip(&self.scales).filter(|(flow, scale)| **scale > flow.scale);
        let each: Vec<String> =
            fewer.map(|(flow, scale)| format!("{} gets one of {scale} samples", flow.subscriber)).collect();
        (!each.is_empty()).then(|| format!("{}: {}", each.join(", "), self.thinned))
    }
}
