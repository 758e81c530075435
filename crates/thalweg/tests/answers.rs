//! Answers over TCP go back on the connection of their questions, and no answer is lost when they move there.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::Queue;
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings, Subscriber};

const LONG: Duration = Duration::from_secs(20);

fn nodes(realm: &str) -> (Node, Node) {
    let open = |name: &str| {
        let realm = format!("{realm}-{}", std::process::id());
        Node::with_settings(Settings { name: name.to_owned(), realm, ..Settings::default() }).unwrap()
    };
    (open("asking"), open("answering"))
}

/// The connections between ports of two nodes of this process, by the local and remote ends of the flows.
fn connections(of: &[&Node]) -> usize {
    let own: BTreeSet<u16> = of.iter().flat_map(|n| n.nodes()).flat_map(|d| d.addresses).map(|a| a.port()).collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let established = table.lines().skip(1).filter(|line| line.split_whitespace().nth(3) == Some("01"));
    let port = |end: &str| u16::from_str_radix(end.rsplit(':').next().unwrap(), 16).unwrap();
    // Each connection has one end at a listener's port.
    established.filter(|line| own.contains(&port(line.split_whitespace().nth(1).unwrap()))).count()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port that passes on its samples.
fn hearing(node: &Node, topic: &str) -> (Subscriber<Raw>, mpsc::Receiver<(u64, Vec<u8>)>) {
    let (tell, told) = mpsc::channel();
    let port = node.subscriber::<Raw>(topic).carriers(["tcp"]);
    let port = port.callback(move |sample| drop(tell.send((sample.info().seq, sample.to_vec())))).unwrap();
    (port, told)
}

fn asking(node: &Node, topic: &str, answers: &Subscriber<Raw>) -> Publisher<Raw> {
    node.publisher(topic).carriers(["tcp"]).queue(Queue::KeepAll(64)).answered_at(answers).open().unwrap()
}

/// Answers each question with itself.
fn answering(node: &Node, topic: &str, mut with: Publisher<Raw>) -> Subscriber<Raw> {
    let port = node.subscriber::<Raw>(topic).carriers(["tcp"]).answering_with(&with);
    port.callback(move |question| drop(with.publish(&question))).unwrap()
}

fn ask(questions: &mut Publisher<Raw>, told: &mpsc::Receiver<(u64, Vec<u8>)>, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert_eq!(questions.publish(&number.to_le_bytes()).unwrap().channels(), 1);
        assert_eq!(told.recv_timeout(LONG).unwrap().1, number.to_le_bytes());
    }
}

#[test]
fn a_question_and_its_answer_share_one_connection_in_any_order_of_opening() {
    for order in 0..2 {
        let (a, b) = nodes(&format!("share-{order}"));
        let (answers, told);
        let (mut questions, _server);
        if order == 0 {
            (answers, told) = hearing(&a, "/answers");
            questions = asking(&a, "/questions", &answers);
            let with = b.publisher::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
            _server = answering(&b, "/questions", with);
        } else {
            let with = b.publisher::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
            _server = answering(&b, "/questions", with);
            (answers, told) = hearing(&a, "/answers");
            questions = asking(&a, "/questions", &answers);
        }
        assert!(questions.wait_connected(1, LONG) && answers.wait_connected(1, LONG));
        until("one connection carries both channels", || connections(&[&a, &b]) == 1);
        ask(&mut questions, &told, 0..200);
        assert_eq!((connections(&[&a, &b]), answers.channels().len()), (1, 1));
    }
}

