//! Reports that engines keep for their bridge: what was refused, and which ends do not match.

use super::{Incompatible, Refused};
use crate::lock;
use std::collections::HashSet;
use std::sync::Mutex;

/// Counts what came and could not be used, and keeps the last of it.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Refused>);

impl Refusals {
    /// Counts one: what it was, and what is allowed.
    pub fn add(&self, what: impl Into<String>) {
        let mut refused = lock(&self.0);
        refused.count += 1;
        refused.last = what.into();
    }

    /// All since the engine opened.
    pub fn so_far(&self) -> Refused {
        lock(&self.0).clone()
    }
}

/// Mismatches that are remembered as told.
const MOST_TOLD: usize = 4096;

/// Ends that do not match, each told once.
#[derive(Debug, Default)]
pub struct Mismatches {
    of: Option<(u64, u64)>,
    told: HashSet<Incompatible>,
}

impl Mismatches {
    /// `true` if the counts of changes, of others' ends and of own ones, are other ones than in the last call: else no end has to be compared.
    pub fn are_due(&mut self, changes: (u64, u64)) -> bool {
        self.of.replace(changes) != Some(changes)
    }

    /// Those of `found` that were not told before. Beyond 4,096 rather told twice than never.
    pub fn untold(&mut self, found: Vec<Incompatible>) -> Vec<Incompatible> {
        if self.told.len() + found.len() > MOST_TOLD {
            self.told.clear();
        }
        found.into_iter().filter(|one| self.told.insert(one.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_is_told_once() {
        let of = |topic: &str| {
            let text = |text: &str| text.to_owned();
            Incompatible { topic: text(topic), policy: text("type"), offered: text("a"), requested: text("b") }
        };
        let mut mismatches = Mismatches::default();
        assert_eq!([(0, 0), (0, 0), (0, 1)].map(|changes| mismatches.are_due(changes)), [true, false, true]);
        assert_eq!(mismatches.untold(vec![of("/a")]), [of("/a")]);
        assert_eq!(mismatches.untold(vec![of("/a"), of("/b")]), [of("/b")]);
    }
}
