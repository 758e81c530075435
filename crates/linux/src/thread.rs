//! Threads with explicit scheduling, stack size and name, which do not inherit settings from the creator by chance.

use crate::sched::{self, SchedError};
use qos::priority::Scheduling;
use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Settings of a new thread.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Shown by `top -H` and `ps -L`; the kernel keeps 15 bytes.
    pub name: String,
    /// Stack size in bytes. Default 256 KiB; only touched pages cost memory.
    pub stack: usize,
    /// Processors the thread may run on, by number. Default: those of its creator.
    pub affinity: Option<Vec<u16>>,
    /// Policy and priority. Default: OTHER, at its creator's nice value.
    pub scheduling: Option<Scheduling>,
    /// Slice of policy OTHER in nanoseconds, 100 µs to 100 ms (EEVDF, Linux 6.12): a thread that wakes up takes the processor from one
    /// whose slice is longer. Shares stay as they are. Default: the kernel's (about 3 ms). Older kernels know none and ignore it.
    pub slice_ns: Option<u64>,
    /// Start also if the kernel refuses the scheduling or the processors. Default: no.
    pub best_effort: bool,
}

impl Settings {
    /// The defaults, with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            stack: 256 * 1024,
            affinity: None,
            scheduling: None,
            slice_ns: None,
            best_effort: false,
        }
    }
}

/// Starts a thread with scheduling policy OTHER (for any policy of its creator), or with that of the settings.
///
/// # Errors
/// As [`start`].
pub fn spawn<F: FnOnce() + Send + 'static>(settings: Settings, body: F) -> io::Result<JoinHandle<()>> {
    if settings.affinity.is_some() || settings.scheduling.is_some() {
        return start(settings, body).map(|(thread, _)| thread);
    }
    builder(&settings).spawn(move || {
        reset_policy(settings.slice_ns);
        body();
    })
}

/// Starts as [`spawn`] does, waits until the thread runs with its settings, and returns its id too.
///
/// # Errors
/// The kernel gives no thread; or it refuses the scheduling, with a [`SchedError`] inside: then `body` does not run.
pub fn start<F: FnOnce() + Send + 'static>(settings: Settings, body: F) -> io::Result<(JoinHandle<()>, i32)> {
    let builder = builder(&settings);
    let (tell, told) = mpsc::sync_channel(1);
    let thread = builder.spawn(move || {
        let ready = prepare(&settings);
        let goes_on = ready.is_ok();
        let _ = tell.send(ready.map(|()| sched::current()));
        if goes_on {
            body();
        }
    })?;
    let tid = told.recv().map_err(io::Error::other)??;
    Ok((thread, tid))
}

fn builder(settings: &Settings) -> std::thread::Builder {
    std::thread::Builder::new().name(settings.name.chars().take(15).collect()).stack_size(settings.stack)
}

fn prepare(settings: &Settings) -> Result<(), SchedError> {
    reset_policy(settings.slice_ns);
    let done = sched::apply(0, settings.scheduling.as_ref(), settings.affinity.as_deref());
    done.or_else(|refused| if settings.best_effort { Ok(()) } else { Err(refused) })
}

/// Sets the calling thread to SCHED_OTHER with this slice or the default, without changing its nice value. Giving up
/// a priority needs no permission.
#[allow(unsafe_code)]
fn reset_policy(slice_ns: Option<u64>) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread, and the parameters outlive the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &parameters) };
    sched::set_slice(slice_ns.unwrap_or(0)); // it has its creator's
}

/// Pins the calling thread to these processors.
///
/// # Errors
/// EINVAL if none of them exists or may be used.
pub fn pin(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().filter(|c| **c < rustix::thread::CpuSet::MAX_CPU).for_each(|c| set.set(*c));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Number of threads of this process (`/proc/self/task`).
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
    use qos::priority::Policy;

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

    #[test]
    fn a_thread_starts_with_its_slice() {
        let settings = Settings { slice_ns: Some(7_000_000), ..Settings::named("slice") };
        let (tell, told) = mpsc::channel();
        spawn(settings, move || tell.send(sched::slice()).unwrap()).unwrap().join().unwrap();
        let own = sched::slice();
        // Kernels before 6.12 know no slices.
        assert_eq!(told.recv().unwrap(), if own == 0 { 0 } else { 7_000_000 });
    }

    #[test]
    fn a_slice_outlasts_other_policies_and_is_not_passed_on() {
        let default = sched::slice();
        let slice = if default == 0 { 0 } else { 7_000_000 }; // as above
        let settings = Settings { slice_ns: Some(7_000_000), ..Settings::named("slice") };
        let body = move || {
            let (tell, told) = mpsc::channel();
            spawn(Settings::named("another"), move || tell.send(sched::slice()).unwrap()).unwrap().join().unwrap();
            assert_eq!(told.recv().unwrap(), default, "a thread that it starts");
            let nice = Scheduling { nice: sched::read(0).unwrap().nice.max(1), ..Scheduling::default() };
            sched::set(0, &nice).unwrap();
            assert_eq!(sched::slice(), slice, "after another nice value");
            for policy in [Policy::Fifo(1), Policy::RoundRobin(1)] {
                match sched::set(0, &Scheduling { policy, nice: 0 }) {
                    Err(refused) => println!("skipped: {policy:?}: because {refused}"),
                    Ok(()) => {
                        sched::set(0, &nice).unwrap();
                        assert_eq!(sched::slice(), slice, "after {policy:?}");
                    }
                }
            }
        };
        spawn(settings, body).unwrap().join().unwrap();
    }

    #[test]
    fn a_thread_that_cannot_be_as_asked_does_not_run() {
        let settings = Settings { affinity: Some(vec![1023]), ..Settings::named("nowhere") };
        let refused = start(settings, || panic!("it ran")).unwrap_err();
        let inner = refused.get_ref().and_then(|e| e.downcast_ref::<SchedError>()).unwrap();
        assert!(matches!(inner.reason, sched::Reason::Invalid), "{inner}");
        let settings = Settings { affinity: Some(vec![1023]), best_effort: true, ..Settings::named("somewhere") };
        let (thread, tid) = start(settings, || {}).unwrap();
        thread.join().unwrap();
        assert_ne!(tid, 0);
    }
}
