//! The parts of processes: a publisher, a subscriber, a node with many of them.

use super::account::{Account, Durations};
use super::agent::PART;
use super::service;
use linux::allocations;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{DiscoverySource, Node, Publisher, Settings, Subscriber};

/// `key=value` pairs of a part or a command, its first word without a key.
pub struct Words(BTreeMap<String, String>);

impl Words {
    /// The first word, and the others.
    pub fn parse(line: &str) -> (String, Self) {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default().to_owned();
        let pair = |word: &str| word.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        (verb, Self(words.filter_map(pair).collect()))
    }
    /// The value of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
    /// A number, or `otherwise`.
    pub fn number(&self, key: &str, otherwise: u64) -> u64 {
        self.get(key).map_or(otherwise, |v| v.parse().unwrap())
    }
}

/// Plays the part that the environment names; does nothing without one.
pub fn play() {
    let Ok(part) = std::env::var(PART) else { return };
    // The death of the test ends its processes, stopped or not.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    raise_open_files();
    let (role, words) = Words::parse(&part);
    let before = linux::thread::count();
    let opening = Instant::now();
    let node = Node::with_settings(settings(&words)).unwrap();
    let opened = Instant::now();
    let ports = match role.as_str() {
        "publisher" => Ports::publishers(&node, &words),
        "subscriber" => Ports::subscribers(&node, &words),
        "relay" => Ports::none(),
        "answerer" => return service::answer(&node),
        "asker" => return service::ask(&node),
        _ => panic!("no such part: {role}"),
    };
    let part = Part { node, ports, threads_before: before, last: 0 };
    let matched = words.get("match").map(|n| {
        let count = n.parse().unwrap();
        let all = part.node.wait_until(super::LONG, || part.ports.connected() >= count);
        assert!(all, "not {count} channels: {:?}", part.events());
        opened.elapsed().as_micros() as u64
    });
    let open_us = (opened - opening).as_micros() as u64;
    part.say(&json!({"open_us": open_us, "matched_us": matched}));
    part.run();
}

fn settings(words: &Words) -> Settings {
    let default = Settings::default();
    Settings {
        realm: words.get("realm").unwrap().to_owned(),
        listen: words.get("listen").map(|a| a.split(',').map(|a| a.parse().unwrap()).collect()).unwrap_or_default(),
        discovery: words.get("file").map_or(DiscoverySource::Automatic, |f| DiscoverySource::Static(f.into())),
        peers: words.get("peers").map(|p| p.split(',').map(str::to_owned).collect()).unwrap_or_default(),
        lock_memory: words.get("lock").is_some(),
        name: words.get("node").map_or(default.name.clone(), str::to_owned),
        admin_from: words
            .get("admin")
            .map_or(default.admin_from.clone(), |a| a.split(',').map(|a| a.parse().unwrap()).collect()),
        relay: words.get("relay").map(|_| thalweg::RelayLimits::default()),
        limits: words
            .get("channels")
            .map_or(default.limits, |n| thalweg::PortLimits { channels: n.parse().unwrap(), ..default.limits }),
        ..default
    }
}

/// Thousands of channels need more than a thousand descriptors.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Samples that late joiners get.
const LATE: u32 = 20_000;

struct Ports {
    publishers: Vec<Publisher<Raw>>,
    subscribers: Vec<Subscriber<Raw>>,
    account: Arc<Account>,
}

fn names(words: &Words, index: u64) -> (String, String) {
    let number =
        |key| words.get(key).map(|t| if words.number("ports", 1) == 1 { t.to_owned() } else { format!("{t}{index}") });
    (number("topic").unwrap_or_else(|| "/topic".into()), number("name").unwrap_or_default())
}

fn carriers(words: &Words, index: u64) -> Vec<String> {
    let all: Vec<String> = words.get("carriers").unwrap_or("tcp").split(',').map(str::to_owned).collect();
    // If there are many ports, they take the carriers in turn.
    if words.number("ports", 1) == 1 { all } else { vec![all[index as usize % all.len()].clone()] }
}

impl Ports {
    fn none() -> Self {
        Self { publishers: Vec::new(), subscribers: Vec::new(), account: Arc::new(Account::new()) }
    }

