//! Samples that did not arrive: told to the subscriber's owner.

use crate::event::Event;
use crate::port::{AnyInlet, Channel};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What only comes in another order comes within this time.
const SETTLED_NS: u64 = 20_000_000;
/// Pause between two events of one channel.
const TELLING_NS: u64 = 1_000_000_000;

/// What was told of a channel's losses. Written by the thread that receives it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    lost: AtomicU64,
    /// When the next event is due; 0: nothing is missing that was not told.
    due: AtomicU64,
}

impl Told {
    /// Whether so many are more than were told.
    #[inline(always)]
    pub fn is_less_than(&self, lost: u64) -> bool {
        lost > self.lost.load(Relaxed)
    }

    /// Of `lost` in all at `now`, how many are to be told now.
    fn tell(&self, now: u64, lost: u64) -> Option<u64> {
        let due = self.due.load(Relaxed);
        if due == 0 {
            self.due.store(now.saturating_add(SETTLED_NS), Relaxed);
        }
        if due == 0 || now < due {
            return None;
        }
        self.due.store(now.saturating_add(TELLING_NS), Relaxed);
        Some(lost - self.lost.swap(lost, Relaxed))
    }
}

/// More samples are missing than were told.
#[cold]
pub(super) fn tell_loss(channel: &Channel, inlet: &dyn AnyInlet, now: u64, lost: u64) {
    if let Some(more) = channel.counters.told.tell(now, lost) {
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        inlet.events().push(Event::SampleLost { publisher, subscriber, lost: more, total: lost });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_when_they_are_certain_and_at_most_once_a_second() {
        let told = Told::default();
        assert!(!told.is_less_than(0) && told.is_less_than(1));
        assert_eq!((told.tell(1_000, 1), told.tell(1_000 + SETTLED_NS - 1, 2)), (None, None));
        assert_eq!(told.tell(1_000 + SETTLED_NS, 3), Some(3));
        assert!(!told.is_less_than(3) && told.is_less_than(4));
        assert_eq!(told.tell(999 + SETTLED_NS + TELLING_NS, 5), None);
        assert_eq!(told.tell(1_000 + SETTLED_NS + TELLING_NS, 7), Some(4));
    }
}
