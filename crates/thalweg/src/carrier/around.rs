//! Carriers around carriers, which a node's settings put around every half that it opens.

use crate::carrier::fault::{FaultReceive, FaultSend, FaultSettings};
use crate::carrier::record::{RecordReceive, RecordSend, Recorder, Way};
use crate::carrier::{Capabilities, ReceiveHalf, SendHalf};
use std::net::SocketAddr;
use std::sync::Arc;

/// Faults and a capture around the network halves of a node, for tests and diagnosis. Same-host carriers are not used
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

/// The ends of a flow as a capture shows them: the publisher's and the subscriber's address of the handshake's stream.
pub(crate) fn way(publisher: SocketAddr, subscriber: SocketAddr) -> Way {
    // A dual-stack socket shows IPv4 ends as IPv6 ones.
    let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Way { from: plain(publisher), to: plain(subscriber) }
}
