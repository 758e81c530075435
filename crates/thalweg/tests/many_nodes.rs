//! Many nodes on one host: each has connections to nodes with a common topic, and to no others.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Settings};
use world::{World, figure};

/// Number of nodes, and of processes: a node counts as one with or without a process of its own.
const PROCESSES: usize = 4;
const LONG: Duration = Duration::from_secs(120);
/// Realm, number of all nodes, first node and number of nodes of a process.
const CROWD: &str = "THALWEG_TEST_CROWD";
const MOST_DESCRIPTORS: f64 = 64.0;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn told(what: &str, started: Instant, nodes: usize, before: usize) {
    let each = (descriptors() - before) as f64 / nodes as f64;
    println!("@{what} {} {each:.1}", started.elapsed().as_millis());
}

fn wait_for_a_line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_crowd() {
    let Ok(crowd) = std::env::var(CROWD) else { return };
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let mut words = crowd.split(' ');
    let realm = words.next().unwrap().to_owned();
    let [all, first, count] = [(); 3].map(|()| words.next().unwrap().parse::<usize>().unwrap());
    let (before, started) = (descriptors(), Instant::now());
    let open = |number: usize| {
        let name = format!("node{number}");
        let node = Node::with_settings(Settings { name, realm: realm.clone(), ..Settings::default() }).unwrap();
        let publisher = node.publisher::<Raw>(&format!("/t{number}")).open().unwrap();
        (number, node, publisher)
    };
    let mut nodes: Vec<_> = (first..first + count).map(open).collect();
    told("opened", started, count, before);
    wait_for_a_line();
    let started = Instant::now();
    let subscribe = |(number, node, _): &(usize, Node, _)| {
        let other = (number + all / 2) % all; // of another process
        node.subscriber::<Raw>(&format!("/t{other}")).carriers(["tcp"]).open().unwrap()
    };
    let subscribers: Vec<_> = nodes.iter().map(subscribe).collect();
    let matched = nodes.iter_mut().all(|(_, _, publisher)| publisher.wait_connected(1, LONG));
    told(if matched { "matched" } else { "not-matched" }, started, count, before);
    wait_for_a_line();
    drop((subscribers, nodes));
    println!("@closed 0 0");
}

struct Crowd(Child, ChildStdin, std::io::Lines<BufReader<std::process::ChildStdout>>);

impl Crowd {
    fn new(world: &World, all: usize, part: usize) -> Self {
        let count = all / PROCESSES;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["many_nodes::the_crowd", "--exact", "--ignored", "--nocapture"]);
        child.env(CROWD, format!("{} {all} {} {count}", world.realm(), part * count));
        child.env("THALWEG_RUN_DIR", world.run_dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let input = child.stdin.take().unwrap();
        Self(child, input, lines)
    }

    /// The time and the number of descriptors in the next report of each node.
    fn told(&mut self, expected: &str) -> (f64, f64) {
        loop {
            let line = self.2.next().expect("it ended").unwrap();
            let Some((_, text)) = line.split_once('@') else { continue };
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(words[0], expected);
            return (words[1].parse().unwrap(), words[2].parse().unwrap());
        }
    }

    fn go_on(&mut self) {
        self.1.write_all(b"\n").unwrap();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn a_node_has_connections_to_nodes_with_a_common_topic() {
    let _alone = world::alone();
    let world = World::new();
    let all = if world::long() { 1000 } else { 200 };
    let started = Instant::now();
    let mut crowds: Vec<Crowd> = (0..PROCESSES).map(|part| Crowd::new(&world, all, part)).collect();
    let worst = |told: Vec<(f64, f64)>| told.into_iter().fold((0.0_f64, 0.0_f64), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    let opened = worst(crowds.iter_mut().map(|crowd| crowd.told("opened")).collect());
    let open_after = started.elapsed();
    crowds.iter_mut().for_each(Crowd::go_on);
    let matched = worst(crowds.iter_mut().map(|crowd| crowd.told("matched")).collect());
    figure(
        "many nodes",
        format!(
            "{all} nodes in {PROCESSES} processes were open after {open_after:.1?} with {} descriptors each, and each had its two \
             channels {} ms later with {} descriptors each",
            opened.1, matched.0, matched.1
        ),
    );
    assert!(opened.1 <= MOST_DESCRIPTORS, "{} descriptors of a node that shares nothing", opened.1);
    crowds.iter_mut().for_each(Crowd::go_on);
    for crowd in &mut crowds {
        crowd.told("closed");
    }
    drop(crowds);
    assert_eq!(world.left_behind(), Vec::<String>::new());
}

#[test]
fn a_node_that_lists_nodes_sees_all_and_names_are_unique_across_topics() {
    let _beside = world::beside();
    let realm = format!("sees-{}", std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), ..Settings::default() }).unwrap()
    };
    let (first, second) = (node("first"), node("second"));
    let _a = first.publisher::<Raw>("/a").named("/name").open().unwrap();
    let _b = second.publisher::<Raw>("/b").open().unwrap();
    // The control thread of the first node may not have announced its port yet: names are unique among nodes that
    // know each other.
    let is_taken = || {
        let taken = second.publisher::<Raw>("/c").named("/name").open();
        matches!(taken, Err(thalweg::Error::NameTaken { .. }))
    };
    // A port that was opened and closed again is no event that `wait_until` would wake for.
    let taken = world::eventually(world::LONG, || is_taken().then_some(()));
    assert!(taken.is_some(), "a name that a node of another topic has");
    let third = node("third");
    assert_eq!(third.nodes().len(), 3);
    let fourth = node("fourth");
    assert!(third.wait_until(world::LONG, || third.nodes().len() == 4), "who comes later shows itself");
    let connect = |subscriber: &str| thalweg::admin::Request::Connect {
        publisher: "/name".into(),
        subscriber: subscriber.into(),
        carrier: None,
    };
    // Two nodes without a common topic are connected by name.
    let mut apart = fourth.subscriber::<Raw>("/elsewhere").named("/apart").open().unwrap();
    let done = third.ask(fourth.id(), &connect("/apart"), world::LONG);
    assert!(done.is_ok(), "{done:?}");
    let mut publisher = _a;
    assert!(publisher.wait_connected(1, world::LONG));
    publisher.publish(b"x").unwrap();
    assert!(apart.wait(world::LONG).is_some());
}

/// The number of new nodes may be smaller than that of the nodes seen before and forgotten meanwhile: new ones are
/// waited for, too.
#[test]
fn a_late_list_of_nodes_waits_for_new_ones() {
    let _beside = world::beside();
    const FORGOTTEN: Duration = Duration::from_millis(1100); // after a second
    let realm = format!("later-{}", std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), ..Settings::default() }).unwrap()
    };
    let met = ["a", "b", "c"].map(node);
    let _subscribers = met.each_ref().map(|node| node.subscriber::<Raw>("/shared").open().unwrap());
    let asks = node("asks");
    let publisher = asks.publisher::<Raw>("/shared").open().unwrap();
    assert!(publisher.wait_connected(3, world::LONG));
    let _new = ["d", "e"].map(node);
    std::thread::sleep(FORGOTTEN);
    assert_eq!(asks.nodes().len(), 6);
}
