//! Pooled message buffers: encoded once, shared by all channels that have to keep it, never freed on the data path.

use crate::wire::HEADER;
use std::sync::Arc;

/// One encoded message with room for a frame header in front of it, so that header and payload leave in one piece.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// The payload.
    pub fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }
    /// The payload, to be written.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADER..).unwrap_or_default()
    }
    /// Room for the header, and the payload: one contiguous frame.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
    /// Empties it, keeping the header room, for an encoder to append to.
    pub fn start(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        &mut self.bytes
    }
    /// A payload of `len` bytes for the user to write; old content is left where it lies (the pool is private).
    pub fn sized(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(HEADER + len, 0);
        &mut self.bytes[HEADER..]
    }
    /// The same message in no more memory than it needs, if this buffer has more than twice as much: who keeps many
    /// messages would else keep room for many of the largest.
    pub fn compact(&self) -> Option<Self> {
        let wasted = self.bytes.capacity() > 2 * self.bytes.len() + LITTLE;
        wasted.then(|| Self { bytes: self.bytes.as_slice().to_vec() })
    }
}

/// Room that is not worth giving back.
const LITTLE: usize = 1 << 10;

/// A port's buffers. Each is written while nobody else holds it and shared (read only) while it waits in queues;
/// the pool keeps one reference for ever, so dropping the others never frees.
#[derive(Default)]
pub struct Pool {
    buffers: Vec<Arc<Buffer>>,
    /// Stands in a place whose buffer is lent.
    kept_for_others: Arc<Buffer>,
    next: usize,
    grown: u64,
    /// Room of all buffers, and of the one handed out last when it was; free ones go while there is more than `most`.
    room: usize,
    known: usize,
    most: Option<usize>,
}

impl Pool {
    /// A pool with `count` buffers of `capacity` bytes each, so that the steady state starts with the first sample.
    pub fn with_buffers(count: usize, capacity: usize) -> Self {
        let make = || Arc::new(Buffer { bytes: Vec::with_capacity(HEADER + capacity) });
        Self { buffers: (0..count).map(|_| make()).collect(), ..Self::default() }
    }

    /// From now on free buffers are given back while all together have room for more than `most` bytes: a history of few
    /// large messages leaves many behind that were for small ones, and each would grow.
    pub fn limit(&mut self, most: usize) {
        self.room = self.buffers.iter().map(|buffer| buffer.bytes.capacity()).sum();
        self.known = self.buffers.get(self.next).map_or(0, |buffer| buffer.bytes.capacity());
        self.most = Some(most);
    }

    /// Notes how the last buffer grew, and gives free ones back.
    fn shrink(&mut self, most: usize) {
        let grown = self.buffers.get(self.next).map_or(0, |buffer| buffer.bytes.capacity());
        self.room = (self.room + grown).saturating_sub(self.known);
        self.known = grown;
        while self.room > most && self.buffers.len() > 1 {
            let Some(free) = self.free() else { return };
            let buffer = self.buffers.remove(free);
            self.room = self.room.saturating_sub(buffer.bytes.capacity());
            self.next = free % self.buffers.len();
            self.known = self.buffers[self.next].bytes.capacity();
        }
    }

    /// The next one that nobody else holds.
    fn free(&self) -> Option<usize> {
        let count = self.buffers.len();
        (0..count).map(|i| (self.next + i) % count).find(|i| Arc::strong_count(&self.buffers[*i]) == 1)
    }

    /// Takes buffers of `spare`, which has `count`, until it has so many, too, so that filling queues do not make the
    /// publishing thread allocate; nor does this: the longer list becomes its own, and what is left goes back to `spare`.
    pub fn grow_to(&mut self, count: usize, spare: &mut Pool) {
        if self.buffers.len() < count.min(spare.buffers.len()) {
            self.buffers.iter_mut().zip(&mut spare.buffers).for_each(|(own, fresh)| std::mem::swap(own, fresh));
            std::mem::swap(&mut self.buffers, &mut spare.buffers);
            if let Some(most) = self.most {
                self.limit(most);
            }
        }
    }

    /// A buffer that nobody else holds. Makes a new one when all are waiting in queues (bounded by the queues' limits).
    pub fn exclusive(&mut self) -> &mut Arc<Buffer> {
        if let Some(most) = self.most {
            self.shrink(most);
        }
        let index = self.free().unwrap_or_else(|| {
            self.grown += 1;
            self.buffers.push(Arc::new(Buffer::default()));
            self.buffers.len() - 1
        });
        self.next = index;
        self.known = self.buffers[index].bytes.capacity();
        &mut self.buffers[index]
    }

    /// Takes a buffer that nobody else holds out of its place, for a loan.
    pub fn take(&mut self) -> Arc<Buffer> {
        self.exclusive();
        let lent = self.kept_for_others.clone();
        self.buffers.get_mut(self.next).map_or_else(|| lent.clone(), |place| std::mem::replace(place, lent.clone()))
    }

    /// Puts a buffer back that was taken out of its place for a loan.
    pub fn replace(&mut self, buffer: Arc<Buffer>) {
        if let Some(place) = self.buffers.get_mut(self.next) {
            *place = buffer;
        }
    }

    /// How often a buffer had to be made after the start.
    pub fn grown(&self) -> u64 {
        self.grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn a_shared_buffer_is_left_alone_and_comes_back() {
        let mut pool = Pool::with_buffers(1, 16);
        Arc::get_mut(pool.exclusive()).unwrap().start().extend_from_slice(b"one");
        let queued = pool.exclusive().clone();
        Arc::get_mut(pool.exclusive()).unwrap().start().extend_from_slice(b"two");
        assert_eq!((queued.payload(), pool.grown()), (&b"one"[..], 1));
        drop(queued);
        (0..10).for_each(|_| assert!(Arc::get_mut(pool.exclusive()).is_some()));
        assert_eq!(pool.grown(), 1);
    }

    /// Many small messages are kept, then few large ones, then small ones again.
    #[test]
    fn a_limited_pool_gives_back_what_is_free() {
        let mut pool = Pool::with_buffers(2, 16);
        pool.limit(300_000);
        let mut kept: VecDeque<Arc<Buffer>> = VecDeque::new();
        for (size, most) in [(10, 1000), (100_000, 2), (10, 1000), (50_000, 4)] {
            for _ in 0..5000 {
                let buffer = pool.exclusive();
                Arc::get_mut(buffer).unwrap().start().resize(HEADER + size, 1);
                kept.push_back(buffer.compact().map_or_else(|| buffer.clone(), Arc::new));
                while kept.len() > most {
                    kept.pop_front();
                }
                let room: usize = pool.buffers.iter().map(|buffer| buffer.bytes.capacity()).sum();
                assert!(room <= 300_000 + 2 * 100_000 + 1000 * 64, "{room} bytes");
            }
        }
        let before = pool.grown();
        for _ in 0..100 {
            pool.exclusive();
        }
        assert_eq!(pool.grown(), before);
    }
}
