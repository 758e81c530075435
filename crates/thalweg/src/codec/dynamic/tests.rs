use super::super::samples::*;
use super::super::schema::{Field, Variant};
use super::super::{TypeDescription, from_cdr, to_cdr};
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn schema<T: DeserializeOwned>() -> Arc<Schema> {
    TypeDescription::of::<T>().schema.expect("traced")
}

/// The JSON of a value's bytes is the JSON of the value, and gives the bytes again.
fn agrees<T: Serialize + DeserializeOwned>(value: &T, expected: Value) {
    let bytes = to_cdr(value).unwrap();
    assert_eq!(serde_json::to_value(value).unwrap(), expected);
    assert_eq!(to_json(&schema::<T>(), &bytes).unwrap(), expected);
    assert_eq!(from_json(&schema::<T>(), &expected).unwrap(), bytes);
}

fn refused<T: DeserializeOwned>(json: Value) -> String {
    let error = from_json(&schema::<T>(), &json).unwrap_err();
    assert_eq!(error.offset, 0);
    error.problem
}

#[test]
fn agrees_with_serde() {
    let stamp = Time { sec: -1, nanosec: 2 };
    let header = Header { stamp, frame_id: "base".into() };
    agrees(&header, json!({"stamp": {"sec": -1, "nanosec": 2}, "frame_id": "base"}));
    agrees(&vec![1u8, 2], json!([1, 2]));
    agrees(&(1u8, 'x', Some(-3i64), None::<u8>), json!([1, "x", -3, null]));
    agrees(&[0.1f32, 1.5], json!([0.1f32, 1.5]));
    agrees(&u64::MAX, json!(18_446_744_073_709_551_615_u64));
    agrees(&((), Unit, Meters(2.0)), json!([null, null, 2.0]));
    let commands =
        vec![Command::Stop, Command::Speed(1.0), Command::Move(1, 2), Command::Say { text: "a".into(), loud: true }];
    agrees(&commands, json!(["Stop", {"Speed": 1.0}, {"Move": [1, 2]}, {"Say": {"text": "a", "loud": true}}]));
}

#[test]
fn maps() {
    agrees(&BTreeMap::from([("b".to_owned(), 1u8), ("a".to_owned(), 2)]), json!({"a": 2, "b": 1}));
    agrees(&BTreeMap::from([(-5i8, true)]), json!({"-5": true}));
    agrees(&BTreeMap::from([(true, 'x')]), json!({"true": "x"}));
    agrees(&BTreeMap::from([(Mode::Run, 1u8)]), json!({"Run": 1}));
    // Keys that are no text: `serde_json` has no form for these.
    let bytes = to_cdr(&BTreeMap::from([((1u8, 2u16), 3u8)])).unwrap();
    let schema = schema::<BTreeMap<(u8, u16), u8>>();
    assert_eq!(to_json(&schema, &bytes).unwrap(), json!([[[1, 2], 3]]));
    assert_eq!(from_json(&schema, &json!([[[1, 2], 3]])).unwrap(), bytes);
    let floats = Schema::Map { key: Box::new(Schema::F32), value: Box::new(Schema::U8) };
    let bytes = to_cdr(&[(0.1f32, 1u8)].as_slice()).unwrap();
    assert_eq!(to_json(&floats, &bytes).unwrap(), json!({"0.1": 1}));
    assert_eq!(from_json(&floats, &json!({"0.1": 1})).unwrap(), bytes);
}

