//! Profiles: the policies and priorities of ports, from a file.
//!
//! ```toml
//! [[port]]
//! name = "/arm/**"             # pattern of port names; left out: any
//! topic = "/arm/command"       # pattern of topics; left out: any
//! class = "high"               # class, dscp, tos, priority (of the socket), sched, affinity, pace, police: as `thalweg set` takes them
//! sched = "fifo:30"
//! affinity = "0-1"
//! deadline = "20 ms"           # policies by the names of `qos::Qos::set`
//! durability = "transient-local"
//!
//! [[port]]
//! name = "/camera/*"
//! qos = "level:low; priority:10; policy:1"   # as in YARP's application files (YS-31)
//! ```
//!
//! All entries that match a port apply; a later one overrides an earlier one.
//!
//! A file whose name ends in `.xml` is a DDS XML profile.

mod xml;

use crate::control::Direction;
use crate::control::matching::{check_pattern, topic_matches};
use qos::Qos;
use qos::priority::{Changes, PrioritySettings};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};

/// Most entries of a file, and most bytes.
const MOST_ENTRIES: usize = 4096;
const LONGEST: u64 = 1 << 20;

/// Priorities by patterns of port names and topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    entries: Vec<Entry>,
    ignored: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    name: Option<String>,
    topic: Option<String>,
    /// DDS's pattern of topics, by the rules of `fnmatch` and without a leading `/`.
    topic_filter: Option<String>,
    direction: Option<Direction>,
    changes: Changes,
    /// Policies by name, checked when they were read.
    policies: Vec<(String, String)>,
}

/// An error in a profile: its place, the text there, and the allowed values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where known.
    pub line: Option<usize>,
    /// Key, value and the allowed values.
    pub problem: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.problem)
    }
}

impl std::error::Error for ProfileError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    port: Vec<BTreeMap<Spanned<String>, Spanned<Value>>>,
}

impl Profile {
    /// Reads a file: TOML, or a DDS XML profile if its name ends in `.xml`.
    ///
    /// # Errors
    /// [`ProfileError`] with file, line, key, value and the allowed values.
    pub fn read(file: &Path) -> Result<Self, ProfileError> {
        let failed = |why: String| ProfileError { file: file.to_owned(), line: None, problem: why };
        let size = std::fs::metadata(file).map_err(|e| failed(format!("cannot be read: {e}")))?.len();
        if size > LONGEST {
            return Err(failed(format!("{size} bytes, allowed are {LONGEST}")));
        }
        Self::parse(file, &std::fs::read_to_string(file).map_err(|e| failed(format!("cannot be read: {e}")))?)
    }

    /// As [`Profile::read`], from the text of `file`.
    ///
    /// # Errors
    /// As there.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ProfileError> {
        let error = |at: Option<usize>, problem: String| {
            let line = at.map(|at| text.get(..at).unwrap_or(text).matches('\n').count() + 1);
            ProfileError { file: file.to_owned(), line, problem }
        };
        if file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml")) {
            let xml::Read { entries, ignored } = xml::parse(file, text)?;
            return Ok(Self { entries, ignored });
        }
        let parsed: File = toml::from_str(text).map_err(|e| {
            error(e.span().map(|s| s.start), format!("{}; allowed are [[port]] tables with {KEYS}", e.message()))
        })?;
        if parsed.port.len() > MOST_ENTRIES {
            return Err(error(None, format!("{} entries, allowed are {MOST_ENTRIES}", parsed.port.len())));
        }
        let entries = parsed.port.iter().map(|table| entry(table).map_err(|(at, problem)| error(Some(at), problem)));
        Ok(Self { entries: entries.collect::<Result<_, _>>()?, ignored: Vec::new() })
    }

    /// Elements of a DDS XML profile that have no meaning here: file, line and element.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The priority of a port.
    pub fn settings(&self, name: &str, topic: &str, direction: Direction) -> PrioritySettings {
        let mut settings = PrioritySettings::default();
        self.fitting(name, topic, direction).for_each(|entry| entry.changes.apply(&mut settings));
        settings
    }

    /// Sets in `qos` the policies of a port.
    pub fn policies(&self, name: &str, topic: &str, direction: Direction, qos: &mut Qos) {
        for (policy, value) in self.fitting(name, topic, direction).flat_map(|entry| &entry.policies) {
            // It was checked when the file was read.
            let _ = qos.set(policy, value);
        }
    }

    fn fitting(&self, name: &str, topic: &str, direction: Direction) -> impl Iterator<Item = &Entry> {
        let fits = |pattern: &Option<String>, what: &str| pattern.as_ref().is_none_or(|p| topic_matches(p, what));
        let bare = topic.strip_prefix('/').unwrap_or(topic);
        self.entries.iter().filter(move |e| {
            let filtered = e.topic_filter.as_ref().is_none_or(|filter| qos::fnmatch(filter, bare));
            let directed = e.direction.is_none_or(|only| only == direction);
            fits(&e.name, name) && fits(&e.topic, topic) && filtered && directed
        })
    }
}

const KEYS: &str = "name, topic, class, dscp, tos, priority, sched, affinity, pace, police, qos, and the policies";

