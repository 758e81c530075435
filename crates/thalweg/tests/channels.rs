//! Publishers and subscribers over every built-in carrier, in one process, through the real control plane.
#![allow(clippy::unwrap_used)] // all of this is test

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Node, Settings};

const LONG: Duration = Duration::from_secs(20);

/// A node in a realm of its own, so that tests do not see each other.
fn node(realm: &str, name: &str) -> Node {
    let realm = format!("{realm}-{}", std::process::id());
    Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
}

/// The reliability that `carrier` can offer.
fn reliability(carrier: &str) -> qos::Reliability {
    if matches!(carrier, "udp" | "mcast") { qos::Reliability::BestEffort } else { qos::Reliability::Reliable }
}

fn arrives_over(carrier: &str) {
    let (a, b) = (node(carrier, "a"), node(carrier, "b"));
    let (tell, told) = mpsc::channel();
    let subscriber = b
        .subscriber::<Raw>("/numbers")
        .reliability(reliability(carrier))
        .carriers([carrier])
        .callback(move |sample| tell.send((sample.info().seq, sample.to_vec())).unwrap())
        .unwrap();
    let mut publisher = a.publisher::<Raw>("/numbers").open().unwrap();
    assert!(publisher.wait_connected(1, LONG), "{:?}", b.events().wait(Duration::ZERO));
    assert!(subscriber.wait_connected(1, LONG));
    for (index, size) in [0usize, 1, 64, 1400, 9000, 70_000, 300_000].into_iter().enumerate() {
        let message: Vec<u8> = (0..size).map(|i| (i * 7 + index) as u8).collect();
        let published = publisher.publish(&message).unwrap();
        assert_eq!(published.sent + published.queued, 1, "{published:?}");
        let (seq, got) =
            told.recv_timeout(LONG).unwrap_or_else(|_| panic!("{size} bytes over {carrier} did not arrive"));
        assert_eq!(seq, published.seq);
        assert!(got == message, "{size} bytes over {carrier} changed on the way");
    }
    assert_eq!(subscriber.channels()[0].carrier, carrier);
}

#[test]
fn samples_arrive_over_local() {
    arrives_over("local");
}
#[test]
fn samples_arrive_over_tcp() {
    arrives_over("tcp");
}
#[test]
fn samples_arrive_over_udp() {
    arrives_over("udp");
}
#[test]
fn samples_arrive_over_mcast() {
    arrives_over("mcast");
}
#[test]
fn samples_arrive_over_shm() {
    arrives_over("shm");
}

/// While samples are published: the first one that comes is the one after the last one before the channel joined its publisher.
#[test]
fn a_subscriber_knows_after_which_sample_its_channel_joined() {
    for carrier in ["local", "shm", "tcp", "udp"] {
        let realm = format!("joined-{carrier}");
        let (a, b) = (node(&realm, "a"), node(&realm, "b"));
        let port = a.publisher::<Raw>("/numbers").carriers([carrier]).queue(qos::Queue::KeepAll(10_000));
        let mut publisher = port.open().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let over = ended.clone();
        let publishing = std::thread::spawn(move || {
            while !over.load(Relaxed) {
                for n in 0..8 {
                    publisher.publish(&[n; 8]).unwrap();
                }
                std::thread::sleep(Duration::from_micros(300)); // the others need the processor, too
            }
        });
        for _ in 0..5 {
            let (tell, told) = mpsc::channel();
            let builder = b.subscriber::<Raw>("/numbers").reliability(reliability(carrier)).carriers([carrier]);
            let builder = builder.queue(qos::Queue::KeepAll(10_000));
            let subscriber = builder.callback(move |sample| tell.send(*sample.info()).unwrap_or_default()).unwrap();
            let first = told.recv_timeout(LONG).unwrap();
            assert_eq!(subscriber.remote().joined_after(&first), Some(first.seq - 1), "{carrier}");
        }
        ended.store(true, Relaxed);
        publishing.join().unwrap();
    }
}

