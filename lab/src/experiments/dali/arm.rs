//! The engines that are compared, each as one row: its name, its settings, and how a program opens it. Another engine is another row.

use super::bare::Bare;
use super::walker::Program;
use crate::error::{Error, Result};
use crate::lab::{Feature, Lab, Size};
use crate::part::NodeSettings;
use crate::topology::Topology;
use engines::Engine;
use engines::native::Native;
use qos::Class;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use thalweg::Node;

/// An engine of the comparison, with its settings.
pub(super) struct Arm {
    /// As cells and tables have it.
    pub name: &'static str,
    /// What it stands for.
    pub role: Role,
    /// Scheduling of its threads.
    pub threads: Threads,
    /// Class of its topics: mark and, where the engine has one, priority.
    pub class: Class,
    /// Its settings, for people.
    pub settings: &'static str,
    open: fn(&Seat) -> Result<Opened>,
}

/// What an arm stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The least that any engine takes. It promises nothing.
    Baseline,
    /// Thalweg as a plan has it: what is judged.
    Planned,
    /// Thalweg as it is without a plan.
    Unplanned,
    /// What Thalweg is compared with.
    Engine,
}

impl Role {
    /// Whether samples that it loses are a failure, and from which size of a run on. Beside a transfer that fills the line those of Thalweg as
    /// planned alone: an unmarked stream waits there for as long as TCP has it wait, and what others do then is their matter. A gate judges us.
    pub(super) fn keeps_all(self, beside_file: bool) -> Option<Size> {
        match self {
            Role::Baseline => None,
            Role::Planned => Some(Size::Ci),
            Role::Unplanned | Role::Engine => (!beside_file).then_some(Size::Quick),
        }
    }
}

/// Scheduling of a program's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Threads {
    /// The ordinary one.
    Ordinary,
    /// Of the publishing thread and of each channel's receiving thread, as planned.
    Planned,
    /// SCHED_FIFO 30 of all, as the paper has one priority for all (§IV).
    Equal,
}

/// The arms, in the order of tables.
pub(super) const ARMS: &[Arm] = &[
    Arm {
        name: "bare sockets",
        role: Role::Baseline,
        threads: Threads::Equal,
        class: Class::High,
        settings: "a datagram to each subscriber, a thread for each subscriber; no mark, nothing is repeated",
        open: bare,
    },
    Arm {
        name: "thalweg",
        role: Role::Planned,
        threads: Threads::Planned,
        class: Class::High,
        settings: "carriers as it chooses them: shm on one board, tcp between two; class high; threads as planned",
        open: thalweg,
    },
    Arm {
        name: "thalweg, no priorities",
        role: Role::Unplanned,
        threads: Threads::Ordinary,
        class: Class::Normal,
        settings: "the same without class and thread priorities",
        open: thalweg,
    },
    #[cfg(feature = "zenoh")]
    Arm {
        name: "zenoh",
        role: Role::Engine,
        threads: Threads::Equal,
        class: Class::High,
        settings: "peers, each connected with each by tcp, no router; no multicast; express (no batches); congestion control block; the link marked",
        open: foreign::zenoh,
    },
    #[cfg(feature = "zenoh")]
    Arm {
        name: "ros2",
        role: Role::Engine,
        threads: Threads::Equal,
        class: Class::High,
        settings: "ROS 2 over Zenoh as rmw_zenoh has it, keep-all; nodes connected with each other, not by a router; the link marked",
        open: foreign::ros2,
    },
    #[cfg(feature = "yarp")]
    Arm {
        name: "yarp",
        role: Role::Engine,
        threads: Threads::Equal,
        class: Class::High,
        settings: "YARP's protocol by tcp, a connection for each subscriber, each marked; the name server is one of the programs",
        open: yarp,
    },
    #[cfg(feature = "rtps")]
    Arm {
        name: "dds",
        role: Role::Engine,
        threads: Threads::Equal,
        class: Class::High,
        settings: "Cyclone DDS by udp, reliable, keep-all; others by address, no multicast; class high",
        open: dds,
    },
    #[cfg(feature = "zeromq")]
    Arm {
        name: "zeromq",
        role: Role::Engine,
        threads: Threads::Equal,
        class: Class::High,
        settings: "PUB and SUB of the system's libzmq by tcp; a publisher waits for room (ZMQ_XPUB_NODROP); a socket of class high, marked (ZMQ_TOS)",
        open: zeromq,
    },
];

