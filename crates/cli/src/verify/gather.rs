//! What the nodes say of a plan's channels, look by look. Memory is that of the plan's channels.

use super::clocks::{Clocks, Pair};
use crate::census;
use crate::session::Session;
use qos::plan::Plan;
use qos::verification::{Change, Cost, Live, Verification, Window, Worst, find};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};
use thalweg::admin::{Reply, Request};
use thalweg::control::Document;
use thalweg::stages::{LateAfter, LatenessReport};

/// The topic on which verdicts are told.
pub const TOPIC: &str = "/thalweg/verification";

/// A channel of the plan that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// What it is.
    pub live: Live,
    /// Its carrier.
    pub carrier: String,
}

/// Gathers figures of a plan's channels.
pub struct Gatherer<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What they come to.
    pub verification: Verification,
    /// Each of the plan's channels that was running at the last look.
    pub running: Vec<Option<Running>>,
    /// What was measured of each at the last look, and in how many seconds.
    pub windows: Vec<Option<(f64, Window)>>,
    /// What ran at the last look and is not planned.
    pub unplanned: Vec<Live>,
    /// Nodes that did not answer at the last look.
    pub silent: Vec<String>,
    counters: Vec<Option<Counters>>,
    measured: BTreeSet<String>,
    interval: Duration,
    looked: Duration,
    began: Instant,
}

/// Samples received and lost.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    received: u64,
    lost: u64,
}

type Key = (String, String);

impl<'a> Gatherer<'a> {
    /// Of a plan, which is looked at so often.
    pub fn new(plan: &'a Plan, interval: Duration) -> Self {
        let count = plan.channels.len();
        Self {
            plan,
            verification: Verification::new(plan),
            running: vec![None; count],
            windows: vec![None; count],
            looked: Duration::ZERO,
            unplanned: Vec::new(),
            silent: Vec::new(),
            counters: vec![None; count],
            measured: BTreeSet::new(),
            interval,
            began: Instant::now(),
        }
    }

    /// For how long it has measured.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Asks all nodes. The verdicts that changed, each with its channel's place in the plan.
    pub fn look(&mut self, session: &Session) -> Vec<(usize, Change)> {
        let nodes = session.others();
        let census::Channels { mut channels, silent } = census::channels(session, &nodes);
        channels.retain(|channel| channel.topic != TOPIC);
        self.silent = silent;
        let holders = holders(&nodes);
        let live: Vec<Live> = channels.iter().map(|channel| live(channel, &holders)).collect();
        let found = find(self.plan, &live);
        self.unplanned = found.unplanned.iter().map(|at| live[*at].clone()).collect();
        let running = |at: usize| Running { live: live[at].clone(), carrier: channels[at].carrier.clone() };
        self.running = found.planned.iter().map(|at| at.map(running)).collect();
        let pairs = self.pairs(session, &holders);
        let reports = self.ask(session, &nodes, &pairs);
        let now = self.elapsed();
        let seconds = now.saturating_sub(std::mem::replace(&mut self.looked, now)).as_secs_f64();
        let mut changes = Vec::new();
        for (index, at) in found.planned.iter().enumerate() {
            let window = match (at, &self.running[index]) {
                (Some(at), Some(running)) => {
                    let delays = delays(&reports, running, pairs[index].as_ref());
                    self.count(index, &channels[*at], delays)
                }
                _ => self.counters[index].map(|_| Window::default()),
            };
            match &window {
                Some(window) => {
                    let change = self.verification.measured(index, now, window);
                    changes.extend(change.map(|change| (index, change)));
                }
                None if at.is_some() => self.verification.began(index, now),
                None => {}
            }
            self.windows[index] = window.map(|window| (seconds, window));
        }
        changes
    }

    /// The clocks of the ends of each channel; `None`: not known.
    fn pairs(&self, session: &Session, holders: &HashMap<&str, &Document>) -> Vec<Option<Pair>> {
        let mut clocks = Clocks::new();
        let mut pair = |running: &Option<Running>| {
            let Live { publisher, subscriber, .. } = &running.as_ref()?.live;
            clocks.pair(session, holders.get(publisher.as_str())?, holders.get(subscriber.as_str())?)
        };
        self.running.iter().map(&mut pair).collect()
    }

