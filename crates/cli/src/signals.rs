//! Ctrl-C and SIGTERM end a verb in order, however often they come (Ctrl-\ ends it at once).

use crate::failure::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a wait may go on after a signal came: the signal may have interrupted another thread.
pub const TICK: Duration = Duration::from_millis(50);

/// Whether somebody asked the process to end.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on SIGINT and SIGTERM ask.
    pub fn on_signals() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, asked.clone())?;
        }
        Ok(Self(asked))
    }

    /// Ignores SIGINT and SIGTERM, for a process whose parent decides when it ends.
    pub fn never() -> Result<()> {
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::default())?;
        }
        Ok(())
    }

    /// Whether somebody asked.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Set once somebody asked, for a library that looks for itself.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Sleeps until `at`, or until somebody asks; `true` when `at` was reached.
    pub fn sleep_until(&self, at: Instant) -> bool {
        loop {
            if self.asked() {
                return false;
            }
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(TICK));
        }
    }
}
