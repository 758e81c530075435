//! Plans: the steps from a value to its bytes and back.
//!
//! The package `thalweg` makes a layout of each class, of texts and tuples:
//!
//! | layout | values in Python |
//! |---|---|
//! | `"bool"`, `"u8"` … `"f64"`, `"char"`, `"string"`, `"unit"` | `bool`, `int`, `float`, `str` of one character, `str`, `None` |
//! | `("bytes", length)` | `bytes`; `length` is `None` for a sequence |
//! | `("memory",)` | a read-only `memoryview` |
//! | `("numbers", number, length)` | a numpy array, without numpy a `memoryview` |
//! | `("sequence", element)`, `("array", length, element)` | `list` |
//! | `("tuple", [element, …])` | `tuple` |
//! | `("option", value)` | the value or `None` |
//! | `("map", key, value)` | `dict` |
//! | `("struct", name, class, [(attribute, field, layout), …])` | an object of the class |
//! | `("enum", name, (member, …), [name, …])` | a member of the enum |

use crate::error::UsageError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use thalweg::codec::{Field, Schema, Variant};

/// The deepest layout that is read: one level more than a schema may have.
const MAX_DEPTH: usize = 33;

/// A number of a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

/// Each number, its name, its size, its format in Python's `struct`, its type in numpy (little-endian), its schema.
static NUMBERS: [(Number, &str, usize, &str, &str, Schema); 11] = [
    (Number::Bool, "bool", 1, "?", "<?", Schema::Bool),
    (Number::U8, "u8", 1, "B", "<u1", Schema::U8),
    (Number::U16, "u16", 2, "H", "<u2", Schema::U16),
    (Number::U32, "u32", 4, "I", "<u4", Schema::U32),
    (Number::U64, "u64", 8, "Q", "<u8", Schema::U64),
    (Number::I8, "i8", 1, "b", "<i1", Schema::I8),
    (Number::I16, "i16", 2, "h", "<i2", Schema::I16),
    (Number::I32, "i32", 4, "i", "<i4", Schema::I32),
    (Number::I64, "i64", 8, "q", "<i8", Schema::I64),
    (Number::F32, "f32", 4, "f", "<f4", Schema::F32),
    (Number::F64, "f64", 8, "d", "<f8", Schema::F64),
];

impl Number {
    pub(super) fn named(name: &str) -> Option<Self> {
        NUMBERS.iter().find(|row| row.1 == name).map(|row| row.0)
    }
    pub(super) fn name(self) -> &'static str {
        NUMBERS[self as usize].1
    }
    /// Bytes, which are its alignment too.
    pub(super) fn size(self) -> usize {
        NUMBERS[self as usize].2
    }
    pub(super) fn format(self) -> &'static str {
        NUMBERS[self as usize].3
    }
    pub(super) fn dtype(self) -> &'static str {
        NUMBERS[self as usize].4
    }
    fn schema(self) -> Schema {
        NUMBERS[self as usize].5.clone()
    }
}

/// One step, with those that it consists of.
pub(super) enum Plan {
    Number(Number),
    Char,
    Text,
    Unit,
    /// A sequence of bytes, or with a length an array, as `bytes`.
    Bytes(Option<u32>),
    /// A sequence of bytes as a view.
    Memory,
    /// A sequence of numbers, or with a length an array, as a view.
    Numbers(Number, Option<u32>),
    Sequence(Box<Plan>),
    Array(u32, Box<Plan>),
    Tuple(Vec<Plan>),
    Option(Box<Plan>),
    Map(Box<Plan>, Box<Plan>),
    Struct {
        class: Py<PyAny>,
        fields: Vec<(Py<PyString>, Plan)>,
    },
    Enum {
        name: String,
        members: Vec<Py<PyAny>>,
    },
}

/// Reads a layout.
pub(super) fn read(layout: &Bound<'_, PyAny>) -> PyResult<(Plan, Schema)> {
    read_within(layout, MAX_DEPTH)
}

