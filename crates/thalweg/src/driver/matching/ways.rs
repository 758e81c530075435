//! The ways to a publisher: carriers and addresses, with or without a relay, in the order in which they are tried.

use super::wanted::is_reliable;
use super::{Known, Matching, Pair};
use crate::carrier::Name;
use crate::channel::proxy::Proxy;
use crate::control::{Document, PortInfo};
use qos::Place;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The route to a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// In this process.
    Process,
    /// By the unix socket of its node.
    Unix(PathBuf),
    /// By TCP.
    Tcp(SocketAddr),
}

/// One way to try: carrier and route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub carrier: Name,
    pub route: Route,
    /// The place where the stream is scaled if it comes this way.
    pub place: Place,
}

impl Matching {
    /// The ways to a publisher, best first: by the proxy's place, then without a relay.
    pub(crate) fn ways(
        &self,
        pair: Pair,
        (offered, asked): (&PortInfo, &PortInfo),
        proxy: &Proxy,
        known: Known,
    ) -> Vec<Candidate> {
        let here = known.here;
        let Some(there) = known.directory.node(pair.0.node) else { return Vec::new() };
        let only = self.connected.get(&(offered.name.clone(), asked.name.clone()));
        let only = only.and_then(Option::as_ref);
        let mut ways = candidates(here, there, offered, asked, only);
        if let Some(extra) = self.added_carriers(there, offered, asked, only) {
            ways.splice(0..0, extra);
        }
        if proxy.place == Place::Subscriber && proxy.picture.is_some() {
            ways = candidates(here, here, offered, asked, only); // this node hosts it
        }
        if proxy.picture.is_some() {
            ways.retain(|way| way.carrier != Name::Local);
        }
        if proxy.place == Place::Subscriber {
            ways.iter_mut().for_each(|way| way.place = Place::Subscriber);
        }
        if self.only_sockets {
            ways.retain(|way| !way.carrier.is_within_host());
        }
        let by_relay = |name: &str| ways_by_relay(known, name, (offered, asked), only);
        ways.splice(0..0, proxy.place.relays().flat_map(by_relay).collect::<Vec<_>>());
        ways
    }

    /// Ways by carriers that were added to this node and that both ports name.
    fn added_carriers(
        &self,
        there: &Document,
        offered: &PortInfo,
        asked: &PortInfo,
        only: Option<&Name>,
    ) -> Option<Vec<Candidate>> {
        let named = |n: &&Name| only.map_or(offered.carriers.contains(n) && asked.carriers.contains(n), |o| o == *n);
        let address = there.addresses.first()?;
        let by = |carrier: &Name| Candidate {
            carrier: carrier.clone(),
            route: Route::Tcp(*address),
            place: Place::default(),
        };
        Some(self.carriers.iter().filter(named).map(by).collect())
    }
}

/// The ways by the relay of this name: the name of a node, or else of a host.
fn ways_by_relay(
    known: Known,
    name: &str,
    (offered, asked): (&PortInfo, &PortInfo),
    only: Option<&Name>,
) -> Vec<Candidate> {
    let relays = || known.directory.nodes().filter(|node| node.is_relay(name));
    let found = relays().find(|node| node.name == name).or_else(|| relays().next());
    let mut ways = found.map_or(Vec::new(), |relay| candidates(known.here, relay, offered, asked, only));
    ways.retain(|way| way.carrier.is_built_in() && way.carrier != Name::Local);
    ways.iter_mut().for_each(|way| way.place = Place::Relay(name.to_owned()));
    ways
}

/// The ways from this host to a publisher, best first: in the order that a port named, else `local`, `shm`, then by reliability.
fn candidates(
    here: &Document,
    there: &Document,
    publisher: &PortInfo,
    subscriber: &PortInfo,
    only: Option<&Name>,
) -> Vec<Candidate> {
    let same_host = here.host == there.host;
    let same_process = here.pid == there.pid && same_host;
    let reliable = is_reliable(&publisher.qos, &subscriber.qos);
    // If neither an administrator nor a port named a carrier, a reliable channel gets only carriers that are lossless by themselves.
    let auto = only.is_none() && ![publisher, subscriber].into_iter().any(names_carriers);
    let addresses = reachable(there, same_host);
    let allowed = |carrier: &Name| only.is_some() || [publisher, subscriber].iter().all(|p| named(p, carrier));
    let mut found = Vec::new();
    for carrier in order(publisher, subscriber, only).into_iter().filter(allowed) {
        let by = |route| Candidate { carrier: carrier.clone(), route, place: Place::default() };
        match (&carrier, &there.socket) {
            (Name::Local, _) if same_process => found.push(by(Route::Process)),
            (Name::Shm, Some(socket)) if same_host => found.push(by(Route::Unix(socket.clone()))),
            (Name::Local | Name::Shm | Name::Other(_), _) => {}
            (network, _) if reliable && auto && network.is_lossy() => {}
            _ => found.extend(addresses.iter().map(|a| by(Route::Tcp(*a)))),
        }
    }
    found
}

