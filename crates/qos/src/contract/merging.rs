//! Topics that would cost less as one (Velox, §3.2.5: the cost of a topic hardly depends on its size, and grows with the number of topics).

use super::Contract;
use crate::Class;
use crate::network::{Network, packets, wire_bytes};
use crate::system::{Link, Pace, System, Topic};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A share of the bytes on a link below which a hint is not worth the reader's time.
const WORTH: f64 = 0.1;

/// A hint: these topics go from the same publishers to the same subscribers at the same rate, and cost less as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// The line of the first topic.
    pub line: usize,
    /// The topics, in the order of their lines.
    pub topics: Vec<String>,
    /// The saving, with the link on which it is greatest.
    pub because: String,
}

/// Finds topics that would cost less as one, by the bytes on the links that they share; hints in the order of their lines.
pub fn hints(contract: &Contract) -> Vec<Hint> {
    let system = &contract.system;
    let network = Network::new(system);
    let mut alike: BTreeMap<Way, Vec<usize>> = BTreeMap::new();
    for (index, topic) in system.topics.iter().enumerate() {
        if let Some(way) = way(system, index, topic) {
            alike.entry(way).or_default().push(index);
        }
    }
    let hint = |topics: Vec<usize>| hint(contract, &network, &topics);
    let mut found: Vec<Hint> = alike.into_values().filter(|topics| topics.len() > 1).filter_map(hint).collect();
    found.sort_by_key(|hint| hint.line);
    found
}

/// All that topics must have in common to be sent as one: publishers, period, jitter, burst, latency budget, pace, class; and node, scale and deadline of each
/// subscriber.
type Way<'a> = (&'a [usize], [u64; 3], Option<Pace>, u32, Option<Class>, BTreeSet<(usize, u32, Option<u64>)>);

/// `None`: nobody wants it, somebody wants its samples changed, or it has a queue of its own.
fn way<'a>(system: &System, index: usize, topic: &'a Topic) -> Option<Way<'a>> {
    if topic.own_queue {
        return None;
    }
    let mut wanted = BTreeSet::new();
    for subscriber in system.subscribers.iter().filter(|subscriber| subscriber.topic == index) {
        if subscriber.picture.is_some() || subscriber.scaled_size.is_some() {
            return None;
        }
        wanted.insert((subscriber.node, subscriber.scale, subscriber.deadline));
    }
    let Topic { publishers, period, jitter, burst, class, pace, .. } = topic;
    (!wanted.is_empty()).then_some((
        &publishers[..],
        [*period, *jitter, topic.gathers(topic.size)],
        *pace,
        *burst,
        *class,
        wanted,
    ))
}

fn hint(contract: &Contract, network: &Network, topics: &[usize]) -> Option<Hint> {
    let system = &contract.system;
    let sizes: Vec<u64> = topics.iter().map(|topic| system.topics[*topic].size).collect();
    let saving = |link: &&Link| {
        let apart: u64 = sizes.iter().map(|size| wire_bytes(link, *size)).sum();
        let whole = sizes.iter().sum();
        let fewer_packets = packets(link, whole) < sizes.iter().map(|size| packets(link, *size)).sum();
        let share = 1.0 - wire_bytes(link, whole) as f64 / apart.max(1) as f64;
        (fewer_packets && share >= WORTH).then_some(share)
    };
    let links = links(system, network, topics[0]).into_iter();
    let saved = links.filter_map(|link| Some((saving(&link)?, link)));
    let (share, link) = saved.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let names = topics.iter().map(|topic| system.topics[*topic].name.clone()).collect();
    let because = format!(
        "as one topic they take {:.0} % fewer bytes on link {:?}, and one sample instead of {} to send and to receive (V-76)",
        share * 100.0,
        link.name,
        topics.len()
    );
    Some(Hint { line: contract.lines.topics[topics[0]], topics: names, because })
}

/// The links on the ways of a topic.
fn links<'a>(system: &'a System, network: &Network, topic: usize) -> Vec<&'a Link> {
    let subscribers = system.subscribers.iter().filter(|subscriber| subscriber.topic == topic);
    let ends = subscribers.flat_map(|s| system.topics[topic].publishers.iter().map(move |from| (*from, s.node)));
    let used: BTreeSet<usize> =
        ends.filter_map(|(from, to)| network.route(from, to)).flatten().map(|way| way.link).collect();
    used.into_iter().map(|link| &system.links[link]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two topics of these sizes and further lines, from a to b over a link.
    fn contract(sizes: [&str; 2], more: [&str; 2], wanted: &str) -> Contract {
        let mut text =
            "[system]\nname = \"s\"\n[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nname = \"l\"\n\
                        between = [\"a\", \"b\"]\nrate = \"100 Mbit/s\"\n"
                .to_owned();
        for (name, (size, more)) in ["x", "y"].iter().zip(sizes.iter().zip(more)) {
            text += &format!(
                "[[topic]]\nname = \"{name}\"\nsize = \"{size}\"\nrate = \"100 Hz\"\npublisher = \"a\"\n{more}\n"
            );
        }
        for name in ["x", "y"] {
            text += &format!("[[subscriber]]\ntopic = \"{name}\"\nnode = \"b\"\n{wanted}\n");
        }
        Contract::read(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }

    #[test]
    fn small_topics_on_the_same_way_are_cheaper_as_one() {
        let small = contract(["20 B", "20 B"], ["", ""], "");
        let found = hints(&small);
        assert_eq!((found.len(), &found[0].topics[..]), (1, &["x".to_owned(), "y".to_owned()][..]));
        let link = &small.system.links[0];
        let share = 100.0 * link.overhead as f64 / (2 * (20 + link.overhead)) as f64;
        assert!(found[0].because.contains(&format!("{share:.0} % fewer bytes on link \"l\"")), "{}", found[0].because);
    }

    #[test]
    fn nothing_is_said_where_little_is_saved_or_the_ways_differ() {
        let none: [Hint; 0] = [];
        assert_eq!(hints(&contract(["1 KiB", "1 KiB"], ["", ""], "")), none, "no packet less");
        assert_eq!(hints(&contract(["20 B", "20 KiB"], ["", ""], "")), none, "less than a tenth");
        assert_eq!(hints(&contract(["20 B", "20 B"], ["", "jitter = \"1 ms\""], "")), none, "other times");
        assert_eq!(hints(&contract(["20 B", "20 B"], ["", "class = \"high\""], "")), none, "another class");
        assert_eq!(hints(&contract(["20 B", "20 B"], ["", ""], "scaled_size = \"10 B\"")), none, "changed on the way");
    }
}
