//! A plan for a network with time-sensitive networking: the streams of a contract as OMG DDS-TSN 1.0 (beta, mars/22-12-06) describes them, in the form
//! that Eclipse Cyclone DDS reads. A network controller gets talkers, listeners, traffic and the latency that each needs (F-11).
//!
//! A stream is what one node publishes of one topic. Exported are those that a subscriber has a deadline for.

use qos::contract::Contract;
use qos::plan::{Channel, Plan};
use qos::system::Topic;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A description of streams for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    /// OMG DDS-TSN 1.0 beta: XML
    DdsTsn,
}

/// Longest latency that can be stated, ns (IEEE 802.1Qcc-2018, 46.2.3.6.2: 32 bits).
const LONGEST: f64 = u32::MAX as f64;

/// The plan in this form.
pub(crate) fn text(form: Form, contract: &Contract, plan: &Plan) -> String {
    match form {
        Form::DdsTsn => document(&Streams::of(contract, plan)),
    }
}

/// A talker, with its listeners.
struct Stream<'a> {
    topic: &'a Topic,
    name: String,
    talker: &'a str,
    /// IEEE 802.1Q priority: the class selector of its code point (RFC 2474 §4.2.2).
    priority: u8,
    /// Samples that leave together besides those that come at once.
    gathered: u64,
    listeners: Vec<Listener<'a>>,
}

struct Listener<'a> {
    name: String,
    node: &'a str,
    /// Longest time in the network, ns.
    latency: u32,
}

struct Streams<'a> {
    /// The identifier of each node, and those of topics.
    nodes: BTreeMap<&'a str, String>,
    topics: BTreeMap<&'a str, String>,
    streams: Vec<Stream<'a>>,
}

impl<'a> Streams<'a> {
    fn of(contract: &'a Contract, plan: &'a Plan) -> Self {
        let mut names = Names::default();
        let mut streams: BTreeMap<(&str, &str), Stream<'_>> = BTreeMap::new();
        let (mut nodes, mut topics) = (BTreeMap::new(), BTreeMap::new());
        for channel in plan.channels.iter().filter(|channel| !channel.pipe && !channel.route.is_empty()) {
            let (Some(latency), Some(topic)) = (in_network(channel), topic(contract, channel)) else { continue };
            for node in [&channel.publisher, &channel.node] {
                nodes.entry(node.as_str()).or_insert_with(|| names.identifier(node));
            }
            topics.entry(topic.name.as_str()).or_insert_with(|| names.identifier(&topic.name));
            let stream = streams.entry((&topic.name, &channel.publisher)).or_insert_with(|| Stream {
                topic,
                name: names.identifier(&format!("{}_from_{}", topic.name, channel.publisher)),
                talker: &channel.publisher,
                priority: 0,
                gathered: 0,
                listeners: Vec::new(),
            });
            stream.priority = stream.priority.max(channel.dscp >> 3);
            let gathered = channel.batch.unwrap_or(0).saturating_sub(topic.burst.into());
            stream.gathered = stream.gathered.max(gathered);
            let name = names.identifier(&channel.subscriber);
            stream.listeners.push(Listener { name, node: &channel.node, latency });
        }
        Self { nodes, topics, streams: streams.into_values().collect() }
    }
}

fn topic<'a>(contract: &'a Contract, channel: &Channel) -> Option<&'a Topic> {
    contract.system.topics.iter().find(|topic| topic.name == channel.topic)
}

/// The part of a channel's deadline that is left for the network, ns: without the time at both ends. `None`: it has no deadline, or one too long to be
/// stated.
fn in_network(channel: &Channel) -> Option<u32> {
    let on_link = |name: &str| channel.route.iter().any(|hop| name.starts_with(&format!("{hop}: ")));
    let ends: f64 = channel.terms.iter().filter(|(name, _)| !on_link(name)).map(|(_, us)| us).sum();
    let left = ((channel.deadline_us? - ends) * 1e3).floor();
    (1.0..=LONGEST).contains(&left).then_some(left as u32)
}

/// Identifiers as DDS-XML has them: letters, digits and `_`, each once.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn identifier(&mut self, name: &str) -> String {
        let plain: String =
            name.trim_start_matches('/').chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let plain = match plain.starts_with(|c: char| c.is_ascii_alphabetic()) {
            true => plain,
            false => format!("n_{plain}"),
        };
        let each = std::iter::once(plain.clone()).chain((2..).map(|n| format!("{plain}_{n}")));
        let mut free = each.filter(|name| !self.0.contains(name));
        let found = free.next().unwrap_or(plain);
        self.0.insert(found.clone());
        found
    }
}

