//! The results of an experiment: cells, checks, figure, and what could not run. [`Document`] is what `lab run --json` prints; its
//! keys are a contract.

mod check;
mod rates;
mod report;
mod svg;

use crate::error::{Error, Result};
use crate::lab::{Feature, Options, Size};
use crate::statistics::Distribution;
pub use check::{Check, Verdict};
pub use rates::{Attribution, Rates};
pub use report::{markdown, report};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
pub use svg::draw;

/// The document of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its name.
    pub experiment: String,
    /// The size of the run.
    #[serde(default)]
    pub size: Size,
    /// The feature that was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Feature>,
    /// The machine it ran on.
    pub environment: Environment,
    /// Measured cells.
    pub cells: Vec<Cell>,
    /// Checks of the expected results.
    pub checks: Vec<Check>,
    /// `true`: the verdict is [`Verdict::Pass`].
    pub pass: bool,
    /// [`Verdict::Pass`]: all checks passed, and nothing was skipped that is not allowed to be. [`Verdict::Inconclusive`]: none failed, but the machine
    /// was too noisy for some.
    #[serde(default)]
    pub verdict: Verdict,
    /// How often the machine stood still, without the experiment and during it.
    #[serde(default)]
    pub stalls: Rates,
    /// Cells and checks that could not run.
    pub skipped: Vec<Skipped>,
    /// Notes for the reader: rates, patterns, selection of samples.
    pub notes: Vec<String>,
    /// The figure.
    pub figure: Figure,
    /// Tables of the paper, as measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
}

impl Document {
    /// Makes the document of an experiment's findings. Stalls excuse a value only if the machine stood still as often without the experiment. A check that fails while the
    /// machine's host took its processors away is inconclusive. What was
    /// skipped is a failure, unless the options allow it by name. Checks that need a longer run are named in a note.
    pub fn new(
        experiment: &str,
        environment: Environment,
        findings: Findings,
        stalls: Rates,
        options: &Options,
    ) -> Self {
        let Findings { cells, mut checks, skipped, mut notes, figure, tables, queues } = findings;
        if options.size == Size::Ci {
            notes.extend(not_judged(&mut checks));
        }
        if let Attribution::Unclear(because) = stalls.attribution() {
            for check in checks.iter_mut().filter(|check| check.needs_excuse()) {
                *check = check.clone().inconclusive(because.clone());
            }
        }
        if let Some(because) = stalls.absence() {
            for check in checks.iter_mut().filter(|check| check.verdict == Verdict::Fail) {
                *check = check.clone().inconclusive(because.clone());
            }
        }
        let is_allowed = |skipped: &Skipped| options.allow_skips.iter().any(|name| skipped.name.starts_with(name));
        let verdict = if skipped.iter().all(is_allowed) { check::of_all(&checks) } else { Verdict::Fail };
        let (pass, environment) = (verdict == Verdict::Pass, Environment { qdiscs: queues, ..environment });
        let (experiment, size, without) = (experiment.to_owned(), options.size, options.without);
        Self {
            experiment,
            size,
            without,
            environment,
            cells,
            checks,
            pass,
            verdict,
            stalls,
            skipped,
            notes,
            figure,
            tables,
        }
    }
}

/// Takes out the checks that need a longer run; a note with their names, if there are any.
fn not_judged(checks: &mut Vec<Check>) -> Option<String> {
    let longer: Vec<Check> = checks.extract_if(.., |check| check.needs > Size::Ci).collect();
    let names: Vec<&str> = longer.iter().map(|check| check.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("Not judged by so few samples: {}.", names.join("; ")))
}

/// The machine an experiment ran on, as far as it matters for the figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name, release and version of the kernel.
    pub kernel: String,
    /// Processors this process may use.
    pub cpus: usize,
    /// Queue disciplines that were in use, as the kernel showed them.
    pub qdiscs: Vec<String>,
    /// The clock and its source.
    pub clock: String,
    /// Versions of Thalweg, with the commit that was built, and of the tools.
    pub versions: BTreeMap<String, String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Load averages before it began (1, 5, 15 minutes): other work makes figures worse.
    pub load: Vec<f64>,
}

impl Environment {
    /// Reads it all.
    pub fn read(seed: u64) -> Self {
        let name = rustix::system::uname();
        let kernel = [name.sysname(), name.release(), name.version()].map(|part| part.to_string_lossy()).join(" ");
        let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let clock = format!("CLOCK_MONOTONIC by {}", source.as_deref().map_or("an unknown source", str::trim));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).filter_map(|v| v.parse().ok()).collect();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let version = format!("{} ({})", env!("CARGO_PKG_VERSION"), env!("THALWEG_COMMIT"));
        let mut versions = BTreeMap::from([("thalweg".to_owned(), version)]);
        if let Ok(said) = crate::iproute::ip(&["-V"]) {
            versions.insert("iproute2".to_owned(), said.trim().trim_start_matches("ip utility, ").to_owned());
        }
        Self { kernel, cpus, qdiscs: Vec::new(), clock, versions, seed, load }
    }
}

/// The findings of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Measured cells.
    pub cells: Vec<Cell>,
    /// Checks of the expected results.
    pub checks: Vec<Check>,
    /// Cells and checks that could not run.
    pub skipped: Vec<Skipped>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The figure.
    pub figure: Figure,
    /// Tables of the paper, as measured.
    pub tables: Vec<Table>,
    /// Queues that were in use, as the kernel showed them.
    pub queues: Vec<String>,
}

