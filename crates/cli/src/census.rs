//! Nodes, ports, topics and channels, gathered from all nodes.

use crate::participant::Participant;
use linux::probe::Tree;
use linux::probe::process::{self, State};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use thalweg::ChannelReport;
use thalweg::admin::{Reply, Request};
use thalweg::carrier;
use thalweg::control::matching::{is_pattern, topic_matches};
use thalweg::control::silent_processes;
use thalweg::control::{Direction, Document, NodeId, PortInfo};
use thalweg::proxy::Proxied;
use thalweg::stages::End;

/// A node that does not answer within this time is reported as silent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Nodes asked at the same time.
const AT_ONCE: usize = 16;

/// A port with its node.
#[derive(Serialize)]
pub(crate) struct Port<'a> {
    /// Name of its node.
    pub node: &'a str,
    /// Id of its node.
    pub node_id: NodeId,
    /// The node's information about the port.
    #[serde(flatten)]
    pub info: &'a PortInfo,
}

/// A topic with its ports.
#[derive(Serialize)]
pub(crate) struct Topic {
    /// Its name.
    pub topic: String,
    /// Type names of its publishers (of its subscribers if it has no publisher).
    #[serde(rename = "type")]
    pub types: BTreeSet<String>,
    /// Ports that publish it.
    pub publishers: Vec<String>,
    /// Ports that subscribe to it, also by a pattern.
    pub subscribers: Vec<String>,
}

/// A channel as both ends report it; what an end did not report is absent.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Channel {
    /// The topic.
    pub topic: String,
    /// The publishing port.
    pub publisher: String,
    /// The subscribing port.
    pub subscriber: String,
    /// The carrier.
    pub carrier: carrier::Name,
    /// Samples that were sent or queued.
    pub sent: Option<u64>,
    /// Samples that the publisher's end dropped.
    pub dropped: Option<u64>,
    /// Samples that were delivered.
    pub received: Option<u64>,
    /// Their payload bytes; those sent, if the receiving end did not report.
    pub bytes: u64,
    /// Samples that were lost on the way.
    pub lost: Option<u64>,
    /// Samples waiting at either end.
    pub waiting: u64,
    /// Datagrams that arrived and were no frame of this channel.
    #[serde(rename = "strange")]
    pub malformed: u64,
    /// Datagrams that the publisher retransmitted, on a reliable flow.
    pub repaired: u64,
    /// Samples that the subscriber gave up, on a reliable flow.
    pub skipped: u64,
    /// Samples in the publisher's queue that are not acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Held>,
    /// Samples that wait at the subscriber, from all its channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailbox: Option<Held>,
    /// Scale of the stream, and its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxied: Option<Proxied>,
    /// The relay's port that takes the samples from the publisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
}

impl Channel {
    /// A channel that has sent three samples.
    #[cfg(test)]
    pub(crate) fn sent_of_test(topic: &str, publisher: &str, subscriber: &str) -> Self {
        let report = serde_json::json!({
            "topic": topic, "publisher": publisher, "subscriber": subscriber, "carrier": "tcp", "end": "publisher",
            "samples": 3, "bytes": 24, "lost": 0, "waiting": 0, "strange": 0,
        });
        join(vec![serde_json::from_value(report).unwrap()]).remove(0)
    }
}

/// Bytes that wait at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Held {
    /// Bytes.
    pub bytes: u64,
    /// Bytes that may wait.
    pub most: u64,
    /// Samples that met this limit.
    pub over_bytes: u64,
    /// Samples that met the limit of the peer or of the node.
    pub over_memory: u64,
}

/// All channels, and the nodes that did not answer.
pub(crate) struct Channels {
    /// Sorted by topic, publisher and subscriber.
    pub channels: Vec<Channel>,
    /// Names of nodes that did not answer in time.
    pub silent: Vec<String>,
}

/// The ports of `nodes`, sorted by name.
pub(crate) fn ports<'a>(nodes: &'a [Document]) -> Vec<Port<'a>> {
    let of = |node: &'a Document| move |info| Port { node: &node.name, node_id: node.node, info };
    let mut ports: Vec<Port<'a>> = nodes.iter().flat_map(|node| node.ports.values().map(of(node))).collect();
    ports.sort_by(|a, b| a.info.name.cmp(&b.info.name));
    ports
}

