//! Strangers at a node's control plane: floods, slowness and lies take little memory, and neither keep out nor redirect other
//! nodes. A pair publishes at 1 kHz beside each of them and loses no sample.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Settings};
use world::agent::{Agent, number};
use world::stranger_link::{Link, connect, document, frame, greeting, publisher};
use world::{World, eventually, figure};

/// Most memory that strangers may cost a node, in KiB.
const MOST_MEMORY: f64 = 65_536.0;
const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A publisher under attack, and its subscriber.
struct Pair {
    publisher: Agent,
    subscriber: Agent,
    address: SocketAddr,
}

impl Pair {
    fn new(world: &World, under: &[&str]) -> Self {
        let mut publisher = Agent::start_by(world, "publisher topic=/good name=/p", under);
        let mut subscriber = Agent::start(world, "subscriber topic=/good name=/s carriers=tcp,shm");
        subscriber.connected(1);
        publisher.ask("publish count=100");
        let addresses = publisher.ask("status")["addresses"].clone();
        let all = addresses.as_array().unwrap().iter().map(|a| a.as_str().unwrap().parse::<SocketAddr>().unwrap());
        let address = all.into_iter().find(SocketAddr::is_ipv4).unwrap();
        Self { publisher, subscriber, address }
    }

    /// Publishes during `attack`, which reports its number of attempts, while newcomers connect over these carriers.
    /// No sample is lost, little memory is taken, and each newcomer connects before the attack ends.
    fn during(&mut self, world: &World, newcomers: &[&str], attack: impl FnOnce(SocketAddr, &GoesOn) -> String + Send) {
        self.subscriber.ask("reset");
        let before = number(&self.publisher.ask("status"), "rss_kib");
        self.publisher.tell("publish count=4000");
        let (address, goes_on) = (self.address, GoesOn::new());
        let (told, came) = std::thread::scope(|scope| {
            let attacks = scope.spawn(|| attack(address, &goes_on));
            assert!(eventually(world::LONG, || goes_on.has_begun().then_some(())).is_some() || attacks.is_finished());
            let came: Vec<_> = newcomers.iter().map(|carrier| (*carrier, newcomer(world, carrier))).collect();
            assert!(newcomers.is_empty() || !attacks.is_finished(), "the attack ended before the newcomers came");
            goes_on.may_end();
            (attacks.join().unwrap(), came)
        });
        let published = self.publisher.answer();
        let last = number(&published, "last");
        // The pair's own channel took all samples. A newcomer's channel, which is killed while samples are published,
        // is broken or full until its end is noticed: `publish` counts that, too.
        let status = self.publisher.ask("status");
        let own = status["channels"].as_array().unwrap().iter().find(|channel| channel["subscriber"] == "/s").unwrap();
        assert_eq!((number(own, "samples"), number(own, "lost")), (last, 0.0), "{published} {own}");
        assert!(self.subscriber.ask(&format!("until last={last}"))["ok"] == true);
        let missing = number(&self.subscriber.ask("report"), "missing");
        let after = number(&self.publisher.ask("status"), "peak_kib");
        let calls = format!("publish p99 {:.0} µs", number(&published, "p99"));
        figure(
            "hostile control",
            format!(
                "{told}: {missing} of 4000 lost, {calls}, {:.0} KiB taken at most, newcomers {came:?}",
                after - before
            ),
        );
        assert_eq!(missing, 0.0);
        assert!(after - before < MOST_MEMORY, "{before} KiB before, {after} KiB at most");
    }
}

/// Time until a new node is connected; at most 20 s.
fn newcomer(world: &World, carrier: &str) -> Duration {
    let began = Instant::now();
    let mut late = Agent::start(world, &format!("subscriber topic=/good name=/late-{carrier} carriers={carrier}"));
    late.connected(1);
    began.elapsed()
}

/// Duration of an attack: 4 s, the time that the pair publishes, and until the newcomers have connected.
struct GoesOn {
    began: Instant,
    under_way: AtomicBool,
    may_end: AtomicBool,
}

