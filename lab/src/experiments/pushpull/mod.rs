//! Push and pull: the experiments of the paper on proxies (P-40 … P-46, Tables 1, 2 and 4).
//!
//! | module | contents |
//! |---|---|
//! | `proxy` | `pushpull-proxy`: the cost of a proxy, by its place |
//! | `components` | Table 4: a round trip's time by component |
//! | `linear` | the shape of a curve over sizes |
//! | `sizes` | `pushpull-1` … `pushpull-4`: round trips by size, place and distance |
//! | `routers` | small samples over a router, and what one adds |
//! | `places`, `tables` | `pushpull-places`: Tables 1 and 2, levels of cost by the place of the proxy |
//! | `loaded` | `pushpull-5`: beside other work, without a reservation |
//! | `reserved` | the same with reservations: of processor time, of the network, of both |
//!
//! Here is their [`Testbed`]: publisher, subscriber and relay, each in its place.

mod components;
mod linear;
mod loaded;
mod places;
mod proxy;
mod reserved;
mod routers;
mod sizes;
mod tables;

pub(super) use loaded::PushPullLoaded;
pub(super) use places::PushPullPlaces;
pub(super) use proxy::PushPullProxy;
pub(super) use sizes::PushPullSizes;

use super::{Tally, shuffled};
use crate::error::{Error, Result};
use crate::lab::{Lab, Size};
use crate::link::LinkReport;
use crate::part::{Hog, LONG, Measured, NodeSettings, Part, Place, processors};
use crate::round_trips::{FORWARD, Hop, Measure, PING, PONG, PingPong, Route};
use crate::stalls::Monitor;
use crate::topology::{Line, Namespace, Topology};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use thalweg::carrier::Dice;

/// The places of publisher, subscriber and relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Three processes on this host.
    Here,
    /// Both ends on one host, the relay on another (Exp. 1).
    OneNode,
    /// Two hosts and one link, the relay beside the publisher: the reference for routers.
    Link,
    /// Three hosts around a switch (Exp. 2).
    OneHop,
    /// A router between the ends, the relay on it (Exp. 3).
    Router,
    /// Two routers between the ends, the relay on the first one (Exp. 4).
    TwoRouters,
}

impl Layout {
    /// As cells say it.
    const fn name(self) -> &'static str {
        match self {
            Layout::Here => "one host",
            Layout::OneNode => "one node and a relay",
            Layout::Link => "one link",
            Layout::OneHop => "three hosts",
            Layout::Router => "one router",
            Layout::TwoRouters => "two routers",
        }
    }

    /// The hosts; their links are lines of this rate in bit/s, or take no time.
    fn topology(self, lab: &Lab, rate: Option<u64>) -> Result<Option<Topology>> {
        let (_, processor) = processors()?;
        let line = |host: &u8| Some(Line::of(*host, rate?).on(processor as u16));
        let lines = |hosts: &[u8]| hosts.iter().filter_map(line).collect::<Vec<_>>();
        Ok(match self {
            Layout::Here => None,
            Layout::OneNode | Layout::Link => Some(Topology::link(lab, &lines(&[1]))?),
            Layout::OneHop => Some(Topology::switch(lab, 3, &lines(&[1, 2, 3]))?),
            Layout::Router => Some(Topology::router(lab, 2, &lines(&[1, 2]))?),
            Layout::TwoRouters => Some(Topology::routers(lab, &lines(&[0, 1, 2]))?),
        })
    }

    /// Lines of each leg of a round trip with the proxy at this place. A relay receives a sample whole before it sends it on.
    fn legs(self, place: &str) -> Vec<usize> {
        let back = self.lines_between();
        let (to_relay, from_relay) = match self {
            _ if place != AT_RELAY => return vec![back; 2],
            Layout::Here => (0, 0),
            Layout::Link => (0, 1),
            Layout::OneNode | Layout::Router => (1, 1),
            Layout::OneHop => (2, 2),
            Layout::TwoRouters => (1, 2),
        };
        vec![to_relay, from_relay, back]
    }

    /// Lines between the ping and the pong.
    fn lines_between(self) -> usize {
        match self {
            Layout::Here | Layout::OneNode => 0,
            Layout::Link => 1,
            Layout::OneHop | Layout::Router => 2,
            Layout::TwoRouters => 3,
        }
    }

    /// Addresses of the ping, the pong and the relay.
    fn addresses(self) -> [IpAddr; 3] {
        let host = Topology::address_of;
        match self {
            Layout::Here => [Ipv4Addr::LOCALHOST.into(); 3],
            Layout::OneNode => [host(1), host(1), host(2)],
            Layout::Link => [host(1), host(2), host(1)],
            Layout::OneHop => [host(1), host(2), host(3)],
            Layout::Router | Layout::TwoRouters => [host(1), host(2), Ipv4Addr::new(10, 99, 1, 254).into()],
        }
    }

    fn namespaces(self, topology: Option<&Topology>) -> Result<[Option<&Namespace>; 3]> {
        let Some(topology) = topology else { return Ok([None; 3]) };
        let host = |n| Some(topology.host(n));
        Ok(match self {
            Layout::Here => [None; 3],
            Layout::OneNode => [host(1), host(1), host(2)],
            Layout::Link => [host(1), host(2), host(1)],
            Layout::OneHop => [host(1), host(2), host(3)],
            Layout::Router | Layout::TwoRouters => [host(1), host(2), Some(topology.beside(1)?)],
        })
    }
}

