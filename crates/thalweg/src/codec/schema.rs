//! The structure of a message type: sent to others as JSON, compared by its hash, and sufficient to read the bytes.

#[cfg(test)]
mod tests;
mod text;
mod trace;

use super::ros::{RosError, RosType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The deepest [`Schema`] that is traced or accepted from others.
pub(super) const MAX_DEPTH: usize = 32;
/// The most parts (types, fields, variants) of a [`Schema`] that is traced or accepted from others.
pub(super) const MAX_NODES: usize = 4096;
/// The longest name of a struct, field, enum or variant in a schema, in bytes.
pub(super) const MAX_NAME: usize = 255;

/// One named field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub schema: Schema,
}

/// One variant of an enum; its index counts in the order of the declaration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its content: none, one value, a tuple, or a struct with the variant's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
}

/// The structure of a type, as far as its CDR bytes show it. As JSON: `"f64"`, `{"sequence":"u8"}`,
/// `{"struct":{"name":"Time","fields":[{"name":"sec","schema":"i32"}, …]}}`.
///
/// Newtype structs are their contents, tuple structs are tuples, tuples of one type are arrays, sets and byte buffers
/// are sequences: their bytes are the same. As text ([`Display`](std::fmt::Display)) it is canonical: equal
/// structures give equal text, different ones different text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schema {
    /// `bool`.
    Bool,
    /// Unsigned, 8 bit.
    U8,
    /// Unsigned, 16 bit.
    U16,
    /// Unsigned, 32 bit.
    U32,
    /// Unsigned, 64 bit.
    U64,
    /// Signed, 8 bit.
    I8,
    /// Signed, 16 bit.
    I16,
    /// Signed, 32 bit.
    I32,
    /// Signed, 64 bit.
    I64,
    /// IEEE 754, 32 bit.
    F32,
    /// IEEE 754, 64 bit.
    F64,
    /// A Unicode scalar value.
    Char,
    /// UTF-8 text.
    String,
    /// A value without content: `()`, a unit struct.
    Unit,
    /// Any number of elements of one type.
    Sequence(Box<Schema>),
    /// A fixed number of elements of one type.
    Array {
        /// The number of elements.
        len: u32,
        /// Their type.
        element: Box<Schema>,
    },
    /// A fixed number of elements of different types.
    Tuple(Vec<Schema>),
    /// A value or none.
    Option(Box<Schema>),
    /// Keys with a value each.
    Map {
        /// The keys' type.
        key: Box<Schema>,
        /// The values' type.
        value: Box<Schema>,
    },
    /// Named fields.
    Struct {
        /// Its name, without its path.
        name: String,
        /// Its fields in the order of their bytes.
        fields: Vec<Field>,
    },
    /// One of some variants.
    Enum {
        /// Its name, without its path.
        name: String,
        /// Its variants in the order of their index.
        variants: Vec<Variant>,
    },
}

impl Schema {
    /// 64-bit FNV-1a of the canonical text: the same in every process, on every host, with every compiler.
    pub fn hash(&self) -> u64 {
        text::hash(format_args!("{self}"))
    }

    /// Refuses schemas that could do harm: more than 32 levels, more than 4096 parts, names longer than 255 bytes,
    /// two fields or variants of one name.
    ///
    /// # Errors
    /// [`SchemaError`] with the limit that is passed.
    pub fn check(&self) -> Result<(), SchemaError> {
        self.check_within(1, &mut { MAX_NODES })
    }

