//! Modules, structs, typedefs and constants (OMG IDL 4.2, 7.4.1.4 and 7.4.13).

use super::annotation::Annotations;
use super::cursor::{Cursor, FULL_NAME};
use super::enumeration::unsupported;
use super::error::IdlError;
use super::token::Token;
use super::tree::{Definition, Kind, Line, Member, ScopedName, Tree, Type, Unsupported, Value, join, resolve};
use crate::codec::Schema;
use crate::codec::schema::{MAX_DEPTH, MAX_NAME, MAX_NODES};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A text that is read, with what was read before.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    known: &'a Tree,
    file: Arc<str>,
    /// The module here, with those around it.
    scope: String,
    /// The modules around, each with those around it.
    outer: Vec<String>,
    found: Tree,
    /// Bytes that may still be kept: the full names of many enumerators in a module are longer than their text.
    room: usize,
}

/// Reads a text, of which at most `room` bytes are kept; gives the number, too. Constants of `known` may be referred to; types are
/// looked up later, so they may be added later, too.
pub(super) fn read(file: &str, text: &str, known: &Tree, room: usize) -> Result<(Tree, usize), IdlError> {
    let mut parser = Parser {
        cursor: Cursor::new(file, text)?,
        known,
        file: Arc::from(file),
        scope: String::new(),
        outer: Vec::new(),
        found: Tree::default(),
        room,
    };
    parser.keep(text.len())?;
    parser.definitions()?;
    Ok((parser.found, room - parser.room))
}

