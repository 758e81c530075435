use super::*;
use crate::analysis::stages::Stages;
use crate::contract::Contract;
use crate::simulate::{Chance, Pattern, Run, worst};
use crate::system::Subscriber;
use pipes::Wanted;

/// Two domains, each a router with a host, and a link of 10 Mbit/s between them.
const NETWORK: &str = r#"
[system]
name = "two"
[[node]]
name = "a"
domain = "west"
[[node]]
name = "r1"
kind = "router"
domain = "west"
[[node]]
name = "r2"
kind = "router"
domain = "east"
[[node]]
name = "b"
domain = "east"
[[node]]
name = "alone"
[[link]]
name = "in"
between = ["a", "r1"]
rate = "100 Mbit/s"
[[link]]
name = "border"
between = ["r1", "r2"]
rate = "10 Mbit/s"
scheduler = "htb"
shares = { critical = "20 %", high = "30 %", normal = "45 %", low = "5 %" }
[[link]]
name = "out"
between = ["r2", "b"]
rate = "100 Mbit/s"
"#;

const MS: u64 = 1_000_000;

struct Flow {
    size: u64,
    hz: u64,
    class: Class,
    deadline: u64,
}

/// Flows from `a`, to `b` unless it is said otherwise.
fn flows(of: &[Flow], to: usize) -> Flows {
    let mut system = Contract::read(NETWORK).unwrap().system;
    for (index, Flow { size, hz, class, deadline }) in of.iter().enumerate() {
        let (rate, period, name) = (*hz as f64, 1000 * MS / hz, format!("f{index}"));
        let class = Some(*class);
        let topic = crate::system::Topic {
            name,
            size: *size,
            rate,
            period,
            burst: 1,
            publishers: vec![0],
            class,
            ..Default::default()
        };
        system.topics.push(topic);
        let (topic, node, name, deadline) = (index, to, format!("/f{index}"), Some(deadline * MS));
        system.subscribers.push(Subscriber { topic, node, name, scale: 1, deadline, ..Default::default() });
    }
    Flows::new(system)
}

/// Admits flows in order as long as the rule takes them, each refused one left out.
fn admitted(rule: &Rule, flows: &Flows, measured: Measured<'_>) -> (BTreeSet<usize>, Vec<Refusal>) {
    let (mut all, mut refused) = (BTreeSet::new(), Vec::new());
    for flow in 0..flows.system().topics.len() {
        match rule.admits(flows, &all, flow, measured) {
            Ok(()) => drop(all.insert(flow)),
            Err(refusal) => refused.push(refusal),
        }
    }
    (all, refused)
}

const NOTHING: Measured<'_> = &|_, _| 0.0;

/// 1000 bytes and 66 of headers, 100 times a second: 852.8 kbit/s.
fn even(count: usize) -> Flows {
    flows(
        &(0..count).map(|_| Flow { size: 1000, hz: 100, class: Class::Critical, deadline: 1000 }).collect::<Vec<_>>(),
        3,
    )
}

#[test]
fn declared_rates_fill_a_share() {
    let (all, refused) = admitted(&Rule::Declared, &even(3), NOTHING);
    assert_eq!(all.len(), 2, "of 2 Mbit/s");
    let Some(Refusal::Share { border: true, needs, has, .. }) = refused.first() else { panic!("{refused:?}") };
    assert_eq!((needs.round(), *has), (2_558_400.0, 2_000_000.0));
}

#[test]
fn a_check_inside_a_domain_comes_before_the_one_between_two() {
    let mut system = even(1).system().clone();
    system.links[0].rate = 800_000;
    let refused = admitted(&Rule::Declared, &Flows::new(system), NOTHING).1;
    assert!(matches!(refused[..], [Refusal::Share { border: false, .. }]), "{refused:?}");
}

#[test]
fn a_measured_load_counts_and_declared_ones_do_not() {
    assert_eq!(admitted(&Rule::Measured, &even(9), NOTHING).0.len(), 9, "nobody sends");
    // 90 % of 2 Mbit/s less 852.8 kbit/s.
    let loaded = |bits: f64| {
        move |at: Direction, class: Class| if at.link == 1 && class == Class::Critical { bits } else { 0.0 }
    };
    assert_eq!(admitted(&Rule::Measured, &even(1), &loaded(947_000.0)).0.len(), 1);
    assert_eq!(admitted(&Rule::Measured, &even(1), &loaded(948_000.0)).0.len(), 0);
}

