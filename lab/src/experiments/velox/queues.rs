//! `velox-queues` (V-32, V-51): λ, μ, ρ and the shares of time with n samples, from the traces of five topics over a network, at
//! up to the paper's 12,000 samples/s; beside them M/M/1, and the time end to end (V-35, Fig. 15).

use super::station::{STATES, Station};
use super::topics::TOPICS;
use super::trace::{Run, Topic, Traced, Way};
use super::{RATE, first_processor, network};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Size};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::stalls::{Monitor, Timed};
use crate::statistics::median;
use std::time::Duration;
use thalweg::stages::End;

/// The experiment.
pub(crate) struct VeloxQueues;

/// Samples per second of all topics together; the last one is the paper's.
const RATES: [f64; 4] = [1000.0, 3000.0, 6000.0, 12_000.0];
/// Stations on the way.
const STATIONS: [&str; 3] = ["publisher", "network", "subscriber"];
/// Those that are one server: a thread.
const SERVERS: [usize; 2] = [0, 2];
/// Least share of the rate that must be reached.
const REACHED: f64 = 0.9;
/// N and λ·T come from the same stamps by different sums: their ratio may differ from 1 by this.
const LITTLE: f64 = 0.01;
/// M/M/1's mean and the measured one may differ by this factor, either way. Its services are exponential; those of the same code
/// are nearly even, but for interrupts and stalls of the machine, which are far longer.
const FACTOR: f64 = 3.0;
/// The same of M/G/1, which has the services as they were distributed.
const FACTOR_MG1: f64 = 2.0;
/// The measured mean end to end and the sum of M/M/1's may differ by this factor, either way (the paper: 350 to 306.74 µs, 1.14).
const FACTOR_WHOLE: f64 = 1.25;
/// The paper's ρ at 12,000/s, and the shares of time that it gives for waiting and processing (§3.2.2).
const PAPER: [f64; 2] = [0.9, 0.1];

impl Experiment for VeloxQueues {
    fn name(&self) -> &'static str {
        "velox-queues"
    }

    fn about(&self) -> &'static str {
        "λ, μ, ρ and the shares of time with n samples, from traces at up to 12,000 samples/s; M/M/1 beside them"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (repetitions, ms) = match lab.options.size {
            Size::Tiny => (1, 100),
            Size::Ci => (3, 200),
            Size::Quick => (7, 400),
            Size::Whole => (30, 2000),
        };
        let mut topology = network(lab, 2)?;
        let topics: Vec<Topic> = TOPICS.iter().map(|(topic, size)| ((*topic).to_owned(), *size)).collect();
        let mut traced = Traced::new(lab, &topology, 0, &topics, &Vec::from_iter(first_processor()?))?;
        traced.run(lab, RATES[0], Duration::from_millis(ms), 0)?; // the first samples pay for memory and windows
        let mut found = RATES.map(Found::at);
        for repetition in 0..repetitions {
            lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
            for one in &mut found {
                traced.stages(lab)?; // from nothing
                let monitor = Monitor::start()?;
                let run = traced.run(lab, one.hz, Duration::from_millis(ms), lab.options.seed ^ repetition)?;
                let whole =
                    run.ways.iter().map(|way| Timed { from_ns: way.due, ns: way.taken.saturating_sub(way.due) });
                one.tally.add(run.sent, &whole.collect::<Vec<_>>(), &monitor.finish());
                let stages = traced.stages(lab)?;
                let appmid =
                    stages.iter().map(|measured| measured.mean_us(End::Publisher, "publish")).collect::<Vec<_>>();
                one.repetitions.extend(Repetition::of(&run, median(&appmid)));
            }
        }
        drop(traced);
        let mut findings = judge(&found);
        lines::judge("all rates", &topology.end_lines(), &mut findings);
        Ok(findings)
    }
}

/// Results at one rate.
#[derive(Debug)]
struct Found {
    hz: f64,
    tally: Tally,
    repetitions: Vec<Repetition>,
}

/// One repetition: the stations, and mean times in µs.
#[derive(Clone, Copy, Debug)]
struct Repetition {
    stations: [Station; 3],
    /// From the application to the middleware.
    appmid: f64,
    /// The calls of `publish` and of `take`.
    calls: [f64; 2],
    /// From the time at which a sample is due until the application has it.
    whole: f64,
}

