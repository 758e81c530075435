//! Pull buffers that this relay keeps for others (P-09): a port whose QoS says `pull-place = relay:NAME` gets its topic kept
//! here. Equal requests share a buffer. It is filled by a subscriber of its own, from the publishers' histories first where
//! they are durable, and stays for a while when nobody wants it any more: who was killed comes back.

use crate::carrier;
use crate::channel::PortRef;
use crate::codec::{Message, Untyped};
use crate::control::{Direction, PortId, PortInfo, PullRole};
use crate::driver::control::Control;
use crate::port::{AnyInlet, Histories, Inlet, Sink};
use crate::pull::Identity;
use qos::{Durability, Place, PolicyName, PullBuffer, Qos};
use std::sync::Arc;
use std::time::Instant;

/// What is kept: the topic or pattern, the partitions that are looked at, number, bytes and age in nanoseconds.
pub(crate) type Buffered = (String, Vec<String>, u32, u64, Option<u128>);

/// A buffer that is kept.
pub(crate) struct Buffer {
    inlet: Arc<Inlet<Untyped>>,
    port: PortId,
    /// Since when no port wants it.
    unwanted_since: Option<Instant>,
}

/// Buffers at once.
const MOST_BUFFERS: usize = 64;
/// The largest message there is.
const LARGEST: u64 = 1 << 30;

impl Control {
    /// Begins to keep what ports want kept here, and ends what nobody wants.
    pub(super) fn look_after_buffers(&mut self, now: Instant) {
        let Some(limits) = self.relay else { return };
        let wanted = self.buffers_wanted();
        for (key, buffer) in &mut self.buffers {
            let since = buffer.unwanted_since.unwrap_or(now);
            buffer.unwanted_since = (!wanted.iter().any(|(other, _)| other == key)).then_some(since);
        }
        for (key, limits) in wanted {
            match self.buffers.len() {
                _ if self.buffers.contains_key(&key) => {}
                MOST_BUFFERS.. => self.keep_not(&key.0, None, format!("it has {MOST_BUFFERS} buffers, the most")),
                _ => self.begin_buffer(key, limits),
            }
        }
        let over = |since| now.duration_since(since) > limits.unwanted;
        let over = |buffer: &Buffer| buffer.unwanted_since.is_some_and(over);
        let ended: Vec<Buffered> = self.buffers.iter().filter(|(_, b)| over(b)).map(|(key, _)| key.clone()).collect();
        ended.iter().for_each(|key| self.end_buffer(key));
    }

    fn buffers_wanted(&self) -> Vec<(Buffered, PullBuffer)> {
        let here = self.state.document();
        let directory = self.state.directory();
        let ports = directory.nodes().flat_map(|node| node.ports.values());
        let wanted = ports.filter_map(|port| {
            let limits = port.qos.pull.clone()?;
            let here = limits.place.relays().any(|name| here.is_relay(name));
            let age = limits.age.map(|age| age.as_nanos());
            let key = (port.topic.clone(), port.qos.partition.clone(), limits.samples, limits.bytes, age);
            here.then_some((key, limits))
        });
        wanted.collect()
    }

    fn begin_buffer(&mut self, key: Buffered, limits: PullBuffer) {
        let number = self.state.next_port();
        let name = format!("/{}/keeps{}", self.state.settings.name, number.0);
        if let Err(why) = self.state.reserve_name(&name) {
            return self.keep_not(&key.0, None, why.to_string());
        }
        let info = keeper(&key, name, limits);
        let (events, memory) = (self.state.events.clone(), self.state.memory.clone());
        let inlet = Arc::new(Inlet::new(info.clone(), Sink::callback(|_| {}), false, false, events, &memory));
        self.state.add_inlet(number, inlet.clone());
        crate::port::LOCAL.subscribers().insert(PortRef { node: self.state.id, port: number }, inlet.clone());
        self.keeps_now(&key.0, None);
        self.buffers.insert(key, Buffer { inlet, port: number, unwanted_since: None });
        self.own_port_added(number, info);
    }

