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

mod read;
#[cfg(test)]
mod tests;
mod write;

use super::cdr::{Reader, append_message};
use super::{CodecError, Schema};

/// The JSON that may be made of one byte of a message, and of an empty message, measured in [`NODE`]s and bytes of names.
const ROOM_PER_BYTE: usize = 256;
const ROOM_AT_LEAST: usize = 1 << 16;
/// The count of one JSON value, apart from its name.
const NODE: usize = 16;

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
    let mut json = read::JsonReader::new(Reader::new(bytes)?, room);
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
