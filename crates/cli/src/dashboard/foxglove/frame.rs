//! Frames of WebSocket (RFC 6455) at a server. Bytes in, messages out; nothing longer than [`MOST`] is kept.

/// Longest message of a client, in bytes: a subscription to thousands of channels is shorter.
pub(super) const MOST: usize = 64 << 10;
/// Longest payload of a frame that is no part of a message: close, ping, pong.
const MOST_CONTROL: u64 = 125;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// The end of a message.
const LAST: u8 = 0x80;
/// The payload is masked, as a client has to.
const MASKED: u8 = 0x80;

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Text(String),
    Binary,
    Ping(Vec<u8>),
    Pong,
    Close,
}

/// A client that breaks the protocol. The connection is closed with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    Frame,
    TooLong,
    NotText,
}

impl Violation {
    /// The frame that says so.
    pub(super) fn close(self) -> Vec<u8> {
        match self {
            Self::Frame => close(1002, "a frame that RFC 6455 does not allow"),
            Self::TooLong => close(1009, "a message of more than 65536 bytes"),
            Self::NotText => close(1007, "a text that is not UTF-8"),
        }
    }
}

/// The bytes of a client, and the message that they are a part of.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes: Vec<u8>,
    /// Bytes that were read already.
    at: usize,
    /// The opcode of an unfinished message.
    open: Option<u8>,
    whole: Vec<u8>,
}

impl Reader {
    /// Adds bytes. Messages have to be taken before further ones are added: so no more is kept than one frame.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message; `None`: bytes are missing.
    ///
    /// # Errors
    /// The client breaks the protocol. Nothing can be read after that.
    pub(super) fn next(&mut self) -> Result<Option<Message>, Violation> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(frame) = Frame::read(rest)? else { return Ok(None) };
            let Some(masked) = rest.get(frame.payload..frame.end) else { return Ok(None) };
            let payload: Vec<u8> =
                masked.iter().zip(frame.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            self.at += frame.end;
            if let Some(message) = self.message(&frame, payload)? {
                return Ok(Some(message));
            }
        }
    }

    fn message(&mut self, frame: &Frame, payload: Vec<u8>) -> Result<Option<Message>, Violation> {
        match frame.opcode {
            CLOSE => Ok(Some(Message::Close)),
            PING => Ok(Some(Message::Ping(payload))),
            PONG => Ok(Some(Message::Pong)),
            CONTINUATION | TEXT | BINARY => self.part(frame, &payload),
            _ => Err(Violation::Frame),
        }
    }

    fn part(&mut self, frame: &Frame, payload: &[u8]) -> Result<Option<Message>, Violation> {
        if (frame.opcode == CONTINUATION) != self.open.is_some() {
            return Err(Violation::Frame); // it continues nothing, or begins within another one
        }
        if self.whole.len() + payload.len() > MOST {
            return Err(Violation::TooLong);
        }
        let kind = *self.open.get_or_insert(frame.opcode);
        self.whole.extend_from_slice(payload);
        if !frame.last {
            return Ok(None);
        }
        self.open = None;
        let whole = std::mem::take(&mut self.whole);
        if kind == BINARY {
            return Ok(Some(Message::Binary));
        }
        String::from_utf8(whole).map(|text| Some(Message::Text(text))).map_err(|_| Violation::NotText)
    }
}

/// The head of a frame: places are from its first byte on.
struct Frame {
    last: bool,
    opcode: u8,
    mask: [u8; 4],
    payload: usize,
    end: usize,
}

impl Frame {
    /// `None`: bytes are missing.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (opcode, last) = (first & 0x0f, first & LAST != 0);
        if first & 0x70 != 0 || second & MASKED == 0 {
            return Err(Violation::Frame);
        }
        let found = match second & !MASKED {
            126 => rest.first_chunk::<2>().map(|length| (u64::from(u16::from_be_bytes(*length)), 4)),
            127 => rest.first_chunk::<8>().map(|length| (u64::from_be_bytes(*length), 10)),
            length => Some((u64::from(length), 2)),
        };
        let Some((length, at)) = found else { return Ok(None) };
        if opcode >= CLOSE && (length > MOST_CONTROL || !last) {
            return Err(Violation::Frame);
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST).ok_or(Violation::TooLong)?;
        let Some(mask) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return Ok(None) };
        Ok(Some(Self { last, opcode, mask: *mask, payload: at + 4, end: at + 4 + length }))
    }
}

