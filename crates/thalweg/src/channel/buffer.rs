//! Pooled message buffers: encoded once, shared by all channels that have to keep it, never freed on the data path.

use crate::wire::HEADER;
use std::sync::Arc;

/// One encoded message with room for a frame header in front of it, so that header and payload leave in one piece.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// A message, in no more memory than it needs.
    pub(crate) fn of(message: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER + message.len());
        bytes.resize(HEADER, 0);
        bytes.extend_from_slice(message);
        Self { bytes }
    }
    /// The payload.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }
    /// The payload, to be written.
    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(HEADER..).unwrap_or_default()
    }
    /// Room for the header, and the payload: one contiguous frame.
    pub(crate) fn frame_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
    /// Empties it, keeping the header room, for an encoder to append to.
    pub(crate) fn start(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        &mut self.bytes
    }
    /// A payload of `len` bytes for the user to write. Old content is not erased (the pool is private).
    pub(crate) fn sized(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(HEADER + len, 0);
        &mut self.bytes[HEADER..]
    }
    /// The same message in no more memory than it needs, if this buffer has more than twice as much. Many kept messages
    /// would otherwise keep room for many of the largest.
    pub(crate) fn compact(&self) -> Option<Self> {
        self.wastes(LITTLE).then(|| self.compacted())
    }
    /// `true` if it has more than twice as much memory as the message needs, and `besides` more.
    pub(crate) fn wastes(&self, besides: usize) -> bool {
        self.bytes.capacity() > 2 * self.bytes.len() + besides
    }
    /// The same message in no more memory than it needs.
    pub(crate) fn compacted(&self) -> Self {
        Self { bytes: self.bytes.as_slice().to_vec() }
    }
}

/// Bytes of room that are not worth giving back.
const LITTLE: usize = 1 << 10;

/// Room that a port's unused buffers keep together, in bytes: for bursts of small messages.
const KEPT: usize = 1 << 20;
/// Bytes that a buffer may have beyond twice what it needed lately.
const SPARE: usize = 64 << 10;

/// A port's buffers. Each is written while nobody else holds it and shared (read only) while it waits in queues;
/// the pool keeps one reference, so dropping the others frees no memory on the data path. [`Pool::trim`] gives back buffers that are
/// not needed any more.
#[derive(Default)]
pub(crate) struct Pool {
    places: Vec<Place>,
    /// Stands in a place whose buffer is lent.
    kept_for_others: Arc<Buffer>,
    next: usize,
    grown: u64,
    /// Bytes of room of all buffers (`known`: of the buffer handed out last, at that time). Free buffers go while `room` is above `most`.
    room: usize,
    known: usize,
    most: Option<usize>,
}

/// A buffer, and the bytes of the longest message that was in it since the pool was trimmed last; 0: it was not used.
#[derive(Default)]
struct Place {
    buffer: Arc<Buffer>,
    used: usize,
}

impl Place {
    fn new(capacity: usize) -> Self {
        Self { buffer: Arc::new(Buffer { bytes: Vec::with_capacity(HEADER + capacity) }), used: 0 }
    }

    fn room(&self) -> usize {
        self.buffer.bytes.capacity()
    }

    fn is_free(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }
}

impl Pool {
    /// A pool with `count` buffers of `capacity` bytes each, so that the steady state starts with the first sample.
    pub(crate) fn with_buffers(count: usize, capacity: usize) -> Self {
        Self { places: (0..count).map(|_| Place::new(capacity)).collect(), ..Self::default() }
    }

    /// From now on free buffers are given back while all together have room for more than `most` bytes. A history of few
    /// large messages leaves many buffers behind that were for small ones, and each of them would grow.
    pub(crate) fn limit(&mut self, most: usize) {
        self.room = self.room();
        self.known = self.places.get(self.next).map_or(0, Place::room);
        self.most = Some(most);
    }

    /// Bytes that all buffers have room for.
    pub(crate) fn room(&self) -> usize {
        self.places.iter().map(Place::room).sum()
    }

    /// Notes how the last buffer grew, and gives free ones back.
    fn shrink(&mut self, most: usize) {
        let grown = self.places.get(self.next).map_or(0, Place::room);
        self.room = (self.room + grown).saturating_sub(self.known);
        self.known = grown;
        while self.room > most && self.places.len() > 1 {
            let Some(free) = self.free() else { return };
            let place = self.places.remove(free);
            self.room = self.room.saturating_sub(place.room());
            self.next = free % self.places.len();
            self.known = self.places[self.next].room();
        }
    }

    /// The next buffer that is in no queue.
    fn free(&self) -> Option<usize> {
        let count = self.places.len();
        (0..count).map(|i| (self.next + i) % count).find(|i| self.places[*i].is_free())
    }

    /// Takes buffers of `spare`, which has `count` of them, until this pool has `count`, too. So filling queues do not make the
    /// publishing thread allocate. This call does not allocate either: it swaps the lists, and the rest goes back to `spare`.
    pub(crate) fn grow_to(&mut self, count: usize, spare: &mut Pool) {
        if self.places.len() < count.min(spare.places.len()) {
            self.places.iter_mut().zip(&mut spare.places).for_each(|(own, fresh)| std::mem::swap(own, fresh));
            std::mem::swap(&mut self.places, &mut spare.places);
            if let Some(most) = self.most {
                self.limit(most);
            }
        }
    }

