use super::*;
use crate::analysis::stages::Stages;
use crate::contract::Contract;
use crate::simulate::{Chance, Pattern, Run, worst};
use crate::system::{Scheduler, Subscriber};
use pipes::{Unmade, Wanted};

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
fn a_refusal_says_whether_the_link_is_inside_a_domain_or_between_two() {
    let refused = |inside: u64, between: u64| {
        let mut system = even(1).system().clone();
        (system.links[0].rate, system.links[1].rate) = (inside, between);
        let refused = admitted(&Rule::Declared, &Flows::new(system), NOTHING).1;
        refused.first().map(|refusal| matches!(refusal, Refusal::Share { border: true, .. }))
    };
    let (enough, little) = (100_000_000, 800_000);
    assert_eq!(refused(enough, enough), None);
    assert_eq!(refused(little, enough), Some(false));
    assert_eq!(refused(enough, little), Some(true));
    assert_eq!(refused(little, little), Some(false), "the first link of the way");
}

#[test]
fn a_burst_is_no_rate() {
    let mut system = even(2).system().clone();
    system.topics.iter_mut().for_each(|topic| topic.burst = 3);
    assert_eq!(admitted(&Rule::Declared, &Flows::new(system), NOTHING).0.len(), 2);
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
    let of = |(class, limit): (Class, u64)| Wanted { from: 0, to: 3, class, limit: limit * MS, largest: 8100 };
    let wanted = [(Class::Critical, limit), (Class::High, 200), (Class::Normal, 400)].map(of);
    Pipes::new(flows.system(), &wanted, 0.5).unwrap()
}

#[test]
fn pipes_are_sold_until_they_are_full() {
    let pipes = pipes(&even(1), 80);
    let critical = pipes.all()[0];
    assert!(critical.bound <= 80 * MS && critical.burst > 8000, "{critical:?}");
    assert_eq!(critical.rate.round(), 1_000_000.0, "half of the share");
    let (all, refused) = admitted(&Rule::Pipes(pipes.clone()), &even(2), NOTHING);
    assert_eq!(all.len(), 1);
    assert!(matches!(refused[..], [Refusal::Pipe(Full::Rate { .. })]), "{refused:?}");
    // Few samples a second, but large ones: 8000 bytes in six packets.
    let one = |size, deadline| Flow { size, hz: 1, class: Class::Critical, deadline };
    let fit = critical.burst / (8000 + 6 * 66);
    let of = (0..=fit).map(|_| one(8000, 100)).chain([one(10, 10), one(8101, 100)]);
    let (all, refused) = admitted(&Rule::Pipes(pipes.clone()), &flows(&of.collect::<Vec<_>>(), 3), NOTHING);
    assert_eq!((all.len() as u64, fit > 0), (fit, true));
    let reasons = [Full::Burst { needs: 0, has: 0 }, Full::Size { needs: 0, has: 0 }].map(|full| full.to_string());
    let found: Vec<String> = refused.iter().map(Refusal::to_string).collect();
    assert_eq!(found, [&reasons[0], "no pipe within its deadline", &reasons[1]]);
    let mut system = even(1).system().clone();
    system.topics[0].cpu_send = 1;
    assert_eq!(admitted(&Rule::Pipes(pipes), &Flows::new(system), NOTHING).1, [Refusal::Processors]);
}

#[test]
fn what_comes_late_to_the_middleware_counts_as_burst() {
    let pipes = pipes(&even(1), 80);
    let mut system = flows(&[Flow { size: 1000, hz: 50, class: Class::Critical, deadline: 1000 }], 3).system().clone();
    assert_eq!(admitted(&Rule::Pipes(pipes.clone()), &Flows::new(system.clone()), NOTHING).0.len(), 1);
    system.topics[0].hand_in = 400 * MS;
    let refused = admitted(&Rule::Pipes(pipes), &Flows::new(system), NOTHING).1;
    assert!(matches!(refused[..], [Refusal::Pipe(Full::Burst { .. })]), "{refused:?}");
}

#[test]
fn pipes_that_bytes_do_not_measure_are_not_made() {
    let wanted = Wanted { from: 0, to: 3, class: Class::Critical, limit: 1000 * MS, largest: 1000 };
    let made = |change: &dyn Fn(&mut System), wanted: &[Wanted]| {
        let mut system = even(1).system().clone();
        system.chains.push(crate::system::Chain { parts: vec![Default::default()], ..Default::default() });
        change(&mut system);
        Pipes::new(&system, wanted, 0.5).map(|pipes| pipes.all().len())
    };
    assert_eq!(made(&|_| {}, &[wanted]), Ok(1));
    assert_eq!(made(&|_| {}, &[wanted, wanted]), Err(Unmade::Twice(1)));
    assert_eq!(made(&|_| {}, &[Wanted { to: 4, ..wanted }]), Err(Unmade::NoWay(0)));
    assert_eq!(made(&|_| {}, &[Wanted { to: 0, ..wanted }]), Err(Unmade::NoWay(0)));
    assert_eq!(made(&|_| {}, &[Wanted { limit: 0, ..wanted }]), Err(Unmade::Late(0)));
    assert_eq!(made(&|system| system.links[1].shares = None, &[wanted]), Err(Unmade::NoShares(1)));
    assert_eq!(made(&|system| system.links[2].transmission = Some(1), &[wanted]), Err(Unmade::Transmission(2)));
    assert_eq!(made(&|system| system.links[2].overhead = 1, &[wanted]), Err(Unmade::Overhead(2)));
}

