//! The robot behind a narrow link: two network namespaces, 20 Mbit/s between them, and a file transfer beside the
//! robot's channels. Built with the lab's tools; removed when dropped.

use super::PART_OF_LAB;
use super::Place;
use super::robot::{BESIDE, parts};
use crate::session::Reach;
use lab::load::{Generator, Load, Pattern, Protocol, Sink, Traffic};
use lab::part::Place as At;
use lab::topology::{DEVICE, Queue, Topology, Wire};
use lab::{Lab, Options, Program, Result};
use std::net::SocketAddr;
use std::path::PathBuf;
use thalweg::Network;

/// Rate of the link in each direction, in bit/s.
pub(super) const RATE: u64 = 20_000_000;
/// Queue length in packets, as in many routers: 60 ms.
const QUEUE: u32 = 100;

/// Connections of the transfer: one alone cannot fill the queue of its host.
const STREAMS: u32 = 8;

/// Numbers of the hosts: the one beside the robot, and the robot's.
const HOSTS: [u8; 2] = [1, 2];

/// The two hosts, and the transfer from the first to the second.
pub(super) struct Link {
    generator: Generator,
    sink: Sink,
    since: Traffic,
    addresses: PathBuf,
    topology: Topology,
    lab: Lab,
}

impl Link {
    /// Builds the link, without a transfer.
    ///
    /// # Errors
    /// The reason why it cannot be built here: no root, no iproute2.
    pub(super) fn build() -> Result<Self> {
        let program = Program::this(&[PART_OF_LAB])?;
        // A request to end is checked between phases; until then every call succeeds.
        let lab = Lab::open(Options::default(), lab::Stop::default(), program, |_| {})?;
        let topology = Topology::link(&lab)?;
        let wire = Wire { rate: RATE, limit: QUEUE, queue: Queue::Classes };
        HOSTS.into_iter().try_for_each(|host| wire.install(topology.host(host), DEVICE))?;
        let addresses = lab.folder().join("robot.toml");
        let all = parts().into_iter().map(|part| format!("[[node]]\naddress = \"{}\"\n", address(part)));
        std::fs::write(&addresses, all.collect::<String>())?;
        let [beside, robot] = HOSTS.map(|host| At::at(topology.host(host), &[]));
        let mut sink = Sink::new(&lab, robot, Topology::address_of(HOSTS[1]))?;
        let generator = Generator::new(&lab, beside, sink.target)?;
        let since = sink.count(&lab)?;
        Ok(Self { generator, sink, since, addresses, topology, lab })
    }

    /// The place of a process of the robot.
    pub(super) fn place(&self, part: &str, realm: &str) -> Place {
        let mut place = self.near(part, realm);
        place.reach.listen.push(address(part));
        place.reach.admin_from.push(Network::around(address(part).ip())); // the robot's two hosts are one administration's
        place
    }

    /// The host of a process of the robot, without an address of its own.
    pub(super) fn near(&self, part: &str, realm: &str) -> Place {
        let namespace = Some(self.topology.host(host(part)).name().to_owned());
        let reach = Reach { discovery: Some(self.addresses.clone()), ..Reach::default() };
        Place { realm: realm.to_owned(), namespace, reach }
    }

    /// Starts the transfer at full speed.
    ///
    /// # Errors
    /// A process of the transfer failed.
    pub(super) fn begin(&mut self) -> Result {
        self.since = self.sink.count(&self.lab)?;
        let load = Load { protocol: Protocol::Tcp, rate: 0, pattern: Pattern::Greedy(STREAMS), gso: false, seed: 1 };
        self.generator.start(&self.lab, &load)
    }

    /// Ends the transfer, and returns its Mbit/s.
    ///
    /// # Errors
    /// As [`Link::begin`].
    pub(super) fn end(&mut self) -> Result<f64> {
        let rate = self.sink.count(&self.lab)?.mbit_since(&self.since);
        self.generator.stop(&self.lab)?;
        Ok(rate)
    }
}

fn host(part: &str) -> u8 {
    HOSTS[usize::from(part != BESIDE)]
}

/// Address of a process's node: any port, but each its own.
fn address(part: &str) -> SocketAddr {
    let number = parts().iter().position(|name| *name == part).unwrap_or(0) as u16;
    SocketAddr::new(Topology::address_of(host(part)), 7400 + number)
}
