//! Schemas and type names as text, and the hash of such a text.

use super::{Field, Schema, Variant};
use std::fmt::{self, Formatter, Write};

/// The extent to which a schema is written.
#[derive(Clone, Copy, PartialEq)]
enum Detail {
    /// The whole canonical text, from which the hash is computed.
    Whole,
    /// Structs and enums by their name only.
    Names,
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_schema(f, self, Detail::Whole)
    }
}

impl Schema {
    /// A name for a type that has none of its own, such as `sequence<Point>`; else that name.
    pub fn short_name(&self) -> String {
        let mut name = String::new();
        // Writing to a `String` cannot fail.
        let _ = write_schema(&mut name, self, Detail::Names);
        name
    }

    /// The name of a type that has no parts.
    fn simple_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Char => "char",
            Self::String => "string",
            Self::Unit => "unit",
            _ => return None,
        })
    }
}

fn write_schema(out: &mut dyn Write, schema: &Schema, detail: Detail) -> fmt::Result {
    match schema {
        Schema::Sequence(element) => write_parts(out, "sequence", [&**element], detail),
        Schema::Option(value) => write_parts(out, "option", [&**value], detail),
        Schema::Map { key, value } => write_parts(out, "map", [&**key, &**value], detail),
        Schema::Tuple(elements) => write_parts(out, "tuple", elements, detail),
        Schema::Array { len, element } => {
            out.write_str("array<")?;
            write_schema(out, element, detail)?;
            write!(out, ",{len}>")
        }
        Schema::Struct { name, fields } => {
            write_name(out, name)?;
            if detail == Detail::Whole { write_fields(out, fields) } else { Ok(()) }
        }
        Schema::Enum { name, variants } => {
            write_name(out, name)?;
            if detail == Detail::Whole { write_variants(out, variants) } else { Ok(()) }
        }
        simple => out.write_str(simple.simple_name().unwrap_or_default()),
    }
}

/// `kind<a,b>`
fn write_parts<'a>(
    out: &mut dyn Write,
    kind: &str,
    parts: impl IntoIterator<Item = &'a Schema>,
    detail: Detail,
) -> fmt::Result {
    out.write_str(kind)?;
    out.write_char('<')?;
    for (index, part) in parts.into_iter().enumerate() {
        separate(out, index)?;
        write_schema(out, part, detail)?;
    }
    out.write_char('>')
}

/// `{a:u8,b:string}`
fn write_fields(out: &mut dyn Write, fields: &[Field]) -> fmt::Result {
    out.write_char('{')?;
    for (index, field) in fields.iter().enumerate() {
        separate(out, index)?;
        write_name(out, &field.name)?;
        out.write_char(':')?;
        write_schema(out, &field.schema, Detail::Whole)?;
    }
    out.write_char('}')
}

/// `[Idle,Moving:f64]`
fn write_variants(out: &mut dyn Write, variants: &[Variant]) -> fmt::Result {
    out.write_char('[')?;
    for (index, variant) in variants.iter().enumerate() {
        separate(out, index)?;
        write_name(out, &variant.name)?;
        if let Some(schema) = &variant.schema {
            out.write_char(':')?;
            write_schema(out, schema, Detail::Whole)?;
        }
    }
    out.write_char(']')
}

fn separate(out: &mut dyn Write, index: usize) -> fmt::Result {
    if index == 0 { Ok(()) } else { out.write_char(',') }
}

/// An identifier as it is; any other name in quotes, so that no name can pass for structure.
fn write_name(out: &mut dyn Write, name: &str) -> fmt::Result {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return out.write_str(name);
    }
    out.write_char('"')?;
    for character in name.chars() {
        if matches!(character, '"' | '\\') {
            out.write_char('\\')?;
        }
        out.write_char(character)?;
    }
    out.write_char('"')
}

/// 64-bit FNV-1a of a text, without building the text.
pub(super) fn hash(text: fmt::Arguments<'_>) -> u64 {
    /// The state so far.
    struct Fnv(u64);

    impl Write for Fnv {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }

    let mut state = Fnv(0xcbf2_9ce4_8422_2325);
    // Only a failing `Display` could stop it; those of schemas and names do not fail.
    let _ = state.write_fmt(text);
    state.0
}

/// A Rust type name without the paths in it: `alloc::vec::Vec<robot::Pose>` gives `Vec<Pose>`.
pub(super) fn without_paths(type_name: &str) -> String {
    let is_path = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':' | '{' | '}' | '#');
    let mut name = String::with_capacity(type_name.len());
    let mut rest = type_name;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|character| !is_path(character)).unwrap_or(rest.len());
        if end == 0 {
            name.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let path = &rest[..end];
            name.push_str(path.rsplit("::").next().unwrap_or(path));
            rest = &rest[end..];
        }
    }
    name
}

/// A hash as 16 hexadecimal digits.
pub(super) mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(hash: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{hash:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(&text, 16) {
            Ok(hash) if digits => Ok(hash),
            _ => Err(D::Error::custom(format_args!("expected a hash of 16 hexadecimal digits, found {text:?}"))),
        }
    }
}
