//! Runs the two sides of a row in turn, each measurement in processes of its own.

use super::table::{Against, Job, Row};
use crate::bench::Error;
use crate::bench::arguments::{EngineName, name_of};
use serde_json::Value;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// One side of a comparison: an engine and its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    /// The engine.
    pub engine: EngineName,
    /// Its work.
    pub job: Job,
}

/// A measurement of both sides. Rows with different figures of it share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The side that is compared.
    pub ours: Side,
    /// The side that it is compared with.
    pub theirs: Option<Side>,
}

impl Pair {
    /// The measurement that `row` needs when `engine` is compared.
    pub(super) fn of(row: &Row, engine: EngineName) -> Self {
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
pub(super) struct Round {
    /// The document of the engine that is compared.
    pub ours: Value,
    /// The document of the reference.
    pub theirs: Option<Value>,
}

/// The plan of the measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Number of rounds.
    pub rounds: u32,
    /// The processors of the two ends.
    pub pins: [usize; 2],
    /// A short run with few messages.
    pub quick: bool,
}

/// Measures a pair round by round; `measure` makes one measurement. The side that goes first alternates, so that a
/// drift of the machine affects both.
pub(super) fn alternate(
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
pub(super) fn measure(side: &Side, plan: &Plan) -> Result<Value, Error> {
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

#[cfg(test)]
mod tests {
    use super::super::table::ROWS;
    use super::*;

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
}
