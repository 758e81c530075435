mod written;

use super::*;
use crate::codec::{FieldError, Fields, PathProblem, Schema};
use proptest::prelude::*;
use proptest::string::string_regex;

/// A set with this text.
fn set(text: &str) -> Idl {
    let mut idl = Idl::new();
    idl.add("a.idl", text).unwrap();
    idl
}

/// The structure of a type in this text.
fn schema(name: &str, text: &str) -> String {
    let described = set(text).describe(name).unwrap();
    let schema = described.schema.unwrap();
    assert_eq!((schema.check(), schema.hash()), (Ok(()), described.hash));
    schema.to_string()
}

/// The error of a text that cannot be added.
fn wrong(text: &str) -> String {
    Idl::new().add("a.idl", text).unwrap_err().to_string()
}

/// The error of a type `A` in a text that can be added.
fn refused(text: &str) -> String {
    set(text).describe("A").unwrap_err().to_string()
}

#[test]
fn every_type_of_a_member() {
    let text = "struct A { boolean a; octet b; char c; int8 d; uint8 e; short f; int16 g; unsigned short h; uint16 i; long j;
        int32 k; unsigned long l; uint32 m; long long n; int64 o; unsigned long long p; uint64 q; float r; double s; string t;
        string<5> u; };";
    assert_eq!(
        schema("A", text),
        "A{a:bool,b:u8,c:u8,d:i8,e:u8,f:i16,g:i16,h:u16,i:u16,j:i32,k:i32,l:u32,m:u32,n:i64,o:i64,p:u64,q:u64,r:f32,s:f64,t:string,\
         u:string}"
    );
    assert_eq!(
        schema("A", "struct A { sequence<long> a; sequence<sequence<string<3>>, 4> b; long c[2][3], d, e[1]; };"),
        "A{a:sequence<i32>,b:sequence<sequence<string>>,c:array<array<i32,3>,2>,d:i32,e:array<i32,1>}"
    );
    let marked = "struct A { @optional sequence<long> a; @optional(FALSE) long b; @non_serialized long c; };";
    assert_eq!(schema("A", marked), "A{a:option<sequence<i32>>,b:i32}");
    assert_eq!(schema("A", "struct A {};"), "A{}");
}

#[test]
fn typedefs_enums_and_bases() {
    let text = "typedef double Nine[3][3]; typedef Nine Alias, Two[2];
        enum Color { RED, @value(1) GREEN, @default_literal BLUE }; @bit_bound(32) enum Same { ONE };
        typedef struct Inner { Color c; } Outer; typedef enum Other { X } Others;
        struct Base { long id; }; struct Middle : Base { Alias m; }; struct A : ::Middle { Two t; Outer o; Others x; Same s; };";
    assert_eq!(
        schema("A", text),
        "A{id:i32,m:array<array<f64,3>,3>,t:array<array<array<f64,3>,3>,2>,o:Inner{c:Color[RED,GREEN,BLUE]},x:Other[X],s:Same[ONE]}"
    );
    assert!(
        matches!(set(text).describe("Color").unwrap().schema.as_deref(), Some(Schema::Enum { variants, .. }) if variants.len() == 3)
    );
    let described = set(text).describe("Two").unwrap();
    assert_eq!((described.name.as_str(), described.ros), ("Two", None));
}

#[test]
fn constants_are_sizes() {
    let text = "const long N = 2; module m { const unsigned long long BIG = 0x10; const long N = 010 - ::N * (1 + 1) << 1 & 0xff;
        const string TEXT = \"a\" \"b\\\"\"; const wstring<3> WIDE = L\"c\"; const float F = -1.5e-3; const double D = .1;
        const boolean B = TRUE;
        const char C = '\\''; const fixed X = 8.7d; const Color R = RED; const double PI = 2 * F; enum Color { RED };
        struct A { long a[N], b[::N], c[m::BIG | 1]; sequence<string<N>, (N >> 1)> d; sequence<sequence<long, N>> e; }; };";
    // 010 is 8, so m::N is (8 - 2 * 2) << 1
    assert_eq!(
        schema("m::A", text),
        "A{a:array<i32,8>,b:array<i32,2>,c:array<i32,17>,d:sequence<string>,e:sequence<sequence<i32>>}"
    );
    let mut idl = set("module m { const long N = 3; };");
    idl.add("b.idl", "module m { struct A { octet a[~(-N) + -(-1) % 2]; }; };").unwrap(); // ~-3 is 2
    assert_eq!(idl.describe("m::A").unwrap().schema.unwrap().to_string(), "A{a:array<u8,3>}");
}

