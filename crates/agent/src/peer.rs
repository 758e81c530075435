//! What brokers of neighbouring domains say to each other: `POST /v1/peer` with a [`Message`], answered by 204. An answer to a request is a
//! message of its own, so that nobody waits with a connection open.
//!
//! | step of a session | paper (Velox §2.2.3) | asks |
//! |---|---|---|
//! | [`Step::Quote`] | QoSRequest, establishSession | for each flow: the classes in which it fits, with bound and price; nothing is held |
//! | [`Step::Hold`] | performReservation | its part of each pipe for [`HOLD`] |
//! | [`Step::Commit`] | reserveCommit | the same until it is stopped |
//! | [`Step::Stop`] | STOP | to forget it, in whatever step it is |
//!
//! Each message may come twice, late, or never: a step that was done is answered again.

use qos::Class;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// The time for which a hold lasts, counted by the domain that holds from its own receipt. Who asked for it decides within half of it.
pub const HOLD: Duration = Duration::from_secs(10);
/// Most domains that a session crosses.
pub const MOST_HOPS: usize = 16;
/// Most flows of a session.
pub const MOST_FLOWS: usize = 64;
/// Longest name, in bytes.
pub const LONGEST_NAME: usize = 255;
/// Most sessions that one summary names.
pub const MOST_SESSIONS: usize = 2000;
/// Most entries of a message about what borders have dropped.
pub const MOST_EXCESS: usize = 128;
/// Longest time of a flow, ns: a day.
const DAY: u64 = 86_400_000_000_000;
/// Largest sample, bytes.
const LARGEST_SAMPLE: u64 = 1 << 30;

/// A session over several domains, as one version of it is known to all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The domain whose user asked for it.
    pub first: String,
    /// Its name there.
    pub session: String,
    /// Each request for it has a later one.
    pub version: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.session)
    }
}

/// A flow of a session, as it comes into a domain. Times are ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// The topic.
    pub topic: String,
    /// The publisher's node in the first domain.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The subscriber's domain.
    pub domain: String,
    /// The subscriber's node there.
    pub node: String,
    /// The node at which it comes into the domain that is asked.
    pub enters: String,
    /// Bytes of a sample.
    pub size: u64,
    /// Shortest time between two samples.
    pub period: u64,
    /// Samples that may come at once.
    pub burst: u32,
    /// Largest delay behind the period, at the publisher.
    pub jitter: u64,
    /// For each class that may still carry it, the longest delay that domains before this one promise.
    pub before: BTreeMap<Class, u64>,
    /// Samples of the publisher for each that crosses the border.
    pub scale: u32,
    /// The same at the most, where there is not room for all: so far it may be thinned. 0: as `scale`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub scale_max: u32,
    /// Its session's: lower ones give way first.
    #[serde(default = "usual", skip_serializing_if = "is_usual")]
    pub importance: i64,
    /// The longest delay from end to end that is promised; until a class is chosen, the part of it that is no domain's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// The latest that a sample may arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// The address of the publisher's node, if its domain states it: a border tells the flow by both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The address of the subscriber's node, from a hold on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// Its publisher refuses samples beyond these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub police: bool,
}

impl Flow {
    /// The ratio of the publisher's samples to those that are sent, if one of `limit` is allowed: within what the flow asks for and admits.
    pub fn thinned(&self, limit: u32) -> u32 {
        limit.clamp(self.scale, self.scale_max.max(self.scale))
    }

    /// The shortest time between two samples at this ratio.
    pub fn period_at(&self, scale: u32) -> u64 {
        let period = u128::from(self.period) * u128::from(scale) / u128::from(self.scale.max(1));
        u64::try_from(period).unwrap_or(u64::MAX)
    }

    /// `true` if no part of it is longer or larger than allowed.
    pub fn is_bounded(&self) -> bool {
        let texts = [&self.topic, &self.publisher, &self.subscriber, &self.domain, &self.node, &self.enters];
        let times = [self.jitter, self.bound.unwrap_or(0), self.deadline.unwrap_or(0)];
        texts.iter().all(|text| (1..=LONGEST_NAME).contains(&text.len()) && !text.chars().any(char::is_control))
            && times.iter().chain(self.before.values()).all(|time| *time <= DAY)
            && (100..=DAY).contains(&self.period)
            && (1..=LARGEST_SAMPLE).contains(&self.size)
            && (1..=1_000_000).contains(&self.burst)
            && (1..=1_000_000).contains(&self.scale)
            && self.scale_max <= 1_000_000
            && self.importance.unsigned_abs() <= 1_000_000
    }
}

fn is_zero(scale: &u32) -> bool {
    *scale == 0
}

/// The importance of a session that states none.
fn usual() -> i64 {
    1
}

fn is_usual(importance: &i64) -> bool {
    *importance == usual()
}

/// A step of a session, with what it is about.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Which classes could carry these flows?
    Quote(Vec<Flow>),
    /// Hold what these flows need; each names one class.
    Hold(Vec<Flow>),
    /// It is decided.
    Commit,
    /// It is over, or comes to nothing.
    Stop,
}

