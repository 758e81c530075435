//! `thalweg why`: problems between two ports.
//!
//! | module | contents |
//! |---|---|
//! | [`evidence`] | reports of both nodes, asked for several times |
//! | [`problem`] | the kinds of problems |
//! | [`judge`] | from evidence to problems, pure |
//! | [`names`] | similar names |

mod evidence;
mod judge;
mod names;
mod problem;

use crate::failure::{Failure, Result};
use crate::quantity;
use crate::session::Common;
use clap::Args;
use judge::Diagnosis;
use serde::Serialize;
use thalweg::control::matching::check_name;

/// Say why two ports do not talk to each other, or not well: matched? which policy? dropping where? setting
/// ineffective?
///
/// Exit code 1 when there is a problem. All kinds of problems: docs/diagnosis.md.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg why /camera/out /viewer/in")]
pub(crate) struct Arguments {
    /// The publishing port
    #[arg(value_name = "/OUT", value_parser = quantity::name)]
    publisher: String,
    /// The subscribing port
    #[arg(value_name = "/IN", value_parser = quantity::name)]
    subscriber: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    healthy: bool,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Gathers, judges and shows.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let Arguments { publisher, subscriber, common } = arguments;
    for name in [publisher, subscriber] {
        check_name(name).map_err(|error| Failure::Usage(format!("port name {error}")))?;
    }
    let mut session = common.open("why")?;
    let evidence = evidence::gather(&mut session, common, publisher, subscriber);
    let diagnosis = judge::judge(&evidence);
    let healthy = diagnosis.problems.is_empty();
    session
        .output
        .result(&Report { publisher, subscriber, healthy, diagnosis: &diagnosis }, || diagnosis.to_string())?;
    if healthy { Ok(()) } else { Err(Failure::No(String::new())) }
}
