//! Round trips over Thalweg's own channels: a sample there and its acknowledgement back, by a second channel.
//!
//! | module | what it holds |
//! |---|---|
//! | `ends` | the node and ports of either end, and their priority |
//! | `ping` | the role that sends at random distances, and stamps |
//! | `pong` | the role that sends back what came |
//!
//! Samples are sent when they are due, whether or not the last one has come back, so that a slow one delays no other
//! (and is not the only one to meet what made it slow).

mod ends;
mod ping;
mod pong;

pub use ends::Priority;
pub use ping::{Measure, Trip};
pub(crate) use ping::{ROLE as PING, play as play_ping};
pub(crate) use pong::{ROLE as PONG, play as play_pong};

use crate::error::{Error, Result};
use crate::part::{Part, Place};
use crate::run::Lab;
use crate::topology::{Namespace, Topology};
use ends::{End, Priorities};
use std::net::SocketAddr;
use std::time::Duration;
use thalweg::admin::EndReport;

/// A ping and a pong, connected by every carrier of [`CARRIERS`] in both directions.
#[derive(Debug)]
pub struct Trips {
    ping: Part,
    pong: Part,
}

/// What round trips are measured over.
pub const CARRIERS: [&str; 2] = ["udp", "tcp"];

/// How long the ends may take to find each other.
const START: Duration = Duration::from_secs(30);
/// How long an order may take besides what it takes by itself.
const PATIENCE: Duration = Duration::from_secs(15);
/// Where both listen.
const PORT: u16 = 7400;

impl Trips {
    /// Starts both ends, each in the host of this number and on these processors, and waits until they are connected.
    ///
    /// # Errors
    /// As [`Part::start`] and [`Part::hear`].
    pub fn new(lab: &Lab, topology: &Topology, [ping, pong]: [u8; 2], processors: &[usize]) -> Result<Self> {
        let listen = |host| SocketAddr::new(Topology::address_of(host), PORT);
        let nodes = addresses(lab, topology.host(ping), &[listen(ping), listen(pong)])?;
        let end = |name: &str, host| End {
            name: name.into(),
            realm: "lab".into(),
            listen: Some(listen(host)),
            nodes: Some(nodes.clone()),
        };
        let place = |host| Place::at(topology.host(host), processors);
        let pong = Part::start(lab, place(pong), PONG, &end("pong", pong))?;
        Self::connected(lab, Part::start(lab, place(ping), PING, &end("ping", ping))?, pong)
    }

    /// Starts both ends on this host, in a realm of their own.
    ///
    /// # Errors
    /// As [`Trips::new`].
    pub fn on_this_host(lab: &Lab, realm: &str, processors: &[usize]) -> Result<Self> {
        let end = |name: &str| End { name: name.into(), realm: realm.into(), listen: None, nodes: None };
        let place = || Place { namespace: None, processors: processors.to_vec() };
        let pong = Part::start(lab, place(), PONG, &end("pong"))?;
        Self::connected(lab, Part::start(lab, place(), PING, &end("ping"))?, pong)
    }

    fn connected(lab: &Lab, mut ping: Part, mut pong: Part) -> Result<Self> {
        ping.hear::<ends::Ready>(lab, START)?;
        pong.hear::<ends::Ready>(lab, START)?;
        Ok(Self { ping, pong })
    }

    /// Changes the priority of all four ends of a carrier's two channels, while they are in use.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses.
    pub fn set_priority(&mut self, lab: &Lab, priority: &Priority) -> Result<Vec<EndReport>> {
        let mut reports = Vec::new();
        for part in [&mut self.ping, &mut self.pong] {
            let order = ping::Order::Priority(priority.clone());
            reports.extend(part.ask::<Priorities>(lab, &order, PATIENCE)?.ends);
        }
        Ok(reports)
    }

    /// Makes round trips.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub fn measure(&mut self, lab: &Lab, measure: &Measure) -> Result<Vec<Trip>> {
        let time = measure.time() + PATIENCE;
        Ok(self.ping.ask::<ping::Trips>(lab, &ping::Order::Measure(measure.clone()), time)?.trips)
    }
}

/// Writes the addresses of both nodes where both read them. (The file is named after a host, of which each has one.)
fn addresses(lab: &Lab, host: &Namespace, all: &[SocketAddr]) -> Result<std::path::PathBuf> {
    let file = lab.folder().join(format!("{}.toml", host.name()));
    let text: String = all.iter().map(|address| format!("[[node]]\naddress = \"{address}\"\n")).collect();
    std::fs::write(&file, text)
        .map_err(|e| Error::system(&file.display().to_string(), &e, "see the system's message"))?;
    Ok(file)
}
