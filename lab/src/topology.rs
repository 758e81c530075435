//! Hosts, switches and routers as network namespaces, and the links between them.
//!
//! Hosts are numbered from 1. Between hosts, a link is a veth pair, `eth0` at a host and `p1`, `p2` … at a switch or
//! router, named after the host it leads to. Host *n* is 10.99.n.1 and fd99:n::1, in one network for all behind a switch
//! (/16), and one each behind a router (/24). Routers in a row have 10.99.254.n and fd99:254::n on `on`. No packet comes
//! from the kernel itself: no IPv6 autoconfiguration, no duplicate address detection, neighbours known from the start.
//!
//! A [`Wire`] is a link with one rate, one packet at a time, and a queue in front of it. A token bucket with room for two
//! packets is the wire; the queue is its child, so that the first packet of the queue waits at most for the packet that is
//! being sent and the one that the token bucket holds ready ([`linux::queueing::Wanted`]).

use crate::error::{Error, Result};
use crate::iproute::{ip, tc};
use crate::lab::Lab;
use linux::queueing::{Scheduler, Share, Wanted};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

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

/// Hosts and the switch or routers between them.
#[derive(Debug)]
pub struct Topology {
    hosts: Vec<Namespace>,
    between: Vec<Namespace>,
}

impl Topology {
    /// Two hosts with one link between them.
    ///
    /// # Errors
    /// As [`ip`], and [`Error::Stopped`].
    pub fn link(lab: &Lab) -> Result<Self> {
        Self::new(lab, 2, Middle::Link)
    }

