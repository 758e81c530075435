//! The house in figures: sizes of files and functions, public items, and the largest objects, per crate, without a verdict.
//!
//! `cargo test -p thalweg-cli --no-default-features --test command figures:: -- --ignored --nocapture` prints the
//! tables; `THALWEG_HOUSE=DIR` counts another checkout. Lines are those of formatted source without blank lines and
//! without tests.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const CRATES: [&str; 6] =
    ["crates/thalweg/src", "crates/cli/src", "crates/qos/src", "lab/src", "crates/linux/src", "bench/src"];
/// Spelled so that the search for such code skips it.
const UNSAFE: &str = concat!("un", "safe");
/// Number of objects shown per crate.
const LARGEST: usize = 4;

/// One type, with all its `impl` blocks; types of one name are counted as one.
#[derive(Default)]
struct Object {
    fields: usize,
    methods: usize,
    lines: usize,
    files: usize,
}

#[derive(Default)]
struct Figures {
    files: Vec<usize>,
    functions: Vec<usize>,
    public: usize,
    objects: BTreeMap<String, Object>,
}

#[test]
#[ignore = "prints figures, judges nothing"]
fn figures_of_the_house() {
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
    let root = std::env::var_os("THALWEG_HOUSE").map_or_else(here, PathBuf::from);
    println!("| source | files | lines | file median, p90, max | function median, p90, max | `pub` items |");
    println!("|---|---|---|---|---|---|");
    let all: Vec<(&str, Figures)> = CRATES.map(|folder| (folder, count(&root.join(folder)))).into();
    for (folder, figures) in &all {
        let Figures { files, functions, public, .. } = figures;
        let lines: usize = files.iter().sum();
        println!("| {folder} | {} | {lines} | {} | {} | {public} |", files.len(), spread(files), spread(functions));
    }
    println!("\n| object | fields | methods | lines of `impl` | files |\n|---|---|---|---|---|");
    for (folder, figures) in &all {
        let mut objects: Vec<_> = figures.objects.iter().collect();
        objects.sort_by_key(|(_, object)| std::cmp::Reverse(object.lines));
        for (name, Object { fields, methods, lines, files }) in objects.into_iter().take(LARGEST) {
            println!("| {folder} {name} | {fields} | {methods} | {lines} | {files} |");
        }
    }
}

/// Median, 90th percentile and maximum.
fn spread(values: &[usize]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(0);
    format!("{} / {} / {}", at(0.5), at(0.9), at(1.0))
}

fn count(folder: &Path) -> Figures {
    let mut figures = Figures::default();
    let mut sources = Vec::new();
    files(folder, &mut sources);
    for file in sources {
        let text = std::fs::read_to_string(&file).unwrap();
        let source = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines: Vec<&str> = source.lines().filter(|line| !line.trim().is_empty()).collect();
        figures.files.push(lines.len());
        figures.public += lines.iter().filter(|line| is_public(line)).count();
        figures.functions.extend(functions(&lines));
        objects(&lines, &mut figures.objects);
    }
    figures
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// An item that other crates may see, fields aside.
fn is_public(line: &str) -> bool {
    const ITEMS: [&str; 10] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "use", UNSAFE];
    let item = line.trim_start().strip_prefix("pub ");
    item.is_some_and(|item| item.split(' ').next().is_some_and(|word| ITEMS.contains(&word)))
}

fn is_function(line: &str) -> bool {
    let words = line.trim_start().split(['(', '<', ' ']);
    words
        .take_while(|word| {
            ["pub", "crate)", "super)", "const", UNSAFE, "async", "fn"].contains(word) || word.starts_with("in")
        })
        .any(|word| word == "fn")
}

/// Lines from a block's first one to the brace that ends it, at the same depth.
fn block(lines: &[&str]) -> usize {
    let ends = |line: &&str| indent(line) == indent(lines[0]) && line.trim_start().starts_with('}');
    let one = lines[0].ends_with(['}', ';']);
    if one { 1 } else { (1 + lines.iter().skip(1).position(ends).unwrap_or(0) + 1).min(lines.len()) }
}

fn functions(lines: &[&str]) -> Vec<usize> {
    let begins = (0..lines.len()).filter(|at| is_function(lines[*at]) && !lines[*at].ends_with(';'));
    begins.map(|at| block(&lines[at..])).collect()
}

