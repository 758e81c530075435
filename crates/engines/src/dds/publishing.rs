//! Publishers: a writer of one topic and type.
//!
//! A Rust type has no modules, and one of DDS often has: `Arm` here is `robot::Arm` there. Until somebody in DDS states the topic the writer
//! has the type's own name. If a reader then states another one that ends with it, another writer takes over.

use super::graph::{Graph, Own};
use super::kept::{Instances, Kept, MOST_INSTANCES, Outgoing};
use super::keys::Key;
use super::participants::Participants;
use super::policies::{of_writer, patience};
use super::ros::{Member, user_data};
use super::types::{Named, Naming, Stated, Types};
use super::{failed, now_ns, way};
use crate::engine::{Error, Publisher, Result, Sample, Topic};
use crate::lock;
use cyclone::Writer;
use qos::{Durability, Qos};
use std::sync::{Arc, Mutex};
use thalweg::Change;
use thalweg::control::Direction;

/// The surroundings of a publisher.
#[derive(Clone)]
pub(super) struct Around {
    pub(super) participants: Arc<Participants>,
    pub(super) graph: Arc<Graph>,
    pub(super) types: Arc<Types>,
    /// Largest message, in bytes.
    pub(super) max_message: u32,
}

impl Around {
    /// USER_DATA of an end of this type.
    pub(super) fn user_data(&self, stated: &Stated) -> Vec<u8> {
        user_data(stated.hash.as_deref().filter(|_| self.types.naming == Naming::Ros))
    }
}

pub(super) struct Publishing {
    around: Around,
    topic: Topic,
    offer: Qos,
    /// The places that its samples have passed.
    way: Vec<String>,
    open: Mutex<Open>,
}

struct Open {
    named: Named,
    /// Of a topic that has one.
    key: Option<Arc<Key>>,
    _member: Option<Member>,
    writer: Arc<Writer>,
    _own: Own,
    /// What the next writer would have to keep for late joiners, while the type's name is a guess; afterwards what that one has not yet written.
    kept: Kept,
    /// Of a topic with a key, if its writer keeps each for late joiners.
    instances: Instances,
}

/// Most bytes, but for one sample, that are written without a look whether readers have acknowledged all: half of what Cyclone takes at least
/// before it waits (`Internal/Watermarks/WhcHighInit`).
const BURST: usize = 15 << 10;

impl Publishing {
    pub(super) fn open(around: Around, topic: Topic, offer: Qos, way: Vec<String>) -> Result<Self> {
        let named = around.named(&topic, &way)?;
        let open = Mutex::new(around.writer(named, &topic, &offer, &way)?);
        Ok(Self { around, topic, offer, way, open })
    }

    /// Takes another writer if readers state another name of the type. It has yet to write what this one has kept.
    fn follow_type(&self, open: &mut Open) -> Result<()> {
        let named = self.around.named(&self.topic, &self.way)?;
        if named.stated.name != open.named.stated.name {
            let next = self.around.writer(named, &self.topic, &self.offer, &self.way)?;
            let (kept, instances) = (std::mem::take(&mut open.kept), std::mem::take(&mut open.instances));
            *open = Open { kept, instances, ..next };
        }
        Ok(())
    }

    /// Writes what the writer before has kept. What is not written stays for the next call.
    fn write_kept(&self, writer: &Writer, mut kept: Kept) -> Result<()> {
        while let Some(first) = kept.first() {
            let written = self.write(writer, &first);
            if let Err(wrong) = written {
                lock(&self.open).kept = kept;
                return Err(wrong);
            }
            kept.drop_first();
        }
        Ok(())
    }

    fn write(&self, writer: &Writer, outgoing: &Outgoing<'_>) -> Result<()> {
        let named = |wrong| Error::Engine(format!("DDS: {}: {wrong}", self.topic.name));
        outgoing.write(writer).map_err(named)
    }

    /// What is written next, and what before it.
    fn enter(&self, outgoing: &Outgoing<'_>) -> Result<(Arc<Writer>, Kept)> {
        let mut open = lock(&self.open);
        let keeps = self.offer.durability == Durability::TransientLocal;
        if keeps && open.key.is_some() && !open.instances.admit(outgoing.key, outgoing.change) {
            let name = &self.topic.name;
            return Err(Error::Engine(format!(
                "{name}: an instance beyond {MOST_INSTANCES}, which a publisher with a history has at most in DDS"
            )));
        }
        open.keep(outgoing, &self.offer);
        Ok((open.writer.clone(), open.take_kept()))
    }
}

impl Around {
    /// The name of a topic's type. One that has come from DDS has the name that it has there, although nobody here states it.
    fn named(&self, topic: &Topic, way: &[String]) -> Result<Named> {
        let named = self.types.of(topic, &self.graph.types_of(&topic.name));
        named.or_else(|wrong| way::is_of_dds(way).then(|| Named::of_dds(&topic.message)).flatten().ok_or(wrong))
    }

