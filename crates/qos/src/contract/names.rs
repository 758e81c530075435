//! The names of a contract file: where each stands, and what may refer to it.

use super::text::Starts;
use super::value::{Entry, Value, Wrong, wrong};
use std::collections::HashMap;
use std::ops::Range;
use toml::Spanned;

/// What has been named so far.
pub(super) struct Names<'a> {
    kind: &'static str,
    starts: &'a Starts,
    /// Each name's place in the order of the file, and where it stands there.
    at: HashMap<String, (usize, usize)>,
}

impl<'a> Names<'a> {
    pub fn new(kind: &'static str, starts: &'a Starts) -> Self {
        Self { kind, starts, at: HashMap::new() }
    }

    /// A name as it is written in a table, or else given to it.
    pub fn add(&mut self, name: &str, written: &Entry, table: &Range<usize>) -> Result<(), Wrong> {
        let (next, at) = (self.at.len(), place(written, table));
        let Some((_, first)) = self.at.insert(name.to_owned(), (next, at.start)) else { return Ok(()) };
        let given = if written.is_none() { ", given to what has no name" } else { "" };
        let (kind, line) = (self.kind, self.starts.line(first));
        Err((at, format!("name = {name:?}{given}: already used in line {line}: allowed is each {kind}'s name once")))
    }

    /// Whether a part has this name.
    pub fn has(&self, name: &str) -> bool {
        self.at.contains_key(name)
    }

    /// The part that a value names.
    pub fn find(&self, key: &str, value: &Spanned<Value>) -> Result<usize, Wrong> {
        let found = match value.get_ref() {
            Value::Text(text) => self.at.get(text),
            _ => None,
        };
        found.map_or_else(|| wrong(key, value, self.allowed()), |(index, _)| Ok(*index))
    }

    /// As [`Names::find`], at a key that must be there.
    pub fn need(&self, key: &str, entry: &Entry, table: &Range<usize>) -> Result<usize, Wrong> {
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

/// Where a value stands, or else its table.
pub(super) fn place(entry: &Entry, table: &Range<usize>) -> Range<usize> {
    entry.as_ref().map_or_else(|| table.clone(), Spanned::span)
}
