//! Hosts, switches and routers as network namespaces, and the links between them.
//!
//! Hosts are numbered from 1. Between hosts, a link is a veth pair, `eth0` at a host and `p1`, `p2` … at a switch or
//! router, named after the host it leads to. Host *n* is 10.99.n.1 and fd99:n::1, in one network for all behind a switch
//! (/16), and one each behind a router (/24). Routers in a row have 10.99.254.n and fd99:254::n on `on`. No packet comes
//! from the kernel itself: no IPv6 autoconfiguration, no duplicate address detection, neighbours known from the start.
//!
//! A host's link may be a [`Line`] instead: a link in user space that takes each frame's time ([`crate::link`]). A [`Wire`] is
//! the queue in front of it. A [`Graph`] has lines only, between any of its hosts, which forward.

mod graph;
mod namespace;
mod wire;

use crate::error::{Error, Result};
use crate::iproute::ip;
use crate::lab::Lab;
use crate::link::{Behaviour, End, Link, LinkReport, StandStill};
pub use graph::{Count, Edge, Graph};
pub use namespace::Namespace;
use std::net::{IpAddr, Ipv4Addr};
pub use wire::{FULL_PACKET, Queue, SHAPED, Wire};

/// Interface of a host.
pub const DEVICE: &str = "eth0";

/// The middle of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Middle {
    /// A direct link of two hosts.
    Link,
    /// A bridge.
    Switch,
    /// A router.
    Router,
    /// Two routers in a row, one beside each of two hosts.
    Routers,
}

/// The links of these hosts are lines, one to each: from the host, and to it. The others are veth pairs, which take no time.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The host, from 1; 0: the link between two routers. With [`Middle::Link`], 1 is the link.
    pub host: u8,
    /// From the host.
    pub from: Behaviour,
    /// To the host.
    pub to: Behaviour,
    /// The processor of its threads; `None`: any.
    pub processor: Option<u16>,
}

impl Line {
    /// A wire of this rate in both directions, in bit/s.
    pub fn of(host: u8, rate: u64) -> Self {
        Self::both(host, Behaviour { rate: Some(rate), ..Behaviour::default() })
    }

    /// This behaviour in both directions.
    pub fn both(host: u8, behaviour: Behaviour) -> Self {
        Self { host, from: behaviour, to: behaviour, processor: None }
    }

    /// Its threads run on this processor.
    pub fn on(self, processor: u16) -> Self {
        Self { processor: Some(processor), ..self }
    }
}

/// Hosts and the switch or routers between them.
#[derive(Debug)]
pub struct Topology {
    lines: Vec<(u8, Link)>, // before the hosts: they end first
    hosts: Vec<Namespace>,
    between: Vec<Namespace>,
}

impl Topology {
    /// Two hosts with one link between them.
    ///
    /// # Errors
    /// As [`ip`], [`Link::start`], and [`Error::Stopped`].
    pub fn link(lab: &Lab, lines: &[Line]) -> Result<Self> {
        Self::new(lab, 2, Middle::Link, lines)
    }

