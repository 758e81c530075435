//! Finds the structure of a type by driving its `Deserialize` with invented values and recording its requests.
//!
//! One pass sees one variant of each enum. So the shape found is kept, each pass takes at every enum the first
//! variant that is not fully known, and passes follow until all is known. An enum is identified by its place in the
//! type, not by its name, so `Result<A, B>` and `Result<C, D>` in one type are no problem.

use super::{Field, MAX_DEPTH, Schema, Variant};
use crate::codec::CodecError;
use serde::de::value::U32Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, Visitor};

/// The knowledge of a type so far.
pub(super) struct Traced {
    /// Its name, if it is a struct or an enum.
    pub name: Option<&'static str>,
    /// Its structure, if it could be found.
    pub schema: Option<Schema>,
}

/// State of one type's tracing.
#[derive(Default)]
struct Run {
    name: Option<&'static str>,
    /// Types asked for.
    visits: usize,
    /// Places made, visited or not.
    places: usize,
    /// Places visited for the first time.
    found: usize,
}

/// Traces `T`.
pub(super) fn trace<T: DeserializeOwned>() -> Traced {
    let mut run = Run::default();
    let mut shape = Shape::default();
    while !shape.is_known() {
        let before = run.found;
        let failed = T::deserialize(Tracer::new(&mut shape, &mut run)).is_err();
        if failed || run.found == before {
            return Traced { name: run.name, schema: None };
        }
    }
    let schema = shape.to_schema().filter(|schema| schema.check().is_ok());
    Traced { name: run.name, schema }
}

/// The deserializer that records requests: it stands for the value at one place of a type.
struct Tracer<'a> {
    shape: &'a mut Shape,
    run: &'a mut Run,
    depth: usize,
}

impl<'a> Tracer<'a> {
    /// The tracer of a whole type.
    fn new(shape: &'a mut Shape, run: &'a mut Run) -> Self {
        Self { shape, run, depth: 1 }
    }

    /// Remembers the name of the type itself, not those of its parts.
    fn named(self, name: &'static str) -> Self {
        if self.depth == 1 {
            self.run.name.get_or_insert(name);
        }
        self
    }

    /// Records a type with `parts` parts at this place.
    fn note(self, kind: Kind, parts: usize) -> Result<Parts<'a>, CodecError> {
        self.run.visits += 1;
        if self.depth > MAX_DEPTH || self.run.visits > MAX_VISITS || parts > MAX_PLACES - self.run.places {
            return Err(CodecError::custom("the type has too many parts, or contains itself"));
        }
        if self.shape.set(&kind, parts) {
            self.run.found += 1;
            self.run.places += parts;
        } else if !self.shape.is(&kind, parts) {
            return Err(CodecError::custom("the type is not the same each time"));
        }
        Ok(Parts { shapes: self.shape.parts().iter_mut(), run: self.run, depth: self.depth + 1 })
    }
}

/// Methods for types without parts; each gets a made-up value (1, as some types refuse 0).
macro_rules! simple {
    ($($method:ident $visit:ident $value:literal $schema:expr),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
            self.note(Kind::Simple($schema), 0)?;
            visitor.$visit($value)
        }
    )*};
}

/// Methods for types that CDR cannot carry.
macro_rules! refused {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
            Err(CodecError::custom("the type is not one that CDR can carry"))
        }
    )*};
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = CodecError;

    simple!(
        deserialize_bool visit_bool false Schema::Bool,
        deserialize_u8 visit_u8 1 Schema::U8,
        deserialize_u16 visit_u16 1 Schema::U16,
        deserialize_u32 visit_u32 1 Schema::U32,
        deserialize_u64 visit_u64 1 Schema::U64,
        deserialize_i8 visit_i8 1 Schema::I8,
        deserialize_i16 visit_i16 1 Schema::I16,
        deserialize_i32 visit_i32 1 Schema::I32,
        deserialize_i64 visit_i64 1 Schema::I64,
        deserialize_f32 visit_f32 1.0 Schema::F32,
        deserialize_f64 visit_f64 1.0 Schema::F64,
        deserialize_char visit_char '1' Schema::Char,
        deserialize_str visit_str "1" Schema::String,
        deserialize_string visit_str "1" Schema::String,
        deserialize_bytes visit_bytes b"1" Schema::Sequence(Box::new(Schema::U8)),
        deserialize_byte_buf visit_bytes b"1" Schema::Sequence(Box::new(Schema::U8)),
    );
    refused!(deserialize_any, deserialize_ignored_any, deserialize_identifier, deserialize_i128, deserialize_u128);

    fn is_human_readable(&self) -> bool {
        false
    }
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        self.note(Kind::Simple(Schema::Unit), 0)?;
        visitor.visit_unit()
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        self.named(name).deserialize_unit(visitor)
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_newtype_struct(self.named(name))
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let mut parts = self.note(Kind::Option, 1)?;
        visitor.visit_some(parts.next()?)
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(self.note(Kind::Sequence, 1)?)
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_map(self.note(Kind::Map, 2)?)
    }
    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(self.note(Kind::Tuple, length)?)
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.named(name).deserialize_tuple(length, visitor)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_seq(self.named(name).note(Kind::Struct(name, fields), fields.len())?)
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        let Tracer { shape, run, depth } = self.named(name);
        Tracer { shape: &mut *shape, run: &mut *run, depth }.note(Kind::Enum(name, variants), variants.len())?;
        let index = shape.first_unknown();
        let content = shape.parts().get_mut(index).ok_or_else(|| CodecError::custom("the enum has no variants"))?;
        visitor.visit_enum(Choice { index, content: Tracer { shape: content, run, depth: depth + 1 } })
    }
}

