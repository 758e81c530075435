//! Keys: the members of a type that tell the instances of its topic apart, in messages of Thalweg and of DDS.
//!
//! | module | contents |
//! |---|---|
//! | `cdr` | numbers and texts in CDR of any version, and in that of version 1 |
//! | `layout` | the structure of a type, from which Cyclone finds the key of what is written |
//!
//! DDS ends an instance by a message of its key alone, Thalweg by a whole value, in which all but the key means nothing.

mod cdr;
mod layout;
#[cfg(test)]
mod tests;

use cdr::{Reader, Writer};
use qos::expression::Value;
use std::borrow::Cow;
use std::sync::Arc;
use thalweg::codec::{Fields, Schema, transcode};

/// Finds the key of a type by its full name in DDS, `robot::Arm`, as paths of members; none, if it has none or is not known.
pub type Keys = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// What can fail by what others say, with its reason.
type Result<T> = std::result::Result<T, String>;

/// The longest key of which the hash is the key itself, in bytes (DDSI-RTPS 2.5 §9.6.4.8).
const HASH: usize = 16;

/// The key of a type.
#[derive(Debug)]
pub(super) struct Key {
    schema: Arc<Schema>,
    root: Part,
    /// Its members, in the order of the message.
    fields: Fields,
    members: Vec<Schema>,
}

/// A part of a type.
#[derive(Debug, Default)]
struct Part {
    is_key: bool,
    /// A struct's members, up to the last one with a part of the key.
    fields: Vec<Part>,
}

impl Part {
    fn is_empty(&self) -> bool {
        !self.is_key && self.fields.is_empty()
    }
}

impl Key {
    /// The key of these paths.
    ///
    /// # Errors
    /// The path that leads to no member, or to none that can be a part of a key.
    pub(super) fn new(schema: &Arc<Schema>, paths: &[String]) -> Result<Self> {
        let mut root = Part::default();
        for path in paths {
            let names: Vec<&str> = path.split('.').collect();
            mark(&mut root, schema, &names).map_err(|why| format!("its member {path} {why}"))?;
        }
        let mut found = Vec::new();
        collect(&root, schema, "", &mut found);
        let (paths, members): (Vec<String>, Vec<Schema>) = found.into_iter().unzip();
        let fields = Fields::find(schema, &paths).map_err(|wrong| wrong.to_string())?;
        Ok(Self { schema: schema.clone(), root, fields, members })
    }

    /// A value as Thalweg has it: in CDR of version 1.
    ///
    /// # Errors
    /// The reason why it is no value of the type.
    pub(super) fn value<'a>(&self, message: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        transcode(&self.schema, message).map_err(|wrong| wrong.to_string())
    }

    /// The key of a value, as a message of its members alone.
    ///
    /// # Errors
    /// The reason why the message is no value of the type.
    pub(super) fn of(&self, message: &[u8]) -> Result<Vec<u8>> {
        let mut values = vec![None; self.members.len()];
        let mut note = |place: usize, value| {
            if let Some(slot) = values.get_mut(place) {
                *slot = Some(value);
            }
        };
        self.fields.read(&self.schema, message, &mut note).map_err(|wrong| wrong.to_string())?;
        let mut writer = Writer::new();
        for (member, value) in self.members.iter().zip(values) {
            put(&mut writer, member, value)?;
        }
        Ok(writer.finish())
    }

    /// A whole value of a key, which is a message of its members alone. All others are the least there is: 0, empty.
    ///
    /// # Errors
    /// The reason why the message is no key of the type.
    pub(super) fn whole(&self, key: &[u8]) -> Result<Vec<u8>> {
        let (mut reader, mut writer) = (Reader::new(key)?, Writer::new());
        fill(&self.schema, &self.root, &mut reader, &mut writer)?;
        Ok(writer.finish())
    }

    /// As [`Self::whole`], of the hash of a key behind a header.
    ///
    /// # Errors
    /// As there; and if the hash is a digest.
    pub(super) fn of_hash(&self, hash: &[u8]) -> Result<Vec<u8>> {
        let after = |size: usize, member: &Schema| {
            let width = width(member)?;
            Some(size.next_multiple_of(width) + width)
        };
        match self.members.iter().try_fold(0, after) {
            Some(..=HASH) => self.whole(hash),
            _ => Err("an instance ends of which its writer states no more than a digest of the key".to_owned()),
        }
    }
}