impl Parser<'_> {
    /// All definitions. Modules are kept in a list, not in calls within calls: a text may nest them as it likes.
    fn definitions(&mut self) -> Result<(), IdlError> {
        loop {
            match self.cursor.peek() {
                Token::End if self.outer.is_empty() => return Ok(()),
                Token::End => return Err(self.cursor.wrong("} at the end of a module")),
                Token::Symbol("}") => {
                    let Some(around) = self.outer.pop() else { return Err(self.cursor.wrong(DEFINITION)) };
                    self.scope = around;
                    self.cursor.advance()?;
                    self.cursor.expect(";")?;
                }
                _ => self.definition()?,
            }
        }
    }

    fn definition(&mut self) -> Result<(), IdlError> {
        let annotations = self.annotations()?;
        while let Token::Word("local" | "abstract" | "custom") = self.cursor.peek() {
            self.cursor.advance()?; // of interfaces and valuetypes
        }
        match self.cursor.peek() {
            Token::Word("module") => return self.module(),
            Token::Word("struct") => drop(self.structure(annotations)?),
            Token::Word("enum") => drop(self.enumeration(annotations)?),
            Token::Word("typedef") => self.typedef()?,
            Token::Word("const") => self.constant()?,
            Token::Word(word) => match unsupported(word) {
                Some(what) => self.unsupported(what)?,
                None => return Err(self.cursor.wrong(DEFINITION)),
            },
            Token::End | Token::Symbol("}") => return Ok(()), // after the declaration of an annotation
            _ => return Err(self.cursor.wrong(DEFINITION)),
        }
        self.cursor.expect(";")
    }

    fn module(&mut self) -> Result<(), IdlError> {
        if self.outer.len() >= MAX_DEPTH {
            return Err(self.cursor.wrong("at most 32 levels of modules"));
        }
        self.cursor.advance()?;
        let name = self.cursor.identifier()?;
        let full = self.full(name)?;
        self.cursor.expect("{")?;
        self.found.modules.insert(full.clone());
        self.outer.push(std::mem::replace(&mut self.scope, full));
        Ok(())
    }

    /// Reads a struct up to its `}`, or up to the `;` of a forward declaration, which says nothing; its name.
    fn structure(&mut self, annotations: Annotations) -> Result<String, IdlError> {
        let line = self.cursor.line();
        self.cursor.advance()?;
        let name = self.cursor.identifier()?.to_owned();
        if self.cursor.is(";") {
            return Ok(name);
        }
        let base = if self.cursor.eat(":")? { Some(self.cursor.scoped_name()?) } else { None };
        self.cursor.expect("{")?;
        let (mut members, mut names) = (Vec::new(), BTreeSet::new());
        while !self.cursor.eat("}")? {
            self.members(&mut members, &mut names)?;
        }
        let kind = match annotations.is_mutable {
            true => Kind::Unsupported(Unsupported::Mutable, Line(line)),
            false => Kind::Struct { base, members },
        };
        self.add_type(&name, kind, line)?;
        Ok(name)
    }

    /// Reads members of one type.
    fn members(&mut self, members: &mut Vec<Member>, names: &mut BTreeSet<String>) -> Result<(), IdlError> {
        let line = self.cursor.line();
        let own = self.annotations()?;
        if own.is_key && own.is_optional {
            return Err(IdlError::line(self.cursor.file(), line, "keys that are not optional", "@key @optional"));
        }
        let of_type = Arc::new(self.type_spec(1)?);
        loop {
            let line = self.cursor.line();
            let (name, shaped) = self.declarator(&of_type)?;
            if !names.insert(name.clone()) {
                return Err(self.twice(line, &name));
            }
            if names.len() > MAX_NODES {
                return Err(self.too_many(line));
            }
            self.keep(name.len() + size_of::<Member>())?;
            if !own.is_left_out {
                let (is_key, is_optional) = (own.is_key, own.is_optional);
                members.push(Member { name, shaped, is_key, is_optional, line: Line(line) });
            }
            if !self.cursor.eat(",")? {
                break;
            }
        }
        self.cursor.expect(";")
    }

    /// A typedef, whose type may be declared in it (OMG IDL 4.2, rule 64).
    fn typedef(&mut self) -> Result<(), IdlError> {
        self.cursor.advance()?;
        let annotations = self.annotations()?;
        let of_type = Arc::new(match self.cursor.peek() {
            Token::Word("struct") => self.declared(Self::structure, annotations)?,
            Token::Word("enum") => self.declared(Self::enumeration, annotations)?,
            _ => self.type_spec(1)?,
        });
        loop {
            let line = self.cursor.line();
            let (name, shaped) = self.declarator(&of_type)?;
            self.add_type(&name, Kind::Typedef(shaped), line)?;
            if !self.cursor.eat(",")? {
                return Ok(());
            }
        }
    }

    /// A type that `read` declares here, by its name.
    fn declared(
        &mut self,
        read: impl Fn(&mut Self, Annotations) -> Result<String, IdlError>,
        annotations: Annotations,
    ) -> Result<Type, IdlError> {
        let name = read(self, annotations)?;
        Ok(Type::Named(ScopedName { is_absolute: true, path: self.full(&name)? }))
    }

    /// A constant. Only whole numbers matter, in sizes; of the others only the grammar is checked.
    fn constant(&mut self) -> Result<(), IdlError> {
        self.cursor.advance()?;
        let of_type = self.type_spec(1)?;
        let name = self.cursor.identifier()?;
        self.cursor.expect("=")?;
        let wrong = self.cursor.wrong("a value of the constant's type, within its limits");
        let value = match (self.expression()?, range(&of_type)) {
            (Value::Integer(value), Some((least, most))) if value < least || value > most => return Err(wrong),
            (Value::Boolean(_), Some(_)) => return Err(wrong),
            (value, _) => value,
        };
        self.add_constant(name, value)
    }

    /// The value of a constant, by a name as it is written here.
    pub(super) fn constant_named(&self, name: &ScopedName) -> Value {
        let full = resolve(&self.scope, name, |full| self.found.has(full) || self.known.has(full));
        let find = |full: &String| self.found.constants.get(full).or_else(|| self.known.constants.get(full));
        full.as_ref().and_then(find).copied().unwrap_or(Value::Other)
    }

    pub(super) fn add_constant(&mut self, name: &str, value: Value) -> Result<(), IdlError> {
        let full = self.full(name)?;
        match self.found.constants.get(&full) {
            Some(present) if *present != value => Err(IdlError::Differs { name: full }),
            _ => {
                self.found.constants.insert(full, value);
                Ok(())
            }
        }
    }

    pub(super) fn add_type(&mut self, name: &str, kind: Kind, line: usize) -> Result<(), IdlError> {
        let full = self.full(name)?;
        match self.found.types.get(&full) {
            Some(present) if present.kind != kind => Err(IdlError::Differs { name: full }),
            Some(_) => Ok(()),
            None => {
                self.found.types.insert(full, Definition { kind, file: Arc::clone(&self.file), line });
                Ok(())
            }
        }
    }

    /// The full name of something in the module here.
    fn full(&mut self, name: &str) -> Result<String, IdlError> {
        let full = join(&self.scope, name);
        self.keep(full.len() + size_of::<Definition>())?;
        if full.len() > MAX_NAME { Err(self.cursor.wrong(FULL_NAME)) } else { Ok(full) }
    }

    /// Takes from the bytes that may be kept.
    fn keep(&mut self, bytes: usize) -> Result<(), IdlError> {
        let left = self.room.checked_sub(bytes);
        self.room = left.ok_or_else(|| IdlError::Texts { file: self.file.to_string() })?;
        Ok(())
    }

    pub(super) fn twice(&self, line: usize, name: &str) -> IdlError {
        IdlError::Twice { file: self.file.to_string(), line, name: name.to_owned() }
    }

    pub(super) fn too_many(&self, line: usize) -> IdlError {
        IdlError::Members { file: self.file.to_string(), line }
    }
}

const DEFINITION: &str = "module, struct, enum, typedef, const, or the end of a module";

/// The least and the greatest value of a whole number.
fn range(of_type: &Type) -> Option<(i128, i128)> {
    let Type::Simple(schema) = of_type else { return None };
    Some(match schema {
        Schema::U8 => (0, u8::MAX.into()),
        Schema::U16 => (0, u16::MAX.into()),
        Schema::U32 => (0, u32::MAX.into()),
        Schema::U64 => (0, u64::MAX.into()),
        Schema::I8 => (i8::MIN.into(), i8::MAX.into()),
        Schema::I16 => (i16::MIN.into(), i16::MAX.into()),
        Schema::I32 => (i32::MIN.into(), i32::MAX.into()),
        Schema::I64 => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    })
}
