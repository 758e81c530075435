//! A type with the memory that C has for its values.

use super::thalweg_kind::{self, *};
use super::thalweg_shape::*;
use super::{thalweg_field, thalweg_type};
use crate::arguments::{bytes, text};
use crate::failure::{Failure, Result, c_string};
use crate::layout::{Content, Layout, Part};
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use thalweg::codec::{Field, Schema, TypeDescription};

/// A type: its description, and the memory that C has for its values.
pub(crate) struct Form {
    pub description: TypeDescription,
    name: CString,
    memory: Memory,
}

/// The memory of a value in C.
pub(super) enum Memory {
    /// There is none: C has the encoded bytes.
    None,
    /// It is the message.
    Plain(usize),
    /// A struct whose fields are the message.
    Struct(Arc<Layout>),
}

/// The most bytes of a struct, and elements of an array.
pub(super) const MOST: usize = 1 << 30;

impl Form {
    /// A type for C.
    pub(super) fn checked(description: TypeDescription, memory: Memory) -> Result<thalweg_type> {
        description.check().map_err(|wrong| Failure::invalid(format!("type {}: {wrong}", description.name)))?;
        let name = c_string(description.name.clone());
        Ok(thalweg_type(Arc::new(Self { description, name, memory })))
    }

    /// The name, without its package.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    fn without_memory(&self) -> Failure {
        Failure::invalid(format!(
            "the type {} has no C struct: give or take its encoded bytes, or describe its fields",
            self.description.name
        ))
    }

    /// Appends the message of a value.
    ///
    /// # Safety
    /// `value` is null, or the type's C struct is there.
    pub(crate) unsafe fn encode(&self, value: *const c_void, out: &mut Vec<u8>) -> Result<()> {
        match &self.memory {
            Memory::None => Err(self.without_memory()),
            // SAFETY: the caller's promise.
            Memory::Plain(size) => unsafe { bytes(value, *size, "value") }.map(|bytes| out.extend_from_slice(bytes)),
            Memory::Struct(_) if value.is_null() => Err(Failure::invalid("value is a null pointer")),
            // SAFETY: not null, and the caller's promise.
            Memory::Struct(layout) => unsafe { layout.encode(value.cast(), out) },
        }
    }

    /// Reads a message into a value of `room` bytes, if the caller states that.
    ///
    /// # Safety
    /// `value` is null, or there is room for the type's C struct.
    pub(crate) unsafe fn decode(&self, message: &[u8], value: *mut c_void, room: Option<usize>) -> Result<()> {
        let size = match &self.memory {
            Memory::None => return Err(self.without_memory()),
            Memory::Plain(size) => *size,
            Memory::Struct(layout) => layout.bytes,
        };
        if let Some(room) = room.filter(|room| *room != size) {
            return Err(Failure::invalid(format!(
                "the struct of {} has {size} bytes, not {room}",
                self.description.name
            )));
        }
        if value.is_null() {
            return Err(Failure::invalid("value is a null pointer"));
        }
        match &self.memory {
            // SAFETY: not null, and the caller's promise.
            Memory::Struct(layout) => unsafe { layout.decode(message, value.cast()) },
            _ if message.len() == size => {
                // SAFETY: not null, the same length, and the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), value.cast(), size) };
                Ok(())
            }
            _ => Err(Failure::invalid(format!("a message of {} bytes is no {}", message.len(), self.description.name))),
        }
    }
}

/// Bytes of a value of a kind, if their number is fixed.
fn width(kind: u32) -> Option<usize> {
    const WIDE: [&[thalweg_kind]; 4] = [
        &[THALWEG_BOOL, THALWEG_U8, THALWEG_I8],
        &[THALWEG_U16, THALWEG_I16],
        &[THALWEG_U32, THALWEG_I32, THALWEG_F32],
        &[THALWEG_U64, THALWEG_I64, THALWEG_F64],
    ];
    WIDE.iter().position(|kinds| kinds.iter().any(|one| *one as u32 == kind)).map(|power| 1 << power)
}

