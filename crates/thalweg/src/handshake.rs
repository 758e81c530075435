//! The in-band handshake. It decides whether a channel is opened, whatever discovery proposed.
//!
//! Over a stream (TCP, or the publisher node's unix socket on the same host) the subscriber's node sends the byte
//! [`CHANNEL_HANDSHAKE`](crate::control::CHANNEL_HANDSHAKE), then one [`Request`]; the publisher's node answers with one
//! [`Answer`]. Each is a 4-byte little-endian length (at most [`LARGEST`]) and a JSON document; unknown fields are
//! ignored. On carrier `tcp` the same stream then carries the frames; on the others it stays open as the channel's sign of
//! life: each end notices its end if the other dies.
//!
//! A refusal travels with its [`Reason`], which decides what the subscriber does next.

mod acceptance;

pub(crate) use acceptance::Acceptance;

use crate::carrier::{self, Parameters};
use crate::channel::proxy::{Provenance, Proxy};
use crate::control::limits::{Refusal, check_port, check_text};
use crate::control::matching::Subject;
use crate::control::{NodeId, PortId, PortInfo};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the handshake and of the frames that follow.
pub const VERSION: u32 = 1;
/// The highest number of a last sample that is believed. At a sample per nanosecond it is reached after 292 years.
pub const LAST_SAMPLE: u64 = (1 << 63) - 1;
/// Largest request or answer in bytes.
pub const LARGEST: usize = 64 << 10;

/// The request of a subscriber's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// Nodes of different realms do not connect.
    pub realm: String,
    /// The subscriber's node.
    pub node: NodeId,
    /// The subscribing port.
    pub port: PortId,
    /// Its name, type and QoS.
    pub subscriber: PortInfo,
    /// The publisher's node.
    pub to_node: NodeId,
    /// The publishing port.
    pub to_port: PortId,
    /// The carrier's name.
    pub carrier: carrier::Name,
    /// The subscriber's clock ([`linux::clock::clock_id`]).
    pub clock: String,
    /// `true` if an administrator connected the two ports by name: topics need not be equal.
    #[serde(default)]
    pub by_name: bool,
    /// Parameters of the subscriber's end of the carrier.
    #[serde(default)]
    pub parameters: Parameters,
    /// Carrier `tcp`: the subscriber answers, and offers to send its answers back on this stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// Scaling of the stream, and its place; left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// `true` if the proxy of an open channel between the same two ports moves: that channel continues until the
    /// subscriber ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moves: bool,
    /// A token that is the same in each request of this subscriber to this node for this publisher, and that no other
    /// node can guess: an older channel of the two ports gives way to it, and only to it. Left out by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

/// A channel in the other direction, offered along with a question's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// The answering port, a publisher of the asking node.
    pub port: PortId,
    /// Its name, type and QoS.
    pub publisher: PortInfo,
    /// Random id that every frame of its flow will carry.
    pub flow: u32,
    /// Incarnation of its node.
    pub incarnation: u64,
}

/// The answer of a publisher's node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The channel is open.
    Accepted(Accepted),
    /// The channel is refused, with the reason.
    Refused(Refused),
    /// Only for a request with `probe`: keep-alives of the flow are sent by the carrier from now on. A subscriber
    /// that received one sends the byte [`HEARD`] on this stream, and gets another answer.
    Probe(Probe),
}

/// Sent by a subscriber that received a probe.
pub const HEARD: u8 = 1;

/// A flow that a subscriber has to hear before it has a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The id that every frame of it carries.
    pub flow: u32,
    /// Parameters of the publisher's end of the carrier.
    #[serde(default)]
    pub parameters: Parameters,
}

/// The first message of a node that asks another one for heartbeats, after the byte [`HEARTBEAT`](crate::control::HEARTBEAT).
/// Each byte that follows is a request, which the other node answers with one byte: [`ALIVE`] or [`NO_SOURCE`]. A node that
/// cannot answer ends the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watching {
    /// [`VERSION`].
    pub version: u32,
    /// Nodes of different realms exchange no news.
    pub realm: String,
    /// The node asked.
    pub to_node: NodeId,
    /// The publisher's node …
    pub source: NodeId,
    /// … and its port, whose samples the node asked serves.
    pub port: PortId,
}

/// A heartbeat.
pub const ALIVE: u8 = 1;
/// A heartbeat of a relay that receives nothing from the source.
pub const NO_SOURCE: u8 = 2;

