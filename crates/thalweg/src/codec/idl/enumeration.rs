//! Enums (OMG IDL 4.2, 7.4.1.4.4.4.3), and the types that can be read but not described.

use super::annotation::Annotations;
use super::error::IdlError;
use super::parse::Parser;
use super::tree::{Kind, Line, Unsupported, Value};
use crate::codec::schema::MAX_NODES;
use std::collections::BTreeSet;

/// The enumerators so far.
#[derive(Default)]
struct Enumerators {
    variants: Vec<String>,
    names: BTreeSet<String>,
    /// The value of the next one, if it has no `@value`.
    next: i128,
    unsupported: Option<(Unsupported, Line)>,
}

impl Parser<'_> {
    /// Reads an enum up to its `}`; its name. The values that are written are those of the declaration's order, or of `@value`
    /// (DDS-XTypes 1.3, 7.3.1.2.1), with as many bits as `@bit_bound` says, 32 without it.
    pub(super) fn enumeration(&mut self, annotations: Annotations) -> Result<String, IdlError> {
        let line = self.cursor.line();
        self.cursor.advance()?;
        let name = self.cursor.identifier()?.to_owned();
        self.cursor.expect("{")?;
        let mut found = Enumerators::default();
        if annotations.bit_bound.is_some_and(|bits| bits != 32) {
            found.unsupported = Some((Unsupported::BitBound, Line(line)));
        }
        self.enumerator(&mut found)?;
        while self.cursor.eat(",")? {
            if found.variants.len() >= MAX_NODES {
                return Err(self.too_many(line));
            }
            self.enumerator(&mut found)?;
        }
        self.cursor.expect("}")?;
        let kind = match found.unsupported {
            Some((what, line)) => Kind::Unsupported(what, line),
            None => Kind::Enum(found.variants),
        };
        self.add_type(&name, kind, line)?;
        Ok(name)
    }

    fn enumerator(&mut self, found: &mut Enumerators) -> Result<(), IdlError> {
        let own = self.annotations()?;
        let line = self.cursor.line();
        let name = self.cursor.identifier()?.to_owned();
        if !found.names.insert(name.clone()) {
            return Err(self.twice(line, &name));
        }
        let value = own.value.unwrap_or(found.next);
        if usize::try_from(value) != Ok(found.variants.len()) && found.unsupported.is_none() {
            found.unsupported = Some((Unsupported::Values, Line(line)));
        }
        found.next = value.saturating_add(1);
        self.add_constant(&name, Value::Other)?;
        found.variants.push(name);
        Ok(())
    }

    /// Skips a definition that begins with one of the words of [`unsupported`], up to its `;`. Its name is kept: a type that refers to
    /// it can be refused with the reason.
    pub(super) fn unsupported(&mut self, what: Unsupported) -> Result<(), IdlError> {
        let line = self.cursor.line();
        self.cursor.advance()?;
        let name = self.cursor.identifier()?.to_owned();
        let is_forward = self.cursor.is(";") && what != Unsupported::Native;
        self.cursor.skip_definition()?;
        if is_forward { Ok(()) } else { self.add_type(&name, Kind::Unsupported(what, Line(line)), line) }
    }
}

/// The definition that begins with this word and that can only be skipped.
pub(super) fn unsupported(word: &str) -> Option<Unsupported> {
    Some(match word {
        "union" => Unsupported::Union,
        "bitmask" => Unsupported::Bitmask,
        "bitset" => Unsupported::Bitset,
        "native" => Unsupported::Native,
        "interface" => Unsupported::Interface,
        "valuetype" | "eventtype" => Unsupported::Valuetype,
        "exception" => Unsupported::Exception,
        _ => return None,
    })
}
