//! Messages of any content.

use crate::codec::{self, Message, Plain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value with a field of each kind that the codec knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Everything {
    flag: bool,
    small: i8,
    number: u16,
    wide: i64,
    ratio: f64,
    single: f32,
    letter: char,
    text: String,
    list: Vec<u32>,
    pair: (u8, u64),
    fixed: [i16; 3],
    perhaps: Option<(u8, String)>,
    choice: Choice,
    table: BTreeMap<String, u8>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Choice {
    Nothing,
    One(u32),
    Named { x: f32, y: Vec<String> },
}

impl Everything {
    fn example() -> Self {
        Self {
            flag: true,
            small: -3,
            number: 65_000,
            wide: -1,
            ratio: 0.5,
            single: -2.25,
            letter: 'ä',
            text: "thalweg".to_owned(),
            list: vec![1, 2, 3],
            pair: (1, u64::MAX),
            fixed: [-1, 0, 1],
            perhaps: Some((2, "yes".to_owned())),
            choice: Choice::Named { x: 1.5, y: vec!["a".to_owned(), String::new()] },
            table: BTreeMap::from([("one".to_owned(), 1)]),
        }
    }
}

/// Any bytes as a value: refused, or read; and a value that is read is written and read back as the same bytes.
/// Without the type, by its description, there is no panic, either.
pub fn codec(bytes: &[u8]) {
    if let Ok(value) = codec::from_cdr::<Everything>(bytes) {
        let first = codec::to_cdr(&value).unwrap_or_else(|e| panic!("a value that was read cannot be written: {e}"));
        let again = codec::from_cdr::<Everything>(&first).unwrap_or_else(|e| panic!("{e}"));
        // Compared as bytes: a NaN is not equal to itself.
        assert_eq!(codec::to_cdr(&again), Ok(first));
    }
    if let Some(schema) = &codec::TypeDescription::of::<Everything>().schema {
        let _ = codec::to_json(schema, bytes);
    }
    if let Ok(plain) = Plain::<[u32; 4]>::decode(bytes) {
        assert_eq!(bytes.len(), 16, "{:?}", plain.value());
    }
}

/// A message, and one of zeros.
pub(super) fn messages() -> Vec<Vec<u8>> {
    vec![codec::to_cdr(&Everything::example()).unwrap_or_default(), vec![0; 64]]
}
