//! A contract file as it is written: its tables, its lines, and the names that stand there. An unknown key is refused.

use super::value::{Entry, Value, Wrong, wrong};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub system: Option<System>,
    #[serde(default)]
    pub node: Vec<Spanned<Node>>,
    #[serde(default)]
    pub link: Vec<Spanned<Link>>,
    #[serde(default)]
    pub topic: Vec<Spanned<Topic>>,
    #[serde(default)]
    pub subscriber: Vec<Spanned<Subscriber>>,
    #[serde(default)]
    pub chain: Vec<Spanned<Chain>>,
    #[serde(default)]
    pub neighbour: Vec<Spanned<Neighbour>>,
    #[serde(default)]
    pub pipe: Vec<Spanned<Pipe>>,
    #[serde(default)]
    pub rule: Vec<Spanned<Rule>>,
    #[serde(default)]
    pub session: Vec<Spanned<Session>>,
    pub placement: Option<Placement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct System {
    pub name: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub name: Entry,
    pub kind: Entry,
    pub cpus: Entry,
    pub domain: Entry,
    pub proxy: Entry,
    pub proxy_capacity: Entry,
    pub sched: Entry,
    pub hand_over: Entry,
    pub address: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub name: Entry,
    pub between: Entry,
    pub rate: Entry,
    pub delay: Entry,
    pub forwarding: Entry,
    pub transmission: Entry,
    pub mtu: Entry,
    pub overhead: Entry,
    pub scheduler: Entry,
    pub shares: Option<Spanned<Shares>>,
    pub background: Entry,
    pub control: Entry,
    pub devices: Option<Spanned<Ends>>,
    pub tunnel: Option<Spanned<Tunnel>>,
}

