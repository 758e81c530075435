//! Refusals by the kernel, with the reason and the remedy. EPERM alone has four, distinguished by the kernel's checks, in its order:
//! the permission (capability or limit), the group's budget, the processors.

use super::admission::{Admission, number};
use qos::priority::{Policy, Scheduling};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The refused request, the reason and the remedy.
#[derive(Debug)]
pub struct SchedError {
    /// The request, such as `fifo:30 for thread 4711`.
    pub what: String,
    /// The reason of the refusal.
    pub reason: Reason,
    /// The remedy.
    pub remedy: String,
}

/// The reason of a refusal: four of these are EPERM in the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The process lacks this capability.
    MissingCapability(&'static str),
    /// The thread's cpu group (cgroup v1 with RT_GROUP_SCHED) has no real-time budget: this file says 0.
    RtGroupBudget {
        /// Its `cpu.rt_runtime_us`.
        file: String,
    },
    /// More than the process's limit RLIMIT_RTPRIO.
    Rlimit {
        /// The limit.
        limit: u8,
        /// The requested priority.
        asked: u8,
    },
    /// The reservations of all threads together would be more than the processors can keep.
    DeadlineAdmission(Admission),
    /// The kernel's limits on the period of a reservation (`sched_deadline_period_min_us`, `…_max_us`).
    Period {
        /// The requested period, µs.
        asked_us: u64,
        /// The shortest and the longest, µs.
        limits_us: [u64; 2],
    },
    /// A thread with a reservation must be allowed on all processors.
    AffinityWithDeadline,
    /// There is no such thread (any more).
    NoSuchThread,
    /// The kernel does not accept the value.
    Invalid,
    /// More memory than RLIMIT_MEMLOCK would be locked.
    MemoryLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// Any other error of the kernel.
    Other(io::Error),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::MissingCapability(capability) => write!(f, "it needs {capability}, which this process lacks"),
            Reason::RtGroupBudget { file } => write!(f, "its cpu group has no real-time budget ({file} is 0)"),
            Reason::Rlimit { limit, asked } => {
                write!(f, "priority {asked} is above the limit RLIMIT_RTPRIO of the process, {limit}")
            }
            Reason::DeadlineAdmission(admission) => admission.fmt(f),
            Reason::Period { asked_us, limits_us: [least, most] } => {
                write!(f, "a period of {asked_us} us: this kernel takes {least} to {most} us")
            }
            Reason::AffinityWithDeadline => {
                f.write_str("a thread with a reservation must be allowed on all processors")
            }
            Reason::NoSuchThread => f.write_str("there is no such thread"),
            Reason::Invalid => f.write_str("the kernel does not take this value"),
            Reason::MemoryLimit { limit } => {
                write!(f, "the limit RLIMIT_MEMLOCK of the process is {} KiB", limit >> 10)
            }
            Reason::Other(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SchedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, reason, remedy } = self;
        write!(f, "{what}: {reason}; {remedy}")
    }
}

impl std::error::Error for SchedError {}

impl From<SchedError> for io::Error {
    fn from(error: SchedError) -> Self {
        let kind = match &error.reason {
            Reason::Other(inner) => inner.kind(),
            Reason::NoSuchThread => io::ErrorKind::NotFound,
            Reason::Invalid | Reason::AffinityWithDeadline | Reason::Period { .. } => io::ErrorKind::InvalidInput,
            Reason::DeadlineAdmission(_) | Reason::MemoryLimit { .. } => io::ErrorKind::OutOfMemory,
            Reason::MissingCapability(_) | Reason::RtGroupBudget { .. } | Reason::Rlimit { .. } => {
                io::ErrorKind::PermissionDenied
            }
        };
        io::Error::new(kind, error)
    }
}

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;
const NICE: Reason = Reason::MissingCapability("CAP_SYS_NICE");

pub(super) fn of_scheduling(tid: i32, to: &Scheduling, error: io::Error) -> SchedError {
    let (reason, remedy) = match errno(&error) {
        Some(Errno::PERM) => not_permitted(tid, to, error),
        Some(Errno::BUSY) => {
            let remedy = "ask for less runtime or a longer period, or take another reservation back";
            (Reason::DeadlineAdmission(Admission::read(to)), remedy.to_owned())
        }
        Some(Errno::INVAL) => period(to).unwrap_or_else(|| other(error)),
        _ => other(error),
    };
    SchedError { what: format!("sched={to} for {}", name(tid)), reason, remedy }
}

