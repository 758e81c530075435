//! The lock-free parts under loom. Their files name nothing of their crates, so they are compiled here with loom alone, and not with
//! what `thalweg` and `linux` depend on.
//!
//! `RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test --release -p thalweg-models --test models`
#![cfg(loom)]

#[path = "../../thalweg/src/channel/flow/opening.rs"]
mod opening;
#[path = "../../thalweg/src/channel/right.rs"]
mod right;
#[path = "../../linux/src/memory/model.rs"]
mod rings;
