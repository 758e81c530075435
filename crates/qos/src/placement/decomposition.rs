//! Large systems. Prices for the limits give a bound below every placement; the cheap places at those prices give a placement. The
//! distance between the two is the proved gap.

use super::bound::{Bound, Chosen};
use super::layout::Layout;
use super::problem::{Choice, Group, Problem};
use super::search::Search;
use super::{Effort, Progress, Watch, mip};

/// Places of each group that are searched.
const CANDIDATES: usize = 64;
/// Steps of the prices between two searches.
const STEPS: u32 = 20;
/// Sweeps of one search.
const SWEEPS: u32 = 40;
/// Steps without a better bound, after which they are halved.
const PATIENCE: u32 = 8;
/// Weight of a new direction; the rest is the weight of the steps before.
const FRESH: f64 = 0.3;
/// The shortest step, as a part of the one that would lead to the best known value; then long ones are tried again.
const SHORTEST: f64 = 0.01;
/// Places of all groups together that are given to mixed-integer programming.
const MOST: usize = 4000;
/// Rounds that brought less than a thousandth of the gap, after which no improvement is expected.
const STALLED: u32 = 40;

/// The result: a placement, if any, and the bound.
pub(super) struct Found {
    pub layout: Option<Layout>,
    pub bound: f64,
}

/// The prices' way up.
struct Ascent {
    prices: Vec<f64>,
    best_prices: Vec<f64>,
    best: Chosen,
    direction: Vec<f64>,
    length: f64,
    since_better: u32,
}

/// Places groups that each fit at `places`, until the gap is small enough, time is up or the value does not improve.
pub(super) fn solve(problem: &Problem, places: Vec<Vec<u32>>, effort: &Effort, watch: &mut dyn Watch) -> Found {
    let mut bound = Bound::new(problem, places);
    let mut ascent = Ascent::new(problem, &mut bound);
    // Without prices each group chooses its best place; if that fits, it is the answer.
    let free = Layout::of(problem, &ascent.best.nodes);
    if free.keeps_all(problem) && free.value(problem) <= ascent.best.bound * (1.0 + 1e-9) {
        return Found { layout: Some(free), bound: ascent.best.bound };
    }
    let mut search: Option<Search> = None;
    let (mut step, mut stalled, mut last_gap) = (0, 0, f64::INFINITY);
    loop {
        for _ in 0..STEPS {
            step += 1;
            let value = search.as_ref().and_then(|search| search.best.as_ref()).map(|best| best.0);
            ascent.step(problem, &mut bound, value);
            if watch.elapsed() >= effort.time {
                break;
            }
        }
        refresh(problem, &mut bound, &ascent, &mut search);
        let Some(search) = &mut search else { continue };
        for _ in 0..SWEEPS {
            search.sweep();
            if watch.elapsed() >= effort.time {
                break;
            }
        }
        let value = search.best.as_ref().map(|best| best.0);
        watch.progress(&Progress { step, value, bound: ascent.best.bound });
        let gap = value.map_or(f64::INFINITY, |value| (value - ascent.best.bound) / value.abs().max(f64::MIN_POSITIVE));
        stalled = if gap < last_gap * 0.999 { 0 } else { stalled + 1 };
        last_gap = gap.min(last_gap);
        let patience = if value.is_some() { STALLED } else { 2 * STALLED };
        if gap <= effort.gap || watch.elapsed() >= effort.time || stalled >= patience {
            let found = Found { layout: search.best.take().map(|best| best.1), bound: ascent.best.bound };
            return if gap > effort.gap { finish(problem, &mut bound, &ascent, found, effort, watch) } else { found };
        }
    }
}

