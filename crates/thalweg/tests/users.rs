//! Several users of one host in one run directory: they exchange samples over shared memory, and strangers stay out.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use serde_json::{Value, json};
use std::fs::{Permissions, create_dir, set_permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use thalweg::admin::Request;
use world::agent::{Agent, number};
use world::stranger_link::Link;
use world::{LONG, World, figure, skipped};

/// Unused numbers: two members of a group, and a user outside it.
const GROUP: u32 = 61_000;
const ONE: u32 = 61_001;
const OTHER: u32 = 61_002;
const OUTSIDER_UID: u32 = 61_003;

/// Plays a part of these tests; `false` if the part is unknown.
pub fn play(part: &str) -> bool {
    match part.split_whitespace().next() {
        Some("stranger") => stranger(),
        Some("late") => late(),
        Some("caller") => caller(),
        _ => return false,
    }
    true
}

/// Reports why it cannot open a node, then the answers of the sockets that it is given.
fn stranger() {
    let problem = thalweg::Node::open("stranger").err().map(|e| e.to_string());
    println!("\n@{}", json!({"problem": problem}));
    for socket in std::io::stdin().lines().map_while(Result::ok) {
        let mut told = Vec::new();
        let connected = UnixStream::connect(&socket).and_then(|mut stream| stream.read_to_end(&mut told));
        let problem = connected.err().map(|e| e.to_string());
        println!("\n@{}", json!({"problem": problem, "told": String::from_utf8_lossy(&told)}));
    }
}

/// Opens a port on request, and reports the warning of its node about the run directory, if there was one.
fn late() {
    let node = thalweg::Node::open("late").unwrap();
    println!("\n@{}", json!({}));
    let mut ports = Vec::new();
    for name in std::io::stdin().lines().map_while(Result::ok) {
        ports.push(node.publisher::<thalweg::codec::Raw>(&name).open().unwrap());
        let warned = node.events().wait(LONG).is_some_and(|event| event.to_string().contains("run directory"));
        println!("\n@{}", json!({"warned": warned}));
    }
}

/// Calls the node at an address from another one of this host: `ADDRESS FROM REALM REQUEST`.
fn caller() {
    println!("\n@{}", json!({}));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let [to, from, realm, request] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mut link = Link::new(to.parse().unwrap(), from.parse().unwrap(), realm, 0xbad);
        println!("\n@{}", link.call(&serde_json::from_str(request).unwrap()));
    }
}

/// A world whose run directory belongs to root and a group; `None`, with the reason, where this is impossible.
fn shared() -> Option<World> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root can start processes of other users");
        return None;
    }
    let world = World::new();
    create_dir(world.run_dir()).unwrap();
    chown(world.run_dir(), None, Some(GROUP)).unwrap();
    set_permissions(world.run_dir(), Permissions::from_mode(0o1770)).unwrap();
    Some(world)
}

#[test]
fn two_users_exchange_over_shared_memory_and_a_killed_one_leaves_nothing() {
    let Some(world) = shared() else { return };
    let mut publisher = Agent::start_as(&world, "publisher topic=/a name=/p", ONE, GROUP);
    let subscriber = || Agent::start_as(&world, "subscriber topic=/a name=/s carriers=shm match=1", OTHER, GROUP);
    let mut dies = subscriber();
    publisher.connected(1);
    let published = publisher.ask("publish count=200");
    assert_eq!(number(&published, "sent"), 200.0, "{published}");
    assert!(dies.ask("until last=200")["ok"] == true);
    let report = dies.ask("report");
    assert_eq!((number(&report, "received"), number(&report, "missing")), (200.0, 0.0), "{report}");
    figure("users", format!("shm between users {ONE} and {OTHER}: p50 {} µs", number(&report, "p50")));
    dies.kill();
    assert!(publisher.ask("left n=0 ms=3000")["ok"] == true, "the dead subscriber is still connected");
    let mut again = subscriber();
    publisher.connected(1);
    assert_eq!(sockets(&world).len(), 2, "one each: {:?}", world.left_behind());
    // The other way round: the publisher dies, and the next one of its user takes its place.
    publisher.kill();
    assert!(again.ask("left n=0 ms=3000")["ok"] == true, "the dead publisher is still connected");
    let mut publisher = Agent::start_as(&world, "publisher topic=/a name=/p match=1", ONE, GROUP);
    assert_eq!(number(&publisher.ask("publish count=50"), "sent"), 50.0);
    assert!(again.ask("until count=50")["ok"] == true);
    [publisher, again].into_iter().for_each(Agent::finish);
    assert_eq!(world.left_behind(), Vec::<String>::new());
}

