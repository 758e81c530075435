//! From Thalweg to the engine: one topic, with a publisher in the engine for each publisher of Thalweg.
//!
//! The subscriber opens when somebody wants the topic in the engine, or when a publisher keeps samples for late joiners or answers
//! questions; else no sample reaches the bridge. While the engine takes a sample, no lock is held that the bridge's loop takes: a slow
//! engine holds up this topic alone.

mod line;
mod request;

use super::early::{self, Early};
use super::place::Place;
use super::routes::Out;
use crate::engine::services::{asked, is_numbered};
use crate::engine::{Engine, Error, Result};
use crate::lock;
use line::Line;
use qos::priority::Mark;
use qos::{Durability, Qos};
pub(super) use request::request as request_of;
use request::{request, serves};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::{Node, PortRef, SampleInfo, Subscriber};

/// Samples of a publisher that has closed may still be on their way for so long.
const ON_THE_WAY: Duration = Duration::from_secs(1);

pub(super) struct Outlet {
    lines: Arc<Lines>,
    subscriber: Option<Subscriber<Untyped>>,
    /// The request of the open subscriber.
    request: Option<Qos>,
    /// The subscriber is wanted and did not open.
    left_out: bool,
}

/// The publishers of a topic in the engine, by those of Thalweg.
#[derive(Default)]
struct Lines {
    open: Mutex<HashMap<PortRef, Arc<Line>>>,
    /// Samples of publishers that the bridge does not know yet.
    early: Mutex<Early<SampleInfo>>,
    /// Held while a sample leaves: none overtakes one that came before its publisher was known, or by the subscriber before.
    leaving: Mutex<()>,
    /// Publishers that have no route.
    ignored: Mutex<HashSet<PortRef>>,
    sent: AtomicU64,
    failed: Mutex<Option<Error>>,
}

impl Outlet {
    pub(super) fn new() -> Self {
        Self { lines: Arc::default(), subscriber: None, request: None, left_out: false }
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
        self.lines.ignore(|at| is_there(at) && !routes.contains_key(at));
        Lines::send_early_apart(&self.lines);
        failed
    }

    /// Opens the subscriber if somebody wants its samples, else closes it; and closes publishers that have left.
    pub(super) fn open_or_close(&mut self, node: &Node, topic: &str, place: &Place, now: Instant) -> Result<()> {
        let mut left = Vec::new();
        lock(&self.lines.open).retain(|_, line| {
            !line.has_left(ON_THE_WAY, now) || {
                left.push(line.clone());
                false
            }
        });
        drop(left); // without the lock
        let lines = self.lines.all();
        let wanted = lines.iter().any(|line| line.is_wanted() || keeps(&line.route.qos) || answers(&line.route));
        let first = lines.first().filter(|_| wanted);
        let request = first.map(|first| request(&first.route.qos, lines.iter().map(|line| &line.route.qos)));
        self.left_out = false;
        if serves(&self.request, &request) {
            return Ok(());
        }
        // Its last sample may still be with the engine; those of the next one leave after it.
        self.subscriber = None;
        self.request.clone_from(&request);
        let (Some(request), Some(first)) = (request, first) else { return Ok(()) };
        let (lines, own) = (self.lines.clone(), node.id());
        let builder = node.subscriber::<Untyped>(topic).qos(request).foreign(place.end(first.route.there.clone()));
        let opened = builder.callback(move |sample| {
            if sample.info().node != own {
                lines.take(sample.info(), &sample);
            }
        });
        let refused = |_: &thalweg::Error| (self.request, self.left_out) = (None, true);
        self.subscriber = Some(opened.inspect_err(refused)?);
        Ok(())
    }

    /// `true` if its samples do not leave although they are wanted: the subscriber did not open.
    pub(super) fn is_left_out(&self) -> bool {
        self.left_out
    }