impl GoesOn {
    fn new() -> Self {
        Self { began: Instant::now(), under_way: AtomicBool::new(false), may_end: AtomicBool::new(false) }
    }
    /// `true` while the attack continues; called between two steps, after the first.
    fn yet(&self) -> bool {
        self.under_way.store(true, Ordering::Relaxed);
        let all_came = self.may_end.load(Ordering::Relaxed);
        self.began.elapsed() < Duration::from_secs(4) || (!all_came && self.began.elapsed() < 5 * world::LONG)
    }
    fn has_begun(&self) -> bool {
        self.under_way.load(Ordering::Relaxed)
    }
    fn may_end(&self) {
        self.may_end.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_calls_takes_little_memory_and_keeps_nobody_out() {
    let _alone = world::alone();
    let world = World::new();
    let mut pair = Pair::new(&world, &[]);
    let asked: Vec<Value> = (0..38_000)
        .map(|n| json!({"topic": "/good", "publisher": "/p", "subscriber": format!("/s{n}"), "after_ns": 1}))
        .collect();
    let request = json!({"verb": "lateness", "channels": asked}).to_string();
    let realm = world.realm().to_owned();
    pair.during(&world, &["tcp", "shm"], |address, goes_on| {
        let (mut link, mut said) = (Link::new(address, HERE, &realm, 0xbad), 0);
        let body = [&1u64.to_le_bytes()[..], request.as_bytes()].concat();
        while goes_on.yet() {
            match link.say(5, &body) {
                true => said += 1,
                false => link = Link::new(address, HERE, &realm, 0xbad + said), // it is read more slowly
            }
        }
        format!("{said} calls of {} KiB", body.len() >> 10)
    });
}

#[test]
fn unfinished_messages_take_little_memory() {
    let turn = world::alone();
    let world = World::new();
    let mut pair = Pair::new(&world, &[]);
    let realm = world.realm().to_owned();
    let begun =
        [frame(0x85, &vec![b' '; 1 << 20]).repeat(3), frame(5, &vec![b' '; 1 << 20])[..1 << 20].to_vec()].concat();
    let mut links = Vec::new();
    pair.during(&world, &["tcp", "shm"], |address, goes_on| {
        for node in 0..300 {
            let mut link = Link::new(address, HERE, &realm, 0xbad + node);
            link.0.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = link.0.write_all(&begun); // the node may close it, or take no more
            links.push(link);
            goes_on.yet();
        }
        while goes_on.yet() {
            std::thread::sleep(Duration::from_millis(10));
        }
        format!("{} messages of 1 MiB begun", links.len())
    });
    drop(turn); // up to a minute of silence, which disturbs nobody
    // A silent connection ends; a well-behaved link stays.
    let mut good = Link::new(pair.address, HERE, world.realm(), 0x900d);
    let open = |links: &mut Vec<Link>| links.iter_mut().filter_map(|link| (!link.is_closed()).then_some(())).count();
    assert!(eventually(Duration::from_secs(90), || (open(&mut links) == 0).then_some(())).is_some());
    assert!(good.call(&json!({"verb": "clock"})).is_object());
}

#[test]
fn documents_take_little_memory() {
    let _alone = world::alone();
    let world = World::new();
    let mut pair = Pair::new(&world, &[]);
    let realm = world.realm().to_owned();
    pair.during(&world, &["tcp", "shm"], |address, goes_on| {
        let (mut links, mut told) = (Vec::new(), 0);
        // The common limit is full after a few; further ones replace earlier ones.
        while goes_on.yet() {
            let node = 0xbad + told;
            let mut link = Link::new(address, HERE, &realm, node);
            link.say(2, heavy(&realm, node).as_bytes());
            links.push(link);
            told += 1;
            if links.len() > 40 {
                links.remove(0);
            }
        }
        format!("{told} documents of 4 MB")
    });
}

/// One address fills its share. A publisher from another address is heard, and refused nodes are asked again when
/// there is room.
#[test]
fn a_stranger_that_fills_the_room_for_documents_keeps_no_publisher_out() {
    let _alone = world::alone();
    const LATER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
    let realm = format!("room-{}", std::process::id());
    let victim = node("victim", &realm);
    let _subscriber = victim.subscriber::<Raw>("/t").open().unwrap();
    let address = address_of(&victim);
    let knows = |node: u64| victim.nodes().iter().any(|known| known.node.0 == node);
    let mut links = Vec::new();
    // 1 MB each: 16 of them fill the share of all other hosts.
    for id in 0xbad..0xbad + 20 {
        let mut link = Link::new(address, OTHER, &realm, id);
        assert!(link.say(2, heavy_of(&realm, id, 62).as_bytes()));
        link.call(&json!({"verb": "clock"}));
        links.push((id, link));
    }
    let (heard, unheard): (Vec<_>, Vec<_>) = links.into_iter().partition(|(id, _)| knows(*id));
    assert!(heard.len() > 2 && unheard.len() > 4, "{} were heard", heard.len());
    // A publisher, and a document as large as theirs.
    let listener = TcpListener::bind((LATER, 0)).unwrap();
    let mut later = Link::new(address, LATER, &realm, 0x900d);
    let mut told: Value = serde_json::from_str(&heavy_of(&realm, 0x900d, 62)).unwrap();
    told["host"] = json!(linux::clock::host_id());
    told["addresses"] = json!([listener.local_addr().unwrap().to_string()]);
    told["ports"]["9999"] = publisher("/later", "/t");
    assert!(later.say(2, told.to_string().as_bytes()));
    later.call(&json!({"verb": "clock"}));
    assert!(knows(0x900d), "a node of another address found no room");
    listener.set_nonblocking(true).unwrap();
    let matched = || listener.accept().ok();
    assert!(eventually(world::LONG, matched).is_some(), "it was not matched: the subscriber did not connect");
    drop(heard);
    let (id, mut link) = unheard.into_iter().next().unwrap();
    link.await_message(4);
    assert!(link.say(2, heavy_of(&realm, id, 62).as_bytes()));
    assert!(eventually(world::LONG, || knows(id).then_some(())).is_some(), "it found no room when there was some");
}

/// A document whose ports have the largest allowed contents besides their names.
fn heavy(realm: &str, node: u64) -> String {
    heavy_of(realm, node, 250)
}

fn heavy_of(realm: &str, node: u64, ports: u32) -> String {
    let mut told = document(realm, node, 1);
    let partition: Vec<String> = (0..64).map(|n| format!("{n:0>240}")).collect();
    for port in 1..=ports {
        let mut its = publisher(&format!("/heavy{node}/{port}"), "/heavy");
        its["qos"]["partition"] = json!(partition);
        told["ports"][port.to_string()] = its;
    }
    told.to_string()
}

/// Opens silent streams, and keeps them while it lives.
struct Slow(Arc<AtomicBool>, Option<std::thread::JoinHandle<usize>>);

impl Slow {
    fn new(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let open = move || {
            let (mut kept, mut opened) = (std::collections::VecDeque::new(), 0);
            while !told.load(Ordering::Relaxed) && opened < 200_000 {
                if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                    kept.push_back(stream);
                    opened += 1;
                }
                if kept.len() > 400 {
                    kept.pop_front();
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            opened
        };
        Self(stop, Some(std::thread::spawn(open)))
    }

    fn end(mut self) -> usize {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap()
    }
}

#[test]
fn silent_streams_keep_nobody_out() {
    let _alone = world::alone();
    let world = World::new();
    let mut pair = Pair::new(&world, &[]);
    let slow = Slow::new(pair.address);
    pair.during(&world, &["tcp", "shm"], |_, goes_on| {
        while goes_on.yet() {
            std::thread::sleep(Duration::from_millis(10));
        }
        format!("{} streams that say nothing", slow.end())
    });
}

#[test]
fn descriptors_are_left_for_the_nodes_of_this_host() {
    let _alone = world::alone();
    let world = World::new();
    let mut pair = Pair::new(&world, &["prlimit", "--nofile=160:160"]);
    let id = pair.publisher.ask("status")["id"].as_str().unwrap().to_owned();
    let watching = json!({"version": 1, "realm": world.realm(), "to_node": id, "source": id, "port": 1});
    let mut streams = Vec::new();
    for from in [HERE, OTHER, Ipv4Addr::new(127, 0, 0, 3)] {
        for _ in 0..80 {
            let mut stream = connect(pair.address, from);
            let _ = stream.write_all(&greeting(b'L', &watching));
            streams.push(stream);
        }
    }
    let open = |streams: &mut Vec<TcpStream>| {
        let live = |stream: &mut TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let mut bytes = [0; 64];
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        };
        streams.iter_mut().filter_map(|stream| live(stream).then_some(())).count()
    };
    let kept = eventually(world::LONG, || Some(open(&mut streams)).filter(|open| *open < 128));
    figure("hostile control", format!("{kept:?} of 240 streams kept of 160 descriptors"));
    assert!(kept.is_some());
    pair.during(&world, &["shm"], |_, goes_on| {
        while goes_on.yet() {
            std::thread::sleep(Duration::from_millis(10));
        }
        "descriptors that strangers hold".to_owned()
    });
}

fn node(name: &str, realm: &str) -> Node {
    Node::with_settings(Settings { name: name.into(), realm: realm.into(), ..Settings::default() }).unwrap()
}

fn address_of(node: &Node) -> SocketAddr {
    node.addresses().into_iter().find(SocketAddr::is_ipv4).unwrap()
}

#[test]
fn a_node_that_is_there_is_not_taken_over() {
    let _beside = world::beside();
    let realm = format!("taken-{}", std::process::id());
    let (first, second) = (node("first", &realm), node("second", &realm));
    let publisher_port = first.publisher::<Raw>("/t").named("/real").open().unwrap();
    let knows = || second.nodes().into_iter().find(|known| known.node == first.id() && known.ports.len() == 1);
    assert!(second.wait_until(world::LONG, || knows().is_some()));
    let mut link = Link::new(address_of(&second), HERE, &realm, first.id().0);
    let mut told = document(&realm, first.id().0, 1_000_000);
    told["ports"]["1"] = publisher("/evil", "/t");
    assert!(link.say(2, told.to_string().as_bytes()));
    let change =
        json!({"base": 1_000_000, "revision": 1_000_001, "added": {"2": publisher("/worse", "/t")}, "removed": [1]});
    assert!(link.say(3, change.to_string().as_bytes()));
    link.call(&json!({"verb": "clock"})); // heard, and answered where it was asked
    let known = knows().unwrap();
    assert_eq!((known.name.as_str(), known.ports.values().next().unwrap().name.as_str()), ("first", "/real"));
    drop((link, publisher_port, first));
    assert!(second.wait_until(world::LONG, || second.nodes().len() == 1));
}

#[test]
fn an_impostor_gives_way_to_the_socket_of_the_node() {
    let _beside = world::beside();
    let realm = format!("claimed-{}", std::process::id());
    let second = node("second", &realm);
    // A stranger cannot know an id beforehand; the test hands it over.
    let claimed = 0x0123_4567_89ab_cdef;
    let mut link = Link::new(address_of(&second), HERE, &realm, claimed);
    assert!(link.say(2, document(&realm, claimed, u64::MAX).to_string().as_bytes()));
    link.call(&json!({"verb": "clock"}));
    let name = || second.nodes().into_iter().find(|known| known.node.0 == claimed).map(|known| known.name);
    assert_eq!(name().as_deref(), Some("stranger"));
    let socket = second.nodes().into_iter().find(|known| known.node == second.id()).unwrap().socket.unwrap();
    let mut here = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let hello = json!({"version": 1, "realm": realm, "node": format!("{claimed:016x}")}).to_string();
    let mut real = document(&realm, claimed, 1);
    real["name"] = json!("real");
    here.write_all(&[b"C".to_vec(), frame(1, hello.as_bytes()), frame(2, real.to_string().as_bytes())].concat())
        .unwrap();
    assert!(second.wait_until(world::LONG, || name().as_deref() == Some("real")), "{:?}", name());
}

#[test]
fn documents_redirect_nobody() {
    let _beside = world::beside();
    let realm = format!("elsewhere-{}", std::process::id());
    let victim = node("victim", &realm);
    let _subscriber = victim.subscriber::<Raw>("/t").open().unwrap();
    let third = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 77), 0)).unwrap();
    let (dir, own) =
        (std::env::temp_dir().join(format!("thalweg-{realm}.sock")), TcpListener::bind((HERE, 0)).unwrap());
    let socket = UnixListener::bind(&dir).unwrap();
    socket.set_nonblocking(true).unwrap();
    third.set_nonblocking(true).unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let (count, listener) = (accepted.clone(), own.try_clone().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            count.fetch_add(1, Ordering::Relaxed);
            kept.push(stream); // never answered
        }
    });
    let mut link = Link::new(address_of(&victim), HERE, &realm, 0xbad);
    let mut told = document(&realm, 0xbad, 1);
    told["addresses"] = json!(vec![third.local_addr().unwrap().to_string(); 64]);
    (1..=200).for_each(|port| told["ports"][port.to_string()] = publisher(&format!("/evil{port}"), "/t"));
    assert!(link.say(2, told.to_string().as_bytes()));
    // The same with a node that claims this host, with the socket of another process.
    let mut second = Link::new(address_of(&victim), HERE, &realm, 0xbae);
    let mut told = document(&realm, 0xbae, 1);
    (told["host"], told["socket"]) = (json!(linux::clock::host_id()), json!(dir));
    told["ports"]["1"] = publisher("/evil-socket", "/t");
    told["ports"]["1"]["carriers"] = json!(["shm"]);
    assert!(second.say(2, told.to_string().as_bytes()));
    // A node that points to itself: the number of handshakes under way is bounded.
    let mut third_link = Link::new(address_of(&victim), HERE, &realm, 0xbaf);
    let mut told = document(&realm, 0xbaf, 1);
    told["host"] = json!(linux::clock::host_id());
    told["addresses"] = json!([own.local_addr().unwrap().to_string()]);
    (1..=400).for_each(|port| told["ports"][port.to_string()] = publisher(&format!("/slow{port}"), "/t"));
    assert!(third_link.say(2, told.to_string().as_bytes()));
    for link in [&mut link, &mut second, &mut third_link] {
        link.call(&json!({"verb": "clock"}));
    }
    assert!(eventually(world::LONG, || (accepted.load(Ordering::Relaxed) >= 16).then_some(())).is_some());
    let first = accepted.load(Ordering::Relaxed);
    figure("hostile control", format!("{first} handshakes under way with who never answers, of 400 wanted"));
    assert!(first < 64, "{first}");
    assert!(third.accept().is_err(), "a third party was connected to");
    assert!(socket.accept().is_err(), "a socket outside of the run directory was connected to");
    let _ = std::fs::remove_file(dir);
}

