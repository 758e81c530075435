//! Signed lines of accounts: a broker signs what it wrote, and the domain before signs what it owes for sessions through pipes (V-44, V-78).
//!
//! | line | signed by | proves |
//! |---|---|---|
//! | [`Event::Sign`] | the broker that writes | it wrote all lines before this one as they are |
//! | [`Event::Countersign`] | a neighbour | it has seen the lines that name it as owner, and agrees but for those that it disputes |
//!
//! Pure.

use super::{Entry, Event, Head, Record, hash};
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

/// The text of [`Event::Sign`].
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    head: String,
    unix_ms: u64,
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
    fn of(signed: &Signed) -> Result<Self, String> {
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

fn of_text<T: DeserializeOwned>(signed: &Signed) -> Result<T, String> {
    serde_json::from_str(&signed.text).map_err(|error| format!("its text is malformed: {error}"))
}

fn signed_ms(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}

fn seconds(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX)
}

/// An entry with which a broker signs all lines up to this head.
///
/// # Errors
/// The system gives no random numbers.
pub fn sign(signer: &Signer, head: &Head, unix_ms: u64) -> Result<Entry, String> {
    let text = serde_json::to_string(&Written { head: head.to_string(), unix_ms }).map_err(|e| e.to_string())?;
    Ok(Entry::statement(Event::Sign, signer.identity().name(), signer.sign(text)?))
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
fn hash_of(lines: impl Iterator<Item = String>) -> String {
    hash(&lines.collect::<String>())
}

/// The last record of the claim that was signed.
pub fn last(signed: &Signed) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::{Audit, Broken, Charge, Traffic};
    use crate::signature::tests::realm;

    /// The neighbour's clock is so much ahead.
    const AHEAD_MS: u64 = 7_200_000;

    fn now() -> u64 {
        time::OffsetDateTime::now_utc().unix_timestamp() as u64 * 1000
    }

    /// The time of a second of the accounts, all of which are over.
    fn at(second: u64) -> u64 {
        now() - 20_000_000 + second * 1000
    }

    /// A session that goes from `robot` into `desk`.
    fn entry(event: Event, session: &str, owner: &str, rate: u64) -> Entry {
        let (price, traffic) = (5, Traffic::default());
        let (session, owner) = (session.to_owned(), owner.to_owned());
        let (behind, because) = (Vec::new(), String::new());
        Entry { event, session, owner, rate_bits_per_s: rate, price, traffic, behind, because, signed: None }
    }

    /// The accounts of `robot`: a session from second 100 to 200, one from 150 on, and others.
    fn of_robot(price: Option<u64>) -> Vec<String> {
        let charge = |domain: &str, rate| Charge { domain: domain.to_owned(), rate_bits_per_s: rate, price };
        let own = |event, session, rate| Entry {
            behind: vec![charge("elsewhere", 9), charge("desk", 100)],
            ..entry(event, session, "thalweg://r/user/ann", rate)
        };
        let each = [
            (100, own(Event::Start, "robot/a/1", 109)),
            (120, entry(Event::Start, "map", "thalweg://r/user/ann", 7)),
            (150, own(Event::Start, "robot/b/1", 109)),
            (200, own(Event::Stop, "robot/a/1", 0)),
        ];
        let mut head = Head::default();
        each.into_iter().map(|(second, entry)| head.append(at(second), entry)).collect()
    }

    /// Lines of `desk` at these seconds.
    fn of_desk(head: &mut Head, entries: Vec<(u64, Entry)>) -> Vec<String> {
        entries.into_iter().map(|(second, entry)| head.append(at(second) + AHEAD_MS, entry)).collect()
    }

    fn as_it_was() -> Vec<(u64, Entry)> {
        let one = |event, session, rate| entry(event, session, "robot", rate);
        vec![
            (100, one(Event::Start, "robot/a/1", 100)),
            (110, entry(Event::Start, "own", "thalweg://r/user/bob", 1_000)),
            (150, one(Event::Start, "robot/b/1", 100)),
            (201, one(Event::Stop, "robot/a/1", 0)),
        ]
    }

    fn claim(after: u64, lines: &[String]) -> Claim {
        let of_robot = |line: &&String| line.contains("\"owner\":\"robot\"");
        Claim { after, lines: lines.iter().filter(of_robot).cloned().collect(), unix_ms: now() + AHEAD_MS }
    }

    fn checked(claim: &Claim, own: &[String], signer: &Signer) -> Signed {
        let mut check = Check::new(claim, ("robot", "desk")).unwrap();
        own.iter().for_each(|line| check.read(&serde_json::from_str(line).unwrap()));
        check.sign(signer, now()).unwrap()
    }

    fn audit(lines: &[String], realm: &CertificateDer<'static>) -> Result<Vec<Signature>, Broken> {
        let mut audit = Audit::new(None, Some(realm.clone()));
        lines.iter().try_for_each(|line| audit.read(line))?;
        Ok(audit.signatures())
    }

    #[test]
    fn a_neighbour_signs_what_its_own_accounts_say_and_an_audit_finds_it() {
        let (realm, [robot, desk]) = realm("countersign", ["robot", "desk"]);
        let mut head = Head::default();
        let mut lines = of_desk(&mut head, as_it_was());
        let first = claim(0, &lines);
        let answer = checked(&first, &of_robot(Some(5)), &robot);
        assert_eq!(last(&answer), Some(4));
        // Meanwhile there was more.
        lines.extend(of_desk(&mut head, vec![(210, entry(Event::Interim, "robot/b/1", "robot", 100))]));
        let countersign = countersigned(&first, ("desk", "robot"), answer, &realm).unwrap();
        let sign = sign(&desk, &head, now()).unwrap();
        lines.extend(of_desk(&mut head, vec![(211, sign), (212, countersign)]));
        let second = claim(4, &lines[4..5]);
        let again = checked(&second, &of_robot(None), &robot);
        let again = countersigned(&second, ("desk", "robot"), again, &realm).unwrap();
        lines.extend(of_desk(&mut head, vec![(213, again)]));
        let signature = |domain: &str, own, last, statements, records, without_prices| {
            let (domain, disputed, clocks_ms, gone, checked) = (domain.to_owned(), Vec::new(), 0, 0, true);
            Signature { domain, own, last, statements, records, gone, disputed, without_prices, clocks_ms, checked }
        };
        let wanted = vec![signature("desk", true, 5, 1, 5, false), signature("robot", false, 5, 2, 4, true)];
        let mut found = audit(&lines, &realm).unwrap();
        // The clock of the test itself.
        assert!(found.iter_mut().all(|one| std::mem::take(&mut one.clocks_ms) < 5_000));
        assert_eq!(found, wanted);
        // Who states another clock the next time, so that its sessions seem longer, is found out.
        let slow = Claim { unix_ms: second.unix_ms - 3_600_000, ..second.clone() };
        let third = countersigned(&slow, ("desk", "robot"), checked(&slow, &of_robot(None), &robot), &realm).unwrap();
        let mut jumped = lines[..7].to_vec();
        let mut before = Head::default();
        jumped.iter().for_each(|line| drop(before.follow(line).unwrap()));
        jumped.extend(of_desk(&mut before, vec![(213, third)]));
        assert!((3_599_000..3_602_000).contains(&audit(&jumped, &realm).unwrap()[1].clocks_ms));
        // The first ones may be gone.
        let later = audit(&lines[3..], &realm).unwrap();
        assert_eq!((later[1].last, later[1].records, later[1].gone), (5, 1, 1));
    }

    #[test]
    fn what_the_own_accounts_do_not_have_is_disputed() {
        let (_, [robot]) = realm("disputed", ["robot"]);
        let one = |event, session, rate| entry(event, session, "robot", rate);
        let all = |entries: Vec<(u64, Entry)>| {
            let lines = of_desk(&mut Head::default(), entries);
            let claim = Claim { lines, unix_ms: now() + AHEAD_MS, ..Claim::default() };
            Seen::of(&checked(&claim, &of_robot(Some(5)), &robot)).unwrap().disputed
        };
        let disputed = |second: u64, entry: Entry| {
            all(vec![(second, entry)]).into_iter().next().map(|one| one.because).unwrap_or_default()
        };
        assert_eq!(disputed(50, one(Event::Start, "robot/a/1", 100)), "", "within a minute");
        assert_eq!(disputed(250, one(Event::Stop, "robot/a/1", 0)), "");
        assert_eq!(disputed(9_000, one(Event::Interim, "robot/b/1", 100)), "", "it goes on");
        let wrong = [
            (100, one(Event::Start, "robot/a/1", 101), "101 bit/s, and 100 were asked for"),
            (100, Entry { price: 6, ..one(Event::Start, "robot/a/1", 100) }, "a price of 6, and 5 was offered"),
            (38, one(Event::Start, "robot/a/1", 100), "s before it began"),
            (262, one(Event::Interim, "robot/a/1", 100), "s after it was over"),
            (20_100, one(Event::Stop, "robot/b/1", 0), "s after now"),
            (100, one(Event::Start, "robot/c/1", 100), "no session of this name"),
            (100, one(Event::Start, "map", 7), "no session of this name went from \"robot\" into \"desk\""),
            (100, entry(Event::Start, "robot/a/1", "other", 100), "its owner is \"other\""),
        ];
        for (at, entry, because) in wrong {
            let found = disputed(at, entry);
            assert!(found.contains(because), "{found}: expected is {because}");
        }
        // The same session once more, in its time.
        let again = all(vec![
            (100, one(Event::Start, "robot/a/1", 100)),
            (150, one(Event::Stop, "robot/a/1", 0)),
            (151, one(Event::Start, "robot/a/1", 100)),
        ]);
        assert_eq!(again, [Disputed { number: 3, because: "it has begun in record 1 already".into() }]);
    }

    #[test]
    fn other_lines_than_those_that_were_signed_are_found() {
        let (realm, [robot, desk]) = realm("forged", ["robot", "desk"]);
        let with = |entries: Vec<(u64, Entry)>, of: &dyn Fn(&[String], &Head) -> Entry| {
            let mut head = Head::default();
            let mut lines = of_desk(&mut head, entries);
            let statement = of(&lines, &head);
            lines.extend(of_desk(&mut head, vec![(300, statement)]));
            audit(&lines, &realm)
        };
        let honest = claim(0, &of_desk(&mut Head::default(), as_it_was()));
        let by =
            |signer: &Signer| Entry::statement(Event::Countersign, "robot", checked(&honest, &of_robot(None), signer));
        assert!(with(as_it_was(), &|_, _| by(&robot)).is_ok());
        let proves_nothing = |found: Result<Vec<Signature>, Broken>| matches!(found, Err(Broken::Unproved(..)));
        assert!(proves_nothing(with(as_it_was(), &|_, _| by(&desk))), "by the wrong party");
        let (mut dearer, mut more, mut less) = (as_it_was(), as_it_was(), as_it_was());
        dearer[0].1.price += 1;
        more.push((220, entry(Event::Start, "robot/c/1", "robot", 100)));
        less.remove(0);
        assert!(proves_nothing(with(dearer, &|_, _| by(&robot))));
        assert!(proves_nothing(with(less, &|_, _| by(&robot))));
        assert!(with(more, &|_, _| by(&robot)).is_ok(), "what is later is not signed yet");
        // A signature of the broker itself.
        let own = |_: &[String], head: &Head| sign(&desk, head, now()).unwrap();
        assert!(with(as_it_was(), &own).is_ok());
        let earlier = |_: &[String], _: &Head| sign(&desk, &Head { number: 1, hash: "0".repeat(64) }, now()).unwrap();
        assert!(proves_nothing(with(as_it_was(), &earlier)));
        let bare = |_: &[String], head: &Head| Entry { signed: None, ..sign(&desk, head, now()).unwrap() };
        assert!(proves_nothing(with(as_it_was(), &bare)));
    }

    #[test]
    fn an_answer_to_another_claim_and_an_unreadable_claim_are_refused() {
        let (realm, [robot, desk]) = realm("answers", ["robot", "desk"]);
        let lines = of_desk(&mut Head::default(), as_it_was());
        let (whole, part) = (claim(0, &lines), claim(0, &lines[..1]));
        let accepts = |claim: &Claim, signed: Signed| countersigned(claim, ("desk", "robot"), signed, &realm).is_ok();
        assert!(accepts(&whole, checked(&whole, &of_robot(None), &robot)));
        assert!(!accepts(&whole, checked(&part, &of_robot(None), &robot)));
        assert!(!accepts(&whole, checked(&whole, &of_robot(None), &desk)));
        let changed = |change: &dyn Fn(&mut Seen)| {
            let mut seen = Seen::of(&checked(&whole, &of_robot(None), &robot)).unwrap();
            change(&mut seen);
            robot.sign(serde_json::to_string(&seen).unwrap()).unwrap()
        };
        let disputed = |because: &str| {
            let because = because.to_owned();
            changed(&|seen| seen.disputed = vec![Disputed { number: 1, because: because.clone() }])
        };
        assert!(accepts(&whole, changed(&|_| {})) && accepts(&whole, disputed("too much")));
        assert!(!accepts(&whole, changed(&|seen| seen.last += 1)), "more than it was asked for");
        let elsewhere = |numbers: [u64; 2]| {
            let one = |number| Disputed { number, because: String::new() };
            changed(&|seen| seen.disputed = numbers.map(one).to_vec())
        };
        assert!(accepts(&whole, elsewhere([1, 4])) && !accepts(&whole, elsewhere([1, 2])), "2 is none of the claim");
        assert!(!accepts(&whole, elsewhere([4, 1])) && !accepts(&whole, elsewhere([1, 1])));
        let padded = Seen::of(&checked(&whole, &of_robot(None), &robot)).unwrap();
        let padded = robot.sign(serde_json::to_string_pretty(&padded).unwrap()).unwrap();
        assert!(!accepts(&whole, padded), "other bytes than needed");
        assert!(!accepts(&whole, disputed("\u{1b}[2J")) && !accepts(&whole, disputed(&"x".repeat(201))));
        assert!(!accepts(&whole, Signed { text: "{}".into(), ..checked(&whole, &of_robot(None), &robot) }));
        let backwards = Claim { lines: whole.lines.iter().rev().cloned().collect(), ..whole.clone() };
        assert!(Check::new(&backwards, ("robot", "desk")).is_err());
        assert!(Check::new(&Claim { after: 4, ..whole.clone() }, ("robot", "desk")).is_err());
        assert!(Check::new(&Claim { lines: vec!["{".into()], ..whole.clone() }, ("robot", "desk")).is_err());
        assert!(whole.is_bounded() && !Claim { lines: Vec::new(), ..whole.clone() }.is_bounded());
        // Times beyond all clocks.
        for unix_ms in [0, u64::MAX / 2 + 1, u64::MAX] {
            let far = Claim { unix_ms, ..whole.clone() };
            assert!(accepts(&far, checked(&far, &of_robot(None), &robot)), "{unix_ms}");
        }
        let mut full = Claim::default();
        assert!((0..MOST_LINES).all(|_| full.take("x")) && !full.take("x"));
        assert!(!Claim::default().take(&"x".repeat(MOST_BYTES + 1)));
    }
}
