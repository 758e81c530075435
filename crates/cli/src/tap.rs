//! A subscriber to any type, for verbs that show and count. It takes the offered reliability unless one is asked for.

use crate::failure::Result;
use crate::participant::Participant;
use crate::priority::Given;
use crate::quantity;
use clap::Args;
use qos::{Filter, Place, PolicyName, Qos, Reliability, Scale};
use std::sync::Arc;
use std::time::Duration;
use thalweg::carrier;
use thalweg::codec::Untyped;
use thalweg::control::matching::topic_matches;
use thalweg::control::{Direction, PortInfo};
use thalweg::proxy::{Picture, Selection};
use thalweg::{PublisherInfo, SampleInfo};
use thalweg::{Sample, Subscriber};

/// The topic and the options of a subscriber.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The topic, or a pattern of topics: * is any one segment, ** any number of segments
    #[arg(value_parser = quantity::name)]
    pub topic: String,
    /// Name of the subscribing port [default: /<node>/<topic>/sub1]
    #[arg(long, value_name = "/NAME", value_parser = quantity::name)]
    pub port: Option<String>,
    /// Carrier of the samples
    #[arg(long, default_value = "auto", value_parser = quantity::carrier())]
    pub carrier: String,
    /// Match only publishers that lose nothing on the way [default: as publishers offer]
    #[arg(long, conflicts_with = "best_effort")]
    pub reliable: bool,
    /// Samples may be lost on the way
    #[arg(long)]
    pub best_effort: bool,
}

/// Scale of a stream, and the place where the other samples are left out.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Scaled {
    /// Only samples whose sequence number is a multiple of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "rate")]
    every: Option<u32>,
    /// Only P of every Q samples, evenly spread: 4/5 of 10 Hz are 8 Hz
    #[arg(long, value_name = "P/Q")]
    rate: Option<Selection>,
    /// Only pictures of at most this size, in pixels; of points, at most as many: 320x240
    #[arg(long, value_name = "WxH")]
    picture: Option<Picture>,
    /// Place of the scaling: publisher, subscriber or relay:NAME [default: publisher, before samples are sent]
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

/// An open subscriber.
pub(crate) struct Tap {
    port: Subscriber<Untyped>,
}

impl Tap {
    /// Subscribes; `callback` is called with each sample, on the receiving thread.
    pub(crate) fn open(
        participant: &Participant,
        target: &Target,
        callback: impl FnMut(Sample<'_, Untyped>) + Send + 'static,
    ) -> Result<Self> {
        Self::with(participant, target, None, Scaled::default(), None, callback)
    }

    /// Subscribes as [`Tap::open`] does, with priorities and a scale, as part of a session.
    pub(crate) fn with(
        participant: &Participant,
        target: &Target,
        given: Option<Given>,
        scaled: Scaled,
        session: Option<&str>,
        callback: impl FnMut(Sample<'_, Untyped>) + Send + 'static,
    ) -> Result<Self> {
        let may_lose = carrier::Name::from(&target.carrier).is_lossy() && !target.reliable;
        let reliability = if target.best_effort || may_lose { Reliability::BestEffort } else { Reliability::Reliable };
        let max_message = largest(participant, &target.topic);
        let mut qos = Qos { reliability, max_message, ..Qos::default() };
        if !target.reliable {
            qos.fallback = vec![PolicyName::Reliability]; // each publisher as it offers
        }
        let mut builder = participant.node.subscriber::<Untyped>(&target.topic);
        if let Some(name) = &target.port {
            builder = builder.named(name);
        }
        if let Some(given) = &given {
            let topic = target.topic.trim_start_matches('/').replace('*', "any");
            let default = || format!("/{}/{topic}/sub1", participant.node.name());
            let name = target.port.clone().unwrap_or_else(default);
            builder = builder.priority(given.settings(&name, &target.topic, Direction::Subscriber, &mut qos)?);
        }
        if let Some(session) = session {
            builder = builder.session(session);
        }
        if target.carrier != "auto" {
            builder = builder.carriers([target.carrier.as_str()]);
        }
        scaled.apply(&mut qos); // the command line overrides a profile
        Ok(Self { port: builder.qos(qos).callback(callback)? })
    }

    /// The publisher of a sample.
    pub(crate) fn publisher(&self, info: &SampleInfo) -> Option<Arc<PublisherInfo>> {
        self.port.publisher(info)
    }
}

/// The reason why nothing may come: `None` if the topic has a publisher.
pub(crate) fn silence(participant: &Participant, topic: &str) -> Option<String> {
    let none = offered(participant, topic).is_empty();
    none.then(|| format!("no publisher of {topic} is known yet: `thalweg list topics` shows those that are"))
}

/// The existing publishers of a topic or pattern of topics.
fn offered(participant: &Participant, topic: &str) -> Vec<PortInfo> {
    let ports = participant.others().into_iter().flat_map(|node| node.ports.into_values());
    ports.filter(|p| p.direction == Direction::Publisher && topic_matches(topic, &p.topic)).collect()
}

/// The largest message that they may publish, and at least the default.
pub(crate) fn largest(participant: &Participant, topic: &str) -> u32 {
    let sizes = offered(participant, topic).into_iter().map(|port| port.qos.max_message);
    sizes.fold(Qos::default().max_message, u32::max)
}
