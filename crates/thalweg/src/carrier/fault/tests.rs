use super::*;
use crate::carrier::local;
use std::time::Instant;

fn faulty(text: &str) -> (FaultSend, FaultReceive) {
    let (send, receive) = local::pair(2000, 2048);
    let (send, receive, _) = pair(Box::new(send), Box::new(receive), local::capabilities(2048), text.parse().unwrap());
    (send, receive)
}

/// Sends `count` numbered messages and returns the numbers that arrive until the sender's end is noticed.
fn numbers(text: &str, count: u32) -> Vec<u32> {
    let (send, mut receive) = faulty(text);
    for i in 0..count {
        let message = [&i.to_le_bytes()[..], &[0; 12]].concat();
        while send.send(&[IoSlice::new(&message)]).is_err() {
            send.wait_room(Duration::from_secs(1)).unwrap();
        }
    }
    drop(send);
    let (mut got, mut buffer) = (Vec::new(), [0; 64]);
    loop {
        match receive.receive(&mut buffer, true) {
            Ok(n) => got.push(u32::from_le_bytes(*buffer[..n].first_chunk().unwrap())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return got,
        }
    }
}

#[test]
fn the_same_seed_loses_the_same_frames() {
    let got = numbers("loss=10%,seed=3", 1000);
    assert!((850..950).contains(&got.len()), "{}", got.len());
    assert!(got.is_sorted());
    assert_eq!(got, numbers("loss=10%,seed=3", 1000));
    assert_ne!(got, numbers("loss=10%,seed=4", 1000));
}

#[test]
fn twice_late_and_changed_frames_arrive() {
    assert!(numbers("duplicate=20%,seed=1", 1000).len() > 1100);
    let late = numbers("reorder=20%,seed=1", 300);
    assert_eq!(late.len(), 300);
    assert!(!late.is_sorted());
    assert_ne!(numbers("corrupt=50%,seed=1", 100), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_delayed_frame_is_not_there_before_it_is_due_and_soon_after() {
    let (send, mut receive) = faulty("delay=20ms");
    let (start, mut buffer) = (Instant::now(), [0; 8]);
    send.send(&[IoSlice::new(b"late")]).unwrap();
    assert_eq!(receive.receive(&mut buffer, false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    while receive.receive(&mut buffer, true).is_err() {}
    assert!(start.elapsed() >= Duration::from_millis(20) && &buffer[..4] == b"late");
}

#[test]
fn a_limited_rate_takes_its_time() {
    let start = Instant::now();
    assert_eq!(numbers("rate=64kbit/s", 21).len(), 21);
    assert!(start.elapsed() >= Duration::from_millis(40), "20 messages of 16 bytes at 8000 bytes per second");
}

#[test]
fn a_stall_begins_each_second() {
    let stall = Duration::from_millis(200);
    let s = 1_000_000_000;
    assert_eq!(receive::after_stall(5 * s + 1, stall), 5 * s + 200_000_000);
    assert_eq!(receive::after_stall(5 * s + 200_000_000, stall), 5 * s + 200_000_000);
}
