//! Uses between rooms: the arrows between the top-level modules of each crate, compared with `docs/rooms.toml`.
//!
//! An arrow that is not in the table fails the test, and so does one in the table that is gone: the table only
//! shrinks, unless a line is added on purpose. `THALWEG_ROOMS=write` writes the present arrows. Rooms that use each
//! other, directly or over others, always fail: arrows run one way.
#![allow(clippy::unwrap_used)] // all of this is test

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CRATES: [(&str, &str); 13] = [
    ("agent", "crates/agent/src"),
    ("broker", "crates/broker/src"),
    ("thalweg", "crates/thalweg/src"),
    ("engines", "crates/engines/src"),
    ("recording", "crates/recording/src"),
    ("cyclone", "crates/cyclone/src"),
    ("linux", "crates/linux/src"),
    ("qos", "crates/qos/src"),
    ("cli", "crates/cli/src"),
    ("lab", "lab/src"),
    ("bench", "bench/src"),
    ("c", "bindings/c/src"),
    ("python", "bindings/python/src"),
];

/// The rooms that each room uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

#[test]
fn every_arrow_between_rooms_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let found: String = CRATES.iter().map(|(name, folder)| table(name, &arrows(&root.join(folder)))).collect();
    let file = root.join("docs/rooms.toml");
    if std::env::var_os("THALWEG_ROOMS").is_some_and(|value| value == "write") {
        std::fs::write(&file, HEAD.to_owned() + &found).unwrap();
    }
    let (found, told) = (lines(&found), lines(&std::fs::read_to_string(&file).unwrap()));
    let new: Vec<&String> = found.difference(&told).collect();
    let gone: Vec<&String> = told.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "docs/rooms.toml differs from the code.\nOnly in the code (take the use away, or give the reason for a new arrow in the commit): {new:#?}\n\
         Only in the table (take the line out): {gone:#?}"
    );
}

/// `THALWEG_ROOMS=write` does not help here.
#[test]
fn no_room_is_in_a_ring() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for (name, folder) in CRATES {
        let ringed = ringed(&arrows(&root.join(folder)));
        assert!(
            ringed.is_empty(),
            "{name}: rooms use each other in a ring. Give the noun that both need a room below them, or make them one \
             room: {ringed:#?}"
        );
    }
}

/// A test of the reader itself: it sees groups, `super`, re-exports and macros, and skips tests.
#[test]
fn uses_are_found_in_every_form() {
    let rooms = ["a", "b", "c", "d", "e"].map(String::from).into();
    let exports = [("Thing".to_owned(), "e".to_owned())].into();
    let text = "use crate::{b::X, c::{Y, Z}}; fn f() { println!(\"{}\", crate::Thing::new()); super::super::d::g() }\n\
                #[cfg(test)] mod tests { use crate::a::Never; }";
    let names = uses(text.parse().unwrap(), 2);
    let found: Vec<String> = names.iter().filter_map(|name| room(name, &rooms, &exports)).collect();
    assert_eq!(found, ["b", "c", "e", "d"]);
}

const HEAD: &str = "\
# Which room of a crate uses which (a room is a top-level module); checked by crates/cli/tests/rooms.rs. No room is in a ring.
";

/// The lines of a table, each with the name of its crate in front.
fn lines(text: &str) -> BTreeSet<String> {
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix('[') {
            Some(name) => section = name.trim_end_matches(']').to_owned(),
            None => drop(found.insert(format!("{section}: {line}"))),
        }
    }
    found
}

fn table(name: &str, arrows: &Arrows) -> String {
    let mut text = format!("\n[{name}]\n");
    for (from, to) in arrows {
        text += &format!("{from} = {to:?}\n").replace('{', "[").replace('}', "]");
    }
    text
}

/// Arrows that lie in a ring.
fn ringed(arrows: &Arrows) -> Vec<String> {
    let all = arrows.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| reaches(arrows, to, from)).map(|(from, to)| format!("{from} -> {to}")).collect()
}

