//! The flows of sessions that may come in where all others are kept out of the reserved classes: told by the addresses of their hosts, and no more of
//! each than is sold.

use super::{Crossing, Domains, Phase};
use agent::peer::{Flow, Key, Refused};
use qos::plan::Admitted;

impl Domains {
    /// Checks that the border by which a session comes in can tell its flows from others.
    pub(super) fn known(&self, Crossing { passed, flows, phase, .. }: &Crossing) -> Result<(), Refused> {
        let Some((from, device)) = self.border(passed.last()) else { return Ok(()) };
        // The last domain tells its node's address with the menus.
        let asks = *phase == Phase::Quoting;
        let Some((flow, (node, needs))) = flows.iter().find_map(|flow| Some((flow, lacking(flow, asks)?))) else {
            return Ok(());
        };
        Err(Refused {
            domain: self.name.clone(),
            what: format!("address of node {node} for domain {}", self.name),
            needs: needs.to_owned(),
            has: "none".to_owned(),
            because: format!(
                "by {device}, where domain {from} comes in, only packets of sessions keep their class, and {} is told by the addresses of its hosts",
                flow.subscriber
            ),
            ..Refused::default()
        })
    }

    /// What may come in of a session here, between each two hosts: nothing unless it is committed, and nothing where nothing is kept out.
    pub fn admitted_of(&self, key: &Key) -> Vec<Admitted> {
        let Some(one) = self.crossings.get(key).filter(|one| one.phase == Phase::Committed) else { return Vec::new() };
        let Some((from, _)) = self.border(one.passed.last()) else { return Vec::new() };
        let (limits, session) = (self.ledger.limits(key), key.to_string());
        let flows = one.flows.iter().zip(&one.menus).enumerate();
        let admitted = flows.filter_map(|(at, (flow, menu))| {
            let (class, source, destination) = (*menu.keys().next()?, flow.source?, flow.destination?);
            let (session, neighbour, limit) = (session.clone(), from.to_owned(), limits.get(at).copied());
            Some(Admitted { session, neighbour, class, source, destination, limit })
        });
        admitted.fold(Vec::new(), together)
    }

    /// The neighbour of this name and the device by which it comes in, if packets of no session are kept out there.
    fn border(&self, from: Option<&String>) -> Option<(&str, &str)> {
        let neighbour = self.neighbours.iter().find(|one| Some(&one.domain) == from)?;
        Some((&neighbour.domain, neighbour.border.as_deref()?))
    }
}

/// Flows between the same hosts in one class are one for a border.
fn together(mut all: Vec<Admitted>, next: Admitted) -> Vec<Admitted> {
    let hosts = |one: &Admitted| (one.class, one.source, one.destination);
    match all.iter_mut().find(|one| hosts(one) == hosts(&next)) {
        Some(one) => one.limit = one.limit.zip(next.limit).map(|(one, other)| one.with(other)),
        None => all.push(next),
    }
    all
}

/// The node whose address a border lacks to tell a flow, and what it needs.
fn lacking(flow: &Flow, asks: bool) -> Option<(&str, &'static str)> {
    match (flow.source, flow.destination) {
        (None, _) => Some((&flow.publisher, "an address in the contract of its domain")),
        (Some(_), None) if !asks => Some((&flow.node, "an address in the contract of its domain")),
        (Some(one), Some(other)) if one.is_ipv4() != other.is_ipv4() => {
            Some((&flow.node, "an address of the publisher's IP version"))
        }
        _ => None,
    }
}
