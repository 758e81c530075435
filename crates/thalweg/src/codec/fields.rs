//! Fields of a CDR message, read in place by a [`Schema`]: single ones, and those that a key and a content filter look at.

#[cfg(test)]
mod tests;

use super::cdr::Reader;
use super::schema::{MAX_NODES, Variant};
use super::{CodecError, Schema};
use qos::Filter;
use qos::expression::{Expression, ExpressionError, Value};
use std::fmt;

/// The places of some fields in a type: made once, from their dotted paths.
#[derive(Clone, Debug)]
pub struct Fields {
    root: Part,
    count: usize,
}

/// The wanted fields within one part of a type.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Places of this field among the wanted ones.
    wanted: Vec<usize>,
    /// A struct's fields, up to the last one that is needed.
    fields: Vec<Part>,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.fields.is_empty()
    }
}

impl Fields {
    /// Finds the fields of `paths` in a type. A field of an optional struct is there when the struct is.
    ///
    /// # Errors
    /// [`FieldError`] with the path that leads to no field or to no single value, and the content at its end.
    pub fn find(schema: &Schema, paths: &[String]) -> Result<Self, FieldError> {
        let mut root = Part::default();
        for (place, path) in paths.iter().enumerate() {
            let names: Vec<&str> = path.split('.').collect();
            add(&mut root, schema, &names, place)
                .map_err(|problem| FieldError::Path { path: path.clone(), problem })?;
        }
        Ok(Self { root, count: paths.len() })
    }

    /// The number of wanted fields.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Calls `each` with the place and the value of every field that the message has, and reads no further than the last
    /// of them. Allocates nothing.
    ///
    /// # Errors
    /// [`CodecError`] if the message is no such value up to there, or if the part before a field has more parts than
    /// 8192 and 4 per byte of the message.
    pub fn read<'v>(
        &self,
        schema: &'v Schema,
        bytes: &'v [u8],
        each: &mut dyn FnMut(usize, Value<'v>),
    ) -> Result<(), CodecError> {
        let steps = Steps::of(bytes);
        let mut walk = Walk { reader: Reader::new(bytes)?, steps, left: self.count, each };
        walk.part(schema, &self.root)
    }
}

/// Fields that a type does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// The structure of the type is not known.
    Unknown,
    /// The filter cannot be read.
    Filter(ExpressionError),
    /// A path leads to no field, or to no single value.
    Path {
        /// The path.
        path: String,
        /// The problem at its end.
        problem: PathProblem,
    },
}

/// The end of a path to a field that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathProblem {
    /// It is no single number, text or truth value.
    NotSingle,
    /// A field of a value that is no struct.
    NoStruct {
        /// The field.
        name: String,
    },
    /// A field that the struct does not have.
    NoField {
        /// The struct.
        owner: String,
        /// The field.
        name: String,
        /// The first of its fields.
        there: Vec<String>,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("the structure of the type is not known: it has no fields to look at"),
            Self::Filter(error) => error.fmt(f),
            Self::Path { path, problem } => write!(f, "field {path}: {problem}"),
        }
    }
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSingle => f.write_str("it is no single number, text or truth value"),
            Self::NoStruct { name } => write!(f, "nothing has a field {name} there"),
            Self::NoField { owner, name, there } => write!(f, "{owner} has no {name}, it has {}", there.join(", ")),
        }
    }
}

impl std::error::Error for FieldError {}

fn add(part: &mut Part, schema: &Schema, names: &[&str], place: usize) -> Result<(), PathProblem> {
    let schema = if let Schema::Option(inner) = schema { inner } else { schema };
    let Some((name, rest)) = names.split_first() else {
        if is_single(schema) {
            part.wanted.push(place);
            return Ok(());
        }
        return Err(PathProblem::NotSingle);
    };
    let Schema::Struct { fields, name: owner } = schema else {
        return Err(PathProblem::NoStruct { name: (*name).to_owned() });
    };
    let Some(at) = fields.iter().position(|field| field.name == *name) else {
        let there = fields.iter().map(|field| field.name.clone()).take(16).collect();
        return Err(PathProblem::NoField { owner: owner.clone(), name: (*name).to_owned(), there });
    };
    if part.fields.len() <= at {
        part.fields.resize_with(at + 1, Part::default);
    }
    add(&mut part.fields[at], &fields[at].schema, rest, place)
}

