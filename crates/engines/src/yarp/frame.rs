//! The protocol of a connection, as state machines: bytes in, messages out (yarp_protocol.dox; `Protocol.cpp`, `AbstractCarrier.cpp`,
//! `TcpCarrier.cpp`, `TextCarrier.cpp`, `NameserCarrier.cpp`, `PortCommand.cpp`).
//!
//! | who | says |
//! |---|---|
//! | sender | 8 bytes that name the carrier, and its port's name |
//! | receiver | an answer, which the carrier decides |
//! | sender | messages: a command (`d` for data, `a` for administration), and what follows it |
//! | receiver | for each, a reply if there is one, and an acknowledgement if the carrier has them |

mod carrier;
mod sender;

pub(crate) use carrier::Carrier;
pub(crate) use sender::{Acknowledgements, data, header, quit};

use super::bottle;
use super::names::shown;
use carrier::read_number;
use thalweg::bottle::{Bottle, LONGEST};

/// What a receiver has heard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    /// The header, with the name of the sender's port.
    Opened(Carrier, String),
    /// `d`: for the port's owner.
    Data(Payload),
    /// `a`: for the port itself.
    Admin(Bottle),
    /// Another command, such as `*`; the first character says which.
    Command(String),
}

/// Data as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Of a binary connection.
    Bytes(Vec<u8>),
    /// Of a text connection.
    Text(String),
}

/// The receiving end of a connection.
pub(crate) struct Receiver {
    buffer: Vec<u8>,
    /// What was read of the buffer.
    start: usize,
    stage: Stage,
    /// The lines of a text message so far.
    text: Lines,
    /// Largest message, in bytes.
    largest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Header,
    /// Between messages.
    Open(Carrier),
    /// In a text connection, after the line with `d` or `a`.
    Follows(Carrier, bool),
}

/// The reason why a connection's bytes are none of the protocol. The connection cannot be read any further.
pub(crate) type Malformed = String;

impl Receiver {
    /// `largest` is that of a message, in bytes.
    pub(crate) fn new(largest: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, stage: Stage::Header, text: Lines::default(), largest }
    }

    /// Takes bytes that have come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new(); // a large message was the exception
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that wait for more.
    pub(crate) fn held(&self) -> usize {
        self.rest().len() + self.text.text.len()
    }

    /// The next that they say; `None`: more bytes are needed.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn next(&mut self) -> Result<Option<Heard>, Malformed> {
        match self.stage {
            Stage::Header => self.header(),
            Stage::Open(Carrier::NameServer) => Ok(self.line()?.map(|line| Heard::Data(Payload::Text(request(&line))))),
            Stage::Open(carrier) if carrier.is_text() => self.text_command(carrier),
            Stage::Open(_) => self.message(),
            Stage::Follows(carrier, is_data) => self.text_message(carrier, is_data),
        }
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn header(&mut self) -> Result<Option<Heard>, Malformed> {
        let Some(specifier) = self.rest().get(..8) else { return Ok(None) };
        let all = [Carrier::Tcp, Carrier::FastTcp, Carrier::Text, Carrier::TextAck, Carrier::NameServer];
        let carrier = all.into_iter().find(|carrier| carrier.specifier() == specifier);
        let Some(carrier) = carrier else {
            let offered = Carrier::OFFERED.map(Carrier::name).join(", ");
            let text = shown(&String::from_utf8_lossy(specifier));
            return Err(format!("a connection begins with {text:?}: carriers are {offered}"));
        };
        self.start += 8;
        let from = match carrier {
            Carrier::NameServer => Some("anon".to_owned()),
            Carrier::Text | Carrier::TextAck => self.line()?,
            Carrier::Tcp | Carrier::FastTcp => self.name()?,
        };
        match from {
            Some(from) => {
                self.stage = Stage::Open(carrier);
                Ok(Some(Heard::Opened(carrier, from)))
            }
            None => {
                self.start -= 8;
                Ok(None)
            }
        }
    }

    /// The sender's name, with its length and a zero at its end.
    fn name(&mut self) -> Result<Option<String>, Malformed> {
        const LONGEST_SENDER: i32 = 1000; // as YARP has it
        let Some([a, b, c, d]) = self.rest().first_chunk() else { return Ok(None) };
        let length = i32::from_le_bytes([*a, *b, *c, *d]);
        let Some(length) = usize::try_from(length).ok().filter(|_| (1..=LONGEST_SENDER).contains(&length)) else {
            return Err(format!("a sender's name of {length} bytes: at most {LONGEST_SENDER}"));
        };
        let Some(name) = self.rest().get(4..4 + length) else { return Ok(None) };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        self.start += 4 + length;
        Ok(Some(name))
    }

    /// A line of text, without its end.
    fn line(&mut self) -> Result<Option<String>, Malformed> {
        let rest = self.rest();
        let Some(end) = rest.iter().take(LONGEST).position(|byte| *byte == b'\n') else {
            let too_long = rest.len() >= LONGEST;
            return if too_long { Err(format!("a line of more than {LONGEST} bytes")) } else { Ok(None) };
        };
        let line = rest[..end].iter().copied().filter(|byte| !matches!(byte, b'\r' | 0)).collect::<Vec<_>>();
        let line = String::from_utf8_lossy(&line).into_owned();
        self.start += end + 1;
        Ok(Some(line))
    }

    fn text_command(&mut self, carrier: Carrier) -> Result<Option<Heard>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        match line.as_bytes().first() {
            Some(b'd' | b'D') => self.stage = Stage::Follows(carrier, true),
            Some(b'a') => self.stage = Stage::Follows(carrier, false),
            _ => return Ok(Some(Heard::Command(line))),
        }
        self.next()
    }

    /// The text of a message: one line, or as many as its brackets need.
    fn text_message(&mut self, carrier: Carrier, is_data: bool) -> Result<Option<Heard>, Malformed> {
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if self.text.add(&line) {
                break;
            }
            if self.text.text.len() > LONGEST {
                return Err(format!("a text of more than {LONGEST} bytes"));
            }
        }
        self.stage = Stage::Open(carrier);
        let text = std::mem::take(&mut self.text).text;
        if is_data {
            return Ok(Some(Heard::Data(Payload::Text(text))));
        }
        Bottle::parse(&text).map(|bottle| Some(Heard::Admin(bottle))).map_err(|wrong| wrong.to_string())
    }

    fn message(&mut self) -> Result<Option<Heard>, Malformed> {
        let Some((head, length)) = index(self.rest(), self.largest)? else { return Ok(None) };
        let Some(message) = self.rest().get(head..head + length) else { return Ok(None) };
        let heard = binary_command(message)?;
        self.start += head + length;
        Ok(Some(heard))
    }
}

