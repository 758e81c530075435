//! The cost of a node: threads and memory of a thousand channels, time to open and to match.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::world;
use world::agent::{Agent, number};
use world::{World, figure};

#[test]
fn a_thousand_channels_take_few_threads() {
    let _alone = world::alone();
    let world = World::new();
    let mut publishers = Agent::start(&world, "publisher ports=1000 topic=/t max=65536");
    let opening = std::time::Instant::now();
    let mut subscribers = Agent::start(&world, "subscriber ports=1000 topic=/t carriers=tcp,udp max=65536");
    publishers.connected(1000);
    subscribers.connected(1000);
    figure("limits", format!("1000 channels were open {:?} after the second process began", opening.elapsed()));
    let published = publishers.ask("publish count=3 hz=5");
    assert_eq!(number(&published, "sent"), 3000.0, "{published}");
    let reached = subscribers.ask("until count=3000 ms=3000");
    let (here, there) = (publishers.ask("status"), subscribers.ask("status"));
    for (who, status) in [("publishers", &here), ("subscribers", &there)] {
        figure(
            "limits",
            format!("node with 1000 {who}: {} threads, peak RSS {} KiB", status["threads"], status["peak_kib"]),
        );
        assert!(number(status, "threads") <= 18.0, "{who}: {} threads", status["threads"]);
    }
    // Half of them are datagrams, which may be lost (a burst of 500 into as many sockets loses none here).
    assert!(number(&reached, "received") >= 2900.0, "{reached}");
}

#[test]
fn a_node_opens_and_matches_at_once() {
    let _alone = world::alone();
    let (mut opened, mut matched, mut resident) = (Vec::new(), Vec::new(), Vec::new());
    for carrier in ["shm", "tcp", "udp"] {
        for _ in 0..5 {
            let world = World::new();
            let mut first = Agent::start(&world, "publisher topic=/a");
            let second = Agent::begin(&world, &format!("subscriber topic=/a carriers={carrier} match=1"), &[]);
            let told = second.answer();
            opened.push(number(&told, "open_us") / 1e3);
            matched.push(number(&told, "matched_us") / 1e3);
            first.connected(1);
            resident.push(number(&first.ask("status"), "peak_kib"));
        }
    }
    let worst = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    figure(
        "limits",
        format!(
            "Node::open: median {:.2} ms, longest {:.2}; matched after the second opened: median {:.2} ms, longest {:.2}; peak RSS of a publisher's process {} KiB",
            world::median(opened.clone()),
            worst(&opened),
            world::median(matched.clone()),
            worst(&matched),
            world::median(resident)
        ),
    );
    // The targets are 5 and 20 ms on a quiet machine.
    assert!(world::median(opened) <= 50.0);
    assert!(world::median(matched) <= 100.0);
}
