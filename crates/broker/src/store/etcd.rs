//! A domain's state in etcd, for several brokers of which one leads.
//!
//! | key | value |
//! |---|---|
//! | `/thalweg/REALM/DOMAIN/leader` | who leads; it goes with its lease |
//! | `…/write` | the last write: a number that no two writes have |
//! | `…/parts/NAME`, `…/crossings/NAME`, `…/accounts/NUMBER` | the tables; longer values are compressed (`compression`) |
//!
//! Each write is a transaction that compares the creation of `leader` and the last change of `write`. So a broker that was stopped, and wakes up when
//! another one leads, writes nothing; nor does a write that is late come between two others. (Locks of etcd alone do not prevent that: Jepsen, etcd 3.4.3, 2020.)

mod compression;
mod gateway;
mod lead;

pub use gateway::Tls;
pub use lead::Lead;

use super::{Change, Database, Entry, Table};
use compression::{compressed, decompressed};
use gateway::{Gateway, KeyValue, Number, Range, Transaction, base64};
use lead::{Renewed, granted};
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks whether somebody leads.
const LOOK: Duration = Duration::from_millis(200);
/// Most operations of a transaction: etcd's own limit, if it is not set.
const OPERATIONS: usize = 128;

/// A broker that wants to lead its domain.
#[derive(Debug)]
pub struct Campaign {
    gateway: Gateway,
    prefix: String,
    name: String,
}

impl Campaign {
    /// `members`: URLs of etcd's; `domain`: `REALM/DOMAIN`; `name`: of this broker among those of the domain, for people.
    ///
    /// # Errors
    /// A certificate or key that cannot be read.
    pub fn new(members: &[String], tls: Option<&Tls>, domain: &str, name: &str) -> io::Result<Self> {
        let gateway = Gateway::new(members, tls)?;
        Ok(Self { gateway, prefix: format!("/thalweg/{domain}/"), name: name.to_owned() })
    }

    /// Waits until this broker leads; `None`: `ended` before. `waits` is told the reason of a wait, when it changes.
    pub fn win(&mut self, ended: &dyn Fn() -> bool, waits: &dyn Fn(&str)) -> Option<Etcd> {
        let mut told = String::new();
        while !ended() {
            let because = match self.attempt() {
                Ok(Ok(etcd)) => return Some(etcd),
                Ok(Err(leader)) => format!("{leader} leads"),
                Err(error) => error.to_string(),
            };
            if because != told {
                waits(&because);
                told = because;
            }
            sleep(LOOK);
        }
        None
    }

    /// Leads, unless somebody else does: the text of who does then.
    fn attempt(&mut self) -> io::Result<Result<Etcd, String>> {
        if let Some(leader) = self.leader()? {
            return Ok(Err(text(&leader)));
        }
        let asked = Instant::now();
        let lease = granted(&mut self.gateway)?;
        let renewed = Renewed::begin(self.gateway.clone(), lease, asked)?;
        // The lease's number is this attempt's own: after an answer was lost, it tells who leads.
        let value = format!("{} (lease {:x})", self.name, lease.0);
        let key = self.key();
        let transaction = json!({
            "compare": [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": {"key": key, "value": base64(&value), "lease": lease.0.to_string()}}],
        });
        self.gateway.ask::<Transaction>("/v3/kv/txn", &transaction)?;
        let Some(leader) = self.leader()? else { return Ok(Err("another broker".to_owned())) };
        if leader.value.0 != value.as_bytes() {
            return Ok(Err(text(&leader)));
        }
        let (gateway, prefix, term) = (self.gateway.clone(), self.prefix.clone(), leader.create_revision);
        Ok(Ok(Etcd { gateway, prefix, term, written: None, writes: 0, renewed }))
    }

    fn leader(&mut self) -> io::Result<Option<KeyValue>> {
        let found: Range = self.gateway.ask("/v3/kv/range", &json!({"key": self.key()}))?;
        Ok(found.kvs.into_iter().next())
    }

    /// The key of who leads.
    fn key(&self) -> String {
        base64(format!("{}leader", self.prefix))
    }
}

/// The value of `leader`, for people.
fn text(leader: &KeyValue) -> String {
    String::from_utf8_lossy(&leader.value.0).into_owned()
}

/// The state of a domain whose leader this broker is.
#[derive(Debug)]
pub struct Etcd {
    gateway: Gateway,
    prefix: String,
    /// The creation of `leader`.
    term: Number,
    /// The last change of `write`; `None`: it is not known, because an answer was lost.
    written: Option<Number>,
    /// Writes of this term.
    writes: u64,
    renewed: Renewed,
}

impl Etcd {
    /// The lead, which may be lost at any time.
    pub fn lead(&self) -> Arc<Lead> {
        self.renewed.lead.clone()
    }

    fn key(&self, table: Table, name: &str) -> String {
        base64(format!("{}{}/{name}", self.prefix, folder(table)))
    }

    /// The name of a key in its table.
    fn name(&self, table: Table, key: &[u8]) -> io::Result<String> {
        let start = format!("{}{}/", self.prefix, folder(table));
        let name = key.strip_prefix(start.as_bytes()).and_then(|name| std::str::from_utf8(name).ok());
        name.map(str::to_owned).ok_or_else(|| io::Error::other(format!("etcd answers with another key than {start}…")))
    }

