//! One step of a session, here and at the domains behind.

use super::{Crossing, Domains, Effect, Leg, Phase, REPEAT, answer, choice};
use agent::peer::{Flow, Key, Menu, Message, Part, Refused, Said, Step, StepName};
use std::time::Duration;

/// Where a flow leaves this domain: its node, and the neighbour (index) behind it; without one it ends here.
pub(super) struct Target {
    node: String,
    neighbour: Option<usize>,
}

impl Phase {
    /// The step that the domains behind are asked for.
    fn step(self) -> Option<StepName> {
        match self {
            Self::Quoting => Some(StepName::Quote),
            Self::Holding => Some(StepName::Hold),
            Self::Starting | Self::Committed => Some(StepName::Commit),
            Self::Stopping => Some(StepName::Stop),
            Self::Held | Self::Lost => None,
        }
    }
}

impl Domains {
    /// Where each flow leaves this domain: never back to the one that asked.
    pub(super) fn targets(&self, flows: &[Flow], from: Option<&String>) -> Result<Vec<Target>, Refused> {
        let target = |flow: &Flow| {
            if flow.domain == self.name {
                let known =
                    self.nodes.contains_key(&flow.node).then(|| Target { node: flow.node.clone(), neighbour: None });
                return known.ok_or_else(|| Refused {
                    domain: self.name.clone(),
                    what: format!("node {} of domain {}", flow.node, self.name),
                    needs: flow.node.clone(),
                    has: "none of this name".to_owned(),
                    because: format!("{} is there, by the session", flow.subscriber),
                    ..Refused::default()
                });
            }
            let reaches = |one: &super::Neighbour| one.reach.contains(&flow.domain) && Some(&one.domain) != from;
            let index = self.neighbours.iter().position(reaches).ok_or_else(|| Refused {
                domain: self.name.clone(),
                what: format!("way from domain {} to {}", self.name, flow.domain),
                needs: "a neighbour that reaches it".to_owned(),
                has: "none".to_owned(),
                because: "no [[neighbour]] of the contract has it in `reach`".to_owned(),
                ..Refused::default()
            })?;
            Ok(Target { node: self.neighbours[index].via.clone(), neighbour: Some(index) })
        };
        flows.iter().map(target).collect()
    }

    /// The domains behind, each with its flows.
    pub(super) fn legs(&self, targets: &[Target]) -> Vec<Leg> {
        let mut legs: Vec<Leg> = Vec::new();
        for (flow, target) in targets.iter().enumerate() {
            let Some(neighbour) = target.neighbour else { continue };
            let domain = &self.neighbours[neighbour].domain;
            match legs.iter_mut().find(|leg| leg.domain == *domain) {
                Some(leg) => leg.flows.push(flow),
                None => legs.push(Leg { domain: domain.clone(), flows: vec![flow], ..Leg::default() }),
            }
        }
        legs
    }

    /// The own menu of each flow.
    pub(super) fn menus(&self, key: &Key, flows: &[Flow], targets: &[Target]) -> Result<Vec<Menu>, Refused> {
        let beside: Vec<(&Flow, &str)> = flows.iter().zip(targets).map(|(flow, to)| (flow, to.node.as_str())).collect();
        let menu = |index: usize| {
            let found = self.ledger.quote(key, &beside[..=index])?;
            let ends_here = targets[index].neighbour.is_none();
            let address = self.nodes.get(&flows[index].node).copied().flatten().filter(|_| ends_here);
            let part = |pipe: &crate::ledger::Pipe| Part {
                domain: self.name.clone(),
                pipe: pipe.name.clone(),
                bound: pipe.bound,
                price: pipe.price,
                address,
            };
            Ok(found.into_iter().map(|(class, pipe)| (class, vec![part(pipe)])).collect())
        };
        (0..beside.len()).map(menu).collect()
    }

    /// Gives the session its parts of pipes.
    pub(super) fn hold(&mut self, key: &Key, flows: &[Flow], targets: &[Target]) -> Result<(), Refused> {
        let each: Vec<(&Flow, &str)> = flows.iter().zip(targets).map(|(flow, to)| (flow, to.node.as_str())).collect();
        self.ledger.hold(key, &each)
    }

