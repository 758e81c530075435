//! Types of messages, which are known at run time.

use crate::arguments::{Out, bytes, optional_text, put, reference, taken_back, text};
use crate::failure::{Failure, Result, c_string, guarded, guarded_or, thalweg_status};
use crate::layout::{Content, Layout, Part};
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use thalweg::codec::{Definitions, Field, Schema, TypeDescription};

/// Kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_kind {
    THALWEG_BOOL = 1,
    THALWEG_U8 = 2,
    THALWEG_U16 = 3,
    THALWEG_U32 = 4,
    THALWEG_U64 = 5,
    THALWEG_I8 = 6,
    THALWEG_I16 = 7,
    THALWEG_I32 = 8,
    THALWEG_I64 = 9,
    THALWEG_F32 = 10,
    THALWEG_F64 = 11,
    /// UTF-8. In a C struct: an array of `bytes` characters, ended by a zero.
    THALWEG_STRING = 12,
    /// The struct of the type `nested`.
    THALWEG_STRUCT_KIND = 13,
}

/// Number of elements of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum thalweg_shape {
    THALWEG_ONE = 0,
    /// `count` of them.
    THALWEG_ARRAY = 1,
    /// Any number. Not in a type that has a C struct.
    THALWEG_SEQUENCE = 2,
}

use thalweg_kind::*;
use thalweg_shape::*;

/// A field of a structure.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct thalweg_field {
    pub name: *const c_char,
    /// A thalweg_kind.
    pub kind: u32,
    /// A thalweg_shape.
    pub shape: u32,
    /// Number of elements of an array.
    pub count: usize,
    /// Offset in the C struct.
    pub offset: usize,
    /// Size of the character array of a string in the C struct.
    pub bytes: usize,
    /// The type of a field of kind THALWEG_STRUCT_KIND, made by thalweg_type_struct.
    pub nested: *const thalweg_type,
}

/// A type of messages. Ports keep what they need of it: it may be freed once they are open.
pub struct thalweg_type(pub(crate) Arc<Form>);

/// A type: its description, and the memory that C has for its values.
pub(crate) struct Form {
    pub description: TypeDescription,
    name: CString,
    memory: Memory,
}

/// The memory of a value in C.
enum Memory {
    /// There is none: C has the encoded bytes.
    None,
    /// It is the message.
    Plain(usize),
    /// A struct whose fields are the message.
    Struct(Arc<Layout>),
}

/// The most bytes of a struct, and elements of an array.
const MOST: usize = 1 << 30;
/// More than a schema may have (`Schema::check`).
const MOST_FIELDS: usize = 4096;

impl Form {
    /// A type for C.
    fn checked(description: TypeDescription, memory: Memory) -> Result<thalweg_type> {
        description.check().map_err(|wrong| Failure::invalid(format!("type {}: {wrong}", description.name)))?;
        let name = c_string(description.name.clone());
        Ok(thalweg_type(Arc::new(Self { description, name, memory })))
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

/// # Safety
/// The names in `fields` are null or texts; nested types are null or types.
unsafe fn structure(name: &str, size: usize, fields: &[thalweg_field]) -> Result<thalweg_type> {
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

/// Plain bytes.
///
/// # Safety
/// Pointers are null or valid, as everywhere in this interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_bytes(message_type: *mut *mut thalweg_type) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(message_type, "message_type")? };
        out.give(Form::checked(TypeDescription::opaque("bytes"), Memory::None)?);
        Ok(())
    })
}

/// A type of ROS 2: its name, such as "std_msgs/msg/String", and the text of its .msg file, with those of the types that it refers to behind
/// it, as rosbag2 and MCAP write them (a line of 80 =, a line "MSG: pkg/Type"). The messages are its CDR bytes.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_ros(
    name: *const c_char,
    definition: *const c_char,
    message_type: *mut *mut thalweg_type,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(message_type, "message_type")? };
        // SAFETY: the caller's promise.
        let (name, definition) = unsafe { (text(name, "name")?, text(definition, "definition")?) };
        let mut definitions = Definitions::new();
        let added = definitions.add_concatenated(name, definition);
        let described = added.and_then(|()| definitions.describe(name));
        let described = described.map_err(|wrong| Failure::invalid(wrong.to_string()))?;
        out.give(Form::checked(described, Memory::None)?);
        Ok(())
    })
}

/// The memory of a C struct without pointers: only programs with the same name, size and alignment read it (Plain<T> in Rust).
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_plain(
    name: *const c_char,
    bytes: usize,
    alignment: usize,
    message_type: *mut *mut thalweg_type,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (out, name) = unsafe { (Out::new(message_type, "message_type")?, text(name, "name")?) };
        if !(1..=MOST).contains(&bytes) || !alignment.is_power_of_two() || !bytes.is_multiple_of(alignment) {
            return Err(Failure::invalid(format!(
                "no struct has {bytes} bytes aligned to {alignment}: give sizeof and alignof"
            )));
        }
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        // As `Plain<T>` describes itself: a test compares.
        let described = TypeDescription::opaque(&format!("plain {name} size {bytes} align {alignment} {order}-endian"));
        out.give(Form::checked(TypeDescription { name: name.to_owned(), ..described }, Memory::Plain(bytes))?);
        Ok(())
    })
}

