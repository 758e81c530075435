//! From a contract to its plan.
//!
//! | module | contents |
//! |---|---|
//! | `answer` | places of the proxies, and the analysis of them |
//! | `budgets` | latency budgets that the plan computes, tried |
//! | `delay` | the delay of a channel: bounds by the analysis of processors and links, or by the closed forms of the papers |
//! | `chain` | chains over several topics: sums of channels |
//! | `own` | queues of channels' own |
//! | `paces` | paces that the plan computes, tried |
//! | `path` | the links that a channel crosses, and what crosses them |
//! | `refusal` | reasons why not all fits |
//! | `parties` | who is late, and who can give way |
//! | `shown` | channels, links, nodes and proxies as the plan shows them |
//! | `trials` | plans that are tried, within limits |
//! | `offers` | settings of hosts, or changes of the contract, with which it fits, tried |

mod answer;
mod budgets;
mod chain;
mod delay;
mod offers;
mod own;
mod paces;
mod parties;
mod path;
mod refusal;
mod shown;
mod trials;

use super::{Channel, For, Model, Offer, Plan, Setting, border, settle};
use crate::analysis::Steps;
use crate::analysis::chain::Unsteady;
use crate::analysis::stages::Classes;
use crate::contract::Contract;
use crate::contract::joined::Part;
use crate::network::Network;
use crate::placement::{Effort, Watch};
use crate::system::System;
use answer::{Answer, answer};
use delay::{Bounds, delay};
use offers::{WayOut, settings, smallest, way_out};
use path::{Path, loads, paths};
use shown::{channel, links, nodes, proxy, solver};
use std::time::Duration;

/// Limits of the work on a plan, and on all plans that are tried for offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Steps of the plan itself, and at most as many of each that is tried.
    pub plan: u64,
    /// Steps of all that are tried together. 0: no offers.
    pub offers: u64,
    /// Time since the work began after which no further one is tried. Each placement has as much, and 30 s at most.
    pub time: Duration,
}

impl Work {
    /// As much as a system of this size may take.
    pub fn of(system: &System) -> Self {
        Self { plan: Steps::of(system).left(), offers: OFFERS, time: Duration::MAX }
    }

    /// The effort for the placement of a plan of which no reasons are asked.
    fn effort(&self) -> Effort {
        let usual = Effort::default();
        Effort { time: usual.time.min(self.time), explain: false, ..usual }
    }
}

/// Steps of all plans that are tried for offers: a second.
const OFFERS: u64 = 100_000_000;

/// Plans a contract: places its proxies, and computes each channel's delay by a model.
///
/// In every model, no link may carry more than its rate, in bytes on the wire. If not everything fits the plan gives
/// the reason, and shows the result with every proxy at its publisher.
pub fn make(contract: &Contract, model: Model, watch: &mut dyn Watch) -> Plan {
    make_within(contract, model, Work::of(&contract.system), watch)
}

/// The same within so much work, for the asker of a part of the contract: offers change nothing but that part.
pub fn make_for(part: &Part, contract: &Contract, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    planned(contract, Some(part), model, work, watch)
}

/// The offers for the asker of a part of the contract alone: without a plan, and without reasons, which take longer. `None`: the contract fits as it is.
pub fn offers_for(
    part: &Part,
    contract: &Contract,
    model: Model,
    work: Work,
    watch: &mut dyn Watch,
) -> Option<Vec<Offer>> {
    let system = &contract.system;
    let mut computed = compute(system, model, &Steps::new(work.plan), work.effort(), watch);
    if !computed.plan.feasible {
        computed = paces::slowest(system, computed, work, watch).1;
    }
    if computed.plan.feasible {
        return None;
    }
    match way_out(system, Some(part), &computed, work, watch) {
        WayOut::Settings(_) => None,
        WayOut::Offers(offers) => Some(offers),
    }
}

/// The plan of a contract, but without reasons and offers where it does not fit: the search for them may take ten times as long as the plan.
pub fn attempt(contract: &Contract, model: Model, watch: &mut dyn Watch) -> Plan {
    let work = Work::of(&contract.system);
    let effort = Effort { explain: false, ..Effort::default() };
    let computed = compute(&contract.system, model, &Steps::new(work.plan), effort, watch);
    let (system, mut computed) = paces::slowest(&contract.system, computed, work, watch);
    if !computed.plan.feasible
        && let Some(settings) = settings(&contract.system, &computed, work, watch)
    {
        computed = settled(contract, settings, model, work, watch);
    }
    finished(contract, &system, computed, work, watch)
}

/// The plan with what it computes of itself: paces that the system does not have yet, and with these latency budgets.
fn finished(contract: &Contract, system: &System, computed: Computed, work: Work, watch: &mut dyn Watch) -> Plan {
    let (system, computed) = paces::slowest(system, computed, work, watch);
    let mut plan = budgets::widest(&system, computed, work, watch).plan;
    plan.contract.hash = format!("{:016x}", contract.hash);
    (plan.tunnels, plan.borders) = (border::tunnels(contract), border::borders(contract));
    plan
}

