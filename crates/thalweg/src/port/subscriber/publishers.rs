//! The publishers behind a subscriber's samples.

use crate::channel::PortRef;
use crate::codec::TypeDescription;
use linux::lock::PiMutex;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// A publisher as it described itself when the channel opened.
#[derive(Clone, Debug, PartialEq)]
pub struct PublisherInfo {
    /// Its name.
    pub name: String,
    /// The topic.
    pub topic: String,
    /// The type of its samples.
    pub message: TypeDescription,
}

/// The incarnation of a publisher's node, and [`Channel::joined_after`](crate::channel::Channel::joined_after) of a channel from it.
type Joined = (u64, Arc<OnceLock<u64>>);

struct Known {
    publisher: PortRef,
    info: Arc<PublisherInfo>,
    /// Of the first channel from this incarnation.
    joined: Joined,
}

#[derive(Default)]
pub(crate) struct Publishers(PiMutex<VecDeque<Known>>);

impl Publishers {
    /// Notes that a channel from `publisher` opens, before its first sample.
    pub(crate) fn add(&self, publisher: PortRef, joined: Joined, info: PublisherInfo) {
        let mut known = self.0.lock();
        let before = known.iter().position(|other| other.publisher == publisher).and_then(|at| known.remove(at));
        if known.len() == MOST_PUBLISHERS {
            known.pop_front();
        }
        let before = before.map(|before| before.joined);
        let first = before.filter(|(incarnation, after)| *incarnation == joined.0 && after.get().is_some());
        known.push_back(Known { publisher, info: Arc::new(info), joined: first.unwrap_or(joined) });
    }

    pub(crate) fn get(&self, publisher: PortRef) -> Option<Arc<PublisherInfo>> {
        let known = self.0.lock();
        known.iter().rev().find(|other| other.publisher == publisher).map(|known| known.info.clone())
    }

    /// The number of the last sample of this incarnation of a publisher when the first channel from it joined.
    pub(crate) fn joined_after(&self, publisher: PortRef, incarnation: u64) -> Option<u64> {
        let known = self.0.lock();
        let found = known.iter().find(|other| other.publisher == publisher && other.joined.0 == incarnation)?;
        found.joined.1.get().copied()
    }
}

/// The most publishers that are remembered; the one whose channel opened longest ago is forgotten first. A subscriber to a
/// pattern of more topics finds the present ones in their nodes' documents.
const MOST_PUBLISHERS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{NodeId, PortId};

    fn at(number: usize) -> PortRef {
        PortRef { node: NodeId(1), port: PortId(number as u32) }
    }

    fn info(number: usize) -> PublisherInfo {
        PublisherInfo { name: format!("/p{number}"), topic: "/t".to_owned(), message: TypeDescription::opaque("t") }
    }

    fn joined(incarnation: u64, after: Option<u64>) -> Joined {
        (incarnation, Arc::new(after.map_or_else(OnceLock::new, OnceLock::from)))
    }

    #[test]
    fn the_newest_are_remembered() {
        let publishers = Publishers::default();
        (0..=MOST_PUBLISHERS).for_each(|n| publishers.add(at(n), joined(1, None), info(n)));
        assert_eq!(publishers.get(at(0)), None);
        assert_eq!(publishers.get(at(MOST_PUBLISHERS)).unwrap().name, format!("/p{MOST_PUBLISHERS}"));
    }

    #[test]
    fn the_first_channel_of_an_incarnation_says_when_it_joined() {
        let publishers = Publishers::default();
        publishers.add(at(1), joined(1, None), info(1));
        assert_eq!(publishers.joined_after(at(1), 1), None, "it has not joined");
        for (incarnation, after, first) in [(1, 5, 5), (1, 9, 5), (2, 0, 0), (2, 3, 0)] {
            publishers.add(at(1), joined(incarnation, Some(after)), info(1));
            assert_eq!(publishers.joined_after(at(1), incarnation), Some(first));
        }
        assert_eq!((publishers.joined_after(at(1), 1), publishers.joined_after(at(2), 2)), (None, None));
    }
}
