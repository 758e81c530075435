//! A publisher for each channel of a recording. Ends of instances leave by the publisher of these instances.

use super::{Arguments, Renamed};
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::Participant;
use lab::statistics::Latencies;
use qos::{Qos, Queue};
use recording::play::{Described, as_recorded, describe};
use recording::read::{Channel, Recording};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::control::Direction;
use thalweg::control::matching::{absolute, topic_matches};
use thalweg::{Change, Published, Publisher};

/// A channel of the file on its way out.
pub(super) struct Outlet {
    pub(super) topic: String,
    pub(super) publisher: Publisher<Untyped>,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// Ends of instances.
    pub(super) ended: u64,
    pub(super) dropped: u64,
    /// The differences between intervals of the recording and those of the replay.
    pub(super) errors: Latencies,
    /// The last sample: its time in the recording, and when it went out.
    pub(super) last: Option<(u64, u64)>,
}

/// All of them.
pub(super) struct Outlets {
    outlets: Vec<Outlet>,
    /// By the channel of the file: the outlet, and what the samples say of their instances.
    by_channel: BTreeMap<u16, (usize, Change)>,
}

impl Outlets {
    /// Opens a publisher for each channel that is replayed.
    pub(super) fn open(arguments: &Arguments, participant: &Participant, recording: &Recording) -> Result<Self> {
        let mut all = Self { outlets: Vec::new(), by_channel: BTreeMap::new() };
        let mut named = BTreeMap::new();
        let wanted: Vec<_> = recording.channels().filter(|channel| arguments.wants(channel)).collect();
        check_renamed(arguments, &wanted)?;
        let (values, ends): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|channel| channel.change() == Change::Written);
        for channel in values.into_iter().chain(ends) {
            let (change, port) = (channel.change(), (channel.published_topic(), channel.publisher()));
            let known = named.get(&port).copied().filter(|_| change != Change::Written);
            let at = match known {
                Some(at) => at,
                None => {
                    all.outlets.push(Outlet::open(arguments, participant, channel)?);
                    all.outlets.len() - 1
                }
            };
            named.entry(port).or_insert(at);
            all.by_channel.insert(channel.id, (at, change));
        }
        if all.outlets.is_empty() {
            return Err(Failure::Usage(nothing(arguments, recording)));
        }
        Ok(all)
    }

    /// The channels of the file that are replayed.
    pub(super) fn channels(&self) -> BTreeSet<u16> {
        self.by_channel.keys().copied().collect()
    }

    /// The outlet of a channel, and what its samples say of their instances.
    pub(super) fn of(&mut self, channel: u16) -> Option<(&mut Outlet, Change)> {
        let (at, change) = *self.by_channel.get(&channel)?;
        self.outlets.get_mut(at).map(|outlet| (outlet, change))
    }

    /// All outlets, to close them.
    pub(super) fn into_all(self) -> Vec<Outlet> {
        self.outlets
    }
}

/// The reason why no topic is replayed.
fn nothing(arguments: &Arguments, recording: &Recording) -> String {
    let mut there: Vec<&str> =
        recording.channels().filter(|channel| !channel.is_own()).map(|channel| channel.published_topic()).collect();
    there.dedup();
    let file = arguments.file.display();
    match there.as_slice() {
        [] => format!("{file}: there is no topic in it"),
        there => {
            format!("{file}: no topic in it is {}; there are {}", arguments.topics().join(" or "), there.join(", "))
        }
    }
}

/// Refuses a new name for a topic that does not play, which is a slip of the pen.
fn check_renamed(arguments: &Arguments, wanted: &[&Arc<Channel>]) -> Result {
    let there: BTreeSet<_> = wanted.iter().map(|channel| absolute(channel.published_topic())).collect();
    let unknown = arguments.remap.iter().find(|renamed| !there.contains(renamed.from.as_str()));
    match unknown.filter(|_| !there.is_empty()) {
        None => Ok(()),
        Some(Renamed { from, to }) => {
            let there = Vec::from_iter(there).join(", ");
            Err(Failure::Usage(format!("--remap {from}={to}: no topic that plays is {from}; there are {there}")))
        }
    }
}

