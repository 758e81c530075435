//! The structure of a type, from which Cyclone finds the key of what is written.

use super::{Key, Part, Result, width};
use cyclone::{Layout, Member, Shape};
use thalweg::codec::Schema;

impl Key {
    /// The structure of the type, with its key.
    ///
    /// # Errors
    /// The part that plain CDR of DDS does not have.
    pub(in crate::dds) fn layout(&self) -> Result<Layout> {
        let mut found = Vec::new();
        members(&self.schema, &self.root, &mut found)?;
        Layout::new(&found).map_err(|wrong| wrong.to_string())
    }
}

/// The members of a struct, with those of the structs in it that have a part of the key.
fn members(schema: &Schema, part: &Part, found: &mut Vec<Member>) -> Result<()> {
    if let (Schema::Struct { fields, .. }, false) = (schema, part.is_key) {
        let nothing = Part::default();
        let parts = part.fields.iter().chain(std::iter::repeat(&nothing));
        return fields.iter().zip(parts).try_for_each(|(field, part)| members(&field.schema, part, found));
    }
    let mut shapes = Vec::new();
    self::shapes(schema, &mut shapes)?;
    found.extend(shapes.into_iter().map(|shape| Member { shape, is_key: part.is_key }));
    Ok(())
}

/// The parts of a value. No deeper than the schema is, which is at most 32 levels.
fn shapes(schema: &Schema, found: &mut Vec<Shape>) -> Result<()> {
    let all = |parts: &[&Schema]| {
        let mut found = Vec::new();
        parts.iter().try_for_each(|part| shapes(part, &mut found))?;
        Ok::<_, String>(found)
    };
    match schema {
        Schema::Unit => {}
        Schema::Bool => found.push(Shape::Bool),
        Schema::String => found.push(Shape::Text),
        Schema::Sequence(element) => found.push(Shape::Sequence(all(&[&**element])?)),
        Schema::Map { key, value } => found.push(Shape::Sequence(all(&[&**key, &**value])?)),
        Schema::Array { len, element } => {
            let parts = all(&[&**element])?;
            if *len > 0 && !parts.is_empty() {
                found.push(Shape::Array(*len, parts));
            }
        }
        Schema::Tuple(elements) => return elements.iter().try_for_each(|element| shapes(element, found)),
        Schema::Struct { fields, .. } => return fields.iter().try_for_each(|field| shapes(&field.schema, found)),
        Schema::Option(_) => {
            return Err("an optional member, which Thalweg writes as no version of CDR does".to_owned());
        }
        other => found.push(match width(other) {
            Some(1) => Shape::Bytes1,
            Some(2) => Shape::Bytes2,
            Some(4) => Shape::Bytes4,
            Some(8) => Shape::Bytes8,
            _ => return Err("an enum with content (a union)".to_owned()),
        }),
    }
    Ok(())
}
