//! Claims: lines of accounts that a domain asks the domain before to sign, since they name that one as owner. It signs what it owes, but for what it
//! disputes (V-44, V-78). Pure.

use super::{Entry, Event, Record, hash};
use crate::signature::{Signed, Signer};
use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most lines of one claim.
pub const MOST_LINES: usize = 500;
/// Most bytes of them.
pub const MOST_BYTES: usize = 512 << 10;
/// Largest difference between the times that two domains have for the same, ms: messages may be late, and be repeated.
const TOLERANCE_MS: i64 = 60_000;
/// Longest reason of a dispute, in characters.
const LONGEST_REASON: usize = 200;

/// Lines that a domain asks its neighbour to sign: those that name the neighbour as owner, behind a record and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The last record that the neighbour has signed before; 0: none.
    pub after: u64,
    /// The lines.
    pub lines: Vec<String>,
    /// The time by the claiming broker's clock, ms since 1970.
    pub unix_ms: u64,
}

impl Claim {
    /// `true` if it is no larger than allowed.
    pub fn is_bounded(&self) -> bool {
        let bytes: usize = self.lines.iter().map(String::len).sum();
        (1..=MOST_LINES).contains(&self.lines.len()) && bytes <= MOST_BYTES
    }

    /// Takes a line behind those that it has. `false`: it has no room.
    pub fn take(&mut self, line: &str) -> bool {
        let bytes: usize = self.lines.iter().map(String::len).sum();
        let has_room = self.lines.len() < MOST_LINES && bytes + line.len() <= MOST_BYTES;
        if has_room {
            self.lines.push(line.to_owned());
        }
        has_room
    }
}

/// A record with which a neighbour does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disputed {
    /// Its number.
    pub number: u64,
    /// The reason.
    pub because: String,
}

/// The text of [`Event::Countersign`]: its author has seen the claim of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The domain that claims.
    pub domain: String,
    /// The claim begins behind this record.
    pub after: u64,
    /// The number of its last record.
    pub last: u64,
    /// Its number of lines.
    pub lines: usize,
    /// The hash of the hashes of its lines (hexadecimal digits, one behind the other).
    pub hash: String,
    /// Records with which the author does not agree.
    pub disputed: Vec<Disputed>,
    /// `false`: the author knows no prices, as a domain in the middle, and agrees with rates and times alone.
    pub priced: bool,
    /// The time by its clock, ms since 1970.
    pub unix_ms: u64,
    /// So much its clock was ahead of the one that the claim states, ms. Who states another clock in another claim could make a session longer.
    pub ahead_ms: i64,
}

impl Seen {
    pub(super) fn of(signed: &Signed) -> Result<Self, String> {
        let seen: Self = of_text(signed)?;
        let is_shown = |one: &Disputed| {
            one.because.chars().count() <= LONGEST_REASON && !one.because.chars().any(char::is_control)
        };
        match seen.disputed.iter().find(|one| !is_shown(one)) {
            Some(one) => Err(format!("its reason for record {} is too long, or no text", one.number)),
            None => Ok(seen),
        }
    }
}

fn number_of(line: &str) -> Option<u64> {
    serde_json::from_str::<Record>(line).ok().map(|record| record.number)
}

pub(super) fn of_text<T: DeserializeOwned>(signed: &Signed) -> Result<T, String> {
    serde_json::from_str(&signed.text).map_err(|error| format!("its text is malformed: {error}"))
}

fn signed_ms(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}

pub(super) fn seconds(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX)
}

/// An entry with what a neighbour says of a claim, if that is its answer to this one.
///
/// # Errors
/// The reason why it is not.
pub fn countersigned(
    claim: &Claim,
    (domain, neighbour): (&str, &str),
    signed: Signed,
    realm: &CertificateDer<'_>,
) -> Result<Entry, String> {
    let seen = Seen::of(&signed)?;
    // Nothing but that, and of no more records than were asked about.
    let numbers: Vec<u64> = claim.lines.iter().filter_map(|line| number_of(line)).collect();
    let is_of_claim = |one: &Disputed| numbers.binary_search(&one.number).is_ok();
    let rises = seen.disputed.is_sorted_by(|one, next| one.number < next.number);
    let as_written = serde_json::to_string(&seen).is_ok_and(|text| text == signed.text);
    if !(as_written && rises && seen.disputed.iter().all(is_of_claim)) {
        return Err("its text has more than was asked for".to_owned());
    }
    let author = signed.author(realm, seconds(seen.unix_ms))?;
    let hash = hash_of(claim.lines.iter().map(|line| hash(line)));
    let asked = (domain, claim.after, numbers.last(), claim.lines.len(), &hash);
    if (&*seen.domain, seen.after, Some(&seen.last), seen.lines, &seen.hash) != asked || !author.is_broker(neighbour) {
        return Err(format!("{author} has signed something else than it was asked for"));
    }
    Ok(Entry::statement(Event::Countersign, neighbour, signed))
}

/// The hash of a claim: of the hashes of its lines.
pub(super) fn hash_of(lines: impl Iterator<Item = String>) -> String {
    hash(&lines.collect::<String>())
}

