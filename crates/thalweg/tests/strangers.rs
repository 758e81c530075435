//! A stranger, who may only open TCP connections to a node, gets a bounded share of it, and cannot change it.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use qos::Place;
use thalweg::admin::{Reply, Request as Administration};
use thalweg::codec::{Raw, Schema, TypeDescription};
use thalweg::proxy::scaler::{Scaler, Scalers, Unscalable};
use thalweg::proxy::{Picture, Proxy};
use thalweg::testing::handshake::{Answer, Reason, Refused, Request};
use world::World;
use world::agent::{self, Agent};
use world::fake::{Fake, accepted, packed};
use world::stranger::Stranger;

fn refused((_, answer): (std::net::TcpStream, Option<Answer>)) -> Refused {
    match answer {
        Some(Answer::Refused(refused)) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

/// Its last sample has the highest number: a counter that continues from there overflows.
#[test]
fn a_publisher_with_the_highest_number_ends_no_node() {
    let _alone = world::alone();
    let world = World::new();
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=tcp every=3");
    let fake = Fake::new(&world, &["tcp"]);
    for last_seq in [u64::MAX, 1 << 63] {
        let told = world::eventually(world::LONG, || {
            let (mut stream, _) = fake.asked();
            let _ = std::io::Write::write_all(
                &mut stream,
                &packed(thalweg::testing::handshake::Accepted { last_seq, ..accepted() }),
            );
            lied_to.told(&format!("its_last_sample_{last_seq}"), std::time::Duration::from_millis(700)).then_some(())
        });
        assert!(told.is_some(), "{}", lied_to.ask("status")["events"]);
    }
    let kept = fake.accepted();
    lied_to.connected(1);
    drop(kept);
}

/// A host with many unfinished connections is not answered for a while, without another effect; all others are
/// answered.
#[test]
fn a_host_that_connects_in_vain_without_end_is_not_answered_for_a_while() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let to = Stranger::of(&world, &mut publisher).address();
    let from = |last: u8| {
        let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
        socket.connect_timeout(&to.into(), std::time::Duration::from_millis(200)).map(|()| socket)
    };
    // Each connection is answered and closed at once; an unanswered one is retried only after a second.
    let answered = (0..3000).take_while(|_| from(66).is_ok_and(|socket| socket.send(b"?").is_ok())).count();
    assert!((28..1500).contains(&answered), "{answered} were answered");
    assert!(publisher.told("were_not_answered_for_half_a_second", world::LONG));
    assert!(from(67).is_ok(), "another one is");
    assert!(world::eventually(world::LONG, || from(66).ok()).is_some(), "and so is this one again");
}

/// A connection that was reset has no address when it is accepted, unless it is read sooner.
#[test]
fn connections_that_are_reset_at_once_count_for_their_host() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let to = Stranger::of(&world, &mut publisher).address();
    publisher.stop();
    for _ in 0..110 {
        let stream = std::net::TcpStream::connect(to).unwrap();
        socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
    publisher.go_on();
    assert!(publisher.told("were_not_answered_for_half_a_second", world::LONG));
}

/// A process that connects by the unix socket at full speed keeps no other one out.
#[test]
fn a_process_that_connects_in_vain_without_end_keeps_no_newcomer_out() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let mut files = std::fs::read_dir(world.run_dir()).unwrap().map(|entry| entry.unwrap().path());
    let socket = files.find(|path| path.extension().is_some_and(|end| end == "sock")).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = || {
            while !over.load(Ordering::Relaxed) {
                let _ = UnixStream::connect(&socket).and_then(|mut stream| stream.write_all(b"?"));
            }
        };
        scope.spawn(flood);
        let _over = Over(&over);
        assert!(publisher.told("were_not_answered_for_half_a_second", world::LONG));
        for _ in 0..5 {
            drop(Agent::start(&world, "subscriber topic=/good match=1"));
        }
    });
}

/// The change of a request, the policy that refuses it, and the reason.
type Case<'a> = (&'a dyn Fn(&mut Request), &'a str, &'a str);

#[test]
fn an_answer_with_many_descriptors_keeps_none_of_them() {
    use std::os::fd::AsFd;
    let _alone = world::alone();
    let world = World::new();
    let mut lied_to = Agent::start(&world, "subscriber topic=/a name=/lied carriers=shm");
    let fake = Fake::new(&world, &["shm"]);
    let null = std::fs::File::open("/dev/null").unwrap();
    let told = world::eventually(world::LONG, || {
        let stream = fake.asked_here();
        for byte in [[1], [0], [0]] {
            let _ = linux::socket::send_with_descriptors(stream.as_fd(), &byte, &[null.as_fd(); 3]);
        }
        lied_to.told("more_descriptors_than_a_ring_has", std::time::Duration::from_millis(700)).then_some(())
    });
    assert!(told.is_some(), "{}", lied_to.ask("status")["events"]);
}

