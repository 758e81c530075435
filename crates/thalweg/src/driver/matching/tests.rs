//! Matching in virtual time: nodes that are a directory, a [`Matching`](super::Matching) and what they grant, joined by a network that
//! delays, loses and reorders what they say, splits, and whose nodes crash and start again. By one seed all is the same each time.
//!
//! Whether two ports belong together is told by how they were drawn ([`ports`]), not by what the product computes.

mod disturbances;
mod handshakes;
mod judge;
mod network;
mod node;
mod ports;
mod world;

use std::time::Duration;
use world::{Size, World};

/// After the last disturbance all channels are as they should be within this time. A change that was lost is noticed by the next one of
/// its node, [`world::NEXT_CHANGE`] later; then documents are asked for, and handshakes follow.
const SETTLES: Duration = Duration::from_secs(8);

fn run(seed: u64, size: Size, rounds: &[u64]) {
    let mut world = World::new(seed, size);
    world.start_all();
    world.run_for(Duration::from_secs(3));
    for (round, disturbed) in rounds.iter().enumerate() {
        world.disturb(Duration::from_secs(*disturbed));
        world.heal();
        world.run_for(SETTLES);
        world.judge(round);
    }
    println!("seed {seed}: {}", world.summary());
}

/// 60 nodes with 600 ports, by several seeds.
#[test]
fn small_networks_come_to_have_all_their_channels_and_no_other() {
    for seed in 1..=6 {
        run(seed, Size { realms: &[30, 20, 10], ports: 10 }, &[10, 5]);
    }
}

/// 1,000 nodes with 10,000 ports: a realm of 100, and 45 of 20.
#[test]
fn a_thousand_nodes_come_to_have_all_their_channels_and_no_other() {
    let mut realms = vec![100];
    realms.extend([20; 45]);
    run(4, Size { realms: &realms, ports: 10 }, &[8]);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let told = || {
        let mut world = World::new(9, Size { realms: &[20], ports: 6 });
        world.start_all();
        world.disturb(Duration::from_secs(5));
        world.summary()
    };
    assert_eq!(told(), told());
}
