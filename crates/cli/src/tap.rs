//! A subscriber to whatever a topic carries, for verbs that look and count: it takes the reliability that publishers
//! offer, unless told which.

use crate::failure::{Failure, Result};
use crate::priority::Given;
use crate::quantity;
use crate::session::Session;
use clap::Args;
use qos::{Qos, Reliability};
use thalweg::codec::Untyped;
use thalweg::control::matching::topic_matches;
use thalweg::control::{Direction, PortInfo};
use thalweg::{Event, Sample, Subscriber};

/// What is subscribed to, and how.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// The topic, or a pattern of topics: * is any one segment, ** any number of segments
    pub topic: String,
    /// Name of the subscribing port [default: /<node>/<topic>/sub1]
    #[arg(long, value_name = "/NAME")]
    pub port: Option<String>,
    /// What carries the samples
    #[arg(long, default_value = "auto", value_parser = quantity::carrier())]
    pub carrier: String,
    /// Match only publishers that lose nothing on the way [default: as publishers offer]
    #[arg(long, conflicts_with = "best_effort")]
    pub reliable: bool,
    /// Samples may be lost on the way
    #[arg(long)]
    pub best_effort: bool,
}

/// What is done with a sample, on the receiving thread.
pub type Callback = Box<dyn FnMut(Sample<'_, Untyped>) + Send>;

/// An open subscriber.
pub struct Tap {
    target: Target,
    reliability: Reliability,
    port: Option<Subscriber<Untyped>>,
    given: Option<Given>,
    callback: Box<dyn Fn() -> Callback>,
}

impl Tap {
    /// Subscribes; `callback` makes what is called with each sample.
    pub fn open(session: &Session, target: &Target, callback: impl Fn() -> Callback + 'static) -> Result<Self> {
        Self::with(session, target, None, callback)
    }

    /// As [`Tap::open`], with priorities.
    pub fn with(
        session: &Session,
        target: &Target,
        given: Option<Given>,
        callback: impl Fn() -> Callback + 'static,
    ) -> Result<Self> {
        if target.reliable && quantity::is_lossy(&target.carrier) {
            let carrier = &target.carrier;
            let text = format!("--carrier {carrier} may lose samples, which --reliable does not allow; leave one out");
            return Err(Failure::Usage(text));
        }
        let lossy = target.best_effort || quantity::is_lossy(&target.carrier) || target.is_offered_best_effort(session);
        let reliability = if lossy { Reliability::BestEffort } else { Reliability::Reliable };
        let mut tap = Self { target: target.clone(), reliability, port: None, given, callback: Box::new(callback) };
        tap.subscribe(session)?;
        Ok(tap)
    }

    /// Tells people what happened; subscribes again as best effort when a publisher offers no more than that.
    pub fn tend(&mut self, session: &mut Session) -> Result {
        let name = self.port.as_ref().map(|port| port.name().to_owned()).unwrap_or_default();
        let adapts = !self.target.reliable && self.reliability == Reliability::Reliable;
        let mut lossy = false;
        session.tell_events_but(|event| match event {
            Event::Incompatible { subscriber, policy, fallback: false, .. } if adapts && policy == "reliability" => {
                lossy |= *subscriber == name;
                *subscriber == name
            }
            _ => false,
        });
        if lossy {
            self.reliability = Reliability::BestEffort;
            self.port = None;
            self.subscribe(session)?;
        }
        Ok(())
    }

    fn subscribe(&mut self, session: &Session) -> Result {
        let target = &self.target;
        let offered = target.offered(session);
        let largest = offered.iter().map(|p| p.qos.max_message).chain([Qos::default().max_message]).max();
        let mut qos = Qos { reliability: self.reliability, max_message: largest.unwrap_or_default(), ..Qos::default() };
        let mut builder = session.node.subscriber::<Untyped>(&target.topic);
        if let Some(name) = &target.port {
            builder = builder.named(name);
        }
        if let Some(given) = &self.given {
            let topic = target.topic.trim_start_matches('/').replace('*', "any");
            let default = || format!("/{}/{topic}/sub1", session.node.name());
            let name = target.port.clone().unwrap_or_else(default);
            builder = builder.priority(given.settings(&name, &target.topic, &mut qos)?);
        }
        if target.carrier != "auto" {
            builder = builder.carriers([target.carrier.as_str()]);
        }
        self.port = Some(builder.qos(qos).callback((self.callback)())?);
        Ok(())
    }
}

impl Target {
    /// The publishers that are there.
    fn offered(&self, session: &Session) -> Vec<PortInfo> {
        let ports = session.others().into_iter().flat_map(|node| node.ports.into_values());
        ports.filter(|p| p.direction == Direction::Publisher && topic_matches(&self.topic, &p.topic)).collect()
    }

    fn is_offered_best_effort(&self, session: &Session) -> bool {
        !self.reliable && self.offered(session).iter().any(|p| p.qos.reliability == Reliability::BestEffort)
    }
}
