use super::known::{TEXTS, known};
use super::*;
use crate::codec::Schema;
use proptest::prelude::*;
use proptest::string::string_regex;

/// A set with these definitions.
fn set(texts: &[(&str, &str)]) -> Definitions {
    let mut definitions = Definitions::new();
    for (name, text) in texts {
        definitions.add(name, text).unwrap();
    }
    definitions
}

/// The structure of `a/msg/A` with this text.
fn schema(text: &str) -> String {
    set(&[("a/msg/A", text)]).describe("a/A").unwrap().schema.unwrap().to_string()
}

/// The error of `a/msg/A` with this text.
fn wrong(text: &str) -> String {
    Definitions::new().add("a/msg/A", text).unwrap_err().to_string()
}

fn hash(definitions: &Definitions, name: &str) -> String {
    definitions.describe(name).unwrap().ros.unwrap().type_hash.clone()
}

#[test]
fn every_type_of_a_field() {
    let text = "bool a\nbyte b\nchar c\nint8 d\nuint8 e\nint16 f\nuint16 g\nint32 h\nuint32 i\nint64 j\nuint64 k\n\
                float32 l\nfloat64 m\nstring n\nstring<=5 o\n";
    let expected = "A{a:bool,b:u8,c:u8,d:i8,e:u8,f:i16,g:u16,h:i32,i:u32,j:i64,k:u64,l:f32,m:f64,n:string,o:string}";
    assert_eq!(schema(text), expected);
    assert_eq!(
        schema("float64[9] a\nuint8[] b\nbool[<=3] c\nstring<=4[<=2] d\nstring[2] e"),
        "A{a:array<f64,9>,b:sequence<u8>,c:sequence<bool>,d:sequence<string>,e:array<string,2>}"
    );
    assert_eq!(schema("# nothing\n\n"), "A{structure_needs_at_least_one_member:u8}");
    let wide = set(&[("a/msg/A", "uint8 a\nwstring<=3[] b")]).describe("a/msg/A").unwrap();
    assert_eq!(wide.schema, None);
}

#[test]
fn types_are_found_by_each_form_of_their_name() {
    let definitions = set(&[
        ("a/msg/A", "B one\nb/B[] two\r\n  b/msg/B\tthree # tabs and \\r\nbuiltin_interfaces/Duration four"),
        ("a/msg/B", "int8 x"),
        ("b/B", "int16 x"),
    ]);
    let expected = "A{one:B{x:i8},two:sequence<B{x:i16}>,three:B{x:i16},four:Duration{sec:i32,nanosec:u32}}";
    assert_eq!(definitions.describe("a/A").unwrap().schema.unwrap().to_string(), expected);
    assert_eq!(definitions.names().collect::<Vec<_>>(), ["a/msg/A", "a/msg/B", "b/msg/B"]);
}

#[test]
fn a_header_without_a_package_is_the_own_or_that_of_ros_1() {
    let mut definitions = set(&[("a/msg/A", "Header header")]);
    let with_package = set(&[("a/msg/A", "std_msgs/Header header")]);
    assert_eq!(hash(&definitions, "a/A"), hash(&with_package, "a/A"));
    definitions.add("a/msg/Header", "uint8 x").unwrap();
    assert_eq!(definitions.describe("a/A").unwrap().schema.unwrap().to_string(), "A{header:Header{x:u8}}");
    assert_ne!(hash(&definitions, "a/A"), hash(&with_package, "a/A"));
}

