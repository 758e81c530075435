//! The role `member`: one node that publishes some streams and subscribes to others, each at its own rate and of its own class.

mod publication;

use super::threads::{Thread, Threads};
use super::{ALL_BUT_ONE_OF, Measured, NodeSettings, Orders, PATIENCE, picture};
use crate::error::{Error, Result};
use crate::lab::Feature;
use crate::stalls::Timed;
use publication::{Counted, Running};
use qos::priority::{Changes, PrioritySettings, Scheduling};
use qos::{Class, Place, Qos, Queue, Reliability, Scale};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use thalweg::ChannelReport;
use thalweg::codec::Raw;
use thalweg::control::Direction;
use thalweg::profile::Profile;
use thalweg::proxy::Picture;
use thalweg::{Node, Publisher, Sample, Subscriber};

/// Settings of the role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Its node.
    pub node: NodeSettings,
    /// Streams it publishes, each on a thread of its own.
    pub publishes: Vec<Stream>,
    /// Streams it subscribes to.
    pub subscribes: Vec<Stream>,
    /// A file of policies and priorities that override those of the streams.
    pub profile: Option<PathBuf>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// The topic.
    pub topic: String,
    /// Bytes of a sample.
    pub size: usize,
    /// Samples per second.
    pub hz: f64,
    /// Its class, offered by the publisher.
    pub class: Class,
    /// The samples that are wanted (subscriber).
    pub scale: Scale,
    /// Each sample is a picture of this size (publisher); or one that is at most as large is wanted (subscriber).
    pub picture: Option<Picture>,
    /// Place of the proxy that drops the others, and makes pictures smaller (subscriber).
    pub place: Place,
    /// Its carrier.
    pub carrier: String,
    /// Samples that wait for a slow subscriber (publisher).
    pub queue: Queue,
    /// Scheduling of its threads at either end: the one that publishes, and those of the channel. Default: the ordinary one.
    pub sched: Option<Scheduling>,
}

impl Stream {
    /// `true`: not all samples are wanted, or not whole.
    fn is_scaled(&self) -> bool {
        self.scale != Scale::default() || self.picture.is_some()
    }
}

/// Orders; each is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Order {
    /// Waits until every stream it publishes has `count` subscribers, and every stream it subscribes to comes from its proxy's
    /// place: `{}`.
    Connected {
        /// Subscribers of each stream.
        count: usize,
    },
    /// Gives all threads of its process a scheduling: `{}`.
    Schedule {
        /// The changes, such as `sched=fifo:30`.
        changes: Changes,
    },
    /// Publishes until [`Order::Stop`], besides the streams that run already: `{}`.
    Start {
        /// The stream of this topic; `None`: every stream.
        topic: Option<String>,
        /// Samples after which a stream ends by itself.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Publishes no more: [`Report`], in the order in which it was started.
    Stop,
    /// Reports the samples that were published so far: [`Report`], in the order of the settings.
    Published,
    /// Reports the arrivals since the last report: [`Report`].
    Arrived,
    /// Reports the scheduling of its streams' threads: [`Threads`].
    Threads,
    /// Reports the times of a topic's stages since the last report: [`Measured`].
    Stages {
        /// The topic.
        topic: String,
    },
}

/// Stream by stream, in the order of the settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The streams.
    pub streams: Vec<StreamReport>,
}

/// Samples of one stream that were published, or arrived.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamReport {
    /// Samples.
    pub count: u64,
    /// Publication time and latency of each sample (arrived).
    pub samples: Vec<Timed>,
    /// The sequence number of each (arrived).
    pub numbers: Vec<u64>,
    /// Samples by the size of their picture (arrived).
    pub pictures: BTreeMap<Picture, u64>,
}

