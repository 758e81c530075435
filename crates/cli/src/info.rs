//! `thalweg info`: everything about a node, a port, a topic or a recording.

#[cfg(feature = "recording")]
mod recorded;

use crate::census::{self, Channel, Channels, Port, Topic};
use crate::failure::{Failure, Result};
use crate::list::{channel_table, port_table};
use crate::output::{bytes, table, tell};
use crate::participant::{Common, Participant};
use clap::Args;
use serde::Serialize;
use thalweg::admin::{MemoryReport, Reply, Request};
use thalweg::control::matching::absolute;
use thalweg::control::{Document, PortInfo};

/// Everything about a node, a port or a topic: type, QoS, addresses, channels with their counters; the contents of a recording
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg info /robot/imu --json\n         thalweg info run.mcap")]
pub(crate) struct Arguments {
    /// Name of a port or topic, or name or id of a node; or a recording: FILE.mcap, or DIRECTORY/
    #[arg(value_name = "/NAME|NODE|FILE.mcap")]
    what: String,
    #[command(flatten)]
    common: Common,
}

/// The object with a name.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Found<'a> {
    Port {
        #[serde(flatten)]
        port: &'a Port<'a>,
        addresses: &'a [std::net::SocketAddr],
        /// Bytes that may wait in each queue of it.
        queue_bytes: u64,
        channels: Vec<Channel>,
        /// Memory of its nodes.
        memory: Vec<NodeMemory>,
    },
    Topic {
        #[serde(flatten)]
        topic: Topic,
        ports: Vec<&'a Port<'a>>,
        channels: Vec<Channel>,
    },
    Node {
        nodes: Vec<&'a Document>,
        channels: Vec<Channel>,
        memory: Vec<NodeMemory>,
    },
}

/// Memory of a node for its channels.
#[derive(Serialize)]
struct NodeMemory {
    node: String,
    #[serde(flatten)]
    report: MemoryReport,
}

/// Looks up a name and shows all about it.
pub(crate) fn run(arguments: &Arguments) -> Result {
    #[cfg(feature = "recording")]
    if recorded::is_recording(&arguments.what) {
        return recorded::show(arguments.common.output(), std::path::Path::new(&arguments.what));
    }
    let mut participant = arguments.common.open("info")?;
    let nodes = participant.settled();
    let ports = census::ports(&nodes);
    let what = &arguments.what;
    let found =
        find(what, &nodes, &ports, &participant).or_else(|| find(&absolute(what), &nodes, &ports, &participant));
    let found = found.ok_or_else(|| unknown(what, &ports))?;
    participant.output.result(&found, || found.text())
}

fn find<'a>(what: &str, nodes: &'a [Document], ports: &'a [Port<'a>], participant: &Participant) -> Option<Found<'a>> {
    if let Some(port) = port_named(what, ports, participant) {
        let channels = asked(participant, nodes, |c| c.publisher == what || c.subscriber == what);
        let node = nodes.iter().find(|d| d.node == port.node_id);
        let (addresses, queue_bytes) = (node.map_or(&[][..], |d| &d.addresses), port.info.qos.queue_bytes());
        let memory = memory(participant, node);
        return Some(Found::Port { port, addresses, queue_bytes, channels, memory });
    }
    let named: Vec<&Document> = nodes.iter().filter(|d| d.name == what || d.node.to_string() == what).collect();
    if !named.is_empty() {
        let own = |name: &String| named.iter().any(|d| d.ports.values().any(|p| p.name == *name));
        let channels = asked(participant, nodes, |c| own(&c.publisher) || own(&c.subscriber));
        let memory = memory(participant, named.iter().copied());
        return Some(Found::Node { nodes: named, channels, memory });
    }
    let topic = census::topic(what, ports);
    if topic.publishers.is_empty() && !ports.iter().any(|p| p.info.topic == what) {
        return None;
    }
    let of_topic = |p: &&Port<'_>| topic.publishers.contains(&p.info.name) || topic.subscribers.contains(&p.info.name);
    let ports = ports.iter().filter(of_topic).collect();
    Some(Found::Topic { ports, channels: asked(participant, nodes, |c| c.topic == what), topic })
}

