//! The topics of the realm as channels, and a subscriber to each that a client wants; to no other one.

use super::client::Offers;
use super::protocol::Offer;
use super::queue::{Inbox, Sample};
use qos::priority::{Change, Changes, Mark, PrioritySettings, Scheduling};
use qos::{Class, Durability, Qos};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use thalweg::admin::Request;
use thalweg::codec::Untyped;
use thalweg::control::{Direction, NodeId, PortInfo};
use thalweg::{Node, PortRef, Subscriber};

/// Most topics that are offered; further ones are left out.
const MOST: usize = 4096;
/// Most publishers of a topic whose last sample is kept for clients that come later.
const MOST_LAST: usize = 64;
/// Time that a publisher's node may take to answer.
const PATIENCE: Duration = Duration::from_millis(300);
/// Subscribers whose publishers are still to be asked for class LOW.
const WAITING: usize = 1024;
/// Threads that copy samples for viewers give way to those of programs.
const NICE: i8 = 5;

/// What the nodes of a channel's publishers are asked.
type Requests = Vec<(NodeId, Request)>;

/// A publisher of a topic.
struct Source {
    port: PortRef,
    info: PortInfo,
}

/// A channel: a topic with one type.
#[derive(Default)]
struct Channel {
    sources: Vec<Source>,
    followed: Option<Followed>,
}

/// A channel that a client wants.
struct Followed {
    /// `None`: it was refused, which is told once.
    _subscriber: Option<Subscriber<Untyped>>,
    /// The last sample of each publisher that keeps some for those who come later.
    last: BTreeMap<PortRef, Arc<Sample>>,
}

impl Channel {
    /// Drops the last samples of publishers that are gone.
    fn forget_gone(&mut self) {
        let Self { sources, followed } = self;
        if let Some(followed) = followed {
            followed.last.retain(|port, _| sources.iter().any(|source| source.port == *port));
        }
    }
}

/// The topics of the realm.
pub(super) struct Topics {
    node: Node,
    inbox: Arc<Inbox>,
    /// To the thread that asks publishers' nodes.
    asking: SyncSender<Requests>,
    offers: Offers,
    channels: BTreeMap<u32, Channel>,
    next: u32,
    /// The state of the realm at the last look.
    seen: Option<u64>,
}

impl Topics {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn new(node: Node, inbox: Arc<Inbox>) -> std::io::Result<Self> {
        let (asking, requests) = sync_channel(WAITING);
        let asks = node.clone();
        linux::thread::spawn(linux::thread::Settings::named("foxglove-lower"), move || ask(&asks, &requests))?;
        Ok(Self { node, inbox, asking, offers: Offers::new(), channels: BTreeMap::new(), next: 1, seen: None })
    }

    /// The channels, by their numbers.
    pub(super) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Looks at all nodes, if anything has changed. Gives the numbers of channels that have come and gone.
    pub(super) fn look(&mut self) -> (Vec<u32>, Vec<u32>) {
        let seen = self.node.wait_for_changes(self.seen.unwrap_or(0), Duration::ZERO);
        if self.seen.replace(seen) == Some(seen) {
            return (Vec::new(), Vec::new());
        }
        self.channels.values_mut().for_each(|channel| channel.sources.clear());
        let come: Vec<u32> = self.publishers().into_iter().filter_map(|source| self.add(source)).collect();
        let gone = |(id, channel): (&u32, &Channel)| channel.sources.is_empty().then_some(*id);
        let gone: Vec<u32> = self.channels.iter().filter_map(gone).collect();
        for id in &gone {
            self.channels.remove(id);
            self.offers.remove(id);
        }
        self.channels.values_mut().for_each(Channel::forget_gone);
        (come, gone)
    }

    /// The publishers of other nodes, by topic and name.
    fn publishers(&self) -> Vec<Source> {
        let others = self.node.nodes().into_iter().filter(|document| document.node != self.node.id());
        let of = |(node, port, info): (NodeId, _, PortInfo)| Source { port: PortRef { node, port }, info };
        let ports = others.flat_map(|other| other.ports.into_iter().map(move |(port, info)| (other.node, port, info)));
        let mut found: Vec<Source> =
            ports.filter(|(.., info)| info.direction == Direction::Publisher).map(of).collect();
        found.sort_by(|a, b| (&a.info.topic, &a.info.name).cmp(&(&b.info.topic, &b.info.name)));
        found
    }

