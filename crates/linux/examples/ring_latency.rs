//! Round trips through two rings, beside a bare futex ring: two words in shared memory and nothing else.
//!
//! `cargo run --release -p thalweg-linux --example ring_latency [ROUNDS]`. Both threads run on processor 0, and the two
//! are measured in turns, because machines are noisy.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a measurement: it reads the clock, and ends where something is missing

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thalweg_linux as linux;
use thalweg_linux::futex::{self, Scope};
use thalweg_linux::memory::{Arena, Meta, Policy, RingReader, RingWriter};

const TURNS: usize = 8;
const WORDS: usize = 8; // 64 bytes

/// One direction of the bare ring.
#[repr(C)]
struct Bare {
    sequence: AtomicU32,
    data: [AtomicU64; WORDS],
}

impl Bare {
    fn send(&self, message: &[u64; WORDS]) {
        self.data.iter().zip(message).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        self.sequence.fetch_add(1, Ordering::Release);
        futex::wake(&self.sequence, 1, Scope::Shared);
    }

    fn receive(&self, seen: u32, message: &mut [u64; WORDS]) {
        while self.sequence.load(Ordering::Acquire) == seen {
            futex::wait(&self.sequence, seen, Some(Duration::from_secs(1)), Scope::Shared);
        }
        self.data.iter().zip(message).for_each(|(from, to)| *to = from.load(Ordering::Relaxed));
    }
}

#[allow(unsafe_code)]
fn bare_pair() -> &'static [Bare; 2] {
    use rustix::mm::{MapFlags, ProtFlags};
    let fd = rustix::fs::memfd_create("bare", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&fd, 4096).expect("memory");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping that is never unmapped, of zeroes, which are valid for the two rings that fit into it.
    unsafe {
        &*rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, &fd, 0).expect("memory").cast()
    }
}

/// One direction of our ring.
struct Out {
    arena: Arena,
    ring: RingWriter,
}

fn direction() -> (Out, RingReader) {
    let arena = Arena::create(1 << 16, 64).expect("memory");
    let (ring, fd) = RingWriter::create(8, 4, 0).expect("memory");
    let reader = RingReader::attach(arena.payload_fd(), fd.as_fd()).expect("attach");
    (Out { arena, ring }, reader)
}

impl Out {
    fn send(&mut self, message: &[u8]) {
        let loan = self.arena.loan(message.len()).expect("room");
        self.arena.bytes_mut(&loan).copy_from_slice(message);
        let sample = self.arena.seal(loan);
        self.ring.push(&mut self.arena, &sample, Meta::default(), Policy::KeepLast);
        self.arena.release(sample);
        self.arena.wake(self.ring.reader_waits());
    }
}

fn receive(reader: &mut RingReader, message: &mut [u8; 64]) {
    loop {
        if let Some(sample) = reader.try_next().expect("an honest peer") {
            message.copy_from_slice(reader.bytes(&sample));
            return reader.give_back(sample);
        }
        reader.wait(Duration::from_secs(1));
    }
}

fn time(rounds: usize, mut trip: impl FnMut()) -> Vec<u64> {
    let one = |_| {
        let start = Instant::now();
        trip();
        start.elapsed().as_nanos() as u64
    };
    (0..rounds).map(one).collect()
}

fn bare(rounds: usize) -> Vec<u64> {
    let [there, back] = bare_pair();
    let echo = std::thread::spawn(move || {
        let mut message = [0; WORDS];
        for seen in 0..rounds as u32 {
            there.receive(seen, &mut message);
            back.send(&message);
        }
    });
    let (mut message, mut seen) = ([7; WORDS], 0);
    let times = time(rounds, || {
        there.send(&message);
        back.receive(seen, &mut message);
        seen += 1;
    });
    echo.join().expect("echo");
    times
}

fn ours(rounds: usize) -> Vec<u64> {
    let ((mut out, mut far_in), (mut far_out, mut back)) = (direction(), direction());
    let echo = std::thread::spawn(move || {
        let mut message = [0; 64];
        for _ in 0..rounds {
            receive(&mut far_in, &mut message);
            far_out.send(&message);
        }
    });
    let mut message = [7; 64];
    let times = time(rounds, || {
        out.send(&message);
        receive(&mut back, &mut message);
    });
    echo.join().expect("echo");
    times
}

fn percentile(times: &mut [u64], per_mille: usize) -> f64 {
    times.sort_unstable();
    times[(times.len() - 1) * per_mille / 1000] as f64 / 1000.0
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(20_000);
    linux::thread::pin(&[0]).expect("processor 0");
    let (mut ours_all, mut bare_all, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let (mut a, mut b) = (ours(rounds), bare(rounds));
        ratios.push((percentile(&mut a, 500) / percentile(&mut b, 500) * 1000.0) as u64);
        ours_all.append(&mut a);
        bare_all.append(&mut b);
    }
    for (name, times) in [("thalweg rings", &mut ours_all), ("bare futex ring", &mut bare_all)] {
        let [p50, p99] = [500, 990].map(|p| percentile(times, p));
        println!("{name:16} p50 {p50:7.2} us   p99 {p99:7.2} us");
    }
    println!("ratio of p50, median of {TURNS} turns: {:.2}", percentile(&mut ratios, 500));
}
