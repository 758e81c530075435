//! `pushpull-1` … `pushpull-4` (P-41 … P-45, Fig. 6 … 10): round trips by size and place of the proxy; both ends on
//! one node, one hop, one router and two routers apart. With two routers, the delay of a router is computed from the
//! differences, as in Fig. 10.

use super::linear::{self, Point};
use super::{
    AT_RELAY, Amount, LONGER, Layout, NEARLY_ALL, NONE, PLACES, PUBLISHER, SUBSCRIBER, Testbed, patience, quotients,
    routers,
};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines, shuffled};
use crate::lab::{Lab, Options, Size};
use crate::link::LinkReport;
use crate::part::AWAKE;
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel};
use crate::statistics::{median, uncertainty};
use std::time::Duration;
use thalweg::carrier::Dice;

/// Experiment 1, 2, 3 or 4.
pub(crate) struct PushPullSizes(pub u8);

/// Bytes of samples that surely fit in one packet.
pub(super) const PACKET: usize = 1400;
/// All links, in bit/s (P-47).
pub(super) const RATE: u64 = 10_000_000;
const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Those of a short run: the large ones take the most time.
const FEW: [usize; 4] = [64, 256, 1024, 4096];

impl Experiment for PushPullSizes {
    fn name(&self) -> &'static str {
        ["pushpull-1", "pushpull-2", "pushpull-3", "pushpull-4"][usize::from(self.0) - 1]
    }

    fn about(&self) -> &'static str {
        match self.0 {
            1 => "round trips of 64 B to 8 KiB by the place of the proxy, both ends on one node (Fig. 6)",
            2 => "the same, one hop apart (Fig. 7)",
            3 => "the same, one router between (Fig. 8)",
            _ => "the same, two routers between (Fig. 9), and what a router adds by size (Fig. 10)",
        }
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let layout = self.layout();
        let mut findings = Findings { notes: notes(layout), ..Findings::default() };
        // Router delays are differences of measurements in turns: machines change from minute to minute.
        let before = match self.0 {
            3 => &[Layout::OneHop][..],
            4 => &[Layout::Link, Layout::Router],
            _ => &[],
        };
        let sizes = if lab.options.size == Size::Ci { &FEW[..] } else { &SIZES };
        let mut all: Vec<Curves> = Vec::new();
        for near in before {
            all.push(Curves::new(*near, sizes, &[NONE]));
        }
        all.push(Curves::new(layout, sizes, &PLACES));
        let reports = measure(lab, &mut all)?;
        lines::judge(layout.name(), &reports, &mut findings);
        all.iter().for_each(|curves| curves.cells(&mut findings));
        let panels = all.iter().map(Curves::panel).collect();
        if let Some(curves) = all.last() {
            curves.judge(&mut findings);
        }
        findings.figure = Figure {
            title: format!("Round trips by size and place of the proxy: {}", layout.name()),
            axis: "Round trip in µs, medians of the repetitions' p50".into(),
            logarithmic: false,
            panels,
        };
        if let [hop, router] = &all[..] {
            routers::as_one_hop(hop, router, &mut findings);
        }
        if let [hop, router, routers] = &all[..] {
            routers::delay([hop, router, routers], &mut findings);
        }
        Ok(findings)
    }
}

impl PushPullSizes {
    fn layout(&self) -> Layout {
        [Layout::OneNode, Layout::OneHop, Layout::Router, Layout::TwoRouters][usize::from(self.0) - 1]
    }
}

fn amount(options: &Options) -> (usize, Amount) {
    let (repetitions, count) = match options.size {
        Size::Tiny => (1, 5),
        Size::Ci => (3, 12),
        Size::Quick => (15, 25), // processes differ more than round trips of the same ones
        Size::Whole => (9, 500),
    };
    (repetitions, Amount { count, warmup: 10, period: Duration::from_millis(1), patience: patience(options.size) })
}

/// Every layout, place and size in turns; each repetition has processes of its own, but in a short run.
fn measure(lab: &Lab, all: &mut [Curves]) -> Result<Vec<LinkReport>> {
    let (repetitions, amount) = amount(&lab.options);
    let (mut dice, mut reports) = (Dice::new(lab.options.seed), Vec::new());
    let mut testbeds: Vec<Testbed> = Vec::new();
    for repetition in 0..repetitions {
        lab.tell(&format!("repetition {} of {repetitions}", repetition + 1));
        if lab.options.size != Size::Ci || testbeds.is_empty() {
            reports.extend(testbeds.drain(..).flat_map(Testbed::end));
            let mut build = |curves: &Curves| Testbed::build(lab, curves.layout, Some(RATE), true, &mut dice);
            testbeds = all.iter().map(&mut build).collect::<Result<_>>()?;
        }
        for (index, size) in all[0].sizes.iter().enumerate() {
            // Half of the line stays free: no sample waits for the one before.
            let period = amount.period + Duration::from_secs_f64(2.0 * lines::transmission_us(*size, RATE) / 1e6);
            let amount = Amount { period, ..amount };
            for (curves, testbed) in all.iter_mut().zip(&mut testbeds) {
                for turn in shuffled(curves.curves.len(), &mut dice) {
                    let (place, tallies) = &mut curves.curves[turn];
                    testbed.run(lab, place, *size, amount, &mut tallies[index])?;
                }
            }
        }
    }
    reports.extend(testbeds.into_iter().flat_map(Testbed::end));
    Ok(reports)
}

/// One layout: for each place, a tally of each size.
pub(super) struct Curves {
    layout: Layout,
    pub sizes: &'static [usize],
    pub curves: Vec<(&'static str, Vec<Tally>)>,
}

impl Curves {
    pub(super) fn new(layout: Layout, sizes: &'static [usize], places: &[&'static str]) -> Self {
        let tallies = || sizes.iter().map(|_| Tally::default()).collect();
        Self { layout, sizes, curves: places.iter().map(|place| (*place, tallies())).collect() }
    }

