//! Properties that need load, a second thread, or a peer that leaves.

use super::{Made, PATIENCE, content, patiently, receive_one, send_all};
use crate::carrier::{Capabilities, ReceiveHalf, SendHalf};
use crate::wire::{HEADER, Header, Kind, StreamParser, datagram};
use std::io::{self, IoSlice};
use std::sync::mpsc;
use std::time::Duration;

/// Messages that cross under back pressure.
const MANY: u32 = 10_000;
/// The most payload of one of them; together with the number more than any socket buffer holds.
const LARGEST: usize = 1000;
/// A carrier that takes this much without a receiver has no bound.
const TOO_MUCH: usize = 256 << 20;

/// A sender that continues as soon as there is room loses nothing while another thread receives: 10,000 messages,
/// each checked. Framing and parsing are the product's own.
pub fn nothing_is_lost_under_back_pressure((send, mut receive, capabilities): Made) {
    if !capabilities.reliable {
        return;
    }
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let mut due = 0;
            while due < MANY {
                due =
                    if capabilities.stream { receive_stream(&mut *receive) } else { receive_frame(&mut *receive, due) };
            }
            receive // kept until all have arrived
        });
        for i in 0..MANY {
            let (head, payload) = message(i);
            send_all(&*send, &[&head, &payload]);
        }
        assert!(receiver.join().is_ok(), "the receiver found something wrong");
    });
}

/// Without a receiver the room ends at some time. A send then returns `WouldBlock`, at once and again, and never
/// waits. After a receive there is room again. An unreliable carrier may drop instead.
pub fn a_send_without_room_would_block((send, mut receive, capabilities): Made) {
    let chunk = content(capabilities.max_datagram.unwrap_or(usize::MAX).min(1 << 14));
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let taken = fill(&*send, &chunk, capabilities);
        let _ = tell.send((send, taken)); // fails only when the test gave up
    });
    let Ok((send, taken)) = told.recv_timeout(PATIENCE) else { panic!("a send waited, with nobody receiving") };
    let Some(mut left) = taken else { return };
    let mut buffer = vec![0; 1 << 16];
    patiently("room after receiving", || {
        if left > 0 {
            left = left.saturating_sub(receive_one(&mut *receive, &mut buffer));
        }
        send.wait_room(Duration::from_millis(1)).is_ok_and(|room| room).then_some(())?;
        send.send(&[IoSlice::new(b"room")]).ok()
    });
}

/// After `close` all accepted data still arrives; then a stream returns 0 bytes and a reliable datagram carrier an
/// error.
pub fn close_is_noticed((send, mut receive, capabilities): Made) {
    if !capabilities.reliable {
        return;
    }
    send_all(&*send, &[b"last words"]);
    send.close();
    let mut buffer = [0; 64];
    let mut got = Vec::new();
    while got.len() < 10 {
        let n = receive_one(&mut *receive, &mut buffer);
        assert!(n > 0, "the end came before the last words");
        got.extend_from_slice(&buffer[..n]);
    }
    assert_eq!(got, b"last words");
    patiently("the end of the flow", || match receive.receive(&mut buffer, true) {
        Ok(0) if capabilities.stream => Some(()),
        Ok(n) => panic!("{n} bytes after the end"),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
        Err(e) => {
            assert!(!capabilities.stream, "an orderly end of a stream is 0 bytes, not {e}");
            Some(())
        }
    });
}

/// Sending to a peer that is gone becomes an error; no signal, no panic, no endless `WouldBlock`.
pub fn a_peer_that_is_gone_is_an_error((send, receive, capabilities): Made) {
    if !capabilities.reliable {
        drop(receive);
        return (0..100).for_each(|_| drop(send.send(&[IoSlice::new(b"nobody")])));
    }
    send_all(&*send, &[b"unread"]);
    drop(receive);
    patiently("an error", || match send.send(&[IoSlice::new(b"nobody")]) {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Some(()),
        _ => None,
    });
}

/// Both halves can change their thread between any two calls.
pub fn halves_move_between_threads((mut send, mut receive, _): Made) {
    for i in 0..8u8 {
        send = in_thread(move || {
            send_all(&*send, &[&[i; 40]]);
            send
        });
        receive = in_thread(move || {
            let (mut buffer, mut got) = ([0; 40], 0);
            while got < 40 {
                let n = receive_one(&mut *receive, &mut buffer[got..]);
                got += n;
            }
            assert_eq!(buffer, [i; 40]);
            receive
        });
    }
}

fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match std::thread::spawn(work).join() {
        Ok(result) => result,
        Err(why) => std::panic::resume_unwind(why),
    }
}

/// Sends until there is no room; returns the accepted amount. `None` if the carrier drops instead and accepts all.
fn fill(send: &dyn SendHalf, chunk: &[u8], capabilities: Capabilities) -> Option<usize> {
    let (mut taken, limit) = (0, if capabilities.reliable { TOO_MUCH } else { 16 << 20 });
    while taken < limit {
        match send.send(&[IoSlice::new(chunk)]) {
            Ok(n) => taken += n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Some(taken),
            Err(e) => panic!("send: {e}"),
        }
    }
    assert!(!capabilities.reliable, "{TOO_MUCH} bytes were taken and nobody receives");
    None
}

/// Message `i`: its size varies, its bytes depend on its size.
fn message(i: u32) -> ([u8; HEADER], Vec<u8>) {
    let payload = content(i as usize * 7 % (LARGEST + 1));
    let mut head = [0; HEADER];
    let length = payload.len() as u32;
    Header { length, kind: Kind::Message, flags: 0, flow: 1, sequence: i, sample: i.into(), stamp_ns: 0 }
        .emit(&mut head);
    (head, payload)
}

fn check(header: &Header, payload: &[u8], due: u32) {
    assert_eq!(header.sequence, due, "message {due} is due");
    assert!(payload == message(due).1, "message {due} changed");
}

/// Receives all messages from a stream; returns their number.
fn receive_stream(receive: &mut dyn ReceiveHalf) -> u32 {
    let (mut parser, mut due) = (StreamParser::new(LARGEST, Some(1)), 0);
    while due < MANY {
        let n = receive_one(receive, parser.space());
        assert!(n > 0, "the stream ended before message {due}");
        parser.filled(n);
        loop {
            match parser.next() {
                Ok(Some(frame)) => check(&frame.header, parser.payload(frame.range), due),
                Ok(None) => break,
                Err(e) => panic!("message {due}: {e}"),
            }
            due += 1;
        }
    }
    due
}

/// Receives message `due` from a datagram carrier; returns the number of the next one.
fn receive_frame(receive: &mut dyn ReceiveHalf, due: u32) -> u32 {
    let mut buffer = [0; HEADER + LARGEST];
    let n = receive_one(receive, &mut buffer);
    match datagram(&buffer[..n.min(HEADER + LARGEST)], LARGEST, Some(1)) {
        Ok((header, payload)) => check(&header, payload, due),
        Err(e) => panic!("message {due}: {e}"),
    }
    due + 1
}
