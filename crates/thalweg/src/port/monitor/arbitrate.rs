//! `arbitrate`: lets in the one of several sources that has the highest output now (YS-38).
//!
//! The parameters are those of YARP's `priority` carrier, `src/carriers/priority_carrier` of robotology/yarp, per source:
//!
//! | parameter | meaning | default |
//! |---|---|---|
//! | `from` | the publishing port | needed |
//! | `bs`, `level` | bias b: the source's own weight, in tenths as in YARP | 10 |
//! | `tc` | seconds for which it is active after a sample | 1 |
//! | `tr` | seconds of rest after that, in which none of its samples pass; 0: it doesn't rest | 0 |
//! | `st` | with a resting time only: the stimulation by one sample, in tenths; at 10 (the threshold) the source is active | 10 |
//! | `ex` | `(ex (/other N) …)`: its addition to others while active, in tenths; negative inhibits | none |
//! | `virtual` | its samples count but never pass | no |
//!
//! With x = 1 for an active source and 0 for another, the outputs are the solution of `y_i = x_i (b_i + Σ_j ex_ji y_j)`, as
//! YARP has it when built with its mathematics library; the sample passes if its source's y is positive and no other's
//! that isn't virtual is greater. Simpler than YARP's: while a source is active its stimulation doesn't fade.
//! Sources that are not named don't take part: their samples pass while no named one is active.

use super::{Monitor, ParameterError, Seen, Verdict, unknown};
use crate::bottle::{Property, Value, properties};

/// Most sources that are named.
const MOST: usize = 64;

/// Lets in the source with the highest output.
#[derive(Debug, Default)]
pub struct Arbitrate {
    inputs: Vec<Input>,
    passed: i64,
    dropped: i64,
    /// The system that is solved, row by row, with the right side at its end.
    rows: Vec<Vec<f64>>,
}

#[derive(Clone, Debug)]
struct Input {
    from: String,
    bias: f64,
    stimulation: f64,
    constant_ns: u64,
    resting_ns: u64,
    excites: Vec<(String, f64)>,
    is_virtual: bool,
    /// Its stimulation, 0 … 1, and the time from which it counts.
    level: f64,
    arrived_ns: u64,
}

impl Input {
    fn new(from: &str) -> Self {
        Self {
            from: from.to_owned(),
            bias: 1.0,
            stimulation: 1.0,
            constant_ns: 1_000_000_000,
            resting_ns: 0,
            excites: Vec::new(),
            is_virtual: false,
            level: 0.0,
            arrived_ns: 0,
        }
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        let number = || {
            value
                .number()
                .filter(|n| n.is_finite())
                .ok_or_else(|| ParameterError::new(format!("{key} {value}"), "a number is allowed"))
        };
        let seconds = || {
            let fits = number().ok().filter(|s| (0.0..=86_400.0).contains(s));
            fits.map(|s| (s * 1e9) as u64)
                .ok_or_else(|| ParameterError::new(format!("{key} {value}"), "allowed is 0 to 86400 (s)"))
        };
        match key {
            "bs" | "level" => self.bias = number()? / 10.0,
            "st" => self.stimulation = number()?.abs() / 10.0,
            "tc" => self.constant_ns = seconds()?,
            "tr" => self.resting_ns = seconds()?,
            "ex" => self.excites = excitations(value)?,
            "virtual" => self.is_virtual = value.int() != Some(0),
            _ => return Err(unknown(key, "input", "from, bs (level), st, tc, tr, ex and virtual")),
        }
        Ok(())
    }

    /// `true` if it counts now.
    fn is_active(&mut self, now: u64) -> bool {
        let since = now.saturating_sub(self.arrived_ns);
        if self.level < 1.0 {
            return false;
        }
        let over = since > self.constant_ns.saturating_add(self.resting_ns);
        if over {
            self.level = 0.0;
        }
        since <= self.constant_ns
    }

    fn stimulate(&mut self, now: u64) {
        let _ = self.is_active(now); // ends a rest that is over
        if self.resting_ns == 0 {
            self.level = 1.0;
        } else if self.level < 1.0 {
            self.level = (self.level + self.stimulation).min(1.0);
        } else {
            return; // active for tc from the threshold on, at any rate of samples, and then at rest
        }
        self.arrived_ns = now;
    }

