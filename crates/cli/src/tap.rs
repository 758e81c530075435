//! A subscriber to whatever a topic carries, for verbs that look and count: it takes the reliability that publishers
//! offer, unless told which.

use crate::failure::Result;
use crate::priority::Given;
use crate::quantity;
use crate::session::Session;
use clap::Args;
use qos::{Filter, Place, Qos, Reliability, Scale};
use std::time::Duration;
use thalweg::channel::proxy::{Picture, Selection};
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

/// How much of a stream is wanted, and where the rest is left out.
#[derive(Args, Clone, Debug, Default)]
pub struct Scaled {
    /// Only samples whose sequence number is a multiple of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "rate")]
    every: Option<u32>,
    /// Only P of every Q samples, evenly spread: 4/5 of 10 Hz are 8 Hz
    #[arg(long, value_name = "P/Q")]
    rate: Option<Selection>,
    /// Only pictures of at most this size, in pixels; of points, at most as many: 320x240
    #[arg(long, value_name = "WxH")]
    picture: Option<Picture>,
    /// Where the others are left out: publisher, subscriber or relay:NAME [default: publisher, before they are sent]
    #[arg(long, value_name = "PLACE")]
    proxy: Option<Place>,
    /// Only samples published at least this long after the one before: 20ms
    #[arg(long, value_name = "DURATION", value_parser = quantity::duration, allow_negative_numbers = true)]
    min_separation: Option<Duration>,
    /// Only samples for which this holds, evaluated by the publisher: "speed > 3 AND name LIKE 'arm%'"
    #[arg(long, value_name = "EXPRESSION", value_parser = filter)]
    filter: Option<Filter>,
}

fn filter(text: &str) -> std::result::Result<Filter, String> {
    let filter = Filter { expression: text.to_owned(), parameters: Vec::new() };
    qos::expression::Expression::parse(&filter).map_err(|wrong| wrong.to_string())?;
    Ok(filter)
}

impl Scaled {
    fn apply(&self, qos: &mut Qos) {
        let every = self.every.map(Scale::Every);
        let rate = self.rate.map(|rate| Scale::Rate { p: rate.part(), q: rate.whole() });
        qos.scale = every.or(rate).unwrap_or(qos.scale);
        qos.separation = self.min_separation.or(qos.separation);
        qos.filter = self.filter.clone().or_else(|| qos.filter.take());
        let picture = self.picture.map(|picture| (picture.width.into(), picture.height.into()));
        qos.picture = picture.or(qos.picture);
        qos.place = self.proxy.clone().unwrap_or_else(|| qos.place.clone());
    }
}

/// What is done with a sample, on the receiving thread.
pub type Callback = Box<dyn FnMut(Sample<'_, Untyped>) + Send>;

/// An open subscriber.
pub struct Tap {
    target: Target,
    reliability: Reliability,
    port: Option<Subscriber<Untyped>>,
    given: Option<Given>,
    scaled: Scaled,
    callback: Box<dyn Fn() -> Callback>,
}

impl Tap {
    /// Subscribes; `callback` makes what is called with each sample.
    pub fn open(session: &Session, target: &Target, callback: impl Fn() -> Callback + 'static) -> Result<Self> {
        Self::with(session, target, None, Scaled::default(), callback)
    }

    /// As [`Tap::open`], with priorities and scaled.
    pub fn with(
        session: &Session,
        target: &Target,
        given: Option<Given>,
        scaled: Scaled,
        callback: impl Fn() -> Callback + 'static,
    ) -> Result<Self> {
        let may_lose = quantity::is_lossy(&target.carrier) && !target.reliable;
        let lossy = target.best_effort || may_lose || target.is_offered_best_effort(session);
        let reliability = if lossy { Reliability::BestEffort } else { Reliability::Reliable };
        let mut tap =
            Self { target: target.clone(), reliability, port: None, given, scaled, callback: Box::new(callback) };
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
        let max_message = largest(session, &target.topic);
        let mut qos = Qos { reliability: self.reliability, max_message, ..Qos::default() };
        let mut builder = session.node.subscriber::<Untyped>(&target.topic);
        if let Some(name) = &target.port {
            builder = builder.named(name);
        }
        if let Some(given) = &self.given {
            let topic = target.topic.trim_start_matches('/').replace('*', "any");
            let default = || format!("/{}/{topic}/sub1", session.node.name());
            let name = target.port.clone().unwrap_or_else(default);
            builder = builder.priority(given.settings(&name, &target.topic, Direction::Subscriber, &mut qos)?);
        }
        if target.carrier != "auto" {
            builder = builder.carriers([target.carrier.as_str()]);
        }
        self.scaled.apply(&mut qos); // what the command says holds against a profile
        self.port = Some(builder.qos(qos).callback((self.callback)())?);
        Ok(())
    }
}

/// The publishers of a topic, or pattern of topics, that are there.
fn offered(session: &Session, topic: &str) -> Vec<PortInfo> {
    let ports = session.others().into_iter().flat_map(|node| node.ports.into_values());
    ports.filter(|p| p.direction == Direction::Publisher && topic_matches(topic, &p.topic)).collect()
}

/// The largest message that they may publish; at least what is usual.
pub fn largest(session: &Session, topic: &str) -> u32 {
    let sizes = offered(session, topic).into_iter().map(|port| port.qos.max_message);
    sizes.fold(Qos::default().max_message, u32::max)
}

impl Target {
    fn is_offered_best_effort(&self, session: &Session) -> bool {
        !self.reliable && offered(session, &self.topic).iter().any(|p| p.qos.reliability == Reliability::BestEffort)
    }
}
