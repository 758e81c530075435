//! The rules of a bridge: which topics it carries, in which direction, and with which policies.
//!
//! ```toml
//! network = "left"             # a name for the network there, which joins it with others of the same engine that have one
//!
//! [[rule]]
//! topic = "/camera/**"         # pattern of topics; left out: any
//! direction = "out"            # out (from Thalweg), in (to Thalweg), both (the default) or none
//! class = "low"                # policies by the names of `qos::Qos::set`
//! scale = "3"                  # every third sample only
//!
//! [[rule]]
//! topic = "/pose"
//! there = "/robot1/pose"       # its name in the other system
//! transit = "yes"              # ports of bridges to other engines are carried, too, and asked for; no (the default)
//! class = "high"
//! ```
//!
//! All rules that match a topic apply; a later one overrides an earlier one.

use crate::engine::Identity;
use qos::Qos;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thalweg::control::NodeId;
use thalweg::control::matching::{check_pattern, is_pattern, topic_matches};

/// Most rules, most bytes of a file, and most of a network's name.
const MOST_RULES: usize = 4096;
const LONGEST: usize = 1 << 20;
const LONGEST_NETWORK: usize = 64;

/// The pattern of all topics.
const ALL: &str = "/**";

/// The direction in which a topic is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// From Thalweg to the engine.
    Out,
    /// From the engine to Thalweg.
    In,
    /// Both.
    #[default]
    Both,
    /// Not at all.
    None,
}

impl Way {
    pub(super) fn leads_out(self) -> bool {
        matches!(self, Way::Out | Way::Both)
    }
    pub(super) fn leads_in(self) -> bool {
        matches!(self, Way::In | Way::Both)
    }
}

impl FromStr for Way {
    type Err = RuleError;
    fn from_str(text: &str) -> Result<Self, RuleError> {
        match text {
            "out" => Ok(Way::Out),
            "in" => Ok(Way::In),
            "both" => Ok(Way::Both),
            "none" => Ok(Way::None),
            _ => Err(RuleError(format!("direction = {text:?}; allowed are out, in, both and none"))),
        }
    }
}

/// A rule that cannot be used: its number and key, the value, and the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(pub String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rule {
    topic: Option<String>,
    way: Option<Way>,
    there: Option<String>,
    transit: Option<bool>,
    /// By name, checked when they were read.
    policies: Vec<(String, String)>,
}

/// The rules of a bridge. The default has none: every topic, both ways, with the policies of its ends, of a network without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    network: String,
}

/// What the rules say of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told<'a> {
    pub(super) way: Way,
    /// The name in the other system.
    pub(super) there: String,
    /// Ports of other bridges are carried, too.
    pub(super) transit: bool,
    policies: Vec<(&'a str, &'a str)>,
}

impl Told<'_> {
    /// Sets the policies of the rules.
    pub(super) fn apply(&self, qos: &mut Qos) {
        for (name, value) in &self.policies {
            let _ = qos.set(name, value); // checked when it was read
        }
    }
}

