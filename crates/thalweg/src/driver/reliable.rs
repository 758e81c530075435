//! Settings of flows that retransmit lost samples: the samples that they keep, and for how long, by the QoS of the two ports.

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

/// Limit of retransmissions: 32 Mbit/s, so that a path that loses samples because it is full is not filled further (U-28).
const REPAIRS: Limit = Limit { rate: 4_000_000, burst: 256 << 10 };

/// Settings of the publisher's end of a flow to this subscriber, over datagrams of at most `most` bytes.
pub(super) fn sender_settings(publisher: &Qos, subscriber: &Qos, most: Option<usize>) -> SenderSettings {
    let useful = [subscriber.deadline, publisher.lifespan, subscriber.lifespan].into_iter().flatten().min();
    SenderSettings {
        window: (publisher.queue.limit() as usize).min(WINDOW),
        bytes: usize::try_from(publisher.queue_bytes()).unwrap_or(usize::MAX),
        // A queue longer than the window waits in front of the window, and loses nothing there.
        drops_oldest: matches!(publisher.queue, Queue::KeepLast(limit) if limit as usize <= WINDOW),
        useful_ns: useful.map(nanoseconds),
        hurries: subscriber.deadline.is_some(),
        largest: piece(most.unwrap_or(65_536)),
        repairs: REPAIRS,
    }
}

/// Congestion control of a flow to this one subscriber, if the subscriber reports what has arrived. A rate limit of the flow counts as
/// reserved.
pub(super) fn control(request: &Request, settings: &FlowSettings, of: Capabilities) -> Option<Control> {
    let told = (request.parameters.takes, request.parameters.buffer, of.max_datagram);
    let (Some(window), Some(buffer), Some(datagram)) = told else { return None };
    let reserved = settings.sending.limit.map(|limit| limit.rate);
    let congestion = CongestionSettings { datagram, buffer: buffer as usize, reserved };
    // A sample that may be given up before it arrives needs a number of its own: it is not sent in a batch.
    let keeps = settings.reliable.is_some_and(|reliable| !reliable.drops_oldest && reliable.useful_ns.is_none());
    let batches = keeps && request.parameters.batches;
    (settings.reliable.is_some() && !of.multicast).then_some(Control {
        congestion,
        window,
        batches,
        short_headers: request.parameters.short_headers,
    })
}

/// Bytes per receipt: two datagrams, as TCP acknowledges, and at most a quarter of the receiver's socket buffer.
pub(super) fn receipts_every(control: &Control) -> u32 {
    let CongestionSettings { datagram, buffer, .. } = control.congestion;
    u32::try_from((2 * datagram).min(buffer / 4)).unwrap_or(u32::MAX).max(1)
}

/// First window of a subscriber for messages that it cannot deliver yet: half of the memory that remains for them.
pub(super) fn takes(budget: &Account) -> u64 {
    budget.left() as u64 / 2
}

/// A number for a member of a group. It depends on the member's node and on the UDP port of its reports, which is another one for each of
/// the node's ends. It also depends on the address and the token, which differ for a peer that claims the same node and port.
pub(super) fn member(request: &Request, place: &Place) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.node, request.parameters.udp_port, request.token, place.peer.ip()).hash(&mut hasher);
    hasher.finish()
}

/// Settings of the subscriber's end, if the publisher's answer says that it retransmits.
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
    fn a_peer_that_claims_a_members_node_and_port_is_another_member() {
        let request = |token| request(token, json!({"udp_port": 9}));
        let at =
            |last: u8| Place { local: ([10, 0, 0, 1], 1).into(), peer: ([10, 0, 0, last], 2).into(), port_number: 0 };
        let own = member(&request(7), &at(2));
        assert_eq!(own, member(&request(7), &Place { peer: ([10, 0, 0, 2], 3).into(), ..at(2) }), "of each stream");
        assert_ne!(own, member(&request(7), &at(3)));
        assert_ne!(own, member(&request(8), &at(2)));
    }

    /// A subscriber of an older version does not mention batches. A queue that gives up samples counts them one by one.
    #[test]
    fn batches_need_a_subscriber_that_reads_them_and_a_flow_that_gives_nothing_up() {
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
        // A subscriber that does not ask for short headers gets none.
        let new = || json!({"buffer": 1000, "takes": 1000, "batches": true});
        let older = json!({"buffer": 1000, "takes": 1000});
        let (all, last) = (Queue::KeepAll(16), Queue::KeepLast(16));
        assert_eq!((batches(all, None, new()), batches(all, None, older)), (Some(true), Some(false)));
        assert_eq!((batches(last, None, new()), batches(all, None, json!({"batches": true}))), (Some(false), None));
        assert_eq!(batches(all, Some(Duration::from_secs(1)), new()), Some(false));
    }
}