#[test]
fn a_run_directory_that_was_emptied_has_its_nodes_again() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    // The publisher's node may add a file meanwhile.
    let removed =
        || std::fs::remove_dir_all(world.run_dir()).map_or_else(|e| e.kind() == ErrorKind::NotFound, |()| true);
    assert!(eventually(world::LONG, || removed().then_some(())).is_some());
    let mut late = Agent::start(&world, "subscriber topic=/a carriers=shm");
    late.connected(1);
    publisher.connected(1);
    [publisher, late].into_iter().for_each(Agent::finish);
    assert_eq!(world.left_behind(), Vec::<String>::new());
}

/// Programs that remove old files from `/tmp` spare sockets with a listener.
#[test]
fn a_run_directory_without_its_files_hides_no_node() {
    fn remove_files(folder: &std::path::Path) -> u32 {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let removed = |entry: std::fs::DirEntry| match entry.file_type().unwrap() {
            kind if kind.is_dir() => remove_files(&entry.path()),
            kind if kind.is_file() => std::fs::remove_file(entry.path()).map_or(0, |()| 1),
            _ => 0,
        };
        entries.map(removed).sum()
    }
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let mut removed = 0;
    let marks = eventually(world::LONG, || {
        removed += remove_files(&world.run_dir());
        (removed >= 2).then_some(())
    });
    assert!(marks.is_some(), "a mark for the topic and one for the port's name");
    let mut late = Agent::start(&world, "subscriber topic=/a carriers=shm");
    late.connected(1);
    publisher.connected(1);
    [publisher, late].into_iter().for_each(Agent::finish);
}

