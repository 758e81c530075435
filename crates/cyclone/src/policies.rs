//! The policies of an end, as Thalweg needs them and as Cyclone has them.

mod read;

pub(crate) use read::{property, user_data};

use cyclors::*;
use std::ffi::{CString, c_char};
use std::time::Duration;

/// The way a writer shows that it is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// Its participant does.
    #[default]
    Automatic,
    /// Any writer of its participant does, by writing.
    ByParticipant,
    /// It does, by writing.
    ByTopic,
}

/// The policies of an end (DDS 1.4 §2.2.3). The default is DDS's for a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// Lost messages are sent again.
    pub reliable: bool,
    /// A reliable writer waits so long for room (writers).
    pub blocking: Duration,
    /// Late joiners get the last messages.
    pub transient_local: bool,
    /// The number of messages for late joiners (writers), or that are kept at all. `None`: all.
    pub history: Option<u32>,
    /// Longest time between two messages.
    pub deadline: Option<Duration>,
    /// Older messages are dropped.
    pub lifespan: Option<Duration>,
    /// Longest acceptable delay.
    pub latency_budget: Option<Duration>,
    /// The way the writer shows that it is alive.
    pub liveness: Liveness,
    /// The time within which it has to.
    pub lease: Option<Duration>,
    /// Of several writers the strongest living one counts.
    pub exclusive: bool,
    /// The strength of this writer.
    pub strength: i32,
    /// Messages of several writers are ordered by their time of publication.
    pub by_source: bool,
    /// Names of partitions. Empty: the one without a name.
    pub partitions: Vec<String>,
    /// Told to others.
    pub user_data: Vec<u8>,
    /// Versions of CDR that a reader takes; that which a writer writes (DDS-XTypes 1.3 §7.6.3.1.1: 0 version 1, 2 version 2). Empty:
    /// version 1.
    pub representations: Vec<i16>,
}

/// The version 1 of CDR.
const XCDR1: i16 = 0;
/// Policies as Cyclone has them, owned.
pub(crate) struct Native(*mut dds_qos_t);

impl Native {
    fn new() -> Self {
        // SAFETY: without conditions; the result is ours.
        Self(unsafe { dds_create_qos() })
    }

    pub(crate) fn as_ptr(&self) -> *const dds_qos_t {
        self.0
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: they are ours, and nobody else's: what takes them copies them.
        unsafe { dds_delete_qos(self.0) };
    }
}

/// A participant's.
pub(crate) fn of_participant(user_data: &[u8]) -> Native {
    let qos = Native::new();
    // SAFETY: the data are copied.
    unsafe { dds_qset_userdata(qos.0, user_data.as_ptr().cast(), user_data.len()) };
    qos
}

/// A writer's. A reliable one keeps what is not yet acknowledged: nothing is lost because it writes too fast, and it waits instead.
pub(crate) fn of_writer(policies: &Policies) -> Native {
    let qos = shared(policies);
    let depth = policies.history.map_or(-1, |depth| i32::try_from(depth.max(1)).unwrap_or(i32::MAX));
    let late = if depth < 0 { dds_history_kind_DDS_HISTORY_KEEP_ALL } else { dds_history_kind_DDS_HISTORY_KEEP_LAST };
    let (keeps, limit) = match policies.reliable {
        true => (dds_history_kind_DDS_HISTORY_KEEP_ALL, -1),
        false => (dds_history_kind_DDS_HISTORY_KEEP_LAST, depth.max(1)),
    };
    // SAFETY: all values are in their ranges, and copied.
    unsafe {
        dds_qset_history(qos.0, keeps, limit);
        dds_qset_durability_service(qos.0, 0, late, depth.max(1), -1, -1, -1);
        dds_qset_ownership_strength(qos.0, policies.strength);
        // The end of a writer is no end of its topic's instance.
        dds_qset_writer_data_lifecycle(qos.0, false);
        if let Some(lifespan) = policies.lifespan {
            dds_qset_lifespan(qos.0, nanoseconds(Some(lifespan)));
        }
    }
    qos
}

/// A reader's. It keeps all: messages are taken as they come.
pub(crate) fn of_reader(policies: &Policies) -> Native {
    let qos = shared(policies);
    // SAFETY: all values are in their ranges, and copied.
    unsafe { dds_qset_history(qos.0, dds_history_kind_DDS_HISTORY_KEEP_ALL, -1) };
    qos
}

