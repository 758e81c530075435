//! `thalweg bench compare`: Thalweg against the limit, alternating, with a target for each row.
//!
//! The rows and their targets are data ([`super::targets`]). Both sides of a row are measured in turn, each measurement in
//! processes of its own. The median of the rounds' ratios decides.

use super::roles::allowed_cpus;
use super::targets::{Against, Job, ROWS, Row, short};
use super::{Carrier, CompareOptions, EngineName, Error, name_of, print};
use crate::output::tell;
use lab::statistics::{Spread, rounded};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The document of the comparison.
#[derive(Serialize)]
struct Comparison {
    environment: Environment,
    quick: bool,
    rows: Vec<Verdict>,
    pass: bool,
}

/// The machine a comparison ran on, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
struct Environment {
    /// Name and release of the kernel.
    kernel: String,
    /// Processors of this machine that this process may use.
    cpus: usize,
    /// The processors of the two ends.
    pinning: String,
    /// The frequency governor of the first of these processors, where it can be read.
    governor: Option<String>,
    /// Load averages before the first measurement (1, 5, 15 minutes).
    load: Vec<f64>,
}

impl Environment {
    /// Reads it all.
    fn read(pins: [usize; 2], cpus: usize) -> Self {
        let name = rustix::system::uname();
        let kernel = format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy());
        let pinning = match pins {
            [one, other] if one == other => format!("both ends on cpu {one}"),
            [one, other] => format!("ping on cpu {one}, the others on cpu {other}"),
        };
        let governor = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", pins[0]));
        Self { kernel, cpus, pinning, governor: governor.ok().map(|g| g.trim().to_owned()), load: load() }
    }

    /// One line for people.
    fn line(&self) -> String {
        let governor = self.governor.as_deref().unwrap_or("unknown");
        let load: Vec<_> = self.load.iter().map(f64::to_string).collect();
        let (kernel, cpus, pinning) = (&self.kernel, self.cpus, &self.pinning);
        format!("{kernel}, {cpus} cpus, {pinning}, governor {governor}, load {}", load.join(" "))
    }
}

fn load() -> Vec<f64> {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|v| v.parse().ok()).collect()
}

/// Measures the chosen rows; `true` if all are good.
pub(super) fn run(options: &CompareOptions) -> Result<bool, Error> {
    let rows = choose(&options.rows)?;
    let plan = plan(options)?;
    let environment = Environment::read(plan.pins, allowed_cpus()?.len());
    if !options.json {
        print(&format!("{}\n{}", environment.line(), Verdict::head()));
    }
    let (mut verdicts, mut measured) = (Vec::with_capacity(rows.len()), Measured::default());
    for row in rows {
        let verdict = judge(row, measured.rounds(row, options.engine, &plan), plan.quick);
        if !options.json {
            print(&verdict.line());
        }
        verdicts.push(verdict);
    }
    let pass = verdicts.iter().all(Verdict::good);
    if options.json {
        let document = Comparison { environment, quick: plan.quick, rows: verdicts, pass };
        print(&serde_json::to_string(&document).map_err(|e| Error::System(e.to_string()))?);
    }
    Ok(pass)
}

/// Measurements so far. Rows with different figures of one measurement share it.
#[derive(Default)]
struct Measured(Vec<(Pair, Result<Vec<Round>, String>)>);

impl Measured {
    fn rounds(&mut self, row: &Row, engine: EngineName, plan: &Plan) -> &Result<Vec<Round>, String> {
        let pair = Pair::of(row, engine);
        let known = self.0.iter().position(|(known, _)| *known == pair);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((pair, measure(row, &pair, plan)));
        }
        &self.0[at].1
    }
}

fn measure(row: &Row, pair: &Pair, plan: &Plan) -> Result<Vec<Round>, String> {
    let mut done = 0;
    let one = |side: &Side| {
        done += 1;
        tell(&format!("{}: measurement {done}: {}, {}", row.name, name_of(side.engine), side.job.text()));
        measure_side(side, plan)
    };
    alternate(pair, plan.rounds, one).map_err(|e| e.to_string())
}

fn judge(row: &Row, outcome: &Result<Vec<Round>, String>, quick: bool) -> Verdict {
    match outcome {
        Ok(rounds) => Verdict::new(row, rounds, quick),
        Err(because) => Verdict::failed(row, quick, because.clone()),
    }
}

