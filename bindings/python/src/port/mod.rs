//! Ports as Python holds them.
//!
//! The lock of a port is held for moments, and by a publisher that waits for room; never while Python code runs, and by no thread of the
//! library.

pub(crate) mod loan;
pub(crate) mod publisher;
mod signal;
pub(crate) mod subscriber;

use crate::handle::Handle;
use crate::options::timeout;
use crate::process::away;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// The longest wait between two looks at signals, such as Ctrl-C, and at the end of a port.
const SLICE: Duration = Duration::from_millis(100);

/// Waits until a port has enough channels, looking whenever one came or left.
#[allow(clippy::disallowed_methods)] // a user waits
fn wait_connected(
    py: Python<'_>,
    handle: &Handle,
    seconds: Option<f64>,
    is_enough: impl Fn() -> PyResult<bool>,
) -> PyResult<bool> {
    let until = Instant::now() + timeout(seconds)?;
    let mut seen = 0;
    loop {
        if is_enough()? {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let node = handle.node()?;
        seen = away(py, || node.wait_for_changes(seen, left.min(SLICE)))?;
        py.check_signals()?;
    }
}
