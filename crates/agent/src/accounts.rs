//! The accounts of a broker: which session had how much of the network, from when to when, and how much went through (SAAA of Velox, §2.2.3: accounting;
//! V-44, V-78).
//!
//! Each record is a line of JSON that names the hash of the line before it (SHA-256, FIPS 180-4), as entries of a transparency log do. So nobody can change, leave
//! out or add a line later without changing each line behind it, and a *head* (number and hash of the last line) that was noted once proves all before it.
//! Some lines are signatures: [`signatures`], of a neighbour by a [`claim`]. Pure.

pub mod claim;
pub mod signatures;

use crate::message::Counts;
use crate::signature::Signed;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use signatures::{Signature, Signatures};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Most records in one answer.
pub const MOST_RECORDS: usize = 1000;

/// What happened to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// It was admitted.
    Start,
    /// It was admitted with another file.
    Change,
    /// It does not run, because links carry less than the contract says.
    Suspend,
    /// It runs again.
    Resume,
    /// It gets fewer samples than it asked for, or more than before.
    Thin,
    /// It goes on: what went through since the record before.
    Interim,
    /// It is over.
    Stop,
    /// The broker has signed all lines before this one.
    Sign,
    /// A neighbour has signed lines that name it as owner.
    Countersign,
}

impl fmt::Display for Event {
    /// As in a record.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// What went through the channels of a session in a domain, as the agents of its ends there counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// By publishers.
    pub sent: Counts,
    /// By subscribers.
    pub received: Counts,
}

impl Traffic {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { sent: self.sent.plus(other.sent), received: self.received.plus(other.received) }
    }

    /// What has come since.
    pub fn since(self, before: Self) -> Self {
        Self { sent: self.sent.since(before.sent), received: self.received.since(before.received) }
    }
}

/// What a domain behind asks for its part of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The domain.
    pub domain: String,
    /// bit/s of the flows that go there.
    pub rate_bits_per_s: u64,
    /// Their price in its pipes, known to the first domain of a session alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<u64>,
}

/// What happened, to whom, and what is reserved from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The event.
    pub event: Event,
    /// The session; `DOMAIN/NAME/VERSION` if it goes through pipes; empty in a signature.
    pub session: String,
    /// The identity of who asked for it, or the domain that did; of a signature, the domain that signs.
    pub owner: String,
    /// bit/s that it has from now on: samples to all its subscribers, without headers; 0 when it is over or suspended.
    pub rate_bits_per_s: u64,
    /// The price of its flows in this domain's pipes, in a unit of the domains' own.
    pub price: u64,
    /// What went through since the record before.
    #[serde(default)]
    pub traffic: Traffic,
    /// The parts of the domains just behind this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Charge>,
    /// The reason for which it is suspended, thinned or lost.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<Signed>,
}

impl Entry {
    /// A signature of a domain.
    fn statement(event: Event, domain: &str, signed: Signed) -> Self {
        Self {
            event,
            session: String::new(),
            owner: domain.to_owned(),
            rate_bits_per_s: 0,
            price: 0,
            traffic: Traffic::default(),
            behind: Vec::new(),
            because: String::new(),
            signed: Some(signed),
        }
    }

    /// `true`: it is about a session that comes from a neighbour's domain.
    pub fn is_of_neighbour(&self) -> bool {
        self.session.matches('/').count() == 2 && !self.owner.contains('/')
    }
}

/// A line of the accounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number, from 1.
    pub number: u64,
    /// The time by the broker's clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
    /// The hash of the line before it, in hexadecimal digits; empty in the first one.
    pub before: String,
}

/// The last line of accounts: its number, and its hash. `0:` if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of its record.
    pub number: u64,
    /// Its hash.
    pub hash: String,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.number, self.hash)
    }
}

impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no head of accounts: allowed is NUMBER:HASH, as `thalweg audit` prints it");
        let (number, hash) = text.split_once(':').ok_or_else(wrong)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = number.parse().ok().filter(|_| is_hash).ok_or_else(wrong)?;
        Ok(Self { number, hash: hash.to_ascii_lowercase() })
    }
}

