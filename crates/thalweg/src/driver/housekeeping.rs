//! Periodic work on a node's ports, on the control thread. The threads that publish and receive only count, so that they neither allocate
//! nor wait for a lock or for the kernel.
//!
//! | work | how often | effect |
//! |---|---|---|
//! | losses | 0.5 s | events report samples that did not arrive or found no room |
//! | memory | 10 s | memory that ports reserve for further messages and did not use is freed |
//!
//! Pure: time is an argument, and events are returned.

use super::control::Control;
use crate::channel::Channel;
use crate::event::Event;
use crate::port::{AnyPublisher, AnySubscriber, Rejection};
use qos::Durability;
use std::time::{Duration, Instant};

/// Pause between two looks for losses.
const LOSSES: Duration = Duration::from_millis(500);
/// Pause between two looks at memory. Memory that was not used between two looks is freed. A message that is published more often than this
/// keeps its memory.
const MEMORY: Duration = Duration::from_secs(10);

/// Work that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    ReportLosses,
    TrimMemory,
}

/// The times at which each task was last done.
pub(super) struct Housekeeping {
    losses: Instant,
    memory: Instant,
}

impl Housekeeping {
    pub(super) fn new(now: Instant) -> Self {
        Self { losses: now, memory: now }
    }

    /// The next time at which a task is due. Losses wake the thread only while the node `receives`, that is while its subscribers want
    /// channels.
    pub(super) fn next_deadline(&self, receives: bool) -> Instant {
        let memory = self.memory + MEMORY;
        if receives { memory.min(self.losses + LOSSES) } else { memory }
    }

    /// The tasks that are due now, each of them once.
    pub(super) fn poll(&mut self, now: Instant) -> impl Iterator<Item = Task> + use<> {
        let losses = is_due(&mut self.losses, LOSSES, now).then_some(Task::ReportLosses);
        let memory = is_due(&mut self.memory, MEMORY, now).then_some(Task::TrimMemory);
        losses.into_iter().chain(memory)
    }
}

/// `true` if the pause since the `last` time is over; then `last` is set to `now`.
fn is_due(last: &mut Instant, pause: Duration, now: Instant) -> bool {
    let due = now >= *last + pause;
    if due {
        *last = now;
    }
    due
}

/// A warning about samples that late joiners of a durable publisher will miss, because its history had no memory for them.
fn unkept(publisher_port: &dyn AnyPublisher) -> Option<Event> {
    if publisher_port.info().qos.durability == Durability::Volatile {
        return None;
    }
    let (count, total) = publisher_port.histories()?.tell_unkept()?;
    let name = &publisher_port.info().name;
    let text = format!(
        "{name} could not keep {count} samples for late joiners, {total} in all: all histories of the node get half of what \
         is left of its memory, and each half of what is left of that; raise Settings::memory"
    );
    Some(Event::Warning { text })
}

/// Events about samples that a subscriber missed, and those that it had no room for, since the last look.
fn losses(subscriber_port: &dyn AnySubscriber) -> Vec<Event> {
    let channels = subscriber_port.channels().lock().unwrap_or_else(|e| e.into_inner());
    let mut found: Vec<Event> = channels.iter().filter_map(|channel| loss(channel)).collect();
    drop(channels);
    found.extend(subscriber_port.rejected().tell().map(|Rejection { limit, most, rejected, total }| {
        let subscriber = subscriber_port.info().name.clone();
        Event::SampleRejected { subscriber, limit, most, rejected, total }
    }));
    found
}

fn loss(channel: &Channel) -> Option<Event> {
    let counters = &channel.counters;
    let (lost, total) = counters.told.look(counters.not_delivered())?;
    let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
    Some(Event::SampleLost { publisher, subscriber, lost, total })
}

impl Control {
    /// Does the work that is due.
    pub(super) fn keep_house(&mut self, now: Instant) {
        for task in self.housekeeping.poll(now) {
            let (publisher_ports, subscriber_ports) = (self.publisher_ports(), self.state.subscriber_ports());
            // Both tasks report samples that were not kept: a node that has publishers only is seldom woken for losses.
            self.emit(publisher_ports.iter().filter_map(|publisher_port| unkept(publisher_port.as_ref())));
            match task {
                Task::ReportLosses => {
                    self.emit(subscriber_ports.iter().flat_map(|(_, subscriber_port)| losses(subscriber_port.as_ref())))
                }
                Task::TrimMemory => {
                    publisher_ports.iter().for_each(|publisher_port| publisher_port.trim());
                    subscriber_ports.iter().for_each(|(_, subscriber_port)| subscriber_port.trim());
                }
            }
        }
    }

    /// Pushes these events.
    pub(super) fn emit(&self, events: impl IntoIterator<Item = Event>) {
        events.into_iter().for_each(|event| self.state.events.push(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_receives_is_woken_for_losses_and_any_node_for_memory() {
        let start = Instant::now();
        let mut house = Housekeeping::new(start);
        assert_eq!(house.next_deadline(true), start + LOSSES);
        assert_eq!(house.next_deadline(false), start + MEMORY);
        assert_eq!(house.poll(start + LOSSES - Duration::from_nanos(1)).count(), 0);
        assert_eq!(house.poll(start + LOSSES).collect::<Vec<_>>(), [Task::ReportLosses]);
        assert_eq!(house.next_deadline(true), start + 2 * LOSSES);
    }

    #[test]
    fn work_that_is_late_is_done_once() {
        let start = Instant::now();
        let mut house = Housekeeping::new(start);
        let late = start + 3 * MEMORY;
        assert_eq!(house.poll(late).collect::<Vec<_>>(), [Task::ReportLosses, Task::TrimMemory]);
        assert_eq!(house.poll(late).count(), 0);
        assert_eq!(house.next_deadline(false), late + MEMORY);
    }

    #[test]
    fn work_is_due_at_each_deadline() {
        let start = Instant::now();
        let (mut house, mut now, mut done) = (Housekeeping::new(start), start, Vec::new());
        while now < start + Duration::from_secs(60) {
            now = house.next_deadline(true);
            let due: Vec<Task> = house.poll(now).collect();
            assert!(!due.is_empty());
            done.extend(due);
        }
        let times = |task| done.iter().filter(|other| **other == task).count();
        assert_eq!((times(Task::ReportLosses), times(Task::TrimMemory)), (120, 6));
    }
}
