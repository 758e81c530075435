use super::*;
use crate::plan::{Chain, ChainPart};
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
        (Window { received: 0, measured: 0, worst: None, ..good.clone() }, "unknown", "no sample came"),
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
    let because = "6 ms of 1 ms promised; in 1 of 4 looks, at 3 s";
    assert_eq!((judged.verdict, judged.because.as_str()), (Verdict::Broken, because));
    let total = verification.total(0).unwrap();
    assert_eq!((total.seen.received, total.seen.late, total.rate_hz()), (400, 1, Some(100.0)));
    assert_eq!((total.worst_at, verification.history(0).unwrap().now), (second(3), Verdict::Kept));
}

/// A finding of one look is not averaged away by later measurements.
#[test]
fn a_verdict_once_broken_or_at_risk_stays_so() {
    let good = window(100.0, 0.0);
    let vague = Window { worst: worst(880.0, 80.0), late: 0, ..good.clone() };
    let certain = Window { worst: worst(850.0, 0.0), ..good.clone() };
    for (looks, expected, says) in [
        (
            vec![&good, &Window { received: 200, ..good.clone() }, &good],
            "broken",
            "200.0 Hz instead of 100.0 Hz; in 1 of",
        ),
        (vec![&good, &Window { disordered: 1, ..good.clone() }], "broken", "1 samples came after later ones; in 1 of"),
        (vec![&good, &window(950.0, 0.0), &good, &window(920.0, 0.0)], "at risk", "950 us of 1 ms promised; in 2 of"),
        // The sum has the figure of which more is certain; it would have been kept.
        (vec![&vague, &certain], "at risk", "880 us of 1 ms promised, clocks compared to ± 80 us; in 1 of"),
        (vec![&good, &Window::default(), &good], "at risk", "no sample came, where 100 were due; in 1 of"),
        (
            vec![&window(1500.0, 0.0), &window(3000.0, 0.0)],
            "broken",
            "3 ms of 1 ms promised, 2 samples late; in all 2 looks",
        ),
        (vec![&good, &good], "kept", ""),
    ] {
        let mut verification = Verification::new(&promised(1000.0, 100.0));
        verification.began(0, second(0));
        // Many good looks follow.
        let rest = if looks.len() == 2 { 0 } else { 200 };
        let all = looks.iter().copied().chain(std::iter::repeat_n(&good, rest));
        for (at, look) in (1..).zip(all) {
            verification.measured(0, second(at), look);
        }
        let judged = verification.judged(0);
        assert_eq!(judged.verdict.name(), expected, "{looks:?}: {judged:?}");
        assert!(judged.because.starts_with(says) && judged.because.is_empty() == says.is_empty(), "{says}: {judged:?}");
    }
}

#[test]
fn a_verdict_reports_when_and_how_often() {
    let mut verification = Verification::new(&promised(1000.0, 100.0));
    for at in 0..60 {
        let us = if [7, 8, 31].contains(&at) { 2000.0 + at as f64 } else { 100.0 };
        verification.measured(0, second(at), &window(us, 0.0));
    }
    let (history, total) = (verification.history(0).unwrap(), verification.total(0).unwrap());
    assert_eq!((history.looks, history.broken.count, total.worst_at), (60, 3, second(31)));
    assert_eq!((history.broken.first, history.broken.last), (second(7), second(31)));
    let because = "2.031 ms of 1 ms promised, 3 samples late; in 3 of 60 looks, from 7 s to 31 s";
    assert_eq!(verification.judged(0).because, because);
}

/// A sample every two seconds, looked at every second.
#[test]
fn a_look_without_expected_samples_has_no_verdict() {
    let mut verification = Verification::new(&promised(1000.0, 0.5));
    verification.began(0, second(0));
    let came = Window { received: 1, measured: 1, worst: worst(100.0, 0.0), ..Window::default() };
    let mut told =
        |at, look: &Window| verification.measured(0, second(at), look).map(|change| change.new.verdict.name());
    assert_eq!(told(1, &came), Some("kept"));
    let nothing = Window::default();
    assert_eq!((2..8).filter_map(|at| told(at, if at % 2 == 0 { &nothing } else { &came })).count(), 0);
    // The stream stops: after a while a sample had to come.
    let changes: Vec<_> = (8..30).filter_map(|at| told(at, &nothing).map(|verdict| (at, verdict))).collect();
    assert_eq!(changes, [(14, "at risk")]);
}

