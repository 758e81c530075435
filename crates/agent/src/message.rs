//! What agents and other clients say to a broker, as JSON over HTTP.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `PUT /v1/plan?after=REVISION` | the text of a plan file | [`Accepted`]; 409 if somebody else changed it since that revision |
//! | `DELETE /v1/plan?after=REVISION` | | the same; of a broker that plans by itself: 409 as long as a session is admitted |
//! | `PUT /v1/sessions/NAME` | the text of a session file | [`Session`]; 409 if it does not fit |
//! | `PUT /v1/sessions/NAME?dry_run=true` | the same | the same, and nothing is changed |
//! | `DELETE /v1/sessions/NAME` | | [`Accepted`] |
//! | `GET /v1/sessions`, `GET /v1/sessions/NAME` | | a list of [`Session`], or one with its text |
//! | `GET /v1/pipes` | | a list of [`Pipe`] |
//! | `GET /v1/accounts?after=NUMBER` | | lines of accounts, at most 1,000 |
//! | `POST /v1/peer` | a neighbour's [`crate::peer::Message`] | 204 |
//! | `GET /v1/hosts` | | a list of [`Host`] |
//! | `GET /v1/hosts/NAME/desired?since=REVISION&wait=SECONDS` | | [`Desired`], or 204 if there is no newer one within the time |
//! | `GET /v1/links` | | [`Links`] |
//! | `PUT /v1/links/NAME` | [`Rate`] | [`Links`] |
//! | `DELETE /v1/links/NAME` | | [`Links`], with the contract's rate |
//! | `POST /v1/hosts/NAME/actual` | [`Actual`] | 204 |
//! | `POST /v1/hosts/NAME/links` | a list of [`Carrier`] | 204 |
//! | `GET /v1/hosts/NAME/admitted?session=SESSION&topic=TOPIC` | | [`Admission`] |
//!
//! Anything refused is a [`Refusal`].

use qos::{Class, plan};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Largest text of a plan, in bytes.
pub const LARGEST_PLAN: usize = 8 << 20;
/// Largest text of a session file, in bytes.
pub const LARGEST_SESSION: usize = 16 << 10;
/// Largest body of other requests and answers, in bytes.
pub const LARGEST: usize = 256 << 10;
/// Longest time that a broker holds back the answer to a request for a newer state.
pub const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Most repairs in one report.
pub const MOST_REPAIRS: usize = 32;
/// Longest text in a report, in bytes.
pub const LONGEST_TEXT: usize = 2000;
/// Most devices in one report.
pub const MOST_DEVICES: usize = 256;
/// Most bytes of the ends of channels in one report.
pub const MOST_OF_ENDS: usize = 100 << 10;
/// Longest name of an end or of a queue's device in a report, in bytes.
pub const LONGEST_NAME: usize = 256;
/// Most queues in one report.
pub const MOST_QUEUES: usize = 256;
/// Most bytes of the queues in one report.
pub const MOST_OF_QUEUES: usize = 110 << 10;
/// Most sessions of a report that have sent too much.
pub const MOST_EXCEEDED: usize = 64;

/// The state that a host has to have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Desired {
    /// Number of the broker's starts: a lower one comes from a broker that was replaced, and is refused.
    pub epoch: u64,
    /// Number of the change, from 1; 0: nothing was ever asked for.
    pub revision: u64,
    /// The text of the plan; `None`: the host has to be as it was before.
    pub plan: Option<String>,
}

/// The state that a host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actual {
    /// The epoch and revision of the state that was asked for.
    pub epoch: u64,
    /// The revision.
    pub revision: u64,
    /// The result.
    pub state: State,
    /// The reason, if it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Devices with something of ours: queues, a tunnel, a border.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// What somebody else had changed and the agent changed back since its last report, in the words of `tc`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// Ends of the plan's channels whose programs run here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
    /// What the queues of its devices had sent and dropped at the agent's last look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Queue>,
    /// Queues that it has besides, for which a report has no room.
    #[serde(default)]
    pub queues_left_out: u64,
    /// What it had kept out at its borders at that look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_out: Vec<KeptOut>,
    /// What it had dropped of sessions that sent more than they reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeded: Vec<Exceeded>,
}

impl Actual {
    /// A state with nothing else to tell.
    pub fn new(epoch: u64, revision: u64, state: State) -> Self {
        let (devices, repaired, ends) = (Vec::new(), Vec::new(), Vec::new());
        let (queues, queues_left_out, kept_out, exceeded) = (Vec::new(), 0, Vec::new(), Vec::new());
        let because = None;
        Self { epoch, revision, state, because, devices, repaired, ends, queues, queues_left_out, kept_out, exceeded }
    }

