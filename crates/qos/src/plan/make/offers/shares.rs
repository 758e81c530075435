//! Shares of classes (`htb`, `hfsc`): a larger one for a class that is late, from what the others have beyond their load.

use super::super::parties::{Parties, directions};
use super::edit::Edit;
use super::{Computed, Search};
use crate::Class;
use crate::plan::{Link, Plan};
use crate::quantity::show_share;
use crate::system::System;
use std::collections::BTreeMap;

/// A class has at least this much more than its load, in thousandths of the link.
const LEAST: u32 = 10;
/// Steps between the share of a class and the largest one that the others leave it.
const STEPS: u32 = 16;
/// Most links of which each is changed alone.
const ALONE: usize = 4;

impl Search<'_> {
    /// A larger share for a class of late channels: on one link, or else on all that share and that they cross.
    pub(super) fn shares(&mut self, parties: &Parties, computed: &Computed) {
        for (class, links) in narrow(self.system, parties, computed) {
            let alone = links.iter().take(ALONE).map(std::slice::from_ref).collect::<Vec<_>>();
            let found = alone.into_iter().find_map(|one| self.enough(class, one));
            let found = found.or_else(|| if links.len() > 1 { self.enough(class, &links) } else { None });
            if let Some((edits, words)) = found {
                return self.offer(0.05, words, &edits);
            }
        }
    }

    /// The least step with which it fits, if there is one, to a quarter of them.
    fn enough(&mut self, class: Class, links: &[Shares]) -> Option<(Vec<Edit>, String)> {
        let edits = |step: u32| -> Vec<Edit> {
            let more = links.iter().filter_map(|link| Some((link.link, link.with(class, step)?)));
            more.map(|(link, shares)| Edit::Shares(link, shares)).collect()
        };
        // More for one class is less for the others, so it may be too much, too.
        let coarse = (1..=4).map(|quarter| quarter * STEPS / 4);
        let mut enough = coarse.into_iter().find(|step| !edits(*step).is_empty() && self.fits(&edits(*step)))?;
        let mut little = enough - STEPS / 4;
        while enough - little > 1 {
            let middle = little + (enough - little) / 2;
            if self.fits(&edits(middle)) { enough = middle } else { little = middle }
        }
        let words = links.iter().filter_map(|link| Some(link.words(self.system, &link.with(class, enough)?)));
        Some((edits(enough), words.collect::<Vec<_>>().join("; ")))
    }
}

/// The shares of a link, in thousandths, in the order of [`Class::ALL`].
struct Shares {
    link: usize,
    now: [u32; 4],
    /// What each class has to keep.
    least: [u32; 4],
    /// What all classes together may have: queues beside theirs have the rest.
    all: u32,
}

impl Shares {
    /// With this step more for a class, to a hundredth; `None`: the others have nothing to give.
    fn with(&self, class: Class, step: u32) -> Option<[u32; 4]> {
        let (at, mut shares) = (class as usize, self.now);
        let others = || (0..4).filter(|other| *other != at);
        let most = self.all.checked_sub(others().map(|other| self.least[other]).sum())?;
        let more = most.checked_sub(self.now[at]).filter(|more| *more > 0)? * step;
        shares[at] = (self.now[at] + more.div_ceil(STEPS)).next_multiple_of(10).min(most);
        // First what nobody has, then from those that have the most to spare.
        let mut missing = shares.iter().sum::<u32>().saturating_sub(self.all);
        while missing > 0 {
            let spare = |other: &usize| shares[*other].saturating_sub(self.least[*other]);
            let from = others().max_by_key(spare).filter(|other| spare(other) > 0)?;
            let part = missing.min(10).min(spare(&from));
            shares[from] -= part;
            missing -= part;
        }
        Some(shares)
    }

    fn words(&self, system: &System, new: &[u32; 4]) -> String {
        let changed = Class::ALL.into_iter().rev().filter(|class| new[*class as usize] != self.now[*class as usize]);
        let word = |class: Class| {
            let [new, now] = [new, &self.now].map(|shares| share(shares[class as usize]));
            format!("{class} {new} instead of {now}")
        };
        let words: Vec<String> = changed.map(word).collect();
        format!("shares of link {:?}: {}", system.links[self.link].name, words.join(", "))
    }
}

/// Thousandths as a contract has them.
pub(super) fn share(thousandths: u32) -> String {
    show_share(f64::from(thousandths) / 1000.0)
}

/// The links with shares that late channels cross, by their class there, the lowest first.
fn narrow(system: &System, parties: &Parties, computed: &Computed) -> Vec<(Class, Vec<Shares>)> {
    let Computed { plan, loads, .. } = computed;
    if loads.is_empty() {
        return Vec::new();
    }
    let directions = directions(system);
    let mut found: BTreeMap<Class, BTreeMap<usize, Shares>> = BTreeMap::new();
    for channel in plan.channels.iter().filter(|channel| parties.concern(system, channel)) {
        for direction in channel.route.iter().filter_map(|name| directions.get(name)) {
            if let Some(shares) = shares(plan, loads, direction.index()) {
                found.entry(channel.class).or_default().entry(shares.link).or_insert(shares);
            }
        }
    }
    found.into_iter().map(|(class, links)| (class, links.into_values().collect())).collect()
}

fn shares(plan: &Plan, loads: &[[f64; 4]], direction: usize) -> Option<Shares> {
    let now = plan.links[direction].shares?.map(|share| (share * 1000.0 + 1e-6) as u32);
    // A link has the same shares in both directions.
    let least = [0, 1, 2, 3].map(|class| {
        let load = loads[direction][class].max(loads[direction ^ 1][class]);
        ((load * 1000.0).ceil() as u32).saturating_add(LEAST).min(now[class])
    });
    let part = |direction: usize| (beside(plan, &plan.links[direction]) * 1000.0).ceil() as u32;
    let all = 1000_u32.saturating_sub(part(direction).max(part(direction ^ 1)));
    Some(Shares { link: direction / 2, now, least, all })
}

/// The part of a link that control traffic and channels' own queues before it have.
fn beside(plan: &Plan, link: &Link) -> f64 {
    let own = plan.channels.iter().filter(|channel| channel.publisher == link.from);
    let own = own.filter_map(|channel| channel.own_queue.as_ref()).filter(|own| own.link == link.name);
    let control = link.control.as_ref().map(|queue| queue.rate_bits_per_s);
    own.map(|own| own.rate_bits_per_s).chain(control).map(|rate| rate as f64).sum::<f64>() / link.rate_bits_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_give_what_they_have_beyond_their_load() {
        let shares = Shares { link: 0, now: [200, 450, 300, 50], least: [110, 410, 150, 20], all: 1000 };
        let with = |step| shares.with(Class::High, step);
        // At most 1000 - 110 - 410 - 20 = 460.
        assert_eq!(with(4), Some([160, 450, 340, 50]));
        assert_eq!(with(STEPS), Some([110, 410, 460, 20]));
        let beside = Shares { now: [200, 450, 290, 50], all: 990, ..shares };
        assert_eq!(beside.with(Class::High, STEPS), Some([110, 410, 450, 20]), "queues beside keep theirs");
        let spare = Shares { now: [100, 200, 300, 50], ..shares };
        assert_eq!(spare.with(Class::High, 1), Some([100, 200, 310, 50]), "what nobody has goes first");
        let full = Shares { link: 0, now: [10, 10, 970, 10], least: [10; 4], all: 1000 };
        assert_eq!(full.with(Class::High, STEPS), None);
    }
}
