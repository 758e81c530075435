//! Queues of channels' own harm nobody else, whatever is sent into them.

use super::*;
use crate::analysis::Arrivals;
use crate::analysis::stages::Leaf;

/// What topics with a queue of their own send.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    /// So many times as many samples as they say.
    Times(u64),
    /// Samples of one byte, as many as make twice as many bytes as they say, headers included, but at most 20 times as many samples, and many at once.
    Small,
}

impl Sent {
    fn change(self, topic: &mut Topic) {
        let times = match self {
            Self::Times(times) => times,
            Self::Small => (2 * (topic.size / 106 + 1)).min(20),
        };
        (topic.period, topic.rate) = ((topic.period / times).max(1), topic.rate * times as f64);
        if self == Self::Small {
            (topic.size, topic.burst) = (1, topic.burst.saturating_mul(4 * times as u32));
        }
    }
}

/// Gives the pairs that kept their bounds beside topics with a queue of their own that send so: those of other topics, and if all keep to what they say, their
/// own, if these are in time.
fn beside(sketch: &Sketch, seed: u64, sends: Sent, spoil: Spoil) -> Result<[usize; 2], String> {
    let Sketch { system, classes, places } = sketch;
    let stages = Stages::new(system, &Network::new(system), places, classes);
    let mut spoilt = stages.clone();
    spoil(&mut spoilt);
    let analysis = analyse(system, &spoilt, &Steps::of(system));
    let mut sent = system.clone();
    sent.topics.iter_mut().filter(|topic| topic.own_queue).for_each(|topic| sends.change(topic));
    let longest = system.topics.iter().map(|topic| topic.period + topic.jitter).max().unwrap_or(0);
    let run = Run { pattern: Pattern::Synchronous, seed, duration: 4 * longest, events: EVENTS };
    let seen = worst(&sent, &stages, &run, 1);
    let mut held = [0; 2];
    for (pair, (bound, seen)) in stages.pairs.iter().zip(analysis.pairs.iter().zip(&seen.pairs)) {
        let is_own = system.topics[stages.streams[pair.stream].topic].own_queue;
        let deadline = system.subscribers[pair.subscriber].deadline;
        let Ok(ns) = bound.ns else { continue };
        if !is_own || sends == Sent::Times(1) && deadline.is_some_and(|deadline| ns <= deadline) {
            keeps(ns, bound, seen.max).map_err(|wrong| format!("seed {seed}, {pair:?}: {wrong}"))?;
            held[usize::from(is_own)] += 1;
        }
    }
    Ok(held)
}

fn leaves(stages: &mut Stages, spoil: fn(&mut Leaf)) {
    for stage in &mut stages.stages {
        if let Step::Cross { leaf: Some(leaf), .. } = &mut stage.step {
            spoil(leaf);
        }
    }
}

/// A planner to which at later links no more comes than the contract says.
const FORGOTTEN: Spoil = |stages| {
    for stage in &mut stages.stages {
        if let Step::Cross { passed, .. } = &mut stage.step {
            *passed = None;
        }
    }
};

/// Whatever comes to a queue of a channel's own, all others keep their bounds; and its own channel, if it sends what it says. A planner that counts nothing of
/// what leaves such a queue is found out, and without the queue the others are late.
#[test]
fn a_channel_with_a_queue_of_its_own_harms_nobody_else() {
    let (first, systems) = (first(), if cfg!(debug_assertions) { 60 } else { 400 });
    let mut held = [0; 2];
    for seed in first..first + systems {
        for sends in [Sent::Times(1), Sent::Times(5), Sent::Small] {
            let found = beside(&owning(seed), seed, sends, |_| ()).unwrap_or_else(|wrong| panic!("{sends:?}: {wrong}"));
            held = [held[0] + found[0], held[1] + found[1]];
        }
    }
    println!(
        "{held:?} channels of others and with queues of their own keep their bounds, {systems} systems from {first}"
    );
    assert!(held.iter().all(|held| *held as u64 > systems / 2), "{held:?}");
    let nothing: Spoil = |stages| leaves(stages, |leaf| (leaf.bucket, leaf.share, leaf.unit) = (0, 1, 1));
    // Without a device no queue is installed, and none of them is its own.
    let together = |seed: u64| {
        let mut sketch = owning(seed);
        sketch.system.links.iter_mut().for_each(|link| link.devices = [None, None]);
        sketch
    };
    let five = Sent::Times(5);
    let unseen = |seed| beside(&owning(seed), seed, five, nothing).is_err();
    let forgotten = |seed| beside(&owning(seed), seed, five, FORGOTTEN).is_err();
    let shared = |seed| beside(&together(seed), seed, five, |_| ()).is_err();
    let wrong: [(&str, &dyn Fn(u64) -> bool); 3] = [
        ("a planner that counts nothing of it", &unseen),
        ("a planner that counts nothing of it at later links", &forgotten),
        ("one queue for all of a class", &shared),
    ];
    for (what, wrong) in wrong {
        // From the same one in each run: this asks whether the check works, and must not depend on the commit.
        let found = (0..5000).find(|seed| wrong(*seed));
        println!("{what}: found out by system {found:?}");
        assert!(found.is_some(), "{what}: found out by none of 5000 systems");
    }
}

/// A channel of 1000 B samples sends as many bytes in samples of one byte. The link behind takes the same time for each packet, so that a planner that counts
/// samples of the declared size there is wrong.
#[test]
fn a_planner_that_counts_no_small_packets_behind_an_own_queue_is_found_out() {
    const MS: u64 = 1_000_000;
    let node = |name: &str| Node { name: name.into(), cpus: 1, ..Node::default() };
    let link = |between, transmission, device: Option<String>| Link {
        between,
        rate: 10_000_000,
        mtu: 1500,
        overhead: 66,
        scheduler: Scheduler::Htb,
        transmission,
        devices: [device, None],
        ..Link::default()
    };
    let topic = |name: &str, size: u64, period: u64, own_queue| Topic {
        name: name.into(),
        size,
        period,
        rate: 1e9 / period as f64,
        burst: 1,
        publishers: vec![0],
        own_queue,
        ..Topic::default()
    };
    let deadline = Some(90 * MS);
    let subscriber = |topic| Subscriber { topic, node: 2, scale: 1, deadline, ..Subscriber::default() };
    let mut links = vec![link([0, 1], None, Some("eth0".into())), link([1, 2], Some(2 * MS), None)];
    links[1].scheduler = Scheduler::Fifo;
    let system = System {
        nodes: vec![node("a"), node("g"), node("b")],
        links,
        topics: vec![topic("bulk", 1000, 50 * MS, true), topic("state", 100, 50 * MS, false)],
        subscribers: vec![subscriber(0), subscriber(1)],
        ..System::default()
    };
    let classes = Classes::new(&system, |_| Class::Normal);
    let sketch = Sketch { system, classes, places: Vec::new() };
    let held = |spoil| (0..8).map(|seed| beside(&sketch, seed, Sent::Small, spoil)).collect::<Result<Vec<_>, _>>();
    let right: Spoil = |_| ();
    assert!(held(right).unwrap().iter().all(|held| held[0] == 1), "the other topic has a bound, and keeps it");
    // As if each packet were as large as declared.
    let large: Spoil = |stages| {
        let declared = Arrivals { period: 40_000_000, jitter: 160_000_000 };
        for stage in &mut stages.stages {
            if let Step::Cross { passed: Some(passed), .. } = &mut stage.step {
                *passed = declared;
            }
        }
    };
    assert!(held(large).is_err());
}
