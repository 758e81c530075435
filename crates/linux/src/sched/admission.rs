//! The sum of all reservations of the host, beside the kernel's limit on it: sched-deadline.rst, "Admission control".

use qos::priority::{Policy, Scheduling};
use std::fmt;

/// Reservations in percent of one processor: 200 are two processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Admission {
    /// That of the thread in question.
    pub asked_percent: f64,
    /// Those of all threads that this process can see, without the thread in question.
    pub reserved_percent: f64,
    /// Those of the kernel's own fair servers (Linux 6.12 and later, 5 % of each processor unless set otherwise); `None`: only root may know.
    pub fair_percent: Option<f64>,
    /// The most that all may have: `sched_rt_runtime_us` of `sched_rt_period_us` on each processor. `None`: without limit.
    pub limit_percent: Option<f64>,
}

impl Admission {
    /// The present state, for a thread that asks for this.
    pub(super) fn read(asked: &Scheduling) -> Self {
        let processors = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let processors = super::refusal::count(processors.trim()).max(1) as f64;
        let times = number("/proc/sys/kernel/sched_rt_runtime_us").zip(number("/proc/sys/kernel/sched_rt_period_us"));
        let limit = times.filter(|(runtime, period)| *runtime >= 0 && *period > 0);
        Self {
            asked_percent: percent(asked.policy),
            reserved_percent: reserved(),
            fair_percent: fair(),
            limit_percent: limit.map(|(runtime, period)| runtime as f64 / period as f64 * 100.0 * processors),
        }
    }
}

impl Admission {
    /// The sum of what is known; fair servers that are not known count as much as they may.
    fn known(&self) -> f64 {
        let fair = self.fair_percent.or(self.limit_percent.map(|limit| limit / 19.0)).unwrap_or(0.0);
        self.asked_percent + self.reserved_percent + fair
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked_percent, reserved_percent, fair_percent, limit_percent } = self;
        write!(
            f,
            "a reservation of {asked_percent:.1} % of a processor beside {reserved_percent:.1} % that threads have"
        )?;
        match fair_percent {
            Some(fair) => write!(f, " and {fair:.1} % of the kernel's fair servers")?,
            None => f.write_str(" (and the kernel's fair servers, 5 % of each processor from Linux 6.12 on)")?,
        }
        match limit_percent {
            Some(limit) if self.known() <= *limit => write!(
                f,
                " is refused, although the kernel's limit is {limit:.1} %: threads that left a reservation while they waited may have kept \
                 theirs, until a cpuset of the host changes"
            ),
            Some(limit) => write!(f, " is more than the kernel's limit, {limit:.1} %"),
            None => f.write_str(" is more than the kernel admits"),
        }
    }
}

fn percent(policy: Policy) -> f64 {
    match policy {
        Policy::Deadline { runtime_ns, period_ns, .. } if period_ns > 0 => runtime_ns as f64 * 100.0 / period_ns as f64,
        _ => 0.0,
    }
}

/// The sum over all threads.
fn reserved() -> f64 {
    let numbers = |place: &str| {
        let names = std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    let threads = numbers("/proc").into_iter().flat_map(|pid| numbers(&format!("/proc/{pid}/task")));
    threads.filter_map(|tid| super::read(tid).ok()?.policy).map(percent).sum()
}

/// Those of the fair servers, by debugfs.
fn fair() -> Option<f64> {
    let servers = std::fs::read_dir("/sys/kernel/debug/sched/fair_server").ok()?;
    let of = |server: std::fs::DirEntry| {
        let value = |name: &str| number(&server.path().join(name).display().to_string());
        Some(value("runtime")? as f64 * 100.0 / value("period")?.max(1) as f64)
    };
    Some(servers.flatten().filter_map(of).sum())
}

pub(super) fn number(file: &str) -> Option<i64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_below_the_limit_is_told_apart() {
        let of = |reserved_percent, fair_percent| {
            let limit_percent = Some(190.0);
            Admission { asked_percent: 30.0, reserved_percent, fair_percent, limit_percent }.to_string()
        };
        assert!(of(155.0, None).ends_with("is more than the kernel's limit, 190.0 %"), "{}", of(155.0, None));
        assert!(
            of(155.0, Some(0.0)).contains("although")
                && of(37.5, None).contains("although the kernel's limit is 190.0 %")
        );
    }
}