    pub(super) fn of(&self, place: &str) -> &[Tally] {
        self.curves.iter().find(|(name, _)| *name == place).map_or(&[], |(_, tallies)| tallies)
    }

    fn cells(&self, findings: &mut Findings) {
        for (place, tallies) in &self.curves {
            for (size, tally) in self.sizes.iter().zip(tallies) {
                let factors =
                    Factors::new().with("arm", *place).with("proxy", *place).with("layout", self.layout.name());
                findings.cells.push(tally.cell(factors.with("measured", "tcp").with("payload_bytes", *size), true));
            }
            if *place == NONE {
                self.judge_idle(tallies, findings);
            }
            let lost: f64 = tallies.iter().map(Tally::missing).sum();
            let name = format!("{}, proxy {place}: lost", self.layout.name());
            findings.checks.push(Check::at_most(name, lost, 0.0));
        }
    }

    /// Without a proxy a round trip crosses each line between the ends twice. Of more than a packet, the last one crosses
    /// the second line alone.
    fn judge_idle(&self, tallies: &[Tally], findings: &mut Findings) {
        for (size, tally) in self.sizes.iter().zip(tallies) {
            let lines = if *size < PACKET { self.layout.lines_between() } else { self.layout.lines_between().min(1) };
            if lines > 0 {
                let of = format!("{}, {size} bytes, round trip", self.layout.name());
                lines::judge_idle(&of, tally.least(), *size, &vec![RATE; 2 * lines], findings);
            }
        }
    }

    fn judge(&self, findings: &mut Findings) {
        for (place, tallies) in &self.curves {
            findings.checks.extend(linear::judge(&format!("proxy {place}"), &self.points(place, tallies)));
        }
        findings.checks.extend(linear::adds_a_constant(&self.added_by_relay()));
        for place in [PUBLISHER, SUBSCRIBER] {
            let found = self.ratios(place);
            let name = format!("p50 with a proxy at the {place} / without one, all sizes");
            findings.checks.push(
                Check::at_most(name, median(&found), LONGER)
                    .certain_within(uncertainty(&found), LONGER - 1.0)
                    .judged_from(Size::Quick),
            );
        }
        let name = "p50 with a proxy at the relay / without one, all sizes";
        // Over two routers a relay adds no line for samples of one frame, and 4 % are left: few samples have found 0.99.
        let check = Check::at_least(name, median(&self.ratios(AT_RELAY)), LONGER);
        findings.checks.push(check.judged_from(Size::Quick));
    }

    /// The p50 of all repetitions, by size.
    fn points(&self, place: &str, tallies: &[Tally]) -> Vec<Point> {
        let legs = self.layout.legs(place);
        let point = |(size, tally): (&usize, &Tally)| Point {
            size: *size as f64,
            transmission: linear::transmission_us(*size, &legs, RATE),
            found: tally.each(|d| d.p50),
        };
        self.sizes.iter().zip(tallies).map(point).collect()
    }

    /// What a round trip takes longer over the relay than without a proxy, repetition by repetition.
    fn added_by_relay(&self) -> Vec<Point> {
        let [over, without] = [AT_RELAY, NONE].map(|place| self.points(place, self.of(place)));
        let added = |(over, without): (Point, Point)| Point {
            transmission: over.transmission - without.transmission,
            found: over.found.iter().zip(without.found).map(|(over, without)| over - without).collect(),
            ..over
        };
        over.into_iter().zip(without).map(added).collect()
    }

    /// The cost of a proxy there: of each repetition the median over the sizes. The sizes of one repetition share its processes, so
    /// they are not independent.
    fn ratios(&self, place: &str) -> Vec<f64> {
        let of_sizes: Vec<Vec<f64>> =
            self.of(place).iter().zip(self.of(NONE)).map(|(over, under)| quotients(over, under)).collect();
        let repetitions = of_sizes.iter().map(Vec::len).min().unwrap_or(0);
        (0..repetitions).map(|n| median(&of_sizes.iter().map(|ratios| ratios[n]).collect::<Vec<_>>())).collect()
    }

    fn panel(&self) -> Panel {
        let group = |(index, size): (usize, &usize)| Group {
            label: format!("{size} B"),
            bars: self.curves.iter().filter_map(|(place, tallies)| bar(&tallies[index], place)).collect(),
        };
        Panel { title: self.layout.name().into(), groups: self.sizes.iter().enumerate().map(group).collect() }
    }
}

fn bar(tally: &Tally, series: &str) -> Option<Bar> {
    let value = median(&tally.each(|d| d.p50));
    value.is_finite().then(|| Bar { series: series.to_owned(), value, ..Bar::default() })
}

fn notes(layout: Layout) -> Vec<String> {
    vec![
        format!(
            "{}; a round trip is a sample by one tcp channel and the same back by another, from publish to callback, the proxy \
             being of the one that leads there",
            layout.name()
        ),
        format!("All links are lines of {} Mbit/s, as the paper's: a frame takes its time on each, and packets have 1500 bytes.", RATE / 1_000_000),
        "With routers, the relay is on the first one. What a router adds is half of what a round trip takes longer than over one link \
         without any (Fig. 10); a switch, as in pushpull-2, costs about as much as a router here."
            .into(),
        NEARLY_ALL.into(),
        AWAKE.into(),
        "All on one processor, nice -20; each repetition has new processes, and opens and measures the places in orders drawn by lot; bars and lines are of medians of the repetitions' p50.".into(),
    ]
}