/// Ends the search by mixed-integer programming, if few enough places remain for a better placement than the known one: it finds one,
/// or proves that there is none.
fn finish(
    problem: &Problem,
    bound: &mut Bound,
    ascent: &Ascent,
    found: Found,
    effort: &Effort,
    watch: &mut dyn Watch,
) -> Found {
    let Some(known) = &found.layout else { return found };
    bound.at(&ascent.best_prices);
    let spare = (known.value(problem) - found.bound) * (1.0 + 1e-9);
    let places: Vec<Vec<usize>> =
        (0..problem.groups.len()).map(|group| bound.within(group, &ascent.best_prices, spare)).collect();
    let left = effort.time.saturating_sub(watch.elapsed());
    if left.is_zero() || places.iter().map(Vec::len).sum::<usize>() > MOST {
        return found;
    }
    let choices =
        |(group, nodes): (&Group, Vec<usize>)| nodes.into_iter().map(|node| problem.choice(group, node)).collect();
    let choices: Vec<Vec<Choice>> = problem.groups.iter().zip(places).map(choices).collect();
    match mip::solve(problem, &choices, Some(known), None, left) {
        mip::Found::Placed { layout, proved } => {
            let bound = if proved { layout.value(problem) } else { found.bound };
            Found { layout: Some(layout), bound }
        }
        mip::Found::Infeasible | mip::Found::Nothing => found,
    }
}

/// The places that are cheap now become the search's candidates. Groups that cross an exceeded limit get as many more as there are in
/// all: the fewer they are, the more of their places are searched.
fn refresh<'a>(problem: &'a Problem<'a>, bound: &mut Bound, ascent: &Ascent, search: &mut Option<Search<'a>>) {
    let mut prices = ascent.best_prices.clone();
    let mut crossing = vec![false; problem.groups.len()];
    if let Some(search) = search {
        search.deter(&mut prices);
        crossing = search.crossing();
        search.candidates.clear(); // before others take as much memory
    }
    bound.at(&prices);
    let more = CANDIDATES * crossing.len() / crossing.iter().filter(|crosses| **crosses).count().max(1);
    let places = |group: usize| bound.cheapest(group, &prices, if crossing[group] { more } else { CANDIDATES });
    let choices =
        |group: usize| places(group).into_iter().map(|node| problem.choice(&problem.groups[group], node)).collect();
    let candidates = (0..problem.groups.len()).map(choices).collect();
    let fines: Vec<f64> = ascent
        .best_prices
        .iter()
        .zip(&problem.capacity)
        .map(|(price, has)| if *price > 0.0 { price * has } else { 0.0 })
        .collect();
    match search {
        Some(search) => search.consider(candidates, &fines),
        None => *search = Some(Search::new(problem, candidates, fines)),
    }
}

impl Ascent {
    fn new(problem: &Problem, bound: &mut Bound) -> Self {
        let prices = vec![0.0; problem.capacity.len()];
        let best = bound.at(&prices);
        Self { best_prices: prices.clone(), direction: prices.clone(), prices, best, length: 1.0, since_better: 0 }
    }

    /// One step along the (smoothed) excess of each limit, as long as the way to the best known value suggests.
    fn step(&mut self, problem: &Problem, bound: &mut Bound, value: Option<f64>) {
        let chosen = bound.at(&self.prices);
        if chosen.bound > self.best.bound + self.best.bound.abs() * 1e-7 {
            self.since_better = 0;
        } else {
            self.since_better += 1;
        }
        if chosen.bound > self.best.bound {
            self.best_prices.clone_from(&self.prices);
            self.best = chosen.clone();
        }
        if self.since_better > PATIENCE {
            self.since_better = 0;
            self.length = if self.length < SHORTEST { 1.0 } else { self.length / 2.0 };
            self.prices.clone_from(&self.best_prices);
        }
        let excess = excess(problem, bound, &chosen, &self.prices);
        let mut norm = 0.0;
        for (direction, excess) in self.direction.iter_mut().zip(&excess) {
            *direction = FRESH * excess + (1.0 - FRESH) * *direction;
            norm += *direction * *direction;
        }
        if norm <= 0.0 {
            return;
        }
        let target = value.unwrap_or(self.best.bound + self.best.bound.abs() * 0.05);
        let length = self.length * (target - chosen.bound).max(target.abs() * 1e-5) / norm;
        for ((price, direction), has) in self.prices.iter_mut().zip(&self.direction).zip(&problem.capacity) {
            if has.is_finite() {
                *price = (*price + length * direction / has.max(1.0)).max(0.0);
            }
        }
    }
}

