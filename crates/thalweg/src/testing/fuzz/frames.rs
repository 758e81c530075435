//! Byte streams, datagrams and fragments from a carrier.

use super::{FLOW, MAX_MESSAGE, content};
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::wire::feedback::Acknowledgement;
use crate::wire::{self, Fragment, HEADER, Header, INITIAL, Kind, Messages, Parity, StreamParser};

/// A byte stream and a datagram of any content: frames come out unchanged, the buffer stays within the limit, and
/// after an error only this error is returned.
pub fn wire(bytes: &[u8]) {
    if let Ok((header, payload)) = wire::datagram(bytes, MAX_MESSAGE, None) {
        assert_eq!(emitted(&header, payload), bytes, "a datagram is its header and its payload");
        parts(payload);
        if let Ok(messages) = Messages::parse(&header, payload, MAX_MESSAGE) {
            is_all_of(messages, payload);
        }
    }
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let mut parser = StreamParser::new(MAX_MESSAGE, (piece & 1 == 1).then_some(FLOW));
    let (mut rest, mut passed) = (bytes, Vec::new());
    while !rest.is_empty() {
        let space = parser.space();
        let count = rest.len().min(space.len()).min(usize::from(piece) + 1);
        space[..count].copy_from_slice(&rest[..count]);
        parser.filled(count);
        rest = &rest[count..];
        loop {
            match parser.next() {
                Ok(Some(frame)) => passed.extend(emitted(&frame.header, parser.payload(frame.range))),
                Ok(None) => break,
                Err(error) => return assert_eq!(parser.next().err(), Some(error), "an error is final"),
            }
        }
        assert!(parser.capacity() <= INITIAL + HEADER + MAX_MESSAGE, "a buffer of {}", parser.capacity());
    }
    assert_eq!(passed.len() + parser.partial(), bytes.len(), "all bytes are frames or wait");
    assert_eq!(passed, bytes[..passed.len()], "frames came out as they went in");
}

/// Checks that a batch consists of its messages, each with a whole header or a short one.
fn is_all_of(messages: Messages<'_>, payload: &[u8]) {
    let (mut rest, mut before) = (payload, None::<Header>);
    for (header, message) in messages {
        let short = before.and_then(|before| header.short(before.sample, before.stamp_ns));
        let short = short.map(|short| [&short, message].concat()).filter(|short| rest.starts_with(short));
        let written = short.unwrap_or_else(|| emitted(&header, message));
        assert!(rest.starts_with(&written), "{header:?} is not in the batch");
        (rest, before) = (&rest[written.len()..], Some(header));
    }
    assert!(rest.is_empty(), "{} bytes are of no message", rest.len());
}

/// Parses a payload as every kind of datagram.
fn parts(payload: &[u8]) {
    let said = [Acknowledgement::parse(payload), Acknowledgement::parse_with_receipt(payload)];
    for said in said.into_iter().flatten() {
        assert!(said.gaps().all(|gap| gap.count > 0 && (gap.to == 0 || (gap.count == 1 && gap.from < gap.to))));
    }
    if let Ok((_, piece)) = Fragment::parse(payload) {
        assert!(piece.len() < payload.len());
    }
    if let Ok((_, piece)) = Parity::parse(payload) {
        assert!(piece.len() < payload.len());
    }
}

/// A frame as it is sent.
pub(super) fn emitted(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; HEADER];
    header.emit(&mut head);
    [&head, payload].concat()
}

/// Fragments of any size, position and order. A message that becomes whole has the right bytes; the budget is never
/// overdrawn, and whole again at the end.
pub fn reassembly(bytes: &[u8]) {
    const BUDGET: usize = 3 * MAX_MESSAGE;
    let budget = Account::new(BUDGET);
    let mut flow = Reassembly::new(MAX_MESSAGE, 1000, budget.clone());
    let mut now = 0;
    for step in bytes.chunks_exact(8) {
        let [sample, time, o1, o2, t1, t2, l1, l2] = *step else { continue };
        now += u64::from(time) * 16;
        let sample = u64::from(sample % 8);
        let total = u32::from(u16::from_le_bytes([t1, t2])) % (MAX_MESSAGE as u32 + 64);
        let offset = u32::from(u16::from_le_bytes([o1, o2])) % (total + 8);
        let piece = content(sample, offset as usize, usize::from(u16::from_le_bytes([l1, l2])) % 1500);
        let length = piece.len();
        if let Ok(Some(message)) = flow.insert(now, sample, Fragment { offset, total }, &piece) {
            assert_eq!(message, content(sample, 0, total as usize), "a message of {total} bytes, last piece {length}");
        }
        assert!(budget.used() <= BUDGET, "more was given back than taken");
    }
    drop(flow);
    assert_eq!(budget.used(), 0, "the budget is whole again");
}

/// Initial frames.
pub(super) fn frames() -> Vec<u8> {
    let mut bytes = vec![16]; // pieces of 17, any flow
    for (kind, length) in [(Kind::Message, 40), (Kind::KeepAlive, 0), (Kind::Fragment, 12), (Kind::End, 0)] {
        let header = Header { length, kind, flags: 0, flow: FLOW, sequence: 1, sample: 2, stamp_ns: 3 };
        bytes.extend(emitted(&header, &vec![5; length as usize]));
    }
    bytes
}

/// A datagram with three messages, the last with a short header.
pub(super) fn batch() -> Vec<u8> {
    let header = Header { length: 9, kind: Kind::Message, flags: 0, flow: FLOW, sequence: 1, sample: 2, stamp_ns: 3 };
    let mut messages = [emitted(&header, &[5; 9]), emitted(&Header { sample: 3, ..header }, &[6; 9])].concat();
    messages.extend(Header { sample: 4, ..header }.short(3, 3).into_iter().flatten().chain([7; 9]));
    emitted(&Header { kind: Kind::Batch, length: messages.len() as u32, ..header }, &messages)
}

/// Fragments of two messages.
pub(super) fn pieces() -> Vec<u8> {
    let step = |sample: u8, offset: u16| {
        let ([o1, o2], [t1, t2], [l1, l2]) = (offset.to_le_bytes(), 3000u16.to_le_bytes(), 1000u16.to_le_bytes());
        [sample, 0, o1, o2, t1, t2, l1, l2]
    };
    [(1, 0), (1, 2000), (2, 1000), (1, 1000), (2, 0), (2, 2000)].into_iter().flat_map(|(s, o)| step(s, o)).collect()
}