fn document(all: &Streams<'_>) -> String {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<dds xmlns=\"http://www.omg.org/spec/DDS-XML\">\n  <types>\n",
    );
    let mut line = |depth: usize, words: String| {
        let _ = writeln!(text, "{:1$}{words}", "", 2 * depth);
    };
    let topics: Vec<&String> = all.topics.values().collect();
    for topic in &topics {
        line(2, format!("<external_type_ref name=\"{topic}_type\"/>"));
    }
    line(1, "</types>".into());
    line(1, "<domain_library name=\"domains\">".into());
    line(2, "<domain name=\"domain\" domain_id=\"0\">".into());
    for topic in &topics {
        line(3, format!("<register_type name=\"{topic}_type\" type_ref=\"{topic}_type\"/>"));
        line(3, format!("<topic name=\"{topic}\" register_type_ref=\"{topic}_type\"/>"));
    }
    line(2, "</domain>".into());
    line(1, "</domain_library>".into());
    line(1, "<application_library name=\"applications\">".into());
    for (node, name) in &all.nodes {
        application(all, node, name, &mut line);
    }
    line(1, "</application_library>".into());
    line(1, "<node_library name=\"nodes\">".into());
    for name in all.nodes.values() {
        line(2, format!("<node name=\"{name}\"/>"));
    }
    line(1, "</node_library>".into());
    line(1, "<deployment_library name=\"deployments\">".into());
    for (node, name) in &all.nodes {
        deployment(all, node, name, &mut line);
    }
    line(1, "</deployment_library>".into());
    text + "</dds>\n"
}

/// Writers and readers of one node.
fn application(all: &Streams<'_>, node: &str, name: &str, line: &mut impl FnMut(usize, String)) {
    line(2, format!("<application name=\"{name}\">"));
    line(3, "<domain_participant name=\"participant\" domain_ref=\"domains::domain\">".into());
    let talks: Vec<&Stream<'_>> = all.streams.iter().filter(|stream| stream.talker == node).collect();
    if !talks.is_empty() {
        line(4, "<publisher name=\"publisher\">".into());
        for stream in talks {
            let topic = &all.topics[stream.topic.name.as_str()];
            line(5, format!("<data_writer name=\"{}\" topic_ref=\"{topic}\"/>", stream.name));
        }
        line(4, "</publisher>".into());
    }
    let listens: Vec<(&Stream<'_>, &Listener<'_>)> = listeners(all, node).collect();
    if !listens.is_empty() {
        line(4, "<subscriber name=\"subscriber\">".into());
        for (stream, listener) in listens {
            let topic = &all.topics[stream.topic.name.as_str()];
            line(5, format!("<data_reader name=\"{}\" topic_ref=\"{topic}\"/>", listener.name));
        }
        line(4, "</subscriber>".into());
    }
    line(3, "</domain_participant>".into());
    line(2, "</application>".into());
}

fn listeners<'a>(all: &'a Streams<'_>, node: &'a str) -> impl Iterator<Item = (&'a Stream<'a>, &'a Listener<'a>)> {
    let of = |stream: &'a Stream<'_>| stream.listeners.iter().map(move |listener| (stream, listener));
    all.streams.iter().flat_map(of).filter(move |(_, listener)| listener.node == node)
}

/// Talkers and listeners of one node.
fn deployment(all: &Streams<'_>, node: &str, name: &str, line: &mut impl FnMut(usize, String)) {
    let of = |kind: &str, end: &str| format!("applications::{name}::participant::{kind}::{end}");
    line(2, format!("<deployment name=\"{name}\">"));
    line(3, format!("<node node_ref=\"nodes::{name}\"/>"));
    line(3, format!("<application_list><application application_ref=\"applications::{name}\"/></application_list>"));
    line(3, "<configuration><tsn>".into());
    for stream in all.streams.iter().filter(|stream| stream.talker == node) {
        let Stream { topic, name, priority, gathered, listeners, .. } = stream;
        let least = listeners.iter().map(|listener| listener.latency).min().unwrap_or(0);
        line(
            4,
            format!("<tsn_talker name=\"{name}\" stream_name=\"{name}\" datawriter_ref=\"{}\">", of("publisher", name)),
        );
        // Of VLAN 0: the tag carries the priority alone (IEEE 802.1Q-2018, 9.6).
        line(5, "<data_frame_specification>".into());
        line(
            6,
            format!("<vlan_tag><priority_code_point>{priority}</priority_code_point><vlan_id>0</vlan_id></vlan_tag>"),
        );
        line(5, "</data_frame_specification>".into());
        line(5, "<traffic_specification>".into());
        let [sec, nanosec] = [topic.period / 1_000_000_000, topic.period % 1_000_000_000];
        line(6, format!("<periodicity><sec>{sec}</sec><nanosec>{nanosec}</nanosec></periodicity>"));
        line(6, format!("<samples_per_period>{}</samples_per_period>", at_once(topic) + gathered));
        line(6, format!("<max_bytes_per_sample>{}</max_bytes_per_sample>", topic.size));
        line(6, "<transmission_selection>STRICT_PRIORITY</transmission_selection>".into());
        line(5, "</traffic_specification>".into());
        line(5, requirements(least));
        line(4, "</tsn_talker>".into());
    }
    for (stream, listener) in listeners(all, node) {
        let (name, reader) = (&listener.name, of("subscriber", &listener.name));
        let stream = &stream.name;
        line(4, format!("<tsn_listener name=\"{name}\" stream_name=\"{stream}\" datareader_ref=\"{reader}\">"));
        line(5, requirements(listener.latency));
        line(4, "</tsn_listener>".into());
    }
    line(3, "</tsn></configuration>".into());
    line(2, "</deployment>".into());
}