    /// `true` if no part of it is larger than allowed.
    pub fn is_bounded(&self) -> bool {
        let short = |text: &String| text.len() <= LONGEST_TEXT;
        let lists = self.devices.len() <= MOST_DEVICES && self.repaired.len() <= MOST_REPAIRS;
        let ends =
            self.ends.iter().all(End::is_bounded) && self.ends.iter().map(End::size).sum::<usize>() <= MOST_OF_ENDS;
        let bytes: usize = self.queues.iter().map(Queue::size).sum();
        let queues = self.queues.len() <= MOST_QUEUES && self.queues.iter().all(Queue::is_bounded);
        let queues = queues && bytes <= MOST_OF_QUEUES;
        let kept_out = self.kept_out.len() <= MOST_QUEUES && self.kept_out.iter().all(KeptOut::is_bounded);
        let kept_out =
            kept_out && self.exceeded.len() <= MOST_EXCEEDED && self.exceeded.iter().all(Exceeded::is_bounded);
        lists && ends && queues && kept_out && self.devices.iter().chain(&self.repaired).chain(&self.because).all(short)
    }
}

/// The queue of a class, of control traffic, or of a channel's own, at a device of a host, as its kernel counts it since the queue was made: packets with their
/// headers, also those that no contract declares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// The device.
    pub device: String,
    /// The class; `None`: one queue has all of them, or the kernel counts them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The channel whose own queue it is; `None`: all others of the class wait in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Owner>,
    /// Control traffic waits in it, and nothing else of its class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped, because the queue was full.
    pub dropped: u64,
    /// Packets that waited at that moment.
    pub waiting: u64,
}

impl Queue {
    fn is_bounded(&self) -> bool {
        let short = |text: &String| text.len() <= LONGEST_NAME;
        short(&self.device) && self.own.iter().all(|own| short(&own.topic) && short(&own.subscriber))
    }

    /// Its share of a report, in bytes: its texts, and as many for the rest.
    pub fn size(&self) -> usize {
        let own = self.own.as_ref().map_or(0, |own| own.topic.len() + own.subscriber.len() + 80);
        self.device.len() + own + if self.control { 180 } else { 160 }
    }
}

/// A channel of the plan with a queue of its own, which its publisher has on the host. Names are the plan's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The topic.
    pub topic: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// What leaves the queue in the long run at most, bit/s.
    pub rate_bits_per_s: u64,
}

/// What came in at a border in a reserved class and belonged to no session, since the border is looked at: it got another class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptOut {
    /// The device by which it came in.
    pub device: String,
    /// The class that it asked for.
    pub class: Class,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

impl KeptOut {
    fn is_bounded(&self) -> bool {
        self.device.len() <= LONGEST_NAME
    }
}

/// What was dropped at a border of sessions between two hosts in one class, because it was beyond what they reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exceeded {
    /// The sessions, each as DOMAIN/NAME: a border does not tell those between the same hosts in one class from each other.
    pub session: String,
    /// The device by which it came in.
    pub device: String,
    /// The class.
    pub class: Class,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
}

impl Exceeded {
    fn is_bounded(&self) -> bool {
        [&self.session, &self.device].iter().all(|text| text.len() <= LONGEST_NAME)
    }
}

/// An end of a channel of the plan, whose program runs on the host. Names are the plan's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The end that is on this host.
    pub end: Side,
    /// The reason why it does not have the plan's settings. `None`: it has them, read back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// What it has sent or received since its channel was opened, as its program counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

impl End {
    fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.topic, &self.publisher, &self.subscriber].into_iter().chain(&self.because)
    }

    fn is_bounded(&self) -> bool {
        self.texts().all(|text| text.len() <= LONGEST_NAME)
    }

    /// Its share of a report, in bytes: its texts, and as many for the rest.
    pub fn size(&self) -> usize {
        self.texts().map(String::len).sum::<usize>() + 100
    }
}

/// Samples at one kind of ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Bytes of them, without headers.
    pub bytes: u64,
}

impl Counts {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { samples: self.samples.saturating_add(other.samples), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// What has come since.
    pub fn since(self, before: Self) -> Self {
        Self { samples: self.samples.saturating_sub(before.samples), bytes: self.bytes.saturating_sub(before.bytes) }
    }
}

/// An end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The publisher's.
    Publisher,
    /// The subscriber's.
    Subscriber,
}

/// The result of an attempt at a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The host has the state; it was read back.
    Applied,
    /// The host cannot have it, and is as it was before.
    Refused,
}

/// A change that a broker keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its number.
    pub revision: u64,
}

/// A host of the plan, as the broker knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name in the contract.
    pub host: String,
    /// `true` if the plan has queues for it, or the last plan had.
    pub planned: bool,
    /// The revision that it has to have.
    pub desired: u64,
    /// The last one that it reported.
    pub actual: Option<u64>,
    /// Its state.
    pub state: HostState,
    /// The reason, if it refused, or obeyed a later broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Devices with something of ours: queues, a tunnel, a border.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Repairs since the broker started.
    pub repairs: u64,
    /// The last of them, in the words of `tc`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
    /// Ends of the plan's channels whose programs run there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
    /// What the queues of its devices have sent and dropped, by class, and of control traffic where it has one of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Queue>,
    /// Queues that it has besides, for which its report has no room.
    #[serde(default)]
    pub queues_left_out: u64,
    /// What it has kept out at its borders, by class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_out: Vec<KeptOut>,
    /// What it has dropped at its borders of sessions that sent more than they reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeded: Vec<Exceeded>,
    /// Milliseconds since its agent was heard last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ms: Option<u64>,
}

