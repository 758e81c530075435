//! The C in README.md and in the pages.

use crate::support::{Bench, has, home, root};
use std::path::PathBuf;
use std::process::Command;

fn pages() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.push(root().join("README.md"));
    found.sort();
    found
}

/// Whole programs as they are, pieces as the body of a function.
#[test]
fn blocks_of_c_compile() {
    if !has("cc") {
        return;
    }
    let bench = Bench::new();
    let source = bench.folder.join("block.c");
    let mut seen = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for block in text.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let whole = match block.contains("int main") {
                true => block.to_owned(),
                false => format!("#include <stdio.h>\n#include <thalweg.h>\nvoid piece(void) {{\n{block}\n}}\n"),
            };
            std::fs::write(&source, whole).unwrap();
            let mut cc = Command::new("cc");
            cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-pedantic", "-fsyntax-only", "-I"]);
            let done = cc.arg(home().join("include")).arg(&source).output().unwrap();
            assert!(done.status.success(), "{}: {}", page.display(), String::from_utf8_lossy(&done.stderr));
            seen += 1;
        }
    }
    assert!(seen > 1, "{seen} blocks");
}
