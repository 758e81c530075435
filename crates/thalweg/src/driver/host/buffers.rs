//! Pull buffers that this relay keeps for others (P-09): a port whose QoS says `pull-place = relay:NAME` gets its topic kept here. Equal
//! requests share a buffer. A subscriber of its own fills each buffer, first from the publishers' histories where they are durable. A
//! buffer that no port wants stays for a while, because a killed process may come back.

use crate::carrier;
use crate::channel::PortRef;
use crate::codec::{Message, Untyped};
use crate::control::{Direction, PortId, PortInfo, PullRole};
use crate::driver::control::Control;
use crate::driver::relay::{self, Buffered};
use crate::port::{AnyInlet, Histories, Inlet, Sink};
use crate::pull::Identity;
use qos::{Durability, Place, PolicyName, PullBuffer, Qos};
use std::sync::Arc;
use std::time::Instant;

/// A buffer that is kept.
pub(crate) struct Buffer {
    inlet: Arc<Inlet<Untyped>>,
    port: PortId,
}

/// The largest message there is.
const LARGEST: u64 = 1 << 30;

impl Control {
    /// Begins the buffers that ports want kept here, and ends those that no port wants.
    pub(super) fn look_after_buffers(&mut self, now: Instant) {
        if self.relay.is_relay() {
            let wanted = relay::wanted(&self.state.document(), &self.state.directory());
            let actions = self.relay.look_at_buffers(wanted, now);
            self.carry_out_hosting(actions);
        }
    }

    pub(super) fn begin_buffer(&mut self, key: Buffered, limits: PullBuffer) {
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
        self.relay.refusals.keeps_now(&key.0, None);
        self.relay.buffers.begin(key, Buffer { inlet, port: number });
        self.own_port_added(number, info);
    }

    pub(super) fn end_buffer(&mut self, key: &Buffered) {
        let Some(buffer) = self.relay.buffers.end(key) else { return };
        buffer.inlet.close();
        crate::port::LOCAL.subscribers().remove(&PortRef { node: self.state.id, port: buffer.port });
        self.state.remove_inlet(buffer.port, || ());
        self.own_port_removed(buffer.port);
    }

    /// The histories that ports of this node keep for others.
    pub(super) fn kept_for_others(&self) -> impl Iterator<Item = Arc<Histories>> {
        let keeps = |inlet: &Arc<dyn AnyInlet>| inlet.info().pull == PullRole::Keeps;
        self.state.inlets().into_iter().filter(move |(_, i)| keeps(i)).filter_map(|(_, i)| i.histories().cloned())
    }

    /// Makes room for the samples of one more publisher, if need be: gives up those of publishers that are gone, the longest silent first.
    ///
    /// # Errors
    /// The bytes that are kept, and their limit, if giving up samples would not make enough room. Then none are given up.
    pub(in crate::driver) fn make_room_for(&self, histories: &Histories, publisher: Identity) -> Result<(), String> {
        let Some(most) = self.relay.kept_bytes().filter(|_| !histories.knows(publisher)) else { return Ok(()) };
        let of = |kept: Arc<Histories>| kept.most_bytes().saturating_mul(kept.publishers() as u64);
        let kept = self.kept_for_others().map(of).fold(0, u64::saturating_add);
        let gone = std::iter::once_with(|| self.kept_of_the_gone()).flatten();
        let gone = gone.map(|(kept, gone)| (kept.most_bytes(), (kept, gone)));
        let given_up = relay::make_room((kept, histories.most_bytes(), most), gone)?;
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
