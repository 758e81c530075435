//! Any graph of hosts, each of which forwards, with a line along each edge.
//!
//! Host *n* has the one address 10.99.n.1, and the device `to`*m* for the line to host *m*. Every other host is reached on the
//! shortest way, and neighbours are known from the start: no packet comes from the kernel itself.

use super::{Line, Namespace, Topology, meet, start, up};
use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::link::{Behaviour, Link, LinkReport};
use serde_json::Value;
use std::collections::VecDeque;

/// An edge: a line between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The hosts, from 1.
    pub between: [u8; 2],
    /// Its rate in bit/s, either way.
    pub rate: u64,
}

/// What one direction of an edge was given so far. Bytes are those of frames, Ethernet header included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Bytes that the host's interface sent.
    pub sent: u64,
    /// Bytes of UDP datagrams among them, by the line.
    pub bytes: u64,
    /// Their number.
    pub datagrams: u64,
}

/// Hosts and the lines between them.
#[derive(Debug)]
pub struct Graph {
    lines: Vec<Link>, // before the hosts: they end first
    hosts: Vec<Namespace>,
    edges: Vec<Edge>,
}

impl Graph {
    /// `count` hosts (1 … 250) with these edges; the threads of the lines run on `processor`.
    ///
    /// # Errors
    /// [`Error::Usage`] where a host is not reached by every other one; as [`Topology::link`].
    pub fn new(lab: &Lab, count: u8, edges: &[Edge], processor: u16) -> Result<Self> {
        let next = next_hops(count, edges)?;
        let hosts = (1..=count).map(|n| Namespace::new(lab, &format!("h{n}"))).collect::<Result<_>>()?;
        let mut graph = Self { lines: Vec::new(), hosts, edges: edges.to_vec() };
        for edge in edges {
            graph.lay(*edge, processor, lab.options.seed)?;
        }
        (1..=count).try_for_each(|host| graph.route(host, &next))?;
        Ok(graph)
    }

    /// Host `n`, counted from 1.
    pub fn host(&self, n: u8) -> &Namespace {
        &self.hosts[usize::from(n) - 1]
    }

    /// The edges, in the order in which they were given.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Changes all lines, for frames that come in from now on.
    pub fn change(&self, change: impl Fn(&mut Behaviour)) {
        self.lines.iter().for_each(|line| line.change(&change));
    }

    /// What each edge was given, from its first host and from its second one.
    ///
    /// # Errors
    /// As [`crate::iproute::ip`].
    pub fn counts(&self) -> Result<Vec<[Count; 2]>> {
        let read = |host: &Namespace| host.ip(&["-statistics", "-json", "link", "show"]);
        let shown = self.hosts.iter().map(read).collect::<Result<Vec<_>>>()?;
        let of = |from: u8, to: u8, (datagrams, bytes): (u64, u64)| -> Result<Count> {
            let found = serde_json::from_str(&shown[usize::from(from) - 1]).ok();
            let missing = || Error::System(format!("ip shows no counters of {}; update iproute2", device(to)));
            let sent = found.and_then(|shown| sent(&shown, &device(to))).ok_or_else(missing)?;
            Ok(Count { sent, bytes, datagrams })
        };
        let each = |(Edge { between: [a, b], .. }, line): (&Edge, &Link)| {
            let found = line.datagrams();
            Ok([of(*a, *b, found[0])?, of(*b, *a, found[1])?])
        };
        self.edges.iter().zip(&self.lines).map(each).collect()
    }

    /// Ends the lines, and says how they were.
    pub fn end_lines(&mut self) -> Vec<LinkReport> {
        self.lines.drain(..).flat_map(Link::finish).collect()
    }

