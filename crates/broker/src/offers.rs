//! Offers for sessions that are suspended: what each could have at once, on the links as they are and beside what is left of the others. Pure.

use crate::planning::{Present, joined, offered, running};
use crate::sessions::{admits, resumed};
use qos::contract::joined::{Joined, Part};
use qos::placement::{Effort, Watch};
use qos::plan::{Offer, rewrite_part};
use std::time::Duration;

/// Steps of all plans that are tried for one session: some 50 ms.
const STEPS: u64 = 5_000_000;
/// Longest search of one session's offers, but for the plan that is being tried: its steps are not all of its work.
const LONGEST: Duration = Duration::from_millis(200);

/// The result of a search for offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Each is admitted if it is asked for at once, the nearest to the session as it is first.
    pub offers: Vec<Offer>,
    /// There was no time to look for all, or to try all that was found.
    pub hurried: bool,
    /// It fits as it is, beside what is left of the others.
    pub fits: bool,
}

/// A clock that is ahead of another by so much: a placement ends as much earlier.
struct Ahead<'a> {
    watch: &'a mut dyn Watch,
    by: Duration,
}

impl Watch for Ahead<'_> {
    fn elapsed(&mut self) -> Duration {
        self.watch.elapsed() + self.by
    }
}

/// Offers for a session (name) that does not run, from the beginning of the clock on: the search takes 0.2 s at most, and with trying what was found this time more. None
/// where no way leads to it, or where it needs a session that does not run.
pub fn find(present: Present<'_>, name: &str, time: Duration, watch: &mut dyn Watch) -> Found {
    let mut found = Found::default();
    let Some(session) = present.sessions.iter().find(|session| session.name == name) else { return found };
    let Ok(reduction) = resumed(present, name) else { return found };
    let beside = Present { reduction: &reduction, ..present };
    let offers = match offered(beside, name, (LONGEST, STEPS), watch) {
        Ok(Some(offers)) => offers,
        Ok(None) => return Found { fits: true, ..found },
        Err(_) => return found,
    };
    let Some((whole, part)) = part(beside, name) else { return found };
    found.hurried = watch.elapsed() > LONGEST;
    // The search has a time of its own: on a slow host it leaves no less to try what it found.
    let until = LONGEST + time;
    let by = Effort::default().time.saturating_sub(until);
    for offer in offers {
        if watch.elapsed() > until {
            found.hurried = true;
            break;
        }
        let text = rewrite_part(&session.text, &whole.contract.system, &part, &offer.changes);
        if text.is_ok_and(|text| admits(present, (&session.owner, &text), &mut Ahead { watch: &mut *watch, by })) {
            found.offers.push(offer);
        }
    }
    found
}

