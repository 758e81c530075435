use std::time::{Duration, Instant};

use super::*;
use crate::system::{Link, Node, Subscriber, Topic};

mod appendix_a;
mod conflicts;
mod costs;
mod linearisation;
mod random;
mod search;
mod vbns;

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
