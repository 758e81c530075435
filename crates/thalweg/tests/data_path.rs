//! `docs/data-path.md` against reality: one sample is published, its steps are recorded, and each section's table
//! must name them in this order, on these threads, with these allocations.
#![allow(clippy::unwrap_used)] // all of this is test

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::testing::trace::{self, Step, Taken};
use thalweg::{Around, Node, Published, Publisher, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);
/// Set in the process that records.
const ALONE: &str = "THALWEG_TEST_CHILD";

/// A step of a table: number and verb, the letter of its thread, and the claim that it allocates nothing.
#[derive(Debug, PartialEq)]
struct Said {
    verb: String,
    thread: char,
    allocates: bool,
}

/// The steps that happen in the section with this heading (thread "–": does not happen).
fn page(heading: &str) -> Vec<Said> {
    let page = include_str!("../../../docs/data-path.md");
    let section =
        page.split("\n## ").find(|s| s.starts_with(heading)).unwrap_or_else(|| panic!("no section {heading}"));
    let rows = section.lines().filter(|l| l.starts_with("| ")).skip(1);
    let cells = rows.map(|row| row.split('|').map(str::trim).skip(1).map(str::to_owned).collect::<Vec<_>>());
    let mut steps = Vec::new();
    for cell in cells.filter(|c| c.len() > 3 && c[0].starts_with(|d: char| d.is_ascii_digit())) {
        let Some(verb) = cell[0].split(' ').nth(1).map(str::to_owned) else { continue };
        let Some(thread) = cell[1].chars().next() else { continue };
        if thread != '–' {
            steps.push(Said { verb, thread, allocates: !cell[2].starts_with('–') });
        }
    }
    steps
}

/// A publisher and a subscriber with a callback, in two nodes of this process.
struct Way {
    publisher: Publisher<Raw>,
    told: mpsc::Receiver<u64>,
    _subscriber: Subscriber<Raw>,
}

impl Way {
    fn open(carrier: &str, on_publisher: bool, around: Around) -> Self {
        let realm = format!("page-{carrier}-{}", std::process::id());
        let settings = |name: &str| Settings { name: name.into(), realm: realm.clone(), ..Settings::default() };
        let a = Node::with_settings(Settings { around, ..settings("a") }).unwrap();
        let b = Node::with_settings(settings("b")).unwrap();
        let (tell, told) = mpsc::sync_channel(8);
        let builder = b.subscriber::<Raw>("/page").carriers([carrier]);
        let builder = if carrier == "udp" { builder.reliability(qos::Reliability::BestEffort) } else { builder };
        let builder = if on_publisher { builder.on_publisher_thread() } else { builder };
        let _subscriber = builder.callback(move |s| tell.send(s.info().seq).unwrap()).unwrap();
        let publisher = a.publisher::<Raw>("/page").open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        Self { publisher, told, _subscriber }
    }

    fn publish(&mut self) -> Published {
        self.publisher.publish(&[7; 64]).unwrap()
    }

    fn arrived(&self) {
        self.told.recv_timeout(LONG).unwrap();
    }
}

/// Publishes samples until everything is warm, then records the steps of one more.
fn record(carrier: &str, on_publisher: bool) -> Vec<Taken> {
    let mut way = Way::open(carrier, on_publisher, Around::default());
    for _ in 0..50 {
        way.publish();
        way.arrived();
    }
    let waits = linux::lock::waits();
    trace::start(64, linux::allocations::count);
    way.publish();
    way.arrived();
    let steps = trace::stop();
    assert_eq!(linux::lock::waits(), waits, "no step waits for a lock");
    steps
}

