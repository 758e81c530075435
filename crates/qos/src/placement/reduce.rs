//! Places that no placement can have: what a group would put on a limit there does not fit beside the least that all others
//! put on it, wherever they are. Without them the bound is much closer: a price cannot see that half a flow does not exist.

use super::problem::{Choice, Group, Problem};

/// Rounds; each uses what the one before ruled out.
const ROUNDS: u32 = 3;

/// The places that are left.
///
/// # Errors
/// A group that has none, so nothing fits.
pub(super) fn reduce(problem: &Problem, mut places: Vec<Vec<u32>>) -> Result<Vec<Vec<u32>>, usize> {
    // What a group has to put on limits wherever it is; at first, nothing is known.
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

/// What one place puts on the limits.
pub(super) struct Scratch {
    loads: Vec<f64>,
    touched: Vec<usize>,
}

impl Scratch {
    pub fn new(problem: &Problem) -> Self {
        Self { loads: vec![0.0; problem.capacity.len()], touched: Vec::new() }
    }

    pub fn fill(&mut self, problem: &Problem, group: &Group, node: usize) {
        if problem.multicast() {
            // A stream that others share may be there anyway: only what a group has for itself is certain.
            let Choice { uses, .. } = problem.choice(group, node);
            return uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
        }
        problem.flows(group, node, |limit, amount| self.add(limit, amount));
        problem.work(group, node).uses.into_iter().for_each(|(limit, amount)| self.add(limit, amount));
    }

    pub fn add(&mut self, limit: usize, amount: f64) {
        if self.loads[limit] == 0.0 {
            self.touched.push(limit);
        }
        self.loads[limit] += amount;
    }

    /// Whether it keeps all limits beside these loads.
    pub fn fits(&self, problem: &Problem, beside: &[f64]) -> bool {
        self.touched.iter().all(|limit| problem.keeps(*limit, beside[*limit].max(0.0) + self.loads[*limit]))
    }

    /// The least of what this place and those before it put on a limit.
    fn in_common(&self, before: Option<Vec<(usize, f64)>>) -> Vec<(usize, f64)> {
        let Some(mut before) = before else {
            return self.touched.iter().map(|limit| (*limit, self.loads[*limit])).collect();
        };
        before.iter_mut().for_each(|(limit, amount)| *amount = amount.min(self.loads[*limit]));
        before.retain(|(_, amount)| *amount > 0.0);
        before
    }

    pub fn clear(&mut self) {
        self.touched.drain(..).for_each(|limit| self.loads[limit] = 0.0);
    }
}