/// The port that lookups by name find, of several with one name; a message says which one it is.
fn port_named<'a>(name: &str, ports: &'a [Port<'a>], participant: &Participant) -> Option<&'a Port<'a>> {
    let named: Vec<&Port<'_>> = ports.iter().filter(|p| p.info.name == name).collect();
    if let [] | [_] = named[..] {
        return named.first().copied();
    }
    let holder = participant.node.holder(name).map(|(node, _)| node);
    let (its, others): (Vec<_>, Vec<_>) = named.iter().partition(|p| Some(p.node_id) == holder);
    let nodes = |ports: Vec<&Port<'_>>| -> Vec<String> {
        ports.into_iter().map(|p| format!("{} ({})", p.node, p.node_id)).collect()
    };
    let found = its.first().or(others.first()).copied();
    let [its, others] = [its, others].map(|ports| nodes(ports).join(", "));
    tell(&format!(
        "{} ports are called {name}: this one, of node {its}, is what the name finds; others are of {others}",
        named.len()
    ));
    found
}

/// Memory that these nodes report.
fn memory<'a>(participant: &Participant, nodes: impl IntoIterator<Item = &'a Document>) -> Vec<NodeMemory> {
    let ask = |node: &Document| match participant.node.ask(node.node, &Request::Memory, census::PATIENCE) {
        Ok(Reply::Memory(report)) => Some(NodeMemory { node: node.name.clone(), report }),
        _ => None,
    };
    nodes.into_iter().filter_map(ask).collect()
}

fn asked(participant: &Participant, nodes: &[Document], wanted: impl Fn(&Channel) -> bool) -> Vec<Channel> {
    let Channels { channels, silent } = census::channels(participant, nodes);
    if !silent.is_empty() {
        tell(&format!("no answer from {}: their channels may be missing", silent.join(", ")));
    }
    channels.into_iter().filter(wanted).collect()
}

fn unknown(what: &str, ports: &[Port<'_>]) -> Failure {
    let same = |name: &&str| name.trim_start_matches('/').eq_ignore_ascii_case(what.trim_start_matches('/'));
    let names = ports.iter().flat_map(|p| [&p.info.name[..], &p.info.topic[..]]);
    let hint = names.into_iter().find(same).map_or("see `thalweg list`".to_owned(), |name| format!("is it {name}?"));
    Failure::No(format!("no node, port or topic {what:?} is known; {hint}"))
}

impl Found<'_> {
    fn text(&self) -> String {
        match self {
            Found::Port { port, addresses, channels, memory, .. } => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                let node = format!("node         {} ({}) at {}", port.node, port.node_id, addresses.join(" "));
                let (port, held) = (port_text(port.info), memory_text(memory, channels));
                format!("{port}\n{node}\n\n{}\n\n{held}", channel_table(channels))
            }
            Found::Topic { topic, ports, channels } => {
                let types: Vec<&str> = topic.types.iter().map(String::as_str).collect();
                let head = format!("topic        {}\ntype         {}", topic.topic, types.join(" "));
                let owned: Vec<Port<'_>> = ports.iter().map(|p| Port { info: p.info, ..**p }).collect();
                format!("{head}\n\n{}\n\n{}", port_table(&owned), channel_table(channels))
            }
            Found::Node { nodes, channels, memory } => {
                let nodes: Vec<String> = nodes.iter().map(|node| node_text(node)).collect();
                let held = memory_text(memory, channels);
                format!("{}\n\n{}\n\n{held}", nodes.join("\n\n"), channel_table(channels))
            }
        }
    }
}

