//! A peer that writes anything anywhere it can: no panic, no access outside the mapping, and it is noticed.
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thalweg_linux::memory::{Arena, Meta, Policy, Pushed, RingReader, RingWriter, TakeError};

fn reopen(fd: BorrowedFd<'_>) -> File {
    OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap()
}

/// Enough of a random number (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Often a small number, which is the more dangerous value.
    fn word(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next(),
            1 => u64::MAX - self.next() % 8,
            _ => self.next() % 64,
        }
    }
}

fn push(arena: &mut Arena, ring: &mut RingWriter, seq: u64) -> Option<Pushed> {
    let loan = arena.loan(100).ok()?;
    arena.bytes_mut(&loan).fill(seq as u8);
    let sample = arena.seal(loan);
    let pushed = ring.push(arena, &sample, Meta { seq, ..Meta::default() }, Policy::KeepLast);
    arena.release(sample);
    arena.wake(ring.reader_waits());
    Some(pushed)
}

/// One round: writer and reader at work while every word of the ring memory is overwritten at random.
fn round(seed: u64) -> (bool, bool) {
    let mut arena = Arena::create(64 * 256, 256).unwrap();
    let (mut ring, fd) = RingWriter::create(4, 4, 0).unwrap();
    let mut reader = RingReader::attach(arena.payload_fd(), fd.as_fd()).unwrap();
    let (stop, file) = (AtomicBool::new(false), reopen(fd.as_fd()));
    let words = file.metadata().unwrap().len() / 8;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut caught = false;
            while !stop.load(Ordering::Relaxed) {
                match reader.try_borrow() {
                    Ok(Some(sample)) => drop(std::hint::black_box(sample.iter().map(|b| u64::from(*b)).sum::<u64>())),
                    Ok(None) => drop(reader.wait(Duration::from_micros(50))),
                    Err(TakeError::Violation(_)) => caught = true,
                    Err(TakeError::TooManyHeld { .. }) => unreachable!("all are given back"),
                }
            }
            caught
        });
        let mut dice = Dice(seed * 2 + 1);
        let mut caught = false;
        for seq in 0..400 {
            (0..seq % 3).for_each(|_| {
                let place = if dice.next().is_multiple_of(2) { 8 + dice.next() % 64 } else { dice.next() % words };
                file.write_at(&dice.word().to_ne_bytes(), place * 8).unwrap();
            });
            if let Some(Pushed::Violation(_)) = push(&mut arena, &mut ring, seq) {
                caught = true;
                ring.release_all(&mut arena);
                assert_eq!(arena.borrowed(), 0, "what a cheat held is free again");
            }
        }
        stop.store(true, Ordering::Relaxed);
        (caught, reading.join().unwrap())
    })
}

#[test]
fn random_words_in_the_ring_harm_nobody_and_are_noticed() {
    let rounds: Vec<_> = (1..=150).map(round).collect();
    let (writer, reader) = (rounds.iter().filter(|r| r.0).count(), rounds.iter().filter(|r| r.1).count());
    assert!(writer > 40 && reader > 0, "writer noticed {writer}, reader {reader} of 150");
}

/// The byte offsets of the words that an attacker would choose, by the layout of version 1.
const HEAD: u64 = 64 + 64;
const TAIL: u64 = 64;
const RETURNED: u64 = 64 + 128;
const CELL: u64 = 64 + 8 * 64;

#[test]
fn each_false_word_to_the_writer_is_named() {
    let lies: [(&str, &[(u64, u64)]); 4] = [
        ("head of the ring", &[(HEAD, 99), (RETURNED, 1)]),
        ("does not hold", &[(RETURNED, 1)]),            // still waiting in the ring
        ("does not hold", &[(HEAD, 4), (RETURNED, 5)]), // ticket 0 five times
        ("return ring", &[(RETURNED, u64::MAX)]),
    ];
    for (named, words) in lies {
        let mut arena = Arena::create(64 * 256, 256).unwrap();
        let (mut ring, fd) = RingWriter::create(4, 4, 0).unwrap();
        (0..4).for_each(|seq| assert_eq!(push(&mut arena, &mut ring, seq), Some(Pushed::Sent)));
        let file = reopen(fd.as_fd());
        words.iter().for_each(|(at, word)| file.write_all_at(&word.to_ne_bytes(), *at).unwrap());
        let pushed = push(&mut arena, &mut ring, 4);
        assert!(matches!(pushed, Some(Pushed::Violation(what)) if what.contains(named)), "{named}: {pushed:?}");
        assert!(ring.collect(&mut arena).is_err(), "it stays broken");
        ring.release_all(&mut arena);
        assert_eq!(arena.borrowed(), 0);
    }
}

#[test]
fn each_false_word_to_the_reader_is_named() {
    let lies: [(&str, u64, u64); 5] = [
        ("head or tail", TAIL, 6),
        ("outside its memory", CELL, 1 << 40),
        ("outside its memory", CELL, 0),
        ("outside its memory", CELL + 8, u64::from(u32::MAX)),
        ("ticket", CELL + 8, 8 << 32),
    ];
    for (named, at, word) in lies {
        let mut arena = Arena::create(64 * 256, 256).unwrap();
        let (mut ring, fd) = RingWriter::create(4, 4, 0).unwrap();
        let mut reader = RingReader::attach(arena.payload_fd(), fd.as_fd()).unwrap();
        assert_eq!(push(&mut arena, &mut ring, 1), Some(Pushed::Sent));
        reopen(fd.as_fd()).write_all_at(&word.to_ne_bytes(), at).unwrap();
        let error = reader.try_next().map(|_| ()).unwrap_err();
        assert!(matches!(error, TakeError::Violation(what) if what.contains(named)), "{named}: {error}");
    }
}

#[test]
fn foreign_memory_is_not_attached() {
    let arena = Arena::create(4096, 256).unwrap();
    let (_ring, fd) = RingWriter::create(4, 4, 0).unwrap();
    assert!(RingReader::attach(fd.as_fd(), fd.as_fd()).is_err(), "a ring is no payload");
    assert!(RingReader::attach(arena.payload_fd(), arena.payload_fd()).is_err(), "and payload is no ring");
    for (at, word) in [(0, 1u32), (8, 2), (12, 60_000), (12, 0), (16, u32::MAX), (20, 32)] {
        let (_ring, fd) = RingWriter::create(4, 4, 0).unwrap();
        reopen(fd.as_fd()).write_all_at(&word.to_ne_bytes(), at).unwrap();
        assert!(RingReader::attach(arena.payload_fd(), fd.as_fd()).is_err(), "header word at {at} = {word}");
    }
    assert!(RingWriter::create(0, 4, 0).is_err() && RingWriter::create(4, 4, 32).is_err());
}

#[test]
fn a_reader_cannot_write_payload() {
    let arena = Arena::create(4096, 256).unwrap();
    assert!(reopen(arena.payload_fd()).write_at(&[1], 4096).is_err());
}
