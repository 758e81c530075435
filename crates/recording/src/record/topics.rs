//! The topics that are wanted: a subscriber for each that exists, and the publishers behind it.

use super::intake::{Intake, Lacking};
use super::settings;
use crate::file::{ChannelText, Profile, SchemaText, channel_metadata};
use qos::priority::{Change, Changes, Mark, PrioritySettings, Scheduling};
use qos::{Class, Durability, PolicyName, Qos, Reliability};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use thalweg::admin::Request;
use thalweg::clock::ClockOffset;
use thalweg::codec::{TypeDescription, Untyped};
use thalweg::control::matching::topic_matches;
use thalweg::control::{Direction, Document, NodeId, PortInfo};
use thalweg::{Node, PortRef, Remote, SampleInfo, Subscriber};

/// Time that another node may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
/// Partitions that one port may name.
const MOST_PARTITIONS: usize = 64;

/// A publisher as it describes itself.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) topic: String,
    qos: Qos,
    message: TypeDescription,
    /// `true` if its clock is another one.
    elsewhere: bool,
}

/// The topics that are recorded, by patterns.
pub(super) struct Wanted {
    pub(super) topics: Vec<String>,
    pub(super) exclude: Vec<String>,
}

impl Wanted {
    fn has(&self, topic: &str) -> bool {
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| topic_matches(pattern, topic));
        fits(&self.topics) && !fits(&self.exclude)
    }
}

/// A topic that is recorded.
struct Recorded {
    index: usize,
    subscriber: Subscriber<Untyped>,
}

/// The topics, and what is known of their publishers.
///
/// The thread that writes may be stopped with one of these locks. No thread that receives takes any, so only [`Recorder::turn`](super::Recorder::turn)
/// waits for it then, which waits for other nodes all the same. Where the thread that writes asks the node or a subscriber (for a publisher that
/// nobody noted, and for the carrier of a new channel), the node's own thread may wait for it: once for each publisher, at its first sample.
pub(super) struct Topics {
    node: Node,
    wanted: Wanted,
    intake: Arc<Intake>,
    /// Of the threads that receive.
    receiving: Option<Scheduling>,
    clock: String,
    recorded: Mutex<BTreeMap<String, Recorded>>,
    sources: Mutex<HashMap<PortRef, Arc<Source>>>,
    offsets: Mutex<HashMap<NodeId, ClockOffset>>,
    settings: Mutex<Option<Vec<u8>>>,
    notices: Mutex<(Vec<String>, BTreeSet<String>)>,
    new_sources: AtomicBool,
}

/// Notices that are remembered as given.
const MOST_NOTICES: usize = 256;

