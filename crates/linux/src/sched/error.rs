//! Errors of scheduling.

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
    DeadlineAdmission {
        /// The requested share of one processor, in percent.
        asked_percent: f64,
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
            Reason::DeadlineAdmission { asked_percent } => write!(
                f,
                "the kernel admits no further reservation of {asked_percent:.1} % of a processor beside those there are \
                 (how much is free it does not say)"
            ),
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
            Reason::Invalid | Reason::AffinityWithDeadline => io::ErrorKind::InvalidInput,
            Reason::DeadlineAdmission { .. } | Reason::MemoryLimit { .. } => io::ErrorKind::OutOfMemory,
            Reason::MissingCapability(_) | Reason::RtGroupBudget { .. } | Reason::Rlimit { .. } => {
                io::ErrorKind::PermissionDenied
            }
        };
        io::Error::new(kind, error)
    }
}
