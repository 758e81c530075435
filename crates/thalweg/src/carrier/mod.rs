//! Carriers: the transports of channels.
//!
//! A carrier is two halves made during the handshake: the publisher's [`SendHalf`] and the subscriber's [`ReceiveHalf`].
//! Neither has a thread or a buffer of its own; the driver calls them. The contract that every
//! carrier keeps is the conformance suite `thalweg::testing::conformance` (feature `testing`), which each one passes by instantiating it.

mod dice;
pub mod fault;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod local;
pub(crate) mod mcast;
mod name;
pub mod record;
pub(crate) mod shm;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod sim;
pub(crate) mod tcp;
pub(crate) mod udp;

pub use dice::Dice;
pub use name::Name;
pub(crate) use record::way;

use fault::{FaultReceive, FaultSend, FaultSettings};
use record::{RecordReceive, RecordSend, Recorder, Way};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The longest wait of [`ReceiveHalf::receive`] before it returns `WouldBlock`: the reader's tick. Short enough that a closed
/// node seems to end its readers at once, long enough to cost nothing.
pub const TICK: Duration = Duration::from_millis(100);

/// Largest number of datagrams for [`SendHalf::send_many`].
pub const MOST_TOGETHER: usize = linux::socket::MOST_SEGMENTS;
/// Largest number of bytes of them: one IPv4 packet.
pub const MOST_BYTES_TOGETHER: usize = udp::MOST;

/// A sender that was not admitted.
pub const UNKNOWN_SENDER: u64 = u64::MAX;

/// Capabilities of a carrier. What is sent over a half, and how, depends on them alone. `local`, `shm` and `tcp` are
/// opened by their name, because they use the means of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A frame taken by `send` arrives unless the connection breaks (which both halves notice).
    pub reliable: bool,
    /// Frames that arrive do so in order.
    pub ordered: bool,
    /// A byte stream: `send` may take a part, `receive` may return parts of several messages. Else datagrams, whole or not at all.
    pub stream: bool,
    /// One send reaches all members.
    pub multicast: bool,
    /// Payload can be written in place and read in place.
    pub loan: bool,
    /// Packets carry DSCP and socket priority.
    pub marks: bool,
    /// Largest datagram in bytes, header included; `None` for streams and carriers without a limit.
    pub max_datagram: Option<usize>,
}

/// A socket that is marked and paced while its half is in use, by others than the half's owner; it lives as long as the half.
pub type SharedSocket = Weak<dyn AsFd + Send + Sync>;

