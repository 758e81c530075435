//! The steady state for as long as is asked: no allocation, and at most one system call per sample and channel, over every carrier.
//! `THALWEG_SAMPLES` is the number of samples, 2,000 without it; `.ci/nightly` takes ten million. Over carriers between processes the calls of the
//! first rounds are counted: strace is slow.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use linux::allocations;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings};
use world::agent::{Agent, number};
use world::strace::{Calls, Strace, sum};
use world::{World, figure, skipped};

/// One publisher has a channel over each.
const CARRIERS: [&str; 4] = ["shm", "tcp", "udp", "mcast"];
/// Samples per second where calls are counted, and where they are not. Strace stops a thread twice at each of its calls, and the publishing one makes
/// five for a sample: at 2000 a second it never slept.
const TRACED_RATE: u64 = 500;
const RATE: u64 = 5000;
/// Most samples of a round, whose answer comes within the patience of an agent.
const TRACED_ROUND: u64 = 12_500;
const ROUND: u64 = 50_000;
/// Calls of the part itself in a round: its answer, and the memory of its list of durations.
const OWN: u64 = 20;

fn samples() -> u64 {
    std::env::var("THALWEG_SAMPLES").map_or(2000, |text| text.parse().unwrap())
}

/// What a round of samples cost.
struct Round {
    published: Value,
    reports: Vec<Value>,
}

/// Publishes samples.
fn publish(publisher: &mut Agent, subscribers: &mut [Agent], (count, rate): (u64, u64)) -> Round {
    for subscriber in subscribers.iter_mut() {
        subscriber.ask("reset");
    }
    let published = publisher.ask(&format!("publish count={count} hz={rate}"));
    reached(subscribers, &published);
    let reports = subscribers.iter_mut().map(|subscriber| subscriber.ask("report")).collect();
    Round { published, reports }
}

/// The same, and counts the calls of the publishing thread and of one receiving thread.
fn trace(
    publisher: &mut Agent,
    subscribers: &mut [Agent],
    count: u64,
    receiver: i64,
) -> Result<(Round, Calls, Calls), String> {
    let sender = number(&publisher.ask("status"), "thread") as i64;
    let (sending, receiving) = (Strace::attach(sender)?, Strace::attach(receiver)?);
    let round = publish(publisher, subscribers, (count, TRACED_RATE));
    Ok((round, sending.finish(), receiving.finish()))
}

/// Waits for the last sample; one of best effort may be lost.
fn reached(subscribers: &mut [Agent], published: &Value) {
    for subscriber in subscribers {
        subscriber.ask(&format!("until last={} ms=3000", number(published, "last")));
    }
}

/// Lets happen what happens once and allocates: queues fill, the thread that sends what waits starts, samples leave and arrive together.
fn warm_up(publisher: &mut Agent, subscribers: &mut [Agent]) {
    publisher.ask("publish count=500");
    subscribers.iter().for_each(Agent::stop);
    let full = world::eventually(world::LONG, || {
        publisher.ask("publish count=20000 hz=1000000000");
        let status = publisher.ask("status");
        let mut channels = status["channels"].as_array().unwrap().iter();
        channels.any(|channel| channel["carrier"] == "tcp" && channel["waiting"].as_u64() > Some(0)).then_some(())
    });
    subscribers.iter().for_each(Agent::go_on);
    assert!(full.is_some(), "a stopped subscriber's connection takes everything: {}", publisher.ask("status"));
    for hz in [1_000_000_000, 1000] {
        let published = publisher.ask(&format!("publish count=2000 hz={hz}"));
        reached(subscribers, &published);
    }
}

#[test]
fn samples_over_all_carriers_allocate_nothing_and_make_one_call_each() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let mut subscribers =
        CARRIERS.map(|carrier| Agent::start(&world, &format!("subscriber topic=/a carriers={carrier}")));
    publisher.connected(CARRIERS.len());
    warm_up(&mut publisher, &mut subscribers);
    let threads: Vec<i64> =
        subscribers.iter_mut().map(|subscriber| number(&subscriber.ask("report"), "thread") as i64).collect();
    let count = (samples() / CARRIERS.len() as u64).max(1);
    let (mut all, mut sends, mut total) = (0, 0, Total::default());
    for (traced, thread) in threads.into_iter().enumerate() {
        let count = count.min(TRACED_ROUND);
        let (round, sending, receiving) = match trace(&mut publisher, &mut subscribers, count, thread) {
            Ok(traced) => traced,
            Err(why) => return skipped(why),
        };
        sends += one_call_each(&round.published, &sending, count);
        one_call_for_each_that_came(&round, &receiving, traced);
        total.add(&round);
        all += count;
    }
    let counted = all;
    while all < samples() {
        let count = count.min(ROUND);
        total.add(&publish(&mut publisher, &mut subscribers, (count, RATE)));
        all += count;
    }
    let Total { slept, waits, came } = total;
    let text = format!(
        "{all} samples over {CARRIERS:?}: {sends} calls to send {counted}, {waits} waits for a lock, slept {slept} times, received {came:?}"
    );
    figure("long_run", &text);
    // A traced thread of a loaded machine may be late, and keep-last may drop, but not always.
    assert!(slept >= all / 10 && came.iter().all(|came| *came >= all / 10), "this machine gave them no time: {text}");
}

/// Sums of all rounds, none of which allocated.
#[derive(Default)]
struct Total {
    slept: u64,
    waits: u64,
    came: [u64; CARRIERS.len()],
}

impl Total {
    fn add(&mut self, round: &Round) {
        allocates_nothing(round);
        self.slept += number(&round.published, "slept") as u64;
        self.waits += number(&round.published, "waits") as u64;
        for (came, report) in self.came.iter_mut().zip(&round.reports) {
            *came += number(report, "received") as u64;
        }
    }
}

