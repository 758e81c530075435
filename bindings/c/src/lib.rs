//! The C interface of Thalweg. `include/thalweg.h` is generated from the items here that C sees; `docs/c.md` is the page for users.
//!
//! A handle in C is a box in Rust. It has its port behind a lock that knows its holder ([`exclusive`]), so that threads may share it and a
//! loan that is out is an error and no deadlock. Closing takes the port out of it: later calls find none.
//!
//! | module | contents |
//! |---|---|
//! | `failure` | statuses, the last error of a thread, and the guard around each function |
//! | `arguments` | pointers, texts and structures of options, as C passes them |
//! | `fork` | forks of the process, which handles do not survive |
//! | `exclusive` | a lock that knows its holder |
//! | `gate` | user data of callbacks: used by one call at a time, and by none after closing |
//! | `layout` | C structs as CDR and back |
//! | `types` | types of messages |
//! | `options` | settings of nodes and ports |
//! | `node` | nodes, and their ports to be closed with them |
//! | `graph` | ports and channels of all nodes, and their priorities |
//! | `sample` | received samples |
//! | `publisher`, `loan` | publishers, and messages that are written in place |
//! | `subscriber` | subscribers |
//! | `service` | requests and replies |
#![allow(unsafe_code)] // bindings: each use has its safety note
#![allow(non_camel_case_types)] // names as C has them
#![allow(clippy::disallowed_methods)] // a user waits

mod arguments;
mod exclusive;
mod failure;
mod fork;
mod gate;
mod graph;
mod layout;
mod loan;
mod node;
mod options;
mod publisher;
mod sample;
mod service;
mod subscriber;
mod types;
