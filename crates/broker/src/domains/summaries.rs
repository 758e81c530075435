//! Summaries: which sessions go through a neighbour. Whoever has lost one is found out by them, and whoever is silent for too long.

use super::{Crossing, Domains, Effect, GRACE, Leg, Neighbour, Phase};
use agent::peer::{Key, MOST_SESSIONS, Message, Refused};
use std::collections::BTreeSet;
use std::time::Duration;

/// A session that was committed later than this before a summary may not be in it yet.
const SETTLED: Duration = Duration::from_secs(30);

impl Domains {
    /// Which sessions go through each neighbour.
    pub(super) fn summaries(&self) -> Vec<Effect> {
        let lives = |one: &&Crossing| matches!(one.phase, Phase::Starting | Phase::Committed);
        let of = |neighbour: &Neighbour| {
            let through = |one: &&Crossing| one.legs.iter().any(|leg| leg.domain == neighbour.domain);
            let all = self.crossings.values().filter(lives).filter(through).map(|one| one.key.clone());
            Effect::Send(neighbour.domain.clone(), Message::Present(all.collect()))
        };
        self.neighbours.iter().map(of).collect()
    }

    /// A neighbour's summary: what it does not have any more ends here; what is unknown here, it is told.
    pub(super) fn present(&mut self, now: Duration, from: &str, keys: &[Key]) -> Vec<Effect> {
        self.heard.insert(from.to_owned(), now);
        let known: BTreeSet<&Key> = keys.iter().collect();
        let gone = |one: &&Crossing| {
            let settled = one.phase == Phase::Committed && now.saturating_sub(one.since) >= SETTLED;
            one.passed.last().map(String::as_str) == Some(from) && settled && !known.contains(&one.key)
        };
        let gone: Vec<Key> = self.crossings.values().filter(gone).map(|one| one.key.clone()).collect();
        let mut effects: Vec<Effect> = gone.iter().flat_map(|key| self.end(now, key)).collect();
        effects.extend(self.hear_nothing(from));
        let unknown: Vec<Key> = keys.iter().filter(|key| !self.crossings.contains_key(key)).cloned().collect();
        if !unknown.is_empty() {
            effects.push(Effect::Send(from.to_owned(), Message::Unknown(unknown)));
        }
        effects
    }

    /// A neighbour behind tells that a session goes on no more there.
    pub(super) fn lost(&mut self, now: Duration, from: &str, key: &Key, because: &str) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let lives = matches!(crossing.phase, Phase::Starting | Phase::Committed);
        if !lives || !crossing.legs.iter().any(|leg| leg.domain == from) {
            return Vec::new();
        }
        crossing.legs.retain(|leg| leg.domain != from);
        self.end_for(now, key, because)
    }

    /// A session cannot go on here or behind: its user, or the domain before, is told; other domains behind stop it.
    pub(super) fn end_for(&mut self, now: Duration, key: &Key, because: &str) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let undecided = matches!(crossing.phase, Phase::Holding | Phase::Starting) && crossing.asker.is_some();
        let before = crossing.passed.last().cloned();
        // Nobody was told that it is active: it is refused.
        crossing.because = (crossing.asker.is_some() && !undecided).then(|| because.to_owned());
        let mut effects = self.end(now, key);
        effects.extend(before.map(|before| Effect::Send(before, Message::Lost(key.clone(), because.to_owned()))));
        if undecided {
            let why = self.refusal(format!("session {key}"), because.to_owned());
            effects.push(Effect::Told(key.clone(), Err(why)));
        }
        effects
    }

    /// Checks that a summary can name one more session through each of these.
    pub(super) fn room(&self, legs: &[Leg]) -> Result<(), Refused> {
        let count = |domain: &str| {
            self.crossings.values().filter(|one| one.legs.iter().any(|leg| leg.domain == domain)).count()
        };
        match legs.iter().find(|leg| count(&leg.domain) >= MOST_SESSIONS) {
            Some(leg) => {
                let what = format!("sessions from {} to {}", self.name, leg.domain);
                let because = "a summary names no more".to_owned();
                let (needs, has) = ((MOST_SESSIONS + 1).to_string(), MOST_SESSIONS.to_string());
                Err(Refused { domain: self.name.clone(), what, needs, has, because, ..Refused::default() })
            }
            None => Ok(()),
        }
    }

    /// Ends sessions of which a domain beside was not heard for too long.
    pub(super) fn abandoned(&mut self, now: Duration) -> Vec<Effect> {
        // A domain that the contract does not name any more is not heard.
        let is_silent = |one: &Crossing, domain: &String| {
            let heard = self.heard.get(domain).copied().unwrap_or_default();
            now.saturating_sub(heard.max(one.since)) >= GRACE
        };
        let lives = self.crossings.values().filter(|one| one.phase == Phase::Committed);
        let silent = |one: &Crossing| {
            let beside = one.passed.last().into_iter().chain(one.legs.iter().map(|leg| &leg.domain));
            beside.into_iter().find(|domain| is_silent(one, domain)).cloned()
        };
        let all: Vec<(Key, String)> = lives.filter_map(|one| Some((one.key.clone(), silent(one)?))).collect();
        let end = |(key, domain): (Key, String)| {
            if let Some(crossing) = self.crossings.get_mut(&key).filter(|one| one.asker.is_some()) {
                crossing.because = Some(format!("domain {domain} was not heard for {GRACE:?}: ask for it again"));
            }
            self.end(now, &key)
        };
        all.into_iter().flat_map(end).collect()
    }
}
