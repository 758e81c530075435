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

/// What is asked of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) path: String,
    pub(crate) reliable: bool,
    /// Retained messages are wanted, too.
    pub(crate) history: bool,
}

/// Takes what comes, with the round of its subscription: in each of them the broker sends once more what is retained.
pub(super) type Take = Box<dyn FnMut(&Publish, u64) + Send>;

/// Somebody who wants the samples of a filter.
pub(super) struct Target {
    pub(super) filter: Filter,
    take: Mutex<Option<Take>>,
}

impl Target {
    pub(super) fn new(filter: Filter, take: Take) -> Arc<Self> {
        Arc::new(Self { filter, take: Mutex::new(Some(take)) })
    }

    pub(super) fn take(&self, sample: &Publish, round: u64) {
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
}

impl Subscription {
    /// Asks the broker once more.
    fn ask(&mut self, id: u16, number: u32) -> Packet {
        self.answer = Answer::Awaited(id);
        self.round += u64::from(self.filter.history);
        packet::subscribe(id, &self.filter, number)
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
            let mut one = Subscription { filter: wanted, targets: vec![target], answer: Answer::Awaited(id), round: 0 };
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

    /// Those who want a sample, each with the round of its subscription. A broker that writes no numbers on samples is one that sends each once.
    pub(super) fn of(&self, sample: &Publish) -> Vec<(Arc<Target>, u64)> {
        let numbers = sample.properties.as_ref().map_or(&[][..], |properties| &properties.subscription_identifiers);
        let topic = String::from_utf8_lossy(&sample.topic);
        let fits = |(number, one): &(&u32, &Subscription)| match numbers {
            [] => topic_matches(&one.filter.path.replace('+', "*").replace('#', "**"), &topic),
            numbers => numbers.contains(&(**number as usize)),
        };
        let with_round = |one: &Subscription| {
            let round = one.round;
            one.targets.iter().map(|target| (target.clone(), round)).collect::<Vec<_>>()
        };
        self.open.iter().filter(fits).flat_map(|(_, one)| with_round(one)).collect()
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
        let take = Box::new(move |_: &Publish, _: u64| {
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
        let send = |all: &Subscriptions, numbers: &[usize]| {
            all.of(&sample("a/b", numbers)).iter().for_each(|(target, round)| target.take(&sample("a/b", &[]), *round));
            [&exacts, &wides].map(|count| count.swap(0, Ordering::Relaxed))
        };
        assert_eq!([send(&all, &[1]), send(&all, &[2]), send(&all, &[1, 2])], [[1, 0], [0, 1], [1, 1]]);
        assert_eq!((send(&all, &[7]), send(&all, &[])), ([0, 0], [1, 1]));
        exact.close();
        assert_eq!(send(&all, &[1, 2]), [0, 1]);
        assert!(matches!(all.remove(&exact, || 9), Some(Packet::Unsubscribe(one)) if one.filters == ["a/b"]));
        assert_eq!(send(&all, &[1]), [0, 0]);
    }

    /// Only what asks for retained messages makes the broker send them once more.
    #[test]
    fn each_subscriber_with_history_begins_a_round() {
        let mut all = Subscriptions::default();
        let round = |all: &Subscriptions| all.of(&sample("a", &[1])).iter().map(|(_, round)| *round).max();
        for (reliable, history, after) in [(false, false, 0), (true, false, 0), (false, true, 1), (false, true, 2)] {
            all.add(target("a", reliable, history).0, || 1);
            assert_eq!(round(&all), Some(after));
        }
        all.begin(|| 2);
        assert_eq!(round(&all), Some(3), "on a new connection, too");
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
