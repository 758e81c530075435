//! The publishers of an inlet, and the way of a sample to one of them.

use super::super::early::Early;
use super::super::place::Place;
use super::super::routes::In;
use super::super::rules::Rules;
use super::line::Line;
use super::thin::Thin;
use super::{Around, Barred, FIRST_CHANNEL};
use crate::engine::{Engine, Error, Sample, Support};
use crate::lock;
use qos::{Qos, match_qos};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::control::matching::{is_pattern, topic_matches};
use thalweg::control::{Direction, Document, Foreign, PortInfo, PullRole};
use thalweg::{Change, Node, Publisher};

/// Most publishers of one route.
const MOST_LINES: usize = 1024;
/// The longest wait for the endpoint of a sample's publisher, which is told beside the samples.
const ENDPOINT: Duration = Duration::from_millis(200);

pub(super) struct Topics {
    node: Node,
    place: Arc<Place>,
    instances: bool,
    route: In,
    rules: Arc<Rules>,
    documents: Arc<Vec<Document>>,
    barred: Barred,
    /// By topic in the engine and number of the publisher there. `None`: the topic is not carried by this route. Most topics have one line,
    /// and a map has room for eleven: 2 KB if they were in it.
    open: HashMap<String, Option<BTreeMap<u128, Box<Line>>>>,
    lines: usize,
    /// The lines of publishers whose samples have another number than their endpoint.
    aliases: HashMap<u128, u128>,
    /// Samples that wait for a channel, or for their publisher to be known.
    early: Early<Waiting>,
    came: u64,
    failed: Option<Error>,
}

/// A sample that waits.
struct Waiting {
    since: Instant,
    topic: String,
    publisher: u128,
    change: Change,
}

impl Waiting {
    fn is_of(&self, topic: &str, publisher: u128) -> bool {
        self.publisher == publisher && self.topic == topic
    }
}

impl Topics {
    pub(super) fn new(node: Node, engine: &dyn Engine, route: In, around: &Around) -> Self {
        let (rules, documents, place) = (around.rules.clone(), around.documents.clone(), around.place.clone());
        let (instances, barred) = (engine.abilities().instances == Support::Enforced, around.barred.clone());
        let (open, aliases, early) = (HashMap::new(), HashMap::new(), Early::default());
        let (lines, came, failed) = (0, 0, None);
        Self { node, place, instances, route, rules, documents, barred, open, lines, aliases, early, came, failed }
    }

    /// Opens publishers until there is one for each source; without sources, one for a topic that is known. Those that have none any more, or
    /// whose topic has a route of its own, are given back, with the reason if one did not open.
    pub(super) fn adjust(
        &mut self,
        route: &In,
        documents: &Arc<Vec<Document>>,
        now: Instant,
    ) -> (Vec<Publisher<Untyped>>, Result<(), Error>) {
        self.documents = documents.clone();
        self.route.follow(route);
        let mut closed = Vec::new();
        for (topic, lines) in &mut self.open {
            let skipped = self.route.skips.iter().any(|other| topic_matches(other, topic));
            let beside = is_beside(&self.route, topic);
            let Some(open) = lines else { continue };
            let ended = open.iter().filter(|(number, line)| {
                let gone = **number != 0 && !route.sources.contains_key(*number);
                skipped || gone || line.beside != beside
            });
            let over: Vec<u128> = ended.map(|(number, _)| *number).collect();
            closed.extend(over.iter().filter_map(|number| open.remove(number)).map(|line| line.publisher));
        }
        // Topics that were not carried may be now.
        self.open.retain(|_, lines| lines.as_ref().is_some_and(|lines| !lines.is_empty()));
        self.lines -= closed.len();
        self.aliases.retain(|_, number| route.sources.contains_key(number));
        (closed, self.open_lines(route, now))
    }

    /// Opens the lines that are missing, up to the first that does not open: what is in its way is in the way of the next ones, too.
    fn open_lines(&mut self, route: &In, now: Instant) -> Result<(), Error> {
        let there = self.route.there.clone();
        for number in route.sources.keys() {
            self.line(&there, *number, now)?;
        }
        if route.sources.is_empty() && !is_pattern(&there) {
            self.line(&there, 0, now)?;
        }
        Ok(())
    }