/// Samples that waited and come all at once are late, not too many.
#[test]
fn samples_on_their_way_do_not_exceed_the_planned_rate() {
    let held_up = Window { received: 150, ..window(500_000.0, 0.0) };
    let judged = verdict(&held_up);
    assert!(judged.verdict == Verdict::Broken && !judged.because.contains("Hz"), "{judged:?}");
    let asked_late = Window { received: 120, off: Duration::from_millis(200), ..window(100.0, 0.0) };
    assert_eq!(verdict(&asked_late).verdict, Verdict::Kept);
}

#[test]
fn planned_losses_are_an_average() {
    let mut lossy = promised(1000.0, 100.0);
    lossy.channels[0].loss = Some(0.05);
    let lost = |lost| Window { received: 100 - lost, lost, ..window(100.0, 0.0) };
    let verdict = |looks: &[u64]| {
        let mut verification = Verification::new(&lossy);
        verification.began(0, second(0));
        looks.iter().zip(1..).for_each(|(n, at)| drop(verification.measured(0, second(at), &lost(*n))));
        verification.judged(0)
    };
    assert_eq!(verdict(&[5, 9, 3, 6, 4]).verdict, Verdict::Kept);
    let judged = verdict(&[12, 14, 11]);
    assert_eq!((judged.verdict, judged.because.as_str()), (Verdict::Broken, "37 of 300 samples lost, 5 % are planned"));
    // Not for good: the average of the whole time counts.
    let later: Vec<u64> = [12, 14, 11].into_iter().chain([4; 40]).collect();
    assert_eq!(verdict(&later), Judged { verdict: Verdict::Kept, because: String::new() });
}

/// A few samples decide a certain verdict, but no average.
#[test]
fn an_average_needs_samples() {
    for (part, received, lost, expected) in [
        (0.05, 0, 1, Verdict::Kept), // the first sample of all
        (0.05, 1, 2, Verdict::Kept),
        (0.05, 8, 2, Verdict::Kept),
        (0.05, 10, 10, Verdict::Broken),
        (0.001, 0, 1, Verdict::Kept),
        (0.001, 999, 2, Verdict::Kept),
        (0.001, 900, 100, Verdict::Broken),
        (1e-9, 99, 1, Verdict::Broken), // hardly other than none
        (0.5, 0, 12, Verdict::Kept),
        (0.5, 100_000, 103_000, Verdict::Broken),
        (1.0, 0, 1_000_000, Verdict::Kept),
        (0.05, u64::MAX, u64::MAX, Verdict::Broken),
    ] {
        let mut lossy = promised(1000.0, 100.0);
        (lossy.channels[0].loss, lossy.channels[0].rate_hz) = (Some(part), None);
        let mut verification = Verification::new(&lossy);
        let seen = Window { received, measured: 1, lost, worst: worst(100.0, 0.0), ..Window::default() };
        let change = verification.measured(0, second(1), &seen).map(|change| change.new.verdict);
        assert_eq!((change, verification.judged(0).verdict), (Some(expected), expected), "{lost} of {part}");
        assert_eq!(verification.history(0).map(|history| history.broken.count), Some(0), "no look says an average");
    }
}

/// Samples lost by chance, as often as planned: no look but one in many thousands finds the average broken, from the first sample on.
#[test]
fn planned_losses_are_hardly_ever_broken() {
    let mut chance = crate::simulate::Chance(1);
    let (mut looks, mut broken) = (0, 0);
    for run in 0..300 {
        let part = [0.01, 0.1, 0.4][run % 3];
        let mut lossy = promised(1000.0, 100.0);
        (lossy.channels[0].loss, lossy.channels[0].rate_hz) = (Some(part), None);
        let mut verification = Verification::new(&lossy);
        for at in 1..100 {
            let lost = u64::from((chance.below(1_000_000) as f64) < part * 1e6);
            verification.measured(0, second(at), &Window { received: 1 - lost, lost, ..window(100.0, 0.0) });
            broken += u32::from(verification.judged(0).verdict == Verdict::Broken);
            looks += 1;
        }
    }
    assert!(broken * 5000 < looks, "{broken} of {looks} looks");
}

