//! Scheduling of threads: read and set by thread id, live (sched(7), sched_setattr(2), sched_setaffinity(2)).
//!
//! A thread id is the result of `gettid`; 0 is the calling thread. On a refusal [`SchedError`] names which of the
//! kernel's several reasons it was, and the remedy.

mod admission;
mod refusal;
mod session;

pub use admission::Admission;
pub use refusal::{Reason, SchedError};
pub use session::lower_session;

use qos::priority::{Policy, Scheduling};
use rustix::thread::{CpuSet, Pid};
use std::collections::BTreeSet;
use std::io;

/// The present scheduling of a thread, from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The thread.
    pub tid: i32,
    /// The kernel's number of the policy: 0 OTHER, 1 FIFO, 2 RR, 3 BATCH, 5 IDLE, 6 DEADLINE.
    pub number: u32,
    /// The policy with its parameters; `None` for those that Thalweg does not set (BATCH, IDLE and newer ones).
    pub policy: Option<Policy>,
    /// Nice value, −20 (first) … 19; counts under OTHER and BATCH only.
    pub nice: i8,
    /// Processors the thread may run on, by number.
    pub affinity: Vec<u16>,
}

impl Scheduled {
    /// The policy's name: `other`, `fifo`, `rr`, `batch`, `idle`, `deadline`, or `unknown`.
    pub fn policy_name(&self) -> &'static str {
        match (self.policy, self.number) {
            (Some(policy), _) => policy.name(),
            (None, 3) => "batch",
            (None, 5) => "idle",
            _ => "unknown",
        }
    }
    /// The real-time priority, 0 if there is none.
    pub fn priority(&self) -> u8 {
        self.policy.map_or(0, Policy::priority)
    }
    /// The scheduling in the form in which it is set; `None` as in [`Scheduled::policy`].
    pub fn scheduling(&self) -> Option<Scheduling> {
        self.policy.map(|policy| Scheduling { policy, nice: self.nice })
    }
}

/// The calling thread's id.
pub fn current() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The present scheduling of the thread.
///
/// # Errors
/// The error of sched_getattr(2): ESRCH if there is no such thread.
pub fn read(tid: i32) -> io::Result<Scheduled> {
    let found = attributes(tid)?;
    let cpus = rustix::thread::sched_getaffinity(Pid::from_raw(tid))?;
    let priority = u8::try_from(found.sched_priority).unwrap_or(u8::MAX);
    let policy = match i32::try_from(found.sched_policy).unwrap_or(-1) {
        libc::SCHED_OTHER => Some(Policy::Other),
        libc::SCHED_FIFO => Some(Policy::Fifo(priority)),
        libc::SCHED_RR => Some(Policy::RoundRobin(priority)),
        libc::SCHED_DEADLINE => Some(Policy::Deadline {
            runtime_ns: found.sched_runtime,
            deadline_ns: found.sched_deadline,
            period_ns: found.sched_period,
        }),
        _ => None,
    };
    let affinity = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).map(|cpu| cpu as u16).collect();
    let nice = i8::try_from(found.sched_nice).unwrap_or(0);
    let tid = if tid == 0 { current() } else { tid };
    Ok(Scheduled { tid, number: found.sched_policy, policy, nice, affinity })
}

/// Gives the thread this policy, priority, reservation and nice value, at once.
///
/// # Errors
/// The kernel's refusal with its reason; the thread is unchanged.
pub fn set(tid: i32, to: &Scheduling) -> Result<(), SchedError> {
    let refused = |error| refusal::of_scheduling(tid, to, error);
    let before = attributes(tid).map_err(refused)?;
    let leaves = is_reserved(&before) && !matches!(to.policy, Policy::Deadline { .. });
    if leaves {
        // Without the permission for that it is as without this step.
        let _ = set_attributes(tid, &libc::sched_attr { sched_flags: before.sched_flags, ..LEAST });
    }
    let done = match to.policy {
        Policy::Other => set_other(tid, to.nice, before.sched_flags),
        _ => set_attributes(tid, &wanted(to, before.sched_flags)),
    };
    done.map_err(|error| {
        let _ = if leaves { set_attributes(tid, &before) } else { Ok(()) };
        refused(error)
    })
}