/// A lock is poisoned only if a thread panicked between two whole states.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Topics {
    /// The topics that are wanted, of all nodes, by threads with this scheduling.
    pub(super) fn new(node: Node, wanted: Wanted, intake: Arc<Intake>, receiving: Option<Scheduling>) -> Self {
        Self {
            node,
            wanted,
            intake,
            receiving,
            clock: linux::clock::clock_id(),
            recorded: Mutex::default(),
            sources: Mutex::default(),
            offsets: Mutex::default(),
            settings: Mutex::default(),
            notices: Mutex::default(),
            new_sources: AtomicBool::new(false),
        }
    }

    /// Subscribes to topics that have come, and notes their publishers.
    pub(super) fn look(&self) {
        let mut offers: BTreeMap<String, Vec<(PortRef, Source)>> = BTreeMap::new();
        for document in self.node.nodes().into_iter().filter(|document| document.node != self.node.id()) {
            for (port, source) in self.wanted(document) {
                offers.entry(source.topic.clone()).or_default().push((port, source));
            }
        }
        for (topic, sources) in offers {
            let request = request(sources.iter().map(|(_, source)| &source.qos));
            // Before the first sample comes.
            let fresh: Vec<Arc<Source>> =
                sources.into_iter().filter_map(|(port, source)| self.note(port, source)).collect();
            match self.subscribe(&topic, request) {
                Ok(()) => fresh.iter().for_each(|source| self.greet(source)),
                Err(wrong) => self.notice(format!("{topic} is not recorded: {wrong}")),
            }
        }
    }

    /// Notes a publisher; gives it if it is new.
    fn note(&self, port: PortRef, source: Source) -> Option<Arc<Source>> {
        let source = Arc::new(source);
        let fresh = lock(&self.sources).insert(port, source.clone()).is_none();
        fresh.then_some(source)
    }

    /// What a new publisher is asked.
    fn greet(&self, source: &Source) {
        self.new_sources.store(true, Relaxed);
        self.compare_clock(source);
        self.lower(source);
    }

    /// The publishers of a node whose topics are wanted.
    fn wanted(&self, document: Document) -> Vec<(PortRef, Source)> {
        let Document { node, clock, ports, .. } = document;
        let elsewhere = clock != self.clock;
        let is_wanted = |port: &PortInfo| port.direction == Direction::Publisher && self.wanted.has(&port.topic);
        let wanted = ports.into_iter().filter(|(_, port)| is_wanted(port));
        let source = |PortInfo { name, topic, qos, message, .. }| Source { node, name, topic, qos, message, elsewhere };
        wanted.map(|(port, info)| (PortRef { node, port }, source(info))).collect()
    }

    /// Subscribes, unless it was done before.
    fn subscribe(&self, topic: &str, request: Qos) -> thalweg::Result<()> {
        // Held until the subscriber is in the list, where the thread that writes looks for it.
        let mut recorded = lock(&self.recorded);
        if recorded.contains_key(topic) {
            return Ok(());
        }
        let index = self.intake.add_topic();
        let intake = self.intake.clone();
        let mark = Some(Mark::Class(Class::Low));
        let priority = PrioritySettings { mark, sched: self.receiving, ..PrioritySettings::default() };
        let builder = self.node.subscriber::<Untyped>(topic).qos(request).priority(priority);
        // Samples may come before the subscriber is at hand: then the intake asks again.
        let own = Arc::new(OnceLock::<Remote>::new());
        let joined = own.clone();
        let subscriber = builder.callback(move |sample| {
            let joined_after = || joined.get().and_then(|own| own.joined_after(sample.info()));
            intake.take(index, sample.info(), &sample, joined_after);
        })?;
        let _ = own.set(subscriber.remote());
        recorded.insert(topic.to_owned(), Recorded { index, subscriber });
        Ok(())
    }

    /// `true` if publishers have come since [`Topics::ask`].
    pub(super) fn has_new_sources(&self) -> bool {
        self.new_sources.load(Relaxed)
    }

    /// Asks the publishers' nodes for their clocks, and for the settings of all channels of these publishers.
    pub(super) fn ask(&self) {
        self.new_sources.store(false, Relaxed);
        let sources: Vec<Arc<Source>> = lock(&self.sources).values().cloned().collect();
        let mut asked = BTreeSet::new();
        for source in sources.iter().filter(|source| asked.insert(source.node)) {
            self.compare_clock(source);
        }
        *lock(&self.settings) = Some(settings::gather(&self.node, &sources));
    }

    /// Compares the clock of a publisher on another host. Until that has succeeded its samples count as published when they come.
    fn compare_clock(&self, source: &Source) {
        if !source.elsewhere {
            return;
        }
        if let Ok(offset) = self.node.compare_clock(source.node, PATIENCE) {
            lock(&self.offsets).insert(source.node, offset);
        }
    }

    /// Makes the channel from this publisher one of class LOW. A publisher that permits it not is recorded all the same.
    fn lower(&self, source: &Source) {
        let Some(other) = self.subscriber_name(&source.topic) else { return };
        let changes = Changes { mark: Change::Set(Mark::Class(Class::Low)), ..Changes::default() };
        let request = Request::Set { port: source.name.clone(), other, changes };
        if let Err(refused) = self.node.ask(source.node, &request, PATIENCE) {
            self.notice(format!("samples of {} come here in their publisher's class, not LOW: {refused}", source.name));
        }
    }

    /// The settings that [`Topics::ask`] has found, if they are newer than at the last call.
    pub(super) fn take_settings(&self) -> Option<Vec<u8>> {
        lock(&self.settings).take()
    }

    /// The publisher of a sample. It may be gone, and may have been known to nobody here: then the sample's channel describes it.
    pub(super) fn source(&self, topic: usize, info: &SampleInfo) -> Arc<Source> {
        let port = PortRef { node: info.node, port: info.port };
        let known = lock(&self.sources).get(&port).cloned();
        if let Some(source) = known.or_else(|| self.announced(port).map(Arc::new)) {
            return source;
        }
        let recorded = lock(&self.recorded);
        let found = recorded.iter().find(|(_, recorded)| recorded.index == topic);
        let described = found.and_then(|(_, recorded)| recorded.subscriber.publisher(info));
        let unknown = || format!("/{}/{}", port.node, port.port.0);
        let (node, qos, elsewhere) = (info.node, Qos::default(), !info.same_clock);
        Arc::new(Source {
            node,
            name: described.as_ref().map_or_else(unknown, |publisher| publisher.name.clone()),
            topic: found.map(|(topic, _)| topic.clone()).unwrap_or_default(),
            qos,
            message: described.map_or_else(|| TypeDescription::opaque("bytes"), |publisher| publisher.message.clone()),
            elsewhere,
        })
    }

    /// A publisher that has come since the last look: its samples may be written before the next one.
    fn announced(&self, port: PortRef) -> Option<Source> {
        let document = self.node.nodes().into_iter().find(|document| document.node == port.node)?;
        self.wanted(document).into_iter().find(|(at, _)| *at == port).map(|(_, source)| source)
    }

    /// The channel of a publisher, for the file.
    pub(super) fn channel(&self, source: &Source) -> ChannelText {
        let subscriber = self.subscriber_name(&source.topic).unwrap_or_default();
        let carrier = self.report(source, |report| report.carrier.to_string()).unwrap_or_default();
        ChannelText {
            topic: source.topic.clone(),
            schema: SchemaText::of(&source.message),
            encoding: "cdr",
            metadata: channel_metadata(&source.qos, &source.message, (&source.name, &subscriber), &carrier),
        }
    }

    /// The profile that fits all publishers that are known now.
    pub(super) fn profile(&self) -> Profile {
        let of_ros2 = |source: &Arc<Source>| SchemaText::of(&source.message).is_some_and(|text| text.is_ros2());
        if lock(&self.sources).values().all(of_ros2) { Profile::Ros2 } else { Profile::Thalweg }
    }

    /// Losses since the last call, each with what its channel has lost on the way.
    pub(super) fn losses(&self, end: bool) -> Vec<Lacking> {
        let on_the_way = |lacking: &Lacking| match lacking.lost.count {
            0 => 0,
            _ => self.lost_on_the_way(&self.source(lacking.topic, &lacking.info)),
        };
        self.intake.take_losses(end, on_the_way)
    }

    /// Hands the losses since the last call over to the thread that writes.
    pub(super) fn tell_losses(&self) {
        self.intake.tell_losses(self.losses(false));
    }

    /// Samples of a publisher that its channel to here has lost on the way.
    fn lost_on_the_way(&self, source: &Source) -> u64 {
        self.report(source, thalweg::ChannelReport::lost_on_the_way).unwrap_or(0)
    }

    fn report<T>(&self, source: &Source, value: impl Fn(&thalweg::ChannelReport) -> T) -> Option<T> {
        let recorded = lock(&self.recorded);
        let channels = recorded.get(&source.topic)?.subscriber.channels();
        channels.iter().find(|channel| channel.publisher == source.name).map(value)
    }

    fn subscriber_name(&self, topic: &str) -> Option<String> {
        lock(&self.recorded).get(topic).map(|recorded| recorded.subscriber.name().to_owned())
    }

    /// The time of publication by this host's clock, and the sample's latency with its uncertainty; `None` while the publisher's
    /// clock is not known.
    pub(super) fn published(&self, info: &SampleInfo) -> Option<(u64, (u64, u64))> {
        if info.same_clock {
            return Some((info.source_ns, (info.received_ns.saturating_sub(info.source_ns), 0)));
        }
        let offset = *lock(&self.offsets).get(&info.node)?;
        let latency = offset.elapsed_ns(info.source_ns, info.received_ns)?;
        Some((u64::try_from(offset.here_ns(info.source_ns).0).ok()?, latency))
    }

    /// Tells a person once.
    pub(super) fn notice(&self, text: String) {
        let mut notices = lock(&self.notices);
        let (waiting, given) = &mut *notices;
        if given.len() < MOST_NOTICES && given.insert(text.clone()) {
            waiting.push(text);
        }
    }

    /// What a person should know.
    pub(super) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.notices).0)
    }
}

