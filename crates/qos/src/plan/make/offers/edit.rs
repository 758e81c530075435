//! A change of a contract.

use super::shares::share;
use crate::Class;
use crate::plan::FileChange;
use crate::quantity::{parse_share, show_bit_rate, show_bytes, show_time};
use crate::system::{Pace, Proxies, Sched, System, Transport};

/// A change of a contract; parts by their index.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// The ratio of published samples to a subscriber's.
    Scale(usize, u32),
    /// The size of a subscriber's samples, bytes.
    Size(usize, u64),
    /// A subscriber's samples may come so late, ns.
    Deadline(usize, u64),
    /// A chain may end so late, ns.
    ChainDeadline(usize, u64),
    /// A topic's jitter, ns.
    Jitter(usize, u64),
    /// A subscriber goes, with its chains.
    Without(usize),
    /// A chain goes.
    WithoutChain(usize),
    /// A topic's class.
    Class(usize, Class),
    /// A topic's pace, bit/s.
    Pace(usize, u64),
    /// The threads of a topic have fixed priorities.
    Priority(usize),
    /// A link's shares, in thousandths.
    Shares(usize, [u32; 4]),
    /// Queues are installed at these ends of a link.
    Devices(usize, [bool; 2]),
    /// A node may host proxies.
    Proxy(usize),
    /// Equal requests share a proxy.
    Merged,
    /// Links carry each stream once.
    Multicast,
}

impl Edit {
    /// Makes all of them.
    pub(super) fn all(edits: &[Self], system: &System) -> System {
        let mut changed = system.clone();
        edits.iter().for_each(|edit| edit.apply(&mut changed));
        let gone = |index: usize| edits.contains(&Edit::Without(index));
        let mut index = 0..;
        changed.subscribers.retain(|_| !index.next().is_some_and(gone));
        let mut index = 0..;
        changed.chains.retain(|_| !index.next().is_some_and(|index| edits.contains(&Edit::WithoutChain(index))));
        let before = |index: usize| (0..index).filter(|other| gone(*other)).count();
        let parts = changed.chains.iter_mut().flat_map(|chain| &mut chain.parts);
        parts.for_each(|part| part.subscriber -= before(part.subscriber));
        changed
    }

    fn apply(&self, system: &mut System) {
        match self {
            Edit::Scale(index, scale) => system.subscribers[*index].scale = *scale,
            Edit::Size(index, size) => system.subscribers[*index].scaled_size = Some(*size),
            Edit::Deadline(index, ns) => system.subscribers[*index].deadline = Some(*ns),
            Edit::ChainDeadline(index, ns) => system.chains[*index].deadline = Some(*ns),
            Edit::Jitter(topic, ns) => system.topics[*topic].jitter = *ns,
            Edit::Class(topic, class) => system.topics[*topic].class = Some(*class),
            Edit::Pace(topic, rate) => system.topics[*topic].pace = Some(Pace::Stated(*rate)),
            Edit::Priority(topic) => system.topics[*topic].sched = Some(Sched::Priority),
            Edit::Shares(link, shares) => system.links[*link].shares = Some(shares.map(as_read)),
            Edit::Devices(link, ends) => system.links[*link].devices = devices(system, *link, *ends),
            Edit::Proxy(node) => system.nodes[*node].proxy = true,
            Edit::Merged => system.placement.proxies = Proxies::Merged,
            Edit::Multicast => system.placement.transport = Transport::Multicast,
            // Removals change indices, so they go last.
            Edit::Without(_) | Edit::WithoutChain(_) => {}
        }
    }

