//! A schema as a definition of ROS 2 (`.msg`, with those of its parts), if it fits one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use thalweg::codec::{Definitions, Field, Schema};

/// The package of types that have none in ROS 2.
const PACKAGE: &str = "thalweg";
/// The field of a message whose value is no struct.
const DATA: &str = "data";

/// The full name and the text of a type; `None`: ROS 2 has no definition with these bytes. `full` is its name in ROS 2, if it has one.
///
/// Definitions are written without regard to ROS 2's rules, and read again: only what gives the same structure fits.
pub(super) fn text(full: Option<&str>, name: &str, schema: &Schema) -> Option<(String, String)> {
    let wrapped;
    let fields: &[Field] = match schema {
        Schema::Struct { fields, .. } => fields,
        Schema::Unit => return None,
        other => {
            wrapped = [Field { name: DATA.to_owned(), schema: other.clone() }];
            &wrapped[..]
        }
    };
    let full = full.map_or_else(|| format!("{PACKAGE}/msg/{}", type_name(name, schema)), str::to_owned);
    let package = full.split('/').next().unwrap_or(PACKAGE);
    let mut parts = Parts { package, texts: BTreeMap::new() };
    let mut text = parts.fields(fields)?;
    for (name, part) in &parts.texts {
        let _ = write!(text, "{}\nMSG: {package}/{name}\n{part}", "=".repeat(80));
    }
    reads_as(&full, &text, fields).then_some((full, text))
}

/// A name for a type by that of its schema: `string` is `String`.
fn type_name(name: &str, schema: &Schema) -> String {
    let name = if let Schema::Struct { name, .. } = schema { name } else { name };
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| format!("{}{}", word[..1].to_ascii_uppercase(), &word[1..])).collect()
}

fn reads_as(full: &str, text: &str, fields: &[Field]) -> bool {
    let mut definitions = Definitions::new();
    let read = definitions.add_concatenated(full, text).and_then(|()| definitions.describe(full));
    let read = read.ok().and_then(|found| found.schema);
    matches!(read.as_deref(), Some(Schema::Struct { fields: found, .. }) if found == fields)
}

/// The definitions of the structs within a type, by their names.
struct Parts<'a> {
    package: &'a str,
    texts: BTreeMap<String, String>,
}

impl Parts<'_> {
    fn fields(&mut self, fields: &[Field]) -> Option<String> {
        let mut text = String::new();
        for Field { name, schema } in fields {
            let _ = writeln!(text, "{} {name}", self.shaped(schema)?);
        }
        Some(text)
    }

    fn shaped(&mut self, schema: &Schema) -> Option<String> {
        match schema {
            Schema::Sequence(element) => Some(format!("{}[]", self.element(element)?)),
            Schema::Array { len, element } => Some(format!("{}[{len}]", self.element(element)?)),
            one => self.element(one),
        }
    }

    fn element(&mut self, schema: &Schema) -> Option<String> {
        let name = match schema {
            Schema::Bool => "bool",
            Schema::U8 => "uint8",
            Schema::U16 => "uint16",
            Schema::U32 => "uint32",
            Schema::U64 => "uint64",
            Schema::I8 => "int8",
            Schema::I16 => "int16",
            Schema::I32 => "int32",
            Schema::I64 => "int64",
            Schema::F32 => "float32",
            Schema::F64 => "float64",
            Schema::String => "string",
            Schema::Struct { name, fields } => return self.part(name, fields),
            _ => return None,
        };
        Some(name.to_owned())
    }

    /// A struct of the same name as another one has to be the same.
    fn part(&mut self, name: &str, fields: &[Field]) -> Option<String> {
        let text = self.fields(fields)?;
        let same = self.texts.get(name).is_none_or(|other| *other == text);
        self.texts.insert(name.to_owned(), text);
        same.then(|| format!("{}/{name}", self.package))
    }
}
