//! Large systems. Prices for the limits give a bound below every placement; the cheap places at those prices give a placement. The
//! distance between the two is the proved gap.

use super::bound::{Bound, Chosen};
use super::layout::Layout;
use super::problem::{Choice, Group, Problem};
use super::{Effort, Progress, Watch, exact};

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

/// The result: a placement, if any, and the bound with its prices.
pub(super) struct Found {
    pub layout: Option<Layout>,
    pub bound: f64,
    pub prices: Vec<f64>,
}

/// The prices' way up.
struct DualAscent {
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
    let mut ascent = DualAscent::new(problem, &mut bound);
    // Without prices each group chooses its best place; if that fits, it is the answer.
    let free = Layout::of(problem, &ascent.best.nodes);
    if free.keeps_all(problem) && free.value(problem) <= ascent.best.bound * (1.0 + 1e-9) {
        return Found { layout: Some(free), bound: ascent.best.bound, prices: ascent.best_prices };
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
            let layout = search.best.take().map(|best| best.1);
            let found = Found { layout, bound: ascent.best.bound, prices: ascent.best_prices.clone() };
            return if gap > effort.gap { finish(problem, &mut bound, &ascent, found, effort, watch) } else { found };
        }
    }
}

/// Ends the search by mixed-integer programming, if few enough places remain for a better placement than the known one: it finds one,
/// or proves that there is none.
fn finish(
    problem: &Problem,
    bound: &mut Bound,
    ascent: &DualAscent,
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
    match exact::solve(problem, &choices, Some(known), None, left) {
        exact::Found::Placed { layout, proved } => {
            let bound = if proved { layout.value(problem) } else { found.bound };
            Found { layout: Some(layout), bound, ..found }
        }
        exact::Found::Infeasible | exact::Found::Nothing => found,
    }
}

