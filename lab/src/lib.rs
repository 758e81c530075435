//! The experiments of the papers as programs: topologies in network namespaces, loads, measurements, figures, report.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@run`] | running an experiment to its document; playing a part |
//! | [`mod@experiments`] | one module per experiment, and the list of all |
//! | `round_trips` | round trips over Thalweg's channels |
//! | [`load`] | competing traffic: generators and sinks |
//! | [`part`] | processes of an experiment: started in a host, controlled by lines of JSON |
//! | [`link`] | a link in user space: rate, queue, delay, losses |
//! | [`topology`] | hosts, switches and routers as network namespaces; links that act as a wire |
//! | `stalls` | times at which the machine itself stood still |
//! | `prediction` | the planner's figures, to compare with measurements |
//! | [`results`] | cells, checks, figures: the document of `lab run --json` |
//! | [`statistics`] | histograms, distributions, medians |
//! | [`lab`] | the laboratory of one run: options, folder, names |
//! | [`iproute`] | calling `ip` and `tc` |
//! | [`error`] | errors, by whose fault they are |
//!
//! A module uses those below it, never one above.
//!
//! Everything that an experiment makes is held by guards and removed with them: at the end, after an error, on a
//! panic, and on a request to stop. Leftovers of a killed run are removed by the next one ([`lab::sweep`]).
#![allow(clippy::disallowed_methods)] // it measures
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers

pub mod error;
pub mod experiments;
pub mod iproute;
pub mod lab;
pub mod link;
pub mod load;
pub mod part;
mod prediction;
pub mod results;
mod round_trips;
pub mod run;
mod stalls;
pub mod statistics;
pub mod topology;

pub use error::{Error, Result};
pub use experiments::{Experiment, experiments, find};
pub use lab::{Feature, Lab, Options, Program, Size, Stop};
pub use results::{Cell, Check, Document, Factors, Findings, Skipped};
pub use run::{play, run};
pub use stalls::processor_time;