impl Arguments {
    /// `true` if this channel is replayed.
    fn wants(&self, channel: &Channel) -> bool {
        let (topic, topics) = (absolute(channel.published_topic()), self.topics());
        let chosen = topics.is_empty() || topics.iter().any(|pattern| topic_matches(pattern, &topic));
        let replaced = self.clock && topic == super::clock::TOPIC;
        chosen && !replaced && !channel.is_own()
    }
}

impl Outlet {
    fn open(arguments: &Arguments, participant: &Participant, channel: &Channel) -> Result<Self> {
        let Described { message, because } = describe(channel);
        if let Some(because) = &because {
            tell(&format!("{}: only the name of its type is known: {because}", channel.topic));
        }
        // What waits for a slow subscriber delays all topics alike.
        let queue = Queue::Block { limit: WAITING, up_to_us: ROOM.as_micros() as u64 };
        let all = Qos { queue, max_message: LARGEST, ..Qos::default() };
        let recorded = as_recorded(channel, &all);
        // Without its key a publisher has one instance only, which any end would end.
        let key = if because.is_none() { recorded.key.clone() } else { Vec::new() };
        let qos = if arguments.as_recorded { recorded } else { Qos { key, ..all } };
        let topic = arguments.published_as(&absolute(channel.published_topic())).to_owned();
        let builder = participant.node.publisher::<Untyped>(&topic).described(message).qos(qos);
        let publisher = builder
            .open()
            .map_err(|wrong| Failure::from(wrong).at(&format!("{}: {}", arguments.file.display(), channel.topic)))?;
        let errors = Latencies::up_to(Duration::from_secs(60));
        Ok(Self { topic, publisher, samples: 0, bytes: 0, ended: 0, dropped: 0, errors, last: None })
    }

    /// Publishes a sample, or the end of an instance.
    pub(super) fn publish(&mut self, change: Change, data: &[u8]) -> thalweg::Result<Published> {
        match change {
            Change::Written => (self.samples, self.bytes) = (self.samples + 1, self.bytes + data.len() as u64),
            Change::Disposed | Change::Unregistered => self.ended += 1,
        }
        match change {
            Change::Written => self.publisher.publish(data),
            Change::Disposed => self.publisher.dispose(data),
            Change::Unregistered => self.publisher.unregister(data),
        }
    }
}

/// Waits until the subscribers that are there are connected; if there are none, a moment for one to come.
pub(super) fn wait_for_subscribers(participant: &mut Participant, outlets: &Outlets) {
    let outlets = &outlets.outlets;
    let ports = participant.others().into_iter().flat_map(|node| node.ports.into_values());
    let wanted: Vec<String> =
        ports.filter(|port| port.direction == Direction::Subscriber).map(|port| port.topic).collect();
    let of = |outlet: &Outlet| wanted.iter().filter(|pattern| topic_matches(pattern, &outlet.topic)).count();
    let missing = || outlets.iter().any(|outlet| outlet.publisher.connected() < of(outlet));
    let none = outlets.iter().all(|outlet| of(outlet) == 0);
    let until = Instant::now() + if none { GRACE } else { CONNECT };
    let nobody = || none && outlets.iter().all(|outlet| outlet.publisher.connected() == 0);
    while !participant.stop.asked() && Instant::now() < until && (missing() || nobody()) {
        participant.node.wait_until(crate::signals::TICK, || !missing() && !nobody());
        participant.tell_events();
    }
}

/// Samples that wait for a slow subscriber.
const WAITING: u32 = 256;
/// The longest time that a sample waits for its room.
const ROOM: Duration = Duration::from_secs(1);
/// The largest message of a topic whose publisher's limit is not known.
const LARGEST: u32 = 256 << 20;
/// The longest wait for subscribers that are there: one may be of another type.
const CONNECT: Duration = Duration::from_secs(5);
/// The wait for a first subscriber.
const GRACE: Duration = Duration::from_secs(1);
