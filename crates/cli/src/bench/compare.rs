//! `thalweg bench compare`: Thalweg against the limit, alternating, with a target for each row.
//!
//! The rows and their targets are data ([`super::targets`]). Both sides of a row are measured in turn, each measurement in
//! processes of its own. The median of the rounds' ratios decides.
//!
//! Rows of bindings also say when they cannot tell: where the median ratio is less certain than its distance to the target. Those whose
//! programs cannot run here are skipped, with the reason. Rows of tools have the verdicts of the tools' own reports; they run when named.

mod verdict;

use super::engine::bindings::{Programs, is_binding};
use super::roles::allowed_cpus;
use super::targets::{Against, Job, Row, rows};
use super::{CompareOptions, EngineName, Error, name_of, print};
use crate::output::tell;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use verdict::Verdict;

/// The document of the comparison.
#[derive(Serialize)]
struct Comparison {
    environment: Environment,
    quick: bool,
    rows: Vec<Verdict>,
    pass: bool,
}

/// Processes that run where the scheduler puts them.
const UNPINNED: &str = "not pinned";

/// The machine a comparison ran on, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Environment {
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

    /// Reads it for processes that run where the scheduler puts them.
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    pub(super) fn unpinned() -> Result<Self, Error> {
        let cpus = allowed_cpus()?;
        let first = cpus.first().copied().unwrap_or(0);
        Ok(Self { pinning: UNPINNED.to_owned(), ..Self::read([first, first], cpus.len()) })
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
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

/// Measures the chosen rows, and returns the exit code.
pub(super) fn run(options: &CompareOptions) -> Result<u8, Error> {
    let rows = choose(&options.rows)?;
    let plan = plan(options)?;
    let mut environment = Environment::read(plan.pins, allowed_cpus()?.len());
    if rows.iter().any(|row| row.job.is_tool) {
        let is_pinned = rows.iter().any(|row| !row.job.is_tool);
        let pinning =
            if is_pinned { format!("{}, tools not pinned", environment.pinning) } else { UNPINNED.to_owned() };
        environment.pinning = pinning;
    }
    if !options.json {
        print(&format!("{}\n{}", environment.line(), Verdict::head()));
    }
    let (mut verdicts, mut measured) = (Vec::with_capacity(rows.len()), Measured::default());
    for row in rows {
        let verdict = judge(row, measured.rounds(row, options.engine, &plan), &plan);
        if !options.json {
            print(&verdict.line());
        }
        verdicts.push(verdict);
    }
    let (pass, code) = (verdicts.iter().all(Verdict::good), exit_code(&verdicts));
    if options.json {
        let document = Comparison { environment, quick: plan.quick, rows: verdicts, pass };
        print(&serde_json::to_string(&document).map_err(|e| Error::System(e.to_string()))?);
    }
    Ok(code)
}

/// A row that is bad counts more than one that cannot tell. Where nothing could be measured, the system refused.
fn exit_code(verdicts: &[Verdict]) -> u8 {
    match verdicts {
        all if !all.iter().all(Verdict::good) => 1,
        all if all.iter().any(|verdict| verdict.inconclusive) => 4,
        all if all.iter().all(|verdict| verdict.skipped.is_some()) => 3,
        _ => 0,
    }
}

/// The reason why a row has no figures.
#[derive(Clone, Debug)]
enum Unmeasured {
    /// A program cannot run here.
    Skipped(String),
    Failed(String),
}

/// Measurements so far. Rows with different figures of one measurement share it; rows of one binding share its programs.
#[derive(Default)]
struct Measured {
    pairs: Vec<(Pair, Result<Vec<Round>, Unmeasured>)>,
    programs: Vec<(EngineName, Result<Programs, String>)>,
}

impl Measured {
    fn rounds(&mut self, row: &Row, engine: EngineName, plan: &Plan) -> &Result<Vec<Round>, Unmeasured> {
        let pair = Pair::of(row, engine);
        let known = self.pairs.iter().position(|(known, _)| *known == pair);
        let at = known.unwrap_or(self.pairs.len());
        if known.is_none() {
            let outcome = match self.folder(&pair, plan) {
                Ok(folder) => measure(row, &pair, plan, folder.as_deref()).map_err(Unmeasured::Failed),
                Err(because) => Err(Unmeasured::Skipped(because)),
            };
            self.pairs.push((pair, outcome));
        }
        &self.pairs[at].1
    }

    /// The folder with the programs of a pair's binding, if it has one. They are made for its first row.
    fn folder(&mut self, pair: &Pair, plan: &Plan) -> Result<Option<PathBuf>, String> {
        let engine = pair.ours.engine;
        if !is_binding(engine) {
            return Ok(None);
        }
        if !self.programs.iter().any(|(known, _)| *known == engine) {
            let made = Programs::make(engine, plan.tree.as_deref());
            tell(&match &made {
                Ok(programs) => format!("{}: {}", name_of(engine), programs.about()),
                Err(because) => format!("skipped: {}, because {because}", name_of(engine)),
            });
            self.programs.push((engine, made));
        }
        let made = self.programs.iter().find(|(known, _)| *known == engine).map(|(_, made)| made);
        made.map(|made| made.as_ref().map(|made| made.folder().to_owned()).map_err(Clone::clone)).transpose()
    }
}

fn measure(row: &Row, pair: &Pair, plan: &Plan, folder: Option<&Path>) -> Result<Vec<Round>, String> {
    let mut done = 0;
    let one = |side: &Side| {
        done += 1;
        tell(&format!("{}: measurement {done}: {}, {}", row.name, name_of(side.engine), side.job.text()));
        measure_side(side, plan, folder)
    };
    let rounds = if row.job.is_tool { 1 } else { plan.rounds };
    alternate(pair, rounds, one).map_err(|e| e.to_string())
}

fn judge(row: &Row, outcome: &Result<Vec<Round>, Unmeasured>, plan: &Plan) -> Verdict {
    let mut verdict = match outcome {
        Ok(rounds) => Verdict::new(row, rounds, plan.quick),
        Err(Unmeasured::Failed(because)) => Verdict::failed(row, plan.quick, because.clone()),
        Err(Unmeasured::Skipped(because)) => Verdict::skipped(row, plan.quick, because.clone()),
    };
    verdict.n = plan.count(&row.job);
    verdict
}

/// The rows whose names begin with one of `wanted`; if it is empty all but those of tools, which take long and fill the disk.
fn choose(wanted: &[String]) -> Result<Vec<&'static Row>, Error> {
    if let Some(unknown) = wanted.iter().find(|w| !rows().any(|row| row.name.starts_with(w.as_str()))) {
        let names: Vec<_> = rows().map(|row| row.name).collect();
        return Err(Error::Usage(format!("no row \"{unknown}\": allowed are {}", names.join(", "))));
    }
    let chosen =
        |row: &&Row| (wanted.is_empty() && !row.job.is_tool) || wanted.iter().any(|w| row.name.starts_with(w.as_str()));
    Ok(rows().filter(chosen).collect())
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
    let (count, tree, dir) = (options.count, options.tree.clone(), options.dir.clone());
    Ok(Plan { rounds: if options.quick { 1 } else { options.rounds }, pins, quick: options.quick, count, tree, dir })
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
        let side = |job: Job| Side { engine: job.engine.unwrap_or(engine), job };
        let theirs = match row.against {
            Against::Raw => Some(Side { engine: EngineName::Raw, job: row.job }),
            Against::Itself(job) => Some(side(job)),
            Against::Nothing => None,
        };
        Self { ours: side(row.job), theirs }
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
#[derive(Clone, Debug)]
struct Plan {
    /// Number of rounds.
    rounds: u32,
    /// The processors of the two ends.
    pins: [usize; 2],
    /// A short run with few messages.
    quick: bool,
    /// Messages in each measurement, instead of the rows' numbers.
    count: Option<u64>,
    /// The source tree of the bindings.
    tree: Option<PathBuf>,
    /// The folder for the recordings of tools.
    dir: PathBuf,
}

impl Plan {
    fn count(&self, job: &Job) -> u64 {
        self.count.unwrap_or_else(|| job.count(self.quick))
    }
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
fn measure_side(side: &Side, plan: &Plan, folder: Option<&Path>) -> Result<Value, Error> {
    let mut arguments = side.job.arguments(side.engine, plan.pins, plan.count(&side.job), plan.quick);
    if side.job.is_tool {
        let (rounds, dir) = (plan.rounds.to_string(), plan.dir.display().to_string());
        arguments.extend(["--rounds".to_owned(), rounds, "--dir".to_owned(), dir]);
    }
    let programs = folder.filter(|_| is_binding(side.engine)).map(|folder| [Path::new("--programs"), folder]);
    let mut child = Command::new("/proc/self/exe")
        .args(&arguments)
        .args(programs.iter().flatten())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::System(format!("cannot start a measurement: {e}")))?;
    let limit = side.job.longest(plan.rounds);
    let said = hear(&mut child, limit);
    if said.is_none() {
        stop(&mut child);
    }
    let status = child.wait()?;
    let (document, complaint) =
        said.ok_or_else(|| Error::Peer(format!("no result within {limit:?}: {}", arguments.join(" "))))?;
    // The verdict stands in a tool's own report, too.
    let has_answered = side.job.is_tool && !document.is_empty();
    if !status.success() && !has_answered {
        let text = complaint.trim().trim_start_matches("thalweg bench: ");
        return Err(Error::Peer(format!("{}: {text}", name_of(side.engine))));
    }
    serde_json::from_str(&document).map_err(|e| Error::Peer(format!("a measurement printed no document: {e}")))
}

/// Ends a measurement after its limit. When its own processes are killed, its waits for them fail, and it cleans up and ends by itself.
fn stop(child: &mut Child) {
    let until = Instant::now() + GRACE;
    while Instant::now() < until && !matches!(child.try_wait(), Ok(Some(_))) {
        children(child.id()).into_iter().for_each(|pid| {
            let _ = kill_process(pid, Signal::KILL); // it may have ended meanwhile
        });
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = child.kill();
}

/// The processes that this one has started (proc_pid_task_children(5)).
fn children(process: u32) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers =
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>());
    numbers.filter_map(Pid::from_raw).collect()
}