/// One subscriber is fed over four carriers at once (Y-05): each publisher names its own.
#[test]
fn one_subscriber_receives_over_several_carriers_at_once() {
    const SAMPLES: u64 = 200;
    let here = node("several", "here");
    let (tell, told) = mpsc::channel();
    let qos = qos::Qos { reliability: qos::Reliability::BestEffort, ..qos::Qos::default() };
    let builder = here.subscriber::<Raw>("/numbers").qos(qos).carriers(["local", "tcp", "udp", "shm"]);
    let subscriber = builder.callback(move |sample| tell.send((sample.to_vec(), sample.info().seq)).unwrap()).unwrap();
    let there = ["tcp", "udp", "shm"].map(|carrier| (carrier, node("several", carrier)));
    let nodes = [("local", here.clone())].into_iter().chain(there);
    let mut publishers: Vec<_> = nodes
        .map(|(carrier, node)| (carrier, node.publisher::<Raw>("/numbers").carriers([carrier]).open().unwrap(), node))
        .collect();
    assert!(subscriber.wait_connected(4, LONG) && publishers.iter().all(|(_, port, _)| port.wait_connected(1, LONG)));
    let mut carriers: Vec<String> = subscriber.channels().iter().map(|report| report.carrier.to_string()).collect();
    carriers.sort();
    assert_eq!(carriers, ["local", "shm", "tcp", "udp"]);
    for seq in 1..=SAMPLES {
        for (carrier, publisher, _) in &mut publishers {
            assert_eq!(publisher.publish(carrier.as_bytes()).unwrap().seq, seq);
        }
        let mut came: Vec<_> = publishers.iter().map(|_| told.recv_timeout(LONG).unwrap()).collect();
        came.sort();
        assert_eq!(came, ["local", "shm", "tcp", "udp"].map(|carrier| (carrier.as_bytes().to_vec(), seq)));
    }
}

#[test]
fn a_server_answers_and_a_missing_one_is_named() {
    let (a, b) = (node("service", "a"), node("service", "b"));
    let mut client = a.client::<(f64, f64), f64>("/sum").unwrap();
    let missing = client.call((1.0, 2.0), Duration::from_millis(50)).unwrap_err();
    assert!(missing.to_string().contains("no server on /sum"), "{missing}");
    let _server = b.server("/sum", |(x, y): &(f64, f64)| x + y).unwrap();
    for i in 0..20 {
        assert_eq!(client.call((f64::from(i), 0.5), LONG).unwrap(), f64::from(i) + 0.5);
    }
}

#[test]
fn different_types_do_not_match_and_both_ends_are_told() {
    use thalweg::Event;
    let (a, b) = (node("types", "a"), node("types", "b"));
    let mut events = b.events();
    let _publisher = a.publisher::<String>("/text").named("/speaker").open().unwrap();
    let _subscriber = b.subscriber::<u32>("/text").named("/listener").open().unwrap();
    loop {
        match events.wait(LONG).expect("an event names the mismatch") {
            Event::Incompatible { publisher, subscriber, policy, offered, requested, .. } => {
                assert_eq!(
                    (publisher.as_str(), subscriber.as_str(), policy.as_str()),
                    ("/speaker", "/listener", "type")
                );
                assert!(offered.contains("string") && requested.contains("u32"), "{offered} {requested}");
                return;
            }
            other => drop(other),
        }
    }
}

#[test]
fn a_pattern_receives_from_all_topics_that_match() {
    let (a, b) = (node("pattern", "a"), node("pattern", "b"));
    let mut subscriber = b.subscriber::<String>("/robot/*/state").open().unwrap();
    let mut left = a.publisher::<String>("/robot/left/state").open().unwrap();
    let mut right = a.publisher::<String>("/robot/right/state").open().unwrap();
    let _other = a.publisher::<String>("/robot/left/arm/state").open().unwrap();
    assert!(subscriber.wait_connected(2, LONG) && left.wait_connected(1, LONG) && right.wait_connected(1, LONG));
    left.publish(&"l".to_owned()).unwrap();
    right.publish(&"r".to_owned()).unwrap();
    let mut got = [subscriber.wait(LONG).unwrap().to_string(), subscriber.wait(LONG).unwrap().to_string()];
    got.sort();
    assert_eq!(got, ["l", "r"]);
    assert_eq!(subscriber.connected(), 2);
}