/// The state of a host, as the broker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// Its agent has not reported this revision yet.
    Waiting,
    /// As asked for.
    Applied,
    /// Its agent refused this revision.
    Refused,
    /// Its agent was not heard for longer than it may be silent.
    Silent,
}

/// A session that is admitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Its name.
    pub session: String,
    /// The identity of the user who asked for it, and may change or stop it.
    pub owner: String,
    /// The revision of the plan that it came with.
    pub revision: u64,
    /// Its state.
    pub state: SessionState,
    /// Hosts that it waits for, or the host that refused, with its reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Its channels: those of its subscribers, and those of its topics.
    pub channels: Vec<SessionChannel>,
    /// Milliseconds until it ends unless it is asked for again; absent: it has no lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// The text of its file, where one session was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What each domain promises, if it goes over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainPart>,
    /// Changes with each of which it would be admitted now, if it is suspended, the nearest to what it is first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<plan::Offer>,
    /// What borders of domains on its way have dropped, because it was beyond what it reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeded: Vec<DomainExcess>,
}

/// What the borders of a domain have dropped of a session in a class, since they have begun to count: when a session comes or goes there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainExcess {
    /// The domain.
    pub domain: String,
    /// The class.
    pub class: Class,
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Packets of other sessions between the same two hosts are among them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// A domain's part of a channel that goes over several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainPart {
    /// The domain.
    pub domain: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The domain's pipe.
    pub pipe: String,
    /// The longest delay in it, µs.
    pub bound_us: f64,
    /// The price, in a unit of the domains' own.
    pub price: u64,
}

/// A pipe of a domain, and what is sold of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipe {
    /// Its name.
    pub pipe: String,
    /// The node at which samples come in.
    pub from: String,
    /// The node at which they go out.
    pub to: String,
    /// The class of its packets.
    pub class: Class,
    /// The longest delay in it, µs.
    pub bound_us: f64,
    /// The price of a flow, in a unit of the domains' own.
    pub price: u64,
    /// Its rate, headers included.
    pub rate_bits_per_s: f64,
    /// The part of it that is sold or held.
    pub sold_bits_per_s: f64,
    /// Bytes of frames that may come at once.
    pub burst_bytes: u64,
    /// The part of them that is sold or held.
    pub sold_bytes: u64,
    /// The rate that it has now, if links carry less than the contract says: its sessions get fewer samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carries_bits_per_s: Option<f64>,
}

/// A device of a host, at the end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// The device.
    pub device: String,
    /// It is there, is up, and has a carrier.
    pub up: bool,
    /// bit/s that it has agreed on with the other end of its cable, if it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_s: Option<u64>,
    /// What it took of its queue since the last look, if something waited there all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
}

/// What a device takes of its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// bit/s that it took.
    pub rate_bits_per_s: u64,
    /// bit/s that the queue gives by the plan: a faster device takes no more.
    pub queue_bits_per_s: u64,
}

/// The rate that a link carries now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// bit/s, no more than the contract says; 0: nothing.
    pub rate_bits_per_s: u64,
}

/// The links of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Each of them.
    pub links: Vec<Link>,
    /// Subscribers of the contract, and pipes, that are left out because of links that are down or slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// The reason why nothing is planned for the links as they are: the contract does not fit there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// A link of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub link: String,
    /// The nodes that it joins.
    pub between: [String; 2],
    /// bit/s in each direction, by the contract.
    pub rate_bits_per_s: u64,
    /// bit/s that it carries now, as agents report and users state; 0: nothing.
    pub carries_bits_per_s: u64,
    /// A user has stated it.
    #[serde(default)]
    pub stated: bool,
    /// It is what a device took of a full queue.
    #[serde(default)]
    pub measured: bool,
}

/// Whether a topic is part of a session that is active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// It is.
    pub admitted: bool,
    /// The reason, if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Changes with which the session would have been admitted, when it was last asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<String>,
}

/// A channel of a session, as it is planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionChannel {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The class of its packets.
    pub class: Class,
    /// The latest that a sample arrives, µs.
    pub bound_us: Option<f64>,
    /// The latest that it may, µs.
    pub deadline_us: Option<f64>,
    /// Ratio of published samples to those that it gets.
    #[serde(default)]
    pub scale: u32,
    /// The ends whose programs run and have the plan's class and threads, as their hosts' agents reported.
    #[serde(default)]
    pub set: Vec<Side>,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// It would be admitted: that alone was asked.
    Fits,
    /// Some hosts have not reported its queues yet.
    Waiting,
    /// All hosts have had its queues: its bounds hold.
    Active,
    /// A host refused its queues.
    Refused,
    /// It does not run, because links carry less than the contract says. It goes on when they carry it again.
    Suspended,
}

/// Answer to a request that is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, with the value, the limit, and what to do.
    pub error: String,
    /// The limits that a session would exceed, and changes with which it would fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<plan::Refusal>,
}