/// A value for each end of a link, by the node's name.
pub(super) type Ends = BTreeMap<String, Spanned<Value>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    pub kind: Entry,
    pub id: Entry,
    pub port: Entry,
    pub ends: Option<Spanned<Ends>>,
    pub inside: Option<Spanned<Ends>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shares {
    pub low: Entry,
    pub normal: Entry,
    pub high: Entry,
    pub critical: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topic {
    pub name: Entry,
    pub size: Entry,
    pub period: Entry,
    pub rate: Entry,
    pub jitter: Entry,
    pub burst: Entry,
    pub publisher: Entry,
    pub cpu_send: Entry,
    pub service: Entry,
    pub hand_in: Entry,
    pub hand_out: Entry,
    pub buffer: Entry,
    pub class: Entry,
    pub sched: Entry,
    pub police: Entry,
    pub own_queue: Entry,
    pub latency_budget: Entry,
    pub pace: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscriber {
    pub topic: Entry,
    pub node: Entry,
    pub name: Entry,
    pub scale: Entry,
    pub scale_max: Entry,
    pub picture: Entry,
    pub scaled_size: Entry,
    pub deadline: Entry,
    pub cpu_receive: Entry,
    pub sched: Entry,
    pub importance: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chain {
    pub name: Entry,
    pub topics: Entry,
    pub publisher: Entry,
    pub subscribers: Entry,
    pub sampled: Entry,
    pub deadline: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Neighbour {
    pub domain: Entry,
    pub via: Entry,
    pub broker: Entry,
    pub reach: Entry,
    pub device: Entry,
    pub tunnel: Option<Spanned<TunnelEnd>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TunnelEnd {
    pub kind: Entry,
    pub id: Entry,
    pub port: Entry,
    pub local: Entry,
    pub remote: Entry,
    pub inside: Entry,
    pub mtu: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pipe {
    pub name: Entry,
    pub from: Entry,
    pub to: Entry,
    pub class: Entry,
    pub rate: Entry,
    pub burst: Entry,
    pub largest: Entry,
    pub deadline: Entry,
    pub price: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub name: Entry,
    pub users: Entry,
    pub domains: Entry,
    pub may: Entry,
    pub sessions: Entry,
    pub rate: Entry,
    pub deadline: Entry,
    pub lease: Entry,
    pub importance: Entry,
    pub topics: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub name: Entry,
    pub lease: Entry,
    pub importance: Entry,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placement {
    pub proxies: Entry,
    pub objective: Entry,
    pub cpu_weight: Entry,
    pub transport: Entry,
    pub delay: Entry,
    pub cpu_proxy: Entry,
}

/// Most letters of a line that are shown.
const SHOWN: usize = 64;

/// Offsets of the lines of a file.
pub(super) struct Starts(Vec<usize>);

impl Starts {
    pub(super) fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    /// The line, counted from 1, in which a byte stands.
    pub(super) fn line(&self, at: usize) -> usize {
        self.0.partition_point(|start| *start <= at)
    }
}

/// The TOML reader's error in one line, with the text at that place.
pub(super) fn unreadable(text: &str, error: &toml::de::Error) -> Wrong {
    let at = error.span().unwrap_or(0..0);
    let line = written(text, at.start);
    let single = line.starts_with('[') && !line.starts_with("[[");
    let problem = match error.message() {
        said if said.contains("recurs") => {
            "nested too deeply: allowed are the tables and lists of a contract".to_owned()
        }
        said if said.ends_with("expected a sequence") || (single && said == "duplicate key") => {
            "there may be several: allowed are tables in double brackets, such as [[node]]".to_owned()
        }
        said if said.contains("expected struct") => "allowed is one table, in single brackets or in braces".to_owned(),
        said => said.replace('\n', "; "),
    };
    (at, if line.is_empty() { problem } else { format!("{line}: {problem}") })
}

/// The start of a byte's line, without characters that no terminal should get.
fn written(text: &str, at: usize) -> String {
    let (before, after) = text.split_at_checked(at).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| before.len() + newline);
    let line = text[start..end].trim();
    let is_plain = |c: &char| matches!(c, '"' | '\'' | '\\');
    let shown =
        line.chars().take(SHOWN).map(|c| if is_plain(&c) { c.to_string() } else { c.escape_debug().to_string() });
    let more = if line.chars().nth(SHOWN).is_some() { "…" } else { "" };
    shown.collect::<String>() + more
}

/// The names so far.
pub(super) struct Names<'a> {
    kind: &'static str,
    starts: &'a Starts,
    /// Each name's place in the order of the file, and its position there.
    at: HashMap<String, (usize, usize)>,
}

impl<'a> Names<'a> {
    pub(super) fn new(kind: &'static str, starts: &'a Starts) -> Self {
        Self { kind, starts, at: HashMap::new() }
    }

    /// A name from a table, or the default given to it.
    pub(super) fn add(&mut self, name: &str, written: &Entry, table: &Range<usize>) -> Result<(), Wrong> {
        let (next, at) = (self.at.len(), place(written, table));
        let Some((_, first)) = self.at.insert(name.to_owned(), (next, at.start)) else { return Ok(()) };
        let given = if written.is_none() { ", given to what has no name" } else { "" };
        let (kind, line) = (self.kind, self.starts.line(first));
        Err((at, format!("name = {name:?}{given}: already used in line {line}: allowed is each {kind}'s name once")))
    }

    /// `true` if a part has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.at.contains_key(name)
    }

    /// The part that a value names.
    pub(super) fn find(&self, key: &str, value: &Spanned<Value>) -> Result<usize, Wrong> {
        let found = match value.get_ref() {
            Value::Text(text) => self.at.get(text),
            _ => None,
        };
        found.map_or_else(|| wrong(key, value, self.allowed()), |(index, _)| Ok(*index))
    }

    /// As [`Names::find`], at a key that must be there.
    pub(super) fn need(&self, key: &str, entry: &Entry, table: &Range<usize>) -> Result<usize, Wrong> {
        match entry {
            Some(value) => self.find(key, value),
            None => Err((table.clone(), format!("{key} is missing: allowed is {}", self.allowed()))),
        }
    }

    fn allowed(&self) -> String {
        let mut known: Vec<(&String, &(usize, usize))> = self.at.iter().collect();
        known.sort_by_key(|(_, at)| **at);
        let shown: Vec<&str> = known.iter().take(12).map(|(name, _)| name.as_str()).collect();
        let more = if known.len() > shown.len() { ", …" } else { "" };
        format!("the name of a {} of this file: {}{more}", self.kind, shown.join(", "))
    }
}

/// The place of a value, or else of its table.
pub(super) fn place(entry: &Entry, table: &Range<usize>) -> Range<usize> {
    entry.as_ref().map_or_else(|| table.clone(), Spanned::span)
}
