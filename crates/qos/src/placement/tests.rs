use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::decomposition::Search;
use super::*;
use crate::system::{Link, Node, Objective, Proxies, Subscriber, Topic, Transport};

mod papers;
mod random;

const SECOND: u64 = 1_000_000_000;

/// A clock that stands still.
struct Still;

impl Watch for Still {
    fn elapsed(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Nodes that all may host proxies, and links of 1 Gbit/s without overhead.
fn network(nodes: usize, links: &[(usize, usize)]) -> System {
    let node = |index| Node { name: format!("n{index}"), cpus: 1, proxy: true, ..Node::default() };
    let link = |(index, &(a, b)): (usize, &(usize, usize))| Link {
        name: format!("l{index}"),
        between: [a, b],
        rate: 1_000_000_000,
        mtu: 1_000_000,
        ..Link::default()
    };
    let links = links.iter().enumerate().map(link).collect();
    System { nodes: (0..nodes).map(node).collect(), links, ..System::default() }
}

fn topic(publisher: usize, size: u64, rate: f64) -> Topic {
    let period = (1e9 / rate) as u64;
    Topic {
        name: format!("t{publisher}"),
        size,
        rate,
        period,
        burst: 1,
        publishers: vec![publisher],
        ..Topic::default()
    }
}

fn subscriber(topic: usize, node: usize, scale: u32, deadline: Option<u64>) -> Subscriber {
    Subscriber { topic, node, name: format!("/s{node}"), scale, deadline, ..Subscriber::default() }
}

fn placed_by(system: &System, effort: &Effort) -> Outcome {
    place(system, &Network::new(system), effort, &mut Still)
}

/// The answer of [`place`].
fn outcome(system: &System) -> Outcome {
    placed_by(system, &Effort::default())
}

#[test]
fn an_overloaded_link_is_named_with_what_it_would_need() {
    let mut system = network(3, &[(0, 1), (1, 2)]);
    system.topics = vec![topic(0, 1000, 100.0), topic(0, 1000, 50.0), topic(1, 10, 1.0)];
    system.subscribers = vec![subscriber(0, 2, 2, None), subscriber(1, 2, 1, None), subscriber(2, 2, 1, None)];
    // 50 Hz + 50 Hz of 8000 bit; the third topic doesn't come here.
    system.links[0].rate = 700_000;
    let found = outcome(&system);
    assert_eq!((found.status, found.value, found.placed.len()), (Status::Infeasible, None, 0));
    let link =
        Conflict { limit: Limit::Link(Direction { link: 0, reversed: false }), needs: 800_000.0, has: 700_000.0 };
    assert!(found.conflicts.contains(&link), "{:?}", found.conflicts);
    let served: Vec<usize> = found
        .conflicts
        .iter()
        .filter_map(|c| if let Limit::Served { topic, .. } = c.limit { Some(topic) } else { None })
        .collect();
    assert_eq!(served, [0, 1]);
    assert_eq!(found.conflicts.len(), 3);
}

#[test]
fn a_deadline_that_no_place_keeps_says_what_it_would_have_to_be() {
    let mut system = network(4, &[(0, 1), (1, 2), (2, 3)]);
    system.topics = vec![topic(0, 100, 10.0)];
    system.subscribers = vec![subscriber(0, 3, 4, Some(250_000_000))];
    let found = outcome(&system);
    assert_eq!(found.conflicts[1..], [Conflict { limit: Limit::Deadline { subscriber: 0 }, needs: 3e8, has: 2.5e8 }]);
    // The proxy at the subscriber would do, but may not be there.
    system.subscribers[0].deadline = Some(300_000_000);
    assert_eq!(outcome(&system).placed[0].node, 3);
    system.nodes[3].proxy = false;
    let found = outcome(&system);
    assert_eq!(found.conflicts[1].limit, Limit::Proxies);
    assert_eq!(found.conflicts[2], Conflict { limit: Limit::Deadline { subscriber: 0 }, needs: 6e8, has: 3e8 });
}

#[test]
fn nodes_without_a_route_are_named() {
    let mut system = network(4, &[(0, 1), (2, 3)]);
    system.topics = vec![topic(0, 100, 10.0)];
    system.subscribers = vec![subscriber(0, 1, 1, None), subscriber(0, 3, 1, None)];
    let found = outcome(&system);
    assert_eq!(found.status, Status::Infeasible);
    assert_eq!(
        found.conflicts.iter().map(|conflict| conflict.limit).collect::<Vec<_>>(),
        [Limit::Unreachable { publisher: 0, subscriber: 1 }]
    );
}

/// The requirements as they are, but for those that are left out.
fn fits(system: &System, kept: &[Conflict], without: Option<usize>) -> bool {
    let stays =
        |limit: &Limit| kept.iter().enumerate().any(|(at, conflict)| conflict.limit == *limit && Some(at) != without);
    let graph = Network::new(system);
    let mut problem = Problem::new(system, &graph);
    problem.groups.retain(|group| stays(&conflict::served(group)));
    for limit in 0..problem.capacity.len() {
        if !stays(&problem.limit(limit)) {
            problem.capacity[limit] = f64::INFINITY;
        }
    }
    for subscriber in 0..problem.deadlines.len() {
        if !stays(&Limit::Deadline { subscriber }) {
            problem.deadlines[subscriber] = f64::INFINITY;
        }
    }
    problem.anywhere = !stays(&Limit::Proxies);
    exact::best(&problem, &exact::choices(&problem)).is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_conflict_cannot_be_kept_and_nothing_of_it_can_be_left_out(system in random::system()) {
        let found = outcome(&system);
        if found.status == Status::Infeasible {
            let conflicts = &found.conflicts;
            prop_assert!(!fits(&system, conflicts, None), "{conflicts:?}");
            for (at, conflict) in conflicts.iter().enumerate() {
                prop_assert!(fits(&system, conflicts, Some(at)), "{conflicts:?} without {conflict:?}");
                prop_assert!(conflict.needs > conflict.has, "{conflict:?}");
            }
        }
    }
}

/// A flow as published, bit/s on the wire.
const WHOLE: f64 = 80_000.0;
const PUBLISHER: usize = 0;
const LEFT: usize = 1;
const RIGHT: usize = 2;

/// A topic for each of these: subscribers' scale, and their numbers on the left and on the right.
fn two_ways(wanted: &[(u32, usize, usize)]) -> System {
    let mut system = network(3, &[(PUBLISHER, LEFT), (PUBLISHER, RIGHT), (LEFT, RIGHT)]);
    system.placement.proxies = Proxies::Merged;
    system.links[0].rate = (1.97 * WHOLE) as u64;
    system.links[1].rate = (3.8 * WHOLE) as u64;
    for (at, &(scale, left, right)) in wanted.iter().enumerate() {
        system.topics.push(topic(PUBLISHER, 1000, 10.0));
        let nodes = std::iter::repeat_n(LEFT, left).chain(std::iter::repeat_n(RIGHT, right));
        system.subscribers.extend(nodes.map(|node| subscriber(at, node, scale, None)));
    }
    system
}

/// Two whole flows are too much for the left way and four for the right one. Only with three groups at the publisher everything fits, and
/// each of them alone would take more from one way than it gives the other, at equal fines.
#[test]
fn limits_that_are_exceeded_by_different_parts_do_not_hold_each_other() {
    let system = two_ways(&[(1, 0, 1), (4, 1, 3), (1, 1, 0), (3, 0, 2), (5, 1, 1), (1, 0, 1)]);
    let places: [&[usize]; 6] =
        [&[RIGHT], &[RIGHT, PUBLISHER], &[LEFT], &[LEFT, PUBLISHER], &[RIGHT, PUBLISHER], &[RIGHT]];
    let graph = Network::new(&system);
    let problem = Problem::new(&system, &graph);
    let choices = problem.groups.iter().zip(places);
    let candidates: Vec<Vec<_>> =
        choices.map(|(group, nodes)| nodes.iter().map(|node| problem.choice(group, *node)).collect()).collect();
    assert_eq!(exact::best(&problem, &candidates).map(|best| best.chosen[3].as_ref().unwrap().node), Some(PUBLISHER));
    let mut search = Search::new(&problem, candidates, vec![1e6; problem.capacity.len()]);
    let found = (0..100).any(|_| search.sweep());
    assert!(found && search.best.is_some_and(|(_, best)| best.keeps_all(&problem)));
}

/// Publisher on 0, two subscribers behind node 2: 0 – 1 – 2 – {3, 4}; 100 Hz, of which they want 1 in 10 and 1 in 5.
fn fork() -> System {
    let mut system = network(5, &[(0, 1), (1, 2), (2, 3), (2, 4)]);
    system.topics = vec![Topic { cpu_send: 10_000, ..topic(0, 1000, 100.0) }];
    system.subscribers = vec![subscriber(0, 3, 10, None), subscriber(0, 4, 5, None)];
    system.subscribers.iter_mut().for_each(|subscriber| subscriber.cpu_receive = 20_000);
    system.placement.cpu_proxy = 1_000;
    system
}

fn costs(system: &System) -> Vec<Cost> {
    table(system, &Network::new(system)).remove(0).1.into_iter().map(|line| line.cost).collect()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected.max(1.0), "{found} instead of {expected}");
}

#[test]
fn processors_are_counted_where_they_work() {
    let (send, receive, scale) = (10e-6, 20e-6, 1e-6);
    let all: Vec<f64> = costs(&fork()).iter().map(|cost| cost.cpu).collect();
    // With a proxy at the publisher, only wanted samples are sent and received.
    near(all[0], 200.0 * scale + 30.0 * (send + receive));
    // At a node between them, the whole of the protocol's work comes on top, once for each subscriber.
    near(all[1], 200.0 * (send + receive + scale) + 30.0 * (send + receive));
    near(all[2], all[1]);
    // At a subscriber, that one receives all.
    near(all[3], 200.0 * (send + receive + scale) + 20.0 * (send + receive));
    let mut system = fork();
    system.placement.objective = Objective::Cpu;
    let found = outcome(&system);
    assert_eq!(found.placed[0].node, 0);
    near(found.value.unwrap(), all[0]);
    system.placement.objective = Objective::Weighted;
    system.placement.cpu_weight = 0.5;
    near(outcome(&system).value.unwrap(), 4.0 * 30.0 * 8e-3 * 0.75 + 0.5 * all[0]);
}

#[test]
fn a_link_carries_each_multicast_stream_once() {
    let mut system = fork();
    system.placement.transport = Transport::Multicast;
    let all: Vec<f64> = costs(&system).iter().map(|cost| cost.messages_per_s).collect();
    // Two streams of 10 and 20 Hz from the proxy; to it, one of 100 Hz.
    assert_eq!(all, [90.0, 160.0, 230.0, 300.0 + 40.0, 300.0 + 20.0]);
    // Equal requests are one stream.
    system.subscribers[0].scale = 5;
    assert_eq!(costs(&system)[0].messages_per_s, 20.0 + 20.0 + 40.0);
}

#[test]
fn table_2_the_publishers_link_has_least_to_carry_with_proxies_at_the_subscribers() {
    // Four subscribers, each with a scale of its own: at the publisher four streams leave it, at the subscribers one.
    let mut system = network(6, &[(0, 1), (1, 2), (1, 3), (1, 4), (1, 5)]);
    system.placement.transport = Transport::Multicast;
    system.placement.proxies = Proxies::PerSubscriber;
    system.topics = vec![topic(0, 1000, 120.0)];
    system.subscribers = (2..6).map(|node| subscriber(0, node, node as u32, None)).collect();
    let graph = Network::new(&system);
    let problem = Problem::new(&system, &graph);
    let load = |nodes: [usize; 4]| Layout::of(&problem, &nodes).loads[0] / 8000.0;
    near(load([0; 4]), 60.0 + 40.0 + 30.0 + 24.0);
    near(load([2, 3, 4, 5]), 120.0);
    near(load([1; 4]), 120.0);
    // If that link has no more room, the proxies leave the publisher; the first node after it is the cheapest place.
    system.links[0].rate = 120 * 8000;
    let found = outcome(&system);
    assert_eq!(found.status, Status::Optimal);
    assert!(found.placed.iter().all(|placed| placed.node == 1), "{:?}", found.placed);
    near(found.value.unwrap(), 120.0 + 154.0);
    near(found.placed.iter().map(|placed| placed.cost.messages_per_s).sum(), 274.0);
}

#[test]
fn equal_requests_share_a_feed_when_merged() {
    let mut system = fork();
    system.subscribers[0].scale = 5;
    system.placement.proxies = Proxies::Merged;
    // One feed of 100 Hz; from the proxy, 20 Hz for each.
    assert_eq!(costs(&system)[2].messages_per_s, 200.0 + 40.0);
    system.placement.proxies = Proxies::PerTopic;
    assert_eq!(costs(&system)[2].messages_per_s, 400.0 + 40.0);
    system.placement.proxies = Proxies::Merged;
    system.subscribers[0].picture = Some([320, 240]);
    assert_eq!(outcome(&system).placed.len(), 2, "another picture is another request");
}

/// The stream that a relay makes pictures of is thinned at the publisher (`messages_are_made_smaller_at_each_place`).
#[test]
fn pictures_are_made_of_no_more_samples_than_are_wanted() {
    let mut system = fork();
    system.subscribers[0].picture = Some([320, 240]);
    // To node 2, 100 Hz of the one and 10 Hz of the other, and from there 10 and 20 Hz.
    let all = costs(&system);
    assert_eq!(all[2].messages_per_s, 2.0 * (100.0 + 10.0) + 30.0);
    let (send, receive, scale) = (10e-6, 20e-6, 1e-6);
    near(all[2].cpu, 110.0 * (send + receive + scale) + 30.0 * (send + receive));
    let graph = Network::new(&system);
    let problem = Problem::new(&system, &graph);
    let choice = problem.choice(&problem.groups[0], 2);
    assert!(choice.uses.contains(&(problem.proxies_of(2), 110.0)), "{:?}", choice.uses);
    assert_eq!(problem.value_at(&problem.groups[0], 2), problem.value(&choice.cost));
    // Every node on the way waits for the next sample that comes there: 10 periods, and 1 for the whole stream.
    assert_eq!(problem.delays(&problem.groups[0], 2), Some(vec![30.0 * 1e7, (2.0 + 5.0) * 1e7]));
    system.placement.transport = Transport::Multicast;
    assert_eq!(costs(&system)[2].messages_per_s, 2.0 * (100.0 + 10.0) + 30.0);
}

#[test]
fn a_proxy_leaves_a_node_that_may_not_host_it_or_can_take_no_more() {
    let mut system = fork();
    assert_eq!(outcome(&system).placed[0].node, 0);
    system.nodes[0].proxy = false;
    assert_eq!(outcome(&system).placed[0].node, 1);
    system.nodes[1].proxy_capacity = Some(199.0);
    assert_eq!(outcome(&system).placed[0].node, 2);
    system.nodes[1].proxy_capacity = Some(200.0);
    assert_eq!(outcome(&system).placed[0].node, 1);
    let excluded = vec![(0, 0, 1)];
    assert_eq!(placed_by(&system, &Effort { excluded, ..Effort::default() }).placed[0].node, 2);
}

#[test]
fn an_unscaled_stream_needs_no_proxy() {
    let mut system = fork();
    system.subscribers.iter_mut().for_each(|subscriber| subscriber.scale = 1);
    system.nodes.iter_mut().for_each(|node| node.proxy = false);
    let found = outcome(&system);
    assert_eq!((found.placed[0].node, found.value), (0, Some(600.0)));
    // Several publishers: each stream has its own place.
    system.topics[0].publishers = vec![0, 3];
    let found = outcome(&system);
    assert_eq!(found.placed.iter().map(|placed| placed.node).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(found.value, Some(600.0 + 200.0));
}
