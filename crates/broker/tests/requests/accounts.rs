//! The accounts: who had how much.

use super::*;
use agent::accounts::{Audit, Bill, Broken, Head};
use agent::message::{Counts, End, Side};

fn bills(lines: &[String], noted: Option<Head>) -> Result<(Vec<Bill>, Head), Broken> {
    let mut audit = Audit::new(noted, None);
    lines.iter().try_for_each(|line| audit.read(line))?;
    let head = audit.head().clone();
    audit.bills(None).map(|bills| (bills, head))
}

#[test]
fn what_sessions_had_is_in_the_accounts_and_survives_the_broker() {
    let mut testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    assert_eq!(ann.accounts(0).unwrap(), Vec::<String>::new());
    assert!(ann.request_session("lidar", &session("lidar", 60_000)).is_err());
    assert!(ann.accounts(0).unwrap().is_empty(), "what is refused costs nothing");
    ann.request_session("camera", &session("camera", 800)).unwrap();
    let report = |testbed: &Testbed, received: u64| {
        let counts = Some(Counts { samples: received, bytes: received * 800 });
        let (topic, publisher, subscriber) = ("camera".into(), "a".into(), "/camera@b".into());
        let end = End { topic, publisher, subscriber, end: Side::Subscriber, because: None, counts };
        let desired = host.desired("a", (0, 0), NO_WAIT).unwrap().unwrap();
        let ends = vec![end];
        testbed
            .client(Kind::Host, "a")
            .report("a", &Actual { ends, ..applied(desired.epoch, desired.revision) })
            .unwrap();
    };
    report(&testbed, 10);
    report(&testbed, 60);
    ann.state_link("wire", Some(100_000)).unwrap(); // suspended
    let (before, noted) = bills(&ann.accounts(0).unwrap(), None).unwrap();
    let [camera] = before.as_slice() else { panic!("{before:?}") };
    assert_eq!((camera.active, camera.traffic.received), (true, Counts { samples: 50, bytes: 40_000 }));
    assert_eq!(noted.number, 2);
    report(&testbed, 65);
    testbed.stop(); // which notes what came since
    testbed.start();
    report(&testbed, 70); // what it counted before that is in the accounts
    report(&testbed, 71);
    ann.state_link("wire", None).unwrap();
    ann.stop_session("camera").unwrap();
    let lines = ann.accounts(0).unwrap();
    let (after, head) = bills(&lines, Some(noted.clone())).unwrap();
    let [camera] = after.as_slice() else { panic!("{after:?}") };
    assert_eq!((camera.active, camera.traffic.received.samples), (false, 56));
    // 320 kbit/s, but not while it was suspended.
    let seconds = (camera.until_unix_ms - camera.from_unix_ms) as f64 / 1e3;
    assert!(camera.reserved_bits > 0 && (camera.reserved_bits as f64) < 320_000.0 * seconds, "{camera:?} {seconds}");
    assert_eq!(ann.accounts(head.number - 1).unwrap(), lines[lines.len() - 1..]);
    assert!(status(host.accounts(0)) == 403);
    // One that was changed on the disk would be found.
    let mut changed = lines.clone();
    changed[0] = changed[0].replace("user/ann", "user/bob");
    assert_eq!(bills(&changed, None), Err(Broken::Changed(1)));
    assert!(bills(&lines, Some(Head { number: 2, ..head })).is_err());
}
