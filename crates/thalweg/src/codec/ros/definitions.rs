//! A set of definitions, and the description of the types in it.

use super::error::RosError;
use super::hash::{VERSION, type_hash};
use super::interface::{Definition, read};
use super::known::{TEXTS, known};
use super::member::Base;
use super::name::TypeName;
use super::parse::Section;
use super::structure::structure;
use super::{MAX_SOURCE, MAX_TEXT, MAX_TEXTS};
use crate::codec::TypeDescription;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ROS 2 type that a message type is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosType {
    /// Its full name, such as `std_msgs/msg/String`.
    pub name: String,
    /// Its type hash, `RIHS01_` and 64 hexadecimal digits (REP-2011).
    pub type_hash: String,
    /// Its text and those of all types that it refers to, in the encoding `ros2msg` of MCAP and rosbag2. Empty: not known, longer than
    /// 64 KiB, or left out because those of the node's ports together are longer than 1 MiB.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl RosType {
    /// Checks what a peer or a user states: the forms of name and hash, and a source of at most 64 KiB.
    ///
    /// # Errors
    /// [`RosError`] with what was expected and found.
    pub fn check(&self) -> Result<(), RosError> {
        let of_form = TypeName::parse(&self.name).is_some_and(|name| name.to_string() == self.name);
        if !of_form {
            return Err(RosError::name(&self.name));
        }
        let digits = self.type_hash.strip_prefix(VERSION).unwrap_or_default();
        if digits.len() != 64 || !digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(RosError::hash(&self.name, &self.type_hash));
        }
        match self.source.len() {
            0..=MAX_SOURCE => Ok(()),
            length => Err(RosError::Source { name: self.name.clone(), length }),
        }
    }

    /// Its approximate size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.type_hash.len() + self.source.len()
    }
}

/// A set of ROS 2 definitions: `.msg`, `.srv` and `.action` texts (docs.ros.org, "Interfaces").
///
/// What everybody refers to is known without being added, unless it is added: `std_msgs/msg/Header`,
/// `builtin_interfaces/msg/Time` and `Duration`, `unique_identifier_msgs/msg/UUID`, `service_msgs/msg/ServiceEventInfo`, and
/// the messages of `action_msgs`.
///
/// ```
/// use thalweg::codec::Definitions;
///
/// let mut definitions = Definitions::new();
/// definitions.add("robot_msgs/msg/Reading", "std_msgs/Header header\nfloat64[<=16] values")?;
/// let reading = definitions.describe("robot_msgs/msg/Reading")?;
/// assert!(reading.ros.expect("of ROS 2").type_hash.starts_with("RIHS01_"));
/// assert_eq!(
///     reading.schema.expect("no wstring").to_string(),
///     "Reading{header:Header{stamp:Time{sec:i32,nanosec:u32},frame_id:string},values:sequence<f64>}"
/// );
/// # Ok::<(), thalweg::codec::RosError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    added: BTreeMap<String, Definition>,
    /// The length of all texts.
    bytes: usize,
}

