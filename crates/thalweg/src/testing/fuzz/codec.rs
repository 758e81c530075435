//! Messages of any content, by types of peers or without, and scaled as pictures; texts that define types.

use crate::codec::{self, Definitions, Idl, Message, Plain, PolicyFields, Schema, TypeDescription};
use crate::control::limits::check_type;
use qos::Filter;
use qos::expression::{Expression, Value};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
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
/// Without the type, by its description, there is no panic, either; and a message of another writer that is transcoded is read.
pub fn codec(bytes: &[u8]) {
    if let Ok(value) = codec::from_cdr::<Everything>(bytes) {
        let first = codec::to_cdr(&value).unwrap_or_else(|e| panic!("a value that was read cannot be written: {e}"));
        let again = codec::from_cdr::<Everything>(&first).unwrap_or_else(|e| panic!("{e}"));
        // Compared as bytes: a NaN is not equal to itself.
        assert_eq!(codec::to_cdr(&again), Ok(first));
    }
    if let Some(schema) = &codec::TypeDescription::of::<Everything>().schema {
        let _ = codec::to_json(schema, bytes);
        if let Ok(Cow::Owned(ours)) = codec::transcode(schema, bytes) {
            codec::from_cdr::<Everything>(&ours).unwrap_or_else(|e| panic!("a transcoded message cannot be read: {e}"));
        }
    }
    if let Ok(plain) = Plain::<[u32; 4]>::decode(bytes) {
        assert_eq!(bytes.len(), 16, "{:?}", plain.value());
    }
}

/// A message, and zeros, as messages of each version and byte order.
pub(super) fn messages() -> Vec<Vec<u8>> {
    let zeros = [0, 6, 7, 8, 9].map(|header| [&[0, header][..], &[0; 62]].concat());
    [vec![codec::to_cdr(&Everything::example()).unwrap_or_default()], zeros.into()].concat()
}

/// A type, lines of a filter with its parameters, and a message, each ended by a byte 0. A type that passes the check
/// is used to read the message as JSON, for a key and for the filter, and this ends soon; JSON that is read is
/// written as a message of this type.
pub fn types(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let (told, filter, message) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let filter = filter_of(&String::from_utf8_lossy(filter));
    expression(&filter);
    let Ok(told) = serde_json::from_slice::<TypeDescription>(told.unwrap_or_default()) else { return };
    if check_type(&told).is_err() {
        return;
    }
    let again = serde_json::from_slice::<TypeDescription>(&serde_json::to_vec(&told).unwrap_or_default());
    assert_eq!(again.ok().as_ref(), Some(&told), "a type survives the way");
    let Some(schema) = told.schema.as_deref() else { return };
    if let Ok(json) = codec::to_json(schema, message) {
        let _ = codec::from_json(schema, &json);
    }
    let _ = codec::transcode(schema, message);
    let key = first_fields(schema);
    for filter in [None, Some(&filter)] {
        let Ok(sought) = PolicyFields::find(Some(schema), &key, filter) else { continue };
        let _ = (sought.instance(message), sought.key_text(message, &key), sought.holds(message));
    }
}

/// Some fields of a struct, in the notation of a key.
fn first_fields(schema: &Schema) -> Vec<String> {
    let Schema::Struct { fields, .. } = schema else { return Vec::new() };
    fields.iter().take(2).map(|field| field.name.clone()).collect()
}

fn filter_of(text: &str) -> Filter {
    let mut lines = text.lines().map(str::to_owned);
    Filter { expression: lines.next().unwrap_or_default(), parameters: lines.take(100).collect() }
}

/// A filter is refused with the position, or gives an answer for any fields.
fn expression(filter: &Filter) {
    match Expression::parse(filter) {
        Err(wrong) => assert!(wrong.at <= filter.expression.len() && !wrong.problem.is_empty()),
        Ok(expression) => {
            let values = [
                None,
                Some(Value::Bool(true)),
                Some(Value::Integer(i128::MIN)),
                Some(Value::Float(f64::NAN)),
                Some(Value::Text(&filter.expression)),
            ];
            for shift in 0..values.len() {
                let all: Vec<_> =
                    (0..expression.fields().len()).map(|at| values[(at + shift) % values.len()]).collect();
                let _ = expression.holds(&all);
            }
        }
    }
}

