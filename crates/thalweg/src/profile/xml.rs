//! Profiles in DDS's XML (OMG DDS-XML 1.0): `dds` / `qos_library` / `qos_profile` / `datawriter_qos`, `datareader_qos`, with
//! `topic_filter`, `base_name` and `is_default_qos`.
//!
//! Entities are not expanded and a document type is refused, so that a small file stays small.

use super::{Entry, ProfileError};
use crate::control::Direction;
use qos::Qos;
use roxmltree::{Document, Node, ParsingOptions};
use std::path::Path;
use std::time::Duration;

/// Most elements of a file, and profiles that are based on one another.
const MOST_NODES: u32 = 100_000;
const DEEPEST_BASE: usize = 8;
/// Samples kept by a KEEP_ALL history without a limit.
const KEEP_ALL: u32 = 4096;

/// A problem at a place of the file, in bytes.
type Wrong = (usize, String);

/// The profile read, and the elements that have no meaning here.
pub(super) struct Read {
    pub entries: Vec<Entry>,
    pub ignored: Vec<String>,
}

/// Reads a file's text.
pub(super) fn parse(file: &Path, text: &str) -> Result<Read, ProfileError> {
    let error = |line: Option<usize>, problem: String| ProfileError { file: file.to_owned(), line, problem };
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|wrong| error(Some(wrong.pos().row as usize), format!("no XML that is read here: {wrong}")))?;
    let row = |at: usize| document.text_pos_at(at).row as usize;
    let mut found = Read { entries: Vec::new(), ignored: Vec::new() };
    let chosen = choose(&document).map_err(|(at, problem)| error(Some(row(at)), problem))?;
    let mut ignored = Vec::new();
    read_profile(&document, chosen, 0, &mut found.entries, &mut ignored)
        .map_err(|(at, problem)| error(Some(row(at)), problem))?;
    found.ignored = ignored.into_iter().map(|(at, what)| format!("{}:{}: {what}", file.display(), row(at))).collect();
    Ok(found)
}

fn profiles<'a, 'i>(document: &'a Document<'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    document.descendants().filter(|node| node.has_tag_name("qos_profile"))
}

/// The only profile, or the one that is marked as the default.
fn choose<'a, 'i>(document: &'a Document<'i>) -> Result<Node<'a, 'i>, Wrong> {
    let all: Vec<Node<'a, 'i>> = profiles(document).collect();
    let default = |node: &&Node<'a, 'i>| matches!(node.attribute("is_default_qos"), Some("true" | "1"));
    match (all.as_slice(), all.iter().find(default)) {
        ([], _) => Err((0, "no qos_profile within dds and qos_library".to_owned())),
        (_, Some(default)) => Ok(*default),
        ([only], _) => Ok(*only),
        ([first, ..], None) => {
            let names: Vec<&str> = all.iter().filter_map(|node| node.attribute("name")).take(16).collect();
            let problem = format!("several profiles ({}): mark one with is_default_qos=\"true\"", names.join(", "));
            Err((first.range().start, problem))
        }
    }
}

fn read_profile(
    document: &Document<'_>,
    profile: Node<'_, '_>,
    depth: usize,
    entries: &mut Vec<Entry>,
    ignored: &mut Vec<Wrong>,
) -> Result<(), Wrong> {
    let at = profile.range().start;
    if let Some(base) = profile.attribute("base_name") {
        let name = base.rsplit("::").next().unwrap_or(base);
        let found = profiles(document).find(|node| node.attribute("name") == Some(name));
        let base = found.ok_or_else(|| (at, format!("base_name {base:?}: no profile of this file")))?;
        if depth == DEEPEST_BASE {
            return Err((at, format!("base_name {name:?}: more than {DEEPEST_BASE} profiles based on one another")));
        }
        read_profile(document, base, depth + 1, entries, ignored)?;
    }
    for part in profile.children().filter(Node::is_element) {
        let direction = match part.tag_name().name() {
            "datawriter_qos" | "publisher_qos" => Some(Direction::Publisher),
            "datareader_qos" | "subscriber_qos" => Some(Direction::Subscriber),
            "topic_qos" => None,
            other => {
                ignored.push((part.range().start, other.to_owned()));
                continue;
            }
        };
        let mut entry =
            Entry { direction, topic_filter: part.attribute("topic_filter").map(str::to_owned), ..Entry::default() };
        read_policies(part, &mut entry, ignored)?;
        entries.push(entry);
    }
    Ok(())
}

