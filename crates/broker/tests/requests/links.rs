//! Links that carry less than the contract says, as agents report and users state.

use super::*;
use agent::message::{Carrier, Links};

fn eth0(up: bool) -> Vec<Carrier> {
    vec![Carrier { device: "eth0".into(), up, ..Carrier::default() }]
}

/// Its cable is bad: it has a tenth of the contract's rate.
fn slow() -> Vec<Carrier> {
    vec![Carrier { rate_bits_per_s: Some(1_000_000), ..eth0(true).remove(0) }]
}

/// Looks until it is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn carries(links: &Links) -> u64 {
    links.links[0].carries_bits_per_s
}

/// A session of 3.4 Mbit/s, which may be thinned.
fn thinnable(name: &str, importance: i64) -> String {
    let text = session(name, 8000).replacen("\n[[topic]]", &format!("\nimportance = {importance}\n[[topic]]"), 1);
    text.replace("deadline = \"50 ms\"", "deadline = \"900 ms\"\nscale_max = 8")
}

#[test]
fn sessions_are_thinned_and_suspended_as_a_link_carries_less_and_get_it_back() {
    let mut testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    ann.request_session("camera", &thinnable("camera", 2)).unwrap();
    ann.request_session("lidar", &thinnable("lidar", 1)).unwrap();
    let camera = ann.session("camera").unwrap();
    let scales = |ann: &Client| {
        let all = ann.sessions().unwrap();
        all.iter()
            .map(|one| (one.state == SessionState::Suspended, one.channels.first().map(|one| one.scale)))
            .collect::<Vec<_>>()
    };
    let desired = host.desired("a", (0, 0), NO_WAIT).unwrap().unwrap();

    let links = ann.state_link("wire", Some(5_000_000)).unwrap();
    assert_eq!((carries(&links), links.links[0].stated, links.because), (5_000_000, true, None));
    until(|| scales(&ann) == [(false, Some(1)), (false, Some(3))]);
    let because = ann.session("lidar").unwrap().because.unwrap_or_default();
    assert!(
        because.starts_with("waits for a; ")
            && because.contains("gets one of 3 samples: link wire carries 5 Mbit/s instead of 10 Mbit/s"),
        "{because}"
    );
    // Its agent hears of it, with the queue's rate.
    let plan = host.desired("a", (desired.epoch, desired.revision), NO_WAIT).unwrap().unwrap().plan.unwrap();
    let plan = qos::plan::Plan::from_text(&plan).unwrap();
    assert_eq!(plan.links[0].rate_bits_per_s as u64, 5_000_000);
    // A newcomer gets what is left.
    assert!(matches!(ann.request_session("map", &session("map", 2000)), Err(ClientError::Unfit(..))));

    let links = ann.state_link("wire", Some(500_000)).unwrap();
    assert_eq!(carries(&links), 500_000);
    until(|| scales(&ann) == [(false, Some(7)), (true, None)]);
    let because = ann.session("lidar").unwrap().because.unwrap_or_default();
    assert!(because.contains("what is at least as important takes it"), "{because}");
    until(|| !ann.session("lidar").unwrap().offers.is_empty());
    assert!(ann.session("camera").unwrap().offers.is_empty(), "it runs");
    // The same file again is no way around.
    assert_eq!(ann.request_session("lidar", &thinnable("lidar", 1)).unwrap().state, SessionState::Suspended);
    testbed.stop();
    testbed.start();
    assert_eq!(scales(&ann), [(false, Some(7)), (true, None)], "a broker that starts again knows it");

    let links = ann.state_link("wire", None).unwrap();
    assert_eq!((carries(&links), links.links[0].stated), (10_000_000, false));
    until(|| scales(&ann) == [(false, Some(1)), (false, Some(1))]);
    assert_eq!(ann.session("camera").unwrap().channels, camera.channels, "as before");
    assert!(ann.session("lidar").unwrap().offers.is_empty());
    // Who stops one leaves room for others.
    ann.state_link("wire", Some(5_000_000)).unwrap();
    ann.stop_session("camera").unwrap();
    assert_eq!(scales(&ann), [(false, Some(1))]);
}

/// A broker that has no time to look for the least takes enough, and gives back soon what that was too much.
#[test]
fn what_is_taken_in_a_hurry_is_given_back() {
    let mut testbed = Testbed::planning();
    testbed.stop();
    testbed.at_once = Duration::ZERO;
    testbed.start();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    ann.request_session("camera", &thinnable("camera", 2)).unwrap();
    ann.request_session("lidar", &thinnable("lidar", 1)).unwrap();
    let scales = || ann.sessions().unwrap().iter().map(|one| one.channels[0].scale).collect::<Vec<_>>();
    let before = host.desired("a", (0, 0), NO_WAIT).unwrap().unwrap();
    ann.state_link("wire", Some(5_000_000)).unwrap();
    until(|| scales() == [1, 3]);
    let after = host.desired("a", (before.epoch, before.revision), NO_WAIT).unwrap().unwrap();
    assert_eq!(after.revision, before.revision + 2, "enough at first, then the least");
}

