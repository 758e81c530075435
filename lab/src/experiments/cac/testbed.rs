//! The sessions of a rule in namespaces: three routers in a row, each of a domain, with queues by class in front of narrow lines.

use super::trace::Session;
use super::{BORDERS, KINDS, NETWORK, ROUTES, line};
use crate::error::Result;
use crate::experiments::Tally;
use crate::experiments::velox::fifo;
use crate::lab::Lab;
use crate::link::LinkReport;
use crate::part::member::{Order, Report, Settings, Stream};
use crate::part::{LONG, NodeSettings, Part, Place, processors};
use crate::prediction::changed;
use crate::stalls::{Monitor, Timed};
use crate::topology::{Edge, Graph, Queue, Topology, Wire};
use linux::queueing::Share;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// Packets that wait in each queue of a border: none is lost there.
const LIMIT: u32 = 2000;
/// Time for the last samples to arrive, also through a full queue.
const SETTLE: Duration = Duration::from_millis(1500);

/// Members at the ends of the routes.
pub(super) struct Testbed {
    /// The node of each (index into the network's nodes), and its process.
    members: Vec<(usize, Part)>,
    graph: Graph, // after the parts: they end first
}

impl Testbed {
    /// One for these sessions (each with its number).
    pub(super) fn new(lab: &Lab, sessions: &[(usize, Session)]) -> Result<Self> {
        let system = changed(NETWORK, &[])?.system;
        let host = |node: usize| node as u8 + 1;
        let rate = |(at, rate): (usize, u64)| if BORDERS.contains(&at) { line(rate) } else { rate };
        let edge = |(at, link): (usize, &qos::system::Link)| Edge {
            between: link.between.map(host),
            rate: rate((at, link.rate)),
        };
        let edges: Vec<Edge> = system.links.iter().enumerate().map(edge).collect();
        let (processor, other) = processors()?;
        let graph = Graph::new(lab, system.nodes.len() as u8, &edges, other as u16)?;
        for border in BORDERS {
            let link = &system.links[border];
            let shares = link.shares.unwrap_or([0.25; 4]);
            let share = |part: f64| Share { rate: (part * link.rate as f64) as u64, ceil: None, priority: None };
            let [Some(device), _] = &link.devices else { continue };
            let wire = Wire { rate: edges[border].rate, limit: LIMIT, queue: Queue::Htb(shares.map(share)) };
            wire.install(graph.host(host(link.between[0])), device)?;
        }
        let mut nodes: Vec<usize> = ROUTES.iter().flat_map(|(from, to)| [*from, *to]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let at = |node: usize| SocketAddr::new(Topology::address_of(host(node)), 7400);
        let all: Vec<SocketAddr> = nodes.iter().map(|node| at(*node)).collect();
        let streams = |of: &dyn Fn(&Session) -> bool| {
            let of = sessions.iter().filter(|(_, session)| of(session));
            of.map(|(number, session)| stream(*number, session)).collect::<Vec<Stream>>()
        };
        let start = |node: &usize| {
            let settings = Settings {
                node: NodeSettings::at(lab, &system.nodes[*node].name, "cac", at(*node), &all)?,
                publishes: streams(&|session| ROUTES[session.route].0 == *node),
                subscribes: streams(&|session| ROUTES[session.route].1 == *node),
                profile: None,
            };
            let place = Place::at(graph.host(host(*node)), &[processor]).first();
            Ok((*node, Part::ready(lab, place, "member", &settings)?))
        };
        let members = nodes.iter().map(start).collect::<Result<Vec<_>>>()?;
        let mut testbed = Self { members, graph };
        for (_, member) in &mut testbed.members {
            member.ask::<Value>(lab, &Order::Connected { count: 1 }, LONG)?;
            member.ask::<Value>(lab, &Order::Schedule { changes: fifo() }, LONG)?;
        }
        Ok(testbed)
    }

    /// All sessions begin together, and send for this long: a tally for each of [`KINDS`].
    pub(super) fn run(&mut self, lab: &Lab, sessions: &[(usize, Session)], time: Duration) -> Result<Vec<Tally>> {
        self.ask::<Report>(lab, &Order::Arrived)?;
        let monitor = Monitor::start()?;
        self.ask::<Value>(lab, &Order::Start { topic: None, count: None })?;
        lab.stop.sleep(time)?;
        let published = self.ask::<Report>(lab, &Order::Stop)?;
        lab.stop.sleep(SETTLE)?;
        let arrived = self.ask::<Report>(lab, &Order::Arrived)?;
        let stalls = monitor.finish();
        let mut tallies: Vec<Tally> = KINDS.iter().map(|_| Tally::default()).collect();
        for (kind, tally) in tallies.iter_mut().enumerate() {
            let of = |end: &dyn Fn(&Session) -> usize, reports: &[Report]| {
                let mut all = Vec::new();
                for ((node, _), report) in self.members.iter().zip(reports) {
                    let here = sessions.iter().filter(|(_, session)| end(session) == *node);
                    let mine = here.zip(&report.streams).filter(|((_, session), _)| session.kind == kind);
                    all.extend(mine.map(|(_, stream)| stream.clone()));
                }
                all
            };
            let sent = of(&|session| ROUTES[session.route].0, &published).iter().map(|stream| stream.count).sum();
            let came: Vec<Timed> = of(&|session| ROUTES[session.route].1, &arrived)
                .into_iter()
                .flat_map(|stream| stream.samples)
                .collect();
            tally.add(sent, &came, &stalls);
        }
        Ok(tallies)
    }

    /// Ends it, and says how its lines were.
    pub(super) fn end(mut self) -> Vec<LinkReport> {
        self.graph.end_lines()
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, lab: &Lab, order: &Order) -> Result<Vec<T>> {
        self.members.iter_mut().map(|(_, member)| member.ask(lab, order, LONG)).collect()
    }
}

fn stream(number: usize, session: &Session) -> Stream {
    let kind = &KINDS[session.kind];
    Stream {
        topic: format!("/s{number}"),
        size: kind.size,
        hz: kind.hz,
        class: kind.class,
        scale: qos::Scale::default(),
        picture: None,
        place: qos::Place::Publisher,
        carrier: "udp".into(),
        queue: qos::Queue::default(),
        sched: None,
    }
}
