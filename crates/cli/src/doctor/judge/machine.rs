//! Response times of processors and memory.

use crate::doctor::judge::Severity::{Note, Warning};
use crate::doctor::judge::{Finding, Kind};
use linux::probe::Facts;
use linux::probe::machine::{Clock, Kernel, Memory, Processors, governor_file};

/// All kinds of this module.
pub(crate) const KINDS: &[&Kind] = &[
    &GOVERNOR,
    &IDLE_STATE,
    &PREEMPTION,
    &LOAD,
    &ISOLATED,
    &SHARED_CORES,
    &CLOCK_SOURCE,
    &CLOCK_FREE,
    &CLOCK_COARSE,
    &TIME_NAMESPACE,
    &SWAPPED,
    &MEMORY_SHORT,
    &HUGE_PAGES,
];

const GOVERNOR: Kind = Kind {
    id: "governor",
    severity: Warning,
    when: "a processor's frequency governor is not `performance`",
    why: "a processor that was slowed down needs up to milliseconds to be fast again: rare messages are the slowest",
    fixable: true,
};
const IDLE_STATE: Kind = Kind {
    id: "idle-state",
    severity: Warning,
    when: "an idle state that takes 50 us or more to wake from is on",
    why: "each message that wakes a sleeping processor waits that long first",
    fixable: true,
};
const PREEMPTION: Kind = Kind {
    id: "preemption",
    severity: Warning,
    when: "the kernel does not preempt itself (neither PREEMPT, PREEMPT_DYNAMIC nor PREEMPT_RT, or preempt=none or voluntary)",
    why: "a thread of high priority waits until a system call of a lower one ends: milliseconds",
    fixable: false,
};
const LOAD: Kind = Kind {
    id: "load",
    severity: Note,
    when: "more than two processes per processor want to run",
    why: "channels without sched= wait for their turn",
    fixable: false,
};
const ISOLATED: Kind = Kind {
    id: "isolated",
    severity: Note,
    when: "processors are kept from the scheduler (isolcpus=)",
    why: "only threads with affinity= run there, and the scheduler does not spread them",
    fixable: false,
};
const SHARED_CORES: Kind = Kind {
    id: "shared-cores",
    severity: Note,
    when: "two processors share a core (SMT)",
    why: "what runs on the other half slows a pinned thread by up to a half",
    fixable: false,
};
const CLOCK_SOURCE: Kind = Kind {
    id: "clock-source",
    severity: Warning,
    when: "the clock source is hpet, acpi_pm, jiffies or the like",
    why: "each sample is stamped: reading such a clock is a system call of a microsecond and more, or coarse",
    fixable: false,
};
const CLOCK_FREE: Kind = Kind {
    id: "clock-unsynchronised",
    severity: Warning,
    when: "nobody disciplines the clock, and the host has a network",
    why: "one-way latencies and time stamps of different hosts cannot be compared",
    fixable: false,
};
const CLOCK_COARSE: Kind = Kind {
    id: "clock-error",
    severity: Note,
    when: "the clock may be wrong by 100 ms or more",
    why: "one-way latencies of different hosts are wrong by as much",
    fixable: false,
};
const TIME_NAMESPACE: Kind = Kind {
    id: "time-namespace",
    severity: Note,
    when: "the monotonic clock is shifted against the host's",
    why: "latencies to programs outside of this container cannot be measured exactly",
    fixable: false,
};
const SWAPPED: Kind = Kind {
    id: "swapped",
    severity: Warning,
    when: "more than 64 MiB are in swap space",
    why: "reaching such a page costs milliseconds",
    fixable: false,
};
const MEMORY_SHORT: Kind = Kind {
    id: "memory-short",
    severity: Warning,
    when: "less than 5 % of the memory is available",
    why: "every new page must be freed first, by whoever needs it",
    fixable: false,
};
const HUGE_PAGES: Kind = Kind {
    id: "huge-pages",
    severity: Note,
    when: "transparent huge pages are `always` on",
    why: "putting small pages together stops the thread whose memory it is for up to milliseconds",
    fixable: true,
};

/// Longest wake-up that does no harm.
const LONGEST_WAKE_UP_US: u64 = 50;
const SLOW_SOURCES: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"];
const LARGEST_ERROR_US: i64 = 100_000;
const SWAPPED_KIB: u64 = 64 << 10;

