//! `doctor` on a tree of `proc` and `sys` with one fault in it, for faults that would harm others if they were real.

use super::answer;
use crate::support::{Done, Testbed};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;

/// A healthy host of two processors with one network device.
const HEALTHY: &[(&str, &str)] = &[
    ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1"),
    (
        "proc/self/limits",
        "Max open files            20000                20000                files\n\
         Max locked memory         8388608              8388608              bytes\n\
         Max realtime priority     0                    0",
    ),
    ("proc/self/cgroup", "1:cpu:/robot\n0::/"),
    ("sys/fs/cgroup/cpu/robot/cpu.rt_runtime_us", "300000"),
    ("sys/fs/cgroup/cpu/robot/cpu.cfs_quota_us", "-1"),
    ("sys/fs/cgroup/cpu/robot/cpu.cfs_period_us", "100000"),
    ("sys/fs/cgroup/cpu/robot/cpu.stat", "nr_periods 0\nnr_throttled 0"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000"),
    ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian"),
    ("proc/sys/kernel/osrelease", "6.12.1"),
    ("proc/cmdline", "quiet preempt=none preempt=full"),
    ("boot/config-6.12.1", "CONFIG_PREEMPT_NONE=y\nCONFIG_PREEMPT_DYNAMIC=y"),
    ("proc/loadavg", "0.10 0.20 0.30 1/100 1"),
    ("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 800000 kB\nSwapTotal: 500000 kB\nSwapFree: 500000 kB"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("sys/devices/system/cpu/online", "0-1"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C1"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "2"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm"),
    ("proc/sys/net/core/rmem_max", "4194304"),
    ("proc/sys/net/core/rmem_default", "212992"),
    ("proc/sys/net/core/wmem_max", "4194304"),
    ("proc/sys/net/core/wmem_default", "212992"),
    ("proc/sys/net/core/netdev_max_backlog", "1000"),
    ("proc/sys/net/ipv4/igmp_max_memberships", "20"),
    ("proc/sys/net/ipv4/ip_forward", "0"),
    ("proc/sys/net/ipv6/conf/all/disable_ipv6", "0"),
    (
        "proc/self/net/dev",
        "lo: 100 10 0 0 0 0 0 0 100 10 0 0 0 0 0 0\neth0: 100000 1000000 0 0 0 0 0 0 100000 1000000 0 0 0 0 0 0",
    ),
    ("sys/class/net/lo/ifindex", "1"),
    ("sys/class/net/lo/flags", "0x1009"),
    ("sys/class/net/lo/mtu", "65536"),
    ("sys/class/net/eth0/ifindex", "2"),
    ("sys/class/net/eth0/flags", "0x1003"),
    ("sys/class/net/eth0/carrier", "1"),
    ("sys/class/net/eth0/mtu", "1500"),
    ("sys/class/net/eth0/duplex", "full"),
];

/// A tree with these files instead of the healthy ones.
fn tree(house: &Testbed, number: usize, faults: &[(&str, &str)]) -> PathBuf {
    let root = house.path(&format!("tree-{number}"));
    for (path, text) in HEALTHY.iter().chain(faults) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn doctor(house: &Testbed, root: &std::path::Path, more: &str) -> (Done, Value) {
    let done = house.run(&format!("doctor --json {more} --root {}", root.display()));
    let report = serde_json::from_str(&done.lines[0]).unwrap();
    (done, report)
}

/// The names of the findings.
fn ids(report: &Value, what: &str) -> Vec<String> {
    report[what].as_array().unwrap().iter().map(|found| found["id"].as_str().unwrap().to_owned()).collect()
}

/// The files of a fault, the finding that names it, and the exit code: 1 for a fault, 0 for a warning.
type Seeded = (&'static [(&'static str, &'static str)], &'static str, i32);

const SEEDED: &[Seeded] = &[
    (&[("proc/sys/kernel/sched_rt_runtime_us", "0")], "rt-runtime-off", 1),
    (&[("proc/sys/kernel/sched_rt_runtime_us", "100000")], "rt-runtime-small", 1),
    (&[("proc/sys/kernel/sched_rt_runtime_us", "800000")], "rt-runtime-short", 0),
    (&[("sys/fs/cgroup/cpu/robot/cpu.rt_runtime_us", "0")], "rt-group-budget", 1),
    (&[("sys/fs/cgroup/cpu/robot/cpu.cfs_quota_us", "50000")], "group-quota", 0),
    (&[("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffff7fffff")], "rt-permission", 1),
    (&[("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffbfff")], "memory-lock", 0),
    (&[("proc/self/limits", "Max open files            256    256    files")], "descriptors", 0),
    (&[("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave")], "governor", 0),
    (
        &[
            ("sys/devices/system/cpu/cpu0/cpuidle/state3/name", "C6"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state3/latency", "133"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state3/disable", "0"),
        ],
        "idle-state",
        0,
    ),
    (&[("proc/sys/kernel/version", "#1 SMP Debian")], "preemption", 0),
    (&[("sys/kernel/debug/sched/preempt", "none (voluntary) full lazy")], "preemption", 0),
    (&[("proc/cmdline", "quiet preempt=full preempt=none")], "preemption", 0),
    (
        &[
            ("proc/cmdline", "quiet"),
            ("boot/config-6.12.1", "CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT_NONE=y\nCONFIG_PREEMPT_DYNAMIC=y"),
        ],
        "preemption",
        0,
    ),
    (&[("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")], "clock-source", 0),
    (
        &[("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 800000 kB\nSwapTotal: 500000 kB\nSwapFree: 0 kB")],
        "swapped",
        0,
    ),
    (&[("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 8000 kB")], "memory-short", 0),
    (&[("proc/sys/net/core/rmem_max", "65536")], "receive-buffer-tiny", 1),
    (&[("proc/sys/net/core/rmem_max", "212992")], "receive-buffer", 0),
    (&[("proc/sys/net/core/wmem_default", "4096")], "send-buffer", 0),
    (&[("proc/sys/net/core/netdev_max_backlog", "16")], "backlog", 0),
    (&[("proc/sys/net/ipv4/igmp_max_memberships", "0")], "memberships", 1),
    (&[("sys/class/net/lo/flags", "0x1008")], "loopback-down", 1),
    (&[("sys/class/net/eth0/flags", "0x3")], "no-multicast", 0),
    (&[("sys/class/net/eth0/mtu", "1000")], "mtu-small", 0),
    (&[("sys/class/net/eth0/duplex", "half")], "half-duplex", 0),
    (
        &[("proc/self/net/dev", "lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\neth0: 1 9000 500 0 0 0 0 0 1 9000 0 0 0 0 0 0")],
        "broken-packets",
        0,
    ),
    (
        &[("proc/self/net/dev", "lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\neth0: 1 9000 0 0 0 0 0 0 1 9000 0 800 0 0 0 0")],
        "dropped-packets",
        0,
    ),
];

#[test]
fn a_healthy_host_has_no_findings() {
    let house = Testbed::new();
    let (done, report) = doctor(&house, &tree(&house, 0, &[]), "");
    assert_eq!((done.code(), &report["healthy"]), (0, &Value::Bool(true)), "{report}");
    assert_eq!((ids(&report, "findings").len(), ids(&report, "notes").len()), (0, 0), "{report}");
    let text = house.run(&format!("doctor --verbose --root {}", tree(&house, 0, &[]).display()));
    assert_eq!(text.lines, ["healthy: this host can keep real-time promises"]);
}

#[test]
fn a_machine_that_shows_nothing_is_no_false_alarm() {
    let house = Testbed::new();
    std::fs::create_dir(house.path("empty")).unwrap();
    let (done, report) = doctor(&house, &house.path("empty"), "");
    assert_eq!((done.code(), &report["healthy"]), (0, &Value::Bool(true)), "{report}");
}

#[test]
fn only_the_seeded_fault_is_named() {
    let house = Testbed::new();
    for (number, (faults, id, code)) in SEEDED.iter().enumerate() {
        let root = tree(&house, number, faults);
        let began = Instant::now();
        let (done, report) = doctor(&house, &root, "");
        let took = began.elapsed();
        assert_eq!((ids(&report, "findings"), done.code()), (vec![(*id).to_owned()], *code), "{report}");
        answer::told("doctor", id, took);
        let found = &report["findings"][0];
        assert!(["what", "value", "limit", "why", "remedy"].iter().all(|key| found[key] != ""), "{found}");
    }
}

#[test]
fn fixable_findings_are_fixed_and_the_undo_is_named() {
    let house = Testbed::new();
    for (number, (faults, id, _)) in SEEDED.iter().enumerate() {
        let root = tree(&house, 100 + number, faults);
        let fixable = doctor(&house, &root, "").1["findings"][0]["fixable"] == true;
        let (done, report) = doctor(&house, &root, "--fix");
        let left = ids(&report, "findings");
        assert_eq!((left.is_empty(), ids(&report, "fixed").is_empty()), (fixable, !fixable), "{id}: {report}");
        if fixable {
            assert_eq!((done.code(), &report["fixed"][0]["id"]), (0, &Value::from(*id)), "{report}");
            assert!(report["fixed"][0]["undo"].as_str().is_some_and(|undo| !undo.is_empty()), "{report}");
        }
    }
}

#[test]
fn any_value_is_read_without_panic() {
    let house = Testbed::new();
    for (number, text) in
        ["", "-", "99999999999999999999999", "-9223372036854775808", "\u{0}", "a b c"].iter().enumerate()
    {
        let all: Vec<(&str, &str)> = HEALTHY.iter().map(|(path, _)| (*path, *text)).collect();
        let (done, report) = doctor(&house, &tree(&house, 200 + number, &all), "");
        assert!((0..=1).contains(&done.code()), "{text:?}: {report} {}", done.errors);
    }
}
