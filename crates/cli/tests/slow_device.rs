//! A device that takes less than its queue gives, seen by the agent alone: hosts a – g – b (network namespaces). The slow part is no queue, which an agent would
//! repair: the other end of the pair takes packets from its ring of 256 only when a timer ends, and from Linux 6.16 on a full ring stops the queue before it, as
//! that of a radio or a network card does.
#![allow(clippy::unwrap_used)]

use crate::domain::{Domain, HOSTS};
use crate::support::Running;
use serde_json::Value;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Rates are tried for seconds, and each thing is waited for until it is so.
const PATIENCE: Duration = Duration::from_secs(180);

/// A deep queue, for 3000 small samples at once.
const CONTRACT: &str = r#"
[[node]]
name = "a"
[[node]]
name = "g"
kind = "router"
proxy = false
[[node]]
name = "b"
[[link]]
name = "left"
between = ["a", "g"]
rate = "10 Mbit/s"
scheduler = "htb"
devices = { a = "eth", g = "ga" }
[[link]]
name = "right"
between = ["g", "b"]
rate = "10 Mbit/s"
scheduler = "htb"
devices = { g = "gb", b = "eth" }
[[topic]]
name = "bulk"
size = "60 B"
rate = "1 Hz"
burst = 3000
publisher = "a"
[[subscriber]]
topic = "bulk"
node = "b"
deadline = "20 s"
"#;

/// A session with a topic from a to b.
fn session(name: &str, importance: i64, bytes: u64, rate: u64, more: &str) -> String {
    format!(
        "[[session]]\nname = {name:?}\nimportance = {importance}\n[[topic]]\nname = {name:?}\nsize = \"{bytes} B\"\nrate = \"{rate} Hz\"\n\
         publisher = \"a\"\n[[subscriber]]\ntopic = {name:?}\nnode = \"b\"\ndeadline = \"20 s\"\n{more}"
    )
}

/// Programs that send as much as they can from `a` to `g`, where nobody hears it.
struct Flood(Vec<Child>);

