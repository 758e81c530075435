//! Runs of a robot in virtual time, by seed: equal ones pass, and what is slower is named.

use super::bootstrap::Dice;
use super::*;
use crate::read::Recording;
use crate::read::tests::{Folder, Sample, write};
use qos::plan::{Chain, ChainPart, Channel, Plan};

const MS: u64 = 1_000_000;
/// Samples of /pose, 100 a second.
const POSES: u64 = 1500;

/// What is wrong in a run.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    /// Later receipt of /camera, ns.
    camera_ns: u64,
    /// A longer callback of /pose, which publishes /path, ns.
    callback_ns: u64,
    /// Every so many samples of /pose are published 8 ms late.
    stall_every: u64,
    /// Lost samples of /pose, in two losses, by the word for the place.
    lost: Option<&'static str>,
}

/// A run: /pose at 100 Hz, /path 1 ms after each, and /camera at 30 Hz; each with latencies that scatter, and 2 % long ones.
fn run(folder: &Folder, seed: u64, fault: Fault) -> std::path::PathBuf {
    let mut dice = Dice::new(seed);
    let mut latency = |usual_us: u64| {
        let long = if dice.next().is_multiple_of(50) { 1500 } else { 0 };
        (usual_us + dice.next() % usual_us + long) * 1000
    };
    let begin = 1_000_000 * MS + seed * 7 * MS;
    let mut samples = Vec::new();
    let mut add = |topic: &str, number: u64, at: u64, took: u64| {
        samples.push(Sample::new(topic, number as u32, at, at + took));
    };
    for number in 0..POSES {
        let stalled = fault.stall_every > 0 && number.is_multiple_of(fault.stall_every);
        let at = begin + number * 10 * MS + latency(50) + if stalled { 8 * MS } else { 0 };
        add("/pose", number, at, latency(100));
        add("/path", number, at + MS + latency(200) + fault.callback_ns, latency(100));
        if number.is_multiple_of(3) {
            add("/camera", number / 3, at + 3 * MS, latency(800) + fault.camera_ns);
        }
    }
    let losses = fault.lost.into_iter().flat_map(|place| {
        (1..=2u64).map(move |number| {
            let json = format!(
                r#"{{"topic":"/pose","publisher":"/p","first_seq":1,"last_seq":9,"count":9,"where":"{place}"}}"#
            );
            let at = begin + number * 1000 * MS;
            Sample { data: json.into_bytes(), ..Sample::new(crate::read::LOSSES, number as u32, at, at) }
        })
    });
    samples.extend(losses);
    samples.sort_by_key(|sample| sample.log_ns);
    let path = folder.file(&format!("{seed}-{}.mcap", samples.len() as u64 + fault.camera_ns + fault.callback_ns));
    write(&path, None, &samples, None);
    path
}

/// The chain by which a sample of /pose causes one of /path.
fn expected() -> Expected {
    let mut expected = Expected::default();
    expected.add_chain(&["/pose".to_owned(), "/path".to_owned()]);
    expected
}

fn figures(path: &std::path::Path, expected: &Expected) -> Run {
    Run::read(&Recording::open(path).unwrap(), expected).unwrap()
}

fn compared(seed: u64, fault: Fault, tolerance: Tolerance) -> Report {
    let (folder, expected) = (Folder::new(), expected());
    let before = figures(&run(&folder, 1000 + seed, Fault::default()), &expected);
    let now = figures(&run(&folder, seed, fault), &expected);
    compare(&[before], &now, tolerance)
}

fn said(report: &Report) -> Vec<(String, Stage, String)> {
    report.findings.iter().map(|one| (one.topic.clone(), one.stage, one.measure.to_string())).collect()
}

#[test]
fn equal_builds_pass_20_of_20() {
    for seed in 0..20 {
        let report = compared(seed, Fault::default(), Tolerance::default());
        assert!(report.pass, "seed {seed}: {:?}", report.findings);
        assert_eq!(report.topics.len(), 3);
    }
}

