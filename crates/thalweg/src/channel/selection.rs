//! Samples that are sent on one channel: the subscriber's content filter and separation are evaluated at the writer, so that
//! unwanted samples do not travel (U-31).

use crate::codec::Sought;
use linux::lock::PiMutex;
use qos::Qos;
use std::collections::HashMap;
use std::fmt;

/// The most instances that are told apart; further ones share one state.
const MOST_INSTANCES: usize = 4096;

/// The samples that one channel sends. Only the publishing thread asks, so that its lock costs two atomic operations.
pub(crate) struct SentSelection {
    sought: Sought,
    separation: u64,
    last: PiMutex<HashMap<u64, u64>>,
}

impl fmt::Debug for SentSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "separation {} ns, {:?}", self.separation, self.sought)
    }
}

impl SentSelection {
    /// The selection that a subscriber asks for; `None`: all samples. `sought`: its filter and the key, found in the
    /// publisher's type.
    pub(crate) fn of(requested: &Qos, sought: Sought) -> Option<Self> {
        let separation = requested.separation.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        let selects = separation > 0 || requested.filter.is_some();
        selects.then(|| Self { sought, separation, last: PiMutex::default() })
    }

    /// `true` if a message that is published at `now` is sent.
    pub(crate) fn takes(&self, bytes: &[u8], now: u64) -> bool {
        if !self.sought.holds(bytes) {
            return false;
        }
        if self.separation == 0 {
            return true;
        }
        let Some(instance) = self.sought.instance(bytes) else { return false };
        let mut last = self.last.lock();
        let instance = if last.len() < MOST_INSTANCES || last.contains_key(&instance) { instance } else { u64::MAX };
        let takes = last.get(&instance).is_none_or(|last| now.saturating_sub(*last) >= self.separation);
        if takes {
            last.insert(instance, now);
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{TypeDescription, to_cdr};
    use qos::Filter;
    use std::time::Duration;

    #[test]
    fn samples_are_sent_as_far_apart_as_asked_to_the_nanosecond_per_instance() {
        let schema = TypeDescription::of::<Pair>().schema;
        let requested = Qos { separation: Some(Duration::from_nanos(20)), ..Qos::default() };
        let sought = Sought::find(schema.as_ref(), &["id".to_owned()], None).unwrap();
        let selection = SentSelection::of(&requested, sought).unwrap();
        let sent = |id, now| selection.takes(&to_cdr(&Pair { id, x: 0 }).unwrap(), now);
        let first: Vec<bool> = [100, 119, 120, 139, 140, 161, 180].map(|now| sent(1, now)).into();
        assert_eq!(first, [true, false, true, false, true, true, false]);
        assert!(sent(2, 162) && !sent(2, 181) && sent(2, 182));
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Pair {
        id: u8,
        x: i32,
    }

    #[test]
    fn a_filtered_sample_does_not_start_the_separation() {
        let schema = TypeDescription::of::<Pair>().schema;
        let filter = Some(Filter { expression: "x > 3".into(), parameters: Vec::new() });
        let requested = Qos { separation: Some(Duration::from_nanos(20)), filter, ..Qos::default() };
        let sought = Sought::find(schema.as_ref(), &[], requested.filter.as_ref()).unwrap();
        let selection = SentSelection::of(&requested, sought.clone()).unwrap();
        let sent = |x, now| selection.takes(&to_cdr(&Pair { id: 0, x }).unwrap(), now);
        assert!(!sent(3, 100) && sent(4, 101) && !sent(4, 102) && !sent(0, 200) && sent(4, 201));
        assert!(SentSelection::of(&Qos::default(), sought).is_none());
    }
}
