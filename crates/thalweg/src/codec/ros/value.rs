//! Values of constants and defaults: neither bytes nor the hash show them, but a wrong one is a mistake in the text.

use super::member::{Base, Primitive, Shape};

/// `true` if the text is a value of this type, by the rules of `rosidl_adapter` (`parse_value_string`).
pub(super) fn fits(base: &Base, shape: Shape, text: &str) -> bool {
    match shape {
        Shape::One => is_one(base, text),
        Shape::Array(size) => are_all(base, text, |found| found == u64::from(size)),
        Shape::Bounded(size) => are_all(base, text, |found| found <= u64::from(size)),
        Shape::Unbounded => are_all(base, text, |_| true),
    }
}

fn are_all(base: &Base, text: &str, allows: impl Fn(u64) -> bool) -> bool {
    elements(text).is_some_and(|all| allows(all.len() as u64) && all.iter().all(|element| is_one(base, element)))
}

/// The text up to its comment. A `#` in quotes begins none; where a quote stays open, the first `#` does.
pub(super) fn uncommented(text: &str) -> &str {
    let comments = if text.starts_with(['"', '\'', '[']) { outside_quotes(text, '#') } else { None };
    let begin = comments.map_or_else(|| text.find('#'), |all| all.first().copied());
    begin.map_or(text, |begin| text.split_at(begin).0).trim_end()
}

/// The places of a character outside of quotes; none if a quote stays open.
fn outside_quotes(text: &str, wanted: char) -> Option<Vec<usize>> {
    let (mut found, mut escaped) = (Vec::new(), false);
    let mut open: Option<char> = None;
    for (place, character) in text.char_indices() {
        match open {
            Some(_) if escaped => escaped = false,
            Some(_) if character == '\\' => escaped = true,
            Some(quote) if character == quote => open = None,
            Some(_) => {}
            None if matches!(character, '"' | '\'') => open = Some(character),
            None if character == wanted => found.push(place),
            None => {}
        }
    }
    open.is_none().then_some(found)
}

/// The elements of `[a, b]`.
fn elements(text: &str) -> Option<Vec<&str>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    let Some(commas) = outside_quotes(inner, ',') else {
        return Some(inner.split(',').map(str::trim).collect());
    };
    let (mut found, mut begin) = (Vec::new(), 0);
    for comma in commas {
        found.push(inner.get(begin..comma)?.trim());
        begin = comma + 1;
    }
    found.push(inner.get(begin..)?.trim());
    Some(found)
}

fn is_one(base: &Base, text: &str) -> bool {
    match base {
        Base::Primitive(Primitive::Bool) => {
            ["true", "false", "1", "0"].iter().any(|word| text.eq_ignore_ascii_case(word))
        }
        Base::Primitive(Primitive::Float32 | Primitive::Float64) => text.replace('_', "").parse::<f64>().is_ok(),
        Base::Primitive(primitive) => {
            let (least, most) = range(*primitive);
            integer(text).is_some_and(|value| (least..=most).contains(&value))
        }
        Base::String(bound) | Base::WString(bound) => {
            characters(text).is_some_and(|found| bound.is_none_or(|most| found as u64 <= u64::from(most)))
        }
        Base::Nested(_) | Base::Header(_) => false, // ROS 2 has no values of these
    }
}

/// The least and the greatest value.
fn range(primitive: Primitive) -> (i128, i128) {
    match primitive {
        Primitive::Int8 => (i8::MIN.into(), i8::MAX.into()),
        Primitive::Int16 => (i16::MIN.into(), i16::MAX.into()),
        Primitive::UInt16 => (0, u16::MAX.into()),
        Primitive::Int32 => (i32::MIN.into(), i32::MAX.into()),
        Primitive::UInt32 => (0, u32::MAX.into()),
        Primitive::Int64 => (i64::MIN.into(), i64::MAX.into()),
        Primitive::UInt64 => (0, u64::MAX.into()),
        _ => (0, u8::MAX.into()),
    }
}

/// A whole number as Python reads it: decimal, or after `0x`, `0o`, `0b`, with `_` between digits.
fn integer(text: &str) -> Option<i128> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = unsigned.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let prefixed = prefixes.iter().find_map(|(prefix, radix)| Some((lower.strip_prefix(*prefix)?, *radix)));
    let (digits, radix) = prefixed.unwrap_or((lower.as_str(), 10));
    if !digits.starts_with(|digit: char| digit.is_ascii_hexdigit()) {
        return None; // a second sign
    }
    let value = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    Some(if negative { -value } else { value })
}

/// The length of a string, without its quotes and the backslashes before quotes in it; none if one lacks its backslash.
fn characters(text: &str) -> Option<usize> {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            let escapes = inner.matches(&format!("\\{quote}")).count();
            let all = inner.matches(quote).count() == escapes;
            return all.then(|| inner.chars().count().saturating_sub(escapes));
        }
    }
    Some(text.chars().count())
}
