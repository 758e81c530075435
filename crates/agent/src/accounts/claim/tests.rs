use super::*;
use crate::accounts::signatures::{Signature, sign};
use crate::accounts::{Audit, Broken, Charge, Head, Traffic};
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
    assert_eq!(last_signed(&answer), Some(4));
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
    let by = |signer: &Signer| Entry::statement(Event::Countersign, "robot", checked(&honest, &of_robot(None), signer));
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