#[test]
fn names_are_looked_up_from_the_innermost_scope_outwards() {
    let text = "struct T { long outer; }; module a { struct T { short inner; }; module b { struct A { T x; ::T y; a::T z; c::T w; }; }; };
        module a { module b { module c { struct T { octet last; }; }; }; };";
    assert_eq!(schema("a::b::A", text), "A{x:T{inner:i16},y:T{outer:i32},z:T{inner:i16},w:T{last:u8}}");
    let hidden = set("module b { struct T { long x; }; }; module a { module b {}; struct A { b::T x; }; };");
    let found = hidden.describe("a::A").unwrap_err().to_string();
    assert!(
        found.starts_with("expected a definition of b::T, which a::A refers to, found none: add the file"),
        "{found}"
    );
    let names = set(text);
    assert_eq!(names.names().collect::<Vec<_>>(), ["T", "a::T", "a::b::A", "a::b::c::T"]);
}

#[test]
fn comments_lines_of_the_preprocessor_and_annotations_are_skipped() {
    let text = "#ifndef A_IDL /* guard */\n#define A_IDL \\\n  1\n#include \"b.idl\"\n  # pragma once\n#if !defined(B)\n#endif
        // one { \" \n/* two\n @key */ struct Early; @annotation Mine { long x default 1; };
        @verbatim (language=\"comment\", text=\"a ) \" \"\nb\") @nested @topic(name=\"t\") @final
        @extensibility(APPENDABLE) struct /* here */ A { @id(3) @Key @range(min=-10, max=(10)) long _long; // a ; comment
        @default(value=\"}\") @mine::Mine(x=2) string s; sequence<@external long> t; };\n#endif";
    assert_eq!(schema("A", text), "A{long:i32,s:string,t:sequence<i32>}");
    assert_eq!(set(text).keys("A").unwrap(), ["long"]);
    assert_eq!(schema("A", "\u{feff}struct A { long a; };"), "A{a:i32}");
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, says) in [
        ("struct A {\n  long a\n};", "a.idl, line 3: expected ;, found \"}\""),
        ("struct A { long 1; };", "a name of at most 255 letters, digits and underscores, found \"1\""),
        ("struct A { long _; };", "found \"_\""),
        ("struct A { unsigned int a; };", "short or long after unsigned, found \"int\""),
        (
            "struct A { struct B { long x; } b; };",
            "a type such as long, string<32>, sequence<double, 8> or robot::Arm, found",
        ),
        ("struct A { = };", "a type such as long"),
        ("struct A { long a[0]; };", "a size of 1 to 4294967295, of constants that stand before it, found \"0\""),
        ("struct A { long a[4294967296]; };", "found \"4294967296\""),
        ("struct A { long a[-1]; };", "found \"-\""),
        (
            "struct A {\n long a[N]; };",
            "line 2: expected a size of 1 to 4294967295, of constants that stand before it, found \"N\"",
        ),
        ("struct A { string<1.5> a; };", "found \"1.5\""),
        ("struct A { sequence<long a; };", "expected >, found \"a\""),
        ("struct A { long a[1 / 0]; };", "values of at most 127 bits, found \"/\""),
        ("struct A { long a[1 << 64]; };", "values of at most 127 bits, found \"<<\""),
        ("struct A { long a[]; };", "expected a value, found \"]\""),
        ("const octet A = 256;", "a value of the constant's type, within its limits, found \"256\""),
        ("const long A = TRUE;", "found \"TRUE\""),
        ("const long A = ;", "expected a value"),
        ("struct A { long a;\n\n float a; };", "line 3: expected different names, found \"a\" twice"),
        ("enum A { B,\n B };", "line 2: expected different names, found \"B\" twice"),
        ("enum A { B, };", "a name of at most 255"),
        ("enum A { @value(1.5) B };", "a whole number, found \"1.5\""),
        ("struct A { @key(1) long a; };", "TRUE or FALSE, found \"1\""),
        (
            "struct A {\n @key @optional long a; };",
            "line 2: expected keys that are not optional, found \"@key @optional\"",
        ),
        ("@extensibility(LOOSE) struct A {};", "FINAL, APPENDABLE or MUTABLE, found \"LOOSE\""),
        ("module a {\n struct A {};\n", "} at the end of a module, found \"the end of the text\""),
        ("}", "module, struct, enum, typedef, const, or the end of a module, found \"}\""),
        ("int32 a", "found \"int32\""),
        ("struct A { string a; }; @verbatim(text=\"", "the quote at the end of a literal"),
        ("/* a\n", "line 1: expected the end of a comment, */, found \"the end of the text\""),
        ("@verbatim(", "expected ), found \"the end of the text\""),
        ("union U switch (long) { case 1: long a; }", "expected ;, found \"the end of the text\""),
        ("struct A { long é; };", "a word, number, literal or symbol of IDL, found \"é\""),
        ("#ifdef A\n", "a text without conditions, as the preprocessor leaves it, found \"#ifdef A\""),
        ("\n# if 1", "line 2: expected a text without conditions"),
        ("struct A {};\n#else\n", "line 2: expected a text without conditions"),
        (
            "struct A { long a; }; struct A { long b; };",
            "expected one definition of A, found a second that differs from it",
        ),
    ] {
        let found = wrong(text);
        assert!(found.contains(says), "{text:?}: {found}");
        assert!(found.starts_with("a.idl, line ") || says.starts_with("expected one"), "{text:?}: {found}");
    }
}

#[test]
fn what_a_schema_does_not_show_is_refused_by_name() {
    for (text, says) in [
        (
            "struct A {\n wchar a; };",
            "line 2: expected types that a schema shows in A, found wchar: middlewares encode it differently",
        ),
        ("struct A { wstring<3> a; };", "found wstring: "),
        ("struct A { long double a; };", "found long double: "),
        ("struct A { fixed<5, 2> a; };", "found fixed: "),
        ("struct A { sequence<map<string, long, 3>> a; };", "found map: "),
        ("struct A { any a; };", "found any: "),
        (
            "union U switch (long) { case 1: long x; default: string y; };\nstruct A { U a; };",
            "shows in U, found a union: ",
        ),
        ("bitmask A { @position(0) ONE };", "found a bitmask: "),
        ("bitset A { bitfield<3> a; };", "found a bitset: "),
        ("native A;", "found a native type: "),
        ("local interface A { void f(in long x); };", "found an interface: "),
        ("interface I; valuetype A { public long x; };", "found a valuetype: "),
        ("exception A { long x; };", "found an exception: "),
        (
            "\n@mutable struct B { long x; }; struct A : B {};",
            "a.idl, line 2: expected types that a schema shows in B, found a @mutable",
        ),
        (
            "@Extensibility(MUTABLE_EXTENSIBILITY) struct A { long x; };",
            "found a @mutable struct: its bytes are a parameter list",
        ),
        (
            "enum A {\n B,\n @value(2) C };",
            "line 3: expected types that a schema shows in A, found an enum with other values than 0, 1, 2",
        ),
        ("@bit_bound(8) enum A { B };", "found an enum with a @bit_bound other than 32: a schema's enums have 32 bit"),
    ] {
        let found = refused(text);
        assert!(found.contains(says), "{text:?}: {found}");
    }
    set("struct A { long a; }; union U switch (long) { case 1: wstring x; };").describe("A").unwrap();
}

#[test]
fn what_cannot_be_described_is_named() {
    let cycle = "struct A { long x; B b; }; struct B { sequence<C> c; }; typedef B C;";
    assert_eq!(refused(cycle), "expected types that do not contain themselves, found B -> C -> B");
    assert_eq!(refused("struct A : A {};"), "expected types that do not contain themselves, found A -> A");
    assert_eq!(refused("typedef A A;"), "expected types that do not contain themselves, found A -> A");
    assert_eq!(refused("struct B {};"), "expected a definition of A, found none: add it");
    assert_eq!(refused("enum E { X }; struct A : E {};"), "expected a struct as the base of A, found E");
    assert!(
        refused("struct B { long x; };\nstruct A : B { long x; };")
            .starts_with("a.idl, line 2: expected different names")
    );
    assert!(set(cycle).keys("A").is_err());
}

#[test]
fn limits_are_kept() {
    let nested = |open: &str, close: &str, count: usize| format!("{}long{}", open.repeat(count), close.repeat(count));
    schema("A", &format!("struct A {{ {} a; }};", nested("sequence<", ">", 30)));
    assert_eq!(refused(&format!("struct A {{ {} a; }};", nested("sequence<", ">", 31))), LEVELS);
    assert!(
        wrong(&format!("struct A {{ {} a; }};", nested("sequence<", ">", 40)))
            .contains("at most 32 levels of sequences")
    );
    assert_eq!(refused(&format!("struct A {{ long a{}; }};", "[1]".repeat(40))), LEVELS);
    assert!(wrong(&format!("const long A = {}1;", "(".repeat(40))).contains("at most 32 levels of brackets"));
    assert!(wrong(&"module a { ".repeat(33)).contains("at most 32 levels of modules"));
    assert!(wrong(&format!("struct {} {{}};", "a".repeat(256))).contains("at most 255"));
    let long = "a".repeat(200);
    assert!(wrong(&format!("module {long} {{ struct {long} {{}}; }};")).contains("at most 255 bytes with its modules"));
    let signs = format!("struct A {{ long a[{}1]; }};", "- ".repeat(1000));
    assert_eq!(schema("A", &signs), "A{a:array<i32,1>}");
    let chain: String = (0..200).map(|number| format!("typedef T{} T{number};", number + 1)).collect();
    assert_eq!(refused(&format!("{chain} typedef T0 A; typedef long T200;")), LEVELS);
    let members: String = (0..4097).map(|number| format!("long a{number};")).collect();
    assert!(wrong(&format!("\nstruct A {{ {members} }};")).contains("line 2: expected at most 4096 members"));
    let two: String = (0..13).map(|number| format!("struct T{number} {{ T{0} a, b; }};", number + 1)).collect();
    let parts = refused(&format!("{two} struct T13 {{ long x; }}; typedef T0 A;"));
    assert_eq!(parts, "expected at most 4096 parts in A, found more");
}

const LEVELS: &str = "expected at most 32 levels of types in A, found more";

#[test]
fn texts_are_bounded_and_taken_whole_or_not() {
    let blank = " ".repeat(MAX_TEXT);
    assert!(Idl::new().add("a.idl", &(blank.clone() + " ")).unwrap_err().to_string().contains("at most 1048576 bytes"));
    let mut idl = Idl::new();
    let refusals = (0..=MAX_TEXTS / MAX_TEXT).filter(|_| idl.add("a.idl", &blank).is_err()).count();
    assert_eq!(refusals, 1);
    let mut idl = set("struct A { long a; };");
    assert!(idl.add("b.idl", "struct B {}; struct A { wstring a; };").is_err());
    assert_eq!(idl.names().collect::<Vec<_>>(), ["A"]);
    idl.add("b.idl", "\n\nstruct A { long a; };").unwrap(); // the same on another line
    assert!(idl.add("c.idl", "const long A = 1; const long A = 2;").is_err());
}

#[test]
fn keys_are_paths_of_single_fields() {
    let text =
        "struct Id { long robot; @key(TRUE) string name; }; struct Point { double x; double y; }; typedef Point Where;
        struct Base { @key Id id; }; struct Part : Base { @key Where at; @key(FALSE) long free; @key long many[2]; };
        struct Plain { Part part; }; struct A { Plain plain; @key Part part; };";
    let idl = set(text);
    assert_eq!(idl.keys("Part").unwrap(), ["id.name", "at.x", "at.y", "many"]);
    assert_eq!(idl.keys("A").unwrap(), ["part.id.name", "part.at.x", "part.at.y", "part.many"]);
    assert_eq!(idl.keys("Where").unwrap(), [""; 0]);
    assert_eq!(idl.keys("Plain").unwrap(), [""; 0]);
    let schema = idl.describe("A").unwrap().schema.unwrap();
    let keys = idl.keys("A").unwrap();
    Fields::find(&schema, keys.get(..3).unwrap()).unwrap();
    assert_eq!(
        Fields::find(&schema, &keys).unwrap_err().to_string(),
        "field part.many: it is no single number, text or truth value"
    );
    // A key without own keys in it: all members, and of these the keys.
    let all = set(
        "struct Part { @key long a; long b; }; struct Key { Part part; long c; }; struct A { @key Key key; long d; };",
    );
    assert_eq!(all.keys("A").unwrap(), ["key.part.a", "key.c"]);
}

/// Definitions that are nearly right.
fn definition() -> impl Strategy<Value = String> {
    let of_type = "(long|octet|unsigned (short|long long)|string(<[0-9]>)?|sequence<[A-C](, 2)?>|wchar|double|m::[A-C]|::[A-C]|[A-C])";
    let member = format!("(@(key|optional|id\\(3\\)) )?{of_type} [a-d](\\[[0-3N]\\])?;? ?");
    let patterns = [
        format!("(@(final|mutable) )?struct [A-C] (: [A-C] )?\\{{ ({member}){{0,4}}\\}};?"),
        format!("typedef {of_type} [A-C](\\[[1-3]\\]){{0,2}};"),
        "(@bit_bound\\((8|32)\\) )?enum [A-C] \\{ (@value\\([0-2]\\) )?[X-Z](, [X-Z]){0,2} \\};".to_owned(),
        "const (long|octet|string|double) N = [-(]?[0-9NX\"'.xe+*/<>]{0,4}[)]?;".to_owned(),
        "(module m \\{|\\};|union [A-C] switch \\(long\\) \\{ case 1: long a; \\};|#[a-z]{0,7} [a-z]{0,3}|//.{0,5}|/\\*.{0,5}\\*/)".to_owned(),
        "[ -~]{0,12}".to_owned(),
        "\\PC{0,6}".to_owned(),
    ];
    let [first, second, third, fourth, fifth, sixth, seventh] = patterns.map(|pattern| string_regex(&pattern).unwrap());
    prop_oneof![8 => first, 3 => second, 2 => third, 2 => fourth, 2 => fifth, 1 => sixth, 1 => seventh]
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in prop::collection::vec(definition(), 0..6).prop_map(|all| all.join("\n"))) {
        let mut idl = Idl::new();
        if let Err(wrong) = idl.add("a.idl", &text) {
            prop_assert!(wrong.to_string().contains("expected "));
            prop_assert_eq!(idl.names().count(), 0);
        }
        for name in idl.names() {
            let Ok(described) = idl.describe(name) else {
                prop_assert!(idl.keys(name).is_err());
                continue;
            };
            prop_assert_eq!(described.check(), Ok(()));
            let schema = described.schema.unwrap();
            for path in idl.keys(name).unwrap() {
                let found = Fields::find(&schema, &[path]);
                let single = matches!(found, Ok(_) | Err(FieldError::Path { problem: PathProblem::NotSingle, .. }));
                prop_assert!(single, "{:?}", found);
            }
        }
    }
}
