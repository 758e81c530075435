//! A serde serializer that writes CDR.

use super::{CodecError, FREE_ELEMENTS, MAX_DEPTH, too_deep};
use serde::ser::{self, Error as _, Serialize, Serializer};
use std::fmt;

/// Appends one message's value to a buffer.
pub(in crate::codec) struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// Start of this message's value in `out`, behind its header: alignment counts from here.
    origin: usize,
    depth: usize,
    /// Elements without bytes still allowed.
    free: usize,
}

impl<'a> Encoder<'a> {
    /// Writes behind the contents of `out`, which end with this message's header.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        let origin = out.len();
        Self { out, origin, depth: 0, free: FREE_ELEMENTS }
    }

    /// Appends `N` bytes aligned to `N`; `N` is 1, 2, 4 or 8.
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if N > 1 {
            let padding = (self.out.len() - self.origin).wrapping_neg() & (N - 1);
            self.out.extend_from_slice(&[0; 8][..padding]);
        }
        self.out.extend_from_slice(&bytes);
    }

    /// The bytes in the buffer.
    pub(crate) fn written(&self) -> usize {
        self.out.len()
    }

    /// Appends a count or length.
    pub(crate) fn put_length(&mut self, length: usize) -> Result<(), CodecError> {
        self.put(length_field(length)?);
        Ok(())
    }

    fn enter(&mut self) -> Result<(), CodecError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(too_deep(0)) } else { Ok(()) }
    }

    /// Opens a value with a fixed number of elements.
    fn fixed<'b>(&'b mut self) -> Result<Fixed<'a, 'b>, CodecError> {
        self.enter()?;
        Ok(Fixed(self))
    }

    /// Opens a fixed number of elements in an enum's variant.
    fn variant<'b>(&'b mut self, index: u32) -> Result<Fixed<'a, 'b>, CodecError> {
        self.put(index.to_le_bytes());
        self.fixed()
    }

    /// Opens a value that starts with the count of its elements.
    fn counted<'b>(&'b mut self) -> Result<Counted<'a, 'b>, CodecError> {
        self.enter()?;
        self.put([0; 4]);
        let start = self.out.len();
        Ok(Counted { encoder: self, start, element: start, count: 0 })
    }
}

/// A count or length as it is written.
fn length_field(length: usize) -> Result<[u8; 4], CodecError> {
    let length = u32::try_from(length)
        .map_err(|_| CodecError::custom(format_args!("expected a length of at most {}, found {length}", u32::MAX)))?;
    Ok(length.to_le_bytes())
}

/// Methods that write a number as it is.
macro_rules! numbers {
    ($($method:ident $type:ty),*) => {$(
        #[inline]
        fn $method(self, value: $type) -> Result<(), CodecError> {
            self.put(value.to_le_bytes());
            Ok(())
        }
    )*};
}

impl<'a, 'b> Serializer for &'b mut Encoder<'a> {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = Counted<'a, 'b>;
    type SerializeMap = Counted<'a, 'b>;
    type SerializeTuple = Fixed<'a, 'b>;
    type SerializeTupleStruct = Fixed<'a, 'b>;
    type SerializeTupleVariant = Fixed<'a, 'b>;
    type SerializeStruct = Fixed<'a, 'b>;
    type SerializeStructVariant = Fixed<'a, 'b>;

    numbers!(
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64,
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_f32 f32, serialize_f64 f64
    );