fn shared(policies: &Policies) -> Native {
    let qos = Native::new();
    let reliable = match policies.reliable {
        true => dds_reliability_kind_DDS_RELIABILITY_RELIABLE,
        false => dds_reliability_kind_DDS_RELIABILITY_BEST_EFFORT,
    };
    let durable = match policies.transient_local {
        true => dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL,
        false => dds_durability_kind_DDS_DURABILITY_VOLATILE,
    };
    let liveness = match policies.liveness {
        Liveness::Automatic => dds_liveliness_kind_DDS_LIVELINESS_AUTOMATIC,
        Liveness::ByParticipant => dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_PARTICIPANT,
        Liveness::ByTopic => dds_liveliness_kind_DDS_LIVELINESS_MANUAL_BY_TOPIC,
    };
    let ownership = match policies.exclusive {
        true => dds_ownership_kind_DDS_OWNERSHIP_EXCLUSIVE,
        false => dds_ownership_kind_DDS_OWNERSHIP_SHARED,
    };
    let order = match policies.by_source {
        true => dds_destination_order_kind_DDS_DESTINATIONORDER_BY_SOURCE_TIMESTAMP,
        false => dds_destination_order_kind_DDS_DESTINATIONORDER_BY_RECEPTION_TIMESTAMP,
    };
    // SAFETY: all values are in their ranges, and copied.
    unsafe {
        dds_qset_reliability(qos.0, reliable, nanoseconds(Some(policies.blocking)));
        dds_qset_durability(qos.0, durable);
        dds_qset_deadline(qos.0, nanoseconds(policies.deadline));
        dds_qset_latency_budget(qos.0, nanoseconds(policies.latency_budget.or(Some(Duration::ZERO))));
        dds_qset_liveliness(qos.0, liveness, nanoseconds(policies.lease));
        dds_qset_ownership(qos.0, ownership);
        dds_qset_destination_order(qos.0, order);
        dds_qset_ignorelocal(qos.0, dds_ignorelocal_kind_DDS_IGNORELOCAL_PARTICIPANT);
        dds_qset_userdata(qos.0, policies.user_data.as_ptr().cast(), policies.user_data.len());
        if !policies.representations.is_empty() {
            let count = u32::try_from(policies.representations.len()).unwrap_or_default();
            dds_qset_data_representation(qos.0, count, policies.representations.as_ptr());
        }
    }
    set_partitions(&qos, &policies.partitions);
    qos
}

/// Names with a zero byte are none of DDS, and left out.
fn set_partitions(qos: &Native, names: &[String]) {
    let names: Vec<CString> = names.iter().filter_map(|name| CString::new(name.as_str()).ok()).collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    if !pointers.is_empty() {
        let count = u32::try_from(pointers.len()).unwrap_or_default();
        // SAFETY: the names live until they are copied, and end with zero bytes.
        unsafe { dds_qset_partition(qos.0, count, pointers.as_mut_ptr()) };
    }
}

/// Cyclone's nanoseconds; the largest number is no limit.
fn nanoseconds(duration: Option<Duration>) -> i64 {
    duration.map_or(i64::MAX, |duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

impl Policies {
    /// `true` if a reader of these policies can read what a writer of `offer` writes (DDS-XTypes 1.3 §7.6.3.1.1).
    pub fn reads(&self, offer: &Policies) -> bool {
        let written = offer.representations.first().copied().unwrap_or(XCDR1);
        self.representations.contains(&written) || (self.representations.is_empty() && written == XCDR1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version 2 of CDR.
    const XCDR2: i16 = 2;

    #[test]
    fn policies_come_back_from_cyclone() {
        let policies = Policies {
            reliable: true,
            blocking: Duration::from_millis(7),
            transient_local: true,
            deadline: Some(Duration::from_millis(20)),
            lifespan: Some(Duration::from_secs(3)),
            latency_budget: Some(Duration::from_micros(5)),
            liveness: Liveness::ByTopic,
            lease: Some(Duration::from_secs(1)),
            exclusive: true,
            strength: -4,
            by_source: true,
            partitions: vec!["a*".to_owned(), String::new()],
            user_data: b"typehash=RIHS01_0;".to_vec(),
            representations: vec![XCDR2],
            history: None,
        };
        // SAFETY: the policies live.
        assert_eq!(unsafe { Policies::read(of_writer(&policies).as_ptr()) }, policies);
        let read = |of: &Policies| {
            let native = of_reader(of);
            // SAFETY: the policies live.
            unsafe { Policies::read(native.as_ptr()) }
        };
        assert_eq!(read(&Policies::default()), Policies::default());
        assert!(!Policies::default().reads(&policies));
        assert!(Policies { representations: vec![XCDR1, XCDR2], ..Policies::default() }.reads(&policies));
    }
}
