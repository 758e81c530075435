//! Promises of every carrier, as tests that each carrier instantiates in one line.
//!
//! ```ignore
//! thalweg::carrier_conformance!(my_carrier, make());  // one #[test] per property
//! thalweg::testing::conformance::check_all(make);     // or all in one
//! ```
//!
//! `make` gives a connected pair of fresh halves and their capabilities. The [`Capabilities`] decide what is tested:
//! an unreliable carrier may lose under load, but not on an idle link; only a reliable one has to notice a lost peer.
//! There are no fixed waits: each wait ends with its event, or fails after [`PATIENCE`].
#![allow(clippy::disallowed_methods)] // it measures, and waits until a stated time

use crate::carrier::{Capabilities, ReceiveHalf, SendHalf};
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

mod pressure;

pub use pressure::{
    a_peer_that_is_gone_is_an_error, a_send_without_room_would_block, close_is_noticed, halves_move_between_threads,
    nothing_is_lost_under_back_pressure,
};

/// Time that a property waits for something that must happen before it fails. Generous: machines that run tests
/// stall.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Fresh halves of one flow, and the carrier's capabilities.
pub type Made = (Box<dyn SendHalf>, Box<dyn ReceiveHalf>, Capabilities);

/// A property and its name.
pub type Property = (&'static str, fn(Made));

/// All properties, in the order in which they build on each other.
pub const ALL: [Property; 14] = [
    ("arrives_unchanged", arrives_unchanged),
    ("several_parts_are_one_message", several_parts_are_one_message),
    ("boundaries_or_bytes_are_kept", boundaries_or_bytes_are_kept),
    ("datagrams_sent_together_stay_apart", datagrams_sent_together_stay_apart),
    ("order_is_kept", order_is_kept),
    ("too_long_is_refused_and_harmless", too_long_is_refused_and_harmless),
    ("an_empty_receive_would_block", an_empty_receive_would_block),
    ("a_waiting_receive_comes_back", a_waiting_receive_comes_back),
    ("the_descriptor_tells", the_descriptor_tells),
    ("nothing_is_lost_under_back_pressure", nothing_is_lost_under_back_pressure),
    ("a_send_without_room_would_block", a_send_without_room_would_block),
    ("close_is_noticed", close_is_noticed),
    ("a_peer_that_is_gone_is_an_error", a_peer_that_is_gone_is_an_error),
    ("halves_move_between_threads", halves_move_between_threads),
];

/// Checks every property, each with fresh halves.
///
/// # Panics
/// If one does not hold; the property is printed before.
pub fn check_all(make: impl Fn() -> Made) {
    for (name, property) in ALL {
        println!("{name}");
        property(make());
    }
}

/// One `#[test]` for each property of a carrier: `carrier_conformance!(name, make())`. A third argument is an
/// expression that gives `None`, or the reason why the carrier cannot be tested here, which is printed.
#[macro_export]
macro_rules! carrier_conformance {
    ($name:ident, $make:expr) => {
        $crate::carrier_conformance!($name, $make, None::<String>);
    };
    ($name:ident, $make:expr, $unless:expr) => {
        $crate::carrier_conformance!(@each $name, $make, $unless,
            arrives_unchanged several_parts_are_one_message boundaries_or_bytes_are_kept
            datagrams_sent_together_stay_apart order_is_kept
            too_long_is_refused_and_harmless an_empty_receive_would_block a_waiting_receive_comes_back
            the_descriptor_tells nothing_is_lost_under_back_pressure a_send_without_room_would_block close_is_noticed
            a_peer_that_is_gone_is_an_error halves_move_between_threads);
    };
    (@each $name:ident, $make:expr, $unless:expr, $($property:ident)*) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            #[test]
            fn every_property_is_a_test() {
                assert_eq!([$(stringify!($property)),*], $crate::testing::conformance::ALL.map(|(name, _)| name));
            }
            $crate::carrier_conformance!(@tests $make, $unless, $($property)*);
        }
    };
    (@tests $make:expr, $unless:expr, ) => {};
    (@tests $make:expr, $unless:expr, $first:ident $($rest:ident)*) => {
        #[test]
        fn $first() {
            match $unless {
                Some(why) => println!("skipped: {why}"),
                None => $crate::testing::conformance::$first($make),
            }
        }
        $crate::carrier_conformance!(@tests $make, $unless, $($rest)*);
    };
}

/// Messages of all sizes arrive unchanged, up to the datagram limit or 1 MiB of a stream.
pub fn arrives_unchanged((send, mut receive, capabilities): Made) {
    let limit = capabilities.max_datagram.filter(|_| !capabilities.stream).unwrap_or(1 << 20);
    let sizes = [0, 1, 31, 32, 64, 1400, 1 << 14, 1 << 16, 1 << 20, limit - 1, limit];
    for size in sizes.into_iter().filter(|size| *size <= limit) {
        let message = content(size);
        let got = exchange(&*send, &mut *receive, capabilities, &[&message], size);
        assert!(got == message, "{size} bytes arrived as {} other ones", got.len());
    }
}

