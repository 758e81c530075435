//! The load of a relay: measured, told to others when it changed, and compared with its limits.

use super::refused;
use crate::control::RelayLoad;
use crate::handshake::Refused;
use crate::settings::RelayLimits;
use std::time::{Duration, Instant};

/// Time over which the load is measured, and least time between two reports.
const MEASURED: Duration = Duration::from_secs(1);

/// The totals at the last measurement, and the load that others were told.
#[derive(Debug, Default)]
pub(super) struct Load {
    at: Option<Instant>,
    samples: u64,
    bytes: u64,
    told: RelayLoad,
}

impl Load {
    /// Checks that there is room for one more beside this number of proxies.
    pub(super) fn check(&self, limits: &RelayLimits, proxies: usize) -> Result<(), Refused> {
        let RelayLoad { samples_per_s, bytes_per_s, .. } = self.told;
        if proxies as u32 >= limits.proxies {
            return Err(refused(format!("at most {} proxies and has {proxies}", limits.proxies)));
        }
        if samples_per_s >= limits.samples_per_s {
            let most = limits.samples_per_s;
            return Err(refused(format!("at most {most} samples/s and carries {samples_per_s}")));
        }
        if bytes_per_s >= limits.bytes_per_s {
            let most = limits.bytes_per_s;
            return Err(refused(format!("at most {most} bytes/s and carries {bytes_per_s}")));
        }
        Ok(())
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.duration_since(at) >= MEASURED)
    }

    /// Samples and bytes per second since the last measurement, if it is time for another.
    pub(super) fn measure(&mut self, (samples, bytes): (u64, u64), now: Instant) -> Option<(u64, u64)> {
        if !self.is_due(now) {
            return None;
        }
        let passed = self.at.map_or(MEASURED, |at| now.duration_since(at)).as_secs_f64();
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed).round() as u64;
        let rates = (rate(samples, self.samples), rate(bytes, self.bytes));
        (self.at, self.samples, self.bytes) = (Some(now), samples, bytes);
        Some(rates)
    }

    /// The load, if it differs from the one that others were told.
    pub(super) fn changed(&mut self, load: RelayLoad) -> Option<RelayLoad> {
        if self.told == load {
            return None;
        }
        self.told.clone_from(&load);
        Some(load)
    }
}
