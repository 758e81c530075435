//! Three brokers that negotiate a session over real connections.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::keys::{self, Keys};
use agent::message::{Actual, Session, SessionState, State};
use agent::peer::{Flow, Key, Message, Step};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thalweg_broker::api::Broker;
use thalweg_broker::serve::{Limits, News};
use thalweg_broker::store::{Change, Database, Disk, Entry, Store, Table};

const NAMES: [&str; 3] = ["robot", "wan", "base"];
/// The nodes of each domain; the second one is the next one's first.
const WAYS: [[&str; 2]; 3] = [["cam", "rw"], ["rw", "wb"], ["wb", "desk"]];

struct Running {
    ended: Arc<AtomicBool>,
    server: JoinHandle<()>,
}

/// Three domains in a row, a broker for each, and users and agents.
struct Testbed {
    dir: PathBuf,
    addresses: Vec<SocketAddr>,
    running: Vec<Option<Running>>,
    /// Further tables of the first domain's contract.
    more: &'static str,
    /// A change of all contracts.
    edit: fn(String) -> String,
    /// No disk takes anything.
    fails: Arc<AtomicBool>,
}

/// A disk that fails when it is told to.
#[derive(Debug)]
struct Failing(Disk, Arc<AtomicBool>);

impl Database for Failing {
    fn scan(&mut self, table: Table, after: &str, most: usize) -> io::Result<Vec<Entry>> {
        self.0.scan(table, after, most)
    }

    fn get(&mut self, table: Table, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
        self.0.get(table, names)
    }

    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        if self.1.load(Ordering::Relaxed) { Err(io::Error::other("full")) } else { self.0.write(changes) }
    }

    fn damaged(&self, error: &dyn std::fmt::Display) -> io::Error {
        self.0.damaged(error)
    }
}

/// Addresses of a testbed's own. A port of 127.0.0.1 that is free now may be a client's, of any test, when its broker starts.
fn addresses(testbed: u32) -> Vec<SocketAddr> {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = |index| ([127, high | 128, low, (testbed as u8) * 4 + index], 7450).into();
    (1..=NAMES.len() as u8).map(address).collect()
}

impl Testbed {
    fn new() -> Self {
        Self::with(|contract| contract)
    }

