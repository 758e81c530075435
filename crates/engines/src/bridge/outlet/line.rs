//! The publisher in the engine that stands for one of Thalweg.

use super::super::routes::Out;
use crate::engine::{Abilities, Engine, Error, Publisher, Result, Sample, Support, Topic};
use crate::lock;
use qos::{Class, Durability, Ownership, Qos};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::{Change, PortRef, SampleInfo};

pub(super) struct Line {
    pub(super) route: Out,
    /// The engine has keys.
    keys: bool,
    state: Mutex<State>,
}

struct State {
    /// The class of the publisher.
    class: Class,
    publisher: Arc<dyn Publisher>,
    /// The one of the class before, until the next sample. Until then it has the history for late joiners.
    before: Option<Arc<dyn Publisher>>,
    /// The publisher of another class, until somebody who wants the topic is known to it.
    next: Option<(Class, Arc<dyn Publisher>)>,
    /// The time since which Thalweg's publisher is gone.
    left: Option<Instant>,
}

impl Line {
    pub(super) fn open(engine: &dyn Engine, route: &Out) -> Result<Self> {
        let class = route.qos.class;
        let publisher = publisher(engine, route, class)?;
        Ok(Self {
            route: route.clone(),
            keys: engine.abilities().keys == Support::Enforced,
            state: Mutex::new(State { class, publisher, before: None, next: None, left: None }),
        })
    }

    /// Publishes a sample; `false`: the engine has no such thing.
    pub(super) fn publish(&self, info: &SampleInfo, message: &[u8]) -> Result<bool> {
        // The end of one instance of several is nothing that an engine without keys could say.
        if info.change != Change::Written && !self.route.qos.key.is_empty() && !self.keys {
            return Ok(false);
        }
        let (publisher, before) = {
            let mut state = lock(&self.state);
            (state.publisher.clone(), state.before.take())
        };
        if let Some(before) = before {
            before.settle(); // or this sample might overtake others
        }
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
        if let Some(why) = stays(&self.route.qos, engine.abilities()) {
            let Out { publisher, there, .. } = &self.route;
            return Err(Error::Engine(format!("{publisher} keeps class {now} as {there} behind the bridge: {why}")));
        }
        let next = if class == now { None } else { Some((class, publisher(engine, &self.route, class)?)) };
        lock(&self.state).next = next;
        Ok(())
    }

    /// Goes over to the publisher of the new class with the next sample, once it is known to all that want the topic.
    pub(super) fn go_over(&self) {
        let mut state = lock(&self.state);
        let State { class, publisher, before, next, .. } = &mut *state;
        let is_wanted = publisher.is_wanted();
        let is_known = |next: &dyn Publisher| next.is_wanted() && next.wanted_by() >= publisher.wanted_by();
        if let Some((new, next)) = next.take_if(|(_, next)| !is_wanted || is_known(&**next)) {
            let last = std::mem::replace(publisher, next);
            *class = new;
            // One that has published nothing since it took over has no history.
            let unused = if before.is_none() { before.replace(last) } else { Some(last) };
            drop((state, unused)); // without the lock
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

/// The reason why a publisher cannot change its class, if there is one.
fn stays(qos: &Qos, abilities: Abilities) -> Option<String> {
    match (qos.durability, qos.history, qos.ownership) {
        (Durability::TransientLocal, 2.., _) => Some(format!(
            "it keeps {} samples for late joiners, which a publisher of another class would not have",
            qos.history
        )),
        (Durability::TransientLocal, ..) if abilities.keys == Support::Enforced && !qos.key.is_empty() => Some(
            "it keeps the last sample of each instance for late joiners, which a publisher of another class would not have"
                .to_owned(),
        ),
        (.., Ownership::Exclusive) if abilities.matching == Support::Enforced => Some(
            "it may own the topic, whose subscribers take nothing of another publisher until it is gone".to_owned(),
        ),
        _ => None,
    }
}

fn publisher(engine: &dyn Engine, route: &Out, class: Class) -> Result<Arc<dyn Publisher>> {
    let topic = Topic { name: route.there.clone(), message: route.message.clone() };
    engine.publisher_by(&topic, &Qos { class, ..route.qos.clone() }, &route.way).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::Native;

    #[test]
    fn a_history_that_the_next_sample_does_not_replace_keeps_its_class() {
        let durable = Qos { durability: Durability::TransientLocal, ..Qos::default() };
        let keyed = Qos { key: vec!["x".to_owned()], ..durable.clone() };
        let several = Qos { history: 2, ..durable.clone() };
        let volatile = Qos { durability: Durability::Volatile, ..keyed.clone() };
        let stay = |keys| {
            let abilities = Abilities { keys, ..Native::ABILITIES };
            [&volatile, &durable, &keyed, &several].map(|qos| stays(qos, abilities).is_some())
        };
        assert_eq!(stay(Support::Enforced), [false, false, true, true]);
        assert_eq!(stay(Support::None), [false, false, false, true]);
    }
}
