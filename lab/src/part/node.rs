//! The node of a part: its addresses and its peers. The role `relay` is only a node.

use super::Orders;
use crate::error::{Error, Result};
use crate::lab::Lab;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use thalweg::{DiscoverySource, Network, Node, RelayLimits, Settings};

/// Settings of a part's node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSettings {
    /// Its name.
    pub name: String,
    /// Nodes of different realms do not see each other.
    pub realm: String,
    /// Addresses it listens on besides loopback.
    pub listen: Vec<SocketAddr>,
    /// File with the addresses of all nodes; `None`: all are on one host.
    pub addresses: Option<PathBuf>,
    /// Hosts proxies for others.
    pub relay: bool,
    /// A node that must be known before it has ports: a proxy that is asked for before its relay is known begins at the
    /// publisher, and is moved only when samples flow.
    pub after: Option<String>,
}

/// Longest wait of a part. An experiment waits longer ([`super::LONG`]), so that it hears the part's own error.
const LONG: Duration = Duration::from_secs(30);

impl NodeSettings {
    /// A node of this name that sees the nodes of its own host.
    pub fn local(name: &str, realm: &str) -> Self {
        Self { name: name.to_owned(), realm: realm.to_owned(), ..Self::default() }
    }

    /// As [`NodeSettings::local`], listening at one of `all` addresses, which it finds in a file of the lab's.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn at(lab: &Lab, name: &str, realm: &str, listen: SocketAddr, all: &[SocketAddr]) -> Result<Self> {
        let file = lab.folder().join(format!("{realm}.toml"));
        let text: String = all.iter().map(|address| format!("[[node]]\naddress = \"{address}\"\n")).collect();
        std::fs::write(&file, text)?;
        Ok(Self { listen: vec![listen], addresses: Some(file), ..Self::local(name, realm) })
    }

    /// Opens no ports before it knows the node of this name.
    pub fn after(self, other: &str) -> Self {
        Self { after: Some(other.to_owned()), ..self }
    }

    /// Opens it.
    pub(crate) fn open(&self) -> Result<Node> {
        let discovery = self.addresses.clone().map_or(DiscoverySource::Automatic, DiscoverySource::Static);
        let (name, realm, listen) = (self.name.clone(), self.realm.clone(), self.listen.clone());
        let relay = self.relay.then(RelayLimits::default);
        // The hosts of a lab belong to one administration and are not reachable from outside.
        let admin_from = listen.iter().map(|address| Network::around(address.ip())).collect();
        let settings = Settings { name, realm, listen, discovery, relay, admin_from, ..Settings::default() };
        let node = Node::with_settings(settings)?;
        match &self.after {
            Some(other) if !node.wait_until(LONG, || node.nodes().iter().any(|known| known.name == *other)) => {
                Err(Error::Failed(format!("{} did not hear of {other} within {LONG:?}", self.name)))
            }
            _ => Ok(node),
        }
    }
}

/// Hosts proxies for others, until it ends.
pub(super) fn relay(mut orders: Orders) -> Result {
    let settings = NodeSettings { relay: true, ..orders.settings()? };
    let node = settings.open()?;
    orders.say(&json!({"node": node.id()}))?;
    while orders.wait::<Value>()?.is_some() {}
    Ok(())
}
