//! The class of each channel.

use crate::Class;
use crate::system::{Proxies, System, Transport};
use std::collections::BTreeMap;

/// The classes of all channels, a publisher's node and a subscriber each (Y-01). Channels that share a way have their class together: with
/// multicast or merged proxies all of a publisher's topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    classes: Vec<Class>,
    /// The index in `classes` of each (publisher's node, subscriber).
    of: BTreeMap<(usize, usize), usize>,
}

impl Classes {
    /// Each channel with the class of its topic (index).
    pub fn new(system: &System, of_topic: impl Fn(usize) -> Class) -> Self {
        let placement = &system.placement;
        let shared = placement.transport == Transport::Multicast || placement.proxies == Proxies::Merged;
        let mut all = Self::default();
        let mut ways = BTreeMap::new();
        for (subscriber, wanted) in system.subscribers.iter().enumerate() {
            for publisher in &system.topics[wanted.topic].publishers {
                let way = (wanted.topic, *publisher, (!shared).then_some(subscriber));
                let index = *ways.entry(way).or_insert(all.classes.len());
                if index == all.classes.len() {
                    all.classes.push(of_topic(wanted.topic));
                }
                all.of.insert((*publisher, subscriber), index);
            }
        }
        all
    }

    /// Those that the contract states; the others are normal, the default.
    pub fn stated(system: &System) -> Self {
        Self::new(system, |topic| system.topics[topic].class.unwrap_or_default())
    }

    /// The class of a channel.
    pub fn of(&self, publisher: usize, subscriber: usize) -> Class {
        self.of.get(&(publisher, subscriber)).map(|index| self.classes[*index]).unwrap_or_default()
    }

    /// Gives a channel, and all that share its way, this class.
    pub fn set(&mut self, publisher: usize, subscriber: usize, class: Class) {
        if let Some(index) = self.of.get(&(publisher, subscriber)) {
            self.classes[*index] = class;
        }
    }

    /// One channel of each way: (publisher's node, subscriber).
    pub fn ways(&self) -> Vec<(usize, usize)> {
        let mut ways = vec![None; self.classes.len()];
        self.of.iter().for_each(|(channel, index)| {
            ways[*index].get_or_insert(*channel);
        });
        ways.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::{Placement, Subscriber, Topic};

    #[test]
    fn channels_of_a_shared_way_have_one_class() {
        let topic = Topic { publishers: vec![0, 1], ..Topic::default() };
        let subscribers = vec![Subscriber::default(), Subscriber::default()];
        let mut system = System { topics: vec![topic], subscribers, ..System::default() };
        let classes = |system: &System| {
            let mut classes = Classes::new(system, |_| Class::Low);
            classes.set(1, 0, Class::High);
            let all = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(publisher, subscriber)| classes.of(publisher, subscriber));
            (all, classes.ways())
        };
        let [low, high] = [Class::Low, Class::High];
        assert_eq!(classes(&system), ([low, low, high, low], vec![(0, 0), (1, 0), (0, 1), (1, 1)]));
        for placement in [
            Placement { transport: Transport::Multicast, ..Placement::default() },
            Placement { proxies: Proxies::Merged, ..Placement::default() },
        ] {
            system.placement = placement;
            assert_eq!(classes(&system), ([low, low, high, high], vec![(0, 0), (1, 0)]));
        }
    }
}
