//! A change of a contract.

use super::shares::share;
use crate::Class;
use crate::plan::FileChange;
use crate::quantity::{parse_share, show_bytes, show_time};
use crate::system::{Proxies, System, Transport};

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
    /// A link's shares, in thousandths.
    Shares(usize, [u32; 4]),
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
            Edit::Shares(link, shares) => system.links[*link].shares = Some(shares.map(as_read)),
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
            Edit::Shares(link, shares) => of("link", &system.links[*link].name, "shares", table(shares)),
            Edit::Proxy(node) => of("node", &system.nodes[*node].name, "proxy", "true".to_owned()),
            Edit::Merged => of("placement", "", "proxies", "\"merged\"".to_owned()),
            Edit::Multicast => of("placement", "", "transport", "\"multicast\"".to_owned()),
        }
    }

    /// For people.
    pub(super) fn words(&self, system: &System) -> String {
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

fn quoted_time(ns: u64) -> String {
    format!("\"{}\"", show_time(ns as f64 / 1e3))
}