    fn publishers(node: &Node, words: &Words) -> Self {
        let open = |index| {
            let (topic, name) = names(words, index);
            let builder = node.publisher::<Raw>(&topic).max_message(words.number("max", 1 << 20) as u32);
            let builder = if name.is_empty() { builder } else { builder.named(name) };
            let kept =
                words.get("history").map(|n| qos::PullBuffer { samples: n.parse().unwrap(), ..Default::default() });
            let builder = if let Some(kept) = kept { builder.history(kept) } else { builder };
            let builder = if words.get("late").is_some() { builder.transient_local(LATE) } else { builder };
            let all = words.get("queue").map(|n| qos::Queue::KeepAll(n.parse().unwrap()));
            let builder = if let Some(all) = all { builder.queue(all) } else { builder };
            let up_to_us = words.number("block_us", 1);
            let block = |limit: &str| qos::Queue::Block { limit: limit.parse().unwrap(), up_to_us };
            let batch = words.get("batch").map(|ms| Duration::from_millis(ms.parse().unwrap()));
            let batch = batch.map(|within| thalweg::Batching { within, ..Default::default() });
            let builder = if let Some(batch) = batch { builder.batching(batch) } else { builder };
            let builder = if let Some(limit) = words.get("block") { builder.queue(block(limit)) } else { builder };
            builder.open().unwrap()
        };
        let publishers = (0..words.number("ports", 1)).map(open).collect();
        Self { publishers, subscribers: Vec::new(), account: Arc::new(Account::new()) }
    }

    fn subscribers(node: &Node, words: &Words) -> Self {
        let account = Arc::new(Account::new());
        let open = |index| {
            let (topic, name) = names(words, index);
            let carriers = carriers(words, index);
            let lossy = matches!(carriers[0].as_str(), "udp" | "mcast") && words.number("reliable", 0) == 0;
            let reliability = if lossy { qos::Reliability::BestEffort } else { qos::Reliability::Reliable };
            let builder = node.subscriber::<Raw>(&topic).reliability(reliability).carriers(carriers);
            let builder = builder.max_message(words.number("max", 1 << 20) as u32);
            let builder = builder.every(words.number("every", 1) as u32);
            let builder = builder.proxy(words.get("proxy").map_or(Ok(qos::Place::Publisher), str::parse).unwrap());
            let builder = if name.is_empty() { builder } else { builder.named(name) };
            let builder = if words.get("late").is_some() { builder.transient_local(LATE) } else { builder };
            let (seen, stuck) = (account.clone(), words.get("stuck").filter(|_| index == 0).map(str::to_owned));
            let port = builder.callback(move |sample| {
                seen.note(sample.info());
                super::wait_for(stuck.as_deref());
            });
            port.unwrap()
        };
        let subscribers = (0..words.number("ports", 1)).map(open).collect();
        Self { publishers: Vec::new(), subscribers, account }
    }

    fn names(&self) -> Vec<&str> {
        let subscribers = self.subscribers.iter().map(Subscriber::name);
        self.publishers.iter().map(Publisher::name).chain(subscribers).collect()
    }

    fn connected(&self) -> usize {
        let sent: usize = self.publishers.iter().map(Publisher::connected).sum();
        sent + self.subscribers.iter().map(Subscriber::connected).sum::<usize>()
    }
}

struct Part {
    node: Node,
    ports: Ports,
    threads_before: usize,
    last: u64, // sequence number of the last published sample
}

impl Part {
    fn say(&self, answer: &Value) {
        println!("\n@{answer}");
    }

    fn run(mut self) {
        for line in std::io::stdin().lock().lines() {
            let (verb, words) = Words::parse(&line.unwrap());
            let patience = Duration::from_millis(words.number("ms", 20_000));
            let answer = match verb.as_str() {
                "connected" => {
                    let count = words.number("n", 1) as usize;
                    let ok = self.node.wait_until(patience, || self.ports.connected() >= count);
                    json!({"ok": ok, "connected": self.ports.connected(), "events": self.events(), "at_ns": linux::clock::monotonic_ns()})
                }
                "left" => {
                    let count = words.number("n", 0) as usize;
                    let ok = self.node.wait_until(patience, || self.ports.connected() <= count);
                    json!({"ok": ok, "connected": self.ports.connected(), "events": self.events()})
                }
                "publish" if words.get("storm").is_some() => self.publish_in_a_storm(&words),
                "publish" => self.publish(&words),
                "storm" => {
                    let until = Instant::now() + patience;
                    let cycles = join_and_leave(&self.node, &words, &|| Instant::now() >= until);
                    json!({"cycles": cycles})
                }
                "report" => self.ports.account.report(),
                "reset" => {
                    self.ports.account.reset();
                    json!({})
                }
                "until" => {
                    let (last, count) = (words.number("last", 0), words.number("count", 0));
                    let got = || self.ports.account.last();
                    let ok = super::eventually(patience, || (got().0 >= last && got().1 >= count).then_some(()));
                    json!({"ok": ok.is_some(), "last": got().0, "received": got().1})
                }
                "told" => {
                    let text = words.get("text").unwrap_or_default().replace('_', " ");
                    let told =
                        super::eventually(patience, || self.events().iter().any(|e| e.contains(&text)).then_some(()));
                    json!({"ok": told.is_some(), "events": self.events()})
                }
                "status" => self.status(),
                "set" => self.set(words.get("to").unwrap_or_default()),
                "scale" => self.scale(words.get("to").unwrap_or_default()),
                "keep" => self.keep(words.get("to").unwrap_or_default()),
                "measure" => self.measure(words.number("every", 1) as u32),
                "command" => self.command(words.get("port").unwrap_or_default(), words.get("text").unwrap_or_default()),
                "ask" => self.ask(&words),
                "end" => break,
                _ => panic!("no such command: {verb}"),
            };
            self.say(&answer);
        }
    }

