//! A plan in virtual time: the largest simulated delay beside each bound.

use crate::failure::{Failure, Result};
use crate::output::table;
use qos::plan::{Chain, Model, Plan};
use qos::show_time;
use qos::simulate::{PairSeen, Pattern, Run, Seen, planned, simulate, worst};
use qos::system::System;
use serde::Serialize;
use std::time::Duration;

/// Limit of events in one run, so that it ends within seconds.
const EVENTS: u64 = 5_000_000;
/// Limit of pairs that runs are aimed at, one by one; and limit of events in each of these runs.
const AIMED: usize = 200;
const AIMED_EVENTS: u64 = 50_000;

/// The result of a simulation.
#[derive(Debug, Serialize)]
pub(super) struct Simulation {
    seed: u64,
    seconds: f64,
    /// A run reached the limit of events and ended early.
    cut: bool,
    /// Channels and chains with a sample later than the bound.
    broken: usize,
    /// Median of bound ÷ largest delay.
    tightness: Option<f64>,
    channels: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chains: Vec<ChainRow>,
}

/// A chain.
#[derive(Debug, Serialize)]
struct ChainRow {
    name: String,
    samples: u64,
    mean_us: Option<f64>,
    max_us: Option<f64>,
    bound_us: Option<f64>,
    holds: bool,
}

/// A channel.
#[derive(Debug, Serialize)]
struct Row {
    topic: String,
    publisher: String,
    subscriber: String,
    samples: u64,
    mean_us: Option<f64>,
    max_us: Option<f64>,
    bound_us: Option<f64>,
    holds: bool,
}

/// Simulates `plan` for `duration` under each pattern of release, and then aimed at each channel for as long as
/// needed.
pub(super) fn run(system: &System, plan: &Plan, duration: Duration, seed: u64) -> Result<Simulation> {
    if plan.model != Model::Bound {
        let said = format!("--simulate checks the bounds of the model bound, not {}; leave --model out", plan.model);
        return Err(Failure::Usage(said));
    }
    let (stages, pairs) = planned(system, plan);
    let duration = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let longest = system.topics.iter().map(|topic| topic.period.saturating_add(topic.jitter)).max().unwrap_or(0);
    let plain = Run { pattern: Pattern::Synchronous, seed, duration, events: EVENTS };
    let patterns = [Pattern::Synchronous, Pattern::RandomPhases, Pattern::Late];
    let runs = patterns.map(|pattern| simulate(system, &stages, &Run { pattern, ..plain }));
    let mut seen = runs.iter().fold(Seen::default(), Seen::and);
    let cut = seen.cut;
    if stages.pairs.len() <= AIMED {
        let aimed = Run { duration: longest.saturating_mul(4).min(duration), events: AIMED_EVENTS, ..plain };
        seen = seen.and(&worst(system, &stages, &aimed, 4));
    }
    let rows: Vec<Row> = plan.channels.iter().zip(pairs).map(|(channel, pair)| row(channel, pair, &seen)).collect();
    let chains: Vec<ChainRow> = plan.chains.iter().map(|chain| chain_row(system, chain, &seen)).collect();
    let mut ratios: Vec<f64> = rows.iter().filter_map(|row| Some(row.bound_us? / row.max_us?)).collect();
    ratios.sort_by(f64::total_cmp);
    Ok(Simulation {
        seed,
        seconds: duration as f64 / 1e9,
        cut,
        broken: rows
            .iter()
            .map(|row| row.holds)
            .chain(chains.iter().map(|row| row.holds))
            .filter(|holds| !holds)
            .count(),
        tightness: ratios.get(ratios.len() / 2).copied(),
        channels: rows,
        chains,
    })
}