/// Header room and payload are several parts, and one message.
pub fn several_parts_are_one_message((send, mut receive, capabilities): Made) {
    let message = content(700);
    let parts: [&[u8]; 5] = [&message[..32], &message[32..33], &[], &message[33..600], &message[600..]];
    let got = exchange(&*send, &mut *receive, capabilities, &parts, message.len());
    assert!(got == message, "the parts arrived as {} other bytes", got.len());
}

/// Datagrams stay apart, and a cut one reports its full length. Bytes of a stream stay together, for any sizes
/// of sends and receives.
pub fn boundaries_or_bytes_are_kept((send, mut receive, capabilities): Made) {
    let sizes = [5usize, 300, 1, 64];
    let sent: Vec<u8> = sizes.iter().flat_map(|n| content(*n)).collect();
    sizes.iter().for_each(|n| send_all(&*send, &[&content(*n)]));
    let mut buffer = [0; 100];
    if capabilities.stream {
        let mut got = Vec::new();
        while got.len() < sent.len() {
            let n = receive_one(&mut *receive, &mut buffer[..7]);
            assert!(n > 0 && n <= 7, "a receive of 7 bytes gave {n}");
            got.extend_from_slice(&buffer[..n]);
        }
        return assert!(got == sent, "the bytes changed or their order did");
    }
    for size in sizes {
        let n = receive_one(&mut *receive, &mut buffer);
        assert_eq!(n, size, "a datagram of {size} bytes, the buffer holds {}", buffer.len());
        assert!(buffer[..n.min(100)] == content(size)[..n.min(100)], "a datagram of {size} bytes changed");
    }
}

/// Datagrams that are sent or received together arrive each by itself; the last one is shorter.
pub fn datagrams_sent_together_stay_apart((send, mut receive, capabilities): Made) {
    if capabilities.stream {
        return;
    }
    let datagrams: Vec<(u8, Vec<u8>)> = (0..9).map(|n| (n, content(if n < 8 { 200 } else { 50 }))).collect();
    let parts = datagrams.iter().map(|(n, rest)| [IoSlice::new(std::slice::from_ref(n)), IoSlice::new(rest)]);
    let parts: Vec<[IoSlice<'_>; 2]> = parts.collect();
    let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    let joins = receive.join();
    while got.len() < datagrams.len() {
        if sent < parts.len() {
            match send.send_many(&parts[sent..]) {
                Ok(more) => sent += more,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "send: {e}"),
            }
        }
        let before = got.len();
        while got.len() < sent.min(before + 1) {
            let length = receive_one(&mut *receive, &mut buffer);
            got.extend(buffer[..length].chunks(if joins { 201 } else { length }).map(<[u8]>::to_vec));
        }
    }
    let joined = |(n, rest): &(u8, Vec<u8>)| [&[*n], &rest[..]].concat();
    if !capabilities.ordered {
        got.sort_unstable(); // by their first byte
    }
    assert!(got == datagrams.iter().map(joined).collect::<Vec<_>>(), "{} other datagrams arrived", got.len());
}

