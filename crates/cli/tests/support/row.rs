//! Three hosts in a row: `a`, 10.96.1.1 – `g`, 10.96.1.254 and 10.96.2.254, which forwards – `b`, 10.96.2.1. Network namespaces, gone
//! with the test.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The hosts. The devices of `a` and `b` are `eth`, those of `g` are `ga` and `gb`.
pub struct Row([String; 3]);

impl Row {
    /// `None` if they cannot be made here; the reason is printed.
    pub fn new(test: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let row = Self(["a", "g", "b"].map(|host| format!("tr{}{number}{host}", std::process::id())));
        let [a, g, b] = &row.0;
        let made = [
            format!("netns add {a}"),
            format!("netns add {g}"),
            format!("netns add {b}"),
            format!("-n {g} link add name ga type veth peer name eth netns {a}"),
            format!("-n {g} link add name gb type veth peer name eth netns {b}"),
            format!("-n {g} address add 10.96.1.254/24 dev ga"),
            format!("-n {g} address add 10.96.2.254/24 dev gb"),
            format!("-n {a} address add 10.96.1.1/24 dev eth"),
            format!("-n {b} address add 10.96.2.1/24 dev eth"),
            format!("-n {a} link set lo up"),
            format!("-n {g} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {g} link set ga up"),
            format!("-n {g} link set gb up"),
            format!("-n {a} link set eth up"),
            format!("-n {b} link set eth up"),
            format!("-n {a} route add default via 10.96.1.254"),
            format!("-n {b} route add default via 10.96.2.254"),
            format!("netns exec {g} sysctl -qw net.ipv4.ip_forward=1"),
        ];
        if !made.iter().all(|line| ip(line)) {
            println!("skipped: {test} because network namespaces need root");
            return None;
        }
        Some(row)
    }

    /// The program on a host: 0 `a`, 1 `g`, 2 `b`.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host], program]);
        command
    }

    /// Runs a closure on a host.
    pub fn inside<T: Send>(&self, host: usize, body: impl FnOnce() -> T + Send) -> T {
        linux::namespace::Namespace::named(&self.0[host]).and_then(|there| there.run(body)).unwrap()
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|done| done.status.success())
}
