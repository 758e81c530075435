//! The C interface from outside: its header, and programs in C that use it, alone and with nodes in Rust. Its examples run in
//! `examples/tests`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test
#![allow(unsafe_code)] // a struct that is sent as it lies in memory

mod abi;
mod behaviour;
mod header;
mod installed;
mod pages;
mod support;
mod valgrind;