/// The topics of `ports`, sorted by name.
pub(crate) fn topics(ports: &[Port<'_>]) -> Vec<Topic> {
    let names: BTreeSet<&str> = ports.iter().map(|p| &p.info.topic[..]).filter(|t| !is_pattern(t)).collect();
    names.into_iter().map(|name| topic(name, ports)).collect()
}

/// One topic of `ports`.
pub(crate) fn topic(name: &str, ports: &[Port<'_>]) -> Topic {
    let of = |direction| {
        let fits = move |p: &&Port<'_>| p.info.direction == direction && topic_matches(&p.info.topic, name);
        ports.iter().filter(fits).map(|p| p.info).collect::<Vec<_>>()
    };
    let (publishers, subscribers) = (of(Direction::Publisher), of(Direction::Subscriber));
    let typed = if publishers.is_empty() { &subscribers } else { &publishers };
    let types = typed.iter().map(|p| p.message.name.clone()).collect();
    let names = |ports: &[&PortInfo]| ports.iter().map(|p| p.name.clone()).collect();
    Topic { topic: name.to_owned(), types, publishers: names(&publishers), subscribers: names(&subscribers) }
}

/// Asks all `nodes` for their channels.
pub(crate) fn channels(participant: &Participant, nodes: &[Document]) -> Channels {
    let mut reports = Vec::new();
    let mut silent = Vec::new();
    for (node, answer) in ask_all(participant, nodes, &Request::Channels) {
        match answer {
            Some(Reply::Channels(channels)) => reports.extend(channels),
            _ => silent.push(node.name.clone()),
        }
    }
    Channels { channels: join(reports), silent }
}

/// Asks all `nodes` the same; `None`: no answer in time, or a refusal.
pub(crate) fn ask_all<'a>(
    participant: &Participant,
    nodes: &'a [Document],
    request: &Request,
) -> Vec<(&'a Document, Option<Reply>)> {
    ask_each(participant, nodes, |_| request.clone())
}

/// Asks each of `nodes` its own request; `None`: no answer in time, or a refusal.
pub(crate) fn ask_each<'a>(
    participant: &Participant,
    nodes: &'a [Document],
    request: impl Fn(NodeId) -> Request + Sync,
) -> Vec<(&'a Document, Option<Reply>)> {
    let ask = |node: &Document| participant.node.ask(node.node, &request(node.node), PATIENCE).ok();
    let mut answers = Vec::with_capacity(nodes.len());
    for some in nodes.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|node| (node, scope.spawn(move || ask(node)))).collect();
            answers.extend(asked.into_iter().map(|(node, answer)| (node, answer.join().ok().flatten())));
        });
    }
    answers
}

/// Stopped processes of this host with a node of this realm; such a node sends no document.
pub(crate) fn stopped(realm: &str, nodes: &[Document], own: NodeId) -> Vec<u32> {
    let known: Vec<NodeId> = nodes.iter().map(|node| node.node).chain([own]).collect();
    let silent = silent_processes(realm, &known);
    silent.into_iter().filter(|pid| process::state(&Tree::host(), *pid) == State::Stopped).collect()
}

/// Joins the reports of both ends of each channel.
fn join(reports: Vec<ChannelReport>) -> Vec<Channel> {
    let mut channels: BTreeMap<(String, String, String), Channel> = BTreeMap::new();
    for report in reports {
        let lost = report.lost_on_the_way();
        let key = (report.topic.clone(), report.publisher.clone(), report.subscriber.clone());
        let channel = channels.entry(key).or_insert_with(|| Channel {
            topic: report.topic,
            publisher: report.publisher,
            subscriber: report.subscriber,
            carrier: report.carrier,
            sent: None,
            dropped: None,
            received: None,
            bytes: 0,
            lost: None,
            waiting: 0,
            malformed: 0,
            repaired: 0,
            skipped: 0,
            queue: None,
            mailbox: None,
            proxied: None,
            over: None,
        });
        let ChannelReport { waiting_bytes: bytes, most_bytes: most, over_bytes, over_memory, .. } = report;
        let held = (most > 0).then_some(Held { bytes, most, over_bytes, over_memory });
        channel.proxied = channel.proxied.take().or(report.proxied);
        channel.over = channel.over.take().or(report.over);
        channel.waiting += report.waiting;
        channel.malformed += report.malformed;
        if report.end == End::Publisher {
            (channel.sent, channel.dropped) = (Some(report.samples), Some(report.lost));
            channel.queue = held;
            channel.repaired = report.repaired;
            channel.bytes = if channel.received.is_some() { channel.bytes } else { report.bytes };
        } else {
            (channel.received, channel.bytes) = (Some(report.samples), report.bytes);
            channel.lost = Some(lost);
            channel.mailbox = held;
            channel.skipped = report.skipped;
        }
    }
    channels.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(end: &str, samples: u64, lost: u64) -> ChannelReport {
        let bytes = samples * 8;
        let report = serde_json::json!({
            "topic": "/a", "publisher": "/out", "subscriber": "/in", "carrier": "tcp", "end": end,
            "samples": samples, "bytes": bytes, "lost": lost, "waiting": 1, "strange": 3,
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn the_two_ends_of_a_channel_become_one_row() {
        for order in [["publisher", "subscriber"], ["subscriber", "publisher"]] {
            let reports = order.map(|end| if end == "publisher" { report(end, 10, 1) } else { report(end, 8, 2) });
            let [channel] = &join(reports.to_vec())[..] else { panic!("one channel") };
            assert_eq!((channel.sent, channel.dropped), (Some(10), Some(1)));
            assert_eq!((channel.received, channel.lost, channel.bytes, channel.waiting), (Some(8), Some(2), 64, 2));
        }
        assert_eq!(join(vec![report("publisher", 3, 0)])[0].received, None);
        let shm = |end| ChannelReport { carrier: "shm".into(), ..report(end, 3, 2) };
        let ring = join(vec![shm("publisher"), shm("subscriber")]);
        assert_eq!((ring[0].dropped, ring[0].lost), (Some(2), Some(0)), "what is dropped in the ring counts once");
        let over = |over: Option<&str>| ChannelReport { over: over.map(str::to_owned), ..report("publisher", 3, 0) };
        let relayed = join(vec![over(Some("/gate/proxy7")), report("subscriber", 3, 0)]);
        assert_eq!(relayed[0].over.as_deref(), Some("/gate/proxy7"));
    }
}
