use super::*;
use crate::control::CONTROL_LINK;
use crate::control::local::LocalEndpoint;
use crate::testing::TempDir;
use crate::testing::discovery::{self, Back, Listener, Stage, TestNode, document};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::Instant;

const LONG: Duration = Duration::from_secs(20);

/// Nodes of one host.
struct Local(TempDir);

impl Stage for Local {
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
        let (listener, endpoint) = LocalEndpoint::bind_in(self.0.path(), &document.realm, document.node).unwrap();
        let links = Links::start(Arc::new(document.clone()), vec![endpoint.others()], sink).unwrap();
        Back::listening(links, Listener::Unix(listener), endpoint)
    }
}

/// Nodes with TCP addresses that all stand in every node's list.
struct Listed {
    free: Vec<TcpListener>,
    all: Vec<SocketAddr>,
}

impl Listed {
    fn new() -> Self {
        let free: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let all = free.iter().map(|l| l.local_addr().unwrap()).collect();
        Self { free, all }
    }
}

impl Stage for Listed {
    fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
        let listener = self.free.pop().unwrap();
        let links = Links::start(Arc::new(document.clone()), vec![Source::Addresses(self.all.clone())], sink).unwrap();
        Back::listening(links, Listener::Tcp(listener), ())
    }
}

#[test]
fn local_links_conform() {
    discovery::conforms(|| Local(TempDir::new()));
}

#[test]
fn links_to_listed_addresses_conform() {
    discovery::conforms(Listed::new);
}

#[test]
fn a_hundred_local_nodes_know_a_thousand_ports() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    if maximum.is_some_and(|most| most < 12_000) {
        return println!("skipped: 10,000 sockets in one process, {maximum:?} descriptors allowed");
    }
    discovery::hundred_nodes("local links", &mut Local(TempDir::new()));
}

/// The sink of events, and the receiver from which they are read.
fn sink() -> (Sink, std::sync::mpsc::Receiver<(Origin, Event)>) {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = Mutex::new(tell);
    (Sink::with_origin(move |origin, event| drop(tell.lock().unwrap().send((origin, event))), || true), told)
}

/// A node known from another back end sees the origin of a call: the call gets a link of its own. Unreachable nodes
/// are reported.
#[test]
fn a_call_to_a_node_without_a_link_makes_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (calls, asked) = sink();
    let mut there = Links::start(Arc::new(document(2)), Vec::new(), calls).unwrap();
    let (answers, answered) = sink();
    let mut here = Links::start(Arc::new(document(1)), Vec::new(), answers).unwrap();
    assert!(!here.call_directly(NodeId(2), &[], 6, b"?"));
    assert!(here.call_directly(NodeId(2), &[address], 7, b"?"));
    let (mut stream, _) = listener.accept().unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first[0], CONTROL_LINK);
    assert!(there.adopt(stream.into(), None).is_none());
    let call = std::iter::from_fn(|| asked.recv_timeout(LONG).ok()).find_map(|event| match event {
        (origin, Event::Call { from, genuine: true, id, request }) => Some((from, id, origin, request)),
        _ => None,
    });
    let user = Some(rustix::process::geteuid().as_raw());
    let from_here = Origin::Tcp { from: [127, 0, 0, 1].into(), here: true, user };
    let (from, number, origin, request) = call.unwrap();
    assert_eq!((from, origin, &request[..]), (NodeId(1), from_here, &b"?"[..]));
    assert!(there.answer(NodeId(1), number, b"!"));
    let answer = || {
        std::iter::from_fn(|| answered.recv_timeout(LONG).ok()).find_map(|event| match event {
            (_, Event::Answer { from, id, answer }) => Some((Some(from), id, String::from_utf8(answer).unwrap())),
            (_, Event::Unreachable { id, why }) => Some((None, id, why)),
            _ => None,
        })
    };
    assert_eq!(answer(), Some((Some(NodeId(2)), 7, "!".into())));
    drop(listener);
    assert!(here.call_directly(NodeId(3), &[address], 8, b"?"));
    let (from, id, said) = answer().unwrap();
    assert!((from, id) == (None, 8) && said.contains("connection of its own, which cannot be made"), "{said}");
}

/// A call in a node's name counts as its own at the node's place: on its first link, or from an address that it
/// announces there.
#[test]
fn a_false_claim_to_be_a_node_elsewhere_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (news, told) = sink();
    let mut links = Links::start(Arc::new(document(1)), Vec::new(), news).unwrap();
    let mut link = |from: &str| {
        let mut stranger = Stranger(from_address(&listener, from));
        links.adopt(listener.accept().unwrap().0.into(), None);
        stranger.hello(r#"{"version":1,"realm":"test","node":"0000000000000002"}"#);
        stranger
    };
    let mut first = link("127.0.0.2");
    let addresses = vec!["127.0.0.2:7".parse().unwrap(), "127.0.0.3:7".parse().unwrap()];
    first.message(2, &serde_json::to_vec(&Document { addresses, ..document(2) }).unwrap());
    let mut news = std::iter::from_fn(|| told.recv_timeout(LONG).ok());
    assert!(news.any(|(_, event)| matches!(event, Event::Document(_))));
    for (from, genuine) in [("127.0.0.2", true), ("127.0.0.3", true), ("127.0.0.4", false)] {
        let mut caller = link(from);
        caller.message(5, &[&7u64.to_le_bytes()[..], b"?"].concat());
        let heard = std::iter::from_fn(|| told.recv_timeout(LONG).ok()).find_map(|(_, event)| match event {
            Event::Call { from, genuine, .. } => Some((from, genuine)),
            _ => None,
        });
        assert_eq!(heard, Some((NodeId(2), genuine)), "{from}");
    }
}

