//! Partitions of a bridge's ports: those of all ports of a topic.
//!
//! `*` meets every name, but no other name with wildcards: two of those meet only if they are equal (DDS PARTITION, §2.2.3.13). So the
//! bridge's ports name these, too.

use std::collections::BTreeSet;

/// Most partitions of a port (docs/qos.md).
const MOST: usize = 64;

/// Partitions that meet those of each of these ports.
pub(in super::super) fn meeting<'a>(ports: impl Iterator<Item = &'a [String]>) -> Vec<String> {
    let wild: BTreeSet<&String> = ports.flatten().filter(|name| name.contains(['*', '?', '['])).collect();
    joined(&["*".to_owned()], wild)
}

/// Those of one and of another, each once.
pub(in super::super) fn joined<'a>(one: &[String], other: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut all = one.to_vec();
    for name in other {
        if all.len() < MOST && !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// `true` if a port with the partitions `open` meets all that one with `wanted` would.
pub(in super::super) fn include(open: &[String], wanted: &[String]) -> bool {
    (open.is_empty() == wanted.is_empty()) && wanted.iter().all(|name| open.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_bridges_partitions_meet_those_of_all_ports() {
        let ports = [&["left"][..], &[], &["arm*", "left"], &["[ab]?"], &["arm*"], &["*"]].map(names);
        let found = meeting(ports.iter().map(|port| &port[..]));
        assert_eq!(found, names(&["*", "[ab]?", "arm*"]));
        assert!(ports.iter().all(|port| qos::partitions_meet(&found, port)));
        let many: Vec<String> = (0..2 * MOST).map(|number| format!("{number}*")).collect();
        assert_eq!(meeting([&many[..]].into_iter()).len(), MOST);
    }

    #[test]
    fn a_port_with_more_partitions_goes_on() {
        let (one, two) = (names(&["*", "arm*"]), names(&["*", "leg*", "arm*"]));
        assert!(include(&two, &one) && !include(&one, &two) && include(&one, &one));
        assert!(!include(&one, &[]) && !include(&[], &one), "none is the empty name");
        assert_eq!(joined(&one, &two), names(&["*", "arm*", "leg*"]));
    }
}
