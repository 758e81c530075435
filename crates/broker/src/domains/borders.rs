//! The flows of sessions that may come in where all others are kept out of the reserved classes: told by the addresses of their hosts.

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

    /// The flows of a session that may come in here: none unless it is committed, and none where nothing is kept out.
    pub fn admitted_of(&self, key: &Key) -> Vec<Admitted> {
        let Some(one) = self.crossings.get(key).filter(|one| one.phase == Phase::Committed) else { return Vec::new() };
        let Some((from, _)) = self.border(one.passed.last()) else { return Vec::new() };
        let flows = one.flows.iter().zip(&one.menus);
        let admitted = flows.filter_map(|(flow, menu)| {
            let (class, source, destination) = (*menu.keys().next()?, flow.source?, flow.destination?);
            Some(Admitted { neighbour: from.to_owned(), class, source, destination })
        });
        admitted.collect()
    }

    /// The neighbour of this name and the device by which it comes in, if packets of no session are kept out there.
    fn border(&self, from: Option<&String>) -> Option<(&str, &str)> {
        let neighbour = self.neighbours.iter().find(|one| Some(&one.domain) == from)?;
        Some((&neighbour.domain, neighbour.border.as_deref()?))
    }
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
