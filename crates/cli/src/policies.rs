//! Policies that a port of this command states.

use crate::failure::{Failure, Result};
use crate::quantity;
use clap::Args;
use qos::{Durability, Ownership, Qos};
use std::time::Duration;

/// Options of verbs whose purpose is a port. Names and rules: docs/qos.md.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "QoS")]
pub(crate) struct Policies {
    /// Longest time between two samples that is promised (pub) or expected (sub): 20ms
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    deadline: Option<Duration>,
    /// Drop samples that are older, wherever they are
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    lifespan: Option<Duration>,
    /// Longest acceptable time from publishing to delivery
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration)]
    latency_budget: Option<Duration>,
    /// Late joiners get the last sample (pub keeps it, sub asks for it); with --policy history=N the last N, of each instance
    #[arg(long)]
    transient_local: bool,
    /// A partition (repeatable); ports without a common one do not meet
    #[arg(long, value_name = "NAME")]
    partition: Vec<String>,
    /// A field that tells instances apart (repeatable): id, header.frame
    #[arg(long, value_name = "FIELD")]
    key: Vec<String>,
    /// Only the living publisher with the highest strength counts
    #[arg(long)]
    exclusive: bool,
    /// Any policy by its name (repeatable): liveliness=by-port, lease=1s, fallback=reliability
    #[arg(long = "policy", value_name = "NAME=VALUE", value_parser = named)]
    named: Vec<(String, String)>,
}

/// Reads `NAME=VALUE`, and checks that the policy accepts the value.
fn named(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE, such as lease=1s")?;
    Qos::default().set(name, value).map_err(|wrong| wrong.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Policies {
    /// Sets the command's policies in `qos`.
    pub(crate) fn apply(&self, qos: &mut Qos) -> Result {
        for (name, value) in &self.named {
            qos.set(name, value).map_err(|wrong| Failure::Usage(format!("--policy {name}: {wrong}")))?;
        }
        qos.deadline = self.deadline.or(qos.deadline);
        qos.lifespan = self.lifespan.or(qos.lifespan);
        qos.latency_budget = self.latency_budget.or(qos.latency_budget);
        if self.transient_local {
            qos.durability = Durability::TransientLocal;
        }
        if self.exclusive {
            qos.ownership = Ownership::Exclusive;
        }
        if !self.partition.is_empty() {
            qos.partition.clone_from(&self.partition);
        }
        if !self.key.is_empty() {
            qos.key.clone_from(&self.key);
        }
        Ok(())
    }
}
