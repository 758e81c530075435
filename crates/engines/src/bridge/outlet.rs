//! From Thalweg to the engine: one topic, with a publisher in the engine for each publisher of Thalweg.
//!
//! The subscriber opens when somebody wants the topic in the engine, or when a publisher keeps samples for late joiners; else no sample
//! reaches the bridge. No lock is held while the engine takes a sample, so a slow engine holds up this topic alone.

mod line;

use super::routes::Out;
use crate::engine::{Engine, Error, Result};
use crate::lock;
use line::Line;
use qos::priority::Mark;
use qos::{Durability, PolicyName, Qos};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::control::Foreign;
use thalweg::{Node, PortRef, SampleInfo, Subscriber};

/// Samples of publishers that the bridge does not know yet wait until it does: at most so many, and bytes.
const MOST_EARLY: usize = 1024;
const EARLY_BYTES: usize = 16 << 20;
/// Samples of a publisher that has closed may still be on their way for so long.
const ON_THE_WAY: Duration = Duration::from_secs(1);

pub(super) struct Outlet {
    lines: Arc<Lines>,
    subscriber: Option<Subscriber<Untyped>>,
    /// The request of the open subscriber.
    request: Option<Qos>,
}

/// The publishers of a topic in the engine, by those of Thalweg.
#[derive(Default)]
struct Lines {
    open: Mutex<HashMap<PortRef, Arc<Line>>>,
    early: Mutex<Early>,
    sent: AtomicU64,
    failed: Mutex<Option<Error>>,
}

/// Samples that came before their publisher's route.
#[derive(Default)]
struct Early {
    samples: VecDeque<(SampleInfo, Vec<u8>)>,
    bytes: usize,
    /// Publishers that have no route.
    ignored: HashSet<PortRef>,
}

impl Outlet {
    pub(super) fn new() -> Self {
        Self { lines: Arc::default(), subscriber: None, request: None }
    }

    /// Opens publishers of the engine until there is one for each route. Those whose publisher here is gone leave, and those that are not to be
    /// carried any more close at once. Those that do not open are given by their topic there.
    pub(super) fn adjust(
        &mut self,
        engine: &dyn Engine,
        routes: &BTreeMap<PortRef, Out>,
        is_there: impl Fn(&PortRef) -> bool,
        now: Instant,
    ) -> Vec<(String, Error)> {
        let mut failed = Vec::new();
        let is_open =
            |at: &PortRef, route: &Out| lock(&self.lines.open).get(at).is_some_and(|line| line.route == *route);
        for (at, route) in routes.iter().filter(|(at, route)| !is_open(at, route)) {
            match Line::open(engine, route) {
                Ok(line) => drop(lock(&self.lines.open).insert(*at, Arc::new(line))),
                Err(error) => failed.push((route.there.clone(), error)),
            }
        }
        let mut closed = Vec::new();
        lock(&self.lines.open).retain(|at, line| {
            let over = !routes.contains_key(at);
            match over && is_there(at) {
                true => closed.push(line.clone()),
                false if over => line.leave(now),
                false => {}
            }
            !(over && is_there(at))
        });
        drop(closed); // without the lock
        self.lines.send_early();
        failed
    }

    /// Opens the subscriber if somebody wants its samples, else closes it; and closes publishers that have left.
    pub(super) fn open_or_close(&mut self, node: &Node, topic: &str, engine: &str, now: Instant) -> Result<()> {
        let mut left = Vec::new();
        lock(&self.lines.open).retain(|_, line| {
            !line.has_left(ON_THE_WAY, now) || {
                left.push(line.clone());
                false
            }
        });
        drop(left); // without the lock
        let lines = self.lines.all();
        let wanted = lines.iter().any(|line| line.is_wanted() || keeps(&line.route.qos));
        let first = lines.first().filter(|_| wanted);
        let request = first.map(|first| request(&first.route.qos, lines.iter().map(|line| &line.route.qos)));
        if serves(&self.request, &request) {
            return Ok(());
        }
        // Closing a subscriber waits for its callback.
        self.subscriber = None;
        self.request.clone_from(&request);
        let (Some(request), Some(first)) = (request, first) else { return Ok(()) };
        let (lines, own) = (self.lines.clone(), node.id());
        let foreign = Foreign { engine: engine.to_owned(), name: first.route.there.clone() };
        let builder = node.subscriber::<Untyped>(topic).qos(request).foreign(foreign);
        let opened = builder.callback(move |sample| {
            if sample.info().node != own {
                lines.take(sample.info(), &sample);
            }
        });
        self.subscriber = Some(opened.inspect_err(|_| self.request = None)?);
        Ok(())
    }

    /// Gives each publisher in the engine the class that an administrator has set for the channel to the bridge (`thalweg set`), else that of
    /// its route. A publisher that keeps samples keeps its class, too: one of another class would not have them.
    pub(super) fn follow_classes(&self, node: &Node, engine: &dyn Engine) -> Result<()> {
        let Some(subscriber) = &self.subscriber else { return Ok(()) };
        let reports = node.priority_report(subscriber.name(), None).unwrap_or_default();
        let set = |publisher: &str| {
            let report = reports.iter().find(|report| report.publisher == publisher)?;
            report.asked.mark.and_then(Mark::class)
        };
        let mut changing = self.lines.all().into_iter().filter(|line| !keeps(&line.route.qos));
        changing.try_for_each(|line| line.change_class(engine, set(&line.route.publisher)))
    }