fn sockets(world: &World) -> Vec<String> {
    world.left_behind().into_iter().filter(|name| name.ends_with(".sock")).collect()
}

#[test]
fn a_stranger_is_refused_with_the_reason_by_the_directory_and_by_each_node() {
    let Some(world) = shared() else { return };
    let mut node = Agent::start_as(&world, "publisher topic=/a name=/p", ONE, GROUP);
    let mut stranger = Agent::start_as(&world, "stranger", OUTSIDER_UID, OUTSIDER_UID);
    let socket = world.run_dir().join(&sockets(&world)[0]);
    let told = stranger.ask(socket.to_str().unwrap());
    assert!(told["problem"].as_str().unwrap().contains("Permission denied"), "{told}");
    // A node asks the kernel for the peer's identity, even if the modes have been opened meanwhile.
    set_permissions(world.run_dir(), Permissions::from_mode(0o1777)).unwrap();
    set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let told = stranger.ask(socket.to_str().unwrap());
    let reason = format!("user {OUTSIDER_UID} may not take part: the run directory is for user 0 and group {GROUP}");
    assert!(told["told"].as_str().unwrap().contains(&reason), "{told}");
    assert!(node.told(&reason.replace(' ', "_"), LONG));
    assert!(node.told("connections_of_users_who_may_not_use_the_run_directory", LONG));
    let mut member = Agent::start_as(&world, "subscriber topic=/a name=/s carriers=shm match=1", OTHER, GROUP);
    assert!(member.told("is_open_to_every_user", Duration::from_secs(3)), "mode 1777 is told");
}

#[test]
fn marks_are_written_again_after_the_directory_refused_them() {
    let Some(world) = shared() else { return };
    let mut node = Agent::start_as(&world, "late", ONE, GROUP);
    let shares =
        || -> Vec<String> { world.left_behind().into_iter().filter(|name| name.ends_with(".shares")).collect() };
    let before = shares();
    assert!(before.len() == 1 && before[0].contains("~none"), "{before:?}");
    set_permissions(world.run_dir(), Permissions::from_mode(0o1750)).unwrap();
    assert_eq!(node.ask("/a")["warned"], true);
    assert_eq!(shares(), before, "it could not be told");
    set_permissions(world.run_dir(), Permissions::from_mode(0o1770)).unwrap();
    let told = || (shares().len() == 1 && shares() != before).then_some(());
    assert!(world::eventually(LONG, told).is_some(), "{:?}", shares());
}

#[test]
fn a_user_outside_the_group_cannot_open_a_node_and_gets_the_reason() {
    let Some(world) = shared() else { return };
    set_permissions(world.run_dir(), Permissions::from_mode(0o1775)).unwrap();
    let agent = Agent::begin_as(&world, "stranger", OUTSIDER_UID, OUTSIDER_UID);
    let problem = agent.answer()["problem"].as_str().unwrap().to_owned();
    let wanted = format!("user {OUTSIDER_UID} may not use it: it is for user 0 and group {GROUP} (mode 1775)");
    assert!(problem.contains(&wanted) && problem.contains("set THALWEG_RUN_DIR"), "{problem}");
}

/// A node of root's whose ports other users of the directory see, and one of theirs beside it.
fn roots_node_and_a_members(world: &World) -> (Agent, Agent) {
    let mut roots = Agent::start(world, "publisher topic=/a name=/out node=roots");
    let mut members = Agent::start_as(world, "subscriber topic=/a name=/in node=members match=1", ONE, GROUP);
    roots.connected(1);
    members.connected(1);
    (roots, members)
}

fn id(agent: &mut Agent) -> String {
    agent.ask("status")["id"].as_str().unwrap().to_owned()
}

/// The answer to one node, root's or the member's, when it asks the other one.
fn asked(agent: &mut Agent, of: &mut Agent, request: &Request) -> Value {
    let node = id(of);
    agent.ask(&asking(&node, request))["reply"].take()
}

fn asking(node: &str, request: &Request) -> String {
    format!("ask node={node} request={}", serde_json::to_string(request).unwrap().replace(' ', "+"))
}