/// Memory used, and its limits: of nodes, of their peers, and of both ends of channels.
fn memory_text(nodes: &[NodeMemory], channels: &[Channel]) -> String {
    let row = |what: String, used: u64, limit: u64, refused: u64| {
        vec![what, bytes(used as f64), bytes(limit as f64), refused.to_string()]
    };
    let mut rows = Vec::new();
    for NodeMemory { node, report } in nodes {
        rows.push(row(format!("node {node}"), report.used, report.limit, report.refused));
        let histories = report.histories;
        if histories.used + histories.refused > 0 {
            rows.push(row("  for histories".to_owned(), histories.used, histories.limit, histories.refused));
        }
        let documents = report.documents;
        if documents.limit > 0 {
            // A node of an older version does not report them.
            rows.push(row("  documents of nodes".to_owned(), documents.used, documents.limit, documents.refused));
        }
        let peers = report.peers.iter();
        rows.extend(peers.map(|peer| row(format!("  for {}", peer.peer), peer.used, peer.limit, peer.refused)));
    }
    for channel in channels {
        let ends = [("queue", channel.queue), ("mailbox", channel.mailbox)];
        for (end, held) in ends.into_iter().filter_map(|(end, held)| held.map(|held| (end, held))) {
            let what = format!("{end} of {} → {}", channel.publisher, channel.subscriber);
            rows.push(row(what, held.bytes, held.most, held.over_bytes + held.over_memory));
        }
    }
    let held = table(&[("memory", '<'), ("held", '>'), ("at most", '>'), ("refused", '>')], &rows);
    nodes.iter().filter_map(left_out_text).fold(held, |text, line| format!("{text}\n\n{line}"))
}

/// Ends of another system that a bridge has no ports for.
fn left_out_text(NodeMemory { node, report }: &NodeMemory) -> Option<String> {
    let count = report.documents.left_out;
    (count > 0).then(|| {
        format!(
            "left out     {count} ends of another system, which have no port at {node}: its program says why on stderr"
        )
    })
}

fn port_text(info: &PortInfo) -> String {
    let qos = &info.qos;
    let direction = format!("{:?}", info.direction).to_lowercase();
    let structure = info.message.schema.as_ref().map(ToString::to_string);
    let foreign = info.foreign.as_ref().map(|end| ("foreign end", end.to_string()));
    let ros = info.message.ros.as_ref().map(|ros| ("ros 2 type", format!("{} ({})", ros.name, ros.type_hash)));
    let lines = [
        ("port", info.name.clone()),
        ("direction", direction),
        ("topic", info.topic.clone()),
        ("type", format!("{} ({:016x})", info.message.name, info.message.hash)),
        ("structure", structure.unwrap_or_else(|| "not known".to_owned())),
        ("reliability", qos.reliability.to_string()),
        ("queue", qos.queue.to_string()),
        ("class", format!("{:?} (DSCP {})", qos.class, qos.class.dscp()).to_lowercase()),
        ("queue bytes", bytes(qos.queue_bytes() as f64)),
        ("max message", bytes(f64::from(qos.max_message))),
        ("carriers", info.carriers.join(", ")),
    ];
    let shown = ["reliability", "queue", "class", "max-message", "bytes"];
    let stated = qos.stated().into_iter().filter(|(name, _)| !shown.contains(name));
    let lines = lines.into_iter().chain(ros).chain(foreign).chain(stated);
    lines.map(|(key, value)| format!("{key:<12} {value}")).collect::<Vec<_>>().join("\n")
}

fn node_text(node: &Document) -> String {
    let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
    let socket = node.socket.as_ref().map_or("none".to_owned(), |path| path.display().to_string());
    let lines = [
        ("node", node.name.clone()),
        ("id", node.node.to_string()),
        ("realm", node.realm.clone()),
        ("host", format!("{} ({})", node.host_name, node.host)),
        ("process", node.pid.to_string()),
        ("addresses", addresses.join(" ")),
        ("socket", socket),
        ("clock", node.clock.clone()),
    ];
    let ports = census::ports(std::slice::from_ref(node));
    format!("{}\n\n{}", lines.map(|(key, value)| format!("{key:<12} {value}")).join("\n"), port_table(&ports))
}