fn read_within(layout: &Bound<'_, PyAny>, depth: usize) -> PyResult<(Plan, Schema)> {
    let depth =
        depth.checked_sub(1).ok_or_else(|| UsageError::new_err("expected a type of at most 32 levels, found more"))?;
    if let Ok(name) = layout.cast::<PyString>() {
        return simple(&name.to_cow()?);
    }
    let parts = layout.cast::<PyTuple>().map_err(|_| unknown(layout))?;
    let part = |at: usize| parts.get_item(at);
    let within = |at: usize| part(at).and_then(|layout| read_within(&layout, depth));
    match part(0)?.extract::<String>()?.as_str() {
        "bytes" => {
            let length = part(1)?.extract()?;
            Ok((Plan::Bytes(length), sized(length, Schema::U8)))
        }
        "memory" => Ok((Plan::Memory, sized(None, Schema::U8))),
        "numbers" => {
            let (name, length): (String, Option<u32>) = (part(1)?.extract()?, part(2)?.extract()?);
            let number = Number::named(&name).ok_or_else(|| unknown(layout))?;
            Ok((Plan::Numbers(number, length), sized(length, number.schema())))
        }
        "sequence" => within(1).map(|(plan, schema)| (Plan::Sequence(Box::new(plan)), sized(None, schema))),
        "array" => {
            let length = part(1)?.extract()?;
            within(2).map(|(plan, schema)| (Plan::Array(length, Box::new(plan)), sized(Some(length), schema)))
        }
        "tuple" => tuple(&part(1)?, depth),
        "option" => within(1).map(|(plan, schema)| (Plan::Option(Box::new(plan)), Schema::Option(Box::new(schema)))),
        "map" => {
            let ((key, key_schema), (value, value_schema)) = (within(1)?, within(2)?);
            let schema = Schema::Map { key: Box::new(key_schema), value: Box::new(value_schema) };
            Ok((Plan::Map(Box::new(key), Box::new(value)), schema))
        }
        "struct" => structure(parts, depth),
        "enum" => enumeration(parts),
        _ => Err(unknown(layout)),
    }
}

fn simple(name: &str) -> PyResult<(Plan, Schema)> {
    match (Number::named(name), name) {
        (Some(number), _) => Ok((Plan::Number(number), number.schema())),
        (_, "char") => Ok((Plan::Char, Schema::Char)),
        (_, "string") => Ok((Plan::Text, Schema::String)),
        (_, "unit") => Ok((Plan::Unit, Schema::Unit)),
        _ => Err(UsageError::new_err(format!("expected a type that Thalweg has, found {name:?}"))),
    }
}

fn unknown(layout: &Bound<'_, PyAny>) -> PyErr {
    UsageError::new_err(format!("expected a layout of a type, found {layout}"))
}

/// A sequence, or with a length an array.
fn sized(length: Option<u32>, element: Schema) -> Schema {
    let element = Box::new(element);
    length.map_or(Schema::Sequence(element.clone()), |len| Schema::Array { len, element })
}

fn tuple(elements: &Bound<'_, PyAny>, depth: usize) -> PyResult<(Plan, Schema)> {
    let elements = elements.try_iter()?.map(|layout| read_within(&layout?, depth)).collect::<PyResult<Vec<_>>>()?;
    let (plans, schemas): (Vec<Plan>, Vec<Schema>) = elements.into_iter().unzip();
    // Tuples of one type are arrays: their bytes are the same.
    let schema = match schemas.split_first() {
        Some((first, rest)) if rest.iter().all(|schema| schema == first) => {
            sized(u32::try_from(schemas.len()).ok(), first.clone())
        }
        _ => Schema::Tuple(schemas),
    };
    Ok((Plan::Tuple(plans), schema))
}

fn structure(parts: &Bound<'_, PyTuple>, depth: usize) -> PyResult<(Plan, Schema)> {
    let (mut fields, mut schemas) = (Vec::new(), Vec::new());
    for field in parts.get_item(3)?.try_iter()? {
        let (attribute, name, layout): (String, String, Bound<'_, PyAny>) = field?.extract()?;
        let (plan, schema) = read_within(&layout, depth)?;
        fields.push((PyString::intern(parts.py(), &attribute).unbind(), plan));
        schemas.push(Field { name, schema });
    }
    let schema = Schema::Struct { name: parts.get_item(1)?.extract()?, fields: schemas };
    Ok((Plan::Struct { class: parts.get_item(2)?.unbind(), fields }, schema))
}

fn enumeration(parts: &Bound<'_, PyTuple>) -> PyResult<(Plan, Schema)> {
    let members =
        parts.get_item(2)?.try_iter()?.map(|member| member.map(Bound::unbind)).collect::<PyResult<Vec<_>>>()?;
    let names: Vec<String> = parts.get_item(3)?.extract()?;
    let name: String = parts.get_item(1)?.extract()?;
    let variants = names.into_iter().map(|name| Variant { name, schema: None }).collect();
    Ok((Plan::Enum { name: name.clone(), members }, Schema::Enum { name, variants }))
}
