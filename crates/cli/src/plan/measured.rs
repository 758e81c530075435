//! Measured values, written back into the contract.

use super::{read, text_of};
use crate::failure::{Failure, Result};
use crate::output::tell;
use qos::plan::{FileChange, rewrite};
use qos::verification::{Measured, measured};
use serde::Deserialize;
use std::path::Path;

/// The part of a document of `thalweg verify --json` that is used here.
#[derive(Deserialize)]
struct Verified {
    channels: Vec<Measured>,
}

/// Changes the contract's file, and reports each change.
pub(super) fn write_back(file: &Path, verified: &Path) -> Result {
    let text = text_of(verified)?;
    // With --watch there are several documents; the last one is complete.
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let seen: Verified = serde_json::from_str(last).map_err(|e| {
        Failure::Usage(format!("{}: {e}: allowed is what `thalweg verify --json` writes", verified.display()))
    })?;
    let changes = measured(&read(file)?.system, &seen.channels);
    let changed = rewrite(&text_of(file)?, &changes).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))?;
    replace(file, &changed)?;
    let said = |FileChange { table, name, key, value }: &FileChange| tell(&format!("{table} {name}: {key} = {value}"));
    changes.iter().for_each(said);
    if changes.is_empty() {
        tell(&format!("{}: as measured already, or nothing of it was measured", file.display()));
    }
    Ok(())
}

/// Replaces the file atomically.
fn replace(file: &Path, text: &str) -> Result {
    let failed = |e| Failure::System(format!("{}: cannot be written: {e}", file.display()));
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file)).map_err(failed)
}
