//! The monotonic clock, and its identity.

use std::{fs, io};

/// Nanoseconds of `CLOCK_MONOTONIC`. One vDSO call, no system call on x86-64 and arm64.
#[inline]
pub fn monotonic_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds since 1970 by the wall clock. Only for people and for incarnation numbers, never for a decision.
pub fn wall_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}

/// Processor time of this process, user and system, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    (t.tv_sec as u64) * 1_000_000_000 + t.tv_nsec as u64
}

/// Process numbers are not above this (`PID_MAX_LIMIT`).
const MOST_PROCESSES: u32 = 1 << 22;

/// Processor time of another process so far, in nanoseconds, including threads that have ended.
///
/// # Errors
/// There is no process of this number.
#[allow(unsafe_code)]
pub fn cpu_ns_of(process: u32) -> io::Result<u64> {
    // The C library shifts a larger number, or 0, into the number of another clock: this process's own.
    if process == 0 || process > MOST_PROCESSES {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the C library writes one clock id to `clock`.
    let answer = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) };
    if answer != 0 {
        return Err(io::Error::from_raw_os_error(answer));
    }
    // SAFETY: the kernel writes one timespec to `time`.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Two processes with equal clock ids read the very same monotonic clock (offset exactly 0):
/// the boot id of the machine and the time namespace.
pub fn clock_id() -> String {
    format!("{}/{}", boot_id(), namespace("time"))
}

/// Host identity: the boot id and the network namespace, never the name (two hosts of the lab share a kernel and a
/// name).
pub fn host_id() -> String {
    format!("{}/{}", boot_id(), namespace("net"))
}

/// The identity of the machine's boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|s| s.trim().to_owned()).unwrap_or_default()
}

fn namespace(kind: &str) -> String {
    fs::read_link(format!("/proc/self/ns/{kind}"))
        .ok()
        .and_then(|p| p.to_str().map(|s| s.chars().filter(char::is_ascii_digit).collect()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_threads_that_ended_counts() {
        let me = std::process::id();
        let before = cpu_ns_of(me).unwrap();
        let spin = || {
            let until = process_cpu_ns() + 5_000_000;
            while process_cpu_ns() < until {}
        };
        std::thread::spawn(spin).join().unwrap();
        assert!(cpu_ns_of(me).unwrap() >= before + 5_000_000);
        for nobody in [0, MOST_PROCESSES + 1, u32::MAX >> 1, u32::MAX] {
            assert!(cpu_ns_of(nobody).is_err(), "{nobody}");
        }
    }

    #[test]
    fn monotonic_never_steps_back_and_identity_is_stable() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
        assert_eq!(clock_id(), clock_id());
        assert!(host_id().contains('/') && host_id().len() > 36, "{}", host_id());
    }
}
