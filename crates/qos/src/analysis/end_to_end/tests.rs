use super::*;
use crate::Class;
use crate::analysis::stages::Classes;
use crate::network::{Direction, Network};
use crate::system::{Link, Node, NodeKind, Scheduler, Subscriber, Topic};
use crate::testing::{Sketch, sketch};

/// Hosts a and b at a switch, 100 Mbit/s without overhead.
fn switched(scheduler: Scheduler) -> System {
    let node = |name: &str, kind| Node { name: name.into(), kind, cpus: 1, ..Node::default() };
    let link = |name: &str, between| Link {
        name: name.into(),
        between,
        rate: 100_000_000,
        delay: 500,
        forwarding: 5000,
        mtu: 1500,
        scheduler,
        ..Link::default()
    };
    System {
        nodes: vec![node("a", NodeKind::Host), node("s", NodeKind::Switch), node("b", NodeKind::Host)],
        links: vec![link("as", [0, 1]), link("sb", [1, 2])],
        ..System::default()
    }
}

fn wanted(system: &mut System, size: u64, period: u64) {
    let topic = system.topics.len();
    system.topics.push(Topic {
        name: format!("t{topic}"),
        size,
        period,
        burst: 1,
        publishers: vec![0],
        ..Topic::default()
    });
    system.subscribers.push(Subscriber { topic, node: 2, scale: 1, ..Subscriber::default() });
}

fn bounds(system: &System, classes: &[Class]) -> (Stages, Analysis) {
    let classes = Classes::new(system, |topic| classes.get(topic).copied().unwrap_or_default());
    let stages = Stages::new(system, &Network::new(system), &[], &classes);
    let analysis = analyse(system, &stages, &Steps::of(system));
    (stages, analysis)
}

#[test]
fn alone_a_sample_takes_what_eq_6_says() {
    // Velox, eq. 6 (V-23): M·L + N·T + (M − 1)·T + (M − 1)·P, with M = 2 links, N = 4 packets of 120 µs: a packet follows the
    // other through the switch, and the sample is not sent twice as a whole. The second queue's figure is known to a percent.
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 6000, 10_000_000);
    let (_, analysis) = bounds(&system, &[Class::Normal]);
    let exact = 2 * 500 + 4 * 120_000 + 120_000 + 5000;
    let bound = analysis.pairs[0].ns.unwrap();
    // Forwarding may take less than declared: the line may bring packets by that much closer.
    assert!((exact..=exact + 5000 + 1500).contains(&bound), "{bound}: {:#?}", analysis.pairs[0].terms);
    assert_eq!(analysis.pairs[0].terms.iter().map(|term| term.ns).sum::<u64>(), bound);
    // Four packets of content are five with headers within the MTU.
    assert_eq!(analysis.queues[0][Class::Normal as usize].room, Some(Room { bytes: 6000, packets: 5 }));
}

#[test]
fn a_class_waits_for_one_lower_unit_and_for_higher_ones() {
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 125, 1_000_000);
    wanted(&mut system, 1500, 10_000_000);
    let (_, analysis) = bounds(&system, &[Class::High, Class::Low]);
    // 10 µs each time, 120 µs of the lower one before it, twice at worst.
    assert_eq!(analysis.pairs[0].ns, Ok(2 * (120_000 + 10_000 + 500) + 5000));
    let terms = |what| analysis.pairs[0].terms.iter().filter(|t| t.what.starts_with(what)).map(|t| t.ns).sum::<u64>();
    assert_eq!((terms("blocking"), terms("transmission"), terms("propagation")), (240_000, 20_000, 1000));
    let (_, fifo) = bounds(&switched_with(&system, Scheduler::Fifo), &[Class::High, Class::Low]);
    assert!(fifo.pairs[1].ns.unwrap() <= analysis.pairs[1].ns.unwrap());
}

fn switched_with(system: &System, scheduler: Scheduler) -> System {
    let mut system = system.clone();
    system.links.iter_mut().for_each(|link| link.scheduler = scheduler);
    system
}

