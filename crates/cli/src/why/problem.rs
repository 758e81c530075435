//! The kinds of problems that two ports can have with each other.

use serde::{Serialize, Serializer};

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
    QUEUE_FULL "queue-full" "the publisher's queue for this channel overflows"
    OVER_BYTES "over-bytes" "what waits for the subscriber, or at it, has as many bytes as it may (docs/qos.md#memory)"
    OVER_MEMORY "over-memory" "what a node holds for the other one, or for all, has as many bytes as it may (docs/qos.md#memory)"
    LOST "lost" "the network loses samples; of reliable channels: a queue, or a connection that ended, gave them up"
    UNDECODABLE "undecodable" "samples arrive that are no value of the subscriber's type"
    UNSCALABLE "unscalable" "the channel's proxy cannot make the samples smaller, and leaves them out"
    STRANGE "strange" "datagrams arrive that are no frame of this channel"
    SLOWER_CARRIER "slower-carrier" "a better carrier was tried, and failed"
    INEFFECTIVE "ineffective" "packets are marked, and the queue of the device by which they leave treats them like all others"
    THREAD "thread" "a scheduling was asked for, and the thread that serves the end does not have it, or there is none"
}
