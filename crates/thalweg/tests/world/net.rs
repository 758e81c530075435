//! Network namespaces of a test's own, connected by a veth pair or a switch; removed when dropped. Made with iproute2, by root.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Two hosts: `a` has 10.99.0.1 and fd99::1 on `veth`, `b` has 10.99.0.2 and fd99::2.
pub struct TwoHosts {
    a: String,
    b: String,
    switch: Option<String>,
}

/// Both hosts' networks.
pub const HOSTS: &str = "10.99.0.0/24,fd99::/64";
/// Address of host `a`.
pub const A: &str = "10.99.0.1";
/// Address of host `b`.
pub const B: &str = "10.99.0.2";
/// IPv6 address of host `a`.
pub const A6: &str = "fd99::1";
/// IPv6 address of host `b`.
pub const B6: &str = "fd99::2";

impl TwoHosts {
    /// Makes the hosts.
    ///
    /// # Errors
    /// The reason why they cannot be made here: no root, no `ip`.
    pub fn new(test: &str) -> Result<Self, String> {
        let hosts = Self::apart(test, false)?;
        run("ip", &["-n", &hosts.a, "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", &hosts.b])?;
        hosts.addresses()?;
        Ok(hosts)
    }

    /// Makes the hosts with a switch between them.
    ///
    /// # Errors
    /// As [`TwoHosts::new`].
    pub fn with_switch(test: &str) -> Result<Self, String> {
        let hosts = Self::apart(test, true)?;
        let switch = hosts.switch.as_deref().unwrap_or_default();
        run("ip", &["-n", switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0", "stp_state", "0"])?;
        for (host, port) in [(&hosts.a, "to-a"), (&hosts.b, "to-b")] {
            run("ip", &["-n", host, "link", "add", "veth", "type", "veth", "peer", "name", port, "netns", switch])?;
            run("ip", &["-n", switch, "link", "set", port, "master", "br0", "up"])?;
        }
        run("ip", &["-n", switch, "link", "set", "br0", "up"])?;
        hosts.addresses()?;
        Ok(hosts)
    }

    fn apart(test: &str, switch: bool) -> Result<Self, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("tw{}{test}{number}{end}", std::process::id());
        let hosts = Self { a: name("a"), b: name("b"), switch: switch.then(|| name("s")) };
        hosts.all().into_iter().try_for_each(|host| run("ip", &["netns", "add", host]))?;
        Ok(hosts)
    }

    fn all(&self) -> Vec<&str> {
        [&self.a, &self.b].into_iter().chain(&self.switch).map(String::as_str).collect()
    }

    fn addresses(&self) -> Result<(), String> {
        for (host, address, address6) in [(&self.a, A, A6), (&self.b, B, B6)] {
            run("ip", &["-n", host, "address", "add", &format!("{address}/24"), "dev", "veth"])?;
            let address6 = format!("{address6}/64"); // nodad: usable at once
            run("ip", &["-n", host, "address", "add", &address6, "dev", "veth", "nodad"])?;
            run("ip", &["-n", host, "link", "set", "lo", "up"])?;
            run("ip", &["-n", host, "link", "set", "veth", "up"])?;
        }
        Ok(())
    }

    /// Deletes the interfaces of both hosts.
    pub fn delete(&self) {
        run("ip", &["-n", &self.b, "link", "delete", "veth"]).unwrap();
    }

    /// Makes the interfaces again, with the same names and addresses.
    pub fn make_anew(&self) {
        run("ip", &["-n", &self.b, "link", "add", "veth", "type", "veth", "peer", "name", "veth", "netns", &self.a])
            .unwrap();
        self.addresses().unwrap();
    }

    /// Makes the switch drop multicast to host `b`.
    pub fn switch_drops_multicast(&self) {
        let switch = self.switch.as_deref().unwrap();
        run("ip", &["-n", switch, "link", "set", "to-b", "type", "bridge_slave", "mcast_flood", "off"]).unwrap();
    }

    /// Runs `ip` in host `a`.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn ip_in_a(&self, words: &str) -> Result<(), String> {
        run("ip", &[&["-n", &self.a][..], &words.split_whitespace().collect::<Vec<_>>()].concat())
    }