    /// Asks each node for the ends that it has: how late samples were since the last look.
    fn ask(
        &mut self,
        session: &Session,
        nodes: &[Document],
        pairs: &[Option<Pair>],
    ) -> HashMap<Key, Vec<LatenessReport>> {
        let mut wanted = Vec::new();
        for (index, (running, pair)) in self.running.iter().zip(pairs).enumerate() {
            let Some(Running { live: Live { topic, publisher, subscriber, .. }, .. }) = running else { continue };
            let latest = self.verification.promise(index).and_then(|promise| promise.latest_us);
            let limit = latest.zip(pair.as_ref()).map(|(us, pair)| pair.late_after(us * 1e3, self.interval));
            self.measured.insert(topic.clone());
            wanted.push(LateAfter {
                topic: topic.clone(),
                publisher: publisher.clone(),
                subscriber: subscriber.clone(),
                after_ns: limit.unwrap_or(i64::MAX),
            });
        }
        let request = Request::Lateness { channels: wanted };
        let mut reports: HashMap<Key, Vec<LatenessReport>> = HashMap::new();
        for (_, reply) in census::ask_all(session, nodes, &request) {
            let Some(Reply::Lateness(ends)) = reply else { continue };
            for end in ends {
                reports.entry((end.publisher.clone(), end.subscriber.clone())).or_default().push(end);
            }
        }
        reports
    }

    /// What happened since the last look; `None`: this is the first one.
    fn count(&mut self, index: usize, channel: &census::Channel, delays: Window) -> Option<Window> {
        let known = self.counters.get_mut(index)?;
        let before = known.unwrap_or_default();
        let lost = channel.lost.unwrap_or(0).saturating_add(channel.dropped.unwrap_or(0));
        let now = Counters { received: channel.received.unwrap_or(before.received), lost };
        let began = known.replace(now).is_none();
        // A counter that went back belongs to another channel between the same ports.
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let (received, lost) = (since(now.received, before.received), since(now.lost, before.lost));
        (!began).then_some(Window { received, lost, ..delays })
    }

    /// Leaves the channels as they were.
    pub fn stop_measuring(&self, session: &Session) {
        let nodes = session.others();
        for topic in &self.measured {
            census::ask_all(session, &nodes, &Request::Measure { topic: topic.clone(), every: 0 });
        }
    }
}

/// The node of each port.
fn holders(nodes: &[Document]) -> HashMap<&str, &Document> {
    nodes.iter().flat_map(|node| node.ports.values().map(move |port| (port.name.as_str(), node))).collect()
}

fn live(channel: &census::Channel, holders: &HashMap<&str, &Document>) -> Live {
    Live {
        topic: channel.topic.clone(),
        publisher: channel.publisher.clone(),
        publisher_node: holders.get(channel.publisher.as_str()).map(|node| node.name.clone()).unwrap_or_default(),
        subscriber: channel.subscriber.clone(),
    }
}

/// What both ends say of delays.
fn delays(reports: &HashMap<Key, Vec<LatenessReport>>, running: &Running, pair: Option<&Pair>) -> Window {
    let key = (running.live.publisher.clone(), running.live.subscriber.clone());
    let ends = reports.get(&key).map(Vec::as_slice).unwrap_or_default();
    let end = |name| ends.iter().find(|report| report.end == name);
    let Some(subscriber) = end("subscriber") else { return Window::default() };
    let us = |stages: &BTreeMap<String, u64>| {
        stages.iter().map(|(name, ns)| (name.clone(), *ns as f64 / 1e3)).collect::<BTreeMap<_, _>>()
    };
    let (sent, took) =
        (end("publisher").map(|report| us(&report.longest_ns)).unwrap_or_default(), us(&subscriber.longest_ns));
    let worst = subscriber.latest.as_ref().zip(pair).map(|(latest, pair)| {
        let (ns, uncertainty) = pair.between(latest.published_ns, latest.done_ns);
        Worst::new(ns as f64 / 1e3, uncertainty as f64 / 1e3, &sent, &us(&latest.stages_ns))
    });
    let sum =
        |stages: &BTreeMap<String, f64>, names: [&str; 2]| names.iter().filter_map(|name| stages.get(*name)).sum();
    Window {
        measured: subscriber.samples,
        late: subscriber.late,
        disordered: subscriber.disordered,
        worst,
        cost: Cost {
            send_us: sum(&sent, ["publish", "send"]),
            receive_us: sum(&took, ["decode", "callback"]),
            bytes: subscriber.largest_bytes,
        },
        ..Window::default()
    }
}
