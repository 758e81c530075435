//! The flows of this node's publishers: one for each subscriber, or one for a multicast group. Subscribers of one publisher on one interface
//! share a flow if they get the same samples.
//!
//! The QoS of the two ports decides which samples a flow keeps to retransmit them, and for how long.

use super::control::Control;
use super::handshake_server::ends;
use super::matching::is_reliable;
use crate::carrier::{Capabilities, Carrier, Parameters, Place, SendHalf};
use crate::channel::PortRef;
use crate::channel::bucket::Limit;
use crate::channel::congestion::CongestionSettings;
use crate::channel::flow::{self, Flow, FlowSettings};
use crate::channel::fragment::piece;
use crate::channel::memory::Account;
use crate::channel::proxy::{Picture, Proxy, Selection};
use crate::channel::reliable::{ReceiverSettings, SenderSettings, WINDOW, acknowledges_every};
use crate::handshake::{Accepted, Request};
use crate::port::{AnyPublisher, Way};
use qos::{Qos, Queue, Reliability};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A group's publisher, its interface, and the selection and picture of its samples.
pub(super) type Group = (PortRef, IpAddr, Selection, Option<Picture>);

/// The flow of each group, and the parameters that a new subscriber needs.
pub(super) struct Groups<F = Arc<Flow>>(HashMap<Group, (F, Parameters)>);

impl<F> Default for Groups<F> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<F> Groups<F> {
    /// The flow of a group, if it accepts members.
    pub(super) fn find(&self, group: &Group, takes_members: impl Fn(&F) -> bool) -> Option<&(F, Parameters)> {
        self.0.get(group).filter(|(flow, _)| takes_members(flow))
    }

    /// A group has this flow from now on.
    pub(super) fn insert(&mut self, group: Group, flow: F, parameters: Parameters) {
        self.0.insert(group, (flow, parameters));
    }

    /// A publisher closed: its groups end.
    pub(super) fn closed(&mut self, publisher: PortRef) {
        self.0.retain(|(of, ..), _| *of != publisher);
    }

    /// A publisher no longer sends these pictures (`None`: unscaled samples): their groups end.
    pub(super) fn ended(&mut self, publisher: PortRef, picture: Option<Picture>) {
        self.0.retain(|(of, _, _, its), _| *of != publisher || *its != picture);
    }

    /// Removes the flows for which `is` is true.
    pub(super) fn retired(&mut self, is: impl Fn(&F) -> bool) {
        self.0.retain(|_, (flow, _)| !is(flow));
    }
}

impl Control {
    pub(super) fn open_sender(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        publisher_port: &dyn AnyPublisher,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Way, Accepted)> {
        if carrier.capabilities().multicast {
            let (flow, parameters) = self.group_flow(carrier, request, publisher_port, place, settings)?;
            let before = self.waiting_for(request).and_then(|older| older.member.get().copied());
            let parameters = admitted(&flow, request, place, (before, parameters));
            flow.resume();
            let accepted = self.accepted(request, publisher_port, flow.settings.id, parameters);
            return Ok((Way::Group(flow), accepted));
        }
        let (flow, mut parameters) = self.open_flow(carrier, request, publisher_port, place, settings)?;
        parameters.first = flow.admit(0, None);
        let accepted = self.accepted(request, publisher_port, flow.settings.id, parameters);
        Ok((Way::Flow(flow), accepted))
    }

    /// The flow to the group that the subscriber is to join: the existing one, or a new one.
    pub(super) fn group_flow(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        publisher_port: &dyn AnyPublisher,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Arc<Flow>, Parameters)> {
        let picture = request.proxy.as_ref().and_then(|proxy| proxy.picture);
        let key = (ends(request).0, place.local.ip(), Proxy::sent(request.proxy.as_ref()), picture);
        if let Some(found) = self.groups.find(&key, |flow| flow.takes_members()) {
            return Ok(found.clone());
        }
        let opened = self.open_flow(carrier, request, publisher_port, place, settings)?;
        self.groups.insert(key, opened.0.clone(), opened.1.clone());
        Ok(opened)
    }

    /// A new flow, and the parameters of the publisher's end that its subscribers need.
    fn open_flow(
        &mut self,
        carrier: &dyn Carrier,
        request: &Request,
        publisher_port: &dyn AnyPublisher,
        place: &Place,
        settings: impl Fn(u32) -> FlowSettings,
    ) -> io::Result<(Arc<Flow>, Parameters)> {
        let multicast = carrier.capabilities().multicast;
        let sender = carrier.sender(place, &request.parameters)?;
        let (offered, asked) = (&publisher_port.info().qos, &request.subscriber.qos);
        let mut settings = settings(self.random_flow());
        if multicast {
            settings.account = self.state.memory.group();
            settings.outlasts = offered.reliability == Reliability::Reliable;
        }
        if !sender.capabilities.reliable && sender.half.has_feedback() {
            let most = sender.capabilities.max_datagram;
            settings.reliable = match multicast {
                // Later members may ask for the reliability that the first member does not need.
                true if offered.reliability == Reliability::Reliable => Some(sender_settings(offered, offered, most)),
                false if is_reliable(offered, asked) => Some(sender_settings(offered, asked, most)),
                _ => None,
            };
        }
        self.look_after(sender.half.membership(), &publisher_port.info().name);
        settings.control = control(request, &settings, sender.capabilities);
        let mut parameters = sender.parameters;
        parameters.receipts = settings.control.map(|control| receipts_every(&control));
        parameters.window = settings.reliable.and_then(|keeps| u32::try_from(keeps.window).ok());
        let flow = self.flow(settings, offered.class, sender.half, sender.capabilities, place);
        if flow.is_kept() {
            self.state.senders.receive_feedback(&flow)?;
        }
        Ok((flow, parameters))
    }

