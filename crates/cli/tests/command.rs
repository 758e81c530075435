//! The command, started as users start it; and tests of the house itself.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // all of this is test

mod administration;
mod agent;
mod apply;
mod bench;
mod bindings;
#[cfg(feature = "sessions")]
mod borders;
#[cfg(feature = "zenoh")]
mod bridge;
#[cfg(feature = "sessions")]
mod certificates;
mod config;
mod contracts;
#[cfg(feature = "dashboard")]
mod dashboard;
mod delay;
mod demo;
mod diagnosis;
mod documents;
#[cfg(feature = "sessions")]
mod domain;
#[cfg(feature = "sessions")]
mod domains;
mod experiments;
mod figures;
#[cfg(feature = "foxglove")]
mod foxglove;
mod hosts;
mod house;
#[cfg(feature = "sessions")]
mod kills;
mod lab;
mod licences;
mod new;
mod own_queue;
#[cfg(feature = "dashboard")]
mod page;
mod plan;
mod policies;
mod priority;
#[cfg(feature = "dashboard")]
mod prometheus;
mod pull;
#[cfg(feature = "recording")]
mod recording;
#[cfg(feature = "recording")]
mod replay;
#[cfg(feature = "sessions")]
mod replicated;
#[cfg(feature = "sessions")]
mod robot;
mod rooms;
#[cfg(feature = "shell")]
mod shell;
#[cfg(feature = "sessions")]
mod slow_device;
mod streams;
mod support;
mod usage;
mod verify;
mod verify_links;
mod verify_relays;