/// Judges processors, clocks and memory.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let alone = !facts.devices.iter().any(|device| device.running && !device.loopback);
    let mut found = processors(&facts.processors);
    found.extend(clock(&facts.clock, alone));
    found.extend(memory(&facts.memory));
    found
}

fn processors(processors: &Processors) -> Vec<Finding> {
    let Processors { online, governors, isolated, .. } = processors;
    let slow = governors.iter().filter(|(name, _)| *name != "performance").map(|(name, which)| {
        let files = which.iter().map(|number| governor_file(*number)).collect();
        GOVERNOR
            .found("the frequency governor", format!("{name} on {} processors", which.len()), "performance")
            .write(files, "performance")
    });
    let deep = processors.deepest.as_ref().filter(|state| {
        let allowed = processors.allowed_wake_up_us.unwrap_or(u64::MAX);
        state.wake_up_us.min(allowed) >= LONGEST_WAKE_UP_US
    });
    let deep = deep.map(|state| {
        let value = format!("{} with {} us to wake up", state.name, state.wake_up_us);
        IDLE_STATE
            .found("the deepest idle state", value, format!("below {LONGEST_WAKE_UP_US} us"))
            .write(state.switches.clone(), 1)
    });
    let kernel = processors.kernel.as_ref().and_then(preemption);
    let busy = processors.load.filter(|load| !online.is_empty() && *load > 2.0 * online.len() as f64).map(|load| {
        let limit = format!("up to {}", 2 * online.len());
        LOAD.found("the load", format!("{load:.1}"), limit)
            .remedy("give channels that matter sched=fifo:30, or end what need not run")
    });
    let numbers = |of: &[u32]| of.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let apart = (!isolated.is_empty()).then(|| {
        let remedy = format!("thalweg set /out /in affinity={}", numbers(isolated));
        ISOLATED.found("processors kept apart", numbers(isolated), "used by name").remedy(remedy)
    });
    let shared = processors.threads_share_cores.filter(|shared| *shared).map(|_| {
        SHARED_CORES
            .found("simultaneous multithreading", "on", "off for the strictest bounds")
            .remedy("echo off > /sys/devices/system/cpu/smt/control")
    });
    slow.chain(deep).chain(kernel).chain(busy).chain(apart).chain(shared).collect()
}

fn clock(clock: &Clock, alone: bool) -> Vec<Finding> {
    let slow = clock.source.as_deref().filter(|source| SLOW_SOURCES.contains(source)).map(|source| {
        let better = clock.sources.iter().find(|s| !SLOW_SOURCES.contains(&s.as_str()));
        let found = CLOCK_SOURCE.found("the clock source", source, better.map_or("tsc", String::as_str));
        match better {
            Some(better) => found
                .remedy(format!("echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource")),
            None => found.remedy("see `dmesg | grep -i clocksource`: why was tsc given up?"),
        }
    });
    let state = clock.synchronisation.filter(|_| !alone);
    let remedy = "install and start chrony (or linuxptp where the network has a grand master): apt install chrony";
    let free = state.filter(|s| !s.synchronised);
    let free = free.map(|_| CLOCK_FREE.found("the clock", "not synchronised", "synchronised").remedy(remedy));
    let coarse = state.filter(|s| s.synchronised && s.most_error_us >= LARGEST_ERROR_US).map(|s| {
        let value = format!("{} ms", s.most_error_us / 1000);
        CLOCK_COARSE
            .found("the clock's largest error", value, "below 100 ms")
            .remedy("see `chronyc tracking`: is a nearer server reachable?")
    });
    let shifted = (clock.namespace_offset_ns != 0).then(|| {
        let value = format!("{} ms", clock.namespace_offset_ns / 1_000_000);
        TIME_NAMESPACE
            .found("the time namespace's offset", value, "0")
            .remedy("start the container without a time namespace")
    });
    slow.into_iter().chain(free).chain(coarse).chain(shifted).collect()
}

