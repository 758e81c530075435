//! Carrier `tcp`: one connected socket per flow, a byte stream.

use super::{Capabilities, Interrupt, ReceiveHalf, SendHalf, SharedSocket, TICK, shared};
use std::io::{self, IoSlice};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Capabilities of TCP.
pub const CAPABILITIES: Capabilities = Capabilities {
    reliable: true,
    ordered: true,
    stream: true,
    multicast: false,
    loan: false,
    marks: true,
    max_datagram: None,
};

/// The sending half of a connected socket. Both halves of one socket share its one descriptor.
pub struct TcpSend {
    stream: Arc<TcpStream>,
}

impl TcpSend {
    /// Takes a connected socket: no delay for small messages (TCP_NODELAY), the descriptor stays blocking.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn new(stream: impl Into<Arc<TcpStream>>) -> io::Result<Self> {
        let stream = stream.into();
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }
}

impl SendHalf for TcpSend {
    #[inline]
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        send_now(self.stream.as_fd(), parts)
    }

    fn set_patience(&self, patience: Duration) -> bool {
        !patience.is_zero() && self.stream.set_write_timeout(Some(patience)).is_ok()
    }

    #[inline]
    fn send_waiting(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        linux::socket::send_parts_waiting(self.stream.as_fd(), parts).map_err(interrupted)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn outstanding(&self) -> Option<usize> {
        linux::socket::outstanding(self.stream.as_fd()).ok()
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.stream))
    }

    fn close(&self) {
        // Bytes already taken are still delivered, then the peer reads 0. Fails only if the connection is gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// The receiving half of a connected socket.
pub struct TcpReceive {
    stream: Arc<TcpStream>,
}

impl TcpReceive {
    /// Takes a connected socket; a waiting receive returns after [`TICK`] (SO_RCVTIMEO).
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn new(stream: impl Into<Arc<TcpStream>>) -> io::Result<Self> {
        let stream = stream.into();
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TICK))?;
        delay_acknowledgements(&stream);
        linux::socket::set_tcp_option(stream.as_fd(), DELACK_MAX_US, ACKNOWLEDGED_WITHIN.as_micros() as i32);
        Ok(Self { stream })
    }
}

impl ReceiveHalf for TcpReceive {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
        let received = linux::socket::receive_stream(self.stream.as_fd(), buffer, wait);
        if wait && received.is_err() {
            delay_acknowledgements(&self.stream); // after a pause the kernel has gone back to acknowledging at once
        }
        received.map_err(interrupted)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn socket(&self) -> Option<SharedSocket> {
        Some(shared(&self.stream))
    }

    fn wait_without_end(&mut self) -> Option<Interrupt> {
        self.stream.set_read_timeout(None).ok()?;
        let stream = self.stream.clone();
        Some(Interrupt { loses_nothing: false, end: Box::new(move || drop(stream.shutdown(Shutdown::Both))) })
    }
}

impl Drop for TcpReceive {
    /// Answers may leave on the same connection. It ends in both directions, or the publisher would continue to send.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both); // fails when the peer ended it already
    }
}

/// One part needs no vector: send(2) is cheaper than sendmsg(2).
#[inline]
pub(super) fn send_now(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    match parts {
        [one] => linux::socket::send(fd, one),
        many => linux::socket::send_parts(fd, many),
    }
    .map_err(interrupted)
}

/// A signal in a waiting call ends the wait, not the flow.
#[inline]
pub(super) fn interrupted(e: io::Error) -> io::Error {
    match e.kind() {
        io::ErrorKind::Interrupted => io::ErrorKind::WouldBlock.into(),
        _ => e,
    }
}

/// A channel's data flows one way, so its acknowledgements cannot ride on data. Immediate ones cost a packet per
/// sample (64 B round trip over two connections: 18.2 µs, with delayed ones 15.7). The kernel still acknowledges
/// every 536 bytes or 40 ms, so nothing waits for it: Nagle's algorithm is off everywhere here.
fn delay_acknowledgements(stream: &TcpStream) {
    const QUICKACK: i32 = 12; // linux/tcp.h
    linux::socket::set_tcp_option(stream.as_fd(), QUICKACK, 0);
}

