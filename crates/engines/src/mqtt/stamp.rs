//! The user property `thalweg` of samples: who published them, so that no sample comes back, and none comes twice.
//!
//! ```text
//! 1 ENGINE PUBLISHER SEQUENCE CHANGE [NODE PORT]
//! ```
//!
//! The version; the engine, its publisher and the sample of that in hexadecimal digits; `w` (written) or `d` (the end of its instance);
//! and node and port of Thalweg that published it, if it has come over a bridge.

use super::subscriptions::Round;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use thalweg::control::{NodeId, PortId};
use thalweg::{Change, PortRef};

/// Its key.
pub(super) const KEY: &str = "thalweg";
const VERSION: &str = "1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) engine: u64,
    pub(super) publisher: u32,
    /// Counted from 1.
    pub(super) sequence: u64,
    pub(super) change: Change,
    pub(super) origin: Option<PortRef>,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = if self.change == Change::Written { 'w' } else { 'd' };
        write!(f, "{VERSION} {:x} {:x} {:x} {change}", self.engine, self.publisher, self.sequence)?;
        match self.origin {
            Some(PortRef { node, port }) => write!(f, " {:x} {:x}", node.0, port.0),
            None => Ok(()),
        }
    }
}

impl Stamp {
    /// `None` for the property of another program, or of a later version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut word = || words.next();
        if word()? != VERSION {
            return None;
        }
        let engine = u64::from_str_radix(word()?, 16).ok()?;
        let publisher = u32::from_str_radix(word()?, 16).ok()?;
        let sequence = u64::from_str_radix(word()?, 16).ok()?;
        let change = match word()? {
            "w" => Change::Written,
            "d" => Change::Disposed,
            _ => return None,
        };
        let origin = match word() {
            None => None,
            Some(node) => {
                let node = NodeId(u64::from_str_radix(node, 16).ok()?);
                Some(PortRef { node, port: PortId(u32::from_str_radix(word()?, 16).ok()?) })
            }
        };
        word().is_none().then_some(Self { engine, publisher, sequence, change, origin })
    }
}

/// Publishers, and topics, whose last sample is remembered.
const MOST: usize = 4096;

/// The last sample of each publisher: one that comes again is told by it, after a lost acknowledgement as well as when a retained message
/// is sent once more.
#[derive(Default)]
pub(super) struct Seen(HashMap<(u64, u32), u64>);

impl Seen {
    /// `true` the first time.
    pub(super) fn is_new(&mut self, stamp: &Stamp) -> bool {
        if self.0.len() == MOST {
            self.0.clear();
        }
        let last = self.0.entry((stamp.engine, stamp.publisher)).or_default();
        let new = stamp.sequence > *last;
        *last = stamp.sequence.max(*last);
        new
    }
}

/// The last retained message of each topic that bears no stamp, as a number, and the round in which it came. A new round begins with each
/// subscriber that wants history, and with a new connection: then the broker sends once more what is retained, before anything else of the topic.
/// When the round is over, nothing comes once more: a message of the same bytes is one that was published again after the broker lost the other.
#[derive(Default)]
pub(super) struct Retained {
    last: HashMap<Vec<u8>, (u64, u64)>,
    numbers: RandomState,
}

impl Retained {
    /// `false` for the first one of a topic in a round that is open, if it is the same as the last one before.
    pub(super) fn is_new(&mut self, topic: &[u8], message: &[u8], round: Round) -> bool {
        let now = (round.number, self.numbers.hash_one(message));
        if let Some(last) = self.last.get_mut(topic) {
            let before = std::mem::replace(last, now);
            return !round.open || before.0 == now.0 || before.1 != now.1;
        }
        if self.last.len() == MOST {
            self.last.clear();
        }
        self.last.insert(topic.to_vec(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sequence: u64) -> Stamp {
        Stamp { engine: u64::MAX, publisher: 3, sequence, change: Change::Disposed, origin: None }
    }

    #[test]
    fn a_stamp_comes_back_and_nothing_else_is_one() {
        let origin = Some(PortRef { node: NodeId(0xfedc_ba98_7654_3210), port: PortId(7) });
        for wanted in [stamp(1), Stamp { origin, change: Change::Written, ..stamp(u64::MAX) }] {
            assert_eq!(Stamp::parse(&wanted.to_string()), Some(wanted));
        }
        let text = stamp(9).to_string();
        assert_eq!(text, "1 ffffffffffffffff 3 9 d");
        for wrong in ["", "2 1 1 1 w", "1 1 1 1", "1 1 1 1 x", "1 g 1 1 w", "1 1 1 1 w 5", "1 1 1 1 w 5 6 7"] {
            assert_eq!(Stamp::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_sample_is_new_once() {
        let mut seen = Seen::default();
        let new = [1, 1, 2, 4, 3, 5].map(|sequence| seen.is_new(&stamp(sequence)));
        assert_eq!(new, [true, false, true, true, false, true]);
        assert!(seen.is_new(&Stamp { publisher: 4, ..stamp(1) }), "of another publisher");
        for publisher in 0..2 * MOST as u32 {
            seen.is_new(&Stamp { publisher, ..stamp(1) });
        }
        assert!(seen.0.len() <= MOST);
    }

    #[test]
    fn what_is_sent_once_more_in_a_new_round_is_not_new() {
        let mut retained = Retained::default();
        let mut new = |topic: &str, message: &str, number| {
            retained.is_new(topic.as_bytes(), message.as_bytes(), Round { number, open: true })
        };
        assert!(new("a", "on", 1) && new("b", "on", 1));
        assert!(new("a", "on", 1), "its publisher said it again");
        assert!(!new("a", "on", 2), "the broker did");
        assert!(new("a", "on", 2) && new("b", "off", 2));
        assert!(new("a", "off", 3), "it changed meanwhile");
        for topic in 0..2 * MOST {
            new(&topic.to_string(), "", 3);
        }
        assert!(retained.last.len() <= MOST);
    }

    #[test]
    fn what_is_published_again_after_a_round_is_new() {
        let mut retained = Retained::default();
        let mut new = |number, open| retained.is_new(b"a", b"on", Round { number, open });
        assert!(new(1, true));
        assert!(new(2, false), "the broker lost it, and would have sent it before");
        assert!(new(2, false));
        assert!(!new(3, true), "it is remembered");
    }
}