/// A type with a field of each kind, filters, and messages of it.
pub(super) fn typed_messages() -> Vec<Vec<u8>> {
    let told = serde_json::to_vec(&TypeDescription::of::<Everything>()).unwrap_or_default();
    let filters = [
        "number > 3 AND text LIKE 'th%' OR NOT flag = %0\nTRUE",
        "ratio BETWEEN -1 AND %1 AND (choice <> 'One' OR wide <= 7)\n1\n2.5",
    ];
    let messages = messages();
    filters
        .iter()
        .zip(&messages)
        .map(|(filter, message)| [&told, &[0][..], filter.as_bytes(), &[0], message].concat())
        .collect()
}

/// Any text is read or refused as a `.msg`, `.srv`, `.action` or `.idl` file. The schema of a type that is described passes the check
/// of a peer's; one of IDL has a key then, maybe without fields.
pub fn definitions(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for name in ["a/msg/A", "a/srv/A", "a/action/A"] {
        let mut definitions = Definitions::new();
        let _ = definitions.add_concatenated(name, &text);
        for name in definitions.names() {
            if let Ok(TypeDescription { schema: Some(schema), .. }) = definitions.describe(name) {
                schema.check().unwrap_or_else(|e| panic!("{name}: {e}")); // its source may be too long to be told
            }
        }
    }
    let mut idl = Idl::new();
    if idl.add("a.idl", &text).is_err() {
        return;
    }
    // Each of many types can have thousands of parts.
    for name in idl.names().take(64) {
        if let Ok(described) = idl.describe(name) {
            described.check().unwrap_or_else(|e| panic!("{name}: {e}"));
            idl.keys(name).unwrap_or_else(|e| panic!("{name} is described, but: {e}"));
        }
    }
}

/// A file of IDL, a message, and an action with a message that it refers to.
pub(super) fn texts() -> Vec<Vec<u8>> {
    let idl = "#include <b.idl>\n// IDL\nmodule m { const long N = 1 << (2 + 0x1); typedef double D[N][2];\n\
               @bit_bound(32) enum E { X, @value(1) Y };\nstruct B { @key long long id; char c; };\n\
               @final struct A : B { @key ::m::D d; @optional sequence<E, N> e;\n string<8> f, g[3]; @unit(value=\"m\") float h; };\n\
               union U switch (long) { case 1: wstring w; }; };\n";
    let message =
        "# msg\nint32 X=1\nstd_msgs/Header header\nfloat64[<=16] values [1.5]\nstring<=4[2] names\nchar c 7\n";
    let action = format!("int8 a\n---\nB b\n---\n\n{}\nMSG: a/B\nuint8[] x\n", "=".repeat(80));
    [idl, message, &action].map(|text| text.as_bytes().to_vec()).into()
}

/// Any bytes are scaled or refused by each scaler. A scaled message can be scaled again, and is then unchanged.
#[cfg(feature = "pictures")]
pub fn pictures(bytes: &[u8]) {
    use crate::channel::proxy::Picture;
    use crate::channel::proxy::scaler::{Encoded, Points, Raw, Scaler};
    const SMALL: Picture = Picture { width: 8, height: 8 };
    let scalers: [Box<dyn Scaler>; 4] =
        [Box::new(Raw::default()), Box::new(Points), Box::new(Encoded::in_message()), Box::new(Encoded::alone())];
    for mut scaler in scalers {
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        if scaler.scale(bytes, SMALL, &mut once).is_ok() {
            assert_eq!(scaler.scale(&once, SMALL, &mut twice), Ok(()), "what was scaled is a message");
            assert_eq!(once, twice, "what fits stays as it is");
        }
    }
}

/// A raw picture of 16 × 16, and the beginnings of encoded ones.
#[cfg(feature = "pictures")]
pub fn pictures_to_begin_from() -> Vec<Vec<u8>> {
    let mut raw = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    raw.extend([16, 0, 0, 0, 16, 0, 0, 0, 6, 0, 0, 0]);
    raw.extend(b"mono8\0");
    raw.extend([0, 0, 16, 0, 0, 0, 0, 1, 0, 0]);
    raw.extend([7; 256]);
    let png = [137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 16, 0, 0, 0, 16, 8, 0, 0, 0, 0];
    vec![raw, png.to_vec(), vec![0xff, 0xd8, 0xff, 0xe0, 0, 16]]
}
