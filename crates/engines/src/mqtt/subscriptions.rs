//! The subscriptions of a connection: one for each filter, with the targets that want its samples. No I/O.
//!
//! The broker writes the number of the subscription on each sample, so that filters which overlap give each target a sample once.

use super::packet;
use crate::lock;
use rumqttc::v5::mqttbytes::v5::{Packet, Publish, SubscribeReasonCode};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use thalweg::control::matching::topic_matches;

/// Largest number of a subscription (MQTT 5, 3.8.2.1.2).
const LARGEST_NUMBER: u32 = 268_435_455;
/// A broker that answers so many pings and sends nothing retained meanwhile has sent all that it had.
const QUIET: u8 = 2;

/// What is asked of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) path: String,
    pub(crate) reliable: bool,
    /// Retained messages are wanted, too.
    pub(crate) history: bool,
}

/// A subscription asks for what is retained: in each round the broker sends it once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round {
    pub(super) number: u64,
    /// The broker may be at it still. Nothing on a message tells one that is sent once more from one that is published: both are retained.
    pub(super) open: bool,
}

/// Takes what comes, with the round of its subscription.
pub(super) type Take = Box<dyn FnMut(&Publish, Round) + Send>;

/// Somebody who wants the samples of a filter.
pub(super) struct Target {
    pub(super) filter: Filter,
    take: Mutex<Option<Take>>,
}

impl Target {
    pub(super) fn new(filter: Filter, take: Take) -> Arc<Self> {
        Arc::new(Self { filter, take: Mutex::new(Some(take)) })
    }

    pub(super) fn take(&self, sample: &Publish, round: Round) {
        if let Some(take) = lock(&self.take).as_mut() {
            take(sample, round);
        }
    }

    /// No call of `take` begins afterwards.
    pub(super) fn close(&self) {
        *lock(&self.take) = None;
    }
}

/// The broker's answer to a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// To the packet of this id.
    Awaited(u16),
    Granted,
    Refused(String),
}

struct Subscription {
    filter: Filter,
    targets: Vec<Arc<Target>>,
    answer: Answer,
    /// How often retained messages were asked for.
    round: u64,
    /// Pings that were answered since then, and since the last retained message of an open round.
    quiet: u8,
}

impl Subscription {
    /// Asks the broker once more.
    fn ask(&mut self, id: u16, number: u32) -> Packet {
        self.answer = Answer::Awaited(id);
        if self.filter.history {
            (self.round, self.quiet) = (self.round + 1, 0);
        }
        packet::subscribe(id, &self.filter, number)
    }

    fn round(&self) -> Round {
        Round { number: self.round, open: self.quiet < QUIET }
    }
}

/// By number.
#[derive(Default)]
pub(super) struct Subscriptions {
    open: BTreeMap<u32, Subscription>,
    last: u32,
}

impl Subscriptions {
    /// Adds a target. Gives the number of its subscription, and what is to be sent if the broker does not give enough yet.
    pub(super) fn add(&mut self, target: Arc<Target>, mut id: impl FnMut() -> u16) -> (u32, Option<Packet>) {
        let wanted = target.filter.clone();
        let known = self.open.iter_mut().find(|(_, one)| one.filter.path == wanted.path);
        let Some((number, known)) = known else {
            let (number, id) = (self.number(), id());
            let mut one =
                Subscription { filter: wanted, targets: vec![target], answer: Answer::Awaited(id), round: 0, quiet: 0 };
            let packet = one.ask(id, number);
            self.open.insert(number, one);
            return (number, Some(packet));
        };
        known.targets.push(target);
        // A retained message is sent to one who subscribes: for each target that wants it the broker is asked anew.
        if (known.filter.reliable || !wanted.reliable) && !wanted.history && known.answer == Answer::Granted {
            return (*number, None);
        }
        known.filter.reliable |= wanted.reliable;
        known.filter.history |= wanted.history;
        (*number, Some(known.ask(id(), *number)))
    }

