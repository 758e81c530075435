//! A schema in OMG IDL 4.2: options, enums with content and maps, too, as the unions and structs whose bytes in CDR are the same.

use std::fmt::Write as _;
use thalweg::codec::{Field, Idl, Schema, Variant};

/// The module around all definitions.
const MODULE: &str = "thalweg";

/// The full name and the text of a type; `None`: it has no bytes, or a name that IDL does not take.
pub(super) fn text(name: &str, schema: &Schema) -> Option<(String, String)> {
    let mut writer = Definer::default();
    let root = match schema {
        Schema::Struct { name, fields } => writer.structure(name, fields)?,
        other => {
            let fields = [Field { name: "data".to_owned(), schema: other.clone() }];
            writer.structure(&identifier(name), &fields)?
        }
    };
    let text = format!("module {MODULE} {{\n{}}};\n", writer.text);
    Idl::new().add("schema", &text).ok()?;
    Some((format!("{MODULE}::{root}"), text))
}

/// Letters, digits and underscores, a letter first.
fn identifier(name: &str) -> String {
    let kept: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let begins = kept.starts_with(|c: char| c.is_ascii_alphabetic());
    if begins { kept } else { format!("T{kept}") }
}

/// The definitions so far, in the order of their use.
#[derive(Default)]
struct Definer {
    text: String,
    /// Names that are taken, with what they stand for.
    defined: Vec<(String, Schema)>,
}

impl Definer {
    /// The name of a type that is written once; `define` writes it.
    fn named(
        &mut self,
        wanted: &str,
        schema: &Schema,
        define: impl FnOnce(&mut Self, &str) -> Option<()>,
    ) -> Option<String> {
        if let Some((name, _)) = self.defined.iter().find(|(_, other)| other == schema) {
            return Some(name.clone());
        }
        let wanted = identifier(wanted);
        let taken = |name: &str| self.defined.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let numbered = (2u32..).map(|n| format!("{wanted}{n}"));
        let name = std::iter::once(wanted.clone()).chain(numbered).find(|name| !taken(name))?;
        self.defined.push((name.clone(), schema.clone()));
        define(self, &name)?;
        Some(name)
    }

    fn structure(&mut self, name: &str, fields: &[Field]) -> Option<String> {
        let schema = Schema::Struct { name: name.to_owned(), fields: fields.to_vec() };
        self.named(name, &schema, |this, name| {
            let members = this.members(fields)?;
            let _ = write!(this.text, "@final\nstruct {name} {{\n{members}}};\n");
            (!members.is_empty()).then_some(())
        })
    }

    fn members(&mut self, fields: &[Field]) -> Option<String> {
        let mut members = String::new();
        for Field { name, schema } in fields.iter().filter(|field| has_bytes(&field.schema)) {
            let _ = match schema {
                Schema::Array { len, element } => {
                    writeln!(members, "  {} {}[{len}];", self.element(element)?, identifier(name))
                }
                one => writeln!(members, "  {} {};", self.element(one)?, identifier(name)),
            };
        }
        Some(members)
    }

    fn element(&mut self, schema: &Schema) -> Option<String> {
        if let Some(simple) = simple(schema) {
            return Some(simple.to_owned());
        }
        match schema {
            Schema::Sequence(element) => {
                let element = self.element(element)?;
                let apart = if element.ends_with('>') { " " } else { "" }; // `>>` is a shift
                Some(format!("sequence<{element}{apart}>"))
            }
            Schema::Array { len, element } => self.named("Array", schema, |this, name| {
                let element = this.element(element)?;
                writeln!(this.text, "typedef {element} {name}[{len}];").ok()
            }),
            Schema::Tuple(elements) => {
                let numbered = elements.iter().enumerate();
                let field = |(n, schema): (usize, &Schema)| Field { name: format!("field{n}"), schema: schema.clone() };
                self.structure("Tuple", &numbered.map(field).collect::<Vec<_>>())
            }
            Schema::Option(value) => self.named("Optional", schema, |this, name| {
                let member = this.members(&[Field { name: "value".to_owned(), schema: (**value).clone() }])?;
                if member.is_empty() {
                    return None; // a case without a member is none
                }
                write!(this.text, "union {name} switch (boolean) {{\n  case TRUE:\n{member}}};\n").ok()
            }),
            Schema::Map { key, value } => {
                let field = |name: &str, schema: &Schema| Field { name: name.to_owned(), schema: schema.clone() };
                let entry = self.structure("Entry", &[field("key", key), field("value", value)])?;
                Some(format!("sequence<{entry}>"))
            }
            Schema::Struct { name, fields } => self.structure(name, fields),
            Schema::Enum { name, variants } => self.choice(name, variants, schema),
            _ => None,
        }
    }

    /// An enum whose variants have no content is one in IDL, too, of 32 bits; with content it is a union.
    fn choice(&mut self, name: &str, variants: &[Variant], schema: &Schema) -> Option<String> {
        self.named(name, schema, |this, name| {
            if variants.iter().all(|variant| variant.schema.is_none()) {
                let names: Vec<String> = variants.iter().map(|variant| identifier(&variant.name)).collect();
                return writeln!(this.text, "enum {name} {{ {} }};", names.join(", ")).ok();
            }
            let mut cases = String::new();
            for (index, variant) in variants.iter().enumerate() {
                let Some(content) = variant.schema.as_ref().filter(|content| has_bytes(content)) else { continue };
                // A member may not have the name of its type.
                let name = format!("{}_value", variant.name);
                let member = this.members(&[Field { name, schema: content.clone() }])?;
                let _ = write!(cases, "  case {index}:\n{member}");
            }
            write!(this.text, "union {name} switch (unsigned long) {{\n{cases}}};\n").ok()
        })
    }
}

/// `false` for values that have no bytes: they are left out.
fn has_bytes(schema: &Schema) -> bool {
    match schema {
        Schema::Unit | Schema::Array { len: 0, .. } => false,
        Schema::Struct { fields, .. } => fields.iter().any(|field| has_bytes(&field.schema)),
        Schema::Tuple(elements) => elements.iter().any(has_bytes),
        Schema::Array { element, .. } => has_bytes(element),
        _ => true,
    }
}

/// A Rust `char` has 32 bits, unlike IDL's.
fn simple(schema: &Schema) -> Option<&'static str> {
    Some(match schema {
        Schema::Bool => "boolean",
        Schema::U8 => "uint8",
        Schema::U16 => "uint16",
        Schema::U32 | Schema::Char => "uint32",
        Schema::U64 => "uint64",
        Schema::I8 => "int8",
        Schema::I16 => "int16",
        Schema::I32 => "int32",
        Schema::I64 => "int64",
        Schema::F32 => "float",
        Schema::F64 => "double",
        Schema::String => "string",
        _ => return None,
    })
}
