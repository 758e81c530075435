//! `thalweg new`: a project with a publisher and a subscriber that builds, from the templates beside this crate's sources.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Begin a project: a typed message, a publisher that promises a deadline, a subscriber that expects it
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg new python arm\n         thalweg new rust arm --thalweg ~/thalweg\n\nREADME.md of the project has the commands that build and run it."
)]
pub(crate) struct Arguments {
    /// The language
    #[arg(value_enum)]
    language: Language,
    /// Name of the project: 1 to 64 of a-z, 0-9, - and _, a letter first
    #[arg(value_parser = name)]
    name: String,
    /// Directory to write to; it must not be there, or be empty [default: NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A checkout of Thalweg. Rust builds with it, and so needs it; for the others it is named in README.md
    #[arg(long, value_name = "DIR")]
    thalweg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A language with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    /// Cargo
    Rust,
    /// pyproject.toml
    Python,
    /// C++17 with CMake
    Cpp,
    /// C11 with make and pkg-config
    C,
}

/// A file of a template: its path in the project, and its text.
type File = (&'static str, &'static str);

macro_rules! template {
    ($folder:literal: $($path:literal = $source:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../templates/", $folder, "/", $source)))),+]
    };
}

impl Language {
    fn files(self) -> &'static [File] {
        match self {
            Language::Rust => template!("rust":
                "Cargo.toml" = "Cargo.toml.in",
                "README.md" = "README.md.in",
                ".gitignore" = "gitignore",
                "src/message.rs" = "src/message.rs",
                "src/bin/publisher.rs" = "src/bin/publisher.rs",
                "src/bin/subscriber.rs" = "src/bin/subscriber.rs",
            ),
            Language::Python => template!("python":
                "pyproject.toml" = "pyproject.toml.in",
                "README.md" = "README.md.in",
                ".gitignore" = "gitignore",
                "message.py" = "message.py",
                "publisher.py" = "publisher.py",
                "subscriber.py" = "subscriber.py",
            ),
            Language::Cpp => template!("cpp":
                "CMakeLists.txt" = "CMakeLists.txt.in",
                "README.md" = "README.md.in",
                ".gitignore" = "gitignore",
                "message.hpp" = "message.hpp",
                "publisher.cpp" = "publisher.cpp",
                "subscriber.cpp" = "subscriber.cpp",
            ),
            Language::C => template!("c":
                "Makefile" = "Makefile",
                "README.md" = "README.md.in",
                ".gitignore" = "gitignore",
                "message.h" = "message.h",
                "publisher.c" = "publisher.c",
                "subscriber.c" = "subscriber.c",
            ),
        }
    }
}

/// Writes the project.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let Arguments { language, name, dir, thalweg, json } = arguments;
    let checkout = match thalweg {
        Some(given) => checkout(given)?,
        None if *language == Language::Rust => {
            let remedy = "say --thalweg DIR, a checkout of it";
            return Err(Failure::Usage(format!(
                "a project in Rust builds with Thalweg's source, which is in no registry yet: {remedy}"
            )));
        }
        None => "CHECKOUT".to_owned(),
    };
    let dir = dir.clone().unwrap_or_else(|| PathBuf::from(name));
    make(&dir)?;
    for (path, text) in language.files() {
        let file = dir.join(path);
        write(&file, &filled(text, name, &checkout)).map_err(|error| failed(&file, &error))?;
    }
    let files: Vec<&str> = language.files().iter().map(|(path, _)| *path).collect();
    let told = json!({ "directory": dir, "files": files });
    Output { json: *json }.result(&told, || {
        format!(
            "{}: {}\n{} says how to build and run it",
            dir.display(),
            files.join(" "),
            dir.join("README.md").display()
        )
    })
}

/// A name that Cargo, pip, CMake and directories take.
fn name(text: &str) -> std::result::Result<String, String> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(allowed);
    if text == "thalweg" {
        return Err("a project cannot have the name of the library that it uses".to_owned());
    }
    // pip takes no name that ends in a sign.
    if fits && text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.ends_with(['-', '_']) {
        return Ok(text.to_owned());
    }
    Err(format!("1 to {LONGEST} of a-z, 0-9, - and _, a letter first and no sign last, such as arm or left-arm"))
}

/// The absolute path of a checkout, as it can stand in any file of a project.
fn checkout(given: &Path) -> Result<String> {
    let found =
        given.canonicalize().map_err(|error| Failure::Usage(format!("--thalweg {}: {error}", given.display())))?;
    if !found.join("crates/thalweg/Cargo.toml").is_file() {
        let what = "no checkout of Thalweg: it has no crates/thalweg/Cargo.toml";
        return Err(Failure::Usage(format!("--thalweg {}: {what}", given.display())));
    }
    let plain = |c: char| !c.is_control() && !"\"'\\$`@".contains(c);
    match found.to_str().filter(|path| path.chars().all(plain)) {
        Some(path) => Ok(path.to_owned()),
        None => {
            let limit = "a path of text without quotes, \\, $, ` and @ can stand in a manifest: move it, or use a link";
            Err(Failure::Usage(format!("--thalweg {}: {limit}", found.display())))
        }
    }
}

/// Makes the directory; one that is there has to be empty.
fn make(dir: &Path) -> Result {
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::Usage(format!("{}: it is no directory: name another with --dir", dir.display())));
    }
    fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    match fs::read_dir(dir).map_err(|error| failed(dir, &error))?.next() {
        None => Ok(()),
        Some(_) => {
            let remedy = "it is not empty: name another with --dir, or another project";
            Err(Failure::Usage(format!("{}: {remedy}", dir.display())))
        }
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(file, text)
}

fn filled(text: &str, name: &str, checkout: &str) -> String {
    text.replace("@NAME@", name).replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@THALWEG@", checkout)
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::System(format!("{}: cannot be written: {error}", path.display()))
}

/// Most characters of a project's name.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_build_system_refuses_are_refused() {
        for good in ["a", "arm", "left-arm", "arm_2", &"a".repeat(64)] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "2arm", "-arm", "arm-", "arm_", "Arm", "a b", "a/b", "..", "ä", "thalweg", &"a".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        for language in Language::value_variants() {
            for (path, text) in language.files() {
                let text = filled(text, "left-arm", "/src/thalweg");
                let left = ["@NAME@", "@VERSION@", "@THALWEG@"].iter().any(|place| text.contains(place));
                assert!(!left && text.ends_with('\n'), "{language:?}: {path}");
            }
        }
    }
}
