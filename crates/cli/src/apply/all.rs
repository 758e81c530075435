//! `apply --all` and `restore --all`: a plan on all its hosts, by their broker and its agents.

use super::{ApplyArguments, RestoreArguments};
use crate::domain::{BrokerArguments, failure, hosts_text};
use crate::failure::{Failure, Result};
use crate::plan::text_of;
use crate::quantity;
use agent::client::Client;
use agent::message::{Accepted, Host, HostState};
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};

/// Time between two looks at the hosts.
const TICK: Duration = Duration::from_millis(100);
/// Time for the broker to hear of agents that it did not know when the change was made.
const FIRST: Duration = Duration::from_secs(3);

/// The broker of all hosts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "All hosts")]
pub(crate) struct AllArguments {
    /// On all hosts of the plan, by their broker and its agents: all or none
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Longest wait for the agents
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
    patience: Duration,
}

/// Applies a plan on all its hosts, or on none.
pub(super) fn apply(arguments: &ApplyArguments) -> Result {
    if arguments.dry_run || arguments.queues || arguments.host.is_some() {
        return Err(Failure::Usage(
            "--all: not with --dry-run, --queues or --host; `thalweg apply PLAN --dry-run --host NODE`".into(),
        ));
    }
    let client = arguments.all.broker.client()?;
    let before = client.plan().map_err(failure)?;
    let text = text_of(&arguments.file)?;
    let Accepted { revision } = client.change_plan(Some(&text), before.revision).map_err(failure)?;
    let reached = arguments.all.reached(&client, revision);
    let hosts = reached.map_err(|why| put_back(&client, &why, before.plan.as_deref(), revision))?;
    arguments.common.output().result(&json!({ "hosts": hosts }), || {
        let channels =
            "channels get their classes, threads and proxies as their programs start: `thalweg hosts` shows them";
        [hosts_text(&hosts).as_str(), channels, "`thalweg restore --all` undoes it"].join("\n\n")
    })
}

/// Gives all hosts what they had; not if somebody else has changed the plan since.
fn put_back(client: &Client, why: &Failure, before: Option<&str>, revision: u64) -> Failure {
    match client.change_plan(before, revision) {
        Ok(_) => Failure::No(format!("{}; all hosts get back what they had", why.text())),
        Err(lost) => Failure::System(format!("{}; the former plan is not back: {lost}", why.text())),
    }
}

/// Undoes `apply --all`.
pub(super) fn restore(arguments: &RestoreArguments) -> Result {
    let client = arguments.all.broker.client()?;
    let before = client.plan().map_err(failure)?;
    let Accepted { revision } = client.change_plan(None, before.revision).map_err(failure)?;
    let hosts = arguments.all.reached(&client, revision)?;
    arguments.common.output().result(&json!({ "hosts": hosts }), || hosts_text(&hosts))
}

impl AllArguments {
    /// Waits until all hosts have this revision.
    fn reached(&self, client: &Client, revision: u64) -> Result<Vec<Host>> {
        let began = Instant::now();
        loop {
            let hosts: Vec<Host> = client.hosts().map_err(failure)?.into_iter().filter(|host| host.planned).collect();
            let of =
                |state: HostState| hosts.iter().filter(move |host| host.state == state && host.desired == revision);
            if let Some(host) = of(HostState::Refused).next() {
                let because = host.because.as_deref().unwrap_or("no reason was given");
                return Err(Failure::No(format!("{} refused: {because}", host.host)));
            }
            if hosts.iter().any(|host| host.desired > revision) {
                return Err(Failure::No("somebody else changed the plan meanwhile".to_owned()));
            }
            if of(HostState::Applied).count() == hosts.len() {
                return Ok(hosts);
            }
            let missing: Vec<&str> = hosts.iter().filter(|h| h.state != HostState::Applied).map(|h| &*h.host).collect();
            let silent = of(HostState::Silent).count() == missing.len();
            if began.elapsed() > if silent { self.patience.min(FIRST) } else { self.patience } {
                return Err(Failure::No(format!(
                    "no answer within {:?} from {}: is `thalweg agent` running there?",
                    began.elapsed(),
                    missing.join(", ")
                )));
            }
            std::thread::sleep(TICK);
        }
    }
}
