//! What happened to sessions, for the accounts: derived from what is kept before and after a change, and from what agents count. Pure;
//! [`agent::accounts`] has the lines.

use crate::domains::{Crossing, Leg, Phase};
use crate::hosts::Kept;
use crate::planning::Admitted;
use crate::rules::rate_of;
use agent::accounts::{Charge, Entry, Event, Traffic};
use agent::message::{Counts, End, Side};
use agent::peer::Flow;
use std::collections::{BTreeMap, BTreeSet};

/// Most ends of one host that are remembered.
const MOST_ENDS: usize = 5_000;
/// Most channels whose traffic is remembered.
const MOST_CHANNELS: usize = 100_000;

/// A channel, as the plan names it: subscriber's port, topic, publisher's node.
type Channel = (String, String, String);

/// What went through the ends of channels since the broker started, by their agents' reports.
#[derive(Debug, Default)]
pub struct Meter {
    /// What each end on a host counted last.
    hosts: BTreeMap<String, BTreeMap<(Channel, Side), Counts>>,
    /// What went through each channel.
    channels: BTreeMap<Channel, Traffic>,
    /// What is in the accounts already, by session.
    billed: BTreeMap<String, Billed>,
}

/// What a session's entries have so far.
#[derive(Debug, Default)]
struct Billed {
    ports: BTreeSet<String>,
    all: BTreeMap<Channel, Traffic>,
}

/// An entry that is to be written, with all that went through its session's channels by then.
#[derive(Debug)]
pub struct Pending {
    /// The entry.
    pub entry: Entry,
    billed: Billed,
}

impl Pending {
    /// A signature of lines that are there.
    pub fn signature(entry: Entry) -> Self {
        Self { entry, billed: Billed::default() }
    }
}

impl Meter {
    /// A host's agent reported. The first report of an end is where its count begins: its program may have run before there was a session, and before
    /// the broker was. An end that counts less than before was opened anew.
    pub fn reported(&mut self, host: &str, ends: &[End]) {
        let known = self.hosts.entry(host.to_owned()).or_default();
        for End { topic, publisher, subscriber, end, counts, .. } in ends {
            let Some(now) = *counts else { continue };
            let channel = (subscriber.clone(), topic.clone(), publisher.clone());
            let more = match known.insert((channel.clone(), *end), now) {
                Some(last) if last.samples <= now.samples => now.since(last),
                Some(_) => now,
                None => Counts::default(),
            };
            if self.channels.len() >= MOST_CHANNELS && !self.channels.contains_key(&channel) {
                continue;
            }
            let all = self.channels.entry(channel).or_default();
            match end {
                Side::Publisher => all.sent = all.sent.plus(more),
                Side::Subscriber => all.received = all.received.plus(more),
            }
        }
        if known.len() > MOST_ENDS {
            let is_there = |(channel, side): &(Channel, Side)| {
                ends.iter().any(|one| {
                    one.end == *side
                        && (&one.subscriber, &one.topic, &one.publisher) == (&channel.0, &channel.1, &channel.2)
                })
            };
            known.retain(|name, _| is_there(name));
        }
    }

    /// An entry, with what went through since the one before it.
    fn entry(&self, event: Event, of: &Account) -> Pending {
        let with_port = |port: &String| {
            let from = (port.clone(), String::new(), String::new());
            let port = port.clone();
            self.channels.range(from..).take_while(move |((subscriber, ..), _)| *subscriber == port)
        };
        let all = of.ports.keys().flat_map(with_port).filter(|(channel, _)| of.has(channel));
        let all: BTreeMap<Channel, Traffic> = all.map(|(channel, all)| (channel.clone(), *all)).collect();
        let billed = self.billed.get(&of.session);
        let begins = event == Event::Start;
        let news = |(channel, all): (&Channel, &Traffic)| match billed {
            _ if begins => Traffic::default(),
            // Of a session from before the broker started all that was counted since is news.
            None => *all,
            Some(Billed { all: before, ports }) => match before.get(channel) {
                Some(before) => all.since(*before),
                None if ports.contains(&channel.0) => *all, // it was opened since
                None => Traffic::default(), // what it had before it was this session's is not this session's
            },
        };
        let traffic = all.iter().map(news).fold(Traffic::default(), Traffic::plus);
        let rate_bits_per_s = if of.suspended || event == Event::Stop { 0 } else { of.rate };
        let (session, owner, behind) = (of.session.clone(), of.owner.clone(), of.behind.clone());
        let billed = Billed { ports: of.ports.keys().cloned().collect(), all };
        let price = of.price;
        let because = of.because.clone();
        let entry = Entry { event, session, owner, rate_bits_per_s, price, traffic, behind, because, signed: None };
        Pending { entry, billed }
    }

