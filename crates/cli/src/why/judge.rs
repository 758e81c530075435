//! From evidence to problems, the cause first. Pure.
//!
//! | module | subject |
//! |---|---|
//! | [`meeting`] | existence of both ports, and their match |
//! | [`opening`] | a channel that is wanted and not open |
//! | [`flowing`] | an open channel: silent, dropping, losing |
//!
//! Here are also the kinds of problems, and settings without effect.

mod flowing;
mod meeting;
mod opening;
#[cfg(test)]
mod tests;

use super::{End, Evidence, Said};
use crate::priority::show::blocking;
use qos::priority::priority_text;
use serde::{Serialize, Serializer};
use std::fmt;
use thalweg::admin::EndReport;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Diagnosis {
    /// The answer in one line.
    pub verdict: String,
    /// The problems, the cause first.
    pub problems: Vec<Problem>,
    /// The evidence that was used.
    pub evidence: Vec<Line>,
    /// Longest time in µs that a sample waits for packets of lower classes at its outgoing device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_us: Option<f64>,
}

/// A piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// The subject.
    pub about: &'static str,
    /// The observation.
    pub says: String,
}

impl Diagnosis {
    fn line(&mut self, about: &'static str, says: impl Into<String>) {
        self.evidence.push(Line { about, says: says.into() });
    }

    fn problem(&mut self, problem: impl IntoIterator<Item = Problem>) {
        self.problems.extend(problem);
    }
}

/// Both ends, and the reports of both nodes.
struct Both<'a> {
    publisher: &'a End,
    subscriber: &'a End,
    sent: &'a Said,
    received: &'a Said,
}

/// Judges from the outside to the inside, and stops where no more can be seen.
pub(super) fn judge(evidence: &Evidence) -> Diagnosis {
    let mut found = Diagnosis::default();
    let healthy = examine(evidence, &mut found);
    let [publisher, subscriber] = &evidence.asked;
    found.verdict = match found.problems.first() {
        Some(problem) => problem.what.clone(),
        None => healthy.unwrap_or_else(|| format!("{publisher} → {subscriber}: nothing is wrong")),
    };
    found
}

/// Fills in problems and evidence. Returns the verdict if the channel works.
fn examine(evidence: &Evidence, found: &mut Diagnosis) -> Option<String> {
    let (publisher, subscriber) = meeting::ports(evidence, found)?;
    let (sent, received) = meeting::answers(evidence, (publisher, subscriber), found)?;
    let both = Both { publisher, subscriber, sent, received };
    let open = sent.channel.as_ref().zip(received.channel.as_ref());
    let Some(((_, out), (_, taken))) = open.filter(|((_, out), (_, taken))| out.carrier == taken.carrier) else {
        if meeting::belong_together(&both, found) {
            opening::judge(&both, found);
        }
        return None;
    };
    opening::carrier(&both, &taken.carrier, found);
    let rate = flowing::judge(&both, evidence.watched, found);
    judge_priority(&both, found);
    let lost = out.lost + taken.lost_on_the_way();
    Some(format!("{} → {} over {}: healthy, {rate}, {lost} lost", out.publisher, out.subscriber, out.carrier))
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict)?;
        for problem in &self.problems {
            if problem.what != self.verdict {
                write!(f, "\n\n{}", problem.what)?;
            }
            write!(f, "\n  problem      {}\n  remedy       {}", problem.kind.id, problem.remedy)?;
        }
        if !self.evidence.is_empty() {
            f.write_str("\n")?;
        }
        self.evidence.iter().try_for_each(|line| write!(f, "\n  {:<12} {}", line.about, line.says))
    }
}

/// Judges the priority of both ends.
fn judge_priority(both: &Both<'_>, found: &mut Diagnosis) {
    found.blocking_us = both.sent.settings.as_ref().and_then(|report| report.blocking_us);
    for (about, end, said) in [("sending", both.publisher, both.sent), ("receiving", both.subscriber, both.received)] {
        let Said { settings: Some(report), .. } = said else { continue };
        found.line(about, describe(report));
        found.problem(marks(end, both, report));
        found.problem(thread(end, both, report));
    }
}

fn describe(report: &EndReport) -> String {
    let thread = match report.tid {
        Some(tid) if report.priority > 0 => format!("thread {tid} {}:{}", report.policy, report.priority),
        Some(tid) => format!("thread {tid} {}", report.policy),
        None if report.asked.sched.is_some() => "on the publishing thread, which has a priority of its own".into(),
        None => "on the publishing thread".into(),
    };
    let mark = report.dscp.map(|dscp| format!(", DSCP {dscp}")).unwrap_or_default();
    let priority =
        report.socket_priority.map(|p| format!(", socket priority {}", priority_text(p))).unwrap_or_default();
    let place = match &report.device {
        Some(device) if !report.band.is_empty() => format!(", {} of {device}", report.band),
        _ => String::new(),
    };
    format!("{thread}{mark}{priority}{place}{}", blocking(report))
}

/// A mark without effect. Where packets never wait, none is needed.
fn marks(end: &End, both: &Both<'_>, report: &EndReport) -> Option<Problem> {
    let marked = report.tos.is_some_and(|tos| tos >> 2 != 0) || report.socket_priority.is_some_and(|p| p != 0);
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!("the mark of {}'s packets has no effect: {}", end.port.name, report.because);
    let remedy =
        format!("thalweg set {p} {s} class=high where bands are, `thalweg doctor` and `thalweg apply` where not");
    (marked && report.waits && !report.effective).then(|| INEFFECTIVE.found(what, remedy))
}