/// The rows whose names begin with one of `wanted`; all rows if it is empty.
fn choose(wanted: &[String]) -> Result<Vec<&'static Row>, Error> {
    if let Some(unknown) = wanted.iter().find(|w| !ROWS.iter().any(|row| row.name.starts_with(w.as_str()))) {
        let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        return Err(Error::Usage(format!("no row \"{unknown}\": allowed are {}", names.join(", "))));
    }
    let chosen = |row: &&Row| wanted.is_empty() || wanted.iter().any(|w| row.name.starts_with(w.as_str()));
    Ok(ROWS.iter().filter(chosen).collect())
}

fn plan(options: &CompareOptions) -> Result<Plan, Error> {
    let allowed = allowed_cpus()?;
    let first = options.pin.or_else(|| allowed.first().copied()).unwrap_or(0);
    let second = allowed.iter().copied().find(|cpu| *cpu != first);
    let pins = match (options.two_cores, second) {
        (false, _) => [first, first],
        (true, Some(second)) => [first, second],
        (true, None) => return Err(Error::Usage("--two-cores: this process may use one processor only".to_owned())),
    };
    Ok(Plan { rounds: if options.quick { 1 } else { options.rounds }, pins, quick: options.quick })
}

/// One side of a comparison: an engine and its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    /// The engine.
    engine: EngineName,
    /// Its work.
    job: Job,
}

/// A measurement of both sides. Rows with different figures of it share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    /// The side that is compared.
    ours: Side,
    /// The side that it is compared with.
    theirs: Option<Side>,
}

impl Pair {
    /// The measurement that `row` needs when `engine` is compared.
    fn of(row: &Row, engine: EngineName) -> Self {
        let theirs = match row.against {
            Against::Raw => Some(Side { engine: EngineName::Raw, job: row.job }),
            Against::Itself(job) => Some(Side { engine, job }),
            Against::Nothing => None,
        };
        Self { ours: Side { engine, job: row.job }, theirs }
    }
}

/// The documents of one round.
#[derive(Clone, Debug)]
struct Round {
    /// The document of the engine that is compared.
    ours: Value,
    /// The document of the reference.
    theirs: Option<Value>,
}

/// The plan of the measurements.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Number of rounds.
    rounds: u32,
    /// The processors of the two ends.
    pins: [usize; 2],
    /// A short run with few messages.
    quick: bool,
}

/// Measures a pair round by round; `measure` makes one measurement. The side that goes first alternates, so that a
/// drift of the machine affects both.
fn alternate(
    pair: &Pair,
    rounds: u32,
    mut measure: impl FnMut(&Side) -> Result<Value, Error>,
) -> Result<Vec<Round>, Error> {
    let mut done = Vec::with_capacity(rounds as usize);
    for round in 0..rounds {
        let theirs_first = round % 2 == 0;
        let before = pair.theirs.as_ref().filter(|_| theirs_first).map(&mut measure).transpose()?;
        let ours = measure(&pair.ours)?;
        let after = pair.theirs.as_ref().filter(|_| !theirs_first).map(&mut measure).transpose()?;
        done.push(Round { ours, theirs: before.or(after) });
    }
    Ok(done)
}

/// Makes one measurement in processes of its own, and returns the document that they print.
fn measure_side(side: &Side, plan: &Plan) -> Result<Value, Error> {
    let arguments = side.job.arguments(side.engine, plan.pins, plan.quick);
    let mut child = Command::new("/proc/self/exe")
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::System(format!("cannot start a measurement: {e}")))?;
    let said = hear(&mut child);
    if said.is_none() {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (document, complaint) =
        said.ok_or_else(|| Error::Peer(format!("no result within {LIMIT:?}: {}", arguments.join(" "))))?;
    if !status.success() {
        let text = complaint.trim().trim_start_matches("thalweg bench: ");
        return Err(Error::Peer(format!("{}: {text}", name_of(side.engine))));
    }
    serde_json::from_str(&document).map_err(|e| Error::Peer(format!("a measurement printed no document: {e}")))
}

/// Standard output and standard error of `child` up to their ends; `None` after a timeout.
fn hear(child: &mut Child) -> Option<(String, String)> {
    let (mut out, mut err) = (child.stdout.take()?, child.stderr.take()?);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut document, mut complaint) = (String::new(), String::new());
        let _ = out.read_to_string(&mut document);
        let _ = err.read_to_string(&mut complaint);
        let _ = tell.send((document, complaint));
    });
    told.recv_timeout(LIMIT).ok()
}

/// One row of the result. If the figures are null, `error` gives the reason.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    /// The row's name.
    name: &'static str,
    /// Its description, for people.
    what: &'static str,
    /// The unit of the figures.
    unit: &'static str,
    /// Figures of the reference.
    baseline: Option<Spread>,
    /// Figures of the engine that is compared.
    thalweg: Option<Spread>,
    /// Ratio of the two, round by round.
    ratio: Option<Spread>,
    /// The target, for people.
    target: String,
    /// `true` if the target is met; null without a verdict.
    pass: Option<bool>,
    /// Percent by which the target is missed.
    missed_by_percent: Option<f64>,
    /// Measured messages per round.
    n: u64,
    /// Rounds.
    rounds: usize,
    /// Reason of missing figures.
    error: Option<String>,
}

