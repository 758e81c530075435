//! `apply --all` and `restore --all`: the queues of all hosts of a plan, by their broker and its agents.

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::quantity;
use agent::client::Client;
use agent::message::{Accepted, Host, HostState};
use clap::Args;
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

impl AllArguments {
    /// A client of the broker.
    pub(super) fn client(&self) -> Result<Client> {
        self.broker.client()
    }

    /// Installs the plan on all hosts that it has devices for. If one of them refuses, or does not answer, all get back what they had.
    pub(super) fn apply(&self, client: &Client, text: &str) -> Result<Vec<Host>> {
        let before = client.plan().map_err(failure)?;
        let accepted = client.put_plan(text).map_err(failure)?;
        self.reached(client, accepted).map_err(|why| {
            let back = match &before.plan {
                Some(plan) => client.put_plan(plan),
                None => client.delete_plan(),
            };
            match back {
                Ok(_) => Failure::No(format!("{}; all hosts get back what they had", why.text())),
                Err(lost) => Failure::System(format!("{}; and the former plan is not back: {lost}", why.text())),
            }
        })
    }

    /// Takes the plan away from all hosts.
    pub(super) fn restore(&self, client: &Client) -> Result<Vec<Host>> {
        let accepted = client.delete_plan().map_err(failure)?;
        self.reached(client, accepted)
    }

    /// Waits until all hosts have this revision.
    fn reached(&self, client: &Client, Accepted { revision }: Accepted) -> Result<Vec<Host>> {
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
