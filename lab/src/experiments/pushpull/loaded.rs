//! `pushpull-5` (P-46, Fig. 11): experiment 3 while other programs use the processor of both ends, and other traffic
//! the link between them, without any reservation: the increase of round trips.

use super::{AT_RELAY, Amount, Layout, NEARLY_ALL, PLACES, Testbed, processors, quotients};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines};
use crate::lab::{Lab, Options, Size};
use crate::load::{Generator, Load, Pattern, Protocol, Sink};
use crate::part::{Hog, Place};
use crate::results::{Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::median;
use crate::topology::{Queue, Topology, Wire};
use std::time::Duration;
use thalweg::carrier::Dice;

/// The experiment.
pub(crate) struct PushPullLoaded;

const SIZES: [usize; 3] = [64, 512, 4096];
const RATE: u64 = 100_000_000;
const HOGS: usize = 2;
/// Load in percent of the link's rate.
const PERCENT: u64 = 95;
/// The factor by which a load lengthened round trips without a reservation in the paper (Fig. 11 and 8a). Its lower end is the limit:
/// how far above it they are depends on the kernel's scheduler alone.
const PAPER: [f64; 2] = [5.0, 10.0];

impl Experiment for PushPullLoaded {
    fn name(&self) -> &'static str {
        "pushpull-5"
    }

    fn about(&self) -> &'static str {
        "pushpull-3 beside other programs and other traffic: how many times longer without a reservation (Fig. 11), and with"
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let mut testbed = LoadedTestbed::build(lab)?;
        let (repetitions, amount) = amount(&lab.options);
        let tallies = || SIZES.iter().map(|_| PLACES.map(|_| Tally::default())).collect::<Vec<_>>();
        let mut arms = [tallies(), tallies()];
        for repetition in 0..repetitions {
            for arm in [0, 1] {
                let loaded = (arm + repetition) % 2;
                lab.tell(&format!("repetition {} of {repetitions}, {}", repetition + 1, ARMS[loaded]));
                testbed.run(lab, loaded == 1, amount, &mut arms[loaded])?;
            }
        }
        let mut findings = judge(&arms, testbed.queues()?);
        lines::judge("both arms", &testbed.testbed.end(), &mut findings);
        super::reserved::run(lab, &mut findings)?;
        Ok(findings)
    }
}

const ARMS: [&str; 2] = ["alone", "loaded"];

fn amount(options: &Options) -> (usize, Amount) {
    let (repetitions, count) = match options.size {
        Size::Tiny => (1, 5),
        Size::Ci => (1, 8),
        Size::Quick => (3, 60),
        Size::Whole => (7, 300),
    };
    (repetitions, Amount { count, warmup: 5, period: Duration::from_millis(4), patience: Duration::from_secs(3) })
}

struct LoadedTestbed {
    generator: Generator,
    _sink: Sink,
    testbed: Testbed,
}

impl LoadedTestbed {
    fn build(lab: &Lab) -> Result<Self> {
        // Ordinary priority: no rate is reserved.
        let testbed = Testbed::build(lab, Layout::Router, Some(RATE), false, &mut Dice::new(lab.options.seed))?;
        let topology = testbed.topology()?;
        let wire = Wire { rate: RATE, limit: 100, queue: Queue::Fifo };
        wire.install(topology.middle()?, &Topology::leads_to(2))?;
        let (_, other) = processors()?;
        let sink = Sink::new(lab, Place::at(topology.host(2), &[other]), Topology::address_of(2))?;
        let generator = Generator::new(lab, Place::at(topology.host(1), &[other]), sink.target)?;
        Ok(Self { generator, _sink: sink, testbed })
    }

    fn queues(&self) -> Result<Vec<String>> {
        let shown = self.testbed.topology()?.middle()?.tc(&["qdisc", "show", "dev", &Topology::leads_to(2)])?;
        Ok(shown.lines().map(str::to_owned).collect())
    }