    /// Adds a publisher to its channel; gives the number of a new one.
    fn add(&mut self, source: Source) -> Option<u32> {
        let PortInfo { topic, message, .. } = &source.info;
        let mut same = self.offers.iter().filter(|(_, offer)| offer.topic == *topic && offer.is_of(message));
        if let Some(id) = same.next().map(|(id, _)| *id) {
            self.channels.entry(id).or_default().sources.push(source);
            return None;
        }
        if self.offers.len() >= MOST {
            return None;
        }
        let id = self.next;
        self.next = self.next.checked_add(1)?;
        self.offers.insert(id, Arc::new(Offer::new(topic, message)));
        self.channels.insert(id, Channel { sources: vec![source], followed: None });
        Some(id)
    }

    /// Subscribes to these channels, and to no other one.
    pub(super) fn follow(&mut self, wanted: &BTreeSet<u32>) {
        for (id, channel) in &mut self.channels {
            match (channel.followed.is_some(), wanted.contains(id)) {
                (false, true) => {
                    let topic = channel.sources.first().map_or("", |source| &source.info.topic);
                    let subscriber = subscribe(&self.node, &self.inbox, *id, topic, &channel.sources);
                    let subscriber = shown(subscriber, topic);
                    subscriber.iter().for_each(|one| lower(&self.asking, one.name(), &channel.sources));
                    channel.followed = Some(Followed { _subscriber: subscriber, last: BTreeMap::new() });
                }
                (true, false) => channel.followed = None,
                _ => {}
            }
        }
    }

    /// `true` if a sample belongs to its channel. A topic with publishers of several types has a channel for each type, and each subscriber
    /// takes all of them.
    pub(super) fn has(&mut self, sample: &Arc<Sample>) -> bool {
        let Some(channel) = self.channels.get_mut(&sample.channel) else { return false };
        let Some(source) = channel.sources.iter().find(|source| source.port == sample.publisher) else {
            // It was published by a port that is not known yet, or no more.
            let Some(offer) = self.offers.get(&sample.channel) else { return false };
            return self.offers.values().filter(|other| other.topic == offer.topic).count() == 1;
        };
        if source.info.qos.durability == Durability::TransientLocal
            && let Some(followed) = &mut channel.followed
            && (followed.last.len() < MOST_LAST || followed.last.contains_key(&sample.publisher))
        {
            followed.last.insert(sample.publisher, sample.clone());
        }
        true
    }

    /// The last samples of a channel that are kept for clients that come later.
    pub(super) fn last(&self, channel: u32) -> impl Iterator<Item = &Arc<Sample>> {
        let followed = self.channels.get(&channel).and_then(|channel| channel.followed.as_ref());
        followed.into_iter().flat_map(|followed| followed.last.values())
    }
}

/// A subscriber; if it was refused, that is told.
fn shown(subscriber: thalweg::Result<Subscriber<Untyped>>, topic: &str) -> Option<Subscriber<Untyped>> {
    let told = |wrong: &thalweg::Error| {
        crate::output::tell(&format!("thalweg dashboard: {topic} is not shown to viewers: {wrong}"));
    };
    subscriber.inspect_err(told).ok()
}

fn subscribe(
    node: &Node,
    inbox: &Arc<Inbox>,
    channel: u32,
    topic: &str,
    sources: &[Source],
) -> thalweg::Result<Subscriber<Untyped>> {
    let qos: Qos = recording::record::request(sources.iter().map(|source| &source.info.qos));
    let sched = Some(Scheduling { nice: NICE, ..Scheduling::default() });
    let priority = PrioritySettings { mark: Some(Mark::Class(Class::Low)), sched, ..PrioritySettings::default() };
    let inbox = inbox.clone();
    let builder = node.subscriber::<Untyped>(topic).qos(qos).priority(priority);
    builder.callback(move |sample| {
        if sample.info().change != thalweg::Change::Written {
            return; // the end of an instance has no bytes that a viewer could show
        }
        let publisher = PortRef { node: sample.info().node, port: sample.info().port };
        inbox.put(Sample { channel, publisher, time_ns: linux::clock::wall_ns(), bytes: sample.to_vec().into() });
    })
}

/// Makes the channels from publishers on other hosts ones of class LOW, so that a viewer costs others nothing on links. Nobody waits for
/// that; a publisher that does not permit it is shown all the same, and so is one for which too many requests wait already.
fn lower(asking: &SyncSender<Requests>, subscriber: &str, sources: &[Source]) {
    let changes = Changes { mark: Change::Set(Mark::Class(Class::Low)), ..Changes::default() };
    let request =
        |port: &str| Request::Set { port: port.to_owned(), other: subscriber.to_owned(), changes: changes.clone() };
    let requests = sources.iter().map(|source| (source.port.node, request(&source.info.name))).collect();
    let _ = asking.try_send(requests);
}

/// Asks one node after the other, on one thread however often viewers subscribe.
fn ask(node: &Node, requests: &Receiver<Requests>) {
    requests.iter().flatten().for_each(|(to, request)| drop(node.ask(to, &request, PATIENCE)));
}