/// The part by which the groups' choices exceed each limit; 0 for a limit that they keep and that has no price.
fn excess(problem: &Problem, bound: &Bound, chosen: &Chosen, prices: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; problem.capacity.len()];
    bound.load(chosen, &mut loads);
    let part = |limit: usize| {
        let has = problem.capacity[limit];
        let excess = if has.is_finite() { (loads[limit] - has) / has.max(1.0) } else { 0.0 };
        if excess > 0.0 || prices[limit] > 0.0 { excess } else { 0.0 }
    };
    (0..loads.len()).map(part).collect()
}

/// Rounds; each uses the exclusions of the one before.
const ROUNDS: u32 = 3;

/// The remaining places.
///
/// # Errors
/// A group that has none, so no placement fits.
pub(super) fn reduce(problem: &Problem, mut places: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, usize> {
    // The least load of a group on each limit, at any place; at first unknown.
    let mut least: Vec<Vec<(usize, f64)>> = vec![Vec::new(); places.len()];
    let mut all = vec![0.0; problem.capacity.len()];
    let mut scratch = Scratch::new(problem);
    for _ in 0..ROUNDS {
        let mut ruled_out = 0;
        for (group, left) in places.iter_mut().enumerate() {
            least[group].iter().for_each(|(limit, amount)| all[*limit] -= amount);
            let mut common: Option<Vec<(usize, f64)>> = None;
            let before = left.len();
            left.retain(|node| {
                scratch.fill(problem, &problem.groups[group], *node as usize);
                let fits = scratch.fits(problem, &all);
                if fits {
                    common = Some(scratch.in_common(common.take()));
                }
                scratch.clear();
                fits
            });
            ruled_out += before - left.len();
            least[group] = common.ok_or(group)?;
            least[group].iter().for_each(|(limit, amount)| all[*limit] += amount);
        }
        if ruled_out == 0 {
            break;
        }
    }
    Ok(places)
}

/// The loads of one place on the limits.
pub(super) struct Scratch {
    loads: Vec<f64>,
    touched: Vec<usize>,
}

impl Scratch {
    pub(super) fn new(problem: &Problem) -> Self {
        Self { loads: vec![0.0; problem.capacity.len()], touched: Vec::new() }
    }

    pub(super) fn fill(&mut self, problem: &Problem, group: &Group, node: usize) {
        if problem.multicast() {
            // A shared stream may be there anyway: only a group's own load is certain.
            let Choice { uses, .. } = problem.choice(group, node);
            return uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
        }
        problem.flows(group, node, |limit, amount| self.add(limit, amount));
        problem.work(group, node).uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
    }

    pub(super) fn add(&mut self, limit: usize, amount: f64) {
        if self.loads[limit] == 0.0 {
            self.touched.push(limit);
        }
        self.loads[limit] += amount;
    }

    /// `true` if it keeps all limits beside these loads.
    pub(super) fn fits(&self, problem: &Problem, beside: &[f64]) -> bool {
        self.touched.iter().all(|limit| problem.keeps(*limit, beside[*limit].max(0.0) + self.loads[*limit]))
    }

    /// The least load that this place and those before it put on a limit.
    fn in_common(&self, before: Option<Vec<(usize, f64)>>) -> Vec<(usize, f64)> {
        let Some(mut before) = before else {
            return self.touched.iter().map(|limit| (*limit, self.loads[*limit])).collect();
        };
        before.iter_mut().for_each(|(limit, amount)| *amount = amount.min(self.loads[*limit]));
        before.retain(|(_, amount)| *amount > 0.0);
        before
    }

    pub(super) fn clear(&mut self) {
        self.touched.drain(..).for_each(|limit| self.loads[limit] = 0.0);
    }
}
