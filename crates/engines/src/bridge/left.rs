//! Subscribers that have just gone. The routes to them stay for a moment, unless others want the topic in another way.
//!
//! Who subscribes in this moment finds the bridge's ports. If they closed at once, it could still get a channel of one of them, with its
//! history, and then the same history of the port that opens for it.

use super::routes::{In, InKey, MOST_ROUTES, ports};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use thalweg::PortRef;
use thalweg::control::matching::{is_pattern, topic_matches};
use thalweg::control::{Direction, Document, NodeId, PortInfo};

/// The time for which a route outlasts its last subscriber.
const STAYS: Duration = Duration::from_secs(1);

/// Ports that are gone, with the time of that, the oldest first.
#[derive(Default)]
pub(super) struct Left(Vec<(Instant, PortRef, PortInfo)>);

impl Left {
    /// Takes note of the subscribers of other nodes that were there in the documents `before`, and are not in `now`.
    pub(super) fn note(&mut self, before: &[Document], now: &[Document], own: NodeId, at: Instant) {
        let there: HashSet<PortRef> = ports(now, own).map(|(port, _)| port).collect();
        let subscribers = ports(before, own).filter(|(_, info)| info.direction == Direction::Subscriber);
        let gone = subscribers.filter(|(port, _)| !there.contains(port));
        // Of whoever comes and goes faster than that, the routes close at once.
        let room = MOST_ROUTES.saturating_sub(self.0.len());
        self.0.extend(gone.take(room).map(|(port, info)| (at, port, info.clone())));
    }

    /// `true` if the routes of some of them are to close now.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.0.first().is_some_and(|(at, ..)| now.saturating_duration_since(*at) >= STAYS)
    }

    /// Forgets those whose routes are to close.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|(at, ..)| now.saturating_duration_since(*at) < STAYS);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = (PortRef, &PortInfo)> {
        self.0.iter().map(|(_, port, info)| (*port, info))
    }
}

/// Adds to the routes that are `wanted` those that are open and would be wanted, too, if nobody had left. Beside one that is wanted for the
/// same topic none stays: a subscriber to any type would have its samples from both.
pub(super) fn stay<'a>(
    wanted: &mut BTreeMap<InKey, In>,
    before: BTreeMap<InKey, In>,
    open: impl Iterator<Item = (&'a InKey, &'a In)>,
) {
    let left: Vec<InKey> = open
        .filter(|(key, route)| {
            !wanted.contains_key(*key) && before.get(*key).is_some_and(|before| route.serves(before))
        })
        .filter(|(_, route)| wanted.values().all(|other| !meet(&route.topic, &other.topic)))
        .map(|(key, _)| key.clone())
        .collect();
    wanted.extend(before.into_iter().filter(|(key, _)| left.contains(key)));
}

/// `true` if one topic can be of both, as far as that is seen at once.
fn meet(one: &str, other: &str) -> bool {
    match (is_pattern(one), is_pattern(other)) {
        (true, true) => true,
        (true, false) => topic_matches(one, other),
        (false, true) => topic_matches(other, one),
        (false, false) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::testing::{OWN, document, port};
    use super::*;
    use thalweg::codec::{Message, Raw, TypeDescription};

    fn subscribers(topics: &[&str]) -> [Document; 2] {
        let raw = || Raw::description().as_ref().clone();
        let ports = topics.iter().map(|topic| port(Direction::Subscriber, topic, raw())).collect();
        let own = port(Direction::Subscriber, "/own", raw());
        [document(OWN.0, vec![own]), document(2, ports)]
    }

    fn topics(left: &Left) -> Vec<&str> {
        left.ports().map(|(_, info)| &info.topic[..]).collect()
    }

    #[test]
    fn subscribers_of_others_are_remembered_for_a_moment() {
        let (mut left, begin) = (Left::default(), Instant::now());
        let publisher = document(3, vec![port(Direction::Publisher, "/c", TypeDescription::any())]);
        left.note(&subscribers(&["/a", "/b"]), &subscribers(&["/a"]), OWN, begin);
        let later = begin + STAYS / 2;
        left.note(&[subscribers(&["/a"])[1].clone(), publisher], &[], OWN, later);
        assert_eq!(topics(&left), ["/b", "/a"]);
        assert!(!left.is_over(later) && left.is_over(begin + STAYS));
        left.forget(begin + STAYS);
        assert_eq!(topics(&left), ["/a"]);
        assert!(!left.is_over(begin + STAYS) && left.is_over(later + STAYS));
    }

    fn routes(all: &[(&str, u32)]) -> BTreeMap<InKey, In> {
        let route = |topic: &str, history| In {
            topic: topic.to_owned(),
            there: topic.to_owned(),
            message: TypeDescription::any(),
            any: false,
            taken: true,
            qos: qos::Qos { durability: qos::Durability::TransientLocal, history, ..qos::Qos::default() },
            sources: BTreeMap::new(),
            ways: BTreeMap::new(),
            skips: Vec::new(),
            beside: Vec::new(),
        };
        all.iter().map(|(topic, history)| (((*topic).to_owned(), "*".to_owned(), 0), route(topic, *history))).collect()
    }

    fn stays(open: &[(&str, u32)], before: &[(&str, u32)], wanted: &[&str]) -> Vec<String> {
        let mut wanted = routes(&wanted.iter().map(|topic| (*topic, 1)).collect::<Vec<_>>());
        stay(&mut wanted, routes(before), routes(open).iter());
        wanted.into_keys().map(|(topic, ..)| topic).collect()
    }

    #[test]
    fn an_open_route_stays_unless_another_one_has_its_samples() {
        let (a, both) = (("/a", 2), [("/a", 2), ("/b", 1)]);
        assert_eq!(stays(&[a], &both, &["/b"]), ["/a", "/b"]);
        assert_eq!(stays(&[], &both, &["/b"]), ["/b"], "it is not open");
        assert_eq!(stays(&[a], &[], &["/b"]), ["/b"], "its publishers are gone");
        assert_eq!(stays(&[a], &[("/a", 3)], &[]), [""; 0], "it would open anew");
        assert_eq!(stays(&[a], &both, &["/*"]), ["/*"]);
        assert_eq!(stays(&[("/x/*", 1)], &[("/x/*", 1)], &["/**"]), ["/**"]);
    }
}
