//! Administration: what this node does for other nodes, and its knowledge of two ports, for `thalweg why`.

use super::commands::Answered;
use super::control::Control;
use super::keep::refuse_names;
use super::matching::{Progress, Route, Wanted};
use super::permit::Caller;
use super::priority::Source;
use super::state::NodeState;
use crate::admin::explain::{Explanation, MOST_EVENTS, Stage, Way};
use crate::channel::{Channel, End, PortRef};
use crate::control::kept::Connection;
use crate::control::{Direction, Document, limits};
use crate::event::Event;
use crate::port::AnyPublisher;
use crate::port::monitor::slot::MonitorSlot;
use crate::trace::stages::{Asked, LateAfter, MOST_LATENESS};
use crate::{admin, carrier};
use std::sync::Arc;
use std::time::Duration;

impl NodeState {
    /// Memory that this node holds for its channels and for documents.
    pub(crate) fn memory_report(&self) -> admin::MemoryReport {
        let directory = self.directory();
        let (used, limit) = (directory.weight() as u64, limits::MOST_BYTES as u64);
        let (refused, left_out) = (directory.turned_away(), self.left_out());
        let documents = admin::DocumentMemory { used, limit, refused, left_out };
        drop(directory);
        admin::MemoryReport { documents, ..self.memory.report() }
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// Carries out an administrative request.
    pub(super) fn administer(&mut self, request: admin::Request, caller: Caller) -> Answered {
        let request = match self.permitted(request, caller) {
            Ok(request) => request,
            Err(why) => return Answered::Here(admin::Reply::No(why)),
        };
        Answered::Here(match request {
            admin::Request::Channels => admin::Reply::Channels(self.reports()),
            admin::Request::Connect { publisher, subscriber, carrier } => self.connect(publisher, subscriber, carrier),
            admin::Request::Keep { publisher, subscriber, carrier, priority } => {
                self.keep_connected(Connection { publisher, subscriber, carrier, priority }, caller)
            }
            admin::Request::Disconnect { publisher, subscriber } => self.disconnect(publisher, subscriber),
            admin::Request::Command { port, text } => return self.command_port(&port, &text, caller),
            admin::Request::Set { port, other, changes } => self.set_priority(&port, &other, &changes),
            admin::Request::Remember { port, other, settings } => self.remember((port, other), settings, Source::Set),
            admin::Request::Get { port, other } => self.get_priority(&port, other.as_deref()),
            admin::Request::Scale { publisher, subscriber, changes } => {
                self.set_proxy(&publisher, &subscriber, &changes).map_or_else(admin::Reply::No, |()| admin::Reply::Done)
            }
            admin::Request::Measure { topic, every } => {
                let now = linux::clock::monotonic_ns();
                self.ends(&topic, self.publisher_ports())
                    .iter()
                    .for_each(|(_, channel)| channel.stages.measure(now, every));
                self.stages(&topic)
            }
            admin::Request::Stages { topic } => self.stages(&topic),
            admin::Request::Lateness { channels, asked } => self.lateness(channels, asked),
            admin::Request::Verdict { publisher, subscriber, verdict, because } => {
                self.state.events.push(Event::PromiseChanged { publisher, subscriber, verdict, because });
                admin::Reply::Done
            }
            admin::Request::Clock => admin::Reply::Clock(linux::clock::monotonic_ns()),
            admin::Request::Memory => admin::Reply::Memory(self.state.memory_report()),
            admin::Request::Alive { publisher } => self.heard_alive(&publisher),
            admin::Request::Explain { publisher, subscriber } => {
                admin::Reply::Explanation(self.explain(&publisher, &subscriber))
            }
        })
    }

    pub(super) fn reports(&self) -> Vec<crate::channel::ChannelReport> {
        let own = self.state.publisher_ports().into_iter().flat_map(|publisher_port| publisher_port.reports());
        let sent = own.chain(self.hosted_reports());
        let received = self.state.subscriber_ports().into_iter().flat_map(|(_, i)| i.reports());
        sent.chain(received).collect()
    }

    /// The ends of a topic's channels at this node: those of all subscribers, and those of these publishing ends.
    fn ends(&self, topic: &str, publisher_ports: Vec<Arc<dyn AnyPublisher>>) -> Vec<(End, Arc<Channel>)> {
        let sent = publisher_ports
            .into_iter()
            .flat_map(|publisher_port| publisher_port.channels())
            .map(|c| (End::Publisher, c));
        let received = self.state.subscriber_ports().into_iter().flat_map(|(_, subscriber_port)| {
            let channels = subscriber_port.channels().lock().unwrap_or_else(|e| e.into_inner());
            channels.iter().map(|c| (End::Subscriber, c.clone())).collect::<Vec<_>>()
        });
        sent.chain(received).filter(|(_, channel)| channel.topic == topic).collect()
    }

    fn stages(&self, topic: &str) -> admin::Reply {
        // Within a process both ends are one object.
        let once =
            |(end, channel): &(End, Arc<Channel>)| *end == End::Publisher || channel.carrier != carrier::Name::Local;
        let report = |(end, channel): (End, Arc<Channel>)| channel.stages_report(end);
        let ends = self.ends(topic, self.state.publisher_ports()).into_iter();
        let own = ends.filter(once).filter_map(report);
        admin::Reply::Stages(own.chain(self.stages_of_hosted(topic)).collect())
    }

    fn lateness(&self, wanted: Vec<LateAfter>, asked: Asked) -> admin::Reply {
        if wanted.len() > MOST_LATENESS {
            return admin::Reply::No(format!(
                "{} channels, allowed are {MOST_LATENESS}: ask several times",
                wanted.len()
            ));
        }
        let mut reports = Vec::new();
        for LateAfter { topic, publisher, subscriber, after_ns } in wanted {
            let ends = self.ends(&topic, self.publisher_ports()).into_iter();
            let same = |channel: &Channel| channel.publisher_name == publisher && channel.subscriber_name == subscriber;
            // Within a process both ends are one object: its lateness is reported as that of the subscriber.
            let once = |(end, channel): &(End, Arc<Channel>)| {
                *end == End::Subscriber || channel.carrier != carrier::Name::Local
            };
            let meant = ends.filter(|(_, channel)| same(channel)).filter(once);
            reports.extend(meant.map(|(end, channel)| channel.lateness_report(end, after_ns, asked)));
        }
        admin::Reply::Lateness(reports)
    }

    pub(super) fn connect(
        &mut self,
        publisher: String,
        subscriber: String,
        carrier: Option<carrier::Name>,
    ) -> admin::Reply {
        if let Some(why) = self.refuse_carrier(carrier.as_ref()) {
            return admin::Reply::No(why);
        }
        let Some((port, subscriber_port)) =
            self.state.subscriber_ports().into_iter().find(|(_, i)| i.info().name == subscriber)
        else {
            return admin::Reply::No(format!("this node has no subscriber {subscriber}"));
        };
        let Some((other, offered)) = self.known(&publisher) else {
            return admin::Reply::No(format!("no port {publisher} is known"));
        };
        if offered.direction != Direction::Publisher {
            return admin::Reply::No(format!("{publisher} is a subscriber: say the publisher first"));
        }
        let names = (publisher, subscriber);
        let before = self.matching.connect(names.clone(), carrier.clone());
        let me = PortRef { node: self.state.id, port };
        self.cut_wanted((other, me), "connected anew by an administrator");
        self.consider(other, &offered, me, subscriber_port.info());
        if self.matching.is_wanted(&(other, me)) {
            return admin::Reply::Done;
        }
        // The ports cannot be connected: the former state is restored.
        let over = carrier.map_or(String::new(), |name| format!(" over {name}"));
        let text = format!("{} cannot be connected to {}{over}: see `thalweg info` of both", names.0, names.1);
        self.matching.restore(names, before);
        self.consider(other, &offered, me, subscriber_port.info());
        admin::Reply::No(text)
    }

    pub(super) fn refuse_carrier(&self, carrier: Option<&carrier::Name>) -> Option<String> {
        let unknown = carrier.filter(|name| !name.is_built_in() && self.state.carrier(name).is_none());
        unknown.map(|name| format!("carrier {:?}: this node has {}", name.as_str(), carrier::Name::listed()))
    }

    pub(super) fn disconnect(&mut self, publisher: String, subscriber: String) -> admin::Reply {
        if let Some(why) = refuse_names([&publisher, &subscriber]) {
            return admin::Reply::No(why);
        }
        let names = (publisher, subscriber);
        if self.matching.apart_count() >= MOST_APART && !self.matching.is_apart(&names) {
            return admin::Reply::No(format!("{MOST_APART} pairs of ports are kept apart already: connect some"));
        }
        let kept = self.forget_kept(&names.0, &names.1);
        match self.matching.disconnect(names.clone()) {
            Some(action) => {
                self.act([action]);
                admin::Reply::Done
            }
            None if kept => admin::Reply::Done,
            None => admin::Reply::No(format!("{} and {} were not connected; they will not be", names.0, names.1)),
        }
    }

    fn explain(&self, publisher: &str, subscriber: &str) -> Explanation {
        let names = (publisher.to_owned(), subscriber.to_owned());
        let wanted = self.matching.between(publisher, subscriber).and_then(|pair| self.matching.get(&pair));
        let subscriber_ports = self.state.subscriber_ports();
        let subscriber_port =
            subscriber_ports.iter().find(|(_, subscriber_port)| subscriber_port.info().name == subscriber);
        let other = if subscriber_port.is_some() { publisher } else { subscriber };
        Explanation {
            other: self.holder(other),
            apart: self.matching.is_apart(&names),
            by_name: self.matching.is_by_name(&names),
            stage: wanted.map_or(Stage::Unwanted, stage),
            ways: wanted.map(ways).unwrap_or_default(),
            around: !self.state.settings.around.is_nothing(),
            events: self.events_of(publisher, subscriber),
            monitors: self.monitors_of(publisher, subscriber),
            subscriber: subscriber_port.map(|(_, subscriber_port)| subscriber_port.state()),
        }
    }

    /// The document of the node that has this port, with this port only: all ports of the node might not fit into an answer.
    fn holder(&self, port: &str) -> Option<Document> {
        let directory = self.state.directory();
        let (key, _) = directory.port_named(port)?;
        let mut node = directory.node(key.node)?.clone();
        node.ports.retain(|id, _| *id == key.port);
        Some(node)
    }

    fn monitors_of(&self, publisher: &str, subscriber: &str) -> Vec<String> {
        let (publisher_ports, subscriber_ports) = (self.state.publisher_ports(), self.state.subscriber_ports());
        let out = publisher_ports.iter().filter(|o| o.info().name == publisher).map(|o| (publisher, o.monitor()));
        let into = subscriber_ports
            .iter()
            .filter(|(_, i)| i.info().name == subscriber)
            .map(|(_, i)| (subscriber, i.monitor()));
        let describe = |(port, slot): (&str, &MonitorSlot)| {
            let words: Vec<String> =
                slot.parameters().ok()?.iter().map(|(key, value)| format!("{key} {value}")).collect();
            Some(format!("{port}: {}", words.join(", ")))
        };
        out.chain(into).filter_map(describe).collect()
    }

    fn events_of(&self, publisher: &str, subscriber: &str) -> Vec<Event> {
        let mut reader = self.state.events.reader();
        let all = std::iter::from_fn(|| reader.wait(Duration::ZERO));
        let hosted = self.relay.streams.iter().map(|(_, hosted)| hosted).filter(|hosted| hosted.is_of(publisher));
        let proxies: Vec<&str> = hosted.map(|hosted| hosted.proxy_name()).collect();
        let of_proxy = |event: &Event| matches!(event, Event::Undecodable { subscriber, .. } if proxies.contains(&subscriber.as_str()));
        let mut events: Vec<Event> =
            all.filter(|event| of_proxy(event) || is_about(event, publisher, subscriber)).collect();
        events.split_off(events.len().saturating_sub(MOST_EVENTS))
    }
}

fn is_about(event: &Event, p: &str, s: &str) -> bool {
    match event {
        Event::Matched { publisher, subscriber, .. }
        | Event::Incompatible { publisher, subscriber, .. }
        | Event::Unmatched { publisher, subscriber, .. }
        | Event::CarrierFailed { publisher, subscriber, .. }
        | Event::PriorityChanged { publisher, subscriber, .. }
        | Event::SampleLost { publisher, subscriber, .. }
        | Event::PromiseChanged { publisher, subscriber, .. }
        | Event::SlowCallback { publisher, subscriber, .. } => publisher == p && subscriber == s,
        Event::Undecodable { subscriber, .. }
        | Event::BudgetExceeded { subscriber, .. }
        | Event::InstanceChanged { subscriber, .. }
        | Event::SampleRejected { subscriber, .. } => subscriber == s,
        Event::DeadlineMissed { port, .. } | Event::NotKept { port, .. } | Event::KeptNow { port, .. } => {
            port == p || port == s
        }
        Event::LivelinessChanged { publisher, .. } => publisher == p,
        Event::NameTaken { name, .. } => name == p || name == s,
        Event::Warning { text } => text.split([' ', ':', ';', ',']).any(|word| word == s || word == p),
    }
}

fn stage(wanted: &Wanted) -> Stage {
    match wanted.progress {
        Progress::Idle(_) => Stage::Waiting,
        Progress::Handshake => Stage::Trying,
        Progress::Open(_) => Stage::Open,
        Progress::Refused => Stage::Refused,
    }
}

fn ways(wanted: &Wanted) -> Vec<Way> {
    let to = |route: &Route| match route {
        Route::Process => "this process".to_owned(),
        Route::Unix(path) => path.display().to_string(),
        Route::Tcp(address) => address.to_string(),
    };
    wanted.candidates.iter().map(|c| Way { carrier: c.carrier.clone(), to: to(&c.route) }).collect()
}

/// Most pairs of ports that are kept apart.
const MOST_APART: usize = 4096;
