//! A plan at the borders of its domain: ends of tunnels, and the packets that may come in from neighbours.

use crate::Class;
#[cfg(feature = "placement")]
use crate::contract::{Contract, pipe::Neighbour};
use crate::system::TunnelKind;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An end of a tunnel whose packets have their mark on the outside, too: the node's agent makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The node.
    pub node: String,
    /// Its encapsulation.
    #[serde(default)]
    pub kind: TunnelKind,
    /// The device that it is, or by which its packets leave ([`TunnelKind::has_device`]).
    pub device: String,
    /// Its number.
    pub id: u32,
    /// The UDP port of its packets (VXLAN).
    pub port: u16,
    /// The address of this end.
    pub local: IpAddr,
    /// The address of the other.
    pub remote: IpAddr,
    /// The largest packet in it, bytes.
    pub mtu: u32,
    /// The own address inside, and the length of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<(IpAddr, u8)>,
}

/// A border: packets that come in by this device in a reserved class, and belong to no session, are put into another class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Border {
    /// The node.
    pub node: String,
    /// The device.
    pub device: String,
    /// The domain behind it.
    pub neighbour: String,
    /// The reserved classes.
    pub classes: Vec<Class>,
    /// The class that the others get.
    pub instead: Class,
}

/// What a session may send from one host to another in one class, where it comes in from a neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// The session, with the domain that asked for it. Several of one name are versions of it, which carry the same samples.
    #[serde(default)]
    pub session: String,
    /// The domain that it comes from.
    pub neighbour: String,
    /// Its class.
    pub class: Class,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// What it may send at most; `None`: the plan is of a broker that states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// What comes in of a session at most: two token buckets, of bytes from the IP header on, and of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Bits per second.
    pub rate_bits_per_s: u64,
    /// Bytes at once.
    pub burst_bytes: u64,
    /// Packets per hour.
    pub packets_per_hour: u64,
    /// Packets at once.
    pub packets: u64,
    /// The largest packet, bytes. What is larger, because a network card has put packets together, counts as several.
    pub packet_bytes: u64,
}

impl Limit {
    /// Both together.
    pub fn with(self, other: Self) -> Self {
        Self {
            rate_bits_per_s: self.rate_bits_per_s.saturating_add(other.rate_bits_per_s),
            burst_bytes: self.burst_bytes.saturating_add(other.burst_bytes),
            packets_per_hour: self.packets_per_hour.saturating_add(other.packets_per_hour),
            packets: self.packets.saturating_add(other.packets),
            packet_bytes: self.packet_bytes.max(other.packet_bytes),
        }
    }

    /// The larger one, part by part.
    pub fn max(self, other: Self) -> Self {
        Self {
            rate_bits_per_s: self.rate_bits_per_s.max(other.rate_bits_per_s),
            burst_bytes: self.burst_bytes.max(other.burst_bytes),
            packets_per_hour: self.packets_per_hour.max(other.packets_per_hour),
            packets: self.packets.max(other.packets),
            packet_bytes: self.packet_bytes.max(other.packet_bytes),
        }
    }
}

/// The ends of the tunnels that a contract's domain has to make.
#[cfg(feature = "placement")]
pub(super) fn tunnels(contract: &Contract) -> Vec<TunnelEnd> {
    let nodes = &contract.system.nodes;
    let links = contract.system.links.iter().flat_map(|link| {
        let ends = move |tunnel: &crate::system::Tunnel| {
            let end = |at: usize| {
                Some(TunnelEnd {
                    node: nodes[link.between[at]].name.clone(),
                    kind: tunnel.kind,
                    device: link.devices[at].clone()?,
                    id: tunnel.id,
                    port: tunnel.port,
                    local: tunnel.ends[at],
                    remote: tunnel.ends[1 - at],
                    mtu: link.mtu as u32,
                    inside: tunnel.inside[at],
                })
            };
            [end(0), end(1)]
        };
        link.tunnel.as_ref().map(ends).into_iter().flatten().flatten()
    });
    let own = contract.neighbours.iter().filter_map(|neighbour| {
        let end = neighbour.tunnel.as_ref()?;
        Some(TunnelEnd {
            node: nodes[neighbour.via].name.clone(),
            kind: end.kind,
            device: neighbour.device.clone()?,
            id: end.id,
            port: end.port,
            local: end.local,
            remote: end.remote,
            mtu: end.mtu as u32,
            inside: end.inside,
        })
    });
    links.chain(own).collect()
}

/// The borders at which a contract's domain looks at what comes in.
#[cfg(feature = "placement")]
pub(super) fn borders(contract: &Contract) -> Vec<Border> {
    let border = |neighbour: &Neighbour| {
        let (classes, instead) = neighbour.reserved(&contract.pipes);
        Some(Border {
            node: contract.system.nodes[neighbour.via].name.clone(),
            device: neighbour.device.clone()?,
            neighbour: neighbour.domain.clone(),
            classes,
            instead: instead?,
        })
    };
    contract.neighbours.iter().filter_map(border).collect()
}