fn reaches(arrows: &Arrows, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            open.extend(arrows.get(at).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

/// All arrows of a crate. Code in its root (`lib.rs`, `main.rs`) belongs to no room.
fn arrows(folder: &Path) -> Arrows {
    let mut files = Vec::new();
    sources(folder, &mut files);
    let modules: Vec<Vec<String>> = files.iter().map(|file| module(folder, file)).collect();
    let rooms: BTreeSet<String> = modules.iter().filter_map(|path| path.first().cloned()).collect();
    let exports = exports(folder, &rooms);
    let mut found = Arrows::new();
    for (file, path) in files.iter().zip(&modules) {
        let Some(from) = path.first() else { continue };
        let tokens = std::fs::read_to_string(file).unwrap().parse().unwrap();
        for to in uses(tokens, path.len()).iter().filter_map(|name| room(name, &rooms, &exports)) {
            if to != *from {
                found.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    found
}

/// The room of a name below the crate's root.
fn room(name: &str, rooms: &BTreeSet<String>, exports: &BTreeMap<String, String>) -> Option<String> {
    rooms.get(name).or_else(|| exports.get(name)).cloned()
}

/// Source files below a folder, except those of tests.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries.into_iter().filter(|path| {
        path.file_stem().is_some_and(|stem| stem != "tests" && !stem.to_string_lossy().ends_with("_tests"))
    }) {
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// A file's module path: empty for the crate's root.
fn module(folder: &Path, file: &Path) -> Vec<String> {
    let path = file.strip_prefix(folder).unwrap().with_extension("");
    let mut parts: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    parts.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
    parts
}

/// Names that the crate's root re-exports from its rooms: `pub use port::Publisher` and the like.
fn exports(folder: &Path, rooms: &BTreeSet<String>) -> BTreeMap<String, String> {
    let root = ["lib.rs", "main.rs"].map(|name| folder.join(name));
    let text = std::fs::read_to_string(root.iter().find(|file| file.exists()).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for statement in text.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((first, names)) = statement.split_once("::").filter(|(first, _)| rooms.contains(*first)) else {
            continue;
        };
        let words = names.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        words.for_each(|word| drop(found.insert(word.to_owned(), first.to_owned())));
    }
    found
}

/// First names of the paths that begin at the crate's root, `depth` modules above: `crate::a`, `super::super::a`, each name of
/// `crate::{a, b::c}`.
fn uses(tokens: TokenStream, depth: usize) -> Vec<String> {
    let tokens: Vec<TokenTree> = without_tests(tokens.into_iter().collect());
    let mut names = Vec::new();
    let (mut at, mut up) = (0, 0);
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) if word == "crate" => up = depth,
            TokenTree::Ident(word) if word == "super" => up += 1,
            TokenTree::Ident(word) if up >= depth && depth > 0 => {
                names.push(word.to_string());
                up = 0;
            }
            TokenTree::Group(group) if up >= depth && depth > 0 && group.delimiter() == Delimiter::Brace => {
                names.extend(firsts(group.stream()));
                up = 0;
            }
            TokenTree::Group(group) => {
                names.extend(uses(group.stream(), depth));
                up = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            _ => up = 0,
        }
    }
    names
}

/// The first name of each path in a group of a `use`.
fn firsts(group: TokenStream) -> Vec<String> {
    let (mut names, mut first) = (Vec::new(), true);
    for token in group {
        match token {
            TokenTree::Ident(word) if first => {
                names.push(word.to_string());
                first = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => first = true,
            _ => {}
        }
    }
    names
}

/// Without the items behind `#[cfg(test)]`.
fn without_tests(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let (mut kept, mut passing) = (Vec::new(), false);
    for token in tokens {
        let ends = match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => true,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        };
        if let TokenTree::Group(group) = &token
            && group.delimiter() == Delimiter::Bracket
            && group.stream().to_string().replace(' ', "") == "cfg(test)"
        {
            passing = true;
        } else if !passing {
            kept.push(token);
        } else if ends {
            passing = false;
        }
    }
    kept
}