    /// The output of `ip` in host `a`.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn said_by_a(&self, words: &str) -> Result<String, String> {
        let said = std::process::Command::new("ip").args(["-n", &self.a]).args(words.split_whitespace()).output();
        said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).map_err(|error| error.to_string())
    }

    /// Makes host `b` drop longer packets silently.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn mtu_of_b(&self, bytes: u32) -> Result<(), String> {
        run("ip", &["-n", &self.b, "link", "set", "veth", "mtu", &bytes.to_string()])
    }

    /// The command that starts a program in host `a`.
    pub fn in_a(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.a]
    }

    /// The command that starts a program in host `b`.
    pub fn in_b(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.b]
    }

    /// Takes the link down or up (at host `b`'s end).
    pub fn link(&self, up: bool) {
        run("ip", &["-n", &self.b, "link", "set", "veth", if up { "up" } else { "down" }]).unwrap();
    }

    /// Makes the link drop multicast.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `nft`.
    pub fn without_multicast(&self) -> Result<(), String> {
        let rule = "add table inet unicast; add chain inet unicast in { type filter hook input priority 0; }; \
                    add rule inet unicast in ip daddr 224.0.0.0/4 drop; \
                    add rule inet unicast in ip6 daddr ff05::/16 drop";
        [&self.a, &self.b].iter().try_for_each(|host| run("ip", &["netns", "exec", host, "nft", rule]))
    }

    /// Makes the link drop all packets from and to the port of Zenoh, and those of its connections from other ports.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `nft`.
    pub fn without_zenoh(&self, port: u16) -> Result<(), String> {
        let rule = format!(
            "add table inet naming; add chain inet naming in {{ type filter hook input priority 0; }}; \
             add rule inet naming in iifname veth tcp dport {port} drop; \
             add rule inet naming in iifname veth tcp sport {port} drop"
        );
        [&self.a, &self.b].iter().try_for_each(|host| run("ip", &["netns", "exec", host, "nft", &rule]))
    }

    /// Removes the IPv4 addresses.
    pub fn v6_only(&self) {
        for host in [&self.a, &self.b] {
            run("ip", &["-n", host, "-4", "address", "flush", "dev", "veth"]).unwrap();
        }
    }

    /// Drops all packets in both directions, or none; neither end gets an error.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `nft`.
    pub fn silence(&self, on: bool) -> Result<(), String> {
        let rule = match on {
            true => {
                "add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }; \
                     add rule inet cut in iifname lo accept; \
                     add chain inet cut out { type filter hook output priority 0; policy drop; }; \
                     add rule inet cut out oifname lo accept"
            }
            false => "delete table inet cut",
        };
        run("ip", &["netns", "exec", &self.b, "nft", rule])
    }

    /// Makes host `a` or `b` deaf for the other, which still hears it; or restores both.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `nft`.
    pub fn deafen(&self, a: bool, on: bool) -> Result<(), String> {
        let rule = match on {
            true => {
                "add table inet deaf; add chain inet deaf in { type filter hook input priority 0; }; \
                     add rule inet deaf in iifname veth drop"
            }
            false => "delete table inet deaf",
        };
        run("ip", &["netns", "exec", if a { &self.a } else { &self.b }, "nft", rule])
    }

    /// Gives `a` the three strict bands of `pfifo_fast`, behind a rate at which packets can wait.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `tc`.
    pub fn bands(&self) -> Result<(), String> {
        let rate = ["root", "handle", "1:", "tbf", "rate", "100mbit", "burst", "32000", "limit", "1000000"];
        let bands = ["parent", "1:1", "handle", "2:", "pfifo_fast"];
        [&rate[..], &bands[..]]
            .iter()
            .try_for_each(|what| run("tc", &[&["-n", &self.a, "qdisc", "add", "dev", "veth"][..], what].concat()))
    }

    /// Limits the link from `a` to `b` to `rate`, and drops `loss` percent of the packets.
    ///
    /// # Errors
    /// The reason why this is impossible here: no `tc`, no `nft`.
    pub fn impair(&self, rate: &str, loss: u32) -> Result<(), String> {
        let shape = ["qdisc", "add", "dev", "veth", "root", "tbf", "rate", rate, "burst", "3200", "limit", "30000"];
        run("tc", &[&["-n", &self.a][..], &shape[..]].concat())?;
        let rule = format!(
            "add table inet loss; add chain inet loss in {{ type filter hook input priority 0; }}; \
             add rule inet loss in iifname veth numgen random mod 100 < {loss} drop"
        );
        run("ip", &["netns", "exec", &self.b, "nft", &rule])
    }

    /// Takes back [`TwoHosts::impair`].
    ///
    /// # Errors
    /// As there.
    pub fn repair(&self) -> Result<(), String> {
        run("tc", &["-n", &self.a, "qdisc", "delete", "dev", "veth", "root"])?;
        run("ip", &["netns", "exec", &self.b, "nft", "delete table inet loss"])
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for host in self.all() {
            let _ = run("ip", &["netns", "delete", host]);
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("{program} cannot be started: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}
