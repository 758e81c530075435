//! A shared thread is held up by no channel, and a channel that cannot be served reports the reason. Threads per
//! channel are tested with the readers themselves (`driver/reader/tests.rs`) and from outside (`priority.rs`).
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::codec::Raw;
use thalweg::{Event, Node, Settings};

/// Longest duration of anything that works.
const LONG: Duration = Duration::from_secs(20);

fn node(realm: &str, name: &str) -> Node {
    let realm = format!("threads-{realm}-{}", std::process::id());
    Node::with_settings(Settings { realm, name: name.into(), ..Settings::default() }).unwrap()
}

fn told(node: &Node, wanted: impl Fn(&Event) -> bool) -> Event {
    let mut events = node.events();
    loop {
        let event = events.wait(LONG).expect("the event did not come");
        if wanted(&event) {
            return event;
        }
    }
}

#[test]
fn a_publisher_that_always_holds_a_loan_delays_no_newcomer() {
    for carrier in ["tcp", "shm", "udp", "local"] {
        let (out, into) = (node("loans", "out"), node("loans", "into"));
        let into = if carrier == "local" { out.clone() } else { into };
        let mut publisher = out.publisher::<Raw>("/held").open().unwrap();
        let (stop, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, seen) = (stop.clone(), connected.clone());
        let holding = std::thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                let loan = publisher.loan(64).unwrap();
                // Next to no time between two loans: occasional attempts would hardly ever find the port free.
                std::thread::sleep(Duration::from_millis(200));
                loan.publish().unwrap();
                seen.store(publisher.connected() as u64, Ordering::SeqCst);
            }
        });
        for _ in 0..3 {
            let subscriber = into.subscriber::<Raw>("/held").reliability(qos::Reliability::BestEffort);
            let mut subscriber = subscriber.carriers([carrier]).open().unwrap();
            assert!(subscriber.wait_connected(1, LONG), "{carrier}: kept out");
            assert!(subscriber.wait(LONG).is_some(), "{carrier}: no sample");
            drop(subscriber);
            let left = into.wait_until(LONG, || connected.load(Ordering::SeqCst) == 0);
            assert!(left, "{carrier}: kept in");
        }
        stop.store(true, Ordering::SeqCst);
        holding.join().unwrap();
    }
}

/// Leave and join wait for the port together: the flow of the group that one leaves does not serve the other.
#[test]
fn a_member_that_joins_after_the_last_one_left_gets_samples() {
    let (out, into) = (node("group", "out"), node("group", "into"));
    let subscriber = |name: &str| {
        let builder = into.subscriber::<Raw>("/held").named(name).reliability(qos::Reliability::BestEffort);
        builder.carriers(["mcast"]).open().unwrap()
    };
    let mut publisher = out.publisher::<Raw>("/held").named("/out").open().unwrap();
    let first = subscriber("/first");
    assert!(publisher.wait_connected(1, LONG));
    let loan = publisher.loan(64).unwrap();
    drop(first);
    told(&out, |event| matches!(event, Event::Unmatched { .. }));
    let mut second = subscriber("/second");
    let asked = Request::Get { port: "/out".into(), other: Some("/second".into()) };
    let until = Instant::now() + LONG;
    let waits = || matches!(out.ask(out.id(), &asked, LONG), Ok(Reply::Settings(ends)) if !ends.is_empty());
    while !waits() {
        assert!(Instant::now() < until, "it does not even ask");
        std::thread::yield_now();
    }
    loan.publish().unwrap();
    // It may receive some samples that were sent before the flow ends.
    let mut heard = 0;
    while heard < 50 {
        assert!(Instant::now() < until, "it hears no more than {heard} samples");
        publisher.publish(&[1]).unwrap();
        heard += u32::from(second.wait(Duration::from_millis(10)).is_some());
    }
}

#[test]
fn a_callback_that_owns_a_publisher_is_dropped_without_holding_up_the_node() {
    let (here, there) = (node("drop", "here"), node("drop", "there"));
    // Its samples are never read.
    let stuck = there.subscriber::<Raw>("/stuck").carriers(["tcp"]).polled().open().unwrap();
    let keep_all = qos::Queue::KeepAll(64);
    let mut owned = here.publisher::<Raw>("/stuck").queue(keep_all).open().unwrap();
    assert!(owned.wait_connected(1, LONG) && stuck.wait_connected(1, LONG));
    let large = vec![7; 1 << 20];
    while owned.publish(&large).unwrap().queued == 0 {}
    owned.drain_on_close(LONG * 10);
    let near = here.subscriber::<Raw>("/near").on_publisher_thread();
    let near = near.callback(move |sample| drop(owned.publish(&sample))).unwrap();
    let publisher = here.publisher::<Raw>("/near").open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    // The last owner drops the callback: mostly the node's own thread, else this one, which may wait.
    std::thread::spawn(move || drop(near));
    assert!(here.wait_until(LONG, || publisher.connected() == 0));
    let answer = here.ask(here.id(), &Request::Channels, LONG).unwrap();
    assert!(matches!(answer, Reply::Channels(channels) if channels.iter().any(|c| c.topic == "/stuck")));
    drop(stuck);
}

#[test]
fn a_channel_for_which_there_is_no_thread_ends_with_that_reason() {
    const NAME: &str = "a_channel_for_which_there_is_no_thread_ends_with_that_reason";
    use std::os::{fd::AsRawFd, unix::process::CommandExt};
    // By its descriptor: another user may not reach the folder that it lies in.
    let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let mut child = std::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    child
        .args(["--exact", "threads::without_threads_child", "--ignored", "--nocapture"])
        .env("THALWEG_TEST_CHILD", "1");
    child.current_dir("/");
    if rustix::process::geteuid().is_root() {
        child.uid(65534).gid(65534); // the limit is no limit for root
    }
    match child.output() {
        Err(error) => println!("skipped: {NAME}: because {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.contains("1 passed"), "{said}");
            said.lines().filter(|line| line.starts_with("skipped")).for_each(|line| println!("{line}"));
        }
    }
}

#[test]
#[ignore = "run by a_channel_for_which_there_is_no_thread_ends_with_that_reason as another user"]
fn without_threads_child() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    if std::env::var_os("THALWEG_TEST_CHILD").is_none() {
        return;
    }
    let (out, into) = (node("none", "out"), node("none", "into"));
    let publisher = out.publisher::<Raw>("/a").open().unwrap();
    let limit = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..limit }).unwrap();
    if let Ok(thread) = std::thread::Builder::new().spawn(|| {}) {
        thread.join().unwrap();
        return println!("skipped: without_threads_child: because the limit of threads limits nothing here");
    }
    let subscriber = into.subscriber::<Raw>("/a").carriers(["tcp"]).callback(|_| {}).unwrap();
    let said = told(&into, |event| matches!(event, Event::Unmatched { .. }));
    assert!(said.to_string().contains("no thread could be started"), "{said}");
    // The channel returns as soon as a thread can be started.
    setrlimit(Resource::Nproc, limit).unwrap();
    told(&into, |event| matches!(event, Event::Matched { .. }));
    assert!(publisher.wait_connected(1, LONG));
    drop(subscriber);
}
