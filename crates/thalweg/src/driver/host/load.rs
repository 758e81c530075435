//! What a relay carries for others, and what it refuses because it carries enough.

use super::{Hosted, refused};
use crate::control::{Change, RelayLoad};
use crate::driver::control::Control;
use crate::handshake::Refused;
use crate::port::AnyOutlet;
use std::time::{Duration, Instant};

/// The load is measured over this time, and told at most so often.
const MEASURED: Duration = Duration::from_secs(1);

/// What was carried in all when it was looked at last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    at: Option<Instant>,
    samples: u64,
    bytes: u64,
}

impl Control {
    /// Whether this relay takes one more.
    pub(super) fn check_relay(&self) -> Result<(), Refused> {
        let Some(limits) = self.relay else { return Err(refused("no proxies for others: it is no relay".into())) };
        let load = self.state.document().relay.clone().unwrap_or_default();
        let proxies = self.proxies_hosted() as u32;
        if proxies >= limits.proxies {
            return Err(refused(format!("at most {} proxies and has {proxies}", limits.proxies)));
        }
        if load.samples_per_s >= limits.samples_per_s {
            let (most, now) = (limits.samples_per_s, load.samples_per_s);
            return Err(refused(format!("at most {most} samples/s and carries {now}")));
        }
        if load.bytes_per_s >= limits.bytes_per_s {
            let (most, now) = (limits.bytes_per_s, load.bytes_per_s);
            return Err(refused(format!("at most {most} bytes/s and carries {now}")));
        }
        Ok(())
    }

    fn proxies_hosted(&self) -> usize {
        self.hosted.values().map(|hosted| hosted.outlet.channels().len()).sum::<usize>() + self.guests.len()
    }

    /// Measures what this relay carries, and announces it when it changed.
    pub(super) fn tell_load(&mut self, now: Instant) {
        if self.relay.is_none() {
            return;
        }
        let (samples, bytes) = self.hosted.values().map(Hosted::carried).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let before = self.carried;
        let passed = before.at.map_or(MEASURED, |at| now.duration_since(at));
        if passed < MEASURED {
            return;
        }
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed.as_secs_f64()).round() as u64;
        let load = RelayLoad {
            proxies: self.proxies_hosted() as u32,
            samples_per_s: rate(samples, before.samples),
            bytes_per_s: rate(bytes, before.bytes),
            keeps: self.kept_for_others().map(|kept| kept.publishers() as u32).sum(),
            not_kept: self.still_not_kept(),
        };
        self.carried = Carried { at: Some(now), samples, bytes };
        let load = Some(load);
        if self.state.document().relay != load {
            self.announce(Change { relay: load, ..Change::default() });
        }
    }
}
