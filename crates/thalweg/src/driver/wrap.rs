//! Carriers around carriers: what a node's settings put around every half it opens, and the mark on its sockets.

use crate::carrier::fault::{FaultReceive, FaultSend, FaultSettings};
use crate::carrier::record::{RecordReceive, RecordSend, Recorder, Way};
use crate::carrier::{Capabilities, ReceiveHalf, SendHalf};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What is put around the network halves of a node, for tests and diagnosis. Same-host carriers are not used meanwhile.
#[derive(Clone, Default)]
pub struct Around {
    /// Loss, delay, rate and the like.
    pub fault: Option<FaultSettings>,
    /// A capture file of every frame.
    pub record: Option<Arc<Recorder>>,
}

impl Around {
    /// Whether there is nothing to put around.
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

/// The ends of a flow as a capture shows them: the publisher's and the subscriber's address of the handshake's stream.
pub(crate) fn way(publisher: SocketAddr, subscriber: SocketAddr) -> Way {
    // A dual-stack socket shows IPv4 ends as IPv6 ones.
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Way { from: plain(publisher), to: plain(subscriber) }
}

/// Marks a socket with a class: DSCP, and after it the socket priority, which the DSCP changes on IPv4 and leaves alone on
/// IPv6. What the marks do depends on the queues they meet (docs/real-time.md).
pub(crate) fn mark(descriptor: BorrowedFd<'_>, class: qos::Class) {
    let socket = socket2::SockRef::from(&descriptor);
    let octet = u32::from(class.dscp()) << 2;
    let _ = socket.set_tos_v4(octet);
    let _ = socket.set_tclass_v6(octet);
    let _ = socket.set_priority(class.socket_priority());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_class_is_read_back_from_the_socket() {
        for (family, class, octet) in [("127.0.0.1:0", qos::Class::High, 144), ("[::1]:0", qos::Class::Critical, 176)] {
            let Ok(socket) = std::net::UdpSocket::bind(family) else { continue };
            mark(socket.as_fd(), class);
            let socket = socket2::SockRef::from(&socket);
            let found = if family.starts_with('[') { socket.tclass_v6() } else { socket.tos_v4() };
            assert_eq!((found.unwrap(), socket.priority().unwrap()), (octet, 6));
        }
    }
}
