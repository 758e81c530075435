//! Hosts in a row, each of which forwards: host `i` and the next one are 10.97.i.1 and 10.97.i.2. Network namespaces, gone with the test.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The hosts. The devices of each are `next` and `last`, to the host behind it and before it.
pub struct Chain(Vec<String>);

impl Chain {
    /// `None` if they cannot be made here; the reason is printed.
    pub fn new(test: &str, hosts: usize) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let chain = Self((0..hosts).map(|host| format!("tc{}{number}h{host}", std::process::id())).collect());
        let names = &chain.0;
        let mut lines: Vec<String> = names.iter().map(|name| format!("netns add {name}")).collect();
        for (link, two) in names.windows(2).enumerate() {
            let [one, other] = [&two[0], &two[1]];
            lines.push(format!("-n {one} link add name next type veth peer name last netns {other}"));
            lines.push(format!("-n {one} address add 10.97.{link}.1/24 dev next"));
            lines.push(format!("-n {other} address add 10.97.{link}.2/24 dev last"));
            lines.push(format!("-n {one} link set next up"));
            lines.push(format!("-n {other} link set last up"));
        }
        for (host, name) in names.iter().enumerate() {
            lines.push(format!("-n {name} link set lo up"));
            lines.push(format!("netns exec {name} sysctl -qw net.ipv4.ip_forward=1"));
            let ahead =
                (host + 1..hosts - 1).map(|link| format!("-n {name} route add 10.97.{link}.0/24 via 10.97.{host}.2"));
            let behind = (0..host.saturating_sub(1))
                .map(|link| format!("-n {name} route add 10.97.{link}.0/24 via 10.97.{}.1", host - 1));
            lines.extend(ahead.chain(behind));
        }
        if !lines.iter().all(|line| ip(line)) {
            println!("skipped: {test} because network namespaces need root");
            return None;
        }
        Some(chain)
    }

    /// The program on a host.
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

impl Drop for Chain {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|done| done.status.success())
}
