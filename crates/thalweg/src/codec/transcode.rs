//! Messages of other writers as Thalweg writes them: CDR of version 1, little-endian.
//!
//! The rules of version 2 are those of DDS-XTypes 1.3 §7.4.3.5: the length in bytes (DHEADER) stands before a sequence, array or
//! map whose elements are not primitive, and in the delimited form before each struct, too.

#[cfg(test)]
mod tests;

use super::cdr::{Encoder, FREE_ELEMENTS, MAX_DEPTH, Reader, Version, append_message, too_deep};
use super::schema::{MAX_NODES, Variant};
use super::{CodecError, Schema};
use serde::Serializer;
use std::borrow::Cow;

/// A message of `schema` in CDR of version 1, little-endian, header included. One that already is comes back as it is, unread.
///
/// Read are both byte orders of CDR (encapsulation 00 00, 00 01), PLAIN_CDR2 (00 06, 00 07) and DELIMITED_CDR (00 08, 00 09). A schema
/// does not tell which structs are final and which appendable. So all of them are taken for final in PLAIN_CDR2, as those of ROS 2 are,
/// and for appendable in DELIMITED_CDR; members that the schema does not have are left out there. A type with both is misread.
///
/// The function never panics, for any schema and any bytes, and reads at most 8192 parts and 4 per byte of the message.
///
/// # Errors
/// [`CodecError`] with the offset from the start of `bytes`, what was expected and found: another encapsulation (a parameter list,
/// which mutable types have), or bytes that are no value of `schema`.
pub fn transcode<'a>(schema: &Schema, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, CodecError> {
    if let [0x00, 0x01, _, _, ..] = bytes {
        return Ok(Cow::Borrowed(bytes));
    }
    let reader = Reader::of_any_version(bytes)?;
    let parts = bytes.len().saturating_mul(PARTS_PER_BYTE).saturating_add(PARTS_AT_LEAST);
    let mut out = Vec::with_capacity(bytes.len());
    append_message(&mut out, |encoder| Transcoder { reader, encoder, parts, depth: 0 }.message(schema))?;
    Ok(Cow::Owned(out))
}

/// One message on its way.
struct Transcoder<'a, 'de, 'out> {
    reader: Reader<'de>,
    encoder: &'a mut Encoder<'out>,
    /// Parts that may still be read: a count may be a lie, and a stranger's type have thousands of parts without a byte.
    parts: usize,
    depth: usize,
}

