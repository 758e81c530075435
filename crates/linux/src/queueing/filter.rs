//! Filters: `u32` on bits of the packet's header, and their verdict on a packet of which only the mark is known.

use super::tree::Handle;
use crate::netlink::{attribute, put, u32_at};
use std::fmt;

/// A filter that puts packets into a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The packets it looks at.
    pub protocol: Protocol,
    /// Filters are asked in this order, from 1.
    pub preference: u16,
    /// The class for packets that match.
    pub target: Option<Handle>,
    /// The condition.
    pub question: Question,
}

/// A link-layer protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Any.
    All,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// By its number.
    Other(u16),
}

/// `ETH_P_MPLS_UC`
const MPLS: u16 = 0x8847;

/// The condition of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All these bits of the header must be so.
    Bits(Vec<Bits>),
    /// No question: a hash table, to which other filters may send packets.
    Table,
    /// Another kind of filter, or one that is sent to a hash table: not looked into.
    Unknown(String),
}

/// 32 bits of the network header, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Their offset from the start of the network header, in bytes.
    pub offset: i32,
    /// The bits that count.
    pub mask: u32,
    /// Their required values.
    pub value: u32,
}

/// A filter's verdict on a packet of which only version and mark are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It matches.
    Yes,
    /// It doesn't.
    No,
    /// Other fields decide.
    Depends,
}

impl Filter {
    /// A filter for packets whose TOS octet or traffic class is `value` under `mask`.
    pub fn on_mark(v6: bool, preference: u16, value: u8, mask: u8, target: Handle) -> Self {
        // The octet is bits 8…15 of an IPv4 header, and bits 4…11 of an IPv6 header.
        let (protocol, shift) = if v6 { (Protocol::V6, 20) } else { (Protocol::V4, 16) };
        let bits = Bits { offset: 0, mask: u32::from(mask) << shift, value: u32::from(value & mask) << shift };
        Self { protocol, preference, target: Some(target), question: Question::Bits(vec![bits]) }
    }

    /// A filter for packets with an MPLS label, by its traffic class.
    pub fn on_label(preference: u16, class: u8, target: Handle) -> Self {
        // Label 20 bits, traffic class 3, bottom of the stack 1, TTL 8 (RFC 3032 §2.1, RFC 5462).
        let bits = Bits { offset: 0, mask: 0x0e00, value: u32::from(class & 7) << 9 };
        let (protocol, question) = (Protocol::Other(MPLS), Question::Bits(vec![bits]));
        Self { protocol, preference, target: Some(target), question }
    }

    /// Reads the kernel's message: the number with preference and protocol, the kind, the options.
    pub fn read(info: u32, kind: &str, options: &[u8]) -> Self {
        let target = attribute(options, 1).and_then(|id| u32_at(id, 0)).map(Handle);
        let question = match kind {
            "u32" if attribute(options, 5).is_none() => Some(Question::Table),
            "u32" => bits(options),
            _ => None,
        };
        Self {
            protocol: Protocol::read(u16::from_be(info as u16)),
            preference: (info >> 16) as u16,
            target,
            question: question.unwrap_or_else(|| Question::Unknown(kind.to_owned())),
        }
    }

    /// The number with preference and protocol.
    pub fn info(&self) -> u32 {
        u32::from(self.preference) << 16 | u32::from(self.protocol.number().to_be())
    }

    /// The options in the kernel's form.
    pub fn options(&self) -> Option<Vec<u8>> {
        let Question::Bits(keys) = &self.question else { return None };
        const TERMINAL: u8 = 1;
        let mut selector = vec![TERMINAL, 0, u8::try_from(keys.len()).ok()?];
        selector.resize(16, 0);
        for Bits { offset, mask, value } in keys {
            selector.extend_from_slice(&mask.to_be_bytes());
            selector.extend_from_slice(&value.to_be_bytes());
            selector.extend_from_slice(&offset.to_ne_bytes());
            selector.extend_from_slice(&[0; 4]);
        }
        let mut options = Vec::new();
        self.target.iter().for_each(|target| put(&mut options, 1, &target.0.to_ne_bytes()));
        put(&mut options, 5, &selector);
        Some(options)
    }

    /// The verdict on a packet with this mark.
    pub fn verdict(&self, tos: u8, v6: bool) -> Verdict {
        match (self.protocol, v6) {
            (Protocol::All, _) | (Protocol::V4, false) | (Protocol::V6, true) => {}
            _ => return Verdict::No,
        }
        let Question::Bits(keys) = &self.question else { return Verdict::Depends };
        let verdicts: Vec<Verdict> = keys.iter().map(|key| key.verdict(tos, v6)).collect();
        match () {
            () if verdicts.contains(&Verdict::No) => Verdict::No,
            () if verdicts.contains(&Verdict::Depends) => Verdict::Depends,
            () => Verdict::Yes,
        }
    }
}