#[test]
fn a_hand_over_is_a_term_of_what_a_thread_sends() {
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 125, 10_000_000);
    system.topics[0].cpu_send = 10_000;
    let alone = |system: &System| bounds(system, &[Class::Normal]).1.pairs[0].clone();
    let before = alone(&system).ns.unwrap();
    system.nodes[0].hand_over = 14_000;
    let handed_over = alone(&system);
    let bound = handed_over.ns.unwrap();
    assert!((before + 14_000..=before + 15_000).contains(&bound), "{before} {bound}");
    assert_eq!(handed_over.terms.iter().map(|term| term.ns).sum::<u64>(), bound);
    let own = |bound: &Bound| {
        let own = bound.terms.iter().find(|term| term.what == "handed over to its thread");
        own.map(|term| term.ns)
    };
    assert_eq!(own(&handed_over), Some(14_000), "{:?}", handed_over.terms);
    system.topics[0].cpu_send = 0;
    assert_eq!(own(&alone(&system)), None, "publish sends");
}

#[test]
fn an_overload_is_named() {
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 1500, 100_000);
    wanted(&mut system, 125, 1_000_000);
    let (_, analysis) = bounds(&system, &[Class::Normal, Class::High]);
    let because = analysis.pairs[0].ns.unwrap_err();
    assert_eq!(because.explain(&system), "as to s is asked for 121.00 % of what it has at this priority");
    assert!(analysis.pairs[1].ns.is_ok(), "a higher class does not suffer");
    system.topics[1].cpu_send = 2_000_000;
    let (_, analysis) = bounds(&system, &[Class::Normal, Class::High]);
    assert_eq!(analysis.pairs[1].ns, Err(Because::Overload(Where::Node(0), 2_000_000_000)));
}

#[test]
fn rings_of_dependence_end() {
    // Three switches in a ring, each stream over two of its links: every queue's bursts depend on the queue before. At 99.9 % there
    // may be no bound; there is an answer.
    let node = |name: usize| Node { name: name.to_string(), kind: NodeKind::Switch, cpus: 1, ..Node::default() };
    let link = |between: [usize; 2]| Link { between, rate: 100_000_000, mtu: 1500, ..Link::default() };
    let around = (0..5).map(|i| link([i, (i + 1) % 5])).collect();
    let mut system = System { nodes: (0..5).map(node).collect(), links: around, ..System::default() };
    for i in 0..5 {
        system.topics.push(Topic { size: 1500, period: 240_240, burst: 3, publishers: vec![i], ..Topic::default() });
        system.subscribers.push(Subscriber { topic: i, node: (i + 2) % 5, scale: 1, ..Subscriber::default() });
    }
    let (_, tight) = bounds(&system, &[]);
    assert!(tight.rounds <= ROUNDS);
    system.topics.iter_mut().for_each(|topic| topic.period *= 2);
    let (_, easy) = bounds(&system, &[]);
    assert!(easy.pairs.iter().all(|pair| pair.ns.is_ok()) && easy.rounds < 64, "{easy:?}");
}

/// Looks at all resources, and only then passes on their changes; `true` if there were any.
fn round(iteration: &mut Iteration) -> bool {
    let stages = iteration.stages;
    iteration.dirty.fill(false);
    (0..stages.egresses.len()).for_each(|queue| iteration.serve(queue));
    (0..stages.processors.len()).for_each(|processor| iteration.compute(processor));
    (0..iteration.dirty.len()).for_each(|resource| iteration.pass_on(resource, 1));
    iteration.dirty.contains(&true)
}