#[test]
fn floats_that_are_not_finite() {
    let bytes = to_cdr(&[f64::NAN, f64::INFINITY]).unwrap();
    assert_eq!(to_json(&schema::<[f64; 2]>(), &bytes).unwrap(), json!([null, null]));
    let bytes = from_json(&schema::<[f64; 3]>(), &json!([null, "inf", "-inf"])).unwrap();
    let [nan, rest @ ..] = from_cdr::<[f64; 3]>(&bytes).unwrap();
    assert!(nan.is_nan() && rest == [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn json_for_people() {
    let bytes = from_json(&schema::<(u64, Option<u8>)>(), &json!(["18446744073709551615", null])).unwrap();
    assert_eq!(bytes, to_cdr(&(u64::MAX, None::<u8>)).unwrap());
    #[derive(Serialize, serde::Deserialize)]
    struct Loose {
        a: Option<u8>,
        b: u8,
    }
    assert_eq!(from_json(&schema::<Loose>(), &json!({"b": 1})).unwrap(), to_cdr(&Loose { a: None, b: 1 }).unwrap());
}

#[test]
fn errors_name_the_place_in_the_json() {
    let header = |sec: Value| json!({"stamp": {"sec": sec, "nanosec": 0}, "frame_id": ""});
    assert_eq!(refused::<Header>(header(json!(1.5))), "stamp.sec: expected i32, found 1.5");
    assert_eq!(refused::<Vec<Header>>(json!([header(json!([1]))])), "[0].stamp.sec: expected i32, found an array of 1");
    assert_eq!(refused::<u8>(json!(256)), "expected u8, found 256");
    assert_eq!(refused::<[u8; 2]>(json!([1])), "expected array<u8,2>, found an array of 1");
    assert_eq!(refused::<f32>(json!(1e300)), "expected f32, found 1e+300");
    assert_eq!(refused::<char>(json!("ab")), "expected char, found \"ab\"");
    assert_eq!(refused::<Time>(json!({"sec": 1})), "expected the field \"nanosec\", found none");
    assert_eq!(refused::<Time>(json!({"sec": 1, "x": 2})), "expected the fields sec, nanosec, found \"x\"");
    assert_eq!(refused::<Mode>(json!("Fly")), "expected a variant of Mode, found \"Fly\"");
    assert_eq!(refused::<Command>(json!("Speed")), "expected what \"Speed\" holds, found its name alone");
    assert_eq!(refused::<Command>(json!({"Stop": 1})), "expected \"Stop\" alone, as it holds nothing, found 1");
    assert_eq!(refused::<Command>(json!({})), "expected one variant of Command, found 0");
    assert_eq!(refused::<BTreeMap<u8, Mode>>(json!({"300": "Run"})), "expected u8, found \"300\"");
    assert_eq!(refused::<BTreeMap<u8, Mode>>(json!({"30": null})), "30: expected Mode, found null");
    assert_eq!(refused::<BTreeMap<u8, Mode>>(json!([1])), "expected [key, value], found 1");
}

#[test]
fn errors_name_the_place_in_the_bytes() {
    let error =
        |schema: &Schema, value: &[u8]| to_json(schema, &[&[0, 1, 0, 0], value].concat()).unwrap_err().to_string();
    let mode = schema::<Mode>();
    assert_eq!(error(&mode, &[2, 0, 0, 0]), "byte 4: expected the index of one of 2 variants, found 2");
    assert_eq!(error(&Schema::U16, &[2]), "byte 4: expected u16 (2 bytes), found the end after 1 bytes");
    assert!(error(&Schema::U8, &[0; 5]).contains("expected the end"));
    assert_eq!(to_json(&Schema::U16, &[0, 0, 0, 0, 1, 2]), Ok(258.into()), "big-endian");
    assert!(to_json(&Schema::U8, &[0, 7, 0, 0, 1]).unwrap_err().problem.contains("XCDR version 2, little-endian"));
}

#[test]
fn hostile_schemas_make_little_json() {
    let names = |count: usize, name: &str, schema: Schema| {
        let field = |index| Field { name: format!("{name}{index}"), schema: schema.clone() };
        Schema::Struct { name: "S".into(), fields: (0..count).map(field).collect() }
    };
    let many = Schema::Sequence(Box::new(names(4000, "field", Schema::Unit)));
    let long = Schema::Sequence(Box::new(names(1, &"x".repeat(60_000), Schema::U8)));
    let huge = Schema::Array { len: u32::MAX, element: Box::new(Schema::Unit) };
    for schema in [many, long, huge] {
        let bytes = [&[0, 1, 0, 0, 100, 0, 0, 0][..], &[0; 100]].concat();
        assert!(to_json(&schema, &bytes).unwrap_err().problem.contains("in proportion"));
    }
    let deep = (0..1000).fold(Schema::U8, |inner, _| Schema::Array { len: 1, element: Box::new(inner) });
    assert!(to_json(&deep, &[0, 1, 0, 0, 1]).unwrap_err().problem.contains("64 levels"));
    let json = (0..1000).fold(json!(1), |inner, _| json!([inner]));
    assert!(from_json(&deep, &json).unwrap_err().problem.contains("64 levels"));
}

fn any_schema() -> impl Strategy<Value = Schema> {
    use Schema::*;
    let simple = [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F32, F64, Char, String, Unit];
    prop::sample::select(simple.to_vec()).prop_recursive(5, 40, 5, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed.clone().prop_map(Sequence),
            boxed.clone().prop_map(Option),
            (any::<u8>(), boxed.clone()).prop_map(|(len, element)| Array { len: len.into(), element }),
            (boxed.clone(), boxed).prop_map(|(key, value)| Map { key, value }),
            vec(inner.clone(), 0..4).prop_map(Tuple),
            vec(inner.clone(), 0..4).prop_map(|schemas| {
                let field = |(index, schema)| Field { name: format!("f{index}"), schema };
                Struct { name: "S".into(), fields: schemas.into_iter().enumerate().map(field).collect() }
            }),
            vec(prop::option::of(inner), 0..4).prop_map(|schemas| {
                let variant = |(index, schema)| Variant { name: format!("V{index}"), schema };
                Enum { name: "E".into(), variants: schemas.into_iter().enumerate().map(variant).collect() }
            }),
        ]
    })
}

/// The number of values in JSON.
fn count(json: &Value) -> usize {
    1 + match json {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(object) => object.values().map(count).sum(),
        _ => 0,
    }
}

/// Reads bytes by any schema. A value that can be read is in proportion, and is unchanged when written and read
/// again. An exception are shorter encodings, which may hold fewer parts that take no bytes.
fn read(schema: &Schema, bytes: &[u8]) {
    if let Ok(json) = to_json(schema, bytes) {
        assert!(count(&json) <= (ROOM_AT_LEAST + ROOM_PER_BYTE * bytes.len()) / NODE);
        let again = from_json(schema, &json).unwrap();
        match to_json(schema, &again) {
            Ok(same) => assert_eq!(same, json),
            Err(error) => assert!(again.len() < bytes.len(), "{error}: {json}"),
        }
    }
}

#[test]
fn parts_that_take_no_bytes_are_as_many_as_those_that_are_there_allow() {
    read(&Schema::Sequence(Box::new(Schema::Unit)), &[1, 4, 0, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn json_is_that_of_the_value(value in everything()) {
        let bytes = to_cdr(&value).unwrap();
        let json = to_json(&schema::<Everything>(), &bytes).unwrap();
        prop_assert_eq!(&json, &serde_json::to_value(&value).unwrap());
        let again = from_json(&schema::<Everything>(), &json).unwrap();
        prop_assert_eq!(to_json(&schema::<Everything>(), &again).unwrap(), json);
    }

    #[test]
    fn any_bytes_do_no_harm(schema in any_schema(), bytes in vec(any::<u8>(), 0..200)) {
        read(&schema, &bytes);
        read(&schema, &[&[0, 1, 0, 0], bytes.as_slice()].concat());
    }

    #[test]
    fn small_bytes_do_no_harm(schema in any_schema(), bytes in vec(prop_oneof![4 => Just(0u8), 1 => 1u8..6], 0..100)) {
        for end in 0..bytes.len().min(24) {
            read(&schema, &[&[0, 1, 0, 0], &bytes[..end]].concat());
        }
        read(&schema, &[&[0, 1, 0, 0], bytes.as_slice()].concat());
    }
}
