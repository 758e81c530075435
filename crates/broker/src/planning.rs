//! The plan of a domain: its contract with the sessions that were admitted, on the links as they are. Pure.

use crate::ledger::Demand;
use crate::links::Rates;
use crate::rules::Ask;
use agent::message::SessionChannel;
use qos::contract::joined::{JoinError, Joined, Part, join};
use qos::contract::session::Session;
use qos::contract::{Contract, ContractError, pipe};
use qos::placement::Watch;
use qos::plan::{Model, Offer, Plan, Refusal, Work, attempt, make_for, offers_for};
use qos::system::System;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Most sessions of a domain.
pub const MOST_SESSIONS: usize = 1000;

/// Most reasons that one line names.
const NAMED: usize = 4;

/// A session that was admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Its name.
    pub name: String,
    /// The identity of the user who asked for it.
    pub owner: String,
    /// The revision of the plan that it came with, or goes on with.
    pub revision: u64,
    /// The revision for which its owner asked for it last.
    #[serde(default)]
    pub asked: u64,
    /// The text of its file.
    pub text: String,
    /// The ports of its subscribers and of those to its topics.
    pub subscribers: Vec<String>,
    /// The ports of its own subscribers.
    #[serde(default)]
    pub ports: Vec<String>,
    /// bit/s of samples to all its subscribers together, without headers.
    #[serde(default)]
    pub rate: u64,
    /// The time after which it ends unless it is asked for again.
    #[serde(default)]
    pub lease: Option<Duration>,
}

impl Admitted {
    /// Its channels in a plan.
    pub fn channels(&self, plan: &Plan) -> Vec<SessionChannel> {
        let its = plan.channels.iter().filter(|channel| self.subscribers.contains(&channel.subscriber));
        let shown = |channel: &qos::plan::Channel| SessionChannel {
            topic: channel.topic.clone(),
            publisher: channel.publisher.clone(),
            subscriber: channel.subscriber.clone(),
            class: channel.class,
            bound_us: channel.bound_us,
            deadline_us: channel.deadline_us,
            scale: channel.scale,
            set: Vec::new(),
        };
        its.map(shown).collect()
    }
}

/// What is taken back as long as links carry less than the contract says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduction {
    /// The ratio of samples of each subscriber (by port) that gets fewer.
    pub scaled: BTreeMap<String, u32>,
    /// Sessions that do not run, with the reason of each.
    pub suspended: BTreeMap<String, String>,
    /// Pipes (ports) that are smaller.
    #[serde(default)]
    pub pipes: BTreeMap<String, Size>,
    /// Subscribers (ports) of the contract, and pipes, that are left out.
    pub left_out: Vec<String>,
    /// The links that are the reason.
    pub because: String,
}

/// The size of a pipe that is smaller than the contract says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// bit/s.
    pub rate: u64,
    /// Bytes at once.
    pub burst: u64,
    /// bit/s that are missing.
    pub less: u64,
}

impl Reduction {
    /// `true` if fewer sessions are suspended and pipes left out, or as many and samples are thinned less, or those, too, as much and pipes are
    /// larger.
    pub fn takes_less_than(&self, other: &Self) -> bool {
        let all = |one: &Self| {
            let thinned: u64 = one.scaled.values().map(|scale| u64::from(*scale)).sum();
            let less: u64 = one.pipes.values().map(|size| size.less).sum();
            (one.suspended.len() + one.left_out.len(), thinned, less)
        };
        all(self) < all(other)
    }
}

/// What a domain has now.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    /// The text of its contract.
    pub contract: &'a str,
    /// The links that carry less than it says.
    pub links: &'a Rates,
    /// What is taken back because of them.
    pub reduction: &'a Reduction,
    /// The sessions that were admitted.
    pub sessions: &'a [Admitted],
    /// What is sold of its pipes.
    pub sold: &'a Demand,
}