#[test]
fn channels_without_a_promise_or_not_running_are_unknown() {
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
    // Within a process there is no wire: the rest was spent in `publish`.
    let here = Worst::within_process(5100.0, &times(&[("publish", 15.0), ("mailbox", 4900.0), ("callback", 50.0)]));
    assert_eq!((here.stage(), here.stages_us["publish"], here.stages_us.len()), (Some("mailbox"), 150.0, 3));
    let taken = Worst::within_process(40.0, &times(&[("publish", 15.0)]));
    assert_eq!((taken.stage(), taken.stages_us["publish"]), (Some("publish"), 40.0));
    // Another sample's stages may be longer than all of this one.
    let short = Worst::new(40.0, 0.0, &times(&[("queue", 4900.0)]), &received);
    assert_eq!((short.stages_us["wire"], short.stages_us["queue"]), (0.0, 5.0));
}

fn live(topic: &str, publisher: &str, node: &str, subscriber: &str) -> Live {
    let own = str::to_owned;
    Live {
        topic: own(topic),
        publisher: own(publisher),
        publisher_node: own(node),
        subscriber: own(subscriber),
        over: None,
    }
}

/// The places of the planned ones among those that run.
fn places(found: &Found) -> Vec<Option<usize>> {
    found.planned.iter().map(|route| route.as_ref().map(|route| route.channel)).collect()
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
    assert_eq!((places(&found), found.unplanned), (vec![Some(1), Some(0), Some(2), None], vec![3, 4]));
}

/// Ports that nobody named: the contract calls a subscriber `/TOPIC@NODE`, and a program `/NODE/TOPIC/sub1`.
#[test]
fn ports_without_names_are_found_by_node_and_topic() {
    let at = |node: &str, channel: Channel| Channel { node: node.into(), ..channel };
    let channels = vec![
        at("desk", planned("robot/imu", "left", "/robot/imu@desk")),
        at("desk", planned("robot/imu", "right", "/robot/imu@desk")),
        at("desk", planned("view", "camera", "/desk-view")),
        at("base", planned("view", "camera", "/view@base")),
    ];
    let plan = Plan { channels, ..Plan::default() };
    let running = [
        live("/robot/imu", "/right/robot/imu/pub1", "", "/desk/robot/imu/sub1"),
        live("/robot/imu", "/left/robot/imu/pub1", "", "/desk/robot/imu/sub1"),
        live("/robot/imu", "/left/robot/imu/pub1", "", "/desk/robot/imu/subscriber"),
        live("/view", "/camera/view/pub1", "", "/desk/view/sub1"),
        live("/view", "/camera/view/pub1", "", "/base/view/sub3"),
        live("/view", "/camera/view/pub1", "", "/view@base"),
    ];
    let found = find(&plan, &running);
    assert_eq!(places(&found), [Some(1), Some(0), None, Some(5)], "a name that is stated is the only one");
    assert_eq!(places(&find(&plan, &running[..5])), [Some(1), Some(0), None, Some(4)]);
    assert_eq!(found.unplanned, [2, 3, 4]);
}

/// A relay's own channel from the publisher is part of the route, and other routes than planned are reported.
#[test]
fn a_route_over_a_relay_is_found_whole() {
    let over = |node: &str| Over { port: format!("/{node}/proxy7"), names: vec![node.into(), "its-host".into()] };
    let at = |topic: &str, proxy: &str| Channel {
        proxy: Some(proxy.into()),
        node: "desk".into(),
        ..planned(topic, "camera", &format!("/in/{topic}"))
    };
    let plan = Plan {
        channels: vec![
            at("whole", "gate"),
            at("direct", "gate"),
            at("other", "gate"),
            at("own", "camera"),
            at("over", "desk"),
        ],
        ..Plan::default()
    };
    let mut running: Vec<Live> = Vec::new();
    for (topic, node) in [("whole", "gate"), ("direct", ""), ("other", "spare"), ("own", "camera"), ("over", "gate")] {
        let out = format!("/out/{topic}");
        let one = live(topic, &out, "camera", &format!("/in/{topic}"));
        if node.is_empty() {
            running.push(one);
        } else {
            running.push(live(topic, &out, "camera", &over(node).port));
            running.push(Live { over: Some(over(node)), ..one });
        }
    }
    let found = find(&plan, &running);
    let routes: Vec<_> = found.planned.iter().flatten().map(|route| (route.channel, route.feeder)).collect();
    assert_eq!(routes, [(1, Some(0)), (2, None), (4, Some(3)), (6, Some(5)), (8, Some(7))]);
    let strays: Vec<_> = found.planned.iter().flatten().map(|route| route.strays.as_deref().unwrap_or("")).collect();
    let expected = [
        "",
        "directly, not over relay gate as planned",
        "over spare, not over relay gate as planned",
        "",
        "over gate, not directly as planned",
    ];
    assert_eq!((strays, found.unplanned), (expected.to_vec(), vec![]));
    let stray = Window { strays: Some(expected[1].into()), ..window(100.0, 0.0) };
    let judged = verdict(&stray);
    assert!(judged.verdict == Verdict::AtRisk && judged.because.contains("no bound covers that"), "{judged:?}");
}

