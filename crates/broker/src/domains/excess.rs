//! What borders have dropped of sessions that send more than they reserved: told from the domain of the border to those before it, as far as the first
//! one, whose user sees it. Nothing is decided by it, so that it is on no disk. Each message has all of it, so one that is lost is made up for by the
//! next one.

use super::{Domains, Effect, Neighbour, PRESENT_EVERY};
use agent::message::{DomainExcess, Exceeded};
use agent::peer::{Excess, Key, MOST_EXCESS, Message};
use qos::Class;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a neighbour has not told for so long is over: its border has begun anew, or the session has ended there.
const OVER: Duration = Duration::from_secs(3 * PRESENT_EVERY.as_secs() + 5);
/// Between the names of sessions that a border does not tell from each other.
const AND: &str = ", ";

/// The last message of a neighbour, and its time.
pub(super) type Told = (Duration, Vec<Excess>);

impl Domains {
    /// Tells each neighbour what was dropped of the sessions that come from it: here, as agents report it, and behind. To be called every
    /// [`PRESENT_EVERY`].
    pub fn tell_excess(&self, now: Duration, reported: &[Exceeded]) -> Vec<Effect> {
        let all: Vec<Excess> = self.excess_here(reported).chain(self.excess_behind(now).cloned()).collect();
        let of = |neighbour: &Neighbour| {
            let comes_from_it = |one: &&Excess| {
                let mut versions = self.versions(&one.first, &one.session);
                versions.any(|crossing| crossing.passed.last() == Some(&neighbour.domain))
            };
            let its: Vec<Excess> = all.iter().filter(comes_from_it).take(MOST_EXCESS).cloned().collect();
            (!its.is_empty()).then(|| Effect::Send(neighbour.domain.clone(), Message::Exceeded(its)))
        };
        self.neighbours.iter().filter_map(of).collect()
    }

    /// What was dropped of a session at the borders of the domains behind.
    pub fn excess_of(&self, now: Duration, Key { first, session, .. }: &Key) -> Vec<DomainExcess> {
        let its = self.excess_behind(now).filter(|one| (&one.first, &one.session) == (first, session));
        let shown = |Excess { domain, class, packets, bytes, shared, .. }: &Excess| {
            let (domain, class, packets, bytes, shared) = (domain.clone(), *class, *packets, *bytes, *shared);
            DomainExcess { domain, class, packets, bytes, shared }
        };
        its.map(shown).collect()
    }

    /// A neighbour tells what was dropped of sessions that go to it, there and behind. It says nothing of others, nor of the borders here.
    pub(super) fn hear_excess(&mut self, now: Duration, from: &str, told: Vec<Excess>) {
        let goes_to_it = |one: &Excess| {
            let mut versions = self.versions(&one.first, &one.session);
            versions.any(|crossing| crossing.legs.iter().any(|leg| leg.domain == from))
        };
        let is_behind = |one: &Excess| one.domain != self.name && goes_to_it(one);
        let its: Vec<Excess> = told.into_iter().filter(is_behind).collect();
        self.excess.insert(from.to_owned(), (now, its));
    }

    /// By session and class, over all borders here.
    fn excess_here(&self, reported: &[Exceeded]) -> impl Iterator<Item = Excess> {
        let mut all: BTreeMap<(&str, Class), Excess> = BTreeMap::new();
        for Exceeded { session: names, class, packets, bytes, .. } in reported {
            for name in names.split(AND) {
                let Some((first, session)) = name.split_once('/') else { continue };
                let new = || Excess {
                    first: first.to_owned(),
                    session: session.to_owned(),
                    domain: self.name.clone(),
                    class: *class,
                    ..Excess::default()
                };
                let sum = all.entry((name, *class)).or_insert_with(new);
                sum.packets = sum.packets.saturating_add(*packets);
                sum.bytes = sum.bytes.saturating_add(*bytes);
                sum.shared |= names.contains(AND);
            }
        }
        all.into_values()
    }

    fn excess_behind(&self, now: Duration) -> impl Iterator<Item = &Excess> {
        let fresh = self.excess.values().filter(move |(at, _)| now.saturating_sub(*at) < OVER);
        fresh.flat_map(|(_, all)| all)
    }
}