/// A line to the name server without its prefix (`NameserTwoWayStream`).
fn request(line: &str) -> String {
    ["VER ", "NAME_SERVER "].iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line).to_owned()
}

/// Lines up to the one at which all brackets and quotes are closed (`BottleImpl::isComplete`).
#[derive(Default)]
struct Lines {
    text: String,
    open: i32,
    quoted: bool,
}

impl Lines {
    /// Adds a line; `true`: it is the last one.
    fn add(&mut self, line: &str) -> bool {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        let mut escaped = false;
        for character in line.chars() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => self.quoted = !self.quoted,
                '(' | '{' if !self.quoted => self.open += 1,
                ')' | '}' if !self.quoted => self.open -= 1,
                _ => {}
            }
        }
        self.open <= 0 && !self.quoted
    }
}

/// The lengths of an index, and of the message behind it.
fn index(bytes: &[u8], largest: usize) -> Result<Option<(usize, usize)>, Malformed> {
    let Some(begin) = bytes.get(..8) else { return Ok(None) };
    if read_number(begin) != Some(10) {
        return Err(format!("a message begins with {begin:?}: the index has 10 bytes"));
    }
    let Some(&[sent, replied]) = bytes.get(8..10) else { return Ok(None) };
    let head = 18 + 4 * (usize::from(sent) + usize::from(replied));
    let Some(lengths) = bytes.get(18..head) else { return Ok(None) };
    let mut total = 0_usize;
    for length in lengths.as_chunks().0 {
        let length = i32::from_le_bytes(*length);
        let length = usize::try_from(length).map_err(|_| format!("a block of {length} bytes"))?;
        total = total.saturating_add(length);
    }
    // A command, or a time stamp in one, comes on top.
    if total > largest.saturating_add(LONGEST) {
        return Err(format!("a message of {total} bytes: at most {largest} are taken"));
    }
    Ok(Some((head, total)))
}

fn binary_command(message: &[u8]) -> Result<Heard, Malformed> {
    let Some(([_, _, _, _, b'~', letter, _, _], rest)) = message.split_first_chunk::<8>() else {
        return Err("a message without a command".to_owned());
    };
    let (text, rest) = match letter {
        0 => {
            let end = rest.iter().take(LONGEST).position(|byte| *byte == 0).ok_or("a command without an end")?;
            (String::from_utf8_lossy(&rest[..end]).into_owned(), &rest[end + 1..])
        }
        letter => (char::from(*letter).to_string(), rest),
    };
    Ok(match text.as_bytes().first() {
        Some(b'd' | b'D') => Heard::Data(Payload::Bytes(rest.to_vec())),
        Some(b'a') => Heard::Admin(bottle::decode(rest)?),
        _ => Heard::Command(text),
    })
}

#[cfg(test)]
mod tests;