fn is_single(schema: &Schema) -> bool {
    use Schema::{Array, Char, Map, Option, Sequence, Struct, Tuple, Unit};
    !matches!(schema, Array { .. } | Char | Map { .. } | Option(_) | Sequence(_) | Struct { .. } | Tuple(_) | Unit)
}

/// A message on its way through its schema.
struct Walk<'v, 'a> {
    reader: Reader<'v>,
    steps: Steps,
    /// Wanted fields that were not met yet.
    left: usize,
    each: &'a mut dyn FnMut(usize, Value<'v>),
}

impl<'v> Walk<'v, '_> {
    fn part(&mut self, schema: &'v Schema, at: &Part) -> Result<(), CodecError> {
        if self.left == 0 {
            return Ok(());
        }
        match schema {
            _ if at.is_empty() => skip(&mut self.reader, schema, &mut self.steps),
            Schema::Option(inner) => match self.reader.bool("the mark of an option")? {
                true => self.part(inner, at),
                false => Ok(()),
            },
            Schema::Struct { fields, .. } => {
                let nothing = Part::default();
                let parts = at.fields.iter().chain(std::iter::repeat(&nothing));
                fields.iter().zip(parts).try_for_each(|(field, at)| self.part(&field.schema, at))
            }
            _ => {
                let value = self.single(schema)?;
                self.left = self.left.saturating_sub(at.wanted.len());
                at.wanted.iter().for_each(|place| (self.each)(*place, value));
                Ok(())
            }
        }
    }

    fn single(&mut self, schema: &'v Schema) -> Result<Value<'v>, CodecError> {
        let reader = &mut self.reader;
        Ok(match schema {
            Schema::Bool => Value::Bool(reader.bool("a bool")?),
            Schema::U8 => Value::Integer(u8::from_le_bytes(reader.take("u8")?).into()),
            Schema::U16 => Value::Integer(u16::from_le_bytes(reader.take("u16")?).into()),
            Schema::U32 => Value::Integer(u32::from_le_bytes(reader.take("u32")?).into()),
            Schema::U64 => Value::Integer(u64::from_le_bytes(reader.take("u64")?).into()),
            Schema::I8 => Value::Integer(i8::from_le_bytes(reader.take("i8")?).into()),
            Schema::I16 => Value::Integer(i16::from_le_bytes(reader.take("i16")?).into()),
            Schema::I32 => Value::Integer(i32::from_le_bytes(reader.take("i32")?).into()),
            Schema::I64 => Value::Integer(i64::from_le_bytes(reader.take("i64")?).into()),
            Schema::F32 => Value::Float(f32::from_le_bytes(reader.take("f32")?).into()),
            Schema::F64 => Value::Float(f64::from_le_bytes(reader.take("f64")?)),
            Schema::String => Value::Text(reader.str()?),
            Schema::Enum { variants, .. } => {
                let found = variant(reader, variants)?;
                found.schema.iter().try_for_each(|held| skip(reader, held, &mut self.steps))?;
                Value::Text(&found.name)
            }
            other => return Err(reader.error(format!("expected a single value, found {other}"))),
        })
    }
}

/// The number of values that may still be skipped.
struct Steps(usize);

impl Steps {
    fn of(bytes: &[u8]) -> Self {
        Self(bytes.len().saturating_mul(STEPS_PER_BYTE).saturating_add(STEPS_AT_LEAST))
    }