fn mark(part: &mut Part, schema: &Schema, names: &[&str]) -> Result<()> {
    if let Schema::Option(_) = schema {
        return Err("is optional, which a key in DDS is not".to_owned());
    }
    let Some((name, rest)) = names.split_first() else {
        part.is_key = can_be_key(schema);
        return if part.is_key { Ok(()) } else { Err("is no single number, text or truth value".to_owned()) };
    };
    let Schema::Struct { fields, .. } = schema else { return Err(format!("is none: nothing has a {name} there")) };
    let Some((at, field)) = fields.iter().enumerate().find(|(_, field)| field.name == *name) else {
        return Err("is none of the type".to_owned());
    };
    if part.fields.len() <= at {
        part.fields.resize_with(at + 1, Part::default);
    }
    match part.fields.get_mut(at) {
        Some(part) => mark(part, &field.schema, rest),
        None => Ok(()), // there is one by now
    }
}

fn can_be_key(schema: &Schema) -> bool {
    matches!(schema, Schema::String) || (width(schema).is_some() && !matches!(schema, Schema::Char))
}

/// Path and type of each member of the key, in the order of the message.
fn collect(part: &Part, schema: &Schema, prefix: &str, found: &mut Vec<(String, Schema)>) {
    if part.is_key {
        return found.push((prefix.to_owned(), schema.clone()));
    }
    let Schema::Struct { fields, .. } = schema else { return };
    for (field, part) in fields.iter().zip(&part.fields) {
        let name = &field.name;
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        collect(part, &field.schema, &path, found);
    }
}

/// The bytes of a number, a truth value, or an enum without content.
fn width(schema: &Schema) -> Option<usize> {
    match schema {
        Schema::Bool | Schema::U8 | Schema::I8 => Some(1),
        Schema::U16 | Schema::I16 => Some(2),
        Schema::U32 | Schema::I32 | Schema::F32 | Schema::Char => Some(4),
        Schema::U64 | Schema::I64 | Schema::F64 => Some(8),
        Schema::Enum { variants, .. } => variants.iter().all(|variant| variant.schema.is_none()).then_some(4),
        _ => None,
    }
}

fn put(writer: &mut Writer, member: &Schema, value: Option<Value<'_>>) -> Result<()> {
    let number = match (member, value) {
        (Schema::String, Some(Value::Text(text))) => return writer.text(text.as_bytes()),
        (Schema::Enum { variants, .. }, Some(Value::Text(name))) => {
            variants.iter().position(|variant| variant.name == name).unwrap_or_default() as u64
        }
        (Schema::F32, Some(Value::Float(value))) => u64::from((value as f32).to_bits()),
        (_, Some(Value::Float(value))) => value.to_bits(),
        (_, Some(Value::Bool(value))) => u64::from(value),
        (_, Some(Value::Integer(value))) => value as u64, // its low bytes are written
        _ => return Err("the message has no key".to_owned()),
    };
    writer.number(number, width(member).unwrap_or_default())
}

/// Writes a part with the members of the key that it has.
fn fill(schema: &Schema, part: &Part, reader: &mut Reader<'_>, writer: &mut Writer) -> Result<()> {
    match schema {
        _ if part.is_key => copy(schema, reader, writer),
        Schema::Struct { fields, .. } if !part.is_empty() => {
            reader.delimiter()?;
            let nothing = Part::default();
            let parts = part.fields.iter().chain(std::iter::repeat(&nothing));
            fields.iter().zip(parts).try_for_each(|(field, part)| fill(&field.schema, part, reader, writer))
        }
        _ => least(schema, writer),
    }
}

fn copy(schema: &Schema, reader: &mut Reader<'_>, writer: &mut Writer) -> Result<()> {
    let Some(width) = width(schema) else { return writer.text(reader.text()?) };
    let number = reader.number(width)?;
    let most = match schema {
        Schema::Bool => 1,
        Schema::Enum { variants, .. } => (variants.len() as u64).saturating_sub(1),
        _ => u64::MAX,
    };
    match number <= most {
        true => writer.number(number, width),
        false => Err(format!("a key with {number} where {most} is the most")),
    }
}

/// Writes the least value of a type. No deeper than the schema is, which is at most 32 levels.
fn least(schema: &Schema, writer: &mut Writer) -> Result<()> {
    match schema {
        Schema::Unit => Ok(()),
        Schema::String => writer.text(b""),
        Schema::Option(_) => writer.number(0, 1),
        Schema::Sequence(_) | Schema::Map { .. } => writer.number(0, 4),
        Schema::Array { len, element } => {
            for _ in 0..*len {
                let before = writer.written();
                least(element, writer)?;
                if writer.written() == before {
                    break; // elements without bytes
                }
            }
            Ok(())
        }
        Schema::Tuple(elements) => elements.iter().try_for_each(|element| least(element, writer)),
        Schema::Struct { fields, .. } => fields.iter().try_for_each(|field| least(&field.schema, writer)),
        Schema::Enum { variants, .. } => {
            writer.number(0, 4)?;
            let held = variants.first().and_then(|first| first.schema.as_ref());
            held.map_or(Ok(()), |held| least(held, writer))
        }
        single => writer.number(0, width(single).unwrap_or_default()),
    }
}
