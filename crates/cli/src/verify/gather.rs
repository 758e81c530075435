//! Reports of the nodes about a plan's channels, look by look. Memory grows with the plan's channels only.

use super::control_queues::ControlQueues;
use super::delays::{Clocks, Key, Pair, Reports};
use super::own_queues::OwnQueues;
use crate::census;
use crate::participant::Participant;
use qos::plan::Plan;
use qos::verification::{Change, Live, Over, Route, Verification, Window, find};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::carrier;
use thalweg::control::{Document, NodeId};
use thalweg::stages::{Asked, Figures, LateAfter, MOST_LATENESS};

/// The topic of verdicts.
pub(crate) const TOPIC: &str = "/thalweg/verification";

/// A running channel of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    /// The channel.
    pub live: Live,
    /// Its carrier.
    pub carrier: carrier::Name,
    /// Its difference from the planned route, if there is one.
    pub strays: Option<String>,
}

/// Gathers figures of a plan's channels.
pub(crate) struct Gatherer<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The verdicts so far.
    pub verification: Verification,
    /// The plan's channels that were running at the last look.
    pub running: Vec<Option<Running>>,
    /// Measurements of each channel at the last look, with the look's length in seconds.
    pub windows: Vec<Option<(f64, Window)>>,
    /// Delays of each running channel since they are measured.
    pub latencies: Vec<Option<Figures>>,
    /// Running channels at the last look that are not in the plan.
    pub unplanned: Vec<Live>,
    /// Nodes that did not answer at the last look.
    pub silent: Vec<String>,
    /// Queues of control traffic on this host.
    pub(super) control_queues: ControlQueues<'a>,
    counters: Vec<Option<Counters>>,
    own_queues: OwnQueues,
    measured: BTreeSet<String>,
    interval: Duration,
    /// The last request for lateness, and the last one that each node answered.
    asked: Asked,
    answered: HashMap<NodeId, u64>,
    looked: Duration,
    /// Time that the request for the counters took.
    asking: Duration,
    began: Instant,
}

/// Samples received and lost.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    received: u64,
    lost: u64,
}

/// The clocks of the ends of a route: of the whole, and of its part up to the relay. `None`: not known.
#[derive(Default)]
struct Pairs {
    whole: Option<Pair>,
    to_relay: Option<Pair>,
}

impl<'a> Gatherer<'a> {
    /// A gatherer for a plan, with this interval between looks.
    pub(crate) fn new(plan: &'a Plan, interval: Duration) -> Self {
        let count = plan.channels.len();
        Self {
            plan,
            verification: Verification::new(plan),
            running: vec![None; count],
            windows: vec![None; count],
            latencies: vec![None; count],
            looked: Duration::ZERO,
            asking: Duration::ZERO,
            unplanned: Vec::new(),
            silent: Vec::new(),
            control_queues: ControlQueues::default(),
            counters: vec![None; count],
            own_queues: OwnQueues::new(plan),
            measured: BTreeSet::new(),
            interval,
            asked: Asked { asker: linux::clock::monotonic_ns(), ..Asked::default() },
            answered: HashMap::new(),
            began: Instant::now(),
        }
    }

