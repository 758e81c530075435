//! From facts to findings. Pure: no clock, no I/O.
//!
//! | module | what it judges |
//! |---|---|
//! | [`threads`] | may threads have the priority they need, and do they get the processor |
//! | [`machine`] | do processors and memory answer in time |
//! | [`network`] | buffers, limits, routes |
//! | [`devices`] | devices and bridges |
//! | [`queues`] | what a class gets on each device |
//! | [`house`] | what nodes of this host share |

pub mod devices;
pub mod house;
pub mod machine;
pub mod network;
pub mod queues;
pub mod threads;

use super::finding::{Finding, Kind};
use linux::probe::Facts;

/// All kinds of findings, as docs/diagnosis.md lists them.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    threads::KINDS
        .iter()
        .chain(machine::KINDS)
        .chain(network::KINDS)
        .chain(devices::KINDS)
        .chain(queues::KINDS)
        .chain(house::KINDS)
        .copied()
}

/// What facts say, the worst first.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = threads::judge(facts);
    found.extend(machine::judge(facts));
    found.extend(network::judge(facts));
    found.extend(devices::judge(&facts.devices));
    found
}

/// The worst first; equally bad ones as they came.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.kind.severity));
}