fn thread(end: &End, both: &Both<'_>, report: &EndReport) -> Option<Problem> {
    let asked = report.asked.sched?;
    // Samples that the publishing thread hands over itself need no other thread with a priority.
    let direct = report.carrier.is_within_host();
    let Some(tid) = report.tid else { return (!direct).then(|| no_thread(end, report)) };
    let has = (report.policy.as_str(), report.priority);
    let wanted = (asked.policy.name(), u32::from(asked.policy.priority()));
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let what = format!("thread {tid} of {} should be {asked}, and is {}:{}", end.port.name, has.0, has.1);
    let remedy = format!("thalweg set {p} {s} sched={asked} says why not; `thalweg doctor` in the same place, too");
    (has != wanted).then(|| THREAD.found(what, remedy))
}

/// Samples leave on the publishing thread, which has its own priority.
fn no_thread(end: &End, report: &EndReport) -> Problem {
    let port = &end.port.name;
    let what = format!(
        "sched={} was asked for at {port}, and no thread serves it: {}",
        report.asked.sched.unwrap_or_default(),
        report.note
    );
    let remedy = format!("give the process the priority: thalweg set {port} {port} sched=fifo:30");
    THREAD.found(what, remedy)
}

/// A kind of problem: a row of docs/diagnosis.md.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// Its name.
    pub id: &'static str,
    /// The condition.
    pub when: &'static str,
}

/// A problem of two ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Problem {
    /// The kind.
    #[serde(rename = "id", serialize_with = "id_of")]
    pub kind: &'static Kind,
    /// The problem, with its values.
    pub what: String,
    /// The remedy.
    pub remedy: String,
}

fn id_of<S: Serializer>(kind: &&'static Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(kind.id)
}

impl Kind {
    /// A problem of this kind.
    pub(super) fn found(&'static self, what: impl Into<String>, remedy: impl Into<String>) -> Problem {
        Problem { kind: self, what: what.into(), remedy: remedy.into() }
    }
}

/// Every kind of problem, as rows of a table in Markdown.
#[cfg(test)]
pub fn table() -> String {
    KINDS.iter().map(|kind| format!("| `{}` | {} |", kind.id, kind.when)).collect::<Vec<_>>().join("\n")
}

macro_rules! kinds {
    ($($name:ident $id:literal $when:literal)*) => {
        $(pub(super) const $name: Kind = Kind { id: $id, when: $when };)*
        /// All kinds, for the documentation.
        #[cfg(test)]
        pub const KINDS: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    NO_PORT "no-port" "a port of that name is not known; the nearest names are shown"
    OTHER_REALM "other-realm" "the port is there, but its node belongs to another realm"
    DIRECTION "direction" "the first port subscribes or the second one publishes"
    NAME_TWICE "name-twice" "several ports have that name: only the oldest is found by it"
    NODE_STOPPED "node-stopped" "the node's process is stopped (SIGSTOP, a debugger)"
    NODE_DEAD "node-dead" "the node's process has ended, and its entry is still there"
    NODE_SILENT "node-silent" "the node does not answer, or is not heard although a channel still leads to it; without `--listen` and `--peer`: it is on another host, and was not asked"
    APART "apart" "an administrator disconnected the two"
    TOPIC "topic" "the topics have nothing to do with each other"
    MISMATCH_TYPE "type" "the types differ"
    MISMATCH_RELIABILITY "reliability" "a reliable subscriber, a best-effort publisher"
    MISMATCH_CARRIER "carrier" "the ports name no carrier in common"
    MISMATCH "policy" "another policy stands between the two: named, with both values (docs/qos.md)"
    UNREACHABLE "unreachable" "the nodes are on different hosts, and the publisher's listens on loopback only"
    ONE_SIDED "one-sided" "the subscriber's node does not know the publisher's"
    REFUSED "refused" "the publisher's node refused the channel"
    CARRIER_FAILED "carrier-failed" "each carrier was tried, and failed"
    NOT_OPEN "not-open" "the channel is wanted, and not open yet"
    SILENT "silent" "the channel is open, and nothing was ever published"
    NOT_ARRIVING "not-arriving" "samples leave or wait, and none arrives any more"
    SLOW_CALLBACK "slow-callback" "the subscriber's callback is busy all the time, and samples wait or are dropped"
    STARVED "starved" "the thread that receives waits for a processor a fifth of the time or more, and samples wait or are dropped"
    NOT_TAKEN "not-taken" "the subscriber takes samples more slowly than they come: its queue overflows, or holds up its channel"
    TOO_LARGE "too-large" "messages are larger than the subscriber's max_message"
    POLICED "policed" "the publisher sends more than the contract allows, and the rest is refused"
    OWN_QUEUE "own-queue" "the publisher sends more than the channel's own queue lets pass, and the rest is dropped there"
    CONTROL_QUEUE "control-queue" "control traffic is more than its queue lets pass, and heartbeats are dropped with the rest"
    QUEUE_FULL "queue-full" "the publisher's queue for this channel overflows"
    OVER_BYTES "over-bytes" "what waits for the subscriber, or at it, has as many bytes as it may (docs/qos.md#memory)"
    OVER_MEMORY "over-memory" "what a node holds for the other one, or for all, has as many bytes as it may (docs/qos.md#memory)"
    LOST "lost" "the network loses samples; of reliable channels: a queue, or a connection that ended, gave them up"
    UNDECODABLE "undecodable" "samples arrive that are no value of the subscriber's type"
    UNSCALABLE "unscalable" "the channel's proxy cannot make the samples smaller, and leaves them out"
    MALFORMED "strange" "datagrams arrive that are no frame of this channel"
    SLOWER_CARRIER "slower-carrier" "a better carrier was tried, and failed"
    INEFFECTIVE "ineffective" "packets are marked, and the queue of the device by which they leave treats them like all others"
    THREAD "thread" "a scheduling was asked for, and the thread that serves the end does not have it, or there is none"
}