pub(super) fn of_affinity(tid: i32, cpus: &[u16], error: io::Error) -> SchedError {
    let (reason, remedy) = match errno(&error) {
        Some(Errno::BUSY) => (Reason::AffinityWithDeadline, WHOLE.to_owned()),
        Some(Errno::INVAL) => {
            let allowed = super::read(std::process::id().cast_signed()).map(|s| s.affinity).unwrap_or_default();
            (Reason::Invalid, format!("there are, or may be used: {allowed:?}"))
        }
        Some(Errno::PERM) => (NICE, capability_remedy("cap_sys_nice")),
        _ => other(error),
    };
    SchedError { what: format!("affinity={cpus:?} for {}", name(tid)), reason, remedy }
}

pub(super) fn of_process(pid: i32, error: io::Error) -> SchedError {
    let reason = if error.kind() == io::ErrorKind::NotFound { Reason::NoSuchThread } else { Reason::Other(error) };
    SchedError { what: format!("threads of process {pid}"), reason, remedy: "check the process id".to_owned() }
}

pub(super) fn of_memory_lock(error: io::Error) -> SchedError {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current.unwrap_or(u64::MAX);
    let (reason, remedy) = match errno(&error) {
        Some(Errno::NOMEM | Errno::AGAIN) if !has_capability(CAP_IPC_LOCK) => {
            (Reason::MemoryLimit { limit }, format!("{}, or `ulimit -l unlimited`", capability_remedy("cap_ipc_lock")))
        }
        Some(Errno::PERM) => (Reason::MissingCapability("CAP_IPC_LOCK"), capability_remedy("cap_ipc_lock")),
        _ => other(error),
    };
    SchedError { what: "locking the process's memory".to_owned(), reason, remedy }
}

const WHOLE: &str = "take the affinity back (affinity=default), or choose fifo or rr";

fn not_permitted(tid: i32, to: &Scheduling, error: io::Error) -> (Reason, String) {
    let capable = has_capability(CAP_SYS_NICE);
    let priority = to.policy.priority();
    match to.policy {
        Policy::Fifo(_) | Policy::RoundRobin(_) => {
            let limit = priority_limit(tid);
            if !capable && limit == 0 {
                let or = format!(", or `ulimit -r {priority}` before the start");
                return (NICE, capability_remedy("cap_sys_nice") + &or);
            }
            if !capable && limit < priority {
                let remedy = format!("ask for at most {limit}, or `ulimit -r {priority}` before the start");
                return (Reason::Rlimit { limit, asked: priority }, remedy);
            }
            if let Some((file, remedy)) = empty_group(tid) {
                return (Reason::RtGroupBudget { file: file.display().to_string() }, remedy);
            }
        }
        Policy::Deadline { .. } if capable => {
            if restricted(tid) {
                return (Reason::AffinityWithDeadline, WHOLE.to_owned());
            }
        }
        Policy::Other | Policy::Deadline { .. } if !capable => return (NICE, capability_remedy("cap_sys_nice")),
        Policy::Other | Policy::Deadline { .. } => {}
    }
    // The capability is there and no limit in the way: a user namespace, whose root may not schedule.
    (
        Reason::Other(error),
        "outside a container it would be allowed: give that one CAP_SYS_NICE (--cap-add sys_nice)".into(),
    )
}

fn other(error: io::Error) -> (Reason, String) {
    match errno(&error) {
        Some(Errno::SRCH) => (Reason::NoSuchThread, "it has ended; look again which threads there are".to_owned()),
        Some(Errno::INVAL) => (Reason::Invalid, "see `thalweg set --help` for what is allowed".to_owned()),
        _ => (Reason::Other(error), "the kernel gives no further reason".to_owned()),
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

fn name(tid: i32) -> String {
    let own = std::thread::current();
    match own.name().filter(|_| tid == 0) {
        Some(name) => format!("the thread {name}"),
        None if tid == 0 => "the calling thread".to_owned(),
        None => format!("thread {tid}"),
    }
}

/// A period beyond the kernel's limits.
fn period(to: &Scheduling) -> Option<(Reason, String)> {
    let Policy::Deadline { period_ns, .. } = to.policy else { return None };
    let limit = |name: &str| number(&format!("/proc/sys/kernel/sched_deadline_period_{name}_us"));
    let (asked_us, limits_us) =
        (period_ns / 1000, [u64::try_from(limit("min")?).ok()?, u64::try_from(limit("max")?).ok()?]);
    let beyond = !(limits_us[0]..=limits_us[1]).contains(&asked_us);
    let remedy = "take a period within, with as much more or less runtime, or set kernel.sched_deadline_period_min_us";
    beyond.then(|| (Reason::Period { asked_us, limits_us }, remedy.to_owned()))
}

fn capability_remedy(capability: &str) -> String {
    let program = std::env::current_exe().map_or_else(|_| "PROGRAM".into(), |path| path.display().to_string());
    format!("`setcap {capability}+ep {program}`, or run it as root")
}

/// `true` if the calling thread has the capability now.
fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits & (1 << number) != 0)
}