    fn spend(&mut self, reader: &Reader<'_>) -> Result<(), CodecError> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| {
            reader.error(format!(
                "expected at most {STEPS_AT_LEAST} parts and {STEPS_PER_BYTE} per byte before a key or filter field, found more"
            ))
        })?;
        Ok(())
    }
}

/// Reads over a value. No deeper than the schema is, which is at most 32 levels.
fn skip(reader: &mut Reader<'_>, schema: &Schema, steps: &mut Steps) -> Result<(), CodecError> {
    steps.spend(reader)?;
    match schema {
        Schema::Unit => Ok(()),
        Schema::Bool | Schema::U8 | Schema::I8 => reader.take::<1>("a byte").map(drop),
        Schema::U16 | Schema::I16 => reader.take::<2>("a number of 16 bit").map(drop),
        Schema::U32 | Schema::I32 | Schema::F32 | Schema::Char => reader.take::<4>("a number of 32 bit").map(drop),
        Schema::U64 | Schema::I64 | Schema::F64 => reader.take::<8>("a number of 64 bit").map(drop),
        Schema::String => reader.bytes().map(drop),
        Schema::Sequence(element) if matches!(**element, Schema::U8 | Schema::I8) => reader.bytes().map(drop),
        Schema::Sequence(element) => {
            let count = reader.count("the count of a sequence")?;
            repeat(reader, count, &[&**element], steps)
        }
        Schema::Array { len, element } => repeat(reader, *len as usize, &[&**element], steps),
        Schema::Tuple(elements) => elements.iter().try_for_each(|element| skip(reader, element, steps)),
        Schema::Option(value) => match reader.bool("the mark of an option")? {
            true => skip(reader, value, steps),
            false => Ok(()),
        },
        Schema::Map { key, value } => {
            let count = reader.count("the count of a map")?;
            repeat(reader, count, &[&**key, &**value], steps)
        }
        Schema::Struct { fields, .. } => fields.iter().try_for_each(|field| skip(reader, &field.schema, steps)),
        Schema::Enum { variants, .. } => match variant(reader, variants)?.schema.as_ref() {
            Some(schema) => skip(reader, schema, steps),
            None => Ok(()),
        },
    }
}

/// Reads over repeated parts. Those of no length end at once: their number may be a lie.
fn repeat(reader: &mut Reader<'_>, count: usize, parts: &[&Schema], steps: &mut Steps) -> Result<(), CodecError> {
    for _ in 0..count {
        let before = reader.at();
        parts.iter().try_for_each(|part| skip(reader, part, steps))?;
        if reader.at() == before {
            break;
        }
    }
    Ok(())
}

fn variant<'s>(reader: &mut Reader<'_>, variants: &'s [Variant]) -> Result<&'s Variant, CodecError> {
    let index = reader.u32("the index of an enum's variant")?;
    let count = variants.len();
    let wrong = || reader.before(4, format!("expected the index of one of {count} variants, found {index}"));
    variants.get(index as usize).ok_or_else(wrong)
}

/// Fields of a type that policies look at: they tell the instance to which a sample belongs, and whether a filter holds for it.
#[derive(Clone, Debug)]
pub(crate) struct PolicyFields {
    schema: Option<Schema>,
    key: Option<Fields>,
    filter: Option<(Expression, Fields)>,
}

impl PolicyFields {
    /// Finds the fields of a key and a filter in a type.
    ///
    /// # Errors
    /// [`FieldError`]: the structure of the type is not known, or has no such field.
    pub(crate) fn find(schema: Option<&Schema>, key: &[String], filter: Option<&Filter>) -> Result<Self, FieldError> {
        let expression = filter.map(Expression::parse).transpose().map_err(FieldError::Filter)?;
        if key.is_empty() && expression.is_none() {
            return Ok(Self { schema: None, key: None, filter: None });
        }
        let schema = schema.ok_or(FieldError::Unknown)?;
        let key = (!key.is_empty()).then(|| Fields::find(schema, key)).transpose()?;
        let found = expression.map(|e| Fields::find(schema, e.fields()).map(|fields| (e, fields)));
        Ok(Self { schema: Some(schema.clone()), key, filter: found.transpose()? })
    }