#[test]
fn constants_defaults_and_comments_leave_the_fields_alone() {
    let plain = set(&[("a/msg/A", "string a\nint32 b\nstring[] c\nfloat32 d\nbool e")]);
    let adorned = set(&[(
        "a/msg/A",
        "# first\nint32 X=1\nint8 LEAST = -128 # c\nuint64 MOST=0xffff_ffff_ffff_ffff\nstring TEXT=a # b = c\n\
         string QUOTED=\"a # b\"   # c\nstring EMPTY=\nfloat64 PI=3.14\nbool ON=True\nbyte B=255\n\
         string a \"it's # no comment = x\" # but this is\nint32 b -5\n\
         string[] c ['a, # b', \"c\\\"d\", e]#f\n   # alone\nfloat32 d 1e-3\nbool e true",
    )]);
    assert_eq!(hash(&plain, "a/A"), hash(&adorned, "a/A"));
    assert_eq!(plain.describe("a/A").unwrap().schema, adorned.describe("a/A").unwrap().schema);
    let differs = adorned.clone().add("a/A", "string a").unwrap_err();
    assert_eq!(differs, RosError::Differs { name: "a/msg/A".to_owned() });
    adorned.clone().add("a/A", "string a\nint32 b\nstring[] c\nfloat32 d\nbool e").unwrap();
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, says) in [
        ("int32 a\nint33 b", "a/msg/A, line 2: expected a type such as uint8"),
        ("int32[0] a", "sizes 1 to 4294967295, found \"int32[0]\""),
        ("int32[4294967296] a", "found \"int32[4294967296]\""),
        ("int32[<=+2] a", "found \"int32[<=+2]\""),
        ("string<= a", "found \"string<=\""),
        ("int32<=3 a", "found \"int32<=3\""),
        ("int32]3[ a", "found \"int32]3[\""),
        ("a/b/C d", "found \"a/b/C\""),
        ("Type_Other a", "found \"Type_Other\""),
        ("int32", "a field's name of at most 255 lower-case letters"),
        ("int32 # a", "found \"\""),
        ("int32 A", "found \"A\""),
        ("int32 a__b", "found \"a__b\""),
        ("int32 a-b", "found \"a-b\""),
        ("int32 a\n\nfloat32 a", "line 3: expected different names, found \"a\" twice"),
        ("int32 a=1", "a constant's name of at most 255 capitals"),
        ("int32[2] A=1", "a constant's type"),
        ("string<=2 A=a", "a constant's type"),
        ("uint8 A=256", "a value of the constant's type, within its limits, found \"256\""),
        ("int8 A=--1", "found \"--1\""),
        ("uint8 A=", "found \"\""),
        ("uint8 A='a'", "found \"'a'\""),
        ("bool a 2", "a default value of the field's type"),
        ("string<=2 a 'abc'", "found \"'abc'\""),
        ("string a 'b'c'", "found \"'b'c'\""),
        ("int8[2] a [1]", "found \"[1]\""),
        ("int8[<=1] a [1, 2]", "found \"[1, 2]\""),
        ("int8[] a 1", "found \"1\""),
        ("Other a 1", "found \"1\""),
        ("int8 a\n---\nint8 b", "line 2: expected a type"),
    ] {
        let found = wrong(text);
        assert!(found.starts_with("a/msg/A, line ") && found.contains(says), "{text:?}: {found}");
    }
}

#[test]
fn names_are_those_of_ros_2() {
    for name in
        ["", "a", "A/B", "a/b", "a/msg/b", "a/idl/B", "a/msg/B/C", "a_/B", "a__b/B", "a/B_", "a/B_C", "a/B-", "é/B"]
    {
        let found = Definitions::new().add(name, "").unwrap_err();
        assert!(matches!(found, RosError::Name { .. }), "{name:?}: {found}");
        assert_eq!(Definitions::new().describe(name).unwrap_err(), found);
    }
    let long = format!("a/{}", "B".repeat(256));
    assert!(Definitions::new().add(&long, "").is_err());
}