/// The time that a measurement gets for cleaning up.
const GRACE: Duration = Duration::from_secs(5);

/// Standard output and standard error of `child` up to their ends; `None` after a timeout.
fn hear(child: &mut Child, limit: Duration) -> Option<(String, String)> {
    let (mut out, mut err) = (child.stdout.take()?, child.stderr.take()?);
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut document, mut complaint) = (String::new(), String::new());
        let _ = out.read_to_string(&mut document);
        let _ = err.read_to_string(&mut complaint);
        let _ = tell.send((document, complaint));
    });
    told.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::super::targets::ROWS;
    use super::*;

    #[test]
    fn rows_are_chosen_by_the_beginning_of_their_names() {
        let names = |wanted: &[&str]| -> Vec<_> {
            let wanted: Vec<_> = wanted.iter().map(|w| (*w).to_owned()).collect();
            choose(&wanted).unwrap().iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[]).len(), rows().filter(|row| !row.job.is_tool).count());
        assert!(!names(&[]).contains(&"record-rate"), "tools are measured if they are named");
        assert_eq!(names(&["shm-1m", "udp"]), ["udp-64", "udp-reliable-64", "shm-1m-loaned", "shm-1m-checked"]);
        let error = choose(&["tpc".to_owned()]).err().map(|e| e.to_string()).unwrap();
        assert!(error.contains("\"tpc\"") && error.contains("tcp-64-p50"), "{error}");
    }

    #[test]
    fn processes_of_a_measurement_that_hangs_are_ended() {
        if !Path::new("/proc/thread-self/children").exists() {
            return println!("skipped: because this kernel has no lists of children (CONFIG_PROC_CHILDREN)");
        }
        let mut shell = Command::new("sh").args(["-c", "sleep 600; exit 7"]).spawn().unwrap();
        while children(shell.id()).is_empty() {
            std::thread::yield_now();
        }
        stop(&mut shell);
        assert_eq!(shell.wait().unwrap().code(), Some(7), "it ended by itself");
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
        let own = rows().find(|r| r.name == "shm-1m-loaned").unwrap();
        assert_eq!(
            Pair::of(own, EngineName::Thalweg).theirs.map(|s| (s.engine, s.job.size)),
            Some((EngineName::Thalweg, 64))
        );
    }
}
