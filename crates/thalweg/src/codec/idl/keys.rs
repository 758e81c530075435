//! The key members of a struct, as dotted paths.

use super::MAX_PATH;
use super::error::IdlError;
use super::structure::{find, structure};
use super::tree::{Definition, Kind, Member, Tree, Type};

/// The paths of the key members of a type by its full name; none, if it has no key.
pub(super) fn keys(tree: &Tree, root: &str) -> Result<Vec<String>, IdlError> {
    structure(tree, root)?; // so it has no cycles, and is within the limits
    let mut found = Keys { tree, paths: Vec::new() };
    if let Some((full, definition)) = tree.types.get_key_value(root) {
        let start = Place { full, definition };
        if let Some(start) = found.struct_behind(start) {
            found.add(start, "", false);
        }
    }
    Ok(found.paths)
}

/// A type.
#[derive(Clone, Copy)]
struct Place<'a> {
    full: &'a str,
    definition: &'a Definition,
}

struct Keys<'a> {
    tree: &'a Tree,
    paths: Vec<String>,
}

impl<'a> Keys<'a> {
    /// Adds the paths of a struct's key members. If it has none and `is_key` itself, all its members are: this is how DDS-XTypes 1.3
    /// makes a KeyHolder of a type.
    fn add(&mut self, place: Place<'a>, prefix: &str, is_key: bool) {
        let members = self.members(place);
        let has_keys = members.iter().any(|(_, member)| member.is_key);
        if !has_keys && !is_key {
            return;
        }
        for (owner, member) in members {
            if has_keys && !member.is_key {
                continue;
            }
            let path = format!("{prefix}{}", member.name);
            let nested = if member.shaped.sizes.is_empty() {
                self.named(owner, &member.shaped.of_type).and_then(|place| self.struct_behind(place))
            } else {
                None
            };
            match nested {
                Some(nested) => self.add(nested, &format!("{path}."), true),
                None => self.paths.push(path),
            }
        }
    }

    /// The members of a struct, each with the struct that declares it: first those of its base.
    fn members(&self, place: Place<'a>) -> Vec<(&'a str, &'a Member)> {
        let (mut chain, mut next) = (Vec::new(), Some(place));
        while let Some(place) = next.filter(|_| chain.len() < MAX_PATH) {
            let Kind::Struct { base, members } = &place.definition.kind else { break };
            chain.push((place.full, members));
            let base = base.as_ref().and_then(|name| find(self.tree, place.full, name));
            next = base.map(|(full, definition)| Place { full, definition });
        }
        let each = chain.into_iter().rev();
        each.flat_map(|(owner, members)| members.iter().map(move |member| (owner, member))).collect()
    }

    /// The type of a name.
    fn named(&self, by: &str, of_type: &Type) -> Option<Place<'a>> {
        let Type::Named(name) = of_type else { return None };
        find(self.tree, by, name).map(|(full, definition)| Place { full, definition })
    }

    /// The struct that a type is, maybe by typedefs.
    fn struct_behind(&self, mut place: Place<'a>) -> Option<Place<'a>> {
        for _ in 0..=MAX_PATH {
            match &place.definition.kind {
                Kind::Struct { .. } => return Some(place),
                Kind::Typedef(shaped) if shaped.sizes.is_empty() => place = self.named(place.full, &shaped.of_type)?,
                _ => return None,
            }
        }
        None
    }
}
