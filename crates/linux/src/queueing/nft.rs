//! The program `nft`.

use super::{QueueError, Reason};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A table as `nft` shows it, without counters; `None`: there is none.
pub(crate) fn listed(family: &str, table: &str) -> Result<Option<String>, QueueError> {
    output(&["--stateless", "list", "table", family, table])
}

/// The input that removes a table, whether it is there or not.
pub(crate) fn removal(family: &str, table: &str) -> String {
    format!("table {family} {table} {{ }}\ndelete table {family} {table}\n")
}

/// Carries out the input of `nft -f -`: all of it or nothing.
pub(crate) fn load(script: &str) -> Result<(), QueueError> {
    match run(&["-f", "-"], script) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(said)) => Err(QueueError::from_nft(&said)),
        Err(error) => Err(absent(error)),
    }
}

/// What `nft` prints; `None`: it refuses, because there is nothing of this name.
pub(super) fn output(arguments: &[&str]) -> Result<Option<String>, QueueError> {
    run(arguments, "").map(Result::ok).map_err(absent)
}

fn absent(error: io::Error) -> QueueError {
    let remedy = "install nftables (the program nft), or leave out the priority map and the boundary".to_owned();
    QueueError { what: "nft -f -".to_owned(), reason: Reason::Other(error), remedy }
}

/// What it prints, or what it says to its refusal.
fn run(arguments: &[&str], input: &str) -> io::Result<Result<String, String>> {
    let piped = || Stdio::piped();
    let mut child =
        Command::new("nft").process_group(0).args(arguments).stdin(piped()).stdout(piped()).stderr(piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) })
}