impl Bits {
    fn verdict(self, tos: u8, v6: bool) -> Verdict {
        // The version and the mark in the first word are known; for IPv4 so is the header's length, since sockets send no options.
        let (word, known) = if v6 {
            (0x6000_0000 | u32::from(tos) << 20, 0xfff0_0000)
        } else {
            (0x4500_0000 | u32::from(tos) << 16, 0xffff_0000)
        };
        let (word, known) = if self.offset == 0 { (word, known) } else { (0, 0) };
        match self.mask & !known {
            _ if (word ^ self.value) & self.mask & known != 0 => Verdict::No,
            0 => Verdict::Yes,
            _ => Verdict::Depends,
        }
    }
}

fn bits(options: &[u8]) -> Option<Question> {
    let selector = attribute(options, 5)?;
    let hashed = attribute(options, 3).is_some(); // sent on to another table
    let (shift, count) = (*selector.get(1)?, usize::from(*selector.get(2)?));
    if hashed || shift != 0 || [6, 8, 10].iter().any(|kind| attribute(options, *kind).is_some()) {
        return None;
    }
    let key = |n: usize| {
        let at = selector.get(16 + n * 16..32 + n * 16)?;
        let moving = u32_at(at, 12)?;
        let bits =
            Bits { offset: u32_at(at, 8)?.cast_signed(), mask: u32_at(at, 0)?.to_be(), value: u32_at(at, 4)?.to_be() };
        (moving == 0).then_some(bits)
    };
    (0..count).map(key).collect::<Option<Vec<_>>>().map(Question::Bits)
}

impl Protocol {
    fn read(number: u16) -> Self {
        match number {
            0x0003 => Protocol::All,
            0x0800 => Protocol::V4,
            0x86dd => Protocol::V6,
            other => Protocol::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Protocol::All => 0x0003,
            Protocol::V4 => 0x0800,
            Protocol::V6 => 0x86dd,
            Protocol::Other(number) => number,
        }
    }
}

impl fmt::Display for Filter {
    /// As `tc filter add` takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::All => f.write_str("protocol all")?,
            Protocol::V4 => f.write_str("protocol ip")?,
            Protocol::V6 => f.write_str("protocol ipv6")?,
            Protocol::Other(number) => write!(f, "protocol 0x{number:x}")?,
        }
        write!(f, " pref {}", self.preference)?;
        match &self.question {
            Question::Bits(keys) => {
                f.write_str(" u32")?;
                for Bits { offset, mask, value } in keys {
                    write!(f, " match u32 0x{value:08x} 0x{mask:08x} at {offset}")?;
                }
            }
            Question::Table => f.write_str(" u32")?,
            Question::Unknown(kind) => write!(f, " {kind}")?,
        }
        self.target.iter().try_for_each(|target| write!(f, " flowid {target}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_filter_on_the_mark_sees_the_mark(value: u8, mask: u8, tos: u8, v6: bool) {
            let filter = Filter::on_mark(v6, 1, value, mask, Handle::new(1, 0x20));
            let wanted = if tos & mask == value & mask { Verdict::Yes } else { Verdict::No };
            prop_assert_eq!(filter.verdict(tos, v6), wanted);
            prop_assert_eq!(filter.verdict(tos, !v6), Verdict::No);
            let read = Filter::read(filter.info(), "u32", &filter.options().unwrap());
            prop_assert_eq!(read, filter);
        }
        #[test]
        fn any_options_are_read(info: u32, options in proptest::collection::vec(any::<u8>(), 0..80), tos: u8) {
            let filter = Filter::read(info, "u32", &options);
            let _ = (filter.verdict(tos, false), filter.to_string());
        }
    }

    #[test]
    fn a_filter_on_a_label_is_read_as_it_is_asked_for_and_sees_no_ip() {
        let filter = Filter::on_label(1, 5, Handle::new(1, 0x10));
        assert_eq!([false, true].map(|v6| filter.verdict(0xb8, v6)), [Verdict::No; 2]);
        assert_eq!(Filter::read(filter.info(), "u32", &filter.options().unwrap()), filter);
    }

    #[test]
    fn other_fields_are_not_guessed() {
        let port = Bits { offset: 20, mask: 0xffff, value: 7000 };
        let mark = Bits { offset: 0, mask: 0x00fc_0000, value: 0x00b8_0000 };
        let question = Question::Bits(vec![mark, port]);
        let filter = Filter { protocol: Protocol::V4, preference: 1, target: None, question };
        assert_eq!((filter.verdict(0xb8, false), filter.verdict(0, false)), (Verdict::Depends, Verdict::No));
    }
}
