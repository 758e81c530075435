//! Three domains in a row whose middle link is a tunnel, with borders at which packets of no session are kept out of the pipes.
#![allow(clippy::unwrap_used)]

use crate::domains::{Domains, contract, session};
use crate::support;
use qos::priority::Mark;
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use support::Running;

/// From `cam` to `desk`, where nobody listens.
const TO: ([u8; 4], u16) = ([10, 97, 2, 2], 9);
/// Packets of a burst.
const PACKETS: u64 = 20;
/// More at once than a session of 20 samples a second may send, and fewer than wait at their host; and those that it may: for each of two samples
/// that earlier delays bring together, one and one besides; and two keep-alives, and two heartbeats of two packets.
const EXCESS: u64 = 80;
const ALLOWED: u64 = 10;

/// The contracts: the hosts have addresses, the link between the borders is a tunnel, and both domains behind look at what comes in.
fn bordered(domain: usize) -> String {
    let text = contract(domain);
    let change = |text: String, from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        changed
    };
    match domain {
        0 => change(text, "name = \"cam\"\n", "name = \"cam\"\naddress = \"10.97.0.1\"\n"),
        1 => {
            let tunnel = "devices = { rw = \"vx\" }\ntunnel = { kind = \"vxlan\", id = 7, ends = { rw = \"10.97.1.1\", wb = \"10.97.1.2\" }, inside = { rw = \"10.98.0.1/30\" } }\n";
            let text = change(text, "devices = { rw = \"next\" }\n", tunnel);
            change(text, "broker = \"10.97.0.1:7450\"\n", "broker = \"10.97.0.1:7450\"\ndevice = \"last\"\n")
        }
        _ => {
            let text = change(text, "name = \"desk\"\n", "name = \"desk\"\naddress = \"10.97.2.2\"\n");
            let end = "broker = \"10.97.1.1:7450\"\ndevice = \"vx\"\ntunnel = { kind = \"vxlan\", id = 7, local = \"10.97.1.2\", remote = \"10.97.1.1\", inside = \"10.98.0.2/30\" }\n";
            change(text, "broker = \"10.97.1.1:7450\"\n", end)
        }
    }
}

fn has_vxlan(test: &str) -> bool {
    let line = "link add thalwegvx type vxlan id 16777000 dstport 4790 remote 127.0.0.9";
    let made = Command::new("unshare").args(["-n", "ip"]).args(line.split(' ')).output();
    match made {
        Ok(done) if done.status.success() => true,
        done => {
            let why =
                done.map(|done| String::from_utf8_lossy(&done.stderr).into_owned()).unwrap_or_else(|e| e.to_string());
            println!("skipped: {test} because no VXLAN device can be made here: {}", why.trim());
            false
        }
    }
}

/// Sends marked packets from `cam` to `desk`.
fn send(domains: &Domains, mark: &str) {
    send_many(domains, mark, PACKETS);
}

fn send_many(domains: &Domains, mark: &str, packets: u64) {
    let mark = Mark::Dscp(mark.parse().unwrap());
    domains.inside(0, || {
        // Not connected: the receiver's refusals are not told.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        linux::marks::set(socket.as_fd(), &mark, 0).unwrap();
        for _ in 0..packets {
            socket.send_to(&[0; 100], SocketAddr::from(TO)).unwrap();
        }
    });
}

/// The hosts of a domain, also while they are not as they have to be.
fn hosts(domains: &Domains, domain: usize) -> Vec<Value> {
    let done = domains.ask(domain, "hosts");
    serde_json::from_str(&done.lines[0]).unwrap()
}

/// What the border of `wan` has kept out of a class, as its agent reports it.
fn kept_out(domains: &Domains, class: &str) -> u64 {
    let all = hosts(domains, 1);
    let all = all.iter().filter_map(|host| host["kept_out"].as_array()).flatten();
    let of_class = |one: &&Value| one["class"] == class && one["device"] == "last";
    all.filter(of_class).map(|one| one["packets"].as_u64().unwrap()).sum()
}

/// What it has dropped of a session that sent more than it reserved.
fn exceeded(domains: &Domains, session: &str) -> u64 {
    let all = hosts(domains, 1);
    let all = all.iter().filter_map(|host| host["exceeded"].as_array()).flatten();
    let of_session = |one: &&Value| one["session"] == session && one["class"] == "high" && one["device"] == "last";
    all.filter(of_session).map(|one| one["packets"].as_u64().unwrap()).sum()
}

/// Packets that each class of the tunnel's queues has sent, at its sender: high and normal.
fn carried(domains: &Domains) -> [u64; 2] {
    let found = domains.inside(1, || linux::queueing::read("vx").unwrap().carried());
    [qos::Class::High, qos::Class::Normal]
        .map(|class| found.iter().find(|one| one.class == Some(class)).unwrap().counters.packets)
}

