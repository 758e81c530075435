//! The policies of a port at run time: state machines that take time and bytes, and give verdicts and news. Pure. A port that
//! states none of these policies has none of them.
//!
//! | file | contents |
//! |---|---|
//! | [`instances`] | the instances that a subscriber knows: their publishers, and whether they are alive; when the next sample of each is due |
//! | [`reading`] | all policies of a subscriber together |
//! | [`writing`] | deadline and liveliness of a publisher |
//!
//! [`Judge`] applies them.

mod instances;
mod reading;
mod writing;

pub use reading::PolicyCounts;
pub(crate) use reading::Writer;

use crate::channel::{Change, InstanceReport, InstanceState, PortRef, SampleInfo};
use crate::codec::{FieldError, PolicyFields, Schema, WHOLE_TOPIC};
use linux::lock::PiMutex;
use qos::Qos;
use reading::Reading;
use std::sync::Arc;
use std::time::Duration;
use writing::Writing;

/// An event that a policy noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Samples of an instance that did not come in time, since the last report and in all. `instance`: its key; `None`: all others.
    DeadlineMissed { instance: Option<String>, missed: u64, total: u64 },
    /// A publisher gives signs of life again, or has stopped.
    LivelinessChanged { publisher: String, alive: bool },
    /// Samples later than the latency budget, since the last report and in all.
    BudgetExceeded { late: u64, total: u64 },
    /// An instance, by its key, ended or came back.
    InstanceChanged { key: String, state: InstanceState },
    /// Samples rejected by the limit of instances, since the last report and in all.
    Rejected { most: u32, rejected: u64, total: u64 },
}

/// Judges the samples of one port by its policies.
pub(crate) struct Judge {
    name: String,
    state: PiMutex<State>,
    /// The pause between two looks at policies that depend on time.
    pause: Duration,
}

enum State {
    Reads(Reading, Vec<News>),
    Writes(Writing),
}

/// The judge of a subscriber that states policies which look at samples; `None`: it takes them all.
pub(crate) fn judge_of_subscriber(name: &str, requested: &Qos) -> Option<Arc<Judge>> {
    let looks = Reading::looks(requested);
    looks.then(|| Arc::new(Judge::new(name, State::Reads(Reading::new(requested), Vec::new()), requested)))
}

/// The judge of a publisher that promises a deadline or signs of life. `schema`: that of its type, for the key.
///
/// # Errors
/// [`FieldError`]: the key is not in the type.
pub(crate) fn judge_of_publisher(
    name: &str,
    offered: &Qos,
    schema: Option<&Schema>,
    now: u64,
) -> Result<Option<Arc<Judge>>, FieldError> {
    let policy_fields = PolicyFields::find(schema, &offered.key, None)?;
    let promises = offered.deadline.is_some() || offered.liveliness.lease.is_some();
    Ok(promises.then(|| Arc::new(Judge::new(name, State::Writes(Writing::new(offered, policy_fields, now)), offered))))
}