#[test]
fn downstream_finds_what_round_by_round_finds() {
    let (mut pairs, mut same) = (0, 0);
    let steps = Steps::new(u64::MAX);
    for seed in 0..400 {
        let Sketch { system, classes, places } = sketch(seed);
        let stages = Stages::new(&system, &Network::new(&system), &places, &classes);
        let mut iteration = Iteration::new(&system, &stages, &steps);
        let rounds = iteration.run();
        assert!(rounds >= ROUNDS || !round(&mut iteration), "seed {seed}: a fixed point");
        let found = report::report(&system, &iteration, rounds);
        let mut plain = Iteration::new(&system, &stages, &steps);
        let Some(rounds) = (0..ROUNDS).find(|_| !round(&mut plain)) else { continue };
        for (found, expected) in found.pairs.iter().zip(&report::report(&system, &plain, rounds).pairs) {
            pairs += 1;
            same += u32::from(found.ns == expected.ns);
            match (found.ns, expected.ns) {
                // The input of lines is known to a percent, and an excess of that size in an early round remains. Round by round, an
                // excess of any size may remain (1.7 % with seed 124): a lower one is a fixed point as well, and so a bound.
                (Ok(found), Ok(expected)) => {
                    assert!(found <= expected + expected / 100, "seed {seed}: {found} {expected}")
                }
                (found, expected) => assert!(found.is_ok() || expected.is_err(), "seed {seed}: {found:?} {expected:?}"),
            }
        }
    }
    println!("{same} of {pairs} bounds are the same to the nanosecond");
    assert!(pairs > 1000 && same * 100 >= pairs * 80);
}

#[test]
fn without_steps_there_are_no_bounds() {
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 125, 1_000_000);
    let stages = Stages::new(&system, &Network::new(&system), &[], &Classes::stated(&system));
    let few = analyse(&system, &stages, &Steps::new(3));
    assert!(matches!(few.pairs[0].ns, Err(Because::TooLong(_))), "{few:?}");
}

#[test]
fn a_system_that_once_broke_its_bound_keeps_it() {
    // Higher packets come over the same link just before the one that is asked for.
    assert!(crate::testing::compare(5_004_183, 4).is_ok());
}

#[test]
fn an_installed_queue_hands_its_device_a_burst_and_takes_super_packets_apart() {
    // 40 packets of a lower class leave a host at once, 4.8 ms on the wire; the token bucket's 3200 bytes hold two of them.
    let mut system = switched(Scheduler::Strict);
    wanted(&mut system, 125, 10_000_000);
    wanted(&mut system, 60_000, 10_000_000);
    let first = |system: &System| {
        let (stages, analysis) = bounds(system, &[Class::High, Class::Normal]);
        let Bound { ns, terms, .. } = &analysis.pairs[0];
        // The next queue meets them by both times later than at the earliest, and by the forwarding.
        let next = stages.pairs[0].last.and_then(|stage| analysis.stages[stage].jitter).unwrap();
        assert_eq!(terms.iter().map(|term| term.ns).sum::<u64>(), ns.unwrap());
        let there = Where::Link(Direction { link: 0, reversed: false });
        let found = ["blocking by what is being sent", "in the device"].map(|what| {
            terms.iter().filter(|term| term.what == what && term.at == there).map(|term| term.ns).sum::<u64>()
        });
        assert_eq!(next, found.iter().sum::<u64>() + 5000);
        found
    };
    assert_eq!(first(&system), [4_800_000, 0]);
    system.links[0].devices[0] = Some("eth0".into());
    assert_eq!(first(&system), [240_000, 256_000]);
    // The other end's device sends nothing of it.
    system.links[0].devices = [None, Some("eth0".into())];
    assert_eq!(first(&system), [4_800_000, 0]);
}

#[test]
fn feeding_stages_come_first() {
    // 3 feeds 1 and 2, both feed 0; 0 and 4 feed each other.
    let order = downstream(&[vec![4], vec![0], vec![0], vec![1, 2], vec![0]]);
    let place = |resource| order.iter().position(|other| *other == resource).unwrap();
    assert!(place(3) < place(1) && place(3) < place(2) && place(1) < place(0) && place(2) < place(0), "{order:?}");
    assert_eq!(order.len(), 5);
}
