use super::*;
use crate::testing::Manual;
use thalweg::Change;
use thalweg::codec::{Message, Raw};
use thalweg::control::{NodeId, PortId};

const TOPIC: &str = "/a";
const EACH: u64 = 100;

fn info(port: u32, seq: u64) -> SampleInfo {
    SampleInfo {
        node: NodeId(7),
        port: PortId(port),
        incarnation: 1,
        seq,
        source_ns: 0,
        received_ns: 0,
        same_clock: true,
        historical: false,
        change: Change::Written,
        scaled: None,
    }
}

fn take(lines: &Lines, port: u32, seqs: impl Iterator<Item = u64>) {
    seqs.for_each(|seq| lines.take(&info(port, seq), &seq.to_le_bytes()));
}

fn open(lines: &Lines, engine: &Manual, port: u32) {
    let (topic, message) = (TOPIC.to_owned(), Raw::description().as_ref().clone());
    let (publisher_name, there) = ("/p".to_owned(), topic.clone());
    let route = Out { publisher: publisher_name, topic, there, message, qos: Qos::default(), way: Vec::new() };
    let line = Line::open(engine, &route).unwrap();
    lock(&lines.open).insert(publisher(&info(port, 0)), Arc::new(line));
}

fn left(engine: &Manual) -> Vec<u64> {
    engine.left().iter().map(|(_, message)| u64::from_le_bytes(message[..].try_into().unwrap())).collect()
}

#[test]
fn a_sample_does_not_overtake_those_that_came_before_its_publisher_was_known() {
    for _ in 0..20 {
        let (lines, engine) = (Arc::new(Lines::default()), Manual::default());
        take(&lines, 1, 0..EACH);
        open(&lines, &engine, 1);
        engine.hold(TOPIC);
        Lines::send_early_apart(&lines);
        let taking = lines.clone();
        let callback = std::thread::spawn(move || take(&taking, 1, EACH..2 * EACH));
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        engine.release(TOPIC);
        callback.join().unwrap();
        assert_eq!(left(&engine), (0..2 * EACH).collect::<Vec<_>>());
        assert_eq!(lines.sent.load(Ordering::Relaxed), 2 * EACH);
    }
}

#[test]
fn a_subscriber_that_opens_anew_does_not_overtake_the_one_before() {
    for _ in 0..20 {
        let (lines, engine) = (Arc::new(Lines::default()), Manual::default());
        open(&lines, &engine, 1);
        engine.hold(TOPIC);
        let before = lines.clone();
        let before = std::thread::spawn(move || take(&before, 1, 0..1));
        while engine.waiting() == 0 {
            std::thread::yield_now();
        }
        let anew = lines.clone();
        let anew = std::thread::spawn(move || take(&anew, 1, 1..EACH));
        std::thread::yield_now();
        engine.release(TOPIC);
        [before, anew].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(left(&engine), (0..EACH).collect::<Vec<_>>());
    }
}

#[test]
fn samples_wait_while_nothing_is_known_of_their_publisher() {
    let (lines, engine) = (Arc::new(Lines::default()), Manual::default());
    let [known, unknown] = [1, 2].map(|port| publisher(&info(port, 0)));
    take(&lines, 1, 0..3);
    take(&lines, 2, 3..6);
    lines.ignore(|at| *at == known);
    take(&lines, 1, 6..9);
    assert!(lock(&lines.ignored).contains(&known) && !lock(&lines.early).iter().any(|info| publisher(info) == known));
    open(&lines, &engine, unknown.port.0);
    lines.send_early();
    assert_eq!(left(&engine), [3, 4, 5]);
}

#[test]
fn samples_that_have_no_room_to_wait_are_told() {
    let (lines, engine) = (Arc::new(Lines::default()), Manual::default());
    let most = early::MOST as u64;
    take(&lines, 1, 0..most);
    assert_eq!(*lock(&lines.failed), None);
    take(&lines, 1, most..most + 1);
    assert!(lock(&lines.failed).take().unwrap().to_string().contains("dropped"));
    open(&lines, &engine, 1);
    lines.send_early();
    assert_eq!(left(&engine), (1..=most).collect::<Vec<_>>());
}
