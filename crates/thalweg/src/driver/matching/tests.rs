//! Matching in virtual time. A node is a directory, a [`Matching`](super::Matching) and the channels that it grants. The network between
//! the nodes delays, loses and reorders messages, and splits; nodes crash and start again. Runs with the same seed are identical.
//!
//! The judge derives the channels that must exist from the drawn ports ([`ports`]), not from the product's code.

mod disturbances;
mod handshakes;
mod judge;
mod network;
mod node;
mod ports;
mod world;

use std::time::Duration;
use world::{Size, World};

/// After the last disturbance all channels are as they should be within this time. A node notices a lost change at the sender's next one,
/// [`world::NEXT_CHANGE`] later; then it asks for the document, and handshakes follow.
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

/// 60 nodes with 600 ports, with several seeds.
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
