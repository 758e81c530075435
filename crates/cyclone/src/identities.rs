//! Identities: the participants that are this program's own, and the writers behind Cyclone's numbers.

use crate::Guid;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the participants of one program in a domain know together.
#[derive(Default)]
pub(crate) struct Identities {
    own: Mutex<Vec<Guid>>,
    writers: Mutex<Writers>,
}

#[derive(Default)]
struct Writers {
    /// By number: those that are there, and the last that are gone. Cyclone itself has a larger entry of each that is there.
    known: HashMap<u64, Guid>,
    gone: VecDeque<u64>,
}

/// Writers that are remembered after they are gone: their last messages may still wait for a reader's thread.
const MOST_GONE: usize = 1024;

impl Identities {
    /// The own participants. Nobody learns whether a participant is an own one while this is held.
    pub(crate) fn own(&self) -> MutexGuard<'_, Vec<Guid>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `true` if this is an own participant, or an end of one.
    pub(crate) fn is_own(&self, guid: Guid) -> bool {
        self.own().iter().any(|own| own.is_beside(guid))
    }

    /// A writer with this number is there.
    pub(crate) fn came(&self, number: u64, writer: Guid) {
        self.writers().known.insert(number, writer);
    }

    /// An end with this number is gone.
    pub(crate) fn went(&self, number: u64) {
        let Writers { known, gone } = &mut *self.writers();
        if !known.contains_key(&number) {
            return;
        }
        gone.push_back(number);
        if gone.len() > MOST_GONE
            && let Some(oldest) = gone.pop_front()
        {
            known.remove(&oldest);
        }
    }

    /// The writer with this number.
    pub(crate) fn writer(&self, number: u64) -> Option<Guid> {
        self.writers().known.get(&number).copied()
    }

    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guid(number: u128) -> Guid {
        Guid((number << 32).to_be_bytes())
    }

    #[test]
    fn ends_of_own_participants_are_own_ones() {
        let identities = Identities::default();
        identities.own().extend([guid(1).participant(), guid(3).participant()]);
        assert_eq!([1, 2, 3].map(|number| identities.is_own(guid(number))), [true, false, true]);
    }

    #[test]
    fn writers_are_known_for_some_time_after_they_are_gone() {
        let identities = Identities::default();
        let most = MOST_GONE as u64;
        for number in 0..=most {
            identities.came(number, guid(number.into()));
            identities.went(number);
            identities.went(number + 2 * most); // a reader
        }
        assert_eq!(identities.writer(0), None);
        assert!((1..=most).all(|number| identities.writer(number) == Some(guid(number.into()))));
        assert_eq!(identities.writers().known.len(), MOST_GONE);
    }
}
