//! Netlink (netlink(7)) for traffic control, routes and sockets: one request, its answers, nothing asynchronous.
//!
//! Forty lines of attributes of our own rather than crates: those type five disciplines, none of them ours, and
//! messages must be replayed byte by byte.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The message is a request (`NLM_F_REQUEST`).
pub(crate) const REQUEST: u16 = 1;
/// `NLM_F_ACK`
pub(crate) const ACK: u16 = 4;
/// All objects, not one (`NLM_F_DUMP`).
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_CREATE | NLM_F_EXCL`: fails if the object exists.
pub(crate) const CREATE: u16 = 0x600;
/// `NLM_F_CREATE | NLM_F_REPLACE`: replaces an existing object.
pub(crate) const REPLACE: u16 = 0x500;

const DONE: u16 = 3;
const ERROR: u16 = 2;
const DUMP_INTERRUPTED: u16 = 0x10;
const CAPPED: u16 = 0x100;
const EXTENDED: u16 = 0x200;

/// One message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type, such as `RTM_NEWQDISC`.
    pub kind: u16,
    /// The body behind the header.
    pub body: Vec<u8>,
}

/// A refusal by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The kernel's own words, if it sent any (`NLMSGERR_ATTR_MSG`).
    pub words: String,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let plain = io::Error::from_raw_os_error(refusal.errno);
        if refusal.words.is_empty() { plain } else { io::Error::new(plain.kind(), refusal.words) }
    }
}

/// Contents of one datagram of answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Objects.
    pub messages: Vec<Message>,
    /// The end of the answers, or a refusal.
    pub end: Option<Result<(), Refusal>>,
    /// The objects changed while they were listed.
    pub interrupted: bool,
}

/// Reads a datagram of answers to request `sequence`. Lengths that don't fit end it; nothing panics.
pub(crate) fn answers(mut bytes: &[u8], sequence: u32) -> Answers {
    let mut found = Answers::default();
    while let (Some(length), Some(kind), Some(flags), Some(number)) =
        (u32_at(bytes, 0), u16_at(bytes, 4), u16_at(bytes, 6), u32_at(bytes, 8))
    {
        let length = length as usize;
        let Some(body) = bytes.get(16..length) else { break };
        if number == sequence {
            found.interrupted |= flags & DUMP_INTERRUPTED != 0;
            match kind {
                ERROR | DONE => found.end = Some(outcome(kind, flags, body)),
                _ => found.messages.push(Message { kind, body: body.to_vec() }),
            }
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    found
}

fn outcome(kind: u16, flags: u16, body: &[u8]) -> Result<(), Refusal> {
    let errno = u32_at(body, 0).unwrap_or(0).cast_signed().saturating_neg();
    if errno <= 0 {
        return Ok(());
    }
    // An error repeats the request's header, and unless capped the whole request, before its attributes.
    let quoted = if flags & CAPPED != 0 { 16 } else { u32_at(body, 4).map_or(16, |length| aligned(length as usize)) };
    let from = if kind == ERROR { 4 + quoted } else { 4 };
    let attributes = body.get(from..).filter(|_| flags & EXTENDED != 0).unwrap_or_default();
    let words = attribute(attributes, 1).map(text).unwrap_or_default();
    Err(Refusal { errno, words })
}

/// A netlink socket of one family.
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// Time-out: the kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of attempts at a listing that changes while it is read.
const ATTEMPTS: usize = 5;

impl Socket {
    /// Opens one for interfaces, routes and queues (`NETLINK_ROUTE`) in the calling thread's network namespace.
    ///
    /// # Errors
    /// The error of socket(2).
    pub(crate) fn open() -> io::Result<Self> {
        Self::of(None) // the route family's protocol is number 0
    }

    /// Opens one for the kernel's information about sockets (sock_diag(7)).
    ///
    /// # Errors
    /// The error of socket(2): EPROTONOSUPPORT where the kernel was built without.
    pub(crate) fn for_sockets() -> io::Result<Self> {
        Self::of(Some(rustix::net::netlink::SOCK_DIAG))
    }

    fn of(family: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, family)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        extended_errors(&fd);
        Ok(Self { fd, sequence: 0 })
    }

    /// From now on the kernel lists only what has the values in a request's head; kernels before 4.20 list all.
    pub(crate) fn select(&self) {
        set(&self.fd, libc::NETLINK_GET_STRICT_CHK);
    }

    /// Sends one request and returns all its answers.
    ///
    /// # Errors
    /// The kernel's refusal, or the error of the socket.
    pub(crate) fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Result<Vec<Message>, Refusal>> {
        for _ in 0..ATTEMPTS {
            let (answer, interrupted) = self.ask_once(kind, flags, body)?;
            if !interrupted {
                return Ok(answer);
            }
        }
        Err(io::Error::other("the kernel's listing kept changing while it was read"))
    }

    fn ask_once(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<(Result<Vec<Message>, Refusal>, bool)> {
        self.sequence += 1;
        let acknowledged = if flags & DUMP == DUMP { 0 } else { ACK };
        let mut request = Vec::with_capacity(16 + body.len());
        request.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(&(flags | REQUEST | acknowledged).to_ne_bytes());
        request.extend_from_slice(&self.sequence.to_ne_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(body);
        rustix::net::sendto(&self.fd, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let (mut messages, mut interrupted, mut buffer) = (Vec::new(), false, vec![0; 64 << 10]);
        loop {
            // A process that is stopped and continued is interrupted here, since the socket has a time-out
            // (signal(7)).
            let receive = || rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::empty());
            let got = rustix::io::retry_on_intr(receive)?.0;
            let found = answers(buffer.get(..got).unwrap_or_default(), self.sequence);
            messages.extend(found.messages);
            interrupted |= found.interrupted;
            if let Some(end) = found.end {
                return Ok((end.map(|()| messages), interrupted));
            }
        }
    }
}

/// Asks for the kernel's words with its errors; older kernels have none.
fn extended_errors(fd: &OwnedFd) {
    [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK].into_iter().for_each(|option| set(fd, option));
}

/// Sets an option where the kernel has it.
#[allow(unsafe_code)]
fn set(fd: &OwnedFd, option: i32) {
    let (on, size) = (1i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the descriptor is borrowed for the call, and the value is an i32 of the stated size.
    unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_NETLINK, option, std::ptr::from_ref(&on).cast(), size) };
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// The 16 bits at `offset` in this machine's order.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset.checked_add(2)?)?.try_into().ok()?))
}

/// The 32 bits at `offset` in this machine's order.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

/// The 64 bits at `offset` in this machine's order.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}

/// Text up to its end or its first zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The attributes in `bytes` as (type, payload), up to the first that doesn't fit.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & 0x3fff; // without the marks "nested" and "network order"
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// The first attribute of this type.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, payload)| payload)
}

/// Appends one attribute.
pub(crate) fn put(to: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    to.extend_from_slice(&(4 + payload.len() as u16).to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(payload);
    to.resize(aligned(to.len()), 0);
}

/// Numbers one after the other, as the kernel's structures have them.
pub(crate) fn words<const N: usize>(numbers: [u32; N]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_come_back_as_they_were_put() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, b"htb\0");
        put(&mut bytes, 2, &words([7]));
        put(&mut bytes, 3, b"x");
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"htb\0"[..]), (2, &words([7])[..]), (3, &b"x"[..])]);
        assert_eq!(attribute(&bytes, 1).map(text).unwrap(), "htb");
    }

    #[test]
    fn the_kernel_says_what_is_wrong() {
        let mut socket = Socket::open().unwrap();
        let refusal = socket.ask(26, 0, &[libc::AF_INET as u8]).unwrap().unwrap_err(); // a route request that is too short
        assert_eq!((refusal.errno, refusal.words.is_empty()), (libc::EINVAL, false), "{refusal:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), sequence in 0u32..3) {
            let _ = answers(&bytes, sequence);
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
        }
        #[test]
        fn a_message_with_any_length_is_read(length in any::<u32>(), kind in 0u16..5, flags in any::<u16>(), rest in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
            bytes.extend([0; 8]);
            bytes.extend(rest);
            let _ = answers(&bytes, 0);
        }
    }
}