impl Judge {
    fn new(name: &str, state: State, qos: &Qos) -> Self {
        let shortest = [qos.deadline, qos.liveliness.lease].into_iter().flatten().min();
        let pause = shortest.unwrap_or(LONGEST_PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        Self { name: name.to_owned(), state: PiMutex::new(state), pause }
    }

    /// A publisher's message, published at `now`; `encode` gives its bytes, where they are needed.
    pub(crate) fn published(&self, now: u64, change: Change, encode: impl FnOnce(&mut Vec<u8>) -> bool) {
        if let State::Writes(writing) = &mut *self.state.lock() {
            writing.published(now, change, encode);
        }
    }

    /// Notes that the publisher asserts its liveliness at `now`.
    pub(crate) fn assert(&self, now: u64) {
        if let State::Writes(writing) = &mut *self.state.lock() {
            writing.sign(now);
        }
    }

    /// `true` if a subscriber's sample is delivered.
    pub(crate) fn takes(&self, info: &SampleInfo, bytes: &[u8]) -> bool {
        match &mut *self.state.lock() {
            State::Reads(reading, news) => reading.takes(info, bytes, news),
            State::Writes(_) => true,
        }
    }

    /// The number of a sample's instance.
    pub(crate) fn instance(&self, info: &SampleInfo, bytes: &[u8]) -> u64 {
        match &*self.state.lock() {
            State::Reads(reading, _) => reading.instance(info, bytes).unwrap_or(WHOLE_TOPIC),
            State::Writes(_) => WHOLE_TOPIC,
        }
    }

    /// `true` if a subscriber's filter holds for a sample of a history, which was not filtered before it was sent.
    pub(crate) fn wants(&self, info: &SampleInfo, bytes: &[u8]) -> bool {
        match &*self.state.lock() {
            State::Reads(reading, _) => reading.holds(info, bytes),
            State::Writes(_) => true,
        }
    }

    /// A channel from a publisher opens.
    pub(crate) fn came(&self, writer: Writer, now: u64) {
        if let State::Reads(reading, _) = &mut *self.state.lock() {
            reading.came(writer, now);
        }
    }

    /// The channel from a publisher ended.
    pub(crate) fn left(&self, publisher: PortRef) {
        if let State::Reads(reading, news) = &mut *self.state.lock() {
            reading.left(publisher, news);
        }
    }

    /// Notes that a publisher asserted its liveliness at `now`.
    pub(crate) fn sign(&self, publisher: PortRef, now: u64) {
        if let State::Reads(reading, news) = &mut *self.state.lock() {
            reading.sign(publisher, now, news);
        }
    }

    /// The port's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The instances that a subscriber knows.
    pub(crate) fn instances(&self) -> Vec<InstanceReport> {
        match &*self.state.lock() {
            State::Reads(reading, _) => reading.instances(),
            State::Writes(_) => Vec::new(),
        }
    }

    /// The instances that missed most deadlines.
    pub(crate) fn late_instances(&self) -> Vec<InstanceReport> {
        match &*self.state.lock() {
            State::Reads(reading, _) => reading.late_instances(),
            State::Writes(_) => Vec::new(),
        }
    }

    /// A subscriber's counters.
    pub(crate) fn counts(&self) -> PolicyCounts {
        match &*self.state.lock() {
            State::Reads(reading, _) => reading.counts(),
            State::Writes(_) => PolicyCounts::default(),
        }
    }

    /// The effects of time up to `now`, with the counts if `tells`, and the time until the next look. The caller serves the whole
    /// node, so this does not wait while a sample is judged.
    pub(crate) fn look(&self, now: u64, tells: bool) -> (Vec<News>, Duration) {
        let Some(mut state) = self.state.try_lock() else { return (Vec::new(), SHORTEST_PAUSE) };
        let state = &mut *state;
        let (found, next) = match state {
            State::Reads(reading, news) => {
                reading.look(now, news);
                tells.then(|| reading.tell(news));
                (std::mem::take(news), reading.next())
            }
            State::Writes(writing) => {
                let mut news = Vec::new();
                writing.look(now, &self.name, &mut news);
                tells.then(|| writing.tell(&mut news));
                (news, writing.next())
            }
        };
        let pause = next.map_or(self.pause, |next| Duration::from_nanos(next.saturating_sub(now)).min(self.pause));
        (found, pause.max(SHORTEST_PAUSE))
    }
}

fn ns(duration: Option<Duration>) -> Option<u64> {
    duration.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// The longest and the shortest pause between two looks at policies that depend on time.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_does_not_wait_for_a_sample_that_is_judged() {
        let requested = Qos { deadline: Some(Duration::from_secs(1)), ..Qos::default() };
        let judge = judge_of_subscriber("/in", &requested).unwrap();
        let judged = judge.state.lock();
        let looked = std::thread::scope(|scope| scope.spawn(|| judge.look(0, true)).join().unwrap());
        assert_eq!(looked, (Vec::new(), SHORTEST_PAUSE));
        drop(judged);
        assert_eq!(judge.look(0, true), (Vec::new(), LONGEST_PAUSE));
    }
}
