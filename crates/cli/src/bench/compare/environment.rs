//! The machine a comparison ran on.

use serde::Serialize;
use std::fs;

/// The properties of the machine that matter for the figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Environment {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Processors of this machine that this process may use.
    pub cpus: usize,
    /// The processors of the two ends.
    pub pinning: String,
    /// The frequency governor of the first of these processors, where it can be read.
    pub governor: Option<String>,
    /// Load averages before the first measurement (1, 5, 15 minutes).
    pub load: Vec<f64>,
}

impl Environment {
    /// Reads it all.
    pub(super) fn read(pins: [usize; 2], cpus: usize) -> Self {
        let name = rustix::system::uname();
        let kernel = format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy());
        let pinning = match pins {
            [one, other] if one == other => format!("both ends on cpu {one}"),
            [one, other] => format!("ping on cpu {one}, the others on cpu {other}"),
        };
        let governor = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", pins[0]));
        Self { kernel, cpus, pinning, governor: governor.ok().map(|g| g.trim().to_owned()), load: load() }
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let governor = self.governor.as_deref().unwrap_or("unknown");
        let load: Vec<_> = self.load.iter().map(f64::to_string).collect();
        let (kernel, cpus, pinning) = (&self.kernel, self.cpus, &self.pinning);
        format!("{kernel}, {cpus} cpus, {pinning}, governor {governor}, load {}", load.join(" "))
    }
}

fn load() -> Vec<f64> {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|v| v.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let here = Environment::read([0, 1], 2);
        assert!(here.kernel.starts_with("Linux ") && here.load.len() == 3, "{here:?}");
        assert!(here.line().contains("ping on cpu 0, the others on cpu 1"), "{}", here.line());
    }
}