fn read_policies(part: Node<'_, '_>, entry: &mut Entry, ignored: &mut Vec<Wrong>) -> Result<(), Wrong> {
    for policy in part.children().filter(Node::is_element) {
        let at = policy.range().start;
        let name = policy.tag_name().name();
        if name == "transport_priority" {
            let value = text(policy, "value").unwrap_or("0");
            entry
                .changes
                .add(&format!("dscp={value}"))
                .map_err(|wrong| (at, format!("transport_priority: {wrong}")))?;
            continue;
        }
        let Some(settings) = settings(policy).map_err(|problem| (at, format!("{name}: {problem}")))? else {
            ignored.push((at, name.to_owned()));
            continue;
        };
        for (policy, value) in settings {
            Qos::default().set(policy, &value).map_err(|wrong| (at, format!("{name}: {wrong}")))?;
            entry.policies.push((policy.to_owned(), value));
        }
    }
    Ok(())
}

/// A policy of DDS as policies here; `None`: it has no meaning here.
fn settings(policy: Node<'_, '_>) -> Result<Option<Vec<(&'static str, String)>>, String> {
    let one = |name, value: Result<String, String>| value.map(|value| Some(vec![(name, value)]));
    match policy.tag_name().name() {
        "reliability" => one("reliability", kind(policy, "RELIABILITY")),
        "durability" => one("durability", kind(policy, "DURABILITY")),
        "destination_order" => one("destination-order", order(policy)),
        "ownership" => one("ownership", kind(policy, "OWNERSHIP")),
        "ownership_strength" => one("strength", Ok(text(policy, "value").unwrap_or("0").to_owned())),
        "deadline" => one("deadline", time(policy, "period")),
        "latency_budget" => one("latency-budget", time(policy, "duration")),
        "lifespan" => one("lifespan", time(policy, "duration")),
        "time_based_filter" => one("separation", time(policy, "minimum_separation")),
        "partition" => one("partition", Ok(names(policy))),
        "liveliness" => liveliness(policy).map(Some),
        "history" => history(policy).map(Some),
        "resource_limits" => Ok(Some(limits(policy))),
        _ => Ok(None),
    }
}

/// The text of a child.
fn text<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.has_tag_name(name)).and_then(|child| child.text()).map(str::trim)
}

/// `RELIABLE_RELIABILITY_QOS` of `RELIABILITY` is `reliable`.
fn kind(policy: Node<'_, '_>, of: &str) -> Result<String, String> {
    let kind = text(policy, "kind").ok_or("expected a kind")?;
    let bare = kind.strip_suffix("_QOS").unwrap_or(kind);
    let bare = bare.strip_suffix(of).map_or(bare, |rest| rest.trim_end_matches('_'));
    Ok(bare.to_ascii_lowercase().replace('_', "-"))
}

fn order(policy: Node<'_, '_>) -> Result<String, String> {
    let kind = kind(policy, "DESTINATIONORDER")?;
    Ok(kind.replace("-reception-timestamp", "-reception").replace("-source-timestamp", "-source"))
}

fn liveliness(policy: Node<'_, '_>) -> Result<Vec<(&'static str, String)>, String> {
    let kind = match kind(policy, "LIVELINESS")?.as_str() {
        "manual-by-participant" => "by-node".to_owned(),
        "manual-by-topic" => "by-port".to_owned(),
        other => other.to_owned(),
    };
    Ok(vec![("liveliness", kind), ("lease", time(policy, "lease_duration")?)])
}