/// A carrier that promises order keeps it for all messages that arrive.
pub fn order_is_kept((send, mut receive, capabilities): Made) {
    if !capabilities.ordered {
        return;
    }
    let mut stream = Vec::new();
    for i in 0..200u32 {
        send_all(&*send, &[&i.to_le_bytes()]);
        let mut buffer = [0; 4];
        let n = receive_one(&mut *receive, &mut buffer);
        stream.extend_from_slice(&buffer[..n]);
    }
    let numbers: Vec<_> = stream.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four)).collect();
    assert!(!numbers.is_empty() && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

/// A datagram above the limit is an error of that send, not `WouldBlock` (which would be retried for ever), and
/// leaves the flow usable.
pub fn too_long_is_refused_and_harmless((send, mut receive, capabilities): Made) {
    let Some(limit) = capabilities.max_datagram.filter(|_| !capabilities.stream) else { return };
    match send.send(&[IoSlice::new(&content(limit + 1))]) {
        Ok(n) => panic!("a datagram of {} bytes was taken ({n}), the limit is {limit}", limit + 1),
        Err(e) => assert_ne!(e.kind(), io::ErrorKind::WouldBlock, "a datagram above the limit will never have room"),
    }
    let got = exchange(&*send, &mut *receive, capabilities, &[b"after"], 5);
    assert_eq!(got, b"after");
}

/// A receive that does not wait returns `WouldBlock` if there is nothing, at once and again.
pub fn an_empty_receive_would_block((send, mut receive, capabilities): Made) {
    let mut buffer = [0; 64];
    for _ in 0..100 {
        expect_would_block(receive.receive(&mut buffer, false));
    }
    let got = exchange(&*send, &mut *receive, capabilities, &[b"now"], 3);
    assert_eq!(got, b"now");
    expect_would_block(receive.receive(&mut buffer, false));
}

/// A waiting receive returns `WouldBlock` within a bounded time when nothing comes: the reader's tick.
pub fn a_waiting_receive_comes_back((send, mut receive, capabilities): Made) {
    let start = Instant::now();
    expect_would_block(receive.receive(&mut [0; 64], true));
    let took = start.elapsed();
    assert!(took < PATIENCE, "a waiting receive took {took:?}");
    assert_eq!(exchange(&*send, &mut *receive, capabilities, &[b"x"], 1), b"x", "after the tick the flow goes on");
}

/// A descriptor, if there is one, is readable exactly when there is something; the sender's is writable when there is
/// room.
pub fn the_descriptor_tells((send, mut receive, _): Made) {
    assert!(send.wait_room(PATIENCE).is_ok_and(|room| room), "a fresh flow has no room");
    let readable = |receive: &dyn ReceiveHalf, timeout| {
        let fd = receive.descriptor()?;
        Some(linux::poll::wait_readable(fd, Some(timeout)).is_ok_and(|ready| ready))
    };
    assert_ne!(readable(&*receive, Duration::ZERO), Some(true), "readable, and nothing was sent");
    send_all(&*send, &[b"there"]);
    assert_ne!(readable(&*receive, PATIENCE), Some(false), "not readable, and something was sent");
    receive_one(&mut *receive, &mut [0; 64]);
    assert_ne!(readable(&*receive, Duration::ZERO), Some(true), "readable, and all was received");
}

/// Bytes that depend on their position and on the length.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + (i >> 8) * 7 + length) as u8).collect()
}

/// Asks again until there is an answer.
fn patiently<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
    }
}

fn expect_would_block(result: io::Result<usize>) {
    match result {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        other => panic!("expected WouldBlock, got {other:?}"),
    }
}

/// One send attempt from `offset` on; `None` when there is no room.
fn try_send(send: &dyn SendHalf, parts: &[&[u8]], mut offset: usize) -> Option<usize> {
    let mut rest: Vec<&[u8]> = Vec::with_capacity(parts.len());
    for part in parts {
        let cut = offset.min(part.len());
        rest.push(&part[cut..]);
        offset -= cut;
    }
    let slices: Vec<_> = rest.iter().map(|part| IoSlice::new(part)).collect();
    match send.send(&slices) {
        Ok(n) => Some(n),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        Err(e) => panic!("send: {e}"),
    }
}

/// Sends all of a short message; another thread receives if room is needed.
fn send_all(send: &dyn SendHalf, parts: &[&[u8]]) {
    let (total, mut sent) = (parts.iter().map(|p| p.len()).sum::<usize>(), 0);
    loop {
        match try_send(send, parts, sent) {
            Some(n) => sent += n,
            None => drop(send.wait_room(Duration::from_millis(10))),
        }
        if sent == total {
            return;
        }
    }
}

/// The next datagram or bytes, with waiting receives.
fn receive_one(receive: &mut dyn ReceiveHalf, buffer: &mut [u8]) -> usize {
    patiently("receive", || match receive.receive(buffer, true) {
        Ok(n) => Some(n),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        Err(e) => panic!("receive: {e}"),
    })
}

/// Sends one message of `total` bytes and receives it, taking turns, so that one thread is enough for any size.
fn exchange(
    send: &dyn SendHalf,
    receive: &mut dyn ReceiveHalf,
    capabilities: Capabilities,
    parts: &[&[u8]],
    total: usize,
) -> Vec<u8> {
    let (mut got, mut buffer, mut sent) = (Vec::new(), vec![0; total.max(1)], None);
    if capabilities.stream && total == 0 {
        return got;
    }
    patiently("exchange", || {
        if sent.is_none_or(|n| n < total) {
            sent = try_send(send, parts, sent.unwrap_or(0)).map(|n| n + sent.unwrap_or(0)).or(sent);
        }
        match receive.receive(&mut buffer, sent == Some(total)) {
            Ok(n) => {
                assert!(n <= buffer.len(), "{n} bytes arrived of a message of {total}");
                got.extend_from_slice(&buffer[..n]);
                (!capabilities.stream || got.len() >= total).then_some(())
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            Err(e) => panic!("receive: {e}"),
        }
    });
    got
}
