//! A contract's rules: which users and neighbouring domains may ask for which sessions, and how much of them at once.
//!
//! A contract without a rule for users lets every user of the realm ask for everything, but stop no sessions of others; without one for domains pipes are their only limit. With one,
//! somebody for whom no rule stands may do nothing but look.

use super::file;
use super::pipe::{self, Neighbour};
use super::value::{self, Value, Wrong, needed, wrong};
use std::fmt;
use std::time::Duration;
use toml::Spanned;

/// Most rules.
const MOST_RULES: usize = 1000;
/// Most names of a list.
const MOST_NAMES: usize = 1000;
/// Most sessions that a rule can state.
const MOST_SESSIONS: i64 = 1_000_000;

/// What a rule allows to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To ask for sessions, to change and to stop the own ones.
    Request,
    /// To stop sessions of others.
    Stop,
    /// To say what links carry.
    Links,
    /// To take the plan away from all hosts.
    Plan,
}

impl Right {
    /// All of them, with their words in a contract.
    const WORDS: [(&str, Self); 4] =
        [("request", Self::Request), ("stop", Self::Stop), ("links", Self::Links), ("plan", Self::Plan)];
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, right)| right == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}

/// A rule. A limit that is `None` is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its name, by which a refusal names it.
    pub name: String,
    /// The users that it is for: names, or beginnings of names with `*` behind.
    pub users: Vec<String>,
    /// The domains that it is for, by sessions that come from there.
    pub domains: Vec<String>,
    /// What it allows.
    pub may: Vec<Right>,
    /// Most sessions that each of them has at once.
    pub sessions: Option<u32>,
    /// Most bit/s that all sessions of each of them have together: samples to all subscribers, without headers.
    pub rate: Option<u64>,
    /// The shortest deadline, ns.
    pub deadline: Option<u64>,
    /// The longest lease; then a session must have one.
    pub lease: Option<Duration>,
    /// The highest importance.
    pub importance: Option<i64>,
    /// The topics that sessions may have or subscribe to: names, or beginnings with `*` behind. `None`: all.
    pub topics: Option<Vec<String>>,
}

/// `true` if a name is in the list, or begins as one of its entries that ends with `*`.
pub fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|entry| entry.strip_suffix('*').map_or(entry == name, |beginning| name.starts_with(beginning)))
}

/// Rules of a contract with these neighbours.
pub(super) fn rules(tables: &[Spanned<file::Rule>], neighbours: &[Neighbour]) -> Result<Vec<Rule>, Wrong> {
    if let Some(table) = tables.get(MOST_RULES) {
        return Err((table.span(), format!("{} [[rule]] tables: allowed are {MOST_RULES}", tables.len())));
    }
    let mut known: Vec<Rule> = Vec::new();
    for table in tables {
        let rule = rule(table, neighbours)?;
        if known.iter().any(|other| other.name == rule.name) {
            let said = format!("name = {:?}: another rule has this name", rule.name);
            return Err((file::place(&table.get_ref().name, &table.span()), said));
        }
        known.push(rule);
    }
    Ok(known)
}

fn rule(table: &Spanned<file::Rule>, neighbours: &[Neighbour]) -> Result<Rule, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let name = needed(value::name("name", &entry.name)?, at, "name", "\"operators\"")?;
    let users = names("users", &entry.users)?;
    let domains = names("domains", &entry.domains)?;
    if users.is_some() == domains.is_some() {
        return Err((
            at.clone(),
            format!("rule {name:?}: allowed is either users or domains, such as users = [\"ann\"]"),
        ));
    }
    for domain in domains.iter().flatten() {
        reached(entry, domain, neighbours)?;
    }
    // Of other domains' users this one knows nothing.
    for (key, value) in [("may", &entry.may), ("lease", &entry.lease), ("importance", &entry.importance)] {
        if let (Some(_), Some(value)) = (&domains, value) {
            return wrong(key, value, format_args!("{key} for users, not for domains"));
        }
    }
    let rights = may(&entry.may)?.unwrap_or_else(|| vec![Right::Request]);
    let limits = [&entry.sessions, &entry.rate, &entry.deadline, &entry.lease, &entry.importance, &entry.topics];
    if let (Some(limit), false) = (limits.into_iter().flatten().next(), rights.contains(&Right::Request)) {
        let said = format!("rule {name:?} has a limit for sessions: allowed is that with may = [\"request\"]");
        return Err((limit.span(), said));
    }
    Ok(Rule {
        name,
        users: users.unwrap_or_default(),
        domains: domains.unwrap_or_default(),
        may: rights,
        sessions: value::whole("sessions", &entry.sessions, 0..=MOST_SESSIONS)?.map(|most| most as u32),
        rate: value::bit_rate("rate", &entry.rate, 1)?,
        deadline: value::time("deadline", &entry.deadline, 1)?,
        lease: value::time("lease", &entry.lease, super::session::SHORTEST_LEASE)?.map(Duration::from_nanos),
        importance: entry.importance.as_ref().map(|_| super::read::importance(&entry.importance)).transpose()?,
        topics: names("topics", &entry.topics)?,
    })
}

/// Refuses a domain from which nothing comes.
fn reached(entry: &file::Rule, domain: &str, neighbours: &[Neighbour]) -> Result<(), Wrong> {
    let all: Vec<&str> = neighbours.iter().flat_map(pipe::domains).collect();
    match (&entry.domains, all.iter().any(|known| has(&[domain.to_owned()], known))) {
        (Some(value), false) => {
            let allowed = if all.is_empty() {
                "a domain of a [[neighbour]], and there is none".to_owned()
            } else {
                all.join(", ")
            };
            wrong("domains", value, allowed)
        }
        _ => Ok(()),
    }
}

