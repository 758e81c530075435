//! What a sender writes, and what it hears.

use super::super::bottle;
use super::Malformed;
use super::carrier::{Carrier, number, read_number};

/// The header of a connection from the port `from`.
pub(crate) fn header(carrier: Carrier, from: &str) -> Vec<u8> {
    let mut bytes = carrier.specifier().to_vec();
    match carrier {
        Carrier::Tcp | Carrier::FastTcp => {
            bytes.extend_from_slice(&(from.len() as i32 + 1).to_le_bytes());
            bytes.extend_from_slice(from.as_bytes());
            bytes.push(0);
        }
        Carrier::Text | Carrier::TextAck => bytes.extend_from_slice(format!("{from}\r\n").as_bytes()),
        Carrier::NameServer => {}
    }
    bytes
}

/// A message for the other port's owner, without a wish for a reply. It must be less than 2 GiB.
///
/// # Errors
/// On text connections, a message that is no bottle, or has no text form.
pub(crate) fn data(carrier: Carrier, message: &[u8]) -> Result<Vec<u8>, String> {
    if carrier.is_text() {
        return Ok(format!("D\r\n{}\r\n", bottle::decode(message)?).into_bytes());
    }
    Ok(binary(&command(b'D', ""), message))
}

/// Tells the other port that the connection ends.
pub(crate) fn quit(carrier: Carrier) -> Vec<u8> {
    if carrier.is_text() { b"q\r\n".to_vec() } else { binary(&command(0, "q"), &[]) }
}

pub(super) fn command(letter: u8, text: &str) -> Vec<u8> {
    let length = if letter == 0 { text.len() as i32 + 1 } else { 0 };
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&[b'~', letter, 0, 1]);
    if letter == 0 {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// A message of two blocks, behind its index.
pub(super) fn binary(command: &[u8], message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(30 + command.len() + message.len());
    bytes.extend_from_slice(&number(10));
    bytes.extend_from_slice(&[2, 1, 255, 255, 255, 255, 255, 255, 255, 255]);
    for length in [command.len(), message.len(), 0] {
        bytes.extend_from_slice(&(length as i32).to_le_bytes());
    }
    bytes.extend_from_slice(command);
    bytes.extend_from_slice(message);
    bytes
}

/// What a sender hears of the receiver: acknowledgements, which nobody waits for; the kernel's buffers limit what is on its way.
pub(crate) struct Acknowledgements {
    /// `true` if they are numbers.
    numbered: bool,
    pub(super) begun: Vec<u8>,
    /// Bytes of an acknowledgement that are still to come.
    pub(super) skip: usize,
}

impl Acknowledgements {
    pub(crate) fn new(carrier: Carrier) -> Self {
        Self { numbered: carrier == Carrier::Tcp, begun: Vec::new(), skip: 0 }
    }

    /// # Errors
    /// [`Malformed`].
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        while self.numbered && !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let needed = (8 - self.begun.len()).min(bytes.len() - skipped);
            self.begun.extend_from_slice(&bytes[skipped..skipped + needed]);
            bytes = &bytes[skipped + needed..];
            if self.begun.len() == 8 {
                let length = read_number(&self.begun).and_then(|length| usize::try_from(length).ok());
                self.skip = length.ok_or_else(|| format!("an acknowledgement of {:?}", self.begun))?;
                self.begun.clear();
            }
        }
        Ok(())
    }
}