/// The places that are cheap now become the search's candidates. Groups that cross an exceeded limit get as many more as there are in
/// all: the fewer they are, the more of their places are searched.
fn refresh<'a>(problem: &'a Problem<'a>, bound: &mut Bound, ascent: &DualAscent, search: &mut Option<Search<'a>>) {
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

impl DualAscent {
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

/// Growth of fines for an exceeded limit.
const GROW: f64 = 1.1;
/// Additional growth where a limit is exceeded most. At one pace for all, the fines of limits that stay exceeded keep their proportions and the
/// search its place: with 1,000 nodes, 10,000 subscribers and merged proxies no placement was found in 30 s, and with this growth one in 7 s.
const STEEP: f64 = 0.2;
/// Highest fine as a multiple of the value. Above it all shrink, in proportion.
const HIGHEST: f64 = 1e12;
/// Shrinking of fines when no limit is exceeded.
const SHRINK: f64 = 0.7;

/// A search among a few places of each group for placements that keep the limits, by moving one group at a time.
///
/// A group moves to the cheapest place, with a fine for every limit that is exceeded. Fines grow while a limit stays exceeded and
/// shrink when all are kept. The search therefore crosses the border of the feasible placements again and again, where the best
/// ones are.
pub(super) struct Search<'a> {
    problem: &'a Problem<'a>,
    candidates: Vec<Vec<Choice>>,
    layout: Layout,
    /// Value that a limit costs which is exceeded by as much as there is of it.
    fines: Vec<f64>,
    order: Vec<usize>,
    random: u64,
    /// The best that keeps all limits.
    pub best: Option<(f64, Layout)>,
}

impl<'a> Search<'a> {
    /// Starts from the first candidates; fines start at these.
    pub(super) fn new(problem: &'a Problem<'a>, candidates: Vec<Vec<Choice>>, fines: Vec<f64>) -> Self {
        let mut layout = Layout::new(problem);
        for (group, places) in candidates.iter().enumerate() {
            if let Some(first) = places.first() {
                layout.put(problem, group, first.clone());
            }
        }
        let order = (0..candidates.len()).collect();
        Self { problem, candidates, layout, fines, order, random: 0x9E37_79B9_7F4A_7C15, best: None }
    }

    /// Other candidates; the present choices stay.
    fn consider(&mut self, candidates: Vec<Vec<Choice>>, fines: &[f64]) {
        self.candidates = candidates;
        self.fines.iter_mut().zip(fines).for_each(|(fine, least)| *fine = fine.max(*least));
    }

    /// Moves every group once, then changes the fines. Returns whether a better placement was found.
    pub(super) fn sweep(&mut self) -> bool {
        self.shuffle();
        for at in 0..self.order.len() {
            self.settle(self.order[at]);
        }
        let exceeded: Vec<usize> = self.layout.exceeded(self.problem).collect();
        if exceeded.is_empty() {
            self.fines.iter_mut().for_each(|fine| *fine *= SHRINK);
            return self.record();
        }
        self.raise(&exceeded);
        false
    }

    /// Raises the fines of exceeded limits.
    fn raise(&mut self, exceeded: &[usize]) {
        let value = self.problem.value(&self.layout.cost).abs();
        let over: Vec<f64> = exceeded.iter().map(|limit| self.over(*limit, self.layout.loads[*limit])).collect();
        let most = over.iter().copied().fold(0.0, f64::max);
        for (limit, over) in exceeded.iter().zip(over) {
            self.fines[*limit] = (self.fines[*limit] * (GROW + STEEP * over / most)).max(value * 1e-4);
        }
        if exceeded.iter().any(|limit| self.fines[*limit] > value * HIGHEST) {
            self.fines.iter_mut().for_each(|fine| *fine /= HIGHEST.sqrt());
        }
    }

    /// Prices with which groups keep off exceeded limits: their fines.
    fn deter(&self, prices: &mut [f64]) {
        for limit in self.layout.exceeded(self.problem) {
            prices[limit] = prices[limit].max(self.fines[limit] / self.problem.capacity[limit].max(1.0));
        }
    }

    /// The groups that use an exceeded limit.
    fn crossing(&self) -> Vec<bool> {
        let exceeded = |(limit, _): &(usize, f64)| !self.problem.keeps(*limit, self.layout.loads[*limit]);
        let crosses = |choice: &Choice| {
            choice.uses.iter().any(exceeded)
                || choice.shared.iter().any(|copy| self.problem.copy(copy).uses.iter().any(exceeded))
        };
        self.layout.chosen.iter().map(|choice| choice.as_ref().is_some_and(crosses)).collect()
    }

    fn record(&mut self) -> bool {
        let value = self.layout.value(self.problem);
        let better = self.best.as_ref().is_none_or(|(best, _)| value < best - best.abs() * 1e-12);
        if better {
            // Counted again: sums and differences leave rounding errors.
            let mut again = Layout::new(self.problem);
            for (group, choice) in self.layout.chosen.iter().enumerate() {
                choice.iter().for_each(|choice| again.put(self.problem, group, choice.clone()));
            }
            if again.keeps_all(self.problem) {
                self.best = Some((again.value(self.problem), again.clone()));
            }
            self.layout = again;
        }
        better
    }

    /// Another order each time (xorshift; the same in every run).
    fn shuffle(&mut self) {
        for at in (1..self.order.len()).rev() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.order.swap(at, (self.random % (at as u64 + 1)) as usize);
        }
    }

    /// Removes a group and puts it at its cheapest place now.
    fn settle(&mut self, group: usize) {
        let Some(was) = self.layout.take(self.problem, group) else { return };
        let mut best = (self.charge(&was, f64::INFINITY), None);
        for (at, choice) in self.candidates[group].iter().enumerate() {
            let charge = self.charge(choice, best.0);
            if charge < best.0 - best.0.abs() * 1e-12 {
                best = (charge, Some(at));
            }
        }
        let choice = best.1.map_or(was, |at| self.candidates[group][at].clone());
        self.layout.put(self.problem, group, choice);
    }

    /// Cost of a choice with its fines; more than `enough` need not be exact.
    fn charge(&self, choice: &Choice, enough: f64) -> f64 {
        if !choice.shared.is_empty() {
            let added = self.layout.added(self.problem, choice);
            return self.charge(&added, enough);
        }
        let mut charge = self.problem.value(&choice.cost);
        for (limit, amount) in &choice.uses {
            charge += self.fine(*limit, *amount);
            if charge > enough {
                break;
            }
        }
        charge
    }

    fn fine(&self, limit: usize, amount: f64) -> f64 {
        let load = self.layout.loads[limit];
        if load + amount <= self.problem.capacity[limit] {
            return 0.0;
        }
        self.fines[limit] * (self.over(limit, load + amount) - self.over(limit, load))
    }

    /// The part by which a load exceeds a limit.
    fn over(&self, limit: usize, load: f64) -> f64 {
        let has = self.problem.capacity[limit];
        (load - has).max(0.0) / has.max(1.0)
    }
}
