//! Types of messages, which are known at run time.

mod form;

pub(crate) use form::Form;

use crate::arguments::{Out, bytes, optional_text, put, reference, taken_back, text};
use crate::failure::{Failure, guarded, guarded_or, thalweg_status};
use form::{MOST, Memory, structure};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use thalweg::codec::{Definitions, Schema, TypeDescription};

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

/// More than a schema may have (`Schema::check`).
const MOST_FIELDS: usize = 4096;

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
    guarded_or(c"".as_ptr(), || unsafe { Ok(reference(message_type, "message_type")?.0.name().as_ptr()) })
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
