//! Bottles in binary form, as administrative messages and those of text connections have them (data_rep.dox; `BottleImpl.cpp`,
//! `Storable.cpp`). Their text form is [`thalweg::bottle`].
//!
//! Codes are those of YARP 2 and 3. YARP 4 gave floating-point numbers other codes: its 64-bit one (20) is read, too.

use thalweg::bottle::{Bottle, DEEPEST, MOST_ITEMS, Value};

/// Codes of values (`Bottle.h`).
const INT8: i32 = 32;
const INT16: i32 = 64;
const INT32: i32 = 1;
const INT64: i32 = 17;
const VOCAB: i32 = 9;
const FLOAT32: i32 = 128;
const FLOAT64: i32 = 10;
const FLOAT64_OF_4: i32 = 20;
const STRING: i32 = 4;
const BLOB: i32 = 12;
const LIST: i32 = 256;
const DICTIONARY: i32 = 512;

/// Reads a message that is one bottle, and no more.
///
/// # Errors
/// The reason why it is none, or has no text form: more than [`MOST_ITEMS`] values or [`DEEPEST`] lists within each other, blobs.
pub(crate) fn decode(bytes: &[u8]) -> Result<Bottle, String> {
    let mut reader = Reader { rest: bytes, items: 0 };
    let code = reader.int()?;
    if code & LIST == 0 {
        return Err(format!("it begins with code {code}, a bottle with {LIST} or more"));
    }
    let values = reader.list(code & !(LIST | DICTIONARY), 0)?;
    match reader.rest.len() {
        0 => Ok(Bottle(values)),
        more => Err(format!("{more} bytes follow the bottle")),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    items: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("the bottle has no end")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "the bottle has no end".to_owned())
    }

    fn int(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_le_bytes)
    }

    /// Values that all have the code `each`, or, if that is 0, each a code of its own.
    fn list(&mut self, each: i32, depth: usize) -> Result<Vec<Value>, String> {
        let count = self.int()?;
        let count = usize::try_from(count).map_err(|_| format!("a list of {count} values"))?;
        self.items = self.items.saturating_add(count);
        if self.items > MOST_ITEMS {
            return Err(format!("{} values, and at most {MOST_ITEMS} have a text form", self.items));
        }
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            let code = if each == 0 { self.int()? } else { each };
            values.push(self.value(code, depth)?);
        }
        Ok(values)
    }

    fn value(&mut self, code: i32, depth: usize) -> Result<Value, String> {
        Ok(match code {
            INT8 => Value::Int(i64::from(i8::from_le_bytes(self.array()?))),
            INT16 => Value::Int(i64::from(i16::from_le_bytes(self.array()?))),
            INT32 => Value::Int(i64::from(self.int()?)),
            INT64 => Value::Int(i64::from_le_bytes(self.array()?)),
            VOCAB => vocab(self.array()?),
            FLOAT32 => f64::from(f32::from_le_bytes(self.array()?)).into(),
            FLOAT64 | FLOAT64_OF_4 => f64::from_le_bytes(self.array()?).into(),
            STRING => self.string()?,
            BLOB => return Err("blobs have no text form here".to_owned()),
            _ if code & (LIST | DICTIONARY) != 0 && depth + 1 >= DEEPEST => {
                return Err(format!("more than {DEEPEST} lists within each other"));
            }
            // A dictionary is a bottle of its own, code included.
            _ if code & DICTIONARY != 0 => {
                let own = self.int()?;
                Value::List(self.list(own & !(LIST | DICTIONARY), depth + 1)?)
            }
            _ if code & LIST != 0 => Value::List(self.list(code & !LIST, depth + 1)?),
            _ => return Err(format!("no value has code {code}")),
        })
    }

    fn string(&mut self) -> Result<Value, String> {
        let length = self.int()?;
        let length = usize::try_from(length).map_err(|_| format!("a text of {length} bytes"))?;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map(|text| text.trim_end_matches('\0')); // YARP 2 ends texts so
        text.map(Value::text).map_err(|_| "a text that is not UTF-8".to_owned())
    }
}

/// A word of up to four characters; else the number that it is, too.
fn vocab(bytes: [u8; 4]) -> Value {
    let word: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
    let is_word = !word.is_empty() && word.iter().all(u8::is_ascii_alphanumeric);
    let ends = bytes.iter().skip(word.len()).all(|byte| *byte == 0);
    match String::from_utf8(word) {
        Ok(word) if is_word && ends => Value::Vocab(word),
        _ => Value::Int(i64::from(i32::from_le_bytes(bytes))),
    }
}

/// Writes a bottle as a message.
pub(crate) fn encode(bottle: &Bottle) -> Vec<u8> {
    let mut bytes = Vec::new();
    let each = each(&bottle.0);
    put(&mut bytes, LIST + each);
    put_list(&mut bytes, &bottle.0, each);
    bytes
}