impl Repetition {
    fn of(run: &Run, appmid: f64) -> Option<Self> {
        let station = |visit: fn(&Way) -> _| Station::of(&run.ways.iter().map(visit).collect::<Vec<_>>());
        let mean = |time: fn(&Way) -> u64| {
            run.ways.iter().map(|way| time(way) as f64 / 1e3).sum::<f64>() / run.ways.len() as f64
        };
        Some(Self {
            stations: [station(Way::at_publisher)?, station(Way::in_network)?, station(Way::at_subscriber)?],
            appmid,
            calls: [
                mean(|way| way.sent.saturating_sub(way.published)),
                mean(|way| way.taken.saturating_sub(way.asked)),
            ],
            whole: mean(|way| way.taken.saturating_sub(way.due)),
        })
    }
}

impl Found {
    fn at(hz: f64) -> Self {
        Self { hz, tally: Tally::default(), repetitions: Vec::new() }
    }

    /// The median of the repetitions.
    fn middle(&self, of: impl Fn(&Repetition) -> f64) -> f64 {
        median(&self.repetitions.iter().map(of).collect::<Vec<_>>())
    }

    fn station(&self, at: usize, of: impl Fn(&Station) -> f64) -> f64 {
        self.middle(|one| of(&one.stations[at]))
    }
}

fn judge(found: &[Found; 4]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    let smallest = TOPICS.iter().map(|(_, size)| *size).min().unwrap_or(0);
    for one in found {
        judge_rate(one, &mut findings.checks);
        lines::judge_idle(&format!("{} samples/s", one.hz), one.tally.least(), smallest, &[RATE; 2], &mut findings);
        let factors = Factors::new().with("arm", "network").with("hz", one.hz).with("measured", super::CARRIER);
        findings.cells.push(one.tally.cell(factors.with("topics", TOPICS.len()), false));
    }
    findings.tables = vec![stations(found), shares(found), whole(found)];
    findings.figure = figure(found);
    findings
}

fn judge_rate(one: &Found, checks: &mut Vec<Check>) {
    let of = format!("{} samples/s", one.hz);
    checks.push(Check::at_most(format!("{of}: lost"), one.tally.missing(), 0.0));
    let reached = one.station(0, |station| station.arrivals) / one.hz;
    checks.push(Check::at_least(format!("{of}: share of the rate that was reached"), reached, REACHED));
    for (at, station) in STATIONS.iter().enumerate() {
        // The worst repetition: one wrong stamp is a wrong trace.
        let off = one.repetitions.iter().map(|one| (one.stations[at].little() - 1.0).abs());
        let off = off.reduce(f64::max).unwrap_or(f64::NAN);
        checks.push(Check::at_most(format!("{of}, {station}: N and λ·T differ by (part of λ·T)"), off, LITTLE));
    }
    for at in SERVERS {
        let busy = one.station(at, Station::utilisation);
        let name = format!("{of}, {}: utilisation ρ", STATIONS[at]);
        checks.push(Check::at_most(name, busy, 0.99));
        let mm1 = ("M/M/1", Station::mm1_us as fn(&Station) -> f64, FACTOR, Size::Ci);
        for (model, sojourn_us, factor, size) in [mm1, ("M/G/1", Station::mg1_us, FACTOR_MG1, Size::Quick)] {
            let ratio = one.station(at, |station| station.sojourn_us / sojourn_us(station));
            let name = format!("{of}, {}: measured mean sojourn / {model}'s, or the other way round", STATIONS[at]);
            checks.push(Check::at_most(name, ratio.max(1.0 / ratio), factor).judged_from(size));
        }
    }
    let ratio = one.middle(|one| one.whole) / mm1_sum_us(one);
    let name = format!("{of}: measured mean from due to taken / M/M/1's sum, or the other way round");
    // Three runs of the ci size found up to 1.251.
    checks.push(Check::at_most(name, ratio.max(1.0 / ratio), FACTOR_WHOLE).judged_from(Size::Quick));
}

/// The sum of both stations by M/M/1 and of the network as measured, in µs.
fn mm1_sum_us(one: &Found) -> f64 {
    SERVERS.iter().map(|at| one.station(*at, Station::mm1_us)).sum::<f64>()
        + one.station(1, |station| station.sojourn_us)
}