fn is_reserved(found: &libc::sched_attr) -> bool {
    i32::try_from(found.sched_policy) == Ok(libc::SCHED_DEADLINE)
}

/// The least reservation: 1024 ns in 4 s. The kernel (6.18) never gives back the part of a thread that leaves its reservation while it waits, not
/// even when it ends: after some restores no thread of the host gets one any more. It does give back what a smaller reservation frees.
/// So a thread is left with the least one before it leaves.
const LEAST: libc::sched_attr = libc::sched_attr {
    size: size_of::<libc::sched_attr>() as u32,
    sched_policy: libc::SCHED_DEADLINE.unsigned_abs(),
    sched_flags: 0,
    sched_nice: 0,
    sched_priority: 0,
    sched_runtime: 1024,
    sched_deadline: 4_000_000_000,
    sched_period: 4_000_000_000,
};

/// Sets policy OTHER by the older calls, which do not change the thread's slice: sched_setattr(2) would need its
/// value, and does not report it for a thread of another policy. The nice value comes first: it may be refused, while
/// leaving a real-time policy needs no permission.
#[allow(unsafe_code)]
fn set_other(tid: i32, nice: i8, flags: u64) -> io::Result<()> {
    rustix::process::setpriority_process(Pid::from_raw(tid), nice.into()).map_err(|error| match error {
        rustix::io::Errno::ACCESS => rustix::io::Errno::PERM, // as sched_setattr(2) says it
        other => other,
    })?;
    let kept = if flags & RESET_ON_FORK == 0 { 0 } else { libc::SCHED_RESET_ON_FORK };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call, which reads them.
    let answer = unsafe { libc::sched_setscheduler(tid, libc::SCHED_OTHER | kept, &raw const parameters) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the thread run only while its processor is idle (SCHED_IDLE): it keeps the processor awake, and holds up no
/// other.
///
/// # Errors
/// The thread is gone, or another user's.
pub fn set_idle(tid: i32) -> io::Result<()> {
    let before = attributes(tid)?;
    let policy = libc::SCHED_IDLE.unsigned_abs();
    set_attributes(
        tid,
        &libc::sched_attr { sched_policy: policy, ..wanted(&Scheduling::default(), before.sched_flags) },
    )
}

/// Gives the calling thread of policy OTHER this slice ([`crate::thread::Settings::slice_ns`]), or with 0 the
/// default. A kernel without slices ignores it.
pub(crate) fn set_slice(slice_ns: u64) {
    if let Ok(before) = attributes(0) {
        let nice = i8::try_from(before.sched_nice).unwrap_or(0);
        let same = wanted(&Scheduling { policy: Policy::Other, nice }, before.sched_flags);
        let _ = set_attributes(0, &libc::sched_attr { sched_runtime: slice_ns, ..same });
    }
}

/// The calling thread's slice in nanoseconds; 0 if the kernel has none.
#[cfg(test)]
pub(crate) fn slice() -> u64 {
    attributes(0).map_or(0, |found| found.sched_runtime)
}

/// Lets the thread run on these processors only.
///
/// # Errors
/// As [`set`]; [`Reason::Invalid`] if none of the processors exists or may be used.
pub fn set_affinity(tid: i32, cpus: &[u16]) -> Result<(), SchedError> {
    let mut set = CpuSet::new();
    cpus.iter().map(|c| usize::from(*c)).filter(|c| *c < CpuSet::MAX_CPU).for_each(|c| set.set(c));
    rustix::thread::sched_setaffinity(Pid::from_raw(tid), &set)
        .map_err(|error| refusal::of_affinity(tid, cpus, error.into()))
}

/// Sets both at once, in the order that the kernel allows (a reservation needs all processors). `None`: unchanged.
///
/// # Errors
/// As [`set`]; then neither is changed.
pub fn apply(tid: i32, scheduling: Option<&Scheduling>, affinity: Option<&[u16]>) -> Result<(), SchedError> {
    if scheduling.is_none() && affinity.is_none() {
        return Ok(());
    }
    let before = read(tid).map_err(|error| refusal::of_scheduling(tid, &Scheduling::default(), error))?;
    // Restoring processors needs no permission, restoring a lower nice value does. A thread with a reservation has to
    // leave it first.
    let processors_first = !matches!(before.policy, Some(Policy::Deadline { .. }));
    let policy = || scheduling.map_or(Ok(()), |to| set(tid, to));
    let processors = || affinity.map_or(Ok(()), |cpus| set_affinity(tid, cpus));
    let done =
        if processors_first { processors().and_then(|()| policy()) } else { policy().and_then(|()| processors()) };
    done.inspect_err(|_| put_back(&before))
}

/// Limit of looks at a process that starts threads faster than they are found.
const MOST_LOOKS: usize = 100;

/// Sets all threads of a process, including those that start meanwhile; `None`: unchanged. 0 is the calling process.
/// Returns the number of threads that were set. Threads started later inherit the settings, except a reservation.
///
/// # Errors
/// As [`set`]; threads that were changed already are restored.
pub fn set_process(pid: i32, scheduling: Option<&Scheduling>, affinity: Option<&[u16]>) -> Result<usize, SchedError> {
    let mut seen = BTreeSet::new();
    let mut before = Vec::new();
    let done = (0..MOST_LOOKS).try_fold(true, |more, _| {
        if !more {
            return Ok(false);
        }
        let fresh: Vec<i32> = threads(pid)?.into_iter().filter(|tid| seen.insert(*tid)).collect();
        for tid in &fresh {
            let Ok(found) = read(*tid) else { continue }; // ended meanwhile
            match apply(*tid, scheduling, affinity) {
                Ok(()) => before.push(found),
                Err(SchedError { reason: Reason::NoSuchThread, .. }) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(!fresh.is_empty())
    });
    match done {
        Ok(_) => Ok(before.len()),
        Err(refused) => {
            before.iter().for_each(put_back);
            Err(refused)
        }
    }
}

/// The threads a process has now.
fn threads(pid: i32) -> Result<Vec<i32>, SchedError> {
    let place = if pid == 0 { "/proc/self/task".to_owned() } else { format!("/proc/{pid}/task") };
    let listing = std::fs::read_dir(place).map_err(|error| refusal::of_process(pid, error))?;
    Ok(listing.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Restores a thread. Fails only for a thread that is gone, which has nothing to restore.
fn put_back(before: &Scheduled) {
    let reserved = matches!(before.policy, Some(Policy::Deadline { .. }));
    if reserved {
        let _ = set_affinity(before.tid, &before.affinity);
    }
    if let Some(scheduling) = before.scheduling() {
        let _ = set(before.tid, &scheduling);
    }
    if !reserved {
        let _ = set_affinity(before.tid, &before.affinity);
    }
}

/// Keeps the process's memory resident: no sample waits for a page that was written out. Pages are locked when they
/// are touched, now and later: shared memory is reserved by the gigabyte and hardly touched (MCL_ONFAULT).
///
/// # Errors
/// [`Reason::MemoryLimit`] or [`Reason::MissingCapability`] with the remedy.
pub fn lock_memory() -> Result<(), SchedError> {
    use rustix::mm::MlockAllFlags;
    rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|error| refusal::of_memory_lock(error.into()))
}

/// The kernel's form of the request. A reservation must not pass to threads that this one starts (they could not be
/// started at all). The flag for that, once set, is cleared only by a process that may set priorities.
fn wanted(to: &Scheduling, before: u64) -> libc::sched_attr {
    let (mut runtime, mut deadline, mut period) = (0, 0, 0);
    let mut flags = before & RESET_ON_FORK;
    if let Policy::Deadline { runtime_ns, deadline_ns, period_ns } = to.policy {
        (runtime, deadline, period) = (runtime_ns, deadline_ns, period_ns);
        flags = RESET_ON_FORK;
    }
    libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: to.policy.number().unsigned_abs(),
        sched_flags: flags,
        sched_nice: to.nice.into(),
        sched_priority: to.policy.priority().into(),
        sched_runtime: runtime,
        sched_deadline: deadline,
        sched_period: period,
    }
}

const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;

#[allow(unsafe_code)]
fn attributes(tid: i32) -> io::Result<libc::sched_attr> {
    let mut found = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `size` bytes to `found`, which has as many and may hold any bytes.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, size as u32, 0u32) };
    if answer == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code)]
fn set_attributes(tid: i32, to: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads `to.size` bytes from `to`, which has as many.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const *to, 0u32) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
