//! A flow under test, as an experiment holds it: a publisher and its subscribers, each a process (roles of [`super::stream`]).

use super::node::NodeSettings;
use super::stream::{Arrived, Connected, Order, Published, Settings};
use super::{LONG, Part, Place};
use crate::error::{Error, Result};
use crate::lab::Lab;
use qos::priority::Changes;
use serde_json::Value;
use std::time::Duration;

/// One end: its node, after which its port is named, and its place.
pub type End = (NodeSettings, Place);

/// A publisher and its subscribers, connected. A subscriber that is taken out is the experiment's own business.
#[derive(Debug)]
pub struct Flow {
    /// The publisher.
    pub publisher: Part,
    /// The subscribers that report their arrivals.
    pub subscribers: Vec<Part>,
    ports: Vec<String>, // of the publisher, then of the subscribers
    hz: f64,
}

impl Flow {
    /// Starts and connects it. Of `settings`, node and name are those of each end.
    ///
    /// # Errors
    /// [`Error::Failed`] when not every subscriber has a channel over one of the carriers.
    pub fn open(lab: &Lab, settings: &Settings, publisher: End, subscribers: Vec<End>) -> Result<Self> {
        let count = subscribers.len();
        let port = |(node, _): &End| format!("/{}", node.name);
        let ports = std::iter::once(&publisher).chain(&subscribers).map(port).collect();
        let start = |role: &str, end: End| {
            let name = port(&end);
            Part::ready(lab, end.1, role, &Settings { node: end.0, name, ..settings.clone() })
        };
        let mut publisher = start("publisher", publisher)?;
        let subscribers = subscribers.into_iter().map(|end| start("subscriber", end)).collect::<Result<Vec<Part>>>()?;
        let connected: Connected = publisher.ask(lab, &Order::Connected { count }, LONG)?;
        if !connected.ok || connected.carriers.iter().any(|found| !settings.carriers.contains(found)) {
            let carriers = settings.carriers.join(", ");
            return Err(Error::Failed(format!("not {count} channels over {carriers}: {connected:?}")));
        }
        Ok(Self { publisher, subscribers, ports, hz: settings.hz })
    }

    /// Changes the priority of every channel, at both ends.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn set(&mut self, lab: &Lab, changes: &Changes) -> Result {
        let order = |other: &str| Order::Set { other: other.to_owned(), changes: changes.clone() };
        for (subscriber, port) in self.subscribers.iter_mut().zip(&self.ports[1..]) {
            self.publisher.ask::<Value>(lab, &order(port), LONG)?;
            subscriber.ask::<Value>(lab, &order(&self.ports[0]), LONG)?;
        }
        Ok(())
    }

    /// Publishes `count` samples, and waits at most `patience` for the last one at each subscriber. Gives the published samples,
    /// and those that arrived at each.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn publish(&mut self, lab: &Lab, count: u64, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        self.report(lab)?;
        let time = if self.hz > 0.0 { Duration::from_secs_f64(count as f64 / self.hz) } else { LONG };
        let published = self.publisher.ask(lab, &Order::Publish { count }, LONG + time)?;
        self.wait(lab, published, patience)
    }

    /// Begins to publish.
    ///
    /// # Errors
    /// As [`Part::ask`].
    pub fn start(&mut self, lab: &Lab) -> Result {
        self.report(lab)?;
        self.publisher.ask::<Value>(lab, &Order::Start, LONG).map(drop)
    }

    /// Ends a publishing by [`Flow::start`]; returns as [`Flow::publish`] does.
    ///
    /// # Errors
    /// As there.
    pub fn stop(&mut self, lab: &Lab, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        let published = self.publisher.ask(lab, &Order::Stop, LONG)?;
        self.wait(lab, published, patience)
    }

    fn wait(&mut self, lab: &Lab, published: Published, patience: Duration) -> Result<(Published, Vec<Arrived>)> {
        let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let until = Order::Until { seq: published.last, ms };
        for subscriber in &mut self.subscribers {
            subscriber.ask::<Connected>(lab, &until, LONG)?;
        }
        Ok((published, self.report(lab)?))
    }

    /// The samples that arrived at each subscriber since the last report.
    fn report(&mut self, lab: &Lab) -> Result<Vec<Arrived>> {
        self.subscribers.iter_mut().map(|subscriber| subscriber.ask(lab, &Order::Report, LONG)).collect()
    }
}
