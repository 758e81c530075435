//! Offers by kind.

use super::super::paces;
use super::super::parties::Parties;
use super::edit::Edit;
use super::{GIVING, Search, rounded_up};
use crate::Class;
use crate::quantity::show_bytes;
use crate::system::{self, ChainPart, Proxies, Sched, Transport};

/// The largest factor on a subscriber's scale that is tried.
const SCALE: u32 = 64;
/// Paces of a topic that are tried.
const PACES: u32 = 4;

impl Search<'_> {
    /// A class higher for the late topics.
    pub(super) fn classes(&mut self, parties: &Parties) {
        let mut topics: Vec<usize> =
            parties.late.iter().map(|(index, _)| self.system.subscribers[*index].topic).collect();
        let parts = parties.chains.iter().flat_map(|(chain, _)| &self.system.chains[*chain].parts);
        topics.extend(parts.map(|part| self.system.subscribers[part.subscriber].topic));
        topics.dedup();
        topics.retain(|topic| self.may_change_topic(*topic));
        for topic in topics.into_iter().take(GIVING) {
            let name = &self.system.topics[topic].name;
            let now = self.system.topics[topic].class.unwrap_or_default();
            for class in Class::ALL.into_iter().filter(|class| *class > now) {
                let edit = Edit::Class(topic, class);
                if self.fits(std::slice::from_ref(&edit)) {
                    self.offer(0.0, format!("class {class} instead of {now} for topic {name:?}"), &[edit]);
                    break;
                }
            }
        }
    }

    /// The slowest pace of a topic of many packets, so that others come between them.
    pub(super) fn paces(&mut self) {
        let system = self.system;
        let large = paces::large(system, self.model).into_iter();
        let own: Vec<usize> = large.filter(|topic| self.may_change_topic(*topic)).take(GIVING).collect();
        for index in own {
            let topic = &system.topics[index];
            let rates = (0..PACES).map(|number| paces::rate(topic, number));
            let edits = rates.map(|rate| Edit::Pace(index, rate)).collect::<Vec<_>>();
            if let Some(edit) = edits.into_iter().find(|edit| self.fits(std::slice::from_ref(edit))) {
                self.offer(0.05, edit.words(system), &[edit]);
            }
        }
    }

    /// Fixed priorities for the threads of a topic that reserves more than a node has. They promise less to the others.
    pub(super) fn unreserved(&mut self) {
        let system = self.system;
        let reserves = |(index, topic): &(usize, &system::Topic)| {
            topic.publishers.iter().any(|node| system.sched(*node, *index, None) == Sched::Reserved)
        };
        let reserving: Vec<(usize, &system::Topic)> = system.topics.iter().enumerate().filter(reserves).collect();
        let own = reserving.into_iter().filter(|(index, _)| self.may_change_topic(*index)).take(GIVING);
        for (index, topic) in own.collect::<Vec<_>>() {
            if self.fits(&[Edit::Priority(index)]) {
                let what = format!("fixed priorities instead of reservations for topic {:?}", topic.name);
                self.offer(0.4, what, &[Edit::Priority(index)]);
            }
        }
    }

    /// Proxies and links that subscribers share.
    pub(super) fn sharing(&mut self) {
        let placement = &self.system.placement;
        if placement.proxies != Proxies::Merged && self.fits(&[Edit::Merged]) {
            self.offer(0.1, "one proxy for all equal requests".to_owned(), &[Edit::Merged]);
        }
        if placement.transport != Transport::Multicast && self.fits(&[Edit::Multicast]) {
            self.offer(0.2, "multicast instead of a copy for each subscriber".to_owned(), &[Edit::Multicast]);
        }
        let system = self.system;
        for (index, node) in system.nodes.iter().enumerate().filter(|(_, node)| !node.proxy).take(GIVING) {
            if self.fits(&[Edit::Proxy(index)]) {
                self.offer(0.3, format!("proxies at node {:?}", node.name), &[Edit::Proxy(index)]);
            }
        }
    }

    /// The smallest scale that makes room.
    pub(super) fn scale(&mut self, index: usize) {
        // What its callback publishes would come at another rate.
        let causes = |parts: &[ChainPart]| parts[0].subscriber == index && !parts[1].sampled;
        if self.system.chains.iter().any(|chain| chain.parts.windows(2).any(causes)) {
            return;
        }
        let subscriber = &self.system.subscribers[index];
        let (now, name) = (subscriber.scale, subscriber.name.clone());
        let factors =
            std::iter::successors(Some(2_u32), |factor| Some(factor * 2)).take_while(|factor| *factor <= SCALE);
        let scales: Vec<u32> = factors.map(|factor| now.saturating_mul(factor)).collect();
        let Some(mut enough) = scales.into_iter().find(|scale| self.fits(&[Edit::Scale(index, *scale)])) else {
            return;
        };
        let mut little = (enough / 2).max(now);
        while enough - little > 1 {
            let middle = little + (enough - little) / 2;
            if self.fits(&[Edit::Scale(index, middle)]) { enough = middle } else { little = middle }
        }
        let cost = self.cost(index, 1.0 - f64::from(now) / f64::from(enough));
        let what = format!("scale {enough} instead of {now} for {name}");
        self.offer(cost, what, &[Edit::Scale(index, enough)]);
    }

    /// The largest picture (in bytes) that leaves room, to a sixteenth.
    pub(super) fn size(&mut self, index: usize) {
        let subscriber = &self.system.subscribers[index];
        let now = subscriber.scaled_size.unwrap_or(self.system.topics[subscriber.topic].size);
        let name = subscriber.name.clone();
        let halves = std::iter::successors(Some(now / 2), |size| Some(size / 2)).take_while(|size| *size >= 256);
        let Some(mut fits) = halves.into_iter().find(|size| self.fits(&[Edit::Size(index, *size)])) else { return };
        let mut large = fits.saturating_mul(2).min(now);
        while large - fits > now / 16 {
            let middle = fits + (large - fits) / 2;
            if self.fits(&[Edit::Size(index, middle)]) { fits = middle } else { large = middle }
        }
        let what = format!("samples of {} instead of {} for {name}", show_bytes(fits), show_bytes(now));
        let cost = self.cost(index, 1.0 - fits as f64 / now as f64);
        self.offer(cost, what, &[Edit::Size(index, fits)]);
    }

    /// Deadlines as late as samples come.
    pub(super) fn deadlines(&mut self, parties: &Parties) {
        let others = parties.late.iter().any(|(index, _)| !self.may_change_subscriber(*index));
        if others || parties.chains.iter().any(|(index, _)| !self.may_change_chain(*index)) {
            return;
        }
        let mut edits = Vec::new();
        let mut cost = 0.0_f64;
        for (index, delay) in &parties.late {
            let Some(deadline) = self.system.subscribers[*index].deadline else { continue };
            let Some(longer) = delay.map(rounded_up) else { return };
            cost = cost.max(self.cost(*index, longer as f64 / deadline as f64 - 1.0));
            edits.push(Edit::Deadline(*index, longer));
        }
        for (index, bound) in &parties.chains {
            let Some(deadline) = self.system.chains[*index].deadline else { continue };
            let Some(longer) = bound.map(rounded_up) else { return };
            cost = cost.max(longer as f64 / deadline as f64);
            edits.push(Edit::ChainDeadline(*index, longer));
        }
        if !edits.is_empty() && self.fits(&edits) {
            let words: Vec<String> = edits.iter().map(|edit| edit.words(self.system)).collect();
            self.offer(cost, words.join(", "), &edits);
        }
    }

    /// The least important ones left out, as few as it takes.
    pub(super) fn leaving_out(&mut self, parties: &Parties) {
        let mut out = Vec::new();
        for index in parties.giving.iter().take(4 * GIVING) {
            out.push(*index);
            let cut = |chain: &system::Chain| chain.parts.iter().any(|part| out.contains(&part.subscriber));
            let chains = self.system.chains.iter().enumerate().filter(|(_, chain)| cut(chain));
            if chains.clone().any(|(index, _)| !self.may_change_chain(index)) {
                out.pop(); // another's chain needs it
                continue;
            }
            let (chains, mut names): (Vec<Edit>, Vec<String>) =
                chains.map(|(index, chain)| (Edit::WithoutChain(index), format!("chain {:?}", chain.name))).unzip();
            let edits: Vec<Edit> = out.iter().map(|index| Edit::Without(*index)).chain(chains).collect();
            if self.fits(&edits) {
                names.splice(0..0, out.iter().map(|index| self.system.subscribers[*index].name.clone()));
                let cost = 1e9 + out.len() as f64;
                self.offer(cost, format!("without {}", names.join(", ")), &edits);
                return;
            }
        }
    }
}
