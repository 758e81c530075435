//! What a writer is given to write, what it would have to leave to the next one, and the instances that it keeps.

use cyclone::{End, Writer};
use std::collections::{HashSet, VecDeque};
use thalweg::Change;
use xxhash_rust::xxh3::xxh3_64;

/// A message as it is written, or the end of an instance.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) message: &'a [u8],
    /// A message of its key alone; empty without a key of the topic.
    pub(super) key: &'a [u8],
    pub(super) change: Change,
    /// The time of its publication.
    pub(super) published: i64,
}

impl Outgoing<'_> {
    pub(super) fn write(&self, writer: &Writer) -> cyclone::Result<()> {
        match self.change {
            Change::Written => writer.write(self.message, self.published),
            Change::Disposed => writer.end(End::Disposed, self.key, self.published),
            Change::Unregistered => writer.end(End::Unregistered, self.key, self.published),
        }
    }
}

/// Messages that are kept, in their order.
#[derive(Default)]
pub(super) struct Kept(VecDeque<Held>);

struct Held {
    message: Vec<u8>,
    key: Vec<u8>,
    change: Change,
    published: i64,
}

/// Most messages of all instances of a topic that are kept.
const MOST_KEPT: usize = 4096;

impl Kept {
    /// Keeps a message, and at most as many of the topic, or of each instance.
    pub(super) fn keep(&mut self, outgoing: &Outgoing<'_>, most: usize, is_keyed: bool) {
        let Outgoing { message, key, change, published } = *outgoing;
        let over = match is_keyed {
            true => self.over(key, most),
            false => (self.0.len() >= most).then_some(0),
        };
        if let Some(over) = over {
            self.0.remove(over);
        }
        self.0.push_back(Held { message: message.to_vec(), key: key.to_vec(), change, published });
    }

    /// The message that leaves for one of this instance: the oldest of the instance, or of all.
    fn over(&self, key: &[u8], most: usize) -> Option<usize> {
        let mut same = (0..).zip(&self.0).filter(|(_, held)| held.key == key).map(|(at, _)| at);
        let first = same.next();
        let is_full = first.is_some() && 1 + same.count() >= most;
        if is_full { first } else { (self.0.len() >= MOST_KEPT).then_some(0) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn first(&self) -> Option<Outgoing<'_>> {
        let Held { message, key, change, published } = self.0.front()?;
        Some(Outgoing { message, key, change: *change, published: *published })
    }

    pub(super) fn drop_first(&mut self) {
        self.0.pop_front();
    }
}

/// Most instances of a writer that keeps each for late joiners.
pub(super) const MOST_INSTANCES: usize = 65_536;

/// The instances of a writer that keeps each for late joiners: hashes of their keys. Others are kept by nobody.
#[derive(Default)]
pub(super) struct Instances(HashSet<u64>);

impl Instances {
    /// Takes note of a message; `false`, if it is of an instance beyond those that are possible.
    pub(super) fn admit(&mut self, key: &[u8], change: Change) -> bool {
        let instance = xxh3_64(key);
        if change == Change::Unregistered {
            self.0.remove(&instance);
            return true;
        }
        if self.0.len() >= MOST_INSTANCES && !self.0.contains(&instance) {
            return false;
        }
        self.0.insert(instance);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_has_a_history_of_its_own_and_all_together_have_an_end() {
        let keep = |kept: &mut Kept, key: &[u8], message: &[u8], is_keyed| {
            let (change, published) = (Change::Written, 0);
            kept.keep(&Outgoing { message, key, change, published }, 2, is_keyed);
        };
        let all = |kept: &Kept| kept.0.iter().map(|held| held.message.clone()).collect::<Vec<_>>().concat();
        let (mut keyed, mut plain) = (Kept::default(), Kept::default());
        for (key, message) in [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"a", b"4"), (b"a", b"5")] {
            keep(&mut keyed, key, message, true);
            keep(&mut plain, b"", message, false);
        }
        assert_eq!((all(&keyed), all(&plain)), (b"245".to_vec(), b"45".to_vec()));
        (0..MOST_KEPT).for_each(|number| keep(&mut keyed, &number.to_le_bytes(), b"", true));
        assert_eq!(keyed.0.len(), MOST_KEPT);
    }

    #[test]
    fn instances_are_bounded_and_forgotten_when_they_are_unregistered() {
        let mut instances = Instances::default();
        let key = |number: usize| number.to_le_bytes();
        assert!((0..MOST_INSTANCES).all(|number| instances.admit(&key(number), Change::Written)));
        assert!(!instances.admit(&key(MOST_INSTANCES), Change::Written));
        assert!(instances.admit(&key(0), Change::Disposed), "its end is kept, too");
        assert!(!instances.admit(&key(MOST_INSTANCES), Change::Written));
        assert!(instances.admit(&key(0), Change::Unregistered));
        assert!(instances.admit(&key(MOST_INSTANCES), Change::Written));
    }
}