#[test]
fn two_milliseconds_on_one_topic_are_named_20_of_20() {
    for seed in 0..20 {
        let report = compared(seed, Fault { camera_ns: 2 * MS, ..Fault::default() }, Tolerance::default());
        let found = said(&report);
        assert!(!found.is_empty() && !report.pass, "seed {seed}");
        assert!(found.iter().all(|(topic, stage, _)| topic == "/camera" && *stage == Stage::Network), "{found:?}");
        assert_eq!(report.note, None);
    }
}

#[test]
fn two_milliseconds_in_a_callback_are_named_20_of_20() {
    for seed in 0..20 {
        let report = compared(seed, Fault { callback_ns: 2 * MS, ..Fault::default() }, Tolerance::default());
        let found = said(&report);
        assert!(!found.is_empty(), "seed {seed}");
        let path = |one: &(String, Stage, String)| {
            (one.0.as_str(), one.1, one.2.as_str()) == ("/path", Stage::Callback, "after /pose")
        };
        assert!(found.iter().all(path), "seed {seed}: {found:?}");
    }
}

#[test]
fn a_publisher_that_stalls_is_named_by_its_intervals() {
    let found = said(&compared(3, Fault { stall_every: 20, ..Fault::default() }, Tolerance::default()));
    assert!(found.contains(&("/pose".to_owned(), Stage::Publisher, "interval".to_owned())), "{found:?}");
    assert!(found.iter().all(|(_, stage, _)| *stage == Stage::Publisher), "{found:?}");
}

#[test]
fn losses_are_named_by_their_place() {
    for (place, stage) in [("publisher", Stage::Publisher), ("disk", Stage::Disk), ("elsewhere", Stage::Unknown)] {
        let report = compared(4, Fault { lost: Some(place), ..Fault::default() }, Tolerance::default());
        assert_eq!(said(&report), [("/pose".to_owned(), stage, "lost".to_owned())]);
        let row = report.topics.iter().find(|row| row.topic == "/pose").unwrap();
        assert_eq!((row.lost, row.verdict), ([0, 18], Verdict::Broken));
    }
}

#[test]
fn tolerance_and_floor_are_respected() {
    let fault = Fault { camera_ns: 300_000, ..Fault::default() };
    let with = |share: f64, floor_us: u64| Tolerance { share, floor: Duration::from_micros(floor_us) };
    assert!(!compared(5, fault, with(0.1, 100)).pass);
    assert!(compared(5, fault, with(0.5, 100)).pass, "300 us on 1.2 ms is within 50 %");
    assert!(compared(5, fault, with(0.1, 400)).pass, "below the floor");
}

#[test]
fn a_topic_that_is_gone_fails_and_a_new_one_does_not() {
    let (folder, expected) = (Folder::new(), Expected::default());
    let both = figures(&run(&folder, 1, Fault::default()), &expected);
    let mut one = both.clone();
    one.flows.remove("/camera");
    let gone = compare(std::slice::from_ref(&both), &one, Tolerance::default());
    assert_eq!(said(&gone), [("/camera".to_owned(), Stage::Publisher, "samples".to_owned())]);
    let new = compare(&[one], &both, Tolerance::default());
    assert!(new.pass);
    assert!(new.topics.iter().any(|row| row.topic == "/camera" && row.verdict == Verdict::New));
    let nothing = compare(&[Run::default()], &Run::default(), Tolerance::default());
    assert!(!nothing.pass, "nothing was compared");
}

#[test]
fn when_every_topic_is_later_the_report_says_so() {
    let (folder, expected) = (Folder::new(), Expected::default());
    let samples = |took: u64| -> Vec<Sample> {
        let of =
            |number: u64| ["/a", "/b"].map(|topic| Sample::new(topic, number as u32, number * MS, number * MS + took));
        (1..500).flat_map(of).collect()
    };
    let read = |name: &str, took: u64| {
        write(&folder.file(name), None, &samples(took), None);
        figures(&folder.file(name), &expected)
    };
    let report = compare(&[read("before", 100_000)], &read("now", 900_000), Tolerance::default());
    assert!(report.note.unwrap().contains("every topic"), "{:?}", report.findings);
}

