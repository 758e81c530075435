//! `thalweg bench`: the cost of a message, and the cost beyond that of a bare socket.
//!
//! | module | contents |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`engine`] | the measurements, the roles of an engine, and the engines |
//! | [`figures`] | histograms, percentiles, the JSON documents |
//! | [`roles`] | one process per role: pinning, starting the other process |
//! | [`compare`] | Thalweg against the limit, round by round |

mod arguments;
mod compare;
mod engine;
mod error;
mod figures;
mod roles;

pub(crate) use arguments::Arguments;
pub(crate) use error::Error;

use crate::output::{line, tell};
use arguments::What;
use std::process::ExitCode;

/// Measures as asked. Exit code 1: a comparison missed its target; 2: bad usage; 3: the system refused.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let outcome = match &arguments.what {
        What::Latency(options) => roles::latency(options),
        What::Throughput(options) => roles::throughput(options),
        What::Fanout(options) => roles::fanout(options),
        What::Start(options) => roles::start(options),
        What::Compare(options) => compare::run(options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            tell(&format!("thalweg bench: {error}"));
            ExitCode::from(error.code())
        }
    }
}

/// Writes to standard output; a reader that closed it early is no error.
fn print(text: &str) {
    let _ = line(text);
}
