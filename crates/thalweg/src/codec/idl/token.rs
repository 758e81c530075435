//! Words, numbers, literals and symbols of a text (OMG IDL 4.2, 7.2), without comments and lines of the preprocessor (7.3).

use super::error::IdlError;

/// One piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or an identifier, with the underscore that tells an identifier from a keyword.
    Word(&'a str),
    /// A number of any form.
    Number(&'a str),
    /// A string or a character in its quotes.
    Literal(&'a str),
    /// `::`, `<<`, `>>`, or one character.
    Symbol(&'a str),
    /// The end of the text.
    End,
}

impl<'a> Token<'a> {
    /// The text of the token, for errors.
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Number(text) | Self::Literal(text) | Self::Symbol(text) => text,
            Self::End => "the end of the text",
        }
    }
}

/// What is left of a text.
pub(super) struct Tokens<'a> {
    pub(super) file: &'a str,
    rest: &'a str,
    /// The line of `rest`, counted from 1.
    pub(super) line: usize,
    /// `true` if nothing but blanks and comments stands before `rest` in its line: the place of a line for the preprocessor.
    is_first: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1, is_first: true }
    }

    /// The next token. What stands before it has to be skipped first, and then `line` is its line.
    pub(super) fn token(&mut self) -> Result<Token<'a>, IdlError> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        let second = self.rest.chars().nth(1).unwrap_or(' ');
        self.is_first = false;
        match first {
            'L' if matches!(second, '"' | '\'') => self.literal(1, second), // a wide one
            '"' | '\'' => self.literal(0, first),
            'a'..='z' | 'A'..='Z' | '_' => Ok(Token::Word(self.take(length_of_word(self.rest)))),
            '0'..='9' => Ok(Token::Number(self.take(length_of_number(self.rest)))),
            '.' if second.is_ascii_digit() => Ok(Token::Number(self.take(length_of_number(self.rest)))),
            ':' | '<' | '>' if second == first => Ok(Token::Symbol(self.take(2))),
            _ if SYMBOLS.contains(first) => Ok(Token::Symbol(self.take(1))),
            _ => Err(self.wrong("a word, number, literal or symbol of IDL", first.encode_utf8(&mut [0; 4]))),
        }
    }

    /// Skips blanks, comments, and lines of the preprocessor.
    pub(super) fn skip(&mut self) -> Result<(), IdlError> {
        loop {
            let begin = self.rest.trim_start();
            self.take(self.rest.len() - begin.len());
            if begin.starts_with("//") {
                self.take(begin.find('\n').unwrap_or(begin.len()));
            } else if let Some(comment) = begin.strip_prefix("/*") {
                let Some(length) = comment.find("*/") else {
                    return Err(self.wrong("the end of a comment, */", Token::End.text()));
                };
                self.take(length + "/**/".len());
            } else if self.is_first && begin.starts_with('#') {
                self.directive()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips one line of the preprocessor. Alternatives are refused: read one after the other, they would be both there.
    fn directive(&mut self) -> Result<(), IdlError> {
        let mut length = 0;
        for line in self.rest.split_inclusive('\n') {
            length += line.len();
            if !line.trim_end().ends_with('\\') {
                break;
            }
        }
        let text = self.rest.split_at_checked(length).map_or(self.rest, |(text, _)| text);
        let own = text.trim_start_matches('#').trim_start();
        let (word, condition) = own.split_at(length_of_word(own));
        let is_guard = word == "if" && condition.trim_start().starts_with('!');
        if matches!(word, "if" | "ifdef" | "else" | "elif" | "elifdef" | "elifndef") && !is_guard {
            return Err(self.wrong("a text without conditions, as the preprocessor leaves it", text.trim_end()));
        }
        self.take(length);
        Ok(())
    }

    /// Takes a string or character, in which a backslash escapes one character. Its lines may break: rosidl writes such texts.
    fn literal(&mut self, prefix: usize, quote: char) -> Result<Token<'a>, IdlError> {
        let mut escaped = false;
        for (place, character) in self.rest.char_indices().skip(prefix + 1) {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if character == quote => return Ok(Token::Literal(self.take(place + 1))),
                _ => {}
            }
        }
        Err(self.wrong("the quote at the end of a literal", Token::End.text()))
    }

    /// Takes this many bytes, and counts the lines in them.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        let lines = taken.matches('\n').count();
        self.line += lines;
        self.is_first |= lines > 0;
        self.rest = rest;
        taken
    }

    fn wrong(&self, expected: &'static str, found: &str) -> IdlError {
        IdlError::line(self.file, self.line, expected, found)
    }
}

/// The symbols of one character.
const SYMBOLS: &str = "{}[]()<>:;,=@+-*/%|^&~";

fn length_of_word(text: &str) -> usize {
    text.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').unwrap_or(text.len())
}

/// Digits, letters and points, with the sign of an exponent.
fn length_of_number(text: &str) -> usize {
    let is_hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let mut before = ' ';
    let ends = |character: char| {
        let is_sign = matches!(character, '+' | '-') && matches!(before, 'e' | 'E') && !is_hexadecimal;
        before = character;
        !is_sign && character != '.' && !character.is_ascii_alphanumeric()
    };
    text.find(ends).unwrap_or(text.len())
}
