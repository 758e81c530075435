//! Duties of every discovery back end, and a node that consists of a mailbox and a directory, to test them with.

use crate::codec::TypeDescription;
use crate::control::directory::{Applied, Directory};
use crate::control::{
    CONTROL_LINK, Direction, Discovery, Document, Event, NodeId, Origin, PortId, PortInfo, Ports, Sink,
};
use linux::poll::{Waker, wait_any_readable};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time of any condition on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// A document without ports.
pub fn document(node: u64) -> Document {
    Document {
        node: NodeId(node),
        name: format!("node-{node}"),
        realm: "test".into(),
        host: "host".into(),
        host_name: "host".into(),
        clock: "clock".into(),
        pid: 1,
        incarnation: node,
        revision: 1,
        addresses: Vec::new(),
        socket: None,
        ports: Ports::new(),
        relay: None,
    }
}

/// A port with default QoS.
pub fn port(direction: Direction, name: &str, topic: &str) -> PortInfo {
    PortInfo {
        name: name.into(),
        direction,
        topic: topic.into(),
        message: TypeDescription::opaque("test"),
        qos: qos::Qos::default(),
        carriers: vec!["tcp".into()],
        answers: None,
        pull: Default::default(),
        foreign: None,
    }
}

/// The listener to which a back end's peers connect.
pub enum Listener {
    /// A unix socket.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
}

/// The back end of one node, with its listener.
pub struct Back {
    discovery: Box<dyn Discovery>,
    listener: Option<Listener>,
    _keep: Box<dyn std::any::Any + Send>,
}

impl Back {
    /// A back end without a listener.
    pub fn new(discovery: impl Discovery + 'static) -> Self {
        Self { discovery: Box::new(discovery), listener: None, _keep: Box::new(()) }
    }
    /// A back end whose peers connect to `listener`; `keep` lives as long as the node.
    pub fn listening(discovery: impl Discovery + 'static, listener: Listener, keep: impl Send + 'static) -> Self {
        Self { discovery: Box::new(discovery), listener: Some(listener), _keep: Box::new(keep) }
    }
}

/// A network in which nodes can start.
pub trait Stage {
    /// Makes the back end of a new node; may add addresses to its document.
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back;

    /// Starts a node.
    fn node(&mut self, mut document: Document) -> TestNode {
        let (mail, mailbox) = channel();
        let to_node = mail.clone();
        let back = self.back(&mut document, Sink::new(move |event| drop(to_node.send(Mail::Event(event)))));
        TestNode::start(document, back, mail, mailbox)
    }
}

type Job = Box<dyn FnOnce(&mut Seen, &mut dyn Discovery) + Send>;

enum Mail {
    Event(Event),
    Stream(OwnedFd),
    Do(Job),
    Stop,
}

/// Everything that a node has seen.
pub struct Seen {
    /// Its own document.
    pub document: Document,
    /// Its directory of other nodes.
    pub directory: Directory,
    /// Answers to its calls.
    pub answers: Vec<(NodeId, u64, Vec<u8>)>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Number of its requests for a refresh.
    pub refreshes: usize,
    /// Number of changes to drop before the directory sees them.
    pub lose: usize,
}

/// A node with a control thread (and an acceptor, if its back end listens).
pub struct TestNode {
    mail: Sender<Mail>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    stop: Arc<Waker>,
    threads: Vec<JoinHandle<()>>,
}

impl TestNode {
    fn start(document: Document, back: Back, mail: Sender<Mail>, mailbox: Receiver<Mail>) -> Self {
        let directory = Directory::new();
        let (answers, warnings) = (Vec::new(), Vec::new());
        let seen = Seen { document, directory, answers, warnings, refreshes: 0, lose: 0 };
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let stop = Arc::new(Waker::new().unwrap());
        let Back { mut discovery, listener, _keep } = back;
        let mut threads = Vec::new();
        if let Some(listener) = listener {
            let (stop, mail) = (stop.clone(), mail.clone());
            threads.push(std::thread::spawn(move || accept(&listener, &stop, &mail)));
        }
        let state = seen.clone();
        threads.push(std::thread::spawn(move || {
            let _keep = _keep;
            while let Ok(mail) = mailbox.recv() {
                let mut seen = state.0.lock().unwrap();
                match mail {
                    Mail::Event(event) => handle(&mut seen, &mut *discovery, event),
                    Mail::Stream(stream) => drop(discovery.adopt(stream, None)),
                    Mail::Do(job) => job(&mut seen, &mut *discovery),
                    Mail::Stop => break,
                }
                state.1.notify_all();
            }
        }));
        Self { mail, seen, stop, threads }
    }

