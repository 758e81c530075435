//! The examples are the same in each language, and short.

use crate::programs::Language;

/// The examples of each language.
const EXAMPLES: [&str; 8] =
    ["client", "image_publisher", "image_subscriber", "join_session", "listener", "server", "set_priority", "talker"];
const FIRST_STEPS: [&str; 4] = ["balance", "camera", "imu", "viewer"];
/// Most lines of code of an example.
const MOST: usize = 20;

/// `true` for a line of code: it has a word or a number, is no comment, and takes in no other file.
fn is_code(language: Language, line: &str) -> bool {
    let others: &[&str] = match language {
        Language::Rust => &["//", "use "],
        Language::C | Language::Cpp => &["//", "/*", "#include "],
        Language::Python => &["#", "\"\"\"", "import ", "from "],
    };
    let line = line.trim();
    line.contains(char::is_alphanumeric) && !others.iter().any(|other| line.starts_with(other))
}

#[test]
fn each_language_has_all_examples_and_each_is_short() {
    for language in [Language::Rust, Language::C, Language::Cpp, Language::Python] {
        let files = std::fs::read_dir(language.folder()).unwrap().map(|entry| entry.unwrap().path());
        let ours = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == language.extension());
        let mut names = Vec::new();
        for file in files.filter(ours) {
            let text = std::fs::read_to_string(&file).unwrap();
            let count = text.lines().filter(|line| is_code(language, line)).count();
            assert!((1..=MOST).contains(&count), "{}: {count} lines of code, at most {MOST}", file.display());
            names.push(file.file_stem().unwrap().to_string_lossy().into_owned());
        }
        // Those of docs/first-steps.md are in one language only.
        names.retain(|name| language != Language::Python || !FIRST_STEPS.contains(&&name[..]));
        names.sort();
        assert_eq!(names, EXAMPLES, "{language:?}");
    }
}

#[test]
fn a_line_of_code_has_a_word() {
    let text = "//! About.\nuse a::b;\n\n#[derive(Debug)]\nfn main() {\n    // A reason.\n    b(1);\n}\n";
    let code: Vec<&str> = text.lines().filter(|line| is_code(Language::Rust, line)).collect();
    assert_eq!(code, ["#[derive(Debug)]", "fn main() {", "    b(1);"]);
    let text = "\"\"\"About.\"\"\"\nimport a\n# A reason.\na.b(\n)\n";
    assert_eq!(text.lines().filter(|line| is_code(Language::Python, line)).collect::<Vec<_>>(), ["a.b("]);
    let text = "/* About. */\n#include <a.h>\n#define A 1\nint main(void) {\n}\n";
    assert_eq!(text.lines().filter(|line| is_code(Language::C, line)).count(), 2);
}