    fn shown(&self) -> Value {
        let mut shown = vec![
            Value::pair("from", self.from.as_str()),
            Value::pair("bs", self.bias * 10.0),
            Value::pair("st", self.stimulation * 10.0),
            Value::pair("tc", self.constant_ns as f64 / 1e9),
            Value::pair("tr", self.resting_ns as f64 / 1e9),
            Value::pair("virtual", i64::from(self.is_virtual)),
        ];
        let excites = self.excites.iter().map(|(other, weight)| Value::pair(other, weight * 10.0));
        shown.extend(
            (!self.excites.is_empty())
                .then(|| [Value::text("ex")].into_iter().chain(excites).collect::<Vec<_>>().into()),
        );
        shown.into()
    }
}

fn excitations(value: &Value) -> Result<Vec<(String, f64)>, ParameterError> {
    let wrong = || ParameterError::new(format!("ex {value}"), "allowed is (ex (/port N) …)");
    let all = value.list().ok_or_else(wrong)?;
    let all = if value.group().is_some() { std::slice::from_ref(value) } else { all };
    let one = |v: &Value| match v.group() {
        Some((other, [weight])) => weight.number().map(|weight| (other.to_owned(), weight / 10.0)),
        _ => None,
    };
    all.iter().map(one).collect::<Option<_>>().ok_or_else(wrong)
}

impl Arbitrate {
    fn set_input(&mut self, value: &Value) -> Result<(), ParameterError> {
        let needed = || ParameterError::new("an input needs (from /port)", "(input (from /port) (level 15) (tc 0.5))");
        let given = value.list().ok_or_else(needed)?;
        let given = if value.group().is_some() { std::slice::from_ref(value) } else { given };
        let given = properties(given).map_err(|problem| ParameterError::new("input", problem))?;
        let from = given.iter().find(|(key, _)| key == "from").and_then(|(_, name)| name.word()).ok_or_else(needed)?;
        let at = self.inputs.iter().position(|i| i.from == from);
        let mut input = at.map_or_else(|| Input::new(from), |at| self.inputs[at].clone());
        for (key, value) in given.iter().filter(|(key, _)| key != "from") {
            input.set(key, value)?;
        }
        match at {
            Some(at) => self.inputs[at] = input,
            None if self.inputs.len() == MOST => {
                return Err(ParameterError::new("input", format!("{MOST} are named already")));
            }
            None => self.inputs.push(input),
        }
        let n = self.inputs.len();
        self.rows = vec![vec![0.0; n + 1]; n];
        Ok(())
    }

    /// The output of every input now; `None` when the excitations contradict each other.
    fn outputs(&mut self, now: u64) -> Option<()> {
        for (i, row) in self.rows.iter_mut().enumerate() {
            let x = f64::from(u8::from(self.inputs[i].is_active(now)));
            let input = &self.inputs[i];
            for (j, other) in self.inputs.iter().enumerate() {
                let weight: f64 = other.excites.iter().filter(|(to, _)| *to == input.from).map(|(_, w)| w).sum();
                row[j] = f64::from(u8::from(i == j)) - x * weight;
            }
            row[self.inputs.len()] = x * input.bias;
        }
        solve(&mut self.rows)
    }
}

/// Solves the system in place (Gauss and Jordan, with pivots): the solution is then in the last column.
fn solve(rows: &mut [Vec<f64>]) -> Option<()> {
    for column in 0..rows.len() {
        let pivot = (column..rows.len()).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        let (above, rest) = rows.split_at_mut(column);
        let (row, below) = rest.split_first_mut()?;
        let head = row[column];
        if head.abs() < 1e-12 {
            return None;
        }
        row.iter_mut().for_each(|cell| *cell /= head);
        for other in above.iter_mut().chain(below) {
            let factor = other[column];
            other.iter_mut().zip(row.iter()).for_each(|(cell, own)| *cell -= factor * own);
        }
    }
    Some(())
}

