//! What a flow that repeats what is lost keeps, and for how long: by the QoS of its two ports.

use crate::carrier::{Capabilities, Parameters, Place};
use crate::channel::bucket::Limit;
use crate::channel::congestion::CongestionSettings;
use crate::channel::flow::{Control, FlowSettings};
use crate::channel::fragment::piece;
use crate::channel::memory::Account;
use crate::channel::reliable::{ReceiverSettings, SenderSettings, WINDOW, acknowledges_every};
use crate::handshake::Request;
use qos::{Qos, Queue};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// What repetitions may take: 32 Mbit/s, so that a path that loses because it is full is not filled further (U-28).
const REPAIRS: Limit = Limit { rate: 4_000_000, burst: 256 << 10 };

/// What the publisher's end of a flow to this subscriber keeps, over datagrams of at most `most` bytes.
pub(super) fn sender_settings(publisher: &Qos, subscriber: &Qos, most: Option<usize>) -> SenderSettings {
    let useful = [subscriber.deadline, publisher.lifespan, subscriber.lifespan].into_iter().flatten().min();
    SenderSettings {
        window: (publisher.queue.limit() as usize).min(WINDOW),
        bytes: usize::try_from(publisher.queue_bytes()).unwrap_or(usize::MAX),
        // A longer queue than the window waits in front of it and loses nothing there.
        drops_oldest: matches!(publisher.queue, Queue::KeepLast(limit) if limit as usize <= WINDOW),
        useful_ns: useful.map(nanoseconds),
        hurries: subscriber.deadline.is_some(),
        largest: piece(most.unwrap_or(65_536)),
        repairs: REPAIRS,
    }
}

/// How the congestion of a flow to this one subscriber is controlled, if it tells what came. A limit was reserved for it.
pub(super) fn control(request: &Request, settings: &FlowSettings, of: Capabilities) -> Option<Control> {
    let told = (request.parameters.takes, request.parameters.buffer, of.max_datagram);
    let (Some(window), Some(buffer), Some(datagram)) = told else { return None };
    let reserved = settings.sending.limit.map(|limit| limit.rate);
    let congestion = CongestionSettings { datagram, buffer: buffer as usize, reserved };
    // What may be given up before it arrives is counted sample by sample: it has a number of its own.
    let keeps = settings.reliable.is_some_and(|reliable| !reliable.drops_oldest && reliable.useful_ns.is_none());
    let batches = keeps && request.parameters.batches;
    (settings.reliable.is_some() && !of.multicast).then_some(Control {
        congestion,
        window,
        batches,
        short_headers: request.parameters.short_headers,
    })
}

/// Bytes after which receipts come: two datagrams, as TCP acknowledges, and four of them fit the receiver's socket.
pub(super) fn receipts_every(control: &Control) -> u32 {
    let CongestionSettings { datagram, buffer, .. } = control.congestion;
    u32::try_from((2 * datagram).min(buffer / 4)).unwrap_or(u32::MAX).max(1)
}

/// What a subscriber takes at first of messages that it cannot deliver yet: half of what is left for its node.
pub(super) fn takes(budget: &Account) -> u64 {
    budget.left() as u64 / 2
}

/// A number for a member of a group: its node, where it says what it has to say, for that is another one each time, and what
/// nobody else has who claims the same: its address and its token.
pub(super) fn member(request: &Request, place: &Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.node, request.parameters.udp_port, request.token, place.peer.ip()).hash(&mut hasher);
    hasher.finish()
}

/// What the subscriber's end needs to know, where the publisher's answer says that it repeats.
pub(super) fn receiver_settings(
    flow: u32,
    subscriber: &Qos,
    answer: &Parameters,
    budget: Arc<Account>,
) -> Option<ReceiverSettings> {
    let every = acknowledges_every(answer.window.unwrap_or(1) as usize);
    Some(ReceiverSettings {
        flow,
        first: answer.first?,
        every,
        deadline_ns: subscriber.deadline.map(nanoseconds),
        budget,
    })
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::flow::Sending;
    use serde_json::json;

    fn request(token: u64, parameters: serde_json::Value) -> Request {
        let port = json!({"name": "/in", "direction": "subscriber", "topic": "/t", "type": {"name": "*", "hash": "0000000000000000"},
            "qos": {}, "carriers": ["mcast"]});
        let asked = json!({"version": 1, "realm": "r", "node": "0000000000000001", "port": 1, "subscriber": port, "token": token,
            "to_node": "0000000000000002", "to_port": 1, "carrier": "mcast", "clock": "c", "parameters": parameters});
        serde_json::from_value(asked).unwrap()
    }

    #[test]
    fn a_member_is_nobody_elses_who_claims_its_node_and_port() {
        let request = |token| request(token, json!({"udp_port": 9}));
        let at =
            |last: u8| Place { local: ([10, 0, 0, 1], 1).into(), peer: ([10, 0, 0, last], 2).into(), port_number: 0 };
        let own = member(&request(7), &at(2));
        assert_eq!(own, member(&request(7), &Place { peer: ([10, 0, 0, 2], 3).into(), ..at(2) }), "of each stream");
        assert_ne!(own, member(&request(7), &at(3)));
        assert_ne!(own, member(&request(8), &at(2)));
    }

    /// A subscriber of an older version says nothing of batches, and a queue that gives up samples counts them one by one.
    #[test]
    fn batches_are_for_who_reads_them_and_for_flows_that_give_nothing_up() {
        let batches = |queue: Queue, lifespan: Option<Duration>, parameters: serde_json::Value| {
            let offered = Qos { queue, lifespan, ..Qos::default() };
            let settings = FlowSettings {
                id: 1,
                policy: queue,
                bytes: 1 << 20,
                account: Account::new(1 << 20),
                burst: 0,
                sending: Sending::default(),
                lifespan: None,
                reliable: Some(sender_settings(&offered, &Qos::default(), Some(1472))),
                control: None,
                outlasts: false,
            };
            let of = Capabilities { max_datagram: Some(1472), ..crate::carrier::udp::CAPABILITIES };
            control(&request(1, parameters), &settings, of).map(|control| control.batches && !control.short_headers)
        };
        // Who does not say so reads no short headers.
        let new = || json!({"buffer": 1000, "takes": 1000, "batches": true});
        let older = json!({"buffer": 1000, "takes": 1000});
        let (all, last) = (Queue::KeepAll(16), Queue::KeepLast(16));
        assert_eq!((batches(all, None, new()), batches(all, None, older)), (Some(true), Some(false)));
        assert_eq!((batches(last, None, new()), batches(all, None, json!({"batches": true}))), (Some(false), None));
        assert_eq!(batches(all, Some(Duration::from_secs(1)), new()), Some(false));
    }
}
