use super::*;
use crate::codec::{TypeDescription, from_cdr, to_cdr};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Point {
    x: f64,
    name: String,
}

/// A field of each kind that IDL and ROS messages have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct All {
    flag: bool,
    small: i8,
    wide: i64,
    ratio: f64,
    number: u16,
    text: String,
    numbers: Vec<u32>,
    doubles: Vec<f64>,
    words: Vec<String>,
    fixed: [i16; 3],
    points: Vec<Point>,
    pair: [Point; 2],
    octets: Vec<u8>,
    perhaps: Option<u16>,
}

/// [`All`] without the field that version 1 writes as a member of a parameter list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WithoutOption {
    flag: bool,
    small: i8,
    wide: i64,
    ratio: f64,
    number: u16,
    text: String,
    numbers: Vec<u32>,
    doubles: Vec<f64>,
    words: Vec<String>,
    fixed: [i16; 3],
    points: Vec<Point>,
    pair: [Point; 2],
    octets: Vec<u8>,
}

fn point(x: f64, name: &str) -> Point {
    Point { x, name: name.to_owned() }
}

fn all() -> All {
    All {
        flag: true,
        small: -3,
        wide: -1,
        ratio: 0.5,
        number: 65_000,
        text: "thalweg".to_owned(),
        numbers: vec![1, 2, 3],
        doubles: vec![1.5, -2.0],
        words: vec!["a".to_owned(), String::new()],
        fixed: [-1, 0, 1],
        points: vec![point(1.0, "p")],
        pair: [point(2.0, "q"), point(3.0, "")],
        octets: vec![7, 8, 9],
        perhaps: Some(5),
    }
}

fn without_option() -> WithoutOption {
    let All { flag, small, wide, ratio, number, text, numbers, doubles, words, fixed, points, pair, octets, .. } =
        all();
    WithoutOption { flag, small, wide, ratio, number, text, numbers, doubles, words, fixed, points, pair, octets }
}

