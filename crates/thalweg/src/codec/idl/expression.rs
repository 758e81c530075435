//! Constant expressions (OMG IDL 4.2, 7.4.1.4.3), and the sizes that they give.

use super::error::IdlError;
use super::parse::Parser;
use super::token::Token;
use super::tree::Value;
use crate::codec::schema::MAX_DEPTH;

/// The surroundings of an expression.
#[derive(Clone, Copy)]
struct Place {
    /// In `<…>`, where `>>` closes two sequences.
    in_angles: bool,
    /// The number of round brackets around.
    depth: usize,
}

impl Parser<'_> {
    /// An expression outside of `<…>`.
    pub(super) fn expression(&mut self) -> Result<Value, IdlError> {
        self.binary(0, Place { in_angles: false, depth: 0 })
    }

    /// An expression in `<…>`.
    pub(super) fn expression_in_angles(&mut self) -> Result<Value, IdlError> {
        self.binary(0, Place { in_angles: true, depth: 0 })
    }

    /// The size of an array, or the bound of a sequence or string in `<…>`. CDR has room for 32 bits.
    pub(super) fn size(&mut self, in_angles: bool) -> Result<u32, IdlError> {
        let (wrong, found) = (self.cursor.wrong(SIZE), self.binary(0, Place { in_angles, depth: 0 })?);
        match found {
            Value::Integer(size) => u32::try_from(size).ok().filter(|size| *size > 0).ok_or(wrong),
            _ => Err(wrong),
        }
    }

    /// Operands and the operators between them that bind at least as strongly as `least`.
    fn binary(&mut self, least: usize, place: Place) -> Result<Value, IdlError> {
        let mut left = self.unary(place)?;
        while let Token::Symbol(operator) = self.cursor.peek() {
            let Some(strength) = strength(operator).filter(|strength| *strength >= least) else { break };
            if place.in_angles && operator == ">>" {
                break;
            }
            let wrong = self.cursor.wrong(RANGE);
            self.cursor.advance()?;
            let right = self.binary(strength + 1, place)?;
            left = match (left, right) {
                (Value::Integer(left), Value::Integer(right)) => {
                    Value::Integer(apply(operator, left, right).ok_or(wrong)?)
                }
                _ => Value::Other,
            };
        }
        Ok(left)
    }

    /// Signs, and what they stand before.
    fn unary(&mut self, place: Place) -> Result<Value, IdlError> {
        let wrong = self.cursor.wrong(RANGE);
        let mut signs = Vec::new();
        while let Token::Symbol(sign @ ("-" | "+" | "~")) = self.cursor.peek() {
            signs.push(sign);
            self.cursor.advance()?;
        }
        let mut value = self.primary(place)?;
        for sign in signs.iter().rev() {
            value = match (value, *sign) {
                (Value::Integer(value), "-") => Value::Integer(value.checked_neg().ok_or_else(|| wrong.clone())?),
                (Value::Integer(value), "~") => Value::Integer(!value),
                (Value::Integer(value), _) => Value::Integer(value),
                _ => Value::Other,
            };
        }
        Ok(value)
    }

    /// A literal, a constant, or an expression in round brackets.
    fn primary(&mut self, place: Place) -> Result<Value, IdlError> {
        match self.cursor.peek() {
            Token::Symbol("(") => {
                if place.depth >= MAX_DEPTH {
                    return Err(self.cursor.wrong("at most 32 levels of brackets"));
                }
                self.cursor.advance()?;
                let value = self.binary(0, Place { in_angles: false, depth: place.depth + 1 })?;
                self.cursor.expect(")")?;
                Ok(value)
            }
            Token::Number(text) => {
                self.cursor.advance()?;
                Ok(integer(text).map_or(Value::Other, Value::Integer))
            }
            Token::Literal(_) => {
                while matches!(self.cursor.peek(), Token::Literal(_)) {
                    self.cursor.advance()?; // adjacent strings are one (7.2.6.3)
                }
                Ok(Value::Other)
            }
            Token::Word("TRUE" | "FALSE" | "true" | "false") => {
                let is_true = matches!(self.cursor.peek(), Token::Word("TRUE" | "true"));
                self.cursor.advance()?;
                Ok(Value::Boolean(is_true))
            }
            Token::Word(_) | Token::Symbol("::") => {
                let name = self.cursor.scoped_name()?;
                Ok(self.constant_named(&name))
            }
            _ => Err(self.cursor.wrong("a value")),
        }
    }
}

const SIZE: &str = "a size of 1 to 4294967295, of constants that stand before it";
const RANGE: &str = "values of at most 127 bits";

/// The strength of an operator, if the symbol is one.
fn strength(symbol: &str) -> Option<usize> {
    Some(match symbol {
        "|" => 0,
        "^" => 1,
        "&" => 2,
        "<<" | ">>" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" => 5,
        _ => return None,
    })
}

fn apply(operator: &str, left: i128, right: i128) -> Option<i128> {
    let shift = u32::try_from(right).ok().filter(|shift| *shift < 64); // 0 to 63 (7.4.1.4.3)
    match operator {
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "<<" => shift.and_then(|shift| left.checked_mul(1_i128.checked_shl(shift)?)),
        ">>" => shift.and_then(|shift| left.checked_shr(shift)),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

/// A whole number: decimal, octal after `0`, hexadecimal after `0x` (OMG IDL 4.2, 7.2.6.1). None for any other number.
fn integer(text: &str) -> Option<i128> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    i128::from_str_radix(digits, radix).ok()
}
