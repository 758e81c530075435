//! Three hosts in a row, publisher – relay – subscriber (network namespaces): scaling, pulls, and the death of each
//! process in turn.
#![allow(clippy::unwrap_used)]

use crate::support;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Done, LONG, Row, Running, Testbed};

/// Addresses on the hosts `a`, `g` (which forwards) and `b`; the second one of `b` is for verbs that only look.
const PUBLISHER: &str = "10.96.1.1:7400";
const RELAY: &str = "10.96.2.254:7400";
const SUBSCRIBER: &str = "10.96.2.1:7400";
const LOOKER: &str = "10.96.2.1:7401";

/// The hosts, and a file with the addresses of their nodes.
struct Hosts {
    row: Row,
    house: Testbed,
}

impl Hosts {
    /// `None` if they cannot be made here.
    fn new(test: &str) -> Option<Self> {
        let hosts = Self { row: Row::new(test)?, house: Testbed::new() };
        let nodes = [PUBLISHER, RELAY, SUBSCRIBER, LOOKER].map(|at| format!("[[node]]\naddress = \"{at}\"\n"));
        std::fs::write(hosts.house.path("nodes.toml"), nodes.concat()).unwrap();
        Some(hosts)
    }

    /// `thalweg` on the host of this address.
    fn start(&self, at: &str, arguments: &str) -> Running {
        let host = [PUBLISHER, RELAY].iter().position(|of| *of == at).unwrap_or(2);
        let nodes = self.house.path("nodes.toml");
        let mut command = self.row.command(host, env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace());
        if arguments.contains("--reliable") {
            // The default queue, keep-last 16, drops what a stall of 32 ms leaves.
            command.args(["--policy", "queue=keep-all 4096"]);
        }
        command.args(["--listen", at, "--discovery", &format!("static:{}", nodes.display())]);
        command.env("THALWEG_RUN_DIR", self.house.path(&format!("run{host}")));
        Running::start(command)
    }

    fn look(&self, arguments: &str) -> Done {
        self.start(LOOKER, arguments).finish()
    }

    /// Repeats a command until its output fits.
    fn until(&self, arguments: &str, fits: impl Fn(&Done) -> bool) -> Done {
        let until = Instant::now() + LONG;
        loop {
            let done = self.look(arguments);
            if fits(&done) {
                return done;
            }
            assert!(Instant::now() < until, "{arguments}: {:?} {}", done.lines, done.errors);
        }
    }
}

impl Hosts {
    /// Cuts off host `a` or `b` from the relay in both directions, while everything else passes; or restores it.
    /// `false` if there is no `nft`.
    fn cut(&self, host: usize, on: bool) -> bool {
        let relay = "{ 10.96.1.254, 10.96.2.254 }";
        let rules = match on {
            true => format!(
                "add table inet cut; add chain inet cut in {{ type filter hook input priority 0; }}; \
                 add rule inet cut in ip saddr {relay} drop; \
                 add chain inet cut out {{ type filter hook output priority 0; }}; \
                 add rule inet cut out ip daddr {relay} drop"
            ),
            false => "delete table inet cut".to_owned(),
        };
        let done = self.row.command(host, "nft").arg(&rules).output();
        done.is_ok_and(|done| done.status.success())
    }
}

fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn seqs(done: &Done) -> Vec<u64> {
    done.lines.iter().map(|line| read(line)["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_stream_is_scaled_and_kept_half_way() {
    let Some(row) = Hosts::new("a_stream_is_scaled_and_kept_half_way") else { return };
    let publish = row.start(PUBLISHER, "pub /cam --rate 200 --size 100 --port /out --history 0");
    let relay = row.start(RELAY, "relay --name gate --keep /cam --history 5000");
    let every = row.start(SUBSCRIBER, "sub /cam --every 10 --proxy relay:gate --json --count 20");
    let mut last = 0;
    for line in (0..20).map(|_| every.json_line()) {
        let seq = line["seq"].as_u64().unwrap();
        // The relay may need a moment; then only every tenth sample comes.
        assert!(seq.is_multiple_of(10) && (last == 0 || seq == last + 10), "{seq} after {last}");
        assert_eq!((&line["publisher"], &line["scaled"]["selection"]), (&"/out".into(), &"10".into()), "{line}");
        last = seq;
    }
    // The publisher keeps no samples; the relay keeps samples of all publishers since its start.
    let kept = row.until("pull /cam --nth 50 --json", |done| done.code() == 0);
    let from = seqs(&kept)[0];
    let range = row.until(&format!("pull /cam --seq {}..{} --json", from + 20, from + 22), |done| done.code() == 0);
    assert_eq!(seqs(&range), [from + 20, from + 21, from + 22]);
    // The same after the publisher's end.
    publish.interrupt();
    let never = row.until("pull /cam --seq 1000000", |done| done.code() == 1);
    assert!(never.errors.contains("never was: the last is"), "{}", never.errors);
    assert_eq!(seqs(&row.look(&format!("pull /cam --seq {from} --json"))), [from]);
    relay.interrupt();
}

/// A subscriber, and its samples by start of the publisher: the number of each, and whether it is marked historical. Where a history takes longer
/// than live samples are held, they go first, and the rest of the history follows with that mark.
struct Listener {
    running: Running,
    given: BTreeMap<String, Vec<(u64, bool)>>,
}

impl Listener {
    fn new(running: Running) -> Self {
        Self { running, given: BTreeMap::new() }
    }

    fn note(&mut self, sample: &Value) {
        let start = sample["id"].as_str().unwrap().split_once(':').unwrap().0.to_owned();
        let historical = sample["historical"].as_bool().unwrap();
        self.given.entry(start).or_default().push((sample["seq"].as_u64().unwrap(), historical));
    }

    /// Listens until a sample arrives that was published after this call.
    fn listen(&mut self) {
        let now = linux::clock::monotonic_ns();
        loop {
            let sample = self.running.json_line();
            self.note(&sample);
            if sample["source_ns"].as_u64().unwrap() > now {
                return;
            }
        }
    }

    /// Ends the subscriber. Returns the first and the last number of each start of the publisher; none between them
    /// is missing or came twice, and those that are not marked are in order.
    fn end(mut self) -> Vec<(u64, u64)> {
        let Done { lines, .. } = {
            let running = std::mem::replace(&mut self.running, Running::start(Command::new("true")));
            running.interrupt()
        };
        lines.iter().for_each(|line| self.note(&read(line)));
        let span = |given: &Vec<(u64, bool)>| {
            let live: Vec<u64> = given.iter().filter(|(_, historical)| !historical).map(|(seq, _)| *seq).collect();
            let mut all = given.clone();
            all.sort_unstable();
            let (first, last, marked) = (all[0].0, all[all.len() - 1].0, given.len() - live.len());
            let disorder: Vec<_> = live.windows(2).filter(|two| two[1] <= two[0]).map(|two| (two[0], two[1])).collect();
            let pairs = || all.windows(2).map(|two| (two[0], two[1]));
            let twice: Vec<_> = pairs().filter(|(one, next)| one.0 == next.0).collect();
            let gaps: Vec<_> = pairs().filter(|(one, next)| next.0 > one.0 + 1).collect();
            let wrong = [told("disorder", disorder), told("twice", twice), told("gaps", gaps)].concat();
            assert!(wrong.is_empty(), "of {first} to {last}, {marked} of them historical:{wrong}");
            println!("FIGURE hosts: {first} to {last}: {marked} historical");
            (first, last)
        };
        self.given.values().map(span).collect()
    }
}

/// The first few of these pairs, in words; empty: there are none.
fn told(what: &str, pairs: Vec<impl std::fmt::Debug>) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    format!(" {} {what}: {:?}", pairs.len(), &pairs[..pairs.len().min(20)])
}

const PUBLISH: &str = "pub /cam --rate 500 --size 100 --port /out --reliable --transient-local --history 20000 \
                       --policy history=20000";
const SUBSCRIBE: &str =
    "sub /cam --proxy relay:gate --port /in --json --reliable --transient-local --policy history=20000";
const HOST: &str = "relay --name gate --keep /cam --history 20000";

/// Waits until the relay serves the subscriber.
fn at_relay(row: &Hosts) {
    served(row, true);
}

/// Waits until the relay, or the publisher, serves the subscriber; the time that it took.
fn served(row: &Hosts, by_relay: bool) -> Duration {
    let begun = Instant::now();
    let proxied = |done: &Done| {
        let channels = read(&done.lines[0]);
        let ours = channels["channels"].as_array().unwrap().iter().filter(|channel| channel["subscriber"] == "/in");
        let mut ours = ours.map(|channel| channel["proxied"]["place"]["relay"] == "gate").peekable();
        ours.peek().is_some() && ours.all(|relayed| relayed == by_relay)
    };
    row.until("list channels --json", |done| done.code() == 0 && proxied(done));
    begun.elapsed()
}

/// The relay is cut off from the publisher, then from the subscriber, and no connection is closed. The publisher
/// serves meanwhile, and the relay again when it is back. No sample is lost.
#[test]
fn a_relay_that_is_cut_off_is_replaced() {
    let Some(row) = Hosts::new("a_relay_that_is_cut_off_is_replaced") else { return };
    let (publisher, gate) = (row.start(PUBLISHER, PUBLISH), row.start(RELAY, "relay --name gate"));
    let mut subscriber = Listener::new(row.start(SUBSCRIBER, SUBSCRIBE));
    for (host, from) in [(0, "publisher"), (2, "subscriber")] {
        at_relay(&row);
        subscriber.listen();
        if !row.cut(host, true) {
            return println!("skipped: a_relay_that_is_cut_off_is_replaced because there is no nft");
        }
        let left = served(&row, false);
        subscriber.listen();
        assert!(row.cut(host, false));
        let back = served(&row, true);
        println!("FIGURE hosts: relay cut off from its {from}: left after {left:.1?}, back after {back:.1?}");
        assert!(left.as_secs() < 8, "{left:?}");
        subscriber.listen();
    }
    assert_eq!(subscriber.end().len(), 1);
    drop((publisher, gate));
}

fn kill(running: Running) {
    running.signal(Signal::KILL);
    drop(running);
}

/// `kill -9` of the relay, the publisher and the subscriber in turn, while 500 reliable samples a second are
/// published.
fn each_is_killed(carrier: &str) {
    let Some(row) = Hosts::new("each_is_killed") else { return };
    let publish = || row.start(PUBLISHER, &format!("{PUBLISH} --carrier {carrier}"));
    let subscribe = || row.start(SUBSCRIBER, &format!("{SUBSCRIBE} --carrier {carrier}"));
    let relay = || row.start(RELAY, HOST);
    let (publisher, gate, mut subscriber) = (publish(), relay(), Listener::new(subscribe()));
    at_relay(&row);
    // The relay: the publisher serves, then the relay that is there again.
    kill(gate);
    subscriber.listen();
    let gate = relay();
    at_relay(&row);
    subscriber.listen();
    // The publisher: its next start is another stream.
    kill(publisher);
    let again = publish();
    subscriber.listen();
    // The relay has all samples of the first start that left its host: the subscriber has them, too. A publisher offers
    // a sample to one channel after the other, and may be killed between two: of the last sample one may have nothing.
    let kept = row.look("pull /cam --since 3600s --at /gate/keeps/cam --json");
    let first_start = subscriber.given.keys().next().unwrap().clone();
    let spans = subscriber.end();
    let mut of_first =
        kept.lines.iter().map(|line| read(line)).filter(|s| s["id"].as_str().unwrap().starts_with(&first_start));
    let last = of_first.next_back().and_then(|sample| sample["seq"].as_u64());
    let last = last.unwrap_or_else(|| panic!("{}", kept.errors));
    let reached = spans[0].1;
    assert!(spans.len() == 2 && reached.abs_diff(last) <= 1, "{carrier}: {spans:?}, and the relay has up to {last}");
    // The subscriber: the next one gets all of this start, from its first sample on.
    let mut subscriber = Listener::new(subscribe());
    subscriber.listen();
    kill(subscriber.running);
    let mut subscriber = Listener::new(subscribe());
    at_relay(&row);
    subscriber.listen();
    let there = subscriber.end();
    assert_eq!((there.len(), there[0].0), (1, 1), "{carrier}: {there:?}");
    println!(
        "FIGURE hosts: {carrier}: relay, publisher, subscriber killed in turn: 0 of {} lost, 0 twice",
        reached + there[0].1
    );
    drop((again, gate));
}

#[test]
fn each_is_killed_in_turn_over_tcp() {
    each_is_killed("tcp");
}

#[test]
fn each_is_killed_in_turn_over_reliable_udp() {
    each_is_killed("udp");
}