    /// `count` hosts (1 … 250) around a switch.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn switch(lab: &Lab, count: u8) -> Result<Self> {
        Self::new(lab, count, Middle::Switch)
    }

    /// `count` hosts (1 … 250) around a router, a network each.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn router(lab: &Lab, count: u8) -> Result<Self> {
        Self::new(lab, count, Middle::Router)
    }

    /// Two hosts with two routers in a row between them.
    ///
    /// # Errors
    /// As [`Topology::link`].
    pub fn routers(lab: &Lab) -> Result<Self> {
        Self::new(lab, 2, Middle::Routers)
    }

    fn new(lab: &Lab, count: u8, middle: Middle) -> Result<Self> {
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
        let topology = Self { hosts, between };
        topology.connect(middle)?;
        (1..=count).try_for_each(|host| topology.address(host, middle))?;
        topology.introduce()?;
        if middle == Middle::Routers {
            topology.chain()?;
        }
        Ok(topology)
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
        self.middle()?.ip(&[&["link", "set", BRIDGE, "type", "bridge"], &asks[..], &begins[..]].concat()).map(drop)
    }

    fn numbers(&self) -> impl Iterator<Item = u8> {
        (1..=u8::MAX).take(self.hosts.len())
    }

    fn connect(&self, middle: Middle) -> Result {
        let Ok(first) = self.middle() else {
            let (one, other) = (self.host(1), self.host(2));
            pair(one, DEVICE, other, DEVICE)?;
            return up(one, DEVICE).and_then(|()| up(other, DEVICE));
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
        for n in self.numbers() {
            let (between, port) = (self.beside(n)?, Self::leads_to(n));
            pair(self.host(n), DEVICE, between, &port)?;
            if middle == Middle::Switch {
                between.ip(&["link", "set", &port, "master", "br0"])?;
            }
            up(self.host(n), DEVICE).and_then(|()| up(between, &port))?;
        }
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
    fn chain(&self) -> Result {
        let routers = [self.beside(1)?, self.beside(2)?];
        pair(routers[0], ONWARD, routers[1], ONWARD)?;
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
        Ok(())
    }

    fn is_routed(&self) -> Result<bool> {
        Ok(self.host(1).ip(&["route", "show", "default"])?.contains("default"))
    }
}

/// A veth pair. Packets leave one by one, as on a wire: a card's segmentation would put up to 64 KiB in front of others.
fn pair(one: &Namespace, device: &str, other: &Namespace, peer: &str) -> Result {
    let end = ["netns", other.name(), "gso_max_segs", "1"];
    let pair = ["link", "add", device, "netns", one.name(), "gso_max_segs", "1", "type", "veth", "peer", "name", peer];
    ip(&[&pair[..], &end[..]].concat()).map(drop)
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

/// A network namespace. Removed when dropped, with everything in it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    journals: PathBuf,
}

impl Namespace {
    /// Makes one with a loopback interface.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn new(lab: &Lab, what: &str) -> Result<Self> {
        lab.stop.check()?;
        let name = lab.name(what);
        ip(&["netns", "add", &name])?;
        let namespace = Self { name, journals: lab.folder().join("queues") };
        for setting in ["all/accept_ra", "default/accept_ra", "default/accept_dad", "default/router_solicitations"] {
            namespace.set(&format!("net/ipv6/conf/{setting}"), "0");
        }
        // The same everywhere: the default of a host's streams depends on its distribution. BBR, for one, holds a small
        // channel back to four packets in flight every ten seconds, which is not to be measured here. Reno is in
        // every kernel, and allowed in every namespace.
        namespace.set("net/ipv4/tcp_congestion_control", "reno");
        // The kernel's own multicast noise: addresses made from the hardware's are not needed.
        namespace.set("net/ipv6/conf/default/addr_gen_mode", "1");
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the journals of installed queues.
    pub(crate) fn journals(&self) -> &Path {
        &self.journals
    }

    /// Runs `ip` in it.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn ip(&self, arguments: &[&str]) -> Result<String> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    /// Runs `tc` in it.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn tc(&self, arguments: &[&str]) -> Result<String> {
        tc(&[&["-n", &self.name], arguments].concat())
    }

    /// Sets a file of `/proc/sys`; a kernel without the file does not have the function, either.
    fn set(&self, setting: &str, value: &str) {
        let _ = self.within(|| std::fs::write(format!("/proc/sys/{setting}"), value));
    }

    /// Lets one processor take all packets that arrive at `device`, so that they come in the order in which they left, as
    /// from a wire. (Without, whichever processor sent a packet takes it, and a busy one is overtaken.)
    ///
    /// # Errors
    /// As [`ip`].
    pub fn steer(&self, device: &str, processor: usize) -> Result {
        // Groups of 32 bits, the highest first. Only processes of `ip netns exec` see the files of this namespace.
        let mask = format!("{:x}{}", 1u64 << (processor % 32), ",00000000".repeat(processor / 32));
        let file = format!("/sys/class/net/{device}/queues/rx-0/rps_cpus");
        let write = format!("echo {mask} > {file}");
        ip(&["netns", "exec", &self.name, "sh", "-c", &write]).map(drop)
    }

    /// Applies these rules in it by `nft`.
    ///
    /// # Errors
    /// As [`ip`].
    pub fn nft(&self, rules: &str) -> Result<String> {
        ip(&["netns", "exec", &self.name, "nft", rules])
    }

    /// Runs `body` in it, on a thread of its own.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be entered.
    pub fn within<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T> {
        linux::namespace::Namespace::named(&self.name)
            .and_then(|namespace| namespace.run(body))
            .map_err(|e| Error::system(&self.name, &e, "run it as root"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// The queue in front of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// One queue for all (`pfifo`): marks have no effect.
    Fifo,
    /// Three strict bands by socket priority (`pfifo_fast`): on the sender's own host.
    Bands,
    /// Classes by DSCP (`htb` with filters), spare bandwidth to the highest first: anywhere on the path.
    Classes,
}

/// A rate-limited link at one interface, in the direction out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Bits per second, Ethernet header included, preamble, checksum and gap not.
    pub rate: u64,
    /// Most packets that wait in each queue.
    pub limit: u32,
    /// The queue's discipline.
    pub queue: Queue,
}

/// Largest packet with its Ethernet header, in bytes.
pub const FULL_PACKET: u64 = 1514;

impl Wire {
    /// Time on the wire of `bytes` with their Ethernet header, in microseconds.
    pub fn transmission_us(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e6 / self.rate as f64
    }

    /// Puts it at `device` in place of the former one in the namespace; packets that waited there are lost.
    ///
    /// # Errors
    /// [`Error::System`] with the remedy.
    pub fn install(&self, at: &Namespace, device: &str) -> Result {
        let share = |percent| Share { rate: self.rate / 100 * percent, ceil: None, priority: None };
        let scheduler = match self.queue {
            Queue::Fifo => Scheduler::Fifo,
            Queue::Bands => Scheduler::Strict,
            Queue::Classes => Scheduler::Htb(SHARES.map(share)),
        };
        let wanted = Wanted { device: device.to_owned(), rate: self.rate, queue: self.limit, scheduler, map: None };
        // Kept: it goes with the namespace.
        let install = || linux::queueing::install(at.journals(), &[wanted])?.keep();
        at.within(install)?.map_err(|refused| Error::System(refused.to_string()))
    }
}

/// The bridge that joins the ports of a switch.
const BRIDGE: &str = "br0";
/// Interface of a router that leads to another one.
const ONWARD: &str = "on";
/// Guaranteed shares of low, normal, high and critical, in percent of the rate.
const SHARES: [u64; 4] = [20, 45, 30, 5];