/// The structure of one element of a field.
fn element(name: &str, field: &thalweg_field, nested: Option<&Form>) -> Result<Schema> {
    const KINDS: [(thalweg_kind, Schema); 12] = [
        (THALWEG_BOOL, Schema::Bool),
        (THALWEG_U8, Schema::U8),
        (THALWEG_U16, Schema::U16),
        (THALWEG_U32, Schema::U32),
        (THALWEG_U64, Schema::U64),
        (THALWEG_I8, Schema::I8),
        (THALWEG_I16, Schema::I16),
        (THALWEG_I32, Schema::I32),
        (THALWEG_I64, Schema::I64),
        (THALWEG_F32, Schema::F32),
        (THALWEG_F64, Schema::F64),
        (THALWEG_STRING, Schema::String),
    ];
    if field.kind == THALWEG_STRUCT_KIND as u32 {
        let schema = nested.and_then(|form| form.description.schema.as_deref().cloned());
        let wanted = || Failure::invalid(format!("field {name}: `nested` is no type with fields or of ROS 2"));
        return schema.ok_or_else(wanted);
    }
    let known = KINDS.into_iter().find(|(kind, _)| *kind as u32 == field.kind);
    known.map(|(_, schema)| schema).ok_or_else(|| Failure::invalid(format!("field {name}: no kind {}", field.kind)))
}

/// The structure of a field.
fn schema(name: &str, field: &thalweg_field, nested: Option<&Form>) -> Result<Schema> {
    let element = element(name, field, nested)?;
    match field.shape {
        shape if shape == THALWEG_ONE as u32 => Ok(element),
        shape if shape == THALWEG_SEQUENCE as u32 => Ok(Schema::Sequence(Box::new(element))),
        shape if shape == THALWEG_ARRAY as u32 => match u32::try_from(field.count) {
            Ok(len @ 1..) if field.count <= MOST => Ok(Schema::Array { len, element: Box::new(element) }),
            _ => Err(Failure::invalid(format!("field {name}: an array has 1 to {MOST} elements, not {}", field.count))),
        },
        other => Err(Failure::invalid(format!("field {name}: no shape {other}"))),
    }
}

/// The place of a field in a C struct of `size` bytes.
fn part(name: &str, field: &thalweg_field, nested: Option<&Form>, size: usize) -> Result<Part> {
    let is = |kind: thalweg_kind| field.kind == kind as u32;
    let one = field.shape == THALWEG_ONE as u32;
    let count = if one { 1 } else { field.count };
    let content = match width(field.kind) {
        _ if field.shape == THALWEG_SEQUENCE as u32 => None,
        Some(1) if is(THALWEG_BOOL) => Some(Content::Flags { count }),
        Some(width) => Some(Content::Numbers { width, count }),
        None if is(THALWEG_STRING) && one && field.bytes > 0 => Some(Content::Text { room: field.bytes }),
        None => match nested.map(|form| &form.memory) {
            Some(Memory::Struct(of)) => Some(Content::Structs { of: of.clone(), count }),
            _ => None,
        },
    };
    let content = content.ok_or_else(|| {
        Failure::invalid(format!(
            "field {name} has no place in a C struct: sequences and arrays of strings have not, a string needs `bytes`, a struct a type with one. \
             Without a C struct (bytes 0) the type is possible"
        ))
    })?;
    let end = content.extent().and_then(|extent| field.offset.checked_add(extent));
    match end.filter(|end| *end <= size) {
        Some(_) => Ok(Part { offset: field.offset, content }),
        None => Err(Failure::invalid(format!(
            "field {name} at byte {} ends beyond the struct's {size} bytes",
            field.offset
        ))),
    }
}

/// A type by its fields.
///
/// # Safety
/// The names in `fields` are null or texts; nested types are null or types.
pub(super) unsafe fn structure(name: &str, size: usize, fields: &[thalweg_field]) -> Result<thalweg_type> {
    if fields.is_empty() {
        return Err(Failure::invalid(format!("{name}: a structure has at least one field")));
    }
    let (mut named, mut parts) = (Vec::with_capacity(fields.len()), Vec::new());
    for field in fields {
        // SAFETY: the caller's promise.
        let (name, nested) = unsafe { (text(field.name, "a field's name")?, field.nested.as_ref()) };
        let nested = nested.map(|nested| nested.0.as_ref());
        named.push(Field { name: name.to_owned(), schema: schema(name, field, nested)? });
        if size > 0 {
            parts.push(part(name, field, nested, size)?);
        }
    }
    let schema = Schema::Struct { name: name.to_owned(), fields: named };
    let memory = if size > 0 { Memory::Struct(Arc::new(Layout { bytes: size, parts })) } else { Memory::None };
    schema.check().map_err(|wrong| Failure::invalid(format!("type {name}: {wrong}")))?;
    let description =
        TypeDescription { name: name.to_owned(), hash: schema.hash(), schema: Some(Arc::new(schema)), ros: None };
    Form::checked(description, memory)
}
