//! Permissions to change this node. Its own host may change it by the unix socket, whose users were admitted. Other hosts may look. They
//! may change something only if the node knows their network ([`Settings::admin_from`](crate::Settings::admin_from)).
//!
//! There is no cryptography yet: whoever can open a connection from such an address may administer. The claims of a caller about itself
//! (its host, or the id of its node on a link of another node) decide nothing. If the link proves its node, the node decides which end of a
//! channel is its own.

use super::calls::Asker;
use super::commands::{Answered, PassedOn};
use super::control::Control;
use crate::admin::{self, Reply, Request};
use crate::control::{Network, NodeId, Origin};
use crate::error::{Error, Result};
use std::net::SocketAddr;

/// The environment variable with the networks that may administer, besides [`Settings::admin_from`](crate::Settings::admin_from), separated
/// by commas.
pub(super) const VARIABLE: &str = "THALWEG_ADMIN_FROM";

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Its node, as far as the connection proves it; `None`: this node, or an unknown one.
    pub node: Option<NodeId>,
    pub origin: Origin,
}

impl Caller {
    /// This process.
    pub(super) const HERE: Self = Self { node: None, origin: Origin::Own };

    /// `true` if it is on this host.
    pub(super) fn is_here(self) -> bool {
        self.origin.is_here()
    }
}

/// The networks in the environment variable.
///
/// # Errors
/// [`Error::Configuration`] for a part that is no network.
pub(super) fn from_environment() -> Result<Vec<Network>> {
    let Some(text) = std::env::var_os(VARIABLE) else { return Ok(Vec::new()) };
    let text = text.to_string_lossy();
    let read = |part: &str| part.trim().parse().map_err(|wrong| Error::Configuration(format!("{VARIABLE}: {wrong}")));
    text.split(',').filter(|part| !part.trim().is_empty()).map(read).collect()
}

/// `true` if a request changes something, or the command in it does. All others only look.
fn changes(request: &Request) -> bool {
    match request {
        Request::Connect { .. }
        | Request::Disconnect { .. }
        | Request::Keep { .. }
        | Request::Set { .. }
        | Request::Remember { .. }
        | Request::Scale { .. }
        | Request::Verdict { .. } => true,
        Request::Command { text, .. } => admin::grammar::Command::parse(text).is_ok_and(|command| command.changes()),
        Request::Channels
        | Request::Get { .. }
        | Request::Measure { .. }
        | Request::Stages { .. }
        | Request::Lateness { .. }
        | Request::Clock
        | Request::Memory
        | Request::Alive { .. }
        | Request::Explain { .. } => false,
    }
}

/// Most addresses of a node that are tried for a request that changes something.
const MOST_TRIED: usize = 4;

impl Control {
    /// The addresses for a request that travels on a connection of its own. This is a request of a person that changes something on another
    /// host, which has to see the address of its sender. Empty: the request may travel any way.
    pub(super) fn direct_addresses(&self, to: NodeId, request: &[u8], asker: &Asker) -> Vec<SocketAddr> {
        let asked = !matches!(asker, Asker::Nobody);
        if !asked || !serde_json::from_slice(request).is_ok_and(|request| changes(&request)) {
            return Vec::new();
        }
        let (directory, own) = (self.state.directory(), self.state.document());
        let Some(there) = directory.node(to) else { return Vec::new() };
        let beyond = there.addresses.iter().filter(|address| !address.ip().is_loopback() || there.host == own.host);
        beyond.take(MOST_TRIED).copied().collect()
    }

    /// Carries out a request, here or by the node that can, and answers its asker.
    pub(super) fn asked(&mut self, request: &[u8], caller: Caller, asker: Asker) {
        let answered = match serde_json::from_slice(request) {
            Ok(request) => match self.forbids(&request, caller) {
                Some(why) => Answered::Here(Reply::No(why)),
                None => self.administer(request, caller),
            },
            Err(problem) => Answered::Here(Reply::No(format!("a request that cannot be read: {problem}"))),
        };
        match answered {
            Answered::Here(reply) => self.give(asker, admin::pack(&reply)),
            Answered::Elsewhere(PassedOn { to, request, done }) => {
                self.ask(to, &request, Asker::Command(Box::new(asker), done));
            }
        }
    }

