//! The policies of a port, one method each. Names, values and rules: docs/qos.md.

use super::{PublisherBuilder, SubscriberBuilder};
use crate::codec::Message;
use qos::{DestinationOrder, Durability, Filter, Liveliness, Ownership, PolicyName, ResourceLimits};
use std::time::Duration;

/// Policies that both ends state.
macro_rules! both_ends {
    ($builder:ident: $promises:literal) => {
        impl<M: Message> $builder<M> {
            #[doc = $promises]
            /// the longest time between two samples of one instance. Default: none.
            pub fn deadline(mut self, longest: Duration) -> Self {
                self.request.qos.deadline = Some(longest);
                self
            }
            /// The longest acceptable time from publishing to delivery. Later samples are delivered and counted. Default: as
            /// short as possible.
            pub fn latency_budget(mut self, longest: Duration) -> Self {
                self.request.qos.latency_budget = Some(longest);
                self
            }
            /// Older samples are dropped wherever they are. Default: samples never expire.
            pub fn lifespan(mut self, longest: Duration) -> Self {
                self.request.qos.lifespan = Some(longest);
                self
            }
            /// Late joiners get the last `history` samples of each instance, at least 1. Default: no sample that was published
            /// before.
            pub fn transient_local(mut self, history: u32) -> Self {
                self.request.qos.durability = Durability::TransientLocal;
                self.request.qos.history = history;
                self
            }
            /// The order of samples of several publishers. Default: by reception.
            pub fn destination_order(mut self, order: DestinationOrder) -> Self {
                self.request.qos.destination_order = order;
                self
            }
            /// The way a publisher shows that it is alive. Default: by its channel.
            pub fn liveliness(mut self, liveliness: Liveliness) -> Self {
                self.request.qos.liveliness = liveliness;
                self
            }
            /// Bytes that may wait in each of the port's queues, at least 1; an empty queue takes one sample of any size.
            /// Default: 64 MiB, or the largest message if that is more.
            pub fn queue_bytes(mut self, most: u64) -> Self {
                self.request.qos.limits.bytes = Some(most);
                self
            }
            /// Partitions of the topic, at most 64; ports without a common one do not meet. Default: the empty name.
            pub fn partition<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
                self.request.qos.partition = names.into_iter().map(Into::into).collect();
                self
            }
            /// Fields that tell instances apart, as dotted paths, at most 16. Default: the topic is one instance.
            pub fn key<S: Into<String>>(mut self, fields: impl IntoIterator<Item = S>) -> Self {
                self.request.qos.key = fields.into_iter().map(Into::into).collect();
                self
            }
        }
    };
}

both_ends!(PublisherBuilder: "Promises");
both_ends!(SubscriberBuilder: "Expects");

impl<M: Message> PublisherBuilder<M> {
    /// Only the strongest of the living publishers of an instance counts. Default: all count.
    pub fn exclusive(mut self, strength: i32) -> Self {
        self.request.qos.ownership = Ownership::Exclusive;
        self.request.qos.strength = strength;
        self
    }
}

impl<M: Message> SubscriberBuilder<M> {
    /// Only the strongest of the living publishers of an instance counts. Default: all count.
    pub fn exclusive(mut self) -> Self {
        self.request.qos.ownership = Ownership::Exclusive;
        self
    }
    /// Only publishers whose queue drops no sample for a newer one (keep-all, block) match. The subscriber's own queue is
    /// stated by `queue`. Default: all match.
    pub fn strict(mut self) -> Self {
        self.request.qos.strict = true;
        self
    }
    /// The shortest time between two samples of one instance; samples in between are not sent. Default: all samples.
    pub fn separation(mut self, shortest: Duration) -> Self {
        self.request.qos.separation = Some(shortest);
        self
    }
    /// Only samples for which this expression holds are delivered. It is evaluated at the publisher. Default: all samples.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.request.qos.filter = Some(filter);
        self
    }
    /// Limits on the samples and instances that are kept. Default: as much as the other policies ask for.
    pub fn limits(mut self, limits: ResourceLimits) -> Self {
        self.request.qos.limits = limits;
        self
    }
    /// Policies that the port does without if they are not offered: it is matched with a warning instead of not at all.
    /// Default: none.
    pub fn fallback(mut self, policies: impl IntoIterator<Item = PolicyName>) -> Self {
        self.request.qos.fallback = policies.into_iter().collect();
        self
    }
}