/// All parts, connected.
#[derive(Debug)]
struct Testbed {
    ping_pong: PingPong,
    relay: Part,
    _forwards: Vec<Part>,
    _awake: Option<Part>,
    topology: Option<Topology>, // after the parts: they end first
}

/// Samples of one run.
#[derive(Clone, Copy, Debug)]
struct Amount {
    /// Measured samples.
    count: u32,
    /// Samples before the measured ones.
    warmup: u32,
    /// Mean distance.
    period: Duration,
    /// Longest wait for the last ones to come back.
    patience: Duration,
}

/// Longest wait for round trips of which none may be lost. A run for the shape of its results is made beside other work, which may hold
/// one up for seconds: it is late then, and not lost.
const fn patience(size: Size) -> Duration {
    match size {
        Size::Tiny => Duration::from_secs(10),
        Size::Ci | Size::Quick | Size::Whole => Duration::from_secs(1),
    }
}

impl Testbed {
    /// As [`Testbed::over`], by tcp.
    fn build(lab: &Lab, layout: Layout, rate: Option<u64>, first: bool, dice: &mut Dice) -> Result<Self> {
        Self::over(lab, "tcp", (layout, rate), first, dice)
    }

    /// Starts all parts on one processor, with channels of this carrier. If `first`, they go before all others of ordinary priority, and
    /// the processor is kept awake. Routes are opened in random order: one differs from the next by some percent through its place
    /// in memory and in the kernel's lists.
    fn over(
        lab: &Lab,
        carrier: &str,
        (layout, rate): (Layout, Option<u64>),
        first: bool,
        dice: &mut Dice,
    ) -> Result<Self> {
        let topology = layout.topology(lab, rate)?;
        let [ping, pong, relay] = layout.addresses();
        let spaces = layout.namespaces(topology.as_ref())?;
        let processor = processors()?.0;
        let place = |n: usize| {
            let place = spaces[n].map_or_else(|| Place::here(&[processor]), |host| Place::at(host, &[processor]));
            if first { place.first() } else { place }
        };
        let realm = layout.name().replace(' ', "-"); // names the file of addresses
        let listen = [(ping, 7400), (pong, 7401), (relay, 7402)].map(SocketAddr::from);
        let node = |n: usize, name: &str| match layout {
            Layout::Here => Ok(NodeSettings::local(name, &realm)),
            _ => NodeSettings::at(lab, name, &realm, listen[n], &listen),
        };
        let relay_part = Part::ready(lab, place(2), RELAY, &node(2, RELAY)?)?;
        // The two rings: ping → pong → ping, and ping → relay → pong → ping.
        let [home, there, home_too, there_too, between] =
            [(ping, 7500), (pong, 7501), (ping, 7510), (pong, 7511), (relay, 7512)].map(SocketAddr::from);
        let hops = [(1, there, home), (1, there_too, home_too), (2, between, there_too)];
        let mut forwards = Vec::new();
        for (n, listen, next) in hops {
            forwards.push(Part::start(lab, place(n), FORWARD, &Hop { listen, next })?);
        }
        forwards.iter_mut().try_for_each(|part| part.hear::<Value>(lab, LONG).map(drop))?;
        let over = |name: &str, place| Route::over(name, carrier, place);
        let routes = [
            over(NONE, None),
            over(PUBLISHER, Some(qos::Place::Publisher)),
            over(SUBSCRIBER, Some(qos::Place::Subscriber)),
            over(AT_RELAY, Some(qos::Place::Relay(RELAY.into()))),
            Route::sockets(RAW, home, there),
            Route::sockets(RAW_RELAY, home_too, between),
        ];
        let routes: Vec<Route> = shuffled(routes.len(), dice).into_iter().map(|index| routes[index].clone()).collect();
        let ends = [(place(0), node(0, "ping")?), (place(1), node(1, "pong")?.after(RELAY))];
        let ping_pong = PingPong::over(lab, ends, &routes)?;
        let awake = first.then(|| Hog::Idle.start(lab, processor)).transpose()?;
        Ok(Self { ping_pong, relay: relay_part, _forwards: forwards, _awake: awake, topology })
    }