    fn with(edit: fn(String) -> String) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("thalweg-domains-{}-{number}", std::process::id()));
        let keys = dir.join("keys");
        keys::init("world", &keys).unwrap();
        let users = [(Kind::User, "ann"), (Kind::User, "bob"), (Kind::Broker, "moon")];
        let hosts = ["cam", "rw", "wb"].map(|name| (Kind::Host, name));
        for (kind, name) in NAMES.map(|name| (Kind::Broker, name)).into_iter().chain(users).chain(hosts) {
            keys::issue(&keys, kind, name, 1, &keys).unwrap();
        }
        let mut testbed =
            Self { dir, addresses: addresses(number), running: Vec::new(), more: "", edit, fails: Arc::default() };
        testbed.running = (0..NAMES.len()).map(|_| None).collect();
        (0..NAMES.len()).for_each(|index| testbed.start(index));
        testbed
    }

    fn contract(&self, index: usize) -> String {
        let [from, to] = WAYS[index];
        let mut text = format!(
            "[[node]]\nname = {from:?}\n[[node]]\nname = {to:?}\n[[link]]\nbetween = [{from:?}, {to:?}]\nrate = \"10 Mbit/s\"\n\
             scheduler = \"strict\"\ndevices = {{ {from} = \"eth\" }}\n\
             [[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = \"high\"\nrate = \"200 kbit/s\"\nburst = \"9 kB\"\nlargest = \"1 kB\"\ndeadline = \"20 ms\"\nprice = 5\n\
             [[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = \"low\"\nrate = \"400 kbit/s\"\nburst = \"9 kB\"\nlargest = \"1 kB\"\ndeadline = \"60 ms\"\n"
        );
        let mut beside = |other: usize, via: &str, reach: &str| {
            let (domain, broker) = (NAMES[other], self.addresses[other]);
            text += &format!(
                "[[neighbour]]\ndomain = {domain:?}\nvia = {via:?}\nbroker = \"{broker}\"\nreach = [{reach}]\n"
            );
        };
        match index {
            0 => {
                beside(1, "rw", "\"base\"");
                text += self.more;
            }
            1 => {
                beside(0, "rw", "");
                beside(2, "wb", "");
            }
            _ => beside(1, "wb", "\"robot\""),
        }
        (self.edit)(text)
    }

    fn start(&mut self, index: usize) {
        let (tell, told) = channel();
        let ended = Arc::new(AtomicBool::new(false));
        let (dir, seen, listen, name) = (self.dir.clone(), ended.clone(), self.addresses[index], NAMES[index]);
        let (contract, fails) = (self.contract(index), self.fails.clone());
        let server = std::thread::spawn(move || {
            let keys = Keys::read(&dir.join("keys"), Kind::Broker, name).unwrap();
            let disk = Failing(Disk::open(&dir.join(name)).unwrap(), fails);
            let (store, kept) = Store::on(Box::new(disk)).unwrap();
            let broker = Broker::start(store, kept, 0).unwrap();
            broker.plan_for(&contract, &keys).unwrap();
            let asked = || seen.load(Ordering::Relaxed);
            let news = move |news| {
                if matches!(news, News::Listening(_)) {
                    tell.send(()).unwrap();
                }
            };
            thalweg_broker::serve::run(listen, &keys, broker, Limits::default(), &asked, news).unwrap();
        });
        told.recv().unwrap();
        self.running[index] = Some(Running { ended, server });
        self.install(index);
    }

    fn stop(&mut self, index: usize) {
        if let Some(Running { ended, server }) = self.running[index].take() {
            ended.store(true, Ordering::Relaxed);
            server.join().unwrap();
        }
    }

    fn client(&self, index: usize, kind: Kind, name: &str) -> Client {
        Client::new(&self.addresses[index].to_string(), &Keys::read(&self.dir.join("keys"), kind, name).unwrap())
    }

    fn ann(&self) -> Client {
        self.client(0, Kind::User, "ann")
    }

    /// The agent of a domain's one host says that it has the newest plan.
    fn install(&self, index: usize) {
        let host = WAYS[index][0];
        let agent = self.client(index, Kind::Host, host);
        let desired = agent.desired(host, (0, 0), Duration::ZERO).unwrap().unwrap();
        let actual = Actual::new(desired.epoch, desired.revision, State::Applied);
        agent.report(host, &actual).unwrap();
    }

    /// What is sold of all pipes of a domain, bit/s.
    fn sold(&self, index: usize) -> f64 {
        let pipes = self.client(index, Kind::User, "ann").pipes().unwrap();
        assert_eq!(pipes.len(), 2);
        pipes.iter().map(|pipe| pipe.sold_bits_per_s).sum()
    }

    fn all_sold(&self) -> Vec<f64> {
        (0..NAMES.len()).map(|index| self.sold(index)).collect()
    }

    /// Asks until its domains are ready.
    fn request(&self, text: &str) -> Result<Session, ClientError> {
        let name = qos::contract::session::Session::read(text).unwrap().name;
        eventually(|| match self.ann().request_session(&name, text) {
            Err(ClientError::Refused(503, said)) if said.contains("pipes of domain") => None,
            other => Some(other),
        })
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        (0..NAMES.len()).for_each(|index| self.stop(index));
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// Looks until there is something.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it never came");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A session of samples of so many bytes at 10 Hz.
fn session(name: &str, size: u64, deadline: &str) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{size} B\"\nrate = \"10 Hz\"\npublisher = \"cam\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"base/desk\"\ndeadline = {deadline:?}\n"
    )
}