    /// Time since the start of the measurement.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Asks all nodes. Returns the changed verdicts, each with its channel's place in the plan.
    pub(crate) fn look(&mut self, participant: &Participant) -> Vec<(usize, Change)> {
        let nodes = participant.others();
        let asked = self.elapsed();
        let census::Channels { mut channels, silent } = census::channels(participant, &nodes);
        let now = self.elapsed();
        let asking = now.saturating_sub(asked);
        let off = asking + std::mem::replace(&mut self.asking, asking);
        channels.retain(|channel| channel.topic != TOPIC);
        self.silent = silent;
        let holders = holders(participant, &nodes);
        let live: Vec<Live> = channels.iter().map(|channel| live(channel, &holders)).collect();
        let found = find(self.plan, &live);
        self.unplanned = found.unplanned.iter().map(|at| live[*at].clone()).collect();
        let running = |route: &Route| Running {
            live: live[route.channel].clone(),
            carrier: channels[route.channel].carrier.clone(),
            strays: route.strays.clone(),
        };
        self.running = found.planned.iter().map(|route| route.as_ref().map(running)).collect();
        let pairs = self.pairs(participant, &holders);
        let reports = self.ask(participant, &nodes, &pairs);
        let latency = |running: &Option<Running>| reports.total(&running.as_ref()?.live).cloned();
        self.latencies = self.running.iter().map(latency).collect();
        let dropped = self.look_at_own_queues(&holders);
        let here = self.nodes_here(&holders);
        self.control_queues.look(self.plan, &here);
        let seconds = now.saturating_sub(std::mem::replace(&mut self.looked, now)).as_secs_f64();
        let mut changes = Vec::new();
        for (index, route) in found.planned.iter().enumerate() {
            let window = match (route, &self.running[index]) {
                (Some(route), Some(Running { live, carrier, strays })) => {
                    let Pairs { whole, to_relay } = &pairs[index];
                    let delays = reports.window(live, carrier, whole.as_ref(), to_relay.as_ref());
                    let own_queue = dropped.get(index).copied().flatten();
                    let window = Window { off, strays: strays.clone(), own_queue, ..delays };
                    self.count(index, route, &channels, window)
                }
                _ => self.counters[index].map(|_| Window { off, ..Window::default() }),
            };
            match &window {
                Some(window) => {
                    let change = self.verification.measured(index, now, window);
                    changes.extend(change.map(|change| (index, change)));
                }
                None if route.is_some() => self.verification.began(index, now),
                None => {}
            }
            self.windows[index] = window.map(|window| (seconds, window));
        }
        changes
    }

    /// Packets dropped in channels' own queues since the last look, where their publishers run on this host, in this network namespace.
    fn look_at_own_queues(&mut self, holders: &HashMap<&str, &Document>) -> Vec<Option<u64>> {
        let (running, here) = (&self.running, linux::clock::host_id());
        let is_here = |index: usize| {
            let publisher = running.get(index).and_then(Option::as_ref).map(|running| running.live.publisher.as_str());
            let node = publisher.and_then(|publisher| holders.get(publisher));
            node.is_some_and(|node| node.host == here)
        };
        self.own_queues.look(self.plan, is_here)
    }

