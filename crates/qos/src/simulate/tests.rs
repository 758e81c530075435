use super::*;
use crate::Class;
use crate::analysis::end_to_end::analyse;
use crate::analysis::stages::Place;
use crate::contract::{Link, Node, NodeKind, Placement, Proxies, Scheduler, Subscriber, Topic, Transport};
use crate::network::Network;
use release::Chance;

/// A small system of any kind, with the class of each topic and the places of proxies; loads from light to too much.
fn random(seed: u64) -> (System, Vec<Class>, Vec<Place>) {
    let mut chance = Chance(seed);
    let mut one_of = |list: &[u64]| list[chance.below(list.len() as u64) as usize];
    let count = 2 + one_of(&[0, 1, 2, 3, 4, 5]) as usize;
    let kinds = [NodeKind::Host, NodeKind::Host, NodeKind::Host, NodeKind::Router, NodeKind::Switch];
    let nodes = (0..count).map(|i| Node {
        name: format!("n{i}"),
        kind: if i < 2 { NodeKind::Host } else { kinds[one_of(&[0, 1, 2, 3, 4]) as usize] },
        cpus: one_of(&[1, 1, 2]) as u32,
        proxy: true,
        ..Node::default()
    });
    let nodes: Vec<Node> = nodes.collect();
    let mut links: Vec<Link> = Vec::new();
    let mut join = |a: usize, b: usize, one_of: &mut dyn FnMut(&[u64]) -> u64| {
        let schedulers = [Scheduler::Fifo, Scheduler::Strict, Scheduler::Strict, Scheduler::Htb, Scheduler::Hfsc];
        let rate = one_of(&[10, 100, 100, 1000]) * 1_000_000;
        links.push(Link {
            name: format!("l{}", links.len()),
            between: [a, b],
            rate,
            delay: one_of(&[0, 500, 50_000]),
            forwarding: one_of(&[0, 5000]),
            mtu: one_of(&[1500, 1500, 600]),
            overhead: one_of(&[0, 66]),
            scheduler: schedulers[one_of(&[0, 1, 2, 3, 4]) as usize],
            shares: one_of(&[0, 1]).eq(&1).then_some([0.2, 0.45, 0.3, 0.05]),
            background: rate / 100 * one_of(&[0, 0, 0, 10, 40]),
            ..Link::default()
        });
    };
    for i in 1..count {
        let to = one_of(&(0..i as u64).collect::<Vec<_>>()) as usize;
        join(to, i, &mut one_of);
    }
    if count > 3 && one_of(&[0, 1]) == 1 {
        join(0, count - 1, &mut one_of);
    }
    let (mut topics, mut subscribers, mut classes, mut places) = (vec![], vec![], vec![], vec![]);
    let any = |one_of: &mut dyn FnMut(&[u64]) -> u64| one_of(&(0..count as u64).collect::<Vec<_>>()) as usize;
    for t in 0..1 + one_of(&[0, 1, 2, 3, 4, 5, 6, 7]) as usize {
        let period = one_of(&[1, 2, 5, 10, 20, 33]) * one_of(&[500_000, 1_000_000, 1_000_003]);
        let publisher = any(&mut one_of);
        let size = one_of(&[8, 64, 200, 1000, 1500, 4000, 8192, 20_000]);
        topics.push(Topic {
            name: format!("t{t}"),
            size,
            period,
            rate: 1e9 / period as f64,
            jitter: one_of(&[0, 0, 0, 100_000, period / 2, period * 2]),
            burst: one_of(&[1, 1, 1, 2, 4]) as u32,
            publishers: if one_of(&[0, 0, 0, 1]) == 1 { vec![publisher, any(&mut one_of)] } else { vec![publisher] },
            cpu_send: one_of(&[0, 10_000, 50_000, 200_000]),
            hand_in: one_of(&[0, 0, 1600]),
            hand_out: one_of(&[0, 0, 42_000]),
            ..Topic::default()
        });
        topics[t].publishers.dedup();
        classes.push(Class::ALL[one_of(&[0, 1, 1, 2, 3]) as usize]);
        for _ in 0..1 + one_of(&[0, 0, 1, 2]) {
            let (scale, node) = (one_of(&[1, 1, 2, 3]) as u32, any(&mut one_of));
            if scale > 1 {
                let proxy = any(&mut one_of);
                let here = subscribers.len();
                places.extend(topics[t].publishers.iter().map(|p| Place {
                    publisher: *p,
                    subscriber: here,
                    node: proxy,
                }));
            }
            subscribers.push(Subscriber {
                topic: t,
                node,
                name: format!("/s{}", subscribers.len()),
                scale,
                scaled_size: (scale == 3).then_some(size / 2),
                deadline: Some(period * one_of(&[1, 2, 5])),
                cpu_receive: one_of(&[0, 10_000, 50_000, 200_000]),
                ..Subscriber::default()
            });
        }
    }
    let placement = Placement {
        transport: if one_of(&[0, 1]) == 1 { Transport::Multicast } else { Transport::Unicast },
        proxies: if one_of(&[0, 1]) == 1 { Proxies::Merged } else { Proxies::PerTopic },
        cpu_proxy: one_of(&[0, 20_000]),
        ..Placement::default()
    };
    (System { name: "random".into(), nodes, links, topics, subscribers, placement }, classes, places)
}

