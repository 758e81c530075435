//! CDR bytes as JSON and back, by a [`Schema`] instead of a Rust type, for tools that show any topic.
//!
//! The JSON is the same as `serde_json` makes of the value itself:
//!
//! | schema | JSON |
//! |---|---|
//! | numbers | number; a float that is not finite is `null` |
//! | char, string | string |
//! | unit | `null` |
//! | sequence, array, tuple | array |
//! | option | `null` or the value |
//! | map | object if the keys are text, numbers, `bool` or variants without content; else an array of `[key, value]` |
//! | struct | object |
//! | enum | the variant's name, or an object of the variant's name and its contents |

#[cfg(test)]
mod tests;
mod write;

use super::cdr::{MAX_DEPTH, Reader, append_message, too_deep};
use super::schema::{Field, Variant};
use super::{CodecError, Schema};
use serde_json::{Map, Value};

/// Decodes one CDR message, header included, by `schema`.
///
/// It never panics, for any schema (see [`Schema::check`]) and any bytes. Besides the message's own
/// length it bounds the JSON: a value counts 16 and its field's name its length, and at most 64 Ki plus 256 for each
/// byte of the message are made; a real message is far below.
///
/// # Errors
/// [`CodecError`] with the offset from the start of `bytes`, what was expected and found: as [`from_cdr`](super::from_cdr),
/// and when the JSON would be out of proportion to the message.
pub fn to_json(schema: &Schema, bytes: &[u8]) -> Result<serde_json::Value, CodecError> {
    let room = bytes.len().saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM_AT_LEAST);
    let mut json = JsonReader::new(Reader::new(bytes)?, room);
    let value = json.value(schema)?;
    json.finish()?;
    Ok(value)
}

/// Encodes JSON as one CDR message, header included, by `schema`; the reverse of [`to_json`].
///
/// A struct needs all its fields and no others, except that a missing option is none. For a float, `null` is NaN.
/// Numbers may be text, such as `"18446744073709551615"` or `"-inf"`, and any map may be an array of `[key, value]`.
///
/// # Errors
/// [`CodecError`] at offset 0 that names the place in the JSON (`header.stamp.sec: expected …, found …`).
pub fn from_json(schema: &Schema, json: &serde_json::Value) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    append_message(&mut out, |encoder| write::JsonWriter::new(encoder).message(schema, json))?;
    Ok(out)
}

/// `true` if a map with such keys is a JSON object, as `serde_json` makes it.
fn is_textual(key: &Schema) -> bool {
    match key {
        Schema::Enum { variants, .. } => variants.iter().all(|variant| variant.schema.is_none()),
        Schema::Sequence(_) | Schema::Array { .. } | Schema::Tuple(_) | Schema::Option(_) | Schema::Map { .. } => false,
        Schema::Struct { .. } | Schema::Unit => false,
        _ => true,
    }
}

/// Reads one message's value.
struct JsonReader<'de> {
    reader: Reader<'de>,
    depth: usize,
    /// JSON that may still be made.
    room: usize,
}

impl<'de> JsonReader<'de> {
    /// Reads from behind the header, making at most `room` of JSON.
    fn new(reader: Reader<'de>, room: usize) -> Self {
        Self { reader, depth: 0, room }
    }

    /// Checks that only padding remains.
    fn finish(&self) -> Result<(), CodecError> {
        self.reader.finish()
    }

