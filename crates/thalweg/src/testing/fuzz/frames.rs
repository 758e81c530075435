//! Byte streams, datagrams and fragments from a carrier, with parity or without.

use super::{FLOW, MAX_MESSAGE, content};
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::parity::{Encoder, Redundancy};
use crate::wire::feedback::Acknowledgement;
use crate::wire::{self, Fragment, HEADER, Header, INITIAL, Kind, Messages, Parity, StreamParser};
use std::collections::BTreeSet;

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

/// Fragments and parity of some messages in any order, and forged parity. As many honest pieces as a message has
/// fragments make it whole, fewer do not, and its bytes are right. Forged pieces do no harm to other messages; the
/// budget is never overdrawn, and whole again at the end.
pub fn parity(bytes: &[u8]) {
    let Some((&[half, l1, l2, percent], steps)) = bytes.split_first_chunk() else { return };
    let total = usize::from(u16::from_le_bytes([l1, l2])) % MAX_MESSAGE + 1;
    let step = 2 * (usize::from(half) % 64 + 1);
    let (budget, mut encoder) = (Account::new(ALL_SAMPLES), Encoder::default());
    let mut flow = Flow {
        reassembly: Reassembly::with_slots(SAMPLES as usize, MAX_MESSAGE, 1000, budget.clone()),
        sent: (0..SAMPLES).map(|sample| Sent::new(&mut encoder, sample, (total, step), percent)).collect(),
    };
    for [which, number, a, b] in steps.as_chunks::<4>().0 {
        let (index, number) = (usize::from(*which) % SAMPLES as usize, usize::from(*number));
        match which >> 6 {
            0 | 1 => flow.fragment(index, number),
            2 => flow.parity(index, number),
            _ => flow.made_up(index, number, [*a, *b]),
        }
        assert!(budget.used() <= ALL_SAMPLES, "more was given back than taken");
    }
    drop(flow);
    assert_eq!(budget.used(), 0, "the budget is whole again");
}

/// Initial inputs: a message of seven fragments that loses two, and one with forged parity.
pub(super) fn with_parity() -> Vec<Vec<u8>> {
    let begin = [15, 200, 0, 39];
    let lossy = [0, 1, 3, 4, 6].map(|n| [0, n, 0, 0]).into_iter().chain([[128, 1, 0, 0], [128, 2, 0, 0]]);
    let hostile = [[192, 32, 1, 3], [192, 7, 0, 200], [0, 1, 0, 0], [193, 32, 2, 9], [129, 0, 0, 0]];
    [lossy.collect::<Vec<_>>(), hostile.to_vec()].map(|steps| [&begin[..], steps.as_flattened()].concat()).into()
}

/// A message on its way.
struct Sent {
    message: Vec<u8>,
    step: usize,
    parity: Vec<u8>,
    /// Received pieces, fragments first.
    here: BTreeSet<usize>,
    /// A forged piece may have been received.
    spoilt: bool,
}

struct Flow {
    reassembly: Reassembly,
    sent: Vec<Sent>,
}

impl Sent {
    fn new(encoder: &mut Encoder, sample: u64, (total, step): (usize, usize), percent: u8) -> Self {
        let (message, mut parity) = (content(sample, 0, total), Vec::new());
        let count = Redundancy::percent(percent % 100 + 1).map_or(0, |share| share.pieces(total.div_ceil(step)));
        if count > 0 {
            let made = encoder.encode(&message, step, count, &mut parity);
            assert!(made.is_ok() && parity.len() == count * step, "{count} pieces of {step} bytes: {made:?}");
        }
        Self { message, step, parity, here: BTreeSet::new(), spoilt: false }
    }

    fn fragments(&self) -> usize {
        self.message.len().div_ceil(self.step)
    }

    /// Checks the result of an honest piece: a whole message, or none; nothing if it was refused.
    fn arrived(&mut self, number: usize, came: Option<Option<Vec<u8>>>) {
        match came {
            Some(Some(message)) => {
                assert!(self.spoilt || message == self.message, "a message of {} bytes changed", self.message.len());
                let pieces = self.here.len() + 1;
                assert!(self.spoilt || pieces == self.fragments(), "whole with {pieces} of {}", self.fragments());
                (self.spoilt, self.here) = (false, BTreeSet::new());
            }
            Some(None) => {
                assert!(self.here.insert(number) || self.spoilt, "piece {number} came twice");
                assert!(
                    self.spoilt || self.here.len() < self.fragments(),
                    "{number} made it whole, and nobody noticed"
                );
            }
            None => assert!(self.spoilt || self.here.contains(&number), "piece {number} was refused"),
        }
    }
}

impl Flow {
    fn fragment(&mut self, index: usize, number: usize) {
        let sent = &mut self.sent[index];
        let number = number % sent.fragments();
        let (offset, total) = ((number * sent.step) as u32, sent.message.len() as u32);
        let piece = sent.message.chunks(sent.step).nth(number).unwrap_or_default();
        let whole = self.reassembly.insert(0, index as u64, Fragment { offset, total }, piece);
        sent.arrived(number, whole.map(|whole| whole.map(<[u8]>::to_vec)).ok());
    }

    fn parity(&mut self, index: usize, number: usize) {
        let sent = &mut self.sent[index];
        let count = sent.parity.len() / sent.step;
        let Some(number) = number.checked_rem(count) else { return };
        let at = Parity { index: number as u16, count: count as u16, total: sent.message.len() as u32 };
        let piece = &sent.parity[number * sent.step..][..sent.step];
        let whole = self.reassembly.insert_parity(0, index as u64, at, piece);
        let number = sent.fragments() + number;
        sent.arrived(number, whole.map(|whole| whole.map(<[u8]>::to_vec)).ok());
    }

    fn made_up(&mut self, index: usize, length: usize, [a, b]: [u8; 2]) {
        let sent = &mut self.sent[index];
        let total = if a & 1 == 0 { sent.message.len() } else { usize::from(a) * usize::from(b) };
        let at = Parity { index: u16::from(a) >> 1, count: u16::from(b), total: total as u32 };
        let whole = self.reassembly.insert_parity(0, index as u64, at, &content(9, 0, length));
        sent.spoilt = true;
        if let Ok(Some(_)) = whole {
            (sent.spoilt, sent.here) = (false, BTreeSet::new());
        }
    }
}

/// Messages that are sent at a time.
const SAMPLES: u64 = 4;
const ALL_SAMPLES: usize = 64 * MAX_MESSAGE;