    fn lay(&mut self, edge: Edge, processor: u16, seed: u64) -> Result {
        let [a, b] = edge.between;
        let [to_a, to_b] = [device(a), device(b)];
        let line = Line::of(a, edge.rate).on(processor);
        let link = start([(self.host(a), &to_b), (self.host(b), &to_a)], &line, seed ^ self.lines.len() as u64)?;
        up(self.host(a), &to_b).and_then(|()| up(self.host(b), &to_a))?;
        self.lines.push(link);
        let ends = [(a, &to_b, b, &to_a), (b, &to_a, a, &to_b)];
        ends.into_iter().try_for_each(|(at, to, other, back)| {
            let hardware = super::hardware(self.host(other), back)?;
            meet(self.host(at), to, &[address(other)], &hardware)
        })
    }

    /// Gives the host its address, and its ways to all others.
    fn route(&self, host: u8, next: &[Vec<u8>]) -> Result {
        let (at, own) = (self.host(host), address(host));
        at.ip(&["address", "add", &format!("{own}/32"), "dev", "lo"])?;
        at.set("net/ipv4/ip_forward", "1");
        for (other, via) in (1..).zip(&next[usize::from(host) - 1]).filter(|(other, _)| *other != host) {
            let (to, via) = (device(*via), address(*via));
            let way: &[&str] = if address(other) == via { &[] } else { &["via", &via, "onlink"] };
            let destination = format!("{}/32", address(other));
            at.ip(&[&["route", "add", &destination], way, &["dev", &to, "src", &own]].concat())?;
        }
        Ok(())
    }
}

/// The device that leads to host `n`.
fn device(n: u8) -> String {
    format!("to{n}")
}

fn address(n: u8) -> String {
    Topology::address_of(n).to_string()
}

/// Bytes that a device sent.
fn sent(shown: &Value, device: &str) -> Option<u64> {
    shown.as_array()?.iter().find(|shown| shown["ifname"] == device)?["stats64"]["tx"]["bytes"].as_u64()
}

/// For each host, the next one on the shortest way to each; of equally short ways, the one by the first edge.
fn next_hops(count: u8, edges: &[Edge]) -> Result<Vec<Vec<u8>>> {
    let known = |n: u8| (1..=count).contains(&n);
    if let Some(wrong) = edges.iter().find(|edge| !edge.between.into_iter().all(known)) {
        return Err(Error::Usage(format!("edge {:?}: hosts are 1 to {count}", wrong.between)));
    }
    let mut next = vec![vec![0; usize::from(count)]; usize::from(count)];
    for to in 1..=count {
        let mut reached = VecDeque::from([to]);
        while let Some(at) = reached.pop_front() {
            let ways = edges.iter().filter_map(|Edge { between: [a, b], .. }| match (*a == at, *b == at) {
                (true, _) => Some(*b),
                (_, true) => Some(*a),
                _ => None,
            });
            for other in ways.filter(|other| *other != to) {
                let found = &mut next[usize::from(other) - 1][usize::from(to) - 1];
                if *found == 0 {
                    *found = at;
                    reached.push_back(other);
                }
            }
        }
        if let Some(alone) = (1..=count).find(|n| *n != to && next[usize::from(*n) - 1][usize::from(to) - 1] == 0) {
            return Err(Error::Usage(format!("no way leads from host {alone} to host {to}; add an edge")));
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(of: &[[u8; 2]]) -> Vec<Edge> {
        of.iter().map(|between| Edge { between: *between, rate: 1 }).collect()
    }

    #[test]
    fn ways_are_the_shortest() {
        // A ring of five with a tail: 6 behind 3.
        let next = next_hops(6, &edges(&[[1, 2], [2, 3], [3, 4], [4, 5], [5, 1], [3, 6]])).unwrap();
        assert_eq!(next[0], [0, 2, 2, 5, 5, 2]);
        assert_eq!(next[5], [3, 3, 3, 3, 3, 0]);
    }

    #[test]
    fn hosts_without_a_way_are_refused() {
        for wrong in [edges(&[[1, 2]]), edges(&[[1, 2], [3, 4]]), edges(&[[1, 2], [2, 7]])] {
            assert!(matches!(next_hops(3, &wrong), Err(Error::Usage(_))));
        }
    }
}
