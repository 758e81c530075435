//! From the engine to Thalweg: one topic, or one pattern. There is a publisher for each of the topic's publishers where the engine tells
//! them apart, so that each has its own history; else one for the topic.
//!
//! The publishers open first. The subscriber in the engine opens when one of them has a channel, so that the first sample arrives.

use super::lock;
use super::routes::In;
use crate::engine::{Engine, Result, Sample, Subscriber, Topic};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::control::matching::is_pattern;
use thalweg::control::{Foreign, NodeId};
use thalweg::{Change, Node, Publisher};

/// Most publishers of one route.
const MOST_LINES: usize = 1024;
/// Messages up to this length are remembered, for a sample that only says that its instance has ended.
const REMEMBERED: usize = 1 << 16;
/// The longest wait for a first channel. Subscribers that match get theirs within milliseconds.
const FIRST_CHANNEL: Duration = Duration::from_secs(1);

/// The nodes of this realm: what they published is here without the bridge.
pub(super) type Known = Arc<Mutex<HashSet<NodeId>>>;

pub(super) struct Inlet {
    pub(super) route: In,
    topics: Arc<Mutex<Topics>>,
    known: Known,
    since: Instant,
    subscriber: Option<Box<dyn Subscriber>>,
}

/// The publisher of a sample: its topic in the engine, and its number.
type Source = (String, u128);

struct Topics {
    node: Node,
    engine: &'static str,
    route: In,
    open: HashMap<Source, Line>,
    /// The lines of publishers whose samples have another number than their endpoint.
    aliases: HashMap<u128, u128>,
    came: u64,
    failed: Option<thalweg::Error>,
}

struct Line {
    publisher: Publisher<Untyped>,
    last: Vec<u8>,
    used: bool,
}

impl Inlet {
    pub(super) fn open(node: &Node, engine: &dyn Engine, route: &In, known: Known) -> Result<Self> {
        let (engine, open, aliases) = (engine.name(), HashMap::new(), HashMap::new());
        let topics = Topics { node: node.clone(), engine, route: route.clone(), open, aliases, came: 0, failed: None };
        let topics = Arc::new(Mutex::new(topics));
        lock(&topics).adjust(route.sources.clone())?;
        Ok(Self { route: route.clone(), topics, known, since: Instant::now(), subscriber: None })
    }

    /// Follows the publishers in the engine.
    pub(super) fn adjust(&mut self, sources: &BTreeMap<u128, String>) -> Result<()> {
        if self.route.sources != *sources {
            self.route.sources.clone_from(sources);
            lock(&self.topics).adjust(sources.clone())?;
        }
        Ok(())
    }

    /// Subscribes in the engine once a sample has somewhere to go.
    pub(super) fn subscribe(&mut self, engine: &dyn Engine) -> Result<()> {
        let waits =
            !is_pattern(&self.route.there) && self.since.elapsed() < FIRST_CHANNEL && !lock(&self.topics).has_channel();
        if self.subscriber.is_some() || waits {
            return Ok(());
        }
        let (taking, known) = (self.topics.clone(), self.known.clone());
        let deliver = Box::new(move |sample: &Sample<'_>| {
            if sample.origin.is_none_or(|origin| !lock(&known).contains(&origin.node)) {
                lock(&taking).take(sample);
            }
        });
        let topic = Topic { name: self.route.there.clone(), message: self.route.message.clone() };
        self.subscriber = Some(engine.subscriber(&topic, &self.route.qos, deliver)?);
        Ok(())
    }

    pub(super) fn came(&self) -> u64 {
        lock(&self.topics).came
    }

    /// The last error of a sample, once.
    pub(super) fn failed(&self) -> Option<thalweg::Error> {
        lock(&self.topics).failed.take()
    }
}

impl Topics {
    /// Opens and closes publishers until there is one for each source; without sources, one for a topic that is known.
    fn adjust(&mut self, sources: BTreeMap<u128, String>) -> thalweg::Result<()> {
        let there = self.route.there.clone();
        if !sources.is_empty() {
            self.open.retain(|(_, number), _| sources.contains_key(number));
            self.aliases.retain(|_, number| sources.contains_key(number));
        }
        self.route.sources = sources;
        let numbers: Vec<u128> = self.route.sources.keys().copied().collect();
        numbers.into_iter().try_for_each(|number| self.line(&there, number).map(drop))?;
        if self.route.sources.is_empty() && !is_pattern(&there) {
            self.line(&there, 0)?;
        }
        Ok(())
    }

    fn has_channel(&self) -> bool {
        self.open.values().any(|line| line.publisher.connected() > 0)
    }

    fn take(&mut self, sample: &Sample<'_>) {
        match self.publish(sample) {
            Ok(()) => self.came += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    fn publish(&mut self, sample: &Sample<'_>) -> thalweg::Result<()> {
        let number = self.number(sample.publisher);
        let Line { publisher, last, used } = self.line(sample.topic, number)?;
        *used = true;
        match sample.change {
            Change::Written => {
                publisher.publish(sample.message)?;
                last.clear();
                if sample.message.len() <= REMEMBERED {
                    last.extend_from_slice(sample.message);
                }
            }
            Change::Disposed if sample.message.is_empty() => drop(publisher.dispose(last)?),
            Change::Disposed => drop(publisher.dispose(sample.message)?),
            Change::Unregistered => drop(publisher.unregister(sample.message)?),
        }
        Ok(())
    }

    /// The number of the source whose samples have this one. Some implementations of ROS 2 give samples another than their endpoint has: such a
    /// publisher takes a source that no other one has taken.
    fn number(&mut self, stated: u128) -> u128 {
        let sources = &self.route.sources;
        if sources.is_empty() || sources.contains_key(&stated) {
            return stated;
        }
        if let Some(number) = self.aliases.get(&stated) {
            return *number;
        }
        let is_free = |number: &&u128| {
            let taken = self.aliases.values().any(|taken| taken == *number);
            !taken && self.open.iter().any(|((_, open), line)| open == *number && !line.used)
        };
        let number = sources.keys().find(is_free).or_else(|| sources.keys().next()).copied().unwrap_or(stated);
        if self.aliases.len() < MOST_LINES {
            self.aliases.insert(stated, number);
        }
        number
    }

    /// The publisher here of a publisher of the engine.
    fn line(&mut self, there: &str, number: u128) -> thalweg::Result<&mut Line> {
        let source = (there.to_owned(), number);
        if !self.open.contains_key(&source) {
            if self.open.len() == MOST_LINES {
                return Err(thalweg::Error::Usage(format!(
                    "{}: more than {MOST_LINES} publishers there; {there} is not carried: subscribe to a narrower pattern",
                    self.route.topic
                )));
            }
            let line = Line { publisher: self.publisher(there, number)?, last: Vec::new(), used: false };
            self.open.insert(source.clone(), line);
        }
        self.open.get_mut(&source).ok_or(thalweg::Error::Closed)
    }

    fn publisher(&self, there: &str, number: u128) -> thalweg::Result<Publisher<Untyped>> {
        let topic = if is_pattern(&self.route.topic) { there } else { &self.route.topic };
        let name = match self.route.sources.get(&number) {
            Some(node) => format!("{node} {there}"),
            None => there.to_owned(),
        };
        let foreign = Foreign { engine: self.engine.to_owned(), name };
        let builder = self.node.publisher::<Untyped>(topic).qos(self.route.qos.clone()).foreign(foreign);
        builder.described(self.route.message.clone()).open()
    }
}
