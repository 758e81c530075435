//! Nodes that come while strangers attack, and ask.

use super::pair::TOPIC;
use crate::error::Result;
use crate::part::Orders;
use crate::part::node::NodeSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{DiscoverySource, Node, admin};

/// How long a newcomer tries.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a newcomer is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Visit {
    /// Open a node, subscribe, and leave.
    Join {
        /// As a neighbour, by the run directory and shared memory; else by TCP alone, as from another host.
        unix: bool,
        /// The publisher's socket, which names its node.
        publisher: Option<PathBuf>,
    },
    /// Ask a node for its channels.
    Ask {
        /// Which.
        node: String,
    },
}

/// How long it took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// In milliseconds; `None`: it was not done in time.
    pub ms: Option<f64>,
}

/// The role `newcomer`.
pub(crate) fn newcomer(mut orders: Orders) -> Result {
    let realm = orders.settings::<Value>()?["realm"].as_str().unwrap_or_default().to_owned();
    let resident = NodeSettings::local("resident", &realm).open()?;
    orders.say(&json!({}))?;
    while let Some(visit) = orders.wait::<Visit>()? {
        let ms = match visit {
            Visit::Join { unix, publisher } => {
                let id = publisher.as_deref().map(id_of).unwrap_or_default();
                let known = resident.nodes().into_iter().find(|known| known.node.to_string() == id);
                let address = known.and_then(|known| known.addresses.iter().copied().find(|a| a.is_ipv4()));
                let file = address.filter(|_| !unix).map(|address| format!("[[node]]\naddress = \"{address}\"\n"));
                join(&realm, file)?
            }
            Visit::Ask { node } => ask(&resident, &node),
        };
        orders.say(&Joined { ms })?;
    }
    Ok(())
}

fn join(realm: &str, file: Option<String>) -> Result<Option<f64>> {
    let began = Instant::now();
    let carrier = if file.is_some() { "tcp" } else { "shm" };
    let path = std::env::temp_dir().join(format!("thalweg-newcomer-{}.toml", std::process::id()));
    let discovery = match file {
        Some(text) => {
            std::fs::write(&path, text)?;
            DiscoverySource::Static(path.clone())
        }
        None => DiscoverySource::Automatic,
    };
    let settings =
        thalweg::Settings { name: "newcomer".into(), realm: realm.to_owned(), discovery, ..Default::default() };
    let node = Node::with_settings(settings)?;
    let port = node.subscriber::<Raw>(TOPIC).carriers([carrier]).callback(|_| {})?;
    let connected = port.wait_connected(1, PATIENCE);
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    let _ = std::fs::remove_file(path);
    Ok(connected.then_some(ms))
}

fn ask(resident: &Node, node: &str) -> Option<f64> {
    let began = Instant::now();
    let known = resident.nodes().into_iter().find(|known| known.node.to_string() == node)?;
    let answered = resident.ask(known.node, &admin::Request::Channels, Duration::from_secs(1));
    answered.ok().map(|_| began.elapsed().as_secs_f64() * 1000.0)
}

/// The node that a socket is of.
pub(super) fn id_of(socket: &Path) -> String {
    let name = socket.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit('.').next().unwrap_or_default().to_owned()
}