/// An open channel, as the publisher sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// Random id that every frame of the flow carries.
    pub flow: u32,
    /// Incarnation of the publisher's node: sequence numbers of another incarnation are unrelated.
    pub incarnation: u64,
    /// Sequence number of the last sample that was published before the channel joined: the channel brings those after it.
    pub last_seq: u64,
    /// Largest message in bytes.
    pub max_message: u32,
    /// The publisher's clock.
    pub clock: String,
    /// Parameters of the publisher's end of the carrier.
    #[serde(default)]
    pub parameters: Parameters,
    /// The offered [`Answers`] are accepted, by this subscriber: their frames come on this stream. Otherwise they need a
    /// channel of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<PortInfo>,
    /// Scaling of the flow before it is sent; left out: none, whatever was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled: Option<Provenance>,
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, which decides the subscriber's reaction ([`Reason::reaction`]).
    pub policy: Reason,
    /// The publisher's offer.
    pub offered: String,
    /// The subscriber's request.
    pub requested: String,
    /// A value that would match.
    pub remedy: String,
    /// Further mismatches between the two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Refused>,
}

/// A document of another node, which is checked as soon as it is read.
pub trait Checked {
    /// Checks that it is within the accepted limits.
    ///
    /// # Errors
    /// A sentence with the value and the limit.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// A request beyond the limits is answered with a refusal that names the limit, not dropped: see `refusal`.
impl Checked for Request {}

impl Checked for Watching {}

impl Checked for Answer {
    fn check(&self) -> Result<(), String> {
        let Answer::Accepted(accepted) = self else { return Ok(()) };
        if accepted.last_seq > LAST_SAMPLE {
            let said = accepted.last_seq;
            return Err(format!("the publisher numbered its last sample {said}, at most {LAST_SAMPLE} is believed"));
        }
        let ports = accepted.answers.as_ref().map_or(Ok(()), check_port);
        ports.and_then(|()| check_text(&accepted.clock)).map_err(|refusal| refusal.to_string())
    }
}

impl Request {
    /// The part of it that exceeds the limits. Ports are checked like those of a node's document. Malformed texts of
    /// their policies are reported as the subscriber's own program reports them.
    pub(crate) fn refusal(&self) -> Option<Refused> {
        let ports = std::iter::once(&self.subscriber).chain(self.answers.as_ref().map(|answers| &answers.publisher));
        let refused = |policy: Reason, offered: String, requested: String, remedy: &str| Refused {
            policy,
            offered,
            requested,
            remedy: remedy.to_owned(),
            others: Vec::new(),
        };
        if let Some(wrong) = ports.clone().find_map(|port| port.qos.check_texts().err()) {
            return Some(refused(Subject::Qos.into(), wrong.against, wrong.policy, wrong.remedy));
        }
        let mut checked = std::iter::once(check_text(&self.clock)).chain(ports.map(check_port));
        let Refusal { limit, because } = checked.find_map(Result::err)?;
        Some(refused(Reason::Other(limit.to_owned()), format!("{limit} within the limit"), because, "shorten it"))
    }
}

/// Encodes one document for the wire.
///
/// # Errors
/// A text when the document is larger than [`LARGEST`].
pub fn pack<T: Serialize>(document: &T) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(document).map_err(|e| e.to_string())?;
    if json.len() > LARGEST {
        return Err(format!(
            "a handshake of {} bytes is over the limit of {LARGEST}: shorten names and type description",
            json.len()
        ));
    }
    let mut bytes = (json.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&json);
    Ok(bytes)
}

/// Reads a document from the start of `bytes`. Returns it with its length, or `None` while it is not complete.
///
/// # Errors
/// A text if the length is over the limit, the JSON is not such a document, or the document exceeds the accepted
/// limits.
pub fn unpack<T: DeserializeOwned + Checked>(bytes: &[u8]) -> Result<Option<(T, usize)>, String> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LARGEST {
        return Err(format!("a handshake of {length} bytes is over the limit of {LARGEST}"));
    }
    let Some(json) = bytes.get(4..4 + length) else { return Ok(None) };
    let document: T = serde_json::from_slice(json).map_err(|e| format!("not a handshake: {e}"))?;
    document.check()?;
    Ok(Some((document, 4 + length)))
}

/// The reason of a refusal. It travels as text; the text of a newer version is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Reason {
    /// The two speak different versions.
    Version,
    /// The two are of different realms.
    Realm,
    /// The address has a new owner.
    Node,
    /// The port is not open.
    Port,
    /// The port publishes another topic.
    Topic,
    /// The two ports do not fit, or the carrier cannot be used.
    Mismatch(Subject),
    /// The port has as many channels as it may have to this peer.
    Channels,
    /// The relay takes no more proxies, or has no source.
    Relay,
    /// No proxy scales this type.
    Picture,
    /// The operating system refused a resource of the channel.
    System,
    /// The answers have a channel already, on the connection of their questions.
    Answers,
    /// A question excepts more publishers than it may.
    Except,
    /// The name of a limit ([`Refusal::limit`](crate::control::limits::Refusal::limit)), or the reason of a newer version.
    Other(String),
}