impl Definitions {
    /// A set of only what is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the text of a file. The name is `pkg/msg/Type`, `pkg/srv/Type`, `pkg/action/Type`, or `pkg/Type`, which is a message. A
    /// service adds its `_Request`, `_Response` and `_Event`, an action all its messages and services (`rosidl_parser`,
    /// `definition.py`). Types that it refers to may be added later. To add the same fields again changes nothing.
    ///
    /// # Errors
    /// [`RosError`] with the line of a mistake, a limit that is passed, or a definition that differs; the set is then as it was.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), RosError> {
        let name = TypeName::parse(name).ok_or_else(|| RosError::name(name))?;
        check_length(&name, text)?;
        self.take(read(&name, Section::whole(text))?)
    }

    /// Adds a text with the texts of the types that it refers to, as schemas of MCAP and rosbag2 with the encoding `ros2msg` have them:
    /// each of those follows a line of 80 `=` and a line `MSG: pkg/Type`.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_concatenated(&mut self, name: &str, text: &str) -> Result<(), RosError> {
        let root = TypeName::parse(name).ok_or_else(|| RosError::name(name))?;
        check_length(&root, text)?;
        let mut sections = Section::whole(text).split(&separator()).into_iter();
        let mut found = Vec::new();
        if let Some(own) = sections.next() {
            found.extend(read(&root, own)?);
        }
        for section in sections {
            let (name, own) = headed(&root, section)?;
            found.extend(read(&name, own)?);
        }
        self.take(found)
    }

    /// Full names of the types that are known without being added, and of the files of their parts.
    pub fn known() -> impl Iterator<Item = &'static str> {
        TEXTS.iter().map(|(name, _)| *name)
    }

    /// Full names of the types that were added, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.added.keys().map(String::as_str)
    }

    /// Describes a type that was added or is known, by its name as in [`add`](Self::add), or that of a part of a service or an
    /// action, such as `std_srvs/srv/Empty_Request`.
    ///
    /// The schema is the structure of its CDR bytes. Bounds of strings and sequences do not show in the bytes, so they are not in it. A
    /// message without fields has one octet, `structure_needs_at_least_one_member`, as rosidl gives it. There is no schema of services
    /// and actions, which nobody sends as a whole, nor of types with a `wstring`, which middlewares encode differently.
    ///
    /// # Errors
    /// [`RosError`] if a type is missing, contains itself, or has more than 32 levels or 4096 parts.
    pub fn describe(&self, name: &str) -> Result<TypeDescription, RosError> {
        let parsed = TypeName::parse(name).ok_or_else(|| RosError::name(name))?;
        let full = parsed.to_string();
        let found = structure(self, &full)?;
        let ros = RosType {
            type_hash: type_hash(self, &full, &found.referenced),
            source: self.source(&full, &found.referenced).unwrap_or_default(),
            name: full.clone(),
        };
        let described = match found.schema {
            Some(schema) => {
                TypeDescription { name: parsed.short, hash: schema.hash(), schema: Some(Arc::new(schema)), ros: None }
            }
            None => TypeDescription { name: parsed.short, ..TypeDescription::opaque(&ros.type_hash) },
        };
        Ok(TypeDescription { ros: Some(Arc::new(ros)), ..described })
    }

    /// A definition by its full name.
    pub(super) fn find(&self, name: &str) -> Option<&Definition> {
        self.added.get(name).or_else(|| known().get(name))
    }

    /// The full name of the type that a field refers to.
    pub(super) fn nested<'a>(&self, base: &'a Base) -> Option<&'a str> {
        match base {
            Base::Nested(name) => Some(name),
            Base::Header(own) if self.find(own).is_some() => Some(own),
            Base::Header(_) => Some("std_msgs/msg/Header"),
            _ => None,
        }
    }

    /// Takes definitions, all or none.
    fn take(&mut self, found: Vec<(String, Definition)>) -> Result<(), RosError> {
        let mut fresh: BTreeMap<String, Definition> = BTreeMap::new();
        let mut bytes = self.bytes;
        for (name, definition) in found {
            let present = self.added.get(&name).or_else(|| fresh.get(&name));
            match present.map(|present| present.members == definition.members) {
                Some(false) => return Err(RosError::Differs { name }),
                Some(true) => {}
                None => {
                    bytes = bytes.saturating_add(definition.text.len() + size_of_val(definition.members.as_slice()));
                    fresh.insert(name, definition);
                }
            }
        }
        if bytes > MAX_TEXTS {
            let definition = fresh.into_keys().next().unwrap_or_default();
            return Err(RosError::Texts { definition });
        }
        self.bytes = bytes;
        self.added.append(&mut fresh);
        Ok(())
    }

    /// The texts of a type and of those it refers to; none if they are longer than what is told to others. The text of a service or an
    /// action has its parts in it.
    fn source(&self, root: &str, referenced: &[&str]) -> Option<String> {
        let mut source = self.find(root).map(|definition| definition.text.clone()).unwrap_or_default();
        for name in referenced {
            let Some(definition) = self.find(name) else { continue };
            if definition.origin.as_deref() == Some(root) {
                continue;
            }
            source.push_str(&separator());
            source.push_str(&format!("\n{HEAD}{}\n", name.replacen("/msg/", "/", 1)));
            source.push_str(&definition.text);
            if source.len() > MAX_SOURCE {
                return None;
            }
        }
        Some(source).filter(|source| source.len() <= MAX_SOURCE)
    }
}

/// Stands before the name of a type in a concatenated text.
const HEAD: &str = "MSG: ";

/// The line between definitions in a concatenated text.
fn separator() -> String {
    "=".repeat(80)
}

/// Reads the name in the first line of a section; the rest is its text.
fn headed<'a>(root: &TypeName, section: Section<'a>) -> Result<(TypeName, Section<'a>), RosError> {
    let (head, text) = section.text.split_once('\n').unwrap_or((section.text, ""));
    let name = head.trim_end().strip_prefix(HEAD).and_then(TypeName::parse);
    let name = name.ok_or_else(|| {
        let expected = "MSG: and the name of a ROS 2 type such as std_msgs/Header";
        RosError::line(&root.to_string(), section.first_line, expected, head)
    })?;
    Ok((name, Section { text, first_line: section.first_line + 1 }))
}

fn check_length(name: &TypeName, text: &str) -> Result<(), RosError> {
    match text.len() {
        0..=MAX_TEXT => Ok(()),
        length => Err(RosError::Text { definition: name.to_string(), length }),
    }
}
