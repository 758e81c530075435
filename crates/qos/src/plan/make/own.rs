//! Queues of channels' own, where the contract asks for them, and reasons why a link has no room for them.

use super::delay::Bounds;
use super::path::{Hop, Path};
use crate::analysis::stages::{Leaf, has_leaf};
use crate::network::Direction;
use crate::plan::{Channel, OwnQueue, Refusal};
use crate::quantity::show_share;
use crate::system::{LONGEST_QUEUE, LONGEST_REFILL_S, MOST_AT_ONCE, MOST_OWN_QUEUES, NodeKind, System, Transport};
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

/// Gives each queue its number, by the channel's names: other channels that come and go leave it as it is, unless two have the same one. Its last four bits are the
/// socket priority of the channel's class: `pfifo_fast` and `prio` look at no others, so that on a device without the queue the packets have the band of their class.
/// Those are 256 for a socket priority, so with many devices a number may be on two of them; on one, with [`MOST_OWN_QUEUES`] at most, it is not.
pub(super) fn number(channels: &mut [Channel]) {
    const BANDS: u16 = 16;
    const EACH: u16 = OwnQueue::NUMBERS / BANDS;
    let mut taken: BTreeSet<(String, u16)> = BTreeSet::new();
    let mut taken_at: BTreeSet<(String, String, u16)> = BTreeSet::new();
    for channel in channels {
        let name = [&channel.topic, &channel.publisher, &channel.subscriber].map(String::as_str).join("\n");
        let Some(own) = &mut channel.own_queue else { continue };
        let band = (channel.class.socket_priority() % u32::from(BANDS)) as u16;
        let first = (crate::contract::hash(&name) % u64::from(EACH)) as u16;
        let numbers = || (first..EACH).chain(0..first).map(move |number| BANDS * number + band);
        let at = |number: u16| (channel.publisher.clone(), own.link.clone(), number);
        let free = |number: &u16| !taken.contains(&(channel.publisher.clone(), *number));
        let free_here = || numbers().find(|number| !taken_at.contains(&at(*number)));
        let number = numbers().find(free).or_else(free_here).unwrap_or(BANDS * first + band);
        taken_at.insert(at(number));
        taken.insert((channel.publisher.clone(), number));
        own.number = number;
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
    let Some(bounds) = bounds else {
        refusals.extend(asked.first().map(|(_, topic)| of_model(topic)));
        return refusals;
    };
    let controlled = (0..2 * system.links.len()).filter(|index| system.links[Direction::at(*index).link].control > 0);
    let used: BTreeSet<usize> = asked.iter().map(|(index, _)| *index).chain(controlled).collect();
    refusals.extend(used.iter().filter_map(|index| of_room(system, Direction::at(*index), bounds)));
    let leaf = |path: &Path| bounds.leaf(path.subscriber.topic, path.publisher, path.index);
    let have = paths.iter().filter(|path| path.own_queue_at(system).is_some());
    refusals.extend(have.filter_map(|path| of_leaf(&path.subscriber.name, &leaf(path)?)));
    refusals
}

/// Without an analysis nobody knows what a queue needs.
fn of_model(topic: &str) -> Refusal {
    Refusal {
        what: format!("own queue of {topic:?}"),
        needs: "a model with bounds: bound, rta or nc".to_owned(),
        has: "a model without".to_owned(),
        because: "rate and depth of the queue come from the analysis: choose such a model, or state no own_queue"
            .to_owned(),
        offers: Vec::new(),
    }
}

/// A queue that the kernel or `thalweg apply` would not take.
fn of_leaf(subscriber: &str, leaf: &Leaf) -> Option<Refusal> {
    let refuse = |needs: String, has: String, because: &str| {
        let (what, because) = (format!("own queue of {subscriber}"), because.to_owned());
        Some(Refusal { what, needs, has, because, offers: Vec::new() })
    };
    if leaf.burst > MOST_AT_ONCE {
        let because = "so much may come until its deadline: state a shorter deadline, or a smaller burst or jitter";
        return refuse(format!("{} B at once", leaf.burst), format!("{MOST_AT_ONCE} B"), because);
    }
    if leaf.packets > u64::from(LONGEST_QUEUE) {
        let because = "so many may wait until its deadline: state a shorter deadline, or larger packets";
        return refuse(format!("{} packets", leaf.packets), format!("{LONGEST_QUEUE} packets"), because);
    }
    // Bits over bits per second.
    let refill = (u128::from(leaf.burst) * 8).div_ceil(u128::from(leaf.rate.max(1)));
    if refill > u128::from(LONGEST_REFILL_S) {
        let because = "the kernel gives a class tokens for so long at once: state a shorter deadline";
        return refuse(format!("{refill} s to fill its bucket"), format!("{LONGEST_REFILL_S} s"), because);
    }
    None
}

fn of_link(system: &System, at: Direction, topic: &str) -> Refusal {
    let (link, [from, _]) = (&system.links[at.link], at.ends(system));
    let node = &system.nodes[from].name;
    let device = if at.device(system).is_some() { "a device" } else { "no device" };
    let kind = match system.nodes[from].kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Switch => "switch",
    };
    if kind != "host" {
        return Refusal {
            what: format!("own queue of {topic:?} at {node}"),
            needs: "a publisher on a node of kind = \"host\"".to_owned(),
            has: format!("kind = {kind:?} of {node}"),
            because: "there `thalweg apply` maps each packet's mark to its class, which undoes the name of the queue: publish on a host, or state no own_queue"
                .to_owned(),
            offers: Vec::new(),
        };
    }
    Refusal {
        what: format!("own queue of {topic:?} at {node}"),
        needs: format!("scheduler = \"htb\" of link {}, no transmission, and a device of {node} there", link.name),
        has: format!("{}, {device}", super::shown::scheduler(link.scheduler)),
        because: "a queue of a channel's own stands beside those of the classes, which `thalweg apply` installs"
            .to_owned(),
        offers: Vec::new(),
    }
}

fn of_room(system: &System, at: Direction, bounds: &Bounds) -> Option<Refusal> {
    let (link, [from, _]) = (&system.links[at.link], at.ends(system));
    let (count, shares) = bounds.own_queues(at.index());
    let refuse = |needs: String, has: String, because: &str| {
        let whose = if link.control > 0 { "own queues and that of control traffic" } else { "own queues" };
        let what = format!("{whose} of {} before link {}", system.nodes[from].name, link.name);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Also if a host has more queues of a class than there are numbers.
    #[test]
    fn numbers_differ_on_each_link() {
        let channel = |index: usize| Channel {
            publisher: "a".into(),
            subscriber: format!("/s{index}"),
            own_queue: Some(OwnQueue { link: format!("l{}", index / MOST_OWN_QUEUES), ..OwnQueue::default() }),
            ..Channel::default()
        };
        let mut channels: Vec<Channel> = (0..10 * MOST_OWN_QUEUES).map(channel).collect();
        number(&mut channels);
        let of = |channel: &Channel| channel.own_queue.clone().map(|own| (own.link, own.number));
        let numbers: BTreeSet<_> = channels.iter().map(of).collect();
        assert_eq!(numbers.len(), channels.len());
    }
}
