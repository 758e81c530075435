//! A host, switch or router: a network namespace.

use super::DEVICE;
use crate::error::{Error, Result};
use crate::iproute::{ip, tc};
use crate::lab::Lab;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A network namespace. Removed when dropped, with everything in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    journals: PathBuf,
}

impl Namespace {
    /// Makes one with a loopback interface.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn new(lab: &Lab, what: &str) -> Result<Self> {
        lab.stop.check()?;
        let name = lab.name(what);
        ip(&["netns", "add", &name])?;
        let namespace = Self { name, journals: lab.folder().join("queues") };
        for setting in ["all/accept_ra", "default/accept_ra", "default/accept_dad", "default/router_solicitations"] {
            namespace.set(&format!("net/ipv6/conf/{setting}"), "0");
        }
        // The same everywhere: the default of a host's streams depends on its distribution. BBR, for one, holds a small
        // channel back to four packets in flight every ten seconds, which is not to be measured here. Reno is in
        // every kernel, and allowed in every namespace.
        namespace.set("net/ipv4/tcp_congestion_control", "reno");
        // The kernel's own multicast noise: addresses made from the hardware's are not needed.
        namespace.set("net/ipv6/conf/default/addr_gen_mode", "1");
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the journals of installed queues.
    pub(crate) fn journals(&self) -> &Path {
        &self.journals
    }

    /// Runs `ip` in it.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    /// Runs `tc` in it.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn tc(&self, arguments: &[&str]) -> Result<String> {
        tc(&[&["-n", &self.name], arguments].concat())
    }

    /// Sets a file of `/proc/sys`; a kernel without the file does not have the function, either.
    pub(super) fn set(&self, setting: &str, value: &str) {
        let _ = self.within(|| std::fs::write(format!("/proc/sys/{setting}"), value));
    }

    /// Bytes that its link ([`DEVICE`]) brought, and took, so far.
    ///
    /// # Errors
    /// As [`ip`]; [`Error::System`] where it shows no counters.
    pub fn traffic(&self) -> Result<[f64; 2]> {
        let shown = self.ip(&["-statistics", "-json", "link", "show", "dev", DEVICE])?;
        let bytes = |shown: &Value, way: &str| shown[0]["stats64"][way]["bytes"].as_f64();
        let found =
            serde_json::from_str(&shown).ok().and_then(|shown| Some([bytes(&shown, "rx")?, bytes(&shown, "tx")?]));
        found.ok_or_else(|| Error::System(format!("ip shows no counters of {DEVICE}: {shown:?}; update iproute2")))
    }

    /// Lets one processor take all packets that arrive at `device`, so that they come in the order in which they left, as
    /// from a wire. (Without, whichever processor sent a packet takes it, and a busy one is overtaken.)
    ///
    /// # Errors
    /// As [`ip`].
    pub fn steer(&self, device: &str, processor: usize) -> Result {
        // Groups of 32 bits, the highest first. Only processes of `ip netns exec` see the files of this namespace.
        let mask = format!("{:x}{}", 1u64 << (processor % 32), ",00000000".repeat(processor / 32));
        let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
        let write = format!("echo {mask} > {file}");
        ip(&["netns", "exec", &self.name, "sh", "-c", &write]).map(drop)
    }

    /// Applies these rules in it by `nft`.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn nft(&self, rules: &str) -> Result<String> {
        ip(&["netns", "exec", &self.name, "nft", rules])
    }

    /// Runs `body` in it, on a thread of its own.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be entered.
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        linux::namespace::Namespace::named(&self.name)
            .and_then(|namespace| namespace.run(body))
            .map_err(|e| Error::system(&self.name, &e, "run it as root"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}
