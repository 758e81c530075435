//! The structure of a type's bytes, and the types that it is made of.

use super::definitions::Definitions;
use super::error::RosError;
use super::member::{Base, Member, Shape};
use crate::codec::schema::{MAX_DEPTH, MAX_NODES};
use crate::codec::{Field, Schema};
use std::collections::BTreeSet;

/// What a walk over a type and all types in it has found.
pub(super) struct Structure<'a> {
    /// None for services, actions, and types with a `wstring`.
    pub(super) schema: Option<Schema>,
    /// The types that it refers to, directly or over others, each once, in the order of their first use.
    pub(super) referenced: Vec<&'a str>,
}

/// Walks over a type by its full name.
pub(super) fn structure<'a>(definitions: &'a Definitions, root: &'a str) -> Result<Structure<'a>, RosError> {
    let mut walk =
        Walk { definitions, root, path: Vec::new(), parts: MAX_NODES, seen: BTreeSet::new(), referenced: Vec::new() };
    let schema = walk.message(root, 1)?;
    let service = definitions.find(root).is_some_and(|definition| definition.service);
    Ok(Structure { schema: schema.filter(|_| !service), referenced: walk.referenced })
}

/// A walk, bounded by the same limits as [`Schema::check`].
struct Walk<'a> {
    definitions: &'a Definitions,
    root: &'a str,
    /// The types around the present one.
    path: Vec<&'a str>,
    /// The number of parts that are still allowed.
    parts: usize,
    seen: BTreeSet<&'a str>,
    referenced: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn message(&mut self, name: &'a str, depth: usize) -> Result<Option<Schema>, RosError> {
        let (definitions, by) = (self.definitions, self.path.last().copied());
        let Some(definition) = definitions.find(name) else {
            return Err(RosError::Unknown { name: name.to_owned(), by: by.map(str::to_owned) });
        };
        self.refuse_cycle(name)?;
        if let Some(by) = by.filter(|_| definition.service) {
            self.refuse_service(name, by)?;
        }
        self.spend(depth)?;
        if by.is_some() && self.seen.insert(name) {
            self.referenced.push(name);
        }
        self.path.push(name);
        let mut fields = Some(Vec::new());
        for member in &definition.members {
            let schema = self.member(member, depth + 1)?;
            fields = fields.zip(schema).map(|(mut fields, schema)| {
                fields.push(Field { name: member.name.clone(), schema });
                fields
            });
        }
        self.path.pop();
        let name = name.rsplit('/').next().unwrap_or(name).to_owned();
        Ok(fields.map(|fields| Schema::Struct { name, fields }))
    }

    fn member(&mut self, member: &'a Member, depth: usize) -> Result<Option<Schema>, RosError> {
        if member.shape == Shape::One {
            return self.element(&member.base, depth);
        }
        self.spend(depth)?;
        let element = self.element(&member.base, depth + 1)?.map(Box::new);
        Ok(element.map(|element| match member.shape {
            Shape::Array(len) => Schema::Array { len, element },
            _ => Schema::Sequence(element),
        }))
    }

    fn element(&mut self, base: &'a Base, depth: usize) -> Result<Option<Schema>, RosError> {
        if let Some(name) = self.definitions.nested(base) {
            return self.message(name, depth);
        }
        self.spend(depth)?;
        Ok(match base {
            Base::Primitive(primitive) => Some(primitive.schema()),
            Base::String(_) => Some(Schema::String),
            _ => None, // middlewares encode `wstring` differently
        })
    }

    fn refuse_cycle(&self, name: &str) -> Result<(), RosError> {
        match self.path.iter().position(|around| *around == name) {
            None => Ok(()),
            Some(begin) => {
                let mut path: Vec<String> = self.path.iter().skip(begin).map(|name| (*name).to_owned()).collect();
                path.push(name.to_owned());
                Err(RosError::Cycle { path })
            }
        }
    }

    /// Services are fields of services and actions only.
    fn refuse_service(&self, name: &str, by: &str) -> Result<(), RosError> {
        match self.definitions.find(by) {
            Some(around) if around.service => Ok(()),
            _ => Err(RosError::NotMessage { name: name.to_owned(), by: by.to_owned() }),
        }
    }

    /// Counts one part at this depth.
    fn spend(&mut self, depth: usize) -> Result<(), RosError> {
        if depth > MAX_DEPTH {
            return Err(RosError::Levels { name: self.root.to_owned() });
        }
        let parts = self.parts.checked_sub(1);
        self.parts = parts.ok_or_else(|| RosError::Parts { name: self.root.to_owned() })?;
        Ok(())
    }
}