fn stations(found: &[Found; 4]) -> Table {
    let heads = ["samples/s", "station", "λ /s", "1/μ µs", "ρ", "N", "T µs", "M/M/1 T", "M/G/1 T", "N / λT"];
    let mut table = Table::new("Stations, from the traces (medians of the repetitions)", &heads);
    for one in found {
        for (at, name) in STATIONS.iter().enumerate() {
            let is_server = SERVERS.contains(&at);
            let of = |figure: fn(&Station) -> f64, digits: usize| format!("{:.digits$}", one.station(at, figure));
            let server = |figure, digits| if is_server { of(figure, digits) } else { "–".into() };
            table.rows.push(vec![
                one.hz.to_string(),
                (*name).to_owned(),
                of(|s| s.arrivals, 0),
                server(|s| s.service_us, 1),
                server(Station::utilisation, 3),
                of(|s| s.number, 3),
                of(|s| s.sojourn_us, 1),
                server(Station::mm1_us, 1),
                server(Station::mg1_us, 1),
                of(Station::little, 4),
            ]);
        }
    }
    let paper = ["paper, 12,000", "processor", "12000", "8", "0.1", "0.111", "–", "9.3", "–", "–"];
    table.rows.push(paper.map(String::from).to_vec());
    table
}

fn shares(found: &[Found; 4]) -> Table {
    let mut heads = vec!["samples/s".to_owned(), "station".to_owned(), String::new()];
    heads.extend((0..STATES).map(|n| if n + 1 < STATES { format!("π{n}") } else { format!("π{n} and more") }));
    let mut table = Table { title: "Shares of time with n samples at the station".into(), heads, rows: Vec::new() };
    for (one, at) in found.iter().flat_map(|one| SERVERS.map(|at| (one, at))) {
        let mut row = |how: &str, of: &dyn Fn(&Station, usize) -> f64| {
            let named = [one.hz.to_string(), STATIONS[at].to_owned(), how.to_owned()];
            let values = (0..STATES).map(|n| format!("{:.4}", one.station(at, |station| of(station, n))));
            table.rows.push(named.into_iter().chain(values).collect());
        };
        row("trace", &|station, n| station.shares[n]);
        row("M/M/1", &|station, n| station.mm1_shares()[n]);
    }
    for one in found {
        let [waiting, processing] =
            [0, 1].map(|state| format!("{:.3}", one.station(0, |station| station.chain()[state])));
        let mut row = vec![one.hz.to_string(), "publisher".into(), "the paper's chain, waiting and processing".into()];
        row.extend([waiting, processing]);
        row.resize(3 + STATES, String::new());
        table.rows.push(row);
    }
    table
}

fn whole(found: &[Found; 4]) -> Table {
    let heads = [
        "samples/s",
        "T_appmid",
        "call of publish",
        "λ · that, %",
        "network",
        "call of take",
        "M/M/1 sum",
        "Table 2's sum",
        "measured",
    ];
    let mut table =
        Table::new("From due to taken in µs, means (paper at 12,000/s: 306.74 computed, 350 measured)", &heads);
    for one in found {
        let network = one.station(1, |station| station.sojourn_us);
        let mm1 = mm1_sum_us(one);
        let [publish, take] = [0, 1].map(|call| one.middle(|one| one.calls[call]));
        let appmid = one.middle(|one| one.appmid);
        let arrivals = one.station(0, |station| station.arrivals);
        let (computing, table2) = (arrivals * publish / 1e4, appmid + 1e6 / arrivals + publish + network + take);
        let measured = one.middle(|one| one.whole);
        table.row(one.hz.to_string(), &[appmid, publish, computing, network, take, mm1, table2, measured]);
    }
    table
}

/// π_n at the highest rate, and ρ by rate.
fn figure(found: &[Found; 4]) -> Figure {
    let last = &found[found.len() - 1];
    let bar = |series: &str, value: f64, mark: Option<f64>| Bar { series: series.into(), value, mark, deviation: 0.0 };
    let states = |at: usize| {
        let group = |n: usize| {
            let mark = PAPER.get(n).copied().filter(|_| at == 0);
            let bars = vec![
                bar("trace", last.station(at, |station| station.shares[n]), mark),
                bar("M/M/1", last.station(at, |station| station.mm1_shares()[n]), None),
            ];
            Group { label: format!("n = {n}"), bars: drawn(bars) }
        };
        Panel { title: format!("{}, {} samples/s", STATIONS[at], last.hz), groups: (0..4).map(group).collect() }
    };
    let utilisation = found.iter().enumerate().map(|(n, one)| {
        let mark = (n + 1 == found.len()).then_some(PAPER[1]);
        let bars = SERVERS.map(|at| bar(STATIONS[at], one.station(at, Station::utilisation), mark));
        Group { label: format!("{}/s", one.hz), bars: drawn(bars.to_vec()) }
    });
    let utilisation = Panel { title: "ρ by rate".into(), groups: utilisation.collect() };
    Figure {
        title: "Shares of time with n samples at a station (mark: the paper's)".into(),
        axis: "Share of time".into(),
        logarithmic: false,
        panels: vec![states(0), states(2), utilisation],
    }
}

