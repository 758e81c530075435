//! Subscribers, as other threads reach them while their own thread waits for samples.

use super::Subscriber;
use crate::channel::{Channel, PortRef, SampleInfo};
use crate::codec::Message;
use crate::port::{AnySubscriber, PublisherInfo};
use std::sync::{Arc, Weak};

/// A subscriber, for other threads than the one that takes its samples: bindings have several that share one. It keeps nothing of the port
/// in memory, so that a callback may have one of its own subscriber.
#[derive(Clone)]
pub struct Remote(Weak<dyn AnySubscriber>);

impl<M: Message> Subscriber<M> {
    /// The subscriber for other threads.
    pub fn remote(&self) -> Remote {
        let port: Arc<dyn AnySubscriber> = self.subscriber_port.clone();
        Remote(Arc::downgrade(&port))
    }
}

impl Remote {
    /// Ends all waits for samples, and those to come. The port is gone when its subscriber is dropped.
    pub fn close(&self) {
        self.0.upgrade().into_iter().for_each(|port| port.close());
    }

    /// The number of channels the port has now; 0 if it is gone.
    pub fn connected(&self) -> usize {
        self.0.upgrade().map_or(0, |port| port.channels().lock().map_or(0, |channels| channels.len()))
    }

    /// The publisher of a sample: see [`Subscriber::publisher`]. `None`, too, if the port is gone.
    pub fn publisher(&self, info: &SampleInfo) -> Option<Arc<PublisherInfo>> {
        self.0.upgrade()?.publishers().get(PortRef { node: info.node, port: info.port })
    }
    /// The number of the last sample that this one's publisher had published when its first channel to this port joined it: all later ones
    /// are sent to the port. `None`: not known, or the port is gone.
    pub fn joined_after(&self, info: &SampleInfo) -> Option<u64> {
        let port = self.0.upgrade()?;
        let publisher = PortRef { node: info.node, port: info.port };
        if let Some(after) = port.publishers().joined_after(publisher, info.incarnation) {
            return Some(after);
        }
        // It is not one of those that are remembered, but its channel may be open.
        let is_its =
            |channel: &&Arc<Channel>| channel.publisher == publisher && channel.incarnation == info.incarnation;
        let channels = port.channels().lock().ok()?;
        channels.iter().find(is_its).and_then(|channel| channel.joined_after.get().copied())
    }
}
