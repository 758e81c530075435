//! Sessions on links that carry less than the contract says: what has no way any more is suspended; if what is left does not fit, samples are thinned
//! as far as sessions allow, then sessions are suspended, the least important and youngest first. Pure.
//!
//! The answer depends on contract, sessions and links alone, and not on how it came to that: when a link is back, the same search gives back what
//! was taken.

use crate::planning::{Admitted, Change, Present, Reduction, Unadmitted, joined, planned};
use qos::contract::Contract;
use qos::contract::joined::Joined;
use qos::contract::session::Session;
use qos::placement::Watch;
use qos::show_bit_rate;
use std::time::Duration;

/// Longest search for less to take back: then what was found first is taken.
const REFINING: Duration = Duration::from_millis(500);
/// Most links that a reason names.
const NAMED: usize = 4;

/// The plan on these links, with as much of the sessions as they carry.
///
/// # Errors
/// [`Unadmitted::Unfit`]: the contract does not fit there, even without any session.
pub fn adapt(present: Present<'_>, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let contract = Contract::read(present.contract).map_err(Unadmitted::Malformed)?;
    let base = Reduction { because: words(&contract, present), ..Reduction::default() };
    let began = watch.elapsed();
    let mut search = Search { present, base, steps: Vec::new(), watch, began };
    match search.tried(&[]) {
        Err(Unadmitted::Unfit(_)) if !present.links.is_empty() => {}
        found => return found,
    }
    search.steps = steps(present, &contract)?;
    let (order, all) = search.enough()?;
    let taken = search.minimal(order, all)?;
    search.as_little(taken)
}