/// A structure by its fields. The messages are its CDR bytes, which programs of all languages read. `bytes` is `sizeof` of the C struct, with
/// which the `_value` functions encode and decode; 0: there is none.
///
/// # Safety
/// Pointers are null or valid; `fields` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_struct(
    name: *const c_char,
    bytes: usize,
    fields: *const thalweg_field,
    count: usize,
    message_type: *mut *mut thalweg_type,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (out, name) = unsafe { (Out::new(message_type, "message_type")?, text(name, "name")?) };
        if bytes > MOST || count > MOST_FIELDS {
            let limits =
                format!("{name} has {bytes} bytes and {count} fields: at most {MOST} and {MOST_FIELDS} are possible");
            return Err(Failure::invalid(limits));
        }
        let fields = match fields.is_null() {
            true => &[],
            // SAFETY: not null, and the caller's promise.
            false => unsafe { std::slice::from_raw_parts(fields, count) },
        };
        // SAFETY: the caller's promise.
        out.give(unsafe { structure(name, bytes, fields)? });
        Ok(())
    })
}

/// A type by its schema, as JSON: "f64", {"sequence":"u8"}, or as `thalweg info --json` shows it. The messages are its CDR bytes. A null name is
/// that of the schema.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_schema(
    name: *const c_char,
    schema: *const c_char,
    message_type: *mut *mut thalweg_type,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(message_type, "message_type")? };
        // SAFETY: the caller's promise.
        let (name, text) = unsafe { (optional_text(name, "name")?, text(schema, "schema")?) };
        let schema = serde_json::from_str::<Schema>(text);
        let schema = schema.map_err(|wrong| Failure::invalid(format!("schema: {wrong}")))?;
        schema.check().map_err(|wrong| Failure::invalid(format!("schema: {wrong}")))?;
        let name = name.map_or_else(|| schema.short_name(), str::to_owned);
        out.give(Form::checked(
            TypeDescription { name, hash: schema.hash(), schema: Some(Arc::new(schema)), ros: None },
            Memory::None,
        )?);
        Ok(())
    })
}

/// Whether a subscriber of the first type reads samples of the second; false if one is null.
///
/// # Safety
/// Pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_accepts(asked: *const thalweg_type, offered: *const thalweg_type) -> bool {
    guarded_or(false, || {
        // SAFETY: the caller's promise.
        let (asked, offered) = unsafe { (reference(asked, "asked")?, reference(offered, "offered")?) };
        Ok(asked.0.description.accepts(&offered.0.description))
    })
}

/// Name of the type, without its package; valid as long as the type.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_name(message_type: *const thalweg_type) -> *const c_char {
    // SAFETY: the caller's promise.
    guarded_or(c"".as_ptr(), || unsafe { Ok(reference(message_type, "message_type")?.0.name.as_ptr()) })
}

/// Encodes a C struct. `len` gets the length, also if there is no `room` for it (THALWEG_TOO_LARGE).
///
/// # Safety
/// Pointers are null or valid; `buffer` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_encode(
    message_type: *const thalweg_type,
    value: *const c_void,
    buffer: *mut c_void,
    room: usize,
    len: *mut usize,
) -> thalweg_status {
    guarded(|| {
        let mut message = Vec::new();
        // SAFETY: the caller's promise.
        unsafe { reference(message_type, "message_type")?.0.encode(value, &mut message)? };
        // SAFETY: the caller's promise.
        unsafe { put(len, message.len()) };
        if message.len() > room || buffer.is_null() {
            let text = format!("the message has {} bytes, the buffer {room}", message.len());
            return Err(Failure::new(thalweg_status::THALWEG_TOO_LARGE, text));
        }
        // SAFETY: not null, and room for the message.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast(), message.len()) };
        Ok(())
    })
}

/// Decodes a message into a C struct, whose content is unspecified after an error.
///
/// # Safety
/// Pointers are null or valid; `data` has `len` bytes, and `value` is a struct of the type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_decode(
    message_type: *const thalweg_type,
    data: *const c_void,
    len: usize,
    value: *mut c_void,
) -> thalweg_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        unsafe { reference(message_type, "message_type")?.0.decode(bytes(data, len, "data")?, value, None) }
    })
}

/// Frees a type.
///
/// # Safety
/// The pointer is null or valid, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_type_free(message_type: *mut thalweg_type) {
    // SAFETY: the caller's promise.
    guarded_or(None, || unsafe { Ok(taken_back(message_type)) });
}
