//! Every crate in the product has a licence under which Thalweg may be given away. The list and its reasons:
//! docs/decisions/0006-licences.md.

use serde_json::Value;
use spdx::{Expression, LicenseItem, LicenseReq, ParseMode};
use std::process::Command;

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

#[test]
fn every_dependency_may_be_given_away() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
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