    /// `true` if no field is wanted.
    pub(crate) fn is_nothing(&self) -> bool {
        self.key.is_none() && self.filter.is_none()
    }

    /// The instance of a message; `None`: it is no value of the type.
    pub(crate) fn instance(&self, bytes: &[u8]) -> Option<u64> {
        let (Some(schema), Some(key)) = (&self.schema, &self.key) else { return Some(WHOLE_TOPIC) };
        let mut values = [None; MOST_FIELDS];
        read(key, schema, bytes, &mut values)?;
        // In the order of the key, not of the message. 64-bit FNV-1a: equal keys of different publishers agree.
        let hash = values.iter().take(key.count()).fold(0xcbf2_9ce4_8422_2325, |hash, value| match value {
            None => fold(hash, &[0]),
            Some(Value::Bool(value)) => fold(hash, &[1, u8::from(*value)]),
            Some(Value::Integer(value)) => fold(fold(hash, &[2]), &value.to_le_bytes()),
            Some(Value::Float(value)) => fold(fold(hash, &[3]), &value.to_le_bytes()),
            Some(Value::Text(value)) => fold(fold(fold(hash, &[4]), value.as_bytes()), &[0]),
        });
        Some(hash)
    }

    /// The key of a message, as people read it; empty where there is none.
    pub(crate) fn key_text(&self, bytes: &[u8], names: &[String]) -> String {
        let (Some(schema), Some(key)) = (&self.schema, &self.key) else { return String::new() };
        let mut values = [None; MOST_FIELDS];
        if read(key, schema, bytes, &mut values).is_none() {
            return String::new();
        }
        let one = |(name, value): (&String, &Option<Value<'_>>)| match value {
            None => format!("{name} = none"),
            Some(Value::Bool(value)) => format!("{name} = {value}"),
            Some(Value::Integer(value)) => format!("{name} = {value}"),
            Some(Value::Float(value)) => format!("{name} = {value}"),
            Some(Value::Text(value)) => format!("{name} = {}", value.chars().take(LONGEST_SHOWN).collect::<String>()),
        };
        names.iter().zip(&values).map(one).collect::<Vec<_>>().join(", ")
    }

    /// `true` if the filter holds. It does not hold for a message that is no value of the type.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let (Some(schema), Some((expression, fields))) = (&self.schema, &self.filter) else { return true };
        let mut values = [None; MOST_FIELDS];
        read(fields, schema, bytes, &mut values).is_some() && expression.holds(&values)
    }
}

fn read<'v>(
    fields: &Fields,
    schema: &'v Schema,
    bytes: &'v [u8],
    values: &mut [Option<Value<'v>>; MOST_FIELDS],
) -> Option<()> {
    let mut note = |place: usize, value| {
        if let Some(slot) = values.get_mut(place) {
            *slot = Some(value);
        }
    };
    fields.read(schema, bytes, &mut note).ok()
}

/// A number for a topic: instances of different topics differ, even for a subscriber of several.
pub(crate) fn topic_number(topic: &str) -> u64 {
    fold(0xcbf2_9ce4_8422_2325, topic.as_bytes())
}

fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Parts of a type that may be read over per byte of a message, and of an empty message. Encoding a message is of the same
/// order; a type of a stranger may have thousands of parts without a byte, and a count of a million of them.
const STEPS_PER_BYTE: usize = 4;
const STEPS_AT_LEAST: usize = 2 * MAX_NODES;

/// Different fields that a key or a filter looks at, at most.
const MOST_FIELDS: usize = 64;
/// Letters of a key's text that are shown.
const LONGEST_SHOWN: usize = 64;
/// The only instance of a topic without a key.
pub(crate) const WHOLE_TOPIC: u64 = 0;
