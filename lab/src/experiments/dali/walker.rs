//! The walker of the project DALi as a graph of programs, from its contract (D-15, D-16); and any other graph.

use crate::error::{Error, Result};
use crate::prediction::{changed, plan, text};
use qos::plan::{Model, Plan};
use serde::{Deserialize, Serialize};

/// One program of a graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Program {
    /// Its name, such as `loc`.
    pub name: String,
    /// Its host, from 1.
    pub host: u8,
    /// What it publishes, on a clock of its own.
    pub output: Option<Output>,
    /// What it subscribes to.
    pub inputs: Vec<Input>,
}

/// What a program publishes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Output {
    /// The topic.
    pub topic: String,
    /// Bytes of a message, at least [`super::sample::LEAST`].
    pub size: usize,
    /// Nanoseconds from one sample to the next.
    pub period_ns: u64,
    /// Scheduling of the publishing thread as planned, such as `fifo:30`.
    pub sched: Option<String>,
    /// The input whose last sample each one is made of.
    pub made_of: Option<String>,
}

/// What a program subscribes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Input {
    /// The topic.
    pub topic: String,
    /// Scheduling of the receiving thread as planned.
    pub sched: Option<String>,
}

/// A mapping of the walker's programs to boards: contract, plan, and programs.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// 1, 2 or 3, as in Table I.
    pub number: usize,
    /// The programs.
    pub programs: Vec<Program>,
    plan: Plan,
}

/// The contracts, by mapping.
const CONTRACTS: [&str; 3] = [
    include_str!("../../../../examples/dali-1.toml"),
    include_str!("../../../../examples/dali-2.toml"),
    include_str!("../../../../examples/dali-3.toml"),
];
/// The program that publishes each topic: a contract knows ports of subscribers alone.
const PUBLISHERS: [(&str, &str); 7] = [
    ("/pose", "loc"),
    ("/brakes", "bc"),
    ("/haptics", "hc"),
    ("/people", "pt"),
    ("/path", "stp"),
    ("/heatmap", "hm"),
    ("/route", "ltp"),
];
/// The chain: its first topic, and the one that is made of that.
const CHAIN: [&str; 2] = ["/pose", "/path"];
/// Its name in the contracts.
pub(super) const CHAIN_NAME: &str = "guide";
/// The program at whose callbacks Table I measures.
pub(super) const LAST: &str = "avi";
/// The link of the contracts.
const LINK: &str = "lan";

impl Mapping {
    /// Mapping 1, 2 or 3, planned for a link that is later than the contract's by `late_us`.
    ///
    /// # Errors
    /// [`Error::Failed`] for a contract that does not fit, or whose names are not those of the walker.
    pub(super) fn new(number: usize, late_us: f64) -> Result<Self> {
        let contract = CONTRACTS.get(number.wrapping_sub(1)).ok_or_else(|| wrong(&format!("no mapping {number}")))?;
        let system = changed(contract, &[])?.system;
        let late = if system.links.is_empty() {
            Vec::new()
        } else {
            vec![text("link", LINK, "delay", &format!("{late_us} us"))]
        };
        let plan = plan(contract, &late, Model::Bound)?;
        let mut programs = Vec::new();
        for topic in &system.topics {
            let (_, name) = PUBLISHERS.iter().find(|(of, _)| *of == topic.name).ok_or_else(|| wrong(&topic.name))?;
            let [publisher] = topic.publishers[..] else { return Err(wrong(&topic.name)) };
            let channel = plan.channels.iter().find(|channel| channel.topic == topic.name);
            let output = Output {
                topic: topic.name.clone(),
                size: usize::try_from(topic.size).unwrap_or(usize::MAX),
                period_ns: topic.period,
                sched: channel.and_then(|channel| channel.sched_publisher.clone()),
                made_of: (topic.name == CHAIN[1]).then(|| CHAIN[0].to_owned()),
            };
            of(&mut programs, name, publisher).output = Some(output);
        }
        for subscriber in &system.subscribers {
            let topic = system.topics[subscriber.topic].name.clone();
            let name = subscriber.name.strip_suffix(&topic).and_then(|name| name.strip_prefix('/'));
            let channel = plan.channels.iter().find(|channel| channel.subscriber == subscriber.name);
            let input = Input { topic, sched: channel.and_then(|channel| channel.sched.clone()) };
            let name = name.ok_or_else(|| wrong(&subscriber.name))?;
            of(&mut programs, name, subscriber.node).inputs.push(input);
        }
        Ok(Self { number, programs, plan })
    }

