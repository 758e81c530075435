//! Requests to a broker over real connections: who may make them, and what is refused.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

#[path = "requests/accounts.rs"]
mod accounts;
#[path = "requests/certificates.rs"]
mod certificates;
#[path = "requests/links.rs"]
mod links;
#[path = "requests/rules.rs"]
mod rules;
#[path = "requests/unread.rs"]
mod unread;

use agent::client::{Client, ClientError};
use agent::identity::{Identity, Kind};
use agent::keys::{self, Keys};
use agent::message::{Actual, HostState, LARGEST_PLAN, Queue, Session, SessionState, State};
use rustls::pki_types::ServerName;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg_broker::api::Broker;
use thalweg_broker::degradation::AT_ONCE;
use thalweg_broker::serve::{Limits, News};
use thalweg_broker::store::Store;

const NO_WAIT: Duration = Duration::ZERO;

/// A plan with a queue on `eth0` of the host `a`.
const PLAN: &str = r#"
feasible = true
model = "bound"
objective_value = 0.0

[contract]
name = "two hosts"
hash = "0"

[[links]]
name = "lan"
from = "a"
to = "b"
rate_bits_per_s = 1e6
load_bits_per_s = 0.0
background_bits_per_s = 0.0
utilisation = 0.0
scheduler = "fifo"
backlog_bytes = 0.0
device = "eth0"

[[nodes]]
name = "a"
kind = "host"
cpus = 1
cpus_used = 0.0
proxied_per_s = 0.0

[solver]
name = "exhaustive"
optimal = true
gap = 0.0
"#;

struct Testbed {
    dir: PathBuf,
    address: SocketAddr,
    limits: Limits,
    /// The epoch that the next start comes after, at least.
    after: u64,
    contract: Option<&'static str>,
    /// The time for a decision when links have changed.
    at_once: Duration,
    ended: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
    /// Why callers were refused.
    refusals: Arc<Mutex<Vec<String>>>,
}

