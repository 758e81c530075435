//! Reliable channels over every carrier through faults of hosts: a link goes down for more messages than a subscriber
//! can hold, an interface is made again, an address changes, a process is stopped.

use super::world::agent::{Agent, number};
use super::world::net::{A, B, TwoHosts};
use super::world::{self, World, figure, long, skipped};
use super::{CARRIERS, addresses};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A publisher at host `a`, and a reliable subscriber over each carrier at host `b`.
struct Stage {
    publisher: Agent,
    subscribers: Vec<(&'static str, Agent)>,
    /// `true` while the subscribers are stopped.
    are_stopped: bool,
    hosts: TwoHosts,
    _world: World,
}

impl Stage {
    fn new(test: &str) -> Result<Self, String> {
        Self::with(test, "")
    }

    /// The publisher with these arguments.
    fn with(test: &str, words: &str) -> Result<Self, String> {
        let hosts = TwoHosts::new(test)?;
        let world = World::new();
        let at = [format!("{A}:7400"), format!("{B}:7400"), format!("{B}:7401"), format!("{B}:7402")];
        let file = addresses(&world, &at);
        let publisher = format!("publisher topic=/a name=/p {words} file={file} listen={}", at[0]);
        let mut publisher = Agent::start_by(&world, &publisher, &hosts.in_a());
        let subscriber = |(carrier, at): (&&'static str, &String)| {
            let part =
                format!("subscriber topic=/a name=/{carrier} reliable=1 carriers={carrier} file={file} listen={at}");
            let mut agent = Agent::start_by(&world, &part, &hosts.in_b());
            agent.connected(1);
            (*carrier, agent)
        };
        let subscribers = CARRIERS.iter().zip(&at[1..]).map(subscriber).collect();
        publisher.connected(3);
        Ok(Self { publisher, subscribers, are_stopped: false, hosts, _world: world })
    }

    /// Publishes at 1 kHz during a fault of this duration, and `limit` longer. Each subscriber receives samples
    /// again.
    fn resumes_after(&mut self, what: &str, down: Duration, limit: Duration, broken: &dyn Fn(&mut Self, bool)) {
        let count = (down + limit).as_millis();
        for (carrier, subscriber) in &mut self.subscribers {
            subscriber.ask("reset");
            let status = subscriber.ask("status");
            assert_eq!(status["channels"][0]["carrier"], **carrier, "{what}: {status}");
        }
        self.publisher.tell(&format!("publish hz=1000 count={count}"));
        for (carrier, subscriber) in &mut self.subscribers {
            assert!(subscriber.ask("until count=100")["ok"] == true, "{carrier}: nothing came");
        }
        broken(self, true);
        std::thread::sleep(down);
        let reset = |stage: &mut Self| stage.subscribers.iter_mut().for_each(|(_, agent)| drop(agent.ask("reset")));
        if !self.are_stopped {
            reset(self);
        }
        broken(self, false);
        let up = linux::clock::monotonic_ns();
        if std::mem::take(&mut self.are_stopped) {
            reset(self); // a stopped process does not answer before
        }
        let last = number(&self.publisher.answer(), "last");
        for (carrier, subscriber) in &mut self.subscribers {
            let reached = subscriber.ask(&format!("until last={last} ms={}", limit.as_millis() + 5000));
            let (report, status) = (subscriber.ask("report"), subscriber.ask("status"));
            assert!(reached["ok"] == true, "{what}: {carrier} did not resume: {report} {status}");
            assert_eq!(number(&report, "again"), 0.0, "{what}: {carrier}: twice or out of order: {report}");
            let resumed = (number(&report, "first_at_ns") - up as f64) / 1e9;
            let ended = status["events"].to_string().matches(" ended: ").count();
            figure(
                "outage",
                format!("{what}, {carrier}: {resumed:.3} s after it was over, {ended} channels ended so far"),
            );
            assert!(resumed <= limit.as_secs_f64(), "{what}: {carrier} took {resumed} s: {status}");
        }
    }