fn schema<T: serde::de::DeserializeOwned>() -> Arc<Schema> {
    TypeDescription::of::<T>().schema.unwrap()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hexadecimal.bytes().filter_map(|digit| (digit as char).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// `without_option()` and four times `all()`, as Cyclone DDS for Python 11.0.1 serializes them.
const BIG_ENDIAN: &str = "\
    0000000001fd000000000000ffffffffffffffff3fe0000000000000fde80000000000087468616c776567000000000300000001000000020000000300\
    000002000000003ff8000000000000c000000000000000000000020000000261000000000000010000ffff0000000100000001000000003ff000000000\
    00000000000270000000400000000000000000000002710000004008000000000000000000010000000000000003070809";
const FINAL_LITTLE: &str = "\
    0007000001fd0000ffffffffffffffff000000000000e03fe8fd0000080000007468616c77656700030000000100000002000000030000000200000000\
    0000000000f83f00000000000000c011000000020000000200000061000000010000000000ffff000001001200000001000000000000000000f03f0200\
    0000700000001d000000000000000000004002000000710000000000000000000840010000000000000003000000070809010500";
const FINAL_BIG: &str = "\
    0006000001fd0000ffffffffffffffff3fe0000000000000fde80000000000087468616c7765670000000003000000010000000200000003000000023f\
    f8000000000000c00000000000000000000011000000020000000261000000000000010000ffff0000000100000012000000013ff00000000000000000\
    0002700000000000001d400000000000000000000002710000004008000000000000000000010000000000000003070809010005";
const APPENDABLE_LITTLE: &str = "\
    00090000b600000001fd0000ffffffffffffffff000000000000e03fe8fd0000080000007468616c776567000300000001000000020000000300000002\
    000000000000000000f83f00000000000000c011000000020000000200000061000000010000000000ffff0000010016000000010000000e0000000000\
    00000000f03f0200000070000000250000000e000000000000000000004002000000710000000d00000000000000000008400100000000000000030000\
    00070809010500";
const APPENDABLE_BIG: &str = "\
    00080000000000b601fd0000ffffffffffffffff3fe0000000000000fde80000000000087468616c776567000000000300000001000000020000000300\
    0000023ff8000000000000c00000000000000000000011000000020000000261000000000000010000ffff0000000100000016000000010000000e3ff0\
    0000000000000000000270000000000000250000000e400000000000000000000002710000000000000d40080000000000000000000100000000000000\
    03070809010005";

#[test]
fn messages_of_another_writer_are_read() {
    let ours = to_cdr(&without_option()).unwrap();
    assert_eq!(transcode(&schema::<WithoutOption>(), &bytes(BIG_ENDIAN)).as_deref(), Ok(&ours[..]));
    assert_eq!(from_cdr(&bytes(BIG_ENDIAN)), Ok(without_option()), "without being transcoded, too");
    for theirs in [FINAL_LITTLE, FINAL_BIG, APPENDABLE_LITTLE, APPENDABLE_BIG] {
        let message = bytes(theirs);
        let found = transcode(&schema::<All>(), &message);
        assert_eq!(found.as_deref(), Ok(&to_cdr(&all()).unwrap()[..]), "{theirs}");
        assert!(matches!(found, Ok(Cow::Owned(_))));
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Color {
    Red,
    Green,
}

/// Arrays of two dimensions are one collection; a sequence of arrays is one of its own. Enums are not primitive.
#[test]
fn collections_of_another_writer_are_read() {
    type Grid = ([[i32; 2]; 2], [[String; 2]; 2], Vec<[i16; 2]>, Color, Vec<Color>, [Color; 2]);
    const GRID: &str = "\
        00070000010000000200000003000000040000001d0000000200000061000000020000006200000002000000630000000100000000000000\
        0c000000020000000500060007000800010000000c000000020000000000000001000000080000000100000000000000";
    let words = [["a", "b"], ["c", ""]].map(|row| row.map(str::to_owned));
    let pair = [Color::Green, Color::Red];
    let grid: Grid =
        ([[1, 2], [3, 4]], words, vec![[5, 6], [7, 8]], Color::Green, vec![Color::Red, Color::Green], pair);
    let theirs = bytes(GRID);
    assert_eq!(transcode(&schema::<Grid>(), &theirs).as_deref(), Ok(&to_cdr(&grid).unwrap()[..]));
}

#[test]
fn what_is_in_the_usual_form_stays_where_it_is() {
    let ours = to_cdr(&all()).unwrap();
    assert!(matches!(transcode(&schema::<All>(), &ours), Ok(Cow::Borrowed(same)) if same == ours));
}

/// A later version of an appendable type has members behind those that are known here.
#[test]
fn members_that_are_not_known_are_left_out() {
    let mut later = bytes(APPENDABLE_LITTLE);
    later.extend([1, 2, 3, 4]);
    later[4] += 4;
    assert_eq!(transcode(&schema::<All>(), &later).as_deref(), Ok(&to_cdr(&all()).unwrap()[..]));
}

#[test]
fn wrong_lengths_and_forms_are_named() {
    let problem = |bytes: &[u8]| transcode(&schema::<All>(), bytes).unwrap_err().to_string();
    let mut short = bytes(APPENDABLE_LITTLE);
    short[4] -= 1;
    assert!(problem(&short).contains("as its length says, found it longer"), "{}", problem(&short));
    let mut long = bytes(APPENDABLE_LITTLE);
    long[4] += 1;
    assert!(problem(&long).starts_with("byte 4: expected the length of a value that fits 182 bytes, found 183"));
    assert!(problem(&[0, 3, 0, 0]).ends_with("found 00 03 (parameter list CDR, little-endian)"));
    assert!(problem(&bytes(FINAL_BIG)[..40]).contains("found the end"));
    let mut behind = bytes(FINAL_LITTLE);
    behind.extend([0; 4]);
    assert!(problem(&behind).contains("expected the end"));
}

#[test]
fn a_count_of_elements_without_bytes_ends_soon() {
    let nothing = Schema::Array { len: u32::MAX, element: Box::new(Schema::Unit) };
    assert_eq!(transcode(&nothing, &[0, 0, 0, 0]).as_deref(), Ok(&[0, 1, 0, 0][..]));
    let many = Schema::Array { len: u32::MAX, element: Box::new(Schema::Tuple(vec![Schema::Unit; 4000])) };
    let much = Schema::Array { len: 1000, element: Box::new(Schema::Tuple(vec![Schema::U8, many])) };
    let empty = Schema::Sequence(Box::new(Schema::Struct { name: "Empty".to_owned(), fields: Vec::new() }));
    let counted =
        |count: u8| [&[0, 9, 0, 0, 4 + 4 * count, 0, 0, 0, count, 0, 0, 0][..], &vec![0; 4 * count as usize]].concat();
    assert_eq!(transcode(&empty, &counted(7)).as_deref(), Ok(&[0, 1, 0, 0, 7, 0, 0, 0][..]));
    let many = [&[0, 9, 0, 0, 8, 32, 0, 0, 1, 8, 0, 0][..], &vec![0; 4 * 2049]].concat();
    assert!(transcode(&empty, &many).unwrap_err().problem.contains("1024 elements without bytes, found 2049"));
    assert!(transcode(&much, &[&[0, 0, 0, 0][..], &[1; 1000]].concat()).unwrap_err().problem.contains("parts"));
}

/// A writer of its own, for values without options, maps and enums.
struct Writer {
    value: Vec<u8>,
    version: Version,
    big_endian: bool,
}

impl Writer {
    fn message(header: u8, schema: &Schema, json: &Value) -> Vec<u8> {
        let version = [Version::One, Version::Two, Version::TwoDelimited][(header / 2).saturating_sub(2) as usize];
        let mut writer = Self { value: Vec::new(), version, big_endian: header.is_multiple_of(2) };
        writer.write(schema, json);
        [&[0, header, 0, 0], &writer.value[..]].concat()
    }

    fn number<const N: usize>(&mut self, mut little: [u8; N]) {
        let alignment = if self.version == Version::One { N } else { N.min(4) };
        self.value.resize(self.value.len().next_multiple_of(alignment), 0);
        if self.big_endian {
            little.reverse();
        }
        self.value.extend(little);
    }

    /// Writes the length in bytes before what `write` writes.
    fn delimited(&mut self, is: bool, write: impl FnOnce(&mut Self)) {
        if !is {
            return write(self);
        }
        self.number([0; 4]);
        let start = self.value.len();
        write(self);
        let length = (self.value.len() - start) as u32;
        let length = if self.big_endian { length.to_be_bytes() } else { length.to_le_bytes() };
        self.value[start - 4..start].copy_from_slice(&length);
    }

    fn write(&mut self, schema: &Schema, json: &Value) {
        match (schema, json) {
            (Schema::U8, json) => self.number([json.as_u64().unwrap() as u8]),
            (Schema::I16, json) => self.number((json.as_i64().unwrap() as i16).to_le_bytes()),
            (Schema::F64, json) => self.number(json.as_f64().unwrap().to_le_bytes()),
            (Schema::String, Value::String(text)) => {
                self.number((text.len() as u32 + 1).to_le_bytes());
                self.value.extend(text.bytes().chain([0]));
            }
            (Schema::Sequence(element), Value::Array(values)) => {
                self.delimited(self.version != Version::One && !is_primitive(element), |writer| {
                    writer.number((values.len() as u32).to_le_bytes());
                    values.iter().for_each(|value| writer.write(element, value));
                });
            }
            (Schema::Tuple(parts), Value::Array(values)) => {
                parts.iter().zip(values).for_each(|(part, value)| self.write(part, value));
            }
            (Schema::Struct { fields, .. }, Value::Object(object)) => {
                self.delimited(self.version == Version::TwoDelimited, |writer| {
                    fields.iter().for_each(|field| writer.write(&field.schema, &object[&field.name]));
                });
            }
            other => panic!("not in these tests: {other:?}"),
        }
    }
}

/// Numbers of each width at any alignment, among collections of each kind.
type Mixed = (u8, Vec<f64>, String, Vec<String>, Vec<Point>, i16, f64);

fn mixed() -> impl Strategy<Value = Mixed> {
    let finite = || any::<f64>().prop_filter("JSON has no other numbers", |number| number.is_finite());
    let points = prop::collection::vec((finite(), ".{0,3}").prop_map(|(x, name)| Point { x, name }), 0..4);
    let (numbers, words) = (prop::collection::vec(finite(), 0..4), prop::collection::vec(".{0,3}", 0..4));
    (any::<u8>(), numbers, ".{0,5}", words, points, any::<i16>(), finite())
}

proptest! {
    #[test]
    fn any_value_survives(mixed in mixed(), header in prop::sample::select(vec![0, 6, 7, 8, 9])) {
        let schema = schema::<Mixed>();
        let theirs = Writer::message(header, &schema, &serde_json::to_value(&mixed).unwrap());
        let found = transcode(&schema, &theirs).map(Cow::into_owned);
        prop_assert_eq!(found, to_cdr(&mixed));
    }

    #[test]
    fn any_bytes_are_read_or_refused(header in 0..10_u8, value in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(plain) = transcode(&schema::<All>(), &[&[0, header, 0, 0], &value[..]].concat()) {
            prop_assert!(header == 1 || from_cdr::<All>(&plain).is_ok());
        }
    }
}