#[test]
fn what_its_own_queue_dropped_is_the_channel_s_own_fault() {
    let mut plan = promised(1000.0, 100.0);
    let own = crate::plan::OwnQueue { link: "left".into(), ..Default::default() };
    (plan.channels[0].publisher, plan.channels[0].own_queue) = ("a".into(), Some(own));
    let verdict = |window: Window| {
        let mut verification = Verification::new(&plan);
        verification.began(0, second(0));
        verification.measured(0, second(1), &window);
        verification.judged(0)
    };
    let says = "7 packets dropped in its own queue before link left at a: more is sent than the contract says";
    let dropped = Window { own_queue: Some(7), ..window(100.0, 0.0) };
    let lossy = Window { lost: 3, ..dropped.clone() };
    let lost = format!("3 of 103 samples lost; {says}");
    for (window, expected, because) in [
        (window(100.0, 0.0), Verdict::Kept, ""),
        (dropped.clone(), Verdict::AtRisk, says),
        (lossy, Verdict::Broken, lost.as_str()),
        (Window { lost: 3, ..window(100.0, 0.0) }, Verdict::Broken, "3 of 103 samples lost"),
    ] {
        let judged = verdict(window);
        assert_eq!((judged.verdict, judged.because.as_str()), (expected, because));
    }
    let mut seen = Verification::new(&plan);
    for (at, own_queue, total) in [(1, None, None), (2, Some(0), Some(0)), (3, None, Some(0)), (4, Some(7), Some(7))] {
        seen.measured(0, second(at), &Window { own_queue, ..window(100.0, 0.0) });
        assert_eq!(seen.total(0).unwrap().seen.own_queue, total);
    }
    plan.channels[0].own_queue = None;
    assert_eq!(Verification::new(&plan).promise(0).unwrap().own_queue, None);
}

#[test]
fn links_are_suspected_that_only_late_channels_cross() {
    let routes =
        [["lan to s", "air to o"], ["air to o", "air to o"], ["lan to s", "lan to p"]].map(|r| r.map(str::to_owned));
    let link = |name: &str, to: &str| crate::plan::Link { name: name.into(), to: to.into(), ..Default::default() };
    // A link of two ends has two directions.
    let between = |name: &str, from: &str, to: &str| crate::plan::Link { from: from.into(), ..link(name, to) };
    let links =
        vec![between("lan", "p", "s"), between("lan", "s", "p"), between("air", "s", "o"), between("air", "o", "s")];
    let plan = Plan { links, ..Plan::default() };
    let found = |late: &[usize], well: &[usize]| {
        let all = late.iter().map(|at| (at, true)).chain(well.iter().map(|at| (at, false)));
        let legs: Vec<Leg> = all.map(|(at, late)| Leg { route: &routes[*at], late }).collect();
        suspects(&plan, &legs)
    };
    assert_eq!(found(&[0, 1], &[2]), ["air to o"]);
    assert_eq!(found(&[0, 1, 2], &[]), [""; 0]);
    assert_eq!(found(&[0, 2], &[1]), ["lan to s"]);
    assert_eq!(found(&[], &[2]), [""; 0]);
    let [to_p, to_s, to_o] = ["lan to p", "lan to s", "air to o"].map(|one| [one.to_owned()]);
    let legs = [(&to_p, true), (&to_s, true), (&to_o, false)].map(|(route, late)| Leg { route, late });
    assert_eq!(suspects(&plan, &legs), ["lan"], "in either direction");
}

