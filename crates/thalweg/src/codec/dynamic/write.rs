//! From JSON to CDR.

use super::super::cdr::{Encoder, MAX_DEPTH, too_deep};
use super::super::schema::{Field, Variant};
use super::{CodecError, Schema};
use serde::Serializer;
use serde_json::{Map, Value};
use std::fmt::{self, Display, Formatter};

/// Writes one message's value.
pub(super) struct JsonWriter<'a, 'out> {
    encoder: &'a mut Encoder<'out>,
    /// Position in the JSON; left as it is by an error.
    path: Vec<Step<'a>>,
}

/// One step into JSON.
enum Step<'a> {
    Name(&'a str),
    Index(usize),
}

impl<'a, 'out> JsonWriter<'a, 'out> {
    /// Writes with this encoder, which stands behind the header.
    pub(super) fn new(encoder: &'a mut Encoder<'out>) -> Self {
        Self { encoder, path: Vec::new() }
    }

    /// Writes the message's whole value; an error names the place in the JSON.
    pub(super) fn message(mut self, schema: &'a Schema, json: &'a Value) -> Result<(), CodecError> {
        let result = self.value(schema, json);
        result.map_err(|error| match self.path.is_empty() {
            true => error,
            false => refused(format_args!("{}: {}", Path(&self.path), error.problem)),
        })
    }

    /// Writes a value one step deeper.
    fn step(&mut self, step: Step<'a>, schema: &'a Schema, json: &'a Value) -> Result<(), CodecError> {
        self.path.push(step);
        self.value(schema, json)?;
        self.path.pop();
        Ok(())
    }

    fn value(&mut self, schema: &'a Schema, json: &'a Value) -> Result<(), CodecError> {
        if self.path.len() >= MAX_DEPTH {
            return Err(too_deep(0));
        }
        match (schema, json) {
            (Schema::Unit, Value::Null) => Ok(()),
            (Schema::Option(_), Value::Null) => self.encoder.serialize_bool(false),
            (Schema::Option(schema), json) => {
                self.encoder.serialize_bool(true)?;
                self.step(Step::Name(""), schema, json)
            }
            (Schema::Sequence(element), Value::Array(values)) => {
                self.encoder.put_length(values.len())?;
                self.elements(values.iter().map(|json| (&**element, json)))
            }
            (Schema::Array { len, element }, Value::Array(values)) if values.len() == *len as usize => {
                self.elements(values.iter().map(|json| (&**element, json)))
            }
            (Schema::Tuple(elements), Value::Array(values)) if values.len() == elements.len() => {
                self.elements(elements.iter().zip(values))
            }
            (Schema::Map { key, value }, Value::Object(object)) => self.object(key, value, object),
            (Schema::Map { key, value }, Value::Array(pairs)) => self.pairs(key, value, pairs),
            (Schema::Struct { fields, .. }, Value::Object(object)) => self.fields(fields, object),
            (Schema::Enum { variants, .. }, Value::Object(object)) => self.variant(schema, variants, object),
            (_, Value::String(text)) => self.text(schema, text),
            _ => self.simple(schema, json),
        }
    }

    fn elements(&mut self, elements: impl Iterator<Item = (&'a Schema, &'a Value)>) -> Result<(), CodecError> {
        for (index, (schema, json)) in elements.enumerate() {
            self.step(Step::Index(index), schema, json)?;
        }
        Ok(())
    }

    fn object(&mut self, key: &Schema, value: &'a Schema, object: &'a Map<String, Value>) -> Result<(), CodecError> {
        self.encoder.put_length(object.len())?;
        for (name, json) in object {
            self.text(key, name)?;
            self.step(Step::Name(name), value, json)?;
        }
        Ok(())
    }

    fn pairs(&mut self, key: &'a Schema, value: &'a Schema, pairs: &'a [Value]) -> Result<(), CodecError> {
        self.encoder.put_length(pairs.len())?;
        for pair in pairs {
            match pair.as_array().map(Vec::as_slice) {
                Some([first, second]) => self.elements([(key, first), (value, second)].into_iter())?,
                _ => return Err(refused(format_args!("expected [key, value], found {}", Found(pair)))),
            }
        }
        Ok(())
    }

    fn fields(&mut self, fields: &'a [Field], object: &'a Map<String, Value>) -> Result<(), CodecError> {
        if let Some(name) = object.keys().find(|name| fields.iter().all(|field| field.name != **name)) {
            let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
            return Err(refused(format_args!("expected the fields {}, found {name:?}", names.join(", "))));
        }
        for Field { name, schema } in fields {
            match (object.get(name), schema) {
                (Some(json), _) => self.step(Step::Name(name), schema, json)?,
                (None, Schema::Option(_)) => self.encoder.serialize_bool(false)?,
                (None, _) => return Err(refused(format_args!("expected the field {name:?}, found none"))),
            }
        }
        Ok(())
    }

