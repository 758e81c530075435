//! Costs of a place: processors (P-54), multicast (P-31), shared proxies.

use super::*;
use crate::system::{Objective, Proxies, Transport};

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
