//! What waits to be sent over a connection, and reliable samples until the broker has acknowledged them. No I/O.

use super::dial::WINDOW;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, Publish};
use std::collections::VecDeque;

/// Samples that wait, and their bytes. One that is larger goes alone.
const MOST: usize = 1024;
const MOST_BYTES: usize = 64 << 20;

#[derive(Default)]
pub(super) struct Outbox {
    /// Packets that are no samples go first: they are few and small.
    control: VecDeque<Packet>,
    best_effort: VecDeque<Publish>,
    /// Reliable samples that are not acknowledged, in their order. The first `sent` have been sent over this connection.
    reliable: VecDeque<Publish>,
    sent: usize,
    /// Payloads of all samples.
    bytes: usize,
    /// Samples that the broker takes without having acknowledged them (its Receive Maximum).
    window: usize,
    last_id: u16,
    /// The two kinds of samples take turns.
    reliable_next: bool,
}

impl Outbox {
    /// `true` if a sample of so many bytes may wait.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let few = self.reliable.len() < MOST && self.best_effort.len() < MOST;
        few && (self.bytes == 0 || self.bytes + bytes <= MOST_BYTES)
    }

    /// Lets a sample wait, which has room.
    pub(super) fn put(&mut self, mut sample: Publish) {
        self.bytes += sample.payload.len();
        if sample.qos == QoS::AtMostOnce {
            return self.best_effort.push_back(sample);
        }
        sample.pkid = self.id();
        self.reliable.push_back(sample);
    }

    /// Lets an acknowledgement wait. `false`: no room, as many wait as the broker may send samples without (the Receive Maximum of this end).
    pub(super) fn put_acknowledgement(&mut self, id: u16) -> bool {
        let waiting = self.control.iter().filter(|packet| matches!(packet, Packet::PubAck(_))).count();
        if waiting >= usize::from(WINDOW) {
            return false;
        }
        self.put_control(Packet::PubAck(PubAck::new(id, None)));
        true
    }

    /// Lets any other packet wait. Their number is bounded by what is asked for.
    pub(super) fn put_control(&mut self, packet: Packet) {
        self.control.push_back(packet);
    }

    /// A packet id that is not in use.
    pub(super) fn id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if self.reliable.iter().all(|sample| sample.pkid != self.last_id) {
                return self.last_id;
            }
        }
    }

    /// The next packet to send. A reliable sample stays until it is acknowledged.
    pub(super) fn take(&mut self) -> Option<Packet> {
        if let Some(packet) = self.control.pop_front() {
            return Some(packet);
        }
        let reliable = if self.sent < self.window { self.reliable.get(self.sent) } else { None };
        if let Some(sample) = reliable.filter(|_| self.reliable_next || self.best_effort.is_empty()) {
            self.sent += 1;
            self.reliable_next = false;
            return Some(Packet::Publish(sample.clone()));
        }
        self.reliable_next = true;
        let sample = self.best_effort.pop_front()?;
        self.bytes -= sample.payload.len();
        Some(Packet::Publish(sample))
    }

    /// Forgets a sample that the broker has, or that cannot be sent.
    pub(super) fn acknowledge(&mut self, id: u16) -> Option<Publish> {
        let at = self.reliable.iter().take(self.sent).position(|sample| sample.pkid == id)?;
        let sample = self.reliable.remove(at)?;
        self.sent -= 1;
        self.bytes -= sample.payload.len();
        Some(sample)
    }

    /// A new connection: what is not acknowledged is sent again, what is best-effort is gone. Samples beyond `largest` bytes are given back.
    pub(super) fn begin(&mut self, window: u16, largest: usize) -> Vec<Publish> {
        (self.window, self.sent) = (window.into(), 0);
        self.control.clear();
        self.best_effort.clear();
        let all = std::mem::take(&mut self.reliable).into_iter();
        let (fitting, beyond): (Vec<_>, Vec<_>) = all.partition(|sample| sample.size() <= largest);
        self.bytes = fitting.iter().map(|sample| sample.payload.len()).sum();
        self.reliable = fitting.into();
        beyond
    }

    /// `true` if all has been sent, and acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.best_effort.is_empty() && self.reliable.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rumqttc::v5::mqttbytes::v5::PingReq;

    fn sample(qos: QoS, number: u8) -> Publish {
        Publish::new("a", qos, vec![number], None)
    }

    fn outbox(window: u16) -> Outbox {
        let mut outbox = Outbox::default();
        assert!(outbox.begin(window, 1000).is_empty());
        outbox
    }

    /// Payload and id of what is taken until nothing is left.
    fn taken(outbox: &mut Outbox) -> Vec<(u8, u16)> {
        let samples = std::iter::from_fn(|| outbox.take());
        samples
            .filter_map(|packet| match packet {
                Packet::Publish(sample) => Some((sample.payload[0], sample.pkid)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn no_more_are_on_their_way_than_the_broker_takes() {
        let mut outbox = outbox(2);
        (1..=4).for_each(|number| outbox.put(sample(QoS::AtLeastOnce, number)));
        assert_eq!(taken(&mut outbox), [(1, 1), (2, 2)]);
        assert!(outbox.acknowledge(9).is_none() && outbox.acknowledge(3).is_none(), "3 was not sent");
        assert_eq!(outbox.acknowledge(2).unwrap().payload[0], 2, "in any order");
        assert_eq!(taken(&mut outbox), [(3, 3)]);
        assert!([1, 3].iter().all(|id| outbox.acknowledge(*id).is_some()));
        assert_eq!((taken(&mut outbox), outbox.is_empty()), (vec![(4, 4)], false));
        assert!(outbox.acknowledge(4).is_some() && outbox.is_empty() && outbox.bytes == 0);
    }

    #[test]
    fn a_new_connection_gets_what_is_not_acknowledged_in_its_order() {
        let mut outbox = outbox(2);
        (1..=3).for_each(|number| outbox.put(sample(QoS::AtLeastOnce, number)));
        outbox.put(sample(QoS::AtMostOnce, 9));
        outbox.put(Publish::new("a", QoS::AtLeastOnce, vec![4; 500], None));
        (0..3).for_each(|_| assert!(outbox.take().is_some(), "the best-effort one, 1 and 2"));
        assert!(outbox.acknowledge(1).is_some());
        assert_eq!(outbox.begin(5, 100).len(), 1, "this broker takes less");
        assert_eq!(taken(&mut outbox), [(2, 2), (3, 3)]);
        assert_eq!(outbox.bytes, 2);
    }

    #[test]
    fn both_kinds_take_turns() {
        let mut outbox = outbox(9);
        (1..=2).for_each(|number| outbox.put(sample(QoS::AtLeastOnce, number)));
        (3..=6).for_each(|number| outbox.put(sample(QoS::AtMostOnce, number)));
        outbox.put_control(Packet::PingReq(PingReq));
        assert_eq!(outbox.take(), Some(Packet::PingReq(PingReq)));
        assert_eq!(taken(&mut outbox), [(3, 0), (1, 1), (4, 0), (2, 2), (5, 0), (6, 0)]);
    }

    #[test]
    fn acknowledgements_are_bounded_by_what_may_come_without() {
        let mut outbox = outbox(1);
        assert!((1..=WINDOW).all(|id| outbox.put_acknowledgement(id)));
        outbox.put_control(Packet::PingReq(PingReq));
        assert!(!outbox.put_acknowledgement(WINDOW + 1));
        assert!(matches!(outbox.take(), Some(Packet::PubAck(first)) if first.pkid == 1));
        assert!(outbox.put_acknowledgement(WINDOW + 1) && !outbox.put_acknowledgement(WINDOW + 2));
    }

    #[test]
    fn room_is_bounded_by_number_and_bytes() {
        let mut full = outbox(1);
        (0..MOST).for_each(|number| full.put(sample(QoS::AtLeastOnce, number as u8)));
        assert!(!full.has_room(1));
        let mut large = outbox(1);
        assert!(large.has_room(MOST_BYTES + 1), "alone");
        large.put(sample(QoS::AtLeastOnce, 1));
        assert!(large.has_room(MOST_BYTES - 1) && !large.has_room(MOST_BYTES));
    }

    #[test]
    fn ids_in_use_are_left_out() {
        let mut outbox = outbox(9);
        outbox.put(sample(QoS::AtLeastOnce, 1));
        outbox.last_id = u16::MAX;
        assert_eq!(outbox.id(), 2);
    }
}
