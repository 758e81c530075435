//! Samples that did not arrive, or found no room: told to the subscriber's owner. The threads that receive only count; this is looked at from
//! time to time, so that they neither allocate nor wait for a lock.

use super::control::Control;
use crate::channel::Channel;
use crate::event::Event;
use crate::port::{AnyInlet, AnyOutlet, Rejection};
use qos::Durability;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often losses are looked for.
const LOOK: Duration = Duration::from_millis(500);

impl Control {
    /// When to look for losses again: only while this node's subscribers have channels.
    pub(super) fn next_loss_look(&self) -> Option<Instant> {
        (!self.matching.is_empty()).then_some(self.looked_for_losses + LOOK)
    }

    /// Tells what was lost or rejected, if it is time to look.
    pub(super) fn look_for_losses(&mut self, now: Instant) {
        if now < self.looked_for_losses + LOOK {
            return;
        }
        self.looked_for_losses = now;
        self.tell_unkept();
        for (_, inlet) in self.state.inlets() {
            let channels = inlet.channels().lock().unwrap_or_else(|e| e.into_inner());
            channels.iter().for_each(|channel| self.tell_loss(channel));
            drop(channels);
            self.tell_rejections(inlet.as_ref());
        }
    }

    /// Late joiners of a durable publisher will miss samples for which its history found no memory.
    pub(super) fn tell_unkept(&self) {
        let durable = |outlet: &Arc<dyn AnyOutlet>| outlet.info().qos.durability != Durability::Volatile;
        for outlet in self.outlets().iter().filter(|outlet| durable(outlet)) {
            let Some((count, total)) = outlet.histories().and_then(|histories| histories.tell_unkept()) else {
                continue;
            };
            let name = &outlet.info().name;
            let text = format!(
                "{name} could not keep {count} samples for late joiners, {total} in all: all histories of the node get half of what \
                 is left of its memory, and each half of what is left of that; raise Settings::memory"
            );
            self.state.events.push(Event::Warning { text });
        }
    }

    fn tell_rejections(&self, inlet: &dyn AnyInlet) {
        for Rejection { limit, most, rejected, total } in inlet.rejected().tell() {
            let subscriber = inlet.info().name.clone();
            self.state.events.push(Event::SampleRejected { subscriber, limit, most, rejected, total });
        }
    }

    fn tell_loss(&self, channel: &Channel) {
        let counters = &channel.counters;
        if let Some((lost, total)) = counters.told.look(counters.not_delivered()) {
            let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
            self.state.events.push(Event::SampleLost { publisher, subscriber, lost, total });
        }
    }
}
