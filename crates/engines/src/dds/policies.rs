//! Policies of DDS as Thalweg has them.

use cyclone::{Liveness, Policies};
use qos::{
    DestinationOrder, Durability, Liveliness, LivelinessKind, Ownership, Qos, Queue, Reliability, partitions_meet,
};
use std::time::Duration;

/// A reliable writer waits so long for readers that do not acknowledge: as long as Cyclone takes to find that a participant is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// The versions of CDR (DDS-XTypes 1.3 §7.6.3.1.1): Thalweg writes the first and reads both.
const WRITTEN: [i16; 1] = [0];
const READ: [i16; 2] = [0, 2];

/// Of a writer that offers `qos`.
pub(super) fn of_writer(qos: &Qos, user_data: Vec<u8>) -> Policies {
    let history = match qos.durability {
        Durability::TransientLocal => qos.history.max(1),
        Durability::Volatile => qos.queue.limit(),
    };
    Policies {
        blocking: patience(qos),
        history: Some(history),
        lifespan: qos.lifespan,
        strength: qos.strength,
        representations: WRITTEN.to_vec(),
        ..shared(qos, user_data)
    }
}

/// The time for which a reliable writer waits for its readers.
pub(super) fn patience(qos: &Qos) -> Duration {
    match qos.queue {
        Queue::Block { .. } => qos.queue.patience(),
        Queue::KeepLast(_) | Queue::KeepAll(_) => PATIENCE,
    }
}

/// Of a reader that requests `qos`.
pub(super) fn of_reader(qos: &Qos, user_data: Vec<u8>) -> Policies {
    Policies { representations: READ.to_vec(), ..shared(qos, user_data) }
}

fn shared(qos: &Qos, user_data: Vec<u8>) -> Policies {
    Policies {
        reliable: qos.reliability == Reliability::Reliable,
        transient_local: qos.durability == Durability::TransientLocal,
        deadline: qos.deadline,
        latency_budget: qos.latency_budget,
        liveness: match qos.liveliness.kind {
            LivelinessKind::Automatic => Liveness::Automatic,
            LivelinessKind::ByNode => Liveness::ByParticipant,
            LivelinessKind::ByPort => Liveness::ByTopic,
        },
        lease: qos.liveliness.lease,
        exclusive: qos.ownership == Ownership::Exclusive,
        by_source: qos.destination_order == DestinationOrder::BySource,
        partitions: partitions(&qos.partition),
        user_data,
        ..Policies::default()
    }
}

/// The names of partitions in DDS. An end without partitions is in the one of the empty name, which a wildcard such as `*` meets (DDS 1.4
/// §2.2.3.13), but not in Fast DDS: so the empty name is told beside it.
fn partitions(names: &[String]) -> Vec<String> {
    let mut told = names.to_vec();
    let is_named = names.is_empty() || names.contains(&String::new());
    if !is_named && partitions_meet(names, &[]) {
        told.push(String::new());
    }
    told
}

/// Of an endpoint in DDS. The history is that of its durability service: DDS tells no other.
pub(super) fn thalweg_qos(policies: &Policies) -> Qos {
    Qos {
        reliability: if policies.reliable { Reliability::Reliable } else { Reliability::BestEffort },
        durability: if policies.transient_local { Durability::TransientLocal } else { Durability::Volatile },
        history: policies.history.unwrap_or(MOST_KEPT).clamp(1, MOST_KEPT),
        deadline: policies.deadline.filter(|deadline| !deadline.is_zero()),
        latency_budget: policies.latency_budget,
        lifespan: policies.lifespan.filter(|lifespan| !lifespan.is_zero()),
        liveliness: Liveliness {
            kind: match policies.liveness {
                Liveness::Automatic => LivelinessKind::Automatic,
                Liveness::ByParticipant => LivelinessKind::ByNode,
                Liveness::ByTopic => LivelinessKind::ByPort,
            },
            lease: policies.lease,
        },
        ownership: if policies.exclusive { Ownership::Exclusive } else { Ownership::Shared },
        strength: policies.strength,
        destination_order: match policies.by_source {
            true => DestinationOrder::BySource,
            false => DestinationOrder::ByReception,
        },
        partition: policies.partitions.iter().take(MOST_PARTITIONS).cloned().collect(),
        ..Qos::default()
    }
}

/// The longest history that is taken over from a writer that keeps all.
const MOST_KEPT: u32 = 1024;
/// The limit of the policy `partition`.
const MOST_PARTITIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_come_back() {
        let qos = Qos {
            reliability: Reliability::BestEffort,
            durability: Durability::TransientLocal,
            history: 7,
            deadline: Some(Duration::from_millis(20)),
            lifespan: Some(Duration::from_secs(2)),
            liveliness: Liveliness { kind: LivelinessKind::ByPort, lease: Some(Duration::from_secs(1)) },
            ownership: Ownership::Exclusive,
            strength: 3,
            destination_order: DestinationOrder::BySource,
            partition: vec!["left*".to_owned()],
            ..Qos::default()
        };
        assert_eq!(thalweg_qos(&of_writer(&qos, Vec::new())), qos);
        assert!(of_reader(&qos, Vec::new()).reads(&of_writer(&qos, Vec::new())));
    }

    #[test]
    fn a_wildcard_that_meets_the_empty_partition_has_it_beside_it() {
        let told = |names: &[&str]| {
            let qos = Qos { partition: names.iter().map(ToString::to_string).collect(), ..Qos::default() };
            of_reader(&qos, Vec::new()).partitions
        };
        assert_eq!(told(&["*", "arm*"]), ["*", "arm*", ""]);
        for same in [&["arm*", "left"][..], &["", "*"], &[""], &[]] {
            assert_eq!(told(same), same);
        }
    }

    #[test]
    fn a_writer_of_version_2_is_read_and_a_reader_of_it_alone_does_not_read_ours() {
        let other = Policies { representations: vec![2], ..Policies::default() };
        assert!(of_reader(&Qos::default(), Vec::new()).reads(&other));
        assert!(!other.reads(&of_writer(&Qos::default(), Vec::new())));
    }
}