    /// As it is made in the file.
    pub(super) fn change(&self, system: &System) -> FileChange {
        let of = |table: &str, name: &str, key: &str, value: String| FileChange {
            table: table.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
            value,
        };
        let subscriber = |index: &usize| system.subscribers[*index].name.as_str();
        match self {
            Edit::Scale(index, scale) => of("subscriber", subscriber(index), "scale", scale.to_string()),
            Edit::Size(index, size) => {
                of("subscriber", subscriber(index), "scaled_size", format!("{:?}", show_bytes(*size)))
            }
            Edit::Deadline(index, ns) => of("subscriber", subscriber(index), "deadline", quoted_time(*ns)),
            Edit::ChainDeadline(index, ns) => of("chain", &system.chains[*index].name, "deadline", quoted_time(*ns)),
            Edit::Jitter(topic, ns) => of("topic", &system.topics[*topic].name, "jitter", quoted_time(*ns)),
            Edit::Without(index) => of("subscriber", subscriber(index), "", String::new()),
            Edit::WithoutChain(index) => of("chain", &system.chains[*index].name, "", String::new()),
            Edit::Class(topic, class) => of("topic", &system.topics[*topic].name, "class", format!("\"{class}\"")),
            Edit::Pace(topic, rate) => {
                of("topic", &system.topics[*topic].name, "pace", format!("{:?}", show_bit_rate(*rate as f64)))
            }
            Edit::Priority(topic) => of("topic", &system.topics[*topic].name, "sched", "\"priority\"".to_owned()),
            Edit::Shares(link, shares) => of("link", &system.links[*link].name, "shares", table(shares)),
            Edit::Devices(link, ends) => {
                of("link", &system.links[*link].name, "devices", device_table(system, *link, *ends))
            }
            Edit::Proxy(node) => of("node", &system.nodes[*node].name, "proxy", "true".to_owned()),
            Edit::Merged => of("placement", "", "proxies", "\"merged\"".to_owned()),
            Edit::Multicast => of("placement", "", "transport", "\"multicast\"".to_owned()),
        }
    }

    /// For people.
    pub(super) fn words(&self, system: &System) -> String {
        if let Edit::Devices(link, ends) = self {
            let named = device_table(system, *link, *ends);
            let link = &system.links[*link].name;
            return format!(
                "devices {named} for link {link:?} (with their real names), where queues take super-packets apart"
            );
        }
        let FileChange { name, key, value, .. } = self.change(system);
        format!("{key} {} for {name}", value.trim_matches('"'))
    }
}

/// As the contract with this change is read: the trial has the same bits.
fn as_read(thousandths: u32) -> f64 {
    parse_share(&share(thousandths)).unwrap_or(f64::from(thousandths) / 1000.0)
}

fn table(shares: &[u32; 4]) -> String {
    let key = |class: Class| format!("{class} = \"{}\"", share(shares[class as usize]));
    format!("{{ {} }}", Class::ALL.into_iter().rev().map(key).collect::<Vec<_>>().join(", "))
}

/// The devices of a link with those of these ends.
fn devices(system: &System, at: usize, ends: [bool; 2]) -> [Option<String>; 2] {
    let mut named = system.links[at].devices.clone();
    for (end, named) in named.iter_mut().enumerate().filter(|(end, _)| ends[*end]) {
        named.get_or_insert_with(|| some_device(system, at, end));
    }
    named
}

fn device_table(system: &System, at: usize, ends: [bool; 2]) -> String {
    let all = system.links[at].between.iter().zip(devices(system, at, ends));
    let entry =
        |(node, device): (&usize, Option<String>)| Some(format!("{:?} = {:?}", system.nodes[*node].name, device?));
    format!("{{ {} }}", all.filter_map(entry).collect::<Vec<_>>().join(", "))
}

/// Stands for a name that only the host knows; another one for each link.
fn some_device(system: &System, at: usize, end: usize) -> String {
    let node = system.links[at].between[end];
    let ends = system.links.iter().flat_map(|link| link.between.iter().zip(&link.devices));
    let taken: Vec<&String> = ends.filter(|(of, _)| **of == node).filter_map(|(_, device)| device.as_ref()).collect();
    let names = (at..).step_by(system.links.len()).map(|number| format!("eth{number}"));
    names.take(taken.len() + 1).find(|name| !taken.contains(&name)).unwrap_or_default()
}

fn quoted_time(ns: u64) -> String {
    format!("\"{}\"", show_time(ns as f64 / 1e3))
}
