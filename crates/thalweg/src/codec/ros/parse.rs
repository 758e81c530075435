//! The lines of a message: fields, constants, comments.

use super::error::RosError;
use super::member::{Base, Member, Shape, field_type};
use super::name::{is_lower, is_upper};
use super::value::{fits, uncommented};
use crate::codec::schema::MAX_NODES;
use std::collections::BTreeSet;

/// A part of a text that is read, and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'a> {
    pub(super) text: &'a str,
    /// The number of its first line in the whole text, counted from 1.
    pub(super) first_line: usize,
}

impl<'a> Section<'a> {
    /// A whole text.
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, first_line: 1 }
    }

    /// The parts before, between and behind lines of these characters only.
    pub(super) fn split(self, separator: &str) -> Vec<Section<'a>> {
        let (mut parts, mut first_line) = (Vec::new(), self.first_line);
        let (mut begin, mut end) = (0, 0);
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            let next = end + line.len();
            if line.trim_end() == separator {
                parts.push(Section { text: self.text.get(begin..end).unwrap_or_default(), first_line });
                (begin, first_line) = (next, self.first_line + index + 1);
            }
            end = next;
        }
        parts.push(Section { text: self.text.get(begin..).unwrap_or_default(), first_line });
        parts
    }
}

/// The definition that lines belong to.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Its name, for errors.
    pub(super) definition: &'a str,
    pub(super) package: &'a str,
}

/// Reads the fields of a message.
pub(super) fn message(place: Place<'_>, section: Section<'_>) -> Result<Vec<Member>, RosError> {
    let (mut members, mut names) = (Vec::new(), BTreeSet::new());
    for (index, text) in section.text.lines().enumerate() {
        let line = Line { place, number: section.first_line + index };
        let Some((name, member)) = line.read(text.trim())? else { continue };
        if !names.insert(name) {
            let (definition, name) = (place.definition.to_owned(), name.to_owned());
            return Err(RosError::Twice { definition, line: line.number, name });
        }
        if names.len() > MAX_NODES {
            return Err(RosError::Fields { definition: place.definition.to_owned() });
        }
        members.extend(member);
    }
    if members.is_empty() {
        members.push(Member::hidden());
    }
    Ok(members)
}

/// One line, for its errors.
struct Line<'a> {
    place: Place<'a>,
    number: usize,
}

impl Line<'_> {
    /// The name of a field or a constant, and the field. None in a line with neither.
    fn read<'t>(&self, text: &'t str) -> Result<Option<(&'t str, Option<Member>)>, RosError> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let (of_type, rest) = word(text, |character| character.is_whitespace() || character == '#');
        let ends_name = |character: char| character.is_whitespace() || matches!(character, '=' | '#');
        let (name, rest) = word(rest.trim_start(), ends_name);
        let rest = rest.trim_start();
        let Some(value) = rest.strip_prefix('=') else {
            let member = self.field(of_type, name, uncommented(rest))?;
            return Ok(Some((name, Some(member))));
        };
        self.constant(of_type, name, uncommented(value.trim_start()))?;
        Ok(Some((name, None)))
    }

    fn field(&self, of_type: &str, name: &str, default: &str) -> Result<Member, RosError> {
        let (base, shape) = self.field_type(of_type)?;
        if !is_lower(name) {
            return Err(self.wrong(
                "a field's name of at most 255 lower-case letters, digits and single underscores, a letter first",
                name,
            ));
        }
        if !default.is_empty() && !fits(&base, shape, default) {
            return Err(self.wrong("a default value of the field's type, within its limits", default));
        }
        Ok(Member { name: name.to_owned(), base, shape })
    }

    fn constant(&self, of_type: &str, name: &str, value: &str) -> Result<(), RosError> {
        let (base, shape) = self.field_type(of_type)?;
        let simple = matches!(base, Base::Primitive(_) | Base::String(None) | Base::WString(None));
        if !simple || shape != Shape::One {
            return Err(self.wrong("a constant's type: bool, byte, char, a number, string or wstring", of_type));
        }
        if !is_upper(name) {
            return Err(self.wrong(
                "a constant's name of at most 255 capitals, digits and single underscores, a letter first",
                name,
            ));
        }
        if !fits(&base, shape, value) {
            return Err(self.wrong("a value of the constant's type, within its limits", value));
        }
        Ok(())
    }

    fn field_type(&self, text: &str) -> Result<(Base, Shape), RosError> {
        field_type(self.place.package, text).ok_or_else(|| {
            self.wrong(
                "a type such as uint8, string<=32, float64[9], Pose[<=4] or geometry_msgs/Pose, sizes 1 to 4294967295",
                text,
            )
        })
    }

    fn wrong(&self, expected: &'static str, found: &str) -> RosError {
        RosError::line(self.place.definition, self.number, expected, found)
    }
}

/// The text up to the first character that ends it, and the rest with that character.
fn word(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}
