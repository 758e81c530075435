//! The policies of this node's ports at run time: who judges, when to look again, and what is told.

use super::commands::Asker;
use super::control::Control;
use super::matching::Pair;
use super::permit::Caller;
use crate::admin::{self, Request};
use crate::channel::SentSelection;
use crate::codec::{Sought, topic_number};
use crate::control::{PortId, PortInfo};
use crate::event::Event;
use crate::port::{Judge, News, Writer};
use qos::{LivelinessKind, ResourceLimit};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is counted is told at most so often per port.
const TELLING: Duration = Duration::from_secs(1);

/// A port whose policies time passes for.
pub(super) struct Watched {
    port: PortId,
    judge: Arc<Judge>,
    reads: bool,
    look_at: Instant,
    tell_at: Instant,
}

impl Control {
    /// A channel between two ports begins: its subscriber's judge knows the publisher from now on. What of it a publisher of
    /// this process sends.
    pub(super) fn begin_policies(
        &self,
        (publisher, subscriber): Pair,
        (offered, asked): (&PortInfo, &PortInfo),
        carrier: &str,
    ) -> Option<SentSelection> {
        let key = if asked.qos.key.is_empty() { &offered.qos.key } else { &asked.qos.key };
        let filter = asked.qos.filter.as_ref();
        // The two were compared: the fields are there.
        let sought = || Sought::find(offered.message.schema.as_ref(), key, filter).ok();
        let shared = self.carrier(carrier).is_some_and(|carrier| carrier.capabilities().multicast);
        if subscriber.node == self.state.id
            && let Some(inlet) = self.state.inlet(subscriber.port)
            && let Some((judge, sought)) = inlet.judge().zip(sought())
        {
            let (name, topic, offered) = (offered.name.clone(), topic_number(&offered.topic), offered.qos.clone());
            let key = key.clone();
            let writer = Writer { port: publisher, name, topic, offered, sought, key, filters_here: shared };
            judge.came(writer, linux::clock::monotonic_ns());
        }
        // A group sends to all its members.
        let sends = (publisher.node == self.state.id || carrier == "local") && !shared;
        if sends { SentSelection::of(&asked.qos, sought()?) } else { None }
    }

    /// A port of this node was opened.
    pub(super) fn watch_policies(&mut self, port: PortId) {
        let read = self.state.inlet(port).and_then(|inlet| inlet.judge().cloned());
        let written = || self.state.outlet(port).and_then(|(outlet, _)| outlet.judge().cloned());
        let (now, reads) = (Instant::now(), read.is_some());
        if let Some(judge) = read.or_else(written) {
            self.watched.push(Watched { port, judge, reads, look_at: now, tell_at: now });
        }
    }

    /// A port of this node was closed.
    pub(super) fn unwatch_policies(&mut self, port: PortId) {
        self.watched.retain(|watched| watched.port != port);
    }

    /// When to look at policies again.
    pub(super) fn next_judgement(&self) -> Option<Instant> {
        self.watched.iter().map(|watched| watched.look_at).min()
    }

    /// Looks at those policies that it is time for, and tells what they noticed.
    pub(super) fn look_at_policies(&mut self, now: Instant) {
        for watched in self.watched.iter_mut().filter(|watched| watched.look_at <= now) {
            let tells = watched.tell_at <= now;
            let (news, pause) = watched.judge.look(linux::clock::monotonic_ns(), tells);
            watched.look_at = now + pause;
            let changes = |news: &News| matches!(news, News::LivelinessChanged { .. } | News::InstanceChanged { .. });
            if news.iter().any(|news| !changes(news)) {
                watched.tell_at = now + TELLING;
            }
            for news in news {
                self.state.events.push(event(watched.judge.name(), watched.reads, news));
            }
        }
    }

    /// Ports of this node said that they are alive: tells the nodes of their subscribers.
    pub(super) fn tell_alive(&mut self, ports: Vec<PortId>) {
        for port in ports {
            let Some((outlet, _)) = self.state.outlet(port) else { continue };
            let nodes: BTreeSet<_> = outlet.channels().iter().map(|channel| channel.subscriber.node).collect();
            let request = admin::pack(&Request::Alive { publisher: outlet.info().name.clone() });
            for node in nodes {
                match node == self.state.id {
                    true => self.asked(&request, Caller::HERE, Asker::Nobody),
                    false => self.ask(node, &request, Asker::Nobody),
                }
            }
        }
    }

    /// A publisher said that it is alive.
    pub(super) fn heard_alive(&mut self, publisher: &str) -> admin::Reply {
        let now = linux::clock::monotonic_ns();
        for (_, inlet) in self.state.inlets() {
            let Some(judge) = inlet.judge() else { continue };
            let channels = inlet.channels().lock().map(|channels| channels.clone()).unwrap_or_default();
            let its = channels.iter().filter(|channel| channel.publisher_name == publisher);
            its.for_each(|channel| judge.sign(channel.publisher, now));
        }
        admin::Reply::Done
    }

    /// The ports of this node that show together that they are alive.
    pub(super) fn alive_by_node(&self) -> Vec<PortId> {
        let by_node = |info: &PortInfo| info.qos.liveliness.kind == LivelinessKind::ByNode;
        let ports = self.state.document();
        ports.ports.iter().filter(|(_, info)| by_node(info)).map(|(port, _)| *port).collect()
    }
}

fn event(port: &str, reads: bool, news: News) -> Event {
    let port = port.to_owned();
    match news {
        News::DeadlineMissed { instance, missed, total } => Event::DeadlineMissed { port, instance, missed, total },
        News::BudgetExceeded { late, total } => Event::BudgetExceeded { subscriber: port, late, total },
        News::Rejected { most, rejected, total } => {
            let (limit, most) = (ResourceLimit::Instances, u64::from(most));
            Event::SampleRejected { subscriber: port, limit, most, rejected, total }
        }
        News::InstanceChanged { key, state } => Event::InstanceChanged { subscriber: port, key, state },
        News::LivelinessChanged { publisher, alive } => {
            Event::LivelinessChanged { publisher, subscriber: reads.then_some(port), alive }
        }
    }
}