    fn run(&mut self, lab: &Lab, loaded: bool, amount: Amount, tallies: &mut [[Tally; 4]]) -> Result {
        let mut hogs = Vec::new();
        if loaded {
            let seed = lab.options.seed;
            let load = Load {
                protocol: Protocol::Udp,
                rate: RATE * PERCENT / 100,
                pattern: Pattern::Bursts(40),
                gso: true,
                seed,
            };
            self.generator.start(lab, &load)?;
            for _ in 0..HOGS {
                hogs.push(Hog::Ordinary.start(lab, processors()?.0)?);
            }
        }
        for (size, tallies) in SIZES.iter().zip(tallies) {
            for (place, tally) in PLACES.iter().zip(tallies) {
                self.testbed.run(lab, place, *size, amount, tally)?;
            }
        }
        drop(hogs);
        if loaded {
            self.generator.stop(lab)?;
        }
        Ok(())
    }
}

fn judge([alone, loaded]: &[Vec<[Tally; 4]>; 2], queues: Vec<String>) -> Findings {
    let mut findings = Findings { notes: notes(), queues, ..Findings::default() };
    let mut table =
        Table::new("How many times longer: p50 loaded / alone", &["bytes", "none", "publisher", "subscriber", "relay"]);
    let (mut groups, [least, most]) = (Vec::new(), PAPER);
    for (index, size) in SIZES.iter().enumerate() {
        let mut times = Vec::new();
        let mut bars = Vec::new();
        for (n, place) in PLACES.iter().enumerate() {
            for (arm, tallies) in ARMS.iter().zip([alone, loaded]) {
                let factors =
                    Factors::new().with("arm", *arm).with("proxy", *place).with("layout", Layout::Router.name());
                let tally = &tallies[index][n];
                findings.cells.push(tally.cell(factors.with("measured", "tcp").with("payload_bytes", *size), true));
                bars.extend(
                    tally.bar(&format!("{place}, {arm}")).filter(|_| *place == PLACES[0] || *place == AT_RELAY),
                );
            }
            times.push(median(&quotients(&loaded[index][n], &alone[index][n])));
        }
        let name = format!("{size} bytes: p50 loaded / alone, median of the places (paper: {least} to {most})");
        // What is compared with the paper is the machine, not a feature of ours: a slow processor makes the round trip alone longer.
        findings.checks.push(Check::at_least(name, median(&times), least).judged_from(Size::Quick));
        table.row(size.to_string(), &times);
        groups.push(Group { label: format!("{size} B"), bars });
    }
    let lost: f64 = [alone, loaded].iter().flat_map(|arm| arm.iter().flatten()).map(Tally::missing).sum();
    findings.checks.push(Check::at_most("lost", lost, 0.0));
    findings.figure = Figure {
        title: "One router, beside other programs and traffic, nothing reserved".into(),
        axis: "Round trip in µs".into(),
        logarithmic: true,
        panels: vec![Panel { title: String::new(), groups }],
    };
    findings.tables.push(table);
    findings
}

fn notes() -> Vec<String> {
    vec![
        format!(
            "Both ends, the relay and {HOGS} programs that compute without pause on one processor, all at ordinary priority. UDP at \
             {PERCENT} % of {} Mbit/s in bursts of 40 packets crosses the router's port to the subscriber, in one queue with the samples.",
            RATE / 1_000_000
        ),
        format!("The paper reports {} to {} times (Fig. 11 and 8a); the lower end is judged.", PAPER[0], PAPER[1]),
        NEARLY_ALL.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// All round trips of an arm take this long.
    fn arm(us: u64) -> Vec<[Tally; 4]> {
        let tally = |_| {
            let mut tally = Tally::default();
            tally.add(3, &[Timed { from_ns: 0, ns: us * 1000 }; 3], &Stalls::default());
            tally
        };
        SIZES.iter().map(|_| PLACES.map(tally)).collect()
    }

    #[test]
    fn a_load_lengthens_round_trips_by_the_papers_factor_at_least() {
        let failed = |loaded| judge(&[arm(200), arm(loaded)], Vec::new()).checks.iter().filter(|c| !c.pass).count();
        assert_eq!([990, 1000, 20_000].map(failed), [SIZES.len(), 0, 0]);
    }
}
