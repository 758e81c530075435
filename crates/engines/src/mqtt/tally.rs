//! What was refused.

use crate::engine::Refused;
use crate::lock;
use std::sync::Mutex;

#[derive(Default)]
pub(super) struct Tally(Mutex<Refused>);

impl Tally {
    pub(super) fn refuse(&self, what: String) {
        let mut refused = lock(&self.0);
        refused.count += 1;
        refused.last = what;
    }

    pub(super) fn all(&self) -> Refused {
        lock(&self.0).clone()
    }
}
