//! Multicast that does not work is a failed carrier, with a reason, and the next one is taken. Working multicast
//! continues when its interface is made again, and accepts its publisher only.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use thalweg::carrier::Parameters;
use world::agent::{Agent, number};
use world::fake::{Fake, acceptance, frame, header};
use world::net::{A, A6, B, B6, TwoHosts};
use world::{LONG, World, figure, skipped};

fn carrier(agent: &mut Agent) -> String {
    let status = agent.ask("status");
    status["channels"][0]["carrier"].as_str().unwrap_or_else(|| panic!("no channel: {status}")).to_owned()
}

/// The addresses of a publisher on host `a` and of some subscribers on host `b`, and the file of them that all read.
fn addresses(world: &World, a: &str, b: &str) -> (String, Vec<String>) {
    let file = world.dir().join("nodes.toml");
    let all: Vec<String> = (0..4).map(|i| format!("{}:{}", if i == 0 { a } else { b }, 7400 + i)).collect();
    let text: String = all.iter().map(|at| format!("[[node]]\naddress = \"{at}\"\n")).collect();
    std::fs::write(&file, text).unwrap();
    (file.to_str().unwrap().to_owned(), all)
}

fn gets_all(publisher: &mut Agent, subscribers: &mut [Agent]) {
    let last = number(&publisher.ask("publish count=100"), "last");
    for subscriber in subscribers {
        assert!(subscriber.ask(&format!("until last={last}"))["ok"] == true, "{}", subscriber.ask("status"));
    }
}

/// The group has a member when the others come: each of them has to receive a packet itself.
#[test]
fn a_group_that_a_switch_drops_gives_way_to_the_next_carrier() {
    let _alone = world::alone();
    let hosts = match TwoHosts::with_switch("m") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let (file, at) = addresses(&world, A, B);
    let part = format!("publisher topic=/a file={file} listen={}", at[0]);
    let mut publisher = Agent::start_by(&world, &part, &hosts.in_a());
    let subscriber = |name: &str, at: &str| {
        let part = format!("subscriber topic=/a name=/{name} carriers=mcast,tcp file={file} listen={at}");
        let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
        subscriber.connected(1);
        subscriber
    };
    let mut first = subscriber("first", &at[1]);
    assert_eq!(carrier(&mut first), "mcast");
    hosts.switch_drops_multicast();
    let mut others = [subscriber("second", &at[2]), subscriber("third reliable=1", &at[3])];
    for other in &mut others {
        assert_eq!(carrier(other), "tcp");
        let events = other.ask("status")["events"].to_string();
        assert!(
            events.contains("nothing that the publisher sent to 239.255.") && events.contains("by veth"),
            "{events}"
        );
    }
    let events = publisher.ask("status")["events"].to_string();
    assert!(!events.contains("/second over mcast") && !events.contains("/third over mcast"), "{events}");
    gets_all(&mut publisher, &mut others);
}

/// Linux has no route for IPv6 groups on loopback: a datagram to one cannot even leave.
#[test]
fn ipv6_that_loopback_does_not_carry_gives_way_with_the_reason() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("l") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    if let Err(why) = hosts.ip_in_a("-4 address flush dev lo") {
        return skipped(why);
    }
    let world = World::new();
    let mut publisher = Agent::start_by(&world, "publisher topic=/a", &hosts.in_a());
    let subscriber = || {
        let mut subscriber = Agent::start_by(&world, "subscriber topic=/a carriers=mcast,tcp", &hosts.in_a());
        subscriber.connected(1);
        subscriber
    };
    let mut first = subscriber();
    assert_eq!(carrier(&mut first), "tcp");
    let events = first.ask("status")["events"].to_string();
    assert!(
        events.contains("lo cannot send to ff14:") && events.contains("ip -6 route add local ff00::/8 dev lo"),
        "{events}"
    );
    hosts.ip_in_a("-6 route add local ff00::/8 dev lo table local").unwrap();
    let mut second = subscriber();
    assert_eq!(carrier(&mut second), "mcast");
    gets_all(&mut publisher, &mut [first, second]);
}

/// The same with IPv4 besides: IPv4 works, and no other carrier is needed.
#[test]
fn ipv4_carries_where_ipv6_does_not() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("f") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    // Loopback has both families and no route for groups of IPv6, the family by which this publisher is preferably
    // reached.
    let mut publisher = Agent::start_by(&world, "publisher topic=/a listen=[::1]:7400", &hosts.in_a());
    let addresses = publisher.ask("status")["addresses"].to_string();
    assert!(addresses.starts_with("[\"[::1]:7400\",\"127.0.0.1:"), "{addresses}");
    let mut subscriber = Agent::start_by(&world, "subscriber topic=/a carriers=mcast", &hosts.in_a());
    subscriber.connected(1);
    assert_eq!(carrier(&mut subscriber), "mcast");
    let groups = hosts.said_by_a("-4 maddress show dev lo").unwrap();
    assert!(groups.contains("inet  239.255."), "{groups}");
    gets_all(&mut publisher, std::slice::from_mut(&mut subscriber));
}

