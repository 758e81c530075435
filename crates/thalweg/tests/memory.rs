//! The memory of a node for its channels is bounded in bytes: queues, unacknowledged samples, mailboxes; per peer and
//! in all.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use qos::{Queue, ResourceLimit};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;
use thalweg::carrier::Parameters;
use thalweg::codec::Raw;
use thalweg::control::{NodeId, PortId};
use thalweg::testing::handshake::{Answer, Answers, Request};
use thalweg::{Event, Node, Settings, Subscriber};
use world::agent::{Agent, number};
use world::stranger::Stranger;
use world::stranger_link::{Link, document, publisher};
use world::{LONG, World, eventually, fake, figure};

const MIB: usize = 1 << 20;

fn nodes<const N: usize>(test: &str, memory: usize) -> [Node; N] {
    let realm = format!("memory-{test}-{}", std::process::id());
    std::array::from_fn(|index| {
        let memory = if index == 0 { memory } else { Settings::default().memory };
        Node::with_settings(Settings { name: format!("n{index}"), realm: realm.clone(), memory, ..Settings::default() })
            .unwrap()
    })
}

/// 512 samples of 1 MiB into a queue of 4096, for a subscriber that is stopped.
#[test]
fn a_stopped_subscriber_costs_no_more_than_the_bytes_of_its_queue() {
    let _alone = world::alone();
    for (carrier, most) in [("tcp", 96), ("udp", 160), ("shm", 96)] {
        let world = World::new();
        let mut publisher = Agent::start(&world, "publisher topic=/a block=4096 max=1048576");
        let mut subscriber = Agent::start(&world, &format!("subscriber topic=/a carriers={carrier} reliable=1"));
        subscriber.connected(1);
        publisher.connected(1);
        let before = number(&publisher.ask("status"), "rss_kib") / 1024.0;
        subscriber.stop();
        let published = publisher.ask("publish hz=1000 count=512 size=1048576");
        let status = publisher.ask("status");
        let after = number(&status, "peak_kib") / 1024.0;
        let channel = &status["channels"][0];
        let text = format!("{carrier}: {before:.0} MiB before, {after:.0} at most; {published} {channel}");
        figure("memory", &text);
        assert!(after - before <= f64::from(most), "{text}");
        assert!(number(channel, "over_bytes") > 0.0 && number(&published, "dropped") > 300.0, "{text}");
        assert!(number(channel, "waiting_bytes") <= number(channel, "most_bytes") * 2.0 + 1e6, "{text}");
        subscriber.go_on();
    }
}

/// Memory of large samples that waited once is freed.
#[test]
fn memory_of_large_samples_is_freed_when_unused() {
    let _waiting = world::waiting();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a queue=16 max=4194304");
    let mut subscriber = Agent::start(&world, "subscriber topic=/a carriers=tcp max=4194304");
    subscriber.connected(1);
    publisher.connected(1);
    let before = number(&publisher.ask("status"), "rss_kib") / 1024.0;
    subscriber.stop();
    publisher.ask("publish hz=100 count=30 size=4194304");
    let held = number(&publisher.ask("status"), "rss_kib") / 1024.0;
    assert!(held - before > 48.0, "{before} MiB before, {held} MiB while they wait");
    subscriber.kill();
    let resident = || Some(number(&publisher.ask("status"), "rss_kib") / 1024.0).filter(|now| now - before < 16.0);
    let after = eventually(LONG * 3, resident);
    figure(
        "memory",
        format!("16 x 4 MiB: {before:.0} MiB before, {held:.0} while they waited, {after:.0?} afterwards"),
    );
    assert!(after.is_some(), "{}", publisher.ask("status"));
}

/// A queue that keeps the last drops as many as the new one needs; one that keeps all refuses it. Both report the
/// limit.
#[test]
fn publish_names_the_limit_that_a_sample_met() {
    let _beside = world::beside();
    for (queue, last) in [(Queue::KeepLast(4096), true), (Queue::KeepAll(4096), false)] {
        let [out, into] = nodes(&format!("says-{last}"), 1 << 30);
        let mut publisher = out.publisher::<Raw>("/t").queue(queue).queue_bytes(4 << 20).open().unwrap();
        let polled = into.subscriber::<Raw>("/t").carriers(["tcp"]).polled().open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let published: Vec<_> = (0..60).map(|_| publisher.publish(&vec![1; MIB]).unwrap()).collect();
        let bound: Vec<_> = published.iter().filter(|published| published.limit.is_some()).collect();
        assert!(bound.len() > 20, "{published:?}");
        assert!(bound.iter().all(|p| p.limit == Some(ResourceLimit::Bytes) && p.dropped == 1), "{bound:?}");
        assert!(bound.iter().all(|p| (p.queued, p.refused) == if last { (1, 0) } else { (0, 1) }), "{bound:?}");
        let report = &publisher.channels()[0];
        assert_eq!((report.over_bytes, report.most_bytes), (bound.len() as u64, 4 << 20));
        assert!(report.waiting_bytes <= 4 << 20, "{report:?}");
        drop(polled);
    }
}

