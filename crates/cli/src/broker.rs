//! `thalweg broker`: keeps the plan of a domain, tells it to the agents, and knows what they have. Of several that share an etcd one leads.

use crate::failure::{Failure, Result};
use crate::keys;
use crate::output::{Output, tell};
use crate::quantity;
use crate::signals::Stop;
use agent::identity::Kind;
use agent::keys::Keys;
use broker::api::Broker;
use broker::links::measured::Hysteresis;
use broker::serve::{Limits, News};
use broker::store::{Campaign, Store, Tls};
use clap::Args;
use qos::contract::Contract;
use serde_json::json;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Keep the plan in an etcd instead of --state, with other brokers of the same name, of which one leads and the others wait: URLs of its members
    #[arg(long, value_name = "URL,…", value_delimiter = ',', conflicts_with = "state")]
    etcd: Vec<String>,
    /// Directory with ca.pem, which has issued the certificates of etcd's members, and client.pem and client.key if they ask for one
    #[arg(long, value_name = "DIR", requires = "etcd")]
    etcd_tls: Option<PathBuf>,
    /// If --state was lost: the last epoch that the agents obeyed, which `thalweg hosts` tells
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    epoch: u64,
    /// Note what went through each session, sign the accounts, and let neighbours sign what they owe, each time after so long
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = accounts_every)]
    accounts_every: Duration,
    /// A link is slower when its device takes less than this part of what its queue gives
    #[arg(long, value_name = "PART", default_value = "0.9", value_parser = slower_below)]
    slower_below: f64,
    /// So many times one after the other, ten times a second
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    slower_after: u32,
    /// Such a link is tried twice as fast when nothing was seen against that for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = faster_after)]
    faster_after: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// From a tenth to all but the error of a measurement.
fn slower_below(text: &str) -> std::result::Result<f64, String> {
    let part: f64 = text.parse().map_err(|_| "allowed is a number from 0.1 to 0.95".to_owned())?;
    if (0.1..=0.95).contains(&part) { Ok(part) } else { Err("allowed is 0.1 to 0.95".to_owned()) }
}

/// From a second to ten minutes.
fn faster_after(text: &str) -> std::result::Result<Duration, String> {
    let time = quantity::duration(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(600);
    if allowed.contains(&time) { Ok(time) } else { Err("allowed is 1s to 10min".to_owned()) }
}

/// From a second to a day.
fn accounts_every(text: &str) -> std::result::Result<Duration, String> {
    let time = quantity::duration(text)?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(86_400);
    if allowed.contains(&time) { Ok(time) } else { Err("allowed is 1s to 24h".to_owned()) }
}

/// Runs until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let stop = Stop::on_signals()?;
    let Arguments { name, keys, state, etcd, .. } = arguments;
    let keys = keys::read(keys, Kind::Broker, name)?;
    if !etcd.is_empty() {
        return lead(arguments, &keys, &stop);
    }
    let in_state =
        |e: std::io::Error| Failure::System(format!("{}: {e}; --state DIR names another directory", state.display()));
    let (store, kept) = Store::open(state).map_err(in_state)?;
    let broker = Broker::start(store, kept, arguments.epoch).map_err(in_state)?;
    serve(arguments, &keys, broker, &|| stop.asked())
}

/// Time after which a broker that could not begin tries again.
const AGAIN: Duration = Duration::from_secs(1);

/// Serves whenever this broker leads.
fn lead(arguments: &Arguments, keys: &Keys, stop: &Stop) -> Result {
    let name = &arguments.name;
    if let Some(file) = &arguments.contract {
        let wrong = |error| Failure::Usage(format!("{}: line {error}", file.display()));
        Contract::read(&crate::plan::text_of(file)?).map_err(wrong)?;
    }
    let mut campaign = campaign(arguments, keys)?;
    let waits = |because: &str| tell(&format!("broker {name} waits: {because}"));
    while let Some(etcd) = campaign.win(&|| stop.asked(), &waits) {
        let lead = etcd.lead();
        let found = Store::on(Box::new(etcd));
        match found.and_then(|(store, kept)| Broker::start(store, kept, arguments.epoch)) {
            Ok(broker) => match serve(arguments, keys, broker, &|| stop.asked() || lead.is_lost()) {
                Err(_) if lead.is_lost() => {}
                served => served?,
            },
            Err(error) if error.kind() == ErrorKind::InvalidData => return Err(Failure::System(error.to_string())),
            Err(error) => {
                tell(&format!("broker {name} could not begin: {error}"));
                std::thread::sleep(AGAIN);
            }
        }
        if !stop.asked() {
            tell(&format!("broker {name} does not lead any more"));
        }
    }
    Ok(())
}

