//! Sessions on links that carry less than the contract says: what has no way any more is suspended; if what is left does not fit, samples are thinned
//! as far as subscribers allow, then sessions are suspended, the least important and youngest first. Pure.
//!
//! The answer depends on contract, sessions and links, and not on how it came to that: when a link is back, the same search gives back what
//! was taken.

mod concerned;

use crate::planning::{Change, Present, Reduction, Unadmitted, cut, joined, planned};
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
/// [`Unadmitted::Unfit`]: the contract does not fit there, even without any session. [`Unadmitted::Malformed`], [`Unadmitted::Needed`]: contract and
/// sessions do not go together, on any links.
pub fn adapt(present: Present<'_>, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let contract = Contract::read(present.contract).map_err(Unadmitted::Malformed)?;
    let whole = joined(present.contract, present.sessions.iter(), None)?;
    let mut base = Reduction { because: words(&contract, present), ..Reduction::default() };
    cut(present, &mut base)?;
    let began = watch.elapsed();
    let mut search = Search { present, base, steps: Vec::new(), watch, began };
    match search.tried(&[]) {
        Err(Unadmitted::Unfit(_)) => {}
        found => return found,
    }
    if search.base.because.is_empty() {
        "more was admitted than the links carry".clone_into(&mut search.base.because);
    }
    let concerned = concerned::subscribers(&whole, present.links);
    search.steps = steps(present, &contract, &whole, &|index| concerned[index])?;
    let enough = match search.enough() {
        Err(Unadmitted::Unfit(_)) => {
            search.steps = steps(present, &contract, &whole, &|_| true)?;
            search.enough()?
        }
        found => found?,
    };
    let taken = search.minimal(enough)?;
    search.as_little(&taken)
}

/// The links that carry less, as words.
fn words(contract: &Contract, present: Present<'_>) -> String {
    let of = |(name, rate): (&String, &u64)| {
        let stated = contract.system.links.iter().find(|link| link.name == *name)?.rate;
        Some(match rate {
            0 => format!("link {name} is down"),
            rate => {
                let [now, stated] = [*rate, stated].map(|rate| show_bit_rate(rate as f64));
                format!("link {name} carries {now} instead of {stated}")
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
    /// A subscriber (port) gets every so many samples: of the first number it wants, to the second.
    Scale(String, u32, u32),
    /// A session does not run.
    Suspend(String),
    /// A pipe (by its port) is left out.
    LeaveOut(String),
}

impl Step {
    fn take(&self, reduction: &mut Reduction) {
        match self {
            Self::Scale(port, _, scale) => drop(reduction.scaled.insert(port.clone(), *scale)),
            Self::Suspend(name) => {
                let because = format!("{}: what is at least as important takes it", reduction.because);
                reduction.suspended.entry(name.clone()).or_insert(because);
            }
            Self::LeaveOut(port) => reduction.left_out.push(port.clone()),
        }
    }
}

/// All that can be taken back of those that are concerned (subscribers, indices), in this order: thinning in sessions, then in the contract; whole
/// sessions; pipes, the lowest class first.
fn steps(
    present: Present<'_>,
    contract: &Contract,
    whole: &Joined,
    is_concerned: &dyn Fn(usize) -> bool,
) -> Result<Vec<Step>, Unadmitted> {
    let mut sessions = Vec::new();
    for (age, (admitted, part)) in present.sessions.iter().zip(&whole.parts).enumerate() {
        let read = Session::read(&admitted.text).map_err(Unadmitted::Malformed)?;
        sessions.push((read.importance, std::cmp::Reverse(age), admitted, part));
    }
    sessions.sort_by_key(|(importance, age, ..)| (*importance, *age));
    let scales = |indices: &[usize]| {
        let concerned = indices.iter().filter(|index| is_concerned(**index));
        let mut subscribers: Vec<_> = concerned.map(|index| &whole.contract.system.subscribers[*index]).collect();
        subscribers.sort_by_key(|one| one.importance);
        let step = |one: &qos::system::Subscriber| {
            let most = one.scale_max.filter(|most| *most > one.scale)?;
            Some(Step::Scale(one.name.clone(), one.scale, most))
        };
        subscribers.into_iter().filter_map(step).collect::<Vec<Step>>()
    };
    let own: Vec<usize> = (0..contract.system.subscribers.len() - contract.pipes.len()).collect();
    let mut steps: Vec<Step> = sessions.iter().flat_map(|(.., part)| scales(&part.subscribers)).collect();
    steps.extend(scales(&own));
    let concerned = sessions.iter().filter(|(.., part)| part.receivers.iter().any(|index| is_concerned(*index)));
    steps.extend(concerned.map(|(_, _, admitted, _)| Step::Suspend(admitted.name.clone())));
    let first = whole.contract.system.subscribers.len() - contract.pipes.len();
    let mut pipes: Vec<_> = contract
        .pipes
        .iter()
        .enumerate()
        .filter(|(index, _)| is_concerned(first + index))
        .map(|(_, pipe)| pipe)
        .collect();
    pipes.sort_by_key(|pipe| (pipe.class, pipe.price));
    steps.extend(pipes.into_iter().map(|pipe| Step::LeaveOut(pipe.port())));
    Ok(steps)
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
    /// The plan without what these steps (indices) take. What needs a session that does not run is suspended besides.
    fn tried(&mut self, taken: &[usize]) -> Result<Change, Unadmitted> {
        let mut reduction = self.base.clone();
        taken.iter().for_each(|step| self.steps[*step].take(&mut reduction));
        loop {
            let present = Present { reduction: &reduction, ..self.present };
            match planned(present, None, self.watch) {
                Err(Unadmitted::Needed(name, _)) if !reduction.suspended.contains_key(&name) => {
                    reduction.suspended.insert(name, "it needs a session that does not run".to_owned());
                }
                found => return found,
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

    /// The first steps that are enough: so many.
    fn enough(&mut self) -> Result<usize, Unadmitted> {
        let order: Vec<usize> = (0..self.steps.len()).collect();
        self.tried(&order)?;
        let (mut too_few, mut enough) = (0, order.len());
        while enough - too_few > 1 {
            let middle = usize::midpoint(too_few, enough);
            if self.fits(&order[..middle])? { enough = middle } else { too_few = middle }
        }
        Ok(enough)
    }

    /// Of the first `enough` steps those without any of which it would not fit, the least important ones rather than others
    /// (QuickXplain, Junker 2004).
    fn minimal(&mut self, enough: usize) -> Result<Vec<usize>, Unadmitted> {
        let order: Vec<usize> = (0..enough).collect();
        let mut taken = self.explain(&[], false, &order)?;
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
    fn as_little(&mut self, taken: &[usize]) -> Result<Change, Unadmitted> {
        for step in taken.iter().rev() {
            let Step::Scale(port, own, most) = self.steps[*step].clone() else { continue };
            let (mut too_little, mut enough) = (own, most);
            while enough - too_little > 1 && !self.is_late() {
                let middle = u32::midpoint(too_little, enough);
                self.steps[*step] = Step::Scale(port.clone(), own, middle);
                if self.fits(taken)? { enough = middle } else { too_little = middle }
            }
            self.steps[*step] = Step::Scale(port, own, enough);
        }
        self.tried(taken)
    }
}

#[cfg(test)]
mod tests;