    /// Publishers whose class has changed take over.
    pub(super) fn go_over(&self) {
        self.lines.all().iter().for_each(|line| line.go_over());
    }

    /// Publishers in the engine.
    pub(super) fn publishers(&self) -> usize {
        self.lines.all().iter().filter(|line| !line.leaves()).count()
    }

    /// `true` if nothing is left to do here.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.lines.open).is_empty()
    }

    pub(super) fn is_open(&self) -> bool {
        self.subscriber.is_some()
    }

    pub(super) fn sent(&self) -> u64 {
        self.lines.sent.load(Ordering::Relaxed)
    }

    /// The last error of a sample, once.
    pub(super) fn failed(&self) -> Option<Error> {
        lock(&self.lines.failed).take()
    }
}

impl Lines {
    fn all(&self) -> Vec<Arc<Line>> {
        lock(&self.open).values().cloned().collect()
    }

    fn take(&self, info: &SampleInfo, message: &[u8]) {
        let at = PortRef { node: info.node, port: info.port };
        let line = lock(&self.open).get(&at).cloned();
        match line {
            Some(line) => self.send(&line, info, message),
            None if lock(&self.early).keep(at, info, message) => {}
            None => {
                let why = "samples that came before their publisher was known were dropped: too many, or too large";
                *lock(&self.failed) = Some(Error::Engine(why.to_owned()));
            }
        }
    }

    /// Sends the samples of publishers that have a route now. The others have none.
    fn send_early(&self) {
        let samples = lock(&self.early).take_all();
        for (info, message) in samples {
            let at = PortRef { node: info.node, port: info.port };
            let line = lock(&self.open).get(&at).cloned();
            match line {
                Some(line) => self.send(&line, &info, &message),
                None => lock(&self.early).ignore(at),
            }
        }
    }

    fn send(&self, line: &Line, info: &SampleInfo, message: &[u8]) {
        match line.publish(info, message) {
            Ok(true) => drop(self.sent.fetch_add(1, Ordering::Relaxed)),
            Ok(false) => {}
            Err(error) => *lock(&self.failed) = Some(error),
        }
    }
}

impl Early {
    /// Keeps a sample; `false`: older ones were dropped for it.
    fn keep(&mut self, at: PortRef, info: &SampleInfo, message: &[u8]) -> bool {
        if self.ignored.contains(&at) {
            return true;
        }
        self.bytes += message.len();
        self.samples.push_back((*info, message.to_vec()));
        let before = self.samples.len();
        while self.samples.len() > MOST_EARLY || self.bytes > EARLY_BYTES {
            let Some((_, oldest)) = self.samples.pop_front() else { break };
            self.bytes -= oldest.len();
        }
        self.samples.len() == before
    }

    fn take_all(&mut self) -> VecDeque<(SampleInfo, Vec<u8>)> {
        self.bytes = 0;
        std::mem::take(&mut self.samples)
    }

    fn ignore(&mut self, at: PortRef) {
        if self.ignored.len() < MOST_EARLY {
            self.ignored.insert(at);
        }
    }
}

fn keeps(qos: &Qos) -> bool {
    qos.durability == Durability::TransientLocal
}

/// The largest message, and the longest history: as much as a publisher offers.
const LARGEST: u32 = 1 << 30;
const LONGEST: u32 = 1 << 20;

/// The request that takes what each of these publishers can give. What the rules say of the topic is in each offer.
fn request<'a>(first: &Qos, offers: impl Iterator<Item = &'a Qos> + Clone) -> Qos {
    Qos {
        reliability: offers.clone().map(|offer| offer.reliability).max().unwrap_or_default(),
        durability: offers.map(|offer| offer.durability).max().unwrap_or_default(),
        history: LONGEST,
        fallback: vec![
            PolicyName::Reliability,
            PolicyName::Durability,
            PolicyName::Deadline,
            PolicyName::LatencyBudget,
            PolicyName::DestinationOrder,
            PolicyName::Liveliness,
            PolicyName::Ownership,
        ],
        ownership: first.ownership,
        partition: vec!["*".to_owned()],
        max_message: LARGEST,
        scale: first.scale,
        picture: first.picture,
        separation: first.separation,
        ..Qos::default()
    }
}

/// `true` if a subscriber with the request `open` is what is wanted: one that requests more goes on, so that no sample is lost.
fn serves(open: &Option<Qos>, wanted: &Option<Qos>) -> bool {
    let (Some(open), Some(wanted)) = (open, wanted) else { return open == wanted };
    let same =
        Qos { reliability: open.reliability, durability: open.durability, ownership: open.ownership, ..wanted.clone() };
    open.reliability >= wanted.reliability && open.durability >= wanted.durability && same == *open
}
