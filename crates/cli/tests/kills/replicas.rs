//! A domain whose state is in a real etcd of three members, with two brokers: the one that leads is killed at its writes and messages, stopped and cut
//! off from the etcd, members of that are killed, and a broker of an earlier epoch comes up. The agents and their queues are real.
//!
//! All of it is on the host `g`: an etcd without TLS is for its own host only. So all of a test is inside.

use super::call::Calls;
use super::places::{Place, SESSION, are_applied, file, state};
use super::way::Way;
use super::{Counts, Dice, Plan, Scene, Size, TICK, can_trace, enumerated, eventually};
use crate::domain::{BROKER, Domain, HOSTS};
use crate::replicated::members::Members;
use crate::support::Running;
use agent::client::Client;
use agent::message::Host;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The addresses of the brokers: to listen to, and for users.
const LISTEN: [&str; 2] = ["0.0.0.0:7450", "0.0.0.0:7451"];
const ADDRESSES: [&str; 2] = ["127.0.0.1:7450", "127.0.0.1:7451"];
/// The key of who leads, in Base64: /thalweg/robot/base/leader.
const LEADER: &str = "L3RoYWx3ZWcvcm9ib3QvYmFzZS9sZWFkZXI=";
/// The host of brokers and members.
const INSIDE: usize = 1;
/// A point is begun within this time, unless `THALWEG_FAULTS` asks for all.
const POINTS_FOR: Duration = Duration::from_secs(40);
/// What another broker promises (docs/hosts.md); a slow machine may take longer.
const PROMISED: Duration = Duration::from_secs(8);

struct Replicas<'a> {
    domain: &'a Domain,
    members: &'a Members,
    /// The ways of each broker to the members.
    ways: [Vec<Way>; 2],
    /// The user's requests to both.
    user: Client,
}

impl<'a> Replicas<'a> {
    fn new(domain: &'a Domain, members: &'a Members) -> Self {
        let ports: Vec<u16> =
            members.urls().iter().map(|url| url.rsplit(':').next().unwrap().parse().unwrap()).collect();
        let ways = [0, 1].map(|_| ports.iter().map(|port| Way::to(*port)).collect());
        Self { domain, members, ways, user: domain.client(&ADDRESSES.join(",")) }
    }

    /// It prints a line when it leads.
    fn broker(&self, broker: usize) -> Running {
        let urls: Vec<String> = self.ways[broker].iter().map(|way| format!("http://127.0.0.1:{}", way.port)).collect();
        let (listen, contract) = (LISTEN[broker], self.domain.house.path("plan-contract.toml"));
        let contract = contract.display();
        let etcd = urls.join(",");
        let line = format!("broker --name base --listen {listen} --contract {contract} --etcd {etcd} --json");
        self.domain.start(INSIDE, &line)
    }

    /// A command of the user at these brokers, while it runs.
    fn asks(&self, brokers: &[usize], arguments: &str) -> Running {
        let at: Vec<&str> = brokers.iter().map(|broker| ADDRESSES[*broker]).collect();
        self.domain.start(INSIDE, &format!("{arguments} --user ann --broker {} --json", at.join(",")))
    }

    /// The session's file. It has a queue of its own: without one no queue would tell whether it is there.
    fn session(&self) -> String {
        let file = file(self.domain, SESSION, 8000);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace("rate = \"50 Hz\"\n", "rate = \"50 Hz\"\nown_queue = true\n")).unwrap();
        file
    }

    /// Asks one broker for a session that would have room.
    fn asks_late(&self, broker: usize) -> Running {
        self.asks(&[broker], &format!("session request {} --patience 10s", file(self.domain, "late", 100)))
    }

    /// The broker that leads, as the etcd has it, and its lease.
    fn leader(&self) -> Option<(usize, Value)> {
        let found = self.members.ask("/v3/kv/range", &json!({"key": LEADER}))?["kvs"][0].clone();
        let value = BASE64_STANDARD.decode(found["value"].as_str()?).ok()?;
        let text = String::from_utf8_lossy(&value);
        let broker = LISTEN.iter().position(|listen| text.contains(*listen))?;
        Some((broker, found["lease"].clone()))
    }

    fn leads(&self) -> usize {
        eventually("a broker leads", || self.leader()).0
    }

    /// Waits until the other one answers.
    fn succeeded(&self, broker: usize, what: &str) -> usize {
        let (other, began) = (1 - broker, Instant::now());
        let client = self.domain.client(ADDRESSES[other]);
        eventually(what, || client.sessions().ok());
        let took = began.elapsed();
        println!("FIGURE kills: {what}: served again after {took:.1?}, promised are {PROMISED:?}");
        other
    }

    /// The names of all sessions.
    fn sessions(&self) -> Vec<String> {
        let all = eventually("a broker answers", || self.user.sessions().ok());
        all.into_iter().map(|one| one.session).collect()
    }
}

