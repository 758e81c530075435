//! What happened to sessions, for the accounts: derived from what is kept before and after a change, and from what agents count. Pure;
//! [`agent::accounts`] has the lines.

use crate::domains::{Crossing, Phase};
use crate::hosts::Kept;
use crate::planning::Admitted;
use crate::rules::Ask;
use agent::accounts::{Entry, Event, Traffic};
use agent::message::{Counts, End, Side};
use std::collections::BTreeMap;

/// Most ends of channels that are counted.
const MOST_ENDS: usize = 100_000;

/// An end: host, topic, publisher's node, subscriber's port.
type EndName = (String, String, String, String, Side);

/// What went through the ends of channels since the broker started, by their agents' reports.
#[derive(Debug, Default)]
pub struct Meter {
    ends: BTreeMap<EndName, Counts>,
    /// The same by subscriber's port.
    ports: BTreeMap<String, Traffic>,
    /// What is in the accounts already, by session.
    billed: BTreeMap<String, Traffic>,
}

/// An entry that is to be written, with all that went through its session by then.
#[derive(Debug)]
pub struct Pending {
    /// The entry.
    pub entry: Entry,
    all: Traffic,
}

impl Meter {
    /// A host's agent reported. The first report of an end is where its count begins: what came before is in the accounts of an earlier start, or was
    /// before the session. An end that counts less than before was opened anew.
    pub fn reported(&mut self, host: &str, ends: &[End]) {
        for End { topic, publisher, subscriber, end, counts, .. } in ends {
            let Some(now) = *counts else { continue };
            let name = (host.to_owned(), topic.clone(), publisher.clone(), subscriber.clone(), *end);
            let is_full = self.ends.len() >= MOST_ENDS;
            let more = match self.ends.get_mut(&name) {
                Some(last) if now.samples < last.samples => {
                    *last = now;
                    now
                }
                Some(last) => now.since(std::mem::replace(last, now)),
                None if is_full => continue,
                None => {
                    self.ends.insert(name, now);
                    continue;
                }
            };
            let port = self.ports.entry(subscriber.clone()).or_default();
            match end {
                Side::Publisher => port.sent = port.sent.plus(more),
                Side::Subscriber => port.received = port.received.plus(more),
            }
        }
    }

    /// An entry, with what went through since the one before it. `None`: an interim of a session through which nothing went.
    fn entry(&self, event: Event, of: &Account) -> Option<Pending> {
        let each = of.ports.iter().filter_map(|port| self.ports.get(port));
        let all = each.fold(Traffic::default(), |sum, one| sum.plus(*one));
        // A session from before the broker started: all that was counted since is news.
        let before = || self.billed.get(&of.session).copied().unwrap_or_default();
        let traffic = if event == Event::Start { Traffic::default() } else { all.since(before()) };
        let rate_bits_per_s = if of.suspended || event == Event::Stop { 0 } else { of.rate };
        let (session, owner) = (of.session.clone(), of.owner.clone());
        let entry = Entry { event, session, owner, rate_bits_per_s, price: of.price, traffic };
        let is_news = event != Event::Interim || traffic != Traffic::default();
        is_news.then_some(Pending { entry, all })
    }

    /// These entries are in the accounts.
    pub fn wrote(&mut self, entries: Vec<Pending>) {
        for Pending { entry, all } in entries {
            match entry.event {
                Event::Stop => drop(self.billed.remove(&entry.session)),
                _ => drop(self.billed.insert(entry.session, all)),
            }
        }
    }

    /// What a change of this domain's own sessions means for the accounts.
    pub fn of_change(&self, before: &Kept, after: &Kept) -> Vec<Pending> {
        let [was, is] = [before, after]
            .map(|kept| kept.sessions.iter().map(|one| ((&*one.name, &*one.owner), one)).collect::<BTreeMap<_, _>>());
        let gone = before.sessions.iter().filter(|one| !is.contains_key(&(&*one.name, &*one.owner)));
        let mut entries: Vec<Pending> =
            gone.filter_map(|one| self.entry(Event::Stop, &Account::of(one, before))).collect();
        for one in &after.sessions {
            let [suspended, was_suspended] =
                [after, before].map(|kept| kept.reduction.suspended.contains_key(&one.name));
            let event = match was.get(&(&*one.name, &*one.owner)) {
                None => Event::Start,
                Some(_) if suspended && !was_suspended => Event::Suspend,
                Some(_) if was_suspended && !suspended => Event::Resume,
                Some(other) if other.text != one.text => Event::Change,
                Some(_) => continue,
            };
            entries.extend(self.entry(event, &Account::of(one, after)));
        }
        entries
    }

    /// What a change of a session over several domains means for the accounts: what is on disk, and what comes there.
    pub fn of_crossing(&self, before: Option<&Crossing>, after: Option<&Crossing>) -> Option<Pending> {
        let has = |one: &&Crossing| one.phase == Phase::Committed;
        match (before.filter(has), after.filter(has)) {
            (None, Some(one)) => self.entry(Event::Start, &Account::of_crossing(one)),
            (Some(one), None) => self.entry(Event::Stop, &Account::of_crossing(one)),
            _ => None,
        }
    }

    /// What went through the sessions that go on.
    pub fn interim<'a>(&self, kept: &Kept, crossings: impl Iterator<Item = &'a Crossing>) -> Vec<Pending> {
        let own = kept.sessions.iter().map(|one| Account::of(one, kept));
        let others = crossings.filter(|one| one.phase == Phase::Committed).map(Account::of_crossing);
        own.chain(others).filter_map(|account| self.entry(Event::Interim, &account)).collect()
    }
}

