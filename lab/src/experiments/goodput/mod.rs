//! `goodput` (issue of saturated reliable channels): the rate of a publisher that outruns its path, over reliable
//! `udp` and over `tcp`, which is the kernel's TCP beneath the same product.
//!
//! | module | contents |
//! |---|---|
//! | `path` | the line of 100 Mbit/s, the loopback, and whether the line serialises |
//! | `flow` | a saturating channel, and its rate |
//! | `matrix` | loss × round trip × size, `udp` and `tcp` in turns |
//! | `fairness` | flows that share the line: Jain's index |
//! | `small` | a channel of 1 kHz beside a saturating one |

mod fairness;
mod flow;
mod matrix;
mod path;
mod small;

use super::Experiment;
use crate::error::Result;
use crate::lab::Lab;
use crate::results::{Figure, Findings};

/// The experiment.
pub(super) struct Goodput;

impl Experiment for Goodput {
    fn name(&self) -> &'static str {
        "goodput"
    }

    fn about(&self) -> &'static str {
        "reliable udp against tcp as fast as they go: 100 Mbit/s by loss, round trip and size; loopback; fairness; a small channel beside"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        path::control(lab, &mut findings)?;
        let mut panels = matrix::run(lab, &mut findings)?;
        panels.push(fairness::run(lab, &mut findings)?);
        panels.push(small::run(lab, &mut findings)?);
        findings.figure = Figure {
            title: "Reliable udp and tcp, saturated".into(),
            axis: "Mbit/s; p99 in µs".into(),
            logarithmic: true,
            panels,
        };
        Ok(findings)
    }
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "line: {} Mbit/s each way, whole Ethernet frames without preamble, checksum and gap; a frame leaves when its last bit would; \
             {} kB wait in front of it in one queue, what 50 ms carry; losses by the seed, each frame by chance in both \
             directions, and only once the channel is connected",
            path::RATE / 1_000_000,
            path::BUFFER / 1000
        ),
        format!(
            "goodput: bytes of whole messages by the times at which they arrived, from the first one after a start of its own. A flow of which less than \
             one arrived is counted with none over udp, and with one over tcp. tcp is {} in the hosts' namespaces, whatever the machine has.",
            path::CONTROL
        ),
        "udp and tcp take turns, each with processes and channels of its own; the order is drawn by lot".into(),
    ]
}