fn requirements(latency: u32) -> String {
    format!(
        "<network_requirements><num_seamless_trees>1</num_seamless_trees><max_latency>{latency}</max_latency></network_requirements>"
    )
}

/// The most samples that a period can have, by burst and jitter.
fn at_once(topic: &Topic) -> u64 {
    u64::from(topic.burst) + topic.jitter.div_ceil(topic.period.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Clock;
    use qos::plan::{Model, make};

    const CONTRACT: &str = r#"
[[node]]
name = "arm"
[[node]]
name = "1st-floor"
[[link]]
name = "lan"
between = ["arm", "1st-floor"]
rate = "100 Mbit/s"
scheduler = "strict"
[[topic]]
name = "/state"
size = "100 B"
rate = "1 kHz"
jitter = "100 us"
publisher = "arm"
class = "critical"
[[subscriber]]
topic = "/state"
node = "1st-floor"
deadline = "5 ms"
cpu_receive = "200 us"
[[subscriber]]
topic = "/state"
node = "1st-floor"
deadline = "2 ms"
[[topic]]
name = "log"
size = "1 kB"
rate = "1 Hz"
publisher = "1st-floor"
[[subscriber]]
topic = "log"
node = "arm"
"#;

    /// The value between two texts.
    fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
        let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}")).1;
        rest.split_once(after).unwrap().0
    }

    #[test]
    fn a_stream_has_a_talker_and_its_listeners_with_what_is_left_of_their_deadlines() {
        let contract = Contract::read(CONTRACT).unwrap();
        let plan = make(&contract, Model::Bound, &mut Clock::new());
        assert!(plan.feasible, "{:?}", plan.refusals);
        let text = text(Form::DdsTsn, &contract, &plan);
        let talker = between(&text, "<tsn_talker name=\"state_from_arm\"", "</tsn_talker>");
        assert!(
            talker.contains("datawriter_ref=\"applications::arm::participant::publisher::state_from_arm\""),
            "{talker}"
        );
        assert!(talker.contains("<periodicity><sec>0</sec><nanosec>1000000</nanosec></periodicity>"), "{talker}");
        assert_eq!(between(talker, "<samples_per_period>", "<"), "2", "one, and one that was late");
        assert_eq!(between(talker, "<max_bytes_per_sample>", "<"), "100");
        assert_eq!(between(talker, "<priority_code_point>", "<"), "5", "of DSCP VA, 44");
        assert_eq!(between(talker, "<max_latency>", "<"), "2000000");
        // A name that is no identifier, and a second port of the same name.
        let first = between(&text, "<tsn_listener name=\"state_1st_floor\"", "</tsn_listener>");
        let second = between(&text, "<tsn_listener name=\"state_1st_floor_2\"", "</tsn_listener>");
        assert!(
            first.contains("datareader_ref=\"applications::n_1st_floor::participant::subscriber::state_1st_floor\""),
            "{first}"
        );
        assert_eq!(between(first, "<max_latency>", "<"), "4800000", "without the time of its callback");
        assert_eq!(between(second, "<max_latency>", "<"), "2000000");
        assert!(!text.contains("log"), "without a deadline there is no stream");
        // What is referred to is there.
        for name in text.split("topic_ref=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(text.contains(&format!("<topic name=\"{name}\" ")), "{name}");
        }
        let opened = text.matches('<').count() - 2 * text.matches("</").count() - text.matches("/>").count() - 1;
        assert_eq!(opened, 0, "each element is closed:\n{text}");
    }

    #[test]
    fn identifiers_differ() {
        let mut names = Names::default();
        let all = ["/a/b", "a_b", "a b", "7", "", "ä"].map(|name| names.identifier(name));
        assert_eq!(all, ["a_b", "a_b_2", "a_b_3", "n_7", "n_", "n__"]);
    }
}