fn plan() -> Plan {
    let channel = |topic: &str, bound: f64, rate: f64| Channel {
        topic: topic.into(),
        publisher: "robot".into(),
        subscriber: format!("/pilot{topic}"),
        bound_us: Some(bound),
        rate_hz: Some(rate),
        scale: 1,
        ..Channel::default()
    };
    let part = |topic: &str| ChainPart { topic: topic.into(), ..ChainPart::default() };
    let channels = vec![channel("/pose", 2000.0, 100.0), channel("/camera", 4000.0, 34.0), channel("/map", 1.0, 1.0)];
    let chains = vec![Chain { parts: vec![part("/pose"), part("/path")], ..Chain::default() }];
    Plan { channels, chains, ..Plan::default() }
}

#[test]
fn a_run_beside_a_plan_is_judged_by_bounds_rates_and_losses() {
    let (folder, expected) = (Folder::new(), Expected::of(&plan()));
    let judged =
        |fault: Fault| against_plan(&expected, &figures(&run(&folder, 6, fault), &expected), Tolerance::default());
    let kept = judged(Fault::default());
    assert!(kept.pass, "{:?}", kept.findings);
    let verdict = |report: &Report, topic: &str| report.topics.iter().find(|row| row.topic == topic).unwrap().verdict;
    assert_eq!(
        (verdict(&kept, "/pose"), verdict(&kept, "/map"), verdict(&kept, "/path")),
        (Verdict::Kept, Verdict::Unknown, Verdict::New)
    );
    let late = judged(Fault { camera_ns: 4 * MS, ..Fault::default() });
    assert_eq!(said(&late), [("/camera".to_owned(), Stage::Network, "late".to_owned())]);
    let lost = judged(Fault { lost: Some("network"), ..Fault::default() });
    assert_eq!(said(&lost), [("/pose".to_owned(), Stage::Network, "lost".to_owned())]);
    assert!(judged(Fault { lost: Some("disk"), ..Fault::default() }).pass, "the recorder's own loss");
    let mut slow = plan();
    slow.channels[0].rate_hz = Some(50.0);
    let expected = Expected::of(&slow);
    let fast = against_plan(&expected, &figures(&run(&folder, 6, Fault::default()), &expected), Tolerance::default());
    assert_eq!(said(&fast), [("/pose".to_owned(), Stage::Publisher, "rate".to_owned())]);
}

/// Samples that a history kept were published long before: nobody was late.
#[test]
fn samples_from_before_the_recording_have_no_latency() {
    let (folder, expected) = (Folder::new(), Expected::of(&plan()));
    let mut samples = vec![Sample::new("/pose", 1, MS, 1000 * MS)];
    samples.extend(
        (2..40).map(|number| {
            Sample::new("/pose", number, (1000 + u64::from(number)) * MS, (1001 + u64::from(number)) * MS)
        }),
    );
    write(&folder.file("a"), None, &samples, None);
    let run = figures(&folder.file("a"), &expected);
    let flow = &run.flows["/pose"];
    assert_eq!((flow.samples, flow.latency.count(), flow.late, flow.lost()), (39, 38, 0, 0));
}

/// A file without a topic for losses: missing numbers are losses at an unknown place.
#[test]
fn gaps_in_the_numbers_are_losses() {
    let (folder, expected) = (Folder::new(), Expected::default());
    let at = |number: u32| u64::from(number) * MS;
    let numbers = [1, 2, 5, 6, 6, 3, 7];
    let samples: Vec<_> = numbers
        .iter()
        .enumerate()
        .map(|(n, number)| Sample::new("/a", *number, at(n as u32 + 1), at(n as u32 + 1)))
        .collect();
    write(&folder.file("a"), None, &samples, None);
    let run = figures(&folder.file("a"), &expected);
    assert_eq!(run.flows["/a"].lost, [(Stage::Unknown, 2 + 3)].into());
}