#[test]
fn a_stream_of_answers_moves_to_the_connection_of_the_questions_without_loss() {
    let (a, b) = nodes("move");
    let (answers, told) = hearing(&a, "/answers");
    let mut with = b.publisher::<Raw>("/answers").carriers(["tcp"]).queue(Queue::KeepAll(1024)).open().unwrap();
    assert!(with.wait_connected(1, LONG) && answers.wait_connected(1, LONG));
    let questions = asking(&a, "/questions", &answers);
    let server = b.subscriber::<Raw>("/questions").carriers(["tcp"]).answering_with(&with);
    let (go, gone) = mpsc::channel();
    let stream = std::thread::spawn(move || {
        for number in 1..=2000u64 {
            assert!(with.publish(&number.to_le_bytes()).unwrap().channels() > 0);
            if number == 300 {
                go.send(()).unwrap();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        with
    });
    gone.recv().unwrap();
    let _server = server.callback(|_| ()).unwrap();
    assert!(questions.wait_connected(1, LONG));
    for expected in 1..=2000u64 {
        let (seq, bytes) = told.recv_timeout(LONG).unwrap_or_else(|_| panic!("answer {expected} did not arrive"));
        assert_eq!((seq, bytes), (expected, expected.to_le_bytes().to_vec()));
    }
    let _with = stream.join().unwrap();
    until("one connection is left", || connections(&[&a, &b]) == 1);
    assert!(told.try_recv().is_err(), "no answer came twice");
}

#[test]
fn answers_that_wait_when_their_stream_moves_arrive_too() {
    const COUNT: u64 = 120;
    let (a, b) = nodes("wait");
    let (release, released) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let port = a.subscriber::<Raw>("/answers").carriers(["tcp"]);
    let mut first = true;
    let answers = port
        .callback(move |sample| {
            if std::mem::take(&mut first) {
                let _ = released.recv_timeout(LONG);
            }
            tell.send(sample.info().seq).unwrap();
        })
        .unwrap();
    let with = b.publisher::<Raw>("/answers").carriers(["tcp"]).queue(Queue::KeepAll(1024));
    let mut with = with.open().unwrap();
    assert!(with.wait_connected(1, LONG));
    let large = vec![7; 256 << 10]; // 30 MiB: more than two sockets hold
    for _ in 0..COUNT {
        with.publish(&large).unwrap();
    }
    assert!(with.channels()[0].waiting > 0, "{:?}", with.channels());
    let questions = asking(&a, "/questions", &answers);
    let _server = b.subscriber::<Raw>("/questions").carriers(["tcp"]).answering_with(&with).callback(|_| ()).unwrap();
    assert!(questions.wait_connected(1, LONG));
    until("both channels are there", || with.connected() == 2);
    release.send(()).unwrap();
    for expected in 1..=COUNT {
        assert_eq!(told.recv_timeout(LONG).ok(), Some(expected));
    }
    until("the older channel has ended", || with.connected() == 1 && connections(&[&a, &b]) == 1);
    with.publish(b"last").unwrap();
    assert_eq!(told.recv_timeout(LONG).ok(), Some(COUNT + 1));
}

#[test]
fn either_end_may_leave_and_come_back() {
    let (a, b) = nodes("leave");
    let (answers, told) = hearing(&a, "/answers");
    let mut questions = asking(&a, "/questions", &answers);
    for round in 0..3 {
        let with = b.publisher::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
        let server = answering(&b, "/questions", with);
        until("both channels are there", || questions.connected() == 1 && answers.connected() == 1);
        ask(&mut questions, &told, round * 10..round * 10 + 10);
        drop(server); // and with it the answering port
        until("both channels are gone", || questions.connected() == 0 && answers.connected() == 0);
    }
    // Only the port of the answers leaves: questions still arrive.
    let with = b.publisher::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
    let (heard, hears) = mpsc::channel();
    let port = b.subscriber::<Raw>("/questions").carriers(["tcp"]).answering_with(&with);
    let _server = port.callback(move |sample| drop(heard.send(sample.to_vec()))).unwrap();
    until("both channels are there", || questions.connected() == 1 && answers.connected() == 1);
    drop(with);
    until("the answers' channel is gone", || answers.connected() == 0);
    until("a question arrives", || {
        let _ = questions.publish(b"still there?");
        hears.recv_timeout(Duration::from_millis(50)).is_ok()
    });
}

#[test]
fn a_port_of_another_node_cannot_wait_for_the_answers() {
    let (a, b) = nodes("foreign");
    let (answers, _told) = hearing(&a, "/answers");
    let refused = b.publisher::<Raw>("/questions").answered_at(&answers).open();
    assert!(matches!(refused, Err(thalweg::Error::Usage(text)) if text.contains("another node")));
}