impl Rules {
    /// Reads rules: TOML, at most 1 MiB.
    ///
    /// # Errors
    /// [`RuleError`] with the rule, key, value and the allowed values.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            network: Option<String>,
            #[serde(default)]
            rule: Vec<BTreeMap<String, toml::Value>>,
        }
        if text.len() > LONGEST {
            return Err(RuleError(format!("{} bytes, allowed are {LONGEST}", text.len())));
        }
        let file: File = toml::from_str(text).map_err(|error| RuleError(error.to_string()))?;
        if file.rule.len() > MOST_RULES {
            return Err(RuleError(format!("{} rules, allowed are {MOST_RULES}", file.rule.len())));
        }
        let rules = file.rule.iter().enumerate().map(|(index, table)| {
            rule(table).map_err(|RuleError(wrong)| RuleError(format!("rule {}: {wrong}", index + 1)))
        });
        let rules = Self { rules: rules.collect::<Result<_, _>>()?, network: String::new() };
        match file.network {
            Some(network) => rules.in_network(&network),
            None => Ok(rules),
        }
    }

    /// These rules, for a network of this name: 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
    ///
    /// # Errors
    /// [`RuleError`] for another name.
    pub fn in_network(mut self, name: &str) -> Result<Self, RuleError> {
        let is_allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        if !(1..=LONGEST_NETWORK).contains(&name.len()) || !name.bytes().all(is_allowed) {
            let allowed = "letters, digits, '.', '_' and '-' are allowed";
            return Err(RuleError(format!("network = {name:?}: 1 to {LONGEST_NETWORK} {allowed}")));
        }
        name.clone_into(&mut self.network);
        Ok(self)
    }

    /// The name of the network, empty if it has none.
    pub fn network(&self) -> &str {
        &self.network
    }

    /// Besides these rules: only topics of the patterns `allowed`, if there are any, and none of the patterns `denied`. Directions in the
    /// rules override `allowed`, and `denied` overrides all.
    ///
    /// # Errors
    /// [`RuleError`] for a pattern that is none.
    pub fn within(mut self, allowed: &[String], denied: &[String]) -> Result<Self, RuleError> {
        let of = |pattern: &String, way: Way| {
            check_pattern(pattern).map_err(|wrong| RuleError(format!("topic {wrong}")))?;
            Ok(Rule { topic: Some(pattern.clone()), way: Some(way), ..Rule::default() })
        };
        let mut rules = Vec::new();
        if !allowed.is_empty() {
            rules.push(Rule { way: Some(Way::None), ..Rule::default() });
        }
        rules.extend(allowed.iter().map(|pattern| of(pattern, Way::Both)).collect::<Result<Vec<_>, _>>()?);
        rules.append(&mut self.rules);
        rules.extend(denied.iter().map(|pattern| of(pattern, Way::None)).collect::<Result<Vec<_>, _>>()?);
        Ok(Self { rules, ..self })
    }

    /// The bridge at a node, as those of the same rules know it. Two that find each other are in one network, whatever they call it.
    pub fn identity(&self, node: NodeId) -> Identity {
        Identity { node, rules: format!("{:?}", self.rules) }
    }

    /// `true` if some topic of this pattern may come in; each is asked for when its samples come.
    pub(super) fn may_lead_in(&self, pattern: &str) -> bool {
        self.of(pattern).way.leads_in() || self.rules.iter().any(|rule| rule.way.is_some_and(Way::leads_in))
    }

    /// Patterns of all topics that may leave.
    pub(super) fn leading_out(&self) -> Vec<&str> {
        if self.of(ALL).way.leads_out() {
            return vec![ALL];
        }
        self.topics().filter(|topic| self.of(topic).way.leads_out()).collect()
    }

    /// Topics and patterns that rules name and that may leave from bridges to other engines.
    pub(super) fn in_transit(&self) -> impl Iterator<Item = &str> {
        let leaves = |told: &Told<'_>| told.transit && told.way.leads_out();
        let named = self.rules.iter().filter(|rule| rule.transit == Some(true));
        named.filter_map(|rule| rule.topic.as_deref()).filter(move |topic| leaves(&self.of(topic)))
    }

    fn topics(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter_map(|rule| rule.topic.as_deref())
    }

    /// What they say of a topic, or of a pattern that a subscriber has.
    pub(super) fn of(&self, topic: &str) -> Told<'_> {
        let mut told = Told { way: Way::default(), there: topic.to_owned(), transit: false, policies: Vec::new() };
        let fits =
            |rule: &&Rule| rule.topic.as_ref().is_none_or(|pattern| pattern == topic || topic_matches(pattern, topic));
        for rule in self.rules.iter().filter(fits) {
            told.way = rule.way.unwrap_or(told.way);
            told.transit = rule.transit.unwrap_or(told.transit);
            rule.there.iter().for_each(|there| told.there.clone_from(there));
            told.policies.extend(rule.policies.iter().map(|(name, value)| (&name[..], &value[..])));
        }
        told
    }
}

fn yes_or_no(text: &str) -> Result<bool, RuleError> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(RuleError(format!("transit = {text:?}; allowed are yes and no"))),
    }
}