    /// Measures the stages of all channels of /a at this end.
    fn measure(&self, every: u32) -> Value {
        let request = thalweg::admin::Request::Measure { topic: "/a".into(), every };
        match self.node.ask(self.node.id(), &request, Duration::from_secs(1)) {
            Ok(thalweg::admin::Reply::Stages(stages)) => json!({"ok": true, "stages": stages}),
            other => json!({"ok": false, "text": format!("{other:?}")}),
        }
    }

    /// Sends a request to a node: `ask node=ID request=JSON`, with `+` for spaces.
    fn ask(&self, words: &Words) -> Value {
        let node = serde_json::from_value(words.get("node").unwrap().into()).unwrap();
        let request = serde_json::from_str(&words.get("request").unwrap().replace('+', " ")).unwrap();
        let reply = self.node.ask(node, &request, super::LONG);
        json!({"reply": reply.map_or_else(|e| json!(e.to_string()), |reply| json!(reply))})
    }

    /// An administrator's command to a port of its own, `command port=/out text=del+/in`.
    fn command(&self, port: &str, text: &str) -> Value {
        let request = thalweg::admin::Request::Command { port: port.to_owned(), text: text.replace('+', " ") };
        match self.node.ask(self.node.id(), &request, super::LONG) {
            Ok(thalweg::admin::Reply::Text { ok, text }) => json!({"ok": ok, "text": text}),
            other => json!({"ok": false, "text": format!("{other:?}")}),
        }
    }

    /// Sets the priority of all channels of its ports, `set to=class=high+sched=fifo:30`, or of the process, `set
    /// to=process+sched=other`.
    fn set(&self, words: &str) -> Value {
        let settings = words.trim_start_matches("process+");
        let changes: qos::priority::Changes = settings.replace('+', " ").parse().unwrap();
        let set = |name: &str| -> thalweg::Result<Vec<thalweg::admin::EndReport>> {
            if words.starts_with("process+") {
                return Ok(vec![self.node.set_priority(name, name, &changes)?]);
            }
            let ends = self.node.priority_report(name, None)?;
            let others = ends.iter().map(|end| if end.end == "publisher" { &end.subscriber } else { &end.publisher });
            others.map(|other| self.node.set_priority(name, other, &changes)).collect()
        };
        let done: Result<Vec<_>, _> = self.ports.names().iter().map(|name| set(name)).collect();
        match done {
            Ok(ends) => json!({"ok": true, "ends": ends.concat()}),
            Err(refused) => json!({"ok": false, "why": refused.to_string()}),
        }
    }

    /// Moves the proxy of a channel of its only subscriber: `scale to=/publisher,proxy=publisher`.
    fn scale(&self, words: &str) -> Value {
        let (publisher, all) = words.split_once(',').unwrap();
        let mut changes = thalweg::proxy::ProxyChanges::default();
        assert!(all.split(',').all(|word| changes.add(word).unwrap()));
        let (publisher, subscriber) = (publisher.to_owned(), self.ports.names()[0].to_owned());
        let request = thalweg::admin::Request::Scale { publisher, subscriber, changes };
        let scaled = self.node.ask(self.node.id(), &request, super::LONG);
        json!({"ok": scaled.is_ok(), "why": scaled.err().map(|e| e.to_string())})
    }

