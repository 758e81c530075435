//! The structure of a type's bytes.

use super::MAX_PATH;
use super::error::IdlError;
use super::tree::{Definition, Kind, Member, ScopedName, Shaped, Tree, Type, Unsupported, outer, resolve};
use crate::codec::schema::{MAX_DEPTH, MAX_NODES};
use crate::codec::{Field, Schema, Variant};
use std::collections::BTreeSet;

/// The structure of a type by its full name.
pub(super) fn structure(tree: &Tree, root: &str) -> Result<Schema, IdlError> {
    let (root, definition) = tree.types.get_key_value(root).ok_or_else(|| IdlError::unknown(root, None))?;
    Walk { tree, root, path: Vec::new(), parts: MAX_NODES }.named(root, definition, 1)
}

/// The type that a name in the definition `by` means: its full name and its definition.
pub(super) fn find<'a>(tree: &'a Tree, by: &str, name: &ScopedName) -> Option<(&'a str, &'a Definition)> {
    let full = resolve(outer(by), name, |full| tree.has(full))?;
    tree.types.get_key_value(&full).map(|(full, definition)| (full.as_str(), definition))
}

/// A walk over a type and all types in it, bounded by the same limits as [`Schema::check`].
struct Walk<'a> {
    tree: &'a Tree,
    root: &'a str,
    /// The types around the present one, with typedefs and derived structs.
    path: Vec<&'a str>,
    /// The number of parts that are still allowed.
    parts: usize,
}

impl<'a> Walk<'a> {
    fn named(&mut self, full: &'a str, definition: &'a Definition, depth: usize) -> Result<Schema, IdlError> {
        self.enter(full)?;
        let name = full.rsplit("::").next().unwrap_or(full).to_owned();
        let schema = match &definition.kind {
            Kind::Struct { base, members } => {
                self.spend(1, depth)?;
                let mut fields = Vec::new();
                self.members(full, base.as_ref(), members, depth + 1, &mut fields)?;
                different(definition, &fields)?;
                Schema::Struct { name, fields }
            }
            Kind::Enum(variants) => {
                self.spend(variants.len().saturating_add(1), depth)?;
                let variants = variants.iter().map(|name| Variant { name: name.clone(), schema: None }).collect();
                Schema::Enum { name, variants }
            }
            Kind::Typedef(shaped) => self.shaped(full, shaped, definition.line, depth)?,
            Kind::Unsupported(what, line) => return Err(self.unsupported(full, *what, line.0)),
        };
        self.path.pop();
        Ok(schema)
    }

    /// The members of a struct: first those of its base (DDS-XTypes 1.3, 7.2.2.4.5).
    fn members(
        &mut self,
        full: &'a str,
        base: Option<&'a ScopedName>,
        members: &'a [Member],
        depth: usize,
        fields: &mut Vec<Field>,
    ) -> Result<(), IdlError> {
        if let Some(name) = base {
            let (base, definition) = self.find(full, name)?;
            self.enter(base)?;
            match &definition.kind {
                Kind::Struct { base: next, members } => self.members(base, next.as_ref(), members, depth, fields)?,
                Kind::Unsupported(what, line) => return Err(self.unsupported(base, *what, line.0)),
                _ => return Err(IdlError::Base { name: base.to_owned(), by: full.to_owned() }),
            }
            self.path.pop();
        }
        for member in members {
            let schema = self.member(full, member, depth)?;
            fields.push(Field { name: member.name.clone(), schema });
        }
        Ok(())
    }

    fn member(&mut self, by: &'a str, member: &'a Member, depth: usize) -> Result<Schema, IdlError> {
        if !member.is_optional {
            return self.shaped(by, &member.shaped, member.line.0, depth);
        }
        self.spend(1, depth)?;
        let value = self.shaped(by, &member.shaped, member.line.0, depth + 1)?;
        Ok(Schema::Option(Box::new(value)))
    }

    /// A type with the sizes of an array.
    fn shaped(&mut self, by: &'a str, shaped: &'a Shaped, line: usize, depth: usize) -> Result<Schema, IdlError> {
        let mut inner = depth;
        for _ in &shaped.sizes {
            self.spend(1, inner)?;
            inner += 1;
        }
        let element = self.element(by, &shaped.of_type, line, inner)?;
        let array = |element, len: &u32| Schema::Array { len: *len, element: Box::new(element) };
        Ok(shaped.sizes.iter().rev().fold(element, array))
    }

    fn element(&mut self, by: &'a str, of_type: &'a Type, line: usize, depth: usize) -> Result<Schema, IdlError> {
        match of_type {
            Type::Simple(schema) => {
                self.spend(1, depth)?;
                Ok(schema.clone())
            }
            Type::Sequence(element) => {
                self.spend(1, depth)?;
                Ok(Schema::Sequence(Box::new(self.element(by, element, line, depth + 1)?)))
            }
            Type::Named(name) => {
                let (full, definition) = self.find(by, name)?;
                self.named(full, definition, depth)
            }
            Type::Unsupported(what) => Err(self.unsupported(by, *what, line)),
        }
    }

    fn find(&self, by: &str, name: &ScopedName) -> Result<(&'a str, &'a Definition), IdlError> {
        find(self.tree, by, name).ok_or_else(|| IdlError::unknown(&name.path, Some(by)))
    }

    /// Puts a type on the path, on which it must not be already.
    fn enter(&mut self, full: &'a str) -> Result<(), IdlError> {
        if let Some(begin) = self.path.iter().position(|around| *around == full) {
            let mut path: Vec<String> = self.path.iter().skip(begin).map(|name| (*name).to_owned()).collect();
            path.push(full.to_owned());
            return Err(IdlError::Cycle { path });
        }
        if self.path.len() >= MAX_PATH {
            return Err(IdlError::Levels { name: self.root.to_owned() });
        }
        // A typedef or a base adds no part, but takes time.
        self.parts = self.parts.checked_sub(1).ok_or_else(|| IdlError::Parts { name: self.root.to_owned() })?;
        self.path.push(full);
        Ok(())
    }

    /// Counts parts at this depth.
    fn spend(&mut self, parts: usize, depth: usize) -> Result<(), IdlError> {
        if depth > MAX_DEPTH {
            return Err(IdlError::Levels { name: self.root.to_owned() });
        }
        self.parts = self.parts.checked_sub(parts).ok_or_else(|| IdlError::Parts { name: self.root.to_owned() })?;
        Ok(())
    }

    fn unsupported(&self, name: &str, what: Unsupported, line: usize) -> IdlError {
        let file = self.tree.types.get(name).map_or_else(String::new, |definition| definition.file.to_string());
        let (found, reason) = what.words();
        IdlError::Unsupported { file, line, name: name.to_owned(), found, reason }
    }
}

/// A struct may not have a member of the same name as its base (within one struct, the parser looks).
fn different(definition: &Definition, fields: &[Field]) -> Result<(), IdlError> {
    let mut names = BTreeSet::new();
    match fields.iter().find(|field| !names.insert(field.name.as_str())) {
        None => Ok(()),
        Some(twice) => {
            let (file, name) = (definition.file.to_string(), twice.name.clone());
            Err(IdlError::Twice { file, line: definition.line, name })
        }
    }
}
