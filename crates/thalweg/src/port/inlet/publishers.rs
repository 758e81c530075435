//! The publishers from which a subscriber had channels: samples outlive their channels.

use crate::channel::PortRef;
use crate::codec::TypeDescription;
use linux::lock::PiMutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most publishers that are remembered; the one whose channel opened longest ago is forgotten first. A subscriber to a
/// pattern of more topics finds the present ones in their nodes' documents.
const MOST: usize = 16;

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

#[derive(Default)]
pub(crate) struct Publishers(PiMutex<VecDeque<(PortRef, Arc<PublisherInfo>)>>);

impl Publishers {
    /// Notes that a channel from `publisher` opens, before its first sample.
    pub(crate) fn add(&self, publisher: PortRef, info: PublisherInfo) {
        let mut known = self.0.lock();
        known.retain(|(other, _)| *other != publisher);
        if known.len() == MOST {
            known.pop_front();
        }
        known.push_back((publisher, Arc::new(info)));
    }

    pub(crate) fn get(&self, publisher: PortRef) -> Option<Arc<PublisherInfo>> {
        let known = self.0.lock();
        known.iter().rev().find(|(other, _)| *other == publisher).map(|(_, info)| info.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{NodeId, PortId};

    #[test]
    fn the_newest_are_remembered() {
        let publishers = Publishers::default();
        let at = |number: usize| PortRef { node: NodeId(1), port: PortId(number as u32) };
        let info = |number: usize| PublisherInfo {
            name: format!("/p{number}"),
            topic: "/t".to_owned(),
            message: TypeDescription::opaque("t"),
        };
        (0..=MOST).for_each(|n| publishers.add(at(n), info(n)));
        assert_eq!(publishers.get(at(0)), None);
        assert_eq!(publishers.get(at(MOST)).unwrap().name, format!("/p{MOST}"));
    }
}