#[test]
fn limits_are_kept() {
    let comment = format!("#{}", " ".repeat(MAX_TEXT - 1));
    assert_eq!(schema(&comment), schema(""));
    assert!(wrong(&(comment + " ")).contains("at most 1048576 bytes, found one of 1048577"));
    let fields = |count: usize| (0..count).map(|number| format!("int8 a{number}\n")).collect::<String>();
    assert!(wrong(&fields(4097)).contains("at most 4096 fields and constants"));
    let full = set(&[("a/msg/A", fields(4096).as_str())]).describe("a/A").unwrap_err();
    assert_eq!(full, RosError::Parts { name: "a/msg/A".to_owned() });
    set(&[("a/msg/A", fields(4095).as_str())]).describe("a/A").unwrap();
    let mut many = Definitions::new();
    let large = "#".repeat(MAX_TEXT - 1000); // with what is kept besides, a little less than a sixty-fourth
    let texts = (0..=MAX_TEXTS / MAX_TEXT).map(|number| many.add(&format!("a/A{number}"), &large));
    let found: Vec<RosError> = texts.filter_map(Result::err).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].to_string().contains("at most 67108864 bytes"), "{found:?}");
}

#[test]
fn levels_and_parts_of_nested_types_are_counted() {
    /// Types of which each has `count` of the next.
    fn chain(length: usize, count: usize) -> Definitions {
        let mut definitions = Definitions::new();
        for number in 0..length {
            let field = |index: usize| format!("T{} f{index}\n", number + 1);
            let text: String = (0..count).map(field).collect();
            definitions.add(&format!("a/T{number}"), &text).unwrap();
        }
        definitions.add(&format!("a/T{length}"), "int8 x").unwrap();
        definitions
    }
    let deep = chain(30, 1).describe("a/T0").unwrap(); // 31 messages, and the number in the last
    assert_eq!(deep.schema.unwrap().check(), Ok(()));
    assert_eq!(chain(31, 1).describe("a/T0").unwrap_err(), RosError::Levels { name: "a/msg/T0".to_owned() });
    assert_eq!(chain(28, 2).describe("a/T0").unwrap_err(), RosError::Parts { name: "a/msg/T0".to_owned() });
}

#[test]
fn what_cannot_be_described_is_named() {
    let cycle = set(&[("a/A", "int8 x\nB b"), ("a/B", "C[] c"), ("a/C", "B[<=2] b")]);
    let found = cycle.describe("a/A").unwrap_err().to_string();
    assert_eq!(found, "expected types that do not contain themselves, found a/msg/B -> a/msg/C -> a/msg/B");
    let unknown = set(&[("a/A", "b/B[3] b")]).describe("a/A").unwrap_err().to_string();
    assert_eq!(unknown, "expected a definition of b/msg/B, which a/msg/A refers to, found none: add it");
    let nothing = Definitions::new().describe("a/A").unwrap_err().to_string();
    assert_eq!(nothing, "expected a definition of a/msg/A, found none: add it");
    let service = set(&[("a/A", "action_msgs/srv/CancelGoal x")]).describe("a/A").unwrap_err().to_string();
    assert!(service.ends_with("found action_msgs/srv/CancelGoal, which is a service or an action"), "{service}");
}

