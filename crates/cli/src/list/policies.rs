//! `thalweg list --qos`: offers and requests of ports, and mismatches.

use super::section;
use crate::census;
use crate::failure::Result;
use crate::session::Session;
use serde::Serialize;
use std::collections::BTreeMap;
use thalweg::control::matching::{Match, Mismatch, compare};
use thalweg::control::{Direction, Document, PortInfo};

/// A port, and the policies that differ from their defaults.
#[derive(Serialize)]
struct Stated<'a> {
    port: &'a str,
    direction: Direction,
    topic: &'a str,
    qos: &'a qos::Qos,
    stated: BTreeMap<&'static str, String>,
}

/// A mismatch between two ports, or a policy that the subscriber gave up.
#[derive(Serialize)]
struct Found<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    policy: &'static str,
    offered: String,
    requested: String,
    remedy: String,
    fallback: bool,
}

#[derive(Serialize)]
struct Lists<'a> {
    ports: Vec<Stated<'a>>,
    mismatches: Vec<Found<'a>>,
}

/// Shows all ports.
pub(super) fn show(session: &Session, nodes: &[Document]) -> Result {
    let ports: Vec<&PortInfo> = census::ports(nodes).iter().map(|port| port.info).collect();
    let of = |direction| ports.iter().copied().filter(move |port| port.direction == direction);
    let pairs = of(Direction::Publisher).flat_map(|p| of(Direction::Subscriber).map(move |s| (p, s)));
    let lists =
        Lists { ports: ports.iter().map(|port| stated(port)).collect(), mismatches: pairs.flat_map(found).collect() };
    session.output.result(&lists, || lists.text())
}

fn stated(port: &PortInfo) -> Stated<'_> {
    let PortInfo { name, direction, topic, qos, .. } = port;
    Stated { port: name, direction: *direction, topic, qos, stated: qos.stated().into_iter().collect() }
}

fn found<'a>((publisher, subscriber): (&'a PortInfo, &'a PortInfo)) -> Vec<Found<'a>> {
    let (found, fallback) = match compare(publisher, subscriber) {
        Match::Matched(given_up) => (given_up, true),
        Match::Mismatched(between) => (between, false),
        Match::NotSameTopic => return Vec::new(),
    };
    let named = |mismatch: Mismatch| {
        let Mismatch { policy, offered, requested, remedy } = mismatch;
        let (publisher, subscriber) = (&publisher.name[..], &subscriber.name[..]);
        let policy = policy.name();
        Found { publisher, subscriber, policy, offered, requested, remedy, fallback }
    };
    found.into_iter().map(named).collect()
}

impl Lists<'_> {
    fn text(&self) -> String {
        let port = |p: &Stated<'_>| {
            let policies: Vec<String> = p.stated.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let policies = if policies.is_empty() { "defaults".to_owned() } else { policies.join("; ") };
            vec![p.port.to_owned(), format!("{:?}", p.direction).to_lowercase(), p.topic.to_owned(), policies]
        };
        let headers = [("port", '<'), ("direction", '<'), ("topic", '<'), ("policies", '<')];
        let ports = section("ports", &headers, self.ports.iter().map(port).collect());
        let mismatch = |m: &Found<'_>| {
            let remedy = if m.fallback { "matched by fallback" } else { &m.remedy };
            [m.publisher, m.subscriber, m.policy, &m.offered, &m.requested, remedy].map(str::to_owned).to_vec()
        };
        let headers = [
            ("publisher", '<'),
            ("subscriber", '<'),
            ("policy", '<'),
            ("offered", '<'),
            ("requested", '<'),
            ("remedy", '<'),
        ];
        let mismatches = section("mismatches", &headers, self.mismatches.iter().map(mismatch).collect());
        format!("{ports}\n\n{mismatches}")
    }
}