    /// Begins a step: the domains behind are asked for it. Without any it is complete.
    pub(super) fn step(&mut self, now: Duration, key: &Key, phase: Phase) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        (crossing.phase, crossing.since, crossing.sent, crossing.repeat) = (phase, now, now, REPEAT);
        crossing.failed = false;
        crossing.legs.iter_mut().for_each(|leg| leg.done = false);
        self.open.insert(key.clone());
        if crossing.legs.is_empty() { self.complete(now, key) } else { self.ask(key) }
    }

    /// The requests of the present step to those that have not answered it.
    pub(super) fn ask(&self, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get(key) else { return Vec::new() };
        let passed: Vec<String> = crossing.passed.iter().chain([&self.name]).cloned().collect();
        let request = |leg: &Leg| {
            let flows = || leg.flows.iter().filter_map(|flow| self.behind(crossing, *flow, &leg.domain)).collect();
            let step = match crossing.phase.step()? {
                StepName::Quote => Step::Quote(flows()),
                StepName::Hold => Step::Hold(flows()),
                StepName::Commit => Step::Commit,
                StepName::Stop => Step::Stop,
            };
            let message = Message::Request { key: key.clone(), passed: passed.clone(), step };
            Some(Effect::Send(leg.domain.clone(), message))
        };
        crossing.legs.iter().filter(|leg| !leg.done).filter_map(request).collect()
    }

    /// A flow as it comes into the next domain.
    fn behind(&self, crossing: &Crossing, flow: usize, domain: &str) -> Option<Flow> {
        let (one, menu) = (crossing.flows.get(flow)?, crossing.menus.get(flow)?);
        let enters = self.neighbours.iter().find(|other| other.domain == domain)?.via.clone();
        let own = |parts: &Vec<Part>| parts.first().map_or(0, |part| part.bound);
        let after = one.before.iter().filter_map(|(class, before)| {
            let parts = menu.get(class)?;
            Some((*class, before.saturating_add(own(parts))))
        });
        Some(Flow { enters, before: after.collect(), ..one.clone() })
    }

    /// The answer of a domain behind.
    pub(super) fn answered(&mut self, now: Duration, from: &str, key: &Key, step: StepName, said: Said) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        // What is not on disk yet has not been asked for.
        let unwritten = matches!(crossing.phase, Phase::Starting | Phase::Committed) && !crossing.is_written();
        let asked = crossing.phase.step() == Some(step) && !crossing.failed && !unwritten;
        let Some(leg) = crossing.legs.iter_mut().find(|leg| leg.domain == from && !leg.done).filter(|_| asked) else {
            return Vec::new();
        };
        match (said, step) {
            (Said::Done, StepName::Hold | StepName::Commit) | (Said::Done | Said::Refused(_), StepName::Stop) => {
                leg.done = true;
            }
            (Said::Menus(menus), StepName::Quote) => {
                leg.done = true;
                let flows = leg.flows.clone();
                if let Err(why) = choice::join(crossing, &flows, menus, from) {
                    return self.fail(now, key, why);
                }
            }
            (Said::Refused(why), _) => return self.fail(now, key, why),
            (Said::Done | Said::Menus(_), _) => return Vec::new(),
        }
        if crossing.legs.iter().all(|leg| leg.done) { self.complete(now, key) } else { Vec::new() }
    }

    /// All domains behind have done the present step.
    fn complete(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let is_first = crossing.passed.is_empty();
        match (crossing.phase, is_first) {
            (Phase::Quoting, false) => {
                let menus = std::mem::take(&mut crossing.menus);
                let effects = self.say(key, StepName::Quote, Said::Menus(menus));
                self.crossings.remove(key);
                effects
            }
            (Phase::Quoting, true) => self.chosen(now, key),
            (Phase::Holding, false) => {
                (crossing.phase, crossing.since) = (Phase::Held, now);
                self.say(key, StepName::Hold, Said::Done)
            }
            (Phase::Holding, true) => self.commit(now, key),
            (Phase::Committed, false) => self.say(key, StepName::Commit, Said::Done),
            (Phase::Starting, true) => self.active(now, key),
            (Phase::Stopping, _) => self.ended(key),
            _ => Vec::new(),
        }
    }

    /// At the first domain: all have committed.
    pub(super) fn active(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        if let Some(crossing) = self.crossings.get_mut(key) {
            (crossing.phase, crossing.since) = (Phase::Committed, now);
        }
        vec![self.keep(key), Effect::Told(key.clone(), Ok(()))]
    }

    /// The first domain has the menus of all: it chooses, and holds.
    fn chosen(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        if let Err(why) = choice::choose(crossing) {
            return self.fail(now, key, why);
        }
        if crossing.is_question() {
            return vec![Effect::Told(key.clone(), Ok(()))];
        }
        let Some(Crossing { asker, flows, menus, .. }) = self.crossings.remove(key) else { return Vec::new() };
        let asked = Crossing::new(key.clone(), Vec::new(), flows, now);
        let effects = self.enter(now, Crossing { asker, phase: Phase::Holding, ..asked });
        // With the parts of all domains, of which the own one comes first.
        if let Some(crossing) = self.crossings.get_mut(key) {
            crossing.menus = menus;
        }
        effects
    }

    /// A session is active, and on disk: its former versions end.
    pub(super) fn replaced(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let versions = self.versions(&key.first, &key.session).map(|one| &one.key);
        let former: Vec<Key> = versions.filter(|one| one.version < key.version).cloned().collect();
        former.iter().flat_map(|one| self.end(now, one)).collect()
    }

    /// A session has ended here and behind.
    fn ended(&mut self, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let kept = crossing.kept;
        if crossing.because.is_some() && crossing.passed.is_empty() {
            crossing.phase = Phase::Lost;
        } else {
            self.crossings.remove(key);
        }
        kept.then(|| self.keep(key)).into_iter().collect()
    }

    /// The present step cannot be done.
    pub(super) fn fail(&mut self, now: Duration, key: &Key, why: Refused) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let (phase, is_first) = (crossing.phase, crossing.passed.is_empty());
        if phase == Phase::Committed {
            // The domain before decides: it stops it, or asks again.
            crossing.failed = true;
            return self.say(key, StepName::Commit, Said::Refused(why));
        }
        let step = if phase == Phase::Quoting { StepName::Quote } else { StepName::Hold };
        let mut effects =
            if is_first { vec![Effect::Told(key.clone(), Err(why))] } else { self.say(key, step, Said::Refused(why)) };
        if phase == Phase::Quoting {
            self.crossings.remove(key);
        } else {
            effects.extend(self.end(now, key));
        }
        effects
    }

    /// Answers the domain that asked.
    pub(super) fn say(&self, key: &Key, step: StepName, said: Said) -> Vec<Effect> {
        let upstream = self.crossings.get(key).and_then(|crossing| crossing.passed.last());
        upstream.map(|to| answer(to, key, step, said)).into_iter().collect()
    }
}