/// The publisher's end. Called by the holder of the flow's send right only, from any thread.
pub trait SendHalf: Send + Sync {
    /// Sends the parts as one message (datagram) or as the next bytes (stream), in one system call, without waiting.
    /// Returns the number of bytes taken; a datagram is taken whole.
    ///
    /// # Errors
    /// `WouldBlock` when there is no room now; any other error ends the flow.
    fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends several datagrams, each of two parts, in as few calls as possible: all of one length, the last may be
    /// shorter, at most [`MOST_TOGETHER`] and [`MOST_BYTES_TOGETHER`]. Returns the number of datagrams that left, the
    /// first ones; the next call returns the error of the others.
    ///
    /// # Errors
    /// As [`SendHalf::send`], if none left.
    fn send_many(&self, datagrams: &[[IoSlice<'_>; 2]]) -> io::Result<usize> {
        for (left, datagram) in datagrams.iter().enumerate() {
            match self.send(datagram) {
                Ok(_) => {}
                Err(error) if left == 0 => return Err(error),
                Err(_) => return Ok(left),
            }
        }
        Ok(datagrams.len())
    }

    /// Prepares [`SendHalf::send_waiting`] to wait at most this long. `false`: this half cannot wait, and callers poll.
    fn set_patience(&self, _patience: Duration) -> bool {
        false
    }

    /// Sends as [`SendHalf::send`] does, but waits for room, at most for the patience that was set: one system call
    /// where a full socket would cost three.
    ///
    /// # Errors
    /// As [`SendHalf::send`]; `WouldBlock` when the patience is over.
    fn send_waiting(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(parts)
    }

    /// Becomes writable when there is room again. `None`: [`SendHalf::wait_room`] is the only way.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Waits for room, at most `timeout`; `false` when there is none yet.
    ///
    /// # Errors
    /// The error of poll(2).
    fn wait_room(&self, timeout: Duration) -> io::Result<bool> {
        match self.descriptor() {
            Some(fd) => linux::poll::wait_writable(fd, Some(timeout)),
            None => {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
                Ok(true)
            }
        }
    }

    /// The largest datagram that the path takes now; it may be less than when the half was opened. `None`: the carrier cannot
    /// tell. Asked when a send was refused with EMSGSIZE.
    fn max_datagram(&self) -> Option<usize> {
        None
    }

    /// `true` if [`SendHalf::receive_feedback`] receives anything, so that a flow over this carrier can be made reliable by retransmits.
    fn has_feedback(&self) -> bool {
        false
    }

    /// Accepts packets of a member of the group from this address from now on.
    fn admit(&self, _member: u64, _address: SocketAddr) {}

    /// Forgets a member that left.
    fn dismiss(&self, _member: u64) {}

    /// Receives a subscriber's datagram and returns its length and sender (0 if there is only one; [`UNKNOWN_SENDER`]: one that was
    /// not admitted). Never waits; called by one thread while others send. A datagram longer than `buffer` is cut.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing; `Unsupported` where subscribers cannot answer.
    fn receive_feedback(&self, _buffer: &mut [u8]) -> io::Result<(usize, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Retransmits a datagram, to one member of a group if `to` names one. Never waits; may be called while another
    /// thread sends.
    ///
    /// # Errors
    /// As [`SendHalf::send`].
    fn retransmit(&self, parts: &[IoSlice<'_>], _to: Option<u64>) -> io::Result<usize> {
        self.send(parts)
    }

    /// Bytes that were sent and may not have arrived, where this half knows.
    fn outstanding(&self) -> Option<usize> {
        None
    }

    /// The socket by which packets leave. `None`: there is none, or it cannot be marked while it is in use.
    fn socket(&self) -> Option<SharedSocket> {
        None
    }

    /// The membership that has to be renewed when interfaces come and go; `None`: there is none.
    fn membership(&self) -> Option<mcast::Membership> {
        None
    }

    /// Ends the flow; the other end notices if the carrier can tell.
    fn close(&self);
}

/// The subscriber's end. Owned by exactly one thread at a time; it may move between threads.
pub trait ReceiveHalf: Send {
    /// Receives one datagram or the next bytes into `buffer`. With `wait` it waits at most [`TICK`].
    /// Returns 0 when a stream's peer closed. A datagram longer than `buffer` returns its full length (it was cut).
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing (yet); any other error ends the channel.
    fn receive(&mut self, buffer: &mut [u8], wait: bool) -> io::Result<usize>;

    /// Lets `receive` return several adjacent datagrams: all of one length, the last may be shorter. For callers that
    /// find a datagram's length in its bytes. `false`: it returns one at a time.
    fn join(&mut self) -> bool {
        false
    }

    /// The descriptor that becomes readable when there are bytes to receive. `None`: only a waiting `receive` notices them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Sends a datagram back to the publisher, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room now; `Unsupported` if the publisher would not receive it.
    fn send_feedback(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The socket by which acknowledgements leave. `None`: there is none, or it cannot be marked while it is in use.
    fn socket(&self) -> Option<SharedSocket> {
        None
    }

    /// The membership that has to be renewed when interfaces come and go; `None`: there is none.
    fn membership(&self) -> Option<mcast::Membership> {
        None
    }

    /// Lets a waiting `receive` wait without a limit; the returned interrupt ends it (with 0 or an error) from
    /// another thread. `None`: this half cannot do that, and keeps its tick. Spares a timer per wait: 3 % of a TCP
    /// round trip.
    fn wait_without_end(&mut self) -> Option<Interrupt> {
        None
    }
}

/// Ends the waiting of one receive half.
pub struct Interrupt {
    /// Bytes received before are still returned by `receive`, before the end.
    pub loses_nothing: bool,
    /// Ends it, from any thread, any number of times.
    pub end: Box<dyn Fn() + Send + Sync>,
}

/// The place where a channel is opened: the two ends of the handshake's stream, and the publishing port.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// This end's address.
    pub local: SocketAddr,
    /// The other end's address.
    pub peer: SocketAddr,
    /// A number that is the same at both ends and differs between publishing ports.
    pub port_number: u64,
}

impl Place {
    /// `true` if the ends are at two hosts, as far as their addresses say.
    pub(crate) fn is_between_hosts(&self) -> bool {
        self.local.ip().to_canonical() != self.peer.ip().to_canonical()
    }
}

/// The built-in carriers that open their halves by [`Carrier`]. `local`, `shm` and `tcp` use the means of the handshake: the
/// process, a memory and the stream itself.
pub(crate) fn built_in() -> [Arc<dyn Carrier>; 2] {
    [Arc::new(udp::Udp), Arc::new(mcast::Mcast)]
}

/// A transport of channels: implement this, in the workspace or outside it, and give it to
/// [`Settings::carriers`](crate::settings::Settings::carriers). During the handshake the subscriber opens its end first
/// ([`Carrier::receiver`]), then the publisher ([`Carrier::sender`]), then the subscriber completes its own
/// ([`Opening::complete`]). Each passes the other's needs in [`Parameters`].
pub trait Carrier: Send + Sync {
    /// Its name, as users and administrators write it.
    fn name(&self) -> &str;
    /// Its capabilities.
    fn capabilities(&self) -> Capabilities;
    /// At the subscriber: starts to open the receiving half.
    ///
    /// # Errors
    /// Ends the attempt; the next carrier is tried.
    fn receiver(&self, place: &Place) -> io::Result<(Box<dyn Opening>, Parameters)>;
    /// At the publisher: opens the sending half towards the subscriber's parameters.
    ///
    /// # Errors
    /// The error becomes a refusal.
    fn sender(&self, place: &Place, subscriber: &Parameters) -> io::Result<Sender>;
}

/// An opened publisher's end.
pub struct Sender {
    /// The sending half.
    pub half: Box<dyn SendHalf>,
    /// Its capabilities here: as [`Carrier::capabilities`], with the largest datagram of this very path.
    pub capabilities: Capabilities,
    /// The parameters that the subscriber needs.
    pub parameters: Parameters,
}

/// A receiving half that waits for the publisher's parameters.
pub trait Opening: Send {
    /// `true` if a datagram of this flow came through, for a request with a probe. Never waits; called whenever
    /// [`Opening::descriptor`] is readable.
    ///
    /// # Errors
    /// Ends the attempt; the next carrier is tried.
    fn probed(&mut self, _flow: u32, _publisher: &Parameters) -> io::Result<bool> {
        Ok(true)
    }

    /// Becomes readable when a probe may have come. `None`: no probe is awaited.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Completes the receiving half.
    ///
    /// # Errors
    /// Ends the attempt; the next carrier is tried.
    fn complete(self: Box<Self>, publisher: &Parameters) -> io::Result<Box<dyn ReceiveHalf>>;
}

/// Parameters of a carrier that the two ends of a channel exchange while they open it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// UDP: the port this end's socket is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// UDP: bytes that the receiver's socket buffer holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u32>,
    /// Set for a flow that is made reliable by retransmits: the number of its first message for this subscriber. Absent:
    /// lost messages are not retransmitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// The same: messages that the publisher keeps without an acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Reliable datagrams to one subscriber: bytes of messages that it accepts beyond those delivered. Present: it
    /// sends receipts if the publisher asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes: Option<u64>,
    /// The same: it takes several samples in one datagram.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub batches: bool,
    /// The same: messages in it may have short headers.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub short_headers: bool,
    /// The same, from the publisher: acknowledgements end with a receipt, and come after this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipts: Option<u32>,
    /// Shared memory: samples that the subscriber may hold at once besides those that wait in the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<u32>,
    /// Multicast: group and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<SocketAddr>,
    /// Multicast, of a subscriber: the channel opens only when a probe came through.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
    /// Data of added carriers, in their own format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other: Vec<u8>,
}

/// Faults and a capture around every network half that a node opens, for tests and diagnosis. Same-host carriers are not used
/// meanwhile.
#[derive(Clone, Default)]
pub struct Around {
    /// Loss, delay, rate and the like.
    pub fault: Option<FaultSettings>,
    /// A capture file of every frame.
    pub record: Option<Arc<Recorder>>,
}

impl Around {
    /// `true` if there is nothing around them.
    pub fn is_nothing(&self) -> bool {
        self.fault.is_none() && self.record.is_none()
    }

    pub(crate) fn sender(&self, mut half: Box<dyn SendHalf>, of: Capabilities, way: Way) -> Box<dyn SendHalf> {
        if let Some(recorder) = &self.record {
            half = Box::new(RecordSend::new(half, recorder.clone(), way));
        }
        match self.fault {
            Some(fault) => Box::new(FaultSend::new(half, of, fault)),
            None => half,
        }
    }

    pub(crate) fn receiver(&self, mut half: Box<dyn ReceiveHalf>, of: Capabilities, way: Way) -> Box<dyn ReceiveHalf> {
        if let Some(recorder) = &self.record {
            half = Box::new(RecordReceive::new(half, recorder.clone(), way));
        }
        match self.fault {
            Some(fault) => Box::new(FaultReceive::new(half, of, fault)),
            None => half,
        }
    }
}

/// A half's socket in its shared form.
pub(crate) fn shared<S: AsFd + Send + Sync + 'static>(socket: &Arc<S>) -> SharedSocket {
    let socket: Arc<dyn AsFd + Send + Sync> = socket.clone();
    Arc::downgrade(&socket)
}

pub(crate) fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}