/// An opened engine.
pub(super) struct Opened {
    /// Its face.
    pub engine: Box<dyn Engine>,
    /// Thalweg's node, whose channels have priorities of their own.
    pub node: Option<Node>,
    /// The class that publishers offer.
    pub offer: Class,
}

/// The place of a program in a graph, and with it the addresses of all: what its process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Seat {
    /// Name of the arm.
    pub arm: String,
    /// The whole graph.
    pub programs: Vec<Program>,
    /// The program's number in it.
    pub own: usize,
    /// The first of [`PORTS`] ports of the graph.
    pub port: u16,
    /// The node, if there is one.
    pub node: NodeSettings,
    /// Scheduling of its threads.
    pub threads: Threads,
    /// Class of its topics.
    pub class: Class,
}

/// Ports that a graph takes of each host: one of each program, those of nodes, one of each subscriber, and of ZeroMQ one for each class of each program.
pub(super) const PORTS: u16 = 96;
const NODES: u16 = 16;
const SOCKETS: u16 = 32;
#[cfg(feature = "zeromq")]
const CLASSES: u16 = 64;

impl Arm {
    /// The seats of a graph's programs, whose ports begin with this one.
    ///
    /// # Errors
    /// The file of addresses cannot be written.
    pub(super) fn seats(&self, lab: &Lab, programs: &[Program], port: u16) -> Result<Vec<Seat>> {
        let ours = matches!(self.role, Role::Planned | Role::Unplanned);
        let without = lab.options.without.filter(|_| ours);
        let class = if without == Some(Feature::Marks) { Class::Normal } else { self.class };
        let threads = if without == Some(Feature::Threads) { Threads::Ordinary } else { self.threads };
        let seat = |own: usize, node: NodeSettings| Seat {
            arm: self.name.to_owned(),
            programs: programs.to_vec(),
            own,
            port,
            node,
            threads,
            class,
        };
        let first = seat(0, NodeSettings::default());
        let all: Vec<SocketAddr> =
            (0..programs.len()).map(|n| SocketAddr::new(first.address(n), port + NODES + n as u16)).collect();
        let node = |n: usize| NodeSettings::at(lab, &programs[n].name, &format!("dali-{port}"), all[n], &all);
        (0..programs.len()).map(|n| Ok(seat(n, node(n)?))).collect()
    }
}

impl Seat {
    /// The program.
    pub(super) fn program(&self) -> &Program {
        &self.programs[self.own]
    }

    /// The address of a program's host.
    pub(super) fn address(&self, program: usize) -> IpAddr {
        Topology::address_of(self.programs[program].host)
    }

    /// A socket of each subscriber of the graph: the program's number, the topic, the address.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (usize, &str, SocketAddr)> {
        let inputs = self.programs.iter().enumerate();
        let inputs = inputs.flat_map(|(n, program)| program.inputs.iter().map(move |input| (n, &input.topic[..])));
        inputs.zip(self.port + SOCKETS..).map(|((n, topic), port)| (n, topic, SocketAddr::new(self.address(n), port)))
    }

    /// Opens its engine.
    ///
    /// # Errors
    /// The engine's; [`Error::Usage`] for an arm that this program does not have.
    pub(super) fn open(&self) -> Result<Opened> {
        let arm = ARMS.iter().find(|arm| arm.name == self.arm);
        let arm = arm.ok_or_else(|| Error::Usage(format!("no engine {:?} in this build", self.arm)))?;
        (arm.open)(self)
    }
}

/// An engine's error is a failure of the experiment.
pub(super) fn failed(error: engines::Error) -> Error {
    Error::Failed(error.to_string())
}

fn bare(seat: &Seat) -> Result<Opened> {
    Ok(Opened { engine: Box::new(Bare::new(seat)), node: None, offer: Class::Normal })
}

fn thalweg(seat: &Seat) -> Result<Opened> {
    let node = seat.node.open()?;
    Ok(Opened { engine: Box::new(Native::new(node.clone())), node: Some(node), offer: seat.class })
}