/// 934 B and 66 B of overhead, ten times a second.
const RATE: f64 = 80_000.0;

#[test]
fn three_domains_admit_a_session_together_and_forget_it_together() {
    let testbed = Testbed::new();
    let text = session("teleop", 934, "100 ms");
    let asked = testbed.request(&text).unwrap();
    let domains: Vec<(&str, f64, u64)> =
        asked.domains.iter().map(|part| (part.domain.as_str(), part.bound_us, part.price)).collect();
    assert_eq!(domains, [("robot", 20_000.0, 5), ("wan", 20_000.0, 5), ("base", 20_000.0, 5)]);
    assert_eq!(asked.channels[0].bound_us, Some(60_000.0));
    assert_eq!(testbed.all_sold(), [RATE; 3]);
    // It is active once the hosts of its first domain have its channel.
    assert_eq!(asked.state, SessionState::Waiting);
    testbed.install(0);
    assert_eq!(testbed.ann().session("teleop").unwrap().state, SessionState::Active);
    // The channel is in the plans of both ends.
    for (index, host) in [(0, "cam"), (2, "wb")] {
        let agent = testbed.client(index, Kind::Host, host);
        let plan = agent.desired(host, (0, 0), Duration::ZERO).unwrap().unwrap().plan.unwrap();
        assert!(plan.contains("/teleop@desk"), "{host}");
    }
    // The same again changes nothing; another user may not touch it.
    assert_eq!(testbed.ann().request_session("teleop", &text).unwrap().revision, asked.revision);
    let bob = testbed.client(0, Kind::User, "bob");
    assert!(matches!(bob.request_session("teleop", &text), Err(ClientError::Refused(403, _))));
    assert!(matches!(bob.stop_session("teleop"), Err(ClientError::Refused(403, _))));
    assert_eq!(testbed.ann().sessions().unwrap().len(), 1);
    testbed.ann().stop_session("teleop").unwrap();
    eventually(|| (testbed.all_sold() == [0.0; 3]).then_some(()));
    assert!(testbed.ann().sessions().unwrap().is_empty());
}

/// Hosts hear of what is kept, when it is kept.
#[test]
fn what_no_disk_takes_is_told_to_no_host_before_and_to_all_after() {
    let testbed = Testbed::new();
    testbed.request(&session("teleop", 934, "100 ms")).unwrap();
    let agent = testbed.client(0, Kind::Host, "cam");
    let known = agent.desired("cam", (0, 0), Duration::ZERO).unwrap().unwrap();
    assert!(known.plan.unwrap().contains("/teleop@desk"));
    testbed.fails.store(true, Ordering::Relaxed);
    drop(testbed.ann().stop_session("teleop")); // it goes on when the disk is well
    let now = agent.desired("cam", (0, 0), Duration::ZERO).unwrap().unwrap();
    assert!(now.revision == known.revision && now.plan.unwrap().contains("/teleop@desk"));
    testbed.fails.store(false, Ordering::Relaxed);
    eventually(|| (testbed.all_sold() == [0.0; 3]).then_some(()));
    let news = eventually(|| agent.desired("cam", (known.epoch, known.revision), Duration::ZERO).unwrap());
    assert!(!news.plan.unwrap().contains("/teleop@desk"));
}