fn allocates_nothing(round: &Round) {
    assert_eq!(number(&round.published, "allocations"), 0.0, "{}", round.published);
    for (carrier, report) in CARRIERS.iter().zip(&round.reports) {
        assert_eq!(number(report, "allocations"), 0.0, "{carrier}: {report}");
    }
}

/// At most one call per sample and channel on the publishing thread; returns their number.
fn one_call_each(published: &Value, sending: &Calls, count: u64) -> u64 {
    let [queued, slept] = ["queued", "slept"].map(|key| number(published, key) as u64);
    let sends = sum(sending, &["sendto", "sendmsg", "write", "futex"]).0;
    // A sample that has to wait wakes the thread that sends it, and may meet that one's lock. Samples published without a sleep between them
    // may leave together, and over shared memory nobody is woken who is awake.
    let most = CARRIERS.len() as u64 * count + 2 * queued + OWN;
    let least = ((CARRIERS.len() as u64 - 1) * slept * 9 / 10).saturating_sub(queued);
    assert!((least..=most).contains(&sends), "{sends} calls to send, not {least} to {most}: {sending:?} {published}");
    let quiet = ["sendto", "sendmsg", "write", "futex", "clock_nanosleep", "read", "restart_syscall"];
    let others = sending.iter().filter(|(name, _)| !quiet.contains(&name.as_str())).map(|(_, n)| n.0).sum::<u64>();
    assert!(others <= OWN, "other calls on the publishing thread: {sending:?}");
    sends
}

/// At most one call per sample on a receiving thread, besides its ticks.
fn one_call_for_each_that_came(Round { published, reports }: &Round, receiving: &Calls, traced: usize) {
    let came = number(&reports[traced], "received") as u64;
    // 10 a second, and those of the waits for samples that do not come.
    let ticks = 2 * number(published, "took_ms") as u64 / 100 + 300;
    let all: u64 = receiving.values().map(|n| n.0).sum();
    // Several samples come in one call when the thread was late.
    let counts = came / 10..=came + ticks;
    assert!(counts.contains(&all), "{}: {all} calls for {came} samples: {receiving:?}", CARRIERS[traced]);
}

/// The callback runs on the publisher's thread, which then makes no call, or on the port's, which is woken by one.
#[test]
fn samples_within_one_process_allocate_nothing_and_make_one_call_at_most() {
    let _alone = world::alone();
    let realm = format!("long-run-{}", std::process::id());
    let node = Node::with_settings(Settings { realm, name: "one".into(), ..Settings::default() }).unwrap();
    for (on_publisher, calls_each) in [(true, 0), (false, 1)] {
        let (seen, receiver) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (note, of_thread) = (seen.clone(), receiver.clone());
        let builder = node.subscriber::<Raw>("/a");
        let builder = if on_publisher { builder.on_publisher_thread() } else { builder };
        let subscriber = builder.callback(move |_| {
            of_thread.store(allocations::count(), Ordering::Relaxed);
            note.fetch_add(1, Ordering::Release);
        });
        let subscriber = subscriber.unwrap();
        let mut publisher = node.publisher::<Raw>("/a").open().unwrap();
        assert!(publisher.wait_connected(1, world::LONG));
        publish_in_step(&mut publisher, &seen, 500);
        let before = receiver.load(Ordering::Relaxed);
        let (allocated, calls) = match traced_in_step(&mut publisher, &seen, samples()) {
            Ok(counted) => counted,
            Err(why) => return skipped(why),
        };
        figure("long_run", format!("{} samples, on the publisher's thread {on_publisher}: {calls:?}", samples()));
        // On the publisher's thread the callback's count is that of a new thread.
        let received = if on_publisher { 0 } else { receiver.load(Ordering::Relaxed) - before };
        assert_eq!((allocated, received), (0, 0), "on the publisher's thread {on_publisher}");
        let all: u64 = calls.values().map(|n| n.0).sum();
        assert!((1..=calls_each * samples() + OWN).contains(&all), "{all} calls: {calls:?}");
        drop(subscriber);
    }
}

/// Publishes samples, each when the one before was received. It spins meanwhile, without a call that would be counted.
fn publish_in_step(publisher: &mut Publisher<Raw>, seen: &AtomicU64, count: u64) {
    const SPINS: u64 = 10_000_000_000;
    let (message, start) = ([7; 64], seen.load(Ordering::Acquire));
    for number in 1..=count {
        publisher.publish(&message).unwrap();
        let came = (0..SPINS).any(|_| {
            std::hint::spin_loop();
            seen.load(Ordering::Acquire) >= start + number
        });
        assert!(came, "sample {number} did not come");
    }
}

/// As [`publish_in_step`], on a thread of its own; returns its allocations and its calls.
fn traced_in_step(publisher: &mut Publisher<Raw>, seen: &AtomicU64, count: u64) -> Result<(u64, Calls), String> {
    std::thread::scope(move |scope| {
        // They end with this closure, so that the thread ends, too, if it has to wait no longer.
        let (order, orders) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            tell.send(u64::from(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())).unwrap();
            if orders.recv().is_err() {
                return;
            }
            let before = allocations::count();
            publish_in_step(publisher, seen, count);
            tell.send(allocations::count() - before).unwrap();
            let _ = orders.recv(); // its end is not counted
        });
        let counting = Strace::attach(told.recv().unwrap() as i64)?;
        order.send(()).unwrap();
        let allocated = told.recv().unwrap();
        Ok((allocated, counting.finish()))
    })
}