    pub(super) fn flow(
        &self,
        settings: FlowSettings,
        class: qos::Class,
        half: Box<dyn SendHalf>,
        capabilities: Capabilities,
        place: &Place,
    ) -> Arc<Flow> {
        let half = self.state.settings.around.sender(half, capabilities, crate::carrier::way(place.local, place.peer));
        self.state.senders.prepare(class);
        Arc::new(Flow::new(settings, class, half, capabilities, self.state.senders.clone()))
    }
}

/// Admits a reliable member to a group that retransmits. If the member comes back, `before` is its former number, whose place it takes.
/// Returns the parameters of its answer.
fn admitted(
    flow: &Flow,
    request: &Request,
    place: &Place,
    (before, parameters): (Option<u64>, Parameters),
) -> Parameters {
    let asks = request.subscriber.qos.reliability == Reliability::Reliable;
    let Some(port) = request.parameters.udp_port.filter(|_| asks) else { return parameters };
    let mut address = place.peer;
    address.set_port(port);
    let member = member(request, place);
    let first = before.and_then(|before| flow.readmit(before, member, address));
    Parameters { first: first.or_else(|| flow.admit(member, Some(address))), ..parameters }
}

/// Settings of the publisher's end of a flow to this subscriber, over datagrams of at most `most` bytes.
fn sender_settings(publisher: &Qos, subscriber: &Qos, most: Option<usize>) -> SenderSettings {
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
pub(super) fn control(request: &Request, settings: &FlowSettings, of: Capabilities) -> Option<flow::Control> {
    let told = (request.parameters.takes, request.parameters.buffer, of.max_datagram);
    let (Some(window), Some(buffer), Some(datagram)) = told else { return None };
    let reserved = settings.sending.limit.map(|limit| limit.rate);
    let congestion = CongestionSettings { datagram, buffer: buffer as usize, reserved };
    // A sample that may be given up before it arrives needs a number of its own: it is not sent in a batch.
    let keeps = settings.reliable.is_some_and(|reliable| !reliable.drops_oldest && reliable.useful_ns.is_none());
    let batches = keeps && request.parameters.batches;
    (settings.reliable.is_some() && !of.multicast).then_some(flow::Control {
        congestion,
        window,
        batches,
        short_headers: request.parameters.short_headers,
    })
}

/// Bytes per receipt: two datagrams, as TCP acknowledges, and at most a quarter of the receiver's socket buffer.
fn receipts_every(control: &flow::Control) -> u32 {
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

/// Limit of retransmissions: 32 Mbit/s, so that a path that loses samples because it is full is not filled further (U-28).
const REPAIRS: Limit = Limit { rate: 4_000_000, burst: 256 << 10 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::flow::Sending;
    use crate::control::{NodeId, PortId};
    use serde_json::json;

    fn group(port: u32, last: u8) -> Group {
        let publisher = PortRef { node: NodeId(1), port: PortId(port) };
        (publisher, [10, 0, 0, last].into(), Selection::default(), None)
    }

    fn groups() -> Groups<u32> {
        let mut groups = Groups::default();
        for (flow, of) in [group(1, 1), group(1, 2), group(2, 1)].into_iter().enumerate() {
            groups.insert(of, flow as u32, Parameters::default());
        }
        groups
    }

    fn flows(groups: &Groups<u32>) -> Vec<Option<u32>> {
        let of = |of: Group| groups.find(&of, |_| true).map(|(flow, _)| *flow);
        vec![of(group(1, 1)), of(group(1, 2)), of(group(2, 1))]
    }

    #[test]
    fn each_interface_and_publisher_has_a_flow_that_takes_members() {
        let groups = groups();
        assert_eq!(flows(&groups), [Some(0), Some(1), Some(2)]);
        assert!(groups.find(&group(1, 1), |flow| *flow != 0).is_none(), "it takes none any more");
        assert!(groups.find(&group(3, 1), |_| true).is_none());
    }

    #[test]
    fn flows_go_with_their_publisher_and_with_their_last_member() {
        let mut all = groups();
        all.closed(group(1, 1).0);
        assert_eq!(flows(&all), [None, None, Some(2)]);
        let mut all = groups();
        all.retired(|flow| *flow == 1);
        assert_eq!(flows(&all), [Some(0), None, Some(2)]);
        all.ended(group(2, 1).0, None);
        assert_eq!(flows(&all), [Some(0), None, None]);
    }

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
