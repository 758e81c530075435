//! The machine an experiment ran on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name, release and version of the kernel.
    pub kernel: String,
    /// Processors this process may use.
    pub cpus: usize,
    /// Queue disciplines that were in use, as the kernel showed them.
    pub qdiscs: Vec<String>,
    /// The clock and its source.
    pub clock: String,
    /// Versions of Thalweg and the tools.
    pub versions: BTreeMap<String, String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Load averages before it began (1, 5, 15 minutes): other work makes figures worse.
    pub load: Vec<f64>,
}

impl Environment {
    /// Reads it all.
    pub fn read(seed: u64) -> Self {
        let name = rustix::system::uname();
        let kernel = [name.sysname(), name.release(), name.version()].map(|part| part.to_string_lossy()).join(" ");
        let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let clock = format!("CLOCK_MONOTONIC by {}", source.as_deref().map_or("an unknown source", str::trim));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).filter_map(|v| v.parse().ok()).collect();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut versions = BTreeMap::from([("thalweg".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
        if let Ok(said) = crate::iproute::ip(&["-V"]) {
            versions.insert("iproute2".to_owned(), said.trim().trim_start_matches("ip utility, ").to_owned());
        }
        Self { kernel, cpus, qdiscs: Vec::new(), clock, versions, seed, load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let here = Environment::read(7);
        assert!(here.kernel.starts_with("Linux ") && here.clock.starts_with("CLOCK_MONOTONIC by "), "{here:?}");
        assert!(here.cpus > 0 && here.load.len() == 3 && here.seed == 7 && here.versions.contains_key("thalweg"));
    }
}
