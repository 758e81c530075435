//! `dali-single`, `dali-two`, `dali-sizes` (D-12 to D-14, Fig. 3 to 5): one publisher, and one to four subscribers on its board or on the other
//! one; and messages of up to 1000 bytes. Every engine, one after the other.

use super::arm::{ARMS, Arm, Role};
use super::boards::Boards;
use super::system::{Run, System};
use super::walker::{Input, Output, Program};
use super::{RATE, ratio, settings, skip_missing};
use crate::error::Result;
use crate::experiments::{Experiment, Tally, lines, shuffled};
use crate::lab::{Lab, Size};
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};
use std::time::Duration;
use thalweg::carrier::Dice;

/// An experiment of this module.
pub(in crate::experiments) struct Fanout {
    name: &'static str,
    about: &'static str,
    title: &'static str,
    shape: Shape,
    points: &'static [Point],
}

/// What the paper's figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Latency grows with subscribers.
    Grows,
    /// The same; and it is larger than on one board.
    GrowsFromOneBoard,
    /// Latency beyond the transmission does not grow with the size.
    Flat,
}

/// Publishers and subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    /// Each with a topic of its own, all at once.
    publishers: usize,
    /// Each of all topics.
    subscribers: usize,
    /// Bytes of a message.
    size: usize,
    /// The subscribers are on the second board.
    apart: bool,
}

const fn point(subscribers: usize, size: usize, apart: bool) -> Point {
    Point { publishers: 1, subscribers, size, apart }
}

/// So many publishers and one subscriber on one board.
const fn publishers(publishers: usize) -> Point {
    Point { publishers, subscribers: 1, size: SMALL, apart: false }
}

/// Bytes of a message where the number of subscribers varies: the paper says none.
const SMALL: usize = 64;
/// The walker's shortest period.
const PERIOD_NS: u64 = 10_000_000;
/// SCHED_FIFO of planned threads: there is one topic alone.
const SCHED: &str = "fifo:30";
/// Latency beyond the transmission may grow by this factor up to 1000 bytes.
const FLAT: f64 = 1.3;

/// Fig. 3.
pub(in crate::experiments) const SINGLE: Fanout = Fanout {
    name: "dali-single",
    about: "one publisher and one to four subscribers on one board, and the reverse, over every engine (Fig. 3)",
    title: "Fig. 3: one board, by number of subscribers, and of publishers",
    shape: Shape::Grows,
    points: &[
        point(1, SMALL, false),
        point(2, SMALL, false),
        point(3, SMALL, false),
        publishers(2),
        publishers(3),
        publishers(4),
        point(4, SMALL, false),
    ],
};

/// Fig. 4, and beside it one subscriber on the publisher's board.
pub(in crate::experiments) const TWO: Fanout = Fanout {
    name: "dali-two",
    about: "the same with all subscribers on another board (Fig. 4), which is slower than on one",
    title: "Fig. 4: two boards, by number of subscribers (1*: on one board)",
    shape: Shape::GrowsFromOneBoard,
    points: &[
        point(1, SMALL, false),
        point(1, SMALL, true),
        point(2, SMALL, true),
        point(3, SMALL, true),
        point(4, SMALL, true),
    ],
};

/// Fig. 5.
pub(in crate::experiments) const SIZES: Fanout = Fanout {
    name: "dali-sizes",
    about: "one publisher and one subscriber on two boards, messages of 64 to 1000 bytes, over every engine (Fig. 5)",
    title: "Fig. 5: two boards, by bytes of a message",
    shape: Shape::Flat,
    points: &[point(1, 64, true), point(1, 250, true), point(1, 500, true), point(1, 1000, true)],
};