#[test]
fn a_refusal_in_the_last_domain_names_it_and_leaves_nothing_behind() {
    let testbed = Testbed::new();
    testbed.request(&session("one", 934, "100 ms")).unwrap();
    testbed.request(&session("two", 934, "100 ms")).unwrap();
    let refused = testbed.request(&session("three", 934, "100 ms"));
    let Err(ClientError::Unfit(said, refusals)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("deadline of /three@desk"), "{said}");
    let offers: Vec<&str> = refusals[0].offers.iter().map(|offer| offer.what.as_str()).collect();
    assert_eq!(offers, ["a deadline of 180.001 ms for /three@desk"], "{refusals:?}");
    // Taken, it fits.
    let later = session("three", 934, "180.001 ms");
    testbed.request(&later).unwrap();
    testbed.ann().stop_session("three").unwrap();
    // Too much for any class, and less of it.
    let refused = testbed.request(&session("three", 934, "1 s").replace("10 Hz", "60 Hz"));
    let Err(ClientError::Unfit(_, refusals)) = refused else { panic!("{refused:?}") };
    let offers: Vec<&str> = refusals[0].offers.iter().map(|offer| offer.what.as_str()).collect();
    assert_eq!(offers[0], "scale 2 instead of 1 for /three@desk");
    let nowhere = testbed.request(&session("three", 934, "1 s").replace("base/desk", "base/moon"));
    let Err(ClientError::Unfit(_, refusals)) = nowhere else { panic!("{nowhere:?}") };
    assert_eq!(refusals[0].what, "node moon of domain base");
    eventually(|| (testbed.all_sold() == [2.0 * RATE; 3]).then_some(()));
}

#[test]
fn a_dry_run_tells_the_bound_and_a_lease_ends_in_all_domains() {
    let testbed = Testbed::new();
    testbed.request(&session("first", 10, "1 s")).unwrap(); // all are ready
    let before = testbed.all_sold();
    let fits = testbed.ann().try_session("teleop", &session("teleop", 934, "100 ms")).unwrap();
    assert_eq!((fits.state, fits.channels[0].bound_us), (SessionState::Fits, Some(60_000.0)));
    assert_eq!(testbed.all_sold(), before);
    let leased = session("teleop", 934, "100 ms")
        .replace("name = \"teleop\"\n[[topic]]", "name = \"teleop\"\nlease = \"1 s\"\n[[topic]]");
    assert!(testbed.request(&leased).unwrap().lease_left_ms.is_some());
    eventually(|| (testbed.all_sold() == before).then_some(()));
}

#[test]
fn a_broker_that_starts_again_has_what_was_active_and_one_that_is_away_is_named() {
    let mut testbed = Testbed::new();
    testbed.request(&session("teleop", 934, "100 ms")).unwrap();
    for (index, name) in NAMES.iter().enumerate() {
        testbed.stop(index);
        testbed.start(index);
        assert_eq!(testbed.all_sold(), [RATE; 3], "{name} started again");
    }
    testbed.stop(2);
    let refused = testbed.request(&session("other", 10, "1 s"));
    let Err(ClientError::Refused(503, said)) = &refused else { panic!("{refused:?}") };
    assert!(said.contains("the broker of base did not answer"), "{said}");
    // What is stopped meanwhile, the last domain hears of when it is back.
    testbed.ann().stop_session("teleop").unwrap();
    testbed.start(2);
    eventually(|| (testbed.all_sold() == [0.0; 3]).then_some(()));
}

#[test]
fn only_brokers_of_neighbours_are_heard() {
    let testbed = Testbed::new();
    let message = |first: &str| Message::Request {
        key: Key { first: first.into(), session: "s".into(), version: 1 },
        passed: vec![first.into()],
        step: Step::Commit,
    };
    let status = |answer: Result<(), ClientError>| match answer {
        Err(ClientError::Refused(status, _)) => status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(testbed.ann().tell_peer(&message("robot"))), 403);
    assert_eq!(status(testbed.client(1, Kind::Broker, "moon").tell_peer(&message("moon"))), 403);
    let endless = Message::Request {
        key: Key { first: "robot".into(), session: "s".into(), version: 1 },
        passed: vec!["robot".into()],
        step: Step::Quote(vec![Flow::default()]),
    };
    assert_eq!(status(testbed.client(1, Kind::Broker, "robot").tell_peer(&endless)), 422);
    testbed.client(1, Kind::Broker, "robot").tell_peer(&message("robot")).unwrap();
    assert_eq!(testbed.all_sold(), [0.0; 3]);
}

