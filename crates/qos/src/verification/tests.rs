use super::*;
use proptest::prelude::*;

fn promised(latest_us: f64, rate_hz: f64) -> Plan {
    let channel = Channel { bound_us: Some(latest_us), rate_hz: Some(rate_hz), burst: Some(1.0), ..Channel::default() };
    Plan { channels: vec![channel], ..Plan::default() }
}

fn worst(us: f64, uncertainty_us: f64) -> Option<Worst> {
    Some(Worst { us, uncertainty_us, ..Worst::default() })
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A second of a channel of 100 Hz.
fn window(us: f64, uncertainty_us: f64) -> Window {
    let late = u64::from(us - uncertainty_us > 1000.0);
    Window { received: 100, measured: 100, late, worst: worst(us, uncertainty_us), ..Window::default() }
}

fn verdict(window: &Window) -> Judged {
    let mut verification = Verification::new(&promised(1000.0, 100.0));
    verification.began(0, second(0));
    verification.measured(0, second(1), window);
    verification.judged(0)
}

#[test]
fn delays_are_kept_at_risk_or_broken_by_the_part_of_the_bound() {
    for (us, expected) in [(0.0, "kept"), (899.0, "kept"), (900.0, "at risk"), (1000.0, "at risk"), (1000.1, "broken")]
    {
        assert_eq!(verdict(&window(us, 0.0)).verdict.name(), expected, "{us}");
    }
}

#[test]
fn no_verdict_is_false_where_clocks_leave_it_open() {
    for (us, uncertainty, expected) in [
        (100.0, 700.0, "kept"),
        (500.0, 600.0, "unknown"),
        (880.0, 50.0, "at risk"),
        (980.0, 50.0, "at risk"),
        (1100.0, 150.0, "at risk"),
        (1100.0, 250.0, "unknown"),
        (5000.0, 3000.0, "broken"),
    ] {
        let judged = verdict(&window(us, uncertainty));
        assert_eq!(judged.verdict.name(), expected, "{us} ± {uncertainty}");
        assert!(expected == "kept" || judged.because.contains("clocks compared to ±"), "{}", judged.because);
    }
}

#[test]
fn losses_order_and_rates_count() {
    let good = window(100.0, 0.0);
    for (window, expected, says) in [
        (Window { lost: 3, ..good.clone() }, "broken", "3 of 103 samples lost"),
        (Window { disordered: 2, ..good.clone() }, "broken", "2 samples came after later ones"),
        (Window { received: 120, ..good.clone() }, "broken", "120.0 Hz instead of 100.0 Hz"),
        (Window { received: 107, ..good.clone() }, "kept", ""),
        (Window { received: 50, ..good.clone() }, "at risk", "50.0 Hz instead of 100.0 Hz"),
        (Window { received: 0, measured: 0, worst: None, ..good.clone() }, "unknown", "no sample's delay was measured"),
    ] {
        let judged = verdict(&window);
        assert_eq!((judged.verdict.name(), judged.because.as_str()), (expected, says));
    }
    let mut lossy = promised(1000.0, 100.0);
    lossy.channels[0].loss = Some(0.05);
    let mut verification = Verification::new(&lossy);
    verification.measured(0, second(1), &Window { lost: 5, ..good });
    assert_eq!(verification.judged(0).verdict, Verdict::Kept, "so much the plan says itself");
}

#[test]
fn a_verdict_changes_with_what_was_measured_last_and_the_sum_remembers() {
    let mut verification = Verification::new(&promised(1000.0, 100.0));
    verification.began(0, second(0));
    let mut told = |at, us| {
        verification
            .measured(0, second(at), &window(us, 0.0))
            .map(|change| (change.old.name(), change.new.verdict.name()))
    };
    assert_eq!(told(1, 100.0), Some(("unknown", "kept")));
    assert_eq!(told(2, 100.0), None);
    assert_eq!(told(3, 6000.0), Some(("kept", "broken")));
    assert_eq!(told(4, 100.0), Some(("broken", "kept")));
    let judged = verification.judged(0);
    assert_eq!((judged.verdict, judged.because.as_str()), (Verdict::Broken, "6 ms of 1 ms promised"));
    let total = verification.total(0).unwrap();
    assert_eq!((total.seen.received, total.seen.late, total.rate_hz()), (400, 1, Some(100.0)));
}

#[test]
fn what_has_no_promise_and_what_does_not_run_is_unknown() {
    let plan = Plan { channels: vec![Channel::default()], ..Plan::default() };
    let mut verification = Verification::new(&plan);
    assert_eq!(verification.judged(0).verdict, Verdict::Unknown);
    verification.measured(0, second(1), &window(1.0, 0.0));
    assert!(verification.judged(0).because.contains("neither bound nor deadline"));
    assert!(verification.measured(7, second(1), &window(1.0, 0.0)).is_none());
}

#[test]
fn the_worst_sample_says_where_its_time_went() {
    let times =
        |all: &[(&str, f64)]| all.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect::<BTreeMap<_, _>>();
    let received = times(&[("receive", 5.0), ("decode", 10.0), ("callback", 20.0)]);
    let late = Worst::new(5100.0, 0.0, &times(&[("publish", 15.0), ("queue", 0.0), ("send", 50.0)]), &received);
    assert_eq!((late.stage(), late.stages_us["wire"]), (Some("wire"), 5000.0));
    let stuck = Worst::new(5100.0, 0.0, &times(&[("publish", 15.0), ("queue", 4900.0), ("send", 50.0)]), &received);
    assert_eq!(stuck.stage(), Some("queue"));
    // Another sample's stages may be longer than all of this one.
    let short = Worst::new(40.0, 0.0, &times(&[("queue", 4900.0)]), &received);
    assert_eq!((short.stages_us["wire"], short.stages_us["queue"]), (0.0, 5.0));
}

fn live(topic: &str, publisher: &str, node: &str, subscriber: &str) -> Live {
    let own = str::to_owned;
    Live { topic: own(topic), publisher: own(publisher), publisher_node: own(node), subscriber: own(subscriber) }
}

fn planned(topic: &str, publisher: &str, subscriber: &str) -> Channel {
    let own = str::to_owned;
    Channel { topic: own(topic), publisher: own(publisher), subscriber: own(subscriber), ..Channel::default() }
}

#[test]
fn channels_are_found_by_topic_subscriber_and_publisher() {
    let channels = vec![
        planned("imu", "left", "/pilot/imu"),
        planned("imu", "right", "/pilot/imu"),
        planned("view", "camera", "/pilot/view"),
        planned("map", "pilot", "/operator/map"),
    ];
    let plan = Plan { channels, ..Plan::default() };
    let running = [
        live("/imu", "/p1", "right", "/pilot/imu"),
        live("/imu", "/imu@left", "pub-77", "/pilot/imu"),
        live("view", "/anybody", "pub-78", "/pilot/view"),
        live("view", "/anybody", "pub-78", "/recorder"),
        live("/imu", "/p3", "pub-79", "/pilot/imu"),
    ];
    let found = find(&plan, &running);
    assert_eq!(found, Found { planned: vec![Some(1), Some(0), Some(2), None], unplanned: vec![3, 4] });
}

#[test]
fn links_are_suspected_that_only_late_channels_cross() {
    let crossing = |links: &[&str]| Channel {
        terms: links.iter().map(|link| (format!("{link}: transmission"), 1.0)).collect(),
        ..Channel::default()
    };
    let link = |name: &str, to: &str| crate::plan::Link { name: name.into(), to: to.into(), ..Default::default() };
    let plan = Plan {
        channels: vec![
            crossing(&["lan to s", "air to o"]),
            crossing(&["air to o"]),
            crossing(&["lan to s", "lan to p"]),
        ],
        links: vec![link("lan", "s"), link("lan", "p"), link("air", "o"), link("air", "s")],
        ..Plan::default()
    };
    assert_eq!(suspects(&plan, &[0, 1], &[2]), ["air to o"]);
    assert_eq!(suspects(&plan, &[0, 1, 2], &[]), [""; 0]);
    assert_eq!(suspects(&plan, &[0, 2], &[1]), ["lan to s"]);
    let both = Plan {
        channels: vec![crossing(&["lan to p"]), crossing(&["lan to s"]), crossing(&["air to o"])],
        ..plan.clone()
    };
    assert_eq!(suspects(&both, &[0, 1], &[2]), ["lan"], "in either direction");
    assert_eq!(suspects(&plan, &[], &[2]), [""; 0]);
}

proptest! {
    /// Whatever the true delay within the uncertainty is: it is not called kept if it is not, nor broken.
    #[test]
    fn a_verdict_holds_for_every_delay_within(us in 0.0..3000f64, uncertainty in 0.0..3000f64, at in -1.0..1f64) {
        let truth = us + at * uncertainty;
        let judged = verdict(&window(us, uncertainty)).verdict;
        prop_assert!(judged != Verdict::Kept || truth < AT_RISK * 1000.0);
        prop_assert!(judged != Verdict::Broken || truth > 1000.0);
    }

    #[test]
    fn absurd_figures_do_no_harm(received in any::<u64>(), lost in any::<u64>(), late in any::<u64>(), us in any::<f64>(), off in any::<f64>()) {
        let mut verification = Verification::new(&promised(1000.0, 100.0));
        let window = Window { received, lost, late, measured: received, worst: worst(us, off), ..Window::default() };
        for at in 0..3 {
            verification.measured(0, second(at), &window);
        }
        let _ = verification.judged(0);
    }
}
