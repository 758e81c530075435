//! The ring algorithm under loom: every interleaving, and every value that the memory model lets an atomic load see.
//!
//! A module of `crates/models`, which tells the command.

mod atomic {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "protocol.rs"]
mod protocol;

use atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use protocol::{Cell, Control, Lane, ReaderSide, Record, WORDS, WriterSide};

/// A channel in loom's memory, with a stand-in for the futex: compare and sleep in one step, wake all.
struct Channel {
    control: Control,
    cells: Vec<Cell>,
    returns: Vec<AtomicU32>,
    wake: AtomicU32,
    asleep: Mutex<()>,
    woken: Condvar,
}

impl Channel {
    fn new(cells: usize) -> Arc<Self> {
        Arc::new(Self {
            control: Control::default(),
            cells: (0..cells).map(|_| Cell::default()).collect(),
            returns: (0..4).map(|_| AtomicU32::new(0)).collect(),
            wake: AtomicU32::new(0),
            asleep: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn lane(&self) -> Lane<'_> {
        Lane { control: &self.control, cells: &self.cells, returns: &self.returns }
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.asleep.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn futex_wake(&self) {
        let _guard = self.asleep.lock().unwrap();
        self.woken.notify_all();
    }

    fn wake_reader(&self) {
        if self.lane().take_waiting() {
            self.wake.fetch_add(1, Ordering::Release);
            self.futex_wake();
        }
    }

    fn wait(&self) {
        let word = self.wake.load(Ordering::Acquire);
        self.lane().announce_waiting();
        if !self.lane().has_news() {
            self.futex_wait(&self.wake, word);
        }
        self.lane().withdraw_waiting();
    }
}

fn record(value: u64) -> Record {
    [value; WORDS]
}

fn whole(record: Record) -> u64 {
    assert!(record.iter().all(|word| *word == record[0]), "a torn descriptor: {record:?}");
    record[0]
}

fn check(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(body);
}

/// Keep-last against a reader: each position is claimed, taken back, or still waiting, exactly one of them, in order.
#[test]
fn loom_no_descriptor_goes_to_both_and_none_is_torn() {
    check(|| {
        let channel = Channel::new(2);
        let reading = channel.clone();
        let reader = thread::spawn(move || {
            let mut side = ReaderSide::new(2);
            (0..2).filter_map(|_| side.take(reading.lane()).unwrap().map(whole)).collect::<Vec<_>>()
        });
        let mut side = WriterSide::new(2);
        let mut back = Vec::new();
        for value in 0..3 {
            if side.full() {
                side.refresh(channel.lane()).unwrap();
            }
            if side.full() {
                back.extend(side.reclaim(channel.lane()).unwrap());
            }
            side.put(channel.lane(), record(value));
        }
        let mut all = reader.join().unwrap();
        assert!(all.is_sorted() && back.is_sorted());
        all.extend(back);
        while let Some(position) = side.reclaim(channel.lane()).unwrap() {
            all.push(position);
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

/// A lost wake-up would let the reader sleep for ever, which loom reports as a deadlock.
#[test]
fn loom_no_wake_up_is_lost() {
    check(|| {
        let channel = Channel::new(2);
        let reading = channel.clone();
        let reader = thread::spawn(move || {
            let mut side = ReaderSide::new(2);
            let mut got = 0;
            while got < 2 {
                match side.take(reading.lane()).unwrap() {
                    Some(record) => got += u64::from(whole(record) == got),
                    None => reading.wait(),
                }
            }
        });
        let mut side = WriterSide::new(2);
        for value in 0..2 {
            side.put(channel.lane(), record(value));
            channel.wake_reader();
        }
        reader.join().unwrap();
    });
}

/// The same for a writer that waits for room: the reader claims after the push, and must say so.
#[test]
fn loom_no_room_is_left_untold() {
    check(|| {
        let channel = Channel::new(1);
        let mut side = WriterSide::new(1);
        side.put(channel.lane(), record(0));
        let reading = channel.clone();
        let reader = thread::spawn(move || {
            let taken = ReaderSide::new(1).take(reading.lane()).unwrap();
            assert_eq!(taken.map(whole), Some(0));
            if reading.lane().tell_room() {
                reading.futex_wake();
            }
        });
        loop {
            let asked = channel.lane().ask_room();
            side.refresh(channel.lane()).unwrap();
            if !side.full() {
                break;
            }
            channel.futex_wait(&channel.control.room.0, asked);
        }
        side.put(channel.lane(), record(1));
        reader.join().unwrap();
    });
}

/// One slot, used again as soon as it is returned by either way: loom reports it if both sides ever have it at once.
#[test]
fn loom_no_slot_is_with_both_sides() {
    check(|| {
        let channel = Channel::new(1);
        let slot = Arc::new(loom::cell::UnsafeCell::new(0u64));
        let (reading, bytes) = (channel.clone(), slot.clone());
        let reader = thread::spawn(move || {
            let (mut side, mut tail) = (ReaderSide::new(1), 0);
            for _ in 0..2 {
                if let Some(record) = side.take(reading.lane()).unwrap() {
                    bytes.with(|_| whole(record)); // loom panics if it is being written
                    reading.lane().give_back(&mut tail, 0);
                }
            }
        });
        let mut side = WriterSide::new(1);
        let mut collected = 0;
        let mut free = true;
        for value in 0..3 {
            if !free {
                free = side.reclaim(channel.lane()).unwrap().is_some();
            }
            if !free && channel.control.returned.0.load(Ordering::Acquire) > collected {
                assert_eq!(channel.lane().ticket(collected), 0);
                collected += 1;
                side.refresh(channel.lane()).unwrap();
                free = true;
            }
            if free {
                slot.with_mut(|_| ());
                side.put(channel.lane(), record(value));
                free = false;
            }
        }
        reader.join().unwrap();
    });
}