fn history(policy: Node<'_, '_>) -> Result<Vec<(&'static str, String)>, String> {
    let depth = text(policy, "depth").unwrap_or("1").to_owned();
    match kind(policy, "HISTORY")?.as_str() {
        "keep-last" => Ok(vec![("queue", format!("keep-last {depth}")), ("history", depth)]),
        "keep-all" => Ok(vec![("queue", format!("keep-all {KEEP_ALL}")), ("history", KEEP_ALL.to_string())]),
        other => Err(format!("kind {other:?}: allowed is KEEP_LAST_HISTORY_QOS or KEEP_ALL_HISTORY_QOS")),
    }
}

fn limits(policy: Node<'_, '_>) -> Vec<(&'static str, String)> {
    let named = [
        ("samples", "max_samples"),
        ("instances", "max_instances"),
        ("samples-per-instance", "max_samples_per_instance"),
    ];
    let value = |name| text(policy, name).map(|text| if is_unlimited(text) { "none" } else { text }.to_owned());
    named.into_iter().filter_map(|(ours, theirs)| Some((ours, value(theirs)?))).collect()
}

fn is_unlimited(text: &str) -> bool {
    matches!(text, "LENGTH_UNLIMITED" | "-1")
}

/// A duration of seconds and nanoseconds; none where it has no end.
fn time(policy: Node<'_, '_>, name: &str) -> Result<String, String> {
    let Some(duration) = policy.children().find(|child| child.has_tag_name(name)) else { return Ok("none".to_owned()) };
    let parts = [text(duration, "sec"), text(duration, "nanosec").or_else(|| text(duration, "nsec"))];
    if parts.iter().flatten().any(|part| part.starts_with("DURATION_INFINIT")) {
        return Ok("none".to_owned());
    }
    let number = |part: Option<&str>| match part {
        None | Some("DURATION_ZERO_SEC" | "DURATION_ZERO_NSEC") => Ok(0),
        Some(text) => text.parse().map_err(|_| format!("{text:?} is no number of {name}")),
    };
    let [seconds, nanoseconds] = parts;
    let duration = Duration::from_secs(number(seconds)?).checked_add(Duration::from_nanos(number(nanoseconds)?));
    duration.map(|duration| format!("{duration:?}")).ok_or_else(|| format!("{name} is too long"))
}