    /// Waits until the condition holds for the node's view.
    pub fn until(&self, what: &str, mut condition: impl FnMut(&Seen) -> bool) {
        let seen = self.seen.0.lock().unwrap();
        let (seen, timeout) = self.seen.1.wait_timeout_while(seen, LONG, |seen| !condition(seen)).unwrap();
        let known: Vec<_> = seen.directory.nodes().map(|d| (d.node, d.revision, d.ports.len())).collect();
        let state = format!("known (node, revision, ports): {known:?}; warnings: {:?}", seen.warnings);
        drop(seen);
        assert!(!timeout.timed_out(), "{what} did not happen; {state}");
    }

    /// Runs `job` on the node's control thread and returns its result.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce(&mut Seen, &mut dyn Discovery) -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        let job: Job = Box::new(move |seen, discovery| drop(tell.send(job(seen, discovery))));
        self.mail.send(Mail::Do(job)).unwrap();
        told.recv().unwrap()
    }

    /// Adds and removes ports.
    pub fn edit(&self, added: &[u32], removed: &[u32]) {
        let made = |n: &u32| (PortId(*n), port(Direction::Publisher, &format!("/port{n}"), "/topic"));
        let (added, removed) = (added.iter().map(made).collect(), removed.iter().map(|n| PortId(*n)).collect());
        self.run(move |seen, discovery| {
            let change = seen.document.edit(added, removed);
            discovery.announce(&Arc::new(seen.document.clone()), &change);
        });
    }

    /// Its document now.
    pub fn document(&self) -> Document {
        self.seen.0.lock().unwrap().document.clone()
    }

    /// Calls `other` and waits for the answer. Earlier announcements have then arrived, if calls and changes travel
    /// on one link.
    pub fn asks(&self, other: &TestNode, id: u64) {
        let to = other.document().node;
        self.run(move |_, discovery| assert!(discovery.call(to, id, b"there?")));
        self.until("an answer", |seen| seen.answers.iter().any(|(_, answered, _)| *answered == id));
    }

    /// Waits until this node knows exactly the document of `other`.
    pub fn learns(&self, other: &TestNode) {
        let expected = other.document();
        let what = format!("that node {} knows {} as it is", self.document().node, expected.node);
        self.until(&what, |seen| seen.directory.node(expected.node) == Some(&expected));
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop.wake();
        let _ = self.mail.send(Mail::Stop);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a thread of a node panicked");
        }
    }
}

fn handle(seen: &mut Seen, discovery: &mut dyn Discovery, event: Event) {
    match event {
        Event::Call { from, id, request, .. } => {
            let answer: Vec<u8> = request.into_iter().rev().collect();
            assert!(discovery.answer(from, id, &answer), "the caller is known");
        }
        Event::Answer { from, id, answer } => seen.answers.push((from, id, answer)),
        Event::Warning(text) => seen.warnings.push(text),
        Event::Change(..) if seen.lose > 0 => seen.lose -= 1,
        event => {
            if let Applied::RefreshNeeded(node) = seen.directory.apply(Origin::this_user(), event) {
                seen.refreshes += 1;
                discovery.refresh(node);
            }
        }
    }
}

fn accept(listener: &Listener, stop: &Waker, mail: &Sender<Mail>) {
    let mut ready = Vec::new();
    loop {
        let descriptor = match listener {
            Listener::Unix(l) => l.as_fd(),
            Listener::Tcp(l) => l.as_fd(),
        };
        wait_any_readable(&[stop.as_fd(), descriptor], &mut ready, None).unwrap();
        if ready.first() == Some(&true) {
            return;
        }
        let mut first = [0];
        let stream: OwnedFd = match listener {
            Listener::Unix(l) => first_byte(l.accept().unwrap().0, &mut first).into(),
            Listener::Tcp(l) => first_byte::<TcpStream>(l.accept().unwrap().0, &mut first).into(),
        };
        if first == [CONTROL_LINK] {
            let _ = mail.send(Mail::Stream(stream));
        }
    }
}

trait Patient: Read {
    fn patience(&self);
}
impl Patient for UnixStream {
    fn patience(&self) {
        self.set_read_timeout(Some(LONG)).unwrap();
    }
}
impl Patient for TcpStream {
    fn patience(&self) {
        self.set_read_timeout(Some(LONG)).unwrap();
    }
}

fn first_byte<S: Patient>(mut stream: S, byte: &mut [u8; 1]) -> S {
    stream.patience();
    let _ = stream.read_exact(byte);
    stream
}

/// Runs all tests of a back end.
pub fn conforms<S: Stage>(stage: impl Fn() -> S) {
    nodes_see_each_other_and_changes(stage());
    a_late_joiner_gets_the_whole_state(stage());
    recovers_from_gaps(stage());
    calls_are_answered(stage());
    a_node_that_leaves_is_gone(stage());
}