/// RLIMIT_RTPRIO of the thread that is to be set: the kernel checks that one's, not the caller's.
fn priority_limit(tid: i32) -> u8 {
    let limits = std::fs::read_to_string(proc_file(tid, "limits")).unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime priority"));
    match line.and_then(|values| values.split_whitespace().next()) {
        Some("unlimited") => 99,
        Some(value) => value.parse::<u64>().map_or(0, |limit| limit.min(99) as u8),
        None => 0,
    }
}

/// `true` if the thread may run on fewer processors than there are.
fn restricted(tid: i32) -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    super::read(tid).is_ok_and(|found| found.affinity.len() < count(online.trim()))
}

/// Number of processors in a list such as `0-3,8`.
pub(super) fn count(list: &str) -> usize {
    let span = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').filter_map(span).sum()
}

fn proc_file(tid: i32, file: &str) -> String {
    if tid == 0 { format!("/proc/thread-self/{file}") } else { format!("/proc/{tid}/{file}") }
}

/// The thread's cpu group (cgroup v1), if it has no real-time budget: its file, and the commands that give one.
fn empty_group(tid: i32) -> Option<(PathBuf, String)> {
    let groups = std::fs::read_to_string(proc_file(tid, "cgroup")).ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (top, group) = cpu_group(&groups, &mounts)?;
    let budget = |group: &Path| std::fs::read_to_string(group.join(BUDGET)).map(|text| text.trim().to_owned());
    if budget(&group).ok()? != "0" {
        return None;
    }
    // A group's budget comes out of its parent's: those without one need it first.
    let without = group.ancestors().take_while(|g| g.starts_with(&top) && budget(g).is_ok_and(|b| b == "0"));
    let commands: Vec<String> = without.map(|g| format!("echo 300000 > {}", g.join(BUDGET).display())).collect();
    let commands = commands.into_iter().rev().collect::<Vec<_>>().join(" && ");
    Some((group.join(BUDGET), format!("as root `{commands}` (microseconds per second and processor)")))
}

const BUDGET: &str = "cpu.rt_runtime_us";

/// The mount of the cpu controller (version 1) and the group's directory within it, from `/proc/…/cgroup` and
/// `/proc/self/mountinfo`.
fn cpu_group(groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let is_cpu = |controllers: &str| controllers.split(',').any(|c| c == "cpu");
    let path = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().filter(|controllers| is_cpu(controllers))?;
        fields.next()
    })?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        if kind.next() != Some("cgroup") || !kind.nth(1).is_some_and(is_cpu) {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, top) = (fields.next()?, PathBuf::from(fields.next()?));
        let within = Path::new(path).strip_prefix(root).or_else(|_| Path::new(path).strip_prefix("/")).ok()?;
        Some((top.clone(), top.join(within)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_group_is_found_among_the_others() {
        let groups = "9:name=systemd:/\n2:cpuset:/a\n1:cpu,cpuacct:/docker/abc/robot\n0::/\n";
        let mounts = "30 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let found = cpu_group(groups, mounts).unwrap();
        assert_eq!(found.0, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(found.1, Path::new("/sys/fs/cgroup/cpu,cpuacct/robot"));
        assert_eq!(cpu_group("0::/user.slice\n", mounts), None);
    }

    #[test]
    fn processors_are_counted() {
        assert_eq!(["0", "0-1", "0-3,8", "", "3-1"].map(count), [1, 2, 5, 0, 0]);
    }
}