    /// These entries are in the accounts.
    pub fn wrote(&mut self, entries: Vec<Pending>) {
        for Pending { entry, billed } in entries {
            match entry.event {
                Event::Sign | Event::Countersign => {}
                Event::Stop => drop(self.billed.remove(&entry.session)),
                _ => drop(self.billed.insert(entry.session, billed)),
            }
        }
        if self.channels.len() >= MOST_CHANNELS {
            let used: BTreeSet<&Channel> = self.billed.values().flat_map(|one| one.all.keys()).collect();
            self.channels.retain(|channel, _| used.contains(channel));
        }
    }

    /// What a change of this domain's own sessions means for the accounts.
    pub fn of_change(&self, before: &Kept, after: &Kept) -> Vec<Pending> {
        let [was, is] = [before, after]
            .map(|kept| kept.sessions.iter().map(|one| ((&*one.name, &*one.owner), one)).collect::<BTreeMap<_, _>>());
        let gone = before.sessions.iter().filter(|one| !is.contains_key(&(&*one.name, &*one.owner)));
        let mut entries: Vec<Pending> = gone.map(|one| self.entry(Event::Stop, &Account::of(one, before))).collect();
        for one in &after.sessions {
            let [suspended, was_suspended] =
                [after, before].map(|kept| kept.reduction.suspended.contains_key(&one.name));
            let thinned = thinned(one, before, after);
            let (event, because) = match was.get(&(&*one.name, &*one.owner)) {
                None => (Event::Start, None),
                Some(_) if suspended && !was_suspended => {
                    (Event::Suspend, after.reduction.suspended.get(&one.name).cloned())
                }
                Some(_) if was_suspended && !suspended => (Event::Resume, thinned),
                Some(other) if other.text != one.text || other.rate != one.rate => (Event::Change, thinned),
                Some(_) if thinned.is_some() && !suspended => (Event::Thin, thinned),
                Some(_) => continue,
            };
            let because = because.unwrap_or_default();
            entries.push(self.entry(event, &Account { because, ..Account::of(one, after) }));
        }
        entries
    }

    /// What a change of a session over several domains means for the accounts: what is on disk, and what comes there.
    pub fn of_crossing(&self, before: Option<&Crossing>, after: Option<&Crossing>) -> Option<Pending> {
        let has = |one: &&Crossing| one.phase == Phase::Committed;
        let because = after.and_then(|one| one.because.clone()).unwrap_or_default();
        match (before.filter(has), after.filter(has)) {
            (None, Some(one)) => Some(self.entry(Event::Start, &Account::of_crossing(one))),
            (Some(one), None) => Some(self.entry(Event::Stop, &Account { because, ..Account::of_crossing(one) })),
            // Its owner is told; for the others its part is what it was.
            (Some(was), Some(one)) if one.asker.is_some() && was.scales != one.scales => {
                let because =
                    one.thinned_words().unwrap_or_else(|| "all subscribers get what they asked for".to_owned());
                Some(self.entry(Event::Thin, &Account { because, ..Account::of_crossing(one) }))
            }
            _ => None,
        }
    }

    /// What went through the sessions that go on.
    pub fn interim<'a>(&self, kept: &Kept, crossings: impl Iterator<Item = &'a Crossing>) -> Vec<Pending> {
        let own = kept.sessions.iter().map(|one| Account::of(one, kept));
        let others = crossings.filter(|one| one.is_active()).map(Account::of_crossing);
        own.chain(others).map(|account| self.entry(Event::Interim, &account)).collect()
    }
}

/// The subscribers of a session that get another part of their samples than before, with the reason.
fn thinned(one: &Admitted, before: &Kept, after: &Kept) -> Option<String> {
    let scale = |kept: &Kept, port: &String| kept.reduction.scaled.get(port).copied();
    let words = |port: &String| {
        let now = scale(after, port);
        let words = match now {
            Some(scale) => format!("{port} gets one of {scale} samples"),
            None => format!("{port} gets what it asked for"),
        };
        (now != scale(before, port)).then_some(words)
    };
    let all: Vec<String> = one.ports.iter().filter_map(words).collect();
    let because = &after.reduction.because;
    let because = if because.is_empty() { String::new() } else { format!(": {because}") };
    (!all.is_empty()).then(|| format!("{}{because}", all.join(", ")))
}

