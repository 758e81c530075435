//! The knowledge of this node about two ports, for `thalweg why`.

use super::control::Control;
use super::matching::{Progress, Route, Wanted};
use crate::admin::explain::{Explanation, MOST_EVENTS, Stage, Way};
use crate::control::Document;
use crate::event::Event;
use crate::port::monitor::seat::Seat;
use std::time::Duration;

impl Control {
    pub(super) fn explain(&self, publisher: &str, subscriber: &str) -> Explanation {
        let names = (publisher.to_owned(), subscriber.to_owned());
        let wanted = self.matching.between(publisher, subscriber).and_then(|pair| self.matching.get(&pair));
        let inlets = self.state.inlets();
        let inlet = inlets.iter().find(|(_, inlet)| inlet.info().name == subscriber);
        let other = if inlet.is_some() { publisher } else { subscriber };
        Explanation {
            other: self.holder(other),
            apart: self.matching.is_apart(&names),
            by_name: self.matching.is_by_name(&names),
            stage: wanted.map_or(Stage::Unwanted, stage),
            ways: wanted.map(ways).unwrap_or_default(),
            around: !self.state.settings.around.is_nothing(),
            events: self.events_of(publisher, subscriber),
            monitors: self.monitors_of(publisher, subscriber),
            subscriber: inlet.map(|(_, inlet)| inlet.state()),
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
        let (outlets, inlets) = (self.state.outlets(), self.state.inlets());
        let out = outlets.iter().filter(|o| o.info().name == publisher).map(|o| (publisher, o.monitor()));
        let into = inlets.iter().filter(|(_, i)| i.info().name == subscriber).map(|(_, i)| (subscriber, i.monitor()));
        let describe = |(port, seat): (&str, &Seat)| {
            let words: Vec<String> =
                seat.parameters().ok()?.iter().map(|(key, value)| format!("{key} {value}")).collect();
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
        Progress::Dialing => Stage::Trying,
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
