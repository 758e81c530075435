//! Carriers: how a connection begins, and what its receiver says.

use super::super::bottle;
use thalweg::bottle::Bottle;

/// The way in which messages are written on a connection. All are over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Binary, with acknowledgements.
    Tcp,
    /// Binary.
    FastTcp,
    /// Lines of text.
    Text,
    /// Lines of text, with acknowledgements.
    TextAck,
    /// Commands to the name server, one a line.
    NameServer,
}

impl Carrier {
    /// Those that ports here offer and accept.
    pub(crate) const OFFERED: [Self; 4] = [Carrier::Tcp, Carrier::FastTcp, Carrier::Text, Carrier::TextAck];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Carrier::Tcp => "tcp",
            Carrier::FastTcp => "fast_tcp",
            Carrier::Text => "text",
            Carrier::TextAck => "text_ack",
            Carrier::NameServer => "name_ser",
        }
    }

    /// The 8 bytes with which a connection begins.
    pub(super) const fn specifier(self) -> [u8; 8] {
        match self {
            Carrier::Tcp => number(7777 + 3 + 128),
            Carrier::FastTcp => number(7777 + 3),
            Carrier::Text => *b"CONNECT ",
            Carrier::TextAck => *b"CONNACK ",
            Carrier::NameServer => *b"NAME_SER",
        }
    }

    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Carrier::Text | Carrier::TextAck | Carrier::NameServer)
    }

    /// The receiver's answer to a header. `port` is the number of the receiver's own port.
    pub(crate) fn welcome(self, from: &str, port: u16) -> Vec<u8> {
        match self {
            Carrier::Tcp | Carrier::FastTcp => number(i32::from(port)).to_vec(),
            Carrier::Text | Carrier::TextAck => format!("Welcome {from}\r\n").into_bytes(),
            Carrier::NameServer => Vec::new(),
        }
    }

    /// What follows each message that was received, and its reply.
    pub(crate) fn acknowledgement(self) -> Vec<u8> {
        match self {
            Carrier::Tcp => number(0).to_vec(),
            Carrier::TextAck => b"<ACK>\r\n".to_vec(),
            Carrier::FastTcp | Carrier::Text | Carrier::NameServer => Vec::new(),
        }
    }

    /// A reply in the carrier's form.
    pub(crate) fn reply(self, bottle: &Bottle) -> Vec<u8> {
        if self.is_text() { format!("{bottle}\r\n").into_bytes() } else { bottle::encode(bottle) }
    }
}

/// `Y A`, four bytes of a number, `R P`.
pub(super) const fn number(of: i32) -> [u8; 8] {
    let [a, b, c, d] = of.to_le_bytes();
    [b'Y', b'A', a, b, c, d, b'R', b'P']
}

pub(super) fn read_number(bytes: &[u8]) -> Option<i32> {
    match bytes {
        [b'Y', b'A', a, b, c, d, b'R', b'P', ..] => Some(i32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}