/// Packets of the tunnel that came to its other end with AF42 outside.
fn outside(domains: &Domains) -> u64 {
    let said = domains.output(2, "nft", &["list", "table", "ip", "outside"]);
    let counted = said.split_once("packets ").unwrap().1;
    counted.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn packets_of_no_session_are_kept_out_of_a_pipe_through_a_tunnel() {
    let test = "packets_of_no_session_are_kept_out_of_a_pipe_through_a_tunnel";
    if !has_vxlan(test) {
        return;
    }
    let Some(domains) = Domains::with(test, bordered) else { return };
    let trace = |domains: &Domains| {
        let devices = [1, 2].map(|host| domains.output(host, "ls", &["/sys/class/net"]));
        let addresses = [1, 2].map(|host| domains.output(host, "ip", &["-4", "-o", "address", "show"]));
        (domains.settings(), devices, addresses)
    };
    let bare = trace(&domains);
    let _brokers: Vec<Running> = (0..3).map(|domain| domains.broker(domain)).collect();
    let _agents: Vec<Running> = (0..3).map(|domain| domains.agent(domain)).collect();
    let applied = |domains: &Domains, domain: usize| {
        let hosts = hosts(domains, domain);
        !hosts.is_empty() && hosts.iter().all(|host| host["state"] == "applied")
    };
    domains.until("all pipes are installed", |domains| (0..3).all(|domain| applied(domains, domain)));
    // The way through the tunnel is the administrator's: the devices are the agents'.
    for (host, to, via) in [(1, "10.97.2.0/25", "10.98.0.2"), (2, "10.97.0.0/25", "10.98.0.1")] {
        domains.output(host, "ip", &["route", "add", to, "via", via]);
        assert!(domains.output(host, "ip", &["route", "show", to]).contains("dev vx"));
    }
    let rule = "add table ip outside; add chain ip outside in { type filter hook input priority 0; }; \
                add rule ip outside in udp dport 4789 ip dscp af42 counter";
    domains.output(2, "nft", &[rule]);

    // Nobody has asked for a session: neither mark gets into the pipe's class, and both are counted. All get through.
    let before = carried(&domains);
    send(&domains, "AF42");
    send(&domains, "EF");
    domains.until("the agent has counted them", |domains| {
        (kept_out(domains, "high"), kept_out(domains, "critical")) == (PACKETS, PACKETS)
    });
    let [high, normal] = carried(&domains);
    assert_eq!((high, outside(&domains)), (before[0], 0));
    assert!(normal >= before[1] + 2 * PACKETS, "{normal} after {before:?}");

    // A session between the two hosts: its class gets in as far as it is reserved, another one does not.
    let admitted = domains.request(&session("video", 934, "desk", "100 ms")).json();
    assert_eq!(
        (&admitted["state"], &admitted["channels"][0]["class"]),
        (&"active".into(), &"high".into()),
        "{admitted}"
    );
    domains.until("the agent lets it in", |domains| {
        domains.output(1, "nft", &["list", "ruleset"]).contains("10.97.0.1 . 10.97.2.2")
    });
    send_many(&domains, "AF42", EXCESS);
    send(&domains, "EF");
    domains.until("the agent has counted the other class", |domains| kept_out(domains, "critical") == 2 * PACKETS);
    domains.until("the agent has counted what is too much", |domains| {
        carried(domains)[0] - high + exceeded(domains, "robot/video") == EXCESS
    });
    let passed = carried(&domains)[0] - high;
    assert!((ALLOWED..EXCESS / 2).contains(&passed), "{passed}");
    assert_eq!((outside(&domains), kept_out(&domains, "high")), (passed, PACKETS), "with the mark outside");

    domains.until("its user is told, where the session was asked for", |domains| {
        let told = domains.ask(0, "session show video").json()["exceeded"][0].clone();
        told["domain"] == "wan" && told["class"] == "high" && told["packets"] == EXCESS - passed
    });

    domains.ask(0, "session stop video").json();
    domains.until("it is not let in any more", |domains| {
        !domains.output(1, "nft", &["list", "ruleset"]).contains("10.97.0.1 . 10.97.2.2")
    });
    send(&domains, "AF42");
    domains.until("the agent has counted them", |domains| kept_out(domains, "high") == 2 * PACKETS);
    assert_eq!((carried(&domains)[0], outside(&domains)), (high + passed, passed));
    assert_eq!(exceeded(&domains, "robot/video"), 0, "no session has a limit any more");
    domains.until("nothing is sold", |domains| domains.sold() == [0.0; 3]);
    domains.output(2, "nft", &["delete", "table", "ip", "outside"]);
    (0..3).for_each(|domain| drop(domains.ask(domain, "restore --all").json()));
    domains.until("all have what they had", |domains| trace(domains) == bare);
}
