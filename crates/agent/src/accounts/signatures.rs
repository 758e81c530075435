//! Signatures among the lines of accounts (V-44, V-78).
//!
//! | line | signed by | proves |
//! |---|---|---|
//! | [`Event::Sign`] | the broker that writes | it wrote all lines before this one as they are |
//! | [`Event::Countersign`] | a neighbour | it has seen the lines that name it as owner, and agrees but for those that it disputes |
//!
//! Pure.

use super::claim::{Disputed, Seen, hash_of, of_text, seconds};
use super::{Entry, Event, Head, Record, hash};
use crate::signature::{Signed, Signer};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The text of [`Event::Sign`].
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    head: String,
    unix_ms: u64,
}

/// An entry with which a broker signs all lines up to this head.
///
/// # Errors
/// The system gives no random numbers.
pub fn sign(signer: &Signer, head: &Head, unix_ms: u64) -> Result<Entry, String> {
    let text = serde_json::to_string(&Written { head: head.to_string(), unix_ms }).map_err(|e| e.to_string())?;
    Ok(Entry::statement(Event::Sign, signer.identity().name(), signer.sign(text)?))
}

/// Up to where a party has signed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// Its domain.
    pub domain: String,
    /// It is the broker that writes, not a neighbour.
    pub own: bool,
    /// The last record that it has signed.
    pub last: u64,
    /// Its signatures.
    pub statements: u64,
    /// Records that it has signed, and that are here; of the broker that writes, all up to the last one.
    pub records: u64,
    /// Signatures of records some of which may be gone: they prove nothing here.
    pub gone: u64,
    /// Those with which it does not agree.
    pub disputed: Vec<Disputed>,
    /// It has signed rates and times, and no prices.
    pub without_prices: bool,
    /// The most by which the difference of both clocks has changed from one claim to another, ms: more than two minutes make times doubtful.
    pub clocks_ms: u64,
    /// The signatures were checked.
    pub checked: bool,
}

/// The signatures in accounts, as their lines are read.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    realm: Option<CertificateDer<'static>>,
    /// The broker that writes.
    own: Option<Signature>,
    neighbours: BTreeMap<String, Signature>,
    /// For each neighbour, the lines that name it and that it has not signed: number and hash.
    open: BTreeMap<String, Vec<(u64, String)>>,
    /// The least and the largest difference of each neighbour's clock, ms.
    clocks: BTreeMap<String, (i64, i64)>,
    first: u64,
    /// The domain whose accounts these are, as the first signature says.
    domain: Option<String>,
}

impl Signatures {
    pub(super) fn new(realm: Option<CertificateDer<'static>>) -> Self {
        Self { realm, ..Self::default() }
    }

    /// Takes the next line.
    pub(super) fn read(&mut self, line: &str, record: &Record) -> Result<(), String> {
        if self.first == 0 {
            self.first = record.number;
        }
        let entry = &record.entry;
        match (entry.event, &entry.signed) {
            (Event::Sign, Some(signed)) => self.written(record, signed),
            (Event::Countersign, Some(signed)) => self.seen(record, signed),
            (Event::Sign | Event::Countersign, None) => Err("it has no signature".to_owned()),
            _ if entry.is_of_neighbour() => {
                self.open.entry(entry.owner.clone()).or_default().push((record.number, hash(line)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The author's domain; what it is said to be, where there is no certificate to check it.
    fn author(&self, signed: &Signed, said: &str, unix_ms: u64) -> Result<(), String> {
        let Some(realm) = &self.realm else { return Ok(()) };
        let author = signed.author(realm, seconds(unix_ms))?;
        if author.is_broker(said) { Ok(()) } else { Err(format!("{author} has signed it, not the broker {said}")) }
    }

    fn written(&mut self, record: &Record, signed: &Signed) -> Result<(), String> {
        let Written { head, unix_ms } = of_text(signed)?;
        let domain = &record.entry.owner;
        self.author(signed, domain, unix_ms)?;
        let before = Head { number: record.number.saturating_sub(1), hash: record.before.clone() };
        if head != before.to_string() {
            return Err("it signs other lines than those before it".to_owned());
        }
        let checked = self.realm.is_some();
        self.is_about(domain)?;
        let own = self.own.get_or_insert_default();
        own.domain.clone_from(domain);
        (own.own, own.last, own.records, own.checked) = (true, before.number, before.number, checked);
        own.statements += 1;
        Ok(())
    }

    /// All signatures are about the accounts of one domain.
    fn is_about(&mut self, domain: &str) -> Result<(), String> {
        let first = self.domain.get_or_insert_with(|| domain.to_owned());
        if first == domain {
            return Ok(());
        }
        Err(format!("it is about the accounts of {domain:?}, and those before about those of {first:?}"))
    }

    fn seen(&mut self, record: &Record, signed: &Signed) -> Result<(), String> {
        let (seen, neighbour) = (Seen::of(signed)?, record.entry.owner.as_str());
        self.author(signed, neighbour, seen.unix_ms)?;
        self.is_about(&seen.domain)?;
        if seen.last >= record.number {
            return Err(format!("it is about record {}, which comes later", seen.last));
        }
        let known = self.neighbours.entry(neighbour.to_owned()).or_default();
        let open = self.open.entry(neighbour.to_owned()).or_default();
        let count = open.partition_point(|(number, _)| *number <= seen.last);
        let hash = hash_of(open.drain(..count).map(|(_, hash)| hash));
        // Where its first lines are gone, there is nothing to compare with, and nothing is proved.
        let is_whole = seen.after.saturating_add(1) >= self.first;
        if is_whole && (known.last, count, &hash) != (seen.after, seen.lines, &seen.hash) {
            return Err(format!("{neighbour} has signed other lines than those that name it"));
        }
        let (least, most) = self.clocks.entry(neighbour.to_owned()).or_insert((seen.ahead_ms, seen.ahead_ms));
        (*least, *most) = (seen.ahead_ms.min(*least), seen.ahead_ms.max(*most));
        known.clocks_ms = most.abs_diff(*least);
        neighbour.clone_into(&mut known.domain);
        (known.last, known.checked) = (seen.last, self.realm.is_some());
        known.statements += 1;
        if is_whole {
            known.records += seen.lines as u64;
        } else {
            known.gone += 1;
        }
        known.without_prices |= !seen.priced;
        known.disputed.extend(seen.disputed);
        Ok(())
    }

    /// Of the broker that writes, then of its neighbours.
    pub(super) fn all(&self) -> Vec<Signature> {
        self.own.iter().chain(self.neighbours.values()).cloned().collect()
    }
}