    fn stop_subscribers(&mut self, stopped: bool) {
        self.are_stopped |= stopped;
        self.subscribers.iter().for_each(|(_, subscriber)| stop(subscriber, stopped));
    }
}

fn stop(agent: &Agent, stopped: bool) {
    if stopped { agent.stop() } else { agent.go_on() }
}

/// Samples come again within a second (P-16); more where the machine has other things to do.
fn limit() -> Duration {
    Duration::from_secs(if long() { 1 } else { 2 })
}

#[test]
fn reliable_channels_resume_after_their_link_or_interface_was_gone() {
    let _waiting = world::waiting();
    let mut stage = match Stage::new("l") {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let down = Duration::from_millis(1500);
    stage.resumes_after("link down 1.5 s", down, limit(), &|stage, broken| stage.hosts.link(!broken));
    stage.resumes_after("interface made anew", down, limit(), &|stage, broken| match broken {
        true => stage.hosts.delete(),
        false => stage.hosts.make_anew(),
    });
}

/// Too short to be noticed, except by an end that waits for acknowledgements.
#[test]
fn reliable_channels_resume_after_everything_was_lost_for_a_moment() {
    let _waiting = world::waiting();
    let mut stage = match Stage::new("m") {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    if let Err(why) = stage.hosts.silence(true).and_then(|()| stage.hosts.silence(false)) {
        return skipped(why);
    }
    for down in [100, 300, 500] {
        let what = format!("{down} ms of silence");
        stage.resumes_after(&what, Duration::from_millis(down), limit(), &|stage, broken| {
            stage.hosts.silence(broken).unwrap();
        });
    }
}

#[test]
fn reliable_channels_resume_after_a_process_was_stopped() {
    let _waiting = world::waiting();
    let mut stage = match Stage::new("s") {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let down = Duration::from_secs(if long() { 60 } else { 1 });
    stage.resumes_after("subscribers stopped", down, limit(), &Stage::stop_subscribers);
    stage.resumes_after("publisher stopped", down, limit(), &|stage, broken| stop(&stage.publisher, broken));
}

/// The streams of handshakes and of `tcp` do not end with their address, and TCP gives them up only after 10 s. A
/// queue that drops no samples continues with all samples of the old ones.
#[test]
fn reliable_channels_resume_from_another_address() {
    let _waiting = world::waiting();
    let mut stage = match Stage::with("n", "queue=100000") {
        Ok(stage) => stage,
        Err(why) => return skipped(why),
    };
    let down = Duration::from_millis(500);
    stage.resumes_after("address changed", down, limit(), &|stage, broken| {
        let words = if broken { format!("delete {B}/24") } else { "add 10.99.0.77/24".to_owned() };
        let namespace = stage.hosts.in_b();
        let mut ip = Command::new(namespace[0]);
        ip.args(&namespace[1..]).args(["ip", "address"]).args(words.split(' ')).args(["dev", "veth"]);
        assert!(ip.stdin(Stdio::null()).status().unwrap().success());
    });
    for (carrier, subscriber) in &mut stage.subscribers {
        let status = subscriber.ask("status");
        assert!(status["events"].to_string().contains(" ended: "), "{carrier}: {status}");
        assert_eq!(number(&status["channels"][0], "lost"), 0.0, "{carrier}: {status}");
    }
}

/// A connection is given up after 10 s. Samples published until the subscriber returns wait by the queue's policy,
/// together with those in flight. A queue that drops no samples loses none. With a keep-last queue, missing
/// samples are counted, unless a durable publisher's history has them.
#[test]
fn queued_samples_outlast_the_connection() {
    let _waiting = world::waiting();
    let hosts = match TwoHosts::new("k") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let [a, b] = [A, B].map(|host| move |n: usize| format!("{host}:{}", 7400 + n));
    let at = [a(0), a(1), a(2), b(0), b(1), b(2), b(3), b(4)];
    let file = addresses(&world, &at);
    let start = |(topic, words): (&str, &str), at: &String| {
        let part = format!("publisher topic={topic} name={topic}/out {words} file={file} listen={at}");
        Agent::start_by(&world, &part, &hosts.in_a())
    };
    let topics = [("/all", "queue=100000"), ("/last", ""), ("/late", "late=1 queue=100000")];
    let mut publishers = Vec::from_iter(topics.iter().zip(&at).map(|(topic, at)| start(*topic, at)));
    let ends = [(0, "tcp", ""), (0, "udp", ""), (0, "mcast", ""), (1, "tcp", ""), (2, "tcp", "late=1")];
    let mut subscribers = Vec::from_iter(ends.iter().zip(&at[3..]).map(|((of, carrier, words), at)| {
        let topic = topics[*of].0;
        let name = format!("{topic}/{carrier}");
        let part = format!(
            "subscriber topic={topic} name={name} reliable=1 carriers={carrier} {words} file={file} listen={at}"
        );
        let mut agent = Agent::start_by(&world, &part, &hosts.in_b());
        agent.connected(1);
        (name, *of, agent)
    }));
    publishers.iter_mut().zip([3, 1, 1]).for_each(|(publisher, count)| publisher.connected(count));
    publishers.iter_mut().for_each(|publisher| publisher.tell("publish hz=100 count=1500"));
    for (name, _, subscriber) in &mut subscribers {
        assert!(subscriber.ask("until count=50")["ok"] == true, "{name}: nothing came");
    }
    hosts.link(false);
    std::thread::sleep(Duration::from_millis(11_500));
    hosts.link(true);
    let last = Vec::from_iter(publishers.iter_mut().map(|publisher| number(&publisher.answer(), "last")));
    for (name, of, subscriber) in &mut subscribers {
        let reached = subscriber.ask(&format!("until last={} ms=10000", last[*of]));
        let lost = world::eventually(Duration::from_secs(2), || {
            let lost = number(&subscriber.ask("status")["channels"][0], "lost");
            (lost == number(&subscriber.ask("report"), "missing")).then_some(lost)
        });
        let (report, status) = (subscriber.ask("report"), subscriber.ask("status"));
        assert!(reached["ok"] == true, "{name} did not resume: {report} {status}");
        assert!(
            status["events"].to_string().contains(" ended: "),
            "{name}: the connection outlived the outage: {status}"
        );
        assert_eq!(number(&report, "again"), 0.0, "{name}: {report}");
        figure("outage", format!("link down 11.5 s, {name}: {lost:?} counted as lost of 1500"));
        assert!(lost.is_some(), "{name}: not counted: {report} {status}");
        assert_eq!(lost == Some(0.0), *of != 1, "{name}: {report} {status}");
    }
    for publisher in &mut publishers {
        let events = publisher.ask("status")["events"].to_string();
        assert!(events.contains("cut off") && !events.contains("left\""), "{events}");
    }
}

/// A publisher of 64 B at 1 kHz, in batches, on a path whose MTU shrinks: an interface reports it, a route does, and
/// the other end drops longer packets silently. No sample is lost, and no channel ends.
#[test]
fn reliable_samples_go_on_over_a_path_that_takes_shorter_packets() {
    let _waiting = world::waiting();
    let hosts = match TwoHosts::new("p") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let at = [format!("{A}:7400"), format!("{B}:7400"), format!("{B}:7401")];
    let file = addresses(&world, &at);
    let publisher = format!("publisher topic=/a name=/p queue=100000 batch=20 file={file} listen={}", at[0]);
    let mut publisher = Agent::start_by(&world, &publisher, &hosts.in_a());
    let mut subscribers: Vec<Agent> = ["udp", "mcast"]
        .iter()
        .zip(&at[1..])
        .map(|(carrier, at)| {
            let part =
                format!("subscriber topic=/a name=/{carrier} reliable=1 carriers={carrier} file={file} listen={at}");
            let mut agent = Agent::start_by(&world, &part, &hosts.in_b());
            agent.connected(1);
            agent
        })
        .collect();
    publisher.connected(2);
    let route = format!("route replace {B} dev veth src {A} mtu 1000");
    type Narrow<'a> = &'a dyn Fn() -> Result<(), String>;
    let narrows: [(&str, Narrow<'_>); 3] = [
        ("an interface of 1200 B", &|| hosts.ip_in_a("link set veth mtu 1200")),
        ("a route of 1000 B", &|| hosts.ip_in_a(&route)),
        ("the other end takes 800 B", &|| hosts.mtu_of_b(800)),
    ];
    for (what, narrow) in narrows {
        publisher.tell("publish hz=1000 count=1500");
        subscribers.iter_mut().for_each(|subscriber| drop(subscriber.ask("reset")));
        for subscriber in &mut subscribers {
            assert!(subscriber.ask("until count=300")["ok"] == true, "{what}: nothing came");
        }
        narrow().unwrap();
        let last = number(&publisher.answer(), "last");
        for subscriber in &mut subscribers {
            let reached = subscriber.ask(&format!("until last={last} ms=20000"));
            let (report, status) = (subscriber.ask("report"), subscriber.ask("status"));
            assert!(reached["ok"] == true, "{what}: it stands still: {report} {status}");
            let wrong = (number(&report, "again"), number(&status["channels"][0], "lost"));
            assert_eq!(wrong, (0.0, 0.0), "{what}: {report} {status}");
            assert!(!status["events"].to_string().contains(" ended: "), "{what}: {status}");
        }
    }
}
