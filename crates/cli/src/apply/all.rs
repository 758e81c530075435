//! `apply --all` and `restore --all`: the queues of all hosts of a plan, by their broker and its agents.

use super::channels::{self, Applied, TakenBack};
use super::{ApplyArguments, RestoreArguments, directory, ends_text, none_stuck, planned, take_back};
use crate::domain::{BrokerArguments, failure, hosts_text};
use crate::failure::{Failure, Result};
use crate::plan::{read_plan, text_of};
use crate::quantity;
use agent::client::Client;
use agent::message::{Accepted, Host, HostState};
use clap::Args;
use serde_json::json;
use std::path::Path;
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

/// Applies a plan on all its hosts: the queues by their agents, the channels from here. All of it, or nothing.
pub(super) fn apply(arguments: &ApplyArguments) -> Result {
    if arguments.dry_run || arguments.host.is_some() {
        return Err(Failure::Usage(
            "--all: not with --dry-run or --host; `thalweg apply PLAN --dry-run --host NODE`".into(),
        ));
    }
    let plan = read_plan(&arguments.file)?;
    let client = arguments.all.broker.client()?;
    // The channels are looked up before anything is changed.
    let mut participant = (!arguments.queues).then(|| arguments.common.open("apply")).transpose()?;
    let channels =
        participant.as_mut().map_or(Ok(Vec::new()), |participant| planned::channels(&plan, &participant.settled()))?;
    let before = client.plan().map_err(failure)?;
    let text = text_of(&arguments.file)?;
    let Accepted { revision } = client.change_plan(Some(&text), before.revision).map_err(failure)?;
    let set = |participant| channels::apply(participant, &channels, &directory()).map(Applied::keep);
    let done = arguments.all.reached(&client, revision).and_then(|hosts| {
        let ends = participant.as_ref().map_or(Ok(Vec::new()), set)?;
        Ok((hosts, ends))
    });
    let (hosts, ends) = done.map_err(|why| put_back(&client, &why, before.plan.as_deref(), revision))?;
    arguments.common.output().result(&json!({ "hosts": hosts, "channels": ends, "effective": true }), || {
        let ends = (!ends.is_empty()).then(|| ends_text(&ends));
        let tables = [Some(hosts_text(&hosts)), ends, Some("`thalweg restore --all` undoes it".to_owned())];
        tables.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
    })
}

/// Gives all hosts what they had; not if somebody else has changed the plan since.
fn put_back(client: &Client, why: &Failure, before: Option<&str>, revision: u64) -> Failure {
    match client.change_plan(before, revision) {
        Ok(_) => Failure::No(format!("{}; all hosts get back what they had", why.text())),
        Err(lost) => Failure::System(format!("{}; the former plan is not back: {lost}", why.text())),
    }
}

/// Undoes `apply --all`: the channels from here, the queues by the agents.
pub(super) fn restore(arguments: &RestoreArguments, directory: &Path) -> Result {
    let client = arguments.all.broker.client()?;
    let TakenBack { told, stuck } = take_back(arguments, directory)?;
    let before = client.plan().map_err(failure)?;
    let Accepted { revision } = client.change_plan(None, before.revision).map_err(failure)?;
    let hosts = arguments.all.reached(&client, revision)?;
    arguments.common.output().result(&json!({ "hosts": hosts, "channels": told }), || {
        [hosts_text(&hosts)].into_iter().chain(told).collect::<Vec<_>>().join("\n")
    })?;
    none_stuck(stuck)
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
