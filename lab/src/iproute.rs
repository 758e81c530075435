//! Calling `ip` and `tc`.

use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Runs `ip` with these arguments; gives its output.
///
/// # Errors
/// [`Error::System`] with the remedy: no iproute2, no root, or the error of `ip`.
pub fn ip(arguments: &[&str]) -> Result<String> {
    run("ip", arguments)
}

/// As [`ip`], for `tc`.
///
/// # Errors
/// As [`ip`].
pub fn tc(arguments: &[&str]) -> Result<String> {
    run("tc", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(program);
    // In a process group of its own: a Ctrl-C at the terminal must not interrupt setting up or taking down.
    command.process_group(0);
    command.args(arguments).stdin(Stdio::null()).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let output = command.output().map_err(|e| match e.kind() {
        ErrorKind::NotFound => Error::System(format!("there is no program {program}; install iproute2")),
        _ => Error::system(program, &e, "check that it can be started"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let remedy = if rustix::process::geteuid().is_root() {
        "network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN, which a container may lack"
    } else {
        "run it as root"
    };
    Err(Error::System(format!("{program} {}: {}; {remedy}", arguments.join(" "), said.trim())))
}