/// `true` if a system fits in model `bound`, with whatever settings of its hosts that takes: the decision of [`attempt`], in less time, because nothing is
/// shown of it.
pub fn fits(system: &System, watch: &mut dyn Watch) -> bool {
    let (system, steps) = (smallest(system), Steps::new(Work::of(system).plan));
    let effort = || Effort { explain: false, ..Effort::default() };
    let network = Network::new(&system);
    if answer(&system, &network, Model::Bound, &steps, effort(), watch).fits(&system, &network) {
        return true;
    }
    paces::asks(&system) && {
        let work = Work::of(&system);
        let computed = compute(&system, Model::Bound, &Steps::new(work.plan), effort(), watch);
        paces::slowest(&system, computed, work, watch).1.plan.feasible
    }
}

/// The same with less work: bounds and offers that it does not suffice for are missing.
pub fn make_within(contract: &Contract, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    planned(contract, None, model, work, watch)
}

fn planned(contract: &Contract, part: Option<&Part>, model: Model, work: Work, watch: &mut dyn Watch) -> Plan {
    let steps = Steps::new(work.plan);
    let computed = compute(&contract.system, model, &steps, Effort::default(), watch);
    let (system, mut computed) = paces::slowest(&contract.system, computed, work, watch);
    if !computed.plan.feasible {
        match way_out(&contract.system, part, &computed, work, watch) {
            WayOut::Settings(settings) => computed = settled(contract, settings, model, work, watch),
            WayOut::Offers(offers) => {
                computed.plan.refusals.iter_mut().for_each(|refusal| refusal.offers.clone_from(&offers));
            }
        }
    }
    finished(contract, &system, computed, work, watch)
}

/// The plan with settings of its hosts.
fn settled(contract: &Contract, settings: Vec<Setting>, model: Model, work: Work, watch: &mut dyn Watch) -> Computed {
    let system = settle(&contract.system, &settings);
    let mut computed = compute(&system, model, &Steps::new(work.plan), Effort::default(), watch);
    computed.plan.settings = settings;
    computed
}

/// A plan without offers, and what the search for them needs besides.
struct Computed {
    plan: Plan,
    /// The topics that come less evenly than the contract states.
    unsteady: Vec<Unsteady>,
    /// The part of each direction of each link that each class takes, background included; empty in models without an analysis.
    loads: Vec<[f64; 4]>,
}

/// The plan of a system, without offers, with these steps for its analyses and this effort for each of its placements.
fn compute(system: &System, model: Model, steps: &Steps, effort: Effort, watch: &mut dyn Watch) -> Computed {
    let network = Network::new(system);
    let Answer { found, placed, bounds } = answer(system, &network, model, steps, effort, watch);
    let classes = bounds.as_ref().map_or_else(|| Classes::stated(system), Bounds::classes);
    let paths = paths(system, &network, &placed);
    let queues = delay::publishers(system);
    let channel = |path: &Path| {
        let (topic, publisher, subscriber) = (path.subscriber.topic, path.publisher, path.index);
        let [sched_publisher, sched] =
            bounds.as_ref().map(|bounds| bounds.scheduling(topic, publisher, subscriber)).unwrap_or_default();
        let delay = delay(system, path, model, &bounds);
        let percentiles = delay::percentiles(system, path, model, &queues);
        Channel {
            sched,
            sched_publisher,
            percentiles,
            own_queue: path.own_queue(system, bounds.as_ref()),
            ..channel(system, path, classes.of(publisher, subscriber), delay)
        }
    };
    let mut channels: Vec<Channel> = paths.iter().map(channel).collect();
    own::number(&mut channels);
    let mut refusals = refusal::of_placement(system, &found);
    let exceeded = bounds.as_ref().map(Bounds::exceeded).unwrap_or_default();
    refusals.extend(exceeded.iter().map(|(node, excess)| refusal::of_reservations(system, *node, excess)));
    refusals.extend(own::refusals(system, &paths, bounds.as_ref()));
    refusals.extend(refusal::of_channels(&channels, model));
    let chains = chain::chains(system, &paths, &channels);
    refusals.extend(chains.iter().filter_map(|chain| chain::of_chain(chain, model)));
    let unsteady = bounds.as_ref().filter(|_| model == Model::Bound).map(Bounds::unsteady).unwrap_or_default();
    refusals.extend(unsteady.iter().map(|topic| chain::of_unsteady(system, topic)));
    let feasible = refusals.is_empty() && (!found.placed.is_empty() || system.subscribers.is_empty());
    let loads = if found.loads.is_empty() { loads(system, &paths) } else { found.loads.clone() };
    let queues = bounds.as_ref().map(Bounds::queues).unwrap_or_default();
    let plan = Plan {
        contract: For { name: system.name.clone(), hash: String::new() },
        feasible,
        model,
        objective: Some(system.placement.objective),
        objective_value: found.value.filter(|_| feasible),
        channels,
        chains,
        links: links(system, &loads, &queues),
        settings: Vec::new(),
        tunnels: Vec::new(),
        borders: Vec::new(),
        admitted: Vec::new(),
        nodes: nodes(system, &found, bounds.as_ref()),
        placement: found.placed.iter().map(|placed| proxy(system, placed)).collect(),
        refusals,
        solver: solver(&found, watch),
    };
    Computed { plan, unsteady, loads: bounds.as_ref().map(Bounds::loads).unwrap_or_default() }
}
