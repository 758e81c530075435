//! How often the machine stood still, and whose doing that was.

use serde::{Deserialize, Serialize};

/// Stalls of all processors without the experiment, and during its measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Stalls before the experiment began, and after it ended.
    pub idle: u64,
    /// Seconds in which processors were watched then, summed over processors.
    pub idle_s: f64,
    /// Stalls during its measurements.
    pub loaded: u64,
    /// Seconds in which processors were watched then.
    pub loaded_s: f64,
}

/// Whose doing the stalls were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// The machine stands still as often without the experiment.
    Machine,
    /// They may be the experiment's own: a kernel without preemption lets no thread in before a long system call or soft interrupt ends.
    Unclear(String),
}

impl Rates {
    /// The machine's, unless there were more than twice as many per second as without the experiment, by more than chance makes (three
    /// standard deviations of a Poisson process). One stall more than was seen counts for the short time without it.
    pub fn attribution(&self) -> Attribution {
        let before = (self.idle + 1) as f64 / self.idle_s;
        let expected = MOST * before * self.loaded_s;
        if expected.is_finite() && self.loaded as f64 <= expected + 3.0 * expected.sqrt() {
            return Attribution::Machine;
        }
        Attribution::Unclear(format!(
            "stalls may be the experiment's own: {:.2} per second and processor during it, {:.2} without it",
            self.loaded as f64 / self.loaded_s,
            self.idle as f64 / self.idle_s
        ))
    }
}

/// Stalls during an experiment for each without it that are still the machine's.
const MOST: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_the_machines_if_they_are_as_frequent_without_the_experiment() {
        let rates = |idle, loaded| Rates { idle, idle_s: 4.0, loaded, loaded_s: 100.0 };
        // (3 + 1) / 4 s: 1 per second, so 200 in 100 s, and 3 × 14 by chance.
        assert_eq!(rates(3, 242).attribution(), Attribution::Machine);
        assert!(matches!(rates(3, 243).attribution(), Attribution::Unclear(_)));
        assert!(matches!(
            Rates { loaded: 0, loaded_s: 1.0, ..Rates::default() }.attribution(),
            Attribution::Unclear(_)
        ));
    }
}