/// A session, as its entries have it.
struct Account {
    session: String,
    owner: String,
    rate: u64,
    price: u64,
    suspended: bool,
    /// The reason of what happens to it.
    because: String,
    behind: Vec<Charge>,
    /// Its subscribers' ports, each with the publisher's node where that is known: as the first domain calls it, and as others do.
    ports: BTreeMap<String, Option<[String; 2]>>,
}

impl Account {
    fn of(one: &Admitted, kept: &Kept) -> Self {
        Self {
            session: one.name.clone(),
            owner: one.owner.clone(),
            rate: one.rate,
            price: 0,
            suspended: kept.reduction.suspended.contains_key(&one.name),
            because: String::new(),
            behind: Vec::new(),
            ports: one.ports.iter().map(|port| (port.clone(), None)).collect(),
        }
    }

    fn of_crossing(one: &Crossing) -> Self {
        let before = || one.passed.last().cloned().unwrap_or_default();
        // The own part stands first in each menu, then that of the domain behind, in the first domain; one class is left of each.
        let part = |menu: &agent::peer::Menu, at: usize| {
            menu.values().next().and_then(|parts| parts.get(at)).map(|part| part.price)
        };
        let behind = |leg: &Leg| {
            let flows = || leg.flows.iter().copied();
            let its: Vec<Flow> = flows().filter_map(|flow| one.flows.get(flow).cloned()).collect();
            let prices = flows().map(|flow| one.menus.get(flow).and_then(|menu| part(menu, 1)));
            let price = prices.sum::<Option<u64>>();
            Charge { domain: leg.domain.clone(), rate_bits_per_s: rate_of(&its), price }
        };
        let port = |flow: &Flow| {
            let abroad = format!("{}/{}", one.key.first, flow.publisher);
            (flow.subscriber.clone(), Some([flow.publisher.clone(), abroad]))
        };
        Self {
            session: format!("{}/{}/{}", one.key.first, one.key.session, one.key.version),
            owner: one.asker.as_ref().map_or_else(before, |by| by.owner.clone()),
            rate: rate_of(&one.flows),
            price: one.menus.iter().map(|menu| part(menu, 0).unwrap_or(0)).fold(0, u64::saturating_add),
            suspended: false,
            because: String::new(),
            behind: one.legs.iter().map(behind).collect(),
            ports: one.flows.iter().map(port).collect(),
        }
    }