impl Transcoder<'_, '_, '_> {
    fn message(mut self, schema: &Schema) -> Result<(), CodecError> {
        self.value(schema)?;
        self.reader.finish()
    }

    fn value(&mut self, schema: &Schema) -> Result<(), CodecError> {
        self.spend()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(self.reader.at()));
        }
        match schema {
            Schema::Sequence(element) => self.sequence(element)?,
            Schema::Array { len, element } => self.array(*len, element)?,
            Schema::Tuple(elements) => elements.iter().try_for_each(|element| self.value(element))?,
            Schema::Option(value) => self.option(value)?,
            Schema::Map { key, value } => {
                self.collection(&[&**key, &**value], |this| this.count("the count of a map"))?
            }
            Schema::Struct { fields, .. } => {
                let end = self.delimiter(self.reader.version() == Version::TwoDelimited)?;
                fields.iter().try_for_each(|field| self.value(&field.schema))?;
                end.map_or(Ok(()), |end| self.reader.pass(end))?;
            }
            Schema::Enum { variants, .. } => self.variant(variants)?,
            single => self.single(single)?,
        }
        self.depth -= 1;
        Ok(())
    }

    /// A value without parts.
    fn single(&mut self, schema: &Schema) -> Result<(), CodecError> {
        let Self { reader, encoder, .. } = self;
        match schema {
            Schema::Bool => encoder.serialize_bool(reader.bool("a bool")?),
            Schema::U8 | Schema::I8 => encoder.serialize_u8(u8::from_le_bytes(reader.take("a byte")?)),
            Schema::U16 | Schema::I16 => encoder.serialize_u16(u16::from_le_bytes(reader.take("a number of 16 bit")?)),
            Schema::U32 | Schema::I32 | Schema::F32 => encoder.serialize_u32(reader.u32("a number of 32 bit")?),
            Schema::U64 | Schema::I64 | Schema::F64 => {
                encoder.serialize_u64(u64::from_le_bytes(reader.take("a number of 64 bit")?))
            }
            Schema::Char => encoder.serialize_char(reader.char()?),
            Schema::String => encoder.serialize_str(reader.str()?),
            _ => Ok(()), // without bytes
        }
    }

    fn sequence(&mut self, element: &Schema) -> Result<(), CodecError> {
        if matches!(element, Schema::U8 | Schema::I8) {
            return self.encoder.serialize_bytes(self.reader.bytes()?);
        }
        self.collection(&[element], |this| this.count("the count of a sequence"))
    }

    /// All dimensions of an array are one collection.
    fn array(&mut self, len: u32, element: &Schema) -> Result<(), CodecError> {
        let (mut count, mut innermost) = (len as usize, element);
        while let Schema::Array { len, element } = innermost {
            (count, innermost) = (count.saturating_mul(*len as usize), element);
        }
        self.collection(&[innermost], |_| Ok(count))
    }

    /// Repeated `parts`, as often as `count` tells.
    fn collection(
        &mut self,
        parts: &[&Schema],
        count: impl FnOnce(&mut Self) -> Result<usize, CodecError>,
    ) -> Result<(), CodecError> {
        let is_plain = self.reader.version() == Version::One || parts.iter().all(|part| is_primitive(part));
        let end = self.delimiter(!is_plain)?;
        let before = self.encoder.written();
        let (count, start) = (count(self)?, self.encoder.written());
        for _ in 0..count {
            let before = self.reader.at();
            parts.iter().try_for_each(|part| self.value(part))?;
            if self.reader.at() == before {
                break; // elements without bytes: their number may be a lie
            }
        }
        // A count is written, and a reader believes it up to this number.
        if start > before && count > FREE_ELEMENTS && self.encoder.written() == start {
            let problem = format!("expected at most {FREE_ELEMENTS} elements without bytes, found {count}");
            return Err(self.reader.error(problem));
        }
        end.map_or(Ok(()), |end| self.reader.pass(end))
    }

    fn count(&mut self, what: &'static str) -> Result<usize, CodecError> {
        let count = self.reader.count(what)?;
        self.encoder.put_length(count)?;
        Ok(count)
    }

    fn option(&mut self, value: &Schema) -> Result<(), CodecError> {
        let is_there = self.reader.bool("the mark of an option")?;
        self.encoder.serialize_bool(is_there)?;
        if is_there { self.value(value) } else { Ok(()) }
    }

    fn variant(&mut self, variants: &[Variant]) -> Result<(), CodecError> {
        let index = self.reader.u32("the index of an enum's variant")?;
        let count = variants.len();
        let wrong = || self.reader.before(4, format!("expected the index of one of {count} variants, found {index}"));
        let variant = variants.get(index as usize).ok_or_else(wrong)?;
        self.encoder.serialize_u32(index)?;
        variant.schema.as_ref().map_or(Ok(()), |schema| self.value(schema))
    }

    /// The end of the value whose length in bytes comes next, if there `is` one.
    fn delimiter(&mut self, is: bool) -> Result<Option<usize>, CodecError> {
        is.then(|| self.reader.delimiter()).transpose()
    }

    fn spend(&mut self) -> Result<(), CodecError> {
        self.parts = self.parts.checked_sub(1).ok_or_else(|| {
            let most = format!("{PARTS_AT_LEAST} parts and {PARTS_PER_BYTE} per byte");
            self.reader.error(format!("expected a message of at most {most}, found more"))
        })?;
        Ok(())
    }
}

/// Values that have no length before a collection of them.
fn is_primitive(schema: &Schema) -> bool {
    use Schema::{Bool, Char, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(schema, Bool | Char | U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64 | F32 | F64)
}

/// Parts of a type that may be read per byte of a message, and of an empty message.
const PARTS_PER_BYTE: usize = 4;
const PARTS_AT_LEAST: usize = 2 * MAX_NODES;
