//! Access to the Linux kernel; of the product's Rust crates only this one, and bindings to libraries of others, have unsafe code.
//!
//! | module | contents |
//! |---|---|
//! | [`allocations`] | counting allocations, for tests |
//! | [`cgroup`] | limits of control groups: processor time and processors of other programs |
//! | [`clock`] | the monotonic clock and the identity of a clock (boot and time namespace) |
//! | [`filter`] | packet filters: the permitted senders of a socket |
//! | [`futex`] | waiting on and waking a word, private or shared between processes |
//! | [`lock`] | a mutex whose waiters lend their priority to the holder |
//! | [`marks`] | DSCP, traffic class and priority of a socket's packets |
//! | [`memory`] | sealed shared memory, the slot arena and the descriptor rings of the `shm` carrier |
//! | [`namespace`] | network namespaces |
//! | [`net`] | network interfaces, their addresses, and the user of a connection within the host |
//! | `netlink` | requests to the kernel, their answers and attributes (netlink(7)) |
//! | [`owned`] | files in shared directories: read and written only if they belong to the right user |
//! | [`poll`] | epoll and eventfd |
//! | [`probe`] | facts of this host that decide whether real-time promises can be kept |
//! | [`queueing`] | queues of a network device, their treatment of a mark, and queues of our own |
//! | [`raw`] | a bare shared mapping, for the programs that measure the limit |
//! | [`sched`] | scheduling, processors and memory locking of threads and processes, by id |
//! | [`socket`] | sockets: non-blocking sends in one call, descriptor passing, peer credentials |
//! | [`tap`] | Ethernet devices whose other end is a program |
//! | [`thread`] | threads with explicit scheduling, stack size and name |
//! | [`tunnel`] | ends of tunnels whose packets keep their mark on the outside |
#![allow(clippy::disallowed_methods)] // the clock is part of this crate, and waits are measured
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers
#![cfg(target_os = "linux")]

pub mod allocations;
pub mod cgroup;
pub mod clock;
pub mod filter;
pub mod futex;
pub mod lock;
pub mod marks;
pub mod memory;
pub mod namespace;
pub mod net;
mod netlink;
pub mod owned;
pub mod poll;
pub mod probe;
pub mod queueing;
pub mod raw;
pub mod sched;
pub mod socket;
pub mod tap;
pub mod thread;
pub mod tunnel;
