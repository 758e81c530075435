//! The tables of a contract file as they are written. What is not among their keys is refused.

use super::value::Entry;
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub system: Option<System>,
    #[serde(default)]
    pub node: Vec<Spanned<Node>>,
    #[serde(default)]
    pub link: Vec<Spanned<Link>>,
    #[serde(default)]
    pub topic: Vec<Spanned<Topic>>,
    #[serde(default)]
    pub subscriber: Vec<Spanned<Subscriber>>,
    pub placement: Option<Placement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct System {
    pub name: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub name: Entry,
    pub kind: Entry,
    pub cpus: Entry,
    pub domain: Entry,
    pub proxy: Entry,
    pub proxy_capacity: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub name: Entry,
    pub between: Entry,
    pub rate: Entry,
    pub delay: Entry,
    pub forwarding: Entry,
    pub transmission: Entry,
    pub mtu: Entry,
    pub overhead: Entry,
    pub scheduler: Entry,
    pub shares: Option<Spanned<Shares>>,
    pub background: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shares {
    pub low: Entry,
    pub normal: Entry,
    pub high: Entry,
    pub critical: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topic {
    pub name: Entry,
    pub size: Entry,
    pub period: Entry,
    pub rate: Entry,
    pub jitter: Entry,
    pub burst: Entry,
    pub publisher: Entry,
    pub cpu_send: Entry,
    pub service: Entry,
    pub hand_in: Entry,
    pub hand_out: Entry,
    pub buffer: Entry,
    pub class: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    pub topic: Entry,
    pub node: Entry,
    pub name: Entry,
    pub scale: Entry,
    pub picture: Entry,
    pub scaled_size: Entry,
    pub deadline: Entry,
    pub cpu_receive: Entry,
    pub importance: Entry,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placement {
    pub proxies: Entry,
    pub objective: Entry,
    pub cpu_weight: Entry,
    pub transport: Entry,
    pub delay: Entry,
    pub cpu_proxy: Entry,
}
