//! The findings of tracing so far: a schema with blanks.

use super::super::{Field, Schema, Variant};

/// One place in a type.
#[derive(Default)]
pub(super) struct Shape {
    kind: Kind,
    parts: Vec<Shape>,
    /// Set once this place and all below it are known.
    known: bool,
}

/// The finding at a place.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Kind {
    /// Not visited yet.
    #[default]
    Unknown,
    /// A type without parts.
    Simple(Schema),
    Sequence,
    Option,
    Map,
    Tuple,
    Struct(&'static str, &'static [&'static str]),
    Enum(&'static str, &'static [&'static str]),
    /// A variant without contents.
    Nothing,
}

impl Shape {
    /// Sets the type of this place; `true` if it was unknown before.
    pub(super) fn set(&mut self, kind: &Kind, parts: usize) -> bool {
        let new = self.kind == Kind::Unknown;
        if new {
            self.kind = kind.clone();
            self.parts.resize_with(parts, Shape::default);
        }
        new
    }

    /// `true` if this stands here.
    pub(super) fn is(&self, kind: &Kind, parts: usize) -> bool {
        self.kind == *kind && self.parts.len() == parts
    }

    /// The places below.
    pub(super) fn parts(&mut self) -> &mut [Shape] {
        &mut self.parts
    }

    /// `true` if no place here and below is blank.
    pub(super) fn is_known(&mut self) -> bool {
        self.known = self.known || (self.kind != Kind::Unknown && self.parts.iter_mut().all(Shape::is_known));
        self.known
    }

    /// The first part with a blank, or the first of all.
    pub(super) fn first_unknown(&mut self) -> usize {
        self.parts.iter_mut().position(|part| !part.is_known()).unwrap_or(0)
    }

    /// The schema, if no place is blank.
    pub(super) fn to_schema(&self) -> Option<Schema> {
        let mut parts = self.parts.iter().map(Shape::to_schema);
        let mut part = || parts.next()?.map(Box::new);
        Some(match &self.kind {
            Kind::Unknown | Kind::Nothing => return None,
            Kind::Simple(schema) => schema.clone(),
            Kind::Sequence => Schema::Sequence(part()?),
            Kind::Option => Schema::Option(part()?),
            Kind::Map => Schema::Map { key: part()?, value: part()? },
            Kind::Tuple => tuple(parts.collect::<Option<_>>()?)?,
            Kind::Struct(name, names) => Schema::Struct { name: (*name).to_owned(), fields: self.fields(names)? },
            Kind::Enum(name, names) => Schema::Enum { name: (*name).to_owned(), variants: self.variants(names)? },
        })
    }

    fn fields(&self, names: &[&str]) -> Option<Vec<Field>> {
        let field = |(name, part): (&&str, &Shape)| Some(Field { name: (*name).to_owned(), schema: part.to_schema()? });
        names.iter().zip(&self.parts).map(field).collect()
    }

    fn variants(&self, names: &[&str]) -> Option<Vec<Variant>> {
        let variant = |(name, part): (&&str, &Shape)| {
            let name = (*name).to_owned();
            let schema = match part.kind {
                Kind::Nothing => None,
                // The fields of a struct variant: named as the variant.
                Kind::Struct("", fields) => Some(Schema::Struct { name: name.clone(), fields: part.fields(fields)? }),
                _ => Some(part.to_schema()?),
            };
            Some(Variant { name, schema })
        };
        names.iter().zip(&self.parts).map(variant).collect()
    }
}

/// Serde does not distinguish arrays from tuples: a tuple of one type throughout is an array.
fn tuple(elements: Vec<Schema>) -> Option<Schema> {
    match elements.first() {
        Some(first) if elements.iter().all(|element| element == first) => {
            Some(Schema::Array { len: u32::try_from(elements.len()).ok()?, element: Box::new(first.clone()) })
        }
        _ => Some(Schema::Tuple(elements)),
    }
}