#[test]
fn absurd_requests_are_refused_with_the_limit() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let stranger = Stranger::of(&world, &mut publisher);
    let changed = |change: &dyn Fn(&mut Request)| {
        let mut request = stranger.request("/good", 1);
        change(&mut request);
        refused(stranger.ask(&request))
    };
    let schema = |schema: Schema| TypeDescription {
        name: "bomb".into(),
        hash: schema.hash(),
        schema: Some(schema.into()),
        ros: None,
    };
    let parts = schema(Schema::Tuple(vec![Schema::Unit; 5000]));
    let deep = schema((0..100).fold(Schema::U8, |inner, _| Schema::Option(Box::new(inner))));
    let long =
        |length: usize| Some(qos::Filter { expression: "a LIKE %0".into(), parameters: vec!["%".repeat(length)] });
    let cases: [Case<'_>; 6] = [
        (&|r| r.subscriber.message = parts.clone(), "types", "at most 4096 parts"),
        (&|r| r.subscriber.message = deep.clone(), "types", "at most 32 levels"),
        (&|r| r.subscriber.name = "/a\u{1b}[2J".into(), "names", "\\u{1b}"),
        (&|r| r.subscriber.qos.filter = long(60_000), "qos", "filter parameter of 60000 bytes"),
        (&|r| r.subscriber.qos.key = vec!["a".into(); 100], "qos", "key of 100 fields"),
        (&|r| r.clock = "x".repeat(1000), "length of a name", "1000"),
    ];
    for (change, policy, says) in cases {
        let refused = changed(change);
        assert!(refused.policy.name() == policy && refused.requested.contains(says), "{refused:?}");
        assert!(!refused.remedy.is_empty());
    }
    // The port continues.
    let (_stream, answer) = stranger.ask(&stranger.request("/good", 1));
    assert!(matches!(answer, Some(Answer::Accepted(_))), "{answer:?}");
}

/// Each channel costs the publishing thread a system call per sample: 300 more left 355 Hz of 1 kHz.
#[test]
fn a_stranger_gets_a_bounded_share_of_a_port() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let mut good = Agent::start(&world, "subscriber topic=/good carriers=tcp");
    good.connected(1);
    let mut stranger = Stranger::of(&world, &mut publisher);
    publisher.tell("publish count=2000");
    let (mut streams, mut reasons) = (Vec::new(), Vec::new());
    for number in 0..300 {
        // Node ids cost nothing: the first half has one, the others one each.
        stranger.id = thalweg::control::NodeId(if number < 150 { 7 } else { 1000 + u64::from(number) });
        match stranger.ask(&stranger.request("/good", number)) {
            (stream, Some(Answer::Accepted(_))) => streams.push(stream),
            (_, Some(Answer::Refused(refused))) => reasons.push(refused),
            (_, other) => panic!("no answer: {other:?}"),
        }
        if number == 149 {
            assert_eq!(streams.len(), 16);
        }
    }
    assert_eq!(streams.len(), 32);
    let said = |text: &str| reasons.iter().any(|refused| refused.offered.contains(text));
    assert!(
        said("at most 16 channels of one port for node 0000000000000007 of host 127.0.0.1"),
        "{:?}",
        reasons.first()
    );
    assert!(said("at most 32 channels of one port for those of host 127.0.0.1"), "{:?}", reasons.last());
    assert!(
        reasons
            .iter()
            .all(|refused| refused.policy == Reason::Channels && refused.remedy.contains("--channels above 64"))
    );
    let published = publisher.answer();
    let took = agent::number(&published, "took_ms");
    world::figure("strangers", format!("2000 samples at 1 kHz took {took} ms beside 300 requests of a stranger"));
    assert!(took < 4000.0, "a generous limit: with 300 channels it takes 5600");
    let last = agent::number(&published, "last");
    assert!(good.ask(&format!("until last={last}"))["ok"] == true);
    assert_eq!(agent::number(&good.ask("report"), "missing"), 0.0);
    // Channels that end make room.
    streams.truncate(8);
    stranger.id = thalweg::control::NodeId(9);
    let again = world::eventually(world::LONG, || {
        let (stream, answer) = stranger.ask(&stranger.request("/good", 1000));
        matches!(answer, Some(Answer::Accepted(_))).then_some(stream)
    });
    assert!(again.is_some());
}

