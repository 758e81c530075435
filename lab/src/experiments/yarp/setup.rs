//! The set-ups: hosts, and the points of congestion between them.

use super::RATE;
use super::testbed::processors;
use crate::error::Result;
use crate::lab::Lab;
use crate::topology::{DEVICE, Line, Namespace, Queue, Topology};

/// A set-up.
#[derive(Debug)]
pub(super) struct Setup {
    /// As in the paper.
    pub title: &'static str,
    /// The realm of its nodes: two set-ups may be there at once.
    pub realm: &'static str,
    /// Hosts of the measured channel's publisher and of all subscribers.
    pub ends: [u8; 2],
    /// Hosts of the loads' publishers, each with a subscriber of its own, and the percent of a row's load that it offers.
    pub loads: &'static [(u8, u64)],
    /// The points that the loads congest.
    pub congested: &'static [Point],
    /// Bytes of payload in the paper's rows; the overload rows come with 64 bytes, too.
    pub payload: usize,
}

/// A point of congestion (§2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Out of the publisher's host.
    Card,
    /// Out of the switch to the subscribers.
    Port,
}

impl Point {
    /// As notes on queues say it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Point::Card => "the card",
            Point::Port => "the port",
        }
    }

    /// The queue that makes the mark count.
    pub(super) const fn queue(self) -> Queue {
        match self {
            // The sender's own queue sorts by socket priority.
            Point::Card => Queue::Bands,
            // The switch sorts by DSCP.
            Point::Port => Queue::Classes,
        }
    }
}

/// (a): Pub.1 and Pub.2 on Host1.
pub(super) const NIC: Setup = Setup {
    title: "(a) One network card for channel and load",
    realm: "card",
    ends: [1, 2],
    loads: &[(1, 100)],
    congested: &[Point::Card],
    payload: SMALL,
};

/// (b): Pub.1 on Host1, Pub.2 on Host2, both subscribers behind one port of the switch. Larger packets than in (a): the paper gives
/// no size.
pub(super) const SWITCH: Setup = Setup {
    title: "(b) One port of a switch for channel and load",
    realm: "port",
    ends: [1, 3],
    loads: &[(2, 100)],
    congested: &[Point::Port],
    payload: 1400,
};

/// Fig. 1: Pub.1 and Pub.2 on Host1, Pub.3 on Host2, all subscribers behind one port of the switch. Pub.2 alone fills the card, and
/// what leaves that nearly fills the port. So Pub.3 offers less: two loads of 120 % kept the processor of the lines busy (p99 with
/// priority 1.2 ms, p50 0.7 ms).
pub(super) const BOTH: Setup = Setup {
    title: "Fig. 1: a card and a port for channel and loads",
    realm: "both",
    ends: [1, 3],
    loads: &[(1, 100), (2, 25)],
    congested: &[Point::Card, Point::Port],
    payload: SMALL,
};

/// A small sample, and an acknowledgement, in bytes.
pub(super) const SMALL: usize = 64;

impl Setup {
    /// `true`: a switch is between the hosts.
    pub(super) fn is_switched(&self) -> bool {
        self.congested.contains(&Point::Port)
    }

    /// `true`: `examples/yarp-switch.toml` describes it.
    pub(super) fn has_contract(&self) -> bool {
        self.congested == [Point::Port]
    }

    /// Makes its hosts.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub(super) fn build(&self, lab: &Lab) -> Result<Topology> {
        // The lines' threads are beside the load's: the measured ends have their processor to themselves.
        let line = |point: &Point| {
            let [ping, pong] = self.ends;
            let host = if *point == Point::Card { ping } else { pong };
            Line::of(host, RATE).on(processors().1[0] as u16)
        };
        let lines: Vec<Line> = self.congested.iter().map(line).collect();
        if self.is_switched() { Topology::switch(lab, 3, &lines) } else { Topology::link(lab, &lines) }
    }

    /// The namespace and interface at the start of a congested link.
    ///
    /// # Errors
    /// None for topologies that [`Setup::build`] made.
    pub(super) fn bottleneck<'a>(&self, point: Point, topology: &'a Topology) -> Result<(&'a Namespace, String)> {
        let [ping, pong] = self.ends;
        match point {
            Point::Card => Ok((topology.host(ping), DEVICE.to_owned())),
            Point::Port => Ok((topology.middle()?, Topology::leads_to(pong))),
        }
    }
}