impl Verdict {
    /// Judges `row` by its rounds. A `quick` run is not judged.
    fn new(row: &Row, rounds: &[Round], quick: bool) -> Self {
        let values = |theirs: bool| -> Vec<f64> { rounds.iter().filter_map(|r| figure(row, r, theirs)).collect() };
        let (ours, theirs) = (values(false), values(true));
        let ratio = Spread::of(ours.iter().zip(&theirs).map(|(o, t)| o / t.max(f64::MIN_POSITIVE)));
        let (thalweg, baseline) = (Spread::of(ours), Spread::of(theirs));
        let judged = if row.against == Against::Nothing { thalweg } else { ratio };
        let mut verdict = Self { baseline, thalweg, ratio, rounds: rounds.len(), ..Self::empty(row, quick) };
        match judged {
            Some(spread) if !quick => {
                let pass = row.target.met_by(spread.median);
                verdict.pass = Some(pass);
                verdict.missed_by_percent = (!pass).then(|| rounded(row.target.missed_by_percent(spread.median), 3));
            }
            Some(_) => {}
            None => verdict.error = Some("the measurement gave no such figure".to_owned()),
        }
        verdict.error = verdict.error.or_else(|| lost(row, rounds));
        verdict
    }

    /// A row that could not be measured.
    fn failed(row: &Row, quick: bool, because: String) -> Self {
        Self { error: Some(because), ..Self::empty(row, quick) }
    }

    fn empty(row: &Row, quick: bool) -> Self {
        let (_, _, unit) = row.figure.place();
        let target = row.target.text(if row.against == Against::Nothing { unit } else { "×" });
        let (baseline, thalweg, ratio) = (None, None, None);
        let (pass, missed_by_percent, error) = (None, None, None);
        let (name, what, n) = (row.name, row.what, row.job.count(quick));
        Self { name, what, unit, baseline, thalweg, ratio, target, pass, missed_by_percent, n, rounds: 0, error }
    }

    /// `true` if the row neither failed nor missed its target.
    fn good(&self) -> bool {
        self.error.is_none() && self.pass != Some(false)
    }

    /// One line of the table.
    fn line(&self) -> String {
        let figure = |s: &Option<Spread>| s.map_or("–".to_owned(), |s| format!("{} {}", short(s.median), self.unit));
        let range = |s: Spread| format!("{:.3} [{:.3}–{:.3}]", s.median, s.min, s.max);
        let ratio = self.ratio.map_or("–".to_owned(), range);
        let (name, what, n) = (self.name, self.what, format!("{}×{}", self.rounds, self.n));
        let (theirs, ours, target) = (figure(&self.baseline), figure(&self.thalweg), &self.target);
        let verdict = self.verdict();
        format!("{name:<15} {what:<38} {n:>10} {theirs:>11} {ours:>11} {ratio:>21} {target:>11}  {verdict}")
    }

    fn verdict(&self) -> String {
        match (&self.error, self.pass, self.missed_by_percent) {
            (Some(error), ..) => format!("failed: {}", error.lines().next().unwrap_or_default()),
            (None, Some(false), Some(by)) => format!("MISSED by {by:.1} %"),
            (None, Some(true), _) => "pass".to_owned(),
            _ => "ran".to_owned(),
        }
    }

    /// The line above the table.
    fn head() -> String {
        format!(
            "{:<15} {:<38} {:>10} {:>11} {:>11} {:>21} {:>11}  ",
            "row", "what", "rounds×n", "limit", "measured", "ratio [min–max]", "target"
        )
    }
}

/// Messages that did not come are in no latency and in no rate: more than the carrier may lose fails the row.
fn lost(row: &Row, rounds: &[Round]) -> Option<String> {
    let lost: u64 = rounds.iter().filter_map(|round| round.ours.pointer("/lost")?.as_u64()).sum();
    let sent: u64 = rounds.iter().filter_map(|round| round.ours.pointer("/count")?.as_u64()).sum();
    let may_lose = row.job.carrier == Carrier::Udp && !row.job.reliable;
    let most = if may_lose { sent / 100 } else { 0 };
    (lost > most).then(|| format!("{lost} of {sent} messages were lost"))
}