    /// `count` hosts (1 … 250) around a switch.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn switch(lab: &Lab, count: u8, lines: &[Line]) -> Result<Self> {
        Self::new(lab, count, Middle::Switch, lines)
    }

    /// `count` hosts (1 … 250) around a router, a network each.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn router(lab: &Lab, count: u8, lines: &[Line]) -> Result<Self> {
        Self::new(lab, count, Middle::Router, lines)
    }

    /// Two hosts with two routers in a row between them.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn routers(lab: &Lab, lines: &[Line]) -> Result<Self> {
        Self::new(lab, 2, Middle::Routers, lines)
    }

    fn new(lab: &Lab, count: u8, middle: Middle, lines: &[Line]) -> Result<Self> {
        if !(1..=250).contains(&count) {
            return Err(Error::Usage(format!("{count} hosts: 1 to 250 are allowed")));
        }
        let hosts = (1..=count).map(|n| Namespace::new(lab, &format!("h{n}"))).collect::<Result<_>>()?;
        let between = match middle {
            Middle::Link => &[][..],
            Middle::Switch | Middle::Router => &["sw"],
            Middle::Routers => &["r1", "r2"],
        };
        let between = between.iter().map(|name| Namespace::new(lab, name)).collect::<Result<_>>()?;
        let mut topology = Self { lines: Vec::new(), hosts, between };
        let cables = Cables { lines, seed: lab.options.seed };
        topology.connect(middle, &cables)?;
        (1..=count).try_for_each(|host| topology.address(host, middle))?;
        topology.introduce()?;
        if middle == Middle::Routers {
            topology.chain(&cables)?;
        }
        Ok(topology)
    }

    /// Changes the lines of these hosts, for frames that come in from now on.
    pub fn change(&self, host: u8, change: impl Fn(&mut Behaviour)) {
        self.lines.iter().filter(|(at, _)| *at == host).for_each(|(_, link)| link.change(&change));
    }

    /// Changes the lines of these hosts in the direction to them, for frames that come in from now on.
    pub fn change_to(&self, host: u8, change: impl Fn(&mut Behaviour)) {
        self.lines.iter().filter(|(at, _)| *at == host).for_each(|(_, link)| link.change_back(&change));
    }

    /// Each time that a line stood still so far.
    pub fn stood_still(&self) -> Vec<StandStill> {
        self.lines.iter().flat_map(|(_, link)| link.stood_still()).collect()
    }

    /// Frames that found the queue of a line full so far.
    pub fn overflowed(&self) -> u64 {
        self.lines.iter().map(|(_, link)| link.overflowed()).sum()
    }

    /// Ends the lines, and says how they were: from each host and to it.
    pub fn end_lines(&mut self) -> Vec<LinkReport> {
        self.lines.drain(..).flat_map(|(_, link)| link.finish()).collect()
    }

    /// Host `n`, counted from 1.
    pub fn host(&self, n: u8) -> &Namespace {
        &self.hosts[usize::from(n) - 1]
    }

    /// The switch or router.
    ///
    /// # Errors
    /// [`Error::Usage`] where two hosts are linked without one.
    pub fn middle(&self) -> Result<&Namespace> {
        self.beside(1)
    }

    /// The switch or router next to host `n`.
    ///
    /// # Errors
    /// As [`Topology::middle`].
    pub fn beside(&self, n: u8) -> Result<&Namespace> {
        let beside = self.between.get(usize::from(n) - 1).or(self.between.first());
        beside.ok_or_else(|| Error::Usage("there is nothing between these hosts".into()))
    }

    /// The interface of the switch or router that leads to host `n`.
    pub fn leads_to(n: u8) -> String {
        format!("p{n}")
    }

    /// The address of host `n`.
    pub fn address_of(n: u8) -> IpAddr {
        Ipv4Addr::new(10, 99, n, 1).into()
    }

    /// Makes the switch ask for the wanted groups at each port, and send them only there, from a second later on. (As built, it
    /// sends all groups everywhere, and no packets of its own.)
    ///
    /// # Errors
    /// As [`ip`].
    pub fn ask_for_groups(&self) -> Result {
        // In hundredths of a second: every two seconds, answered within one; a report that was lost is soon made up for.
        let asks = ["mcast_igmp_version", "3", "mcast_query_interval", "200", "mcast_query_response_interval", "100"];
        let begins = ["mcast_startup_query_interval", "50", "mcast_querier", "1", "mcast_snooping", "1"];
        // A bridge that begins to ask floods groups for its interval of responses at that time: 10 s, were it not set before.
        let set =
            |what: &[&str]| self.middle()?.ip(&[&["link", "set", BRIDGE, "type", "bridge"], what].concat()).map(drop);
        set(&asks).and_then(|()| set(&begins))
    }

    fn numbers(&self) -> impl Iterator<Item = u8> {
        (1..=u8::MAX).take(self.hosts.len())
    }

    fn connect(&mut self, middle: Middle, cables: &Cables<'_>) -> Result {
        let Ok(first) = self.middle() else {
            let (one, other) = (self.host(1), self.host(2));
            let line = cables.lay(1, (one, DEVICE), (other, DEVICE))?;
            up(one, DEVICE).and_then(|()| up(other, DEVICE))?;
            self.lines.extend(line);
            return Ok(());
        };
        if middle == Middle::Switch {
            first.ip(&["link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"])?;
            up(first, BRIDGE)?;
        } else {
            for router in &self.between {
                router.set("net/ipv4/ip_forward", "1");
                router.set("net/ipv6/conf/all/forwarding", "1");
            }
        }
        let mut lines = Vec::new();
        for n in self.numbers() {
            let (between, port) = (self.beside(n)?, Self::leads_to(n));
            lines.extend(cables.lay(n, (self.host(n), DEVICE), (between, &port))?);
            if middle == Middle::Switch {
                between.ip(&["link", "set", &port, "master", "br0"])?;
            }
            up(self.host(n), DEVICE).and_then(|()| up(between, &port))?;
        }
        self.lines.append(&mut lines);
        Ok(())
    }

    fn address(&self, n: u8, middle: Middle) -> Result {
        let host = self.host(n);
        let routed = matches!(middle, Middle::Router | Middle::Routers);
        let bits = if routed { 24 } else { 16 };
        host.ip(&["address", "add", &format!("10.99.{n}.1/{bits}"), "dev", DEVICE])?;
        let bits = if routed { 64 } else { 16 };
        host.ip(&["-6", "address", "add", &format!("fd99:{n}::1/{bits}"), "dev", DEVICE, "nodad"])?;
        if routed {
            let (router, port) = (self.beside(n)?, Self::leads_to(n));
            router.ip(&["address", "add", &format!("10.99.{n}.254/24"), "dev", &port])?;
            router.ip(&["-6", "address", "add", &format!("fd99:{n}::254/64"), "dev", &port, "nodad"])?;
            host.ip(&["route", "add", "default", "via", &format!("10.99.{n}.254")])?;
            host.ip(&["-6", "route", "add", "default", "via", &format!("fd99:{n}::254")])?;
        }
        Ok(())
    }

    /// Neighbours know each other from the start: no ARP request waits behind the load, or is lost in it.
    fn introduce(&self) -> Result {
        if !self.is_routed()? {
            for (n, m) in self.numbers().flat_map(|n| self.numbers().map(move |m| (n, m))).filter(|(n, m)| n != m) {
                let hardware = hardware(self.host(m), DEVICE)?;
                meet(self.host(n), DEVICE, &[format!("10.99.{m}.1"), format!("fd99:{m}::1")], &hardware)?;
            }
            return Ok(());
        }
        for n in self.numbers() {
            let (between, port) = (self.beside(n)?, Self::leads_to(n));
            let (host, router) = (hardware(self.host(n), DEVICE)?, hardware(between, &port)?);
            meet(self.host(n), DEVICE, &[format!("10.99.{n}.254"), format!("fd99:{n}::254")], &router)?;
            meet(between, &port, &[format!("10.99.{n}.1"), format!("fd99:{n}::1")], &host)?;
        }
        Ok(())
    }

    /// The link between two routers, and the ways over it.
    fn chain(&mut self, cables: &Cables<'_>) -> Result {
        let routers = [self.beside(1)?, self.beside(2)?];
        let line = cables.lay(0, (routers[0], ONWARD), (routers[1], ONWARD))?;
        routers.iter().try_for_each(|router| up(router, ONWARD))?;
        for (own, far) in [(1, 2), (2, 1)] {
            let (router, next) = (routers[own - 1], routers[far - 1]);
            router.ip(&["address", "add", &format!("10.99.254.{own}/24"), "dev", ONWARD])?;
            router.ip(&["-6", "address", "add", &format!("fd99:254::{own}/64"), "dev", ONWARD, "nodad"])?;
            router.ip(&["route", "add", &format!("10.99.{far}.0/24"), "via", &format!("10.99.254.{far}")])?;
            router.ip(&["-6", "route", "add", &format!("fd99:{far}::/64"), "via", &format!("fd99:254::{far}")])?;
            let addresses = [format!("10.99.254.{far}"), format!("fd99:254::{far}")];
            meet(router, ONWARD, &addresses, &hardware(next, ONWARD)?)?;
        }
        self.lines.extend(line);
        Ok(())
    }

    fn is_routed(&self) -> Result<bool> {
        Ok(self.host(1).ip(&["route", "show", "default"])?.contains("default"))
    }
}