fn memory(memory: &Memory) -> Vec<Finding> {
    let swapped = memory.swapped_kib.filter(|kib| *kib > SWAPPED_KIB).map(|kib| {
        SWAPPED
            .found("swap space in use", format!("{} MiB", kib >> 10), "none")
            .remedy("swapoff -a, and see who takes the memory: top -o %MEM")
    });
    let short = memory.total_kib.zip(memory.available_kib).filter(|(total, available)| available * 20 < *total);
    let short = short.map(|(total, available)| {
        let value = format!("{} of {} MiB", available >> 10, total >> 10);
        MEMORY_SHORT.found("available memory", value, "5 % or more").remedy("end what takes it: top -o %MEM")
    });
    let huge = memory.huge_pages.as_deref().filter(|mode| *mode == "always").map(|mode| {
        let file = "sys/kernel/mm/transparent_hugepage/enabled";
        HUGE_PAGES.found("transparent huge pages", mode, "madvise").write(vec![file.into()], "madvise")
    });
    [swapped, short, huge].into_iter().flatten().collect()
}

fn preemption(kernel: &Kernel) -> Option<Finding> {
    let found = |value: String| PREEMPTION.found(format!("kernel {}", kernel.release), value, "preemptible");
    match kernel.mode.as_deref() {
        _ if !kernel.preemptible => {
            let remedy = "install a kernel with PREEMPT_DYNAMIC (start it with preempt=full) or PREEMPT_RT";
            Some(found("not preemptible".into()).remedy(remedy))
        }
        Some(mode @ ("none" | "voluntary")) => {
            let remedy = "start it with preempt=full; until then: echo full > /sys/kernel/debug/sched/preempt (mount -t debugfs none /sys/kernel/debug)";
            Some(found(format!("preempt={mode}")).remedy(remedy))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::probe::devices::Device;
    use linux::probe::machine::{IdleState, Synchronisation};

    fn ids(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|f| f.kind.id).collect()
    }

    #[test]
    fn slow_processors_are_found_and_the_remedy_names_the_file() {
        let state = |wake_up_us| Some(IdleState { name: "C6".into(), wake_up_us, switches: vec!["sys/c6".into()] });
        let of = |governor: &str, deepest, allowed_wake_up_us| {
            let governors = [(governor.to_owned(), vec![0, 1])].into();
            processors(&Processors { governors, deepest, allowed_wake_up_us, online: vec![0, 1], ..Default::default() })
        };
        let both = of("powersave", state(133), None);
        assert_eq!(ids(&both), ["governor", "idle-state"]);
        assert!(both[0].remedy.contains("echo performance > /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"));
        assert_eq!(both[1].remedy, "echo 1 > /sys/c6");
        assert_eq!(ids(&of("performance", state(2), None)), [""; 0]);
        assert_eq!(ids(&of("performance", state(133), Some(0))), [""; 0]); // a process holds the wake-up short
    }

    #[test]
    fn a_virtual_machine_without_any_of_this_is_healthy() {
        let kernel = Some(Kernel { release: "6.1".into(), real_time: false, preemptible: true, mode: None });
        let machine = Processors { online: vec![0, 1], load: Some(1.0), kernel, ..Default::default() };
        assert_eq!(ids(&processors(&machine)), [""; 0]);
    }

    #[test]
    fn a_clock_is_judged_only_on_a_host_with_a_network() {
        let free = Some(Synchronisation { synchronised: false, most_error_us: 16_000_000 });
        let facts = |running| Facts {
            clock: Clock { synchronisation: free, ..Default::default() },
            devices: vec![Device { name: "eth0".into(), running, ..Default::default() }],
            ..Default::default()
        };
        assert_eq!(ids(&judge(&facts(true))), ["clock-unsynchronised"]);
        assert_eq!(ids(&judge(&facts(false))), [""; 0]);
        let slow =
            Clock { source: Some("hpet".into()), sources: vec!["hpet".into(), "tsc".into()], ..Default::default() };
        assert!(clock(&slow, true)[0].remedy.starts_with("echo tsc >"));
    }

    #[test]
    fn memory_that_is_slow_to_reach_is_found() {
        let full = Memory {
            total_kib: Some(1 << 20),
            available_kib: Some(10 << 10),
            swapped_kib: Some(100 << 10),
            huge_pages: Some("always".into()),
        };
        assert_eq!(ids(&memory(&full)), ["swapped", "memory-short", "huge-pages"]);
    }
}