#[test]
fn a_mailbox_is_bounded_in_bytes_and_reports_it() {
    let _beside = world::beside();
    const SAMPLES: u8 = 20;
    for carrier in ["local", "shm", "tcp"] {
        for (queue, left) in [(Queue::KeepLast(100), [17, 18, 19]), (Queue::KeepAll(100), [0, 1, 2])] {
            let [out, into] = nodes(&format!("mailbox-{carrier}-{}", left[0]), 1 << 30);
            let mut publisher = out.publisher::<Raw>("/t").queue(Queue::KeepAll(100)).open().unwrap();
            let subscriber = into.subscriber::<Raw>("/t").named("/in").carriers([carrier]).queue(queue);
            let mut subscriber = subscriber.queue_bytes(3 << 20 | 4096).open().unwrap();
            let mut events = into.events();
            assert!(publisher.wait_connected(1, LONG), "{carrier}");
            for number in 0..SAMPLES {
                publisher.publish(&vec![number; MIB]).unwrap();
            }
            let over = || subscriber.channels().first().map_or(0, |report| report.over_bytes);
            assert!(
                eventually(LONG, || (over() == 17).then_some(())).is_some(),
                "{carrier}: {:?}",
                subscriber.channels()
            );
            let told = std::iter::from_fn(|| events.wait(LONG)).find_map(|event| match event {
                Event::SampleRejected { subscriber, limit, most, .. } => Some((subscriber, limit, most)),
                _ => None,
            });
            assert_eq!(told, Some(("/in".into(), ResourceLimit::Bytes, 3 << 20 | 4096)), "{carrier}");
            let taken: Vec<u8> = std::iter::from_fn(|| subscriber.take()).map(|sample| sample[0]).collect();
            assert_eq!(taken, left, "{carrier}");
            assert_eq!(subscriber.channels()[0].waiting_bytes, 0, "{carrier}");
        }
    }
}

/// A peer that takes no samples holds half of the node's memory at most, a second one half of the rest; small channels
/// continue.
#[test]
fn a_slow_peer_leaves_room_for_the_next_and_for_small_channels() {
    let _beside = world::beside();
    const MEMORY: usize = 48 * MIB;
    let [out, slow, next, small] = nodes("peers", MEMORY);
    let mut large = out.publisher::<Raw>("/large").queue(Queue::KeepAll(1000)).open().unwrap();
    let mut little = out.publisher::<Raw>("/little").queue(Queue::KeepAll(1000)).open().unwrap();
    let polled = |node: &Node| {
        let subscriber = node.subscriber::<Raw>("/large").carriers(["tcp"]).polled();
        subscriber.open().unwrap()
    };
    let many: Vec<_> = (0..4).map(|_| polled(&slow)).collect();
    let mut heard = small.subscriber::<Raw>("/little").carriers(["tcp"]).queue(Queue::KeepAll(1000)).open().unwrap();
    assert!(large.wait_connected(4, LONG) && little.wait_connected(1, LONG));
    let waiting = |publisher: &thalweg::Publisher<Raw>| -> Vec<u64> {
        publisher.channels().iter().map(|report| report.waiting_bytes).collect()
    };
    (0..60).for_each(|_| assert!(large.publish(&vec![1; MIB]).unwrap().channels() >= 4));
    let first = waiting(&large).iter().sum::<u64>();
    let another = polled(&next);
    assert!(large.wait_connected(5, LONG));
    (0..60).for_each(|_| assert!(large.publish(&vec![1; MIB]).unwrap().channels() >= 4));
    let all = waiting(&large);
    let second = all[4];
    figure("memory", format!("of {MEMORY} bytes one peer holds {first}, then another one {second}"));
    assert!(first <= MEMORY as u64 / 2 && first > MEMORY as u64 / 3, "{first}");
    assert!(second <= MEMORY as u64 / 4 && second > MEMORY as u64 / 6, "{all:?}");
    let over: u64 = large.channels().iter().map(|report| report.over_memory).sum();
    assert!(over > 100, "{:?}", large.channels());
    for number in 0..200_u8 {
        assert_eq!(little.publish(&[number; 64]).unwrap().dropped, 0);
        assert_eq!(heard.wait(Duration::from_secs(20)).map(|sample| sample[0]), Some(number));
    }
    drop((many, another));
    assert!(eventually(LONG, || (out.memory().used == 0).then_some(())).is_some(), "{:?}", out.memory());
}

