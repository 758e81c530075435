//! What hosts can mend, where super-packets block a link: smaller ones on devices that the contract names, or a queue that takes them apart on
//! devices that it does not name.

use super::super::parties::{Parties, directions};
use super::edit::Edit;
use super::{Computed, GIVING, Search};
use crate::analysis::stages::at_once;
use crate::network::Direction;
use crate::plan::{Plan, Setting, settle};
use crate::quantity::show_time;
use crate::system::{Scheduler, System};
use std::collections::BTreeMap;

impl Search<'_> {
    /// Limits of super-packets with which all deadlines are kept: the largest, and on as few devices as it takes.
    pub(super) fn settings(&mut self, computed: &Computed) -> Option<Vec<Setting>> {
        let system = self.system;
        let parties = Parties::of(system, &computed.plan);
        let named = |direction: &Direction| direction.device(system).is_some() && packets(system, *direction) > 1;
        let mut found: Vec<Direction> = crossed(system, &parties, &computed.plan).filter(named).collect();
        let most = found.iter().map(|direction| packets(system, *direction)).max()?;
        let because = because(system, &parties, &computed.plan);
        let all = |directions: &[Direction], segments: u32| -> Vec<Setting> {
            let smaller = directions.iter().filter(|direction| packets(system, **direction) > segments.into());
            smaller.map(|direction| setting(system, *direction, segments, &because)).collect()
        };
        if !self.fit_with(&all(&found, 1)) {
            return None;
        }
        let halves = std::iter::successors(Some(most / 2), |half| Some(half / 2)).take_while(|half| *half > 1);
        let halves: Vec<u32> = halves.filter_map(|half| u32::try_from(half).ok()).collect();
        let segments = halves.into_iter().find(|half| self.fit_with(&all(&found, *half))).unwrap_or(1);
        // Each takes a plan.
        for direction in found.clone().into_iter().take(GIVING) {
            let others: Vec<Direction> = found.iter().copied().filter(|other| *other != direction).collect();
            if self.fit_with(&all(&others, segments)) {
                found = others;
            }
        }
        Some(all(&found, segments))
    }

    fn fit_with(&mut self, settings: &[Setting]) -> bool {
        let settled = settle(self.system, settings);
        !settings.is_empty() && self.planned(&settled).is_some_and(|computed| computed.plan.feasible)
    }

    /// Devices named, so that a queue is installed there: one, or all at which late channels are blocked.
    pub(super) fn devices(&mut self, parties: &Parties, computed: &Computed) {
        let system = self.system;
        let unnamed = |direction: &Direction| {
            let scheduler = system.links[direction.link].scheduler;
            let takes_them_apart = matches!(scheduler, Scheduler::Fifo | Scheduler::Strict);
            takes_them_apart && direction.device(system).is_none() && packets(system, *direction) > 1
        };
        let found: Vec<Direction> = crossed(system, parties, &computed.plan).filter(unnamed).take(GIVING).collect();
        let one = found.iter().map(|one| devices(&[*one])).find(|edits| self.fits(edits));
        let edits = match one {
            Some(one) => one,
            None if found.len() > 1 && self.fits(&devices(&found)) => devices(&found),
            None => return,
        };
        let words: Vec<String> = edits.iter().map(|edit| edit.words(system)).collect();
        self.offer(0.25, words.join(", "), &edits);
    }
}

/// A system with the smallest super-packets on all devices that its contract names.
pub(in crate::plan::make) fn smallest(system: &System) -> System {
    let mut smallest = system.clone();
    for direction in (0..2 * system.links.len()).map(Direction::at) {
        if direction.device(system).is_some() && packets(system, direction) > 1 {
            smallest.links[direction.link].segments[usize::from(direction.reversed)] = Some(1);
        }
    }
    smallest
}

/// Devices named at the beginnings of these directions.
fn devices(at: &[Direction]) -> Vec<Edit> {
    let mut ends: BTreeMap<usize, [bool; 2]> = BTreeMap::new();
    at.iter().for_each(|one| ends.entry(one.link).or_default()[usize::from(one.reversed)] = true);
    ends.into_iter().map(|(link, ends)| Edit::Devices(link, ends)).collect()
}

/// Directions that late channels cross, in order.
fn crossed(system: &System, parties: &Parties, plan: &Plan) -> impl Iterator<Item = Direction> + use<> {
    let directions = directions(system);
    let late = plan.channels.iter().filter(|channel| parties.concern(system, channel));
    let mut found: Vec<usize> =
        late.flat_map(|one| &one.route).filter_map(|name| Some(directions.get(name)?.index())).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(Direction::at)
}

/// Packets that the device of a direction takes at once.
fn packets(system: &System, direction: Direction) -> u64 {
    let link = &system.links[direction.link];
    let kind = system.nodes[direction.ends(system)[0]].kind;
    at_once(link, kind, link.mtu.max(1), direction.device(system).is_some(), None)
}

fn setting(system: &System, direction: Direction, gso_max_segs: u32, because: &str) -> Setting {
    Setting {
        node: system.nodes[direction.ends(system)[0]].name.clone(),
        link: system.links[direction.link].name.clone(),
        device: direction.device(system).unwrap_or_default().to_owned(),
        gso_max_segs,
        because: because.to_owned(),
    }
}

/// The first that would be late.
fn because(system: &System, parties: &Parties, plan: &Plan) -> String {
    let late = |name: &str, bound: Option<f64>, deadline: Option<f64>| {
        let (bound, deadline) = (bound?, deadline?);
        let words = || format!("{name} would be late without it: {} of {}", show_time(bound), show_time(deadline));
        (bound > deadline).then(words)
    };
    let mut channels = plan.channels.iter().filter(|channel| parties.concern(system, channel));
    let channel = channels.find_map(|one| late(&one.subscriber, one.bound_us, one.deadline_us));
    let chain =
        || plan.chains.iter().find_map(|one| late(&format!("chain {}", one.name), one.bound_us, one.deadline_us));
    channel.or_else(chain).unwrap_or_default()
}