impl Step {
    /// Its name.
    pub fn name(&self) -> StepName {
        match self {
            Self::Quote(_) => StepName::Quote,
            Self::Hold(_) => StepName::Hold,
            Self::Commit => StepName::Commit,
            Self::Stop => StepName::Stop,
        }
    }

    /// The flows that it is about.
    pub fn flows(&self) -> &[Flow] {
        match self {
            Self::Quote(flows) | Self::Hold(flows) => flows,
            Self::Commit | Self::Stop => &[],
        }
    }
}

/// The name of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepName {
    /// Asked for menus.
    Quote,
    /// Held.
    Hold,
    /// Committed.
    Commit,
    /// Stopped.
    Stop,
}

/// A domain's part of a class that may carry a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Part {
    /// The domain.
    pub domain: String,
    /// Its pipe.
    pub pipe: String,
    /// The longest delay in it, ns.
    pub bound: u64,
    /// The price of the flow in it.
    pub price: u64,
    /// The address of the subscriber's node, if this is its domain and states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// The classes that may carry a flow, each with the parts of all domains from the one that answers.
pub type Menu = BTreeMap<Class, Vec<Part>>;

/// Why a domain refuses a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Refused {
    /// The domain.
    pub domain: String,
    /// The limit.
    pub what: String,
    /// The value that would be needed, as a quantity.
    pub needs: String,
    /// The limit's value.
    pub has: String,
    /// The reason.
    pub because: String,
    /// No rule of the domain permits it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forbidden: bool,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Said {
    /// To a quote: the menu of each flow.
    Menus(Vec<Menu>),
    /// It is done, here and in all domains behind.
    Done,
    /// It is not done.
    Refused(Refused),
}

/// A message from one broker to its neighbour.
#[derive(Clone, Debug, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// A step is asked for.
    Request {
        /// The session.
        key: Key,
        /// The domains that the request has passed, the first one first.
        passed: Vec<String>,
        /// The step.
        step: Step,
    },
    /// A step's answer.
    Answer {
        /// The session.
        key: Key,
        /// The step.
        step: StepName,
        /// The answer.
        said: Said,
    },
    /// The sessions that go from the sender's domain into the receiver's, all of them: told every few seconds.
    Present(Vec<Key>),
    /// Of these the receiver of [`Message::Present`] knows nothing.
    Unknown(Vec<Key>),
    /// This session, which came from the receiver's domain, goes on no more in the sender's or behind it, for this reason.
    Lost(Key, String),
    /// The sessions that came from the receiver's domain and get fewer samples than they asked for, because the sender's domain or one behind it
    /// has less room. All of them: others get what they asked for. Told when it changes, and again every few seconds as long as there are some.
    Thinned(Thinned),
    /// What was dropped of sessions that came from the receiver's domain, because it was beyond what they reserved: at borders of the sender's domain
    /// and behind it. Told every few seconds as long as there is some.
    Exceeded(Vec<Excess>),
}

/// What the borders of a domain have dropped of a session's packets in a class, because it was beyond what the session reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Excess {
    /// The domain whose user asked for the session.
    pub first: String,
    /// Its name there.
    pub session: String,
    /// The domain of the borders.
    pub domain: String,
    /// The class.
    pub class: Class,
    /// Packets, since the border has begun to count: when a session comes or goes there.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Packets of other sessions between the same two hosts are among them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// Sessions that get fewer samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Thinned {
    /// A later message has a higher one: an earlier one that comes late is ignored.
    pub number: u64,
    /// Each session, with the ratio of the publisher's samples to those that there is room for, of each flow that goes to the sender, in their order.
    pub sessions: Vec<(Key, Vec<u32>)>,
    /// The reason.
    pub because: String,
}

impl Message {
    /// `true` if no part of it is longer or larger than allowed.
    pub fn is_bounded(&self) -> bool {
        let is_name = |name: &String| (1..=LONGEST_NAME).contains(&name.len()) && is_printable(name);
        let short = |key: &Key| is_name(&key.first) && is_name(&key.session);
        let keys = |keys: &Vec<Key>| keys.len() <= MOST_SESSIONS && keys.iter().all(short);
        match self {
            Self::Request { key, passed, step } => {
                let flows = step.flows();
                let asks = matches!(step, Step::Commit | Step::Stop) || !flows.is_empty();
                let hops = (1..=MOST_HOPS).contains(&passed.len()) && passed.iter().all(is_name);
                asks && hops && short(key) && flows.len() <= MOST_FLOWS && flows.iter().all(Flow::is_bounded)
            }
            Self::Answer { key, said, .. } => short(key) && said.is_bounded(),
            Self::Present(all) | Self::Unknown(all) => keys(all),
            Self::Lost(key, because) => short(key) && because.len() <= 4 * LONGEST_NAME && is_printable(because),
            Self::Thinned(Thinned { sessions, because, number: _ }) => {
                let scales = |scales: &Vec<u32>| {
                    scales.len() <= MOST_FLOWS && scales.iter().all(|one| (1..=1_000_000).contains(one))
                };
                let each = sessions.iter().all(|(key, all)| short(key) && scales(all));
                sessions.len() <= MOST_SESSIONS && each && because.len() <= 4 * LONGEST_NAME && is_printable(because)
            }
            Self::Exceeded(all) => {
                let names = |one: &Excess| [&one.first, &one.session, &one.domain].into_iter().all(is_name);
                all.len() <= MOST_EXCESS && all.iter().all(names)
            }
        }
    }
}

