//! The role `hog`: uses all of a processor, at ordinary priority, until it ends.

use super::Orders;
use crate::error::Result;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Computes.
pub(super) fn hog(mut orders: Orders) -> Result {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let thread = std::thread::Builder::new().name("hog".into()).spawn(move || {
        while !asked.load(Relaxed) {
            std::hint::spin_loop();
        }
    })?;
    orders.say(&json!({"hog": true}))?;
    // Orders come by the thread that reads them; this one looks for the end of the pipe.
    while !matches!(orders.wait_within::<Value>(Duration::from_secs(1))?, Some(None)) {}
    stop.store(true, Relaxed);
    let _ = thread.join();
    Ok(())
}
