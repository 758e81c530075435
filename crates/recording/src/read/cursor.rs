//! A cursor over the bytes of a record. Every length is checked before it is believed: a parser that reserves memory for a length
//! first (as `binrw` does, for up to 4 GiB) would let one wrong bit end the process.

use std::collections::BTreeMap;

/// The bytes that are left.
pub(super) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// A cursor at the first byte.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `length` bytes; `None` if there are fewer.
    pub(super) fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Two bytes, little-endian.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A text behind its length in 32 bits.
    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.u32()?;
        std::str::from_utf8(self.take(length.into())?).ok().map(str::to_owned)
    }

    /// Pairs of texts behind their length in 32 bits, counted in bytes.
    pub(super) fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let length = self.u32()?;
        let mut pairs = Cursor::new(self.take(length.into())?);
        let mut found = BTreeMap::new();
        while !pairs.0.is_empty() {
            found.insert(pairs.text()?, pairs.text()?);
        }
        Some(found)
    }

    /// All bytes that are left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }
}