#[test]
fn one_stranger_does_not_take_all_answers() {
    let _beside = world::beside();
    let realm = format!("answers-{}", std::process::id());
    let (keeps, asks) = (node("keeps", &realm), node("asks", &realm));
    let history = qos::PullBuffer { samples: 64, ..Default::default() };
    let mut publisher = keeps.publisher::<Raw>("/t").history(history).open().unwrap();
    for _ in 0..64 {
        publisher.publish(&vec![7; 64 << 10]).unwrap();
    }
    let question = json!({"version": 1, "realm": realm, "to_node": keeps.id().to_string(), "to_port": 1, "topic": "/t",
        "message": {"name": "*", "hash": "0000000000000000"}, "max_message": 1 << 20, "query": {"last": 64}, "except": []});
    let mut streams: Vec<TcpStream> = (0..32)
        .map(|_| {
            let mut stream = connect(address_of(&keeps), OTHER);
            stream.write_all(&greeting(b'P', &question)).unwrap();
            stream
        })
        .collect();
    let begun = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(world::LONG)).unwrap();
        stream.read(&mut [0; 1]).is_ok_and(|count| count == 1) // and no more of its bytes are read
    };
    assert!(streams.iter_mut().all(begun), "all are being answered");
    let subscriber = asks.subscriber::<Raw>("/t").pull_only().open().unwrap();
    let mut answered = || {
        let pull = subscriber.pull(thalweg::Query::latest(), Duration::from_secs(2)).ok()?;
        (pull.filter(Result::is_ok).count() == 1).then_some(())
    };
    assert!(eventually(world::LONG, &mut answered).is_some(), "one stranger has all answers");
}
