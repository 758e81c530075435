//! One message on its way to be whole: its pieces by place, and parity.

use super::Refused;
use crate::channel::memory::Account;
use crate::channel::parity;
use crate::wire::Parity;

/// One message in progress, or a buffer that waits for one.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub sample: Option<u64>,
    pub total: usize,
    step: Option<usize>, // length of every piece but the last; unknown while only the last one is here
    tail: Option<usize>, // offset of the last piece, if it is here
    pub received: usize, // bytes
    pub end: usize,      // of the last piece that is here
    pub since_ns: u64,
    seen: Vec<u64>,
    pub buffer: Vec<u8>,
    pub charged: usize,
    pieces: usize,        // fragments that are here
    pub parity: Vec<u16>, // numbers of the parity pieces that have come
    parity_count: u16,    // the number that were made
    parity_bytes: Vec<u8>,
    parity_charged: usize,
}

impl Slot {
    /// A message begins.
    pub(super) fn begin(&mut self, now_ns: u64, sample: u64, total: usize) {
        (self.sample, self.total, self.since_ns) = (Some(sample), total, now_ns);
        (self.step, self.tail, self.received, self.end) = (None, None, 0, 0);
        (self.pieces, self.parity_count) = (0, 0);
        self.parity.clear();
        self.parity_bytes.clear();
    }

    /// `true` if the piece that begins there is here.
    pub(super) fn has(&self, at: usize) -> bool {
        let inner = |step| self.seen.get(at / step / 64).is_some_and(|word| word & (1u64 << (at / step % 64)) != 0);
        self.tail == Some(at) || self.step.is_some_and(inner)
    }

    /// The start of the next piece.
    pub(super) fn after(&self, at: usize) -> usize {
        match (self.step, self.tail) {
            (Some(step), _) => (at + step).min(self.total),
            (None, Some(tail)) if at < tail => tail,
            _ => self.total,
        }
    }

    /// Makes room for `total` bytes and `words` of bitmap, paid from the budget.
    pub(super) fn reserve(&mut self, total: usize, words: usize, budget: &Account) -> Result<(), Refused> {
        let cost = total.max(self.buffer.len()) + 8 * words.max(self.seen.len());
        let more = cost.saturating_sub(self.charged);
        if more > 0 {
            budget.try_take(more).map_err(|_| Refused::OverBudget)?;
            self.charged += more;
        }
        if self.buffer.len() < total {
            self.buffer = Vec::new(); // freed first, not copied: its content is not needed
            self.buffer = vec![0; total];
        }
        Ok(())
    }

    /// Bytes of the node's memory that it holds.
    pub(super) fn charged(&self) -> usize {
        self.charged + self.parity_charged
    }

    /// Gives the memory back.
    pub(super) fn release(&mut self, budget: &Account) {
        budget.give_back(self.charged + self.parity_charged);
        (self.charged, self.buffer, self.seen) = (0, Vec::new(), Vec::new());
        (self.parity_charged, self.parity_bytes, self.parity) = (0, Vec::new(), Vec::new());
    }

    /// Keeps a parity piece: no more of them than the message has fragments, paid from the budget.
    pub(super) fn insert_parity(&mut self, at: Parity, bytes: &[u8], budget: &Account) -> Result<bool, Refused> {
        let (step, known) = (bytes.len(), self.parity_count);
        let fits = self.step.unwrap_or(step) == step && (known == 0 || known == at.count);
        if at.total as usize != self.total || !fits {
            return Err(Refused::Inconsistent);
        }
        if self.parity.contains(&at.index) {
            return Err(Refused::Duplicate);
        }
        if self.step.is_none() {
            self.learn_step(step, budget)?;
        }
        let more = (self.parity_bytes.len() + step).saturating_sub(self.parity_charged);
        budget.try_take(more).map_err(|_| Refused::OverBudget)?;
        self.parity_charged += more;
        self.parity_count = at.count;
        self.parity.push(at.index);
        self.parity_bytes.extend_from_slice(bytes);
        Ok(false)
    }

    /// Restores the missing pieces; `true` if parity makes up for all of them.
    pub(super) fn restore(&mut self) -> bool {
        let Some(step) = self.step.filter(|_| !self.parity.is_empty()) else { return false };
        if self.pieces + self.parity.len() < self.total.div_ceil(step) {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let pieces = self.parity.iter().map(|index| usize::from(*index)).zip(self.parity_bytes.chunks(step));
        let message = &mut buffer[..self.total];
        let restored = parity::restore(message, step, |n| self.has(n * step), self.parity_count.into(), pieces);
        self.buffer = buffer;
        if restored.is_err() {
            self.parity.clear(); // they do not fit: the fragments may still come
            self.parity_bytes.clear();
        }
        restored.is_ok()
    }

    /// Keeps one piece; true when it was the last missing one.
    pub(super) fn insert(
        &mut self,
        offset: usize,
        total: usize,
        bytes: &[u8],
        budget: &Account,
    ) -> Result<bool, Refused> {
        if total != self.total {
            return Err(Refused::Inconsistent);
        }
        if offset + bytes.len() == total {
            self.insert_last(offset, bytes.len())?;
        } else {
            self.insert_inner(offset, bytes.len(), budget)?;
        }
        self.buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.received += bytes.len();
        self.pieces += 1;
        self.end = self.end.max(offset + bytes.len());
        Ok(self.received == total)
    }

    /// `true` if a piece that does not fit the others comes from the same message, cut into smaller pieces.
    pub(super) fn is_finer(&self, offset: usize, length: usize) -> bool {
        let fits = |step: usize| offset.is_multiple_of(step);
        match offset + length == self.total {
            true => self.tail.map_or(self.step.is_some_and(|step| !fits(step)), |tail| offset > tail),
            false => self.step.is_none_or(|step| length < step),
        }
    }

    fn insert_last(&mut self, offset: usize, length: usize) -> Result<(), Refused> {
        if let Some(tail) = self.tail {
            return Err(if tail == offset { Refused::Duplicate } else { Refused::Inconsistent });
        }
        if self.step.is_some_and(|step| length > step || !offset.is_multiple_of(step)) {
            return Err(Refused::Inconsistent);
        }
        self.tail = Some(offset);
        Ok(())
    }

    fn insert_inner(&mut self, offset: usize, length: usize, budget: &Account) -> Result<(), Refused> {
        if self.step.unwrap_or(length) != length || !offset.is_multiple_of(length) {
            return Err(Refused::Inconsistent);
        }
        if self.step.is_none() {
            self.learn_step(length, budget)?;
        }
        let (word, bit) = (offset / length / 64, 1u64 << (offset / length % 64));
        if self.seen[word] & bit != 0 {
            return Err(Refused::Duplicate);
        }
        self.seen[word] |= bit;
        Ok(())
    }

    /// Takes the length of all pieces from the first inner one.
    fn learn_step(&mut self, step: usize, budget: &Account) -> Result<(), Refused> {
        let fits = |tail: usize| tail.is_multiple_of(step) && self.total - tail <= step;
        if !self.tail.is_none_or(fits) {
            return Err(Refused::Inconsistent);
        }
        let words = self.total.div_ceil(step).div_ceil(64);
        self.reserve(self.total, words, budget)?;
        self.seen.clear();
        self.seen.resize(words, 0);
        self.step = Some(step);
        Ok(())
    }
}
