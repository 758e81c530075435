//! Programs of others. Those in Python are scripts of this folder: `THALWEG_PYTHON` names an interpreter that has what they want. Those in Rust
//! are in `crates/engines/peers`: `THALWEG_PEERS` names the folder with what was built of it.

use std::io::{BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Samples that a program sends, or waits for.
pub const COUNT: u32 = 1000;

/// A program; it ends when its input does.
pub struct Program(Child);

impl Program {
    /// `script engine talk|listen port`.
    pub fn start(script: &str, engine: &str, what: &str, port: u16) -> Self {
        let script = format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(python());
        command.args([&script, engine, what, &port.to_string(), &COUNT.to_string()]);
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        command.env("ROS_DOMAIN_ID", "0").stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// The lines that it prints until its end.
    pub fn lines(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.stdout.take().unwrap())
    }

    pub fn end(mut self) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        if let Some(mut stdout) = self.0.stdout.take() {
            stdout.read_to_string(&mut said).unwrap();
        }
        assert!(self.0.wait().unwrap().success(), "{said}");
    }
}

/// A free port for a program that wants these modules; `None`, with the reason printed, if they are not there.
pub fn port(modules: &str, packages: &str) -> Option<u16> {
    let (python, import) = (python(), format!("import {modules}"));
    let found = Command::new(&python).args(["-c", &import]).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("skipped: because {python} has no {packages} (THALWEG_PYTHON names another)");
        return None;
    }
    Some(free_port())
}

/// A program of `crates/engines/peers`; `None`, with the reason printed, if it is not there.
#[cfg(any(feature = "rtps", feature = "zenoh"))]
pub fn built(name: &str) -> Option<Command> {
    let folder = std::env::var_os("THALWEG_PEERS").map(std::path::PathBuf::from);
    let program = folder.map(|folder| folder.join(name)).filter(|program| program.is_file());
    if program.is_none() {
        println!("skipped: because THALWEG_PEERS names no folder with {name} (crates/engines/peers)");
    }
    program.map(Command::new)
}

/// A free port below those that the kernel gives: nobody gets it meanwhile as the end of a connection.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 500) as u16 * 16;
    let mut ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed)).take(100);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.unwrap_or_else(|| panic!("no port from {first} on is free"))
}

pub fn expected() -> Vec<String> {
    (0..COUNT).map(|number| format!("sample {number}")).collect()
}

fn python() -> String {
    std::env::var("THALWEG_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}
