//! Publishers and subscribers of Zenoh with their policies, which every engine over Zenoh shares: as `rmw_zenoh` has them, but that all
//! reliable publishers wait for room; there those that keep the last samples do not.

use super::failed;
use crate::engine::{Deliver, Result, Subscriber};
use crate::lock;
use ::zenoh::bytes::{Encoding, ZBytes};
use ::zenoh::key_expr::KeyExpr;
use ::zenoh::matching::MatchingListener;
use ::zenoh::qos::{CongestionControl, Priority, Reliability};
use ::zenoh::sample::{Locality, Sample};
use ::zenoh::{Session, Wait};
use ::zenoh_ext::{
    AdvancedPublisher, AdvancedPublisherBuilderExt, AdvancedSubscriberBuilderExt, CacheConfig, HistoryConfig,
    MissDetectionConfig, RecoveryConfig,
};
use qos::{Class, Durability, Qos};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A query for a history is answered within this time, or not at all.
const ANSWER: Duration = Duration::from_secs(5);
/// A publisher that keeps samples says this often which was its last, while there are new ones: subscribers miss none (as rmw_zenoh).
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A publisher.
pub(crate) struct Outgoing {
    kind: Kind,
    wanted: Arc<AtomicBool>,
    _listener: MatchingListener<()>,
}

enum Kind {
    Plain(::zenoh::pubsub::Publisher<'static>),
    /// Keeps its last samples for late joiners.
    Keeps(AdvancedPublisher<'static>),
}

impl Outgoing {
    pub(crate) fn declare(session: &Session, key: KeyExpr<'static>, encoding: Encoding, offer: &Qos) -> Result<Self> {
        let reliable = is_reliable(offer);
        let declare = session
            .declare_publisher(key)
            .encoding(encoding)
            .priority(priority(offer.class))
            .congestion_control(if reliable { CongestionControl::Block } else { CongestionControl::Drop })
            .reliability(if reliable { Reliability::Reliable } else { Reliability::BestEffort })
            .express(offer.latency_budget.is_none())
            .allowed_destination(Locality::Remote);
        let kind = match offer.durability {
            Durability::Volatile => Kind::Plain(declare.wait().map_err(failed)?),
            Durability::TransientLocal => {
                let cache = CacheConfig::default().max_samples(offer.history.max(1) as usize);
                let numbered = MissDetectionConfig::default().sporadic_heartbeat(HEARTBEAT);
                let keeps = declare.advanced().sample_miss_detection(numbered).cache(cache).publisher_detection();
                Kind::Keeps(keeps.wait().map_err(failed)?)
            }
        };
        let wanted = Arc::new(AtomicBool::new(false));
        let told = wanted.clone();
        let tell = move |status: ::zenoh::matching::MatchingStatus| told.store(status.matching(), Ordering::Release);
        let listener = match &kind {
            Kind::Plain(publisher) => publisher.matching_listener().callback(tell).wait(),
            Kind::Keeps(publisher) => publisher.matching_listener().callback(tell).wait(),
        };
        // It is told at once if somebody subscribes already. To ask once more, Zenoh would look through all keys of the session again.
        Ok(Self { kind, wanted, _listener: listener.map_err(failed)? })
    }

    /// `true` if anybody subscribes to the key now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    pub(crate) fn put(&self, message: &[u8], attachment: Option<ZBytes>) -> Result<()> {
        match &self.kind {
            Kind::Plain(publisher) => publisher.put(message).attachment(attachment).wait().map_err(failed),
            Kind::Keeps(publisher) => publisher.put(message).attachment(attachment).wait().map_err(failed),
        }
    }

    pub(crate) fn delete(&self, attachment: Option<ZBytes>) -> Result<()> {
        match &self.kind {
            Kind::Plain(publisher) => publisher.delete().attachment(attachment).wait().map_err(failed),
            Kind::Keeps(publisher) => publisher.delete().attachment(attachment).wait().map_err(failed),
        }
    }
}

fn is_reliable(qos: &Qos) -> bool {
    qos.reliability == qos::Reliability::Reliable
}

fn priority(class: Class) -> Priority {
    match class {
        Class::Low => Priority::Background,
        Class::Normal => Priority::Data,
        Class::High => Priority::InteractiveHigh,
        Class::Critical => Priority::RealTime,
    }
}

/// A subscriber.
pub(crate) struct Incoming {
    target: Arc<Target>,
    /// Undeclares itself when it is dropped.
    _declared: Box<dyn Send>,
}

/// The user's callback, until the subscriber is dropped. Zenoh's threads may be in it, and call once more.
struct Target(Mutex<Option<Deliver>>);

impl Incoming {
    /// `read` turns a sample into one of the engine, and gives it on; what it cannot read it drops.
    pub(crate) fn declare(
        session: &Session,
        key: KeyExpr<'static>,
        request: &Qos,
        deliver: Deliver,
        read: impl Fn(&Sample, &mut Deliver) + Send + Sync + 'static,
    ) -> Result<Self> {
        let target = Arc::new(Target(Mutex::new(Some(deliver))));
        let (taking, own) = (target.clone(), session.zid());
        let declare =
            session.declare_subscriber(key).allowed_origin(Locality::Remote).callback(move |sample: Sample| {
                // A history is asked of all who have one, this session's own publishers included.
                let is_own = sample.source_info().is_some_and(|source| source.source_id().zid() == own);
                if let (false, Some(deliver)) = (is_own, lock(&taking.0).as_mut()) {
                    read(&sample, deliver);
                }
            });
        let declared: Box<dyn Send> = match request.durability {
            Durability::Volatile => Box::new(declare.wait().map_err(failed)?),
            Durability::TransientLocal => {
                let history =
                    HistoryConfig::default().detect_late_publishers().max_samples(request.history.max(1) as usize);
                let mut late = declare.advanced().history(history).query_timeout(ANSWER);
                if is_reliable(request) {
                    late = late.recovery(RecoveryConfig::default().heartbeat());
                }
                Box::new(late.wait().map_err(failed)?)
            }
        };
        Ok(Self { target, _declared: declared })
    }
}

impl Subscriber for Incoming {}

impl Drop for Incoming {
    fn drop(&mut self) {
        *lock(&self.target.0) = None;
    }
}
