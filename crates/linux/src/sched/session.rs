//! Sessions that share the processors (autogroup in sched(7)): the kernel gives each session a group, such as all programs of one terminal. Policy OTHER
//! and nice values decide within a group only; between groups their own nice values do.

use rustix::process::{getpid, getsid};

/// Gives the group of the calling process's session this nice value, if the process leads the session: a program of a terminal would slow
/// down those that are started in it later. `false`: it does not lead it, or this kernel has no such groups.
pub fn lower_session(nice: i8) -> bool {
    let leads = getsid(None).is_ok_and(|session| session == getpid());
    leads && std::fs::write("/proc/self/autogroup", nice.to_string()).is_ok()
}