/// A session, as its entries have it.
struct Account {
    session: String,
    owner: String,
    rate: u64,
    price: u64,
    ports: Vec<String>,
    suspended: bool,
}

impl Account {
    fn of(one: &Admitted, kept: &Kept) -> Self {
        Self {
            session: one.name.clone(),
            owner: one.owner.clone(),
            rate: one.rate,
            price: 0,
            ports: one.subscribers.clone(),
            suspended: kept.reduction.suspended.contains_key(&one.name),
        }
    }

    fn of_crossing(one: &Crossing) -> Self {
        let owner =
            one.asker.as_ref().map_or_else(|| one.passed.last().cloned().unwrap_or_default(), |by| by.owner.clone());
        // The own part stands first in each menu; one class is left of each.
        let price = |menu: &agent::peer::Menu| {
            menu.values().next().and_then(|parts| parts.first()).map_or(0, |part| part.price)
        };
        Self {
            session: format!("{}/{}/{}", one.key.first, one.key.session, one.key.version),
            owner,
            rate: Ask::of_flows(&one.flows).rate,
            price: one.menus.iter().map(price).fold(0, u64::saturating_add),
            ports: one.flows.iter().map(|flow| flow.subscriber.clone()).collect(),
            suspended: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::Reduction;

    fn end(subscriber: &str, end: Side, samples: u64) -> End {
        let counts = Some(Counts { samples, bytes: samples * 10 });
        End { topic: "t".into(), publisher: "n".into(), subscriber: subscriber.into(), end, because: None, counts }
    }

    fn session(name: &str, rate: u64) -> Admitted {
        let (subscribers, text) = (vec![format!("/{name}@b")], format!("{name} {rate}"));
        Admitted { name: name.into(), owner: "ann".into(), rate, subscribers, text, ..Admitted::default() }
    }

    fn kept(sessions: &[Admitted], suspended: &[&str]) -> Kept {
        let suspended = suspended.iter().map(|name| ((*name).to_owned(), String::new())).collect();
        Kept {
            sessions: sessions.to_vec(),
            reduction: Reduction { suspended, ..Reduction::default() },
            ..Kept::default()
        }
    }

    type Shown = (Event, String, u64, u64, u64);

    /// Entries that are written.
    fn written(meter: &mut Meter, entries: Vec<Pending>) -> Vec<Shown> {
        let one = |Pending { entry, .. }: &Pending| {
            let Traffic { sent, received } = entry.traffic;
            (entry.event, entry.session.clone(), entry.rate_bits_per_s, sent.samples, received.samples)
        };
        let shown = entries.iter().map(one).collect();
        meter.wrote(entries);
        shown
    }

    fn change(meter: &mut Meter, before: &Kept, after: &Kept) -> Vec<Shown> {
        let entries = meter.of_change(before, after);
        written(meter, entries)
    }

    fn interim(meter: &mut Meter, kept: &Kept) -> Vec<Shown> {
        let entries = meter.interim(kept, std::iter::empty());
        written(meter, entries)
    }

    fn camera(event: Event, rate: u64, sent: u64, received: u64) -> Shown {
        (event, "camera".to_owned(), rate, sent, received)
    }

    #[test]
    fn each_change_of_a_session_is_an_entry_with_what_went_through() {
        let mut meter = Meter::default();
        let first = session("camera", 100);
        let (none, one) = (kept(&[], &[]), kept(std::slice::from_ref(&first), &[]));
        assert_eq!(change(&mut meter, &none, &one), [camera(Event::Start, 100, 0, 0)]);
        meter.reported("a", &[end("/camera@b", Side::Publisher, 50)]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 40), end("/other", Side::Subscriber, 9)]);
        assert_eq!(interim(&mut meter, &one), [], "a first report is where it begins");
        meter.reported("a", &[end("/camera@b", Side::Publisher, 60)]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 48), end("/other", Side::Subscriber, 99)]);
        assert_eq!(meter.interim(&one, std::iter::empty()).len(), 1, "what the disk does not take is in the next one");
        assert_eq!(interim(&mut meter, &one), [camera(Event::Interim, 100, 10, 8)]);
        assert_eq!(change(&mut meter, &one, &one), []);
        let changed = kept(&[session("camera", 70)], &[]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 3)]); // its program started again
        assert_eq!(change(&mut meter, &one, &changed), [camera(Event::Change, 70, 0, 3)]);
        let suspended = kept(&[session("camera", 70)], &["camera"]);
        assert_eq!(change(&mut meter, &changed, &suspended), [camera(Event::Suspend, 0, 0, 0)]);
        meter.reported("a", &[end("/camera@b", Side::Publisher, 61)]);
        assert_eq!(interim(&mut meter, &suspended), [camera(Event::Interim, 0, 1, 0)]);
        assert_eq!(change(&mut meter, &suspended, &changed), [camera(Event::Resume, 70, 0, 0)]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 5)]);
        let other = kept(&[Admitted { owner: "bob".into(), ..first }], &[]);
        let both = [camera(Event::Stop, 0, 0, 2), camera(Event::Start, 100, 0, 0)];
        assert_eq!(change(&mut meter, &changed, &other), both);
        assert_eq!(change(&mut meter, &other, &none), [camera(Event::Stop, 0, 0, 0)]);
        assert!(meter.billed.is_empty());
    }

    #[test]
    fn reports_of_many_ends_do_not_fill_the_memory() {
        let mut meter = Meter::default();
        for n in 0..MOST_ENDS + 10 {
            meter.reported("a", &[end(&format!("/{n}"), Side::Subscriber, 1)]);
        }
        assert_eq!(meter.ends.len(), MOST_ENDS);
    }
}