    /// Its approximate size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let names = match self {
            Self::Struct { name, fields } => {
                name.len() + fields.iter().map(|f| f.name.len() + size_of::<Field>()).sum::<usize>()
            }
            Self::Enum { name, variants } => {
                name.len() + variants.iter().map(|v| v.name.len() + size_of::<Variant>()).sum::<usize>()
            }
            _ => 0,
        };
        size_of::<Self>() + names + self.children().map(Schema::weight).sum::<usize>()
    }

    /// Checks this part at `depth`, with `nodes` parts still allowed.
    fn check_within(&self, depth: usize, nodes: &mut usize) -> Result<(), SchemaError> {
        if depth > MAX_DEPTH {
            return Err(SchemaError::Levels);
        }
        let spent = match self {
            Self::Struct { name, fields } if fields.len() <= *nodes => {
                check_names(name, fields.iter().map(|field| &field.name)).map(|_| 1)?
            }
            Self::Enum { name, variants } if variants.len() <= *nodes => {
                1 + check_names(name, variants.iter().map(|variant| &variant.name))?
            }
            Self::Struct { .. } | Self::Enum { .. } => usize::MAX, // more than remains, which need not be read
            _ => 1,
        };
        *nodes = nodes.checked_sub(spent).ok_or(SchemaError::Parts)?;
        self.children().try_for_each(|child| child.check_within(depth + 1, nodes))
    }

    /// The types this one is made of.
    fn children(&self) -> Box<dyn Iterator<Item = &Schema> + '_> {
        match self {
            Self::Sequence(element) | Self::Array { element, .. } | Self::Option(element) => {
                Box::new(std::iter::once(&**element))
            }
            Self::Map { key, value } => Box::new([&**key, &**value].into_iter()),
            Self::Tuple(elements) => Box::new(elements.iter()),
            Self::Struct { fields, .. } => Box::new(fields.iter().map(|field| &field.schema)),
            Self::Enum { variants, .. } => Box::new(variants.iter().filter_map(|variant| variant.schema.as_ref())),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// A type description beyond the limits, or one that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaError {
    /// More than 32 levels.
    Levels,
    /// More than 4096 parts.
    Parts,
    /// A name of more than 255 bytes.
    Name {
        /// Its length in bytes.
        length: usize,
    },
    /// Two fields or variants of one name.
    Twice {
        /// The struct or enum.
        owner: String,
        /// The name.
        name: String,
    },
    /// A hash that differs from the schema's.
    Hash {
        /// The type.
        name: String,
        /// The schema's hash.
        schema: u64,
        /// The hash that was stated.
        stated: u64,
    },
    /// What is stated of a type of ROS 2.
    Ros(RosError),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Levels => write!(f, "expected a schema of at most {MAX_DEPTH} levels, found more"),
            Self::Parts => write!(f, "expected a schema of at most {MAX_NODES} parts, found more"),
            Self::Name { length } => {
                write!(f, "expected names of at most {MAX_NAME} bytes in a schema, found one of {length}")
            }
            Self::Twice { owner, name } => write!(f, "expected different names in {owner}, found {name:?} twice"),
            Self::Hash { name, schema, stated } => {
                write!(f, "expected the hash {schema:016x} of the schema of {name}, found {stated:016x}")
            }
            Self::Ros(wrong) => wrong.fmt(f),
        }
    }
}

impl std::error::Error for SchemaError {}

/// Checks the names in a struct or enum; returns the number of fields or variants.
fn check_names<'a>(owner: &str, names: impl Iterator<Item = &'a String>) -> Result<usize, SchemaError> {
    let fits = |name: &str| match name.len() {
        0..=MAX_NAME => Ok(()),
        length => Err(SchemaError::Name { length }),
    };
    fits(owner)?;
    let mut seen = BTreeSet::new();
    for name in names {
        fits(name)?;
        if !seen.insert(name) {
            return Err(SchemaError::Twice { owner: owner.to_owned(), name: name.clone() });
        }
    }
    Ok(seen.len())
}

/// Name, hash and structure of a message type, which a publisher and a subscriber compare when they match. Its copies share the structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeDescription {
    /// The type's name without its path. `*` takes any type.
    pub name: String,
    /// 64-bit FNV-1a of the canonical structure (or of the name where the structure is not known). 0 for `*`.
    /// In JSON 16 hexadecimal digits, as not every reader of JSON has 64-bit numbers.
    #[serde(with = "text::hexadecimal")]
    pub hash: u64,
    /// The structure, where the codec knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Arc<Schema>>,
    /// The type of ROS 2 that it is, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ros: Option<Arc<RosType>>,
}

