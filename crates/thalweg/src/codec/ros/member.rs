//! Fields of a message, and their types.

use super::name::TypeName;
use crate::codec::Schema;

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) base: Base,
    pub(super) shape: Shape,
}

/// The type of a field or of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Primitive(Primitive),
    /// With the most characters, if that is bounded.
    String(Option<u32>),
    WString(Option<u32>),
    /// Another type, by its full name.
    Nested(String),
    /// `Header` without a package: the one of the own package, whose full name this is, or else that of `std_msgs`, as in ROS 1.
    Header(String),
}

/// The number of a field's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    Array(u32),
    Bounded(u32),
    Unbounded,
}

/// A number or a truth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Primitive {
    Bool,
    Byte,
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float32,
    Float64,
}

impl Member {
    /// The field that a message without fields has in its bytes and in its hash (`rosidl_adapter`, `struct.idl.em`): IDL has no
    /// empty structs.
    pub(super) fn hidden() -> Self {
        let name = "structure_needs_at_least_one_member".to_owned();
        Self { name, base: Base::Primitive(Primitive::UInt8), shape: Shape::One }
    }
}

impl Shape {
    /// Reads what stands between the brackets: nothing, `N` or `<=N`.
    fn parse(size: &str) -> Option<Self> {
        match size.strip_prefix("<=") {
            Some(bound) => number(bound).map(Self::Bounded),
            None if size.is_empty() => Some(Self::Unbounded),
            None => number(size).map(Self::Array),
        }
    }
}

impl Base {
    /// Reads a type without brackets, in a definition of this package.
    fn parse(package: &str, text: &str) -> Option<Self> {
        match text.split_once("<=") {
            Some(("string", bound)) => return number(bound).map(|bound| Self::String(Some(bound))),
            Some(("wstring", bound)) => return number(bound).map(|bound| Self::WString(Some(bound))),
            Some(_) => return None,
            None => {}
        }
        match text {
            "string" => Some(Self::String(None)),
            "wstring" => Some(Self::WString(None)),
            "Header" if package != "std_msgs" => Some(Self::Header(format!("{package}/msg/Header"))),
            _ => Primitive::named(text).map(Self::Primitive).or_else(|| nested(package, text)),
        }
    }
}

/// Reads the type of a field, such as `float64[9]`, in a definition of this package.
pub(super) fn field_type(package: &str, text: &str) -> Option<(Base, Shape)> {
    let (element, shape) = match text.strip_suffix(']') {
        None => (text, Shape::One),
        Some(open) => {
            let (element, size) = open.rsplit_once('[')?;
            (element, Shape::parse(size)?)
        }
    };
    Some((Base::parse(package, element)?, shape))
}

/// A type by its name, with or without its package.
fn nested(package: &str, text: &str) -> Option<Base> {
    let name = if text.contains('/') { TypeName::parse(text) } else { TypeName::parse(&format!("{package}/{text}")) };
    name.map(|name| Base::Nested(name.to_string()))
}

/// A size: CDR has room for 32 bits, and a size of 0 is none in ROS 2.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u32>().ok().filter(|number| digits && *number > 0)
}

impl Primitive {
    /// `char` is an unsigned number of 8 bits in ROS 2 (`rosidl_adapter`, `MSG_TYPE_TO_IDL`).
    fn named(text: &str) -> Option<Self> {
        Some(match text {
            "bool" => Self::Bool,
            "byte" => Self::Byte,
            "int8" => Self::Int8,
            "uint8" | "char" => Self::UInt8,
            "int16" => Self::Int16,
            "uint16" => Self::UInt16,
            "int32" => Self::Int32,
            "uint32" => Self::UInt32,
            "int64" => Self::Int64,
            "uint64" => Self::UInt64,
            "float32" => Self::Float32,
            "float64" => Self::Float64,
            _ => return None,
        })
    }

    /// The structure of its bytes.
    pub(super) fn schema(self) -> Schema {
        match self {
            Self::Bool => Schema::Bool,
            Self::Byte | Self::UInt8 => Schema::U8,
            Self::Int8 => Schema::I8,
            Self::Int16 => Schema::I16,
            Self::UInt16 => Schema::U16,
            Self::Int32 => Schema::I32,
            Self::UInt32 => Schema::U32,
            Self::Int64 => Schema::I64,
            Self::UInt64 => Schema::U64,
            Self::Float32 => Schema::F32,
            Self::Float64 => Schema::F64,
        }
    }
}
