//! The back ends by which this node finds others and talks with their control threads, and its own place in the run directory.

use crate::control::links::Source;
use crate::control::local::LocalEndpoint;
use crate::control::{Change, Discovery, Document, NodeId};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The back ends, in the order in which they are asked.
#[derive(Default)]
pub(super) struct Discoveries {
    back_ends: Vec<Box<dyn Discovery>>,
    /// This node's socket in the run directory, from the time that it is announced there.
    pub endpoint: Option<LocalEndpoint>,
}

impl Discoveries {
    pub(super) fn add(&mut self, back_end: impl Discovery + 'static) {
        self.back_ends.push(Box::new(back_end));
    }

    /// Sends a call to another node; `false`: no back end reaches it.
    pub(super) fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool {
        self.back_ends.iter_mut().any(|each| each.call(to, id, request))
    }

    /// Sends a call to another node at one of these addresses; `false`: no back end does.
    pub(super) fn call_directly(&mut self, to: NodeId, addresses: &[SocketAddr], id: u64, request: &[u8]) -> bool {
        !addresses.is_empty() && self.back_ends.iter_mut().any(|each| each.call_directly(to, addresses, id, request))
    }

    /// Sends the answer to another node's call.
    pub(super) fn answer(&mut self, to: NodeId, id: u64, answer: &[u8]) {
        let _ = self.back_ends.iter_mut().any(|each| each.answer(to, id, answer));
    }

    /// Asks for a node's document.
    pub(super) fn refresh(&mut self, node: NodeId) {
        for each in &mut self.back_ends {
            each.refresh(node);
        }
    }

    /// Announces a change of this node's document.
    pub(super) fn announce(&mut self, document: &Arc<Document>, change: &Change) {
        self.back_ends.iter_mut().for_each(|each| each.announce(document, change));
    }

    /// Makes links to the nodes of this source.
    pub(super) fn look(&mut self, source: &Source) {
        self.back_ends.iter_mut().for_each(|each| each.look(source.clone()));
    }

    /// Hands over a stream on which another node's control thread speaks.
    pub(super) fn adopt(&mut self, stream: OwnedFd, from: Option<IpAddr>) {
        let mut stream = Some(stream);
        for each in &mut self.back_ends {
            stream = stream.and_then(|stream| each.adopt(stream, from));
        }
    }

    /// `true` if a back end knows that this node runs on this host.
    pub(super) fn is_of_this_host(&self, node: NodeId) -> bool {
        self.back_ends.iter().any(|each| each.is_of_this_host(node))
    }
}