fn campaign(arguments: &Arguments, keys: &Keys) -> Result<Campaign> {
    let Arguments { name, listen, etcd, etcd_tls, .. } = arguments;
    etcd.iter().try_for_each(|url| check_url(url, etcd_tls.is_some()))?;
    let tls = etcd_tls.as_ref().map(|dir| tls(dir)).transpose()?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (domain, own) = (format!("{}/{name}", keys.identity.realm()), format!("the broker on {host}, {listen}"));
    Campaign::new(etcd, tls.as_ref(), &domain, &own).map_err(|e| Failure::Usage(format!("--etcd-tls: {e}")))
}

/// Whoever changes what is in etcd, or reads it on its way, has the domain: so there is TLS, unless nothing leaves the host.
fn check_url(url: &str, with_tls: bool) -> Result {
    let is_port = |rest: &str| rest.parse::<u16>().is_ok();
    let is_own = |rest: &str| {
        let at = ["127.0.0.1:", "[::1]:", "localhost:"].iter().find_map(|own| rest.strip_prefix(own));
        at.is_some_and(|port| is_port(port.trim_end_matches('/')))
    };
    match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(_), _) if with_tls => Ok(()),
        (_, Some(rest)) if is_own(rest) => Ok(()),
        (Some(_), _) => Err(Failure::Usage(format!("--etcd {url} needs --etcd-tls DIR"))),
        _ => Err(Failure::Usage(format!(
            "--etcd {url}: allowed is https://HOST:PORT with --etcd-tls DIR, and http://127.0.0.1:PORT"
        ))),
    }
}

fn tls(dir: &Path) -> Result<Tls> {
    let read = |file: &str| {
        let path = dir.join(file);
        std::fs::read(&path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))
    };
    let authority = read("ca.pem")?;
    let shows_own = dir.join("client.pem").exists();
    let own = if shows_own { Some((read("client.pem")?, read("client.key")?)) } else { None };
    Ok(Tls { authority, own })
}

/// Prints news of connections.
fn log(name: String, json: bool) -> impl Fn(News) + Send + Sync {
    move |news| match news {
        News::Listening(address) => {
            let told = json!({"broker": name, "listening": address});
            let _ = Output { json }.result(&told, || format!("broker {name}, listening on {address}"));
        }
        News::Refused { from, because, untold: 0 } => tell(&format!("broker {name} refused {from}: {because}")),
        News::Refused { from, because, untold } => {
            tell(&format!("broker {name} refused {from}: {because} (and {untold} others before)"));
        }
    }
}

/// Serves until `ended`.
fn serve(arguments: &Arguments, keys: &Keys, broker: Broker, ended: &(dyn Fn() -> bool + Sync)) -> Result {
    let Arguments { name, listen, contract, json, accounts_every, slower_below, slower_after, faster_after, .. } =
        arguments;
    let rule = Hysteresis { below: *slower_below, reports: *slower_after, held: *faster_after };
    let broker = broker.accounts_every(*accounts_every).hysteresis(rule);
    if let Some(file) = contract {
        let planned = broker.plan_for(&crate::plan::text_of(file)?, keys);
        planned.map_err(|why| Failure::Usage(format!("{}: {why}", file.display())))?;
    } else {
        broker.plan_on(keys).map_err(Failure::Usage)?;
    }
    let served = broker::serve::run(*listen, keys, broker, Limits::default(), ended, log(name.clone(), *json));
    served.map_err(|e| Failure::System(format!("cannot listen on {listen}: {e}; --listen ADDR names another address")))
}