/// Every way to ask for scheduling, processors or a socket priority above that of unprivileged users.
fn privileged() -> Vec<Request> {
    let (publisher, subscriber) = ("/out".to_owned(), "/in".to_owned());
    let set = |other: &str, words: &str| {
        let (port, other) = (publisher.clone(), other.to_owned());
        Request::Set { port, other, changes: words.parse().unwrap() }
    };
    let command = |text: &str| Request::Command { port: publisher.clone(), text: text.to_owned() };
    let priority = qos::priority::PrioritySettings { affinity: Some(vec![0]), ..Default::default() };
    let keep = Request::Keep { publisher: publisher.clone(), subscriber, carrier: None, priority };
    let sets = [("/out", "sched=other:5"), ("/in", "sched=other:5"), ("/in", "affinity=0"), ("/in", "priority=9")];
    let commands = [
        "prop set /out (process ((policy 0) (nice 5)))",
        "prop set /in (sched ((affinity (0))))",
        "prop set /in (qos ((socket_priority 9)))",
    ];
    sets.map(|(other, words)| set(other, words)).into_iter().chain(commands.map(command)).chain([keep]).collect()
}

#[test]
fn a_user_gets_no_privilege_from_anothers_process() {
    let Some(world) = shared() else { return };
    let (mut roots, mut members) = roots_node_and_a_members(&world);
    for request in privileged() {
        let said = asked(&mut members, &mut roots, &request).to_string();
        let reason = "node roots is user 0's and takes ";
        assert!(said.contains(reason) && said.contains("not from user 61001: say it as user 0"), "{request:?}: {said}");
    }
    assert!(!world.left_behind().iter().any(|name| name.ends_with(".connection")), "{:?}", world.left_behind());
    // Every user may request everything else, and root all of it.
    let class = |port: &str, other: &str, words: &str| Request::Set {
        port: port.into(),
        other: other.into(),
        changes: words.parse().unwrap(),
    };
    let said = asked(&mut members, &mut roots, &class("/out", "/in", "class=high priority=6"));
    assert!(said["settings"].is_array(), "{said}");
    let said = asked(&mut roots, &mut members, &class("/in", "/out", "sched=other:5"));
    assert!(said["settings"].is_array(), "{said}");
    let own = members.ask("set to=sched=other:6");
    assert_eq!(own["ok"], true, "a user's own process is its own: {own}");
}

/// Privileged settings cannot take a detour: a node of root's repeats remembered settings to another node as its own
/// request.
#[test]
fn no_privilege_comes_back_from_a_node_that_remembers() {
    let Some(world) = shared() else { return };
    let (mut roots, mut members) = roots_node_and_a_members(&world);
    let words: qos::priority::Changes = "class=high sched=other:5 affinity=0".parse().unwrap();
    let mut settings = qos::priority::PrioritySettings::default();
    words.apply(&mut settings);
    let remember = Request::Remember { port: "/later".into(), other: "/out".into(), settings };
    let said = asked(&mut members, &mut roots, &remember);
    assert_eq!(said, "done");
    let mut later = Agent::start(&world, "subscriber topic=/a name=/later match=1");
    // Remembered settings come as a whole: with the class the rest would be here.
    let node = id(&mut later);
    let get = asking(&node, &Request::Get { port: "/later".into(), other: Some("/out".into()) });
    let told = || Some(later.ask(&get)["reply"]["settings"][0].take()).filter(|end| end["class"] == "high");
    let end = world::eventually(LONG, told).unwrap();
    assert!(end["asked"]["sched"].is_null() && end["asked"]["affinity"].is_null(), "{end}");
}

fn settings(words: &str) -> qos::priority::PrioritySettings {
    let mut settings = qos::priority::PrioritySettings::default();
    words.parse::<qos::priority::Changes>().unwrap().apply(&mut settings);
    settings
}

/// Makes an agent's own node keep a connection from `/out` to `/in` with these settings.
fn keeps(agent: &mut Agent, names: [&str; 2], words: &str) {
    let [publisher, subscriber] = names.map(str::to_owned);
    let keep = Request::Keep { publisher, subscriber, carrier: None, priority: settings(words) };
    let node = id(agent);
    let said = agent.ask(&asking(&node, &keep));
    assert_eq!(said["reply"], "done", "{said}");
}

/// The settings requested for an end of an agent's own node. (`class` in a report is the class of the packets, if
/// there is a channel.)
fn holds(agent: &mut Agent, port: &str, other: &str) -> qos::priority::PrioritySettings {
    let node = id(agent);
    let get = Request::Get { port: port.into(), other: Some(other.into()) };
    let said = agent.ask(&asking(&node, &get));
    serde_json::from_value(said["reply"]["settings"][0]["asked"].clone()).unwrap_or_else(|_| panic!("{said}"))
}