#[test]
fn hashes_are_those_of_ros_2() {
    let definitions = set(&[
        ("std_msgs/msg/String", "string data"),
        ("std_msgs/msg/Empty", ""),
        ("std_msgs/msg/Byte", "byte data"),
        ("std_msgs/msg/Char", "char data"),
        ("example_interfaces/srv/AddTwoInts", "int64 a\nint64 b\n---\nint64 sum\n"),
        ("std_srvs/srv/Trigger", "---\nbool success\nstring message"),
        ("example_interfaces/action/Fibonacci", "int32 order\n---\nint32[] sequence\n---\nint32[] sequence\n"),
    ]);
    // As public projects state them that speak with real ROS 2 installations, among them the design page of rmw_zenoh.
    for (name, digits) in [
        ("std_msgs/msg/String", "df668c740482bbd48fb39d76a70dfd4bd59db1288021743503259e948f6b1a18"),
        ("std_msgs/msg/Empty", "20b625256f32d5dbc0d04fee44f43c41e51c70d3502f84b4a08e7a9c26a96312"),
        ("std_msgs/msg/Byte", "41e1a3345f73fe93ede006da826a6ee274af23dd4653976ff249b0f44e3e798f"),
        ("std_msgs/msg/Char", "3ad2d04dd29ba19d04b16659afa3ccaedd691914b02a64e82e252f2fa6a586a9"),
        ("std_msgs/msg/Header", "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01"),
        ("builtin_interfaces/msg/Time", "b106235e25a4c5ed35098aa0a61a3ee9c9b18d197f398b0e4206cea9acf9c197"),
        ("service_msgs/msg/ServiceEventInfo", "41bcbbe07a75c9b52bc96bfd5c24d7f0fc0a08c0cb7921b3373c5732345a6f45"),
        ("action_msgs/msg/GoalStatusArray", "6c1684b00f177d37438febe6e709fc4e2b0d4248dca4854946f9ed8b30cda83e"),
        ("action_msgs/srv/CancelGoal", "573d8b0a534451d7bc2ac8c5ffde8ac14b8593b7001175d0cd6516dcbeb8689a"),
        ("example_interfaces/srv/AddTwoInts", "e118de6bf5eeb66a2491b5bda11202e7b68f198d6f67922cf30364858239c81a"),
        ("std_srvs/srv/Trigger", "eeff2cd6fa5ad9d27cdf4dec64818317839b62f212a91e6b5304b634b2062c5f"),
        (
            "example_interfaces/action/Fibonacci_SendGoal",
            "d1a57fb2a4afe8c21e34fb10db206f16ce6729b28531141472df92277c55b557",
        ),
        (
            "example_interfaces/action/Fibonacci_GetResult",
            "1b0de0d5d29dc955d92f546706568428632771db13ec84c15ec1c1a59f424a57",
        ),
        (
            "example_interfaces/action/Fibonacci_FeedbackMessage",
            "c1de71afd52e49a89c53d8262366884185bc0a02f78ce051c4e46b0a7fe59bb2",
        ),
    ] {
        assert_eq!(hash(&definitions, name), format!("RIHS01_{digits}"), "{name}");
    }
}

#[test]
fn services_and_actions_have_their_messages() {
    let service = set(&[("a/srv/Ask", "uint8 K=1\nB b\n---\n"), ("a/B", "string x")]);
    let schema = |name: &str| service.describe(name).unwrap().schema.map(|schema| schema.to_string());
    assert_eq!(schema("a/srv/Ask"), None);
    assert_eq!(schema("a/srv/Ask_Request").unwrap(), "Ask_Request{b:B{x:string}}");
    assert_eq!(schema("a/srv/Ask_Response").unwrap(), "Ask_Response{structure_needs_at_least_one_member:u8}");
    assert!(schema("a/srv/Ask_Event").unwrap().ends_with(
        "request:sequence<Ask_Request{b:B{x:string}}>,\
         response:sequence<Ask_Response{structure_needs_at_least_one_member:u8}>}"
    ));
    let action = set(&[("a/action/Go", "int8 x\n---\n---\nfloat32 left")]);
    assert_eq!(action.names().count(), 3 + 2 * 4 + 1 + 1);
    let feedback = action.describe("a/action/Go_FeedbackMessage").unwrap().schema.unwrap().to_string();
    assert_eq!(feedback, "Go_FeedbackMessage{goal_id:UUID{uuid:array<u8,16>},feedback:Go_Feedback{left:f32}}");
    for (name, text, says) in [
        ("a/srv/Ask", "int8 a", "expected 1 line(s) of ---, found 0"),
        ("a/srv/Ask", "---\n---", "expected 1 line(s) of ---, found 2"),
        ("a/action/Go", "---", "expected 2 line(s) of ---, found 1"),
        ("a/srv/Ask", "int8 a\n---\nint8 b\nnothing c", "a/srv/Ask, line 4: expected a type"),
    ] {
        let found = Definitions::new().add(name, text).unwrap_err().to_string();
        assert!(found.contains(says), "{text:?}: {found}");
    }
}

