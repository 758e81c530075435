//! What is known of the texts: types, constants and modules by their full names.

use super::error::IdlError;
use crate::codec::Schema;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Types, constants and modules by their names with all modules around them, such as `robot::msg::Arm`.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) types: BTreeMap<String, Definition>,
    /// Constants, and enumerators, which are names of the scope around their enum (OMG IDL 4.2, 7.4.1.4.4.4.3).
    pub(super) constants: BTreeMap<String, Value>,
    pub(super) modules: BTreeSet<String>,
}

/// One type.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) kind: Kind,
    pub(super) file: Arc<str>,
    pub(super) line: usize,
}

/// The content of a definition. Lines are no part of it, so that equal definitions in two files are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Struct {
        base: Option<ScopedName>,
        members: Vec<Member>,
    },
    Enum(Vec<String>),
    Typedef(Shaped),
    /// One that can be read, but not described.
    Unsupported(Unsupported, Line),
}

/// A line, counted from 1. Two of them are always equal: the place of a definition is no part of what it says.
#[derive(Clone, Copy, Debug, Eq)]
pub(super) struct Line(pub(super) usize);

impl PartialEq for Line {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// One member of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) shaped: Shaped,
    pub(super) is_key: bool,
    pub(super) is_optional: bool,
    pub(super) line: Line,
}

/// A type with the sizes of an array of it, outermost first; no sizes: one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shaped {
    /// Shared by all declarators of one member.
    pub(super) of_type: Arc<Type>,
    pub(super) sizes: Vec<u32>,
}

/// A type without array sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A number, a truth value or a string. Bounds of strings do not show in the bytes.
    Simple(Schema),
    Sequence(Box<Type>),
    Named(ScopedName),
    Unsupported(Unsupported),
}

/// A name as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScopedName {
    /// `true` if it begins with `::`.
    pub(super) is_absolute: bool,
    pub(super) path: String,
}

/// The value of a constant expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Integer(i128),
    Boolean(bool),
    /// A text, a floating-point number, an enumerator, or what follows from a name that is not known. Nothing depends on these.
    Other,
}

/// What can be read, but not described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsupported {
    WChar,
    WString,
    LongDouble,
    Fixed,
    Map,
    Any,
    Union,
    Bitmask,
    Bitset,
    Native,
    Interface,
    Valuetype,
    Exception,
    Mutable,
    Values,
    BitBound,
}

impl Unsupported {
    /// Its name, and the reason.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::WChar => ("wchar", "middlewares encode it differently"),
            Self::WString => ("wstring", "middlewares encode it differently"),
            Self::LongDouble => ("long double", "a schema has no floating-point number of 128 bit"),
            Self::Fixed => ("fixed", "DDS has no such type"),
            Self::Map => ("map", "its bytes were never compared with those of another middleware"),
            Self::Any => ("any", "its bytes do not tell its type"),
            Self::Union => ("a union", "a schema has no discriminators"),
            Self::Bitmask => ("a bitmask", "a schema has no names of single bits"),
            Self::Bitset => ("a bitset", "a schema has no parts of a byte"),
            Self::Native => ("a native type", "it has no bytes"),
            Self::Interface => ("an interface", "it has operations, no bytes"),
            Self::Valuetype => ("a valuetype", "DDS has no such type"),
            Self::Exception => ("an exception", "DDS has no such type"),
            Self::Mutable => ("a @mutable struct", "its bytes are a parameter list, which Thalweg does not read"),
            Self::Values => (
                "an enum with other values than 0, 1, 2 ...",
                "a schema numbers variants in the order of their declaration",
            ),
            Self::BitBound => ("an enum with a @bit_bound other than 32", "a schema's enums have 32 bit"),
        }
    }
}

impl Tree {
    /// `true` if a full name is that of anything here.
    pub(super) fn has(&self, full: &str) -> bool {
        self.types.contains_key(full) || self.constants.contains_key(full) || self.modules.contains(full)
    }

    /// Takes all of `fresh`, or nothing.
    pub(super) fn take(&mut self, fresh: Self) -> Result<(), IdlError> {
        let differs = |name: &String| Err(IdlError::Differs { name: name.clone() });
        for (name, definition) in &fresh.types {
            if self.types.get(name).is_some_and(|present| present.kind != definition.kind) {
                return differs(name);
            }
        }
        for (name, value) in &fresh.constants {
            if self.constants.get(name).is_some_and(|present| present != value) {
                return differs(name);
            }
        }
        self.types.extend(fresh.types);
        self.constants.extend(fresh.constants);
        self.modules.extend(fresh.modules);
        Ok(())
    }
}

/// The full name that a name in a scope means (OMG IDL 4.2, 7.5.2): its first part is looked up from the innermost scope outwards,
/// the others only in what that is.
pub(super) fn resolve(scope: &str, name: &ScopedName, has: impl Fn(&str) -> bool) -> Option<String> {
    let first = name.path.split("::").next().unwrap_or_default();
    let mut around = if name.is_absolute { "" } else { scope };
    while !has(&join(around, first)) {
        if around.is_empty() {
            return None;
        }
        around = outer(around);
    }
    Some(join(around, &name.path)).filter(|full| has(full))
}

/// The scope around a full name; empty outside of all modules.
pub(super) fn outer(full: &str) -> &str {
    full.rsplit_once("::").map_or("", |(scope, _)| scope)
}

/// A name in a scope.
pub(super) fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}::{name}") }
}
