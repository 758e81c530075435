//! Ctrl-C and SIGTERM end a verb in order, in any number. Ctrl-\ ends it at once.

use crate::failure::Result;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that a wait may continue after a signal, which may have interrupted another thread.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A request to end the process.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Handles SIGINT and SIGTERM as requests from now on.
    pub(crate) fn on_signals() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, asked.clone())?;
        }
        Ok(Self(asked))
    }

    /// Ignores SIGINT and SIGTERM, for a process that its parent ends.
    pub(crate) fn never() -> Result<()> {
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::default())?;
        }
        Ok(())
    }

    /// `true` once the process was asked to end.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a library that checks it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Sleeps until `at` or a request to end; `true` if `at` was reached.
    pub(crate) fn sleep_until(&self, at: Instant) -> bool {
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
