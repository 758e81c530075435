//! The binary interface: a program that was compiled with an older header runs with this library. What such programs rely on stands in
//! `abi.c`, to which lines are only added; the compiler and the linker compare it with header and library.

use crate::support::{Bench, has, home};
use std::fmt::Write as _;

fn header() -> String {
    std::fs::read_to_string(home().join("include/thalweg.h")).unwrap()
}

/// The declarations of a header, each on one line, for C.
fn declarations(header: &str) -> Vec<String> {
    let (mut found, mut one, mut depth, mut macro_goes_on) = (Vec::new(), String::new(), 0, false);
    for line in header.lines().map(str::trim) {
        let is_macro = std::mem::replace(&mut macro_goes_on, line.ends_with('\\')) || line.starts_with('#');
        if is_macro || line.starts_with("//") || line.contains("extern \"C\"") {
            continue;
        }
        for letter in line.chars().chain([' ']) {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            match letter {
                ';' if depth == 0 => found.push(std::mem::take(&mut one)),
                _ => one.push(letter),
            }
        }
    }
    found.iter().map(|one| one.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// `const char *name` as type and name.
fn typed(declaration: &str) -> (&str, &str) {
    let at = declaration.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap() + 1;
    (declaration[..at].trim(), &declaration[at..])
}

fn size(kind: &str) -> usize {
    match kind {
        "bool" => 1,
        "int32_t" | "uint32_t" => 4,
        "size_t" | "uint64_t" => 8,
        pointer if pointer.ends_with('*') || pointer.starts_with("thalweg_") => 8,
        other => panic!("the size of {other} is not known here: add it"),
    }
}

/// The places of a structure's fields, as C lays them out.
fn structure(name: &str, fields: &str) -> String {
    let (mut lines, mut end, mut widest) = (String::new(), 0_usize, 1);
    let fields: Vec<_> = fields.split(';').map(str::trim).filter(|field| !field.is_empty()).map(typed).collect();
    for (kind, member) in &fields {
        let at = end.next_multiple_of(size(kind));
        writeln!(lines, "FIELD({name}, {at}, {kind}, {member});").unwrap();
        (end, widest) = (at + size(kind), widest.max(size(kind)));
    }
    if fields[0] != ("size_t", "size") {
        writeln!(lines, "FIXED({name}, {});", end.next_multiple_of(widest)).unwrap();
    }
    lines
}

/// The lines for a declaration; none for a name alone.
fn line(declaration: &str) -> String {
    let body = declaration.split_once('{').map(|(before, rest)| (before.trim(), rest.split('}').next().unwrap()));
    if let Some((before, fields)) = body.filter(|(before, _)| before.starts_with("typedef struct ")) {
        return structure(before.trim_start_matches("typedef struct "), fields);
    }
    if let Some((_, values)) = body {
        let values = values.split(',').filter_map(|value| value.split_once('='));
        return values.map(|(name, value)| format!("VALUE({}, {});\n", name.trim(), value.trim())).collect();
    }
    match declaration.split_once('(') {
        Some(_) if declaration.starts_with("typedef ") => format!("{declaration};\n"),
        Some((head, arguments)) => {
            let (result, name) = typed(head);
            format!("FUNCTION({result}, {name}, {});\n", arguments.trim_end_matches(')'))
        }
        None => String::new(),
    }
}

/// All that a program may rely on.
fn described(header: &str) -> String {
    let lines: String = declarations(header).iter().map(|declaration| line(declaration)).collect();
    format!("{BEGIN}{lines}{END}")
}

/// What was there and is not any more.
fn gone<'a>(before: &'a str, now: &str) -> Vec<&'a str> {
    before.lines().filter(|line| !now.lines().any(|other| other == *line)).collect()
}

const BEGIN: &str = r#"/* What compiled programs rely on, on machines of 64 bits: made from thalweg.h by abi.rs, and never less. Compiled and linked by it. */
#include <thalweg.h>

#define VALUE(name, number) _Static_assert(name == number, #name " has another value")
#define FIELD(type, at, kind, member)                                           \
  _Static_assert(offsetof(type, member) == at, #type "." #member " has moved"); \
  _Static_assert(_Generic(((type *)0)->member, kind: 1, default: 0), #type "." #member " has another type")
/* A structure that does not begin with its size has to keep it. */
#define FIXED(type, bytes) _Static_assert(sizeof(type) == bytes, #type " has another size")
/* Declared again, which fails if it takes or gives anything else, and used, so that the linker looks for it. */
#define FUNCTION(result, name, ...) \
  result name(__VA_ARGS__);         \
  void (*const use_##name)(void) = (void (*)(void))name

"#;

const END: &str = "\nint main(void) { return 0; }\n";

#[test]
fn what_compiled_programs_rely_on_stays() {
    let (file, now) = (home().join("tests/abi.c"), described(&header()));
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let gone = gone(&before, &now);
    assert!(
        gone.is_empty(),
        "this breaks programs that are compiled already: {gone:#?}; add fields at the end of structures that begin with their size, keep all \
         else, or give libthalweg.so another number (build.rs) and begin anew without abi.c"
    );
    if std::env::var_os("THALWEG_ABI").is_some_and(|value| value == "write") {
        std::fs::write(&file, &now).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == now, "abi.c lacks {:#?}: write it with THALWEG_ABI=write", self::gone(&now, &written));
}

#[test]
fn header_and_library_are_as_described() {
    if has("cc") {
        let bench = Bench::new();
        bench.compile(&home().join("tests/abi.c"));
    }
}

/// The description sees what it is for.
#[test]
fn what_moves_or_vanishes_is_named() {
    let before = described(&header());
    let moved = described(&header().replace("  uint32_t reliability;\n", ""));
    assert!(
        gone(&before, &moved).contains(&"FIELD(thalweg_qos, 12, uint32_t, reliability);"),
        "it is not there any more"
    );
    assert!(gone(&before, &moved).contains(&"FIELD(thalweg_qos, 16, uint32_t, durability);"), "it is elsewhere");
    let without = described(&header().replace("const char *thalweg_version(void);\n", ""));
    assert_eq!(gone(&before, &without), ["FUNCTION(const char *, thalweg_version, void);"]);
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let source = bench.folder.join("abi.c");
    for (text, with, says) in [
        ("FIELD(thalweg_qos, 16, ", "FIELD(thalweg_qos, 24, ", "thalweg_qos.durability has moved"),
        ("16, uint32_t, durability", "16, int32_t, durability", "thalweg_qos.durability has another type"),
        ("VALUE(THALWEG_TIMEOUT, 2)", "VALUE(THALWEG_TIMEOUT, 3)", "THALWEG_TIMEOUT has another value"),
        ("FIXED(thalweg_published, 32)", "FIXED(thalweg_published, 40)", "thalweg_published has another size"),
        ("FUNCTION(const char *, thalweg_version, void)", "FUNCTION(int, thalweg_version, void)", "conflicting types"),
        ("\nint main", "\nFUNCTION(void, thalweg_vanished, void);\nint main", "thalweg_vanished"),
    ] {
        std::fs::write(&source, before.replace(text, with)).unwrap();
        let (_, done) = bench.cc(&source);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(says), "{with}: {said}");
    }
}
