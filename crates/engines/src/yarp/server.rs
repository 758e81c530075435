//! A small name server: names of ports with their addresses and properties. A state machine; a [`port`](super::port) asks it.
//!
//! | command | answer |
//! |---|---|
//! | `register NAME [CARRIER [HOST [PORT]]]`, `query NAME`, `unregister NAME` | the registration, if there is one |
//! | `list [PREFIX]` | all registrations, or those of a name and below it, by name |
//! | `set NAME KEY VALUE…`, `get NAME KEY`, `match NAME KEY PREFIX` | the values |
//! | `check NAME KEY VALUE` | `true` or `false` |
//! | `route FROM TO` | `tcp` |
//! | `bot list`, `bot query`, `bot set`, `bot get`, `version`, `announce`, `gc`, `help` | as yarpserver |
//!
//! A program that asks over a binary connection gets the answer as a bottle, a failure as `fail "reason"`. The texts are those of
//! `NameServer.cpp`. Left out: multicast addresses, topics and connections that are kept in the name server.

mod answer;

use super::names::{LONGEST_NAME, Registration, check, shown};
use answer::{Answer, failed};
use std::collections::{BTreeMap, HashSet};
use thalweg::bottle::{Bottle, Value};

/// Most names, and properties and values of each. A robot has some thousand ports.
const MOST_NAMES: usize = 10_000;
const MOST_PROPERTIES: usize = 32;
const MOST_VALUES: usize = 64;
/// Longest value, in bytes.
const LONGEST_VALUE: usize = 255;
/// Longest word of a command: a name behind that of a network. Answers repeat words.
const LONGEST_WORD: usize = 2 * LONGEST_NAME;
/// Ports that are given out, above the first one.
const PORTS: u16 = 10_000;

/// The names.
pub(crate) struct Names {
    records: BTreeMap<String, Record>,
    /// The first port that is given out: that of the name server, and 2.
    first: u16,
    /// Ports given out so far: one that was just given back may be in use for a while.
    given: u64,
    /// Names that programs left to the server.
    named: u64,
}

struct Record {
    registration: Registration,
    properties: BTreeMap<String, Vec<String>>,
}

const HELP: &str = "Here are some ways to use the name server:\n+ help\n+ list [$prefix]\n+ register $portname\n\
                    + register $portname $carrier $ipAddress $portNumber\n  (if you want a field set automatically, write '...')\n\
                    + unregister $portname\n+ query $portname\n+ set $portname $property $value\n+ get $portname $property\n\
                    + check $portname $property\n+ match $portname $property $prefix\n+ route $port1 $port2\n+ gc\n";

impl Names {
    /// A name server that is itself the port `own`, usually `/root`.
    pub(crate) fn new(own: Registration) -> Self {
        let first = own.port.checked_add(2).filter(|first| *first < u16::MAX - PORTS).unwrap_or(10_002);
        let mut names = Self { records: BTreeMap::new(), first, given: 0, named: 0 };
        names.put(own);
        names
    }

    /// Carries a command out that came from `host`.
    pub(crate) fn answer(&mut self, command: &str, host: &str) -> Answer {
        let words: Vec<&str> = command.split([' ', '\t', '\n', '"']).filter(|word| !word.is_empty()).collect();
        let said = match words[..] {
            _ if words.iter().any(|word| word.len() > LONGEST_WORD) => {
                Err(format!("a word of a command has at most {LONGEST_WORD} characters"))
            }
            ["check", _, _, ref values @ ..] if values.len() > MOST_VALUES => {
                Err(format!("at most {MOST_VALUES} values are checked at once"))
            }
            ["bot", "list", ref rest @ ..] => {
                return Answer::Bottle(self.bot_list(rest.first().copied().unwrap_or_default()));
            }
            ["bot", "query", name] => return Answer::Bottle(bot_query(self.records.get(name))),
            ["bot", "set", ref rest @ ..] => {
                let done = self.set(rest).map(|_| Bottle(vec!["ok".into()]));
                return Answer::Bottle(done.unwrap_or_else(failed));
            }
            ["bot", "get", name, key] => return Answer::Bottle(self.bot_get(name, key)),
            ["register", name, ref rest @ ..] => self.register(name, rest, host),
            ["unregister", name] => {
                self.records.remove(name);
                Ok(String::new())
            }
            ["query", name] => Ok(self.records.get(plain(name)).map(line).unwrap_or_default()),
            ["list"] => Ok(self.below("").map(line).collect()),
            ["list", prefix] => Ok(self.below(prefix).map(line).collect()),
            ["set", ref rest @ ..] => self.set(rest),
            ["get", name, key] => Ok(self.property(name, key)),
            ["check", name, key, ref values @ ..] => Ok(self.check(name, key, values)),
            ["match", name, key, prefix] => {
                let found = self.all(name, key).iter().find(|value| value.starts_with(prefix));
                Ok(format!("port {name} property {key} = {}\n", found.map_or("", |found| found)))
            }
            ["route", from, to, ..] => Ok(format!("port {from} route {to} = tcp:/{to}\n")),
            ["announce", ..] => Ok("ok\n".to_owned()),
            ["gc"] => Ok("No cleaning done.\n".to_owned()),
            ["help"] => Ok(HELP.to_owned()),
            ["version"] => Ok(format!("version {}\n", env!("CARGO_PKG_VERSION"))),
            _ => Err(format!("unknown command {}; send help for a list", shown(command))),
        };
        said.map_or_else(Answer::Refused, Answer::Lines)
    }