/// Lays the links of a topology.
struct Cables<'a> {
    lines: &'a [Line],
    seed: u64,
}

impl Cables<'_> {
    /// The link of this host, from one device to the other. Packets leave one by one, as on a wire: a card's segmentation would
    /// put up to 64 KiB in front of others.
    fn lay(
        &self,
        host: u8,
        (one, device): (&Namespace, &str),
        (other, peer): (&Namespace, &str),
    ) -> Result<Option<(u8, Link)>> {
        let Some(line) = self.lines.iter().find(|line| line.host == host) else {
            let end = ["netns", other.name(), "gso_max_segs", "1"];
            let pair =
                ["link", "add", device, "netns", one.name(), "gso_max_segs", "1", "type", "veth", "peer", "name", peer];
            return ip(&[&pair[..], &end[..]].concat()).map(|_| None);
        };
        let link = start([(one, device), (other, peer)], line, self.seed ^ u64::from(host))?;
        Ok(Some((host, link)))
    }
}

/// Starts a line between two devices, which it makes.
fn start(ends: [(&Namespace, &str); 2], line: &Line, seed: u64) -> Result<Link> {
    let [one, other] = ends.map(|(at, device)| End { namespace: at.name().into(), device: device.into() });
    let link = Link::start([&one, &other], [line.from, line.to], line.processor, seed)
        .map_err(|e| Error::system("a link in user space", &e, "run it as root, where there is /dev/net/tun"))?;
    for (at, device) in ends {
        at.ip(&["link", "set", device, "gso_max_segs", "1"])?;
    }
    Ok(link)
}

fn up(namespace: &Namespace, device: &str) -> Result {
    namespace.ip(&["link", "set", device, "up"]).map(drop)
}

fn hardware(namespace: &Namespace, device: &str) -> Result<String> {
    let shown = namespace.ip(&["-brief", "link", "show", "dev", device])?;
    let found = shown.split_whitespace().nth(2).map(str::to_owned);
    found.ok_or_else(|| Error::System(format!("ip shows no hardware address of {device}: {shown:?}; update iproute2")))
}

fn meet(namespace: &Namespace, device: &str, addresses: &[String], hardware: &str) -> Result {
    addresses.iter().try_for_each(|address| {
        let entry = ["neighbor", "replace", address, "lladdr", hardware, "nud", "permanent", "dev", device];
        namespace.ip(&entry).map(drop)
    })
}

/// The bridge that joins the ports of a switch.
const BRIDGE: &str = "br0";
/// Interface of a router that leads to another one.
const ONWARD: &str = "on";
