//! Processes: privileges of this one (capabilities(7), getrlimit(2), from `proc/self`), and the state of another.

use super::{Tree, field};

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or waits for an event.
    Alive,
    /// It was stopped: by SIGSTOP, SIGTSTP, a debugger or a frozen control group.
    Stopped,
    /// It waits within the kernel, mostly for a disk, and handles no signal.
    Blocked,
    /// It ended, and its parent has not noticed.
    Zombie,
    /// There is no such process.
    Gone,
}

/// State of process `pid` (proc_pid_stat(5)).
pub fn state(tree: &Tree, pid: u32) -> State {
    let text = tree.text(&format!("proc/{pid}/stat"));
    let letter = text.as_deref().and_then(|text| text.rsplit_once(')')?.1.trim_start().chars().next());
    match letter {
        None => State::Gone,
        Some('T' | 't') => State::Stopped,
        Some('D') => State::Blocked,
        Some('Z' | 'X') => State::Zombie,
        Some(_) => State::Alive,
    }
}

/// Nanoseconds that a thread of process `pid` was ready to run and waited for a processor, since it started.
pub fn waited_ns(tree: &Tree, pid: u32, tid: i32) -> Option<u64> {
    tree.text(&format!("proc/{pid}/task/{tid}/schedstat"))?.split_whitespace().nth(1)?.parse().ok()
}

/// Capabilities and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privilege {
    /// The effective capabilities, one bit each.
    pub capabilities: Option<u64>,
    /// The effective user id.
    pub user: Option<u32>,
    /// RLIMIT_RTPRIO: the highest real-time priority without CAP_SYS_NICE.
    pub priority: Option<Limit>,
    /// RLIMIT_MEMLOCK in bytes.
    pub locked: Option<Limit>,
    /// RLIMIT_NOFILE.
    pub descriptors: Option<Limit>,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The effective limit; `u64::MAX` is no limit.
    pub soft: u64,
    /// The limit up to which the process may raise it.
    pub hard: u64,
}

/// A capability that Thalweg can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Queues, socket priorities above 6.
    NetAdmin = 12,
    /// Locking any amount of memory.
    IpcLock = 14,
    /// Real-time policies, negative nice values.
    SysNice = 23,
}

impl Privilege {
    /// `true` if this capability is effective; `None` if that cannot be read.
    pub fn has(&self, capability: Capability) -> Option<bool> {
        self.capabilities.map(|all| all >> capability as u32 & 1 == 1)
    }
}

/// Reads the privileges of this process.
pub(super) fn privilege(tree: &Tree) -> Privilege {
    let status = tree.text("proc/self/status").unwrap_or_default();
    let limits = tree.text("proc/self/limits").unwrap_or_default();
    let limit = |name: &str| limit(limits.lines().find_map(|line| line.strip_prefix(name))?);
    Privilege {
        capabilities: field(&status, "CapEff").and_then(|text| u64::from_str_radix(text, 16).ok()),
        user: field(&status, "Uid").and_then(|text| text.split_whitespace().nth(1)?.parse().ok()),
        priority: limit("Max realtime priority"),
        locked: limit("Max locked memory"),
        descriptors: limit("Max open files"),
    }
}

fn limit(columns: &str) -> Option<Limit> {
    let number = |text: &str| if text == "unlimited" { Some(u64::MAX) } else { text.parse().ok() };
    let mut columns = columns.split_whitespace().map(number);
    Some(Limit { soft: columns.next()??, hard: columns.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_process_zero_is_none() {
        assert_eq!(state(&Tree::host(), std::process::id()), State::Alive);
        assert_eq!(state(&Tree::host(), 0), State::Gone);
        let me = std::process::id();
        assert!(waited_ns(&Tree::host(), me, me as i32).is_some());
    }

    #[test]
    fn limits_are_read_with_and_without_a_number() {
        assert_eq!(limit("   0    99   "), Some(Limit { soft: 0, hard: 99 }));
        assert_eq!(limit(" 8388608 unlimited bytes"), Some(Limit { soft: 8_388_608, hard: u64::MAX }));
        assert_eq!((limit("bytes"), limit(" 1")), (None, None));
    }

    #[test]
    fn a_capability_is_one_bit() {
        let some = Privilege { capabilities: Some(1 << 23), ..Privilege::default() };
        assert_eq!((some.has(Capability::SysNice), some.has(Capability::NetAdmin)), (Some(true), Some(false)));
        assert_eq!(Privilege::default().has(Capability::SysNice), None);
    }
}
