//! Channels that change threads while samples arrive, and threads with the settings that the kernel reports.

use super::priority::{ServedBy, ThreadError, ThreadReport};
use super::{OWN_THREADS, READER_THREADS};
use crate::carrier::Name;
use crate::codec::Raw;
use crate::event::{Event, EventReader};
use crate::node::{Node, Publisher, Subscriber, SubscriberBuilder};
use crate::port::Sample;
use crate::settings::Settings;
use linux::sched::{self, Reason};
use qos::priority::{Policy, PrioritySettings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Limit of waits, which a working node never reaches.
const LONG: Duration = Duration::from_secs(20);

/// Two nodes of one realm in this process.
struct Pair {
    out: Node,
    into: Node,
}

impl Pair {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let realm = format!("readers-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        let node = |name: &str| {
            Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
        };
        Self { out: node("out"), into: node("into") }
    }

    /// Counts this number of threads as taken from now on: with [`OWN_THREADS`] the next channel shares one.
    fn taken(self, permits: usize) -> Self {
        self.into.state().readers.0.permits.store(permits, SeqCst);
        self
    }

    fn channel(
        &self,
        carrier: &str,
        callback: impl FnMut(Sample<'_, Raw>) + Send + 'static,
    ) -> (Publisher<Raw>, Subscriber<Raw>) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let topic = format!("/topic{}", COUNT.fetch_add(1, SeqCst));
        let best_effort = qos::Reliability::BestEffort;
        let subscriber = self.into.subscriber::<Raw>(&topic).reliability(best_effort).carriers([carrier]);
        let subscriber = subscriber.callback(callback).unwrap();
        let publisher = self.out.publisher::<Raw>(&topic).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
        (publisher, subscriber)
    }

    fn id(&self, subscriber: &Subscriber<Raw>) -> u64 {
        let subscriber_ports = self.into.state().subscriber_ports();
        let subscriber_port = subscriber_ports
            .iter()
            .find(|(_, subscriber_port)| subscriber_port.info().name == subscriber.name())
            .unwrap()
            .1
            .clone();
        let channels = subscriber_port.channels().lock().unwrap();
        channels.last().unwrap().id
    }

    fn set(&self, id: u64, to: &PrioritySettings) -> Result<ThreadReport, ThreadError> {
        self.into.state().readers.set_priority(id, to)
    }

    fn report(&self, id: u64) -> ThreadReport {
        self.into.state().readers.report(id).unwrap()
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn event(events: &mut EventReader, wanted: impl Fn(&Event) -> bool) -> Event {
    loop {
        let event = events.wait(LONG).expect("the event did not come");
        if wanted(&event) {
            return event;
        }
    }
}

/// Settings for a thread: a priority if this process may give one, else a processor.
fn settings(test: &str) -> PrioritySettings {
    let sched = Some(Policy::Fifo(30).into());
    let probe = linux::thread::Settings { scheduling: sched, ..linux::thread::Settings::named("probe") };
    match linux::thread::start(probe, || {}) {
        Ok(_) => PrioritySettings { sched, ..PrioritySettings::default() },
        Err(refused) => {
            println!("skipped: fifo:30 in {test}: because {refused}");
            PrioritySettings { affinity: Some(vec![0]), ..PrioritySettings::default() }
        }
    }
}

#[derive(Default)]
struct Seen {
    last: AtomicU64,
    count: AtomicU64,
    out_of_order: AtomicU64,
    thread: AtomicI32,
}

impl Seen {
    fn note(&self, sample: &Sample<'_, Raw>) {
        let seq = sample.info().seq;
        if self.last.swap(seq, SeqCst) >= seq {
            self.out_of_order.fetch_add(1, SeqCst);
        }
        self.count.fetch_add(1, SeqCst);
        self.thread.store(sched::current(), SeqCst);
    }
}

/// Publishes at 1 kHz on a thread until `finish` is called, which returns the number of samples and the publisher.
fn steadily(mut publisher: Publisher<Raw>, size: usize) -> impl FnOnce() -> (u64, Publisher<Raw>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        let (start, message) = (Instant::now(), vec![1; size]);
        let mut count = 0;
        while !stopped.load(SeqCst) {
            publisher.publish(&message).unwrap();
            count += 1;
            let due = start + Duration::from_millis(count);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        (count, publisher)
    });
    move || {
        stop.store(true, SeqCst);
        thread.join().unwrap()
    }
}

/// All find their publishers at once, as the ports of a bridge do. The publisher makes a ring for each handshake, 120 KiB of memory in a
/// bridge, so that those under way count, too.
#[test]
fn of_channels_that_open_at_once_only_the_first_have_rings_and_threads() {
    let rings = rings_of_many(|builder| builder.callback(|_| {}).unwrap());
    assert!((1..=OWN_THREADS).contains(&rings), "{rings}");
}

#[test]
fn channels_of_polled_ports_need_no_threads_for_their_rings() {
    let rings = rings_of_many(|builder| builder.polled().open().unwrap());
    assert!(rings > OWN_THREADS, "{rings}");
}

/// The number of channels with rings, of three times as many as have threads of their own, opened at once.
fn rings_of_many(open: impl Fn(SubscriberBuilder<Raw>) -> Subscriber<Raw>) -> usize {
    let pair = Pair::new();
    let topic = |number: usize| format!("/many{number}");
    let publisher = |number| pair.out.publisher::<Raw>(&topic(number)).open().unwrap();
    let publishers: Vec<_> = (0..3 * OWN_THREADS).map(publisher).collect();
    let are_known = || pair.into.others().iter().any(|out| out.ports.len() == publishers.len());
    assert!(pair.into.wait_until(LONG, are_known));
    let subscriber = |number| open(pair.into.subscriber::<Raw>(&topic(number)).carriers(["shm", "tcp"]));
    let subscribers: Vec<_> = (0..publishers.len()).map(subscriber).collect();
    assert!(subscribers.iter().all(|subscriber| subscriber.wait_connected(1, LONG)));
    subscribers.iter().flat_map(Subscriber::channels).filter(|channel| channel.carrier == Name::Shm).count()
}

#[test]
fn a_live_channel_changes_threads_a_hundred_times_and_loses_nothing() {
    const NAME: &str = "a_live_channel_changes_threads_a_hundred_times_and_loses_nothing";
    let to = settings(NAME);
    for carrier in ["tcp", "udp", "shm"] {
        let pair = Pair::new().taken(OWN_THREADS - usize::from(carrier == "shm"));
        let seen = Arc::new(Seen::default());
        let noted = seen.clone();
        let (publisher, subscriber) = pair.channel(carrier, move |sample| noted.note(&sample));
        let id = pair.id(&subscriber);
        let home = pair.report(id);
        assert_eq!(home.own_thread, carrier == "shm", "{carrier}");
        let finish = steadily(publisher, 64);
        for round in 0..100 {
            let own = pair.set(id, &to).unwrap();
            assert!(own.own_thread && own.served_by == ServedBy::OwnThread, "{own:?}");
            assert_eq!(own.tid == home.tid, carrier == "shm");
            until("a sample on the own thread", || Some(seen.thread.load(SeqCst)) == own.tid);
            assert_eq!(sched::read(own.tid.unwrap()).unwrap(), own.scheduled.clone().unwrap());
            if to.sched.is_some() {
                assert_eq!(own.scheduled.unwrap().policy, Some(Policy::Fifo(30)), "{carrier}, round {round}");
            }
            let back = pair.set(id, &PrioritySettings::default()).unwrap();
            assert_eq!((back.served_by, back.tid), (home.served_by, home.tid), "{carrier}, round {round}");
            assert_eq!(back.scheduled, home.scheduled);
            if round % 2 == 0 {
                continue; // every other round sets it again before it has left
            }
            until("a sample on the thread it came from", || Some(seen.thread.load(SeqCst)) == home.tid);
        }
        let (published, publisher) = finish();
        until("all samples", || seen.last.load(SeqCst) == published);
        assert_eq!((seen.count.load(SeqCst), seen.out_of_order.load(SeqCst)), (published, 0), "{carrier}");
        assert_eq!(subscriber.channels()[0].lost, 0, "{carrier}");
        drop(publisher);
    }
}

#[test]
fn a_priority_is_what_others_see_and_a_refusal_changes_nothing() {
    let pair = Pair::new().taken(OWN_THREADS);
    let (_publisher, subscriber) = pair.channel("tcp", |_| {});
    let id = pair.id(&subscriber);
    let before = pair.report(id);
    assert_eq!(before.served_by, ServedBy::SharedThread(qos::Class::Normal));
    let nowhere = PrioritySettings { affinity: Some(vec![1023]), ..PrioritySettings::default() };
    match pair.set(id, &nowhere) {
        Err(ThreadError::Refused(refused)) => assert!(matches!(refused.reason, Reason::Invalid), "{refused}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.report(id), before);
    let mut to = settings("a_priority_is_what_others_see_and_a_refusal_changes_nothing");
    to.affinity = Some(vec![0]);
    let own = pair.set(id, &to).unwrap();
    let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", own.tid.unwrap())).unwrap();
    assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
    if to.sched.is_some() {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", own.tid.unwrap())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        assert_eq!((fields[37], fields[38]), ("30", "1"), "rt_priority and policy of {stat}");
    }
    match pair.set(id, &nowhere) {
        Err(ThreadError::Refused(_)) => assert_eq!(pair.report(id), own),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_receiving_thread_is_reported_without_a_reader_thread() {
    let pair = Pair::new();
    let to = settings("the_receiving_thread_is_reported_without_a_reader_thread");
    let polled = pair.into.subscriber::<Raw>("/polled").carriers(["tcp"]).polled().open().unwrap();
    let on_publisher = pair.out.subscriber::<Raw>("/near").on_publisher_thread().callback(|_| {}).unwrap();
    let near = pair.out.subscriber::<Raw>("/near").callback(|_| {}).unwrap();
    let (far, close) =
        (pair.out.publisher::<Raw>("/polled").open().unwrap(), pair.out.publisher::<Raw>("/near").open().unwrap());
    assert!(polled.wait_connected(1, LONG) && near.wait_connected(1, LONG) && on_publisher.wait_connected(1, LONG));
    assert!(matches!(pair.set(pair.id(&polled), &to), Err(ThreadError::Elsewhere(ServedBy::Waiter))));
    assert_eq!(pair.set(pair.id(&polled), &PrioritySettings::default()).unwrap().tid, None);
    let id = |subscriber: &Subscriber<Raw>| {
        let subscriber_ports = pair.out.state().subscriber_ports();
        let subscriber_port = subscriber_ports
            .iter()
            .find(|(_, subscriber_port)| subscriber_port.info().name == subscriber.name())
            .unwrap()
            .1
            .clone();
        let channels = subscriber_port.channels().lock().unwrap();
        channels[0].id
    };
    let readers = &pair.out.state().readers;
    let refused = readers.set_priority(id(&on_publisher), &to).unwrap_err();
    assert!(matches!(refused, ThreadError::Elsewhere(ServedBy::Publisher)) && refused.to_string().contains("chrt"));
    let report = readers.set_priority(id(&near), &to).unwrap();
    assert_eq!((report.served_by, report.own_thread), (ServedBy::PortThread, false));
    let has = sched::read(report.tid.unwrap()).unwrap();
    assert_eq!((has.scheduling() == to.sched, has.affinity == [0]), (to.sched.is_some(), to.affinity.is_some()));
    assert!(matches!(readers.set_priority(u64::MAX, &to), Err(ThreadError::NoChannel)));
    drop((far, close));
}

#[test]
fn a_slow_callback_is_reported_and_gets_a_thread_of_its_own_if_one_is_left() {
    for (permits, isolates) in [(OWN_THREADS, true), (READER_THREADS, false)] {
        let pair = Pair::new().taken(permits);
        let mut events = pair.into.events();
        let (publisher, subscriber) = pair.channel("tcp", |_| std::thread::sleep(Duration::from_millis(3)));
        let finish = steadily(publisher, 64);
        let slow = |event: &Event, wanted| matches!(event, Event::SlowCallback { isolated, .. } if *isolated == wanted);
        let first = event(&mut events, |event| slow(event, false));
        assert!(matches!(&first, Event::SlowCallback { took_us: 1000.., count: 1, .. }), "{first}");
        if isolates {
            event(&mut events, |event| slow(event, true));
        }
        assert_eq!(pair.report(pair.id(&subscriber)).own_thread, isolates);
        drop(finish());
    }
}

#[test]
fn large_samples_get_a_thread_of_their_own() {
    let pair = Pair::new().taken(OWN_THREADS);
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let (mut publisher, subscriber) = pair.channel("tcp", move |_| {
        counted.fetch_add(1, SeqCst);
    });
    publisher.publish(&[1; 1000]).unwrap();
    until("a small sample", || count.load(SeqCst) == 1);
    assert!(!pair.report(pair.id(&subscriber)).own_thread);
    publisher.publish(&vec![1; 200_000]).unwrap();
    until("a large sample", || count.load(SeqCst) == 2);
    until("a thread of its own", || pair.report(pair.id(&subscriber)).own_thread);
    publisher.publish(&[1; 1000]).unwrap();
    until("a sample on it", || count.load(SeqCst) == 3);
}

#[test]
fn a_callback_that_panics_ends_its_channel_with_the_reason_and_no_other() {
    for (carrier, permits) in [("tcp", OWN_THREADS), ("tcp", 0), ("shm", 0), ("udp", OWN_THREADS), ("local", 0)] {
        let pair = Pair::new().taken(permits);
        let pair = if carrier == "local" { Pair { out: pair.into.clone(), into: pair.into.clone() } } else { pair };
        let mut events = pair.into.events();
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let (mut other, _stays) = pair.channel(carrier, move |_| {
            counted.fetch_add(1, SeqCst);
        });
        let (mut publisher, subscriber) = pair.channel(carrier, |sample| {
            assert!(sample.info().seq != 1, "the first is too much");
        });
        publisher.publish(&[1]).unwrap();
        let said = event(&mut events, |event| matches!(event, Event::Unmatched { .. }));
        let Event::Unmatched { subscriber: who, reason, .. } = &said else { return };
        assert_eq!(who, subscriber.name());
        assert!(reason.contains("callback panicked") && reason.contains("too much"), "{carrier}: {said}");
        other.publish(&[1]).unwrap();
        until("a sample on the other channel", || count.load(SeqCst) == 1);
        // The channel is opened again, and delivers.
        event(&mut events, |event| matches!(event, Event::Matched { subscriber: s, .. } if s == subscriber.name()));
        assert!(publisher.wait_connected(1, LONG));
        publisher.publish(&[2]).unwrap();
        until("a sample after it", || {
            subscriber.channels().last().is_some_and(|c| carrier == "local" || c.samples > 0)
        });
    }
}

#[test]
fn a_channel_that_waits_for_memory_holds_up_no_other_and_continues_later() {
    let pair = Pair::new().taken(OWN_THREADS);
    let [small, large] = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
    let count = |of: &Arc<AtomicU64>| {
        let of = of.clone();
        move |_: Sample<'_, Raw>| _ = of.fetch_add(1, SeqCst)
    };
    let (mut plain, _plain) = pair.channel("tcp", count(&small));
    let (mut bulk, subscriber) = pair.channel("tcp", count(&large));
    assert!(matches!(pair.report(pair.id(&subscriber)).served_by, ServedBy::SharedThread(_)));
    // Others hold all memory, and this publisher has the one message that each peer may have.
    let memory = &pair.into.state().memory;
    let peer = memory.peer(crate::admin::Peer::Node(pair.out.id()));
    let taken = memory.node().left();
    peer.take(taken);
    bulk.publish(&vec![1; 1 << 20]).unwrap();
    for seq in 1..=100 {
        plain.publish(&[1; 64]).unwrap();
        until("a small sample", || small.load(SeqCst) == seq);
    }
    assert_eq!(large.load(SeqCst), 0, "there is no memory for it");
    peer.give_back(taken);
    until("the large sample", || large.load(SeqCst) == 1);
    plain.publish(&[1; 64]).unwrap();
    bulk.publish(&vec![1; 1 << 20]).unwrap();
    until("both go on", || (small.load(SeqCst), large.load(SeqCst)) == (101, 2));
}