impl Said {
    fn is_bounded(&self) -> bool {
        let short = |text: &String| text.len() <= 4 * LONGEST_NAME && is_printable(text);
        let part = |part: &Part| short(&part.domain) && short(&part.pipe) && part.bound <= DAY && part.price <= 1 << 40;
        match self {
            Self::Menus(menus) => {
                let menu = |menu: &Menu| menu.values().all(|parts| parts.len() <= MOST_HOPS && parts.iter().all(part));
                menus.len() <= MOST_FLOWS && menus.iter().all(menu)
            }
            Self::Done => true,
            Self::Refused(Refused { domain, what, needs, has, because, forbidden: _ }) => {
                [domain, what, needs, has, because].into_iter().all(short)
            }
        }
    }
}

/// `true` if a terminal shows it as it is.
fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        let name = || "a".to_owned();
        Flow {
            topic: name(),
            publisher: name(),
            subscriber: name(),
            domain: name(),
            node: name(),
            enters: name(),
            size: 1,
            period: 100,
            burst: 1,
            scale: 1,
            ..Flow::default()
        }
    }

    fn request(step: Step) -> Message {
        let key = Key { first: "a".into(), session: "s".into(), version: 1 };
        Message::Request { key, passed: vec!["a".into()], step }
    }

    #[test]
    fn what_is_too_long_or_too_large_is_found() {
        assert!(request(Step::Quote(vec![flow()])).is_bounded() && request(Step::Commit).is_bounded());
        let wrong = [
            Flow { size: 0, ..flow() },
            Flow { period: 99, ..flow() },
            Flow { burst: 0, ..flow() },
            Flow { jitter: DAY + 1, ..flow() },
            Flow { topic: "x".repeat(256), ..flow() },
            Flow { scale_max: 1_000_001, ..flow() },
            Flow { importance: i64::MIN, ..flow() },
            Flow { node: "a\n".into(), ..flow() },
            Flow { before: BTreeMap::from([(Class::High, u64::MAX)]), ..flow() },
        ];
        for flow in wrong {
            assert!(!request(Step::Hold(vec![flow.clone()])).is_bounded(), "{flow:?}");
        }
        assert!(!request(Step::Quote(Vec::new())).is_bounded());
        assert!(!request(Step::Quote(vec![flow(); MOST_FLOWS + 1])).is_bounded());
        let endless = Message::Answer {
            key: Key { first: "a".into(), session: "s".into(), version: 1 },
            step: StepName::Quote,
            said: Said::Menus(vec![Menu::from([(Class::High, vec![Part { bound: u64::MAX, ..Part::default() }])])]),
        };
        assert!(!endless.is_bounded());
        let thinned = |scales: Vec<u32>| {
            let key = Key { first: "a".into(), session: "s".into(), version: 1 };
            Message::Thinned(Thinned { number: 1, sessions: vec![(key, scales)], because: "less".into() })
        };
        assert!(thinned(vec![2]).is_bounded());
        assert!(!thinned(vec![0]).is_bounded() && !thinned(vec![1; MOST_FLOWS + 1]).is_bounded());
        let dropped = |domain: &str| Excess {
            first: "a".into(),
            session: "s".into(),
            domain: domain.into(),
            packets: u64::MAX,
            ..Excess::default()
        };
        assert!(Message::Exceeded(vec![dropped("b"); MOST_EXCESS]).is_bounded());
        assert!(!Message::Exceeded(vec![dropped("b"); MOST_EXCESS + 1]).is_bounded());
        assert!(!Message::Exceeded(vec![dropped("b\n")]).is_bounded());
    }

    #[test]
    fn a_flow_is_thinned_within_what_it_admits() {
        let flow = Flow { scale: 2, scale_max: 6, period: 200, ..flow() };
        assert_eq!([1, 2, 5, 9].map(|limit| flow.thinned(limit)), [2, 2, 5, 6]);
        assert_eq!([2, 5].map(|scale| flow.period_at(scale)), [200, 500]);
        let fixed = Flow { scale_max: 0, ..flow.clone() };
        assert_eq!([1, 9].map(|limit| fixed.thinned(limit)), [2, 2]);
        // What an earlier version says is a flow of the usual importance that cannot be thinned.
        let text = serde_json::to_string(&Flow { importance: 1, ..fixed.clone() }).unwrap();
        assert!(!text.contains("scale_max") && !text.contains("importance"), "{text}");
        assert_eq!(serde_json::from_str::<Flow>(&text).unwrap(), Flow { importance: 1, ..fixed });
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for message in [request(Step::Quote(vec![flow()])), request(Step::Stop), Message::Present(Vec::new())] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), message, "{text}");
        }
    }
}