/// A full history leaves room for the next one: a sample that is published once is there for late joiners. A history
/// without room is reported.
#[test]
fn a_full_history_leaves_room_for_others() {
    let _beside = world::beside();
    let [node] = nodes("histories", 64 * MIB);
    let durable = |topic: &str| node.publisher::<Raw>(topic).transient_local(100).max_message(16 << 20).open().unwrap();
    let (mut large, mut once) = (durable("/large"), durable("/once"));
    assert!((1..=60).all(|seq| large.publish(&vec![1; MIB]).unwrap().seq == seq));
    let full = node.memory().histories;
    once.publish(&vec![2; 5 * MIB]).unwrap();
    let mut late = node.subscriber::<Raw>("/once").transient_local(100).max_message(16 << 20).open().unwrap();
    let came = late.wait(LONG).map(|sample| sample.len());
    assert_eq!(came, Some(5 * MIB), "{full:?}, then {:?}", node.memory().histories);
    assert!(full.used > 12 << 20 && full.used <= 16 << 20, "{full:?}");
    once.publish(&vec![3; 14 * MIB]).unwrap();
    let mut events = node.events();
    let told = std::iter::from_fn(|| events.wait(LONG)).find(|event| event.to_string().contains("late joiners"));
    let text = told.map(|event| event.to_string()).unwrap_or_default();
    assert!(text.contains("/once") && text.contains("1 in all") && text.contains("Settings::memory"), "{text}");
    let mut later = node.subscriber::<Raw>("/once").transient_local(100).max_message(16 << 20).open().unwrap();
    assert_eq!(later.wait(LONG).map(|sample| sample.len()), Some(5 * MIB), "what was kept before it stays");
}

/// Bytes that arrive at a mailbox that is never emptied.
const WAITING: usize = 3 * 200_000;

/// Sends them, and checks which peer they count for.
fn waits_of_one_host(node: &Node, at: &Subscriber<Raw>, streams: &mut [TcpStream]) {
    streams.iter_mut().for_each(|stream| stream.write_all(&fake::message(1, WAITING / 3)).unwrap());
    let waiting = || at.channels().iter().map(|report| report.waiting_bytes).max().unwrap_or(0);
    let came = eventually(LONG, || (waiting() >= WAITING as u64).then_some(()));
    let told: Vec<_> = node.memory().peers.iter().map(|peer| peer.peer.to_string()).collect();
    assert_eq!((came.is_some(), &told[..]), (true, &["host 127.0.0.1".to_owned()][..]), "{:?}", node.memory());
}

/// Ids cost nothing: bytes in a mailbox count for the host of the channel's other end.
#[test]
fn publishers_of_a_host_have_one_share_of_mailboxes() {
    let _beside = world::beside();
    let [node] = nodes("publishers", 1 << 30);
    let heard = node.subscriber::<Raw>("/t").carriers(["tcp"]).queue(Queue::KeepAll(100)).open().unwrap();
    let (realm, to) = (node.nodes()[0].realm.clone(), Stranger::of_node(&node).address());
    let (_links, mut streams): (Vec<_>, Vec<_>) = (1..=3)
        .map(|id| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let mut told = document(&realm, id, 1);
            told["host"] = serde_json::json!(linux::clock::host_id());
            told["addresses"] = serde_json::json!([listener.local_addr().unwrap().to_string()]);
            told["ports"] = serde_json::json!({"1": publisher("/out", "/t")});
            let mut link = Link::new(to, Ipv4Addr::LOCALHOST, &realm, id);
            assert!(link.say(2, told.to_string().as_bytes()));
            let (mut stream, _) = listener.accept().unwrap();
            fake::request(&mut stream);
            stream.write_all(&fake::acceptance(Parameters::default())).unwrap();
            (link, stream)
        })
        .unzip();
    waits_of_one_host(&node, &heard, &mut streams);
}

/// The same for answers, which come on the connection of their questions.
#[test]
fn answers_of_a_host_have_one_share_of_mailboxes() {
    let _beside = world::beside();
    let [node] = nodes("answers", 1 << 30);
    let answers = node.subscriber::<Raw>("/answers").carriers(["tcp"]).queue(Queue::KeepAll(100)).open().unwrap();
    let _questions = node.publisher::<Raw>("/questions").carriers(["tcp"]).answered_at(&answers).open().unwrap();
    let stranger = Stranger::of_node(&node);
    let own = node.nodes().into_iter().find(|document| document.node == node.id()).unwrap();
    let to_port = *own.ports.iter().find(|(_, port)| port.topic == "/questions").unwrap().0;
    let ask = |id| {
        let mut request = Request { node: NodeId(id), to_port, ..stranger.request("/questions", 1) };
        let mut publisher = stranger.request("/answers", 2).subscriber;
        publisher.direction = thalweg::control::Direction::Publisher;
        request.answers = Some(Answers { port: PortId(2), publisher, flow: fake::FLOW, incarnation: 1 });
        let (stream, answer) = stranger.ask(&request);
        assert!(matches!(&answer, Some(Answer::Accepted(accepted)) if accepted.answers.is_some()), "{answer:?}");
        stream
    };
    waits_of_one_host(&node, &answers, &mut [1, 2, 3].map(ask));
}
