//! Nodes that start during an attack, and ask.

use super::pair::TOPIC;
use crate::error::Result;
use crate::part::{NodeSettings, Orders};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{DiscoverySource, Node, admin};

/// Time that a newcomer tries.
const PATIENCE: Duration = Duration::from_secs(3);

/// An order to a newcomer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum JoinOrder {
    /// Open a node, subscribe, and leave.
    Join {
        /// As a neighbour, by the run directory and shared memory; else by TCP alone, as from another host.
        unix: bool,
        /// The publisher's socket, which names its node.
        publisher: Option<PathBuf>,
    },
    /// The same from another host, reached by Zenoh.
    Across {
        /// An address of its own.
        from: IpAddr,
        /// Address at which the publisher's node listens to Zenoh.
        to: SocketAddr,
    },
    /// Ask a node for its channels.
    Ask {
        /// The node.
        node: String,
    },
}

/// The time to join.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// In milliseconds; `None` if it was not in time.
    pub ms: Option<f64>,
}

/// The role `newcomer`.
pub(crate) fn newcomer(mut orders: Orders) -> Result {
    let realm = orders.settings::<Value>()?["realm"].as_str().unwrap_or_default().to_owned();
    let resident = NodeSettings::local("resident", &realm).open()?;
    orders.say(&json!({}))?;
    while let Some(visit) = orders.wait::<JoinOrder>()? {
        let ms = match visit {
            JoinOrder::Join { unix, publisher } => {
                let id = publisher.as_deref().map(id_of).unwrap_or_default();
                let known = resident.nodes().into_iter().find(|known| known.node.to_string() == id);
                let address = known.and_then(|known| known.addresses.iter().copied().find(|a| a.is_ipv4()));
                let file = address.filter(|_| !unix).map(|address| format!("[[node]]\naddress = \"{address}\"\n"));
                match file {
                    Some(text) => join_by_file(&realm, &text)?,
                    None => join(thalweg::Settings::default(), &realm, "shm")?,
                }
            }
            JoinOrder::Across { from, to } => {
                let (listen, peers) = (vec![SocketAddr::new(from, 0)], vec![to.to_string()]);
                join(thalweg::Settings { listen, peers, ..Default::default() }, &realm, "tcp")?
            }
            JoinOrder::Ask { node } => ask(&resident, &node),
        };
        orders.say(&Joined { ms })?;
    }
    Ok(())
}

fn join_by_file(realm: &str, text: &str) -> Result<Option<f64>> {
    let path = std::env::temp_dir().join(format!("thalweg-newcomer-{}.toml", std::process::id()));
    std::fs::write(&path, text)?;
    let discovery = DiscoverySource::Static(path.clone());
    let joined = join(thalweg::Settings { discovery, ..Default::default() }, realm, "tcp");
    let _ = std::fs::remove_file(path);
    joined
}

fn join(settings: thalweg::Settings, realm: &str, carrier: &str) -> Result<Option<f64>> {
    let began = Instant::now();
    let settings = thalweg::Settings { name: "newcomer".into(), realm: realm.to_owned(), ..settings };
    let node = Node::with_settings(settings)?;
    let port = node.subscriber::<Raw>(TOPIC).carriers([carrier]).callback(|_| {})?;
    let connected = port.wait_connected(1, PATIENCE);
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    Ok(connected.then_some(ms))
}

fn ask(resident: &Node, node: &str) -> Option<f64> {
    let began = Instant::now();
    let known = resident.nodes().into_iter().find(|known| known.node.to_string() == node)?;
    let answered = resident.ask(known.node, &admin::Request::Channels, Duration::from_secs(1));
    answered.ok().map(|_| began.elapsed().as_secs_f64() * 1000.0)
}

/// The node of a socket.
pub(super) fn id_of(socket: &Path) -> String {
    let name = socket.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit('.').next().unwrap_or_default().to_owned()
}
