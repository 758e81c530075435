//! Sessions on links that carry less than the contract says: what has no way any more is suspended; if what is left does not fit, samples are
//! thinned as far as subscribers allow, then sessions are suspended, the least important and youngest first. Pipes give way between these: first
//! what is not sold of them, then what their sessions can be thinned for, and in the end sessions in them. Pure.
//!
//! The answer depends on contract, sessions and links, and not on how it came to that: when a link is back, the same search gives back what
//! was taken.

mod concerned;
mod loads;
mod pipes;
mod search;

use crate::planning::{Admitted, Change, Present, Reduction, Unadmitted, cut, joined};
use pipes::{Shape, Stage};
use qos::contract::Contract;
use qos::contract::joined::Joined;
use qos::contract::session::Session;
use qos::placement::Watch;
use qos::show_bit_rate;
use search::Search;
use std::time::Duration;

/// Longest search for less to take back when links have just changed: then what was found so far is taken, so that a decision takes a tenth of a second.
pub const AT_ONCE: Duration = Duration::from_millis(50);
/// The same where nobody waits for it.
pub const AT_LEISURE: Duration = Duration::from_millis(500);
/// Most links that a reason names.
const NAMED: usize = 4;

/// The plan on these links, with as much of the sessions as they carry, searched for so long at most.
///
/// # Errors
/// [`Unadmitted::Unfit`]: the contract does not fit there, even without any session. [`Unadmitted::Malformed`], [`Unadmitted::Needed`]: contract and
/// sessions do not go together, on any links.
pub fn adapt(present: Present<'_>, time: Duration, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    let contract = Contract::read(present.contract).map_err(Unadmitted::Malformed)?;
    let whole = joined(present.contract, present.sessions.iter(), None)?;
    let mut base = Reduction { because: words(&contract, present), ..Reduction::default() };
    cut(present, &mut base)?;
    let mut search = Search::new(present, base, &whole, time, watch);
    if !search.overload(&[]) {
        match search.tried(&[]) {
            Err(Unadmitted::Unfit(_)) => {}
            found => return found,
        }
    }
    if search.base.because.is_empty() {
        "more was admitted than the links carry".clone_into(&mut search.base.because);
    }
    let concerned = concerned::subscribers(&whole, present.links);
    search.steps = steps(present, &contract, &whole, &|index| concerned[index])?;
    match search.all() {
        Err(Unadmitted::Unfit(_)) => {
            search.steps = steps(present, &contract, &whole, &|_| true)?;
            search.all()?;
        }
        found => drop(found?),
    }
    search.least()
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
    /// A subscriber (port and index) that wants one of `own` samples gets one of `most`.
    Scale { port: String, index: usize, own: u32, most: u32 },
    /// A pipe (port, number and index of its subscriber) that is as large as its shape has it with `own` is as large as with `most`.
    Shrink { port: String, pipe: usize, index: usize, shape: Shape, stage: Stage, own: u32, most: u32 },
    /// A session (name and index) does not run.
    Suspend { name: String, index: usize },
    /// A pipe (by its port and index) is left out.
    LeaveOut { port: String, index: usize },
}

impl Step {
    /// Its place in the order of what is taken: nothing is taken of a later one where all of those before it is enough.
    fn order(&self) -> u8 {
        match self {
            Self::Shrink { stage: Stage::Unsold, .. } => 0,
            Self::Scale { .. } => 1,
            Self::Shrink { stage: Stage::Thinned, .. } => 2,
            Self::Suspend { .. } => 3,
            Self::Shrink { stage: Stage::Displaced, .. } => 4,
            Self::LeaveOut { .. } => 5,
        }
    }

    fn take(&self, reduction: &mut Reduction) {
        match self {
            Self::Scale { port, most, .. } => drop(reduction.scaled.insert(port.clone(), *most)),
            Self::Shrink { port, shape, most, .. } => {
                let size = reduction.pipes.entry(port.clone()).or_insert_with(|| shape.at(*most));
                *size = (*size).min(shape.at(*most));
            }
            Self::Suspend { name, .. } => {
                let because = format!("{}: what is at least as important takes it", reduction.because);
                reduction.suspended.entry(name.clone()).or_insert(because);
            }
            Self::LeaveOut { port, .. } => reduction.left_out.push(port.clone()),
        }
    }
}

/// All that can be taken back of those that are concerned (subscribers, indices), in the order of [`Step::order`]: what is not sold of pipes; thinning in sessions,
/// then in the contract, then in pipes; whole sessions; sessions in pipes; whole pipes. Of pipes the lowest class comes first.
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
        let mut subscribers: Vec<_> =
            concerned.map(|index| (*index, &whole.contract.system.subscribers[*index])).collect();
        subscribers.sort_by_key(|(_, one)| one.importance);
        let step = |(index, one): (usize, &qos::system::Subscriber)| {
            let most = one.scale_max.filter(|most| *most > one.scale)?;
            Some(Step::Scale { port: one.name.clone(), index, own: one.scale, most })
        };
        subscribers.into_iter().filter_map(step).collect::<Vec<Step>>()
    };
    let own: Vec<usize> = (0..contract.system.subscribers.len() - contract.pipes.len()).collect();
    let pipes = pipes::concerned(present, contract, whole, is_concerned);
    let mut steps = pipes::shrink(&pipes, pipes::Stage::Unsold);
    steps.extend(sessions.iter().flat_map(|(.., part)| scales(&part.subscribers)));
    steps.extend(scales(&own));
    steps.extend(pipes::shrink(&pipes, pipes::Stage::Thinned));
    let concerned = sessions.iter().filter(|(.., part)| part.receivers.iter().any(|index| is_concerned(*index)));
    let suspend = |(_, std::cmp::Reverse(index), admitted, _): &(_, _, &Admitted, _)| Step::Suspend {
        name: admitted.name.clone(),
        index: *index,
    };
    steps.extend(concerned.map(suspend));
    steps.extend(pipes::shrink(&pipes, pipes::Stage::Displaced));
    steps.extend(pipes.iter().map(|pipe| Step::LeaveOut { port: pipe.port.clone(), index: pipe.index }));
    Ok(steps)
}

#[cfg(test)]
mod tests;