impl Settings {
    /// Applies the profile to a stream's port.
    fn profiled(&self, name: &str, stream: &Stream, end: Direction, qos: &mut Qos) -> Result<PrioritySettings> {
        let profile = self.profile.as_deref().map(Profile::read).transpose();
        let profile = profile.map_err(|wrong| Error::Usage(wrong.to_string()))?.unwrap_or_default();
        profile.policies(name, &stream.topic, end, qos);
        let own = PrioritySettings { sched: stream.sched, ..PrioritySettings::default() };
        Ok(profile.settings(name, &stream.topic, end).or(&own))
    }
}

/// Latencies that are kept of a stream; memory for them is taken before.
const MOST: usize = 1 << 16;

/// Plays the role.
pub(super) fn member(mut orders: Orders) -> Result {
    let settings: Settings = orders.settings()?;
    let node = settings.node.open()?;
    let ports =
        settings.publishes.iter().map(|stream| publisher(&node, &settings, stream)).collect::<Result<Vec<_>>>()?;
    let reports: Vec<Shared> = settings.subscribes.iter().map(|_| Shared::default()).collect();
    let subscribe = |(stream, report): (&Stream, &Shared)| subscriber(&node, &settings, stream, report);
    let subscribers = settings.subscribes.iter().zip(&reports).map(subscribe).collect::<Result<Vec<_>>>()?;
    let ports: Vec<Counted> = ports.into_iter().map(Counted::from).collect();
    let mut running: Vec<Running> = Vec::new();
    orders.say(&json!({"node": node.id()}))?;
    while let Some(order) = orders.wait::<Order>()? {
        match order {
            Order::Connected { count } => {
                let placed =
                    || settings.subscribes.iter().zip(&subscribers).all(|(stream, port)| is_placed(stream, port));
                let all = || ports.iter().all(|port| hold(&port.port).connected() >= count) && placed();
                if !node.wait_until(PATIENCE, all) {
                    let found: Vec<_> = subscribers.iter().flat_map(Subscriber::channels).collect();
                    return Err(Error::Failed(format!(
                        "not {count} subscribers of every stream within {PATIENCE:?}, or not from where they are scaled: {found:?}"
                    )));
                }
                orders.say(&json!({}))?;
            }
            Order::Schedule { changes } => {
                let published = ports.first().map(|port| hold(&port.port).name().to_owned());
                let port = published.or(subscribers.first().map(|subscriber| subscriber.name().to_owned()));
                port.map(|port| node.set_priority(&port, &port, &changes)).transpose()?;
                orders.say(&json!({}))?;
            }
            Order::Start { topic, count } => {
                let wanted = |stream: &Stream| topic.as_ref().is_none_or(|topic| *topic == stream.topic);
                let wanted = ports.iter().zip(&settings.publishes).filter(|(_, stream)| wanted(stream));
                let start = |(port, stream): (&Counted, &Stream)| Running::start(port.clone(), stream.clone(), count);
                running.extend(wanted.map(start).collect::<Result<Vec<_>>>()?);
                orders.say(&json!({}))?;
            }
            Order::Stop => {
                let streams = running.drain(..).map(Running::finish).collect::<Result<_>>()?;
                orders.say(&Report { streams })?;
            }
            Order::Published => {
                let published =
                    |port: &Counted| StreamReport { count: port.count.load(Relaxed), ..StreamReport::default() };
                orders.say(&Report { streams: ports.iter().map(published).collect() })?;
            }
            Order::Arrived => orders.say(&Report { streams: reports.iter().map(take).collect() })?,
            Order::Threads => orders.say(&threads(&node, &ports, &running, &subscribers)?)?,
            Order::Stages { topic } => orders.say(&Measured::take(&node, &topic)?)?,
        }
    }
    running.into_iter().try_for_each(|running| running.finish().map(drop))
}

