//! Publishers: a writer of one topic and type.
//!
//! A Rust type has no modules, and one of DDS often has: `Arm` here is `robot::Arm` there. Until somebody in DDS states the topic the writer
//! has the type's own name. If a reader then states another one that ends with it, another writer takes over.

use super::graph::{Graph, Own};
use super::participants::Participants;
use super::policies::{of_writer, patience};
use super::ros::{Member, user_data};
use super::types::{Named, Naming, Stated, Types};
use super::{failed, now_ns};
use crate::engine::{Error, Publisher, Result, Sample, Topic};
use crate::lock;
use cyclone::Writer;
use qos::{Durability, Qos};
use std::collections::VecDeque;
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
    open: Mutex<Open>,
}

struct Open {
    named: Named,
    _member: Option<Member>,
    writer: Arc<Writer>,
    _own: Own,
    kept: Kept,
}

/// What the next writer would have to keep for late joiners, while the type's name is a guess; afterwards what that one has not yet written.
/// Each with the time of its publication.
type Kept = VecDeque<(Vec<u8>, i64)>;

/// Most bytes, but for one sample, that are written without a look whether readers have acknowledged all: half of what Cyclone takes at least
/// before it waits (`Internal/Watermarks/WhcHighInit`).
const BURST: usize = 15 << 10;

impl Publishing {
    pub(super) fn open(around: Around, topic: Topic, offer: Qos) -> Result<Self> {
        let named = around.types.of(&topic, &around.graph.types_of(&topic.name))?;
        let open = Mutex::new(around.writer(named, &topic, &offer)?);
        Ok(Self { around, topic, offer, open })
    }

    /// Takes another writer if readers state another name of the type. It has yet to write what this one has kept.
    fn follow_type(&self, open: &mut Open) -> Result<()> {
        let named = self.around.types.of(&self.topic, &self.around.graph.types_of(&self.topic.name))?;
        if named.stated.name != open.named.stated.name {
            let next = self.around.writer(named, &self.topic, &self.offer)?;
            let kept = std::mem::take(&mut open.kept);
            *open = Open { kept, ..next };
        }
        Ok(())
    }

    /// Writes what the writer before has kept. What is not written stays for the next call.
    fn write_kept(&self, writer: &Writer, mut kept: Kept) -> Result<()> {
        while let Some((message, published)) = kept.front() {
            if let Err(wrong) = self.write(writer, message, *published) {
                lock(&self.open).kept = kept;
                return Err(wrong);
            }
            kept.pop_front();
        }
        Ok(())
    }

    fn write(&self, writer: &Writer, message: &[u8], published: i64) -> Result<()> {
        let named = |wrong| Error::Engine(format!("DDS: {}: {wrong}", self.topic.name));
        writer.write(message, published).map_err(named)
    }
}

impl Around {
    fn writer(&self, named: Named, topic: &Topic, offer: &Qos) -> Result<Open> {
        let policies = of_writer(offer, self.user_data(&named.stated));
        let type_name = &named.stated.name;
        let own = self.graph.enter(&topic.name, type_name, Direction::Publisher, offer, policies.clone());
        let name = self.types.naming.there(topic);
        let presence = self.participants.of(offer.class)?;
        let writer = presence.participant.writer(&name, type_name, None, &policies).map_err(failed)?;
        let member = presence.member(writer.guid(), true);
        Ok(Open { named, _member: member, writer: Arc::new(writer), _own: own, kept: VecDeque::new() })
    }
}

impl Open {
    fn keep(&mut self, message: &[u8], published: i64, offer: &Qos) {
        if !self.named.guessed || offer.durability != Durability::TransientLocal {
            return;
        }
        while self.kept.len() >= offer.history.max(1) as usize {
            self.kept.pop_front();
        }
        self.kept.push_back((message.to_vec(), published));
    }

    /// Takes what has to be written before the next sample.
    fn take_kept(&mut self) -> Kept {
        if self.named.guessed { Kept::new() } else { std::mem::take(&mut self.kept) }
    }

    /// Writes what the writer before has kept, as far as that does not wait for readers: this is locked meanwhile.
    fn catch_up(&mut self) {
        while !self.kept.is_empty() && self.writer.is_acknowledged() {
            let mut written = 0;
            while let Some((message, published)) = self.kept.front().filter(|_| written < BURST) {
                if self.writer.write(message, *published).is_err() {
                    return; // it is tried again when this is called again
                }
                written += message.len();
                self.kept.pop_front();
            }
        }
    }
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        if sample.change != Change::Written {
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
        let published = now_ns().saturating_sub_unsigned(sample.age_ns);
        let (writer, kept) = {
            let mut open = lock(&self.open);
            open.keep(sample.message, published, &self.offer);
            (open.writer.clone(), open.take_kept())
        };
        self.write_kept(&writer, kept)?;
        self.write(&writer, sample.message, published)
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