/// The sessions after a change, and the plan for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The sessions.
    pub sessions: Vec<Admitted>,
    /// The links that it is made for.
    pub links: Rates,
    /// What is taken back because of them.
    pub reduction: Reduction,
    /// The plan, which fits.
    pub plan: Plan,
    /// There was no time to look whether less would be enough to take back.
    pub hurried: bool,
}

/// The reason why a change of sessions is not made.
#[derive(Clone, Debug, PartialEq)]
pub enum Unadmitted {
    /// A file that cannot be read, or that does not go with contract and other sessions.
    Malformed(ContractError),
    /// It does not fit.
    Unfit(Vec<Refusal>),
    /// Another session refers to what would go.
    Needed(String, ContractError),
    /// No way leads to a subscriber of a session, for this reason.
    Cut(String, String),
    /// No rule of the contract permits it.
    Forbidden(Vec<Refusal>),
    /// It is another user's.
    Anothers(String),
    /// There is no session of this name.
    Unknown(String),
    /// There are as many as allowed.
    TooMany,
}

impl fmt::Display for Unadmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => error.fmt(f),
            Self::Unfit(refusals) => limits(f, "it does not fit beside what is admitted", refusals),
            Self::Forbidden(refusals) => limits(f, "no rule of the contract permits it", refusals),
            Self::Needed(by, error) => write!(f, "the session {by} needs it, in its line {error}; stop that one first"),
            Self::Cut(name, because) => write!(f, "the session {name} has no way: {because}"),
            Self::Anothers(owner) => write!(f, "the session belongs to {owner}, who may change or stop it"),
            Self::Unknown(name) => write!(f, "there is no session {name}; `thalweg session list` shows all"),
            Self::TooMany => write!(f, "there are {MOST_SESSIONS} sessions, which is the limit: stop one first"),
        }
    }
}

fn limits(f: &mut fmt::Formatter<'_>, said: &str, refusals: &[Refusal]) -> fmt::Result {
    let what: Vec<&str> = refusals.iter().take(NAMED).map(|refusal| refusal.what.as_str()).collect();
    write!(f, "{said}: {}", what.join(", "))?;
    match refusals.len() - what.len() {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl std::error::Error for Unadmitted {}

/// A contract with sessions. An error in another session than the one that is `asked` for is what that one needs.
pub(crate) fn joined<'a>(
    contract: &str,
    sessions: impl Iterator<Item = &'a Admitted>,
    asked: Option<&str>,
) -> Result<Joined, Unadmitted> {
    let read = |one: &Admitted| {
        let (name, lease, text, abroad) = (one.name.clone(), one.lease, one.text.clone(), Vec::new());
        Session { name, lease, importance: 0, text, abroad }
    };
    let all: Vec<Session> = sessions.map(read).collect();
    join(contract, &all.iter().collect::<Vec<_>>()).map_err(|error| match error {
        JoinError::Contract(error) => Unadmitted::Malformed(error),
        JoinError::Session(index, error) if asked == Some(&all[index].name) => Unadmitted::Malformed(error),
        JoinError::Session(index, error) => Unadmitted::Needed(all[index].name.clone(), error),
    })
}

/// The plan of what a domain has.
///
/// # Errors
/// [`Unadmitted`]
pub fn planned(present: Present<'_>, asked: Option<&str>, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    made(present, asked, |part, contract| {
        // Without an asker there is nothing that may be changed.
        make_for(&part, contract, Model::Bound, Work::of(&contract.system), watch)
    })
}

/// The offers for a session (name) until this time, with so many steps for all of them together. `None`: it fits as it is.
///
/// # Errors
/// [`Unadmitted`], but not [`Unadmitted::Unfit`].
pub(crate) fn offered(
    present: Present<'_>,
    asked: &str,
    (until, steps): (Duration, u64),
    watch: &mut dyn Watch,
) -> Result<Option<Vec<Offer>>, Unadmitted> {
    let running = Running::of(present, Some(asked))?;
    let contract = &running.joined.contract;
    let work = Work { offers: steps, time: until, ..Work::of(&contract.system) };
    Ok(offers_for(&running.part(Some(asked)), contract, Model::Bound, work, watch))
}