fn entry(table: &BTreeMap<Spanned<String>, Spanned<Value>>) -> Result<Entry, (usize, String)> {
    let mut entry = Entry::default();
    for (key, value) in table {
        let (key, at) = (key.get_ref().as_str(), key.span().start);
        let text = plain(value.get_ref())
            .ok_or_else(|| (at, format!("{key}: allowed is text or a number, not a {}", value.get_ref().type_str())))?;
        match key {
            "name" | "topic" => {
                check_pattern(&text).map_err(|wrong| (at, format!("{key} = {text:?}: {wrong}")))?;
                let place = if key == "name" { &mut entry.name } else { &mut entry.topic };
                *place = Some(text);
            }
            "qos" => {
                let changes = Changes::from_yarp(&text).map_err(|e| (at, format!("qos = {text:?}: {e}")))?;
                entry.changes = both(&entry.changes, &changes);
            }
            "class" | "dscp" | "tos" | "priority" | "sched" | "affinity" | "pace" | "police" => {
                entry.changes.add(&format!("{key}={text}")).map_err(|e| (at, format!("{key} = {text:?}: {e}")))?;
            }
            _ if Qos::names().any(|name| name == key) => {
                Qos::default().set(key, &text).map_err(|e| (at, format!("{key} = {e}")))?;
                entry.policies.push((key.to_owned(), text));
            }
            _ => {
                let policies = Qos::names().collect::<Vec<_>>().join(", ");
                let nearest = qos::nearest(key, Qos::names());
                let nearest = nearest.map_or(String::new(), |name| format!("the nearest is {name}, and "));
                return Err((at, format!("{key} = {text:?}: {nearest}allowed keys are {KEYS} {policies}")));
            }
        }
    }
    Ok(entry)
}

/// If an entry has a setting twice, the single key wins.
fn both(single: &Changes, qos: &Changes) -> Changes {
    fn first<T: Clone>(a: &qos::priority::Change<T>, b: &qos::priority::Change<T>) -> qos::priority::Change<T> {
        if a.is_keep() { b.clone() } else { a.clone() }
    }
    Changes { mark: first(&single.mark, &qos.mark), sched: first(&single.sched, &qos.sched), ..single.clone() }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Array(items) => items.iter().map(plain).collect::<Option<Vec<_>>>().map(|items| items.join(",")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Profile, String> {
        Profile::parse(Path::new("robot.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn entries_that_fit_count_the_later_against_the_earlier() {
        let profile = parse(
            "[[port]]\nclass = 'low'\n[[port]]\nname = '/arm/**'\ntos = 144\naffinity = [0, 1]\n\
             [[port]]\ntopic = '/arm/command'\nqos = 'level:critical; priority:10; policy:1'\nsched = 'rr:7'\n",
        )
        .unwrap();
        let tos = |name, topic| profile.settings(name, topic, Direction::Publisher).mark.unwrap().tos();
        assert_eq!((tos("/x", "/a"), tos("/arm/out", "/a"), tos("/arm/out", "/arm/command")), (40, 144, 176));
        let settings = profile.settings("/arm/out", "/arm/command", Direction::Subscriber);
        assert_eq!((settings.affinity, settings.sched), (Some(vec![0, 1]), "rr:7".parse().ok()));
    }

    #[test]
    fn policies_are_set_by_their_names_the_later_against_the_earlier() {
        let profile = parse(
            "[[port]]\ndeadline = '20 ms'\nreliability = 'best-effort'\npartition = ['left', 'right']\n\
             [[port]]\ntopic = '/arm/**'\ndeadline = 'none'\nhistory = 5\n",
        )
        .unwrap();
        let mut other = Qos::default();
        profile.policies("/x", "/a", Direction::Publisher, &mut other);
        assert_eq!(other.partition, ["left", "right"]);
        let stated = |topic| {
            let mut qos = Qos { partition: Vec::new(), ..Qos::default() };
            profile.policies("/x", topic, Direction::Publisher, &mut qos);
            qos.stated().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(stated("/a"), ["reliability", "deadline", "partition"]);
        assert_eq!(stated("/arm/command"), ["reliability", "history", "partition"]);
    }

    #[test]
    fn a_wrong_setting_is_named_with_file_line_key_and_the_allowed_values() {
        for (text, says) in [
            ("[[port]]\nclass = 'urgent'", &["robot.toml:2: class = \"urgent\"", "critical (crit)"]),
            ("[[port]]\n\ntos = 256", &["robot.toml:3: tos = \"256\"", "0 to 255"]),
            ("[[port]]\ncolour = 1", &["robot.toml:2: colour", "latency-budget"]),
            ("[[port]]\ndeadline = '20'", &["robot.toml:2: deadline = \"20\"", "ns us ms s"]),
            ("[[port]]\nqueue = 'keep-some 3'", &["robot.toml:2: queue", "keep-all N"]),
            ("[[port]]\nclass = true", &["robot.toml:2: class", "text or a number, not a boolean"]),
            ("[[port]]\nname = 'arm'", &["robot.toml:2: name = \"arm\"", "/"]),
            ("[[port]]\nqos = 'level:top'", &["robot.toml:2: qos", "critical (crit)"]),
            ("[[port]]\nclass = 'high'\ndscp = 3", &["robot.toml:", "not two"]),
            ("[[node]]\na = 1", &["robot.toml:1:", "[[port]] tables"]),
            ("[[port]", &["robot.toml:1:", "[[port]] tables"]),
        ] {
            let said = parse(text).unwrap_err();
            assert!(says.iter().all(|s| said.contains(s)), "{text}: {said}");
        }
        let missing = Profile::read(Path::new("/nonexistent/robot.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/robot.toml: cannot be read"), "{missing}");
    }
}
