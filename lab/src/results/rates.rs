//! How often the machine stood still, and whose doing that was; and the part of its processors that its host took away.

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
    /// Part of all processor time during the experiment that the host of a virtual machine took away (proc_stat(5), `steal`), 0 to 1.
    #[serde(default)]
    pub stolen: f64,
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

    /// The reason why nothing that failed can be told from a machine whose processors were elsewhere. `None`: they were there.
    pub fn absence(&self) -> Option<String> {
        (self.stolen > STOLEN).then(|| {
            format!(
                "the host of this machine took {:.1} % of its processors' time away: a failure tells nothing above {:.0} %",
                100.0 * self.stolen,
                100.0 * STOLEN
            )
        })
    }
}

/// Part of the processors' time that may be taken away. Usual is 0.02 to 0.05 % (docs/decisions/0016-stalls.md). At 18 to 25 % nine experiments of
/// `all --ci` failed that pass otherwise: losses, and latencies of a second.
const STOLEN: f64 = 0.02;
/// Stalls during an experiment for each without it that are still the machine's.
const MOST: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_the_machines_if_they_are_as_frequent_without_the_experiment() {
        let rates = |idle, loaded| Rates { idle, idle_s: 4.0, loaded, loaded_s: 100.0, stolen: 0.0 };
        // (3 + 1) / 4 s: 1 per second, so 200 in 100 s, and 3 × 14 by chance.
        assert_eq!(rates(3, 242).attribution(), Attribution::Machine);
        assert!(matches!(rates(3, 243).attribution(), Attribution::Unclear(_)));
        assert!(matches!(
            Rates { loaded: 0, loaded_s: 1.0, ..Rates::default() }.attribution(),
            Attribution::Unclear(_)
        ));
    }

    #[test]
    fn a_host_that_takes_processors_away_makes_failures_inconclusive() {
        let rates = |stolen| Rates { idle: 1, idle_s: 1.0, loaded: 1, loaded_s: 1.0, stolen };
        assert_eq!(rates(0.02).absence(), None);
        assert!(rates(0.021).absence().is_some_and(|because| because.contains("2.1 %")));
    }
}
