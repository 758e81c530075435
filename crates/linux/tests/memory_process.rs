//! Two processes. The child is this program, started again with the descriptors inherited.
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_linux::memory::{Arena, Meta, Policy, Pushed, RingReader, RingWriter};

const ROLE: &str = "THALWEG_TEST_CHILD";

/// Starts this program as a child with a role; `fds` stay open in it.
fn child(role: &str, fds: &[BorrowedFd<'_>]) -> Child {
    let numbers: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    fds.iter().for_each(|fd| rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["memory_process::the_child", "--exact", "--ignored", "--nocapture"])
        .env(ROLE, format!("{role} {}", numbers.join(" ")));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

fn inherited(number: &str, write: bool) -> File {
    OpenOptions::new().read(true).write(write).open(format!("/proc/self/fd/{number}")).unwrap()
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match *role.split_whitespace().collect::<Vec<_>>() {
        ["reader", payload, ring] => read(&inherited(payload, false), &inherited(ring, true)),
        ["writer"] => write(),
        _ => panic!("no such role: {role}"),
    }
}

/// Reads for ever, keeps the last two samples, prints each sequence number.
fn read(payload: &File, ring: &File) {
    let mut reader = RingReader::attach(payload.as_fd(), ring.as_fd()).unwrap();
    let mut kept = std::collections::VecDeque::new();
    println!("\nready");
    loop {
        while let Some(sample) = reader.try_borrow().unwrap() {
            let seq = sample.meta().seq;
            assert!(sample.len() == 1000 && sample.iter().all(|b| *b == seq as u8));
            println!("{seq}");
            kept.push_back(sample);
            kept.drain(..kept.len().saturating_sub(2));
        }
        reader.wait(Duration::from_millis(100));
    }
}

/// Publishes for ever; the parent opens its memory through /proc.
fn write() {
    let mut arena = Arena::create(1 << 20, 1000).unwrap();
    let (mut ring, fd) = RingWriter::create(8, 4, 3).unwrap();
    println!("\nready {} {}", arena.payload_fd().as_raw_fd(), fd.as_raw_fd());
    for seq in 1.. {
        send(&mut arena, &mut ring, seq);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn send(arena: &mut Arena, ring: &mut RingWriter, seq: u64) -> Pushed {
    let loan = arena.loan(1000).unwrap();
    arena.bytes_mut(&loan).fill(seq as u8);
    let sample = arena.seal(loan);
    let pushed = ring.push(arena, &sample, Meta { seq, ..Meta::default() }, Policy::KeepLast);
    arena.release(sample);
    arena.wake(ring.reader_waits());
    pushed
}

fn wait_for(lines: &mut impl BufRead, wanted: &str) -> String {
    let mut line = String::new();
    while !line.trim().starts_with(wanted) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended before it said {wanted}");
    }
    line
}

#[test]
fn a_reader_in_another_process_reads_and_its_sudden_death_costs_nothing() {
    let mut arena = Arena::create(1 << 20, 1000).unwrap();
    let (mut ring, fd) = RingWriter::create(8, 4, 3).unwrap();
    let mut reader = child("reader", &[arena.payload_fd(), fd.as_fd()]);
    let mut lines = BufReader::new(reader.stdout.take().unwrap());
    wait_for(&mut lines, "ready");
    for seq in 1..=200 {
        if seq % 10 == 0 {
            std::thread::sleep(Duration::from_millis(2)); // let it wait now and then
        }
        assert_eq!(send(&mut arena, &mut ring, seq), Pushed::Sent);
        wait_for(&mut lines, &seq.to_string());
    }
    assert!(arena.wake_calls() > 0 && arena.wake_calls() <= 200);
    ring.collect(&mut arena).unwrap();
    assert!((1..=3).contains(&ring.out()), "it keeps some: {}", ring.out());
    reader.kill().unwrap();
    reader.wait().unwrap();
    let pushed: Vec<_> = (201..300).map(|seq| send(&mut arena, &mut ring, seq)).collect();
    assert_eq!(pushed.last(), Some(&Pushed::SentDroppedOldest(1)), "a dead reader holds nobody up");
    ring.release_all(&mut arena);
    assert_eq!((arena.borrowed(), ring.out()), (0, 0));
}

#[test]
fn the_sudden_death_of_a_writer_leaves_readers_whole_and_nothing_behind() {
    let mut writer = child("writer", &[]);
    let line = wait_for(&mut BufReader::new(writer.stdout.take().unwrap()), "ready");
    let numbers: Vec<_> = line.split_whitespace().skip(1).map(|n| format!("/proc/{}/fd/{n}", writer.id())).collect();
    let payload = File::open(&numbers[0]).unwrap();
    let ring = OpenOptions::new().read(true).write(true).open(&numbers[1]).unwrap();
    let mut reader = RingReader::attach(payload.as_fd(), ring.as_fd()).unwrap();
    let mut kept = None;
    let until = Instant::now() + Duration::from_secs(20);
    let mut got = 0;
    while got < 100 && Instant::now() < until {
        if reader.wait(Duration::from_millis(100)) {
            kept = reader.try_borrow().unwrap().or(kept);
            got += 1;
        }
    }
    assert_eq!(got, 100);
    writer.kill().unwrap();
    writer.wait().unwrap();
    drop(writer.stdin.take().map(|mut s| s.write_all(b"")));
    while let Some(sample) = reader.try_borrow().unwrap() {
        kept = Some(sample);
    }
    let kept = kept.unwrap();
    assert!(kept.iter().all(|b| *b == kept.meta().seq as u8), "what is held stays whole");
    assert!(!reader.wait(Duration::from_millis(20)), "and nothing more comes");
    let mut maps = String::new();
    File::open("/proc/self/maps").unwrap().read_to_string(&mut maps).unwrap();
    assert!(maps.lines().filter(|l| l.contains("thalweg-")).all(|l| l.contains("memfd:") && l.contains("(deleted)")));
}
