//! `many-nodes`: 1,000 nodes on one host, each of which shares a topic with two others: the time until all are
//! matched.

use crate::error::{Error, Result};
use crate::experiments::Experiment;
use crate::lab::{Lab, Size};
use crate::part::{NodeSettings, Orders, Part, Place};
use crate::results::{Bar, Check, Figure, Findings, Group, Panel, Table};
use crate::statistics::median;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Node, Publisher};

/// The experiment.
pub struct ManyNodes;

/// The role of a process with some of the nodes.
pub const ROLE: &str = "crowd";
/// Processes of the nodes: a node counts as one with or without a process of its own.
const PROCESSES: usize = 4;
/// Longest wait.
const LONG: Duration = Duration::from_secs(60);
/// For 1,000 nodes; fewer have their part of it.
const MOST_SECONDS: f64 = 5.0;
const MOST_DESCRIPTORS: f64 = 64.0;

/// The nodes of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Share {
    realm: String,
    all: usize,
    first: usize,
    count: usize,
}

/// Orders to a process; each is answered with its [`Descriptors`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Order {
    /// Opens its nodes, with a publisher each.
    Open,
    /// Subscribes to a publisher of another process with each, and waits until all of its own have a subscriber.
    Match,
}

/// Descriptors that a node takes, on average.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Descriptors {
    each: f64,
}

/// One try: seconds until all were open, until all were matched, and descriptors of each node at both.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    open: f64,
    matched: f64,
    alone: f64,
    connected: f64,
}

impl Experiment for ManyNodes {
    fn name(&self) -> &'static str {
        "many-nodes"
    }

    fn about(&self) -> &'static str {
        "1,000 nodes start on one host and share a topic with two others each: how long, with how many descriptors"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (all, tries) = match lab.options.size {
            Size::Tiny => (40, 1),
            Size::Ci => (500, 3),
            Size::Quick => (1000, 1),
            Size::Whole => (1000, 5),
        };
        let outcomes = (0..tries).map(|number| one(lab, number, all)).collect::<Result<Vec<_>>>()?;
        Ok(findings(all, &outcomes))
    }
}

fn one(lab: &Lab, number: usize, all: usize) -> Result<Outcome> {
    lab.tell(&format!("{all} nodes, try {}", number + 1));
    let count = all / PROCESSES;
    let realm = format!("crowd-{}-{number}", std::process::id());
    let share = |part: usize| Share { realm: realm.clone(), all, first: part * count, count };
    let start = |part| Part::start(lab, Place::here(&[]), ROLE, &share(part));
    let mut parts = (0..PROCESSES).map(start).collect::<Result<Vec<_>>>()?;
    for part in &mut parts {
        part.hear::<Descriptors>(lab, LONG)?;
    }
    let (open, alone) = all_do(lab, &mut parts, Order::Open)?;
    let (matched, connected) = all_do(lab, &mut parts, Order::Match)?;
    parts.iter_mut().for_each(Part::end);
    Ok(Outcome { open, matched: open + matched, alone, connected })
}

/// Lets all processes carry out an order. Gives the seconds until the last one is done, and the most descriptors.
fn all_do(lab: &Lab, parts: &mut [Part], order: Order) -> Result<(f64, f64)> {
    let began = Instant::now();
    parts.iter_mut().try_for_each(|part| part.tell(&order))?;
    let mut most: f64 = 0.0;
    for part in parts {
        most = most.max(part.hear::<Descriptors>(lab, LONG)?.each);
    }
    Ok((began.elapsed().as_secs_f64(), most))
}

fn findings(all: usize, outcomes: &[Outcome]) -> Findings {
    let heads = ["try", "open after s", "matched after s", "descriptors, nothing shared", "descriptors, matched"];
    let mut table = Table::new(format!("{all} nodes in {PROCESSES} processes"), &heads);
    for (number, one) in outcomes.iter().enumerate() {
        table.row((number + 1).to_string(), &[one.open, one.matched, one.alone, one.connected]);
    }
    let of = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Vec<_>>();
    let (matched, alone) = (of(|one| one.matched), of(|one| one.alone));
    let longest = matched.iter().copied().fold(0.0, f64::max);
    let bar = Bar { series: "matched".into(), value: median(&matched), mark: Some(longest), ..Bar::default() };
    Findings {
        checks: vec![
            Check::at_most(
                format!("{all} nodes: open and matched after, s"),
                median(&matched),
                MOST_SECONDS * all as f64 / 1000.0,
            ),
            Check::at_most(
                "descriptors of a node that shares nothing",
                alone.into_iter().fold(0.0, f64::max),
                MOST_DESCRIPTORS,
            ),
        ],
        notes: vec![format!(
            "{all} nodes in {PROCESSES} processes; each publishes a topic and, once all are open, subscribes to that of a node in another \
             process over tcp. Matched: every publisher has its subscriber; its time includes that of opening. Medians are judged."
        )],
        figure: Figure {
            title: "Many nodes on one host".into(),
            axis: "Open and matched after, s".into(),
            logarithmic: false,
            panels: vec![Panel {
                title: format!("{all} nodes"),
                groups: vec![Group { label: String::new(), bars: vec![bar] }],
            }],
        },
        tables: vec![table],
        ..Findings::default()
    }
}

/// The nodes of one process.
pub fn play(mut orders: Orders) -> Result {
    let share: Share = orders.settings()?;
    most_descriptors();
    let before = descriptors()?;
    let mut nodes: Vec<(usize, Node, Publisher<Raw>)> = Vec::new();
    let mut subscribers = Vec::new();
    let told = || {
        let each = (descriptors()? - before) as f64 / share.count.max(1) as f64;
        Ok::<_, Error>(Descriptors { each })
    };
    orders.say(&told()?)?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Open => {
                for number in share.first..share.first + share.count {
                    let node = NodeSettings::local(&format!("node{number}"), &share.realm).open()?;
                    let publisher = node.publisher::<Raw>(&format!("/t{number}")).open()?;
                    nodes.push((number, node, publisher));
                }
            }
            Order::Match => {
                for (number, node, _) in &nodes {
                    let other = (number + share.all / 2) % share.all;
                    subscribers.push(node.subscriber::<Raw>(&format!("/t{other}")).carriers(["tcp"]).open()?);
                }
                if let Some((number, ..)) = nodes.iter_mut().find(|(.., port)| !port.wait_connected(1, LONG)) {
                    return Err(Error::Failed(format!("/t{number}: no subscriber within {LONG:?}")));
                }
            }
        }
        orders.say(&told()?)?;
    }
    Ok(())
}

fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// As many descriptors as this user may have.
fn most_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_time_and_the_most_descriptors_are_judged() {
        let outcome = |matched, alone| Outcome { open: 1.0, matched, alone, connected: 20.0 };
        let judged = |all: &[Outcome]| findings(1000, all).checks.iter().map(|check| check.pass).collect::<Vec<_>>();
        assert_eq!(judged(&[outcome(4.0, 9.0), outcome(9.0, 9.0), outcome(3.0, 10.0)]), [true, true]);
        assert_eq!(judged(&[outcome(6.0, 9.0), outcome(9.0, 65.0), outcome(3.0, 10.0)]), [false, false]);
    }
}
