//! The pages, and the code in them: each page is in the book, links lead somewhere, and the language of each block says how it is checked.
#![allow(clippy::unwrap_used)]

use crate::house::{documents, root};
use crate::support::Testbed;
use std::path::Path;

/// Languages of blocks. The last three are not checked: output, drawings, and CMake, of which bindings/c/tests/installed.rs runs the same.
///
/// | language | checked by |
/// |---|---|
/// | `rust` | crates/thalweg/src/lib.rs: documentation tests |
/// | `python` | bindings/python/tests/test_pages.py: compiled, names looked up, whole programs run |
/// | `c`, `cpp` | bindings/c/tests/pages.rs, bindings/cpp/tests/cpp.rs: compiled |
/// | `toml`, `json` | here: parsed |
/// | `sh` | crates/cli/src/tests.rs: commands of `thalweg`; house.rs: programs that they name |
const LANGUAGES: [&str; 11] =
    ["rust", "rust,no_run", "python", "c", "cpp", "toml", "json", "sh", "text", "mermaid", "cmake"];

/// The language and the text of each block.
fn blocks(text: &str) -> Vec<(String, String)> {
    let (mut found, mut block) = (Vec::new(), None::<(String, String)>);
    for line in text.lines() {
        match (line.strip_prefix("```"), &mut block) {
            (Some(language), None) => block = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => found.extend(block.take()),
            (None, Some((_, body))) => *body += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(block.is_none(), "a block does not end: {block:?}");
    found
}

/// README.md and the pages, with their blocks.
fn pages() -> Vec<(String, Vec<(String, String)>)> {
    let all = documents().into_iter().filter(|(name, _)| name == "README.md" || name.starts_with("docs/"));
    all.map(|(name, text)| (name, blocks(&text))).collect()
}

#[test]
fn the_book_has_each_page_once() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut listed: Vec<String> = links.map(|link| format!("docs/{link}")).collect();
    let names = documents().into_iter().map(|(name, _)| name);
    let mut pages: Vec<String> = names.filter(|name| name.starts_with("docs/") && name != "docs/SUMMARY.md").collect();
    listed.sort();
    pages.sort();
    assert_eq!(listed, pages, "docs/SUMMARY.md has not each page once");
}

#[test]
fn blocks_have_a_language_that_says_how_they_are_checked() {
    let tested = std::fs::read_to_string(root().join("crates/thalweg/src/lib.rs")).unwrap();
    let mut wrong = Vec::new();
    for (name, blocks) in pages() {
        let unknown = blocks.iter().filter(|(language, _)| !LANGUAGES.contains(&language.as_str()));
        wrong.extend(unknown.map(|(language, body)| format!("{name}: {language:?} is none of {LANGUAGES:?}:\n{body}")));
        let has_rust = blocks.iter().any(|(language, _)| language.starts_with("rust"));
        if has_rust && !tested.contains(&format!("include_str!(\"../../../{name}\")")) {
            wrong.push(format!(
                "{name} has Rust, and is not among the documentation tests of crates/thalweg/src/lib.rs"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn tables_and_messages_in_the_pages_parse() {
    let mut seen = 0;
    for (name, blocks) in pages() {
        for (language, body) in &blocks {
            let error = match language.as_str() {
                "toml" => body.parse::<toml::Table>().err().map(|error| error.to_string()),
                "json" => serde_json::from_str::<serde_json::Value>(body).err().map(|error| error.to_string()),
                _ => continue,
            };
            assert!(error.is_none(), "{name}: {}\n{body}", error.unwrap_or_default());
            seen += 1;
        }
    }
    assert!(seen > 15, "only {seen} blocks");
}

/// What the walk shows of its contract and programs is in them, and its plan is as it says. bindings/python/tests/walk.rs runs the programs.
#[test]
fn the_first_steps_are_as_the_page_shows_them() {
    let examples = root().join("examples");
    let page = std::fs::read_to_string(root().join("docs/first-steps.md")).unwrap();
    let contract = examples.join("first-steps.toml");
    for (language, body) in blocks(&page) {
        let source = match language.as_str() {
            "toml" => contract.clone(),
            "python" => examples.join("python/balance.py"),
            _ => continue,
        };
        assert!(
            std::fs::read_to_string(&source).unwrap().contains(&body),
            "{} has this no more:\n{body}",
            source.display()
        );
    }
    let house = Testbed::new();
    let done = house.run(&format!("plan {}", contract.display()));
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    assert!(page.contains(&done.lines[0]), "docs/first-steps.md shows this no more: {}", done.lines[0]);
    let late = std::fs::read_to_string(&contract).unwrap().replace("deadline = \"5 ms\"", "deadline = \"100 us\"");
    let changed = house.path("late.toml");
    std::fs::write(&changed, late).unwrap();
    let refused = house.run(&format!("plan {}", changed.display()));
    assert_eq!(refused.code(), 1, "{:?}", refused.lines);
    assert!(refused.lines.iter().any(|line| line.starts_with("any one of these makes it fit")), "{:?}", refused.lines);
}

/// The anchors of a document's headings, as the forge and the book make them.
fn anchors(text: &str) -> Vec<String> {
    let (mut found, mut inside) = (Vec::new(), false);
    for line in text.lines() {
        inside ^= line.starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !inside) {
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.push(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

fn has_anchor(file: &Path, anchor: &str) -> bool {
    let is_page = file.extension().is_some_and(|end| end == "md");
    anchor.is_empty() || !is_page || anchors(&std::fs::read_to_string(file).unwrap()).iter().any(|one| one == anchor)
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for (name, text) in documents() {
        let here = root().join(&name);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
            // What has a space is a lambda of C++.
            let is_link = !target.contains(' ') && !target.contains("://");
            if is_link && !(file.exists() && has_anchor(&file, anchor)) {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
