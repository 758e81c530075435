//! Pulls from histories: at publishers, at subscribers, at ports that keep for others; well-behaved and malformed.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::PullBuffer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::AbsentReason;
use thalweg::codec::Raw;
use thalweg::control::PULL;
use thalweg::testing::handshake;
use thalweg::testing::pull::{Question, VERSION};
use thalweg::{Limit, Node, Publisher, PullFrom, Query, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);
/// Tests that need much memory, one after the other.
static LARGE: Mutex<()> = Mutex::new(());

fn node(realm: &str, name: &str) -> Node {
    let realm = format!("{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

fn buffer(samples: u32) -> PullBuffer {
    PullBuffer { samples, ..PullBuffer::default() }
}

fn publisher(node: &Node, samples: u32) -> Publisher<Raw> {
    node.publisher("/a").named("/p").history(buffer(samples)).open().unwrap()
}

fn asking(node: &Node) -> Subscriber<Raw> {
    let port = node.subscriber("/a").pull_only().open().unwrap();
    assert!(node.wait_until(LONG, || port.can_pull()));
    port
}

fn publish(port: &mut Publisher<Raw>, numbers: std::ops::RangeInclusive<u64>) {
    numbers.for_each(|n| assert_eq!(port.publish(&n.to_le_bytes()).unwrap().seq, n));
}

/// The numbers of the samples that came, each with its own bytes, and the reasons for missing ones.
fn pulled(port: &Subscriber<Raw>, query: Query) -> (Vec<u64>, Vec<AbsentReason>) {
    let mut pull = port.pull(query, LONG).unwrap();
    let numbers = pull.by_ref().map(|sample| {
        let sample = sample.unwrap();
        assert_eq!(sample.get(..8).unwrap(), sample.info().seq.to_le_bytes());
        assert!(sample.info().historical && sample.info().same_clock);
        sample.info().seq
    });
    let numbers = numbers.collect();
    (numbers, pull.absent().map(|(_, absent)| absent.why).collect())
}

#[test]
fn every_query_is_answered_by_another_node_and_by_the_own_one() {
    let (there, here) = (node("queries", "there"), node("queries", "here"));
    let mut port = publisher(&there, 20);
    publish(&mut port, 1..=108);
    for asks in [asking(&here), asking(&there)] {
        let pulled = |query: Query| pulled(&asks, query);
        assert_eq!(pulled(Query::latest()), (vec![108], vec![]));
        assert_eq!(pulled(Query::Nth(20)), (vec![89], vec![]));
        assert_eq!(pulled(Query::Nth(21)), (vec![], vec![AbsentReason::Gone]));
        assert_eq!(pulled(Query::seq(100)), (vec![100], vec![]));
        assert_eq!(pulled(Query::seq(12)), (vec![], vec![AbsentReason::Gone]));
        assert_eq!(pulled(Query::seq(109)), (vec![], vec![AbsentReason::Never]));
        assert_eq!(pulled(Query::range(80..=91)), (vec![89, 90, 91], vec![AbsentReason::Gone]));
        assert_eq!(pulled(Query::range(107..=200)), (vec![107, 108], vec![AbsentReason::Never]));
        assert_eq!(pulled(Query::Last(3)), (vec![106, 107, 108], vec![]));
        assert_eq!(pulled(Query::Since(LONG)).0, (89..=108).collect::<Vec<_>>());
        assert_eq!(pulled(Query::Since(Duration::ZERO)), (vec![], vec![AbsentReason::Never]));
        let other = Query::Range { incarnation: Some(5), first: 1, last: 2 };
        assert_eq!(pulled(other), (vec![], vec![AbsentReason::Gone]));
    }
}

#[test]
fn a_pull_only_subscriber_has_no_channel() {
    let (there, here) = (node("only", "there"), node("only", "here"));
    let mut port = publisher(&there, 4);
    let asks = asking(&here);
    let pushed = here.subscriber::<Raw>("/a").open().unwrap();
    assert!(port.wait_connected(1, LONG) && pushed.wait_connected(1, LONG));
    publish(&mut port, 1..=2);
    assert_eq!((port.connected(), asks.connected(), asks.is_pull_only()), (1, 0, true));
    assert_eq!(pulled(&asks, Query::Last(9)).0, [1, 2]);
}

#[test]
fn large_samples_and_many_small_ones_come_whole() {
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    let (there, here) = (node("sizes", "there"), node("sizes", "here"));
    let limits = PullBuffer { samples: 30_000, bytes: 64 << 20, ..PullBuffer::default() };
    let mut port = there.publisher::<Raw>("/a").history(limits).open().unwrap();
    let content = |seq: u64, size: usize| (0..size).map(|i| (seq as usize + i) as u8).collect::<Vec<u8>>();
    let size = |seq: u64| match seq % 1000 {
        0 => 1 << 20,
        1 => 5000,
        n => n as usize % 100,
    };
    for seq in 1..=20_000 {
        port.publish(&content(seq, size(seq))).unwrap();
    }
    let asks = asking(&here);
    let mut next = 1;
    for sample in asks.pull(Query::range(1..=20_000), LONG).unwrap() {
        let sample = sample.unwrap();
        assert_eq!(sample.info().seq, next);
        assert!(*sample == content(next, size(next)), "sample {next} changed");
        next += 1;
    }
    assert_eq!(next, 20_001);
    // A port that takes only small messages gets the number of those left out.
    let small = here.subscriber::<Raw>("/a").pull_only().max_message(100).open().unwrap();
    let (some, problems): (Vec<_>, Vec<_>) = small.pull(Query::range(1..=2000), LONG).unwrap().partition(Result::is_ok);
    assert_eq!((some.len(), problems.len()), (1996, 1));
    assert!(problems[0].as_ref().err().unwrap().to_string().contains("4 samples"));
}

#[test]
fn a_subscriber_that_keeps_asks_itself_and_one_that_keeps_for_others_is_asked() {
    let (there, between, here) = (node("keeps", "there"), node("keeps", "between"), node("keeps", "here"));
    let mut port = publisher(&there, 3);
    let keeps = there.subscriber::<Raw>("/a").history(buffer(10)).open().unwrap();
    let relay = between.subscriber::<Raw>("/*").named("/relay").history_for_others(buffer(10)).open().unwrap();
    assert!(port.wait_connected(2, LONG) && keeps.wait_connected(1, LONG) && relay.wait_connected(1, LONG));
    publish(&mut port, 1..=8);
    let seen = |port: &Subscriber<Raw>| pulled(port, Query::Last(100)).0;
    assert!(here.wait_until(LONG, || seen(&keeps).len() == 8));
    let asks = asking(&here);
    let at = PullFrom { holder: Some("/relay".into()), ..PullFrom::default() };
    let all = |from: &PullFrom, query: Query| {
        let pulled = asks.pull_from(from, query, LONG).into_iter().flatten(); // an error: it is not known yet
        pulled.map(|sample| sample.unwrap().info().seq).collect::<Vec<_>>()
    };
    assert!(here.wait_until(LONG, || all(&at, Query::Last(100)).len() == 8));
    // The publisher has three samples, the relay the others: each comes once, and none is missing.
    assert!(here.wait_until(LONG, || asks.pull(Query::latest(), LONG).is_ok()));
    let (mut numbers, why) = pulled(&asks, Query::range(1..=8));
    numbers.sort_unstable();
    assert_eq!((numbers, why), ((1..=8).collect(), vec![]));
    // The publisher restarts: the numbers begin again, and the former ones are requested by incarnation.
    let before = pulled_incarnation(&asks);
    drop((port, keeps));
    drop(there);
    let there = node("keeps", "there");
    let mut port = publisher(&there, 3);
    assert!(port.wait_connected(1, LONG) && relay.wait_connected(1, LONG));
    publish(&mut port, 1..=2);
    let of = |incarnation: u64| Query::Range { incarnation: Some(incarnation), first: 1, last: 2 };
    let now = pulled_incarnation(&asks);
    assert!(now > before);
    assert!(here.wait_until(LONG, || all(&PullFrom::default(), of(now)) == [1, 2]));
    assert_eq!(all(&at, of(before)), [1, 2]);
    assert_eq!(all(&at, Query::Range { incarnation: Some(before), first: 7, last: 8 }), [7, 8]);
}

#[test]
fn a_pull_with_a_limit_comes_no_faster_and_comes_whole() {
    let (there, here) = (node("limit", "there"), node("limit", "here"));
    let mut port = publisher(&there, 50);
    for _ in 0..50 {
        port.publish(&[7; 10_000]).unwrap();
    }
    let asks = asking(&here);
    let from = |rate: u64| PullFrom { limit: Some(Limit { rate, burst: 64 << 10 }), ..PullFrom::default() };
    let start = Instant::now();
    let came = asks.pull_from(&from(2_000_000), Query::Last(50), LONG).unwrap().map(Result::unwrap);
    let bytes: usize = came.map(|sample| sample.len()).sum();
    // 500 kB less the burst, and the bytes read of the next piece before they are counted.
    let least = Duration::from_secs_f64((500_000.0 - 2.0 * f64::from(64 << 10)) / 2e6);
    assert!(bytes == 500_000 && start.elapsed() >= least, "{bytes} B in {:?}, {least:?} at least", start.elapsed());
    let refused = asks.pull_from(&from(100), Query::latest(), LONG).err().unwrap().to_string();
    assert!(refused.contains("100 bytes per second: at least 16000"), "{refused}");
}

/// The incarnation of the publisher itself.
fn pulled_incarnation(port: &Subscriber<Raw>) -> u64 {
    let from = PullFrom { holder: Some("/p".into()), ..PullFrom::default() };
    let pull = || port.pull_from(&from, Query::latest(), LONG).ok()?.next()?.ok();
    let until = Instant::now() + LONG;
    loop {
        match pull() {
            Some(sample) => return sample.info().incarnation,
            None => assert!(Instant::now() < until, "the publisher answers"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn question(there: &Node, query: Query) -> Question {
    let own = || there.nodes().into_iter().find(|d| d.node == there.id() && !d.ports.is_empty());
    assert!(there.wait_until(LONG, || own().is_some()));
    let document = own().unwrap();
    let (port, info) = document.ports.iter().next().unwrap();
    Question {
        version: VERSION,
        realm: document.realm.clone(),
        to_node: document.node,
        to_port: *port,
        topic: info.topic.clone(),
        message: info.message.clone(),
        max_message: 1 << 20,
        publisher: None,
        except: Vec::new(),
        query,
    }
}

fn ask(stream: &mut impl Write, question: &Question) {
    let mut bytes = vec![PULL];
    bytes.extend(handshake::pack(question).unwrap());
    stream.write_all(&bytes).unwrap();
}

/// Every refusal has a reason that names the error in the request.
#[test]
fn wrong_questions_are_refused_by_name() {
    let there = node("wrong", "there");
    let _port = publisher(&there, 3);
    let address = there.addresses()[0];
    let right = question(&there, Query::latest());
    let identity = thalweg::testing::pull::Identity { node: there.id(), port: right.to_port, incarnation: 1 };
    let wrong: [(&str, Question); 6] = [
        ("version", Question { version: 9, ..right.clone() }),
        ("node", Question { realm: "other".into(), ..right.clone() }),
        ("node", Question { to_node: thalweg::control::NodeId(1), ..right.clone() }),
        ("port", Question { to_port: thalweg::control::PortId(77), ..right.clone() }),
        ("except", Question { except: vec![identity; 300], ..right.clone() }),
        ("type", Question { message: thalweg::codec::TypeDescription::opaque("image"), ..right.clone() }),
    ];
    for (policy, question) in wrong {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        ask(&mut stream, &question);
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("refused") && said.contains(&format!("\"policy\":\"{policy}\"")), "{policy}: {said}");
    }
}

/// Thousands of peers ask and do not read. The allowed number is answered, the others are refused with the reason.
/// The publisher notices nothing, and requests after they left are answered.
#[test]
fn thousands_of_peers_that_read_nothing_stop_nobody() {
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    let (there, here) = (node("slow", "there"), node("slow", "here"));
    let limits = PullBuffer { samples: 64, bytes: 64 << 20, ..PullBuffer::default() };
    let mut port = there.publisher::<Raw>("/a").history(limits).open().unwrap();
    for _ in 0..64 {
        port.publish(&vec![1; 1 << 20]).unwrap();
    }
    let asked = question(&there, Query::Last(64));
    let socket = there.nodes().into_iter().find(|d| d.node == there.id()).unwrap().socket.unwrap();
    let before = linux::thread::peak_rss_kib();
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..2000 {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        ask(&mut stream, &asked);
        let mut first = [0; 512];
        let count = stream.read(&mut first).unwrap();
        let said = String::from_utf8_lossy(&first[..count]).into_owned();
        if said.contains("refused") {
            assert!(said.contains("answers at once") && said.contains("ask again"), "{said}");
            refused += 1;
        } else {
            open.push(stream);
        }
    }
    assert_eq!((open.len(), refused), (32, 2000 - 32));
    for _ in 0..200 {
        port.publish(&vec![2; 1 << 20]).unwrap();
    }
    let grown = linux::thread::peak_rss_kib().saturating_sub(before);
    // 64 MiB are kept, as much again may be free, and each answer holds one large sample at a time.
    assert!(grown < 200 << 10, "{grown} KiB");
    drop(open);
    let asks = asking(&here);
    let answered = || asks.pull(Query::latest(), LONG).unwrap().next().is_some_and(|sample| sample.is_ok());
    assert!(here.wait_until(LONG, answered));
}