/// Ids cost nothing: a host has one share of a node's memory, and none of the share of a node whose id it uses.
#[test]
fn all_ids_of_a_host_have_one_share_of_memory() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let stranger = Stranger::of(&world, &mut publisher);
    let silent: Vec<_> = (1..=3)
        .map(|id| {
            let request = Request { node: thalweg::control::NodeId(id), ..stranger.request("/good", 1) };
            let (stream, answer) = stranger.ask(&request);
            assert!(matches!(answer, Some(Answer::Accepted(_))), "{answer:?}");
            stream
        })
        .collect();
    publisher.connected(3);
    publisher.ask("publish count=64 size=1000000");
    let Reply::Memory(report) = stranger.administer(&Administration::Memory) else { panic!("no report") };
    let peers: Vec<_> = report.peers.iter().map(|peer| peer.peer.to_string()).collect();
    assert_eq!(peers, ["host 127.0.0.1"], "{report:?}");
    assert!(report.peers[0].used > 1_000_000, "{report:?}");
    drop(silent);
}

#[test]
fn silent_subscribers_keep_nobody_off_multicast() {
    const MOST_PROBED: usize = 64;
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let stranger = Stranger::of(&world, &mut publisher);
    let ask = |number| {
        let mut request = Request { carrier: "mcast".into(), ..stranger.request("/good", number) };
        (request.subscriber.carriers, request.parameters.probe) = (vec!["mcast".into()], true);
        request.subscriber.qos.reliability = qos::Reliability::BestEffort;
        stranger.ask(&request)
    };
    // A probe lasts half a second. More arrive meanwhile than there is room for, and further ones replace the oldest.
    let began = std::time::Instant::now();
    let all: Vec<_> = (0..3 * MOST_PROBED as u32).map(ask).collect();
    let (open, took) = (all.iter().filter(|(stream, _)| is_open(stream)).count(), began.elapsed());
    for (_, answer) in &all {
        assert!(matches!(answer, Some(Answer::Probe(_))), "{answer:?}");
    }
    assert!(open <= MOST_PROBED, "{open} of {} are probed still, after {took:?}", all.len());
    // On a machine that took longer to ask than a probe lasts, there was room for all.
    let crowded = took < std::time::Duration::from_millis(500);
    let gave_way = publisher.told("the_oldest_gave_way", world::LONG.mul_f32(if crowded { 1.0 } else { 0.05 }));
    world::figure("strangers", format!("{open} of {} subscribers were probed still after {took:?}", all.len()));
    assert!(gave_way || !crowded, "{}", publisher.ask("status")["events"]);
}

/// `true` if no byte has arrived on the stream since, and it has not ended.
fn is_open(stream: &std::net::TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Names of nodes and ports are public. A request in a subscriber's name ends nothing without its token, and channels
/// opened in one name count like those in many.
#[test]
fn a_subscriber_is_replaced_only_with_its_token() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let stranger = Stranger::of(&world, &mut publisher);
    let ask = |token, moves| match stranger.ask(&Request { token, moves, ..stranger.request("/good", 1) }) {
        (stream, Some(Answer::Accepted(_))) => Some(stream),
        _ => None,
    };
    let mut first = ask(Some(7), false).unwrap();
    let others: Vec<_> =
        [Some(8), Some(9)].into_iter().flat_map(|token| [ask(token, false), ask(token, true)]).collect();
    assert!(others.iter().all(Option::is_some), "who shows nothing is served beside it");
    let count = publisher.ask("publish count=1")["last"].clone();
    assert!(std::io::Read::read(&mut first, &mut [0; 1]).is_ok_and(|read| read == 1), "sample {count} came");
    let second = ask(Some(7), false);
    assert!(second.is_some());
    let mut rest = Vec::new();
    assert!(std::io::Read::read_to_end(&mut first, &mut rest).is_ok(), "the owner's older one ends");
    let more = (0..40).map_while(|token| ask(Some(100 + token), token % 2 == 0)).collect::<Vec<_>>();
    assert_eq!(more.len() + others.len() + 1, 16, "of one node");
}