    fn writer(&self, named: Named, topic: &Topic, offer: &Qos, way: &[String]) -> Result<Open> {
        let way = way::user_data(way).map_err(|wrong| Error::Topic(format!("{}: {wrong}", topic.name)))?;
        let policies = of_writer(offer, [self.user_data(&named.stated), way].concat());
        let key = self.key(&named.stated, topic, offer)?.map(Arc::new);
        let refused = |why| Error::Topic(format!("{}: its type has a key, and {why}", topic.name));
        let layout = key.as_ref().map(|key| key.layout()).transpose().map_err(refused)?;
        let stated = Stated { keyed: key.is_some(), ..named.stated.clone() };
        let own = self.graph.enter(&topic.name, &stated, Direction::Publisher, offer, policies.clone());
        let name = self.types.naming.there(topic);
        let presence = self.participants.of(offer.class)?;
        let writer = presence.participant.writer(&name, &stated.name, layout.as_ref(), &policies).map_err(failed)?;
        let member = presence.member(writer.guid(), true);
        let (kept, instances) = (Kept::default(), Instances::default());
        Ok(Open { named, key, _member: member, writer: Arc::new(writer), _own: own, kept, instances })
    }

    /// The key of what is published: that of the type's definition, else what the publisher states.
    fn key(&self, stated: &Stated, topic: &Topic, offer: &Qos) -> Result<Option<Key>> {
        let sorted = |key: &[String]| {
            let mut key = key.to_vec();
            key.sort();
            key
        };
        match self.types.key(&stated.name) {
            Some(known) if !offer.key.is_empty() && sorted(&known) != sorted(&offer.key) => {
                let (known, own) = (known.join(", "), offer.key.join(", "));
                let name = &topic.name;
                Err(Error::Topic(format!(
                    "{name}: its key is {own}, that of {} in its definition {known}",
                    stated.name
                )))
            }
            Some(known) => found(topic, &known).map(Some),
            None if offer.key.is_empty() => Ok(None),
            None => found(topic, &offer.key).map(Some),
        }
    }

    /// The key of a type that others write, by its definition.
    pub(super) fn key_of(&self, stated: &Stated, topic: &Topic) -> Result<Key> {
        let unknown = || Error::Topic(format!("{}: no definition states the key of {}", topic.name, stated.name));
        found(topic, &self.types.key(&stated.name).ok_or_else(unknown)?)
    }
}

/// The key of these paths in the type of a topic.
fn found(topic: &Topic, paths: &[String]) -> Result<Key> {
    let refused = |why| Error::Topic(format!("{}: its type has a key, and {why}", topic.name));
    let schema = topic.message.schema.as_ref();
    let schema = schema.ok_or_else(|| refused("its structure is not known".to_owned()))?;
    Key::new(schema, paths).map_err(refused)
}

impl Open {
    /// Keeps a message for the next writer, as many of each instance as its history is long.
    fn keep(&mut self, outgoing: &Outgoing<'_>, offer: &Qos) {
        if !self.named.guessed || offer.durability != Durability::TransientLocal {
            return;
        }
        self.kept.keep(outgoing, offer.history.max(1) as usize, self.key.is_some());
    }

    /// Takes what has to be written before the next sample.
    fn take_kept(&mut self) -> Kept {
        if self.named.guessed { Kept::default() } else { std::mem::take(&mut self.kept) }
    }

    /// Writes what the writer before has kept, as far as that does not wait for readers: this is locked meanwhile.
    fn catch_up(&mut self) {
        while !self.kept.is_empty() && self.writer.is_acknowledged() {
            let mut written = 0;
            while let Some(first) = self.kept.first().filter(|_| written < BURST) {
                if first.write(&self.writer).is_err() {
                    return; // it is tried again when this is called again
                }
                written += first.message.len();
                self.kept.drop_first();
            }
        }
    }
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        if sample.change != Change::Written && self.offer.key.is_empty() {
            return Ok(()); // a topic without a key is one instance, and stays
        }
        let name = &self.topic.name;
        if !matches!(sample.message, [0, 0..=3, _, _, ..]) {
            let why = "a sample is no CDR of version 1 with its encapsulation header, as DDS has it";
            return Err(Error::Engine(format!("{name}: {why}")));
        }
        let (length, most) = (sample.message.len(), self.around.max_message);
        if length > most as usize {
            return Err(Error::Engine(format!(
                "{name}: a sample of {length} bytes; at most {most} are carried to DDS"
            )));
        }
        let key = lock(&self.open).key.clone();
        let key = key.map(|key| key.of(sample.message)).transpose();
        let key = key.map_err(|why| Error::Engine(format!("{name}: a sample is no value of its type: {why}")))?;
        let published = now_ns().saturating_sub_unsigned(sample.age_ns);
        let key = key.as_deref().unwrap_or_default();
        let outgoing = Outgoing { message: sample.message, key, change: sample.change, published };
        let (writer, kept) = self.enter(&outgoing)?;
        self.write_kept(&writer, kept)?;
        self.write(&writer, &outgoing)
    }

    fn is_wanted(&self) -> bool {
        let mut open = lock(&self.open);
        let matched = open.writer.matched() > 0;
        match open.named.guessed {
            true if matched => {
                open.named.guessed = false;
                open.kept.clear();
            }
            // What fails is tried again when this is asked again.
            true => drop(self.follow_type(&mut open)),
            false => open.catch_up(),
        }
        matched
    }

    fn wanted_by(&self) -> u32 {
        lock(&self.open).writer.matched()
    }

    fn settle(&self) {
        let (writer, kept) = {
            let mut open = lock(&self.open);
            (open.writer.clone(), open.take_kept())
        };
        if self.write_kept(&writer, kept).is_ok() {
            writer.wait_acknowledged(patience(&self.offer));
        }
    }
}