#[test]
fn a_name_that_is_taken_is_refused_and_its_holder_named() {
    let a = node("names", "a");
    let _held = a.publisher::<Raw>("/x").named("/mine").open().unwrap();
    let again = a.subscriber::<Raw>("/x").named("/mine").open().err().unwrap();
    assert!(again.to_string().contains("node a"), "{again}");
    let b = node("names", "b");
    assert!(b.wait_until(LONG, || b.nodes().iter().any(|d| !d.ports.is_empty())));
    let elsewhere = b.publisher::<Raw>("/x").named("/mine").open().err().unwrap();
    assert!(elsewhere.to_string().contains("node a (process"), "{elsewhere}");
}

#[test]
fn faults_and_a_capture_are_put_around_a_channel() {
    use thalweg::Around;
    use thalweg::carrier::record::Recorder;
    let file = std::env::temp_dir().join(format!("thalweg-{}.pcap", std::process::id()));
    let realm = format!("around-{}", std::process::id());
    let around =
        Around { fault: Some("loss=20%,seed=1".parse().unwrap()), record: Some(Recorder::create(&file).unwrap()) };
    let a = Node::with_settings(Settings { name: "a".into(), realm: realm.clone(), around, ..Settings::default() })
        .unwrap();
    let b = Node::with_settings(Settings { name: "b".into(), realm, ..Settings::default() }).unwrap();
    let mut subscriber = b
        .subscriber::<Raw>("/x")
        .reliability(qos::Reliability::BestEffort)
        .carriers(["udp"])
        .queue(qos::Queue::KeepLast(1000))
        .open()
        .unwrap();
    let mut publisher = a.publisher::<Raw>("/x").open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let mut arrived = 0;
    for _ in 0..500 {
        publisher.publish(&[1; 32]).unwrap();
        while subscriber.take().is_some() {
            arrived += 1;
        }
    }
    while subscriber.wait(Duration::from_millis(200)).is_some() {
        arrived += 1;
    }
    assert!((350..=450).contains(&arrived), "{arrived} of 500 arrived at 20 % loss");
    assert!(std::fs::metadata(&file).unwrap().len() > 350 * 64, "the capture has the frames");
    std::fs::remove_file(file).unwrap();
}

/// One waiting task on this thread: enough to drive a stream.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_subscriber_is_a_stream() {
    use futures_core::Stream;
    let a = node("stream", "a");
    let mut subscriber = a.subscriber::<String>("/words").open().unwrap();
    let mut publisher = a.publisher::<String>("/words").open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let sender = std::thread::spawn(move || {
        for word in ["a", "b", "c"] {
            publisher.publish(&word.to_owned()).unwrap();
        }
        publisher
    });
    for word in ["a", "b", "c"] {
        let next = block_on(std::future::poll_fn(|context| std::pin::Pin::new(&mut subscriber).poll_next(context)));
        assert_eq!(*next.unwrap(), word);
    }
    drop(sender.join());
}

#[test]
fn a_loan_is_written_in_place_over_every_carrier() {
    for carrier in ["shm", "tcp", "local"] {
        let (a, b) = (node(&format!("loan-{carrier}"), "a"), node(&format!("loan-{carrier}"), "b"));
        let mut subscriber = b.subscriber::<Raw>("/big").carriers([carrier]).open().unwrap();
        let mut publisher = a.publisher::<Raw>("/big").open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        for round in 0..40u8 {
            drop(publisher.loan(10)); // an unused loan goes back
            let mut loan = publisher.loan(100_000).unwrap();
            loan.bytes_mut().fill(round);
            loan.publish().unwrap();
            let got = subscriber.wait(LONG).unwrap();
            assert!(got.len() == 100_000 && got.iter().all(|b| *b == round), "{carrier}");
        }
    }
}