    fn end_buffer(&mut self, key: &Buffered) {
        let Some(buffer) = self.buffers.remove(key) else { return };
        buffer.inlet.close();
        crate::port::LOCAL.subscribers().remove(&PortRef { node: self.state.id, port: buffer.port });
        self.state.remove_inlet(buffer.port, || ());
        self.own_port_removed(buffer.port);
    }

    /// What ports of this node keep for others.
    pub(super) fn kept_for_others(&self) -> impl Iterator<Item = Arc<Histories>> {
        let keeps = |inlet: &Arc<dyn AnyInlet>| inlet.info().pull == PullRole::Keeps;
        self.state.inlets().into_iter().filter(move |(_, i)| keeps(i)).filter_map(|(_, i)| i.histories().cloned())
    }

    /// Makes room for the samples of one more publisher, if need be: those of publishers that are gone are given up, the longest
    /// silent first.
    ///
    /// # Errors
    /// How much is kept, and how much may be; nothing is given up in vain.
    pub(in crate::driver) fn make_room_for(&self, histories: &Histories, publisher: Identity) -> Result<(), String> {
        let Some(limits) = self.relay.filter(|_| !histories.knows(publisher)) else { return Ok(()) };
        let of = |kept: Arc<Histories>| kept.most_bytes().saturating_mul(kept.publishers() as u64);
        let kept = self.kept_for_others().map(of).fold(0, u64::saturating_add);
        let (more, most) = (histories.most_bytes(), limits.kept_bytes);
        let lacking = kept.saturating_add(more).saturating_sub(most);
        let gone = if lacking > 0 { self.kept_of_the_gone() } else { Vec::new() };
        let (mut found, mut given_up) = (0_u64, Vec::new());
        for (kept, gone) in gone {
            if found >= lacking {
                break;
            }
            found = found.saturating_add(kept.most_bytes());
            given_up.push((kept, gone));
        }
        if found < lacking {
            return Err(format!("{kept} bytes are kept, {more} more are asked for, and it keeps at most {most}"));
        }
        given_up.iter().for_each(|(kept, gone)| kept.forget(*gone));
        Ok(())
    }

    /// Publishers that are gone, or have started anew, whose samples are kept for others; the longest silent first.
    fn kept_of_the_gone(&self) -> Vec<(Arc<Histories>, Identity)> {
        let directory = self.state.directory();
        let is_here = |of: &Identity| {
            let there = directory.node(of.node).filter(|there| there.incarnation == of.incarnation);
            there.is_some_and(|there| there.ports.contains_key(&of.port))
        };
        let mut gone = Vec::new();
        for histories in self.kept_for_others() {
            let kept = histories.heard().into_iter().filter(|(_, of)| !is_here(of));
            gone.extend(kept.map(|(heard, of)| (heard, histories.clone(), of)));
        }
        gone.sort_by_key(|(heard, ..)| *heard);
        gone.into_iter().map(|(_, histories, of)| (histories, of)).collect()
    }
}

/// The subscriber that fills a buffer: it takes what publishers offer, and their histories where they are durable.
fn keeper((topic, partition, ..): &Buffered, name: String, limits: PullBuffer) -> PortInfo {
    let qos = Qos {
        durability: Durability::TransientLocal,
        history: limits.samples,
        max_message: limits.bytes.min(LARGEST) as u32,
        partition: partition.clone(),
        pull: Some(PullBuffer { place: Place::Subscriber, ..limits }),
        fallback: vec![PolicyName::Reliability, PolicyName::Durability, PolicyName::Ownership],
        ..Qos::default()
    };
    PortInfo {
        name,
        direction: Direction::Subscriber,
        topic: topic.clone(),
        message: Untyped::description().as_ref().clone(),
        qos,
        carriers: carrier::Name::BUILT_IN.to_vec(),
        answers: None,
        pull: PullRole::Keeps,
    }
}
