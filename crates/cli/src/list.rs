//! `thalweg list`: nodes, ports, topics, channels; policies.

use crate::census::{self, Channel, Port, Topic};
use crate::failure::Result;
use crate::output::{table, tell};
use crate::participant::{Common, Participant};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use thalweg::control::matching::{Match, Mismatch, compare};
use thalweg::control::{Direction, Document, PortInfo, RelayLoad};

/// List what there is: nodes, ports, topics, channels (all of them unless one is named)
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg list channels\n         thalweg list --qos\n         thalweg list --json")]
pub(crate) struct Arguments {
    /// Only these
    #[arg(value_enum)]
    what: Option<What>,
    /// Ports with the policies they state, and which of them do not fit each other
    #[arg(long, conflicts_with = "what")]
    qos: bool,
    #[command(flatten)]
    common: Common,
}

/// Kinds of objects to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Nodes
    Nodes,
    /// Ports
    Ports,
    /// Topics
    Topics,
    /// Channels
    Channels,
}

/// A node, without its ports.
#[derive(Serialize)]
struct Node<'a> {
    node: &'a str,
    id: String,
    host: &'a str,
    pid: u32,
    addresses: &'a [std::net::SocketAddr],
    ports: usize,
    /// Its load, if it is a relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<&'a RelayLoad>,
}

#[derive(Serialize)]
struct Lists<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<Node<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<Port<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topics: Option<Vec<Topic>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<Vec<Channel>>,
    /// Nodes that did not report their channels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<String>,
    /// Stopped processes of this host; their ports are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stopped: Vec<u32>,
}

/// Lists as asked.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut participant = arguments.common.open("list")?;
    let nodes = participant.settled();
    if arguments.qos {
        return list_policies(&participant, &nodes);
    }
    let wanted = |what| arguments.what.is_none_or(|only| only == what);
    let channels = wanted(What::Channels).then(|| census::channels(&participant, &nodes));
    let (channels, silent) = channels.map_or((None, Vec::new()), |found| (Some(found.channels), found.silent));
    let lists = Lists {
        nodes: wanted(What::Nodes).then(|| nodes.iter().map(Node::of).collect()),
        ports: wanted(What::Ports).then(|| census::ports(&nodes)),
        topics: wanted(What::Topics).then(|| census::topics(&census::ports(&nodes))),
        channels,
        silent,
        stopped: census::stopped(&participant.realm, &nodes, participant.node.id()),
    };
    for pid in &lists.stopped {
        tell(&format!("process {pid} is stopped, and what it has is not known: kill -CONT {pid}"));
    }
    if !lists.silent.is_empty() {
        tell(&format!("no answer from {}: their channels may be missing", lists.silent.join(", ")));
    }
    participant.output.result(&lists, || lists.text())
}

fn count(number: u32, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

impl<'a> Node<'a> {
    fn of(document: &'a Document) -> Self {
        Self {
            node: &document.name,
            id: document.node.to_string(),
            host: &document.host_name,
            pid: document.pid,
            addresses: &document.addresses,
            ports: document.ports.len(),
            relay: document.relay.as_ref(),
        }
    }

    fn relay_text(&self) -> String {
        let text = |load: &RelayLoad| {
            let RelayLoad { proxies, samples_per_s, keeps, .. } = load;
            let (proxies, keeps) = (count(*proxies, "proxy", "proxies"), count(*keeps, "publisher", "publishers"));
            format!("{proxies}, {samples_per_s} samples/s, keeps {keeps}")
        };
        self.relay.map_or("-".to_owned(), text)
    }

    fn row(&self) -> Vec<String> {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let (pid, ports) = (self.pid.to_string(), self.ports.to_string());
        vec![
            self.node.to_owned(),
            self.id.clone(),
            self.host.to_owned(),
            pid,
            ports,
            addresses.join(" "),
            self.relay_text(),
        ]
    }
}

impl Lists<'_> {
    fn text(&self) -> String {
        let nodes = self.nodes.as_ref().map(|nodes| {
            let headers = [
                ("node", '<'),
                ("id", '<'),
                ("host", '<'),
                ("process", '>'),
                ("ports", '>'),
                ("addresses", '<'),
                ("relay", '<'),
            ];
            section("nodes", &headers, nodes.iter().map(Node::row).collect())
        });
        let ports = self.ports.as_ref().map(|ports| section("ports", &PORTS, ports.iter().map(port_row).collect()));
        let topics = self.topics.as_ref().map(|topics| {
            let headers = [("topic", '<'), ("type", '<'), ("publishers", '<'), ("subscribers", '<')];
            section("topics", &headers, topics.iter().map(topic_row).collect())
        });
        let channels = self.channels.as_ref().map(|channels| channel_table(channels));
        [nodes, ports, topics, channels].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    }
}

const PORTS: [(&str, char); 6] =
    [("port", '<'), ("direction", '<'), ("topic", '<'), ("type", '<'), ("reliability", '<'), ("node", '<')];

/// The columns of a port.
pub(crate) fn port_row(port: &Port<'_>) -> Vec<String> {
    let info = port.info;
    let direction = format!("{:?}", info.direction).to_lowercase();
    let (name, topic, kind) = (info.name.clone(), info.topic.clone(), info.message.name.clone());
    let node = info.foreign.as_ref().map_or(port.node.to_owned(), |end| format!("{} for {end}", port.node));
    vec![name, direction, topic, kind, info.qos.reliability.to_string(), node]
}