/// Records as [`record`] does, for a sample that waits behind another one, over a carrier that takes one in 20 ms.
fn record_queued(carrier: &str) -> Vec<Taken> {
    let fault = Some("rate=38.4kbit/s".parse().unwrap());
    let mut way = Way::open(carrier, false, Around { fault, ..Around::default() });
    // More samples wait here than later: the pool has its size from now on.
    let _: Vec<Published> = (0..6).map(|_| way.publish()).collect();
    (0..6).for_each(|_| way.arrived());
    // The first sample finds no room, so the sender thread has the send right and the second one waits. A third would
    // leave with it.
    let mut two = |steps: usize| {
        way.publish();
        trace::start(steps, linux::allocations::count);
        let waits = way.publish().queued == 1;
        (0..2).for_each(|_| way.arrived());
        (waits, trace::stop())
    };
    // A pause of this thread lets the carrier become free again; then another attempt is made.
    let tries = (0..100).map(|_| two(4096));
    let queued = |steps: &[Taken]| steps.iter().any(|s| s.step == Step::Push);
    let steps = tries.filter(|(waits, steps)| *waits && queued(steps)).map(|(_, steps)| steps).next();
    let steps = steps.expect("a sample that has to wait");
    // Steps of the first sample on other threads come in between; the steps of the second are the last ones. The sender
    // thread tries again and again: all its attempts are alike.
    let last = |step: Step| steps.iter().rposition(|s| s.step == step).unwrap();
    let own = steps.iter().filter(|s| letter(&s.thread) == 'P');
    let sending = &steps[last(Step::Next)..];
    let sending = sending.iter().filter(|s| letter(&s.thread) == 'S').take(3);
    let receiving = steps[last(Step::Receive)..].iter().filter(|s| letter(&s.thread) == 'R');
    own.chain(sending).chain(receiving).cloned().collect()
}

/// The letter of a thread, as the page explains them.
fn letter(thread: &str) -> char {
    match thread {
        "reader" | "readers" => 'R',
        "local" => 'L',
        name if name.starts_with("send-") => 'S',
        _ => 'P',
    }
}

fn compare(heading: &str, carrier: &str, happened: &[Taken]) {
    let said: Vec<Said> = page(heading).into_iter().filter(|s| s.verb != "take").collect();
    let names = |t: &Taken| (format!("{:?}", t.step).to_lowercase(), letter(&t.thread));
    let got: Vec<_> = happened.iter().map(names).collect();
    let wanted: Vec<_> = said.iter().map(|s| (s.verb.clone(), s.thread)).collect();
    assert_eq!(got, wanted, "the steps of {carrier} are not those of docs/data-path.md, section {heading:?}");
    for (index, step) in happened.iter().enumerate() {
        // The recorder itself allocates once per step, for the thread's name.
        let next = happened[index + 1..].iter().find(|n| n.thread == step.thread);
        if let Some(next) = next.filter(|_| !said[index].allocates) {
            assert_eq!(
                next.probe - step.probe,
                1,
                "{:?} over {carrier} allocates, and the page says it does not",
                step.step
            );
        }
    }
}

/// The source files below a folder, or the file itself, by their paths from the library's sources.
fn sources(at: &Path, found: &mut Vec<(String, String)>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if at.is_dir() {
        std::fs::read_dir(at).unwrap().for_each(|entry| sources(&entry.unwrap().path(), found));
    } else if at.extension().is_some_and(|e| e == "rs") {
        found.push((at.strip_prefix(&root).unwrap().display().to_string(), std::fs::read_to_string(at).unwrap()));
    }
}

#[test]
fn the_files_of_the_page_exist_and_no_step_happens_elsewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let page = include_str!("../../../docs/data-path.md");
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|text| text.contains('/')).collect();
    let here = |path: &&str| path.ends_with(".rs") && !path.starts_with("crates/") && !path.starts_with("tests/");
    for path in named.iter().copied().filter(|path| here(path) && !path.contains('*')) {
        assert!(root.join(path).is_file(), "{path} of docs/data-path.md is gone");
    }
    let mut all = Vec::new();
    sources(&root, &mut all);
    let steps = all.iter().filter(|(_, text)| text.contains("trace::step("));
    let elsewhere = steps
        .filter(|(path, _)| !named.iter().any(|name| path == name || (name.ends_with('/') && path.starts_with(name))));
    let elsewhere: Vec<&String> = elsewhere.map(|(path, _)| path).collect();
    assert!(elsewhere.is_empty(), "steps happen in files that docs/data-path.md does not name: {elsewhere:?}");
}

/// In a process of its own: the recorder and the count of waits are global to the process.
#[test]
fn the_page_matches_the_recorded_steps() {
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "data_path::the_page", "--ignored", "--nocapture"]).env(ALONE, "1");
    let output = alone.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by the_page_matches_the_recorded_steps, in a process of its own"]
fn the_page() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    for carrier in ["tcp", "udp"] {
        compare("`tcp` and `udp`, sent inline", carrier, &record(carrier, false));
        compare("`tcp` and `udp`, queued", carrier, &record_queued(carrier));
    }
    compare("`shm`", "shm", &record("shm", false));
    compare("`local`", "local", &record("local", false));
    compare("`local` with `on_publisher_thread()`", "local", &record("local", true));
}
