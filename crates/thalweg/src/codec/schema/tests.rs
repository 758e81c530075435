use super::*;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU16;

#[derive(Serialize, Deserialize)]
struct Time {
    sec: i32,
    nanosec: u32,
}

#[derive(Serialize, Deserialize)]
struct Header {
    stamp: Time,
    frame_id: String,
}

#[derive(Serialize, Deserialize)]
enum Gear {
    Idle,
    Forward(f64),
    Turn(f32, i8),
    Towards { x: f64, label: Option<String> },
    Nested(Box<Result<u8, String>>),
}

#[derive(Serialize, Deserialize)]
struct Meters(f64);

#[derive(Serialize, Deserialize)]
struct Pair(u8, String);

#[derive(Serialize, Deserialize)]
struct Nothing;

fn text<T: DeserializeOwned>() -> String {
    TypeDescription::of::<T>().schema.expect("traced").to_string()
}

fn name<T: DeserializeOwned>() -> String {
    TypeDescription::of::<T>().name
}

#[test]
fn simple_types() {
    let found =
        [text::<bool>(), text::<u8>(), text::<i64>(), text::<f32>(), text::<char>(), text::<String>(), text::<()>()];
    assert_eq!(found, ["bool", "u8", "i64", "f32", "char", "string", "unit"]);
    assert_eq!(text::<NonZeroU16>(), "u16");
}

#[test]
fn containers() {
    assert_eq!(text::<Vec<u8>>(), "sequence<u8>");
    assert_eq!(text::<BTreeSet<u16>>(), "sequence<u16>");
    assert_eq!(text::<[f64; 9]>(), "array<f64,9>");
    assert_eq!(text::<(f64, f64)>(), "array<f64,2>");
    assert_eq!(text::<(u8, String)>(), "tuple<u8,string>");
    assert_eq!(text::<[u8; 0]>(), "tuple<>");
    assert_eq!(text::<Option<Vec<char>>>(), "option<sequence<char>>");
    assert_eq!(text::<HashMap<String, BTreeMap<u8, bool>>>(), "map<string,map<u8,bool>>");
}

#[test]
fn structs() {
    assert_eq!(text::<Header>(), "Header{stamp:Time{sec:i32,nanosec:u32},frame_id:string}");
    assert_eq!(text::<Pair>(), "tuple<u8,string>");
    assert_eq!(text::<Meters>(), "f64");
    assert_eq!(text::<Nothing>(), "unit");
}

#[test]
fn every_variant_is_visited() {
    let gear = "Gear[Idle,Forward:f64,Turn:tuple<f32,i8>,Towards:Towards{x:f64,label:option<string>},\
                Nested:Result[Ok:u8,Err:string]]";
    assert_eq!(text::<Gear>(), gear);
    assert_eq!(text::<[Gear; 2]>(), format!("array<{gear},2>"));
    // The same enum name with other contents.
    assert_eq!(
        text::<(Result<u8, bool>, Result<String, ()>)>(),
        "tuple<Result[Ok:u8,Err:bool],Result[Ok:string,Err:unit]>"
    );
}

#[test]
fn names() {
    assert_eq!([name::<Header>(), name::<Gear>(), name::<Pair>()], ["Header", "Gear", "Pair"]);
    assert_eq!([name::<Meters>(), name::<Nothing>()], ["Meters", "Nothing"]);
    assert_eq!([name::<String>(), name::<Vec<u8>>()], ["string", "sequence<u8>"]);
    assert_eq!(name::<Vec<Header>>(), "sequence<Header>");
    assert_eq!(super::text::without_paths("alloc::vec::Vec<robot::arm::Pose<f64>>"), "Vec<Pose<f64>>");
    assert_eq!(super::text::without_paths("[(a::B, &str); 3]"), "[(B, &str); 3]");
}

#[derive(Serialize, Deserialize)]
struct Tree {
    left: Option<Box<Tree>>,
    right: Option<Box<Tree>>,
}

#[derive(Serialize, Deserialize)]
enum Term {
    Number(i32),
    Sum(Box<Term>, Box<Term>),
    Product(Vec<Term>),
}

#[derive(Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[derive(Clone)]
struct Picky(String);

impl TryFrom<String> for Picky {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        if text.starts_with("picky:") { Ok(Self(text)) } else { Err("not picky".into()) }
    }
}