impl TypeDescription {
    /// Describes `T` by the requests of its `Deserialize`: the fields of each struct in order, each variant of each
    /// enum, one element for all of a sequence.
    ///
    /// The name is that of the struct or enum in serde; for other types it is a text such as `string` or
    /// `sequence<u8>`. A type that cannot be traced (one that contains itself, that accepts only certain texts, that
    /// has more than 4096 parts) is known by its name only, as [`opaque`](Self::opaque).
    ///
    /// This runs `T`'s `Deserialize` at least once and allocates: meant for the creation of a port.
    pub fn of<T: DeserializeOwned>() -> Self {
        let traced = trace::trace::<T>();
        match (traced.schema, traced.name) {
            (Some(schema), name) => {
                let name = name.map_or_else(|| schema.short_name(), str::to_owned);
                Self { name, hash: schema.hash(), schema: Some(Arc::new(schema)), ros: None }
            }
            (None, Some(name)) => Self::opaque(name),
            (None, None) => Self::opaque(&text::without_paths(std::any::type_name::<T>())),
        }
    }

    /// Describes the type of this structure, as [`of`](Self::of) does for a type that is known when it is compiled.
    pub fn structured(schema: Schema) -> Self {
        let name = match &schema {
            Schema::Struct { name, .. } | Schema::Enum { name, .. } => name.clone(),
            other => other.short_name(),
        };
        Self { name, hash: schema.hash(), schema: Some(Arc::new(schema)), ros: None }
    }

    /// A type known by its name only.
    pub fn opaque(name: &str) -> Self {
        Self { name: name.to_owned(), hash: text::hash(format_args!("{name}")), schema: None, ros: None }
    }

    /// The plain-old-data type `T`: its memory is its message, so size, alignment and byte order count too.
    pub(super) fn plain<T>() -> Self {
        let name = text::without_paths(std::any::type_name::<T>());
        let (size, align) = (size_of::<T>(), align_of::<T>());
        let order = if cfg!(target_endian = "little") { "little" } else { "big" };
        let hash = text::hash(format_args!("plain {name} size {size} align {align} {order}-endian"));
        Self { name, hash, schema: None, ros: None }
    }

    /// The description by which a subscriber asks for any type.
    pub fn any() -> Self {
        Self { name: "*".to_owned(), hash: 0, schema: None, ros: None }
    }

    /// `true` if it stands for any type.
    pub fn is_any(&self) -> bool {
        self.name == "*"
    }

    /// `true` if a subscriber that asks for `self` can read samples of a publisher of `offered`. Two types of ROS 2 have to be the same
    /// one there, too.
    pub fn accepts(&self, offered: &TypeDescription) -> bool {
        let same = |own: &RosType, other: &RosType| own.name == other.name && own.type_hash == other.type_hash;
        match (&self.ros, &offered.ros) {
            _ if self.is_any() => true,
            (Some(own), Some(other)) if !same(own, other) => false,
            // The hash of a type of ROS 2 stands for the structure where an end does not know that.
            (Some(_), Some(_)) if self.schema.is_none() || offered.schema.is_none() => true,
            _ => self.name == offered.name && self.hash == offered.hash,
        }
    }

    /// Its approximate size in memory beyond its own, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let schema = self.schema.as_deref().map_or(0, Schema::weight);
        self.name.len() + schema + self.ros.as_deref().map_or(0, RosType::weight)
    }

    /// Checks a peer's description: its schema is within the limits of [`Schema::check`], and the hash is that of the
    /// schema. Without a schema there is nothing to check the hash against. Of a type of ROS 2 only the form is checked
    /// ([`RosType::check`]).
    ///
    /// # Errors
    /// [`SchemaError`] with the limit that is passed, or with both hashes.
    pub fn check(&self) -> Result<(), SchemaError> {
        self.ros.as_deref().map_or(Ok(()), RosType::check).map_err(SchemaError::Ros)?;
        let Some(schema) = &self.schema else { return Ok(()) };
        schema.check()?;
        match schema.hash() {
            hash if hash == self.hash => Ok(()),
            schema => Err(SchemaError::Hash { name: self.name.clone(), schema, stated: self.hash }),
        }
    }
}