    /// A variant with contents: an object with its name as the only key.
    fn variant(
        &mut self,
        schema: &Schema,
        variants: &'a [Variant],
        object: &'a Map<String, Value>,
    ) -> Result<(), CodecError> {
        let mut entries = object.iter();
        let (Some((name, json)), None) = (entries.next(), entries.next()) else {
            let keys = object.len();
            return Err(refused(format_args!("expected one variant of {}, found {keys}", schema.short_name())));
        };
        let content = self.index(schema, variants, name)?;
        match content {
            Some(content) => self.step(Step::Name(name), content, json),
            None => Err(refused(format_args!("expected {name:?} alone, as it holds nothing, found {}", Found(json)))),
        }
    }

    /// Writes the index of the variant of this name, and returns its contents.
    fn index<'s>(
        &mut self,
        schema: &Schema,
        variants: &'s [Variant],
        name: &str,
    ) -> Result<Option<&'s Schema>, CodecError> {
        let found = (0u32..).zip(variants).find(|(_, variant)| variant.name == name);
        let (index, variant) = found
            .ok_or_else(|| refused(format_args!("expected a variant of {}, found {name:?}", schema.short_name())))?;
        self.encoder.serialize_u32(index)?;
        Ok(variant.schema.as_ref())
    }

    /// A value in text form; numbers and map keys too.
    fn text(&mut self, schema: &Schema, text: &str) -> Result<(), CodecError> {
        let unexpected = || refused(format_args!("expected {}, found {text:?}", schema.short_name()));
        macro_rules! parsed {
            ($method:ident) => {
                self.encoder.$method(text.parse().map_err(|_| unexpected())?)
            };
        }
        match schema {
            Schema::String => self.encoder.serialize_str(text),
            Schema::Char => parsed!(serialize_char),
            Schema::Bool => parsed!(serialize_bool),
            Schema::U8 => parsed!(serialize_u8),
            Schema::U16 => parsed!(serialize_u16),
            Schema::U32 => parsed!(serialize_u32),
            Schema::U64 => parsed!(serialize_u64),
            Schema::I8 => parsed!(serialize_i8),
            Schema::I16 => parsed!(serialize_i16),
            Schema::I32 => parsed!(serialize_i32),
            Schema::I64 => parsed!(serialize_i64),
            Schema::F32 => parsed!(serialize_f32),
            Schema::F64 => parsed!(serialize_f64),
            Schema::Enum { variants, .. } => match self.index(schema, variants, text)? {
                None => Ok(()),
                Some(_) => Err(refused(format_args!("expected what {text:?} holds, found its name alone"))),
            },
            _ => Err(unexpected()),
        }
    }

    /// A `bool` or number as JSON has it.
    fn simple(&mut self, schema: &Schema, json: &Value) -> Result<(), CodecError> {
        let unexpected = || refused(format_args!("expected {}, found {}", schema.short_name(), Found(json)));
        macro_rules! number {
            ($get:ident $method:ident) => {
                self.encoder.$method(json.$get().and_then(|value| value.try_into().ok()).ok_or_else(unexpected)?)
            };
        }
        match schema {
            Schema::Bool => self.encoder.serialize_bool(json.as_bool().ok_or_else(unexpected)?),
            Schema::U8 => number!(as_u64 serialize_u8),
            Schema::U16 => number!(as_u64 serialize_u16),
            Schema::U32 => number!(as_u64 serialize_u32),
            Schema::U64 => number!(as_u64 serialize_u64),
            Schema::I8 => number!(as_i64 serialize_i8),
            Schema::I16 => number!(as_i64 serialize_i16),
            Schema::I32 => number!(as_i64 serialize_i32),
            Schema::I64 => number!(as_i64 serialize_i64),
            Schema::F32 => self.encoder.serialize_f32(narrow(float(json)).ok_or_else(unexpected)?),
            Schema::F64 => self.encoder.serialize_f64(float(json).ok_or_else(unexpected)?),
            _ => Err(unexpected()),
        }
    }
}

/// A number; `null` is NaN.
fn float(json: &Value) -> Option<f64> {
    if json.is_null() { Some(f64::NAN) } else { json.as_f64() }
}

/// The nearest `f32`, unless it is too big for one.
fn narrow(value: Option<f64>) -> Option<f32> {
    value.map(|value| value as f32).filter(|narrow| !narrow.is_infinite())
}

fn refused(problem: fmt::Arguments<'_>) -> CodecError {
    CodecError { offset: 0, problem: problem.to_string() }
}

/// `header.stamp[2]`
struct Path<'a>(&'a [Step<'a>]);

impl Display for Path<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Name("") => {}
                Step::Name(name) if place == 0 => f.write_str(name)?,
                Step::Name(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

/// A brief description of the value found.
struct Found<'a>(&'a Value);

impl Display for Found<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Array(values) => write!(f, "an array of {}", values.len()),
            Value::Object(_) => f.write_str("an object"),
            simple => write!(f, "{simple}"),
        }
    }
}
