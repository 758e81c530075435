//! Types of members, typedefs and constants, and their declarators (OMG IDL 4.2, 7.4.1.4.4 and 7.4.13).

use super::error::IdlError;
use super::parse::Parser;
use super::token::Token;
use super::tree::{Shaped, Type, Unsupported};
use crate::codec::Schema;
use crate::codec::schema::MAX_DEPTH;
use std::sync::Arc;

impl Parser<'_> {
    /// A type without array sizes, at this level of sequences.
    pub(super) fn type_spec(&mut self, depth: usize) -> Result<Type, IdlError> {
        if depth > MAX_DEPTH {
            return Err(self.cursor.wrong("at most 32 levels of sequences"));
        }
        let word = match self.cursor.peek() {
            Token::Word(word) => word,
            Token::Symbol("::") => return Ok(Type::Named(self.cursor.scoped_name()?)),
            _ => return Err(self.cursor.wrong(TYPE)),
        };
        if is_no_type(word) {
            return Err(self.cursor.wrong(TYPE));
        }
        if let Some(simple) = simple(word) {
            self.cursor.advance()?;
            return Ok(simple);
        }
        match word {
            "long" | "unsigned" | "string" | "wstring" | "sequence" | "map" | "fixed" => {
                self.cursor.advance()?;
                self.longer(word, depth)
            }
            _ => Ok(Type::Named(self.cursor.scoped_name()?)),
        }
    }

    /// A type of more than one word, behind the first.
    fn longer(&mut self, word: &str, depth: usize) -> Result<Type, IdlError> {
        Ok(match word {
            "long" if self.cursor.eat_word("long")? => Type::Simple(Schema::I64),
            "long" if self.cursor.eat_word("double")? => Type::Unsupported(Unsupported::LongDouble),
            "long" => Type::Simple(Schema::I32),
            "unsigned" => Type::Simple(self.unsigned()?),
            "string" => {
                self.bound()?;
                Type::Simple(Schema::String)
            }
            "wstring" => {
                self.bound()?;
                Type::Unsupported(Unsupported::WString)
            }
            "sequence" => Type::Sequence(Box::new(self.sequence(depth)?)),
            "map" => self.map(depth)?,
            _ => self.fixed()?,
        })
    }

    fn unsigned(&mut self) -> Result<Schema, IdlError> {
        if self.cursor.eat_word("short")? {
            return Ok(Schema::U16);
        }
        if !self.cursor.eat_word("long")? {
            return Err(self.cursor.wrong("short or long after unsigned"));
        }
        Ok(if self.cursor.eat_word("long")? { Schema::U64 } else { Schema::U32 })
    }

    /// The bound of a string, if there is one. It does not show in the bytes.
    fn bound(&mut self) -> Result<(), IdlError> {
        if self.cursor.eat("<")? {
            self.size(true)?;
            self.cursor.close_angle()?;
        }
        Ok(())
    }

    /// The elements of `<T>` or `<T, N>`. Annotations of elements (`@external`) do not change the bytes.
    fn sequence(&mut self, depth: usize) -> Result<Type, IdlError> {
        self.cursor.expect("<")?;
        self.annotations()?;
        let element = self.type_spec(depth + 1)?;
        if self.cursor.eat(",")? {
            self.size(true)?;
        }
        self.cursor.close_angle()?;
        Ok(element)
    }

    fn map(&mut self, depth: usize) -> Result<Type, IdlError> {
        self.cursor.expect("<")?;
        self.annotations()?;
        self.type_spec(depth + 1)?;
        self.cursor.expect(",")?;
        self.annotations()?;
        self.type_spec(depth + 1)?;
        if self.cursor.eat(",")? {
            self.size(true)?;
        }
        self.cursor.close_angle()?;
        Ok(Type::Unsupported(Unsupported::Map))
    }

    /// `<digits, scale>`, which the `fixed` of a constant does not have.
    fn fixed(&mut self) -> Result<Type, IdlError> {
        if self.cursor.eat("<")? {
            self.size(true)?;
            self.cursor.expect(",")?;
            self.expression_in_angles()?;
            self.cursor.close_angle()?;
        }
        Ok(Type::Unsupported(Unsupported::Fixed))
    }

    /// A declarator: a name, and the sizes of an array, outermost first.
    pub(super) fn declarator(&mut self, of_type: &Arc<Type>) -> Result<(String, Shaped), IdlError> {
        let name = self.cursor.identifier()?.to_owned();
        let mut sizes = Vec::new();
        while self.cursor.eat("[")? {
            sizes.push(self.size(false)?);
            self.cursor.expect("]")?;
        }
        Ok((name, Shaped { of_type: Arc::clone(of_type), sizes }))
    }
}

const TYPE: &str = "a type such as long, string<32>, sequence<double, 8> or robot::Arm";

/// Words that begin something else. A type that is declared in place of its name is allowed in a typedef only (IDL 4.2, rule 64).
fn is_no_type(word: &str) -> bool {
    let constructed =
        matches!(word, "struct" | "union" | "enum" | "bitmask" | "bitset" | "interface" | "valuetype" | "native");
    constructed || matches!(word, "module" | "typedef" | "const" | "exception" | "void" | "switch" | "case" | "default")
}

/// The types of one word (OMG IDL 4.2, 7.4.1.4.4; `int8` to `uint64`: 7.4.13). A `char` has 8 bit.
fn simple(word: &str) -> Option<Type> {
    Some(Type::Simple(match word {
        "boolean" => Schema::Bool,
        "octet" | "uint8" | "char" => Schema::U8,
        "int8" => Schema::I8,
        "short" | "int16" => Schema::I16,
        "uint16" => Schema::U16,
        "int32" => Schema::I32,
        "uint32" => Schema::U32,
        "int64" => Schema::I64,
        "uint64" => Schema::U64,
        "float" => Schema::F32,
        "double" => Schema::F64,
        "wchar" => return Some(Type::Unsupported(Unsupported::WChar)),
        "any" | "Object" | "ValueBase" => return Some(Type::Unsupported(Unsupported::Any)),
        _ => return None,
    }))
}
