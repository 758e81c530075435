//! Sessions: topics, subscribers and chains that are asked for beside those of a contract, and admitted together or not at all.
//!
//! A session file has one `[[session]]` with a `name`, and `[[topic]]`, `[[subscriber]]` and `[[chain]]` as a contract has them, which may
//! refer to nodes and topics of the contract and of earlier sessions. Nodes, links and placement belong to the contract alone.

use super::file::{self, Starts, unreadable};
use super::value::{self, Entry, Value, Wrong, wrong};
use super::{ContractError, read};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;

/// Longest name of a session, in bytes.
const LONGEST_NAME: usize = 64;
/// Shortest lease, ns.
pub(super) const SHORTEST_LEASE: u64 = 1_000_000_000;

/// The tables of a session file. What stands in the others is read with the contract.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    session: Vec<Spanned<file::Session>>,
    #[serde(default, rename = "topic")]
    _topic: Vec<IgnoredAny>,
    #[serde(default)]
    subscriber: Vec<Spanned<Wish>>,
    #[serde(default, rename = "chain")]
    _chain: Vec<IgnoredAny>,
}

/// What is read of a subscriber.
#[derive(Deserialize)]
struct Wish {
    node: Entry,
}

impl Wish {
    /// The node, if it is in another domain: `DOMAIN/NODE`.
    fn abroad(&self) -> Option<(String, Range<usize>)> {
        let value = self.node.as_ref()?;
        match value.get_ref() {
            Value::Text(text) if text.contains('/') => Some((text.clone(), value.span())),
            _ => None,
        }
    }
}

/// A session file, of which the name was read, and that it has no other tables than it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its name: 1 to 64 letters, digits, `_`, `-` and `.`, the first one a letter or digit.
    pub name: String,
    /// The time after which it ends unless it is asked for again, 1 s to a day; `None`: it stays until it is stopped.
    pub lease: Option<Duration>,
    /// Order of giving way when links carry less than the contract says: higher stays.
    pub importance: i64,
    /// The text of the file.
    pub text: String,
    /// Nodes of other domains that its subscribers are on, `DOMAIN/NODE`, with their lines.
    pub abroad: Vec<(String, usize)>,
}

impl Session {
    /// Reads the text of a session file.
    ///
    /// # Errors
    /// [`ContractError`] with line, key, value and the allowed ones.
    pub fn read(text: &str) -> Result<Self, ContractError> {
        let starts = Starts::of(text);
        let failed = |(at, problem): Wrong| ContractError { line: starts.line(at.start), problem };
        let file: File = toml::from_str(text).map_err(|e| failed(unreadable(text, &e)))?;
        let table = table(&file.session).map_err(failed)?;
        let name = name(table).map_err(failed)?;
        let lease = value::time("lease", &table.get_ref().lease, SHORTEST_LEASE).map_err(failed)?;
        let importance = read::importance(&table.get_ref().importance).map_err(failed)?;
        let abroad: Vec<_> = file.subscriber.iter().map(|table| table.get_ref().abroad().ok_or(table.span())).collect();
        let one =
            abroad.iter().any(Result::is_ok).then(|| abroad.iter().find_map(|found| found.as_ref().err())).flatten();
        if let Some(at) = one {
            let said =
                "this subscriber is in the own domain, and others are in other ones: allowed are sessions of one kind";
            return Err(failed((at.clone(), said.to_owned())));
        }
        let abroad = abroad.into_iter().flatten().map(|(node, at)| (node, starts.line(at.start))).collect();
        Ok(Self { name, lease: lease.map(Duration::from_nanos), importance, text: text.to_owned(), abroad })
    }
}

fn table(tables: &[Spanned<file::Session>]) -> Result<&Spanned<file::Session>, Wrong> {
    let [table] = tables else {
        let at = tables.get(1).map_or(0..0, Spanned::span);
        return Err((at, format!("{} [[session]] tables: a session file has one, with a name", tables.len())));
    };
    Ok(table)
}

fn name(table: &Spanned<file::Session>) -> Result<String, Wrong> {
    match &table.get_ref().name {
        None => Err((table.span(), "name is missing: allowed is a name such as \"teleop\"".to_owned())),
        Some(value) => match value.get_ref() {
            Value::Text(text) if is_name(text) => Ok(text.clone()),
            _ => wrong("name", value, "1 to 64 letters, digits, _ - . that begin with a letter or digit"),
        },
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.len() <= LONGEST_NAME && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Contract;

    const CONTRACT: &str = "[[node]]\nname = \"a\"\n";

    #[test]
    fn a_lease_is_a_second_to_a_day() {
        let read = |lease: &str| Session::read(&format!("[[session]]\nname = \"s\"\nlease = {lease}\n"));
        assert_eq!(read("\"90 s\"").unwrap().lease, Some(Duration::from_secs(90)));
        assert_eq!(Session::read("[[session]]\nname = \"s\"\n").unwrap().lease, None);
        for wrong in ["\"0.5 s\"", "\"86401 s\"", "30", "\"30\""] {
            assert!(read(wrong).is_err_and(|error| error.line == 3), "{wrong}");
        }
    }

    /// What may not be changed by who asks for a session, in any way that it can be written.
    #[test]
    fn a_session_has_no_part_of_the_network() {
        let head = "[[session]]\nname = \"s\"\n";
        let wrong = [
            "[[node]]\nname = \"c\"\n",
            "[[link]]\nbetween = [\"a\", \"b\"]\n",
            "[placement]\nproxies = \"none\"\n",
            "[system]\nname = \"x\"\n",
            "[topic]\nname = \"x\"\n",
            "[[topic.x]]\n",
            "[session]\nname = \"x\"\n",
            head,
        ];
        for text in wrong {
            assert!(Session::read(&format!("{head}{text}")).is_err(), "{text}");
        }
        for text in ["rate = \"9 Gbit/s\"\n[[session]]\nname = \"s\"\n", "", "[[session]]\n"] {
            assert!(Session::read(text).is_err(), "{text}");
        }
        for name in ["", "-x", "a b", "a/b", "..", "é", &"x".repeat(65)] {
            assert!(Session::read(&format!("[[session]]\nname = {name:?}\n")).is_err(), "{name}");
        }
        assert!(Contract::read(&format!("{CONTRACT}{head}")).is_err(), "a contract has none");
    }
}
