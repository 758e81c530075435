//! Events that a node reports to its owner: matches, mismatches, losses, warnings. None arises on the data path of a healthy
//! channel.

#![allow(clippy::disallowed_methods)] // a user waits

use crate::carrier;
use crate::channel::InstanceState;
use qos::ResourceLimit;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};

/// An event of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A channel was established.
    Matched {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The carrier that was chosen.
        carrier: carrier::Name,
    },
    /// A publisher and a subscriber of one topic do not match.
    Incompatible {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The policy, or `type`.
        policy: String,
        /// The publisher's offer.
        offered: String,
        /// The subscriber's request.
        requested: String,
        /// A value that would match.
        remedy: String,
        /// `true` if the subscriber's QoS does without this policy: the two still match, with the publisher's offer.
        #[serde(default)]
        fallback: bool,
    },
    /// A channel ended.
    Unmatched {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The reason.
        reason: String,
    },
    /// A carrier could not be used for a channel. The next one is tried, or the same again after a pause.
    CarrierFailed {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The carrier.
        carrier: carrier::Name,
        /// The reason.
        reason: String,
    },
    /// A sample arrived that is no value of the subscriber's type.
    Undecodable {
        /// Subscriber's port name.
        subscriber: String,
        /// The defect.
        problem: String,
    },
    /// A callback held the thread that its channel shares with others for more than a millisecond, in which they waited.
    SlowCallback {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// Microseconds for which one wake-up of the channel held the thread.
        took_us: u64,
        /// Number of times so far; reported at most once a second.
        count: u32,
        /// The channel has a thread of its own from now on.
        isolated: bool,
    },
    /// Samples did not come (at a subscriber) or were not published (at a publisher) within the deadline. Reported at most once
    /// a second.
    DeadlineMissed {
        /// The port's name.
        port: String,
        /// The instance's key, such as `name = left, joint = 3`; `None`: the topic has no key, or further instances together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<String>,
        /// Deadlines missed since the last report: one for each period.
        missed: u64,
        /// Total so far, over all instances of the port.
        total: u64,
    },
    /// Samples came later than the latency budget; they were delivered.
    BudgetExceeded {
        /// Subscriber's port name.
        subscriber: String,
        /// Number since the last report.
        late: u64,
        /// Total so far.
        total: u64,
    },
    /// Samples of a channel were lost on the way, or given up because they came too late to be of use. Reported
    /// within a second, after reordered samples have arrived.
    SampleLost {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// Number since the last report.
        lost: u64,
        /// Total so far.
        total: u64,
    },
    /// Samples were rejected because they exceeded one of the subscriber's limits. Reported within a second.
    SampleRejected {
        /// Subscriber's port name.
        subscriber: String,
        /// The limit.
        #[serde(default)]
        limit: ResourceLimit,
        /// The port's limit.
        #[serde(default)]
        most: u64,
        /// Number since the last report.
        rejected: u64,
        /// Total so far, by this limit.
        total: u64,
    },
    /// An instance ended at a subscriber, or came back: it was disposed of, or lost its last publisher.
    InstanceChanged {
        /// Subscriber's port name.
        subscriber: String,
        /// The instance's key, such as `name = left, joint = 3`.
        key: String,
        /// The new state.
        state: InstanceState,
    },
    /// A publisher did not assert its liveliness within its lease, or does again.
    LivelinessChanged {
        /// Publisher's port name.
        publisher: String,
        /// Name of the subscriber that waits for it; `None`: reported at the publisher itself.
        subscriber: Option<String>,
        /// `true` if it is alive now.
        alive: bool,
    },
    /// A relay does not keep samples that a port wants kept there.
    NotKept {
        /// The port's name.
        port: String,
        /// The relay's name.
        relay: String,
        /// The publisher of the samples, the limit and the excess.
        because: String,
    },
    /// A relay keeps samples that a port wants kept there, and did not before.
    KeptNow {
        /// The port's name.
        port: String,
        /// The relay's name.
        relay: String,
        /// The publisher's name; `None`: the topic's samples, of any.
        publisher: Option<String>,
    },
    /// Another port has the same name.
    NameTaken {
        /// The name.
        name: String,
        /// The port that holds the name.
        holder: String,
    },
    /// The priority of a channel changed without a request.
    PriorityChanged {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// The change and its reason.
        change: String,
    },
    /// A channel keeps the promise of its plan again, or no longer. Only while `verify` runs.
    PromiseChanged {
        /// Publisher's port name.
        publisher: String,
        /// Subscriber's port name.
        subscriber: String,
        /// `kept`, `at risk`, `broken` or `unknown`.
        verdict: String,
        /// The reason.
        because: String,
    },
    /// A warning for a person.
    Warning {
        /// The warning.
        text: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Matched { publisher, subscriber, carrier } => write!(f, "{publisher} → {subscriber} over {carrier}"),
            Event::Incompatible { publisher, subscriber, policy, offered, requested, remedy, fallback } => {
                let verdict = if *fallback { "match by fallback only" } else { "do not match" };
                write!(f, "{publisher} and {subscriber} {verdict}: ")?;
                write!(f, "{policy} offered {offered}, requested {requested}; {remedy}")
            }
            Event::Unmatched { publisher, subscriber, reason } => {
                write!(f, "{publisher} → {subscriber} ended: {reason}")
            }
            Event::CarrierFailed { publisher, subscriber, carrier, reason } => {
                write!(f, "{publisher} → {subscriber}: {carrier} failed: {reason}")
            }
            Event::Undecodable { subscriber, problem } => {
                write!(f, "{subscriber} received what it cannot read: {problem}")
            }
            Event::SlowCallback { publisher, subscriber, took_us, count, isolated } => {
                let then = if *isolated { "; it has a thread of its own now" } else { "" };
                write!(
                    f,
                    "{publisher} → {subscriber}: the callback held a shared thread for {took_us} µs ({count} times so far){then}"
                )
            }
            Event::DeadlineMissed { port, instance, missed, total } => {
                let of = instance.as_ref().map_or(String::new(), |key| format!(" of instance {key}"));
                write!(f, "{port} missed {missed} deadlines{of}, {total} in all")
            }
            Event::BudgetExceeded { subscriber, late, total } => {
                write!(f, "{subscriber} got {late} samples later than its latency budget, {total} in all")
            }
            Event::SampleLost { publisher, subscriber, lost, total } => {
                write!(f, "{publisher} → {subscriber} lost {lost} samples on the way, {total} in all")
            }
            Event::SampleRejected { subscriber, limit, most, rejected, total } => {
                write!(f, "{subscriber} rejected {rejected} samples beyond its limit of {most} {limit}, {total} in all")
            }
            Event::InstanceChanged { subscriber, key, state } => write!(f, "{subscriber}: instance {key} {state}"),
            Event::LivelinessChanged { publisher, subscriber, alive } => {
                let now = if *alive { "is alive again" } else { "gives no sign of life within its lease" };
                let told = subscriber.as_ref().map_or(String::new(), |port| format!(", {port} waits for it"));
                write!(f, "{publisher} {now}{told}")
            }
            Event::NotKept { port, relay, because } => {
                write!(f, "{port} wants samples kept at relay:{relay}: {because}")
            }
            Event::KeptNow { port, relay, publisher } => {
                let publisher = publisher.as_ref().map(|publisher| format!(" of {publisher}")).unwrap_or_default();
                write!(f, "{port} has its samples{publisher} kept at relay:{relay} now")
            }
            Event::NameTaken { name, holder } => write!(f, "the port name {name} is also held by {holder}"),
            Event::PriorityChanged { publisher, subscriber, change } => {
                write!(f, "{publisher} → {subscriber} now has {change}")
            }
            Event::PromiseChanged { publisher, subscriber, verdict, because } => {
                write!(f, "{publisher} → {subscriber}: the promise of its plan is {verdict}: {because}")
            }
            Event::Warning { text } => f.write_str(text),
        }
    }
}