    /// The hosts.
    ///
    /// # Errors
    /// There are none: all is on this one.
    fn topology(&self) -> Result<&Topology> {
        self.topology.as_ref().ok_or_else(|| Error::Usage("all parts are on this host".into()))
    }

    /// Ends it, and says how its lines were.
    fn end(mut self) -> Vec<LinkReport> {
        self.topology.as_mut().map(Topology::end_lines).unwrap_or_default()
    }

    /// One run over a route.
    fn run(&mut self, lab: &Lab, route: &str, payload: usize, amount: Amount, tally: &mut Tally) -> Result {
        let Amount { count, warmup, period, patience } = amount;
        let seed = lab.options.seed + tally.repetitions.len() as u64;
        let measure = Measure { route: route.to_owned(), payload, count, warmup, period, patience, seed };
        let monitor = Monitor::start()?;
        let trips = self.ping_pong.measure(lab, &measure)?;
        tally.add_trips(&trips, &monitor.finish());
        Ok(())
    }

    /// Times of the stages of a route's two channels since the last call, there and back: each at its publisher and at its subscriber.
    fn stages(&mut self, lab: &Lab, route: &str) -> Result<[[Measured; 2]; 2]> {
        let there = self.ping_pong.stages(lab, route, PING)?;
        let [ping, pong] = self.ping_pong.stages(lab, route, PONG)?;
        Ok([there, [pong, ping]])
    }

    /// Processor time that the relay has used so far, in nanoseconds.
    fn relay_ns(&self) -> Result<u64> {
        self.relay.processor_ns()
    }
}

/// p50 of each repetition over that of the other's.
fn quotients(over: &Tally, under: &Tally) -> Vec<f64> {
    over.pairs(under, |d| d.p50).into_iter().map(|(over, under)| over / under).collect()
}

const NEARLY_ALL: &str = "A proxy takes all but one of 2^24 samples: one that takes all would be none at all at the publisher or the \
                          subscriber, whose code for it is never entered.";
const HALF: &str = "Table 4 is of the way there alone, by udp (for datagrams the kernel says when they came), measured in runs of their own (9; 5 with --quick), of which the tables have the medians, with \
                    every sample's stages noted. All being on one processor, a relay's own processor time is nearly all that the \
                    way over it takes longer: what is left for `proxy com` is little, and within the noise of two means, so of the 18 \
                    components it alone is judged together with another one, `proxy cpu`.";
/// Largest factor by which a proxy at the publisher or subscriber may lengthen a round trip.
const LONGER: f64 = 1.03;
/// Name of the relay's node.
const RELAY: &str = "relay";
/// No proxy. Routes are named by the place of their proxy; bare sockets are the reference.
const NONE: &str = "none";
/// At the publisher.
const PUBLISHER: &str = "publisher";
/// At the subscriber.
const SUBSCRIBER: &str = "subscriber";
/// At the relay.
const AT_RELAY: &str = RELAY;
/// All places.
const PLACES: [&str; 4] = [NONE, PUBLISHER, SUBSCRIBER, AT_RELAY];
/// Bare sockets there and back.
const RAW: &str = "raw";
/// Bare sockets, passed on by a process at the relay's place.
const RAW_RELAY: &str = "raw-relay";
