//! Large messages with parity: pieces that make them whole, and forged ones.

use super::{MAX_MESSAGE, content};
use crate::channel::fragment::Reassembly;
use crate::channel::memory::Account;
use crate::channel::parity::{Encoder, Redundancy};
use crate::wire::{Fragment, Parity};
use std::collections::BTreeSet;

/// Messages that are sent at a time.
const SAMPLES: u64 = 4;
const BUDGET: usize = 64 * MAX_MESSAGE;

/// Fragments and parity of some messages in any order, and forged parity. As many honest pieces as a message has
/// fragments make it whole, fewer do not, and its bytes are right. Forged pieces do no harm to other messages; the
/// budget is never overdrawn, and whole again at the end.
pub fn parity(bytes: &[u8]) {
    let Some((&[half, l1, l2, percent], steps)) = bytes.split_first_chunk() else { return };
    let total = usize::from(u16::from_le_bytes([l1, l2])) % MAX_MESSAGE + 1;
    let step = 2 * (usize::from(half) % 64 + 1);
    let (budget, mut encoder) = (Account::new(BUDGET), Encoder::default());
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
        assert!(budget.used() <= BUDGET, "more was given back than taken");
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

impl Sent {
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
