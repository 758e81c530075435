//! What came and could not be used.

use crate::engine::Refused;
use crate::lock;
use std::sync::Mutex;

/// Counts it, and keeps the last of it.
#[derive(Default)]
pub(super) struct Refusals(Mutex<Refused>);

impl Refusals {
    pub(super) fn add(&self, what: String) {
        let mut refused = lock(&self.0);
        refused.count += 1;
        refused.last = what;
    }

    pub(super) fn so_far(&self) -> Refused {
        lock(&self.0).clone()
    }
}
