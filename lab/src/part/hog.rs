//! The role `hog`: uses all of a processor until it ends.

use super::{Orders, Part, Place};
use crate::error::{Error, Result};
use crate::lab::Lab;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The note on a processor that is kept awake.
pub const AWAKE: &str = "A process of policy SCHED_IDLE keeps the processor awake.";

const LONG: Duration = Duration::from_secs(40);
pub(super) const ROLE: &str = "hog";

/// The priority of a hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hog {
    /// At ordinary priority: competes with others for the processor.
    Ordinary,
    /// At idle priority: keeps the processor awake. A sleeping processor takes longer to react, above all a virtual
    /// one that the machine below gives to others meanwhile.
    Idle,
}

impl Hog {
    /// Starts one on a processor; it ends when the part is dropped.
    ///
    /// # Errors
    /// As [`Part::start`].
    pub fn start(self, lab: &Lab, processor: usize) -> Result<Part> {
        let mut part = Part::start(lab, Place::here(&[processor]), ROLE, &self)?;
        part.hear::<Value>(lab, LONG)?;
        Ok(part)
    }
}

/// Computes.
pub(super) fn hog(mut orders: Orders) -> Result {
    let how: Hog = orders.settings()?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let thread = std::thread::Builder::new().name("hog".into()).spawn(move || -> Result {
        if how == Hog::Idle {
            linux::sched::set_idle(0).map_err(|e| Error::system("policy idle", &e, "run it as another user"))?;
        }
        let mut count = 0_u64;
        while !asked.load(Relaxed) {
            // Not `spin_loop`: a virtual processor that seems to wait for a lock is taken off its real one.
            count = std::hint::black_box(count.wrapping_mul(3) + 1);
        }
        Ok(())
    })?;
    orders.say(&json!({"hog": true}))?;
    // Orders come by the thread that reads them; this one looks for the end of the pipe.
    while !thread.is_finished() && !matches!(orders.wait_within::<Value>(Duration::from_secs(1))?, Some(None)) {}
    stop.store(true, Relaxed);
    thread.join().unwrap_or(Ok(()))
}
