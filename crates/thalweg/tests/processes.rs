//! Tests with processes that play a part: this program, started again.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod administration;
mod counted;
mod hostile;
mod hostile_control;
mod hosts;
mod impostors;
mod isolation;
mod killed;
mod limits;
mod long_run;
mod many_nodes;
mod memory;
mod monitors;
mod moves;
mod multicast;
mod outage;
mod priority;
mod refused;
mod ros;
mod scaled;
mod silent;
mod storm;
mod strangers;
mod users;
mod world;

#[global_allocator]
static COUNTING: linux::allocations::Counting = linux::allocations::Counting;

/// The body of those processes.
#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_part() {
    let part = std::env::var(world::agent::PART).unwrap_or_default();
    #[cfg(feature = "zenoh")]
    if hosts::play(&part) {
        return;
    }
    if !users::play(&part) {
        world::roles::play();
    }
}