    /// Registers a name, in place of what had it before. What is `...` or missing the server chooses.
    fn register(&mut self, name: &str, rest: &[&str], remote: &str) -> Result<String, String> {
        let given = |at: usize| rest.get(at).copied().filter(|word| *word != "...");
        let carrier = given(0).unwrap_or("tcp");
        let host = given(1).unwrap_or(remote);
        if carrier == "mcast" || carrier == "topic" {
            return Err(format!("{carrier} is not offered by this name server: register {name} tcp"));
        }
        if host.len() > LONGEST_NAME || carrier.len() > LONGEST_NAME {
            return Err(format!("carrier and host have at most {LONGEST_NAME} characters"));
        }
        let name = self.complete(name);
        check(&name)?;
        if self.records.len() >= MOST_NAMES && !self.records.contains_key(&name) {
            return Err(format!("{MOST_NAMES} names are registered, and no more are taken: unregister some"));
        }
        let port = match given(2).map(str::parse) {
            None | Some(Ok(0)) => self.free_port(host)?,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(format!("{} is no port number: allowed are 0 to 65535", shown(rest[2]))),
        };
        let registration = Registration { name, host: host.to_owned(), port, carrier: carrier.to_owned() };
        let said = format!("{registration}\n");
        self.put(registration);
        Ok(said)
    }

    fn put(&mut self, registration: Registration) {
        self.records.insert(registration.name.clone(), Record { registration, properties: BTreeMap::new() });
    }

    /// A name for `...`, and for `=…`.
    fn complete(&mut self, name: &str) -> String {
        let rest = match name {
            "..." => "",
            _ if name.starts_with('=') => name,
            _ => return name.to_owned(),
        };
        self.named += 1;
        format!("/tmp/port/{}{rest}", self.named)
    }

    /// A port that no name has on this host.
    fn free_port(&mut self, host: &str) -> Result<u16, String> {
        let registered = self.records.values().map(|record| &record.registration);
        let used: HashSet<u16> = registered.filter(|one| one.host == host).map(|one| one.port).collect();
        for _ in 0..PORTS {
            let port = self.first + (self.given % u64::from(PORTS)) as u16;
            self.given += 1;
            if !used.contains(&port) {
                return Ok(port);
            }
        }
        Err(format!("all {PORTS} ports of {host} are registered"))
    }

    fn set(&mut self, rest: &[&str]) -> Result<String, String> {
        let [name, key, values @ ..] = rest else {
            return Err("need at least two arguments: the port name, and a key".to_owned());
        };
        let Some(record) = self.records.get_mut(*name) else {
            return Err(format!("port {} is not known", shown(name)));
        };
        let longest = values.iter().chain([key]).map(|value| value.len()).max().unwrap_or_default();
        let is_more = !record.properties.contains_key(*key) && record.properties.len() >= MOST_PROPERTIES;
        if is_more || values.len() > MOST_VALUES || longest > LONGEST_VALUE {
            return Err(format!(
                "a port has at most {MOST_PROPERTIES} properties, of {MOST_VALUES} values with {LONGEST_VALUE} characters each"
            ));
        }
        record.properties.insert((*key).to_owned(), values.iter().map(|value| (*value).to_owned()).collect());
        Ok(self.property(name, key))
    }

    fn all(&self, name: &str, key: &str) -> &[String] {
        self.records.get(name).and_then(|record| record.properties.get(key)).map_or(&[], Vec::as_slice)
    }

    fn values(&self, name: &str, key: &str) -> String {
        self.all(name, key).join(" ")
    }

    fn property(&self, name: &str, key: &str) -> String {
        format!("port {name} property {key} = {}\n", self.values(name, key))
    }

    fn check(&self, name: &str, key: &str, values: &[&str]) -> String {
        let has = |value: &str| self.all(name, key).iter().any(|one| one == value);
        let lines =
            values.iter().map(|value| format!("port {name} property {key} value {value} present {}\n", has(value)));
        lines.collect()
    }

    /// Ports of this name, and below it; all, if it is empty.
    fn below(&self, prefix: &str) -> impl Iterator<Item = &Record> {
        let is_below = move |name: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                prefix.is_empty() || rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/')
            })
        };
        self.records.values().filter(move |record| is_below(&record.registration.name))
    }

    fn bot_list(&self, prefix: &str) -> Bottle {
        let lists = self.below(prefix).map(|record| Value::List(bot(&record.registration)));
        Bottle([Value::text("ports")].into_iter().chain(lists).collect())
    }

    /// Values are words; those that are no bottle are one text.
    fn bot_get(&self, name: &str, key: &str) -> Bottle {
        let values = self.values(name, key);
        Bottle::parse(&values).unwrap_or_else(|_| Bottle(vec![Value::Text(values)]))
    }
}

fn line(record: &Record) -> String {
    format!("{}\n", record.registration)
}

/// The name in a query for an address in a network of choice, `/net=PREFIX/NAME`: a port here has one address.
fn plain(name: &str) -> &str {
    name.strip_prefix("/net=").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or(name)
}

fn bot(registration: &Registration) -> Vec<Value> {
    let Registration { name, host, port, carrier } = registration;
    vec![
        Value::text("port"),
        Value::pair("name", name.as_str()),
        Value::pair("ip", host.as_str()),
        Value::pair("port_number", i64::from(*port)),
        Value::pair("carrier", carrier.as_str()),
    ]
}

fn bot_query(record: Option<&Record>) -> Bottle {
    let unknown =
        || vec![Value::text("port"), Value::List(vec!["error".into(), Value::Int(-2), "port not known".into()])];
    Bottle(record.map_or_else(unknown, |record| bot(&record.registration)))
}

#[cfg(test)]
mod tests;