    fn is_human_readable(&self) -> bool {
        false
    }
    fn serialize_bool(self, value: bool) -> Result<(), CodecError> {
        self.serialize_u8(value.into())
    }
    fn serialize_char(self, value: char) -> Result<(), CodecError> {
        self.serialize_u32(value.into())
    }
    fn serialize_i128(self, _: i128) -> Result<(), CodecError> {
        Err(CodecError::custom("expected a type that CDR has, found i128"))
    }
    fn serialize_u128(self, _: u128) -> Result<(), CodecError> {
        Err(CodecError::custom("expected a type that CDR has, found u128"))
    }
    fn serialize_str(self, value: &str) -> Result<(), CodecError> {
        self.put_length(value.len().saturating_add(1))?;
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
        Ok(())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<(), CodecError> {
        self.put_length(value.len())?;
        self.out.extend_from_slice(value);
        Ok(())
    }
    /// Writes the text straight into the buffer: serde's own way builds a `String` first.
    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<(), CodecError> {
        self.put([0; 4]);
        let start = self.out.len();
        fmt::write(&mut Text(self.out), format_args!("{value}"))
            .map_err(|_| CodecError::custom("expected a value that can be written as text, found one that fails"))?;
        self.out.push(0);
        let length = length_field(self.out.len() - start)?;
        self.out[start - 4..start].copy_from_slice(&length);
        Ok(())
    }
    fn serialize_none(self) -> Result<(), CodecError> {
        self.serialize_bool(false)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CodecError> {
        self.serialize_bool(true)?;
        self.fixed()?.put(value)?.close()
    }
    fn serialize_unit(self) -> Result<(), CodecError> {
        Ok(())
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CodecError> {
        Ok(())
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), CodecError> {
        value.serialize(self)
    }
    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), CodecError> {
        self.serialize_u32(index)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), CodecError> {
        self.variant(index)?.put(value)?.close()
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fixed<'a, 'b>, CodecError> {
        self.variant(index)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fixed<'a, 'b>, CodecError> {
        self.variant(index)
    }
    fn serialize_tuple(self, _: usize) -> Result<Fixed<'a, 'b>, CodecError> {
        self.fixed()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fixed<'a, 'b>, CodecError> {
        self.fixed()
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fixed<'a, 'b>, CodecError> {
        self.fixed()
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Counted<'a, 'b>, CodecError> {
        self.counted()
    }
    fn serialize_map(self, length: Option<usize>) -> Result<Counted<'a, 'b>, CodecError> {
        match length {
            Some(_) => self.counted(),
            None => Err(CodecError::custom("expected a map that knows its length, found none (a flattened struct?)")),
        }
    }
}

/// Formatted text into a buffer.
struct Text<'a>(&'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Elements whose number the reader knows: of a struct, a tuple, an array, a variant.
pub(in crate::codec) struct Fixed<'a, 'b>(&'b mut Encoder<'a>);

impl Fixed<'_, '_> {
    #[inline]
    fn put<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, CodecError> {
        value.serialize(&mut *self.0)?;
        Ok(self)
    }
    fn close(self) -> Result<(), CodecError> {
        self.0.depth -= 1;
        Ok(())
    }
}

/// Elements behind their count, which is filled in at the end: so a sequence need not know its length beforehand.
pub(in crate::codec) struct Counted<'a, 'b> {
    encoder: &'b mut Encoder<'a>,
    /// Start of the first element; the count stands before it.
    start: usize,
    /// Start of the present element.
    element: usize,
    count: usize,
}

impl Counted<'_, '_> {
    /// Counts the element that was just written.
    #[inline]
    fn counted(&mut self) -> Result<(), CodecError> {
        self.count += 1;
        let end = self.encoder.out.len();
        if end == std::mem::replace(&mut self.element, end) {
            self.encoder.free = self.encoder.free.checked_sub(1).ok_or_else(|| {
                CodecError::custom(format_args!("expected at most {FREE_ELEMENTS} elements without bytes, found more"))
            })?;
        }
        Ok(())
    }
    fn close(self) -> Result<(), CodecError> {
        self.encoder.out[self.start - 4..self.start].copy_from_slice(&length_field(self.count)?);
        self.encoder.depth -= 1;
        Ok(())
    }
}

impl ser::SerializeSeq for Counted<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
        value.serialize(&mut *self.encoder)?;
        self.counted()
    }
    fn end(self) -> Result<(), CodecError> {
        self.close()
    }
}

impl ser::SerializeMap for Counted<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CodecError> {
        key.serialize(&mut *self.encoder)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
        value.serialize(&mut *self.encoder)?;
        self.counted()
    }
    fn end(self) -> Result<(), CodecError> {
        self.close()
    }
}

/// The element-by-element traits of tuples and tuple structs and variants, which differ in names only.
macro_rules! fixed_elements {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for Fixed<'_, '_> {
            type Ok = ();
            type Error = CodecError;
            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
                value.serialize(&mut *self.0)
            }
            fn end(self) -> Result<(), CodecError> {
                self.close()
            }
        }
    )*};
}

fixed_elements!(SerializeTuple serialize_element, SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field);

/// The field-by-field traits of structs and struct variants.
macro_rules! fixed_fields {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Fixed<'_, '_> {
            type Ok = ();
            type Error = CodecError;
            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), CodecError> {
                value.serialize(&mut *self.0)
            }
            fn skip_field(&mut self, name: &'static str) -> Result<(), CodecError> {
                Err(CodecError::custom(format_args!("expected every field, found that `{name}` is skipped: CDR cannot leave it out")))
            }
            fn end(self) -> Result<(), CodecError> {
                self.close()
            }
        }
    )*};
}

fixed_fields!(SerializeStruct, SerializeStructVariant);