    /// The latest arrival of a topic's samples at a program by the plan, in µs; NaN: there is no such channel.
    pub(super) fn bound_us(&self, topic: &str, program: &str) -> f64 {
        let port = format!("/{program}{topic}");
        let of = self.plan.channels.iter().find(|channel| channel.subscriber == port);
        of.and_then(|channel| channel.bound_us).unwrap_or(f64::NAN)
    }

    /// The bound of the chain from LOC by STP to AVI, in µs.
    pub(super) fn chain_us(&self) -> f64 {
        let of = self.plan.chains.iter().find(|chain| chain.name == CHAIN_NAME);
        of.and_then(|chain| chain.bound_us).unwrap_or(f64::NAN)
    }

    /// For people: `mapping 3`.
    pub(super) fn name(&self) -> String {
        format!("mapping {}", self.number)
    }
}

/// The program of this name, on the node of this number from 0.
fn of<'a>(programs: &'a mut Vec<Program>, name: &str, node: usize) -> &'a mut Program {
    let at = programs.iter().position(|program| program.name == name).unwrap_or_else(|| {
        programs.push(Program { name: name.to_owned(), host: node as u8 + 1, ..Program::default() });
        programs.len() - 1
    });
    &mut programs[at]
}

fn wrong(name: &str) -> Error {
    Error::Failed(format!("the experiment's own contract: {name} is none of the walker's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(number: usize) -> Mapping {
        Mapping::new(number, 0.0).unwrap()
    }

    /// D-16.
    #[test]
    fn the_mappings_are_those_of_the_paper() {
        let on_the_first = |number: usize| {
            let programs = mapping(number).programs;
            assert_eq!(programs.len(), 8, "mapping {number}");
            let mut first: Vec<String> = programs.into_iter().filter(|p| p.host == 1).map(|p| p.name).collect();
            first.sort();
            first
        };
        assert_eq!(on_the_first(1).len(), 8);
        assert_eq!(on_the_first(2), ["avi", "hm", "ltp"]);
        assert_eq!(on_the_first(3), ["avi"]);
    }

    #[test]
    fn the_mappings_differ_in_places_alone() {
        let placeless = |number: usize| {
            let mut programs = mapping(number).programs;
            programs.sort_by(|one, other| one.name.cmp(&other.name));
            for program in &mut programs {
                program.host = 0;
                program.output.iter_mut().for_each(|output| output.sched = None);
                program.inputs.iter_mut().for_each(|input| input.sched = None);
            }
            programs
        };
        assert_eq!(placeless(1), placeless(2));
        assert_eq!(placeless(1), placeless(3));
    }

    /// D-15: people every 100 ms, poses every 10 ms, and no shorter period.
    #[test]
    fn the_periods_of_the_text_are_kept_and_each_bound_is_below_the_shortest() {
        for number in 1..=3 {
            let mapping = mapping(number);
            let outputs = || mapping.programs.iter().filter_map(|program| program.output.as_ref());
            let period = |topic: &str| outputs().find(|output| output.topic == topic).unwrap().period_ns;
            assert_eq!((period("/people"), period("/pose")), (100_000_000, 10_000_000));
            assert_eq!(outputs().map(|output| output.period_ns).min(), Some(10_000_000));
            let bounds: Vec<f64> = mapping
                .programs
                .iter()
                .flat_map(|program| program.inputs.iter().map(|input| mapping.bound_us(&input.topic, &program.name)))
                .collect();
            assert!(bounds.len() == 17 && bounds.iter().all(|us| *us < 10_000.0), "mapping {number}: {bounds:?}");
            assert!(mapping.chain_us() < 120_000.0);
        }
    }

    #[test]
    fn a_later_line_makes_later_bounds_where_it_is_crossed() {
        let [plain, late] = [0.0, 250.0].map(|us| Mapping::new(3, us).unwrap());
        let grown = |topic: &str, program: &str| late.bound_us(topic, program) - plain.bound_us(topic, program);
        assert!(grown("/pose", "avi") >= 250.0 && grown("/pose", "stp").abs() < 1.0);
        assert!(Mapping::new(4, 0.0).is_err() && Mapping::new(0, 0.0).is_err());
    }
}
