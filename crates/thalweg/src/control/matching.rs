//! Matching of publishers and subscribers. Pure.
//!
//! | in a pattern | stands for |
//! |---|---|
//! | a segment such as `camera` | itself |
//! | `*` | exactly one segment, of any text |
//! | `**` | any number of segments, none included |

use super::{Direction, PortInfo};
use crate::codec::{PolicyFields, TypeDescription};
use qos::PolicyName;
use std::borrow::Cow;
use std::fmt;

/// Longest name of a topic, a pattern or a port, in bytes.
pub const LONGEST_NAME: usize = 255;

/// A malformed name or pattern; its text names the allowed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The name given (cut to a printable length).
    pub name: String,
    /// The defect.
    pub problem: &'static str,
    /// `true` if wildcards would have been allowed.
    pub pattern: bool,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {}; a name is segments of printable ASCII without spaces, each after a '/', ",
            self.name, self.problem
        )?;
        write!(f, "{LONGEST_NAME} bytes at most, such as /camera/left")?;
        if self.pattern {
            write!(f, "; a whole segment may be * (any one segment) or ** (any number of segments)")?;
        }
        Ok(())
    }
}

impl std::error::Error for NameError {}

/// A name as it is matched: a relative one begins at the root, as in ROS 2 for a node without a namespace.
pub fn absolute(name: &str) -> Cow<'_, str> {
    if name.is_empty() || name.starts_with('/') { Cow::Borrowed(name) } else { Cow::Owned(format!("/{name}")) }
}

/// Checks the name of a topic or of a port.
///
/// # Errors
/// [`NameError`] with the error and the allowed form.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let problem = problem_of(name).or_else(|| name.contains('*').then_some("has a '*', which only patterns may have"));
    refuse(name, problem, false)
}

/// Checks a subscriber's topic, or pattern of topics.
///
/// # Errors
/// [`NameError`] with the error and the allowed form.
pub fn check_pattern(pattern: &str) -> Result<(), NameError> {
    let half = |segment: &str| segment.contains('*') && segment != "*" && segment != "**";
    let problem =
        problem_of(pattern).or_else(|| pattern.split('/').any(half).then_some("has a '*' beside other characters"));
    refuse(pattern, problem, true)
}

fn problem_of(name: &str) -> Option<&'static str> {
    let Some(segments) = name.strip_prefix('/') else { return Some("does not start with '/'") };
    if name.len() > LONGEST_NAME {
        Some("is too long")
    } else if segments.split('/').any(str::is_empty) {
        Some("has an empty segment")
    } else if !name.bytes().all(|b| b.is_ascii_graphic()) {
        Some("has a character that is not printable ASCII, or a space")
    } else {
        None
    }
}

fn refuse(name: &str, problem: Option<&'static str>, pattern: bool) -> Result<(), NameError> {
    match problem {
        None => Ok(()),
        Some(problem) => Err(NameError { name: name.chars().take(64).collect(), problem, pattern }),
    }
}

/// `true` if it has wildcards.
pub fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// `true` if `pattern` (a topic is one too) takes `topic`. At most (segments of one) × (segments of the other) steps.
pub fn topic_matches(pattern: &str, topic: &str) -> bool {
    // Most are no patterns: a thousand ports that are compared with a thousand others are not cut into segments.
    pattern == topic || (is_pattern(pattern) && segments_match(pattern, topic))
}

fn segments_match(pattern: &str, topic: &str) -> bool {
    let (mut rest, mut left) = (pattern.split('/'), topic.split('/'));
    // The place to continue when a later segment does not fit: after the last `**`, which swallows one more segment.
    let mut retry = None;
    loop {
        let (mut after, mut remaining) = (rest.clone(), left.clone());
        match (after.next(), remaining.next()) {
            (None, None) => return true,
            (Some("**"), _) => {
                retry = Some((after.clone(), left.clone()));
                rest = after;
                continue;
            }
            (Some(wanted), Some(segment)) if wanted == "*" || wanted == segment => {
                (rest, left) = (after, remaining);
                continue;
            }
            _ => {}
        }
        let Some((pattern_after, topic_after)) = &mut retry else { return false };
        if topic_after.next().is_none() {
            return false;
        }
        (rest, left) = (pattern_after.clone(), topic_after.clone());
    }
}