#[test]
fn a_plain_value_is_written_in_place() {
    use thalweg::codec::Plain;
    let (a, b) = (node("plain", "a"), node("plain", "b"));
    let mut subscriber = b.subscriber::<Plain<[f64; 4]>>("/pose").carriers(["shm"]).open().unwrap();
    let mut publisher = a.publisher::<Plain<[f64; 4]>>("/pose").open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    let mut loan = publisher.loan_value().unwrap();
    *loan.value_mut().unwrap() = [1.0, 2.0, 3.0, 4.0];
    loan.publish().unwrap();
    assert_eq!(*subscriber.wait(LONG).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

/// A publisher with the given queue, and a subscriber whose callback blocks until it is released: the tcp connection
/// fills up.
static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
fn blocked_channel(
    queue: qos::Queue,
) -> (Node, Node, thalweg::Publisher<Raw>, thalweg::Subscriber<Raw>, mpsc::SyncSender<()>) {
    let count = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let realm =
        format!("blocked{count}{queue:?}").chars().filter(char::is_ascii_alphanumeric).take(16).collect::<String>();
    let (a, b) = (node(&realm, "a"), node(&realm, "b"));
    let (go, wait) = mpsc::sync_channel::<()>(0);
    let subscriber = b
        .subscriber::<Raw>("/x")
        .carriers(["tcp"])
        .callback(move |_| {
            let _ = wait.recv(); // an error means: continue
        })
        .unwrap();
    let publisher = a.publisher::<Raw>("/x").queue(queue).open().unwrap();
    assert!(publisher.wait_connected(1, LONG));
    (a, b, publisher, subscriber, go)
}

/// Publishes until samples find no room for some time, since the kernel's buffers are full, too. Returns the result
/// of the last call and its duration.
fn fill(publisher: &mut thalweg::Publisher<Raw>) -> (thalweg::Published, Duration) {
    let message = vec![0; 200_000];
    let mut without_room = 0;
    for _ in 0..10_000 {
        let began = std::time::Instant::now();
        let published = publisher.publish(&message).unwrap();
        without_room = if published.dropped > 0 { without_room + 1 } else { 0 };
        if without_room == 20 {
            return (published, began.elapsed());
        }
        if without_room > 0 {
            std::thread::sleep(Duration::from_millis(2)); // the sender thread's turn
        }
    }
    panic!("2 GB found room");
}

#[test]
fn each_queue_policy_is_kept_when_a_subscriber_is_stuck() {
    let (_a, _b, mut publisher, _subscriber, go) = blocked_channel(qos::Queue::KeepAll(3));
    let (published, _) = fill(&mut publisher);
    assert_eq!((published.refused, published.queued, published.channels()), (1, 0, 1));
    drop(go);

    let (_a, _b, mut publisher, _subscriber, go) = blocked_channel(qos::Queue::KeepLast(3));
    let (published, _) = fill(&mut publisher);
    assert_eq!((published.refused, published.queued, published.dropped), (0, 1, 1));
    drop(go);

    let (_a, _b, mut publisher, _subscriber, go) = blocked_channel(qos::Queue::Block { limit: 3, up_to_us: 50_000 });
    let (published, took) = fill(&mut publisher);
    assert_eq!(published.refused, 1);
    assert!(took >= Duration::from_millis(50), "waited {took:?} for room");
    drop(go);
}

#[test]
fn closing_drains_or_drops_as_asked_and_never_hangs() {
    let (_a, _b, mut publisher, _subscriber, go) = blocked_channel(qos::Queue::KeepAll(3));
    fill(&mut publisher);
    let began = std::time::Instant::now();
    assert!(!publisher.close(Duration::from_millis(50)), "something was left");
    assert!(began.elapsed() < Duration::from_secs(10));
    drop(go);

    let (_a, _b, mut publisher, subscriber, go) = blocked_channel(qos::Queue::KeepAll(3));
    fill(&mut publisher);
    drop(go); // the subscriber continues
    assert!(publisher.close(LONG), "all of it was sent");
    assert_eq!(subscriber.channels().iter().map(|c| c.lost).sum::<u64>(), 0);
}