#[test]
fn sessions_of_one_domain_and_over_several_count_together_for_a_rule() {
    let mut testbed = Testbed::new();
    testbed.stop(0);
    testbed.more = "[[rule]]\nname = \"operators\"\nusers = [\"*\"]\nsessions = 2\n";
    testbed.start(0);
    let near = |name: &str| session(name, 100, "1 s").replace("base/desk", "rw");
    testbed.request(&session("teleop", 934, "100 ms")).unwrap();
    testbed.request(&near("map")).unwrap();
    for (name, text) in [("log", near("log")), ("log", session("log", 100, "1 s"))] {
        let refused = testbed.ann().request_session(name, &text);
        assert!(
            matches!(&refused, Err(ClientError::Unfit(_, why)) if why[0].what == "rule operators: sessions"),
            "{refused:?}"
        );
    }
    let bob = testbed.client(0, Kind::User, "bob");
    bob.request_session("log", &near("log")).unwrap();
    testbed.ann().stop_session("map").unwrap();
    testbed.request(&session("log2", 100, "1 s")).unwrap();
    assert_eq!(testbed.ann().sessions().unwrap().len(), 3);
}

#[test]
fn while_links_have_no_plan_sessions_are_renewed_and_none_is_admitted() {
    let mut testbed = Testbed::new();
    testbed.stop(0);
    testbed.more = "[[topic]]\nname = \"state\"\nsize = \"100 B\"\nrate = \"100 Hz\"\npublisher = \"cam\"\n\
        [[subscriber]]\ntopic = \"state\"\nnode = \"rw\"\ndeadline = \"9 ms\"\n";
    testbed.start(0);
    let text = session("teleop", 100, "1 s").replacen('\n', "\nlease = \"60 s\"\n", 1);
    let ann = testbed.ann();
    let active = testbed.request(&text).unwrap();
    // 133 kbit/s do not fit into this.
    let links = ann.state_link("cam-rw", Some(20_000)).unwrap();
    assert!(links.because.is_some(), "{links:?}");
    let renewed = ann.request_session("teleop", &text).unwrap();
    assert_eq!(renewed.revision, active.revision);
    let left = |session: &Session| session.lease_left_ms.unwrap();
    eventually(|| (left(&ann.session("teleop").unwrap()) < left(&renewed)).then_some(()));
    assert!(left(&ann.request_session("teleop", &text).unwrap()) > 59_000);
    let other = ann.request_session("log", &session("log", 100, "1 s"));
    assert!(
        matches!(&other, Err(ClientError::Refused(409, said)) if said.contains("no plan for the links")),
        "{other:?}"
    );
    ann.state_link("cam-rw", None).unwrap();
    testbed.request(&session("log", 100, "1 s")).unwrap();
}