/// One combination of factors, over all repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The factors.
    pub factors: Factors,
    /// Samples the figures are made of.
    pub n: u64,
    /// Round trips in microseconds, where those were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<Distribution>,
    /// One-way latencies in microseconds, where those were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Distribution>,
    /// Samples that were sent.
    pub sent: u64,
    /// Samples that arrived (came back, for round trips).
    pub received: u64,
    /// Samples that did not.
    pub lost: u64,
    /// Samples of which a stall of the machine may be half or more. They are among the others' figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Stalled>,
    /// The figures without those, to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without_stalled_us: Option<Distribution>,
    /// The same for each repetition, and further figures of it (load really offered, goodput).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<Value>,
    /// All samples in microseconds, in the order of repetitions. [`write()`] puts them into `NAME.csv`.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// Samples that were hit by a stall of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalled {
    /// Number of samples.
    pub n: u64,
    /// The slowest of them, in microseconds.
    pub max: f64,
}

/// The factors of a cell: `arm`, `load_percent`, `measured`, `load`, `payload_bytes` and others that an experiment varies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factors(Map<String, Value>);

impl Factors {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The value of a factor.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter()
    }
}

/// A table of the paper, as measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Heads of its columns.
    pub heads: Vec<String>,
    /// Its rows, a text for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows yet.
    pub fn new(title: impl Into<String>, heads: &[&str]) -> Self {
        Self { title: title.into(), heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    /// One row more: its name, and numbers with one digit after the point (empty where there is none).
    pub fn row(&mut self, name: impl Into<String>, values: &[f64]) {
        let text = |value: &f64| if value.is_finite() { format!("{value:.1}") } else { String::new() };
        self.rows.push(std::iter::once(name.into()).chain(values.iter().map(text)).collect());
    }
}

/// A cell or check that could not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name.
    pub name: String,
    /// The reason.
    pub because: String,
}

/// Writes `NAME.json`, `NAME.svg`, `NAME.md` and, with all samples, `NAME.csv` into a folder, which is made if need be.
///
/// # Errors
/// [`Error::System`] with the path.
pub fn write(document: &Document, folder: &Path) -> Result {
    fs::create_dir_all(folder).map_err(|e| refused(folder, &e))?;
    let json = serde_json::to_string_pretty(document).map_err(std::io::Error::from)?;
    let name = &document.experiment;
    let markdown = format!("{}\n![{name}]({name}.svg)\n", markdown(document));
    let files =
        [("json", json), ("md", markdown), ("svg", svg::draw(&document.figure)), ("csv", samples(&document.cells))];
    for (extension, text) in files.into_iter().filter(|(_, text)| !text.is_empty()) {
        let path = folder.join(format!("{name}.{extension}"));
        fs::write(&path, text).map_err(|e| refused(&path, &e))?;
    }
    Ok(())
}

/// The number of its cell and the time in µs of each sample. The cells' factors stand above, as comments. Empty without samples.
fn samples(cells: &[Cell]) -> String {
    let mut text = String::new();
    for (number, cell) in cells.iter().enumerate().filter(|(_, cell)| !cell.samples.is_empty()) {
        let factors: Vec<String> = cell.factors.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(text, "# cell {number}: {}", factors.join(" "));
    }
    if !text.is_empty() {
        text.push_str("cell,us\n");
    }
    for (number, cell) in cells.iter().enumerate() {
        cell.samples.iter().for_each(|us| {
            let _ = writeln!(text, "{number},{us}");
        });
    }
    text
}

fn refused(path: &Path, error: &std::io::Error) -> Error {
    Error::system(&path.display().to_string(), error, "name a folder you may write to")
}

/// Panels side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Above all of it.
    pub title: String,
    /// Quantity and unit of the bars.
    pub axis: String,
    /// `true`: the axis is logarithmic.
    pub logarithmic: bool,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// Groups of bars on one axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub groups: Vec<Group>,
}

/// Bars next to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Below it.
    pub label: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Name of the series; its bars have one colour.
    pub series: String,
    /// Its height.
    pub value: f64,
    /// Half the length of its error bar: the standard deviation.
    pub deviation: f64,
    /// A mark of its own at this height, such as the 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_written_below_the_factors_of_their_cells() {
        let cell = |arm: &str, samples: &[f64]| Cell {
            factors: Factors::new().with("arm", arm),
            samples: samples.to_vec(),
            ..Cell::default()
        };
        let text = samples(&[cell("normal", &[1.5, 2.0]), cell("none", &[]), cell("qos", &[0.25])]);
        assert_eq!(text, "# cell 0: arm=\"normal\"\n# cell 2: arm=\"qos\"\ncell,us\n0,1.5\n0,2\n2,0.25\n");
        assert_eq!(samples(&[cell("none", &[])]), "");
    }

    #[test]
    fn what_was_skipped_fails_unless_it_is_allowed() {
        let verdict = |allowed: &[&str]| {
            let skipped = vec![Skipped { name: "tcp, bad-link".into(), because: "nft is not installed".into() }];
            let findings = Findings { checks: vec![Check::at_most("a", 1.0, 2.0)], skipped, ..Findings::default() };
            let allow_skips = allowed.iter().map(|name| (*name).to_owned()).collect();
            let options = Options { allow_skips, ..Options::default() };
            Document::new("isolation", Environment::default(), findings, Rates::default(), &options).verdict
        };
        assert_eq!([verdict(&[]), verdict(&["tcp"]), verdict(&["udp"])], [Verdict::Fail, Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn the_machine_is_described() {
        let here = Environment::read(7);
        assert!(here.kernel.starts_with("Linux ") && here.clock.starts_with("CLOCK_MONOTONIC by "), "{here:?}");
        assert!(here.cpus > 0 && here.load.len() == 3 && here.seed == 7 && here.versions["thalweg"].starts_with("0."));
        let commit = here.versions["thalweg"].split_once(" (").unwrap().1.trim_end_matches(')');
        let commit = commit.strip_suffix("-dirty").unwrap_or(commit);
        assert!(commit == "unknown" || commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
    }
}