impl Flood {
    /// Each has a socket whose buffer is full: it sends what the device takes, and no more. What waits of four is more than the ring holds.
    fn new(domain: &Domain) -> Self {
        let line = "exec dd if=/dev/zero bs=100 2>/dev/null >/dev/udp/10.96.1.254/9";
        Self((0..4).map(|_| domain.command(0, "bash").args(["-c", line]).spawn().unwrap()).collect())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn succeeds(mut command: Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

/// The other end of `eth` of host `a` takes packets every so many nanoseconds; 0: at once.
fn takes_every(domain: &Domain, ns: u64) {
    let ga = "/sys/class/net/ga";
    let line = format!("echo {ns} > {ga}/gro_flush_timeout && echo {} > {ga}/napi_defer_hard_irqs", u32::from(ns > 0));
    let mut command = domain.command(1, "sh");
    command.args(["-c", &line]);
    assert!(succeeds(command), "{line}");
}

/// Packets from `a` wait in the ring of `ga`, and what the flood sends is dropped there. `false`: not on this kernel, or not with its tools.
fn prepare(domain: &Domain, test: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 16) {
        println!("skipped: {test}: because a full ring of veth stops no queue before Linux 6.16");
        return false;
    }
    if Command::new("ethtool").arg("--version").output().is_err() {
        println!("skipped: {test}: because ethtool is not installed");
        return false;
    }
    // Without NAPI there is no ring; packets of a device that segments by itself pass by it.
    let features = [(1, "ga", "gro", "on"), (0, "eth", "tso", "off")];
    for (host, device, feature, state) in features {
        let mut command = domain.command(host, "ethtool");
        command.args(["-K", device, feature, state]);
        if !succeeds(command) {
            println!("skipped: {test}: because ethtool -K {device} {feature} {state} is refused");
            return false;
        }
    }
    let rules = "add table inet sink; add chain inet sink in { type filter hook input priority 0; }; \
                 add rule inet sink in udp dport 9 drop";
    let mut command = domain.command(1, "nft");
    command.arg(rules);
    assert!(succeeds(command), "{rules}");
    true
}

fn until(what: &str, mut is_so: impl FnMut() -> bool, now: impl Fn() -> Value) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: {}", now());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The channel of `/out` as its publisher's end reports it: the subscriber's program is not reached from here.
fn sent(domain: &Domain) -> Value {
    let mut command = domain.command(0, env!("CARGO_BIN_EXE_thalweg"));
    command.args(["info", "/out", "--json"]).env("THALWEG_RUN_DIR", domain.house.path("run0"));
    Running::start(command).finish().json()["channels"][0].clone()
}

/// Waits until the publisher has left samples out: more numbers have arrived since its channel is thinner than it has sent samples.
fn leaves_out(domain: &Domain, subscriber: &Running) {
    let number = |line: &String| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap();
    let mut newest = 0;
    let is_so = || {
        newest = subscriber.lines_so_far().last().map_or(newest, number);
        let channel = sent(domain);
        let (from, sent) = (channel["proxied"]["from"].as_u64(), channel["sent"].as_u64());
        from.zip(sent).is_some_and(|(from, sent)| newest > from + sent + 10)
    };
    until("the publisher leaves samples out", is_so, || sent(domain));
}

/// Samples of which each two neighbours are so far apart, three times in a row.
fn arrive(subscriber: &Running, is_so: impl Fn(u64) -> bool) {
    let (until, mut last, mut in_a_row) = (Instant::now() + PATIENCE, None, 0);
    while in_a_row < 3 {
        let number = subscriber.json_line()["seq"].as_u64().unwrap();
        let apart = last.map(|last: u64| number.saturating_sub(last));
        in_a_row = if apart.is_some_and(&is_so) { in_a_row + 1 } else { 0 };
        last = Some(number);
        assert!(Instant::now() < until, "{apart:?}");
    }
}

/// Nobody says that the link is slow.
#[test]
fn a_device_that_takes_less_thins_the_least_important_session() {
    let test = "a device that takes less";
    let Some(domain) = Domain::new(test) else { return };
    if !prepare(&domain, test) {
        return;
    }
    let file = |name: &str, text: &str| {
        let path = domain.house.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let contract = file("system.toml", CONTRACT);
    let _broker = domain.broker_with(&format!("--contract {contract} --faster-after 4s"));
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    let links = || domain.ask("links").json();
    until("the queues are there", || HOSTS.iter().all(|host| domain.host(host)["state"] == "applied"), links);
    let top = file("top.toml", &session("top", 9, 500, 50, ""));
    let low = file("low.toml", &session("low", 1, 8000, 100, "scale_max = 64\n"));
    for session in [&top, &low] {
        assert_eq!(domain.ask(&format!("session request {session}")).json()["state"], "active");
    }
    let shown = |name: &str| domain.ask(&format!("session show {name}")).json();
    let subscriber = domain.program(2, "sub /low --json");
    let _publisher = domain.program(0, "pub /low --port /out --rate 20 --size 100");
    arrive(&subscriber, |apart| apart == 1);

    takes_every(&domain, 100_000_000);
    let flood = Flood::new(&domain);
    let left = || links()["links"].as_array().unwrap().iter().find(|link| link["link"] == "left").cloned().unwrap();
    until("the agent sees it", || left()["measured"] == true, links);
    let because = |name: &str| shown(name)["because"].as_str().unwrap_or_default().to_owned();
    until("the less important session is thinned", || because("low").contains("gets one of"), || shown("low"));
    assert!(because("low").contains("link left carries"), "{}", because("low"));
    let top = shown("top");
    assert!(top["state"] == "active" && top["channels"][0]["scale"] == 1, "{top}");
    leaves_out(&domain, &subscriber);

    drop(flood);
    takes_every(&domain, 0);
    let whole = || {
        let link = left();
        link["measured"] == false
            && link["carries_bits_per_s"] == 10_000_000
            && shown("low")["channels"][0]["scale"] == 1
    };
    until("it has all again", whole, links);
    until("the publisher sends all again", || sent(&domain)["proxied"].is_null(), || sent(&domain));
    arrive(&subscriber, |apart| apart == 1);
    let log = domain.ask("session log top").json();
    let mut events = log.as_array().unwrap().iter().map(|record| &record["event"]);
    assert!(events.all(|event| event != "thin" && event != "suspend"), "{log}");
}
