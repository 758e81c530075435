//! A serde deserializer that reads CDR.

use super::{CodecError, FREE_ELEMENTS, MAX_DEPTH, Reader, too_deep};
use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, Visitor};

/// Reads one message's value.
pub(super) struct Decoder<'de> {
    reader: Reader<'de>,
    depth: usize,
    /// Elements without bytes still allowed.
    free: usize,
}

impl<'de> Decoder<'de> {
    /// Reads from behind the header.
    pub(super) fn new(reader: Reader<'de>) -> Self {
        Self { reader, depth: 0, free: FREE_ELEMENTS }
    }

    /// Checks that only padding remains.
    pub(super) fn finish(&self) -> Result<(), CodecError> {
        self.reader.finish()
    }

    /// Gives an error of a visitor, which knows no offset, the place where reading stopped.
    pub(super) fn locate(&self, error: CodecError) -> CodecError {
        match error.offset {
            0 => self.reader.error(error.problem),
            _ => error,
        }
    }

    /// Runs `read` one level deeper.
    fn nested<R>(&mut self, read: impl FnOnce(&mut Self) -> Result<R, CodecError>) -> Result<R, CodecError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep(self.reader.at()));
        }
        let result = read(self)?;
        self.depth -= 1;
        Ok(result)
    }

    /// Lets `visit` read `count` elements, all of them.
    fn elements<R>(
        &mut self,
        count: usize,
        kind: Kind,
        visit: impl FnOnce(&mut Elements<'_, 'de>) -> Result<R, CodecError>,
    ) -> Result<R, CodecError> {
        self.nested(|decoder| {
            let start = decoder.reader.at();
            let mut elements = Elements { decoder, left: count, kind, start };
            let result = visit(&mut elements)?;
            match elements.left {
                0 => Ok(result),
                left => Err(elements
                    .decoder
                    .reader
                    .error(format!("expected {} elements (all the type takes), found {count}", count - left))),
            }
        })
    }

    /// Accounts for an element that took no bytes.
    #[cold]
    fn spend_free(&mut self) -> Result<(), CodecError> {
        self.free = self.free.checked_sub(1).ok_or_else(|| {
            self.reader.error(format!("expected at most {FREE_ELEMENTS} elements without bytes, found more"))
        })?;
        Ok(())
    }
}

/// Methods that read a number as it is.
macro_rules! numbers {
    ($($method:ident $visit:ident $type:ident),*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
            visitor.$visit($type::from_le_bytes(self.reader.take(stringify!($type))?))
        }
    )*};
}

/// Methods for types that the bytes cannot identify.
macro_rules! refused {
    ($($method:ident $what:literal),*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
            Err(CodecError::custom(concat!("expected a type that CDR has, found ", $what)))
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = CodecError;

    numbers!(
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32, deserialize_i64 visit_i64 i64,
        deserialize_f32 visit_f32 f32, deserialize_f64 visit_f64 f64
    );
    refused!(
        deserialize_i128 "i128", deserialize_u128 "u128",
        deserialize_any "one that asks the bytes what it is (untagged? flattened?)",
        deserialize_identifier "one that asks for field names (flattened?)",
        deserialize_ignored_any "one that skips what it does not know"
    );

    fn is_human_readable(&self) -> bool {
        false
    }
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_bool(self.reader.bool("a bool")?)
    }
    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_char(self.reader.char()?)
    }
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_str(self.reader.str()?)
    }
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_str(visitor)
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_bytes(self.reader.bytes()?)
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_bytes(visitor)
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.reader.bool("the mark of an option")? {
            false => visitor.visit_none(),
            true => self.nested(|decoder| visitor.visit_some(decoder)),
        }
    }
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let count = self.reader.count("the count of a sequence")?;
        self.elements(count, Kind::Counted, |elements| visitor.visit_seq(elements))
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let count = self.reader.count("the count of a map")?;
        self.elements(count, Kind::Counted, |elements| visitor.visit_map(elements))
    }
    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.elements(length, Kind::Fixed, |elements| visitor.visit_seq(elements))
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(length, visitor)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_enum(self)
    }
}

/// The source of the number of elements: the message, or the type.
#[derive(PartialEq)]
enum Kind {
    Counted,
    Fixed,
}

/// The elements of one sequence, map, tuple or struct.
struct Elements<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    left: usize,
    kind: Kind,
    /// Start of the present element.
    start: usize,
}

impl Elements<'_, '_> {
    /// Notes the end of an element.
    #[inline]
    fn passed(&mut self) -> Result<(), CodecError> {
        let end = self.decoder.reader.at();
        if end == std::mem::replace(&mut self.start, end) && self.kind == Kind::Counted {
            self.decoder.spend_free()?;
        }
        Ok(())
    }
    /// Number of elements for which room may be reserved before one of them is read.
    fn trusted(&self) -> usize {
        match self.kind {
            Kind::Fixed => self.left,
            Kind::Counted => self.left.min(self.decoder.reader.remaining() / 8),
        }
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = CodecError;
    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let value = seed.deserialize(&mut *self.decoder)?;
        self.passed()?;
        Ok(Some(value))
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.trusted())
    }
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = CodecError;
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.decoder).map(Some)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, CodecError> {
        let value = seed.deserialize(&mut *self.decoder)?;
        self.passed()?;
        Ok(value)
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.trusted())
    }
}

impl<'de> de::EnumAccess<'de> for &mut Decoder<'de> {
    type Error = CodecError;
    type Variant = Self;
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), CodecError> {
        let index = self.reader.u32("the index of an enum's variant")?;
        let index: U32Deserializer<CodecError> = index.into_deserializer();
        let variant = seed.deserialize(index).map_err(|error| self.reader.before(4, error.problem))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Decoder<'de> {
    type Error = CodecError;
    fn unit_variant(self) -> Result<(), CodecError> {
        Ok(())
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, CodecError> {
        self.nested(|decoder| seed.deserialize(decoder))
    }
    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(length, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