/// The reaction of a subscriber to a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// The ports fit: it tries the next way, or the same one later.
    AnotherWay,
    /// Another node is at that address: it tries the next way while the directory knows the port, else it forgets the pair.
    AnotherAddress,
    /// The publisher is gone: it forgets the pair.
    Forget,
    /// The ports do not match: it reports this, and waits until one of them changes.
    WaitForChange,
}

impl Reason {
    const NAMED: [Self; 11] = [
        Self::Version,
        Self::Realm,
        Self::Node,
        Self::Port,
        Self::Topic,
        Self::Channels,
        Self::Relay,
        Self::Picture,
        Self::System,
        Self::Answers,
        Self::Except,
    ];

    /// The text by which it travels.
    pub fn name(&self) -> &str {
        match self {
            Self::Version => "version",
            Self::Realm => "realm",
            Self::Node => "node",
            Self::Port => "port",
            Self::Topic => "topic",
            Self::Mismatch(subject) => subject.name(),
            Self::Channels => "channels",
            Self::Relay => "relay",
            Self::Picture => "picture",
            Self::System => "system",
            Self::Answers => "answers",
            Self::Except => "except",
            Self::Other(text) => text,
        }
    }

    /// The subscriber's reaction.
    pub const fn reaction(&self) -> Reaction {
        match self {
            Self::Mismatch(Subject::Carrier) | Self::System | Self::Answers | Self::Relay | Self::Channels => {
                Reaction::AnotherWay
            }
            Self::Node | Self::Realm => Reaction::AnotherAddress,
            Self::Port => Reaction::Forget,
            Self::Version | Self::Topic | Self::Mismatch(_) | Self::Picture | Self::Except | Self::Other(_) => {
                Reaction::WaitForChange
            }
        }
    }
}

impl From<Subject> for Reason {
    fn from(subject: Subject) -> Self {
        Self::Mismatch(subject)
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        let named = Self::NAMED.into_iter().find(|reason| reason.name() == text);
        named.or_else(|| Subject::find(&text).map(Self::Mismatch)).unwrap_or(Self::Other(text))
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Other(text) => text,
            named => named.name().to_owned(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn documents_survive_and_pieces_wait() {
        let refused = Answer::Refused(Refused {
            policy: Subject::Type.into(),
            offered: "A".into(),
            requested: "B".into(),
            remedy: String::new(),
            others: Vec::new(),
        });
        let bytes = pack(&refused).unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(unpack::<Answer>(&bytes[..cut]).unwrap(), None);
        }
        assert_eq!(unpack::<Answer>(&bytes).unwrap(), Some((refused, bytes.len())));
    }

    #[test]
    fn a_last_sample_beyond_all_counting_is_not_believed() {
        let accepted = |last_seq| {
            let (clock, parameters) = (String::new(), Parameters::default());
            let (flow, incarnation, max_message) = (1, 1, 1);
            let accepted =
                Accepted { flow, incarnation, last_seq, max_message, clock, parameters, answers: None, scaled: None };
            unpack::<Answer>(&pack(&Answer::Accepted(accepted)).unwrap())
        };
        assert!(accepted(LAST_SAMPLE).is_ok());
        for last_seq in [LAST_SAMPLE + 1, u64::MAX] {
            assert!(accepted(last_seq).unwrap_err().contains(&format!("{last_seq}, at most {LAST_SAMPLE}")));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack::<Request>(&bytes);
            let _ = unpack::<Answer>(&bytes);
        }
    }

    fn read(text: &str) -> Reason {
        serde_json::from_value(text.into()).unwrap()
    }

    #[test]
    fn every_reason_travels_as_its_name() {
        let named = Reason::NAMED.into_iter().chain(Subject::all().map(Reason::Mismatch));
        for reason in named.chain([Reason::Other("names".into())]) {
            let text = serde_json::to_value(&reason).unwrap();
            assert_eq!(text, reason.to_string());
            assert_eq!(read(reason.name()), reason);
        }
    }

    /// The texts that versions before this type wrote and compared.
    #[test]
    fn the_reaction_to_a_text_is_what_it_was() {
        let of = |reaction, texts: &[&str]| texts.iter().for_each(|text| assert_eq!(read(text).reaction(), reaction));
        of(Reaction::AnotherWay, &["carrier", "system", "answers", "relay", "channels"]);
        of(Reaction::AnotherAddress, &["node", "realm"]);
        of(Reaction::Forget, &["port"]);
        let others = ["type", "qos", "reliability", "key", "filter", "version", "topic", "picture", "except"];
        of(Reaction::WaitForChange, &others);
        of(Reaction::WaitForChange, &["names", "length of a name", "", "Carrier", "carrier "]);
    }

    proptest! {
        #[test]
        fn any_text_survives(text in ".{0,40}") {
            prop_assert_eq!(String::from(read(&text)), text);
        }
    }
}
