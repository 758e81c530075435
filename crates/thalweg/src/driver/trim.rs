//! Memory that ports keep for further messages goes when it was not needed for a while: freed here, on the control thread, so
//! that no thread that publishes or receives waits for the kernel.

use super::control::Control;
use std::time::{Duration, Instant};

/// How often it is looked for. What was not used between two looks goes: a message that is published more often than this finds
/// its room.
const LOOK: Duration = Duration::from_secs(10);

impl Control {
    /// When to look again.
    pub(super) fn next_pool_look(&self) -> Option<Instant> {
        Some(self.looked_at_pools + LOOK)
    }

    /// Gives back what no port needed since the last look, if it is time to look.
    pub(super) fn look_at_pools(&mut self, now: Instant) {
        if now < self.looked_at_pools + LOOK {
            return;
        }
        self.looked_at_pools = now;
        self.tell_unkept(); // of a node that has publishers only, too
        self.outlets().iter().for_each(|outlet| outlet.trim());
        self.state.inlets().iter().for_each(|(_, inlet)| inlet.trim());
    }
}