fn put(bytes: &mut Vec<u8>, number: i32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn code(value: &Value) -> i32 {
    match value {
        Value::Int(number) if i32::try_from(*number).is_ok() => INT32,
        Value::Int(_) => INT64,
        Value::Float(_) => FLOAT64,
        Value::Vocab(word) if word.len() <= 4 => VOCAB,
        Value::Text(_) | Value::Vocab(_) => STRING,
        Value::List(values) => LIST + each(values),
    }
}

/// The code of all values, if they have the same and are no lists; else 0.
fn each(values: &[Value]) -> i32 {
    let first = values.first().map_or(0, code);
    if first & LIST == 0 && values.iter().all(|value| code(value) == first) { first } else { 0 }
}

fn put_list(bytes: &mut Vec<u8>, values: &[Value], each: i32) {
    put(bytes, values.len() as i32);
    for value in values {
        if each == 0 {
            put(bytes, code(value));
        }
        match value {
            Value::Int(number) => match i32::try_from(*number) {
                Ok(number) => put(bytes, number),
                Err(_) => bytes.extend_from_slice(&number.to_le_bytes()),
            },
            Value::Float(number) => bytes.extend_from_slice(&number.to_le_bytes()),
            Value::Vocab(word) if word.len() <= 4 => {
                let mut letters = [0; 4];
                letters.iter_mut().zip(word.bytes()).for_each(|(to, letter)| *to = letter);
                bytes.extend_from_slice(&letters);
            }
            Value::Text(text) | Value::Vocab(text) => {
                put(bytes, text.len() as i32);
                bytes.extend_from_slice(text.as_bytes());
            }
            Value::List(values) => put_list(bytes, values, self::each(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(all: &[i32]) -> Vec<u8> {
        all.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// The examples of data_rep.dox.
    #[test]
    fn the_documents_examples_are_written_and_read() {
        let primes = numbers(&[257, 8, 2, 3, 5, 7, 11, 13, 17, 19]);
        assert_eq!(encode(&Bottle::parse("2 3 5 7 11 13 17 19").unwrap()), primes);
        let text = "(91 92 93) (this is a \"good list\")";
        let mut bytes = numbers(&[256, 2, 257, 3, 91, 92, 93, 260, 4]);
        for word in ["this", "is", "a", "good list"] {
            put(&mut bytes, word.len() as i32);
            bytes.extend_from_slice(word.as_bytes());
        }
        assert_eq!(encode(&Bottle::parse(text).unwrap()), bytes);
        assert_eq!(decode(&bytes).unwrap().to_string(), text);
    }

    #[test]
    fn vocabs_dictionaries_and_numbers_of_all_sizes_are_read() {
        let dictionary = [numbers(&[256, 2, 9]), b"prop".to_vec(), numbers(&[768, 256, 1, 257, 2, -1, -1])].concat();
        assert_eq!(decode(&dictionary).unwrap().to_string(), "[prop] ((-1 -1))");
        let small =
            [numbers(&[256, 3, 32]), vec![0xff], numbers(&[64]), vec![0xfe, 0xff], numbers(&[128, 0x3fc0_0000])];
        assert_eq!(decode(&small.concat()).unwrap().to_string(), "-1 -2 1.5");
        let ended = [&numbers(&[260, 1, 4])[..], b"ok\0\0"].concat();
        assert_eq!(decode(&ended).unwrap().to_string(), "ok");
        let of_4 = [numbers(&[276, 1]), 2.5_f64.to_le_bytes().to_vec()].concat();
        assert_eq!(decode(&of_4).unwrap().to_string(), "2.5");
    }

    #[test]
    fn what_is_no_bottle_is_named() {
        for (bytes, says) in [
            (vec![], "no end"),
            (numbers(&[1, 2]), "begins with code 1"),
            (numbers(&[257, 1000]), "1000 values"),
            (numbers(&[257, -1]), "-1 values"),
            (numbers(&[257, 1, 2, 3]), "4 bytes follow"),
            (numbers(&[256, 1, 12, 1]), "blobs"),
            (numbers(&[256, 1, 7, 1]), "code 7"),
            (numbers(&[260, 1, -5]), "-5 bytes"),
            (numbers(&[256, 1].into_iter().chain([256, 1].repeat(20)).collect::<Vec<_>>()), "16 lists"),
        ] {
            let said = decode(&bytes).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_alike(bytes in prop::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..80)) {
            if let Ok(bottle) = decode(&bytes) {
                prop_assert_eq!(decode(&encode(&bottle)), Ok(bottle));
            }
        }

        #[test]
        fn any_text_has_a_binary_form(text in "([a-z]{1,3}|-?[0-9]{1,11}|[0-9]\\.[0-9]|\\[ok\\]|\\(|\\)| ){0,30}") {
            if let Ok(bottle) = Bottle::parse(&text) {
                prop_assert_eq!(decode(&encode(&bottle)), Ok(bottle));
            }
        }
    }
}