/// The parts of one place, each returned once.
struct Parts<'a> {
    shapes: std::slice::IterMut<'a, Shape>,
    run: &'a mut Run,
    depth: usize,
}

impl Parts<'_> {
    fn next(&mut self) -> Result<Tracer<'_>, CodecError> {
        match self.shapes.next() {
            Some(shape) => Ok(Tracer { shape, run: self.run, depth: self.depth }),
            None => Err(CodecError::custom("the type asks for more than it has")),
        }
    }
}

impl<'de> de::SeqAccess<'de> for Parts<'_> {
    type Error = CodecError;
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        match self.shapes.len() {
            0 => Ok(None),
            _ => seed.deserialize(self.next()?).map(Some),
        }
    }
    fn size_hint(&self) -> Option<usize> {
        Some(self.shapes.len())
    }
}

impl<'de> de::MapAccess<'de> for Parts<'_> {
    type Error = CodecError;
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        de::SeqAccess::next_element_seed(self, seed)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, CodecError> {
        seed.deserialize(self.next()?)
    }
}

/// The variant that this pass takes.
struct Choice<'a> {
    index: usize,
    content: Tracer<'a>,
}

impl<'de, 'a> de::EnumAccess<'de> for Choice<'a> {
    type Error = CodecError;
    type Variant = Tracer<'a>;
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Tracer<'a>), CodecError> {
        let index = u32::try_from(self.index).map_err(CodecError::custom)?;
        let index: U32Deserializer<CodecError> = index.into_deserializer();
        Ok((seed.deserialize(index)?, self.content))
    }
}

impl<'de> de::VariantAccess<'de> for Tracer<'_> {
    type Error = CodecError;
    fn unit_variant(self) -> Result<(), CodecError> {
        self.note(Kind::Nothing, 0).map(drop)
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, CodecError> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(length, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_seq(self.note(Kind::Struct("", fields), fields.len())?)
    }
}

/// One place in a type. All together are the findings of tracing so far: a schema with blanks.
#[derive(Default)]
struct Shape {
    kind: Kind,
    parts: Vec<Shape>,
    /// Set once this place and all below it are known.
    known: bool,
}

/// The finding at a place.
#[derive(Clone, Debug, Default, PartialEq)]
enum Kind {
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
    fn set(&mut self, kind: &Kind, parts: usize) -> bool {
        let new = self.kind == Kind::Unknown;
        if new {
            self.kind = kind.clone();
            self.parts.resize_with(parts, Shape::default);
        }
        new
    }

    /// `true` if this stands here.
    fn is(&self, kind: &Kind, parts: usize) -> bool {
        self.kind == *kind && self.parts.len() == parts
    }

    /// The places below.
    fn parts(&mut self) -> &mut [Shape] {
        &mut self.parts
    }

    /// `true` if no place here and below is blank.
    fn is_known(&mut self) -> bool {
        self.known = self.known || (self.kind != Kind::Unknown && self.parts.iter_mut().all(Shape::is_known));
        self.known
    }

    /// The first part with a blank, or the first of all.
    fn first_unknown(&mut self) -> usize {
        self.parts.iter_mut().position(|part| !part.is_known()).unwrap_or(0)
    }

    /// The schema, if no place is blank.
    fn to_schema(&self) -> Option<Schema> {
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

/// The most types that may be requested in all passes together: ends the tracing of a type that never ends.
const MAX_VISITS: usize = 1 << 18;
/// The most places a type may have, each element of an array counted; the rest is bounded by [`Schema::check`].
const MAX_PLACES: usize = 1 << 16;
