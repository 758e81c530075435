//! The channels this node's subscribers want, and how far each has come. Pure: time is an argument.

use super::answers::Upcoming;
use super::state::CARRIERS;
use crate::channel::proxy::Proxy;
use crate::channel::{Channel, PortRef};
use crate::control::{Document, PortInfo};
use qos::{Place, Qos, Reliability};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A publisher's and a subscriber's port.
pub(crate) type Pair = (PortRef, PortRef);

/// A channel that was open so long was a success.
const LIVED: Duration = Duration::from_secs(1);
/// First pause before a failed channel is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause: a stream resumes within a second after an outage (P-16).
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// How long a publisher that vanished without closing is still tried: its host may only be cut off.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Where a publisher can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// In this process.
    Process,
    /// By the unix socket of its node.
    Unix(PathBuf),
    /// By TCP.
    Tcp(SocketAddr),
}

/// One way to try: carrier and route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub carrier: String,
    pub route: Route,
    /// Where the stream is scaled if it comes this way.
    pub place: Place,
}

/// How far a wanted channel has come.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing is under way; try at this time.
    Idle(Instant),
    /// A handshake is under way.
    Dialing,
    /// It is open.
    Open(Arc<Channel>),
    /// The publisher refused for a reason that only changes with the ports.
    Refused,
}

/// One wanted channel.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub publisher: PortInfo,
    pub subscriber: PortInfo,
    pub by_name: bool,
    /// What the subscriber wants of the stream.
    pub proxy: Proxy,
    pub candidates: Vec<Candidate>,
    pub next: usize,
    pub progress: Progress,
    /// Incarnation and sequence number up to which samples were delivered on an earlier channel.
    pub delivered: Option<(u64, u64)>,
    /// That channel, unless its history was not complete. A thread may have delivered from it while this end cut it.
    pub before: Option<Arc<Channel>>,
    /// A channel that takes the place of the present one when that has ended.
    pub upcoming: Option<Upcoming>,
    failures: u32,
    opened_at: Option<Instant>,
    /// Since when the publisher's node is not known to the directory any more.
    lost_since: Option<Instant>,
}

impl Wanted {
    pub fn new(
        publisher: PortInfo,
        subscriber: PortInfo,
        candidates: Vec<Candidate>,
        by_name: bool,
        now: Instant,
    ) -> Self {
        let progress = Progress::Idle(now);
        Self {
            publisher,
            subscriber,
            by_name,
            proxy: Proxy::default(),
            candidates,
            next: 0,
            progress,
            delivered: None,
            before: None,
            upcoming: None,
            failures: 0,
            opened_at: None,
            lost_since: None,
        }
    }

    /// The way to try next.
    pub fn candidate(&self) -> Option<&Candidate> {
        self.candidates.get(self.next)
    }

    /// The last sample that was delivered on an earlier channel of this incarnation of the publisher's node; 0: none.
    pub fn resume_after(&self, incarnation: u64) -> u64 {
        let told = self.delivered.filter(|(of, _)| *of == incarnation).map_or(0, |(_, seq)| seq);
        let before = self.before.as_ref().filter(|before| before.incarnation == incarnation);
        before.map_or(told, |before| told.max(before.counters.last_seq.load(Relaxed)))
    }

    /// The way that was tried failed: the next one at once, or all again after a pause.
    pub fn failed(&mut self, now: Instant) {
        self.next += 1;
        let mut pause = Duration::ZERO;
        if self.next >= self.candidates.len() {
            pause = self.pause();
        }
        self.progress = Progress::Idle(now + pause);
    }

    /// The channel is open.
    pub fn opened(&mut self, channel: Arc<Channel>, now: Instant) {
        self.next = 0;
        self.opened_at = Some(now);
        self.progress = Progress::Open(channel);
    }

    /// The channel ended: try again after a pause, the first one unless it lived shortly (a callback that always panics).
    pub fn ended(&mut self, now: Instant) {
        if self.opened_at.is_some_and(|opened| now.duration_since(opened) >= LIVED) {
            self.failures = 0;
        }
        self.progress = Progress::Idle(now + self.pause());
    }

    fn pause(&mut self) -> Duration {
        self.next = 0;
        self.failures += 1;
        FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE)
    }

    /// The publisher's node left the directory or came back.
    pub fn seen(&mut self, present: bool, now: Instant) {
        self.lost_since = if present { None } else { self.lost_since.or(Some(now)) };
    }

    /// Nobody needs to try any more.
    pub fn is_hopeless(&self, now: Instant) -> bool {
        let lost = self.lost_since.is_some_and(|since| now.duration_since(since) > PATIENCE);
        lost && !matches!(self.progress, Progress::Open(_) | Progress::Dialing)
    }
}

/// All wanted channels.
pub(crate) type WantedChannels = BTreeMap<Pair, Wanted>;

