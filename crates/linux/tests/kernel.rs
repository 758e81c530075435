//! Memory and scheduling in the kernel. (Queues have a program of their own: packets are lost beside threads at full
//! speed.)
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod cgroup;
mod memory_cost;
mod memory_hostile;
mod memory_model;
mod memory_process;
mod sched;

#[global_allocator]
static COUNTING: thalweg_linux::allocations::Counting = thalweg_linux::allocations::Counting;