fn named(port: &PortInfo, carrier: &Name) -> bool {
    port.carriers.contains(carrier)
}

/// `true` if a port left no choice to `auto`. The port by which a node takes a stream that it hosts leaves out `local`: that names none.
fn names_carriers(port: &PortInfo) -> bool {
    !but_local(&port.carriers).eq(but_local(&Name::BUILT_IN))
}

fn but_local(names: &[Name]) -> impl Iterator<Item = &Name> {
    names.iter().filter(|name| **name != Name::Local)
}

/// Carriers in the order to try: an administrator's, else the subscriber's, else the publisher's. A port that named none left the choice to
/// `auto`, which takes udp only if losses are allowed (see above), and never mcast.
fn order(publisher: &PortInfo, subscriber: &PortInfo, only: Option<&Name>) -> Vec<Name> {
    let own = [subscriber, publisher].into_iter().find(|port| names_carriers(port));
    match (only, own) {
        (Some(only), _) => vec![only.clone()],
        (None, Some(port)) => port.carriers.clone(),
        (None, None) => Name::AUTO.to_vec(),
    }
}

/// The ways from this host to a node's streams, the shortest first.
pub(crate) fn routes(here: &Document, there: &Document) -> Vec<Route> {
    let same_host = here.host == there.host;
    let socket = there.socket.iter().filter(|_| same_host).map(|socket| Route::Unix(socket.clone()));
    socket.chain(reachable(there, same_host).into_iter().map(Route::Tcp)).collect()
}

/// The addresses of a node that can be reached. Loopback addresses count only within one host identity, where they are the shortest way.
fn reachable(there: &Document, same_host: bool) -> Vec<SocketAddr> {
    let (loopback, others): (Vec<_>, Vec<_>) = there.addresses.iter().partition(|a| a.ip().is_loopback());
    if same_host { loopback.into_iter().chain(others).collect() } else { others }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::host::upstream;

    #[test]
    fn a_port_that_names_carriers_gets_them_in_its_order_and_auto_never_takes_mcast() {
        let mut there = crate::testing::discovery::document(1);
        there.addresses = vec!["127.0.0.1:7".parse().unwrap()];
        there.socket = Some("/socket".into());
        let here = Document { node: crate::control::NodeId(2), pid: there.pid + 1, ..there.clone() };
        let all = Name::BUILT_IN.to_vec();
        let port = |carriers: Vec<Name>| PortInfo {
            qos: qos::Qos { reliability: qos::Reliability::BestEffort, ..Default::default() },
            carriers,
            ..crate::testing::port_info("/p")
        };
        let tried = |publisher: Vec<Name>, subscriber: Vec<Name>| {
            let found = candidates(&here, &there, &port(publisher), &port(subscriber), None);
            found.into_iter().map(|c| c.carrier).collect::<Vec<_>>()
        };
        assert_eq!(tried(all.clone(), all.clone()), ["shm", "udp", "tcp"]);
        let mine = ["tcp", "mcast", "shm"].map(Name::from).to_vec();
        assert_eq!(tried(all.clone(), mine.clone()), ["tcp", "mcast", "shm"]);
        assert_eq!(tried(mine.clone(), all.clone()), ["tcp", "mcast", "shm"]);
        let hosted = |carriers: Vec<Name>| upstream(&port(carriers), "/proxy".into(), None).carriers;
        assert_eq!(
            tried(all.clone(), hosted(all)),
            ["shm", "udp", "tcp"],
            "a relay takes datagrams where losses are allowed"
        );
        assert_eq!(tried(mine.clone(), hosted(mine)), ["tcp", "mcast", "shm"]);
    }
}