impl Experiment for Fanout {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn run(&self, lab: &Lab) -> Result<Findings> {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        let (points, repetitions, ms) = match lab.options.size {
            Size::Tiny => (vec![first, last], 1, 200),
            Size::Ci => (vec![first, last], 1, 1000),
            Size::Quick => (self.points.to_vec(), 3, 2000),
            Size::Whole => (self.points.to_vec(), 5, 10_000),
        };
        let mut boards = Boards::new(lab)?;
        // `--ci` judges us alone.
        let arms: Vec<&'static Arm> =
            ARMS.iter().filter(|arm| lab.options.size != Size::Ci || arm.role == Role::Planned).collect();
        let cells = points.iter().flat_map(|point| arms.iter().map(|arm| Cell::new(arm, *point)));
        let mut cells: Vec<Cell> = cells.collect();
        let mut dice = Dice::new(lab.options.seed);
        for repetition in 0..repetitions {
            for at in shuffled(cells.len(), &mut dice) {
                let cell = &mut cells[at];
                lab.tell(&format!("{}, {} of {repetitions}", cell.name(), repetition + 1));
                let mut system = System::open(lab, &mut boards, cell.arm, &cell.point.programs())?;
                cell.add(&system.run(lab, Duration::from_millis(ms), None)?);
            }
        }
        let mut findings = self.judge(&cells);
        boards.end(&mut findings)?;
        Ok(findings)
    }
}

impl Point {
    fn programs(self) -> Vec<Program> {
        let sched = Some(SCHED.to_owned());
        let topic = |n: usize| format!("/state{n}");
        let publisher = |n: usize| {
            let (topic, sched) = (topic(n), sched.clone());
            let output = Output { topic, size: self.size, period_ns: PERIOD_NS, sched, made_of: None };
            Program { name: format!("publisher{n}"), host: 1, output: Some(output), inputs: Vec::new() }
        };
        let subscriber = |n: usize| Program {
            name: format!("subscriber{n}"),
            host: if self.apart { 2 } else { 1 },
            output: None,
            inputs: (1..=self.publishers).map(|n| Input { topic: topic(n), sched: sched.clone() }).collect(),
        };
        (1..=self.publishers).map(publisher).chain((1..=self.subscribers).map(subscriber)).collect()
    }

    /// Below the axis: what varies.
    fn label(self, shape: Shape) -> String {
        match shape {
            Shape::Flat => self.size.to_string(),
            _ if self.publishers > 1 => format!("{} publishers", self.publishers),
            Shape::GrowsFromOneBoard if !self.apart => format!("{}*", self.subscribers),
            Shape::Grows | Shape::GrowsFromOneBoard => self.subscribers.to_string(),
        }
    }
}

/// A point over an engine.
struct Cell {
    arm: &'static Arm,
    point: Point,
    tally: Tally,
    wrong: u64,
    footprint: Vec<[f64; 2]>,
}

impl Cell {
    fn new(arm: &'static Arm, point: Point) -> Self {
        Self { arm, point, tally: Tally::default(), wrong: 0, footprint: Vec::new() }
    }

    fn name(&self) -> String {
        let Point { publishers, subscribers, size, apart } = self.point;
        let boards = if apart { "two boards" } else { "one board" };
        format!("{}, {size} bytes of {publishers} to {subscribers} on {boards}", self.arm.name)
    }

    fn add(&mut self, run: &Run) {
        let (sent, samples) = run.of(|_| true);
        self.tally.add(sent, &samples, &run.stalls);
        self.wrong += run.wrong() + run.refused;
        self.footprint.push(run.footprint);
    }

    /// The transmission of a message, in µs: 0 on one board.
    fn transmission_us(&self) -> f64 {
        if self.point.apart { lines::transmission_us(self.point.size, RATE) } else { 0.0 }
    }

    /// The mean beyond the transmission, repetition by repetition.
    fn beyond(&self) -> Vec<f64> {
        self.tally.each(|d| d.mean - self.transmission_us())
    }
}

impl Fanout {
    fn judge(&self, cells: &[Cell]) -> Findings {
        let mut findings = Findings { notes: notes(), ..Findings::default() };
        for arm in ARMS {
            let of: Vec<&Cell> = cells.iter().filter(|cell| cell.arm.name == arm.name).collect();
            findings.checks.extend(self.shape(arm, &of));
        }
        for cell in cells {
            if let Some(size) = cell.arm.role.keeps_all(false) {
                let lost = Check::at_most(format!("{}: lost", cell.name()), cell.tally.missing(), 0.0);
                let name = format!("{}: doubled, out of order, damaged or refused", cell.name());
                let wrong = Check::at_most(name, cell.wrong as f64, 0.0);
                findings.checks.extend([lost, wrong].map(|check| check.judged_from(size)));
            }
            if cell.point.apart {
                lines::judge_idle(&cell.name(), cell.tally.least(), cell.point.size, &[RATE], &mut findings);
            }
            let Point { publishers, subscribers, size, apart } = cell.point;
            let factors = Factors::new()
                .with("arm", cell.arm.name)
                .with("publishers", publishers)
                .with("subscribers", subscribers);
            let factors = factors.with("payload_bytes", size).with("boards", if apart { 2 } else { 1 });
            findings.cells.push(cell.tally.cell(factors.with("measured", "publish to callback"), false));
        }
        findings.tables = vec![table(cells)];
        findings.figure = self.figure(cells);
        skip_missing(&mut findings);
        findings
    }

