//! Subscribers, as other threads reach them while their own thread waits for samples.

use super::Subscriber;
use crate::channel::{PortRef, SampleInfo};
use crate::codec::Message;
use crate::port::{AnySubscriber, PublisherInfo};
use std::sync::Arc;

/// A subscriber, for other threads than the one that takes its samples: bindings have several that share one. It does not keep the
/// port open.
#[derive(Clone)]
pub struct Remote(Arc<dyn AnySubscriber>);

impl<M: Message> Subscriber<M> {
    /// The subscriber for other threads.
    pub fn remote(&self) -> Remote {
        Remote(self.subscriber_port.clone())
    }
}

impl Remote {
    /// Ends all waits for samples, and those to come. The port is gone when its subscriber is dropped.
    pub fn close(&self) {
        self.0.close();
    }

    /// The number of channels the port has now.
    pub fn connected(&self) -> usize {
        self.0.channels().lock().map_or(0, |channels| channels.len())
    }

    /// The publisher of a sample: see [`Subscriber::publisher`].
    pub fn publisher(&self, info: &SampleInfo) -> Option<Arc<PublisherInfo>> {
        self.0.publishers().get(PortRef { node: info.node, port: info.port })
    }
}
