//! The push-pull paper's examples of placement as running networks: `placement-vbns` (§2.4.2: seven hosts in a row, P-60, P-61) and
//! `placement-star` (Appendix A: five hosts, P-50 … P-53).
//!
//! | module | contents |
//! |---|---|
//! | `example` | an example's contract, and the planner's figures for each place of the proxy |
//! | `testbed` | the network of the contract, with publisher, subscribers and relays; the measurement of a place |
//! | `judge`, `tables` | what was measured beside the planner's and the paper's figures |

mod example;
mod judge;
mod tables;
mod testbed;

use super::{Experiment, shuffled};
use crate::error::Result;
use crate::lab::{Lab, Options, Size};
use crate::part::{Hog, processors};
use crate::results::Findings;
use example::{Example, Sharing};
use judge::Place;
use testbed::Testbed;
use thalweg::carrier::Dice;

/// The experiment on the path of the vBNS.
pub(crate) const VBNS: Placement = Placement {
    name: "placement-vbns",
    about: "seven hosts in a row: traffic of each link and delay by the place of the proxy, and the best place (push-pull §2.4.2)",
    example: Example {
        contract: include_str!("../../../../examples/papers/vbns.toml"),
        sharings: &[Sharing::Separate],
        // kL + (6 − k)L′
        printed: &[[0, 6], [1, 5], [2, 4], [3, 3], [4, 2], [5, 1], [6, 0]],
        few: &[0, 3, 6],
    },
};

/// The experiment on the star.
pub(crate) const STAR: Placement = Placement {
    name: "placement-star",
    about: "a star of five hosts: messages of each link and delay by the place of the proxy, and the best place (push-pull App. A)",
    example: Example {
        contract: include_str!("../../../../examples/papers/star.toml"),
        sharings: &[Sharing::Separate, Sharing::Merged],
        // 4f′, 4f + 4f′, 4f + 2f′, 4f + 2f′, 2f + 2f′
        printed: &[[0, 4], [4, 4], [4, 2], [4, 2], [2, 2]],
        few: &[0, 2, 4],
    },
};

/// An experiment on one example.
pub(crate) struct Placement {
    name: &'static str,
    about: &'static str,
    example: Example,
}

impl Experiment for Placement {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let few = if lab.options.size == Size::Ci { Some(self.example.few) } else { None };
        let mut places = self.example.places(few)?;
        let mut testbed = Testbed::build(lab, &self.example, &mut places)?;
        let _awake = Hog::Idle.start(lab, processors()?.0)?;
        let (repetitions, samples) = amount(&lab.options);
        let mut dice = Dice::new(lab.options.seed);
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for place in shuffled(places.len(), &mut dice) {
                testbed.run(lab, &mut places[place], samples)?;
            }
        }
        let reports = testbed.end();
        let mut findings = judge::judge(&self.example, &places)?;
        super::lines::judge("whole run", &reports, &mut findings);
        Ok(findings)
    }
}

/// Repetitions, and the samples published for a place: an even number, of which every second one is half.
fn amount(options: &Options) -> (usize, u32) {
    match options.size {
        Size::Tiny => (1, 40),
        Size::Ci => (1, 20),
        Size::Quick => (3, 76),
        Size::Whole => (5, 400),
    }
}
