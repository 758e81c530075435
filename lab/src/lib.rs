//! The experiments of the papers as programs: topologies in network namespaces, loads, measurements, figures, report.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@experiments`] | what can be run: one module per experiment, and the list of all |
//! | [`run`] | running one, from its name to its document |
//! | [`topology`] | hosts, switches and routers as network namespaces; links that act as a wire |
//! | [`part`] | processes of an experiment: started in a host, told and heard in lines of JSON |
//! | [`load`] | what else is on the link: generators and sinks |
//! | [`trips`] | round trips over Thalweg's channels |
//! | [`results`] | cells, checks, statistics: the document of `lab run --json` |
//! | [`promise`] | what the planner says, to be put beside what is measured |
//! | [`stalls`] | times at which the machine itself stood still |
//! | [`wan`] | a wide-area link in user space |
//! | [`error`] | why an experiment could not be run |
//!
//! Everything that an experiment makes is held by guards and goes with them: at the end, after an error, on a panic, and
//! when somebody asks to stop. What a killed run left behind is removed by the next one ([`topology::names`]).

pub mod error;
pub mod experiments;
pub mod load;
pub mod part;
pub mod promise;
pub mod results;
pub mod run;
pub mod stalls;
pub mod topology;
pub mod trips;
pub mod wan;

pub use error::{Error, Result};
pub use experiments::{Experiment, experiments, find};
pub use results::{Cell, Check, Distribution, Document, Factors, Findings, Skipped};
pub use run::{Lab, Options, Stop};