impl Place for Replicas<'_> {
    const NAME: &'static str = "two brokers on an etcd, and three agents";
    const PROCESSES: &'static [&'static str] = &["broker one", "broker two", "agent of a", "agent of g", "agent of b"];

    fn start(&self, process: usize) -> Running {
        match process.checked_sub(LISTEN.len()) {
            None => self.broker(process),
            Some(host) => {
                let one = BROKER[host];
                self.domain.agent_of(host, &format!("{one},{}", one.replace(":7450", ":7451")))
            }
        }
    }

    /// The lease of a broker that was killed is over at once, which takes 4 s otherwise: there is time for more points. What it has sent may come late
    /// all the same.
    fn died(&self, process: usize) {
        if let Some((_, lease)) = self.leader().filter(|(leader, _)| *leader == process) {
            self.members.ask("/v3/lease/revoke", &json!({"ID": lease}));
        }
    }

    fn is_installed(&self) -> bool {
        self.user.hosts().is_ok_and(|hosts| are_applied(&hosts))
    }

    fn programs(&self) -> [Running; 2] {
        Place::programs(self.domain)
    }

    fn request(&self) -> Running {
        self.asks(&[0, 1], &format!("session request {} --patience 10s", self.session()))
    }

    fn stop(&self) -> Running {
        self.asks(&[0, 1], &format!("session stop {SESSION}"))
    }

    fn settled(&self) -> Option<bool> {
        let active = state(&self.user.sessions().ok()?)?;
        self.is_installed().then_some(active)
    }

    fn queues(&self) -> Vec<String> {
        self.domain.queues()
    }

    fn shown(&self) -> String {
        format!("{:?} {:?}", self.user.sessions(), self.user.hosts())
    }
}

/// The domain, its etcd and all processes, and `body` on the host where the brokers are.
fn on_etcd(test: &str, body: impl FnOnce(&mut Scene<'_, Replicas<'_>>) + Send) {
    let Some(domain) = Domain::new(test) else { return };
    domain.inside(INSIDE, || {
        let Some(members) = Members::start(test) else { return };
        let place = Replicas::new(&domain, &members);
        body(&mut Scene::new(&place));
    });
}

/// A write to the etcd is a message to one of its members.
const CALLS: [Calls; 2] = [Calls::Send, Calls::Receive];

/// The points that a request and a stop have in any case, in an order of this commit's.
fn points() -> Vec<(Calls, u32)> {
    let of = |calls: Calls| (1..=calls.most_of_small() as u32).map(move |number| (calls, number));
    let mut all: Vec<(Calls, u32)> = CALLS.into_iter().flat_map(of).collect();
    let mut dice = Dice::new(all.len());
    (1..all.len()).rev().for_each(|at| all.swap(at, dice.below(at + 1)));
    all
}

/// Kills the broker that leads before its call of this number.
fn strike(scene: &mut Scene<'_, Replicas<'_>>, calls: Calls, number: u32) -> Counts {
    let leader = scene.place.leads();
    scene.attempt(&Plan::At(leader, calls, number))
}

#[test]
fn a_session_survives_the_death_of_the_broker_that_leads() {
    if !can_trace(Replicas::NAME) {
        return;
    }
    on_etcd(Replicas::NAME, |scene| {
        let (began, all, mut sum) = (Instant::now(), points(), Counts::default());
        if let Some(times) = Size::wanted().all {
            for calls in CALLS.repeat(times) {
                sum = sum.with(enumerated(|number| strike(scene, calls, number)));
            }
        } else {
            for (calls, number) in all.iter().take_while(|_| began.elapsed() < POINTS_FOR) {
                sum = sum.with(strike(scene, *calls, *number));
            }
        }
        let (tried, took) = (sum.plans, began.elapsed());
        println!(
            "FIGURE kills: the broker that leads, at {tried} points in {took:.0?}, of {} without THALWEG_FAULTS: {sum:?}",
            all.len()
        );
        assert!(sum.kills * 2 > sum.plans, "only {} were killed", sum.kills);
    });
}

/// The session is active, something fails, and it is active after that; then it can be stopped. No sample of others is missing.
fn outlives(scene: &mut Scene<'_, Replicas<'_>>, what: &str, fail: impl FnOnce(&mut Scene<'_, Replicas<'_>>)) {
    assert_eq!(scene.place.request().finish().code(), 0, "{what}");
    fail(scene);
    assert!(scene.settled(what), "{what}: the session is lost");
    assert_eq!(scene.place.sessions(), [SESSION], "{what}");
    scene.traffic.goes_on(what);
    assert_eq!(scene.place.stop().finish().code(), 0, "{what}");
    assert!(!scene.settled(what), "{what}: the session is there still");
}

