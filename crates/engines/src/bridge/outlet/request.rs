//! The request of an outlet's subscriber: what all publishers of its topic can give.

use super::super::routes::partitions;
use qos::{PolicyName, Qos};

/// The largest message, and the longest history: as much as a publisher offers.
const LARGEST: u32 = 1 << 30;
const LONGEST: u32 = 1 << 20;

/// The request that takes what each of these publishers can give. What the rules say of the topic is in each offer.
pub(in super::super) fn request<'a>(first: &Qos, offers: impl Iterator<Item = &'a Qos> + Clone) -> Qos {
    Qos {
        reliability: offers.clone().map(|offer| offer.reliability).max().unwrap_or_default(),
        durability: offers.clone().map(|offer| offer.durability).max().unwrap_or_default(),
        history: LONGEST,
        fallback: vec![
            PolicyName::Reliability,
            PolicyName::Durability,
            PolicyName::Deadline,
            PolicyName::LatencyBudget,
            PolicyName::DestinationOrder,
            PolicyName::Liveliness,
            PolicyName::Ownership,
        ],
        ownership: first.ownership,
        partition: partitions::meeting(offers.clone().map(|offer| &offer.partition[..])),
        max_message: LARGEST,
        scale: first.scale,
        picture: first.picture,
        separation: first.separation,
        ..Qos::default()
    }
}

/// `true` if a subscriber with the request `open` is what is wanted: one that requests more goes on, so that no sample is lost.
pub(super) fn serves(open: &Option<Qos>, wanted: &Option<Qos>) -> bool {
    let (Some(open), Some(wanted)) = (open, wanted) else { return open == wanted };
    let Qos { reliability, durability, ownership, partition, .. } = open.clone();
    let more = reliability >= wanted.reliability
        && durability >= wanted.durability
        && partitions::include(&partition, &wanted.partition);
    more && Qos { reliability, durability, ownership, partition, ..wanted.clone() } == *open
}
