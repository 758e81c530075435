//! The place in a text at which it is read, one token ahead.

use super::error::IdlError;
use super::token::{Token, Tokens};
use super::tree::ScopedName;
use crate::codec::schema::MAX_NAME;

pub(super) struct Cursor<'a> {
    tokens: Tokens<'a>,
    token: Token<'a>,
    line: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Result<Self, IdlError> {
        let mut cursor = Self { tokens: Tokens::new(file, text), token: Token::End, line: 1 };
        cursor.advance()?;
        Ok(cursor)
    }

    pub(super) fn file(&self) -> &'a str {
        self.tokens.file
    }

    /// The token here.
    pub(super) fn peek(&self) -> Token<'a> {
        self.token
    }

    /// The line of the token here, counted from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// Goes one token further.
    pub(super) fn advance(&mut self) -> Result<(), IdlError> {
        self.tokens.skip()?;
        self.line = self.tokens.line;
        self.token = self.tokens.token()?;
        Ok(())
    }

    pub(super) fn is(&self, symbol: &str) -> bool {
        self.token == Token::Symbol(symbol)
    }

    /// Goes further if this symbol is here.
    pub(super) fn eat(&mut self, symbol: &str) -> Result<bool, IdlError> {
        let is = self.is(symbol);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    /// Goes further if this word is here.
    pub(super) fn eat_word(&mut self, word: &str) -> Result<bool, IdlError> {
        let is = self.token == Token::Word(word);
        if is {
            self.advance()?;
        }
        Ok(is)
    }

    /// Goes beyond this symbol, which has to be here.
    pub(super) fn expect(&mut self, symbol: &'static str) -> Result<(), IdlError> {
        if self.eat(symbol)? { Ok(()) } else { Err(self.wrong(symbol)) }
    }

    /// Goes beyond a `>`. Of `>>`, the second stays: it closes the next sequence around.
    pub(super) fn close_angle(&mut self) -> Result<(), IdlError> {
        if self.is(">>") {
            self.token = Token::Symbol(">");
            return Ok(());
        }
        self.expect(">")
    }

    /// An identifier. An underscore before it only says that it is no keyword (OMG IDL 4.2, 7.2.3.2).
    pub(super) fn identifier(&mut self) -> Result<&'a str, IdlError> {
        let Token::Word(word) = self.token else { return Err(self.wrong(IDENTIFIER)) };
        let name = word.strip_prefix('_').unwrap_or(word);
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(self.wrong(IDENTIFIER));
        }
        self.advance()?;
        Ok(name)
    }

    /// `C`, `a::b::C` or `::a::b::C`.
    pub(super) fn scoped_name(&mut self) -> Result<ScopedName, IdlError> {
        let is_absolute = self.eat("::")?;
        let mut path = self.identifier()?.to_owned();
        while self.eat("::")? {
            let part = self.identifier()?;
            if path.len() + "::".len() + part.len() > MAX_NAME {
                return Err(self.wrong(FULL_NAME));
            }
            path.push_str("::");
            path.push_str(part);
        }
        Ok(ScopedName { is_absolute, path })
    }

    /// Goes to the `)` that closes a bracket, and beyond it.
    pub(super) fn skip_arguments(&mut self) -> Result<(), IdlError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.token {
                Token::End => return Err(self.wrong(")")),
                Token::Symbol("(") => depth += 1,
                Token::Symbol(")") => depth -= 1,
                _ => {}
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Goes to the `;` of a definition, which stays. Brackets in it are skipped.
    pub(super) fn skip_definition(&mut self) -> Result<(), IdlError> {
        let mut depth = 0_usize;
        loop {
            match self.token {
                Token::Symbol(";") if depth == 0 => return Ok(()),
                Token::Symbol("{" | "(" | "[") => depth += 1,
                Token::Symbol("}" | ")" | "]") => depth = depth.checked_sub(1).ok_or_else(|| self.wrong(";"))?,
                Token::End => return Err(self.wrong(";")),
                _ => {}
            }
            self.advance()?;
        }
    }

    /// The error of the token here.
    pub(super) fn wrong(&self, expected: &'static str) -> IdlError {
        IdlError::line(self.file(), self.line, expected, self.token.text())
    }
}

/// The expectations of names.
const IDENTIFIER: &str = "a name of at most 255 letters, digits and underscores";
pub(super) const FULL_NAME: &str = "a name of at most 255 bytes with its modules";