    /// The reason why a request is refused for this caller; `None`: it is permitted.
    fn forbids(&mut self, request: &Request, caller: Caller) -> Option<String> {
        let from = match caller.origin {
            Origin::Own | Origin::Host { .. } => return None,
            Origin::Tcp { from, .. } => Some(from),
            Origin::Zenoh => None,
        };
        if let Request::Alive { publisher } = request {
            let its = caller.node.is_some_and(|node| self.is_port_of(publisher, node));
            return (!its).then(|| format!("{publisher} is no port of the node that says it is alive"));
        }
        if !changes(request) || self.moves_own_channel(request, caller) {
            return None;
        }
        if from.is_some_and(|from| self.state.admin_from.iter().any(|network| network.contains(from))) {
            return match request {
                // A kept connection applies to later programs of this host, also after its sender has left.
                Request::Keep { priority, .. } if priority.wants_own_thread() => Some(format!(
                    "node {} keeps no {} that another host asks for: say it on its own host",
                    self.state.settings.name,
                    priority.sched.map_or("affinity".to_owned(), |sched| format!("scheduling (sched={sched})"))
                )),
                _ => None,
            };
        }
        self.count("requests of other hosts to change something");
        Some(self.no_administration(from))
    }

    fn no_administration(&self, from: Option<std::net::IpAddr>) -> String {
        let name = &self.state.settings.name;
        let Some(from) = from else {
            return format!(
                "node {name} takes administration only from its own host, and of a request by Zenoh it does not know whence it comes: \
                 start it with --admin-from and the network of who asks, and ask by its address (--discovery static:FILE)"
            );
        };
        match &self.state.admin_from[..] {
            [] => {
                let network = network_of(from);
                format!(
                    "node {name} takes administration only from its own host, not from {from}; start it with --admin-from {network}"
                )
            }
            networks => {
                let networks: Vec<String> = networks.iter().map(Network::to_string).collect();
                format!(
                    "node {name} takes administration only from its own host and {}, not from {from}; start it with --admin-from {from}, too",
                    networks.join(", ")
                )
            }
        }
    }

    /// `true` if a publisher's node has one of its own channels opened over another carrier. It may do so, because it could as well refuse
    /// the present carrier.
    fn moves_own_channel(&self, request: &Request, caller: Caller) -> bool {
        let (Request::Connect { publisher, subscriber, carrier: Some(_) }, Some(node)) = (request, caller.node) else {
            return false;
        };
        self.matching.is_wanted_of(node, publisher, subscriber)
    }

    fn is_port_of(&self, name: &str, node: NodeId) -> bool {
        self.known(name).is_some_and(|(at, _)| at.node == node)
    }
}

/// An example of a network with this address, for an error message.
fn network_of(address: std::net::IpAddr) -> String {
    match address.to_canonical() {
        std::net::IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            let private =
                [("10.0.0.0/8", a == 10), ("192.168.0.0/16", (a, b) == (192, 168)), ("127.0.0.0/8", a == 127)];
            private.iter().find(|(_, is)| *is).map_or(format!("{a}.{b}.{c}.0/24"), |(text, _)| (*text).to_owned())
        }
        v6 => v6.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_look_and_requests_that_change_are_told_apart() {
        let command = |text: &str| Request::Command { port: "/out".into(), text: text.into() };
        for looks in ["help", "list", "ver", "prop get", "prop get /out", "get out /out", "pray", "no such command ("] {
            assert!(!changes(&command(looks)), "{looks}");
        }
        for changing in ["add /in", "del /in", "prop set a b", "set out /out (a b)", "dtch out", "custom"] {
            assert!(changes(&command(changing)), "{changing}");
        }
        let names = || ("/out".to_owned(), "/in".to_owned());
        let (publisher, subscriber) = names();
        assert!(changes(&Request::Disconnect { publisher, subscriber }));
        let (publisher, subscriber) = names();
        assert!(!changes(&Request::Explain { publisher, subscriber }));
        assert!(!changes(&Request::Channels) && !changes(&Request::Clock));
    }

    #[test]
    fn the_network_that_is_advised_has_the_address() {
        for address in ["10.1.2.3", "192.168.7.7", "172.16.1.2", "127.0.0.1", "fd00::1"] {
            let network: Network = network_of(address.parse().unwrap()).parse().unwrap();
            assert!(network.contains(address.parse().unwrap()), "{address}: {network}");
        }
    }
}