fn names(key: &str, entry: &value::Entry) -> Result<Option<Vec<String>>, Wrong> {
    let allowed =
        format!("a list of 1 to {MOST_NAMES} names, or beginnings with * behind, such as [\"ann\", \"ops-*\"]");
    list(key, entry, allowed, |value| match value {
        Value::Text(text) => text_of_name(text),
        _ => None,
    })
}

/// A name, or a beginning of one with `*` behind.
fn text_of_name(text: &str) -> Option<String> {
    let beginning = text.strip_suffix('*').unwrap_or(text);
    let short = (1..256).contains(&text.len()) && !text.chars().any(char::is_control);
    (short && !beginning.contains('*')).then(|| text.to_owned())
}

fn may(entry: &value::Entry) -> Result<Option<Vec<Right>>, Wrong> {
    let words: Vec<&str> = Right::WORDS.iter().map(|(word, _)| *word).collect();
    list("may", entry, format!("a list of {}", words.join(", ")), |value| match value {
        Value::Text(text) => Right::WORDS.iter().find(|(word, _)| word == text).map(|(_, right)| *right),
        _ => None,
    })
}

fn list<T>(
    key: &str,
    entry: &value::Entry,
    allowed: String,
    one: impl Fn(&Value) -> Option<T>,
) -> Result<Option<Vec<T>>, Wrong> {
    let Some(value) = entry else { return Ok(None) };
    let read = match value.get_ref() {
        Value::List(list) if (1..=MOST_NAMES).contains(&list.len()) => {
            list.iter().map(|item| one(item.get_ref())).collect()
        }
        _ => None,
    };
    read.map_or_else(|| wrong(key, value, allowed), |read: Vec<T>| Ok(Some(read)))
}

#[cfg(test)]
mod tests {
    use super::super::Contract;
    use super::*;

    const CONTRACT: &str =
        "[[node]]\nname = \"a\"\n[[neighbour]]\ndomain = \"wan\"\nvia = \"a\"\nbroker = \"w:1\"\nreach = [\"base\"]\n";

    fn read(rules: &str) -> Result<Vec<Rule>, String> {
        Contract::read(&format!("{CONTRACT}{rules}")).map(|contract| contract.rules).map_err(|e| e.to_string())
    }

    #[test]
    fn a_rule_has_limits() {
        let rules = read(
            "[[rule]]\nname = \"operators\"\nusers = [\"ann\", \"ops-*\"]\nmay = [\"request\", \"stop\"]\nsessions = 4\nrate = \"2 Mbit/s\"\n\
             deadline = \"5 ms\"\nlease = \"60 s\"\nimportance = 3\ntopics = [\"map*\"]\n[[rule]]\nname = \"wan\"\ndomains = [\"base\"]\n",
        )
        .unwrap();
        let operators = Rule {
            name: "operators".into(),
            users: vec!["ann".into(), "ops-*".into()],
            may: vec![Right::Request, Right::Stop],
            sessions: Some(4),
            rate: Some(2_000_000),
            deadline: Some(5_000_000),
            lease: Some(Duration::from_secs(60)),
            importance: Some(3),
            topics: Some(vec!["map*".into()]),
            ..Rule::default()
        };
        let wan =
            Rule { name: "wan".into(), domains: vec!["base".into()], may: vec![Right::Request], ..Rule::default() };
        assert_eq!(rules, [operators, wan]);
        assert_eq!(read(""), Ok(Vec::new()));
    }

    #[test]
    fn a_name_with_a_star_is_a_beginning() {
        let list = ["ann".to_owned(), "ops-*".to_owned()];
        for (name, is_there) in
            [("ann", true), ("anna", false), ("ops-1", true), ("ops-", true), ("ops", false), ("", false)]
        {
            assert_eq!(has(&list, name), is_there, "{name}");
        }
        assert!(has(&["*".to_owned()], "anybody"));
    }

    #[test]
    fn what_is_wrong_in_a_rule_is_named() {
        for (rest, said) in [
            ("", "either users or domains"),
            ("users = [\"ann\"]\ndomains = [\"wan\"]\n", "either users or domains"),
            ("users = []\n", "a list of 1 to"),
            ("users = \"ann\"\n", "a list of 1 to"),
            ("users = [\"a*b\"]\n", "names"),
            ("domains = [\"moon\"]\n", "allowed is wan, base"),
            ("domains = [\"wan\"]\nimportance = 2\n", "not for domains"),
            ("users = [\"ann\"]\nmay = [\"fly\"]\n", "request, stop, links, plan"),
            ("users = [\"ann\"]\nmay = [\"stop\"]\nsessions = 1\n", "with may = [\"request\"]"),
            ("users = [\"ann\"]\nlease = \"1 ms\"\n", "lease"),
            ("users = [\"ann\"]\ncolour = 1\n", "colour"),
        ] {
            let found = read(&format!("[[rule]]\nname = \"r\"\n{rest}"));
            assert!(found.as_ref().is_err_and(|error| error.contains(said)), "{rest}: {found:?}");
        }
        let twice = "[[rule]]\nname = \"r\"\nusers = [\"*\"]\n";
        assert!(read(&format!("{twice}{twice}")).is_err_and(|error| error.starts_with("12: ")), "by its line");
        let alone = "[[node]]\nname = \"a\"\n[[rule]]\nname = \"r\"\ndomains = [\"wan\"]\n";
        assert!(Contract::read(alone).is_err(), "nothing comes from anywhere");
    }
}