/// The first program is the name server; the others wait for it. Each takes the ports of all others for topics.
#[cfg(feature = "yarp")]
fn yarp(seat: &Seat) -> Result<Opened> {
    use engines::yarp::{Settings, Yarp};
    let prefix = |n: usize| format!("/{}", seat.programs[n].name.trim_matches('/'));
    let from = (0..seat.programs.len()).filter(|n| *n != seat.own).map(prefix).collect();
    let server = SocketAddr::new(seat.address(0), seat.port);
    let serve = (seat.own == 0).then_some(server);
    // Without an address of its own stated, a program asks the server for it first, which tells whether that is there.
    let settings =
        Settings { server: server.to_string(), serve, prefix: prefix(seat.own), from, ..Settings::default() };
    let engine = patiently(|| Yarp::open(settings.clone(), None))?;
    Ok(Opened { engine: Box::new(engine), node: None, offer: seat.class })
}

/// Tries again while a program that this one needs is not there yet.
#[cfg(feature = "yarp")]
fn patiently<E>(open: impl Fn() -> engines::Result<E>) -> Result<E> {
    const TRIES: usize = 100;
    let between = std::time::Duration::from_millis(50);
    for _ in 1..TRIES {
        match open() {
            Err(engines::Error::Engine(_)) => std::thread::sleep(between),
            other => return other.map_err(failed),
        }
    }
    open().map_err(failed)
}

/// All programs of a graph are in a domain of their own.
#[cfg(feature = "rtps")]
fn dds(seat: &Seat) -> Result<Opened> {
    use engines::dds::{Dds, Settings};
    let mut peers: Vec<IpAddr> = (0..seat.programs.len()).map(|n| seat.address(n)).collect();
    peers.sort_unstable();
    peers.dedup();
    let settings = Settings {
        domain: u32::from(seat.port / PORTS) % 200,
        interfaces: vec![seat.address(seat.own)],
        peers,
        multicast: false,
        ..Settings::default()
    };
    Ok(Opened { engine: Box::new(Dds::open(settings, None).map_err(failed)?), node: None, offer: seat.class })
}

/// Every program binds, and connects to the others that publish: to their sockets of its class.
#[cfg(feature = "zeromq")]
fn zeromq(seat: &Seat) -> Result<Opened> {
    use engines::zeromq::{Settings, ZeroMq, class_endpoint};
    let endpoint = |n: usize| format!("tcp://{}:{}", seat.address(n), seat.port + CLASSES + 4 * n as u16);
    let publishes = |n: &usize| *n != seat.own && seat.programs[*n].output.is_some();
    let of_class = |n: usize| class_endpoint(&endpoint(n), seat.class).map_err(failed);
    let connect = (0..seat.programs.len()).filter(publishes).map(of_class).collect::<Result<_>>()?;
    let settings = Settings { bind: vec![endpoint(seat.own)], connect, ..Settings::default() };
    Ok(Opened { engine: Box::new(ZeroMq::open(&settings).map_err(failed)?), node: None, offer: seat.class })
}

/// Engines of others.
#[cfg(feature = "zenoh")]
mod foreign {
    use super::{Opened, Result, Seat, failed};
    use crate::experiments::dali::sample;
    use engines::{Engine, ros2, zenoh};
    use qos::Class;
    use std::sync::Arc;

    pub(super) fn zenoh(seat: &Seat) -> Result<Opened> {
        let [listen, connect] = endpoints(seat);
        let settings = zenoh::Settings { connect, listen, ..zenoh::Settings::default() };
        opened(Box::new(zenoh::Zenoh::open(settings, None).map_err(failed)?))
    }

    pub(super) fn ros2(seat: &Seat) -> Result<Opened> {
        let [listen, connect] = endpoints(seat);
        let known = sample::description()?;
        let describe: ros2::Describe = Arc::new(move |name| (name == sample::TYPE).then(|| known.clone()));
        let node = seat.program().name.clone();
        let settings = ros2::Settings { connect, listen, node, describe, ..ros2::Settings::default() };
        opened(Box::new(ros2::Ros2::open(settings, None).map_err(failed)?))
    }

    /// Of the sessions of these engines, one for each class, only that of class normal listens. All use this one, whose links are marked.
    fn opened(engine: Box<dyn Engine>) -> Result<Opened> {
        Ok(Opened { engine, node: None, offer: Class::Normal })
    }

    /// Where a program listens, and those before it in the graph, with which it connects: each pair has one link.
    fn endpoints(seat: &Seat) -> [Vec<String>; 2] {
        let endpoint = |n: usize| {
            let (address, port) = (seat.address(n), seat.port + n as u16);
            format!("tcp/{address}:{port}#dscp={:#04x}", seat.class.dscp() << 2)
        };
        [vec![endpoint(seat.own)], (0..seat.own).map(endpoint).collect()]
    }
}