/// The last record of the claim that was signed.
pub fn last_signed(signed: &Signed) -> Option<u64> {
    Seen::of(signed).ok().map(|seen| seen.last)
}

/// What a domain itself has in its accounts of sessions that go into a neighbour's, to check the neighbour's claim.
#[derive(Debug)]
pub struct Check<'a> {
    claim: &'a Claim,
    records: Vec<Record>,
    /// Own and neighbour's domain.
    domains: (&'a str, &'a str),
    known: BTreeMap<String, Known>,
}

/// A session, by the own accounts.
#[derive(Debug, Default)]
struct Known {
    /// The first record of it.
    from_ms: Option<u64>,
    until_ms: Option<u64>,
    rate: u64,
    price: Option<u64>,
}

impl<'a> Check<'a> {
    /// Of a claim to the first of these domains by the second.
    ///
    /// # Errors
    /// A line of the claim that cannot be read, or that does not follow.
    pub fn new(claim: &'a Claim, domains: (&'a str, &'a str)) -> Result<Self, String> {
        let mut last = claim.after;
        let read = |line: &String| {
            let record: Record = serde_json::from_str(line).map_err(|error| format!("a line is no record: {error}"))?;
            if record.number <= last {
                return Err(format!("record {} stands behind record {last}", record.number));
            }
            last = record.number;
            Ok(record)
        };
        let records: Vec<Record> = claim.lines.iter().map(read).collect::<Result<_, String>>()?;
        let known = records.iter().map(|record| (record.entry.session.clone(), Known::default())).collect();
        Ok(Self { claim, records, domains, known })
    }

    /// Takes the next record of the own accounts.
    pub fn read(&mut self, Record { unix_ms, entry, .. }: &Record) {
        let Some(known) = self.known.get_mut(&entry.session) else { return };
        let Some(part) = entry.behind.iter().find(|part| part.domain == self.domains.1) else { return };
        (known.rate, known.price) = (known.rate.max(part.rate_bits_per_s), known.price.max(part.price));
        known.from_ms = Some(known.from_ms.map_or(*unix_ms, |from| from.min(*unix_ms)));
        if entry.event == Event::Stop {
            known.until_ms = known.until_ms.max(Some(*unix_ms));
        }
    }

    /// Signs the claim, but for what is not so by the own accounts.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn sign(&self, signer: &Signer, unix_ms: u64) -> Result<Signed, String> {
        let ahead = signed_ms(unix_ms).saturating_sub(signed_ms(self.claim.unix_ms));
        let mut begun = BTreeMap::new();
        let disputed = |record: &Record| {
            let (session, number) = (&record.entry.session, record.number);
            let again = (record.entry.event == Event::Start).then(|| begun.insert(session.clone(), number)).flatten();
            let again = again.map(|first| format!("it has begun in record {first} already"));
            let at_ms = signed_ms(record.unix_ms).saturating_add(ahead);
            let because = again.or_else(|| self.dispute(record, at_ms, signed_ms(unix_ms)))?;
            let shown = because.chars().filter(|letter| !letter.is_control());
            Some(Disputed { number, because: shown.take(LONGEST_REASON).collect() })
        };
        let disputed = self.records.iter().filter_map(disputed).collect();
        let seen = Seen {
            domain: self.domains.1.to_owned(),
            after: self.claim.after,
            last: self.records.last().map_or(self.claim.after, |record| record.number),
            lines: self.records.len(),
            hash: hash_of(self.claim.lines.iter().map(|line| hash(line))),
            disputed,
            priced: self.known.values().all(|known| known.rate == 0 || known.price.is_some()),
            unix_ms,
            ahead_ms: ahead,
        };
        signer.sign(serde_json::to_string(&seen).map_err(|e| e.to_string())?)
    }

    /// Why this record is not so; both times are by the own clock.
    fn dispute(&self, Record { entry, .. }: &Record, at_ms: i64, now_ms: i64) -> Option<String> {
        let (own, neighbour) = self.domains;
        if entry.owner != own {
            return Some(format!("its owner is {:?}, not {own:?}", entry.owner));
        }
        let known = self.known.get(&entry.session).filter(|known| known.rate > 0);
        let Some(Known { from_ms, until_ms, rate, price }) = known else {
            return Some(format!("no session of this name went from {own:?} into {neighbour:?}"));
        };
        if entry.rate_bits_per_s > *rate {
            return Some(format!("{} bit/s, and {rate} were asked for", entry.rate_bits_per_s));
        }
        if price.is_some_and(|price| entry.price > price) {
            return Some(format!("a price of {}, and {} was offered", entry.price, price.unwrap_or(0)));
        }
        let early = signed_ms(from_ms.unwrap_or(0)).saturating_sub(at_ms);
        if early > TOLERANCE_MS {
            return Some(format!("{} s before it began", early / 1000));
        }
        let late = at_ms.saturating_sub(until_ms.map_or(now_ms, signed_ms));
        let than = if until_ms.is_some() { "it was over" } else { "now" };
        (late > TOLERANCE_MS).then(|| format!("{} s after {than}", late / 1000))
    }
}

#[cfg(test)]
mod tests;
