//! Another process of this host.

use super::Tree;

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
}
