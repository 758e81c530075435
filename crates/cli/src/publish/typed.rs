//! Lines of standard input as values of a ROS 2 type.

use super::source::{Lines, Next, Source};
use crate::definitions::{describe, directories_or_installed};
use crate::failure::{Failure, Result};
use std::path::PathBuf;
use std::sync::Arc;
use thalweg::PublisherBuilder;
use thalweg::codec::{Schema, TypeDescription, Untyped, from_json};

/// A type that was found.
pub(super) struct Typed {
    message: TypeDescription,
    schema: Arc<Schema>,
}

/// Values in JSON, one in each line. Lines of blanks are skipped.
pub(super) struct Values {
    lines: Lines,
    number: u64,
    typed: Typed,
    encoded: Vec<u8>,
}

impl Values {
    /// Values of this type.
    pub(super) fn of(typed: Typed, lines: Lines) -> Self {
        Self { lines, number: 0, typed, encoded: Vec::new() }
    }
}

impl Typed {
    /// The type of this name, whose definitions are in these directories.
    pub(super) fn find(name: &str, directories: &[PathBuf]) -> Result<Self> {
        let message = describe(name, &directories_or_installed(directories)?)?;
        match message.schema.clone() {
            Some(schema) => Ok(Self { message, schema }),
            None => Err(Failure::Usage(format!(
                "--type {name}: a service, an action, or a message with a wstring, which middlewares encode differently; give a message without one"
            ))),
        }
    }
}

impl Source for Values {
    type Message = Untyped;

    fn next(&mut self) -> Result<Next<'_, Untyped>> {
        let text = match self.lines.next()? {
            Next::Sample(line, _) => line,
            Next::Nothing => return Ok(Next::Nothing),
            Next::End => return Ok(Next::End),
        };
        self.number += 1;
        if text.trim().is_empty() {
            return Ok(Next::Nothing);
        }
        self.encoded = encode(&self.typed.schema, text)
            .map_err(|wrong| Failure::Usage(format!("standard input, line {}{wrong}", self.number)))?;
        Ok(Next::Sample(&self.encoded[..], self.encoded.len()))
    }

    fn describe(&self, builder: PublisherBuilder<Untyped>) -> PublisherBuilder<Untyped> {
        builder.described(self.typed.message.clone())
    }
}

/// Encodes a value in JSON; an error continues the place of the line.
fn encode(schema: &Schema, text: &str) -> std::result::Result<Vec<u8>, String> {
    let json = serde_json::from_str(text).map_err(|wrong| {
        let what = wrong.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        format!(", column {}: {what}", wrong.column())
    })?;
    from_json(schema, &json).map_err(|wrong| format!(": {}", wrong.problem))
}