    /// The shape of the paper's figure, by the median over repetitions.
    fn shape(&self, arm: &Arm, of: &[&Cell]) -> Vec<Check> {
        let [first, .., last] = of else { return Vec::new() };
        let apart: Vec<&&Cell> = of.iter().filter(|cell| cell.point.apart).collect();
        let mut checks = Vec::new();
        if self.shape == Shape::Flat {
            let found = median(&last.beyond()) / median(&first.beyond());
            let name = format!(
                "{}: mean beyond the transmission, of {} bytes / of {}",
                arm.name, last.point.size, first.point.size
            );
            checks.push(Check::at_most(name, found, FLAT));
        }
        if self.shape == Shape::GrowsFromOneBoard {
            let name = format!("{}: mean on two boards / on one", arm.name);
            checks.push(Check::at_least(name, ratio(&apart[0].tally, &first.tally, |d| d.mean), 1.0));
        }
        let one = if self.shape == Shape::GrowsFromOneBoard { apart[0] } else { first };
        if self.shape != Shape::Flat && one.point.subscribers < last.point.subscribers {
            let name = format!("{}: mean of {} subscribers / of 1", arm.name, last.point.subscribers);
            checks.push(Check::at_least(name, ratio(&last.tally, &one.tally, |d| d.mean), 1.0));
        }
        if let Some(most) = of.iter().rfind(|cell| cell.point.publishers > 1) {
            let name = format!("{}: mean of {} publishers / of 1", arm.name, most.point.publishers);
            checks.push(Check::at_least(name, ratio(&most.tally, &one.tally, |d| d.mean), 1.0));
        }
        checks.into_iter().map(|check| check.judged_from(Size::Quick)).collect()
    }

    /// Averages and worst cases, as the paper has them.
    fn figure(&self, cells: &[Cell]) -> Figure {
        let mut points: Vec<Point> = Vec::new();
        cells.iter().for_each(|cell| {
            if !points.contains(&cell.point) {
                points.push(cell.point)
            }
        });
        let panel = |title: &str, height: fn(&Distribution) -> f64, mark: Option<fn(&Distribution) -> f64>| {
            let bar = |cell: &Cell| {
                let found = Distribution::of(&cell.tally.samples)?;
                let (series, value, mark) = (cell.arm.name.to_owned(), height(&found), mark.map(|mark| mark(&found)));
                Some(Bar { series, value, deviation: 0.0, mark })
            };
            let group = |point: &Point| {
                let bars = cells.iter().filter(|cell| cell.point == *point).filter_map(bar).collect();
                Group { label: point.label(self.shape), bars }
            };
            Panel { title: title.to_owned(), groups: points.iter().map(group).collect() }
        };
        Figure {
            title: self.title.to_owned(),
            axis: "Latency in µs".into(),
            logarithmic: true,
            panels: vec![panel("average", |d| d.mean, Some(|d| d.p99)), panel("worst case", |d| d.max, None)],
        }
    }
}

fn table(cells: &[Cell]) -> Table {
    let heads = [
        "engine",
        "n",
        "max",
        "avg",
        "stdev",
        "p99",
        "p99 / bare",
        "max, less stalls",
        "threads",
        "memory of its own, KiB",
        "lost",
        "doubled, damaged, refused",
    ];
    let mut table = Table::new("Latency from publish to callback in µs; threads and memory of a program", &heads);
    for cell in cells {
        let found = Distribution::of(&cell.tally.samples);
        let figure = |of: fn(&Distribution) -> f64| found.as_ref().map_or(f64::NAN, of);
        let bare = cells.iter().find(|other| other.arm.role == Role::Baseline && other.point == cell.point);
        let against = bare.map_or(f64::NAN, |bare| ratio(&cell.tally, &bare.tally, |d| d.p99));
        let footprint = |at: usize| median(&cell.footprint.iter().map(|both| both[at]).collect::<Vec<_>>());
        let figures = [figure(|d| d.max), figure(|d| d.mean), figure(|d| d.stdev), figure(|d| d.p99), against];
        let (less, missed) = (cell.tally.without_own_stalls(), cell.tally.missing());
        let beside = [less, footprint(0), footprint(1), missed, cell.wrong as f64];
        table.row(cell.name(), &[&[cell.tally.samples.len() as f64], &figures[..], &beside].concat());
    }
    table
}

