//! `thalweg new`: what it writes, and what it refuses. That the programs build and talk is tested beside each language: in
//! `crates/thalweg/tests/examples.rs`, `bindings/python/tests`, `bindings/c/tests` and `bindings/cpp/tests`.
#![allow(clippy::unwrap_used)]

use crate::support::{Done, Running, Testbed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// `thalweg new` in the folder of a house.
fn new(house: &Testbed, arguments: &str) -> Done {
    let mut command = house.command(&format!("new {arguments}"));
    command.current_dir(house.path(""));
    Running::start(command).finish()
}

fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => files(&path, found),
            false => drop(found.insert(path)),
        }
    }
}

#[test]
fn each_language_gets_a_whole_project() {
    let house = Testbed::new();
    for (language, manifest) in
        [("rust", "Cargo.toml"), ("python", "pyproject.toml"), ("cpp", "CMakeLists.txt"), ("c", "Makefile")]
    {
        let name = format!("arm-{language}");
        let done = new(&house, &format!("{language} {name} --json --thalweg {}", root().display()));
        let told = done.json();
        let project = house.path(&name);
        let mut found = BTreeSet::new();
        files(&project, &mut found);
        let listed = told["files"].as_array().unwrap().iter().map(|file| project.join(file.as_str().unwrap()));
        assert_eq!(listed.collect::<BTreeSet<_>>(), found);
        for file in [manifest, "README.md", ".gitignore"] {
            assert!(found.contains(&project.join(file)), "{language}: no {file}");
        }
        for file in found {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                !text.is_empty() && !["@NAME@", "@VERSION@", "@THALWEG@"].iter().any(|left| text.contains(left)),
                "{}",
                file.display()
            );
        }
        let readme = std::fs::read_to_string(project.join("README.md")).unwrap();
        assert!(readme.starts_with(&format!("# {name}\n")) && readme.contains("200 ms"), "{readme}");
    }
    for manifest in ["arm-rust/Cargo.toml", "arm-python/pyproject.toml"] {
        let text = std::fs::read_to_string(house.path(manifest)).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let project = table.get("package").or(table.get("project")).unwrap();
        assert_eq!(project["name"].as_str(), manifest.split('/').next());
    }
}

/// Cargo reads the manifest, and finds both programs; it compiles nothing.
#[test]
fn cargo_takes_the_manifest() {
    let house = Testbed::new();
    assert_eq!(new(&house, &format!("rust arm --thalweg {}", root().display())).code(), 0);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut read = Command::new(cargo);
    read.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(house.path("arm"));
    let output = read.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let package = &metadata["packages"][0];
    let programs: BTreeSet<&str> =
        package["targets"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(programs, ["publisher", "subscriber"].into());
    let thalweg = package["dependencies"].as_array().unwrap().iter().find(|d| d["name"] == "thalweg").unwrap();
    assert_eq!(thalweg["path"].as_str(), root().join("crates/thalweg").to_str());
}

#[test]
fn what_cannot_be_a_project_is_refused_with_the_reason() {
    let house = Testbed::new();
    std::fs::create_dir(house.path("full")).unwrap();
    std::fs::write(house.path("full/notes"), "mine").unwrap();
    std::fs::write(house.path("file"), "mine").unwrap();
    for (arguments, code, says) in [
        ("cobol arm", 2, "[possible values: rust, python, cpp, c]"),
        ("python Arm", 2, "1 to 64 of a-z, 0-9, - and _"),
        ("python ../arm", 2, "1 to 64 of a-z"),
        ("python thalweg", 2, "the name of the library"),
        ("rust arm", 2, "--thalweg DIR"),
        ("rust arm --thalweg full", 2, "no checkout of Thalweg"),
        ("rust arm --thalweg none", 2, "--thalweg none: "),
        ("c full", 2, "full: it is not empty"),
        ("c arm --dir full", 2, "full: it is not empty"),
        ("c arm --dir file", 2, "file: it is no directory"),
    ] {
        let done = new(&house, arguments);
        assert_eq!(done.code(), code, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
    assert!(!house.path("arm").exists());
    std::fs::create_dir(house.path("empty")).unwrap();
    assert_eq!(new(&house, "c arm --dir empty").code(), 0);
    assert!(house.path("empty/Makefile").exists());
}