fn from_address(to: &TcpListener, from: &str) -> std::net::TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.parse().unwrap(), 0).into()).unwrap();
    socket.connect(&to.local_addr().unwrap().into()).unwrap();
    socket.into()
}

#[test]
fn start_settles_when_the_documents_of_all_present_peers_are_there() {
    let mut stage = Local(TempDir::new());
    let nodes: Vec<TestNode> = (1..=5).map(|n| stage.node(document(n))).collect();
    let (_stale, gone) = LocalEndpoint::bind_in(stage.0.path(), "test", NodeId(77)).unwrap();
    drop(_stale);
    let (_listener, own) = LocalEndpoint::bind_in(stage.0.path(), "test", NodeId(9)).unwrap();
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let sink = Sink::new(move |event| *count.lock().unwrap() += usize::from(matches!(event, Event::Document(_))));
    let start = Instant::now();
    let links = Links::start(Arc::new(document(9)), vec![own.others()], sink).unwrap();
    assert!(links.settled(LONG));
    println!("settled with 5 peers after {:?}", start.elapsed());
    assert_eq!(*told.lock().unwrap(), 5);
    assert!(!gone.path().exists(), "a socket nobody listens on is removed");
    drop(nodes);
}

/// A node with one link to this test, which plays a peer that misbehaves.
fn with_stranger() -> (Links, Stranger, Arc<Mutex<Vec<String>>>) {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let told = warnings.clone();
    let sink = Sink::new(move |event| {
        if let Event::Warning(text) = event {
            told.lock().unwrap().push(text);
        }
    });
    let mut links = Links::start(Arc::new(document(1)), Vec::new(), sink).unwrap();
    assert!(links.settled(LONG), "nobody to wait for");
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(links.adopt(theirs.into(), None).is_none());
    ours.set_read_timeout(Some(LONG)).unwrap();
    (links, Stranger(ours), warnings)
}

struct Stranger<S = UnixStream>(S);

impl<S: Read + Write> Stranger<S> {
    fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }
    fn message(&mut self, kind: u8, body: &[u8]) {
        self.say(&(body.len() as u32).to_le_bytes());
        self.say(&[kind]);
        self.say(body);
    }
    fn hello(&mut self, body: &str) {
        self.message(1, body.as_bytes());
    }
    /// Everything until the node closes.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn refused(counter: fn(&Counters) -> &AtomicU64, because: &str, misbehave: impl Fn(&mut Stranger)) {
    let (links, mut stranger, warnings) = with_stranger();
    misbehave(&mut stranger);
    let said = stranger.rest();
    assert!(said.contains(because), "the peer is told: {said:?}");
    assert_eq!(counter(links.counters()).load(Ordering::Relaxed), 1);
    let who = format!("process {} of user", std::process::id());
    let named = |warning: &String| warning.contains(because) && warning.contains(&who);
    assert!(warnings.lock().unwrap().iter().any(named), "{warnings:?}");
}