/// A time of accounts for people, in UTC.
pub fn shown_time(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let Ok(at) = time::OffsetDateTime::from_unix_timestamp(seconds) else { return format!("{unix_ms} ms") };
    let (hour, minute, second) = at.time().as_hms();
    format!("{}-{:02}-{:02} {hour:02}:{minute:02}:{second:02}Z", at.year(), u8::from(at.month()), at.day())
}

/// SHA-256 of a line, in hexadecimal digits.
fn hash(line: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, line.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Head {
    /// The next line. The head is this one then.
    pub fn append(&mut self, unix_ms: u64, entry: Entry) -> String {
        let record = Record { number: self.number + 1, unix_ms, entry, before: std::mem::take(&mut self.hash) };
        // Numbers and texts are always representable.
        let line = serde_json::to_string(&record).unwrap_or_default();
        *self = Self { number: record.number, hash: hash(&line) };
        line
    }

    /// Reads the next line. The head is this one then. The first line of all may have any number: earlier ones are gone.
    ///
    /// # Errors
    /// It is not the one that follows.
    pub fn follow(&mut self, line: &str) -> Result<Record, Broken> {
        let number = self.number.saturating_add(1);
        let record: Record =
            serde_json::from_str(line).map_err(|error| Broken::Unreadable(number, error.to_string()))?;
        let is_first = *self == Self::default();
        if !is_first && record.number != number {
            return Err(Broken::Missing(number, record.number));
        }
        if !is_first && record.before != self.hash {
            return Err(Broken::Changed(self.number));
        }
        *self = Self { number: record.number, hash: hash(line) };
        Ok(record)
    }
}

/// Accounts that were changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// This record cannot be read.
    Unreadable(u64, String),
    /// This record is missing: another one stands in its place.
    Missing(u64, u64),
    /// This record, or the next one, is not as it was written.
    Changed(u64),
    /// The record of this number has another hash than the one that was noted.
    Other(Head, String),
    /// The noted head is not among the records.
    Unknown(Head),
    /// The signature in this record proves nothing, for this reason.
    Unproved(u64, String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(number, why) => write!(f, "record {number} is unreadable: {why}"),
            Self::Missing(number, found) => write!(f, "record {number} is missing: record {found} stands in its place"),
            Self::Changed(number) => {
                write!(f, "record {number} or {0} was changed: {0} names another hash", number + 1)
            }
            Self::Other(Head { number, hash }, found) => {
                write!(f, "record {number} was changed, or one before it: its hash is {found}, and {hash} was noted")
            }
            Self::Unknown(Head { number, .. }) => write!(f, "record {number}, whose head was noted, is not there"),
            Self::Unproved(number, why) => write!(f, "the signature in record {number} proves nothing: {why}"),
        }
    }
}

impl std::error::Error for Broken {}

/// What a session had so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bill {
    /// The session.
    pub session: String,
    /// Who asked for it.
    pub owner: String,
    /// Its first record, milliseconds since 1970.
    pub from_unix_ms: u64,
    /// Its last one.
    pub until_unix_ms: u64,
    /// It goes on.
    pub active: bool,
    /// Bits that were reserved until then: the rate by the time.
    pub reserved_bits: u64,
    /// The price of its flows.
    pub price: u64,
    /// What went through.
    pub traffic: Traffic,
    /// bit/s since the last record.
    #[serde(skip)]
    rate: u64,
}

impl Bill {
    /// It goes on as it was until then.
    fn reserve(&mut self, unix_ms: u64) {
        let ms = unix_ms.saturating_sub(self.until_unix_ms);
        let reserved = u128::from(self.rate) * u128::from(ms) / 1000;
        self.reserved_bits = self.reserved_bits.saturating_add(reserved.try_into().unwrap_or(u64::MAX));
        self.until_unix_ms = self.until_unix_ms.max(unix_ms);
    }
}

/// The bills of accounts, as they are read, and the check of their lines.
#[derive(Debug, Default)]
pub struct Audit {
    head: Head,
    first: u64,
    noted: Option<Head>,
    seen: bool,
    bills: Vec<Bill>,
    open: BTreeMap<String, usize>,
    signatures: Signatures,
}

impl Audit {
    /// One that also finds this head, which was noted before, and checks signatures by the realm's certificate.
    pub fn new(noted: Option<Head>, realm: Option<CertificateDer<'static>>) -> Self {
        Self { noted, signatures: Signatures::new(realm), ..Self::default() }
    }

