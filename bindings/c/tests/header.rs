//! The committed header is that of the sources, and compiles alone.

use crate::support::{has, home};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header of the sources. Safety in Rust's words is left out: in C each function has it.
fn generated() -> String {
    let config = cbindgen::Config::from_file(home().join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config).with_src(home().join("src/lib.rs"));
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let (mut kept, mut safety) = (Vec::<&str>::new(), false);
    for line in text.lines().map(str::trim_end) {
        let comment = line.trim_start().starts_with("//");
        if line.trim_start() == "// # Safety" {
            safety = true;
            if kept.last().is_some_and(|line| line.trim() == "//") {
                kept.pop();
            }
        }
        safety &= comment;
        if !safety {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_committed_header_is_that_of_the_sources() {
    let file = home().join("include/thalweg.h");
    let header = generated();
    if std::env::var_os("THALWEG_HEADER").is_some_and(|value| value == "write") {
        std::fs::write(&file, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    let differ = committed.lines().zip(header.lines()).find(|(old, new)| old != new);
    assert!(
        committed == header,
        "include/thalweg.h differs from src, first in {differ:?}: look at the difference and write it with THALWEG_HEADER=write"
    );
}

/// All files in a folder, those of modules in modules, too.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// A function that is not in the header cannot be called, and one without its prefix may be someone else's.
#[test]
fn the_header_has_all_functions_and_only_names_of_its_own() {
    let header = generated();
    let functions: Vec<String> = sources(&home().join("src"))
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let found = text.split("#[unsafe(no_mangle)]").skip(1).map(|rest| rest.split_once(" fn ").unwrap().1);
            found.map(|rest| rest.split('(').next().unwrap().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    assert!(functions.len() > 40, "only {} functions found", functions.len());
    for name in &functions {
        assert!(name.starts_with("thalweg_"), "{name}");
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

#[test]
fn the_header_compiles_alone_in_c_and_cpp() {
    let file = home().join("include/thalweg.h");
    for (compiler, language, standard) in
        [("cc", "c", "-std=c11"), ("c++", "c++", "-std=c++17"), ("c++", "c++", "-std=c++20")]
    {
        if has(compiler) {
            let mut compile = Command::new(compiler);
            compile.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", standard, "-x", language]);
            let done = compile.arg(&file).output().unwrap();
            assert!(done.status.success(), "{standard}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
}
