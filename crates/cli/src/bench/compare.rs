//! `thalweg bench compare`: Thalweg against the limit, alternating, with a target for each row.
//!
//! The targets are data in [`table`]. [`rounds`] measures, [`verdict`] judges.

mod rounds;
mod table;
mod verdict;

use super::arguments::{CompareOptions, EngineName, name_of};
use super::roles::allowed_cpus;
use super::{Error, print};
use crate::output::tell;
use rounds::{Pair, Plan, Round};
use serde::Serialize;
use std::fs;
use table::{ROWS, Row};
use verdict::Verdict;

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
    let one = |side: &rounds::Side| {
        done += 1;
        tell(&format!("{}: measurement {done}: {}, {}", row.name, name_of(side.engine), side.job.text()));
        rounds::measure(side, plan)
    };
    rounds::alternate(pair, plan.rounds, one).map_err(|e| e.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