    /// Makes the node keep a connection of two ports: `keep to=/publisher,/subscriber`.
    fn keep(&self, names: &str) -> Value {
        let (publisher, subscriber) = names.split_once(',').unwrap();
        let (publisher, subscriber) = (publisher.to_owned(), subscriber.to_owned());
        let request =
            thalweg::admin::Request::Keep { publisher, subscriber, carrier: None, priority: Default::default() };
        let kept = self.node.ask(self.node.id(), &request, super::LONG);
        json!({"ok": kept.is_ok(), "why": kept.err().map(|e| e.to_string())})
    }

    fn events(&self) -> Vec<String> {
        let mut reader = self.node.events();
        std::iter::from_fn(|| reader.wait(Duration::ZERO)).map(|e| e.to_string()).collect()
    }

    fn status(&self) -> Value {
        let reports = self.ports.publishers.iter().flat_map(Publisher::channels);
        let reports: Vec<_> = reports.chain(self.ports.subscribers.iter().flat_map(Subscriber::channels)).collect();
        json!({
            "threads": linux::thread::count() - self.threads_before,
            "rss_kib": rss_kib(), "own_kib": status_kib("RssAnon:"), "peak_kib": linux::thread::peak_rss_kib(), "waits": linux::lock::waits(),
            "thread": rustix::thread::gettid().as_raw_nonzero().get(), "connected": self.ports.connected(), "channels": reports, "events": self.events(),
            "addresses": self.node.addresses(), "id": self.node.id(), "names": self.ports.names(),
        })
    }

    /// Publishes while another thread of this process joins and leaves.
    fn publish_in_a_storm(&mut self, words: &Words) -> Value {
        let (node, stop) = (self.node.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let storm = scope.spawn(|| join_and_leave(&node, words, &|| stop.load(Ordering::Relaxed)));
            let mut answer = self.publish(words);
            stop.store(true, Ordering::Relaxed);
            answer["cycles"] = storm.join().unwrap().into();
            answer
        })
    }

    /// Publishes at a steady rate from this thread, and reports the duration of each call and how often the thread slept
    /// until a sample was due.
    fn publish(&mut self, words: &Words) -> Value {
        let (hz, count) = (words.number("hz", 1000), words.number("count", 1000));
        let message = vec![7; words.number("size", 64) as usize];
        let mut durations = Durations::with_capacity(count as usize);
        let (mut sent, mut queued, mut dropped, mut broken, mut slept) = (0, 0, 0, 0, 0_u64);
        let (waits, allocations) = (linux::lock::waits(), allocations::count());
        let start = Instant::now();
        for index in 0..count {
            if let Some(due) =
                (start + Duration::from_nanos(index * 1_000_000_000 / hz.max(1))).checked_duration_since(Instant::now())
            {
                std::thread::sleep(due);
                slept += 1;
            }
            for publisher in &mut self.ports.publishers {
                let calling = Instant::now();
                let published = publisher.publish(&message).unwrap();
                durations.note(calling.elapsed());
                sent += published.sent;
                queued += published.queued;
                dropped += published.dropped;
                broken += published.not_connected;
                self.last = published.seq;
            }
        }
        let (allocations, waits) = (allocations::count() - allocations, linux::lock::waits() - waits);
        json!({
            "sent": sent, "queued": queued, "dropped": dropped, "not_connected": broken, "last": self.last,
            "slept": slept, "p50": durations.micros(0.5), "p99": durations.micros(0.99), "max": durations.micros(1.0),
            "allocations": allocations, "waits": waits, "took_ms": start.elapsed().as_millis() as u64,
        })
    }
}

/// Opens subscribers and drops them as soon as they are connected, again and again; returns their number.
fn join_and_leave(node: &Node, words: &Words, stop: &dyn Fn() -> bool) -> u64 {
    let mut cycles = 0;
    while !stop() {
        let topic = words.get("topic").unwrap_or("/topic");
        let subscriber = node.subscriber::<Raw>(topic).carriers(words.get("storm").unwrap_or("tcp").split(','));
        let subscriber = subscriber.callback(|_| {}).unwrap();
        assert!(subscriber.wait_connected(1, super::LONG), "it did not connect");
        cycles += 1;
        drop(subscriber);
        std::thread::sleep(Duration::from_micros(words.number("pause_us", 0)));
    }
    cycles
}

/// Resident memory of this process in KiB.
pub fn rss_kib() -> u64 {
    status_kib("VmRSS:")
}

/// A value of `/proc/self/status` in KiB.
fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|v| v.parse().ok()).unwrap_or(0)
}
