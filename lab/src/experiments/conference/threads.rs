//! The threads of each kind of stream, as the kernel has them (P-15).

use super::KINDS;
use crate::part::threads::Thread;
use crate::results::{Check, Findings, Table};
use qos::priority::Scheduling;
use std::collections::BTreeSet;

/// By kind: of each stream that some host publishes or takes, its threads there.
pub(super) type Threads = [Vec<Vec<Thread>>; KINDS.len()];

/// Every stream has a thread at both of its ends, each thread has the scheduling that was asked for, and those of a kind go before those of
/// the next one; a profile may have other orders.
pub(super) fn judge(threads: &Threads, own_order: bool, findings: &mut Findings) {
    let mut table = Table::new("Threads of each kind, at all hosts", &["", "threads", "scheduling in the kernel"]);
    for (kind, streams) in KINDS.iter().zip(threads) {
        let all: Vec<&Thread> = streams.iter().flatten().collect();
        let found: BTreeSet<String> = all.iter().map(|thread| shown(thread.found)).collect();
        let found = found.into_iter().collect::<Vec<_>>().join(", ");
        table.rows.push(vec![kind.name.into(), all.len().to_string(), found]);
        let wrong = all.iter().filter(|thread| thread.found != Some(thread.asked)).count();
        let bare = streams.iter().filter(|threads| threads.is_empty()).count();
        let name =
            format!("{}: threads with another scheduling than was asked for, and ends without a thread", kind.name);
        findings.checks.push(Check::at_most(name, (wrong + bare) as f64, 0.0));
    }
    findings.tables.push(table);
    if own_order {
        let of = |streams: &Vec<Vec<Thread>>| -> Vec<u8> { streams.iter().flatten().map(priority).collect() };
        let in_order = threads.windows(2).filter(|pair| of(&pair[0]).iter().min() > of(&pair[1]).iter().max()).count();
        let name = "kinds all of whose threads go before those of the next one";
        findings.checks.push(Check::at_least(name, in_order as f64, (KINDS.len() - 1) as f64));
    }
}

fn priority(thread: &Thread) -> u8 {
    thread.found.map_or(0, |found| found.policy.priority())
}

fn shown(found: Option<Scheduling>) -> String {
    found.map_or_else(|| "gone".into(), |found| found.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::priority::Policy;

    fn failed(change: impl Fn(&mut Threads)) -> Vec<String> {
        let mut threads = KINDS.map(|kind| {
            let asked = Scheduling { policy: Policy::Fifo(kind.fifo), nice: 0 };
            vec![vec![Thread { asked, found: Some(asked) }; 2]; 3]
        });
        change(&mut threads);
        let mut findings = Findings::default();
        judge(&threads, true, &mut findings);
        findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn threads_have_their_kinds_priority_in_the_kernel() {
        assert_eq!(failed(|_| ()), Vec::<String>::new());
        let ordinary = failed(|threads| threads[1][2][0].found = Some(Scheduling::default()));
        assert!(matches!(&ordinary[..], [game, order] if game.starts_with("game") && order.starts_with("kinds")));
        assert!(failed(|threads| threads[4][0].clear())[0].starts_with("chat"));
        // Nobody asked: no thread is wrong, but the order is.
        let nobody = failed(|threads| {
            let ordinary = Scheduling::default();
            threads.iter_mut().flatten().flatten().for_each(|t| *t = Thread { asked: ordinary, found: Some(ordinary) });
        });
        assert_eq!(nobody.len(), 1, "{nobody:?}");
    }
}