#[test]
fn concatenated_texts_are_read_and_written() {
    let line = "=".repeat(80);
    let text = format!("b/B b\nC[] c\n\n{line}\nMSG: b/B\n\n# b\nint8 x\n{line}\nMSG: a/msg/C\nstd_msgs/Header h");
    let mut definitions = Definitions::new();
    definitions.add_concatenated("a/msg/A", &text).unwrap();
    let described = definitions.describe("a/A").unwrap();
    let after = [
        ("std_msgs/Header", "builtin_interfaces/Time stamp\nstring frame_id"),
        ("builtin_interfaces/Time", "int32 sec\nuint32 nanosec"),
    ];
    let after: String = after.map(|(name, text)| format!("\n{line}\nMSG: {name}\n{text}")).concat();
    assert_eq!(described.ros.unwrap().source, text.replace("a/msg/C", "a/C") + &after + "\n");
    let missing = Definitions::new().add_concatenated("a/A", &format!("int8 a\n{line}\nIDL: a/B\n")).unwrap_err();
    assert!(missing.to_string().starts_with("a/msg/A, line 3: expected MSG: and the name"), "{missing}");
    let wrong = Definitions::new().add_concatenated("a/A", &format!("B b\n{line}\nMSG: a/B\nint8 C\n")).unwrap_err();
    assert!(wrong.to_string().starts_with("a/msg/B, line 4: expected a field's name"), "{wrong}");
}

#[test]
fn a_source_gives_the_same_type_again() {
    let definitions =
        set(&[("a/action/Go", "B x # b\n---\n---\nfloat32 left"), ("a/B", "Header h"), ("a/srv/Ask", "B b\n---\n")]);
    let names = definitions.names().chain(known().keys().map(String::as_str));
    for name in names {
        let described = definitions.describe(name).unwrap();
        let mut again = Definitions::new();
        again.add_concatenated(name, &described.ros.as_ref().unwrap().source).unwrap();
        assert_eq!(again.describe(name).unwrap(), described);
    }
}

#[test]
fn what_is_known_is_read() {
    for (name, _) in TEXTS {
        assert_eq!(Definitions::new().describe(name).unwrap().ros.unwrap().name, *name);
    }
    let own = set(&[("builtin_interfaces/msg/Time", "uint64 ns")]).describe("std_msgs/Header").unwrap();
    assert_eq!(own.schema.unwrap().to_string(), "Header{stamp:Time{ns:u64},frame_id:string}");
}

/// Lines that are nearly right.
fn line() -> impl Strategy<Value = String> {
    let of_type =
        "(bool|char|int32|uint8|float64|w?string(<=[0-9]{1,11})?|Header|A|a/B|std_msgs/msg/Header|b/C_Request)";
    let field = format!("{of_type}(\\[(<=)?[0-9]{{0,3}}\\])? [a-z_]{{1,3}}( [-0-9\\[\\]'\", #.e]{{1,6}})?");
    prop_oneof![
        string_regex(&field).unwrap(),
        "(int8|string|bool) [A-Z_]{1,2} ?= ?[-0-9a-fx'\"#\\\\]{0,6}",
        Just("---".to_owned()),
        Just("=".repeat(80)),
        Just("MSG: a/B".to_owned()),
        "[ -~]{0,20}",
        "\\PC{0,12}",
    ]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in prop::collection::vec(line(), 0..8).prop_map(|lines| lines.join("\n"))) {
        for name in ["a/msg/A", "a/srv/A", "a/action/A", "a/srv/A_Event"] {
            let (mut alone, mut concatenated) = (Definitions::new(), Definitions::new());
            let read = [alone.add(name, &text), concatenated.add_concatenated(name, &text)];
            for (definitions, read) in [alone, concatenated].iter().zip(read) {
                prop_assert!(read.is_err() != (definitions.names().count() > 0));
                for name in definitions.names() {
                    let Ok(described) = definitions.describe(name) else { continue };
                    prop_assert_eq!(described.ros.as_deref().map(RosType::check), Some(Ok(())));
                    prop_assert_eq!(described.schema.as_deref().map_or(Ok(()), Schema::check), Ok(()));
                }
            }
        }
    }
}