    fn number(&mut self) -> u32 {
        loop {
            self.last = self.last % LARGEST_NUMBER + 1;
            if !self.open.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    /// Takes a target away. Gives what is to be sent if it was the last one of its filter.
    pub(super) fn remove(&mut self, target: &Arc<Target>, id: impl FnOnce() -> u16) -> Option<Packet> {
        let (number, one) =
            self.open.iter_mut().find(|(_, one)| one.targets.iter().any(|other| Arc::ptr_eq(other, target)))?;
        one.targets.retain(|other| !Arc::ptr_eq(other, target));
        if !one.targets.is_empty() {
            return None;
        }
        let (number, packet) = (*number, packet::unsubscribe(id(), &one.filter.path));
        self.open.remove(&number);
        Some(packet)
    }

    /// All of them, for a new connection.
    pub(super) fn begin(&mut self, mut id: impl FnMut() -> u16) -> Vec<Packet> {
        self.open.iter_mut().map(|(number, one)| one.ask(id(), *number)).collect()
    }

    /// The broker's answer to the packet of this id. Gives the filter that it refuses.
    pub(super) fn answered(&mut self, id: u16, reasons: &[SubscribeReasonCode]) -> Option<String> {
        let one = self.open.values_mut().find(|one| one.answer == Answer::Awaited(id))?;
        one.answer = match reasons {
            [SubscribeReasonCode::Success(_)] => Answer::Granted,
            other => Answer::Refused(format!("{other:?}")),
        };
        (one.answer != Answer::Granted).then(|| one.filter.path.clone())
    }

    /// The answer to a subscription; `None`: there is no such one.
    pub(super) fn answer(&self, number: u32) -> Option<&Answer> {
        self.open.get(&number).map(|one| &one.answer)
    }

    /// The broker answers a ping. What it sends before has been seen, and acknowledged.
    pub(super) fn ponged(&mut self) {
        let granted = self.open.values_mut().filter(|one| one.answer == Answer::Granted);
        granted.for_each(|one| one.quiet = one.quiet.saturating_add(1));
    }

    /// Those who want a sample, each with the round of its subscription. A broker that writes no numbers on samples is one that sends each once.
    pub(super) fn of(&mut self, sample: &Publish) -> Vec<(Arc<Target>, Round)> {
        let numbers = sample.properties.as_ref().map_or(&[][..], |properties| &properties.subscription_identifiers);
        let topic = String::from_utf8_lossy(&sample.topic);
        let fits = |(number, one): &(&u32, &mut Subscription)| match numbers {
            [] => topic_matches(&one.filter.path.replace('+', "*").replace('#', "**"), &topic),
            numbers => numbers.contains(&(**number as usize)),
        };
        let with_round = |one: &mut Subscription| {
            let round = one.round();
            if sample.retain && round.open {
                one.quiet = 0; // more may follow
            }
            one.targets.iter().map(|target| (target.clone(), round)).collect::<Vec<_>>()
        };
        self.open.iter_mut().filter(fits).flat_map(|(_, one)| with_round(one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::mqttbytes::v5::PublishProperties;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn target(path: &str, reliable: bool, history: bool) -> (Arc<Target>, Arc<AtomicU32>) {
        let count = Arc::new(AtomicU32::new(0));
        let counting = count.clone();
        let take = Box::new(move |_: &Publish, _: Round| {
            counting.fetch_add(1, Ordering::Relaxed);
        });
        (Target::new(Filter { path: path.to_owned(), reliable, history }, take), count)
    }

    fn sample(topic: &str, numbers: &[usize]) -> Publish {
        let properties = PublishProperties { subscription_identifiers: numbers.to_vec(), ..Default::default() };
        Publish::new(topic, QoS::AtMostOnce, Vec::new(), Some(properties))
    }

    fn asks(packet: Option<Packet>) -> Option<(u16, bool, bool)> {
        let Some(Packet::Subscribe(subscribe)) = packet else { return None };
        let filter = &subscribe.filters[0];
        let history = filter.retain_forward_rule == rumqttc::v5::mqttbytes::v5::RetainForwardRule::OnEverySubscribe;
        Some((subscribe.pkid, filter.qos == QoS::AtLeastOnce, history))
    }

    const GRANTED: [SubscribeReasonCode; 1] = [SubscribeReasonCode::Success(QoS::AtLeastOnce)];

    #[test]
    fn targets_of_one_filter_share_a_subscription_that_gives_enough() {
        let mut ids = 0;
        let mut id = || {
            ids += 1;
            ids
        };
        let mut all = Subscriptions::default();
        let (one, _) = target("a", false, false);
        let (number, packet) = all.add(one.clone(), &mut id);
        assert_eq!((number, asks(packet)), (1, Some((1, false, false))));
        assert_eq!(all.answered(1, &GRANTED), None);
        let mut add = |reliable, history| {
            let (number, packet) = all.add(target("a", reliable, history).0, &mut id);
            assert_eq!(number, 1);
            if let Some((id, ..)) = asks(packet.clone()) {
                all.answered(id, &GRANTED);
            }
            asks(packet)
        };
        assert_eq!(add(false, false), None);
        assert_eq!(add(true, false), Some((2, true, false)));
        assert_eq!(add(false, true), Some((3, true, true)));
        assert_eq!(add(false, true), Some((4, true, true)), "it gets what is retained, too");
        assert_eq!(add(true, false), None);
        assert_eq!(all.remove(&one, || 9), None, "others are left");
        assert_eq!(all.begin(&mut id).len(), 1);
        assert_eq!(all.answer(1), Some(&Answer::Awaited(5)));
    }

    #[test]
    fn a_sample_goes_to_the_subscriptions_that_it_names() {
        let mut all = Subscriptions::default();
        let (exact, exacts) = target("a/b", true, false);
        let (wide, wides) = target("a/#", true, false);
        for target in [&exact, &wide] {
            all.add(target.clone(), || 1);
        }
        let send = |all: &mut Subscriptions, numbers: &[usize]| {
            all.of(&sample("a/b", numbers)).iter().for_each(|(target, round)| target.take(&sample("a/b", &[]), *round));
            [&exacts, &wides].map(|count| count.swap(0, Ordering::Relaxed))
        };
        assert_eq!([&[1][..], &[2], &[1, 2]].map(|numbers| send(&mut all, numbers)), [[1, 0], [0, 1], [1, 1]]);
        assert_eq!([&[7][..], &[]].map(|numbers| send(&mut all, numbers)), [[0, 0], [1, 1]]);
        exact.close();
        assert_eq!(send(&mut all, &[1, 2]), [0, 1]);
        assert!(matches!(all.remove(&exact, || 9), Some(Packet::Unsubscribe(one)) if one.filters == ["a/b"]));
        assert_eq!(send(&mut all, &[1]), [0, 0]);
    }

    /// Only what asks for retained messages makes the broker send them once more.
    #[test]
    fn each_subscriber_with_history_begins_a_round() {
        let mut all = Subscriptions::default();
        let round = |all: &mut Subscriptions| all.of(&sample("a", &[1])).iter().map(|(_, round)| round.number).max();
        for (reliable, history, after) in [(false, false, 0), (true, false, 0), (false, true, 1), (false, true, 2)] {
            all.add(target("a", reliable, history).0, || 1);
            assert_eq!(round(&mut all), Some(after));
        }
        all.begin(|| 2);
        assert_eq!(round(&mut all), Some(3), "on a new connection, too");
    }

    #[test]
    fn a_round_ends_when_pings_are_answered_and_nothing_retained_comes() {
        let mut all = Subscriptions::default();
        all.add(target("a", true, true).0, || 1);
        let open = |all: &mut Subscriptions, retain| {
            all.of(&Publish { retain, ..sample("a", &[1]) }).iter().any(|(_, round)| round.open)
        };
        (0..9).for_each(|_| all.ponged());
        assert!(open(&mut all, false), "the broker has not answered the subscription yet");
        all.answered(1, &GRANTED);
        for _ in 0..9 {
            all.ponged();
            assert!(open(&mut all, true), "it sends what is retained");
        }
        all.ponged();
        assert!(open(&mut all, false), "what was asked before that may be answered late");
        all.ponged();
        assert!(!open(&mut all, true));
        (0..300).for_each(|_| all.ponged());
        assert!(!open(&mut all, true), "it stays over");
        all.add(target("a", true, false).0, || 2);
        assert!(!open(&mut all, true), "nobody asked for what is retained");
        all.add(target("a", true, true).0, || 3);
        assert!(open(&mut all, false), "a new one");
    }

    #[test]
    fn a_refusal_is_named() {
        let mut all = Subscriptions::default();
        let (number, _) = all.add(target("secret", true, false).0, || 4);
        assert_eq!(all.answered(4, &[SubscribeReasonCode::NotAuthorized]), Some("secret".to_owned()));
        assert!(matches!(all.answer(number), Some(Answer::Refused(why)) if why.contains("NotAuthorized")));
        assert_eq!(all.answered(5, &GRANTED), None, "nobody asked");
    }
}