/// The outcome of comparing a publisher with a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// They match. The list has the mismatches that the subscriber's fallback permits.
    Matched(Vec<Mismatch>),
    /// The topics differ.
    NotSameTopic,
    /// Same topic, but these policies stand between them: at least one.
    Mismatched(Vec<Mismatch>),
}

/// The subject of a mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The type.
    Type,
    /// One end's policies contradict each other.
    Qos,
    /// A policy.
    Policy(PolicyName),
    /// The filter names fields that the type does not have.
    Filter,
    /// The carrier.
    Carrier,
}

impl Subject {
    /// All.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = [Self::Type, Self::Qos, Self::Filter, Self::Carrier];
        others.into_iter().chain(PolicyName::ALL.map(Self::Policy))
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|subject| subject.name() == name)
    }

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Qos => "qos",
            Self::Policy(policy) => policy.name(),
            Self::Filter => "filter",
            Self::Carrier => "carrier",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A mismatch of two ports of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its subject.
    pub policy: Subject,
    /// The publisher's offer.
    pub offered: String,
    /// The subscriber's request.
    pub requested: String,
    /// A value that would match.
    pub remedy: String,
}

impl From<qos::Mismatch> for Mismatch {
    fn from(found: qos::Mismatch) -> Self {
        let qos::Mismatch { policy, offered, requested, remedy } = found;
        Self { policy: Subject::Policy(policy), offered, requested, remedy }
    }
}

/// Compares a publisher with a subscriber by requested/offered rules. Reports all that does not fit, in the order type,
/// policies ([`qos::PolicyName::ALL`]), carrier. A publisher with larger messages than the subscriber takes is no mismatch:
/// only the messages that are too large are refused, and counted.
pub fn compare(publisher: &PortInfo, subscriber: &PortInfo) -> Match {
    let directions = (publisher.direction, subscriber.direction);
    // A bridge's other port has the same samples: from both they would come twice.
    let beside = publisher.foreign.as_ref().is_some_and(|end| end.beside) && subscriber.message.is_any();
    if directions != (Direction::Publisher, Direction::Subscriber)
        || !topic_matches(&subscriber.topic, &publisher.topic)
        || beside
        || returns(publisher, subscriber)
    {
        return Match::NotSameTopic;
    }
    let (given_up, policies) = compare_policies(publisher, subscriber);
    let between: Vec<_> = compare_type(publisher, subscriber)
        .into_iter()
        .chain(policies)
        .chain(compare_fields(publisher, subscriber))
        .chain(compare_carriers(publisher, subscriber))
        .collect();
    if between.is_empty() { Match::Matched(given_up) } else { Match::Mismatched(between) }
}

/// `true` for ports of bridges of which the subscriber's leads to a network in which the publisher's samples have been.
fn returns(publisher: &PortInfo, subscriber: &PortInfo) -> bool {
    let (Some(from), Some(to)) = (&publisher.foreign, &subscriber.foreign) else { return false };
    from.has_passed(&to.place())
}

fn compare_type(publisher: &PortInfo, subscriber: &PortInfo) -> Option<Mismatch> {
    let (offered, requested) = (&publisher.message, &subscriber.message);
    if requested.accepts(offered) {
        return None;
    }
    let remedy = if offered.name == requested.name {
        format!("the two programs have different definitions of {}: build both from the same one", offered.name)
    } else {
        format!("subscribe with type {}, or untyped", offered.name)
    };
    let both_of_ros = offered.ros.is_some() && requested.ros.is_some();
    let show = |t: &TypeDescription| match &t.ros {
        Some(ros) if both_of_ros => format!("{} ({})", ros.name, ros.type_hash),
        _ => format!("{} ({:016x})", t.name, t.hash),
    };
    Some(Mismatch { policy: Subject::Type, offered: show(offered), requested: show(requested), remedy })
}

