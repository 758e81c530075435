//! Every crate in the product has a licence under which Thalweg may be given away. The list and its reasons:
//! docs/decisions/0006-licences.md. Packages contain the texts of these licences (`packages/licences`).
#![allow(clippy::unwrap_used)] // helpers of tests, which clippy.toml exempts inside test functions only

use crate::house::root;
use crate::support::Testbed;
use serde_json::{Value, json};
use spdx::{Expression, LicenseItem, LicenseReq, ParseMode};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Command, Output};

/// Sufficient licences; an `OR` needs one such side, an `AND` all of them.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0", // data: the root certificates of webpki-roots
    "ISC",
    "MIT",
    "MPL-2.0", // binds the licence's own files only, which we don't change
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

fn allowed(request: &LicenseReq) -> bool {
    match &request.license {
        // An exception (`WITH …`) only adds rights to the licence before it.
        LicenseItem::Spdx { id, .. } => ALLOWED.contains(&id.name),
        LicenseItem::Other { .. } => false,
    }
}

/// The problem with a licence, if there is one.
fn refused(licence: Option<&str>) -> Option<String> {
    let Some(text) = licence.map(str::trim).filter(|text| !text.is_empty()) else {
        return Some("states no licence".to_owned());
    };
    match Expression::parse_mode(text, ParseMode::LAX) {
        Err(error) => Some(format!("{text:?} is no licence expression: {}", error.reason)),
        Ok(expression) if expression.evaluate(allowed) => None,
        Ok(_) => Some(format!("{text} is not allowed by docs/decisions/0006-licences.md")),
    }
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[test]
fn every_dependency_may_be_given_away() {
    let output = Command::new(cargo())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"]) // the product runs on Linux only
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 20, "cargo metadata named only {} packages", packages.len());
    let wrong: Vec<String> = packages
        .iter()
        .filter_map(|p| Some((p, refused(p["license"].as_str())?)))
        .map(|(p, why)| format!("{} {}: {why}", p["name"], p["version"]))
        .collect();
    assert!(wrong.is_empty(), "{} of {} crates:\n{}", wrong.len(), packages.len(), wrong.join("\n"));
}

#[test]
fn expressions_are_understood() {
    for fine in [
        "MIT",
        "MIT/Apache-2.0",
        "EPL-2.0 OR Apache-2.0",
        "(MIT OR GPL-3.0-only) AND ISC",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert_eq!(refused(Some(fine)), None);
    }
    for not in
        [None, Some(""), Some("EPL-2.0"), Some("MIT AND GPL-3.0-only"), Some("LicenseRef-ours"), Some("none of these")]
    {
        assert!(refused(not).is_some(), "{not:?}");
    }
}

/// Runs Python; `None`, with the reason printed, where there is none.
fn python(test: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("python3").current_dir(root()).args(arguments).output();
    if output.is_err() {
        println!("skipped: {test}: because python3 is not installed");
    }
    output.ok()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The crates, each with its version, that `packages/licences` lists for these arguments.
fn listed(arguments: &[&str]) -> Option<BTreeSet<String>> {
    let output = python("the list of crates", &[&["packages/licences"][..], arguments].concat())?;
    let text = said(&output);
    let (list, texts) = text.split_once("\n\n----").unwrap();
    assert!(texts.contains("Permission is hereby granted") && texts.contains("Apache License"));
    Some(list.lines().skip(2).filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect())
}

/// The crates of others that cargo links into one of ours, built alone.
fn linked(ours: &str) -> BTreeSet<String> {
    let tree = ["tree", "--locked", "-p", ours, "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}"];
    let output = Command::new(cargo()).current_dir(root()).args(tree).output().unwrap();
    let of_others = |line: &&str| !line.contains(" (/");
    let name = |line: &str| line.trim_end_matches(" (*)").replacen(" v", " ", 1);
    said(&output).lines().filter(of_others).map(name).collect()
}

#[test]
fn packages_list_all_crates_that_are_linked_in() {
    for ours in ["thalweg-cli", "thalweg-python"] {
        let Some(listed) = listed(&[ours]) else { return };
        assert_eq!(listed, linked(ours), "{ours}");
    }
    // Cargo compiles crates that it builds together with the features of all: the module has what only the command asks for.
    let scales = |crates: &BTreeSet<String>| crates.iter().any(|name| name.starts_with("image "));
    let together = ["thalweg-python", "--release", "-p", "thalweg-python", "-p", "thalweg-cli"];
    let (alone, together) = (linked("thalweg-python"), listed(&together).unwrap());
    assert!(!scales(&alone) && scales(&together) && alone.is_subset(&together), "{together:?}");
}

#[test]
fn a_crate_without_a_licence_text_gets_the_standard_one_or_is_named() {
    let house = Testbed::new();
    let package = |name: &str, license: &str, text: Option<&str>| {
        let folder = house.path(name);
        std::fs::create_dir(&folder).unwrap();
        text.into_iter().for_each(|text| std::fs::write(folder.join("LICENSE-OWN"), text).unwrap());
        let manifest = folder.join("Cargo.toml");
        json!({"name": name, "version": "1.0.0", "license": license, "license_file": null, "authors": ["Ann"], "manifest_path": manifest})
    };
    let mut all = vec![
        package("one", "Zlib", Some("Own  text")),
        package("two", "Zlib", Some("Own\ntext\n")),
        package("three", "MIT", None),
        package("four", " EPL-2.0 OR Apache-2.0", None),
    ];
    let show = |all: &[Value]| {
        let file = house.path("packages.json");
        std::fs::write(&file, json!(all).to_string()).unwrap();
        let code = "import json, runpy, sys; runpy.run_path('packages/licences')['show'](json.load(open(sys.argv[1])))";
        python("licence texts", &["-c", code, file.to_str().unwrap()])
    };
    let Some(shown) = show(&all).as_ref().map(said) else { return };
    assert!(shown.contains("\none 1.0.0: Zlib\ntwo 1.0.0: Zlib\nthree 1.0.0: MIT\n"), "{shown}");
    assert!(shown.contains("\none, two:\n\nOwn  text\n") && shown.matches("Own").count() == 1, "{shown}");
    assert!(shown.contains("\nthree:\n\nMIT License\n\nCopyright (c) Ann\n\nPermission is hereby granted"), "{shown}");
    assert!(shown.contains("\nfour:\n\nApache License\n"), "{shown}");
    all.push(package("five", "Zlib", None));
    let refused = show(&all).unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("no licence text of five 1.0.0 (Zlib): "), "{why}");
}