/// Two nodes see each other; ports come and go.
pub fn nodes_see_each_other_and_changes(mut stage: impl Stage) {
    let (a, b) = (stage.node(document(1)), stage.node(document(2)));
    a.learns(&b);
    b.learns(&a);
    a.edit(&[1, 2, 3], &[]);
    b.learns(&a);
    a.edit(&[4], &[1, 2]);
    b.edit(&[1], &[]);
    b.learns(&a);
    a.learns(&b);
    b.until("the ports to be found", |seen| seen.directory.ports_on("/topic").len() == 2);
}

/// A node that comes later learns everything, and all others learn of it.
pub fn a_late_joiner_gets_the_whole_state(mut stage: impl Stage) {
    let (a, b) = (stage.node(document(1)), stage.node(document(2)));
    a.edit(&(0..50).collect::<Vec<_>>(), &[]);
    a.edit(&[], &[7, 8]);
    let late = stage.node(document(3));
    for (who, whom) in [(&late, &a), (&late, &b), (&a, &late), (&b, &late)] {
        who.learns(whom);
    }
    assert_eq!(late.document().ports.len(), 0);
    late.until("all ports to be known", |seen| seen.directory.port_count() == 48);
}

/// A lost change is noticed by the next one, and the full state fetched.
pub fn recovers_from_gaps(mut stage: impl Stage) {
    let (a, b) = (stage.node(document(1)), stage.node(document(2)));
    b.learns(&a);
    a.learns(&b);
    b.run(|seen, _| seen.lose = 1);
    for port in 1.. {
        assert!(port < 500, "no gap was seen in 500 changes");
        a.edit(&[port], &[]);
        a.asks(&b, u64::from(port));
        let expected = a.document();
        if b.run(move |seen, _| seen.refreshes > 0 && seen.directory.node(NodeId(1)) == Some(&expected)) {
            break;
        }
    }
    b.run(|_, discovery| assert!(discovery.refresh(NodeId(1)), "a refresh needs no gap"));
    b.learns(&a);
}

/// Calls reach their node, and answers their caller; a call to an unknown node is refused.
pub fn calls_are_answered(mut stage: impl Stage) {
    let (a, b, c) = (stage.node(document(1)), stage.node(document(2)), stage.node(document(3)));
    for (who, whom) in [(&a, &b), (&b, &a), (&a, &c), (&c, &a)] {
        who.learns(whom);
    }
    let big: Vec<u8> = (0..1_500_000u32).map(|n| (n % 251) as u8).collect();
    let sent = big.clone();
    a.run(move |_, discovery| {
        assert!(discovery.call(NodeId(2), 7, b"abc"));
        assert!(discovery.call(NodeId(3), 8, &sent));
        assert!(!discovery.call(NodeId(99), 9, b"") && !discovery.answer(NodeId(99), 9, b""));
        assert!(!discovery.refresh(NodeId(99)));
    });
    let reversed: Vec<u8> = big.into_iter().rev().collect();
    a.until("both answers", |seen| seen.answers.len() == 2);
    a.run(move |seen, _| {
        seen.answers.sort();
        assert!(seen.answers[0] == (NodeId(2), 7, b"cba".to_vec()) && seen.answers[1] == (NodeId(3), 8, reversed));
    });
}

/// A node that leaves is gone for all others, which stay.
pub fn a_node_that_leaves_is_gone(mut stage: impl Stage) {
    let (a, b, c) = (stage.node(document(1)), stage.node(document(2)), stage.node(document(3)));
    for (who, whom) in [(&a, &b), (&a, &c), (&c, &a), (&c, &b)] {
        who.learns(whom);
    }
    drop(b);
    for node in [&a, &c] {
        node.until("node 2 to be gone", |seen| seen.directory.node(NodeId(2)).is_none());
    }
    a.learns(&c);
    a.run(|_, discovery| assert!(!discovery.call(NodeId(2), 1, b"")));
    let again = stage.node(document(4));
    a.learns(&again);
    again.learns(&a);
}

/// 100 nodes with 10 ports each know each other; prints the time.
pub fn hundred_nodes(name: &str, stage: &mut impl Stage) {
    const NODES: u64 = 100;
    let start = Instant::now();
    let with_ports = |n: u64| {
        let mut made = document(n);
        let ports = (0..10).map(|p| (PortId(p), port(Direction::Publisher, &format!("/n{n}/p{p}"), &format!("/t{p}"))));
        made.ports = ports.collect();
        made
    };
    let nodes: Vec<_> = (1..=NODES).map(|n| stage.node(with_ports(n))).collect();
    let started = start.elapsed();
    for node in &nodes {
        node.until("all ports to be known", |seen| seen.directory.port_count() == 10 * (NODES as usize - 1));
    }
    let took = start.elapsed();
    println!("{name}: 1,000 ports on 100 nodes known to all after {took:.0?} (started within {started:.0?})");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