/// Waits until a broker says something.
fn says(broker: &Running, what: &str) {
    while !broker.error_line().expect(what).contains(what) {}
}

#[test]
fn a_session_outlives_members_of_etcd_and_brokers_that_were_replaced() {
    on_etcd("members of etcd, and brokers that were replaced", |scene| {
        assert_ne!(scene.queues[0], scene.queues[1], "queues tell whether agents obey");
        members_die(scene);
        the_leader_wakes_up(scene);
        the_leader_is_cut_off(scene);
        an_earlier_epoch_comes_up(scene);
    });
}

fn members_die(scene: &mut Scene<'_, Replicas<'_>>) {
    for (what, behind) in [("a member of etcd dies", 1), ("the member dies that leads the others", 0)] {
        outlives(scene, what, |scene| {
            let members = scene.place.members;
            let member = (members.leader() + behind) % 3;
            members.kill(member);
            let began = Instant::now();
            eventually(what, || {
                scene.place.stop().finish(); // its answer may be lost
                scene.place.settled().filter(|active| !active)
            });
            println!("FIGURE kills: {what}: a change is kept after {:.1?}", began.elapsed());
            eventually(what, || (scene.place.request().finish().code() == 0).then_some(()));
            members.begin(member);
            members.until_served();
        });
    }
}

/// A broker that is stopped keeps its connections, and those that are opened meanwhile. What waits there is answered when it wakes up, while it does not
/// know yet that another one leads.
fn the_leader_wakes_up(scene: &mut Scene<'_, Replicas<'_>>) {
    let what = "the broker is stopped that leads";
    outlives(scene, what, |scene| {
        let (place, leader) = (scene.place, scene.place.leads());
        scene.running[leader].signal(Signal::STOP);
        let other = place.succeeded(leader, what);
        assert_eq!(place.leads(), other);
        assert!(scene.settled(what), "{what}: all hosts obey the other one");
        let late = place.asks_late(leader);
        scene.running[leader].signal(Signal::CONT);
        assert_ne!(late.finish().code(), 0, "{what}: it admits something more");
        says(&scene.running[leader], "does not lead any more");
    });
}

/// The broker does not hear from the etcd. What it says comes there late, when another one leads.
fn the_leader_is_cut_off(scene: &mut Scene<'_, Replicas<'_>>) {
    let what = "the broker is cut off that leads";
    outlives(scene, what, |scene| {
        let (place, leader) = (scene.place, scene.place.leads());
        place.ways[leader].iter().for_each(|way| way.cut(true));
        let late = place.asks_late(leader);
        let other = place.succeeded(leader, what);
        assert_ne!(late.finish().code(), 0, "{what}: it admits something more");
        says(&scene.running[leader], "does not lead any more");
        place.ways[leader].iter().for_each(|way| way.cut(false));
        says(&scene.running[leader], &format!("{} (lease", LISTEN[other]));
    });
}

/// A broker with another store, which has heard of nobody, at an address of the agents' brokers: as one that comes back from an old copy. It knows no
/// session, so its plan has other queues. The etcd has no part in it: what prevents it is that agents know the epoch.
fn an_earlier_epoch_comes_up(scene: &mut Scene<'_, Replicas<'_>>) {
    let what = "a broker of an earlier epoch";
    outlives(scene, what, |scene| {
        for broker in &mut scene.running[..LISTEN.len()] {
            broker.signal(Signal::KILL);
            while !broker.has_ended() {
                std::thread::sleep(TICK);
            }
        }
        let contract = scene.place.domain.house.path("plan-contract.toml");
        let early = scene.place.domain.broker_with(&format!("--contract {}", contract.display()));
        let client = scene.place.domain.client(ADDRESSES[0]);
        let disobey = |host: &Host| host.because.as_ref().is_some_and(|because| because.contains("--epoch"));
        eventually("all agents know a later epoch", || {
            let hosts = client.hosts().ok()?;
            HOSTS.iter().all(|name| hosts.iter().any(|host| host.host == *name && disobey(host))).then_some(())
        });
        assert_eq!(scene.place.queues(), scene.queues[1], "{what} is obeyed");
        early.signal(Signal::KILL);
        drop(early);
        (0..LISTEN.len()).for_each(|broker| scene.running[broker] = scene.place.start(broker));
    });
}
