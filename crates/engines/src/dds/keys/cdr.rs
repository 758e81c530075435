//! CDR, as far as keys have it: read in any version and byte order, written in version 1, little-endian.

/// A message on its way.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big: bool,
    /// Numbers are aligned to their width, and to no more than this.
    widest: usize,
    is_delimited: bool,
}

impl<'a> Reader<'a> {
    /// Reads a message behind its encapsulation header (DDSI-RTPS 2.5 §10.2; DDS-XTypes 1.3 §7.6.3.1.2).
    pub(super) fn new(message: &'a [u8]) -> Result<Self, String> {
        let [0, kind @ (0 | 1 | 6..=9), _, _, bytes @ ..] = message else {
            return Err("a key that is no CDR, plain or delimited".to_owned());
        };
        let widest = if *kind < 6 { 8 } else { 4 };
        Ok(Self { bytes, at: 0, is_big: *kind % 2 == 0, widest, is_delimited: *kind >= 8 })
    }

    /// Reads over the length of a struct, where one stands before it.
    pub(super) fn delimiter(&mut self) -> Result<(), String> {
        if self.is_delimited { self.number(4).map(drop) } else { Ok(()) }
    }

    /// A number of 1, 2, 4 or 8 bytes.
    pub(super) fn number(&mut self, width: usize) -> Result<u64, String> {
        let (is_big, mut number) = (self.is_big, [0; 8]);
        let bytes = self.take(width, width)?;
        number.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if is_big {
            number.get_mut(..width).unwrap_or_default().reverse();
        }
        Ok(u64::from_le_bytes(number))
    }

    /// A text without the zero byte at its end.
    pub(super) fn text(&mut self) -> Result<&'a [u8], String> {
        let length = self.number(4)?;
        let text = self.take(usize::try_from(length).unwrap_or(usize::MAX), 1)?;
        match text.split_last() {
            Some((0, text)) if std::str::from_utf8(text).is_ok() => Ok(text),
            _ => Err("a key with a text that is no UTF-8, or has no end".to_owned()),
        }
    }

    fn take(&mut self, length: usize, align: usize) -> Result<&'a [u8], String> {
        let from = self.at.next_multiple_of(align.clamp(1, self.widest));
        let taken = from.checked_add(length).and_then(|to| self.bytes.get(from..to));
        let taken =
            taken.ok_or_else(|| format!("a key that ends before its byte {from}, or within {length} after it"))?;
        self.at = from + length;
        Ok(taken)
    }
}

/// The encapsulation header of CDR, version 1, little-endian.
const HEADER: [u8; 4] = [0, 1, 0, 0];
/// The longest message, in bytes. Types of definitions may have arrays of any length.
const LONGEST: usize = 16 << 20;

/// A message that is written.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(HEADER.to_vec())
    }

    /// The low bytes of a number, 1, 2, 4 or 8.
    pub(super) fn number(&mut self, number: u64, width: usize) -> Result<(), String> {
        self.put(number.to_le_bytes().get(..width).unwrap_or_default(), width)
    }

    /// A text, which gets its zero byte.
    pub(super) fn text(&mut self, text: &[u8]) -> Result<(), String> {
        self.number(text.len() as u64 + 1, 4)?;
        self.put(text, 1)?;
        self.put(&[0], 1)
    }

    /// The length so far.
    pub(super) fn written(&self) -> usize {
        self.0.len()
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// The header is as long as the widest alignment that matters for its 4 bytes: places count from behind it.
    fn put(&mut self, bytes: &[u8], align: usize) -> Result<(), String> {
        let from = HEADER.len() + (self.0.len() - HEADER.len()).next_multiple_of(align.max(1));
        if from + bytes.len() > LONGEST {
            return Err(format!("a value of the type has more than {LONGEST} bytes"));
        }
        self.0.resize(from, 0);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}