/// The last events of a node: bounded, the oldest are dropped. Cloning gives another handle to the same log.
#[derive(Clone, Default)]
pub struct Events(Arc<Log>);

#[derive(Default)]
struct Log {
    entries: Mutex<Entries>,
    news: Condvar,
}

#[derive(Default)]
struct Entries {
    first: u64, // number of the oldest kept event
    events: VecDeque<Event>,
    wakers: Vec<Waker>,
}

const KEPT: usize = 1024;

impl Events {
    pub(crate) fn push(&self, event: Event) {
        let mut entries = lock(&self.0.entries);
        if entries.events.len() == KEPT {
            entries.events.pop_front();
            entries.first += 1;
        }
        entries.events.push_back(event);
        entries.wakers.drain(..).for_each(Waker::wake);
        self.0.news.notify_all();
    }

    /// A reader that starts with the oldest event still kept.
    pub fn reader(&self) -> EventReader {
        EventReader { log: self.0.clone(), next: 0 }
    }
}

/// Reads a node's events in order.
pub struct EventReader {
    log: Arc<Log>,
    next: u64,
}

impl EventReader {
    /// `true` if an event waits; otherwise `waker` is woken by the next one.
    pub(crate) fn is_ready_or_wakes(&self, waker: &Waker) -> bool {
        let mut entries = lock(&self.log.entries);
        let ready = self.next < entries.first + entries.events.len() as u64;
        if !ready && !entries.wakers.iter().any(|kept| kept.will_wake(waker)) {
            entries.wakers.push(waker.clone());
        }
        ready
    }

    /// The next event, waiting at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Event> {
        let until = Instant::now() + timeout;
        let mut entries = lock(&self.log.entries);
        loop {
            self.next = self.next.max(entries.first);
            let index = (self.next - entries.first) as usize;
            if let Some(event) = entries.events.get(index) {
                self.next += 1;
                return Some(event.clone());
            }
            let left = until.checked_duration_since(Instant::now())?;
            entries = self.log.news.wait_timeout(entries, left).map(|(e, _)| e).unwrap_or_else(|e| e.into_inner().0);
        }
    }
}

/// A poisoned lock here only means that a reader panicked; the log itself is whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
