//! From facts to findings. Pure: no clock, no I/O.
//!
//! | module | subject |
//! |---|---|
//! | [`threads`] | priorities of threads, and their processor time |
//! | [`machine`] | response times of processors and memory |
//! | [`network`] | buffers, limits, routes |
//! | [`devices`] | devices and bridges |
//! | [`queues`] | treatment of the classes on each device |
//! | [`house`] | resources that the nodes of this host share |

pub(super) mod devices;
pub(super) mod house;
pub(super) mod machine;
pub(super) mod network;
pub(super) mod queues;
pub(super) mod threads;

use super::finding::{Finding, Kind};
use linux::probe::Facts;

/// All kinds of findings, in the order of docs/diagnosis.md.
pub(super) fn kinds() -> impl Iterator<Item = &'static Kind> {
    threads::KINDS
        .iter()
        .chain(machine::KINDS)
        .chain(network::KINDS)
        .chain(devices::KINDS)
        .chain(queues::KINDS)
        .chain(house::KINDS)
        .copied()
}

/// The findings from these facts, the worst first.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = threads::judge(facts);
    found.extend(machine::judge(facts));
    found.extend(network::judge(facts));
    found.extend(devices::judge(&facts.devices));
    found
}

/// Sorts the worst first; the order of equal ones stays.
pub(super) fn sort(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.kind.severity));
}
