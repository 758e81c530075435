//! Loads offer their stated rate, and the sink counts it.
#![allow(clippy::unwrap_used)] // all of this is test

use std::time::Duration;
use thalweg_lab::load::{Generator, Load, Pattern, Protocol, Sink};
use thalweg_lab::part::Place;
use thalweg_lab::topology::{DEVICE, Namespace, Queue, Topology, Wire};
use thalweg_lab::{Lab, Options, Program, Stop};

struct World {
    topology: Topology,
    generator: Generator,
    sink: Sink,
    lab: Lab,
}

/// Two hosts, or the reason why there are none here.
fn world(test: &str) -> Option<World> {
    let program = Program::this(&["the_part", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).unwrap();
    let lab = Lab::open(Options::default(), Stop::default(), program, |_| {}).unwrap();
    let topology = match Topology::link(&lab, &[]) {
        Ok(topology) => topology,
        Err(why) => {
            println!("skipped: {test}: because {why}");
            return None;
        }
    };
    let sink = Sink::new(&lab, Place::at(topology.host(2), &[]), Topology::address_of(2)).unwrap();
    let generator = Generator::new(&lab, Place::at(topology.host(1), &[]), sink.target).unwrap();
    Some(World { topology, generator, sink, lab })
}

/// Packets that left a host by its link.
fn left(host: &Namespace) -> u64 {
    let shown = host.ip(&["-json", "-statistics", "link", "show", "dev", DEVICE]).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

const LOAD: Load = Load { protocol: Protocol::Udp, rate: 20_000_000, pattern: Pattern::Even, gso: false, seed: 1 };

#[test]
fn the_reported_load_left_the_host_and_arrived() {
    let Some(mut world) = world("the_reported_load_left_the_host_and_arrived") else { return };
    let bursts = Pattern::Bursts(40);
    for load in [LOAD, Load { pattern: Pattern::Random(4), ..LOAD }, Load { pattern: bursts, gso: true, ..LOAD }] {
        let (before, seen) = (left(world.topology.host(1)), world.sink.count(&world.lab).unwrap());
        world.generator.start(&world.lab, &load).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let offered = world.generator.stop(&world.lab).unwrap();
        let sent = left(world.topology.host(1)) - before;
        assert!(offered.packets > 0 && offered.mbit() > 0.0, "{load:?}: {offered:?}");
        // The kernel announces its multicast groups at any time.
        assert!((0..8).contains(&(sent - offered.packets)), "{load:?}: {sent} left, {offered:?}");
        // The last packets may still wait to be counted.
        let arrived = || world.sink.count(&world.lab).map(|now| now.datagrams - seen.datagrams);
        let all = std::iter::repeat_with(arrived).take(1000).find(|n| matches!(n, Ok(n) if *n == offered.packets));
        assert!(all.is_some(), "{load:?}: of {} packets not all were counted", offered.packets);
    }
}

#[test]
fn a_wire_lets_no_more_pass_than_its_rate_and_a_stream_takes_what_there_is() {
    let test = "a_wire_lets_no_more_pass_than_its_rate_and_a_stream_takes_what_there_is";
    let Some(mut world) = world(test) else { return };
    for queue in [Queue::Fifo, Queue::Bands, Queue::Classes] {
        let wire = Wire { rate: 10_000_000, limit: 100, queue };
        wire.install(world.topology.host(1), DEVICE).unwrap();
        let load = Load { protocol: Protocol::Tcp, pattern: Pattern::Greedy(2), ..LOAD };
        world.generator.start(&world.lab, &load).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let before = world.sink.count(&world.lab).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let goodput = world.sink.count(&world.lab).unwrap().mbit_since(&before);
        world.generator.stop(&world.lab).unwrap();
        assert!(goodput > 5.0 && goodput < 10.3, "{queue:?}: {goodput} Mbit/s through 9.8 Mbit/s");
        let shown = world.topology.host(1).tc(&["qdisc", "show", "dev", DEVICE]).unwrap();
        assert!(shown.contains("tbf") && shown.contains("9800Kbit"), "{shown}");
    }
}
