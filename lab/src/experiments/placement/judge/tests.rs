//! The judge on made-up measurements: right ones pass, and each wrong one fails the check that is there for it.

use super::super::{STAR, VBNS};
use super::*;
use crate::stalls::{Stalls, Timed};

const SECONDS: f64 = 10.0;

/// All places as the model has them, and 5 ms besides.
fn measured(example: &Example) -> Vec<Place> {
    let mut places = example.places(None).unwrap();
    let system = example.system().unwrap();
    let wire = (system.topics[0].size + OVERHEAD) as f64 * 8.0;
    for place in &mut places {
        let count = |bits: &f64| Count {
            sent: (bits / 8.0 * SECONDS).round() as u64 + 1000,
            bytes: (bits / 8.0 * SECONDS).round() as u64,
            datagrams: (bits / wire * SECONDS).round() as u64,
        };
        let links = place.predicted.links.iter().map(|way| [count(&way[0]), count(&way[1])]).collect();
        place.traffic = vec![Traffic { published_s: SECONDS, window_s: SECONDS, links }];
        place.periodic = place.predicted.delays_us.iter().map(|us| tally(us + 5000.0)).collect();
        place.at_once = place.predicted.delays_us.iter().map(|_| tally(5000.0)).collect();
    }
    places
}

fn tally(us: f64) -> Tally {
    let mut tally = Tally::default();
    tally.add(20, &[Timed { from_ns: 0, ns: (us * 1e3) as u64 }; 20], &Stalls::default());
    tally
}

/// Names of the checks that fail.
fn failed(example: &Example, places: Vec<Place>) -> Vec<String> {
    let findings = judge(example, &places).unwrap();
    assert!(findings.checks.len() > 20 && !findings.tables.is_empty());
    findings.checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
}

#[test]
fn right_measurements_pass() {
    for example in [&VBNS.example, &STAR.example] {
        assert_eq!(failed(example, measured(example)), Vec::<String>::new());
    }
}

#[test]
fn a_proxy_that_passes_everything_through_fails() {
    for example in [&VBNS.example, &STAR.example] {
        let mut places = measured(example);
        let full = places.iter().flat_map(|place| place.traffic[0].links.iter().flatten());
        let full = full.copied().max_by_key(|count| count.bytes).unwrap();
        // Every link that carries some of it carries as much as one before the proxy.
        let place = &mut places[0];
        place.traffic[0].links.iter_mut().flatten().filter(|way| way.bytes > 0).for_each(|way| *way = full);
        let failed = failed(example, places);
        for part in ["the link furthest from the plan's load", "the paper's cost", "as planned / the least"] {
            assert!(failed.iter().any(|name| name.contains(part)), "{part}: {failed:?}");
        }
    }
}

#[test]
fn another_best_place_than_the_planned_one_fails() {
    // With the proxy at n2 samples come as soon as with it at n3, so n2 would be the cheaper place for 9.5 T.
    let mut places = measured(&VBNS.example);
    places[2].periodic = vec![tally(9.0 * T)];
    let failed = failed(&VBNS.example, places);
    assert!(failed.iter().any(|name| name.contains("deadline 9.5 T: traffic with the proxy at n3")), "{failed:?}");
    assert!(failed.iter().any(|name| name.contains("proxy at n2: delay") && name.ends_with("least")), "{failed:?}");
    // The planned place is late.
    let mut places = measured(&STAR.example);
    places[4].periodic[1] = tally(3.6 * T);
    let failed = self::failed(&STAR.example, places);
    assert!(
        failed.iter().any(|name| name.contains("per-topic, deadline 3.5 T: traffic with the proxy at n5")),
        "{failed:?}"
    );
    // A place is in time where the plan has none.
    let mut places = measured(&STAR.example);
    places[0].periodic = vec![tally(2.0 * T), tally(2.0 * T)];
    let failed = self::failed(&STAR.example, places);
    assert!(failed.iter().any(|name| name.contains("deadline 2.5 T: the plan has no place")), "{failed:?}");
}

#[test]
fn nodes_that_hold_samples_back_where_they_should_send_at_once_fail() {
    let mut places = measured(&VBNS.example);
    places.iter_mut().for_each(|place| place.at_once = vec![tally(1.5 * T)]);
    let failed = failed(&VBNS.example, places);
    assert!(failed.iter().any(|name| name.contains("at once")), "{failed:?}");
}

#[test]
fn losses_and_missing_samples_fail() {
    let mut places = measured(&VBNS.example);
    places[1].periodic[0].add(3, &[Timed { from_ns: 0, ns: (11.1 * T * 1e3) as u64 }; 2], &Stalls::default());
    places[3].periodic[0] = Tally::default();
    let failed = failed(&VBNS.example, places);
    assert!(failed.iter().any(|name| name == "proxy at n1: lost"), "{failed:?}");
    assert!(failed.iter().any(|name| name.contains("proxy at n3: delay")), "{failed:?}");
}

#[test]
fn the_papers_costs_are_the_plans() {
    for example in [&VBNS.example, &STAR.example] {
        let system = example.system().unwrap();
        let places = example.places(None).unwrap();
        for (place, printed) in places.iter().zip(printed(example, &system)) {
            let Predicted { messages_per_s, bits_per_s, .. } = place.predicted;
            let planned = if system.placement.objective == Objective::Messages { messages_per_s } else { bits_per_s };
            assert_eq!(planned, printed, "{}", place.name);
        }
    }
}