    /// Who has signed, and up to where: the broker that writes, then its neighbours.
    pub fn signatures(&self) -> Vec<Signature> {
        self.signatures.all()
    }

    /// The last line so far.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The number of the first record; 0: there was none.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// [`Broken`]
    pub fn read(&mut self, line: &str) -> Result<(), Broken> {
        let record = self.head.follow(line)?;
        self.signatures.read(line, &record).map_err(|why| Broken::Unproved(record.number, why))?;
        let Record { number, unix_ms, entry, .. } = record;
        if self.first == 0 {
            self.first = number;
        }
        if let Some(noted) = self.noted.as_ref().filter(|noted| noted.number == number) {
            if noted.hash != self.head.hash {
                return Err(Broken::Other(noted.clone(), self.head.hash.clone()));
            }
            self.seen = true;
        }
        if entry.signed.is_some() {
            return Ok(());
        }
        let index = *self.open.entry(entry.session.clone()).or_insert_with(|| {
            let (session, owner) = (entry.session.clone(), entry.owner.clone());
            self.bills.push(Bill { session, owner, from_unix_ms: unix_ms, until_unix_ms: unix_ms, ..Bill::default() });
            self.bills.len() - 1
        });
        let bill = &mut self.bills[index];
        bill.reserve(unix_ms);
        bill.traffic = bill.traffic.plus(entry.traffic);
        (bill.rate, bill.price) = (entry.rate_bits_per_s, bill.price.max(entry.price));
        bill.active = entry.event != Event::Stop;
        // A neighbour's session has a version, and so begins once.
        if !bill.active && !entry.is_of_neighbour() {
            self.open.remove(&entry.session);
        }
        Ok(())
    }

    /// The bills, in the order in which their sessions began. What goes on is counted up to this time; `None`: to its last record.
    ///
    /// # Errors
    /// [`Broken`]: the head that was noted was not among the lines.
    pub fn bills(mut self, now_unix_ms: Option<u64>) -> Result<Vec<Bill>, Broken> {
        if let Some(noted) = self.noted.filter(|_| !self.seen) {
            return Err(Broken::Unknown(noted));
        }
        let active = self.bills.iter_mut().filter(|bill| bill.active);
        active.for_each(|bill| bill.reserve(now_unix_ms.unwrap_or(0)));
        Ok(self.bills)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: Event, session: &str, rate: u64, received: u64) -> Entry {
        let received = Counts { samples: received, bytes: received * 10 };
        Entry {
            event,
            session: session.into(),
            owner: "ann".into(),
            rate_bits_per_s: rate,
            price: 5,
            traffic: Traffic { received, ..Traffic::default() },
            behind: Vec::new(),
            because: String::new(),
            signed: None,
        }
    }

    /// Two sessions: 1,000 bit/s for 10 s, of which 4 s at half the rate and 1 s suspended; and one that goes on.
    fn lines() -> Vec<String> {
        let mut head = Head::default();
        let each = [
            (0, entry(Event::Start, "camera", 1000, 0)),
            (1_000, entry(Event::Start, "map", 8, 0)),
            (5_000, entry(Event::Change, "camera", 500, 7)),
            (9_000, entry(Event::Suspend, "camera", 0, 0)),
            (10_000, entry(Event::Resume, "camera", 500, 0)),
            (10_500, entry(Event::Interim, "map", 8, 3)),
            (11_000, entry(Event::Stop, "camera", 0, 2)),
            (12_000, entry(Event::Start, "camera", 10, 0)),
        ];
        each.into_iter().map(|(at, entry)| head.append(1_700_000_000_000 + at, entry)).collect()
    }

    fn audit(lines: &[String], noted: Option<&str>) -> Result<Vec<Bill>, Broken> {
        let mut audit = Audit::new(noted.map(|text| text.parse().unwrap()), None);
        lines.iter().try_for_each(|line| audit.read(line))?;
        audit.bills(None)
    }