/// The legs before and behind a relay are measured each by itself: blame goes to the right one.
#[test]
fn a_late_sample_over_a_relay_says_on_which_side_it_was_late() {
    let times =
        |all: &[(&str, f64)]| all.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect::<BTreeMap<_, _>>();
    let received = times(&[("receive", 5.0), ("decode", 10.0), ("callback", 20.0)]);
    let fed =
        |wire| Worst::new(wire + 75.0, 0.0, &times(&[("publish", 5.0), ("send", 20.0)]), &times(&[("callback", 50.0)]));
    let before = Worst::over_relay(5200.0, 0.0, &fed(5000.0), 1.0, &received);
    assert_eq!((before.stage(), before.stages_us["wire from relay"]), (Some("wire to relay"), 89.0));
    let behind = Worst::over_relay(5200.0, 0.0, &fed(40.0), 1.0, &received);
    assert_eq!((behind.stage(), behind.stages_us["relay"]), (Some("wire from relay"), 51.0));
    let stuck = Worst::over_relay(5200.0, 0.0, &fed(40.0), 5000.0, &received);
    assert_eq!((stuck.stage(), stuck.stages_us.values().sum::<f64>()), (Some("relay"), 5200.0));
}

proptest! {
    /// The true delay may lie anywhere within the uncertainty: a verdict of kept or broken is still right.
    #[test]
    fn a_verdict_holds_for_every_delay_within(us in 0.0..3000f64, uncertainty in 0.0..3000f64, at in -1.0..1f64) {
        let truth = us + at * uncertainty;
        let judged = verdict(&window(us, uncertainty)).verdict;
        prop_assert!(judged != Verdict::Kept || truth < AT_RISK * 1000.0);
        prop_assert!(judged != Verdict::Broken || truth > 1000.0);
    }

    #[test]
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

/// A chain of two channels with 1 ms each, and a wait of 0.5 ms.
fn chained() -> Plan {
    let topic = |name: &str| Channel { topic: name.into(), ..promised(1000.0, 100.0).channels.remove(0) };
    let part = |name: &str, wait_us| ChainPart { topic: name.into(), wait_us, ..ChainPart::default() };
    let parts = vec![part("images", 0.0), part("brake", 500.0)];
    let chain = Chain { name: "brake".into(), bound_us: Some(2500.0), deadline_us: None, parts };
    Plan { channels: vec![topic("images"), topic("brake")], chains: vec![chain], ..Plan::default() }
}

#[test]
fn a_chain_is_judged_by_its_parts() {
    let plan = chained();
    let vague = Window { worst: worst(500.0, 100.0), ..window(500.0, 0.0) };
    let lossy = Window { lost: 1, ..window(100.0, 0.0) };
    for (windows, expected, most, says) in [
        ([Some(window(800.0, 0.0)), Some(window(800.0, 0.0))], "kept", Some(2100.0), ""),
        ([Some(vague), Some(window(800.0, 0.0))], "kept", Some(1900.0), ""),
        (
            [Some(window(899.0, 0.0)), Some(window(890.0, 0.0))],
            "at risk",
            Some(2289.0),
            "at most 2.289 ms of 2.5 ms promised, if the latest of all parts met",
        ),
        // Later than the sum, but perhaps no chain was.
        (
            [Some(window(1900.0, 0.0)), Some(window(800.0, 0.0))],
            "at risk",
            Some(3200.0),
            "images is broken (1.9 ms of 1 ms promised",
        ),
        (
            [Some(window(100.0, 0.0)), Some(window(2600.0, 0.0))],
            "broken",
            Some(3200.0),
            "brake alone took 2.6 ms of 2.5 ms promised for the chain",
        ),
        ([Some(lossy), Some(window(100.0, 0.0))], "at risk", Some(700.0), "images is broken (1 of 101 samples lost"),
        ([Some(window(100.0, 0.0)), None], "unknown", None, "a part was not measured"),
    ] {
        let mut verification = Verification::new(&plan);
        for (index, window) in windows.iter().enumerate() {
            window.iter().for_each(|window| drop(verification.measured(index, second(1), window)));
        }
        let found = verification.chain(&plan, &plan.chains[0]);
        assert_eq!((found.judged.verdict.name(), found.at_most_us), (expected, most), "{found:?}");
        assert!(found.judged.because.contains(says) && found.judged.because.is_empty() == says.is_empty(), "{found:?}");
    }
    let promised = Chain { bound_us: None, ..plan.chains[0].clone() };
    assert_eq!(Verification::new(&plan).chain(&plan, &promised).judged.verdict, Verdict::Unknown);
}