fn notes() -> Vec<String> {
    let mut notes = vec![
        format!("100 samples a second, as the walker's fastest topic; {SMALL} bytes where the number of subscribers varies: the paper says neither. Its figures have no printed values"),
        "several publishers publish at once, a topic each".to_owned(),
        "latency from just before publish to the callback, of all subscribers together; engines one after the other in random order".to_owned(),
        "threads: all of SCHED_FIFO 30; of thalweg the publishing and the receiving ones, and without priorities the ordinary policy".to_owned(),
    ];
    notes.extend(settings());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::{Stalls, Timed};

    fn cells(of: &Fanout, us: impl Fn(Point) -> f64) -> Vec<Cell> {
        let cell = |point: &Point, arm: &'static Arm| {
            let mut cell = Cell::new(arm, *point);
            cell.tally.add(3, &[Timed { from_ns: 1, ns: (us(*point) * 1e3) as u64 }; 3], &Stalls::default());
            cell
        };
        of.points.iter().flat_map(|point| ARMS.iter().map(|arm| cell(point, arm))).collect()
    }

    fn failed(of: &Fanout, us: impl Fn(Point) -> f64) -> Vec<String> {
        let failed = |check: &Check| check.verdict == Verdict::Fail;
        of.judge(&cells(of, us)).checks.into_iter().filter(failed).map(|check| check.name).collect()
    }

    /// Grows with subscribers, and from one board to two by what the line takes and 30 µs.
    fn expected(point: Point) -> f64 {
        let line = if point.apart { 30.0 + lines::transmission_us(point.size, RATE) } else { 0.0 };
        40.0 + 10.0 * (point.subscribers + point.publishers) as f64 + line
    }

    #[test]
    fn the_papers_shapes_pass() {
        for of in [&SINGLE, &TWO, &SIZES] {
            assert_eq!(failed(of, expected), Vec::<String>::new(), "{}", of.name);
        }
    }

    #[test]
    fn other_shapes_fail() {
        let shrinks = failed(&SINGLE, |point| 100.0 - 10.0 * (point.subscribers + point.publishers) as f64);
        assert_eq!(shrinks.len(), 2 * ARMS.len(), "{shrinks:?}");
        let faster = failed(&TWO, |point| if point.apart { expected(point) } else { 900.0 });
        assert!(
            faster.iter().all(|name| name.ends_with("on two boards / on one")) && faster.len() == ARMS.len(),
            "{faster:?}"
        );
        let steep = failed(&SIZES, |point| point.size as f64);
        assert!(steep.iter().any(|name| name.contains("1000 bytes / of 64")), "{steep:?}");
        assert!(failed(&TWO, |_| 1.0).iter().any(|name| name.contains("the fastest")), "faster than the line");
    }

    /// A gate is about us: what others lose is told, and judged by longer runs.
    #[test]
    fn a_small_run_judges_the_losses_of_the_planned_arm_alone() {
        let judged = |check: &Check| check.name.ends_with(": lost") && check.needs == Size::Ci;
        let checks = SIZES.judge(&cells(&SIZES, expected)).checks;
        let names: Vec<&String> = checks.iter().filter(|check| judged(check)).map(|check| &check.name).collect();
        assert_eq!(names.len(), SIZES.points.len(), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("thalweg, ") && !name.contains("no priorities")), "{names:?}");
    }

    #[test]
    fn two_boards_have_the_subscribers_on_the_second() {
        let programs = point(4, SMALL, true).programs();
        assert_eq!(programs.iter().map(|program| program.host).collect::<Vec<_>>(), [1, 2, 2, 2, 2]);
        assert!(point(1, SMALL, false).programs().iter().all(|program| program.host == 1));
    }
}
