//! Bytes of a stream that the kernel took and would lose with the connection. They are kept until the kernel reports them as
//! acknowledged, so that they can be sent again over the next connection.

use crate::channel::memory::Account;
use crate::wire::{HEADER, Header};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes that are kept before the kernel is asked for the first time: one question for dozens of small samples.
const FEWEST: usize = 4 << 10;

/// Whole frames, and the beginning of a partly sent one: at most twice as many bytes as the kernel's send buffer holds, and one
/// partly sent message.
pub(super) struct Unacknowledged {
    bytes: VecDeque<u8>,
    ask_at: usize,
    account: Arc<Account>,
    charged: usize,
}

impl Unacknowledged {
    /// The start, before any message. Messages are charged to the account even beyond its limits: the kernel has them already.
    pub(super) fn new(account: Arc<Account>) -> Self {
        Self { bytes: VecDeque::new(), ask_at: FEWEST, account, charged: 0 }
    }

    /// The kernel took the first `taken` bytes of these parts. `outstanding` gives the number of all bytes that are not
    /// acknowledged, if the kernel knows. It is called again when twice as many bytes are kept as remained then.
    pub(super) fn sent(
        &mut self,
        parts: &[IoSlice<'_>],
        mut taken: usize,
        outstanding: impl FnOnce() -> Option<usize>,
    ) {
        for part in parts {
            let part = &part[..part.len().min(taken)];
            self.bytes.extend(part);
            taken -= part.len();
        }
        if self.bytes.len() >= self.ask_at {
            self.forget_all_but(outstanding().unwrap_or(0));
            self.ask_at = (2 * self.bytes.len()).max(FEWEST);
        }
        self.charge();
    }

    /// Takes all that is kept.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let bytes = Vec::from(std::mem::take(&mut self.bytes));
        self.charge();
        bytes
    }

    /// Forgets the frames that lie completely before the last `outstanding` bytes.
    fn forget_all_but(&mut self, outstanding: usize) {
        let acknowledged = self.bytes.len().saturating_sub(outstanding);
        let mut end = 0;
        while let Some(next) = self.frame(end).map(|length| end + length).filter(|next| *next <= acknowledged) {
            end = next;
        }
        self.bytes.drain(..end);
        let needed = self.bytes.len().max(FEWEST);
        if self.bytes.capacity() > 4 * needed {
            self.bytes.shrink_to(2 * needed);
        }
    }

    /// The length of the frame that begins there.
    fn frame(&self, at: usize) -> Option<usize> {
        let mut head = [0; HEADER];
        if self.bytes.len() < at + HEADER {
            return None;
        }
        head.iter_mut().zip(self.bytes.range(at..)).for_each(|(to, from)| *to = *from);
        Some(HEADER + Header::parse(&head).ok()?.length as usize)
    }

    fn charge(&mut self) {
        let room = self.bytes.capacity();
        if room > self.charged {
            self.account.take(room - self.charged);
        } else {
            self.account.give_back(self.charged - room);
        }
        self.charged = room;
    }
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        self.account.give_back(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, Messages};
    use proptest::prelude::*;

    fn frame(sample: u64, length: usize) -> Vec<u8> {
        let mut head = [0; HEADER];
        let header =
            Header { length: length as u32, kind: Kind::Message, flags: 0, flow: 7, sequence: 0, sample, stamp_ns: 0 };
        header.emit(&mut head);
        [&head[..], &vec![sample as u8; length]].concat()
    }

    proptest! {
        /// The kernel takes and acknowledges any number of bytes at a time. The frames that it may lose are kept whole, and little else.
        #[test]
        fn unacknowledged_frames_are_kept(
            lengths in prop::collection::vec(0usize..3000, 1..60), cuts in prop::collection::vec(1usize..5000, 1..40), behind in 0usize..20_000,
        ) {
            let account = Account::new(1 << 30);
            let mut kept = Unacknowledged::new(account.clone());
            let frames: Vec<Vec<u8>> = (1..).zip(&lengths).map(|(sample, length)| frame(sample, *length)).collect();
            let all = frames.concat();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < all.len() {
                let count = cuts.next().map_or(1, |cut| *cut).min(all.len() - at);
                let (first, second) = all[at..].split_at(count / 2);
                at += count;
                kept.sent(&[IoSlice::new(first), IoSlice::new(second)], count, || Some(behind.min(at)));
                let most = 2 * (behind + 3000 + HEADER).max(FEWEST) + 5000;
                prop_assert!(kept.bytes.len() <= most && kept.bytes.len() >= behind.min(at), "{} of {behind}", kept.bytes.len());
            }
            prop_assert!(account.used() >= kept.bytes.len());
            let bytes = kept.take();
            prop_assert!(all.ends_with(&bytes));
            let samples: Vec<u64> = Messages::of_own(&bytes).map(|(header, _)| header.sample).collect();
            let first = lengths.len() as u64 + 1 - samples.len() as u64;
            prop_assert_eq!(samples, Vec::from_iter(first..=lengths.len() as u64));
            prop_assert_eq!(account.used(), 0);
        }
    }
}