/// The policies that the subscriber does without, and the mismatches of the two.
fn compare_policies(publisher: &PortInfo, subscriber: &PortInfo) -> (Vec<Mismatch>, Vec<Mismatch>) {
    let checked = [publisher, subscriber].map(|port| port.qos.check().err().map(|wrong| wrong.to_string()));
    if checked.iter().any(Option::is_some) {
        // This node opens no such port: another program does.
        let [offered, requested] = checked.map(|wrong| wrong.unwrap_or_else(|| "nothing that contradicts".to_owned()));
        let remedy = "state policies that can hold together".to_owned();
        return (Vec::new(), vec![Mismatch { policy: Subject::Qos, offered, requested, remedy }]);
    }
    let from = |found: Vec<qos::Mismatch>| found.into_iter().map(Mismatch::from).collect();
    match qos::match_qos(&publisher.qos, &subscriber.qos) {
        Ok(given_up) => (from(given_up), Vec::new()),
        Err(between) => (Vec::new(), from(between)),
    }
}

/// Compares the type's fields with those that the subscriber's filter and key look at.
fn compare_fields(publisher: &PortInfo, subscriber: &PortInfo) -> Option<Mismatch> {
    let (key, filter) = (&subscriber.qos.key, subscriber.qos.filter.as_ref());
    let problem = PolicyFields::find(publisher.message.schema.as_deref(), key, filter).err()?;
    let policy = if filter.is_some() { Subject::Filter } else { Subject::Policy(PolicyName::Key) };
    let requested = filter.map_or_else(|| key.join(", "), |filter| filter.expression.clone());
    let remedy = format!("name fields of the publisher's type: {problem}");
    Some(Mismatch { policy, offered: format!("type {}", publisher.message.name), requested, remedy })
}