/// Bounds ÷ what the worst patterns show, of all pairs with a bound; panics where a bound does not hold.
fn compare(seeds: std::ops::Range<u64>, tries: u64) -> Vec<f64> {
    let mut ratios = Vec::new();
    let (mut pairs, mut bounded) = (0, 0);
    for seed in seeds {
        let (system, classes, places) = random(seed);
        let stages = Stages::new(&system, &Network::new(&system), &places, &classes);
        let analysis = analyse(&system, &stages);
        let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
        let run = Run { pattern: Pattern::Synchronous, seed, duration: 4 * longest, events: 30_000 };
        let seen = worst(&system, &stages, &run, tries);
        for (pair, (bound, seen)) in analysis.pairs.iter().zip(&seen.pairs).enumerate() {
            pairs += 1;
            let Ok(ns) = bound.ns else { continue };
            bounded += 1;
            assert!(
                ns >= seen.max,
                "seed {seed}, pair {pair} {:?}: {ns} < {}: {:#?}",
                stages.pairs[pair],
                seen.max,
                bound.terms
            );
            assert_eq!(bound.terms.iter().map(|term| term.ns).sum::<u64>(), ns, "seed {seed}, pair {pair}");
            if seen.max > 0 {
                ratios.push(ns as f64 / seen.max as f64);
            }
        }
        for (queue, (bounds, seen)) in analysis.queues.iter().zip(&seen.queues).enumerate() {
            if bounds.iter().all(|bound| bound.streams == 0 || bound.room.is_some()) {
                let room: u64 = bounds.iter().filter_map(|bound| Some(bound.room?.bytes)).sum();
                assert!(room >= *seen, "seed {seed}, queue {queue}: {room} < {seen}");
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    eprintln!("{pairs} pairs, {bounded} with a bound");
    ratios
}

fn report(ratios: &[f64]) {
    let at = |part: f64| ratios[((ratios.len() - 1) as f64 * part) as usize];
    eprintln!(
        "{} bounds hold; bound / seen: median {:.2}, p90 {:.2}, p99 {:.2}",
        ratios.len(),
        at(0.5),
        at(0.9),
        at(0.99)
    );
}

#[test]
fn bounds_hold_against_the_worst_patterns() {
    let ratios = compare(0..60, 1);
    report(&ratios);
    assert!(ratios.len() > 80);
}

/// `THALWEG_SYSTEMS` says how many systems (10,000), `THALWEG_SEED` where they begin:
/// `cargo test --release -p thalweg-qos -- --ignored ten_thousand --nocapture`.
#[test]
#[ignore = "takes minutes; run in release"]
fn bounds_hold_on_ten_thousand_systems() {
    let setting = |name, default| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default);
    let (from, count) = (setting("THALWEG_SEED", 1_000_000), setting("THALWEG_SYSTEMS", 10_000));
    report(&compare(from..from + count, 4));
}

#[test]
fn a_plan_is_simulated_as_it_was_made() {
    struct Never;
    impl crate::placement::Watch for Never {
        fn elapsed(&mut self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }
    let contract = crate::contract::Contract::read(include_str!("../../../../examples/robot.toml")).unwrap();
    let plan = crate::plan::make(&contract, crate::plan::Model::Bound, &mut Never);
    let (stages, pairs) = planned(&contract.system, &plan);
    let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 300_000_000, events: 200_000 };
    let seen = worst(&contract.system, &stages, &run, 1);
    assert!(
        !plan.channels.is_empty() && seen == worst(&contract.system, &stages, &run, 1),
        "the same for the same seed"
    );
    for (channel, pair) in plan.channels.iter().zip(pairs) {
        let seen = seen.pairs[pair.unwrap()];
        let (max, bound) = (seen.max as f64 / 1e3, channel.bound_us.unwrap());
        assert!(seen.count > 0 && max <= bound + 1e-6, "{} to {}: {max} > {bound}", channel.topic, channel.subscriber);
    }
    let (_, unknown) = planned(&crate::contract::System::default(), &plan);
    assert!(unknown.iter().all(Option::is_none));
}