    /// Reads the next value.
    fn value(&mut self, schema: &Schema) -> Result<Value, CodecError> {
        self.spend(NODE)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(self.reader.at()));
        }
        let value = match schema {
            Schema::Unit => Value::Null,
            Schema::Sequence(element) if **element == Schema::U8 => self.bytes()?,
            Schema::Sequence(element) => self.sequence(element)?,
            Schema::Array { len, element } => self.repeated(*len as usize, element)?,
            Schema::Tuple(elements) => elements.iter().map(|element| self.value(element)).collect::<Result<_, _>>()?,
            Schema::Option(value) => match self.reader.bool("the mark of an option")? {
                true => self.value(value)?,
                false => Value::Null,
            },
            Schema::Map { key, value } if is_textual(key) => self.object(key, value)?,
            Schema::Map { key, value } => self.pairs(key, value)?,
            Schema::Struct { fields, .. } => self.fields(fields)?,
            Schema::Enum { variants, .. } => self.variant(variants)?,
            Schema::Char => self.reader.char()?.to_string().into(),
            Schema::String => self.reader.str()?.into(),
            number => self.number(number)?,
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Takes from the room for JSON.
    fn spend(&mut self, room: usize) -> Result<(), CodecError> {
        self.room = self.room.checked_sub(room).ok_or_else(|| {
            self.reader
                .error("expected JSON in proportion to the message, found too many values or too long names".into())
        })?;
        Ok(())
    }

    fn number(&mut self, schema: &Schema) -> Result<Value, CodecError> {
        let reader = &mut self.reader;
        Ok(match schema {
            Schema::Bool => reader.bool("a bool")?.into(),
            Schema::U8 => u8::from_le_bytes(reader.take("u8")?).into(),
            Schema::U16 => u16::from_le_bytes(reader.take("u16")?).into(),
            Schema::U32 => u32::from_le_bytes(reader.take("u32")?).into(),
            Schema::U64 => u64::from_le_bytes(reader.take("u64")?).into(),
            Schema::I8 => i8::from_le_bytes(reader.take("i8")?).into(),
            Schema::I16 => i16::from_le_bytes(reader.take("i16")?).into(),
            Schema::I32 => i32::from_le_bytes(reader.take("i32")?).into(),
            Schema::I64 => i64::from_le_bytes(reader.take("i64")?).into(),
            Schema::F32 => f32::from_le_bytes(reader.take("f32")?).into(),
            Schema::F64 => f64::from_le_bytes(reader.take("f64")?).into(),
            other => return Err(reader.error(format!("expected a simple type, found {other}"))),
        })
    }

    fn bytes(&mut self) -> Result<Value, CodecError> {
        let bytes = self.reader.bytes()?;
        self.spend(bytes.len().saturating_mul(NODE))?;
        Ok(bytes.iter().copied().collect())
    }

    fn sequence(&mut self, element: &Schema) -> Result<Value, CodecError> {
        let count = self.reader.count("the count of a sequence")?;
        self.repeated(count, element)
    }

    /// No room is reserved beforehand: the count may be false.
    fn repeated(&mut self, count: usize, element: &Schema) -> Result<Value, CodecError> {
        (0..count).map(|_| self.value(element)).collect()
    }

    fn pairs(&mut self, key: &Schema, value: &Schema) -> Result<Value, CodecError> {
        let count = self.reader.count("the count of a map")?;
        let pair = |_| {
            self.spend(NODE)?;
            Ok(Value::Array(vec![self.value(key)?, self.value(value)?]))
        };
        (0..count).map(pair).collect()
    }

    fn object(&mut self, key: &Schema, value: &Schema) -> Result<Value, CodecError> {
        let count = self.reader.count("the count of a map")?;
        let mut object = Map::new();
        for _ in 0..count {
            object.insert(self.key(key)?, self.value(value)?);
        }
        Ok(Value::Object(object))
    }

    /// A map's key as text, the same text that `serde_json` writes.
    fn key(&mut self, schema: &Schema) -> Result<String, CodecError> {
        let key = match schema {
            Schema::F32 => float_key(f32::from_le_bytes(self.reader.take("f32")?)),
            Schema::F64 => float_key(f64::from_le_bytes(self.reader.take("f64")?)),
            other => match self.value(other)? {
                Value::String(text) => text,
                number => number.to_string(),
            },
        };
        self.spend(key.len())?;
        Ok(key)
    }

    fn fields(&mut self, fields: &[Field]) -> Result<Value, CodecError> {
        let mut object = Map::new();
        for field in fields {
            self.spend(field.name.len())?;
            object.insert(field.name.clone(), self.value(&field.schema)?);
        }
        Ok(Value::Object(object))
    }

    fn variant(&mut self, variants: &[Variant]) -> Result<Value, CodecError> {
        let index = self.reader.u32("the index of an enum's variant")?;
        let Some(variant) = variants.get(index as usize) else {
            let count = variants.len();
            return Err(self.reader.before(4, format!("expected the index of one of {count} variants, found {index}")));
        };
        self.spend(variant.name.len())?;
        Ok(match &variant.schema {
            None => variant.name.as_str().into(),
            Some(schema) => Value::Object(Map::from_iter([(variant.name.clone(), self.value(schema)?)])),
        })
    }
}

/// A float as a map's key: the shortest text that reads back as the same number.
fn float_key<F: serde::Serialize + ToString + Into<f64> + Copy>(key: F) -> String {
    match serde_json::to_string(&key) {
        Ok(text) if key.into().is_finite() => text,
        _ => key.to_string(),
    }
}

/// The JSON that may be made of one byte of a message, and of an empty message, measured in [`NODE`]s and bytes of names.
const ROOM_PER_BYTE: usize = 256;
const ROOM_AT_LEAST: usize = 1 << 16;
/// The count of one JSON value, apart from its name.
const NODE: usize = 16;
