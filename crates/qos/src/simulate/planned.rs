//! The stages of a contract as its plan sets them.

use std::collections::HashMap;

use crate::analysis::Steps;
use crate::analysis::stages::{Place, Stages};
use crate::assignment::ranked;
use crate::network::Network;
use crate::plan::Plan;
use crate::system::System;

/// The stages of `system` with the classes and proxies of its `plan`, and for each of the plan's channels the pair that it is; `None`
/// for a channel that the contract does not have. Threads are ranked as by the planner.
pub fn planned(system: &System, plan: &Plan) -> (Stages, Vec<Option<usize>>) {
    let nodes: HashMap<&str, usize> = system.nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let topics: HashMap<&str, usize> = system.topics.iter().enumerate().map(|(i, t)| (t.name.as_str(), i)).collect();
    let ports: HashMap<&str, usize> =
        system.subscribers.iter().enumerate().map(|(i, s)| (s.name.as_str(), i)).collect();
    let mut classes: Vec<_> = system.topics.iter().map(|topic| topic.class.unwrap_or_default()).collect();
    let mut places = Vec::new();
    let mut keys = Vec::new();
    for channel in &plan.channels {
        let topic = topics.get(channel.topic.as_str()).copied();
        let publisher = nodes.get(channel.publisher.as_str()).copied();
        let subscriber = ports.get(channel.subscriber.as_str()).copied();
        let (Some(topic), Some(publisher), Some(subscriber)) = (topic, publisher, subscriber) else {
            keys.push(None);
            continue;
        };
        classes[topic] = channel.class;
        let proxy = channel.proxy.as_deref().and_then(|proxy| nodes.get(proxy));
        places.extend(proxy.map(|node| Place { publisher, subscriber, node: *node }));
        keys.push(Some((publisher, subscriber)));
    }
    let mut stages = Stages::new(system, &Network::new(system), &places, &classes);
    ranked(system, &mut stages, &Steps::of(system));
    let pairs = stages.pairs.iter().enumerate();
    let pairs: HashMap<(usize, usize), usize> =
        pairs.map(|(i, pair)| ((stages.streams[pair.stream].publisher, pair.subscriber), i)).collect();
    let of = |key: Option<(usize, usize)>| pairs.get(&key?).copied();
    let pairs = keys.into_iter().map(of).collect();
    (stages, pairs)
}
