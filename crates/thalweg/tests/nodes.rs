//! Tests with nodes of one process.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod answers;
mod carriers;
mod channels;
mod data_path;
mod described;
mod directory;
mod examples;
mod foreign;
mod fuzz;
mod gathering;
mod late;
mod limit;
mod policies;
mod policing;
mod proxies;
mod pull;
mod relays;
mod reliable;
mod room;
mod sim_sweep;
mod stages;
mod threads;
mod wait_set;

#[global_allocator]
static COUNTING: linux::allocations::Counting = linux::allocations::Counting;
