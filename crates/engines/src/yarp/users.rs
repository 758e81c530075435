//! The publishers and subscribers of this program, which use its ports.

use super::port::{Port, Taker};
use super::seeker::{Pattern, Ports};
use crate::engine::{Error, Publisher, Result, Sample, Subscriber};
use crate::lock;
use qos::Class;
use std::sync::Arc;
use thalweg::Change;

/// A publisher.
pub(super) struct Publishing {
    pub(super) ports: Arc<Ports>,
    pub(super) port: Arc<Port>,
    pub(super) class: Class,
    pub(super) patient: bool,
}

impl Publisher for Publishing {
    fn publish(&self, sample: &Sample<'_>) -> Result<()> {
        if sample.change != Change::Written {
            return Ok(()); // YARP has no instances
        }
        let (length, largest) = (sample.message.len(), self.ports.hub.largest);
        if length > largest {
            return Err(Error::Engine(format!(
                "{}: a message of {length} bytes, at most {largest} are sent",
                self.port.name
            )));
        }
        self.port.publish(&self.ports.hub.poller, sample.message, self.patient).map_err(Error::Engine)
    }

    fn is_wanted(&self) -> bool {
        self.port.is_wanted()
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.port.share(self.class, false);
        self.ports.release(&self.port);
    }
}

/// A subscriber to a topic.
pub(super) struct Subscribing {
    pub(super) ports: Arc<Ports>,
    pub(super) port: Arc<Port>,
    pub(super) taker: Arc<Taker>,
}

impl Subscriber for Subscribing {}

impl Drop for Subscribing {
    fn drop(&mut self) {
        *lock(&self.taker.0) = None;
        self.port.remove_taker(&self.taker);
        self.ports.release(&self.port);
    }
}

/// A subscriber to a pattern.
pub(super) struct Following {
    pub(super) ports: Arc<Ports>,
    pub(super) pattern: Arc<Pattern>,
}

impl Subscriber for Following {}

impl Drop for Following {
    fn drop(&mut self) {
        *lock(&self.pattern.taker.0) = None;
        self.ports.unfollow(&self.pattern);
    }
}