fn objects(lines: &[&str], found: &mut BTreeMap<String, Object>) {
    let mut seen = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let declares = line.strip_prefix("pub(crate) struct ").or_else(|| line.strip_prefix("pub(super) struct "));
        let declares = declares.or_else(|| line.strip_prefix("pub struct ")).or_else(|| line.strip_prefix("struct "));
        let body = &lines[at..at + block(&lines[at..])];
        if let Some(name) = declares.filter(|_| line.ends_with('{')) {
            let fields = body.iter().filter(|line| indent(line) == 4 && !line.trim_start().starts_with(['/', '#']));
            found.entry(head(name)).or_default().fields += fields.count();
        } else if line.starts_with("impl") {
            let object = found.entry(of(line)).or_default();
            object.methods += body.iter().filter(|line| indent(line) == 4 && is_function(line)).count();
            object.lines += body.len();
            let name = of(line);
            object.files += usize::from(!seen.contains(&name));
            seen.push(name);
        }
    }
}

fn head(name: &str) -> String {
    name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The type of an `impl` line, with or without a trait.
fn of(line: &str) -> String {
    let rest = match line.strip_prefix("impl<") {
        Some(generic) => {
            let mut depth = 1;
            generic.trim_start_matches(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth > 0
            })
        }
        None => line.trim_start_matches("impl"),
    };
    let rest = rest.trim_start_matches(['>', ' ']);
    head(rest.split_once(" for ").map_or(rest, |(_, kind)| kind).trim_start_matches(['&', ' ']))
}

/// The items of the library that users reach, without those of the feature `testing`: types, functions, constants, modules, and
/// public methods. rustdoc's JSON is read, which stable compilers write only when asked like this.
#[test]
#[ignore = "prints figures, judges nothing"]
fn public_items_of_the_library() {
    let target = std::env::temp_dir().join(format!("thalweg-api-{}", std::process::id()));
    let rustdoc = ["rustdoc", "-q", "-p", "thalweg", "--lib", "--no-default-features", "--"];
    let done = std::process::Command::new("cargo")
        .args(rustdoc)
        .args(["-Z", "unstable-options", "--output-format", "json"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", &target)
        .status();
    assert!(done.unwrap().success());
    let text = std::fs::read_to_string(target.join("doc/thalweg.json")).unwrap();
    let _ = std::fs::remove_dir_all(target);
    let document: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    reach(&document["index"], &document["root"], &mut BTreeSet::new(), &mut found);
    println!("{} public items: {found:?}", found.values().sum::<usize>());
}

/// Counts an item by its kind, and all that it leads to.
fn reach(index: &Value, id: &Value, seen: &mut BTreeSet<String>, found: &mut BTreeMap<String, usize>) {
    let item = &index[id.to_string()];
    let inner = item["inner"].as_object().and_then(|inner| inner.iter().next());
    let Some((kind, inner)) = inner.filter(|_| item["crate_id"] == 0 && seen.insert(id.to_string())) else { return };
    let lists = |name: &str| inner[name].as_array().into_iter().flatten();
    match kind.as_str() {
        "use" => return reach(index, &inner["id"], seen, found),
        "impl" if inner["trait"].is_null() => lists("items").for_each(|of| reach(index, of, seen, found)),
        "impl" => {}
        "module" => lists("items").for_each(|of| reach(index, of, seen, found)),
        _ => lists("impls").for_each(|of| reach(index, of, seen, found)),
    }
    if kind != "impl" && item["visibility"] == "public" {
        *found.entry(kind.clone()).or_default() += 1;
    }
}

#[test]
fn functions_and_objects_are_found() {
    let text = "pub struct A {\n    /// x\n    x: u8,\n    pub y: u8,\n}\nimpl A {\n    pub(crate) fn one(&self) -> u8 {\n        1\n    }\n    fn two(&self) {}\n}\nimpl<T: Into<u8>> From<T> for A {\n    fn from(t: T) -> Self {\n        todo()\n    }\n}";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(functions(&lines), [3, 1, 3]);
    let mut found = BTreeMap::new();
    objects(&lines, &mut found);
    let Object { fields, methods, lines, files } = &found["A"];
    assert_eq!((*fields, *methods, *lines, *files), (2, 3, 11, 1));
}
