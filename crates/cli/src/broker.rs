//! `thalweg broker`: keeps the plan of a domain, tells it to the agents, and knows what they have.

use crate::failure::{Failure, Result};
use crate::keys;
use crate::output::Output;
use crate::quantity;
use crate::signals::Stop;
use agent::identity::Kind;
use broker::api::Broker;
use broker::serve::Limits;
use broker::store::Store;
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Keep the plan of a domain, and tell it to the agents of its hosts, until told to stop
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg broker --name base --keys /etc/thalweg --listen 10.0.0.1:7450\n         thalweg apply plan.toml --all --broker 10.0.0.1:7450 --keys keys"
)]
pub(crate) struct Arguments {
    /// The broker's name
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Directory with realm.pem, broker-NAME.pem and broker-NAME.key
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Listen on this address; port 0: any that is free
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7450", value_parser = quantity::listen)]
    listen: SocketAddr,
    /// Admit sessions beside this contract: a TOML file. Without it the broker keeps the plan that `apply --all` gives it
    #[arg(long, value_name = "FILE")]
    contract: Option<PathBuf>,
    /// Directory for the plan
    #[arg(long, value_name = "DIR", default_value = "/var/lib/thalweg")]
    state: PathBuf,
    /// If --state was lost: the last epoch that the agents obeyed, which `thalweg hosts` tells
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    epoch: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let stop = Stop::on_signals()?;
    let Arguments { name, keys, listen, contract, state, epoch, json } = arguments;
    let keys = keys::read(keys, Kind::Broker, name)?;
    let in_state =
        |e: std::io::Error| Failure::System(format!("{}: {e}; --state DIR names another directory", state.display()));
    let (store, kept) = Store::open(state).map_err(in_state)?;
    let broker = Broker::start(store, kept, *epoch).map_err(in_state)?;
    if let Some(file) = contract {
        let planned = broker.plan_for(&crate::plan::text_of(file)?, &keys);
        planned.map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))?;
    } else {
        broker.plan_on(&keys).map_err(Failure::Usage)?;
    }
    let bound = |address: SocketAddr| {
        let told = json!({"broker": name, "listening": address});
        let _ = Output { json: *json }.result(&told, || format!("broker {name}, listening on {address}"));
    };
    let served = broker::serve::run(*listen, &keys, broker, Limits::default(), &|| stop.asked(), bound);
    served.map_err(|e| Failure::System(format!("cannot listen on {listen}: {e}; --listen ADDR names another address")))
}