#[test]
fn a_link_is_down_when_an_end_has_no_carrier_and_back_when_it_is_steady() {
    let mut testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    ann.request_session("camera", &session("camera", 800)).unwrap();
    host.report_carriers("a", &eth0(true)).unwrap();
    assert_eq!(carries(&ann.links().unwrap()), 10_000_000);
    let suspended = || ann.session("camera").unwrap().state == SessionState::Suspended;
    host.report_carriers("a", &eth0(false)).unwrap();
    until(suspended);
    assert_eq!(carries(&ann.links().unwrap()), 0);
    let because = ann.session("camera").unwrap().because.unwrap_or_default();
    assert!(because.contains("no way leads to /camera@b: down is wire"), "{because}");
    assert_eq!(status(ann.request_session("map", &session("map", 10))), 409, "nobody is admitted over it");

    testbed.stop();
    testbed.start();
    assert!(suspended(), "down until an agent says otherwise");
    let began = std::time::Instant::now();
    until(|| {
        host.report_carriers("a", &eth0(true)).unwrap();
        !suspended()
    });
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(carries(&ann.links().unwrap()), 10_000_000);
}

/// A cable that is bad: its ends agree on a lower rate.
#[test]
fn a_link_carries_what_its_ends_have_agreed_on() {
    let testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    ann.request_session("camera", &thinnable("camera", 2)).unwrap();
    let report = |rate| {
        let eth0 = Carrier { rate_bits_per_s: Some(rate), ..eth0(true).remove(0) };
        host.report_carriers("a", &[eth0]).unwrap();
    };
    let scale = || ann.session("camera").unwrap().channels[0].scale;
    report(100_000_000);
    assert_eq!(carries(&ann.links().unwrap()), 10_000_000, "the contract says less than that");
    report(1_000_000);
    until(|| scale() > 1);
    assert_eq!(carries(&ann.links().unwrap()), 1_000_000);
    until(|| {
        report(100_000_000);
        scale() == 1
    });
    assert_eq!(carries(&ann.links().unwrap()), 10_000_000);
}

#[test]
fn who_may_not_and_what_is_wrong_changes_no_link() {
    let testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    assert_eq!(status(host.links()), 403);
    assert_eq!(status(host.state_link("wire", Some(1))), 403);
    assert_eq!(status(host.report_carriers("b", &eth0(false))), 403, "for another host");
    assert_eq!(status(ann.report_carriers("a", &eth0(false))), 403);
    assert_eq!(status(ann.state_link("air", Some(1))), 404);
    assert_eq!(status(ann.state_link("wire", Some(10_000_001))), 422);
    assert_eq!(status(ann.state_link("wire", Some(1))), 422, "slower than the slowest queue");
    let many = vec![eth0(false).remove(0); 257];
    assert_eq!(status(host.report_carriers("a", &many)), 422);
    let long = vec![Carrier { device: "e".repeat(257), ..Carrier::default() }];
    assert_eq!(status(host.report_carriers("a", &long)), 422);
    assert_eq!(carries(&ann.links().unwrap()), 10_000_000);
    let without = Testbed::new();
    assert_eq!(status(without.client(Kind::User, "ann").links()), 409, "a broker without a contract");
}

/// Nothing is planned, all stays as it is, and users are told.
#[test]
fn a_contract_that_does_not_fit_on_its_links_is_told() {
    let mut testbed = Testbed::new();
    testbed.stop();
    const NARROW: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
between = ["a", "b"]
rate = "10 Mbit/s"
scheduler = "strict"
devices = { a = "eth0" }
[[topic]]
name = "state"
size = "1 kB"
rate = "100 Hz"
publisher = "a"
[[subscriber]]
topic = "state"
node = "b"
deadline = "5 ms"
"#;
    testbed.contract = Some(NARROW);
    testbed.start();
    let ann = testbed.client(Kind::User, "ann");
    let before = ann.plan().unwrap();
    let links = ann.state_link("wire", Some(1_000_000)).unwrap();
    assert!(links.because.as_deref().is_some_and(|because| because.contains("state")), "{links:?}");
    assert_eq!((carries(&links), ann.plan().unwrap()), (1_000_000, before));
    assert_eq!(status(ann.request_session("map", &session("map", 10))), 409, "nothing is admitted meanwhile");
    // The broker starts all the same, and says so again.
    testbed.stop();
    testbed.start();
    until(|| ann.links().unwrap().because.is_some());
    assert_eq!(carries(&ann.links().unwrap()), 1_000_000);
    assert_eq!(ann.state_link("wire", Some(9_000_000)).unwrap().because, None);
    ann.request_session("map", &session("map", 10)).unwrap();
}

/// What a user has taken away comes back for a user, and for no report.
#[test]
fn a_plan_that_was_taken_away_comes_back_with_a_session_and_with_no_report() {
    let testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    let taken = ann.change_plan(None, ann.plan().unwrap().revision).unwrap().revision;
    host.report_carriers("a", &slow()).unwrap();
    // It would be planned for before this is answered.
    let links = ann.state_link("wire", Some(5_000_000)).unwrap();
    assert_eq!((carries(&links), links.because), (1_000_000, None), "it is heard all the same");
    let now = ann.plan().unwrap();
    assert_eq!((now.revision, now.plan), (taken, None));
    ann.request_session("camera", &thinnable("camera", 2)).unwrap();
    until(|| ann.session("camera").unwrap().channels[0].scale > 1);
    assert!(ann.plan().unwrap().plan.is_some());
}

/// The broker's own plan is no change by somebody else.
#[test]
fn who_takes_the_plan_away_is_refused_for_a_session_and_for_no_report() {
    let testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    let seen = ann.plan().unwrap().revision;
    host.report_carriers("a", &slow()).unwrap();
    until(|| ann.plan().unwrap().revision > seen);
    assert!(ann.change_plan(None, seen).is_ok());
    let seen = ann.plan().unwrap().revision;
    testbed.client(Kind::User, "bob").request_session("map", &session("map", 10)).unwrap();
    for after in [seen, ann.plan().unwrap().revision] {
        assert_eq!(status(ann.change_plan(None, after)), 409, "another user's session");
    }
}