    /// The text of a value.
    fn text(&self, value: Vec<u8>) -> io::Result<Vec<u8>> {
        decompressed(value).map_err(|error| self.damaged(&error))
    }

    fn operation(&self, change: &Change) -> Value {
        match change {
            Change::Put(table, name, value) => {
                json!({"request_put": {"key": self.key(*table, name), "value": base64(compressed(value))}})
            }
            Change::Remove(table, name) => json!({"request_delete_range": {"key": self.key(*table, name)}}),
            Change::RemoveUpTo(table, name) => {
                let end = self.key(*table, &format!("{name}\0"));
                json!({"request_delete_range": {"key": self.key(*table, ""), "range_end": end}})
            }
        }
    }

    /// Who leads and what was written last are read before any value, if it is not known: a write that comes late meanwhile makes the next one fail.
    fn look(&mut self) -> io::Result<Number> {
        if let Some(written) = self.written {
            return Ok(written);
        }
        let read: Transaction = self.gateway.ask("/v3/kv/txn", &json!({"success": self.both()}))?;
        let written = self.follow(&read)?.map_or(Number(0), |write| write.mod_revision);
        self.written = Some(written);
        Ok(written)
    }

    /// Reads who leads and what was written last.
    fn both(&self) -> [Value; 2] {
        ["leader", "write"].map(|name| json!({"request_range": {"key": base64(format!("{}{name}", self.prefix))}}))
    }

    /// What was written last, if this broker leads still.
    fn follow<'a>(&self, read: &'a Transaction) -> io::Result<Option<&'a KeyValue>> {
        let [leader, write] = [0, 1].map(|at| read.responses.get(at).and_then(|part| part.response_range.kvs.first()));
        if leader.map(|leader| leader.create_revision) != Some(self.term) {
            self.renewed.lead.lose();
            return Err(io::Error::other("another broker leads this domain now"));
        }
        Ok(write)
    }

    /// A write that compares who leads and what was written last.
    fn transaction(&self, changes: &[Change], written: Number, mark: &str) -> Value {
        let [leader, write] = ["leader", "write"].map(|name| base64(format!("{}{name}", self.prefix)));
        let put = json!({"request_put": {"key": write, "value": base64(mark)}});
        let success: Vec<Value> = changes.iter().map(|change| self.operation(change)).chain([put]).collect();
        json!({
            "compare": [
                {"key": leader, "target": "CREATE", "result": "EQUAL", "create_revision": self.term.0.to_string()},
                {"key": write, "target": "MOD", "result": "EQUAL", "mod_revision": written.0.to_string()},
            ],
            "success": success,
            "failure": self.both(),
        })
    }
}

impl Database for Etcd {
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>> {
        self.look()?;
        // `0` comes next behind `/`.
        let (from, end) =
            (self.key(table, &format!("{after}\0")), base64(format!("{}{}0", self.prefix, folder(table))));
        let request = json!({"key": from, "range_end": end, "limit": most.to_string()});
        let found: Range = self.gateway.ask("/v3/kv/range", &request)?;
        let entry = |one: KeyValue| Ok((self.name(table, &one.key.0)?, self.text(one.value.0)?));
        found.kvs.into_iter().map(entry).collect()
    }

    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        self.look()?;
        let mut values = Vec::with_capacity(names.len());
        for some in names.chunks(OPERATIONS) {
            let each: Vec<Value> =
                some.iter().map(|name| json!({"request_range": {"key": self.key(table, name)}})).collect();
            let read: Transaction = self.gateway.ask("/v3/kv/txn", &json!({"success": each}))?;
            if read.responses.len() != some.len() {
                return Err(io::Error::other("etcd answers with fewer values than asked for"));
            }
            for part in read.responses {
                let found = part.response_range.kvs.into_iter().next();
                values.push(found.map(|one| self.text(one.value.0)).transpose()?);
            }
        }
        Ok(values)
    }

    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        let written = self.look()?;
        self.writes += 1;
        let mark = format!("{}/{}", self.term.0, self.writes);
        let transaction = self.transaction(changes, written, &mark);
        self.written = None;
        let read: Transaction = self.gateway.ask("/v3/kv/txn", &transaction)?;
        if read.succeeded {
            self.written = Some(read.header.revision);
            return Ok(());
        }
        // An attempt whose answer was lost may have done it.
        match self.follow(&read)?.filter(|write| write.value.0 == mark.as_bytes()) {
            Some(write) => {
                self.written = Some(write.mod_revision);
                Ok(())
            }
            None => Err(io::Error::other("an earlier write came late")),
        }
    }

    /// Beside the mark of the write.
    fn most(&self) -> usize {
        OPERATIONS - 1
    }

    fn damaged(&self, error: &dyn fmt::Display) -> io::Error {
        let prefix = &self.prefix;
        let text = format!(
            "a value below {prefix} in etcd cannot be read ({error}): restore a snapshot of etcd, or delete what is below {prefix}; \
             `thalweg hosts` tells which --epoch is needed then"
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    }
}

fn folder(table: Table) -> &'static str {
    match table {
        Table::Parts => "parts",
        Table::Crossings => "crossings",
        Table::Accounts => "accounts",
    }
}