    fn has(&self, (subscriber, _, publisher): &Channel) -> bool {
        let publishers = self.ports.get(subscriber);
        publishers.is_some_and(|known| known.as_ref().is_none_or(|known| known.contains(publisher)))
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
        let (ports, text) = (vec![format!("/{name}@b")], format!("{name} {rate}"));
        Admitted { name: name.into(), owner: "ann".into(), rate, ports, text, ..Admitted::default() }
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
        assert_eq!(interim(&mut meter, &one), [camera(Event::Interim, 100, 0, 0)], "a first report is where it begins");
        meter.reported("a", &[end("/camera@b", Side::Publisher, 60)]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 48), end("/other", Side::Subscriber, 99)]);
        assert_eq!(meter.interim(&one, std::iter::empty()).len(), 1, "what the disk does not take is in the next one");
        assert_eq!(interim(&mut meter, &one), [camera(Event::Interim, 100, 10, 8)]);
        assert_eq!(change(&mut meter, &one, &one), []);
        let faster = kept(&[Admitted { rate: 200, ..first.clone() }], &[]);
        assert_eq!(
            change(&mut meter, &one, &faster),
            [camera(Event::Change, 200, 0, 0)],
            "a topic of others has changed"
        );
        let changed = kept(&[session("camera", 70)], &[]);
        meter.reported("b", &[end("/camera@b", Side::Subscriber, 3)]); // its program started again
        assert_eq!(change(&mut meter, &faster, &changed), [camera(Event::Change, 70, 0, 3)]);
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
    fn who_is_suspended_or_thinned_finds_the_reason_later() {
        let meter = Meter::default();
        let sessions = [session("camera", 100), session("map", 10)];
        let with = |suspended: &[(&str, &str)], scaled: &[(&str, u32)], because: &str| {
            let own = |(name, why): &(&str, &str)| ((*name).to_owned(), (*why).to_owned());
            let reduction = Reduction {
                suspended: suspended.iter().map(own).collect(),
                scaled: scaled.iter().map(|(port, scale)| ((*port).to_owned(), *scale)).collect(),
                because: because.to_owned(),
                ..Reduction::default()
            };
            Kept { reduction, ..kept(&sessions, &[]) }
        };
        let (all, slow) = (with(&[], &[], ""), with(&[], &[("/camera@b", 4)], "link wire carries less"));
        let slower = with(&[("camera", "what is more important takes it")], &[], "link wire carries less");
        let events = |before: &Kept, after: &Kept| {
            let one = |Pending { entry, .. }: Pending| (entry.session, entry.event, entry.because);
            meter.of_change(before, after).into_iter().map(one).collect::<Vec<_>>()
        };
        let camera = |event, because: &str| vec![("camera".to_owned(), event, because.to_owned())];
        let thin = "/camera@b gets one of 4 samples: link wire carries less";
        assert_eq!(events(&all, &slow), camera(Event::Thin, thin));
        assert_eq!(events(&slow, &slower), camera(Event::Suspend, "what is more important takes it"));
        assert_eq!(events(&slower, &slow), camera(Event::Resume, thin));
        assert_eq!(events(&slow, &all), camera(Event::Thin, "/camera@b gets what it asked for"));
        assert_eq!(events(&slow, &slow), []);
    }

    /// A channel that becomes a session's brings nothing from before, and one that goes takes nothing back.
    #[test]
    fn a_session_has_the_traffic_of_its_channels_as_long_as_they_are_its_own() {
        let mut meter = Meter::default();
        let with = |ports: &[&str]| {
            let ports: Vec<String> = ports.iter().map(|port| (*port).to_owned()).collect();
            kept(&[Admitted { text: ports.concat(), ports, ..session("camera", 100) }], &[])
        };
        let [one, both, other] = [&["/x"][..], &["/x", "/y"], &["/y"]].map(with);
        let report = |meter: &mut Meter, x, y| {
            meter.reported("b", &[end("/x", Side::Subscriber, x), end("/y", Side::Subscriber, y)]);
        };
        report(&mut meter, 0, 0);
        change(&mut meter, &kept(&[], &[]), &one);
        report(&mut meter, 10, 50);
        assert_eq!(change(&mut meter, &one, &both), [camera(Event::Change, 100, 0, 10)]);
        report(&mut meter, 11, 52);
        assert_eq!(change(&mut meter, &both, &other), [camera(Event::Change, 100, 0, 2)], "/x is not its own any more");
        report(&mut meter, 99, 55);
        assert_eq!(change(&mut meter, &other, &kept(&[], &[])), [camera(Event::Stop, 0, 0, 3)]);
    }

    #[test]
    fn a_channel_from_abroad_is_told_by_its_publisher() {
        let mut meter = Meter::default();
        let from = |publisher: &str, samples| End {
            publisher: publisher.into(),
            ..end("/video@desk", Side::Subscriber, samples)
        };
        let flow = |first: &str| {
            let key = agent::peer::Key { first: first.into(), session: "tele".into(), version: 1 };
            let flow =
                agent::peer::Flow { publisher: "cam".into(), subscriber: "/video@desk".into(), ..Default::default() };
            let mut crossing = Crossing::new(key, vec![first.into()], vec![flow], Default::default());
            crossing.phase = Phase::Committed;
            crossing
        };
        meter.reported("desk", &[from("north/cam", 0), from("south/cam", 0)]);
        let started = ["north", "south"].map(|first| meter.of_crossing(None, Some(&flow(first))).unwrap());
        meter.wrote(started.into());
        meter.reported("desk", &[from("north/cam", 7), from("south/cam", 70)]);
        let stopped = ["north", "south"].map(|first| meter.of_crossing(Some(&flow(first)), None).unwrap().entry);
        assert_eq!(stopped.map(|entry| entry.traffic.received.samples), [7, 70]);
    }

    #[test]
    fn reports_of_many_ends_do_not_fill_the_memory() {
        let mut meter = Meter::default();
        for n in 0..MOST_CHANNELS + 10 {
            meter.reported("a", &[end(&format!("/{n}"), Side::Subscriber, 1)]);
        }
        assert!(meter.channels.len() == MOST_CHANNELS && meter.hosts["a"].len() <= MOST_ENDS);
        meter.wrote(Vec::new());
        assert!(meter.channels.is_empty(), "no session has them");
        meter.reported("a", &[end("/x", Side::Subscriber, 1)]);
        assert_eq!(meter.channels.len(), 1);
    }
}