    /// A buffer that is in no queue. Makes a new one when all wait in queues (bounded by the queues' limits).
    pub(crate) fn exclusive(&mut self) -> &mut Arc<Buffer> {
        if let Some(most) = self.most {
            self.shrink(most);
        }
        if let Some(last) = self.places.get_mut(self.next) {
            last.used = last.used.max(last.buffer.bytes.len());
        }
        let index = self.free().unwrap_or_else(|| {
            self.grown += 1;
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.next = index;
        let place = &mut self.places[index];
        place.used = place.used.max(1);
        self.known = place.room();
        &mut place.buffer
    }

    /// Takes buffers that were not needed since the last call: unused ones, the largest first, until the others have room for
    /// 1 MiB, and those with more than twice as much room as they needed. A thread that may free memory calls it from time to time,
    /// and drops the result after it has released the pool.
    pub(crate) fn trim(&mut self) -> Vec<Arc<Buffer>> {
        if let Some(last) = self.places.get_mut(self.next).filter(|last| last.used > 0) {
            last.used = last.used.max(last.buffer.bytes.len());
        }
        let unused = |place: &Place| place.is_free() && place.used == 0;
        let mut idle: usize = self.places.iter().filter(|place| unused(place)).map(Place::room).sum();
        let mut given = Vec::new();
        while idle > KEPT {
            let places = self.places.iter().enumerate().filter(|(_, place)| unused(place));
            let Some((largest, room)) = places.map(|(at, place)| (at, place.room())).max_by_key(|(_, room)| *room)
            else {
                break;
            };
            given.push(self.places.swap_remove(largest).buffer);
            idle -= room;
        }
        for place in self.places.iter_mut().filter(|place| place.is_free() && place.used > 0) {
            if place.room() > 2 * place.used + SPARE {
                given.push(std::mem::replace(place, Place::new(place.used)).buffer);
            }
        }
        self.places.iter_mut().for_each(|place| place.used = 0);
        if self.next >= self.places.len() {
            self.next = 0;
        }
        if let Some(most) = self.most {
            self.limit(most);
        }
        given
    }

    /// Takes a buffer that is in no queue out of its place, for a loan.
    pub(crate) fn take(&mut self) -> Arc<Buffer> {
        self.exclusive();
        let lent = self.kept_for_others.clone();
        self.places
            .get_mut(self.next)
            .map_or_else(|| lent.clone(), |place| std::mem::replace(&mut place.buffer, lent.clone()))
    }

    /// Puts a buffer back that was taken out of its place for a loan. Others may have been handed out since.
    pub(crate) fn replace(&mut self, buffer: Arc<Buffer>) {
        let lent = |place: &&mut Place| Arc::ptr_eq(&place.buffer, &self.kept_for_others);
        if let Some(place) = self.places.iter_mut().find(lent) {
            place.buffer = buffer;
        }
    }

    /// The number of buffers that had to be made after the start.
    #[cfg(test)]
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

    /// Loans that are held apart come back in any order, and others are handed out meanwhile.
    #[test]
    fn lent_buffers_come_back_to_their_places() {
        let mut pool = Pool::with_buffers(2, 16);
        let lent = [pool.take(), pool.take()];
        assert!(!Arc::ptr_eq(&lent[0], &lent[1]) && Arc::get_mut(pool.exclusive()).is_some());
        assert_eq!((pool.places.len(), pool.grown()), (3, 1));
        lent.into_iter().rev().for_each(|buffer| pool.replace(buffer));
        assert!(pool.places.iter().all(Place::is_free));
        (0..10).for_each(|_| assert!(Arc::get_mut(pool.exclusive()).is_some()));
        assert_eq!((pool.places.len(), pool.grown()), (3, 1));
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
                let room = pool.room();
                assert!(room <= 300_000 + 2 * 100_000 + 1000 * 64, "{room} bytes");
            }
        }
        let before = pool.grown();
        for _ in 0..100 {
            pool.exclusive();
        }
        assert_eq!(pool.grown(), before);
    }

    fn publish(pool: &mut Pool, size: usize) -> Arc<Buffer> {
        let buffer = pool.exclusive();
        Arc::get_mut(buffer).unwrap().start().resize(HEADER + size, 1);
        buffer.clone()
    }

    /// Sixteen large messages wait once; then small ones are published, or none.
    #[test]
    fn room_for_large_messages_goes_when_none_was_there_for_a_while() {
        for goes_on in [true, false] {
            let mut pool = Pool::with_buffers(18, 256);
            let waiting: Vec<_> = (0..16).map(|_| publish(&mut pool, 16 << 20)).collect();
            assert!(pool.trim().is_empty() && pool.room() > 256 << 20, "they wait");
            drop(waiting);
            let mut given = 0;
            for _ in 0..3 {
                (0..100).filter(|_| goes_on).for_each(|_| drop(publish(&mut pool, 64)));
                given += pool.trim().len();
            }
            assert!(given == 16 && pool.room() <= 2 << 20, "{given} given back, room for {} is left", pool.room());
        }
    }

    /// Mixed sizes, and the same number of waiting messages each time: room that is needed again is not given back.
    #[test]
    fn buffers_used_between_two_trims_stay() {
        let mut pool = Pool::with_buffers(2, 256);
        let burst = |pool: &mut Pool| {
            let waiting: Vec<_> = (0..20).map(|n| publish(pool, if n % 2 == 0 { 1 << 20 } else { 100 })).collect();
            drop(waiting);
        };
        (0..2).for_each(|_| burst(&mut pool)); // by then each place has held a large message
        let (grown, room) = (pool.grown(), pool.room());
        for _ in 0..10 {
            (0..2).for_each(|_| burst(&mut pool));
            assert_eq!((pool.trim().len(), pool.grown(), pool.room()), (0, grown, room));
        }
    }
}
