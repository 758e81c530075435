//! The cost of one sample: no allocation, no system call while the reader is busy, one when it waits.
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thalweg_linux::allocations;
use thalweg_linux::memory::{Arena, Meta, Policy, Pushed, RingReader, RingWriter};

fn publish(arena: &mut Arena, rings: &mut [RingWriter], seq: u64) {
    let loan = arena.loan(200).unwrap();
    arena.bytes_mut(&loan).fill(seq as u8);
    let sample = arena.seal(loan);
    for ring in rings.iter_mut() {
        let pushed = ring.push(arena, &sample, Meta { seq, ..Meta::default() }, Policy::KeepLast);
        assert!(matches!(pushed, Pushed::Sent | Pushed::SentDroppedOldest(_)));
    }
    arena.release(sample);
    let bits = rings.iter().fold(0, |bits, ring| bits | ring.reader_waits());
    arena.wake(bits);
}

fn port(readers: u32) -> (Arena, Vec<RingWriter>, Vec<RingReader>) {
    let arena = Arena::create(1 << 20, 4096).unwrap();
    let attach = |bit| {
        let (ring, fd) = RingWriter::create(8, 4, bit).unwrap();
        (ring, RingReader::attach(arena.payload_fd(), fd.as_fd()).unwrap())
    };
    let (rings, readers) = (0..readers).map(attach).unzip();
    (arena, rings, readers)
}

fn publish_and_take(arena: &mut Arena, rings: &mut [RingWriter], readers: &mut [RingReader], seq: u64) {
    publish(arena, rings, seq);
    for reader in readers {
        let sample = reader.try_borrow().unwrap().unwrap();
        assert!(sample.len() == 200 && sample[199] == seq as u8);
    }
}

#[test]
fn a_sample_costs_no_allocation_and_at_most_one_system_call() {
    let (mut arena, mut rings, mut readers) = port(3);
    (0..100).for_each(|seq| publish_and_take(&mut arena, &mut rings, &mut readers, seq));
    let before = allocations::count();
    (0..10_000).for_each(|seq| publish_and_take(&mut arena, &mut rings, &mut readers, seq));
    (0..10_000).for_each(|seq| publish(&mut arena, &mut rings, seq)); // no one reads: the oldest are taken back
    assert_eq!(allocations::count() - before, 0);
    assert_eq!(arena.wake_calls(), 0, "nobody waits");
    one_wake_for_all();
    without_waiting_readers_there_is_no_system_call_at_all();
}

fn one_wake_for_all() {
    const SAMPLES: u64 = 300;
    let (mut arena, mut rings, readers) = port(3);
    let seen = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for mut reader in readers {
            let seen = &seen;
            scope.spawn(move || {
                let mut before = 0;
                for seq in 1..=SAMPLES {
                    if seq == 100 {
                        before = allocations::count();
                    }
                    while !reader.wait(Duration::from_millis(100)) {}
                    let sample = reader.try_borrow().unwrap().unwrap();
                    assert_eq!(sample.meta().seq, seq);
                    drop(sample);
                    seen.fetch_add(1, Ordering::Release);
                }
                assert_eq!(allocations::count() - before, 0, "nor does a reader allocate");
            });
        }
        let mut before = 0;
        for seq in 1..=SAMPLES {
            let calls = arena.wake_calls();
            if seq == 100 {
                before = allocations::count();
            }
            publish(&mut arena, &mut rings, seq);
            assert!(arena.wake_calls() <= calls + 1);
            while u64::from(seen.load(Ordering::Acquire)) < 3 * seq {
                std::thread::yield_now();
            }
        }
        assert_eq!(allocations::count() - before, 0, "the writer does not allocate");
    });
    assert!(arena.wake_calls() >= SAMPLES / 2, "{} wakes: they did wait", arena.wake_calls());
}

/// The kernel itself watches: in strict mode any call but read, write and exit kills the thread.
#[test]
#[ignore = "run by the other test, in a process of its own"]
#[allow(unsafe_code)]
fn the_watched_child() {
    if std::env::var_os("THALWEG_TEST_CHILD").is_none() {
        return;
    }
    let (mut arena, mut rings, mut readers) = port(3);
    (0..100).for_each(|seq| publish_and_take(&mut arena, &mut rings, &mut readers, seq));
    // SAFETY: plain system calls; the text outlives its write, and the thread ends before it could do anything else.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT), 0);
        (0..10_000).for_each(|seq| publish_and_take(&mut arena, &mut rings, &mut readers, seq));
        (0..10_000).for_each(|seq| publish(&mut arena, &mut rings, seq));
        libc::write(1, b"no system call\n".as_ptr().cast(), 15);
        loop {
            libc::syscall(libc::SYS_exit, 0);
        }
    }
}

fn without_waiting_readers_there_is_no_system_call_at_all() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["memory_cost::the_watched_child", "--exact", "--ignored", "--nocapture"])
        .env("THALWEG_TEST_CHILD", "1");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let said = lines.map_while(Result::ok).any(|line| line.contains("no system call"));
    let _ = child.kill(); // its harness waits for a thread that is gone
    let _ = child.wait();
    assert!(said, "the kernel stopped it");
}