/// 60 kB at 10 Mbit/s are 50 ms, which a device that took them at once does not interrupt.
#[test]
fn a_super_packet_of_a_lower_class_is_in_the_way() {
    let mut system = even(1).system().clone();
    system.links[0].rate = 10_000_000;
    network(Scheduler::Strict, Scheduler::Strict, &mut system);
    let of = |class, limit, largest| Wanted { from: 0, to: 3, class, limit: limit * MS, largest };
    let made = |largest| {
        Pipes::new(&system, &[of(Class::Critical, 40, 1000), of(Class::Normal, 400, largest)], 0.5).map(|_| ())
    };
    assert_eq!((made(1000), made(60_000)), (Ok(()), Err(Unmade::Late(0))));
}

#[test]
fn flows_without_a_way_have_no_bound_and_chains_do_not_count() {
    let mut system = even(2).system().clone();
    system.subscribers[0].node = 4;
    system.chains.push(crate::system::Chain { parts: vec![Default::default()], ..Default::default() });
    let bounds = Flows::new(system).bounds(&BTreeSet::from([0, 1]));
    assert!(matches!(bounds[..], [(0, None), (1, Some(_))]), "{bounds:?}");
}

/// A network: the link of the publishers' host, and the one between the domains.
fn network(own: Scheduler, between: Scheduler, system: &mut System) {
    for (link, scheduler) in [(0, own), (1, between)] {
        system.links[link].scheduler = scheduler;
        system.links[link].shares =
            matches!(scheduler, Scheduler::Htb | Scheduler::Hfsc).then_some([0.05, 0.45, 0.3, 0.2]);
    }
}

/// The numbers of flows that a rule admits, of those that are later than their deadline, and of those later than their pipe's bound, by the
/// worst that simulation finds: flows of all classes by chance, with jitter and bursts.
fn late(rule: impl Fn(&Flows) -> Rule, seed: u64) -> [usize; 3] {
    let mut chance = Chance(seed);
    let any = |chance: &mut Chance| {
        let all = [(Class::Critical, 80), (Class::High, 200), (Class::Normal, 400)];
        let (class, deadline) = all[chance.below(3) as usize];
        Flow { size: 100 + chance.below(8000), hz: 1 + chance.below(20), class, deadline }
    };
    let mut system = flows(&(0..60).map(|_| any(&mut chance)).collect::<Vec<_>>(), 3).system().clone();
    for topic in &mut system.topics {
        topic.jitter = chance.below(topic.period / 4);
        topic.burst = 1 + chance.below(2) as u32;
        topic.hand_in = chance.below(2) * MS;
    }
    let own = [Scheduler::Fifo, Scheduler::Strict, Scheduler::Htb][seed as usize % 3];
    system.links[0].rate = if seed.is_multiple_of(2) { 100_000_000 } else { 10_000_000 };
    network(own, [Scheduler::Htb, Scheduler::Strict][seed as usize / 3 % 2], &mut system);
    let all = Flows::new(system);
    let rule = rule(&all);
    let inside = admitted(&rule, &all, NOTHING).0;
    let system = all.only(&inside);
    let stages = Stages::new(&system, &Network::new(&system), &[], &Classes::stated(&system));
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 1000 * MS, events: 1_000_000 };
    let seen = worst(&system, &stages, &run, 1);
    assert!(!seen.cut);
    let later = |bound: &dyn Fn(usize) -> u64| {
        inside.iter().zip(&seen.pairs).filter(|(flow, pair)| pair.max > bound(**flow)).count()
    };
    let of_pipe = |flow: usize| {
        let Rule::Pipes(pipes) = &rule else { return u64::MAX };
        let pipe = pipes.all().iter().find(|pipe| pipe.wanted.class == all.class(flow)).unwrap();
        pipe.bound + all.system().topics[flow].hand_in
    };
    let deadline = |flow: usize| all.system().subscribers[flow].deadline.unwrap();
    [inside.len(), later(&deadline), later(&of_pipe)]
}

#[test]
fn bounds_and_pipes_keep_deadlines_and_means_do_not() {
    let (mut by_bound, mut by_pipes, mut by_rate) = ([0; 3], [0; 3], [0; 3]);
    for seed in 0..6 {
        let add =
            |sum: &mut [usize; 3], found: [usize; 3]| sum.iter_mut().zip(found).for_each(|(sum, one)| *sum += one);
        add(&mut by_bound, late(|_| Rule::Bound, seed));
        add(&mut by_pipes, late(|flows| Rule::Pipes(pipes(flows, 70)), seed));
        add(&mut by_rate, late(|_| Rule::Declared, seed));
    }
    assert!(by_bound[0] > 50 && by_pipes[0] > 15, "{by_bound:?} {by_pipes:?} {by_rate:?}");
    assert_eq!((by_bound[1], &by_pipes[1..]), (0, &[0, 0][..]), "late ones: {by_bound:?} {by_pipes:?}");
    assert!(by_rate[1] > 0, "{by_rate:?}: bursts do no harm here, so the others prove nothing");
}