/// A link in the middle domain carries less than two sessions have together: the less important one is thinned at its publisher, and both ends hear
/// of it.
#[test]
fn a_slow_link_in_another_domain_thins_the_least_important_session() {
    // Slow pipes that hold what comes at once after as slow ones.
    let slow = "rate = \"400 kbit/s\"\nburst = \"400 kB\"\nlargest = \"1 kB\"\ndeadline = \"5 s\"";
    const FAST: &str = "rate = \"400 kbit/s\"\nburst = \"9 kB\"\nlargest = \"1 kB\"\ndeadline = \"60 ms\"";
    let testbed = Testbed::with(|contract| {
        contract.replace(FAST, "rate = \"400 kbit/s\"\nburst = \"400 kB\"\nlargest = \"1 kB\"\ndeadline = \"5 s\"")
    });
    assert!(testbed.contract(1).contains(slow));
    let (ann, of_wan) = (testbed.ann(), testbed.client(1, Kind::User, "ann"));
    for (name, importance) in [("top", 9), ("low", 1)] {
        let text = session(name, 934, "60 s").replace("[[topic]]", &format!("importance = {importance}\n[[topic]]"));
        testbed.request(&text.replace("deadline", "scale_max = 8\ndeadline")).unwrap();
    }
    testbed.install(0);
    let scales = || ["top", "low"].map(|name| ann.session(name).unwrap().channels[0].scale);
    assert_eq!(scales(), [1, 1]);
    of_wan.state_link("rw-wb", Some(150_000)).unwrap();
    eventually(|| (scales()[1] > 1).then_some(()));
    assert_eq!(scales()[0], 1, "the more important one has all");
    let because = ann.session("low").unwrap().because.unwrap_or_default();
    assert!(
        because.contains("/low@desk gets one of") && because.contains("link rw-wb carries 150 kbit/s"),
        "{because}"
    );
    assert_eq!(testbed.all_sold(), [2.0 * RATE; 3], "what is sold stays sold");
    let pipes = of_wan.pipes().unwrap();
    let carries = pipes.iter().find_map(|pipe| pipe.carries_bits_per_s.filter(|_| pipe.class == qos::Class::Low));
    assert!(carries.is_some_and(|rate| rate < 2.0 * RATE), "{pipes:?}");
    // The agent of the subscriber's host hears of it.
    let told = || {
        let agent = testbed.client(2, Kind::Host, "wb");
        let plan = agent.desired("wb", (0, 0), Duration::ZERO).unwrap().unwrap().plan.unwrap();
        let plan = qos::plan::Plan::from_text(&plan).unwrap();
        plan.channels.iter().find(|channel| channel.topic == "low").unwrap().scale
    };
    eventually(|| (told() == scales()[1]).then_some(()));
    // What has less room before has no more before the queues are there.
    of_wan.state_link("rw-wb", None).unwrap();
    assert!(scales()[1] > 1);
    testbed.install(1);
    eventually(|| (scales() == [1, 1] && told() == 1).then_some(()));
    eventually(|| {
        testbed.install(0);
        ann.session("low").unwrap().because.is_none().then_some(())
    });
    let thinned = ann.accounts(0).unwrap().into_iter().filter(|line| line.contains("\"thin\""));
    let thinned: Vec<String> = thinned.collect();
    assert!(thinned.len() >= 2 && thinned.iter().all(|line| line.contains("low")), "{thinned:?}");
    assert!(thinned.last().is_some_and(|line| line.contains("what they asked for")), "{thinned:?}");
}

#[test]
fn a_domain_whose_plan_was_taken_away_sells_nothing_until_its_hosts_have_it_again() {
    let testbed = Testbed::new();
    testbed.request(&session("first", 934, "100 ms")).unwrap(); // all are ready
    testbed.ann().stop_session("first").unwrap();
    let of_wan = testbed.client(1, Kind::User, "ann");
    // Once the session has ended there, too.
    let taken = eventually(|| of_wan.change_plan(None, of_wan.plan().unwrap().revision).ok());
    let text = session("teleop", 934, "100 ms");
    let refused = testbed.request(&text);
    let Err(ClientError::Unfit(said, _)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("of domain wan") && said.contains("restore --all"), "{said}");
    assert_eq!((of_wan.plan().unwrap().revision, testbed.all_sold()), (taken.revision, vec![0.0; 3]));
    // A session inside brings it back.
    let near = session("near", 100, "1 s").replace("base/desk", "wb").replace("\"cam\"", "\"rw\"");
    of_wan.request_session("near", &near).unwrap();
    let early = testbed.ann().request_session("teleop", &text);
    assert!(
        matches!(&early, Err(ClientError::Refused(503, said)) if said.contains("pipes of domain wan")),
        "{early:?}"
    );
    testbed.install(1);
    testbed.request(&text).unwrap();
    eventually(|| (testbed.all_sold() == [RATE; 3]).then_some(()));
}