/// A stream that was started more than once has each of its publishing threads.
fn threads(node: &Node, ports: &[Counted], running: &[Running], subscribers: &[Subscriber<Raw>]) -> Result<Threads> {
    let published = |port: &Counted| {
        let publishing = running.iter().filter(|running| running.is_of(port)).map(Running::thread);
        Ok(publishing.chain(Thread::of_port(node, &port.name)?).collect())
    };
    let subscribed = |port: &Subscriber<Raw>| Thread::of_port(node, port.name());
    Ok(Threads {
        publishes: ports.iter().map(published).collect::<Result<_>>()?,
        subscribes: subscribers.iter().map(subscribed).collect::<Result<_>>()?,
    })
}

type Shared = Arc<Mutex<StreamReport>>;

fn hold<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes all of it, and starts from zero.
fn take(report: &Shared) -> StreamReport {
    let mut report = hold(report);
    let empty = StreamReport {
        samples: Vec::with_capacity(MOST),
        numbers: Vec::with_capacity(MOST),
        ..StreamReport::default()
    };
    std::mem::replace(&mut *report, empty)
}

/// `true` if there is one channel with its proxy in place: a relay that was found late is moved to.
fn is_placed(stream: &Stream, port: &Subscriber<Raw>) -> bool {
    let proxied = |channel: &ChannelReport| match &channel.proxied {
        Some(proxied) => proxied.place == stream.place,
        None => !stream.is_scaled(),
    };
    matches!(&port.channels()[..], [channel] if proxied(channel))
}

fn most(stream: &Stream) -> u32 {
    u32::try_from(stream.size.max(1 << 12)).unwrap_or(u32::MAX)
}

fn publisher(node: &Node, settings: &Settings, stream: &Stream) -> Result<Publisher<Raw>> {
    let name = format!("/{}{}", settings.node.name, stream.topic);
    let mut qos = Qos { class: stream.class, queue: stream.queue, max_message: most(stream), ..Qos::default() };
    let priority = settings.profiled(&name, stream, Direction::Publisher, &mut qos)?;
    let builder = node.publisher::<Raw>(&stream.topic).named(name).qos(qos).priority(priority);
    let named = settings.node.names_carriers.then(|| stream.carrier.clone());
    Ok(if let Some(carrier) = named { builder.carriers([carrier]) } else { builder }.open()?)
}

fn subscriber(node: &Node, settings: &Settings, stream: &Stream, report: &Shared) -> Result<Subscriber<Raw>> {
    hold(report).samples.reserve(MOST);
    hold(report).numbers.reserve(MOST);
    let note = report.clone();
    let name = format!("/{}/in{}", settings.node.name, stream.topic);
    let mut qos = Qos { max_message: most(stream), ..Qos::default() };
    qos.scale = stream.scale;
    // Streams are repeated until they are whole; datagrams need not be.
    qos.reliability = if stream.carrier == "tcp" { Reliability::Reliable } else { Reliability::BestEffort };
    let priority = settings.profiled(&name, stream, Direction::Subscriber, &mut qos)?;
    let builder = node.subscriber::<Raw>(&stream.topic).named(name).qos(qos).priority(priority);
    let passes_all = settings.node.without == Some(Feature::Proxies) && stream.is_scaled();
    let builder = match (stream.picture, stream.scale) {
        _ if passes_all => builder.rate(ALL_BUT_ONE_OF - 1, ALL_BUT_ONE_OF),
        (Some(picture), _) => builder.picture(picture.width.into(), picture.height.into()),
        _ => builder,
    };
    let builder = builder.proxy(stream.place.clone()).carriers([stream.carrier.clone()]);
    Ok(builder.callback(move |sample| hold(&note).note(&sample))?)
}

impl StreamReport {
    fn note(&mut self, sample: &Sample<'_, Raw>) {
        let info = sample.info();
        self.count += 1;
        if let Some(picture) = picture::of(sample) {
            *self.pictures.entry(picture).or_default() += 1;
        }
        if self.samples.len() < self.samples.capacity() {
            self.numbers.push(info.seq);
            self.samples.push(Timed { from_ns: info.source_ns, ns: info.received_ns.saturating_sub(info.source_ns) });
        }
    }
}
