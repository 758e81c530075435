//! Content filters: DDS's subset of SQL (DDS 1.4, annex B) over the fields of a sample.
//!
//! | form | meaning |
//! |---|---|
//! | `speed > 3`, `3 < speed`, `a.x <> b.x` | comparison: `=` `<>` `!=` `<` `<=` `>` `>=` |
//! | `name LIKE 'arm%'` | text with `%` for any characters and `_` for one |
//! | `t BETWEEN 1 AND %0`, `t NOT BETWEEN …` | both ends included |
//! | `NOT a`, `a AND b`, `a OR b`, `(a)` | in this order |
//!
//! Values are numbers, `'text'` (also an enum's variant), `TRUE`, `FALSE` and parameters `%0` to `%99`. A comparison that is not possible
//! (a number with text, a field that is not there) does not hold.
//!
//! A filter comes from a subscriber and runs at the publisher: for each sample it may take [`MOST_STEPS`], and one
//! that would take more does not hold.

mod parse;

use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;

/// A filter of samples by their content (DDS content-filtered topic). Applied at the writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// DDS's subset of SQL, such as `speed > 3 AND name LIKE 'arm%' OR mode = %0`.
    pub expression: String,
    /// Values of `%0`, `%1` …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
}

/// Steps that a filter may take for one sample: a condition is one step, each character that LIKE looks at, and every 64 bytes of
/// texts that are compared. About 10 µs, as much as sending a sample once costs.
pub const MOST_STEPS: u32 = 4096;

/// A value of a field or in an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// `TRUE`, `FALSE`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// Text, or the name of an enum's variant.
    Text(&'a str),
}

impl Value<'_> {
    fn compare(self, other: Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(&b)),
            (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(&b)),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
            (Value::Integer(a), Value::Float(b)) => (a as f64).partial_cmp(&b),
            (Value::Float(a), Value::Integer(b)) => a.partial_cmp(&(b as f64)),
            _ => None,
        }
    }
}

/// A value that an expression holds itself.
#[derive(Clone, Debug, PartialEq)]
enum Constant {
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// A field, by its place in [`Expression::fields`].
    Field(usize),
    Constant(Constant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Like,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Compare(Operand, Relation, Operand),
    Between(Operand, Operand, Operand),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
}

/// A filter that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    fields: Vec<String>,
    condition: Condition,
}

/// Text that is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Its place, in bytes from the start.
    pub at: usize,
    /// The text there, and the allowed one.
    pub problem: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter, byte {}: {}", self.at, self.problem)
    }
}

impl std::error::Error for ExpressionError {}

impl Expression {
    /// Reads a filter, with its parameters put in.
    ///
    /// # Errors
    /// [`ExpressionError`] with the place, the text there and the allowed one.
    pub fn parse(filter: &Filter) -> Result<Self, ExpressionError> {
        parse::parse(filter)
    }

    /// The fields it looks at, as dotted paths, each once.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }

    /// Evaluates the filter for these values of its fields, in the order of [`Expression::fields`]. `false` if that takes more than
    /// [`MOST_STEPS`]. Allocates nothing.
    pub fn holds(&self, values: &[Option<Value<'_>>]) -> bool {
        let steps = Steps(Cell::new(MOST_STEPS + 1));
        self.condition.holds(values, &steps) && !steps.are_over()
    }
}

/// The rest of [`MOST_STEPS`], plus one; 0: more was asked for.
struct Steps(Cell<u32>);

impl Steps {
    /// Takes some; `false`: there are not as many.
    fn take(&self, steps: usize) -> bool {
        let left = self.0.get().saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX));
        self.0.set(left);
        left > 0
    }

    fn are_over(&self) -> bool {
        self.0.get() == 0
    }
}

impl Operand {
    fn value<'a>(&'a self, values: &[Option<Value<'a>>]) -> Option<Value<'a>> {
        match self {
            Operand::Field(at) => values.get(*at).copied().flatten(),
            Operand::Constant(Constant::Bool(value)) => Some(Value::Bool(*value)),
            Operand::Constant(Constant::Integer(value)) => Some(Value::Integer(*value)),
            Operand::Constant(Constant::Float(value)) => Some(Value::Float(*value)),
            Operand::Constant(Constant::Text(value)) => Some(Value::Text(value)),
        }
    }
}

impl Condition {
    fn holds(&self, values: &[Option<Value<'_>>], steps: &Steps) -> bool {
        if !steps.take(1) {
            return false;
        }
        match self {
            Condition::Compare(a, relation, b) => {
                let pair = a.value(values).zip(b.value(values));
                pair.is_some_and(|(a, b)| relation.holds(a, b, steps))
            }
            Condition::Between(field, low, high) => {
                let (field, low, high) = (field.value(values), low.value(values), high.value(values));
                let within = field.zip(low).zip(high).map(|((field, low), high)| {
                    Relation::AtLeast.holds(field, low, steps) && Relation::AtMost.holds(field, high, steps)
                });
                within.unwrap_or(false)
            }
            Condition::Not(condition) => !condition.holds(values, steps),
            Condition::And(a, b) => a.holds(values, steps) && b.holds(values, steps),
            Condition::Or(a, b) => a.holds(values, steps) || b.holds(values, steps),
        }
    }
}

impl Relation {
    fn holds(self, a: Value<'_>, b: Value<'_>, steps: &Steps) -> bool {
        if self == Relation::Like {
            return matches!((a, b), (Value::Text(text), Value::Text(pattern)) if like(pattern, text, steps));
        }
        if let (Value::Text(a), Value::Text(b)) = (a, b)
            && !steps.take(a.len().min(b.len()) / 64)
        {
            return false;
        }
        a.compare(b).is_some_and(|order| match self {
            Relation::Equal => order.is_eq(),
            Relation::Unequal => order.is_ne(),
            Relation::Less => order.is_lt(),
            Relation::AtMost => order.is_le(),
            Relation::Greater => order.is_gt(),
            Relation::AtLeast => order.is_ge(),
            Relation::Like => false,
        })
    }
}

/// At most (characters of one) × (characters of the other) steps, and no more than remain.
fn like(pattern: &str, text: &str, steps: &Steps) -> bool {
    let (mut rest, mut left) = (pattern.chars(), text.chars());
    let mut retry = None;
    while steps.take(1) {
        let (mut after, mut remaining) = (rest.clone(), left.clone());
        match (after.next(), remaining.next()) {
            (None, None) => return true,
            (Some('%'), _) => {
                if after.as_str().is_empty() {
                    return true; // a last % takes the rest, of any length
                }
                retry = Some((after.clone(), left.clone()));
                rest = after;
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '_' || wanted == found => {
                (rest, left) = (after, remaining);
                continue;
            }
            _ => {}
        }
        let Some((pattern_after, text_after)) = &mut retry else { return false };
        if text_after.next().is_none() {
            return false;
        }
        (rest, left) = (pattern_after.clone(), text_after.clone());
    }
    false
}

#[cfg(test)]
mod tests;
