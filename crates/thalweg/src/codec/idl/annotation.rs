//! Annotations (OMG IDL 4.2, 7.4.15; DDS-XTypes 1.3, 7.3.1.2).

use super::error::IdlError;
use super::parse::Parser;
use super::token::Token;
use super::tree::Value;

/// What annotations say about the bytes and the key. All others are skipped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Annotations {
    pub(super) is_key: bool,
    pub(super) is_optional: bool,
    pub(super) is_mutable: bool,
    /// Of a member that is not in the bytes.
    pub(super) is_left_out: bool,
    pub(super) bit_bound: Option<i128>,
    pub(super) value: Option<i128>,
}

impl Parser<'_> {
    /// Reads the annotations before something; there may be none. Their names may have capitals, as those of DDS-XTypes 1.0 have
    /// (`@Key`). Declarations of annotations are skipped, too.
    pub(super) fn annotations(&mut self) -> Result<Annotations, IdlError> {
        let mut found = Annotations::default();
        while self.cursor.eat("@")? {
            let name = self.cursor.scoped_name()?.path.to_ascii_lowercase();
            match name.as_str() {
                "key" => found.is_key = self.flag()?,
                "optional" => found.is_optional = self.flag()?,
                "non_serialized" => found.is_left_out = self.flag()?,
                "mutable" => found.is_mutable = true,
                "extensibility" => found.is_mutable = self.extensibility()?,
                "bit_bound" => found.bit_bound = Some(self.integer_argument()?),
                "value" => found.value = Some(self.integer_argument()?),
                "annotation" => {
                    self.cursor.skip_definition()?;
                    self.cursor.expect(";")?;
                }
                _ => self.arguments()?,
            }
        }
        Ok(found)
    }

    /// Skips arguments, if there are any.
    fn arguments(&mut self) -> Result<(), IdlError> {
        if self.cursor.eat("(")? { self.cursor.skip_arguments() } else { Ok(()) }
    }

    /// The argument of `@key` and the like; `TRUE` without one.
    fn flag(&mut self) -> Result<bool, IdlError> {
        if !self.cursor.eat("(")? {
            return Ok(true);
        }
        let wrong = self.cursor.wrong("TRUE or FALSE");
        match self.argument()? {
            Value::Boolean(flag) => Ok(flag),
            _ => Err(wrong),
        }
    }

    fn integer_argument(&mut self) -> Result<i128, IdlError> {
        self.cursor.expect("(")?;
        let wrong = self.cursor.wrong("a whole number");
        match self.argument()? {
            Value::Integer(number) => Ok(number),
            _ => Err(wrong),
        }
    }

    /// The value of `(3)` or `(value=3)`, behind the opening bracket.
    fn argument(&mut self) -> Result<Value, IdlError> {
        if self.cursor.eat_word("value")? {
            self.cursor.expect("=")?;
        }
        let value = self.expression()?;
        self.cursor.expect(")")?;
        Ok(value)
    }

    /// `true` for `(MUTABLE)`, and for the `(MUTABLE_EXTENSIBILITY)` of DDS-XTypes 1.0.
    fn extensibility(&mut self) -> Result<bool, IdlError> {
        self.cursor.expect("(")?;
        let is_mutable = match self.cursor.peek() {
            Token::Word(word) if word.starts_with("MUTABLE") => true,
            Token::Word(word) if word.starts_with("FINAL") || word.starts_with("APPENDABLE") => false,
            Token::Word(word) if word.starts_with("EXTENSIBLE") => false,
            _ => return Err(self.cursor.wrong("FINAL, APPENDABLE or MUTABLE")),
        };
        self.cursor.advance()?;
        self.cursor.expect(")")?;
        Ok(is_mutable)
    }
}