#[test]
fn bad_input_closes_the_link_is_counted_and_named() {
    const HELLO: &str = r#"{"version":1,"realm":"test","node":"0000000000000002"}"#;
    refused(|c| &c.garbage, "unknown kind of frame 71", |s| s.say(b"\x04\0\0\0GET / HTTP/1.1\r\n\r\n"));
    refused(|c| &c.garbage, "542393671 bytes where 4096 are allowed", |s| s.say(b"GET / HTTP/1.1\r\n\r\n"));
    refused(|c| &c.garbage, "4294967295 bytes where 4096", |s| s.say(&[0xff; 64]));
    refused(|c| &c.garbage, "before the hello", |s| s.say(&[0, 0, 0, 0, 4]));
    refused(|c| &c.garbage, "hello without a node", |s| s.hello(r#"{"version":1,"realm":"test"}"#));
    refused(|c| &c.garbage, "hello that cannot be read", |s| s.hello("[[[["));
    refused(|c| &c.other_version, "version 2 of the control link, this node 1", |s| s.hello(r#"{"version":2}"#));
    refused(
        |c| &c.other_realm,
        "realm \"lab\", this node in \"test\"",
        |s| {
            s.hello(&HELLO.replace("test", "lab"));
        },
    );
    refused(
        |c| &c.garbage,
        "a second hello",
        |s| {
            s.hello(HELLO);
            s.hello(HELLO);
        },
    );
    refused(
        |c| &c.garbage,
        "document of another node",
        |s| {
            s.hello(HELLO);
            let other = serde_json::to_string(&document(3)).unwrap();
            s.message(2, other.as_bytes());
        },
    );
    refused(
        |c| &c.garbage,
        "document that cannot be read",
        |s| {
            s.hello(HELLO);
            s.say(&100_000u32.to_le_bytes());
            s.say(&[2]);
            s.say(&b"[".repeat(100_000));
        },
    );
}

#[test]
fn a_node_that_finds_its_own_address_in_the_list_closes_the_link() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = Source::Addresses(vec![listener.local_addr().unwrap()]);
    let sink = Sink::new(|event| panic!("{event:?}"));
    let mut links = Links::start(Arc::new(document(1)), vec![own], sink).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, [CONTROL_LINK]);
    links.adopt(stream.into(), None);
    assert!(links.settled(LONG));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it is not tried again");
}

#[test]
fn a_listed_node_that_comes_later_or_comes_back_is_found() {
    let mut stage = Listed::new();
    let late = stage.free.pop().unwrap();
    let address = late.local_addr().unwrap();
    drop(late);
    let first = stage.node(document(1));
    stage.free.push(TcpListener::bind(address).unwrap());
    // Later messages do not know of the first: only the first can make the link.
    stage.all.clear();
    let second = stage.node(document(2));
    first.learns(&second);
    drop(second);
    first.until("node 2 to be gone", |seen| seen.directory.node(NodeId(2)).is_none());
    stage.free.push(TcpListener::bind(address).unwrap());
    let third = stage.node(document(3));
    first.learns(&third);
    third.learns(&first);
}

/// A worker whose thread is this one.
fn worker() -> worker::Worker {
    worker::Worker::new(Arc::new(document(1)), Vec::new(), Arc::new(Shared::new().unwrap()), Sink::new(|_| ())).unwrap()
}

#[test]
fn nodes_that_are_gone_leave_no_targets_behind() {
    let (dir, mut worker) = (TempDir::new(), worker());
    let (_endpoint, own) = LocalEndpoint::bind_in(dir.path(), "test", NodeId(9)).unwrap();
    for gone in 0..100 {
        let mut source = own.others();
        if let Source::Sockets(paths, _) = &mut source {
            *paths = vec![dir.path().join(format!("host.test.{}.sock", NodeId(100 + gone)))];
        }
        worker.look(source);
        worker.connect_due(Instant::now());
    }
    assert_eq!(worker.targets.len(), 1);
}

/// A peer that begins a new link for each document would have a new budget for each.
#[test]
fn a_process_has_one_budget_whatever_links_it_makes() {
    let (mut worker, now) = (worker(), Instant::now());
    let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
    let _peers = pairs.map(|(ours, theirs)| {
        worker.link(theirs.into(), true, None, None);
        ours
    });
    let tokens: Vec<u64> = worker.links.keys().copied().collect();
    let sources = [worker.source_of(tokens[0]), worker.source_of(tokens[1])];
    assert_eq!(sources, [exchange::Source::Process(std::process::id()); 2]);
    let takes = |worker: &mut worker::Worker| {
        worker.budgets.take(sources[0], frame::Kind::Document as u8, 1 << 20, now).is_ok()
    };
    while takes(&mut worker) {}
    worker.close(tokens[0], connections::Close::Ended("it left".to_owned()));
    assert!(!takes(&mut worker), "what it owes is not forgotten with a link");
}

#[test]
fn an_address_has_so_many_links_and_no_more() {
    let mut worker = worker();
    // A host that has a network of IPv6 has as many addresses as it likes.
    let elsewhere =
        |last: u16| Origin::Tcp { from: [0x2001, 0xdb8, 0, 0, 1, 1, 1, last].into(), here: false, user: None };
    let mut peers = Vec::new();
    let mut take = |worker: &mut worker::Worker, stage| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let last = peers.len() as u16;
        let refused = worker.make_room(elsewhere(last));
        worker.link(theirs.into(), true, None, None);
        let token = *worker.links.keys().max().unwrap();
        worker.links.get_mut(&token).unwrap().stage = stage;
        worker.origins.insert(token, elsewhere(last));
        peers.push(ours);
        refused
    };
    for _ in exchange::GREETING_OF_SOURCE..exchange::LINKS_OF_ADDRESS {
        assert_eq!(take(&mut worker, link::Stage::Open), None);
    }
    for _ in 0..exchange::GREETING_OF_SOURCE + 1 {
        assert_eq!(take(&mut worker, link::Stage::Greeting), None, "the oldest that said nothing gives way");
    }
    assert_eq!(worker.links.len(), exchange::LINKS_OF_ADDRESS);
    worker.links.values_mut().for_each(|link| link.stage = link::Stage::Open);
    assert!(worker.make_room(elsewhere(999)).is_some_and(|why| why.starts_with("64 links")));
    assert_eq!(
        worker.make_room(Origin::Tcp { from: [10, 0, 0, 1].into(), here: false, user: None }),
        None,
        "others have room"
    );
}
