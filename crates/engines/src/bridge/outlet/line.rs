//! The publisher in the engine that stands for one of Thalweg.

use super::super::routes::Out;
use crate::engine::{Engine, Publisher, Result, Sample, Topic};
use crate::lock;
use qos::{Class, Qos};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::{Change, PortRef, SampleInfo};

pub(super) struct Line {
    pub(super) route: Out,
    state: Mutex<State>,
}

struct State {
    /// The class of the publisher.
    class: Class,
    publisher: Arc<dyn Publisher>,
    /// The publisher of another class, until somebody who wants the topic is known to it.
    next: Option<(Class, Arc<dyn Publisher>)>,
    /// The time since which Thalweg's publisher is gone.
    left: Option<Instant>,
}

impl Line {
    pub(super) fn open(engine: &dyn Engine, route: &Out) -> Result<Self> {
        let class = route.qos.class;
        let publisher = publisher(engine, route, class)?;
        Ok(Self { route: route.clone(), state: Mutex::new(State { class, publisher, next: None, left: None }) })
    }

    /// Publishes a sample; `false`: the engine has no such thing.
    pub(super) fn publish(&self, info: &SampleInfo, message: &[u8]) -> Result<bool> {
        // The end of one instance of several is nothing that an engine without keys could say.
        if info.change != Change::Written && !self.route.qos.key.is_empty() {
            return Ok(false);
        }
        let publisher = lock(&self.state).publisher.clone();
        publisher.publish(&Sample {
            topic: &self.route.there,
            message,
            publisher: crate::native::number(info.node, info.port),
            origin: Some(PortRef { node: info.node, port: info.port }),
            change: info.change,
            age_ns: info.latency_ns().unwrap_or_default(),
            historical: info.historical,
        })?;
        Ok(true)
    }

    pub(super) fn is_wanted(&self) -> bool {
        let publisher = lock(&self.state).publisher.clone();
        publisher.is_wanted()
    }

    /// Begins to go over to another class; `None`: that of the route.
    pub(super) fn change_class(&self, engine: &dyn Engine, class: Option<Class>) -> Result<()> {
        let class = class.unwrap_or(self.route.qos.class);
        let (now, next) = {
            let state = lock(&self.state);
            (state.class, state.next.as_ref().map(|(next, _)| *next))
        };
        if class == next.unwrap_or(now) {
            return Ok(());
        }
        let next = if class == now { None } else { Some((class, publisher(engine, &self.route, class)?)) };
        lock(&self.state).next = next;
        Ok(())
    }

    /// Goes over to the publisher of the new class, once it is known to whoever wants the topic.
    pub(super) fn go_over(&self) {
        let mut state = lock(&self.state);
        let is_wanted = state.publisher.is_wanted();
        if let Some((class, publisher)) = state.next.take_if(|(_, next)| next.is_wanted() || !is_wanted) {
            let before = std::mem::replace(&mut state.publisher, publisher);
            state.class = class;
            drop((state, before));
        }
    }

    /// Thalweg's publisher is gone; what is on its way still comes.
    pub(super) fn leave(&self, now: Instant) {
        lock(&self.state).left.get_or_insert(now);
    }

    pub(super) fn leaves(&self) -> bool {
        lock(&self.state).left.is_some()
    }

    pub(super) fn has_left(&self, since: Duration, now: Instant) -> bool {
        lock(&self.state).left.is_some_and(|left| now.saturating_duration_since(left) >= since)
    }
}

fn publisher(engine: &dyn Engine, route: &Out, class: Class) -> Result<Arc<dyn Publisher>> {
    let topic = Topic { name: route.there.clone(), message: route.message.clone() };
    engine.publisher(&topic, &Qos { class, ..route.qos.clone() }).map(Arc::from)
}
