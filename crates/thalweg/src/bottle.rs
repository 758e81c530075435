//! YARP's nested lists: `prop set /in (sched ((policy SCHED_FIFO) (priority 30)))`. Parser and printer.
//!
//! | text | value |
//! |---|---|
//! | `12`, `-1`, `0x1f` | [`Value::Int`] |
//! | `1.5`, `2e-3` | [`Value::Float`] |
//! | `word`, `"a text with \"quotes\""` | [`Value::Text`] |
//! | `[ok]` | [`Value::Vocab`]: a word of the protocol, accepted wherever a bare word is |
//! | `(a (b 1))` | [`Value::List`] |
//!
//! Spaces, tabs, line ends and commas separate, as in `yarp::os::Bottle`. Texts are bounded before memory is
//! taken: [`LONGEST`], [`MOST_ITEMS`], [`DEEPEST`].

use std::fmt;

/// Longest text that is read, in bytes.
pub const LONGEST: usize = 8 << 10;
/// Most values in one text, lists included.
pub const MOST_ITEMS: usize = 256;
/// Most lists within each other.
pub const DEEPEST: usize = 16;

/// One value of a nested list.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// A finite number with a point or an exponent.
    Float(f64),
    /// A word or a quoted text.
    Text(String),
    /// A word of the protocol, in square brackets.
    Vocab(String),
    /// A list.
    List(Vec<Value>),
}

/// Values in a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bottle(pub Vec<Value>);

/// Text that is no nested list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BottleError {
    /// The character where it went wrong, counted from 1.
    pub at: usize,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for BottleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at, self.reason)
    }
}

impl std::error::Error for BottleError {}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Value::Text(text.into())
    }
    /// A list of a name and a value: `(name value)`.
    pub fn pair(name: &str, value: impl Into<Value>) -> Self {
        Value::List(vec![Value::text(name), value.into()])
    }
    /// Its word, for texts and vocabs.
    pub fn word(&self) -> Option<&str> {
        match self {
            Value::Text(word) | Value::Vocab(word) => Some(word),
            _ => None,
        }
    }
    /// Its number, for whole numbers.
    pub fn int(&self) -> Option<i64> {
        if let Value::Int(number) = self { Some(*number) } else { None }
    }
    /// Its number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }
    /// Its values, for lists.
    pub fn list(&self) -> Option<&[Value]> {
        if let Value::List(values) = self { Some(values) } else { None }
    }
    /// Name and values of a list that starts with a word: `(name …)`.
    pub fn group(&self) -> Option<(&str, &[Value])> {
        let (first, rest) = self.list()?.split_first()?;
        Some((first.word()?, rest))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}
impl From<f64> for Value {
    fn from(number: f64) -> Self {
        // Infinities and NaN have no notation.
        if number.is_finite() { Value::Float(number) } else { Value::text(number.to_string()) }
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::text(text)
    }
}
impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Self {
        Value::List(values)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number:?}"),
            Value::Vocab(word) => write!(f, "[{word}]"),
            Value::Text(text) if is_bare(text) => f.write_str(text),
            Value::Text(text) => quoted(text, f),
            Value::List(values) => {
                f.write_str("(")?;
                row(values, f)?;
                f.write_str(")")
            }
        }
    }
}

impl fmt::Display for Bottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(&self.0, f)
    }
}

fn row(values: &[Value], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        write!(f, "{value}")?;
    }
    Ok(())
}

/// `true` if a text is read as itself without quotes.
fn is_bare(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| !ends_word(c) && !c.is_control()) && matches!(scalar(text), Ok(None))
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

fn separates(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | ',')
}

fn ends_word(c: char) -> bool {
    separates(c) || matches!(c, '(' | ')' | '[' | ']' | '"' | '\\')
}