    #[test]
    fn a_bill_is_the_rate_by_the_time_and_what_went_through() {
        let bills = audit(&lines(), None).unwrap();
        let shown: Vec<_> = bills
            .iter()
            .map(|bill| {
                (
                    &*bill.session,
                    bill.active,
                    bill.reserved_bits,
                    bill.traffic.received.samples,
                    bill.until_unix_ms - bill.from_unix_ms,
                )
            })
            .collect();
        let camera = 5 * 1000 + 4 * 500 + 500;
        assert_eq!(
            shown,
            [("camera", false, camera, 9, 11_000), ("map", true, 76, 3, 9_500), ("camera", true, 0, 0, 0)]
        );
    }

    /// Each byte of each line, in turn.
    #[test]
    fn nothing_is_changed_without_being_found() {
        let lines = lines();
        let mut head = Head::default();
        lines.iter().for_each(|line| drop(head.follow(line).unwrap()));
        let noted = head.to_string();
        for (at, line) in lines.iter().enumerate() {
            for byte in 0..line.len() {
                let mut changed = line.clone().into_bytes();
                changed[byte] = if changed[byte] == b'7' { b'8' } else { b'7' };
                let mut all = lines.clone();
                all[at] = String::from_utf8(changed).unwrap();
                let found = audit(&all, Some(&noted));
                assert!(found.is_err(), "byte {byte} of record {}", at + 1);
            }
        }
        assert!(audit(&lines, Some(&noted)).is_ok());
        let without = |gone: usize| {
            lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| line.clone()).collect::<Vec<_>>()
        };
        assert_eq!(audit(&without(3), None), Err(Broken::Missing(4, 5)));
        assert_eq!(audit(&without(7), Some(&noted)), Err(Broken::Unknown(head.clone())));
        assert!(audit(&without(7), None).is_ok(), "the last line alone is proved by a noted head");
        // A line in the middle that was changed with care is named.
        let mut careful = lines.clone();
        careful[2] = careful[2].replace("\"rate_bits_per_s\":500", "\"rate_bits_per_s\":400");
        assert_eq!(audit(&careful, None), Err(Broken::Changed(3)));
        // All of them written anew.
        let (mut other, mut anew) = (Head::default(), Vec::new());
        for line in &careful {
            let record: Record = serde_json::from_str(line).unwrap();
            anew.push(other.append(record.unix_ms, record.entry));
        }
        assert!(audit(&anew, None).is_ok());
        assert!(matches!(audit(&anew, Some(&noted)), Err(Broken::Other(..))));
    }

    #[test]
    fn a_session_of_a_neighbour_is_billed_once() {
        let mut head = Head::default();
        let of_robot = |event, rate| Entry { owner: "robot".into(), ..entry(event, "robot/a/1", rate, 0) };
        let each = [(0, Event::Start, 1000), (10, Event::Stop, 0), (2, Event::Start, 1000), (10, Event::Stop, 0)];
        let lines: Vec<String> =
            each.into_iter().map(|(s, event, rate)| head.append(s * 1000, of_robot(event, rate))).collect();
        let bills = audit(&lines, None).unwrap();
        let shown: Vec<(u64, u64)> = bills.iter().map(|bill| (bill.reserved_bits, bill.price)).collect();
        assert_eq!(shown, [(10_000, 5)], "not once more for the time that it has been billed for");
    }

    #[test]
    fn the_first_lines_may_be_gone() {
        let lines = lines();
        let mut audit = Audit::new(None, None);
        lines[4..].iter().for_each(|line| audit.read(line).unwrap());
        assert_eq!((audit.first(), audit.head().number), (5, 8));
        let bills = audit.bills(Some(1_700_000_000_000 + 20_000)).unwrap();
        let reserved: Vec<(&str, u64)> = bills.iter().map(|bill| (&*bill.session, bill.reserved_bits)).collect();
        assert_eq!(reserved, [("camera", 500), ("map", 76), ("camera", 80)], "what goes on, to this moment");
    }

    #[test]
    fn a_head_is_read_as_it_is_shown() {
        let head = Head { number: 12, hash: "ab".repeat(32) };
        assert_eq!(head.to_string().parse(), Ok(head));
        assert_eq!(shown_time(1_709_210_096_789), "2024-02-29 12:34:56Z");
        for wrong in ["", "12", "12:", "x:ab", &format!("1:{}", "g".repeat(64))] {
            assert!(wrong.parse::<Head>().is_err(), "{wrong}");
        }
    }
}