/// The plan of what a domain has, without reasons, which take longer than itself: [`Unadmitted::Unfit`] has none.
///
/// # Errors
/// [`Unadmitted`]
pub fn attempted(present: Present<'_>, watch: &mut dyn Watch) -> Result<Change, Unadmitted> {
    made(present, None, |_, contract| attempt(contract, Model::Bound, watch))
}

fn made(
    present: Present<'_>,
    asked: Option<&str>,
    make: impl FnOnce(Part, &Contract) -> Plan,
) -> Result<Change, Unadmitted> {
    let all = Running::of(present, asked)?;
    let plan = make(all.part(asked), &all.joined.contract);
    let Running { sessions: running, joined, own, reduction } = all;
    if !plan.feasible {
        return Err(Unadmitted::Unfit(plan.refusals));
    }
    let ports = |part: &Part| {
        part.receivers.iter().map(|index| joined.contract.system.subscribers[*index].name.clone()).collect()
    };
    let ports: BTreeMap<&str, Vec<String>> =
        running.iter().zip(&joined.parts).map(|(session, part)| (session.name.as_str(), ports(part))).collect();
    let with = |session: &Admitted| {
        let subscribers = ports.get(session.name.as_str()).unwrap_or(&session.subscribers).clone();
        let own = own.get(&session.name).cloned();
        let Own { ports, rate } = own.unwrap_or_else(|| Own { ports: session.ports.clone(), rate: session.rate });
        Admitted { subscribers, ports, rate, ..session.clone() }
    };
    let sessions = present.sessions.iter().map(with).collect();
    Ok(Change { sessions, links: present.links.clone(), reduction, plan, hurried: false })
}

/// What runs of a domain, on its links as they are.
struct Running<'a> {
    sessions: Vec<&'a Admitted>,
    /// Contract and sessions, without what is taken back.
    joined: Joined,
    /// What each session has by itself.
    own: BTreeMap<String, Own>,
    /// What is taken back.
    reduction: Reduction,
}

impl<'a> Running<'a> {
    fn of(present: Present<'a>, asked: Option<&str>) -> Result<Self, Unadmitted> {
        let Present { contract, links, reduction, sessions, .. } = present;
        let mut reduction = reduction.clone();
        let sessions = running(sessions, &reduction);
        let mut joined = joined(contract, sessions.iter().copied(), asked)?;
        let unfit = on(&mut joined, links);
        if let Some((name, because)) = without_way(&joined, &sessions, links).into_iter().next() {
            return Err(Unadmitted::Cut(name, because));
        }
        let each = sessions.iter().zip(&joined.parts);
        let own = each.map(|(one, part)| (one.name.clone(), Own::of(&joined, part))).collect();
        reduce(&mut joined, unfit, &mut reduction);
        Ok(Self { sessions, joined, own, reduction })
    }

    /// The part of a session (name); nothing without a name.
    fn part(&self, name: Option<&str>) -> Part {
        let mut each = self.sessions.iter().zip(&self.joined.parts);
        let found = each.find(|(session, _)| name == Some(session.name.as_str()));
        found.map(|(_, part)| part.clone()).unwrap_or_default()
    }
}

/// What a session has by itself, whatever is taken back.
#[derive(Clone, Debug)]
struct Own {
    ports: Vec<String>,
    rate: u64,
}

impl Own {
    fn of(joined: &Joined, part: &Part) -> Self {
        let system = &joined.contract.system;
        let ports = part.subscribers.iter().map(|index| system.subscribers[*index].name.clone()).collect();
        Self { ports, rate: Ask::of(system, part).rate }
    }
}