/// The directory is a user's. Root's node takes the user's kept files, without privileged settings; root's own files
/// go first.
#[test]
fn files_of_the_directorys_owner_give_roots_node_no_scheduling() {
    let Some(world) = shared() else { return };
    chown(world.run_dir(), Some(ONE), None).unwrap();
    let mut owner = Agent::start_as(&world, "relay node=owners", ONE, GROUP);
    let mut roots = Agent::start(&world, "relay node=roots");
    keeps(&mut owner, ["/out", "/in"], "class=high sched=other:5");
    keeps(&mut owner, ["/out", "/first"], "class=high sched=other:5");
    keeps(&mut roots, ["/out", "/first"], "class=low sched=other:7");
    keeps(&mut roots, ["/out", "/last"], "class=low sched=other:7");
    keeps(&mut owner, ["/out", "/last"], "class=high sched=other:5");
    [owner, roots].into_iter().for_each(Agent::finish);
    let kept = world.left_behind();
    assert_eq!(kept.iter().filter(|name| name.ends_with(".connection")).count(), 5, "{kept:?}");

    let mut publisher = Agent::start(&world, "publisher topic=/a name=/out");
    assert_eq!(holds(&mut publisher, "/out", "/in"), settings("class=high"));
    for other in ["/first", "/last"] {
        assert_eq!(holds(&mut publisher, "/out", other), settings("class=low sched=other:7"), "{other}");
    }
    let _subscriber = Agent::start_as(&world, "subscriber topic=/a name=/in match=1", OTHER, GROUP);
    publisher.connected(1);
    let (node, get) = (id(&mut publisher), Request::Get { port: "/out".into(), other: Some("/in".into()) });
    let end = publisher.ask(&asking(&node, &get))["reply"]["settings"][0].take();
    assert_eq!((&end["class"], &end["carrier"]), (&json!("high"), &json!("tcp")), "as its packets have it: {end}");
    publisher.finish();
    // The owner's own node accepts all of it.
    let mut publisher = Agent::start_as(&world, "publisher topic=/a name=/out", ONE, GROUP);
    assert_eq!(holds(&mut publisher, "/out", "/in"), settings("class=high sched=other:5"));
}

/// A user who keeps a connection with a node of root's does not remove root's scheduling.
#[test]
fn settings_of_root_stay_when_a_user_keeps_a_connection() {
    let Some(world) = shared() else { return };
    let (mut roots, mut members) = roots_node_and_a_members(&world);
    let (port, other) = ("/later".to_owned(), "/out".to_owned());
    let remember = Request::Remember { port, other, settings: settings("class=critical sched=other:5") };
    let node = id(&mut roots);
    assert_eq!(roots.ask(&asking(&node, &remember))["reply"], "done");
    let (publisher, subscriber) = ("/out".to_owned(), "/later".to_owned());
    let keep = Request::Keep { publisher, subscriber, carrier: None, priority: settings("class=low") };
    assert_eq!(asked(&mut members, &mut roots, &keep), "done");
    let mut later = Agent::start(&world, "subscriber topic=/a name=/later match=1");
    let told = || Some(holds(&mut later, "/later", "/out")).filter(|held| *held == settings("class=low sched=other:5"));
    assert!(world::eventually(LONG, told).is_some(), "{:?}", holds(&mut later, "/later", "/out"));
    assert_eq!(holds(&mut roots, "/out", "/later"), settings("class=low"));
}

/// Over TCP the kernel names the user at the other end of a connection within the host, whatever its address.
#[test]
fn another_user_gets_no_privilege_over_tcp_of_the_own_host() {
    let Some(world) = shared() else { return };
    let mut roots = Agent::start(&world, "publisher topic=/a name=/out node=roots admin=127.0.0.0/8");
    let address = roots.ask("status")["addresses"][0].as_str().unwrap().to_owned();
    let call = |caller: &mut Agent, from: &str, words: &str| {
        let set = Request::Set { port: "/out".into(), other: "/in".into(), changes: words.parse().unwrap() };
        caller.ask(&format!("{address} {from} {} {}", world.realm(), serde_json::to_string(&set).unwrap()))
    };
    let mut members = Agent::start_as(&world, "caller", ONE, GROUP);
    let mut own = Agent::start(&world, "caller");
    for from in ["127.0.0.1", "127.0.0.7"] {
        for words in ["sched=other:5", "affinity=0", "priority=9"] {
            let said = call(&mut members, from, words).to_string();
            let reason = format!("from that user and root only, not from user {ONE}: say it as user 0");
            assert!(said.contains("node roots is user 0's and takes ") && said.contains(&reason), "{from}: {said}");
        }
        let said = call(&mut members, from, "class=high");
        assert!(said["settings"].is_array(), "{from}: {said}");
        let said = call(&mut own, from, "sched=other:5");
        assert_eq!(said["settings"][0]["asked"]["sched"]["nice"], 5, "{from}: {said}");
    }
}
