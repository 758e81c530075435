use super::*;
use crate::stalls::{Stalls, Timed};
use std::collections::BTreeSet;

/// A rule that admitted so many sessions, so many of them late, with a tally of each kind in which samples took this long, in ms.
fn found(rule: Rule, admitted: usize, late: usize, ms: u64) -> Found {
    let all = |count: usize| (0..count).collect::<BTreeSet<usize>>();
    let outcome = Outcome {
        admitted: all(admitted),
        late: all(late),
        used: admitted as f64 / 100.0,
        decision_us: [1.0, 2.0],
        ..Outcome::default()
    };
    let tally = |_: &Kind| {
        let mut tally = Tally::default();
        tally.add(3, &[Timed { from_ns: 0, ns: ms * 1_000_000 }; 3], &Stalls::default());
        tally
    };
    Found { rule, outcomes: vec![outcome], measured: KINDS.iter().map(tally).collect() }
}

fn failed(found: &[Found]) -> Vec<String> {
    judge(&[2.0], 100, found).checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
}

#[test]
fn late_sessions_of_bounds_and_pipes_fail_and_those_of_means_must_be() {
    let means = || [found(Rule::Declared, 60, 5, 170), found(Rule::Measured, 70, 9, 170)];
    let with = |bound: Found, pipes: Found| means().into_iter().chain([bound, pipes]).collect::<Vec<_>>();
    let good = || found(Rule::Bound, 30, 0, 20);
    assert_eq!(failed(&with(good(), found(Rule::Pipes(Default::default()), 25, 0, 20))), Vec::<String>::new());
    assert_eq!(
        failed(&with(found(Rule::Bound, 30, 1, 20), found(Rule::Pipes(Default::default()), 25, 0, 20))).len(),
        1,
        "late in virtual time"
    );
    assert_eq!(
        failed(&with(good(), found(Rule::Pipes(Default::default()), 25, 0, 151))).len(),
        1,
        "late in namespaces"
    );
    assert_eq!(
        failed(&with(good(), found(Rule::Pipes(Default::default()), 2, 0, 20))).len(),
        1,
        "admits next to nothing"
    );
    assert_eq!(
        failed(&with(good(), found(Rule::Pipes(Default::default()), 25, 0, 1))).len(),
        3,
        "faster than the line"
    );
    let even = [
        found(Rule::Declared, 60, 0, 20),
        found(Rule::Measured, 70, 0, 20),
        good(),
        found(Rule::Pipes(Default::default()), 25, 0, 20),
    ];
    assert_eq!(failed(&even).len(), 4, "nothing shows that the trace has bursts: {:?}", failed(&even));
}

#[test]
fn a_trace_offers_its_load() {
    let trace = Trace::new(2.0, 3000, 7).unwrap();
    let first = &trace.sessions[0];
    assert_eq!(Trace::new(2.0, 3000, 7).unwrap().sessions[0], *first, "seeded");
    let end = trace.sessions.last().unwrap().from;
    let sent: f64 = trace.sessions.iter().map(|one| KINDS[one.kind].rate() * (one.until - one.from) * 2.0 / 3.0).sum();
    let load = sent / end / 10e6;
    assert!((1.8..2.2).contains(&load), "{load}");
}

#[test]
fn borders_have_the_rate_that_the_experiment_counts_with() {
    let system = crate::prediction::changed(NETWORK, &[]).unwrap().system;
    assert!(BORDERS.iter().all(|border| system.links[*border].rate == BORDER));
}