#[test]
fn a_group_is_joined_again_when_its_interface_was_made_anew() {
    joined_again("4", A, B);
}

#[test]
fn a_group_of_ipv6_is_joined_again_when_its_interface_was_made_anew() {
    joined_again("6", &format!("[{A6}]"), &format!("[{B6}]"));
}

/// 250 messages are kept while none can leave: no reliable sample is lost, and best-effort flows continue.
fn joined_again(test: &str, a: &str, b: &str) {
    let _alone = world::alone();
    let hosts = match TwoHosts::new(test) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let (file, at) = addresses(&world, a, b);
    let part = format!("publisher topic=/a name=/p queue=1024 file={file} listen={}", at[0]);
    let mut publisher = Agent::start_by(&world, &part, &hosts.in_a());
    let subscriber = |what: &str, at: &str| {
        let part = format!("subscriber topic=/a carriers=mcast file={file} listen={at} {what}");
        let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
        subscriber.connected(1);
        subscriber
    };
    let mut subscribers = [subscriber("name=/lossy", &at[1]), subscriber("name=/all reliable=1", &at[2])];
    publisher.connected(2);
    publisher.tell("publish count=2000 hz=500");
    for subscriber in &mut subscribers {
        assert!(subscriber.ask("until count=100")["ok"] == true, "nothing came");
    }
    hosts.delete();
    std::thread::sleep(Duration::from_millis(500));
    for subscriber in &mut subscribers {
        assert!(subscriber.told("rests", LONG), "{}", subscriber.ask("status"));
    }
    subscribers[0].ask("reset");
    hosts.make_anew();
    let up = linux::clock::monotonic_ns();
    let last = number(&publisher.answer(), "last");
    for subscriber in &mut subscribers {
        let came = subscriber.ask(&format!("until last={last} ms=5000"));
        assert!(came["ok"] == true, "{came} {}", subscriber.ask("status"));
        assert!(subscriber.told("is_joined_again", LONG));
    }
    assert!(publisher.told("leaves_there_again", LONG));
    let [lossy, all] = &mut subscribers;
    let resumed = (number(&lossy.ask("report"), "first_at_ns") - up as f64) / 1e6;
    let report = all.ask("report");
    figure("multicast", format!("IPv{test}: {resumed:.1} ms after the interface was there again"));
    assert_eq!((number(&report, "missing"), number(&report, "again")), (0.0, 0.0), "{report}");
    let events = all.ask("status")["events"].to_string();
    assert!(!events.contains(" ended: "), "the channel goes on: {events}");
}

/// Any host that knows a group may send to it.
#[test]
fn forged_multicast_is_dropped_by_the_kernel() {
    let _alone = world::alone();
    let world = World::new();
    let mut subscriber = Agent::start(&world, "subscriber topic=/a name=/s carriers=mcast");
    let fake = Fake::new(&world, &["mcast"]);
    let (mut stream, _) = fake.asked();
    let group = std::net::SocketAddr::from(([239, 255, 78, std::process::id() as u8], 31_000));
    let [publisher, other] = [(); 2].map(|()| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        socket
    });
    let udp_port = Some(publisher.local_addr().unwrap().port());
    stream.write_all(&acceptance(Parameters { group: Some(group), udp_port, ..Parameters::default() })).unwrap();
    subscriber.connected(1);
    // The number of the next sample, and the highest possible one: after that no newer sample would ever be delivered.
    for forged in [1, u64::MAX] {
        (0..50).for_each(|_| assert!(other.send_to(&frame(header(forged)), group).is_ok()));
    }
    for sample in 1..=10 {
        publisher.send_to(&frame(header(sample)), group).unwrap();
    }
    assert!(subscriber.ask("until last=10")["ok"] == true, "{}", subscriber.ask("status"));
    let report = subscriber.ask("report");
    assert_eq!((number(&report, "received"), number(&report, "again")), (10.0, 0.0), "{report}");
    // Forged frames came first, to the same socket: the reading thread would have seen them.
    let status = subscriber.ask("status");
    assert_eq!(number(&status["channels"][0], "strange"), 0.0, "{status}");
}
