//! The two set-ups of the paper's Fig. 4.

use crate::error::Result;
use crate::lab::Lab;
use crate::topology::wire::Queue;
use crate::topology::{DEVICE, Namespace, Topology};

/// A set-up.
#[derive(Debug)]
pub struct Setup {
    /// As in the paper.
    pub title: &'static str,
    /// Whether there is a switch between the hosts.
    pub switched: bool,
    /// Hosts of the measured channel's publisher, of the load, and of all subscribers.
    pub hosts: [u8; 3],
    /// The queue that makes the mark count.
    pub queue: Queue,
    /// Bytes of payload in the paper's rows; the overload rows come with 64 bytes, too.
    pub payload: usize,
}

/// (a): Pub.1 and Pub.2 on Host1. The sender's own queue sorts by socket priority.
pub const NIC: Setup = Setup {
    title: "(a) One network card for channel and load",
    switched: false,
    hosts: [1, 1, 2],
    queue: Queue::Bands,
    payload: SMALL,
};

/// (b): Pub.1 on Host1, Pub.2 on Host2, both subscribers behind one port of the switch, which sorts by DSCP. Larger
/// packets than in (a): the paper does not say how large.
pub const SWITCH: Setup = Setup {
    title: "(b) One port of a switch for channel and load",
    switched: true,
    hosts: [1, 2, 3],
    queue: Queue::Classes,
    payload: 1400,
};

/// A small sample, in bytes.
pub const SMALL: usize = 64;

impl Setup {
    /// Makes its hosts.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn build(&self, lab: &Lab) -> Result<Topology> {
        if self.switched { Topology::switch(lab, 3) } else { Topology::link(lab) }
    }

    /// Where the congested link begins.
    ///
    /// # Errors
    /// None for topologies that [`Setup::build`] made.
    pub fn bottleneck<'a>(&self, topology: &'a Topology) -> Result<(&'a Namespace, String)> {
        if self.switched {
            return Ok((topology.middle()?, Topology::leads_to(self.hosts[2])));
        }
        Ok((topology.host(self.hosts[0]), DEVICE.to_owned()))
    }
}