/// The contract with all sessions that run, and the part of it that is a session's.
fn part(present: Present<'_>, name: &str) -> Option<(Joined, Part)> {
    let running = running(present.sessions, present.reduction);
    let whole = joined(present.contract, running.iter().copied(), Some(name)).ok()?;
    let at = running.iter().position(|session| session.name == name)?;
    let part = whole.parts.get(at)?.clone();
    Some((whole, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::degradation::{AT_ONCE, adapt};
    use crate::ledger::NOTHING_SOLD;
    use crate::links::Rates;
    use crate::planning::{Admitted, Change, Patient, Reduction};
    use crate::sessions::request;
    use proptest::prelude::*;

    const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
between = ["a", "b"]
rate = "2 Mbit/s"
scheduler = "strict"
devices = { a = "wire", b = "wire" }
[[topic]]
name = "state"
size = "100 B"
rate = "100 Hz"
publisher = "a"
[[subscriber]]
topic = "state"
node = "b"
deadline = "3 s"
"#;

    /// A session of so many bytes at 50 Hz.
    fn text(name: &str, importance: i64, bytes: u64) -> String {
        format!(
            "[[session]]\nname = {name:?}\nimportance = {importance}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\n\
             publisher = \"a\"\n[[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"3 s\"\n"
        )
    }

    fn present<'a>(links: &'a Rates, reduction: &'a Reduction, sessions: &'a [Admitted]) -> Present<'a> {
        Present { contract: CONTRACT, links, reduction, sessions, sold: &NOTHING_SOLD }
    }

    /// Sessions of these importances and sizes, on a wire of this rate.
    fn adapted(all: &[(i64, u64)], rate: u64) -> (Rates, Change) {
        let (as_stated, nothing) = (Rates::new(), Reduction::default());
        let mut sessions = Vec::new();
        for (number, (importance, bytes)) in all.iter().enumerate() {
            let text = text(&format!("s{number}"), *importance, *bytes);
            let asked = request(present(&as_stated, &nothing, &sessions), ("ann", &text), number as u64, &mut Patient);
            sessions = asked.map_or(sessions, |change| change.sessions);
        }
        let links: Rates = [("wire".to_owned(), rate)].into();
        let change = adapt(present(&links, &nothing, &sessions), AT_ONCE, &mut Patient).unwrap();
        (links, change)
    }

    /// The text of a session with an offer taken.
    fn taken(present: Present<'_>, name: &str, offer: &Offer) -> String {
        let reduction = resumed(present, name).unwrap();
        let (whole, part) = part(Present { reduction: &reduction, ..present }, name).unwrap();
        let session = present.sessions.iter().find(|session| session.name == name).unwrap();
        rewrite_part(&session.text, &whole.contract.system, &part, &offer.changes).unwrap()
    }

    #[test]
    fn a_session_that_has_no_room_is_offered_less() {
        let (links, change) = adapted(&[(9, 550), (1, 550)], 500_000);
        assert_eq!(change.reduction.suspended.keys().collect::<Vec<_>>(), ["s1"]);
        let now = present(&links, &change.reduction, &change.sessions);
        let found = find(now, "s1", AT_ONCE, &mut Patient);
        assert!(found.offers.iter().any(|offer| offer.what.contains("scale")) && !found.hurried, "{found:?}");
        let text = taken(now, "s1", &found.offers[0]);
        let admitted = request(now, ("ann", &text), 9, &mut Patient).unwrap();
        assert!(admitted.reduction.suspended.is_empty(), "{:?}", admitted.reduction);
        assert_eq!(find(now, "s7", AT_ONCE, &mut Patient), Found::default());
    }

    #[test]
    fn where_no_way_leads_nothing_is_offered() {
        let (links, change) = adapted(&[(1, 550)], 0);
        let now = present(&links, &change.reduction, &change.sessions);
        assert_eq!(find(now, "s0", AT_ONCE, &mut Patient), Found::default());
    }

    /// A clock on which a second passes at each look.
    struct Hasty(u64);

    impl Watch for Hasty {
        fn elapsed(&mut self) -> Duration {
            self.0 += 1;
            Duration::from_secs(self.0)
        }
    }

    #[test]
    fn without_time_it_says_so() {
        let (links, change) = adapted(&[(9, 550), (1, 550)], 500_000);
        let now = present(&links, &change.reduction, &change.sessions);
        assert_eq!(find(now, "s1", AT_ONCE, &mut Hasty(0)), Found { hurried: true, ..Found::default() });
    }

    #[test]
    fn what_fits_as_it_is_is_told() {
        let (links, change) = adapted(&[(9, 550), (1, 550)], 2_000_000);
        let mut reduction = change.reduction.clone();
        reduction.suspended.insert("s1".into(), "in a hurry".into());
        let found = find(present(&links, &reduction, &change.sessions), "s1", AT_ONCE, &mut Patient);
        assert_eq!(found, Found { fits: true, ..Found::default() });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

        #[test]
        fn what_is_offered_is_admitted(
            all in proptest::collection::vec((-2i64..3, 60u64..900), 1..6),
            rate in 150_000u64..2_000_000,
        ) {
            let (links, change) = adapted(&all, rate);
            let now = present(&links, &change.reduction, &change.sessions);
            for name in change.reduction.suspended.keys() {
                for offer in find(now, name, AT_ONCE, &mut Patient).offers {
                    let text = taken(now, name, &offer);
                    let asked = request(now, ("ann", &text), 9, &mut Patient);
                    prop_assert!(asked.is_ok(), "{}: {:?}", offer.what, asked.err());
                    let after = asked.unwrap().reduction;
                    prop_assert!(!after.suspended.contains_key(name), "{}: {:?}", offer.what, after);
                    let others = after.suspended.keys().all(|other| change.reduction.suspended.contains_key(other));
                    prop_assert!(others, "nobody else ends for it: {:?}", after);
                }
            }
        }
    }
}
