//! The place of a process of the robot: its network namespace, and the reach of its node.

use crate::failure::{Failure, Result};
use crate::session::Reach;
use clap::Args;
use thalweg::{Node, Settings};

/// The place of a node of the robot.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Place {
    /// Realm of the robot's nodes
    #[arg(long)]
    pub realm: String,
    /// Network namespace
    #[arg(long)]
    pub namespace: Option<String>,
    /// Settings to reach other hosts.
    #[command(flatten)]
    pub reach: Reach,
}

impl Place {
    /// Moves this thread into the namespace; threads that it starts inherit it.
    pub(super) fn enter(&self) -> Result {
        let Some(name) = &self.namespace else { return Ok(()) };
        linux::namespace::Namespace::named(name)
            .and_then(|namespace| namespace.enter())
            .map_err(|e| Failure::System(format!("network namespace {name}: {e}; run it as root")))
    }

    /// Opens a node in this place.
    pub(super) fn open(&self, name: &str) -> Result<Node> {
        let (name, realm) = (name.to_owned(), self.realm.clone());
        Ok(Node::with_settings(Settings { name, realm, ..self.reach.settings() })?)
    }

    /// The place as arguments of a program.
    pub(super) fn arguments(&self) -> Vec<String> {
        let namespace = self.namespace.iter().flat_map(|name| ["--namespace".to_owned(), name.clone()]);
        let realm = ["--realm".to_owned(), self.realm.clone()];
        realm.into_iter().chain(namespace).chain(self.reach.arguments()).collect()
    }
}
