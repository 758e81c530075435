//! `thalweg plan --whatif run.mcap`: the contract with the rates and sizes of a recording.

use super::{Arguments, planned, text_of};
use crate::failure::{Failure, Result};
use crate::output::tell;
use qos::contract::Contract;
use qos::plan::{FileChange, rewrite};
use recording::check::{Expected, Run, recorded};
use recording::read::{CONTRACT, Recording};
use std::path::Path;

/// `true` if this names a recording rather than a contract.
pub(super) fn is_recording(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "mcap")
}

/// Plans the contract as it is and as it was recorded, and shows the differences.
pub(super) fn what_if(arguments: &Arguments, file: &Path) -> Result {
    let unreadable = |wrong: recording::read::ReadError| Failure::Usage(wrong.to_string());
    let recording = Recording::open(file).map_err(unreadable)?;
    let (name, text) = contract(arguments, file, &recording)?;
    let read = |text: &str| Contract::read(text).map_err(|wrong| Failure::Usage(format!("{name}:{wrong}")));
    let stated = read(&text)?;
    let run = Run::read(&recording, &Expected::default()).map_err(unreadable)?;
    let changes = recorded(&stated.system, &run);
    for FileChange { table, name, key, value } in &changes {
        tell(&format!("{table} {name}: {key} = {value}"));
    }
    if changes.is_empty() {
        tell(&format!("{}: rates and sizes are those of the contract, or none of its topics is in it", file.display()));
    }
    let changed = rewrite(&text, &changes).map_err(|wrong| Failure::Usage(format!("{name}:{wrong}")))?;
    super::what_if(arguments, &planned(&stated, arguments.model), &planned(&read(&changed)?, arguments.model))
}

/// The contract, and its name for errors.
fn contract(arguments: &Arguments, file: &Path, recording: &Recording) -> Result<(String, String)> {
    if let Some(contract) = &arguments.file {
        return Ok((contract.display().to_string(), text_of(contract)?));
    }
    let name = format!("{}: {CONTRACT}", file.display());
    let attached = recording.attachment(CONTRACT).ok_or_else(|| {
        Failure::Usage(format!(
            "{name} is not attached: name it, as in thalweg plan {CONTRACT} --whatif {}",
            file.display()
        ))
    })?;
    let text = String::from_utf8(attached.to_vec());
    Ok((name.clone(), text.map_err(|_| Failure::Usage(format!("{name} is no text")))?))
}