/// Processes of this host that may use the run directory are no strangers, in any number.
#[test]
fn many_processes_of_this_host_share_a_publisher() {
    const PROCESSES: usize = 70;
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let _all: Vec<Agent> =
        (0..PROCESSES).map(|_| Agent::begin(&world, "subscriber topic=/good carriers=tcp", &[])).collect();
    let connected = publisher.ask(&format!("connected n={PROCESSES} ms=60000"));
    assert_eq!(connected["ok"], true, "{connected}");
}

#[test]
fn a_relay_keeps_room_for_others() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/good");
    let mut gate = Agent::start(&world, "relay node=gate relay=1");
    let mut stranger = Stranger::of(&world, &mut gate);
    let source = Stranger::of(&world, &mut publisher);
    let (mut streams, mut reasons) = (Vec::new(), Vec::new());
    for number in 0..100 {
        stranger.id = thalweg::control::NodeId(if number < 30 { 7 } else { 1000 + u64::from(number) });
        let proxy = Some(Proxy { place: Place::Relay("gate".into()), ..Proxy::default() });
        let to_node = source.request("/good", 0).to_node;
        let request = Request { to_node, proxy, ..stranger.request("/good", number) };
        match stranger.ask(&request) {
            (stream, Some(Answer::Accepted(_))) => streams.push(stream),
            (_, Some(Answer::Refused(refused))) => reasons.push(refused),
            (_, other) => panic!("no answer: {other:?}"),
        }
        if number == 29 {
            assert_eq!(streams.len(), 16, "{reasons:?}");
        }
    }
    assert_eq!(streams.len(), 64, "{:?}", reasons.last());
    assert!(reasons.iter().all(|refused| refused.policy == Reason::Relay));
    assert!(
        reasons[0].offered.contains("at most 16 proxies for node 0000000000000007 of host 127.0.0.1"),
        "{:?}",
        reasons[0]
    );
    let mut late = Agent::start(&world, "subscriber topic=/good carriers=tcp proxy=relay:gate");
    late.connected(1);
    let channels = late.ask("status")["channels"].to_string();
    assert!(channels.contains("gate"), "{channels}");
}

struct Cut;

impl Scaler for Cut {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        out.extend_from_slice(&message[..message.len().min(picture.width.into())]);
        Ok(())
    }
}

/// Each size of pictures costs a thread; a stranger that requested all of them first used to leave none to others.
#[test]
fn a_stranger_leaves_pictures_for_others() {
    let _alone = world::alone();
    let world = World::new();
    let settings = |name: &str| thalweg::Settings {
        name: name.to_owned(),
        realm: world.realm().to_owned(),
        scalers: Scalers::default().with("/good", || Cut),
        ..thalweg::Settings::default()
    };
    let open = |name| thalweg::Node::with_settings(settings(name)).unwrap();
    let (a, b) = (open("a"), open("b"));
    let _publisher = a.publisher::<Raw>("/good").named("/out").open().unwrap();
    let mut stranger = Stranger::of_node(&a);
    let (mut streams, mut reasons) = (Vec::new(), Vec::new());
    for width in 1..=4 {
        stranger.id = thalweg::control::NodeId(1000 + u64::from(width)); // ids cost nothing
        let picture = Some(Picture { width, height: 1 });
        let request =
            Request { proxy: Some(Proxy { picture, ..Proxy::default() }), ..stranger.request("/good", width.into()) };
        // A stalled machine may not have started it within the patience of a question, so it is asked again.
        let answer = world::eventually(world::LONG, || match stranger.ask(&request) {
            (_, Some(Answer::Refused(refused))) if refused.remedy.contains("a source that it reaches") => None,
            other => Some(other),
        });
        match answer.unwrap() {
            (stream, Some(Answer::Accepted(_))) => streams.push(stream),
            (_, Some(Answer::Refused(refused))) => reasons.push(refused.remedy),
            (_, other) => panic!("no answer: {other:?}"),
        }
    }
    let said =
        |reason: &String| reason.contains("at most 2 different pictures of /out for 127.0.0.1, and makes 1x1, 2x1");
    assert!(streams.len() == 2 && reasons.iter().all(said), "{} {reasons:?}", streams.len());
    let good = b.subscriber::<Raw>("/good").picture(40, 1).open().unwrap();
    assert!(good.wait_connected(1, world::LONG));
}

fn names() -> (String, String) {
    ("/out".to_owned(), "/in".to_owned())
}