fn figure(row: &Row, round: &Round, theirs: bool) -> Option<f64> {
    let (place, factor, _) = row.figure.place();
    let document = if theirs { round.theirs.as_ref()? } else { &round.ours };
    Some(document.pointer(place)?.as_f64()? * factor)
}

const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::super::targets::ROWS;
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_chosen_by_the_beginning_of_their_names() {
        let names = |wanted: &[&str]| -> Vec<_> {
            let wanted: Vec<_> = wanted.iter().map(|w| (*w).to_owned()).collect();
            choose(&wanted).unwrap().iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[]).len(), ROWS.len());
        assert_eq!(names(&["shm-1m", "udp"]), ["udp-64", "udp-reliable-64", "shm-1m-loaned", "shm-1m-checked"]);
        let error = choose(&["tpc".to_owned()]).err().map(|e| e.to_string()).unwrap();
        assert!(error.contains("\"tpc\"") && error.contains("tcp-64-p50"), "{error}");
    }

    #[test]
    fn the_machine_is_described() {
        let here = Environment::read([0, 1], 2);
        assert!(here.kernel.starts_with("Linux ") && here.load.len() == 3, "{here:?}");
        assert!(here.line().contains("ping on cpu 0, the others on cpu 1"), "{}", here.line());
    }

    #[test]
    fn the_sides_alternate_and_take_turns_in_going_first() {
        let mut order = Vec::new();
        let pair = Pair::of(&ROWS[0], EngineName::Thalweg);
        let rounds = alternate(&pair, 3, |side| {
            order.push(side.engine);
            Ok(Value::from(order.len()))
        });
        use EngineName::{Raw, Thalweg};
        assert_eq!(order, [Raw, Thalweg, Thalweg, Raw, Raw, Thalweg]);
        let seen: Vec<_> = rounds.unwrap().iter().map(|r| (r.ours.clone(), r.theirs.clone())).collect();
        assert_eq!(seen[1], (Value::from(3), Some(Value::from(4))));
    }

    #[test]
    fn rows_that_differ_in_the_figure_only_share_their_measurements() {
        let [p50, p99, cpu] = [0, 1, 2].map(|n| Pair::of(&ROWS[n], EngineName::Thalweg));
        assert!(p50 == p99 && p99 == cpu);
        let own = ROWS.iter().find(|r| r.name == "shm-1m-loaned").unwrap();
        assert_eq!(
            Pair::of(own, EngineName::Thalweg).theirs.map(|s| (s.engine, s.job.size)),
            Some((EngineName::Thalweg, 64))
        );
    }

    fn rounds(ours: &[f64], theirs: f64) -> Vec<Round> {
        let document = |p50: f64| json!({"rtt_us": {"p50": p50}});
        ours.iter().map(|v| Round { ours: document(*v), theirs: Some(document(theirs)) }).collect()
    }

    #[test]
    fn the_median_of_the_ratios_decides() {
        let passed = Verdict::new(&ROWS[0], &rounds(&[10.5, 30.0, 10.0], 10.0), false);
        assert_eq!(passed.ratio, Some(Spread { median: 1.05, min: 1.0, max: 3.0 }));
        assert_eq!((passed.pass, passed.missed_by_percent), (Some(true), None));
        let missed = Verdict::new(&ROWS[0], &rounds(&[22.0, 22.0], 10.0), false);
        assert_eq!((missed.pass, missed.missed_by_percent), (Some(false), Some(100.0)));
        assert!(missed.line().contains("MISSED by 100.0 %"), "{}", missed.line());
    }

    #[test]
    fn lost_messages_fail_a_row() {
        let verdict = |name: &str, lost: u64| {
            let row = ROWS.iter().find(|row| row.name == name).unwrap();
            let document = json!({"latency_us": {"p50": 1.0}, "count": 1000, "lost": lost});
            Verdict::new(row, &[Round { ours: document.clone(), theirs: Some(document) }], false)
        };
        assert!(verdict("fanout-tcp", 0).good() && verdict("fanout-udp", 10).good());
        assert!(!verdict("fanout-tcp", 1).good() && !verdict("fanout-udp", 11).good());
        assert!(verdict("fanout-shm", 3).line().contains("failed: 3 of 1000 messages were lost"));
    }

    #[test]
    fn a_quick_run_judges_nothing_and_a_failed_row_is_not_good() {
        let quick = Verdict::new(&ROWS[0], &rounds(&[99.0], 1.0), true);
        assert!(quick.pass.is_none() && quick.good());
        assert!(!Verdict::failed(&ROWS[0], false, "no such engine".into()).good());
        assert!(!Verdict::new(&ROWS[1], &rounds(&[1.0], 1.0), false).good(), "a figure that is not there");
    }
}