/// The ways from this host to a publisher, best first: in the order that a port named, else `local`, `shm`, then by
/// reliability.
pub(crate) fn candidates(
    here: &Document,
    there: &Document,
    publisher: &PortInfo,
    subscriber: &PortInfo,
    only: Option<&str>,
) -> Vec<Candidate> {
    let same_host = here.host == there.host;
    let same_process = here.pid == there.pid && same_host;
    let reliable = is_reliable(&publisher.qos, &subscriber.qos);
    // Where nobody named a carrier, who may lose nothing gets those that lose nothing by themselves.
    let auto = only.is_none() && [publisher, subscriber].iter().all(|port| port.carriers == CARRIERS);
    let addresses = reachable(there, same_host);
    let allowed = |carrier: &str| only.is_some() || [publisher, subscriber].iter().all(|p| named(p, carrier));
    let mut found = Vec::new();
    for carrier in order(publisher, subscriber, only).into_iter().filter(|c| allowed(c)) {
        let by = |route| Candidate { carrier: carrier.to_owned(), route, place: Place::default() };
        match (carrier, &there.socket) {
            ("local", _) if same_process => found.push(by(Route::Process)),
            ("shm", Some(socket)) if same_host => found.push(by(Route::Unix(socket.clone()))),
            ("tcp", _) => found.extend(addresses.iter().map(|a| by(Route::Tcp(*a)))),
            ("udp" | "mcast", _) if !reliable || !auto => found.extend(addresses.iter().map(|a| by(Route::Tcp(*a)))),
            _ => {}
        }
    }
    found
}

/// Whether a channel loses nothing: both ask for it. By a fallback a reliable subscriber gets what is offered.
pub(super) fn is_reliable(publisher: &Qos, subscriber: &Qos) -> bool {
    [publisher, subscriber].iter().all(|qos| qos.reliability == Reliability::Reliable)
}

fn named(port: &PortInfo, carrier: &str) -> bool {
    port.carriers.iter().any(|c| c == carrier)
}

/// Carriers in the order to try: an administrator's, the subscriber's, the publisher's; who named none left it to `auto`,
/// which takes udp only where losses are allowed (see above), and never mcast by itself.
fn order<'a>(publisher: &'a PortInfo, subscriber: &'a PortInfo, only: Option<&'a str>) -> Vec<&'a str> {
    let own = [subscriber, publisher].into_iter().find(|port| port.carriers != CARRIERS);
    match (only, own) {
        (Some(only), _) => vec![only],
        (None, Some(port)) => port.carriers.iter().map(String::as_str).collect(),
        (None, None) => vec!["local", "shm", "udp", "tcp"],
    }
}

/// The ways from this host to a node's streams, the shortest first.
pub(super) fn routes(here: &Document, there: &Document) -> Vec<Route> {
    let same_host = here.host == there.host;
    let socket = there.socket.iter().filter(|_| same_host).map(|socket| Route::Unix(socket.clone()));
    socket.chain(reachable(there, same_host).into_iter().map(Route::Tcp)).collect()
}

/// Loopback addresses count only within one host identity, and are the shortest way there.
fn reachable(there: &Document, same_host: bool) -> Vec<SocketAddr> {
    let (loopback, others): (Vec<_>, Vec<_>) = there.addresses.iter().partition(|a| a.ip().is_loopback());
    if same_host { loopback.into_iter().chain(others).collect() } else { others }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_every_way_is_tried() {
        let start = Instant::now();
        let ways = ["shm", "tcp"]
            .map(|c| Candidate { carrier: c.into(), route: Route::Process, place: Place::default() })
            .to_vec();
        let info = crate::testing::port_info("/p");
        let mut wanted = Wanted::new(info.clone(), info, ways, false, start);
        let mut pauses = Vec::new();
        for _ in 0..16 {
            wanted.failed(start);
            if let Progress::Idle(at) = wanted.progress {
                pauses.push((wanted.candidate().map(|c| c.carrier.clone()), at - start));
            }
        }
        let millis: Vec<u64> = pauses.iter().skip(1).step_by(2).map(|(_, p)| p.as_millis() as u64).collect();
        assert_eq!(millis, [20, 40, 80, 160, 320, 400, 400, 400]);
        assert!(pauses.iter().step_by(2).all(|(c, p)| c.as_deref() == Some("tcp") && p.is_zero()));
    }

    #[test]
    fn a_port_that_names_carriers_gets_them_in_its_order_and_auto_never_takes_mcast() {
        let mut there = crate::testing::discovery::document(1);
        there.addresses = vec!["127.0.0.1:7".parse().unwrap()];
        there.socket = Some("/socket".into());
        let here = Document { node: crate::control::NodeId(2), pid: there.pid + 1, ..there.clone() };
        let all: Vec<String> = CARRIERS.map(str::to_owned).into();
        let port = |carriers: Vec<String>| PortInfo {
            qos: qos::Qos { reliability: qos::Reliability::BestEffort, ..Default::default() },
            carriers,
            ..crate::testing::port_info("/p")
        };
        let tried = |publisher: Vec<String>, subscriber: Vec<String>| {
            let found = candidates(&here, &there, &port(publisher), &port(subscriber), None);
            found.into_iter().map(|c| c.carrier).collect::<Vec<_>>()
        };
        assert_eq!(tried(all.clone(), all.clone()), ["shm", "udp", "tcp"]);
        let mine = ["tcp", "mcast", "shm"].map(str::to_owned).to_vec();
        assert_eq!(tried(all.clone(), mine.clone()), ["tcp", "mcast", "shm"]);
        assert_eq!(tried(mine, all), ["tcp", "mcast", "shm"]);
    }
}