/// Suspends the sessions that have no way on these links, and those that need them.
pub(crate) fn cut(present: Present<'_>, reduction: &mut Reduction) -> Result<(), Unadmitted> {
    let Present { contract, links, sessions, .. } = present;
    if !links.values().any(|rate| *rate == 0) {
        return Ok(());
    }
    loop {
        let running = running(sessions, reduction);
        let mut joined = match joined(contract, running.iter().copied(), None) {
            Err(Unadmitted::Needed(name, _)) if !reduction.suspended.contains_key(&name) => {
                reduction.suspended.insert(name, "it needs a session that does not run".to_owned());
                continue;
            }
            found => found?,
        };
        on(&mut joined, links);
        let found = without_way(&joined, &running, links);
        if found.is_empty() {
            return Ok(());
        }
        reduction.suspended.extend(found);
    }
}

pub(crate) fn running<'a>(sessions: &'a [Admitted], reduction: &Reduction) -> Vec<&'a Admitted> {
    sessions.iter().filter(|one| !reduction.suspended.contains_key(&one.name)).collect()
}

/// The links as they are. Gives the pipes (ports) that cannot be planned there.
pub(crate) fn on(joined: &mut Joined, links: &Rates) -> Vec<String> {
    for link in &mut joined.contract.system.links {
        match links.get(&link.name) {
            Some(0) => link.down = true,
            Some(rate) => link.rate = link.rate.min(*rate),
            None => {}
        }
    }
    if links.is_empty() { Vec::new() } else { pipe::replan(&mut joined.contract) }
}

/// The sessions a part of which no way leads to, each with the reason.
fn without_way(joined: &Joined, running: &[&Admitted], links: &Rates) -> Vec<(String, String)> {
    let gone = if links.values().any(|rate| *rate == 0) { joined.unreachable() } else { Vec::new() };
    let System { subscribers, chains, .. } = &joined.contract.system;
    let is_gone = |index: &usize| gone.binary_search(index).is_ok();
    let down: Vec<&str> = links.iter().filter(|(_, rate)| **rate == 0).map(|(name, _)| name.as_str()).collect();
    let of = |(session, part): (&&Admitted, &Part)| {
        let of_chains = part.chains.iter().flat_map(|chain| &chains[*chain].parts).map(|part| part.subscriber);
        let cut = part.subscribers.iter().copied().chain(of_chains).find(is_gone)?;
        let because = format!("no way leads to {}: down is {}", subscribers[cut].name, down.join(", "));
        Some((session.name.clone(), because))
    };
    running.iter().zip(&joined.parts).filter_map(of).collect()
}

/// Thins subscribers, makes pipes smaller, and leaves out those of the contract that no way leads to, and pipes.
fn reduce(joined: &mut Joined, unfit: Vec<String>, reduction: &mut Reduction) {
    let unreachable = joined.unreachable();
    let pipes = joined.contract.pipes.iter().enumerate();
    let sizes = pipes.filter_map(|(index, pipe)| {
        let size = reduction.pipes.get(&pipe.port())?;
        Some((index, size.rate, size.burst))
    });
    let sizes: Vec<(usize, u64, u64)> = sizes.collect();
    if !sizes.is_empty() {
        pipe::resize(&mut joined.contract, &sizes);
    }
    let subscribers = &mut joined.contract.system.subscribers;
    for subscriber in subscribers.iter_mut() {
        let scale = reduction.scaled.get(&subscriber.name);
        // A port without a name of its own may be called so where other sessions run.
        if let Some(scale) = scale.filter(|scale| subscriber.scale_max.is_some_and(|most| most >= **scale)) {
            subscriber.scale = subscriber.scale.max(*scale);
        }
    }
    reduction.left_out.extend(unreachable.iter().map(|index| subscribers[*index].name.clone()).chain(unfit));
    reduction.left_out.sort_unstable();
    reduction.left_out.dedup();
    let is_left_out = |index: &usize| reduction.left_out.binary_search(&subscribers[*index].name).is_ok();
    let gone: Vec<usize> = (0..subscribers.len()).filter(is_left_out).collect();
    joined.leave_out(&gone);
}

/// A clock that stands still: planners of tests have all the time.
#[cfg(test)]
pub(crate) struct Patient;

#[cfg(test)]
impl Watch for Patient {
    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}
