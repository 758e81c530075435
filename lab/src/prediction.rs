//! The planner's figures for a contract, beside which measurements are put.

use crate::error::{Error, Result};
use qos::contract::Contract;
use qos::placement::Watch;
use qos::plan::{FileChange, Model, Plan, make, rewrite};
use std::time::{Duration, Instant};

struct Clock(Instant);

impl Watch for Clock {
    fn elapsed(&mut self) -> Duration {
        self.0.elapsed()
    }
}

/// The plan of a contract with some changes, by a model.
///
/// # Errors
/// [`Error::Failed`] for a contract that cannot be read or does not fit.
pub(crate) fn plan(contract: &str, changes: &[FileChange], model: Model) -> Result<Plan> {
    let plan = answer(&changed(contract, changes)?, model);
    match plan.refusals.first() {
        Some(refusal) => Err(wrong(&format!("{} needs {} and has {}", refusal.what, refusal.needs, refusal.has))),
        None => Ok(plan),
    }
}

/// The contract with some changes.
///
/// # Errors
/// [`Error::Failed`] for one that cannot be read.
pub(crate) fn changed(contract: &str, changes: &[FileChange]) -> Result<Contract> {
    let text = rewrite(contract, changes).map_err(|e| wrong(&e.to_string()))?;
    Contract::read(&text).map_err(|e| wrong(&e.to_string()))
}

/// The plan of a contract, by a model, or its refusals.
pub(crate) fn answer(contract: &Contract, model: Model) -> Plan {
    make(contract, model, &mut Clock(Instant::now()))
}

fn wrong(problem: &str) -> Error {
    Error::Failed(format!("the experiment's own contract: {problem}"))
}

/// The largest delay of a topic's channels by a plan, in µs: a bound or, by other models, a mean. NaN: the plan gives none.
pub(crate) fn delay_us(plan: &Plan, topic: &str) -> f64 {
    let of = plan.channels.iter().filter(|channel| channel.topic == topic);
    of.filter_map(|channel| channel.bound_us.or(channel.mean_us)).fold(f64::NAN, f64::max)
}

/// A change of a value that is text in the contract.
pub(crate) fn text(table: &str, name: &str, key: &str, value: &str) -> FileChange {
    FileChange { table: table.into(), name: name.into(), key: key.into(), value: format!("\"{value}\"") }
}