/// The policies of a subscriber that takes from each publisher as much as it offers, in class LOW.
pub fn request<'a>(offers: impl Iterator<Item = &'a Qos> + Clone) -> Qos {
    let may_lose = offers.clone().all(|offered| offered.reliability == Reliability::BestEffort);
    let history = offers.clone().filter(|offered| offered.durability == Durability::TransientLocal);
    let history = history.map(|offered| offered.history).max();
    // Any name, and patterns, which a pattern meets only if it is the same.
    let patterns: BTreeSet<&String> = offers.clone().flat_map(|offered| &offered.partition).collect();
    let patterns = patterns.into_iter().filter(|name| name.contains(['?', '*', '[']) && *name != "*").cloned();
    Qos {
        reliability: if may_lose { Reliability::BestEffort } else { Reliability::Reliable },
        durability: if history.is_some() { Durability::TransientLocal } else { Durability::Volatile },
        history: history.unwrap_or(1),
        max_message: offers.map(|offered| offered.max_message).fold(Qos::default().max_message, u32::max),
        partition: std::iter::once("*".to_owned()).chain(patterns).take(MOST_PARTITIONS).collect(),
        class: Class::Low,
        fallback: vec![PolicyName::Reliability, PolicyName::Durability, PolicyName::Ownership],
        ..Qos::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_what_each_publisher_offers() {
        let live = Qos { reliability: Reliability::BestEffort, max_message: 20 << 20, ..Qos::default() };
        let kept = Qos {
            durability: Durability::TransientLocal,
            history: 7,
            partition: vec!["a".into(), "b*".into()],
            ..Qos::default()
        };
        let pattern = Qos { partition: vec!["b*".into()], ..Qos::default() };
        for offers in [vec![&live], vec![&kept], vec![&live, &kept, &pattern]] {
            let request = request(offers.iter().copied());
            assert_eq!(request.check(), Ok(()));
            for offered in &offers {
                assert!(qos::match_qos(offered, &request).is_ok(), "{offered:?} {request:?}");
            }
        }
        let both = request([&live, &kept].into_iter());
        assert_eq!((both.history, both.max_message, both.reliability), (7, 20 << 20, Reliability::Reliable));
        assert_eq!(qos::match_qos(&live, &request([&live].into_iter())), Ok(vec![]), "nothing is given up");
    }
}
