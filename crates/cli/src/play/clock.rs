//! `/clock`: the time of the recording, for programs that take it for theirs (ROS 2's `use_sim_time`).

use crate::failure::{Failure, Result};
use crate::participant::Participant;
use thalweg::Publisher;
use thalweg::codec::{Definitions, Untyped, to_cdr};

/// The topic.
pub(super) const TOPIC: &str = "/clock";
/// The interval of its samples.
pub(super) const PERIOD_NS: u64 = 10_000_000;

/// The publisher of the recording's time.
pub(super) struct Clock {
    publisher: Publisher<Untyped>,
    /// When the next sample is due.
    pub(super) due_ns: u64,
}

impl Clock {
    /// Opens the port; the first sample is due at once.
    pub(super) fn open(participant: &Participant) -> Result<Self> {
        let mut definitions = Definitions::new();
        let described = definitions
            .add("rosgraph_msgs/msg/Clock", "builtin_interfaces/Time clock\n")
            .and_then(|()| definitions.describe("rosgraph_msgs/msg/Clock"));
        let message = described.map_err(|wrong| Failure::System(wrong.to_string()))?;
        let publisher = participant.node.publisher::<Untyped>(TOPIC).described(message).open()?;
        Ok(Self { publisher, due_ns: 0 })
    }

    /// Publishes a time of the recording.
    pub(super) fn publish(&mut self, time_ns: u64, now_ns: u64) -> Result {
        let seconds = i32::try_from(time_ns / 1_000_000_000).unwrap_or(i32::MAX);
        let nanoseconds = (time_ns % 1_000_000_000) as u32;
        let message = to_cdr(&(seconds, nanoseconds)).map_err(|wrong| Failure::System(wrong.to_string()))?;
        self.publisher.publish(&message)?;
        self.due_ns = now_ns.saturating_add(PERIOD_NS);
        Ok(())
    }
}