#[test]
fn no_rule_admits_what_has_no_way() {
    let one = flows(&[Flow { size: 10, hz: 1, class: Class::High, deadline: 1000 }], 4);
    let pipes = pipes(&one, 100);
    for (rule, refusal) in [
        (Rule::Declared, Refusal::NoWay),
        (Rule::Measured, Refusal::NoWay),
        (Rule::Bound, Refusal::NoWay),
        (Rule::Pipes(pipes), Refusal::NoPipe),
    ] {
        assert_eq!(admitted(&rule, &one, NOTHING).1, [refusal], "{rule:?}");
    }
}

/// From `a` to `b` with each class, the critical one within `limit` ms.
fn pipes(flows: &Flows, limit: u64) -> Pipes {
    let of = |(class, limit): (Class, u64)| Wanted { from: 0, to: 3, class, limit: limit * MS };
    let wanted = [(Class::Critical, limit), (Class::High, 200), (Class::Normal, 400)].map(of);
    Pipes::new(flows.system(), &wanted, 0.9).unwrap()
}

#[test]
fn pipes_are_sold_until_they_are_full() {
    let pipes = pipes(&even(1), 60);
    let critical = pipes.all()[0];
    assert!(critical.bound <= 60 * MS && critical.burst > 0, "{critical:?}");
    assert_eq!(critical.rate.round(), 1_800_000.0, "90 % of the share");
    let (all, refused) = admitted(&Rule::Pipes(pipes.clone()), &even(3), NOTHING);
    assert_eq!(all.len(), 2);
    assert!(matches!(refused[..], [Refusal::Pipe(Full::Rate { .. })]), "{refused:?}");
    // Few samples a second, but as large as the burst.
    let large = Flow { size: critical.burst / 2, hz: 1, class: Class::Critical, deadline: 100 };
    let late = Flow { size: 10, hz: 1, class: Class::Critical, deadline: 10 };
    let (all, refused) = admitted(&Rule::Pipes(pipes), &flows(&[Flow { ..large }, Flow { ..large }, late], 3), NOTHING);
    assert_eq!(all.len(), 1);
    assert!(matches!(refused[..], [Refusal::Pipe(Full::Burst { .. }), Refusal::NoPipe]), "{refused:?}");
    let wanted = Wanted { from: 0, to: 3, class: Class::Critical, limit: 0 };
    assert_eq!(Pipes::new(even(1).system(), &[wanted], 0.9), None);
}

/// Flows of all classes by chance, as many as a rule admits, and the worst that simulation finds.
fn late(rule: impl Fn(&Flows) -> Rule, seed: u64) -> (usize, usize) {
    let mut chance = Chance(seed);
    let any = |chance: &mut Chance| {
        let (class, deadline) =
            [(Class::Critical, 60), (Class::High, 200), (Class::Normal, 400)][chance.below(3) as usize];
        Flow { size: 100 + chance.below(8000), hz: 1 + chance.below(20), class, deadline }
    };
    let all = flows(&(0..60).map(|_| any(&mut chance)).collect::<Vec<_>>(), 3);
    let inside = admitted(&rule(&all), &all, NOTHING).0;
    let system = all.only(&inside);
    let stages = Stages::new(&system, &Network::new(&system), &[], &Classes::stated(&system));
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 1000 * MS, events: 1_000_000 };
    let seen = worst(&system, &stages, &run, 1);
    let late = inside.iter().zip(&seen.pairs).filter(|(flow, pair)| !all.in_time(**flow, Some(pair.max)));
    (inside.len(), late.count())
}

#[test]
fn bounds_and_pipes_keep_deadlines_and_means_do_not() {
    let (mut by_bound, mut by_pipes, mut by_rate) = ([0; 2], [0; 2], [0; 2]);
    for seed in 0..6 {
        let add = |sum: &mut [usize; 2], (inside, late): (usize, usize)| *sum = [sum[0] + inside, sum[1] + late];
        add(&mut by_bound, late(|_| Rule::Bound, seed));
        add(&mut by_pipes, late(|flows| Rule::Pipes(pipes(flows, 60)), seed));
        add(&mut by_rate, late(|_| Rule::Declared, seed));
    }
    assert!(by_bound[0] > 30 && by_pipes[0] > 20, "{by_bound:?} {by_pipes:?} {by_rate:?}");
    assert_eq!((by_bound[1], by_pipes[1]), (0, 0), "late ones");
    assert!(by_rate[1] > 0, "{by_rate:?}: bursts do no harm here, so the others prove nothing");
}
