//! The machine: its processors with their speed, their sleep states, their users, and the kernel that runs on them; clocks, their
//! source and their agreement with other hosts; memory, and reasons why a page can be slow to reach.

use super::{Tree, field, list};
use std::collections::BTreeMap;
use std::io::Read;

/// Processors and kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processors {
    /// Numbers of the processors that are on.
    pub online: Vec<u32>,
    /// Those that this process may use.
    pub allowed: Vec<u32>,
    /// Those that the scheduler leaves alone (`isolcpus=`).
    pub isolated: Vec<u32>,
    /// Frequency governors with their processors; empty if frequencies are not under this kernel's control.
    pub governors: BTreeMap<String, Vec<u32>>,
    /// The enabled idle state that takes longest to wake from.
    pub deepest: Option<IdleState>,
    /// Longest wake-up that is allowed at present (`dev/cpu_dma_latency`), in microseconds; `None`: not readable.
    pub allowed_wake_up_us: Option<u64>,
    /// `true` if two threads share a core.
    pub threads_share_cores: Option<bool>,
    /// Processes that want to run, averaged over a minute.
    pub load: Option<f64>,
    /// The kernel's release and build text.
    pub kernel: Option<Kernel>,
}

/// An idle state (a C-state) of the processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    /// Its name, such as `C6`.
    pub name: String,
    /// Time to wake up from it, in microseconds.
    pub wake_up_us: u64,
    /// The files that turn it off, one per processor.
    pub switches: Vec<String>,
}

/// The kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Such as `6.18.2`.
    pub release: String,
    /// PREEMPT_RT.
    pub real_time: bool,
    /// It can preempt itself (PREEMPT, PREEMPT_DYNAMIC or PREEMPT_RT).
    pub preemptible: bool,
    /// The mode of preemption, which PREEMPT_DYNAMIC leaves to the boot: `none`, `voluntary`, `lazy`, `full`. Read
    /// from debugfs, the kernel's command line or its configuration in `/boot`; `None`: from none of them.
    pub mode: Option<String>,
}

/// Reads the processors and the kernel.
pub(super) fn processors(tree: &Tree) -> Processors {
    let status = tree.text("proc/self/status").unwrap_or_default();
    let processors = |name: &str| tree.text(&format!("sys/devices/system/cpu/{name}")).map(|text| list(&text));
    let online = processors("online").unwrap_or_default();
    Processors {
        allowed: field(&status, "Cpus_allowed_list").map(list).unwrap_or_default(),
        isolated: processors("isolated").unwrap_or_default(),
        governors: governors(tree, &online),
        deepest: deepest(tree, &online),
        allowed_wake_up_us: allowed_wake_up(tree),
        threads_share_cores: tree.number::<u8>("sys/devices/system/cpu/smt/active").map(|active| active == 1),
        load: tree.text("proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
        kernel: kernel(tree),
        online,
    }
}

fn governors(tree: &Tree, online: &[u32]) -> BTreeMap<String, Vec<u32>> {
    let mut found: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for processor in online {
        if let Some(name) = tree.text(&governor_file(*processor)) {
            found.entry(name).or_default().push(*processor);
        }
    }
    found
}

/// The file that holds a processor's frequency governor.
pub fn governor_file(processor: u32) -> String {
    format!("sys/devices/system/cpu/cpu{processor}/cpufreq/scaling_governor")
}

fn deepest(tree: &Tree, online: &[u32]) -> Option<IdleState> {
    let mut states: BTreeMap<(u64, String), Vec<String>> = BTreeMap::new();
    for processor in online {
        let folder = format!("sys/devices/system/cpu/cpu{processor}/cpuidle");
        for state in tree.names(&folder) {
            let file = |name: &str| format!("{folder}/{state}/{name}");
            let off = tree.number::<u8>(&file("disable")).is_some_and(|off| off == 1);
            let (Some(latency), Some(name), false) = (tree.number(&file("latency")), tree.text(&file("name")), off)
            else {
                continue;
            };
            states.entry((latency, name)).or_default().push(file("disable"));
        }
    }
    let ((wake_up_us, name), switches) = states.pop_last()?;
    Some(IdleState { name, wake_up_us, switches })
}

/// A program that holds `dev/cpu_dma_latency` open keeps all processors from deeper states.
fn allowed_wake_up(tree: &Tree) -> Option<u64> {
    let mut value = [0; 4];
    std::fs::File::open(tree.path("dev/cpu_dma_latency")).ok()?.read_exact(&mut value).ok()?;
    u64::try_from(i32::from_ne_bytes(value)).ok()
}

fn kernel(tree: &Tree) -> Option<Kernel> {
    let version = tree.text("proc/sys/kernel/version")?;
    let word = |wanted: &str| version.split_whitespace().any(|word| word == wanted);
    let real_time = word("PREEMPT_RT") || tree.number::<u8>("sys/kernel/realtime") == Some(1);
    let release = tree.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let preemptible = real_time || word("PREEMPT") || word("PREEMPT_DYNAMIC");
    let mode = word("PREEMPT_DYNAMIC").then(|| preemption_mode(tree, &release)).flatten();
    Some(Kernel { release, real_time, preemptible, mode })
}

/// The mode of preemption, from the best source first: it may be changed at run time, and was set at boot.
fn preemption_mode(tree: &Tree, release: &str) -> Option<String> {
    let present = || {
        let all = tree.text("sys/kernel/debug/sched/preempt")?; // none voluntary (full) lazy
        Some(all.split('(').nth(1)?.split(')').next()?.to_owned())
    };
    let said = || {
        let line = tree.text("proc/cmdline")?;
        line.split_whitespace().filter_map(|word| word.strip_prefix("preempt=")).next_back().map(str::to_owned)
    };
    let built = || {
        let lines = tree.text(&format!("boot/config-{release}"))?;
        let is_on = |mode: &&str| {
            let key = if *mode == "full" { String::new() } else { format!("_{}", mode.to_uppercase()) };
            lines.lines().any(|line| line == format!("CONFIG_PREEMPT{key}=y"))
        };
        ["none", "voluntary", "lazy", "full"].into_iter().find(is_on).map(str::to_owned)
    };
    present().or_else(said).or_else(built)
}

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

/// Reads the clocks.
pub(super) fn clock(tree: &Tree) -> Clock {
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

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All memory, in KiB.
    pub total_kib: Option<u64>,
    /// Memory available without swapping, in KiB.
    pub available_kib: Option<u64>,
    /// Swap space in use, in KiB.
    pub swapped_kib: Option<u64>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
}

/// Reads the state of memory.
pub(super) fn memory(tree: &Tree) -> Memory {
    let text = tree.text("proc/meminfo").unwrap_or_default();
    let kib = |name| field(&text, name).and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    let huge_pages = tree.text("sys/kernel/mm/transparent_hugepage/enabled");
    Memory {
        total_kib: kib("MemTotal"),
        available_kib: kib("MemAvailable"),
        swapped_kib: kib("SwapTotal").zip(kib("SwapFree")).map(|(total, free)| total.saturating_sub(free)),
        huge_pages: huge_pages.and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
    }
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