/// The number that a bare word is, `None` when it is none.
fn scalar(word: &str) -> Result<Option<Value>, String> {
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let hex = digits.strip_prefix("0x").filter(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_hexdigit()));
    if let Some(hex) = hex {
        let number = i64::from_str_radix(hex, 16).map_err(|_| out_of_range(word))?;
        return Ok(Some(Value::Int(if word.starts_with('-') { -number } else { number })));
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    if digits.chars().all(|c| c.is_ascii_digit()) {
        return word.parse().map(|number| Some(Value::Int(number))).map_err(|_| out_of_range(word));
    }
    match word.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(Value::Float(number))),
        Ok(_) => Err(out_of_range(word)),
        Err(_) => Ok(None), // 10.0.0.1 and the like are words
    }
}

fn out_of_range(word: &str) -> String {
    let shown: String = word.chars().take(24).collect();
    format!("the number {shown} is out of range (64 bits)")
}

impl Bottle {
    /// Reads a text.
    ///
    /// # Errors
    /// With position and reason: a list or text that does not end, a bracket too many, a number out of range, or more than
    /// [`LONGEST`] bytes, [`MOST_ITEMS`] values or [`DEEPEST`] lists within each other.
    pub fn parse(text: &str) -> Result<Self, BottleError> {
        if text.len() > LONGEST {
            let reason = format!("a command of {} bytes: at most {LONGEST} are read", text.len());
            return Err(BottleError { at: LONGEST, reason });
        }
        let mut parser = Parser { text, next: 0, items: 0 };
        let values = parser.values(0)?;
        Ok(Self(values))
    }
}

struct Parser<'a> {
    text: &'a str,
    next: usize,
    items: usize,
}

impl Parser<'_> {
    /// Values up to the end of the list, or of the text at depth 0.
    fn values(&mut self, depth: usize) -> Result<Vec<Value>, BottleError> {
        let mut values = Vec::new();
        let opened = self.next;
        loop {
            self.skip();
            let start = self.next;
            match self.peek() {
                None if depth == 0 => return Ok(values),
                None => {
                    return self
                        .wrong(opened.saturating_sub(1), "the list that starts here has no end: a ) is missing");
                }
                Some(')') if depth == 0 => return self.wrong(start, "a ) without its ("),
                Some(')') => {
                    self.next += 1;
                    return Ok(values);
                }
                Some(first) => values.push(self.value(first, depth)?),
            }
            self.items += 1;
            if self.items > MOST_ITEMS {
                return self.wrong(start, format!("more than {MOST_ITEMS} values"));
            }
        }
    }

    fn value(&mut self, first: char, depth: usize) -> Result<Value, BottleError> {
        let start = self.next;
        match first {
            '(' if depth == DEEPEST => self.wrong(start, format!("more than {DEEPEST} lists within each other")),
            '(' => {
                self.next += 1;
                self.values(depth + 1).map(Value::List)
            }
            '[' => self.vocab(),
            ']' => self.wrong(start, "a ] without its ["),
            '"' => self.quoted(),
            '\\' => self.wrong(start, "a \\ outside quotes"),
            _ => {
                let word = self.bare();
                match scalar(word) {
                    Ok(number) => Ok(number.unwrap_or_else(|| Value::text(word))),
                    Err(reason) => self.wrong(start, reason),
                }
            }
        }
    }

    fn vocab(&mut self) -> Result<Value, BottleError> {
        let start = self.next;
        self.next += 1;
        let word = self.bare().to_owned();
        if self.peek() != Some(']') || word.is_empty() {
            return self.wrong(start, "[ must be followed by one word and ]");
        }
        self.next += 1;
        Ok(Value::Vocab(word))
    }

    fn quoted(&mut self) -> Result<Value, BottleError> {
        let start = self.next;
        let mut text = String::new();
        let mut characters = self.text[start..].char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.next = start + at + 1;
                    return Ok(Value::Text(text));
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                c => text.push(c),
            }
        }
        self.wrong(start, "the text that starts here has no end: a \" is missing")
    }

    fn bare(&mut self) -> &str {
        let rest = &self.text[self.next..];
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        self.next += word.len();
        word
    }

    fn skip(&mut self) {
        let rest = &self.text[self.next..];
        self.next += rest.len() - rest.trim_start_matches(separates).len();
    }

    fn peek(&self) -> Option<char> {
        self.text[self.next..].chars().next()
    }

    fn wrong<T>(&self, byte: usize, reason: impl Into<String>) -> Result<T, BottleError> {
        let at = self.text[..byte].chars().count() + 1;
        Err(BottleError { at, reason: reason.into() })
    }
}

