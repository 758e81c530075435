//! Clocks: the source of time, and its agreement with other hosts.

use super::Tree;

/// Clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// The source in use, such as `tsc`.
    pub source: Option<String>,
    /// All sources that could be used.
    pub sources: Vec<String>,
    /// The result of adjtimex(2); `None` for a tree that is not this host's.
    pub synchronisation: Option<Synchronisation>,
    /// Nanoseconds that CLOCK_MONOTONIC of this time namespace is ahead of the host's.
    pub namespace_offset_ns: i128,
}

/// Agreement of the wall clock with the rest of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synchronisation {
    /// The clock is disciplined (not STA_UNSYNC).
    pub synchronised: bool,
    /// The largest error it may have, in microseconds.
    pub most_error_us: i64,
}

/// Reads them.
pub fn read(tree: &Tree) -> Clock {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let available = tree.text(&format!("{folder}/available_clocksource")).unwrap_or_default();
    Clock {
        source: tree.text(&format!("{folder}/current_clocksource")),
        sources: available.split_whitespace().map(str::to_owned).collect(),
        synchronisation: tree.is_host().then(synchronisation).flatten(),
        namespace_offset_ns: tree.text("proc/self/timens_offsets").map_or(0, |text| offset(&text)),
    }
}

/// Lines such as `monotonic  -3  500000000`.
fn offset(text: &str) -> i128 {
    let line = text.lines().find_map(|line| line.strip_prefix("monotonic"));
    let mut numbers = line.into_iter().flat_map(str::split_whitespace).map(|n| n.parse::<i128>().unwrap_or(0));
    numbers.next().unwrap_or(0) * 1_000_000_000 + numbers.next().unwrap_or(0)
}

#[allow(unsafe_code)]
fn synchronisation() -> Option<Synchronisation> {
    // SAFETY: `timex` is plain numbers, for which all zero is a value: no modes, that is, only read.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills `state`, which outlives it.
    let result = unsafe { libc::adjtimex(&mut state) };
    let synchronised = state.status & libc::STA_UNSYNC == 0;
    (result >= 0).then_some(Synchronisation { synchronised, most_error_us: state.maxerror })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_time_namespace_are_added_up() {
        assert_eq!(offset("monotonic           0         0\nboottime            0         0"), 0);
        assert_eq!(offset("monotonic  -3  500000000\nboottime 1 0"), -2_500_000_000);
        assert_eq!(offset(""), 0);
    }

    #[test]
    fn the_kernel_says_whether_its_clock_is_disciplined() {
        assert!(synchronisation().is_some_and(|s| s.most_error_us >= 0));
    }
}
