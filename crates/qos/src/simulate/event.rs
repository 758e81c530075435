//! Events, and their order in time.

use super::resources::Part;

/// An event. Events of one time are handled in this order: arrivals come before anything begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Undeclared background traffic comes to a queue.
    Background { queue: usize },
    /// Control traffic comes to a queue.
    Control { queue: usize },
    /// A stream publishes.
    Publish { stream: usize },
    /// A callback publishes a stream's next sample, which it made of this one.
    Make { stream: usize, of: usize },
    /// A packet, or with `last` a whole sample, is at a stage.
    Arrive { stage: usize, sample: usize, last: bool },
    /// Samples that waited for each other at a stage leave.
    Leave { stage: usize },
    /// Packets leave a pacer for a link; with `ends` the last of a sample is among them.
    Release { stage: usize, sample: usize, packets: u64, ends: bool },
    /// A thread whose reservation was used up has the next one.
    Replenish { processor: usize, part: Part, stage: usize, sample: usize },
    /// A thread's work is done, unless it was interrupted.
    Computed { processor: usize, token: u64 },
    /// A link is free.
    Free { queue: usize },
    /// The service of waiting packets begins.
    Begin { queue: usize },
}

impl Event {
    fn rank(&self) -> u8 {
        match self {
            // Finished work stays finished, even if more urgent work comes just then.
            Event::Computed { .. } => 0,
            Event::Background { .. } | Event::Control { .. } => 1,
            Event::Publish { .. }
            | Event::Make { .. }
            | Event::Arrive { .. }
            | Event::Release { .. }
            | Event::Replenish { .. } => 2,
            // What comes just then goes with them.
            Event::Leave { .. } => 3,
            Event::Free { .. } => 4,
            Event::Begin { .. } => 5,
        }
    }
}

/// An event in time. Of simultaneous events the aimed stream's come last, so that all others are in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) at: u64,
    rank: u8,
    aimed: bool,
    order: u64,
    pub(super) event: Event,
}

impl Entry {
    /// `order` is the number of the entry.
    pub(super) fn new(at: u64, aimed: bool, order: u64, event: Event) -> Self {
        Self { at, rank: event.rank(), aimed, order, event }
    }
}