    /// Nodes of the plan with an end of a running channel on this host, in this network namespace.
    fn nodes_here(&self, holders: &HashMap<&str, &Document>) -> BTreeSet<&'a str> {
        let (plan, here) = (self.plan, linux::clock::host_id());
        let is_here = |port: &String| holders.get(port.as_str()).is_some_and(|node| node.host == here);
        let mut found: BTreeSet<&'a str> = BTreeSet::new();
        for (planned, running) in plan.channels.iter().zip(&self.running) {
            let Some(Running { live, .. }) = running else { continue };
            found.extend(is_here(&live.publisher).then_some(planned.publisher.as_str()));
            found.extend(is_here(&live.subscriber).then_some(planned.node.as_str()));
        }
        found
    }

    /// The longest delay of a channel's samples at the last look, µs.
    pub(crate) fn now_us(&self, index: usize) -> Option<f64> {
        let (_, window) = self.windows.get(index)?.as_ref()?;
        window.worst.as_ref().map(|worst| worst.us)
    }

    /// The clocks of the ends of each channel.
    fn pairs(&self, participant: &Participant, holders: &HashMap<&str, &Document>) -> Vec<Pairs> {
        let mut clocks = Clocks::new();
        let mut of = |running: &Running| {
            let Live { publisher, subscriber, over, .. } = &running.live;
            let from = holders.get(publisher.as_str())?;
            let mut pair = |port: &str| clocks.pair(participant, from, holders.get(port)?);
            Some(Pairs { whole: pair(subscriber), to_relay: over.as_ref().and_then(|over| pair(&over.port)) })
        };
        self.running.iter().map(|running| running.as_ref().and_then(&mut of).unwrap_or_default()).collect()
    }

    /// Asks each node about its ends: the lateness of samples since the last look, at the subscriber and at a relay
    /// between.
    fn ask(&mut self, participant: &Participant, nodes: &[Document], pairs: &[Pairs]) -> Reports {
        let mut wanted: HashMap<Key, LateAfter> = HashMap::new();
        for (index, (running, pairs)) in self.running.iter().zip(pairs).enumerate() {
            let (Some(Running { live, .. }), Some(promise)) = (running, self.verification.promise(index)) else {
                continue;
            };
            let limit = |latest_us: Option<f64>, pair: &Option<Pair>| {
                let limit = latest_us.zip(pair.as_ref()).map(|(us, pair)| pair.late_after(us * 1e3, self.interval));
                limit.unwrap_or(i64::MAX)
            };
            let whole = (&live.subscriber, limit(promise.latest_us, &pairs.whole));
            let part = live.over.as_ref().map(|over| (&over.port, limit(promise.proxied_us, &pairs.to_relay)));
            for (to, after_ns) in std::iter::once(whole).chain(part) {
                let (topic, publisher, subscriber) = (live.topic.clone(), live.publisher.clone(), to.clone());
                let one = wanted.entry((publisher.clone(), subscriber.clone()));
                let one = one.or_insert(LateAfter { topic, publisher, subscriber, after_ns });
                // A relay may feed several channels. The largest limit counts: a sample must be late for all of them.
                one.after_ns = one.after_ns.max(after_ns);
            }
            self.measured.insert(live.topic.clone());
        }
        let channels: Vec<LateAfter> = wanted.into_values().collect();
        self.asked.look += 1;
        self.answered.retain(|known, _| nodes.iter().any(|node| node.node == *known));
        let mut reports = Reports::default();
        let mut answered: Vec<_> = nodes.iter().map(|node| node.node).collect();
        for some in channels.chunks(MOST_LATENESS) {
            let request = |node| {
                let asked = Asked { received: self.answered.get(&node).copied().unwrap_or(0), ..self.asked };
                Request::Lateness { channels: some.to_vec(), asked }
            };
            for (node, reply) in census::ask_each(participant, nodes, request) {
                match reply {
                    Some(Reply::Lateness(ends)) => reports.add(ends),
                    _ => answered.retain(|known| *known != node.node),
                }
            }
        }
        self.answered.extend(answered.into_iter().map(|node| (node, self.asked.look)));
        reports
    }

    /// Counts since the last look; `None` at the first one. A relay's losses count for every channel that it feeds.
    fn count(&mut self, index: usize, route: &Route, channels: &[census::Channel], window: Window) -> Option<Window> {
        let known = self.counters.get_mut(index)?;
        let before = known.unwrap_or_default();
        let parts = [Some(route.channel), route.feeder].into_iter().flatten().filter_map(|at| channels.get(at));
        let lost = parts.map(|part| part.lost.unwrap_or(0).saturating_add(part.dropped.unwrap_or(0)));
        let received = channels.get(route.channel).and_then(|channel| channel.received).unwrap_or(before.received);
        let now = Counters { received, lost: lost.fold(0, u64::saturating_add) };
        let began = known.replace(now).is_none();
        // A counter that went back belongs to another channel between the same ports.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let (received, lost) = (since(now.received, before.received), since(now.lost, before.lost));
        (!began).then_some(Window { received, lost, ..window })
    }

    /// Switches the measurement off.
    pub(crate) fn stop_measuring(&self, participant: &Participant) {
        let nodes = participant.others();
        for topic in &self.measured {
            census::ask_all(participant, &nodes, &Request::Measure { topic: topic.clone(), every: 0 });
        }
    }
}

/// The node of each port; of several ports with one name, the one that lookups by name find.
fn holders<'a>(participant: &Participant, nodes: &'a [Document]) -> HashMap<&'a str, &'a Document> {
    let mut holders = HashMap::new();
    for (port, node) in nodes.iter().flat_map(|node| node.ports.values().map(move |port| (port.name.as_str(), node))) {
        if holders.insert(port, node).is_some()
            && let Some(found) =
                participant.node.holder(port).and_then(|(id, _)| nodes.iter().find(|node| node.node == id))
        {
            holders.insert(port, found);
        }
    }
    holders
}

fn live(channel: &census::Channel, holders: &HashMap<&str, &Document>) -> Live {
    let over = |port: &String| {
        let node = holders.get(port.as_str());
        Over {
            port: port.clone(),
            names: node.map(|node| vec![node.name.clone(), node.host_name.clone()]).unwrap_or_default(),
        }
    };
    Live {
        topic: channel.topic.clone(),
        publisher: channel.publisher.clone(),
        publisher_node: holders.get(channel.publisher.as_str()).map(|node| node.name.clone()).unwrap_or_default(),
        subscriber: channel.subscriber.clone(),
        over: channel.over.as_ref().map(over),
    }
}