/// A table of ports.
pub(crate) fn port_table(ports: &[Port<'_>]) -> String {
    section("ports", &PORTS, ports.iter().map(port_row).collect())
}

fn topic_row(topic: &Topic) -> Vec<String> {
    let types: Vec<&str> = topic.types.iter().map(String::as_str).collect();
    vec![topic.topic.clone(), types.join(" "), topic.publishers.join(" "), topic.subscribers.join(" ")]
}

/// A table of channels.
pub(crate) fn channel_table(channels: &[Channel]) -> String {
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |v| v.to_string());
    let row = |c: &Channel| {
        let names = [&c.topic, &c.publisher, &c.subscriber, c.carrier.as_str()].map(str::to_owned);
        let counts = [number(c.sent), number(c.received), number(c.dropped), number(c.lost), c.waiting.to_string()];
        let proxied = c.proxied.as_ref().map_or("-".to_owned(), ToString::to_string);
        names.into_iter().chain(counts).chain([proxied]).collect()
    };
    let headers = [
        ("topic", '<'),
        ("publisher", '<'),
        ("subscriber", '<'),
        ("carrier", '<'),
        ("sent", '>'),
        ("received", '>'),
        ("dropped", '>'),
        ("lost", '>'),
        ("waiting", '>'),
        ("proxy", '<'),
    ];
    section("channels", &headers, channels.iter().map(row).collect())
}

fn section(what: &str, headers: &[(&str, char)], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() { format!("no {what}") } else { table(headers, &rows) }
}

/// A port, and the policies that differ from their defaults.
#[derive(Serialize)]
struct Stated<'a> {
    port: &'a str,
    direction: Direction,
    topic: &'a str,
    qos: &'a qos::Qos,
    stated: BTreeMap<&'static str, String>,
}

/// A mismatch between two ports, or a policy that the subscriber gave up.
#[derive(Serialize)]
struct Found<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    policy: &'static str,
    offered: String,
    requested: String,
    remedy: String,
    fallback: bool,
}

/// Offers and requests of all ports, and mismatches.
#[derive(Serialize)]
struct Policies<'a> {
    ports: Vec<Stated<'a>>,
    mismatches: Vec<Found<'a>>,
}

/// Shows all ports.
fn list_policies(participant: &Participant, nodes: &[Document]) -> Result {
    let ports: Vec<&PortInfo> = census::ports(nodes).iter().map(|port| port.info).collect();
    let of = |direction| ports.iter().copied().filter(move |port| port.direction == direction);
    let pairs = of(Direction::Publisher).flat_map(|p| of(Direction::Subscriber).map(move |s| (p, s)));
    let lists = Policies {
        ports: ports.iter().map(|port| stated(port)).collect(),
        mismatches: pairs.flat_map(found).collect(),
    };
    participant.output.result(&lists, || lists.text())
}

fn stated(port: &PortInfo) -> Stated<'_> {
    let PortInfo { name, direction, topic, qos, .. } = port;
    Stated { port: name, direction: *direction, topic, qos, stated: qos.stated().into_iter().collect() }
}

fn found<'a>((publisher, subscriber): (&'a PortInfo, &'a PortInfo)) -> Vec<Found<'a>> {
    let (found, fallback) = match compare(publisher, subscriber) {
        Match::Matched(given_up) => (given_up, true),
        Match::Mismatched(between) => (between, false),
        Match::NotSameTopic => return Vec::new(),
    };
    let named = |mismatch: Mismatch| {
        let Mismatch { policy, offered, requested, remedy } = mismatch;
        let (publisher, subscriber) = (&publisher.name[..], &subscriber.name[..]);
        let policy = policy.name();
        Found { publisher, subscriber, policy, offered, requested, remedy, fallback }
    };
    found.into_iter().map(named).collect()
}

impl Policies<'_> {
    fn text(&self) -> String {
        let port = |p: &Stated<'_>| {
            let policies: Vec<String> = p.stated.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let policies = if policies.is_empty() { "defaults".to_owned() } else { policies.join("; ") };
            vec![p.port.to_owned(), format!("{:?}", p.direction).to_lowercase(), p.topic.to_owned(), policies]
        };
        let headers = [("port", '<'), ("direction", '<'), ("topic", '<'), ("policies", '<')];
        let ports = section("ports", &headers, self.ports.iter().map(port).collect());
        let mismatch = |m: &Found<'_>| {
            let remedy = if m.fallback { "matched by fallback" } else { &m.remedy };
            [m.publisher, m.subscriber, m.policy, &m.offered, &m.requested, remedy].map(str::to_owned).to_vec()
        };
        let headers = [
            ("publisher", '<'),
            ("subscriber", '<'),
            ("policy", '<'),
            ("offered", '<'),
            ("requested", '<'),
            ("remedy", '<'),
        ];
        let mismatches = section("mismatches", &headers, self.mismatches.iter().map(mismatch).collect());
        format!("{ports}\n\n{mismatches}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg::codec::TypeDescription;
    use thalweg::control::{Foreign, NodeId};

    #[test]
    fn a_port_of_a_bridge_is_listed_with_the_end_that_it_is_for() {
        let mut info = PortInfo {
            name: "/bridge/chatter".into(),
            direction: Direction::Publisher,
            topic: "/chatter".into(),
            message: TypeDescription::opaque("String"),
            qos: qos::Qos::default(),
            carriers: Vec::new(),
            answers: None,
            pull: Default::default(),
            foreign: None,
        };
        let node = |info: &PortInfo| port_row(&Port { info, node: "bridge", node_id: NodeId(1) }).pop();
        assert_eq!(node(&info).as_deref(), Some("bridge"));
        info.foreign = Some(Foreign { engine: "ros2".into(), name: "/talker/chatter".into(), ..Foreign::default() });
        assert_eq!(node(&info).as_deref(), Some("bridge for ros2 /talker/chatter"));
    }
}