/// Makes TCP retransmit at a steady pace instead of growing intervals, so that the stream resumes within a second
/// after an outage (P-16): linear time-outs while it is thin, and if the kernel has it (6.15) a first time-out of 80
/// ms instead of 200 and a longest one of a second, the smallest that it accepts. At 1 kHz between two namespaces
/// that lost everything, samples came again after (median and longest of 8) 39 and 192 ms where they were lost for
/// 0.1 to 0.4 s, 110 and 404 without the first; for 0.5 to 0.8 s 117 and 640 ms, 708 and 819 without; for 2 s 371 and
/// 916, 425 and 823 without. From the third time-out on the kernel's doubling decides, and a process cannot make it
/// retransmit sooner.
pub fn retransmit_soon(stream: &impl AsFd) {
    const THIN_LINEAR_TIMEOUTS: i32 = 16; // linux/tcp.h
    const RTO_MAX_MS: i32 = 44;
    linux::socket::set_tcp_option(stream.as_fd(), THIN_LINEAR_TIMEOUTS, 1);
    linux::socket::set_tcp_option(stream.as_fd(), RTO_MAX_MS, 1000);
    linux::socket::set_tcp_option(stream.as_fd(), RTO_MIN_US, RETRANSMITTED_AFTER.as_micros() as i32);
}

const RTO_MIN_US: i32 = 45; // linux/tcp.h
const DELACK_MAX_US: i32 = 46;
/// Least time, besides a round trip, until unacknowledged bytes are retransmitted: well above
/// [`ACKNOWLEDGED_WITHIN`], or bytes whose acknowledgement is only late would be sent twice.
const RETRANSMITTED_AFTER: Duration = Duration::from_millis(80);
/// The longest time that an acknowledgement waits for others. Elsewhere this is the kernel's usual time, and 200 ms the longest.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(40);

/// The same at an end that has just answered. While that answer is unacknowledged the kernel sends no probe, and
/// retransmits it for a quarter of an hour (`tcp_retries2`). Not for streams that carry samples: a subscriber that
/// stands still would end them.
pub fn notice_outage_at_once(stream: &impl AsFd) {
    const USER_TIMEOUT: i32 = 18; // RFC 5482; milliseconds
    notice_outage(stream);
    linux::socket::set_tcp_option(stream.as_fd(), USER_TIMEOUT, 10_000);
}

/// Notices at the receiving end that the network or the peer's host is gone: first probe after a second of silence,
/// given up after nine more. A stopped process still answers, by its kernel. Probes travel in the channel's class,
/// and an overloaded link loses up to half of an unprioritised one's: with three probes, channels ended and came back
/// about once in three minutes at 120 % load, and samples published meanwhile were lost.
pub fn notice_outage(stream: &impl AsFd) {
    let probes = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(1))
        .with_interval(Duration::from_millis(1000))
        .with_retries(9);
    let _ = socket2::SockRef::from(stream).set_tcp_keepalive(&probes);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is test

    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    /// The kernel's own figure, after its first round trip. Kernels before 6.15 have no such option.
    #[test]
    fn lost_segments_are_retransmitted_soon() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = TcpReceive::new(listener.accept().unwrap().0).unwrap();
        let usual = linux::socket::retransmission_timeout(sender.as_fd()).unwrap();
        retransmit_soon(&sender);
        if !linux::socket::set_tcp_option(receiver.stream.as_fd(), RTO_MIN_US, 100_000) {
            return println!("skipped: because this kernel has no TCP_RTO_MIN_US");
        }
        sender.write_all(&[7; 64]).unwrap();
        assert_eq!(receiver.receive(&mut [0; 128], true).unwrap(), 64);
        sender.write_all(&[7; 64]).unwrap();
        assert_eq!(receiver.receive(&mut [0; 128], true).unwrap(), 64);
        let now = linux::socket::retransmission_timeout(sender.as_fd()).unwrap();
        assert!(usual >= 2 * RETRANSMITTED_AFTER && now >= RETRANSMITTED_AFTER, "{usual:?}, now {now:?}");
        assert!(now < usual, "{usual:?}, now {now:?}");
    }
}