/// The head of a whole binary message of this length.
pub(super) fn binary(length: usize) -> Vec<u8> {
    head(BINARY, length)
}

/// A whole text message.
pub(super) fn text(text: &str) -> Vec<u8> {
    framed(TEXT, text.as_bytes())
}

/// The answer to a ping.
pub(super) fn pong(payload: &[u8]) -> Vec<u8> {
    framed(PONG, payload)
}

/// A question whether the client is there.
pub(super) fn ping() -> Vec<u8> {
    framed(PING, &[])
}

/// The last frame, with a code and its reason, which is short.
pub(super) fn close(code: u16, why: &str) -> Vec<u8> {
    framed(CLOSE, &[&code.to_be_bytes(), why.as_bytes()].concat())
}

fn framed(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = head(opcode, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

fn head(opcode: u8, length: usize) -> Vec<u8> {
    let mut head = vec![LAST | opcode];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => head.push(length),
        (_, Ok(length)) => {
            head.push(126);
            head.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of a client.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = head(first & 0x0f, payload.len());
        bytes[0] = first;
        bytes[1] |= MASKED;
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        bytes.extend(payload.iter().zip([1, 2, 3, 4].iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    fn all(bytes: &[u8], step: usize) -> Result<Vec<Message>, Violation> {
        let (mut reader, mut found) = (Reader::default(), Vec::new());
        for some in bytes.chunks(step) {
            reader.add(some);
            while let Some(message) = reader.next()? {
                found.push(message);
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_come_out_whole_whatever_their_frames_and_reads() {
        let long = "x".repeat(40_000);
        let bytes = [
            masked(TEXT, b"one "),
            masked(LAST | PING, b"?"),
            masked(CONTINUATION, b"and "),
            masked(LAST | CONTINUATION, b"a half"),
            masked(LAST | TEXT, long.as_bytes()),
            masked(LAST | BINARY, &[1; 200]),
            masked(LAST | PONG, b""),
            masked(LAST | CLOSE, &[3, 232]),
        ]
        .concat();
        let whole = [
            Message::Ping(b"?".to_vec()),
            Message::Text("one and a half".to_owned()),
            Message::Text(long),
            Message::Binary,
            Message::Pong,
            Message::Close,
        ];
        for step in [1, 7, 4096, bytes.len()] {
            assert_eq!(all(&bytes, step).as_deref(), Ok(&whole[..]), "{step}");
        }
    }

    #[test]
    fn a_client_that_breaks_the_protocol_is_told_by_a_code() {
        let mut unmasked = masked(LAST | TEXT, b"a");
        unmasked[1] &= !MASKED;
        let huge = [&[LAST | TEXT, MASKED | 127][..], &u64::MAX.to_be_bytes()].concat();
        let parts = [masked(TEXT, &[b'x'; MOST]), masked(LAST | CONTINUATION, b"y")].concat();
        for (bytes, violation) in [
            (unmasked, Violation::Frame),
            (masked(LAST | 0x40 | TEXT, b"compressed"), Violation::Frame),
            (masked(LAST | 0x3, b""), Violation::Frame),
            (masked(LAST | CONTINUATION, b"of nothing"), Violation::Frame),
            ([masked(TEXT, b"a"), masked(LAST | TEXT, b"b")].concat(), Violation::Frame),
            (masked(PING, b"in parts"), Violation::Frame),
            (masked(LAST | PING, &[0; 126]), Violation::Frame),
            (masked(LAST | TEXT, &[0xff]), Violation::NotText),
            (huge, Violation::TooLong),
            (parts, Violation::TooLong),
        ] {
            assert_eq!(all(&bytes, bytes.len()), Err(violation));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_are_kept(bytes in prop::collection::vec(any::<u8>(), 0..2000), step in 1usize..64) {
            let mut reader = Reader::default();
            for some in bytes.chunks(step) {
                reader.add(some);
                while let Ok(Some(_)) = reader.next() {}
            }
            prop_assert!(reader.bytes.len() <= bytes.len() && reader.whole.len() <= MOST);
        }

        #[test]
        fn own_heads_are_read_as_they_were_written(length in 0usize..70_000) {
            let head = binary(length);
            let told = match head[1] {
                126 => usize::from(u16::from_be_bytes([head[2], head[3]])),
                127 => u64::from_be_bytes(head[2..10].try_into().unwrap()) as usize,
                short => usize::from(short),
            };
            prop_assert_eq!(told, length);
        }
    }
}
