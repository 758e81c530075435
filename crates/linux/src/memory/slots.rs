//! Slots of payload memory, and the number of borrows of each: the publisher's private table.
//!
//! The memory is cut into blocks of the largest slot. A block in use is cut into slots of one size; when its last borrow
//! ends it is whole again. So `n` borrowed slots, however small, pin `n` blocks at most: as long as fewer slots than blocks
//! are borrowed, a message of any size finds room. All is allocated once, and each step takes constant time.

/// The smallest slot in bytes.
pub(super) const SMALLEST: usize = 256;
const NONE: u32 = u32::MAX;

/// The power of two (times [`SMALLEST`]) of the slots for messages of this length.
pub(super) fn class_of(len: usize) -> Option<u8> {
    let size = len.max(SMALLEST).checked_next_power_of_two()?;
    Some((size / SMALLEST).trailing_zeros() as u8)
}

/// The bytes of a slot of this class.
pub(super) fn size_of_class(class: u8) -> usize {
    SMALLEST << class
}

#[derive(Clone, Debug)]
struct Block {
    class: u8,
    live: u32,   // slots borrowed
    cut: u32,    // slots ever used since the block was whole
    free: u32,   // the first of those that are free again
    before: u32, // in the list of blocks of its class with a free slot,
    after: u32,  // or in the list of whole blocks
}

/// The table of all slots. A slot's number is its block's, shifted, with its place in the block.
#[derive(Debug)]
pub(super) struct Slots {
    blocks: Vec<Block>,
    borrows: Vec<u32>, // by slot
    next: Vec<u32>, // by slot: the next free one of its block, inverted, so that pages of unused slots stay untouched
    partly: Vec<u32>, // by class: the first block with a free slot
    whole: u32,     // the first whole block
    largest: u8,
    borrowed: usize,
}

impl Slots {
    /// For `capacity` bytes in blocks of class `largest`. `None` when there are too many to number.
    pub(super) fn new(capacity: usize, largest: u8) -> Option<Self> {
        let blocks = u32::try_from(capacity / size_of_class(largest)).ok().filter(|b| *b > 0)?;
        let slots = blocks.checked_mul(1u32.checked_shl(largest.into())?).filter(|s| *s < NONE)?;
        let block = |i| Block { class: 0, live: 0, cut: 0, free: NONE, before: NONE, after: i };
        Some(Self {
            blocks: (1..blocks).chain([NONE]).map(block).collect(),
            borrows: vec![0; slots as usize],
            next: vec![0; slots as usize],
            partly: vec![NONE; usize::from(largest) + 1],
            whole: 0,
            largest,
            borrowed: 0,
        })
    }

    /// Number of borrowed slots.
    pub(super) fn borrowed(&self) -> usize {
        self.borrowed
    }

    /// Offset of the slot from the first block.
    #[inline]
    pub(super) fn offset(&self, slot: u32) -> usize {
        let (block, place) = (slot >> self.largest, slot & ((1 << self.largest) - 1));
        let class = self.blocks[block as usize].class;
        block as usize * size_of_class(self.largest) + place as usize * size_of_class(class)
    }

    /// Borrows a free slot of this class, or a larger one when there is no other.
    pub(super) fn take(&mut self, class: u8) -> Option<u32> {
        let block = self.block_for(class)?;
        let entry = &mut self.blocks[block as usize];
        let place = if entry.free == NONE {
            entry.cut += 1;
            entry.cut - 1
        } else {
            entry.free
        };
        let slot = block << self.largest | place;
        if entry.free != NONE {
            entry.free = !self.next[slot as usize];
        }
        entry.live += 1;
        if self.is_full(block) {
            self.unlink(block);
        }
        self.borrows[slot as usize] = 1;
        self.borrowed += 1;
        Some(slot)
    }

    /// One borrow more.
    #[inline]
    pub(super) fn borrow(&mut self, slot: u32) {
        self.borrows[slot as usize] += 1;
    }

    /// Ends one borrow; the last one frees the slot. A slot without borrows does not change.
    pub(super) fn give_back(&mut self, slot: u32) {
        let Some(borrows) = self.borrows.get_mut(slot as usize).filter(|b| **b > 0) else { return };
        *borrows -= 1;
        if *borrows > 0 {
            return;
        }
        self.borrowed -= 1;
        let block = slot >> self.largest;
        if self.is_full(block) {
            self.link(block);
        }
        let place = slot & ((1 << self.largest) - 1);
        let entry = &mut self.blocks[block as usize];
        self.next[slot as usize] = !std::mem::replace(&mut entry.free, place);
        entry.live -= 1;
        if entry.live == 0 {
            self.unlink(block);
            self.blocks[block as usize].after = std::mem::replace(&mut self.whole, block);
        }
    }

    fn is_full(&self, block: u32) -> bool {
        let block = &self.blocks[block as usize];
        block.live == 1 << (self.largest - block.class)
    }

    /// A block with a free slot of this class; otherwise a whole block, cut for it; otherwise one of a larger class.
    fn block_for(&mut self, class: u8) -> Option<u32> {
        let first = self.partly[usize::from(class)];
        if first != NONE {
            return Some(first);
        }
        if self.whole == NONE {
            return self.partly[usize::from(class)..].iter().copied().find(|block| *block != NONE);
        }
        let block = self.whole;
        let entry = &mut self.blocks[block as usize];
        self.whole = entry.after;
        *entry = Block { class, live: 0, cut: 0, free: NONE, before: NONE, after: NONE };
        self.link(block);
        Some(block)
    }

    /// Puts a block in front of the others of its class with a free slot.
    fn link(&mut self, block: u32) {
        let class = usize::from(self.blocks[block as usize].class);
        let after = std::mem::replace(&mut self.partly[class], block);
        if let Some(next) = self.blocks.get_mut(after as usize) {
            next.before = block;
        }
        let entry = &mut self.blocks[block as usize];
        (entry.before, entry.after) = (NONE, after);
    }

    fn unlink(&mut self, block: u32) {
        let Block { class, before, after, .. } = self.blocks[block as usize];
        match self.blocks.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => self.partly[usize::from(class)] = after,
        }
        if let Some(next) = self.blocks.get_mut(after as usize) {
            next.before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BLOCKS: usize = 5;
    const LARGEST: u8 = 3;

    proptest! {
        #[test]
        fn slots_never_overlap_and_fewer_slots_than_blocks_always_leave_room(
            steps in proptest::collection::vec((any::<bool>(), 0..=LARGEST, any::<usize>()), 1..300)
        ) {
            let mut slots = Slots::new(BLOCKS * size_of_class(LARGEST), LARGEST).unwrap();
            let mut taken: BTreeMap<usize, (usize, u32)> = BTreeMap::new(); // by offset: end, slot
            for (take, class, which) in steps {
                if take {
                    let slot = slots.take(class);
                    prop_assert!(slot.is_some() || taken.len() >= BLOCKS);
                    let Some(slot) = slot else { continue };
                    let offset = slots.offset(slot);
                    let end = offset + size_of_class(class);
                    prop_assert!(end <= BLOCKS * size_of_class(LARGEST) && offset.is_multiple_of(SMALLEST));
                    prop_assert!(taken.range(..end).next_back().is_none_or(|(_, (other, _))| *other <= offset));
                    taken.insert(offset, (end, slot));
                } else if !taken.is_empty() {
                    let offset = *taken.keys().nth(which % taken.len()).unwrap();
                    slots.give_back(taken.remove(&offset).unwrap().1);
                }
                prop_assert_eq!(slots.borrowed(), taken.len());
            }
        }
    }
}