fn compare_carriers(publisher: &PortInfo, subscriber: &PortInfo) -> Option<Mismatch> {
    let (offered, requested) = (&publisher.carriers, &subscriber.carriers);
    // A port that names no carrier leaves the choice to the handshake.
    if offered.is_empty() || requested.is_empty() || offered.iter().any(|c| requested.contains(c)) {
        return None;
    }
    Some(Mismatch {
        policy: Subject::Carrier,
        offered: offered.join(", "),
        requested: requested.join(", "),
        remedy: format!("allow one of {} at the subscriber {}", offered.join(", "), subscriber.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::RosType;
    use crate::control::Foreign;
    use proptest::prelude::*;
    use qos::Reliability;
    use std::sync::Arc;

    fn brute_force(pattern: &[&str], topic: &[&str]) -> bool {
        match (pattern.split_first(), topic.split_first()) {
            (None, None) => true,
            (Some((&"**", rest)), _) => (0..=topic.len()).any(|n| brute_force(rest, &topic[n..])),
            (Some((wanted, rest)), Some((segment, left))) => {
                (*wanted == "*" || wanted == segment) && brute_force(rest, left)
            }
            _ => false,
        }
    }

    fn path(segments: &[&str]) -> String {
        segments.iter().map(|s| format!("/{s}")).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn patterns_match_what_a_brute_force_matcher_matches(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "**"]), 1..7),
            topic in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..8),
        ) {
            check_pattern(&path(&pattern)).unwrap();
            check_name(&path(&topic)).unwrap();
            prop_assert_eq!(topic_matches(&path(&pattern), &path(&topic)), brute_force(&pattern, &topic));
        }
        #[test]
        fn no_text_makes_the_checks_or_the_matcher_fail(pattern in ".{0,300}", topic in ".{0,300}") {
            let _ = (check_name(&topic), check_pattern(&pattern), topic_matches(&pattern, &topic));
        }
        #[test]
        fn each_topic_matches_itself(topic in "(/[!-)+-.0-~]{1,5}){1,5}") {
            prop_assert_eq!(check_name(&topic), Ok(()));
            prop_assert!(topic_matches(&topic, &topic) && topic_matches("/**", &topic));
        }
    }

    #[test]
    fn a_relative_name_begins_at_the_root() {
        let absolutes = ["chat", "/chat", "a/b", "*", ""].map(|name| absolute(name).into_owned());
        assert_eq!(absolutes, ["/chat", "/chat", "/a/b", "/*", ""]);
    }

    #[test]
    fn names_that_are_none_are_refused_with_what_is_allowed() {
        let long = format!("/{}", "x".repeat(255));
        for bad in ["", "/", "a", "/a/", "//a", "/a b", "/ä", "/a\n", "/*", &long] {
            assert!(check_name(bad).unwrap_err().to_string().contains("/camera/left"), "{bad}");
        }
        for bad in ["/a*", "/***", "/a/*b", "*", ""] {
            assert!(check_pattern(bad).unwrap_err().to_string().contains("** (any number of segments)"), "{bad}");
        }
        assert!(check_pattern("/a/*/**").is_ok() && check_pattern("/a").is_ok());
    }

    fn port(direction: Direction, topic: &str) -> PortInfo {
        PortInfo {
            name: "/port".into(),
            direction,
            topic: topic.into(),
            message: TypeDescription::opaque("image"),
            qos: qos::Qos::default(),
            carriers: vec!["tcp".into(), "udp".into()],
            answers: None,
            pull: Default::default(),
            foreign: None,
        }
    }

    fn policy(found: Match) -> String {
        match found {
            Match::Matched(given_up) if given_up.is_empty() => "matched".to_owned(),
            Match::Matched(given_up) => format!("matched without {}", given_up[0].policy),
            Match::NotSameTopic => "not same topic".to_owned(),
            Match::Mismatched(between) => {
                assert!(between.iter().all(|m| !m.remedy.is_empty()));
                between.iter().map(|m| m.policy.name()).collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn a_mismatch_names_the_policy_that_stands_between() {
        let offered = port(Direction::Publisher, "/camera/left");
        let asking = |change: fn(&mut PortInfo)| {
            let mut wanted = port(Direction::Subscriber, "/camera/*");
            change(&mut wanted);
            policy(compare(&offered, &wanted))
        };
        assert_eq!(asking(|_| ()), "matched");
        assert_eq!(asking(|p| p.message = TypeDescription::any()), "matched");
        assert_eq!(asking(|p| p.qos.max_message = 10), "matched");
        assert_eq!(asking(|p| p.carriers.clear()), "matched");
        assert_eq!(asking(|p| p.topic = "/camera".into()), "not same topic");
        assert_eq!(asking(|p| p.direction = Direction::Publisher), "not same topic");
        assert_eq!(asking(|p| p.message = TypeDescription::opaque("text")), "type");
        assert_eq!(asking(|p| p.carriers = vec!["shm".into()]), "carrier");
    }

    /// Types of the same structure are different ones in ROS 2 if their names or hashes differ.
    #[test]
    fn types_of_ros_are_compared_where_both_ports_state_one() {
        let of_ros = |name: &str, digit: &str| {
            let (name, type_hash) = (name.to_owned(), format!("RIHS01_{}", digit.repeat(64)));
            Some(Arc::new(RosType { name, type_hash, source: String::new() }))
        };
        let found = |offered: Option<Arc<RosType>>, requested: Option<Arc<RosType>>| {
            let [mut publisher, mut subscriber] = [Direction::Publisher, Direction::Subscriber].map(|d| port(d, "/a"));
            (publisher.message.ros, subscriber.message.ros) = (offered, requested);
            compare(&publisher, &subscriber)
        };
        let pose = || of_ros("a/msg/Pose", "0");
        for (offered, requested) in [(None, None), (pose(), None), (None, pose()), (pose(), pose())] {
            assert_eq!(policy(found(offered, requested)), "matched");
        }
        for other in [of_ros("b/msg/Pose", "0"), of_ros("a/msg/Pose", "1")] {
            let Match::Mismatched(between) = found(pose(), other.clone()) else { panic!("{other:?} matches") };
            let shown = |ros: Option<Arc<RosType>>| ros.map(|ros| format!("{} ({})", ros.name, ros.type_hash));
            assert_eq!(
                [Some(&between[0].offered), Some(&between[0].requested)],
                [shown(pose()).as_ref(), shown(other).as_ref()]
            );
        }
    }

    /// A bridge has the same samples as bytes and as a type: who takes any type gets them once.
    #[test]
    fn a_subscriber_to_any_type_takes_the_samples_of_one_of_a_bridges_ports() {
        let (mut offered, mut wanted) = (port(Direction::Publisher, "/a"), port(Direction::Subscriber, "/a"));
        let mut found = |beside: bool, message: TypeDescription| {
            let (engine, name) = ("zenoh".to_owned(), "/a".to_owned());
            offered.foreign = Some(Foreign { engine, name, beside, ..Foreign::default() });
            wanted.message = message;
            policy(compare(&offered, &wanted))
        };
        let stated = || TypeDescription::opaque("image");
        assert_eq!([found(false, TypeDescription::any()), found(false, stated())], ["matched"; 2]);
        assert_eq!([&found(true, TypeDescription::any())[..], &found(true, stated())], ["not same topic", "matched"]);
    }

    #[test]
    fn what_comes_from_a_network_does_not_go_back_to_it() {
        let end = |engine: &str, network: &str| {
            let (engine, network) = (engine.to_owned(), network.to_owned());
            Some(Foreign { engine, name: "/a".to_owned(), network, ..Foreign::default() })
        };
        let found = |from: Option<Foreign>, to: Option<Foreign>| {
            let [mut offered, mut wanted] = [Direction::Publisher, Direction::Subscriber].map(|d| port(d, "/a"));
            (offered.foreign, wanted.foreign) = (from, to);
            policy(compare(&offered, &wanted))
        };
        for (from, to) in [(end("dds", ""), end("dds", "")), (end("dds", "left"), end("dds", ""))] {
            assert_eq!(found(from, to), "not same topic");
        }
        for (from, to) in
            [(end("dds", "left"), end("dds", "right")), (end("dds", ""), end("mqtt", "")), (end("dds", ""), None)]
        {
            assert_eq!(found(from, to), "matched");
        }
    }

    #[test]
    fn all_that_stands_between_is_told_in_one_order() {
        let (mut offered, mut wanted) = (port(Direction::Publisher, "/a"), port(Direction::Subscriber, "/a"));
        offered.qos.reliability = Reliability::BestEffort;
        assert_eq!(policy(compare(&offered, &wanted)), "reliability");
        wanted.qos.deadline = Some(std::time::Duration::from_millis(20));
        wanted.carriers = vec!["shm".into()];
        wanted.message = TypeDescription::opaque("text");
        assert_eq!(policy(compare(&offered, &wanted)), "type reliability deadline carrier");
        (wanted.message, wanted.carriers) = (offered.message.clone(), Vec::new());
        wanted.qos.fallback = vec![qos::PolicyName::Reliability];
        assert_eq!(policy(compare(&offered, &wanted)), "deadline");
        wanted.qos.deadline = None;
        assert_eq!(policy(compare(&offered, &wanted)), "matched without reliability");
    }

    #[test]
    fn a_peer_whose_policies_contradict_each_other_is_not_matched() {
        let (mut offered, mut wanted) = (port(Direction::Publisher, "/a"), port(Direction::Subscriber, "/a"));
        wanted.qos.scale = qos::Scale::Every(0);
        assert_eq!(policy(compare(&offered, &wanted)), "qos");
        wanted.qos.scale = qos::Scale::Every(1);
        offered.qos.history = 0;
        assert_eq!(policy(compare(&offered, &wanted)), "qos");
    }
}