impl Testbed {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("thalweg-broker-{}-{number}", std::process::id()));
        for realm in ["robot", "other"] {
            keys::init(realm, &dir.join(realm)).unwrap();
            let users = ["ann", "bob"].map(|name| (Kind::User, name));
            for (kind, name) in [(Kind::Broker, "base"), (Kind::Host, "a"), (Kind::Host, "b")].into_iter().chain(users)
            {
                keys::issue(&dir.join(realm), kind, name, 1, &dir.join(realm)).unwrap();
            }
        }
        let mut testbed = Self {
            address: ([127, 0, 0, 1], 0).into(),
            dir,
            limits,
            after: 0,
            contract: None,
            at_once: AT_ONCE,
            ended: Arc::default(),
            server: None,
            refusals: Arc::default(),
        };
        testbed.start();
        testbed
    }

    /// With a contract, beside which it admits sessions.
    fn planning() -> Self {
        let mut testbed = Self::new();
        testbed.stop();
        testbed.contract = Some(CONTRACT);
        testbed.start();
        testbed
    }

    fn start(&mut self) {
        let (tell, told) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let (dir, seen, listen, limits) = (self.dir.clone(), ended.clone(), self.address, self.limits);
        let (after, contract, at_once) = (self.after, self.contract, self.at_once);
        let refusals = self.refusals.clone();
        self.ended = ended;
        self.server = Some(std::thread::spawn(move || {
            let keys = Keys::read(&dir.join("robot"), Kind::Broker, "base").unwrap();
            let (store, kept) = Store::open(&dir.join("state")).unwrap();
            let broker = Broker::start(store, kept, after).unwrap();
            let broker = broker.decides_within(at_once);
            contract.map_or(Ok(()), |contract| broker.plan_for(contract, &keys)).unwrap();
            let asked = || seen.load(Ordering::Relaxed);
            let news = move |news| match news {
                News::Listening(at) => tell.send(at).unwrap(),
                News::Refused { because, .. } => refusals.lock().unwrap().push(because),
            };
            thalweg_broker::serve::run(listen, &keys, broker, limits, &asked, news).unwrap();
        }));
        self.address = told.recv().unwrap();
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
    }

    fn keys(&self, realm: &str, kind: Kind, name: &str) -> Keys {
        Keys::read(&self.dir.join(realm), kind, name).unwrap()
    }

    /// A connection that shows these keys, for any bytes of this protocol.
    fn connect_over(&self, protocol: &[u8], kind: Kind, name: &str) -> Tls {
        let keys = self.keys("robot", kind, name);
        connect(self.address, protocol, &keys, Some((keys.certificate.clone(), self.keys("robot", kind, name))))
    }

    fn client(&self, kind: Kind, name: &str) -> Client {
        Client::new(&self.address.to_string(), &self.keys("robot", kind, name))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.stop();
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn status<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> u16 {
    match answer {
        Err(ClientError::Refused(status, text)) => {
            assert!(text.len() > 30, "no reason: {text}");
            status
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn applied(epoch: u64, revision: u64) -> Actual {
    Actual { devices: vec!["eth0".into()], ..Actual::new(epoch, revision, State::Applied) }
}

#[test]
fn a_plan_is_told_to_its_hosts_and_their_state_to_users() {
    let testbed = Testbed::new();
    let (user, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    assert_eq!(host.desired("a", (0, 0), NO_WAIT).unwrap().unwrap().revision, 0, "the epoch is news");
    // An agent that waits hears of a change at once, long before its patience ends.
    let waiting = std::thread::spawn(move || (host.desired("a", (1, 0), Duration::from_secs(10)).unwrap(), host));
    while user.hosts().unwrap().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(user.change_plan(Some(PLAN), 0).unwrap().revision, 1);
    let (desired, host) = waiting.join().unwrap();
    let desired = desired.unwrap();
    assert_eq!((desired.epoch, desired.revision, desired.plan.as_deref()), (1, 1, Some(PLAN)));
    assert_eq!(user.hosts().unwrap()[0].state, HostState::Waiting);
    let queue = Queue {
        device: "eth0".into(),
        class: None,
        own: None,
        control: false,
        packets: 9,
        bytes: 900,
        dropped: 2,
        waiting: 1,
    };
    host.report("a", &Actual { queues: vec![queue.clone()], queues_left_out: 3, ..applied(1, 1) }).unwrap();
    let hosts = user.hosts().unwrap();
    assert_eq!((&hosts[0].queues[..], hosts[0].queues_left_out), (std::slice::from_ref(&queue), 3));
    assert_eq!(status(host.report("a", &Actual { queues: vec![queue; 1000], ..applied(1, 1) })), 422);
    assert_eq!((hosts.len(), hosts[0].state, &hosts[0].devices[0][..]), (1, HostState::Applied, "eth0"));
    assert_eq!(host.desired("a", (1, 1), NO_WAIT).unwrap(), None);
    // A change is made after the one that its author knows.
    assert_eq!(status(user.change_plan(None, 0)), 409);
    assert_eq!(host.desired("a", (1, 1), NO_WAIT).unwrap(), None);
    assert_eq!(user.change_plan(None, 1).unwrap().revision, 2);
    assert_eq!(host.desired("a", (1, 1), NO_WAIT).unwrap().unwrap().plan, None);
}

#[test]
fn each_party_may_do_what_is_its_own() {
    let testbed = Testbed::new();
    let (user, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    assert_eq!(status(host.change_plan(Some(PLAN), 0)), 403);
    assert_eq!(status(host.change_plan(None, 0)), 403);
    assert_eq!(status(host.hosts()), 403);
    assert_eq!(status(host.desired("b", (0, 0), NO_WAIT)), 403);
    assert_eq!(status(host.report("b", &applied(1, 0))), 403);
    assert_eq!(status(user.report("a", &applied(1, 0))), 403);
    assert!(user.hosts().unwrap().is_empty(), "nothing of it had an effect");
}

#[test]
fn who_is_not_of_the_realm_is_not_heard() {
    let testbed = Testbed::new();
    let address = testbed.address.to_string();
    let foreign = Client::new(&address, &testbed.keys("other", Kind::User, "ann"));
    assert!(matches!(foreign.hosts(), Err(ClientError::Unreachable(_))));
    // It trusts our broker, and shows a certificate of its own realm.
    let mixed = testbed.dir.join("mixed");
    std::fs::create_dir(&mixed).unwrap();
    std::fs::copy(testbed.dir.join("robot/realm.pem"), mixed.join("realm.pem")).unwrap();
    for file in ["user-ann.pem", "user-ann.key"] {
        std::fs::copy(testbed.dir.join("other").join(file), mixed.join(file)).unwrap();
    }
    let refused = Keys::read(&mixed, Kind::User, "ann").unwrap_err().to_string();
    assert!(refused.contains("thalweg://other/user/ann: expected is thalweg://robot/user/ann"), "{refused}");
    let shown = rustls::pki_types::CertificateDer::from(testbed.keys("other", Kind::User, "ann").certificate.to_vec());
    let roots = testbed.keys("robot", Kind::User, "ann");
    let mut stream =
        connect(testbed.address, b"http/1.1", &roots, Some((shown, testbed.keys("other", Kind::User, "ann"))));
    assert!(request(&mut stream, "GET /v1/hosts HTTP/1.1\r\nhost: b\r\n\r\n").is_empty(), "an answer for a stranger");
    let mut bare = connect(testbed.address, b"http/1.1", &roots, None);
    assert!(
        request(&mut bare, "GET /v1/hosts HTTP/1.1\r\nhost: b\r\n\r\n").is_empty(),
        "an answer without a certificate"
    );
}

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A connection that trusts the realm of `roots` and shows any certificate, or none.
fn connect(
    address: SocketAddr,
    protocol: &[u8],
    roots: &Keys,
    shown: Option<(rustls::pki_types::CertificateDer<'static>, Keys)>,
) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut store = rustls::RootCertStore::empty();
    store.add(roots.realm.clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(store);
    let mut config = match shown {
        Some((certificate, keys)) => {
            builder.with_client_auth_cert(vec![certificate], keys.private_key().unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from(Identity::any_broker("robot")).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    rustls::StreamOwned::new(rustls::ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Everything that the broker answers until it closes.
fn request(stream: &mut Tls, text: &str) -> String {
    let mut answer = Vec::new();
    if stream.write_all(text.as_bytes()).and_then(|()| stream.flush()).is_ok() {
        let _ = stream.read_to_end(&mut answer); // a refused connection ends without the closing alert
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_is_too_large_or_wrong_is_refused_with_a_reason() {
    let testbed = Testbed::new();
    let user = testbed.client(Kind::User, "ann");
    assert_eq!(status(user.change_plan(Some(&"#".repeat(LARGEST_PLAN + 1)), 0)), 413);
    for (wrong, says) in [
        ("feasible = 1", "plan:"),
        (&PLAN.replace("feasible = true", "feasible = false"), "does not fit"),
        (&PLAN.replace("device = \"eth0\"\n", ""), "names no devices"),
        (&PLAN.replace("\"eth0\"", "\"eth0; reboot\""), "device"),
        (&PLAN.replace("\"fifo\"", "\"fair\""), "scheduler"),
    ] {
        match user.change_plan(Some(wrong), 0) {
            Err(ClientError::Refused(422, text)) if text.contains(says) => {}
            other => panic!("{says}: {other:?}"),
        }
    }
    let host = testbed.client(Kind::Host, "a");
    let long = Actual { repaired: vec![String::new(); 1000], ..applied(1, 0) };
    assert_eq!(status(host.report("a", &long)), 422);
    let ann = testbed.keys("robot", Kind::User, "ann");
    let own = Some((ann.certificate.clone(), testbed.keys("robot", Kind::User, "ann")));
    let mut stream = connect(testbed.address, b"http/1.1", &ann, own);
    let answer = request(&mut stream, "POST /v1/nothing HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("docs/hosts.md"), "{answer}");
    assert_eq!(user.change_plan(Some(PLAN), 0).unwrap().revision, 1, "none of them was taken");
}

#[test]
fn who_may_not_is_refused_before_a_body_is_read() {
    let testbed = Testbed::new();
    for path in ["PUT /v1/plan?after=0", "POST /v1/hosts/b/actual"] {
        let head =
            format!("{path} HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length: 200000\r\n\r\n");
        let answer = request(&mut testbed.connect_over(b"http/1.1", Kind::Host, "a"), &head);
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
}

const SHORT: Duration = Duration::from_millis(200);
/// A limit that is far off in a test that is about another one.
const NEVER: Duration = Duration::from_secs(3600);

/// Fails if the broker keeps a connection open on which this was said.
fn is_closed_after(testbed: &Testbed, over: &[u8], said: &str) {
    let mut stream = testbed.connect_over(over, Kind::Host, "a");
    stream.write_all(said.as_bytes()).unwrap();
    stream.flush().unwrap();
    let ended = stream.read_to_end(&mut Vec::new()).map_err(|e| e.kind());
    assert_ne!(ended, Err(std::io::ErrorKind::WouldBlock), "after {said:?} it was still open");
}

#[test]
fn a_connection_without_a_whole_header_is_closed() {
    let testbed = Testbed::with(Limits { header: SHORT, age: NEVER, rest: NEVER });
    for said in ["", "P", "PRI * HTTP/2.0\r\n", "GET /v1/hosts HTTP/1.1\r\n"] {
        is_closed_after(&testbed, b"http/1.1", said);
    }
}

#[test]
fn a_connection_that_is_too_old_is_closed() {
    let testbed = Testbed::with(Limits { header: NEVER, age: SHORT, rest: SHORT });
    is_closed_after(&testbed, b"http/1.1", "");
    for said in ["", "PRI * HTTP/2.0\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        is_closed_after(&testbed, b"h2", said);
    }
}

/// An agent whose connection is closed between two requests, or under one that waits, is answered all the same.
#[test]
fn a_request_that_waits_is_answered_on_a_connection_that_is_too_old() {
    let testbed = Testbed::with(Limits { header: NEVER, age: SHORT, rest: NEVER });
    let host = testbed.client(Kind::Host, "a");
    for _ in 0..2 {
        assert_eq!(host.desired("a", (1, 0), Duration::from_secs(1)).unwrap(), None);
    }
}

#[test]
fn a_broker_that_starts_again_knows_the_plan_and_counts_its_starts() {
    let mut testbed = Testbed::new();
    assert_eq!(testbed.client(Kind::User, "ann").change_plan(Some(PLAN), 0).unwrap().revision, 1);
    testbed.stop();
    testbed.start();
    let (user, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    let desired = host.desired("a", (1, 1), NO_WAIT).unwrap().unwrap();
    assert_eq!((desired.epoch, desired.revision, desired.plan.as_deref()), (2, 1, Some(PLAN)));
    let hosts = user.hosts().unwrap();
    assert_eq!((hosts[0].state, hosts[0].actual), (HostState::Waiting, None));
    host.report("a", &applied(2, 1)).unwrap();
    assert_eq!(user.hosts().unwrap()[0].state, HostState::Applied);
}

/// An old copy of the directory, or none: the agents obeyed a later broker, and hear why this one is not obeyed, as do users.
#[test]
fn a_broker_that_lost_its_state_says_so_until_it_is_told_the_epoch() {
    let mut testbed = Testbed::new();
    let lost = |testbed: &Testbed| testbed.client(Kind::Host, "a").desired("a", (5, 3), NO_WAIT);
    assert_eq!(status(lost(&testbed)), 409);
    let told = lost(&testbed).unwrap_err().to_string();
    assert!(told.contains("epoch 1") && told.contains("--epoch 5"), "{told}");
    let hosts = testbed.client(Kind::User, "ann").hosts().unwrap();
    assert_eq!(hosts[0].state, HostState::Waiting);
    assert!(hosts[0].because.as_ref().is_some_and(|because| because.contains("--epoch 5")), "{hosts:?}");
    testbed.stop();
    testbed.after = 5;
    testbed.start();
    let desired = lost(&testbed).unwrap().unwrap();
    assert_eq!((desired.epoch, desired.revision), (6, 0));
    assert_eq!(testbed.client(Kind::User, "ann").hosts().unwrap()[0].because, None);
    // Kept: the next start needs no word of it.
    testbed.stop();
    testbed.after = 0;
    testbed.start();
    assert_eq!(lost(&testbed).unwrap().unwrap().epoch, 7);
}

#[test]
fn private_keys_are_for_their_owner_and_nothing_is_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let testbed = Testbed::new();
    let dir = testbed.dir.join("robot");
    for file in ["realm.key", "host-a.key"] {
        assert_eq!(mode(&dir.join(file)) & 0o077, 0, "{file}");
    }
    let again = keys::init("robot", &dir).unwrap_err().to_string();
    assert!(again.contains("is there already"), "{again}");
    assert!(keys::issue(&dir, Kind::Host, "a", 1, &dir).unwrap_err().to_string().contains("is there already"));
    assert!(keys::issue(&dir, Kind::Host, "a/b", 1, &dir).unwrap_err().to_string().contains("no identity"));
    assert_eq!(keys::show(&dir.join("host-a.pem")).unwrap().of, "thalweg://robot/host/a");

    fn mode(file: &Path) -> u32 {
        std::fs::metadata(file).unwrap().permissions().mode()
    }
}

const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "b"
[[link]]
name = "wire"
between = ["a", "b"]
rate = "10 Mbit/s"
scheduler = "strict"
devices = { a = "eth0" }
"#;

fn session(name: &str, bytes: u32) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"50 Hz\"\npublisher = \"a\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"50 ms\"\n"
    )
}

#[test]
fn sessions_are_admitted_beside_a_contract_and_survive_the_broker() {
    let mut testbed = Testbed::new();
    let camera = session("camera", 8000);
    assert_eq!(status(testbed.client(Kind::User, "ann").request_session("camera", &camera)), 409, "no contract");
    testbed.stop();
    testbed.contract = Some(CONTRACT);
    testbed.start();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    assert_eq!(status(ann.change_plan(Some(PLAN), 1)), 409, "it plans by itself");
    let admitted = ann.request_session("camera", &camera).unwrap();
    assert_eq!((admitted.state, admitted.channels.len()), (SessionState::Waiting, 1));
    assert_eq!(
        ann.request_session("camera", &camera).unwrap(),
        Session { text: Some(camera.clone()), ..admitted.clone() }
    );
    let desired = host.desired("a", (0, 0), NO_WAIT).unwrap().unwrap();
    assert_eq!(desired.revision, admitted.revision, "the same file again changes nothing");
    host.report("a", &applied(desired.epoch, desired.revision)).unwrap();
    assert_eq!(ann.session("camera").unwrap().state, SessionState::Active);

    // Refused with offers; what is admitted stays, and is not touched.
    let refused = ann.request_session("lidar", &session("lidar", 20_000));
    assert!(matches!(&refused, Err(ClientError::Unfit(_, why)) if !why[0].offers.is_empty()), "{refused:?}");
    assert_eq!(status(ann.session("lidar")), 404);
    assert_eq!(host.desired("a", (desired.epoch, desired.revision), NO_WAIT).unwrap(), None);

    testbed.stop();
    testbed.start();
    let again = ann.session("camera").unwrap();
    assert_eq!((again.state, again.revision), (SessionState::Waiting, admitted.revision), "the agent reports again");
    assert_eq!(status(ann.change_plan(None, 3)), 409, "a session is admitted");
    let stopped = ann.stop_session("camera").unwrap();
    assert!(ann.sessions().unwrap().is_empty());
    assert_eq!(status(ann.stop_session("camera")), 404);
    assert!(ann.change_plan(None, stopped.revision).is_ok(), "without a session the hosts get back what they had");
    assert_eq!(ann.request_session("camera", &camera).unwrap().channels, admitted.channels, "the contract stays");
}

#[test]
fn who_may_not_and_what_is_wrong_gets_no_session() {
    let testbed = Testbed::planning();
    let (ann, host) = (testbed.client(Kind::User, "ann"), testbed.client(Kind::Host, "a"));
    let camera = session("camera", 800);
    assert_eq!(status(host.request_session("camera", &camera)), 403);
    assert_eq!(status(ann.request_session("lidar", &camera)), 422, "another name");
    assert_eq!(status(ann.request_session("camera", "[[node]]")), 422);
    assert_eq!(status(ann.request_session("camera", &camera.replace("publisher = \"a\"", "publisher = \"x\""))), 422);
    assert_eq!(status(ann.request_session("camera", &format!("{camera}#{}", "x".repeat(16 << 10)))), 413);
    assert!(ann.sessions().unwrap().is_empty());
    ann.request_session("camera", &camera).unwrap();
    let bob = testbed.client(Kind::User, "bob");
    assert_eq!(status(bob.stop_session("camera")), 403);
    assert_eq!(status(bob.request_session("camera", &session("camera", 10))), 403);
    assert_eq!(status(host.sessions()), 403);
    assert_eq!(bob.sessions().unwrap().len(), 1, "everybody may look");
}

/// Users that ask at the same time are not admitted to the same room: 10 Mbit/s has room for two of 4 Mbit/s.
#[test]
fn sessions_that_are_asked_for_at_once_do_not_share_the_room_of_one() {
    let testbed = Testbed::planning();
    let ask = |number: usize| {
        let name = format!("s{number}");
        testbed.client(Kind::User, "ann").request_session(&name, &session(&name, 9000)).is_ok()
    };
    let admitted = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|number| scope.spawn(move || ask(number))).collect();
        asked.into_iter().map(|one| one.join().unwrap()).filter(|admitted| *admitted).count()
    });
    assert_eq!((admitted, testbed.client(Kind::User, "ann").sessions().unwrap().len()), (2, 2));
}

#[test]
fn a_question_changes_nothing() {
    let testbed = Testbed::planning();
    let ann = testbed.client(Kind::User, "ann");
    let before = ann.plan().unwrap();
    let offered = ann.try_session("camera", &session("camera", 800)).unwrap();
    assert_eq!((offered.state, offered.channels.len()), (SessionState::Fits, 1));
    assert!(matches!(ann.try_session("camera", &session("camera", 90_000)), Err(ClientError::Unfit(..))));
    assert_eq!((ann.sessions().unwrap(), ann.plan().unwrap()), (Vec::new(), before));
    let admitted = ann.request_session("camera", &session("camera", 800)).unwrap();
    assert_eq!(admitted.channels, offered.channels, "as it was offered");
}

/// A lease of a second: the session stays as long as it is asked for, and not longer.
#[test]
fn a_session_whose_user_is_gone_ends_with_its_lease() {
    let testbed = Testbed::planning();
    let ann = testbed.client(Kind::User, "ann");
    let leased = session("camera", 800).replacen('\n', "\nlease = \"1 s\"\n", 1);
    let first = ann.request_session("camera", &leased).unwrap();
    assert!(first.lease_left_ms.is_some_and(|left| (1..=1000).contains(&left)), "{first:?}");
    ann.request_session("map", &session("map", 10)).unwrap();
    let names = || ann.sessions().unwrap().into_iter().map(|one| one.session).collect::<Vec<_>>();
    let began = std::time::Instant::now();
    let mut renewed = began;
    while began.elapsed() < Duration::from_millis(2500) {
        renewed = std::time::Instant::now();
        let again = ann.request_session("camera", &leased).unwrap();
        assert_eq!(again.revision, first.revision, "it was there all the time");
    }
    while names() != ["map"] {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    assert!(renewed.elapsed() >= Duration::from_secs(1), "not before its lease was over");
}
