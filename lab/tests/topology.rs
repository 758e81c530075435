//! Real topologies and parts: made, entered, used, and removed after any end of the run.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::Class;
use qos::priority::Mark;
use serde_json::{Value, json};
use std::io::BufRead;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_lab::part::{Part, Place};
use thalweg_lab::topology::{Edge, Graph, Queue, Topology, Wire};
use thalweg_lab::{Error, Lab, Options, Program, Stop};
use thalweg_lab::{iproute::ip, lab};

const LONG: Duration = Duration::from_secs(20);

/// Makes a topology, prints a line, and waits to be killed.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_victim() {
    let lab = open();
    let topology = Topology::switch(&lab, 2, &[]).unwrap();
    println!("@{}", topology.host(1).name());
    std::thread::sleep(LONG);
}

fn open() -> Lab {
    let program = Program::this(&["the_part", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).unwrap();
    Lab::open(Options::default(), Stop::default(), program, |_| {}).unwrap()
}

/// `true` if namespaces can be made here; prints the reason if not.
fn can(test: &str) -> bool {
    let lab = open();
    match Topology::link(&lab, &[]) {
        Ok(_) => true,
        Err(why) => {
            println!("skipped: {test}: because {why}");
            false
        }
    }
}

fn exists(namespace: &str) -> bool {
    ip(&["netns", "list"]).unwrap().lines().any(|line| line.split_whitespace().next() == Some(namespace))
}

/// Sends a datagram from the one host to the other.
fn reaches(topology: &Topology, from: u8, to: u8) -> bool {
    let address = Topology::address_of(to);
    let receiver = topology.host(to).within(|| UdpSocket::bind((address, 0)).unwrap()).unwrap();
    let sender = topology.host(from).within(|| UdpSocket::bind((Topology::address_of(from), 0)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(LONG)).unwrap();
    sender.send_to(b"there", receiver.local_addr().unwrap()).unwrap();
    receiver.recv(&mut [0; 16]).is_ok_and(|n| n == 5)
}

#[test]
fn hosts_reach_each_other_and_are_gone_afterwards() {
    if !can("hosts_reach_each_other_and_are_gone_afterwards") {
        return;
    }
    let lab = open();
    let mut made = Vec::new();
    for topology in [Topology::link(&lab, &[]), Topology::switch(&lab, 3, &[]), Topology::router(&lab, 3, &[])] {
        let topology = topology.unwrap();
        assert!(reaches(&topology, 1, 2) && reaches(&topology, 2, 1));
        made.push(topology.host(1).name().to_owned());
        assert!(exists(made.last().unwrap()));
        if topology.middle().is_ok() {
            assert!(reaches(&topology, 3, 1));
        }
    }
    let folder = lab.folder().to_owned();
    drop(lab);
    assert!(!made.iter().any(|name| exists(name)) && !folder.exists());
}

#[test]
fn marks_survive_two_routers_in_a_row() {
    if !can("marks_survive_two_routers_in_a_row") {
        return;
    }
    let lab = open();
    let topology = Topology::routers(&lab, &[]).unwrap();
    assert!(reaches(&topology, 1, 2) && reaches(&topology, 2, 1));
    // The queue at the second router's exit sorts them by code point.
    let (router, device) = (topology.beside(2).unwrap(), Topology::leads_to(2));
    Wire { rate: 100_000_000, limit: 100, queue: Queue::Classes }.install(router, &device).unwrap();
    let sent = |class: Class| 10 + 5 * class as u32;
    for class in Class::ALL {
        let send = || {
            let socket = UdpSocket::bind((Topology::address_of(1), 0)).unwrap();
            linux::marks::set(socket.as_fd(), &Mark::Class(class), 0).unwrap();
            (0..sent(class)).for_each(|_| assert!(socket.send_to(b"marked", (Topology::address_of(2), 9)).is_ok()));
        };
        topology.host(1).within(send).unwrap();
    }
    let until = Instant::now() + LONG;
    let wanted = Class::ALL.map(|class| u64::from(sent(class)));
    loop {
        let queues = router.within(|| linux::queueing::read(&device).unwrap()).unwrap();
        let counted = Class::ALL.map(|class| {
            let leaf = linux::queueing::Handle::new(0x7a2, 0x40 - 0x10 * class as u16);
            queues.class(leaf).unwrap().counters.packets
        });
        if counted == wanted {
            return;
        }
        assert!(Instant::now() < until, "{counted:?} packets were counted per class, {wanted:?} were sent");
    }
}

#[test]
fn a_panic_leaves_nothing() {
    if !can("a_panic_leaves_nothing") {
        return;
    }
    let name = std::sync::Mutex::new(String::new());
    let panicked = std::panic::catch_unwind(|| {
        let lab = open();
        let topology = Topology::link(&lab, &[]).unwrap();
        *name.lock().unwrap() = topology.host(1).name().to_owned();
        panic!("in the middle of an experiment");
    });
    let name = name.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(panicked.is_err() && !name.is_empty() && !exists(&name));
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    if !can("leftovers_of_a_killed_run_are_removed_by_the_next") {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args(["topology::the_victim", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let said = std::io::BufReader::new(victim.stdout.take().unwrap());
    // The harness has begun the line already.
    let said = said.lines().map_while(Result::ok).find_map(|l| l.split_once('@').map(|(_, name)| name.to_owned()));
    let name = said.unwrap();
    lab::sweep();
    assert!(exists(&name), "removed while its run was alive");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(exists(&name));
    lab::sweep();
    assert!(!exists(&name));
}

#[test]
fn a_part_is_told_and_heard_in_its_host_and_ends_with_its_pipe() {
    let lab = open();
    let mut part = Part::start(&lab, Place::default(), "echo", &json!({"greeting": 1})).unwrap();
    assert_eq!(part.hear::<Value>(&lab, LONG).unwrap(), json!({"greeting": 1}));
    assert_eq!(part.ask::<Value>(&lab, &json!({"n": 2}), LONG).unwrap(), json!({"n": 2}));
    let id = part.id();
    drop(part);
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

#[test]
fn the_failure_of_a_part_is_reported() {
    let lab = open();
    let mut part = Part::start(&lab, Place::default(), "clown", &json!({})).unwrap();
    let said = part.hear::<Value>(&lab, LONG).unwrap_err().to_string();
    assert!(said.contains("role \"clown\" is none"), "{said}");
    let nowhere = Place { namespace: Some("no-such-namespace".into()), processors: vec![], nice: 0 };
    let said = Part::start(&lab, nowhere, "echo", &json!({})).unwrap().hear::<Value>(&lab, LONG).unwrap_err();
    assert!(matches!(&said, Error::System(text) if text.contains("no-such-namespace")), "{said}");
}

#[test]
fn a_request_to_stop_is_obeyed() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let program = Program::this(&[]).unwrap();
    let lab = Lab::open(Options::default(), Stop::by(asked), program, |_| {}).unwrap();
    assert!(matches!(Topology::link(&lab, &[]), Err(Error::Stopped)));
    assert!(matches!(lab.stop.sleep(LONG), Err(Error::Stopped)));
}

#[test]
fn hosts_of_a_graph_forward_and_its_lines_count() {
    if !can("hosts_of_a_graph_forward_and_its_lines_count") {
        return;
    }
    let lab = open();
    let edge = |a, b| Edge { between: [a, b], rate: 10_000_000 };
    // A star, its hub is 3.
    let graph = Graph::new(&lab, 4, &[edge(1, 3), edge(2, 3), edge(4, 3)], 0).unwrap();
    let bound = |n: u8| {
        let socket = graph.host(n).within(|| UdpSocket::bind((Topology::address_of(n), 0)).unwrap()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    };
    let (sender, receiver) = (bound(1), bound(4));
    let to = receiver.local_addr().unwrap();
    // 14 + 20 + 8 bytes around each.
    sender.send_to(&[1; 58], to).unwrap();
    assert_eq!(receiver.recv_from(&mut [0; 100]).unwrap(), (58, sender.local_addr().unwrap()));
    let counts = graph.counts().unwrap();
    let datagrams = |edge: usize, way: usize| (counts[edge][way].datagrams, counts[edge][way].bytes);
    assert_eq!((datagrams(0, 0), datagrams(2, 1)), ((1, 100), (1, 100)));
    // Nothing else, and no packet from the kernel itself.
    let sent: u64 = counts.iter().flatten().map(|count| count.sent).sum();
    assert_eq!(sent, 200, "{counts:?}");
    // Once a period: each line sends a datagram on when the next one comes.
    graph.change(|line| line.periodic = true);
    for number in 2..=4 {
        sender.send_to(&[number; 58], to).unwrap();
    }
    let mut got = [0; 100];
    receiver.recv_from(&mut got).unwrap();
    assert_eq!((got[0], graph.counts().unwrap()[2][1].datagrams), (2, 3));
    graph.change(|line| line.periodic = false);
    for number in [3, 4] {
        receiver.recv_from(&mut got).unwrap();
        assert_eq!(got[0], number);
    }
}
