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
/// A channel that no viewer wants is let go after this time: opening and closing a port is told to all nodes.
const RELEASE_NS: u64 = 2_000_000_000;
/// A subscriber that was refused is tried again after this time.
const RETRY_NS: u64 = 1_000_000_000;
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

/// A channel that a client wants, or has wanted just now.
#[derive(Default)]
struct Followed {
    /// `None`: it was refused.
    subscriber: Option<Subscriber<Untyped>>,
    /// Why it was refused, which is told once.
    refusal: Option<String>,
    /// When it was tried last; `None`: never.
    tried_ns: Option<u64>,
    /// When a client wanted it last.
    wanted_ns: u64,
    /// Publishers that were asked for class LOW.
    asked: BTreeSet<PortRef>,
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

    /// Lets go of it, if no client has wanted it for long enough.
    fn release(&mut self, now_ns: u64) {
        if self.followed.as_ref().is_some_and(|one| now_ns.saturating_sub(one.wanted_ns) >= RELEASE_NS) {
            self.followed = None;
        }
    }

    /// Asks publishers that were not asked yet for class LOW.
    fn lower_new(&mut self, asking: &SyncSender<Requests>) {
        let Self { sources, followed: Some(Followed { subscriber: Some(subscriber), asked, .. }) } = self else {
            return;
        };
        let new: Vec<&Source> = sources.iter().filter(|source| !asked.contains(&source.port)).collect();
        if !new.is_empty() {
            lower(asking, subscriber.name(), &new);
        }
        *asked = sources.iter().map(|source| source.port).collect();
    }
}

impl Followed {
    /// `true` if there is no subscriber, and it is time to try.
    fn is_due(&self, now_ns: u64) -> bool {
        self.subscriber.is_none() && self.tried_ns.is_none_or(|tried| now_ns.saturating_sub(tried) >= RETRY_NS)
    }

    /// Takes the subscriber, or why it was refused.
    fn take(&mut self, tried: Result<Subscriber<Untyped>, String>, topic: &str, now_ns: u64) {
        self.tried_ns = Some(now_ns);
        match tried {
            Ok(subscriber) => (self.subscriber, self.refusal) = (Some(subscriber), None),
            Err(why) => {
                if self.refusal.is_none() {
                    crate::output::tell(&format!("thalweg dashboard: {topic} is not shown to viewers: {why}"));
                }
                self.refusal = Some(why);
            }
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
        for channel in self.channels.values_mut() {
            channel.forget_gone();
            channel.lower_new(&self.asking);
        }
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

    /// Subscribes to these channels, and to no other one for long. It is to be called again and again while [`Self::follows`].
    pub(super) fn follow(&mut self, wanted: &BTreeSet<u32>, now_ns: u64) {
        for (id, channel) in &mut self.channels {
            if !wanted.contains(id) {
                channel.release(now_ns);
                continue;
            }
            let followed = channel.followed.get_or_insert_default();
            followed.wanted_ns = now_ns;
            if followed.is_due(now_ns) {
                let topic = channel.sources.first().map_or("", |source| &source.info.topic);
                let tried = subscribe(&self.node, &self.inbox, *id, topic, &channel.sources);
                followed.take(tried.map_err(|wrong| wrong.to_string()), topic, now_ns);
                channel.lower_new(&self.asking);
            }
        }
    }

    /// `true` while there is a channel that is followed.
    pub(super) fn follows(&self) -> bool {
        self.channels.values().any(|channel| channel.followed.is_some())
    }

    /// Why a channel is not shown, if its subscriber was refused.
    pub(super) fn refusal(&self, channel: u32) -> Option<&str> {
        self.channels.get(&channel)?.followed.as_ref()?.refusal.as_deref()
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
fn lower(asking: &SyncSender<Requests>, subscriber: &str, sources: &[&Source]) {
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

#[cfg(test)]
mod tests;