fn names(policy: Node<'_, '_>) -> String {
    let elements = policy.descendants().filter(|node| node.has_tag_name("element"));
    let names: Vec<&str> = elements.filter_map(|element| element.text()).map(str::trim).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    const ROBOT: &str = r#"<?xml version="1.0"?>
<dds xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <qos_library name="Robot">
    <qos_profile name="Base">
      <datawriter_qos>
        <reliability><kind>BEST_EFFORT_RELIABILITY_QOS</kind></reliability>
        <transport_priority><value>46</value></transport_priority>
      </datawriter_qos>
    </qos_profile>
    <qos_profile name="Arm" base_name="Robot::Base" is_default_qos="true">
      <datawriter_qos topic_filter="arm*">
        <deadline><period><sec>0</sec><nanosec>20000000</nanosec></period></deadline>
        <liveliness>
          <kind>MANUAL_BY_TOPIC_LIVELINESS_QOS</kind>
          <lease_duration><sec>1</sec><nanosec>500000000</nanosec></lease_duration>
        </liveliness>
        <ownership><kind>EXCLUSIVE_OWNERSHIP_QOS</kind></ownership>
        <ownership_strength><value>7</value></ownership_strength>
        <history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>4</depth></history>
        <durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>
      </datawriter_qos>
      <datareader_qos>
        <time_based_filter><minimum_separation><sec>0</sec><nanosec>5</nanosec></minimum_separation></time_based_filter>
        <destination_order><kind>BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS</kind></destination_order>
        <resource_limits><max_samples>LENGTH_UNLIMITED</max_samples><max_instances>9</max_instances></resource_limits>
        <lifespan><duration><sec>DURATION_INFINITE_SEC</sec></duration></lifespan>
        <user_data><value>1</value></user_data>
      </datareader_qos>
      <publisher_qos><partition><name><element>left</element><element>r*</element></name></partition></publisher_qos>
      <participant_qos/>
    </qos_profile>
  </qos_library>
</dds>"#;

    fn stated(profile: &Profile, direction: Direction, topic: &str) -> Vec<String> {
        let mut qos = Qos::default();
        profile.policies("/x", topic, direction, &mut qos);
        qos.stated().into_iter().map(|(name, value)| format!("{name} {value}")).collect()
    }

    fn read(text: &str) -> Result<Profile, String> {
        Profile::parse(Path::new("robot.xml"), text).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn a_profile_of_dds_says_the_same_here() {
        let profile = read(ROBOT).unwrap();
        let writer = [
            "reliability best-effort",
            "queue keep-last 4",
            "durability transient-local",
            "history 4",
            "deadline 20ms",
            "liveliness by-port",
            "lease 1.5s",
            "ownership exclusive",
            "strength 7",
            "partition left, r*",
        ];
        assert_eq!(stated(&profile, Direction::Publisher, "/arm/left"), writer);
        assert_eq!(
            stated(&profile, Direction::Publisher, "/camera"),
            ["reliability best-effort", "partition left, r*"]
        );
        let reader = ["instances 9", "separation 5ns", "destination-order by-source"];
        assert_eq!(stated(&profile, Direction::Subscriber, "/arm/left"), reader);
        assert_eq!(
            profile.settings("/x", "/camera", Direction::Publisher).mark.map(|mark| mark.dscp().value()),
            Some(46)
        );
        assert_eq!(profile.ignored(), ["robot.xml:27: user_data", "robot.xml:30: participant_qos"]);
    }

    #[test]
    fn errors_are_named_with_their_line() {
        let profile = |inner: &str| {
            format!("<dds><qos_library>\n<qos_profile name='a'>\n{inner}</qos_profile></qos_library></dds>")
        };
        let writer = |inner: &str| profile(&format!("<datawriter_qos>\n{inner}</datawriter_qos>"));
        for (text, says) in [
            ("<dds>".to_owned(), "robot.xml:1: no XML"),
            ("<dds/>".to_owned(), "no qos_profile"),
            (
                writer("<durability><kind>PERSISTENT_DURABILITY_QOS</kind></durability>"),
                "robot.xml:4: durability: \"persistent\": allowed is volatile",
            ),
            (writer("<reliability/>"), "robot.xml:4: reliability: expected a kind"),
            (
                writer("<deadline><period><sec>soon</sec></period></deadline>"),
                "robot.xml:4: deadline: \"soon\" is no number",
            ),
            (writer("<transport_priority><value>64</value></transport_priority>"), "0 to 63"),
            ("<dds><qos_profile name='a'/>\n<qos_profile name='b'/></dds>".to_owned(), "several profiles (a, b)"),
            ("<dds><qos_profile name='a' base_name='b'/></dds>".to_owned(), "base_name \"b\": no profile"),
            ("<dds><qos_profile name='a' base_name='a'/></dds>".to_owned(), "based on one another"),
        ] {
            let said = read(&text).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_bomb_of_entities_is_refused() {
        let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;'>]><dds>&b;</dds>";
        assert!(read(bomb).unwrap_err().contains("robot.xml:1: no XML that is read here"));
        assert!(read(&format!("<dds>{}</dds>", "<a/>".repeat(100_001))).is_err());
        assert!(read(&"<dds>".repeat(100_000)).is_err());
    }
}