fn rule(table: &BTreeMap<String, toml::Value>) -> Result<Rule, RuleError> {
    let mut rule = Rule::default();
    for (key, value) in table {
        let text = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            other => return Err(RuleError(format!("{key} = {other}: a text is expected, in quotes"))),
        };
        match key.as_str() {
            "topic" => {
                check_pattern(&text).map_err(|wrong| RuleError(format!("topic {wrong}")))?;
                rule.topic = Some(text);
            }
            "direction" => rule.way = Some(text.parse()?),
            "there" => rule.there = Some(text),
            "transit" => rule.transit = Some(yes_or_no(&text)?),
            policy => {
                let checked = Qos::default().set(policy, &text);
                checked.map_err(|wrong| {
                    RuleError(format!("{policy} = {text:?}: {wrong} (or topic, direction, there, transit)"))
                })?;
                rule.policies.push((policy.to_owned(), text));
            }
        }
    }
    if rule.there.is_some() && rule.topic.as_ref().is_none_or(|topic| is_pattern(topic)) {
        return Err(RuleError("there: the rule needs a topic without *, because one name is of one topic".to_owned()));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::Class;

    const TEXT: &str = r#"
        [[rule]]
        topic = "/camera/**"
        direction = "out"
        class = "low"
        scale = 3

        [[rule]]
        topic = "/camera/left"
        class = "high"
        there = "/robot1/left"
    "#;

    #[test]
    fn a_later_rule_overrides_an_earlier_one() {
        let rules = Rules::parse(TEXT).unwrap();
        let told = rules.of("/camera/left");
        let mut qos = Qos::default();
        told.apply(&mut qos);
        assert_eq!((told.way, &told.there[..], qos.class), (Way::Out, "/robot1/left", Class::High));
        assert_eq!(qos.scale, qos::Scale::Every(3));
        let other = rules.of("/pose");
        assert_eq!((other.way, &other.there[..]), (Way::Both, "/pose"));
        // A subscriber's pattern is matched as it is written, or within a wider one.
        assert_eq!(rules.of("/camera/**").way, Way::Out);
        assert_eq!(rules.of("/camera/*").way, Way::Out);
        assert_eq!(rules.of("/**").way, Way::Both);
    }

    #[test]
    fn what_is_not_allowed_or_denied_is_not_carried() {
        let patterns = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rules = Rules::parse(TEXT).unwrap().within(&patterns(&["/arm/**"]), &patterns(&["/arm/secret"])).unwrap();
        let way = |topic| rules.of(topic).way;
        assert_eq!(
            ["/arm/pose", "/arm/secret", "/pose", "/camera/a"].map(way),
            [Way::Both, Way::None, Way::None, Way::Out]
        );
        assert!(rules.may_lead_in("/**"), "/arm/pose is one of them");
        assert!(!rules.of("/**").way.leads_in());
        assert!(Rules::default().within(&patterns(&["a b"]), &[]).is_err());
    }

    #[test]
    fn a_network_has_its_name_by_the_file_or_by_the_caller() {
        let named = Rules::parse(&format!("network = \"left\"\n{TEXT}")).unwrap();
        assert_eq!((named.network(), Rules::default().network()), ("left", ""));
        let [own, other] = ["left", "right"].map(|name| Rules::parse(TEXT).unwrap().in_network(name).unwrap());
        assert!(named == own && named != other && named.clone().in_network("right") == Ok(other.clone()));
        assert_eq!(
            named.identity(NodeId(1)),
            other.identity(NodeId(1)),
            "they stand in for each other where they meet"
        );
        assert_eq!(named.within(&[], &["/a".to_owned()]).unwrap().network(), "left");
    }

    #[test]
    fn a_wrong_rule_is_named() {
        for (text, says) in [
            ("[[rule]]\ndirection = \"up\"", "rule 1: direction = \"up\"; allowed are out, in, both"),
            ("[[rule]]\n[[rule]]\nclass = \"urgent\"", "rule 2: class = \"urgent\""),
            ("[[rule]]\ncolour = \"red\"", "topic, direction, there, transit"),
            ("[[rule]]\nthere = \"/a\"", "needs a topic"),
            ("[[rule]]\ntopic = \"/a/*\"\nthere = \"/a\"", "needs a topic"),
            ("[[rule]]\ntopic = true", "in quotes"),
            ("[[rule]]\ntransit = \"maybe\"", "allowed are yes and no"),
            ("[[rules]]\n", "unknown field"),
            ("network = \"\"", "network = \"\": 1 to 64 letters"),
            ("network = \"a/b\"", "letters, digits"),
        ] {
            let said = Rules::parse(text).unwrap_err().to_string();
            assert!(said.contains(says), "{said}");
        }
    }
}