fn drawn(bars: Vec<Bar>) -> Vec<Bar> {
    bars.into_iter().filter(|bar| bar.value.is_finite()).collect()
}

fn notes() -> Vec<String> {
    vec![
        "five topics of 20 to 300 bytes, in turn at exponential distances (the paper's Poisson process), reliable over tcp, from one host to another behind a switch, 100 Mbit/s each; both \
         processes on one processor, threads FIFO 30, the lines on another"
            .into(),
        "stamps of each sample: due, `publish` called and returned, received, `take` called and returned. Publisher: from due to returned. Network: from there to received. Subscriber: from there \
         until `take` returned it"
            .into(),
        "service: from the later of arrival and the departure before, until departure; the thread's wake-up is part of it. M/G/1: Pollaczek and Khinchine with the measured E[S²]. Samples that stalls of \
         the machine hit are part of the traces"
            .into(),
        "Table 2's sum: T_appmid + 1/λ + 1/μ (the call of publish) + D (network) + T_midapp (the call of take); M/M/1 sum: both stations' M/M/1 and the network".into(),
        "cells: from due to taken".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::Stalls;

    /// Runs at the asked rates, in which every station takes `took` µs.
    fn found(took: u64, spoil: fn(&mut Way)) -> [Found; 4] {
        RATES.map(|hz| {
            let way = |n: u64| {
                let due = n * (1e9 / hz) as u64;
                let (ns, mut way) = (took * 1000, Way { due, published: due, ..Way::default() });
                (way.sent, way.received) = (due + ns, due + 2 * ns);
                (way.asked, way.taken) = (way.received, way.received + ns);
                spoil(&mut way);
                way
            };
            let run = Run { ways: (0..1000).map(way).collect(), sent: 1000 };
            let mut one = Found::at(hz);
            one.tally.add(1000, &[Timed { from_ns: 0, ns: 3 * took * 1000 }; 1000], &Stalls::default());
            one.repetitions.extend(Repetition::of(&run, 1.0));
            one
        })
    }

    fn failed(found: &[Found; 4]) -> Vec<String> {
        judge(found).checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
    }

    #[test]
    fn a_station_that_keeps_up_passes() {
        assert_eq!(failed(&found(8, |_| {})), Vec::<String>::new());
        let findings = judge(&found(8, |_| {}));
        let row = &findings.tables[0].rows[9];
        assert_eq!((row[1].as_str(), row[3].as_str(), row[4].as_str()), ("publisher", "8.0", "0.096"), "{row:?}");
    }

    #[test]
    fn wrong_stamps_a_full_station_and_a_missed_rate_fail() {
        let early = failed(&found(8, |way| way.taken = way.received.saturating_sub(90_000)));
        assert!(early.iter().any(|name| name.contains("N and λ·T")), "{early:?}");
        let full = failed(&found(90, |_| {}));
        assert!(full.iter().any(|name| name.contains("utilisation")), "{full:?}");
        assert!(full.iter().all(|name| !name.starts_with("1000 ")), "{full:?}");
        let slow = failed(&found(8, |way| {
            let late = |at: &mut u64| *at *= 2;
            [&mut way.due, &mut way.published, &mut way.sent, &mut way.received, &mut way.asked, &mut way.taken]
                .into_iter()
                .for_each(late);
        }));
        assert_eq!(slow.iter().filter(|name| name.contains("reached")).count(), RATES.len(), "{slow:?}");
    }

    #[test]
    fn nothing_measured_passes_nothing() {
        assert!(judge(&RATES.map(Found::at)).checks.iter().filter(|c| !c.name.contains("lost")).all(|c| !c.pass));
    }
}