    /// The sources that have no publisher here; without sources, 1 for a topic that is known and has none.
    pub(super) fn left_out(&self) -> usize {
        let (there, sources) = (&self.route.there, &self.route.sources);
        let lines = self.open.get(there).and_then(Option::as_ref);
        let is_open = |number: &u128| lines.is_some_and(|lines| lines.contains_key(number));
        match sources.is_empty() {
            true => usize::from(!is_pattern(there) && !is_open(&0)),
            false => sources.keys().filter(|number| !is_open(number)).count(),
        }
    }

    pub(super) fn has_lines(&self) -> bool {
        self.lines > 0
    }

    pub(super) fn close(&mut self) -> Vec<Publisher<Untyped>> {
        let lines = std::mem::take(&mut self.open).into_values().flatten().flat_map(BTreeMap::into_values);
        lines.map(|line| line.publisher).collect()
    }

    pub(super) fn has_channel(&self) -> bool {
        self.open.values().flatten().flat_map(BTreeMap::values).any(|line| line.publisher.connected() > 0)
    }

    pub(super) fn came(&self) -> u64 {
        self.came
    }

    pub(super) fn failed(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Publishes a sample, or lets it wait: behind others of its publisher that wait, for the first channel, or for its publisher to be known.
    pub(super) fn take(&mut self, sample: &Sample<'_>, now: Instant) {
        if self.is_barred(sample.publisher) {
            return;
        }
        let waits = self.early.iter().any(|waiting| waiting.is_of(sample.topic, sample.publisher));
        if waits || !self.is_ready(sample.topic, sample.publisher, now) {
            let Sample { publisher, change, .. } = *sample;
            let waiting = Waiting { since: now, topic: sample.topic.to_owned(), publisher, change };
            return self.wait(waiting, sample.message.to_vec());
        }
        self.pass(sample.topic, sample.publisher, sample.change, sample.message, now);
    }

    fn wait(&mut self, sample: Waiting, message: Vec<u8>) {
        if !self.early.keep(sample, message) {
            let why = "samples that waited for a channel or for their publisher to be known were dropped: too many, or too large";
            self.failed = Some(Error::Engine(why.to_owned()));
        }
    }

    /// Publishes the samples that have waited long enough, in their order.
    pub(super) fn settle(&mut self, now: Instant) {
        let mut waiting = std::mem::take(&mut self.early);
        while let Some((first, message)) = waiting.take_first(|_| true) {
            if self.is_barred(first.publisher) {
                continue; // it came before its endpoint was known
            }
            let waited = now.saturating_duration_since(first.since);
            if waited >= ENDPOINT {
                self.alias(first.publisher);
            }
            let ready = waited >= FIRST_CHANNEL || self.is_ready(&first.topic, first.publisher, now);
            if ready && !self.early.iter().any(|waiting| waiting.is_of(&first.topic, first.publisher)) {
                self.pass(&first.topic, first.publisher, first.change, &message, now);
            } else {
                self.wait(first, message);
            }
        }
    }

    fn is_barred(&self, publisher: u128) -> bool {
        lock(&self.barred).contains(&publisher)
    }

    /// `true` if a sample of this publisher can be published now.
    fn is_ready(&mut self, topic: &str, publisher: u128, now: Instant) -> bool {
        let Some(number) = self.number(publisher) else { return false };
        match self.line(topic, number, now) {
            Ok(Some(line)) => line.is_ready(now),
            Ok(None) => true, // it is dropped
            Err(error) => {
                self.failed = Some(error);
                true
            }
        }
    }

    fn pass(&mut self, topic: &str, publisher: u128, change: Change, message: &[u8], now: Instant) {
        let (instances, number) = (self.instances, self.number(publisher).unwrap_or(publisher));
        let passed = match self.line(topic, number, now) {
            Ok(Some(line)) => line.publish(change, message, instances, now),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match passed {
            Ok(()) => self.came += 1,
            Err(error) => self.failed = Some(error),
        }
    }

    /// The number of the source whose samples have this one; `None`: it is not known yet.
    fn number(&self, stated: u128) -> Option<u128> {
        let sources = &self.route.sources;
        if sources.is_empty() || sources.contains_key(&stated) {
            return Some(stated);
        }
        self.aliases.get(&stated).copied()
    }

    /// Gives a publisher whose endpoint has not come a source that no other one has: some implementations of ROS 2 give samples another number
    /// than their endpoint has.
    fn alias(&mut self, stated: u128) {
        if self.number(stated).is_some() || self.aliases.len() == MOST_LINES {
            return;
        }
        let is_used = |number: &u128| {
            let lines = self.open.values().flatten();
            self.aliases.values().any(|taken| taken == number)
                || lines.flatten().any(|(open, line)| open == number && line.used)
        };
        let sources = &self.route.sources;
        let free = sources.keys().find(|number| !is_used(number)).or_else(|| sources.keys().next()).copied();
        if let Some(number) = free {
            self.aliases.insert(stated, number);
        }
    }

    /// The publisher here of a publisher of the engine; `None`: this route does not carry the topic.
    fn line(&mut self, there: &str, number: u128, now: Instant) -> Result<Option<&mut Line>, Error> {
        if !self.open.contains_key(there) {
            if self.open.len() >= 2 * MOST_LINES {
                return Ok(None);
            }
            let carried = self.carries(there);
            self.open.insert(there.to_owned(), carried.then(BTreeMap::new));
        }
        let missing =
            self.open.get(there).is_some_and(|lines| lines.as_ref().is_some_and(|lines| !lines.contains_key(&number)));
        if missing {
            if self.lines == MOST_LINES {
                return Err(Error::Engine(format!(
                    "more than {MOST_LINES} publishers there: {there} is not carried; subscribe to a narrower pattern"
                )));
            }
            let line = self.new_line(there, number, now)?;
            self.lines += 1;
            if let Some(Some(lines)) = self.open.get_mut(there) {
                lines.insert(number, Box::new(line));
            }
        }
        let lines = self.open.get_mut(there).and_then(Option::as_mut);
        Ok(lines.and_then(|lines| lines.get_mut(&number)).map(|line| &mut **line))
    }

    fn carries(&self, there: &str) -> bool {
        !is_pattern(&self.route.topic)
            || (self.rules.of(there).way.leads_in()
                && !self.route.skips.iter().any(|other| topic_matches(other, there)))
    }

    fn new_line(&self, there: &str, number: u128, now: Instant) -> Result<Line, Error> {
        let topic = if is_pattern(&self.route.topic) { there } else { &self.route.topic };
        let mut qos = self.route.qos.clone();
        self.rules.of(topic).apply(&mut qos);
        let name = match self.route.sources.get(&number) {
            Some(node) => format!("{node} {there}"),
            None => there.to_owned(),
        };
        let beside = is_beside(&self.route, there);
        let passed = self.route.ways.get(&number).cloned().unwrap_or_default();
        let foreign = Foreign { beside, passed, ..self.place.end(name) };
        let (thin, expected) = (Thin::of(&qos), self.expected(topic, &qos, &foreign));
        let builder = self.node.publisher::<Untyped>(topic).qos(qos).foreign(foreign);
        let publisher = builder.described(self.route.message.clone()).open()?;
        Ok(Line::new(publisher, beside, thin, expected, now))
    }
}

impl Topics {
    /// The subscribers of this realm that match a publisher of the route with this topic and offer, for this end there.
    fn expected(&self, topic: &str, offer: &Qos, end: &Foreign) -> usize {
        let ports = self
            .documents
            .iter()
            .filter(|document| document.node != self.node.id())
            .flat_map(|document| document.ports.values());
        let matches = |port: &&PortInfo| {
            port.direction == Direction::Subscriber
                && port.pull != PullRole::Only
                && topic_matches(&port.topic, topic)
                && port.message.accepts(&self.route.message)
                && !(end.beside && port.message.is_any())
                && port.foreign.as_ref().is_none_or(|to| !end.has_passed(&to.place()))
                && match_qos(offer, &port.qos).is_ok()
        };
        ports.filter(matches).count()
    }
}

/// `true` if a route of another type has the topic's samples for subscribers to any type.
fn is_beside(route: &In, there: &str) -> bool {
    let topic = if is_pattern(&route.topic) { there } else { &route.topic };
    route.beside.iter().any(|other| topic_matches(other, topic))
}
