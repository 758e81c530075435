//! Two boards with a line between them (D-11, D-19).

use super::RATE;
use super::arm::PORTS;
use crate::error::Result;
use crate::experiments::lines;
use crate::lab::Lab;
use crate::part::{Place, processors};
use crate::results::Findings;
use crate::topology::{DEVICE, Line, Queue, Topology, Wire};

/// Two boards with a line between them, and a queue by class in front of it at either one.
pub(super) struct Boards {
    topology: Topology,
    /// The processor of each board's programs: each has one of its own where there are two.
    processors: [usize; 2],
    port: u16,
}

/// The first port.
const FIRST: u16 = 20_000;
/// Ports below those that the kernel gives to others.
const END: u16 = 32_000;
/// Most packets that wait in each class's queue.
const LIMIT: u32 = 100;

impl Boards {
    /// Makes them. The line has the processor of the first board, which has less to do.
    pub(super) fn new(lab: &Lab) -> Result<Self> {
        let (first, second) = processors()?;
        let line = Line::of(1, RATE).on(u16::try_from(first).unwrap_or_default());
        let topology = Topology::link(lab, &[line])?;
        for host in [1, 2] {
            Wire { rate: RATE, limit: LIMIT, queue: Queue::Classes }.install(topology.host(host), DEVICE)?;
        }
        Ok(Self { topology, processors: [first, second], port: FIRST })
    }

    /// The place of programs on a board.
    pub(super) fn place(&self, host: u8) -> Place {
        Place::at(self.topology.host(host), &[self.processors[usize::from(host) - 1]])
    }

    /// Whether each board has a processor.
    pub(super) fn are_apart(&self) -> bool {
        self.processors[0] != self.processors[1]
    }

    /// The processor that is not the line's, if there are two.
    pub(super) fn beside(&self) -> usize {
        self.processors[1]
    }

    /// A host.
    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// How long the line stood still so far, in ms.
    pub(super) fn stood_still_ms(&self) -> f64 {
        self.topology.stood_still().iter().map(|stood| stood.ns as f64 / 1e6).sum()
    }

    /// Ends it, with a check of its line and the queues in front of that.
    ///
    /// # Errors
    /// As [`crate::iproute::tc`].
    pub(super) fn end(mut self, findings: &mut Findings) -> Result {
        for host in [1, 2] {
            let shown = self.topology.host(host).tc(&["qdisc", "show", "dev", DEVICE])?;
            findings.queues.extend(shown.lines().map(|line| format!("board {host}: {}", line.trim())));
        }
        lines::judge("all runs", &self.topology.end_lines(), findings);
        Ok(())
    }

    /// Ports that no graph had before.
    pub(super) fn ports(&mut self) -> u16 {
        let port = self.port;
        self.port = if port + PORTS < END { port + PORTS } else { FIRST };
        port
    }
}