fn row(channel: &qos::plan::Channel, pair: Option<usize>, seen: &Seen) -> Row {
    let seen = pair.and_then(|pair| seen.pairs.get(pair)).copied().filter(|seen| seen.count > 0);
    let [mean_us, max_us] = mean_and_max(seen);
    Row {
        topic: channel.topic.clone(),
        publisher: channel.publisher.clone(),
        subscriber: channel.subscriber.clone(),
        samples: seen.map_or(0, |seen| seen.count),
        mean_us,
        max_us,
        bound_us: channel.bound_us,
        holds: holds(max_us, channel.bound_us),
    }
}

fn chain_row(system: &System, chain: &Chain, seen: &Seen) -> ChainRow {
    let index = system.chains.iter().position(|one| one.name == chain.name);
    let seen = index.and_then(|index| seen.chains.get(index)).copied().filter(|seen| seen.count > 0);
    let [mean_us, max_us] = mean_and_max(seen);
    ChainRow {
        name: chain.name.clone(),
        samples: seen.map_or(0, |seen| seen.count),
        mean_us,
        max_us,
        bound_us: chain.bound_us,
        holds: holds(max_us, chain.bound_us),
    }
}

fn mean_and_max(seen: Option<PairSeen>) -> [Option<f64>; 2] {
    [seen.map(|seen| seen.sum as f64 / seen.count as f64 / 1e3), seen.map(|seen| seen.max as f64 / 1e3)]
}

/// A billionth is allowed for rounding in the sum of a bound's terms in µs.
fn holds(max_us: Option<f64>, bound_us: Option<f64>) -> bool {
    max_us.zip(bound_us).is_none_or(|(max, bound)| max <= bound * (1.0 + 1e-9))
}

fn ratio(bound_us: Option<f64>, max_us: Option<f64>, holds: bool) -> String {
    let ratio = bound_us.zip(max_us).map(|(bound, max)| format!("{:.2}", bound / max));
    if holds { ratio.unwrap_or("-".to_owned()) } else { "BROKEN".to_owned() }
}

impl Simulation {
    /// The table, for people.
    pub(super) fn text(&self) -> String {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let row = |row: &Row| {
            let ratio = ratio(row.bound_us, row.max_us, row.holds);
            let names = [row.topic.clone(), row.publisher.clone(), row.subscriber.clone(), row.samples.to_string()];
            names.into_iter().chain([time(row.mean_us), time(row.max_us), time(row.bound_us), ratio]).collect()
        };
        let headers = [
            ("topic", '<'),
            ("from", '<'),
            ("to", '<'),
            ("samples", '>'),
            ("mean", '>'),
            ("worst seen", '>'),
            ("bound", '>'),
            ("bound / seen", '>'),
        ];
        let rows: Vec<Vec<String>> = self.channels.iter().map(row).collect();
        let cut = if self.cut { ", ended early: too many events" } else { "" };
        let verdict = match self.broken {
            0 => "every bound holds".to_owned(),
            n => format!("{n} bounds do NOT hold: please report it"),
        };
        let head = format!("simulated {} s, seed {}{cut}: {verdict}", self.seconds, self.seed);
        let chains = if self.chains.is_empty() { String::new() } else { format!("\n\n{}", self.chains_text()) };
        format!("{head}\n\n{}{chains}", table(&headers, &rows))
    }

    fn chains_text(&self) -> String {
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let row = |row: &ChainRow| {
            let ratio = ratio(row.bound_us, row.max_us, row.holds);
            let times = [time(row.mean_us), time(row.max_us), time(row.bound_us), ratio];
            [row.name.clone(), row.samples.to_string()].into_iter().chain(times).collect()
        };
        let headers = [
            ("chain", '<'),
            ("samples", '>'),
            ("mean", '>'),
            ("worst seen", '>'),
            ("bound", '>'),
            ("bound / seen", '>'),
        ];
        table(&headers, &self.chains.iter().map(row).collect::<Vec<_>>())
    }

    /// Exit code 1 if a bound is broken.
    pub(super) fn answer(&self) -> Result {
        if self.broken == 0 { Ok(()) } else { Err(Failure::No(format!("{} bounds do not hold", self.broken))) }
    }
}