impl From<Picky> for String {
    fn from(picky: Picky) -> String {
        picky.0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(i32),
    Text(String),
}

#[derive(Serialize, Deserialize)]
struct Flat {
    #[serde(flatten)]
    header: Header,
}

#[derive(Serialize, Deserialize)]
enum Never {}

#[test]
fn untraceable_types_are_known_by_name() {
    assert_eq!(TypeDescription::of::<Tree>(), TypeDescription::opaque("Tree"));
    assert_eq!(TypeDescription::of::<Term>(), TypeDescription::opaque("Term"));
    assert_eq!(TypeDescription::of::<Picky>(), TypeDescription::opaque("Picky"));
    assert_eq!(TypeDescription::of::<Vec<Picky>>(), TypeDescription::opaque("Vec<Picky>"));
    assert_eq!(TypeDescription::of::<Untagged>(), TypeDescription::opaque("Untagged"));
    assert_eq!(TypeDescription::of::<Flat>(), TypeDescription::opaque("Flat"));
    assert_eq!(TypeDescription::of::<Never>(), TypeDescription::opaque("Never"));
    assert_eq!(TypeDescription::of::<serde_json::Value>(), TypeDescription::opaque("Value"));
    assert_eq!(TypeDescription::of::<i128>(), TypeDescription::opaque("i128"));
}

/// A type whose `Deserialize` requests no part, or not all that it announced.
struct Silent;

impl<'de> Deserialize<'de> for Silent {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

#[test]
fn a_silent_type_ends_the_tracing() {
    assert_eq!(TypeDescription::of::<Silent>(), TypeDescription::opaque("Silent"));
    assert_eq!(TypeDescription::of::<Vec<Silent>>(), TypeDescription::opaque("Vec<Silent>"));
}

#[test]
fn hashes_never_change() {
    // FNV-1a 64 of "", "a" and "foobar", from the authors' test vectors.
    assert_eq!(super::text::hash(format_args!("")), 0xcbf2_9ce4_8422_2325);
    assert_eq!(super::text::hash(format_args!("a")), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(super::text::hash(format_args!("{}{}", "foo", "bar")), 0x8594_4171_f739_67e8);
    assert_eq!(TypeDescription::opaque("foobar").hash, 0x8594_4171_f739_67e8);
    assert_eq!(TypeDescription::any(), TypeDescription { name: "*".into(), hash: 0, schema: None, ros: None });
    assert_eq!(TypeDescription::of::<Header>().hash, super::text::hash(format_args!("{}", text::<Header>())));
}

#[test]
fn matching() {
    let header = TypeDescription::of::<Header>();
    assert!(header.accepts(&TypeDescription::of::<Header>()));
    assert!(TypeDescription::any().accepts(&header));
    assert!(!header.accepts(&TypeDescription::any()));
    assert!(!header.accepts(&TypeDescription::of::<Time>()));
    assert!(!header.accepts(&TypeDescription::opaque("Header")));
}

#[test]
fn a_name_is_not_taken_for_structure() {
    let field = |name: &str, schema| Field { name: name.into(), schema };
    let one = Schema::Struct { name: "S".into(), fields: vec![field("a:u8,b", Schema::U8)] };
    let two = Schema::Struct { name: "S".into(), fields: vec![field("a", Schema::U8), field("b", Schema::U8)] };
    assert_eq!(one.to_string(), r#"S{"a:u8,b":u8}"#);
    assert_eq!(two.to_string(), "S{a:u8,b:u8}");
    let quoted = Schema::Struct { name: r#"a"\"#.into(), fields: vec![] };
    assert_eq!(quoted.to_string(), r#""a\"\\"{}"#);
}

#[test]
fn json_is_compact_and_comes_back() {
    let json = serde_json::to_string(&TypeDescription::of::<Time>()).unwrap();
    let hash = TypeDescription::of::<Time>().hash;
    assert_eq!(
        json,
        format!(
            r#"{{"name":"Time","hash":"{hash:016x}","schema":{{"struct":{{"name":"Time","fields":[{{"name":"sec","schema":"i32"}},{{"name":"nanosec","schema":"u32"}}]}}}}}}"#
        )
    );
    for description in [TypeDescription::of::<Gear>(), TypeDescription::of::<[Header; 3]>(), TypeDescription::any()] {
        let json = serde_json::to_string(&description).unwrap();
        let back: TypeDescription = serde_json::from_str(&json).unwrap();
        assert_eq!(back, description);
        back.check().unwrap();
    }
    for hash in ["12", "+00000000000000f", "zz00000000000000", "00000000000000000"] {
        let json = format!(r#"{{"name":"x","hash":"{hash}"}}"#);
        assert!(serde_json::from_str::<TypeDescription>(&json).is_err());
    }
}

#[test]
fn hostile_schemas_are_refused() {
    let nested = |levels| (1..levels).fold(Schema::U8, |inner, _| Schema::Sequence(Box::new(inner)));
    nested(MAX_DEPTH).check().unwrap();
    assert!(nested(MAX_DEPTH + 1).check().unwrap_err().to_string().contains("32 levels"));
    Schema::Tuple(vec![Schema::Bool; MAX_NODES - 1]).check().unwrap();
    assert!(Schema::Tuple(vec![Schema::Bool; MAX_NODES]).check().unwrap_err().to_string().contains("4096 parts"));
    let units = |count| {
        let variants = (0..count).map(|index| Variant { name: index.to_string(), schema: None }).collect();
        Schema::Enum { name: "E".into(), variants }
    };
    units(MAX_NODES - 1).check().unwrap();
    assert!(units(MAX_NODES).check().unwrap_err().to_string().contains("4096 parts"));
    let long = Schema::Struct { name: "x".repeat(MAX_NAME + 1), fields: vec![] };
    assert!(long.check().unwrap_err().to_string().contains("255 bytes"));
    let twice = Field { name: "a".into(), schema: Schema::U8 };
    let twice = Schema::Struct { name: "S".into(), fields: vec![twice.clone(), twice] };
    assert!(twice.check().unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_hash_of_another_schema_is_refused() {
    let mut description = TypeDescription::of::<Header>();
    description.schema = TypeDescription::of::<Time>().schema;
    assert!(description.check().unwrap_err().to_string().starts_with("expected the hash "));
}
