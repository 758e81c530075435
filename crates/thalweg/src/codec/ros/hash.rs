//! The type hash RIHS01 (REP-2011): SHA-256 over the JSON of a `type_description_interfaces/msg/TypeDescription`.
//!
//! The JSON is that of Python's `json.dumps` with the separators `", "` and `": "`, without default values, and with the
//! referenced types sorted by name (`rosidl_generator_type_description`, `calculate_type_hash`). Names of ROS 2 need no escapes.

use super::definitions::Definitions;
use super::member::{Base, Member, Primitive, Shape};
use sha2_const_stable::Sha256;
use std::fmt::Write;

/// Stands before the digits: the version of the rules.
pub(super) const VERSION: &str = "RIHS01_";

/// The hash of a type by its full name, with those of the types that it refers to.
pub(super) fn type_hash(definitions: &Definitions, root: &str, referenced: &[&str]) -> String {
    let mut sorted = referenced.to_vec();
    sorted.sort_unstable();
    let referenced: Vec<String> = sorted.iter().map(|name| individual(definitions, name)).collect();
    let json = format!(
        "{{\"type_description\": {}, \"referenced_type_descriptions\": [{}]}}",
        individual(definitions, root),
        referenced.join(", ")
    );
    let mut text = VERSION.to_owned();
    for byte in Sha256::new().update(json.as_bytes()).finalize() {
        let _ = write!(text, "{byte:02x}"); // writing to a `String` cannot fail
    }
    text
}

/// An `IndividualTypeDescription`.
fn individual(definitions: &Definitions, name: &str) -> String {
    let members: &[Member] = match definitions.find(name) {
        Some(definition) => &definition.members,
        None => &[],
    };
    let fields: Vec<String> = members.iter().map(|member| field(definitions, member)).collect();
    format!("{{\"type_name\": \"{name}\", \"fields\": [{}]}}", fields.join(", "))
}

/// A `Field`.
fn field(definitions: &Definitions, member: &Member) -> String {
    let (offset, capacity) = match member.shape {
        Shape::One => (0, 0),
        Shape::Array(size) => (48, size),
        Shape::Bounded(size) => (96, size),
        Shape::Unbounded => (144, 0),
    };
    let string_capacity = match member.base {
        Base::String(bound) | Base::WString(bound) => bound.unwrap_or(0),
        _ => 0,
    };
    format!(
        "{{\"name\": \"{}\", \"type\": {{\"type_id\": {}, \"capacity\": {capacity}, \
         \"string_capacity\": {string_capacity}, \"nested_type_name\": \"{}\"}}}}",
        member.name,
        offset + type_id(&member.base),
        definitions.nested(&member.base).unwrap_or_default()
    )
}

/// The number in `type_description_interfaces/msg/FieldType`. Arrays, bounded and unbounded sequences have theirs 48, 96 and 144 above.
fn type_id(base: &Base) -> u32 {
    match base {
        Base::Nested(_) | Base::Header(_) => 1,
        Base::Primitive(primitive) => match primitive {
            Primitive::Int8 => 2,
            Primitive::UInt8 => 3,
            Primitive::Int16 => 4,
            Primitive::UInt16 => 5,
            Primitive::Int32 => 6,
            Primitive::UInt32 => 7,
            Primitive::Int64 => 8,
            Primitive::UInt64 => 9,
            Primitive::Float32 => 10,
            Primitive::Float64 => 11,
            Primitive::Bool => 15,
            Primitive::Byte => 16,
        },
        Base::String(None) => 17,
        Base::WString(None) => 18,
        Base::String(Some(_)) => 21,
        Base::WString(Some(_)) => 22,
    }
}
