//! The machines of 1,000 nodes in virtual time. A node is a directory, the channels that it wants ([`Matching`](super::Matching), moves,
//! heartbeats) and those that it serves (publishers, channels that wait for their subscribers, hosted streams). The network between the
//! nodes delays, loses and reorders messages, and splits; nodes crash, stop, and start again. Runs with the same seed are identical.
//!
//! The judge derives the channels that must exist from the drawn ports ([`ports`]), not from the product's code.
//!
//! | file | what |
//! |---|---|
//! | [`world`], [`events`] | virtual time, nodes, the queue of events |
//! | [`network`], [`disturbances`] | documents and changes on their way; what goes wrong |
//! | [`handshakes`], [`moving`], [`signs`] | the subscriber's side: channels, moves, signs of life |
//! | [`serving`], [`publisher`], [`hosting`] | the publisher's side, and a relay's |
//! | [`judge`], [`laws`] | what must hold |

mod disturbances;
mod events;
mod handshakes;
mod hosting;
mod judge;
mod laws;
mod moving;
mod network;
mod node;
mod ports;
mod publisher;
mod serving;
mod signs;
mod world;

use super::PATIENCE;
use std::time::Duration;
use world::{Size, World};

/// After the last disturbance all channels are as they should be within this time. A node notices a lost change at the sender's next one,
/// [`world::NEXT_CHANGE`] later; then it asks for the document, and handshakes follow.
const SETTLES: Duration = Duration::from_secs(8);
/// A move may have to give up a new channel first that does not catch up within 5 s, before it is tried again.
const SETTLES_WITH_RELAYS: Duration = Duration::from_secs(12);

fn run(seed: u64, size: Size, rounds: &[u64]) {
    let settles = if size.relays > 0 { SETTLES_WITH_RELAYS } else { SETTLES };
    let mut world = World::new(seed, size);
    world.start_all();
    world.run_for(Duration::from_secs(3));
    for (round, disturbed) in rounds.iter().enumerate() {
        world.disturb(Duration::from_secs(*disturbed));
        world.heal();
        world.run_for(settles);
        world.judge(round);
    }
    println!("seed {seed}: {}", world.summary());
}

/// 60 nodes with 600 ports, with several seeds.
#[test]
fn small_networks_come_to_have_all_their_channels_and_no_other() {
    for seed in 1..=6 {
        run(seed, Size { realms: &[30, 20, 10], ports: 10, relays: 0, by_relay: 0 }, &[10, 5]);
    }
}

/// The same with two relays in each realm.
#[test]
fn channels_by_relays_come_to_be_in_their_place_and_in_no_other() {
    for seed in 11..=14 {
        run(seed, Size { realms: &[20, 10, 10], ports: 8, relays: 2, by_relay: 15 }, &[10, 10]);
    }
}

/// 1,000 nodes with 10,000 ports: a realm of 100, and 45 of 20; and two relays in each.
#[test]
fn a_thousand_nodes_come_to_have_all_their_channels_and_no_other() {
    let mut realms = vec![100];
    realms.extend([20; 45]);
    run(4, Size { realms: &realms, ports: 10, relays: 2, by_relay: 3 }, &[8]);
}

/// Hosts are cut off for less and for more than the time for which a publisher waits.
#[test]
fn a_channel_that_was_cut_off_continues_within_two_minutes_and_is_given_up_then() {
    for (seed, cut) in [(21, 15), (22, 60), (23, 117), (24, 124), (25, 140)] {
        let mut world = World::new(seed, Size { realms: &[14], ports: 6, relays: 2, by_relay: 15 });
        world.start_all();
        world.run_for(Duration::from_secs(5));
        world.split_some();
        world.run_for(Duration::from_secs(cut));
        world.heal();
        world.run_for(SETTLES_WITH_RELAYS);
        world.judge(0);
        world.disturb(Duration::from_secs(5));
        world.heal();
        world.run_for(PATIENCE + Duration::from_secs(11));
        world.judge(1);
        world.judge_rest(1);
        println!("seed {seed}, cut off for {cut} s: {}", world.summary());
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let told = || {
        let mut world = World::new(9, Size { realms: &[20], ports: 6, relays: 2, by_relay: 15 });
        world.start_all();
        world.disturb(Duration::from_secs(5));
        world.summary()
    };
    assert_eq!(told(), told());
}
