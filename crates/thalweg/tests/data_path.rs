//! `docs/data-path.md` against what happens: one sample is published, the steps it takes are recorded, and each section's
//! table must name them in this order, on these threads, with these allocations.
#![allow(clippy::unwrap_used)] // all of this is test

use std::sync::mpsc;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::trace::{self, Taken};
use thalweg::{Node, Settings};

#[global_allocator]
static COUNTING: linux::allocations::Counting = linux::allocations::Counting;

/// A step of a table: number and verb, the letter of its thread, and whether it says that nothing is allocated.
#[derive(Debug, PartialEq)]
struct Said {
    verb: String,
    thread: char,
    allocates: bool,
}

/// The steps of the section with this heading that do happen (thread "–": does not).
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

/// Publishes samples over `carrier` to a callback until all is warm, then records the steps of one more.
fn record(carrier: &str) -> Vec<Taken> {
    let realm = format!("page-{carrier}-{}", std::process::id());
    let open = |name: &str| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), ..Settings::default() }).unwrap()
    };
    let (a, b) = (open("a"), open("b"));
    let (tell, told) = mpsc::sync_channel(8);
    let _subscriber =
        b.subscriber::<Raw>("/page").carriers([carrier]).callback(move |s| tell.send(s.info().seq).unwrap()).unwrap();
    let mut publisher = a.publisher::<Raw>("/page").open().unwrap();
    assert!(publisher.wait_connected(1, Duration::from_secs(20)));
    for _ in 0..50 {
        publisher.publish(&[7; 64]).unwrap();
        told.recv_timeout(Duration::from_secs(20)).unwrap();
    }
    let waits = linux::lock::waits();
    trace::start(64, linux::allocations::count);
    publisher.publish(&[7; 64]).unwrap();
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    let steps = trace::stop();
    assert_eq!(linux::lock::waits(), waits, "no step waits for a lock");
    steps
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

fn compare(heading: &str, carrier: &str) {
    let happened = record(carrier);
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

/// One test: the recorder is one per process.
#[test]
fn the_page_says_what_happens() {
    compare("`tcp` and `udp`, sent inline", "tcp");
    compare("`shm`", "shm");
}
