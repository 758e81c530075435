//! Round trips over Thalweg's own channels: a sample there and its acknowledgement back, by a second channel.
//!
//! | module | contents |
//! |---|---|
//! | `ping` | the roles: `ping` sends at random distances and stamps, `pong` sends back |
//! | `route` | the ways of samples: two channels of a carrier, with a proxy or without, or bare sockets and the role that forwards; their ends |
//!
//! Samples are sent when they are due, whether or not the last one has come back, so that a slow one delays no other
//! (and is not the only one to meet the cause of its delay).

mod ping;
mod route;

pub(crate) use ping::{Measure, RoundTrip};
pub(crate) use ping::{PONG, ROLE as PING, play as play_ping, play_pong};
pub(crate) use route::{FORWARD, Hop, Priority, Route, play_forward};

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::part::{Measured, NodeSettings, Part, Place};
use crate::topology::Topology;
use route::{End, Priorities};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use thalweg::admin::EndReport;

/// A ping and a pong, connected by routes.
#[derive(Debug)]
pub(crate) struct PingPong {
    ping: Part,
    pong: Part,
}

/// The carriers that round trips are measured over, unless other routes are named.
pub(crate) const CARRIERS: [&str; 2] = ["udp", "tcp"];

/// Time for the ends to find each other.
const START: Duration = Duration::from_secs(30);
/// Pause between two looks whether the pong is ready.
const LOOK: Duration = Duration::from_millis(100);
/// Time for an order, besides the duration that it asks for.
const PATIENCE: Duration = Duration::from_secs(15);
/// Port at which both listen.
const PORT: u16 = 7400;

impl PingPong {
    /// Starts both ends in a realm, each in the host of this number and on its processors, and waits until they are connected. A
    /// sample of more than so many bytes is acknowledged by its first ones.
    ///
    /// # Errors
    /// As [`Part::start`] and [`Part::hear`].
    pub(crate) fn acknowledged(
        lab: &Lab,
        realm: &str,
        topology: &Topology,
        [ping, pong]: [u8; 2],
        processors: [&[usize]; 2],
        bytes: usize,
    ) -> Result<Self> {
        let listen = |host| SocketAddr::new(Topology::address_of(host), PORT);
        let all = [listen(ping), listen(pong)];
        let node = |name: &str, host| NodeSettings::at(lab, name, realm, listen(host), &all);
        let place = |host, processors| Place::at(topology.host(host), processors);
        let [ours, theirs] = processors;
        let ends = [(place(ping, ours), node("ping", ping)?), (place(pong, theirs), node("pong", pong)?)];
        Self::over(lab, ends, &CARRIERS.map(|carrier| Route::direct(carrier).acknowledged_by(bytes)))
    }

    /// Starts both ends on this host, in a realm of their own.
    ///
    /// # Errors
    /// As [`PingPong::acknowledged`].
    pub(crate) fn on_this_host(lab: &Lab, realm: &str, processors: &[usize]) -> Result<Self> {
        let end = |name| (Place::here(processors), NodeSettings::local(name, realm));
        Self::over(lab, [end("ping"), end("pong")], &CARRIERS.map(Route::direct))
    }

    /// Starts the ping and the pong with these nodes, and waits until all routes are connected, each proxy at its place.
    ///
    /// # Errors
    /// As [`PingPong::acknowledged`].
    pub(crate) fn over(lab: &Lab, [ping, pong]: [(Place, NodeSettings); 2], routes: &[Route]) -> Result<Self> {
        let start = |role, (place, node)| Part::start(lab, place, role, &End { node, routes: routes.to_vec() });
        let (pong, mut ping) = (start(PONG, pong)?, start(PING, ping)?);
        ping.hear::<route::Ready>(lab, START)?;
        let mut trips = Self { ping, pong };
        trips.settle(lab, routes)?;
        Ok(trips)
    }

    /// Waits until all proxies are where they are wanted. One whose relay was not ready begins at the publisher, and moves while
    /// samples flow.
    fn settle(&mut self, lab: &Lab, routes: &[Route]) -> Result {
        let until = Instant::now() + START;
        let relayed: Vec<&Route> = routes.iter().filter(|r| matches!(r.proxy(), Some(qos::Place::Relay(_)))).collect();
        while self.pong.listen::<route::Ready>(lab, LOOK)?.is_none() {
            if Instant::now() > until {
                return Err(Error::Failed(format!("the pong was not ready within {START:?}")));
            }
            for route in &relayed {
                let (period, patience) = (Duration::from_millis(1), Duration::ZERO);
                let route = route.name.clone();
                self.measure(lab, &Measure { route, payload: 64, count: 20, warmup: 0, period, patience, seed: 1 })?;
            }
        }
        Ok(())
    }

    /// Changes the priority of all four ends of a carrier's two channels, while they are in use.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses.
    pub(crate) fn set_priority(&mut self, lab: &Lab, priority: &Priority) -> Result<Vec<EndReport>> {
        self.set_priorities(lab, [priority, priority])
    }

    /// The same, with changes of its own for the ends at the ping and for those at the pong.
    ///
    /// # Errors
    /// As [`PingPong::set_priority`].
    pub(crate) fn set_priorities(&mut self, lab: &Lab, priorities: [&Priority; 2]) -> Result<Vec<EndReport>> {
        let mut reports = Vec::new();
        for (part, priority) in [&mut self.ping, &mut self.pong].into_iter().zip(priorities) {
            let order = ping::Order::Priority(priority.clone());
            reports.extend(part.ask::<Priorities>(lab, &order, PATIENCE)?.ends);
        }
        Ok(reports)
    }

    /// Makes round trips.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub(crate) fn measure(&mut self, lab: &Lab, measure: &Measure) -> Result<Vec<RoundTrip>> {
        let time = measure.time() + PATIENCE;
        Ok(self.ping.ask::<ping::RoundTrips>(lab, &ping::Order::Measure(measure.clone()), time)?.trips)
    }

    /// Times of the stages of a route's channel from `from` (`ping`: the forward one), at the ping's and at the pong's end, since
    /// the last call.
    ///
    /// # Errors
    /// As [`Part::hear`].
    pub(crate) fn stages(&mut self, lab: &Lab, route: &str, from: &str) -> Result<[Measured; 2]> {
        let order = ping::Order::Stages { route: route.to_owned(), from: from.to_owned() };
        Ok([self.ping.ask(lab, &order, PATIENCE)?, self.pong.ask(lab, &order, PATIENCE)?])
    }
}