/// A name and its value.
pub type Property = (String, Value);

/// `(KEY VALUE) …`, also within one list more: `((KEY VALUE) …)`.
pub(crate) fn properties(values: &[Value]) -> Result<Vec<Property>, String> {
    if let [Value::List(inner)] = values
        && inner.iter().all(|v| v.group().is_some())
    {
        return properties(inner);
    }
    let pair = |value: &Value| match value.group() {
        Some((key, [one])) => Ok((key.to_owned(), one.clone())),
        Some((key, [])) => Ok((key.to_owned(), Value::Int(1))), // a flag such as (virtual)
        Some((key, more)) => Ok((key.to_owned(), Value::List(more.to_vec()))),
        None => Err(format!("{value} is no (KEY VALUE)")),
    };
    values.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_commands_are_read_and_written_back() {
        for text in [
            "prop set /subscriber1 (sched ((policy SCHED_FIFO) (priority 30)))",
            "prop set /subscriber1 (qos ((priority HIGH)))",
            "[add] /out tcp",
            "a -1 1.5 \"two words\" (b () (c \"\")) \"1\" \"[x]\"",
        ] {
            assert_eq!(Bottle::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn values_have_kinds() {
        let Bottle(values) = Bottle::parse(" 12,+3 0x1f -0x10 1e3 [ok] 10.0.0.1 /a-b \"q\\\"\\n\" . 5ms").unwrap();
        let kinds = [
            Value::Int(12),
            Value::Int(3),
            Value::Int(31),
            Value::Int(-16),
            Value::Float(1000.0),
            Value::Vocab("ok".into()),
            "10.0.0.1".into(),
            "/a-b".into(),
            "q\"\n".into(),
            ".".into(),
            "5ms".into(),
        ];
        assert_eq!(values, kinds);
    }

    #[test]
    fn malformed_text_is_reported_with_position_and_reason() {
        let deep = format!("a {}{}", "(".repeat(17), ")".repeat(17));
        let many = "x ".repeat(MOST_ITEMS + 1);
        let long = "x".repeat(LONGEST + 1);
        for (text, at, says) in [
            ("prop set (a (b", 13, "a ) is missing"),
            ("a b)", 4, "without its ("),
            ("é \"open", 3, "a \" is missing"),
            ("\"ends in \\", 1, "a \" is missing"),
            ("[]", 1, "one word"),
            ("[a b]", 1, "one word"),
            ("x ]", 3, "without its ["),
            ("a 99999999999999999999", 3, "out of range"),
            ("1e999", 1, "out of range"),
            (deep.as_str(), 19, "16 lists"),
            (many.as_str(), 2 * MOST_ITEMS + 1, "256 values"),
            (long.as_str(), LONGEST, "8192"),
        ] {
            let error = Bottle::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{text:.40}: {error}");
            assert!(error.to_string().contains(says), "{text:.40}: {error}");
        }
        assert!(Bottle::parse(&format!("{}{}", "(".repeat(16), ")".repeat(16))).is_ok());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::Float),
            ".{0,12}".prop_map(Value::Text),
            "[a-z]{1,8}".prop_map(Value::Vocab),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Value::List))
    }

    proptest! {
        #[test]
        fn written_text_is_read_back_unchanged(values in prop::collection::vec(values(), 0..6)) {
            let bottle = Bottle(values);
            prop_assert_eq!(Bottle::parse(&bottle.to_string()), Ok(bottle));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,80}|[()\\[\\]\" a1.\\\\-]{0,60}") {
            if let Ok(bottle) = Bottle::parse(&text) {
                prop_assert_eq!(Bottle::parse(&bottle.to_string()), Ok(bottle));
            }
        }
    }
}