    /// Gives each publisher in the engine the class that an administrator has set for the channel to the bridge (`thalweg set`), else that of
    /// its route. Returns the reasons of those that keep theirs.
    pub(super) fn follow_classes(&self, node: &Node, engine: &dyn Engine) -> Vec<Error> {
        let Some(subscriber) = &self.subscriber else { return Vec::new() };
        let reports = node.priority_report(subscriber.name(), None).unwrap_or_default();
        let set = |publisher: &str| {
            let report = reports.iter().find(|report| report.publisher == publisher)?;
            report.asked.mark.and_then(Mark::class)
        };
        let lines = self.lines.all();
        lines.iter().filter_map(|line| line.change_class(engine, set(&line.route.publisher)).err()).collect()
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

    fn line(&self, at: &PortRef) -> Option<Arc<Line>> {
        lock(&self.open).get(at).cloned()
    }

    fn take(&self, info: &SampleInfo, message: &[u8]) {
        let at = publisher(info);
        let line = self.line(&at);
        if line.is_none() {
            self.keep(&at, info, message);
        }
        // The line may have opened since: then nobody else comes for the sample.
        if line.is_some() || self.line(&at).is_some() {
            let _leaving = lock(&self.leaving);
            self.send_early();
            line.iter().for_each(|line| self.send(line, info, message));
        }
    }

    fn keep(&self, at: &PortRef, info: &SampleInfo, message: &[u8]) {
        if !lock(&self.ignored).contains(at) && !lock(&self.early).keep(*info, message.to_vec()) {
            let why = "samples that came before their publisher was known were dropped: too many, or too large";
            *lock(&self.failed) = Some(Error::Engine(why.to_owned()));
        }
    }

    /// Sends the samples that have waited and whose publishers have a line now, in their order. `leaving` is held.
    fn send_early(&self) {
        while let Some((line, info, message)) = self.next_early() {
            self.send(&line, &info, &message);
        }
    }

    fn next_early(&self) -> Option<(Arc<Line>, SampleInfo, Vec<u8>)> {
        let open = lock(&self.open);
        let (info, message) = lock(&self.early).take_first(|info| open.contains_key(&publisher(info)))?;
        Some((open.get(&publisher(&info))?.clone(), info, message))
    }

    /// As [`Self::send_early`] on a thread of its own: the engine may be slow, and this is the bridge's loop.
    fn send_early_apart(lines: &Arc<Self>) {
        let leave = {
            let open = lock(&lines.open);
            lock(&lines.early).iter().any(|info| open.contains_key(&publisher(info)))
        };
        if leave {
            let sending = lines.clone();
            let body = move || {
                let _leaving = lock(&sending.leaving);
                sending.send_early();
            };
            // Without a thread they leave before the publisher's next sample.
            let _ = linux::thread::spawn(linux::thread::Settings::named("early"), body);
        }
    }

    /// Publishers that are known by now and are not carried: their samples do not wait.
    fn ignore(&self, is_not_carried: impl Fn(&PortRef) -> bool) {
        let waiting: HashSet<PortRef> = lock(&self.early).iter().map(publisher).collect();
        let over: HashSet<PortRef> = waiting.into_iter().filter(is_not_carried).collect();
        lock(&self.early).retain(|info| !over.contains(&publisher(info)));
        let mut ignored = lock(&self.ignored);
        let room = early::MOST.saturating_sub(ignored.len());
        ignored.extend(over.into_iter().take(room));
    }

    fn send(&self, line: &Line, info: &SampleInfo, message: &[u8]) {
        match line.publish(info, message) {
            Ok(true) => drop(self.sent.fetch_add(1, Ordering::Relaxed)),
            Ok(false) => {}
            Err(error) => *lock(&self.failed) = Some(error),
        }
    }
}

fn publisher(info: &SampleInfo) -> PortRef {
    PortRef { node: info.node, port: info.port }
}

/// `true` for a publisher of answers: the first question may come as soon as somebody there wants them.
fn answers(route: &Out) -> bool {
    asked(&route.topic).is_some() && is_numbered(&route.message)
}

/// `true` for a publisher that keeps samples for late joiners.
fn keeps(qos: &Qos) -> bool {
    qos.durability == Durability::TransientLocal
}

#[cfg(test)]
mod tests;
