//! Network namespaces of tests.

use crate::support::{Running, Testbed};
use std::process::{Command, Stdio};

/// A network namespace, gone when dropped.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    /// With the loopback device up; `None` without the right to have one.
    pub fn new(test: &str) -> Option<Self> {
        let name = format!("thalweg-{test}-{}", std::process::id());
        if !run("ip", &format!("netns add {name}")) {
            println!("skipped: {test}: because `ip netns add` is refused: it needs root and iproute2");
            return None;
        }
        let namespace = Self { name };
        namespace.does("ip link set lo up multicast on");
        Some(namespace)
    }

    /// Runs `thalweg` in it.
    pub fn thalweg(&self, house: &Testbed, arguments: &str) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, env!("CARGO_BIN_EXE_thalweg")]).args(arguments.split_whitespace());
        let done = Running::start({
            command.env("THALWEG_RUN_DIR", house.path("run"));
            command
        });
        let done = done.finish();
        assert_eq!(done.code(), 0, "{arguments}: {}", done.errors);
    }

    /// Runs a command in it.
    pub fn does(&self, command: &str) {
        assert!(run("ip", &format!("netns exec {} {command}", self.name)), "{command}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &format!("netns del {}", self.name));
    }
}

/// `true` if the command succeeded.
pub fn run(program: &str, arguments: &str) -> bool {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
