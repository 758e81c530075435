//! Threads with explicit scheduling, stack size and name: none inherits what its creator happened to have.

use std::io;
use std::thread::JoinHandle;

/// What a new thread gets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shown by `top -H` and `ps -L`; the kernel keeps 15 bytes.
    pub name: String,
    /// Stack size in bytes. Default 256 KiB; only touched pages cost memory.
    pub stack: usize,
    /// Processors the thread may run on, by number. Default: those of the process when it started.
    pub affinity: Option<Vec<usize>>,
}

impl Settings {
    /// The defaults, with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), stack: 256 * 1024, affinity: None }
    }
}

/// Starts a thread with scheduling policy OTHER (whatever its creator has) and the given settings.
pub fn spawn<F: FnOnce() + Send + 'static>(settings: Settings, body: F) -> io::Result<JoinHandle<()>> {
    let Settings { name, stack, affinity } = settings;
    std::thread::Builder::new().name(name.chars().take(15).collect()).stack_size(stack).spawn(move || {
        reset_policy();
        if let Some(cpus) = affinity {
            let _ = pin(&cpus);
        }
        body();
    })
}

/// Sets the calling thread to SCHED_OTHER, nice 0 left as it is. Giving up a priority needs no permission.
#[allow(unsafe_code)]
fn reset_policy() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread, and the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
}

/// Pins the calling thread to these processors.
///
/// # Errors
/// EINVAL when none of them exists or may be used.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().filter(|c| **c < rustix::thread::CpuSet::MAX_CPU).for_each(|c| set.set(*c));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// How many threads this process has (`/proc/self/task`).
pub fn count() -> usize {
    std::fs::read_dir("/proc/self/task").map(|d| d.count()).unwrap_or(0)
}

/// Peak resident memory of this process in KiB (`VmHWM`).
pub fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_starts_with_its_name_and_processors() {
        let (tell, told) = std::sync::mpsc::channel();
        let settings = Settings { affinity: Some(vec![0]), ..Settings::named("reader-of-a-long-name") };
        let body = move || {
            let cpus = rustix::thread::sched_getaffinity(None).unwrap();
            let _ = tell.send((std::thread::current().name().map(str::to_owned), cpus.count()));
        };
        spawn(settings, body).unwrap().join().unwrap();
        assert_eq!(told.recv().unwrap(), (Some("reader-of-a-lon".to_owned()), 1));
    }
}