/// Every request that changes something, as a stranger would send it.
fn changes() -> Vec<Administration> {
    let (port, other) = names();
    let connect = Administration::Connect { publisher: port.clone(), subscriber: other.clone(), carrier: None };
    let disconnect = Administration::Disconnect { publisher: port.clone(), subscriber: other.clone() };
    let priority = qos::priority::PrioritySettings { sched: Some("fifo:98".parse().unwrap()), ..Default::default() };
    let keep = Administration::Keep {
        publisher: port.clone(),
        subscriber: other.clone(),
        carrier: None,
        priority: priority.clone(),
    };
    let set =
        Administration::Set { port: port.clone(), other: port.clone(), changes: "sched=fifo:98".parse().unwrap() };
    let remember = Administration::Remember { port: port.clone(), other: other.clone(), settings: priority };
    let mut every = thalweg::proxy::ProxyChanges::default();
    every.add("every=1000").unwrap();
    let scale = Administration::Scale { publisher: port.clone(), subscriber: other.clone(), changes: every };
    let verdict = Administration::Verdict {
        publisher: port.clone(),
        subscriber: other,
        verdict: "broken".into(),
        because: "\u{1b}[2J".into(),
    };
    let command = |text: &str| Administration::Command { port: port.clone(), text: text.into() };
    let commands =
        ["atch out (type throttle) (period 86400)", "del /in", "prop set /out (process ((policy 1) (priority 98)))"];
    [connect, disconnect, keep, set, remember, scale, verdict].into_iter().chain(commands.map(command)).collect()
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::No(text) | Reply::Refused(text) | Reply::Text { text, .. } => text.clone(),
        other => format!("{other:?}"),
    }
}

#[test]
fn administration_that_changes_something_is_this_hosts_unless_allowed() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a name=/out node=mine");
    let mut subscriber = Agent::start(&world, "subscriber topic=/a name=/in");
    publisher.connected(1);
    let stranger = Stranger::of(&world, &mut publisher);
    for request in changes() {
        let said = text(&stranger.administer(&request));
        let expected = "node mine takes administration only from its own host, not from 127.0.0.1; start it with --admin-from 127.0.0.0/8";
        assert_eq!(said, expected, "{request:?}");
    }
    let left: Vec<String> = world.left_behind().into_iter().filter(|name| name.ends_with(".connection")).collect();
    assert!(left.is_empty(), "{left:?}");
    // Looking is allowed, but the arguments of the process are private.
    let look = |text: &str| Administration::Command { port: "/out".into(), text: text.into() };
    let own = text(&stranger.administer(&look("prop get /out")));
    assert!(own.contains("told to its own host only") && !own.contains("the_part"), "{own}");
    assert!(text(&stranger.administer(&look("list out"))).contains("/in"));
    let own = publisher.ask("command port=/out text=prop+get+/out");
    assert!(own["text"].as_str().unwrap().contains("the_part"), "{own}");
    assert!(matches!(stranger.administer(&Administration::Channels), Reply::Channels(all) if all.len() == 1));
    assert_eq!(subscriber.ask("status")["connected"], 1);
    // From this host, by the unix socket, everything is allowed.
    let set = subscriber.ask("set to=class=high");
    assert_eq!(set["ok"], true, "{set}");
}

#[test]
fn administrators_of_allowed_networks_may_but_keep_no_scheduling() {
    let _alone = world::alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a name=/out node=mine admin=10.0.0.0/8,127.0.0.0/8");
    let _subscriber = Agent::start(&world, "subscriber topic=/a name=/in admin=10.0.0.0/8");
    publisher.connected(1);
    let stranger = Stranger::of(&world, &mut publisher);
    let (port, other) = names();
    let set = Administration::Set { port, other, changes: "class=high".parse().unwrap() };
    assert!(matches!(stranger.administer(&set), Reply::Settings(_)));
    // Both are of one user, by the kernel's record of connections within the host.
    let (port, other) = names();
    let set = Administration::Set { port, other, changes: "sched=other".parse().unwrap() };
    assert!(matches!(stranger.administer(&set), Reply::Settings(_)));
    let (publisher_name, subscriber) = names();
    let keep = |priority| Administration::Keep {
        publisher: publisher_name.clone(),
        subscriber: subscriber.clone(),
        carrier: None,
        priority,
    };
    let sched = qos::priority::PrioritySettings { sched: Some("fifo:98".parse().unwrap()), ..Default::default() };
    let said = text(&stranger.administer(&keep(sched)));
    assert!(said.contains("keeps no scheduling (sched=fifo:98) that another host asks for"), "{said}");
    assert_eq!(stranger.administer(&keep(Default::default())), Reply::Done);
}
