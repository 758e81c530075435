//! Queues of channels' own, where the contract asks for them, and reasons why a link has no room for them.

use super::delay::Bounds;
use super::{Hop, Path};
use crate::analysis::stages::has_leaf;
use crate::network::Direction;
use crate::plan::{Channel, OwnQueue, Refusal};
use crate::quantity::show_share;
use crate::system::{MOST_OWN_QUEUES, System, Transport};
use std::collections::BTreeSet;

impl Path<'_> {
    /// The link before which it is to have a queue of its own. A relay sends by a channel of its own, which has none.
    fn own_queue_at(&self, system: &System) -> Option<Direction> {
        let Hop { direction, .. } = self.hops.first()?;
        let is_own = self.proxy.is_none_or(|proxy| proxy == self.publisher) && !self.topic.forwarded;
        let is_asked = self.topic.own_queue && system.placement.transport == Transport::Unicast;
        (is_asked && is_own).then_some(*direction)
    }

    /// The queue of its own that it has.
    pub(super) fn own_queue(&self, system: &System, bounds: Option<&Bounds>) -> Option<OwnQueue> {
        let at = self.own_queue_at(system)?;
        let leaf = bounds?.leaf(self.subscriber.topic, self.publisher, self.index)?;
        Some(OwnQueue {
            link: system.links[at.link].name.clone(),
            number: 0,
            rate_bits_per_s: leaf.rate,
            burst_bytes: leaf.burst,
            packets: leaf.packets,
        })
    }
}

/// Gives each queue its number, by the channel's names: other channels that come and go leave it as it is, unless two have the same one.
pub(super) fn number(channels: &mut [Channel]) {
    let mut taken: BTreeSet<(String, u16)> = BTreeSet::new();
    for channel in channels {
        let name = [&channel.topic, &channel.publisher, &channel.subscriber].map(String::as_str).join("\n");
        let Some(own) = &mut channel.own_queue else { continue };
        let first = (crate::contract::hash(&name) % u64::from(OwnQueue::NUMBERS)) as u16;
        let free = |number: &u16| !taken.contains(&(channel.publisher.clone(), *number));
        let mut numbers = (first..OwnQueue::NUMBERS).chain(0..first);
        own.number = numbers.find(free).unwrap_or(first);
        taken.insert((channel.publisher.clone(), own.number));
    }
}

/// Links that cannot have the queues that channels are to have before them.
pub(super) fn refusals(system: &System, paths: &[Path], bounds: Option<&Bounds>) -> Vec<Refusal> {
    let name = |topic: usize| system.topics[topic].name.as_str();
    let asks = |path: &Path| Some((path.own_queue_at(system)?.index(), name(path.subscriber.topic)));
    let asked: BTreeSet<(usize, &str)> = paths.iter().filter_map(asks).collect();
    let unfit = asked.iter().filter(|(index, _)| !has_leaf(system, Direction::at(*index)));
    let mut refusals: Vec<Refusal> =
        unfit.map(|(index, topic)| of_link(system, Direction::at(*index), topic)).collect();
    let used: BTreeSet<usize> = asked.iter().map(|(index, _)| *index).collect();
    refusals.extend(used.iter().filter_map(|index| of_room(system, Direction::at(*index), bounds?)));
    refusals
}

fn of_link(system: &System, at: Direction, topic: &str) -> Refusal {
    let (link, [from, _]) = (&system.links[at.link], at.ends(system));
    let node = &system.nodes[from].name;
    let device = if at.device(system).is_some() { "a device" } else { "no device" };
    Refusal {
        what: format!("own queue of {topic:?} at {node}"),
        needs: format!("scheduler = \"htb\" of link {} and a device of {node} there", link.name),
        has: format!("{}, {device}", super::scheduler(link.scheduler)),
        because: "a queue of a channel's own stands beside those of the classes, which `thalweg apply` installs"
            .to_owned(),
        offers: Vec::new(),
    }
}

fn of_room(system: &System, at: Direction, bounds: &Bounds) -> Option<Refusal> {
    let (link, [from, _]) = (&system.links[at.link], at.ends(system));
    let (count, shares) = bounds.own_queues(at.index());
    let refuse = |needs: String, has: String, because: &str| {
        let what = format!("own queues of {} before link {}", system.nodes[from].name, link.name);
        Some(Refusal { what, needs, has, because: because.to_owned(), offers: Vec::new() })
    };
    if count > MOST_OWN_QUEUES {
        let because = "each is a class of the kernel's, which takes longer for each new one";
        return refuse(count.to_string(), MOST_OWN_QUEUES.to_string(), because);
    }
    // Each is rounded up.
    if count > 0 && shares > 1.0 + 1e-6 {
        let because = "their rates are guaranteed beside the shares of the classes: state smaller shares, or none";
        return refuse(show_share(shares), show_share(1.0), because);
    }
    None
}