impl Monitor for Arbitrate {
    fn kind(&self) -> &str {
        "arbitrate"
    }
    fn sample(&mut self, sample: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        let source = self.inputs.iter().position(|i| i.from == sample.from);
        if let Some(source) = source {
            self.inputs[source].stimulate(sample.now_ns);
        }
        let solved = self.outputs(sample.now_ns).is_some();
        let output = |i: usize| self.rows[i].last().copied().unwrap_or_default();
        let others = (0..self.inputs.len()).filter(|i| Some(*i) != source && !self.inputs[*i].is_virtual);
        let greatest = others.map(output).fold(0.0, f64::max);
        let passes = match source {
            Some(source) => {
                solved && !self.inputs[source].is_virtual && output(source) > 0.0 && output(source) >= greatest
            }
            None => solved && greatest <= 0.0,
        };
        if passes {
            self.passed += 1;
            return Verdict::Pass;
        }
        self.dropped += 1;
        Verdict::Drop
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        match key {
            "input" => self.set_input(value),
            _ => Err(unknown(key, "arbitrate", "input")),
        }
    }
    fn parameters(&self) -> Vec<Property> {
        let inputs = self.inputs.iter().map(|input| ("input".to_owned(), input.shown()));
        inputs.chain([("passed".into(), self.passed.into()), ("dropped".into(), self.dropped.into())]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bottle::Bottle;

    fn arbitrate(inputs: &[&str]) -> Arbitrate {
        let mut arbitrate = Arbitrate::default();
        for input in inputs {
            let Bottle(values) = Bottle::parse(input).unwrap();
            arbitrate.set("input", &Value::List(values)).unwrap();
        }
        arbitrate
    }

    fn passes(arbitrate: &mut Arbitrate, from: &str, ms: u64) -> bool {
        let seen = Seen { from, seq: 1, source_ns: 0, now_ns: ms * 1_000_000, bytes: &[] };
        arbitrate.sample(&seen, &mut Vec::new()) == Verdict::Pass
    }

    #[test]
    fn ys_38_the_higher_level_silences_the_lower_until_its_time_constant_is_over() {
        let mut a = arbitrate(&["(from /low) (level 5) (tc 0.1)", "(from /high) (level 15) (tc 0.1)"]);
        let said: Vec<bool> =
            [("/low", 0), ("/high", 10), ("/low", 20), ("/high", 30), ("/low", 120), ("/low", 131), ("/high", 140)]
                .map(|(from, ms)| passes(&mut a, from, ms))
                .into();
        assert_eq!(said, [true, true, false, true, false, true, true]);
        assert!(!passes(&mut a, "/stranger", 150) && passes(&mut a, "/stranger", 5000));
        assert_eq!(a.parameters().last(), Some(&("dropped".to_owned(), Value::Int(3))));
    }

    #[test]
    fn an_active_source_inhibits_and_excites_others_and_a_virtual_one_never_passes() {
        let mut a =
            arbitrate(&["(from /a) (level 15)", "(from /stop) (virtual) (ex (/a -20))", "(from /b) (level 1) "]);
        assert!(passes(&mut a, "/a", 0));
        assert!(!passes(&mut a, "/stop", 10), "virtual");
        assert!(!passes(&mut a, "/a", 20), "inhibited");
        assert!(passes(&mut a, "/b", 30));
        assert!(passes(&mut a, "/a", 2000), "the inhibition is over");
    }

    #[test]
    fn a_source_that_rests_lets_nothing_in_and_must_be_stimulated_to_the_threshold() {
        let mut a = arbitrate(&["(from /a) (st 5) (tc 0.1) (tr 0.1)"]);
        let said: Vec<bool> = [0, 10, 50, 100, 120, 200, 220, 230].map(|ms| passes(&mut a, "/a", ms)).into();
        assert_eq!(said, [false, true, true, true, false, false, false, true]);
    }

    #[test]
    fn contradicting_excitations_let_nothing_in() {
        let mut a = arbitrate(&["(from /a) (ex (/b 10))", "(from /b) (ex (/a 10))"]);
        assert!(passes(&mut a, "/a", 0));
        assert!(!passes(&mut a, "/b", 1), "y_a = 1 + y_b and y_b = 1 + y_a have no solution");
        assert!(!passes(&mut a, "/stranger", 2));
        assert!(passes(&mut a, "/stranger", 5000), "no longer than the sources are active");
    }
}