/// The links that carry less, as words.
fn words(contract: &Contract, present: Present<'_>) -> String {
    let of = |(name, rate): (&String, &u64)| {
        let stated = contract.system.links.iter().find(|link| link.name == *name)?.rate;
        Some(match rate {
            0 => format!("link {name} is down"),
            rate => {
                format!(
                    "link {name} carries {} instead of {}",
                    show_bit_rate(*rate as f64),
                    show_bit_rate(stated as f64)
                )
            }
        })
    };
    let all: Vec<String> = present.links.iter().filter_map(of).collect();
    let more = all.len().saturating_sub(NAMED);
    let named = all[..all.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// One thing that can be taken back.
#[derive(Clone, Debug)]
enum Step {
    /// Subscribers (ports) get every so many samples.
    Scale(Vec<(String, u32)>),
    /// A session does not run.
    Suspend(String),
    /// A pipe, or a subscriber of the contract, is left out.
    LeaveOut(String),
}

impl Step {
    fn take(&self, reduction: &mut Reduction) {
        match self {
            Self::Scale(ports) => reduction.scaled.extend(ports.iter().cloned()),
            Self::Suspend(name) => {
                let because = format!("{}: what is at least as important takes it", reduction.because);
                reduction.suspended.entry(name.clone()).or_insert(because);
            }
            Self::LeaveOut(name) => reduction.left_out.push(name.clone()),
        }
    }
}

/// All that can be taken back, in this order: thinning in sessions, then in the contract; whole sessions; pipes, the lowest class first.
fn steps(present: Present<'_>, contract: &Contract) -> Result<Vec<Step>, Unadmitted> {
    let mut sessions = Vec::new();
    for (age, admitted) in present.sessions.iter().enumerate() {
        let read = Session::read(&admitted.text).map_err(Unadmitted::Malformed)?;
        sessions.push((read.importance, std::cmp::Reverse(age), admitted));
    }
    sessions.sort_by_key(|(importance, age, _)| (*importance, *age));
    let whole = whole(present)?;
    let scale = |indices: &[usize]| {
        let subscribers = indices.iter().map(|index| &whole.contract.system.subscribers[*index]);
        let may =
            subscribers.filter_map(|one| Some((one.name.clone(), one.scale_max.filter(|most| *most > one.scale)?)));
        let ports: Vec<(String, u32)> = may.collect();
        (!ports.is_empty()).then_some(Step::Scale(ports))
    };
    let of_session = |admitted: &Admitted| {
        let place = present.sessions.iter().position(|one| one.name == admitted.name)?;
        scale(&whole.parts[place].subscribers)
    };
    let own: Vec<usize> = (0..contract.system.subscribers.len()).collect();
    let mut steps: Vec<Step> = sessions.iter().filter_map(|(.., admitted)| of_session(admitted)).collect();
    steps.extend(scale(&own));
    steps.extend(sessions.iter().map(|(.., admitted)| Step::Suspend(admitted.name.clone())));
    let mut pipes: Vec<_> = contract.pipes.iter().collect();
    pipes.sort_by_key(|pipe| (pipe.class, pipe.price));
    steps.extend(pipes.into_iter().map(|pipe| Step::LeaveOut(pipe.port())));
    Ok(steps)
}

/// The contract with all sessions.
fn whole(present: Present<'_>) -> Result<Joined, Unadmitted> {
    joined(present.contract, present.sessions.iter(), None)
}

struct Search<'a> {
    present: Present<'a>,
    /// What is taken back in any case.
    base: Reduction,
    steps: Vec<Step>,
    watch: &'a mut dyn Watch,
    began: Duration,
}

impl Search<'_> {
    /// The plan without what these steps (indices) take. What has no way, or needs a session that does not run, is suspended besides.
    fn tried(&mut self, taken: &[usize]) -> Result<Change, Unadmitted> {
        let mut reduction = self.base.clone();
        taken.iter().for_each(|step| self.steps[*step].take(&mut reduction));
        loop {
            let present = Present { reduction: &reduction, ..self.present };
            let (name, because) = match planned(present, None, self.watch) {
                Err(Unadmitted::Cut(name, because)) => (name, because),
                Err(Unadmitted::Needed(name, _)) => (name, "it needs a session that does not run".to_owned()),
                found => return found,
            };
            let known = self.present.sessions.iter().any(|session| session.name == name);
            if !known || reduction.suspended.insert(name.clone(), because).is_some() {
                return Err(Unadmitted::Unknown(name));
            }
        }
    }

    /// `true` if it fits without what these steps take.
    fn fits(&mut self, taken: &[usize]) -> Result<bool, Unadmitted> {
        match self.tried(taken) {
            Ok(_) => Ok(true),
            Err(Unadmitted::Unfit(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The first steps that are enough.
    fn enough(&mut self) -> Result<(Vec<usize>, usize), Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        self.tried(&order)?;
        let (mut too_few, mut enough) = (0, order.len());
        while enough - too_few > 1 {
            let middle = usize::midpoint(too_few, enough);
            if self.fits(&order[..middle])? { enough = middle } else { too_few = middle }
        }
        Ok((order, enough))
    }

    /// Of the first `enough` steps those without any of which it would not fit, the least important ones rather than others
    /// (QuickXplain, Junker 2004).
    fn minimal(&mut self, order: Vec<usize>, enough: usize) -> Result<Vec<usize>, Unadmitted> {
        let mut taken = self.explain(&[], false, &order[..enough])?;
        taken.sort_unstable();
        Ok(taken)
    }

    fn explain(&mut self, beside: &[usize], grown: bool, steps: &[usize]) -> Result<Vec<usize>, Unadmitted> {
        if self.is_late() {
            return Ok(steps.to_vec());
        }
        if grown && self.fits(beside)? {
            return Ok(Vec::new());
        }
        if steps.len() <= 1 {
            return Ok(steps.to_vec());
        }
        let (first, second) = steps.split_at(steps.len() / 2);
        let mut later = self.explain(&[beside, first].concat(), true, second)?;
        let mut earlier = self.explain(&[beside, &later].concat(), !later.is_empty(), first)?;
        earlier.append(&mut later);
        Ok(earlier)
    }

    fn is_late(&mut self) -> bool {
        self.watch.elapsed().saturating_sub(self.began) > REFINING
    }

    /// The plan with these steps, each subscriber thinned no more than needed, the most important ones first.
    fn as_little(&mut self, taken: Vec<usize>) -> Result<Change, Unadmitted> {
        for step in taken.iter().rev() {
            let Step::Scale(most) = self.steps[*step].clone() else { continue };
            let (mut too_little, mut enough) = (1, most.iter().map(|(_, scale)| *scale).max().unwrap_or(1));
            while enough - too_little > 1 && !self.is_late() {
                let middle = u32::midpoint(too_little, enough);
                self.steps[*step] = Step::Scale(at_most(&most, middle));
                if self.fits(&taken)? { enough = middle } else { too_little = middle }
            }
            self.steps[*step] = Step::Scale(at_most(&most, enough));
        }
        self.tried(&taken)
    }
}

fn at_most(most: &[(String, u32)], scale: u32) -> Vec<(String, u32)> {
    most.iter().map(|(port, most)| (port.clone(), scale.min(*most))).collect()
}

#[cfg(test)]
mod tests;
