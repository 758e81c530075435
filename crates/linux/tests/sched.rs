//! Scheduling in the kernel after a change, and real refusals.
#![allow(clippy::unwrap_used)] // clippy.toml exempts test functions only, not their helpers

use qos::priority::{Policy, Scheduling};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use thalweg_linux::sched::{self, Reason, Scheduled};
use thalweg_linux::thread::{Settings, start};

const DEADLINE: Policy = Policy::Deadline { runtime_ns: 1_000_000, deadline_ns: 5_000_000, period_ns: 10_000_000 };

/// Reservations belong to the machine: tests that make some take turns.
static RESERVATIONS: Mutex<()> = Mutex::new(());

fn in_turn() -> MutexGuard<'static, ()> {
    RESERVATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that sleeps until it is released.
struct Sleeper {
    tid: i32,
    thread: Option<JoinHandle<()>>,
    release: Option<mpsc::Sender<()>>,
}

impl Sleeper {
    fn new() -> Self {
        let (release, released) = mpsc::channel();
        let (thread, tid) = start(Settings::named("sleeper"), move || while released.recv().is_ok() {}).unwrap();
        Self { tid, thread: Some(thread), release: Some(release) }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.release.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn fifo(priority: u8) -> Scheduling {
    Policy::Fifo(priority).into()
}

/// Policy and priority from `/proc/TID/sched` (the kernel's own `prio` is 99 − priority), if there is that file.
fn from_outside(tid: i32) -> Option<(u32, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/sched")).ok()?;
    let value = |name: &str| text.lines().find(|l| l.split(' ').next() == Some(name))?.rsplit(' ').next();
    Some((value("policy")?.parse().ok()?, value("prio")?.parse().ok()?))
}

/// `true` if this process may schedule; prints the reason if not.
fn may_schedule(test: &str) -> bool {
    let probe = Sleeper::new();
    match sched::set(probe.tid, &fifo(1)) {
        Ok(()) => true,
        Err(refused) => {
            println!("skipped: {test}: because {refused}");
            false
        }
    }
}

#[test]
fn settings_are_read_back_from_the_kernel() {
    let _turn = in_turn();
    if !may_schedule("settings_are_read_back_from_the_kernel") {
        return;
    }
    let sleeper = Sleeper::new();
    for (policy, seen) in [
        (fifo(30), (1, 69)),
        (Policy::RoundRobin(99).into(), (2, 0)),
        (Scheduling { policy: Policy::Other, nice: -7 }, (0, 113)),
        (DEADLINE.into(), (6, -1)),
        (Scheduling::default(), (0, 120)),
    ] {
        sched::set(sleeper.tid, &policy).unwrap();
        assert_eq!(sched::read(sleeper.tid).unwrap().scheduling(), Some(policy));
        if let Some(outside) = from_outside(sleeper.tid) {
            assert_eq!(outside, seen, "{policy}");
        }
    }
    sched::set_affinity(sleeper.tid, &[0]).unwrap();
    let found = sched::read(sleeper.tid).unwrap();
    assert_eq!((found.affinity.as_slice(), found.tid, found.policy_name()), (&[0][..], sleeper.tid, "other"));
}

#[test]
fn a_thread_starts_with_its_priority() {
    if !may_schedule("a_thread_starts_with_its_priority") {
        return;
    }
    let (tell, told) = mpsc::channel();
    let settings = Settings { scheduling: Some(fifo(12)), affinity: Some(vec![0]), ..Settings::named("ranked") };
    let (thread, tid) = start(settings, move || drop(tell.send(sched::read(0).unwrap()))).unwrap();
    let Scheduled { tid: own, policy, affinity, .. } = told.recv().unwrap();
    assert_eq!((own, policy, affinity), (tid, Some(Policy::Fifo(12)), vec![0]));
    thread.join().unwrap();
}

#[test]
fn reservations_and_processors_do_not_go_together() {
    let _turn = in_turn();
    if !may_schedule("reservations_and_processors_do_not_go_together") {
        return;
    }
    let sleeper = Sleeper::new();
    if sched::read(sleeper.tid).unwrap().affinity.len() < 2 {
        return println!("skipped: reservations_and_processors_do_not_go_together: because there is one processor");
    }
    let all = sched::read(sleeper.tid).unwrap();
    let refused = sched::apply(sleeper.tid, Some(&DEADLINE.into()), Some(&[0])).unwrap_err();
    assert!(matches!(refused.reason, Reason::AffinityWithDeadline), "{refused}");
    assert_eq!(sched::read(sleeper.tid).unwrap(), all, "something was left half done");
    sched::set(sleeper.tid, &DEADLINE.into()).unwrap();
    let refused = sched::set_affinity(sleeper.tid, &[0]).unwrap_err();
    assert!(matches!(refused.reason, Reason::AffinityWithDeadline), "{refused}");
    // From a reservation to a pinned priority in one step.
    sched::apply(sleeper.tid, Some(&fifo(3)), Some(&[0])).unwrap();
    let refused = sched::apply(sleeper.tid, Some(&DEADLINE.into()), None).unwrap_err();
    assert!(refused.to_string().contains("affinity=default"), "{refused}");
    assert_eq!(sched::read(sleeper.tid).unwrap().policy, Some(Policy::Fifo(3)));
}

#[test]
fn more_than_the_processors_can_keep_is_not_admitted() {
    let _turn = in_turn();
    if !may_schedule("more_than_the_processors_can_keep_is_not_admitted") {
        return;
    }
    let whole = Policy::Deadline { runtime_ns: 9_990_000, deadline_ns: 10_000_000, period_ns: 10_000_000 };
    let sleepers: Vec<_> = (0..=sched::read(0).unwrap().affinity.len()).map(|_| Sleeper::new()).collect();
    let refused = sleepers.iter().find_map(|sleeper| sched::set(sleeper.tid, &whole.into()).err()).unwrap();
    let Reason::DeadlineAdmission(admission) = &refused.reason else { panic!("{refused}") };
    let limit = admission.limit_percent.unwrap();
    assert!(admission.asked_percent > 99.0 && limit <= 95.0 * sleepers.len() as f64, "{refused}");
    // What is there counts, the refused one does not.
    let admitted = sleepers.iter().filter(|one| is_reserved(one.tid)).count() as f64;
    assert!(admission.reserved_percent >= 99.9 * admitted - 0.01, "{refused}");
    assert!(
        admission.asked_percent + admission.reserved_percent + 5.0 * (sleepers.len() - 1) as f64 > limit,
        "{refused}"
    );
    assert!(
        refused.to_string().contains("is more than the kernel's limit, ") && refused.remedy.contains("less runtime"),
        "{refused}"
    );
}

#[test]
fn what_a_waiting_thread_had_reserved_is_free_again() {
    let _turn = in_turn();
    if !may_schedule("what_a_waiting_thread_had_reserved_is_free_again") {
        return;
    }
    let third = Policy::Deadline { runtime_ns: 3_000_000, deadline_ns: 10_000_000, period_ns: 10_000_000 };
    // Many times what all processors can keep.
    let times = 20 * sched::read(0).unwrap().affinity.len();
    for back in [Scheduling::default(), fifo(3)].iter().cycle().take(times) {
        let sleeper = Sleeper::new();
        sched::set(sleeper.tid, &third.into()).unwrap();
        sched::set(sleeper.tid, back).unwrap();
        assert_eq!(sched::read(sleeper.tid).unwrap().policy, Some(back.policy));
    }
}

fn is_reserved(tid: i32) -> bool {
    matches!(sched::read(tid).unwrap().policy, Some(Policy::Deadline { .. }))
}

#[test]
fn a_period_that_the_kernel_does_not_take_is_refused_with_its_limits() {
    let _turn = in_turn();
    if !may_schedule("a_period_that_the_kernel_does_not_take_is_refused_with_its_limits") {
        return;
    }
    let sleeper = Sleeper::new();
    let short = Policy::Deadline { runtime_ns: 10_000, deadline_ns: 50_000, period_ns: 50_000 };
    match sched::set(sleeper.tid, &short.into()) {
        Ok(()) => println!("skipped: because this kernel has no shortest period, or one below 50 us"),
        Err(refused) => {
            assert!(
                matches!(refused.reason, Reason::Period { asked_us: 50, limits_us: [least, _] } if least > 50),
                "{refused}"
            );
        }
    }
}

#[test]
fn missing_threads_are_reported() {
    let gone = Sleeper::new().tid; // dropped here
    let refused = sched::set(gone, &Scheduling::default()).unwrap_err();
    assert!(matches!(refused.reason, Reason::NoSuchThread), "{refused}");
    assert_eq!(sched::read(gone).unwrap_err().raw_os_error(), Some(3));
    let refused = sched::set_affinity(0, &[1023]).unwrap_err();
    assert!(matches!(refused.reason, Reason::Invalid) && refused.remedy.contains('0'), "{refused}");
    assert!(matches!(sched::set_process(i32::MAX, None, None).unwrap_err().reason, Reason::NoSuchThread));
}

/// A process of its own, so that other tests' threads do not change.
fn child(test: &str, unprivileged: bool) -> Option<std::process::Output> {
    // By its descriptor: another user may not reach the folder that it lies in.
    let program = std::fs::File::open(std::env::current_exe().ok()?).ok()?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command
        .args(["--exact", &format!("sched::{test}"), "--ignored", "--nocapture"])
        .env("THALWEG_TEST_CHILD", "1")
        .current_dir("/");
    if unprivileged {
        command.uid(65534).gid(65534);
    }
    command.output().inspect_err(|error| println!("skipped: {test}: because {error}")).ok()
}

fn passed(output: &std::process::Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
fn a_whole_process_is_set_or_left() {
    let _turn = in_turn();
    if may_schedule("a_whole_process_is_set_or_left")
        && let Some(output) = child("whole_process_child", false)
    {
        passed(&output);
    }
}

#[test]
#[ignore = "run by a_whole_process_is_set_or_left in a process of its own"]
fn whole_process_child() {
    if std::env::var_os("THALWEG_TEST_CHILD").is_none() {
        return;
    }
    let sleepers = [Sleeper::new(), Sleeper::new()];
    let set = sched::set_process(0, Some(&fifo(5)), None).unwrap();
    assert!(set >= 3, "{set} threads");
    for tid in sleepers.iter().map(|s| s.tid).chain([sched::current()]) {
        assert_eq!(sched::read(tid).unwrap().policy, Some(Policy::Fifo(5)));
    }
    // One of them may not: all are as before. It is the last one: threads are listed in the order they started.
    let last = Sleeper::new();
    if sched::read(last.tid).unwrap().affinity.len() > 1 {
        sched::set(last.tid, &DEADLINE.into()).unwrap();
        let refused = sched::set_process(0, None, Some(&[0])).unwrap_err();
        assert!(matches!(refused.reason, Reason::AffinityWithDeadline), "{refused}");
        let affinities = sleepers.iter().map(|s| sched::read(s.tid).unwrap().affinity.len());
        assert!(affinities.into_iter().all(|processors| processors > 1));
    }
}

#[test]
fn a_missing_permission_is_named() {
    if rustix::process::geteuid().is_root() {
        if let Some(output) = child("unprivileged_child", true) {
            passed(&output);
        }
    } else {
        unprivileged();
    }
}

#[test]
#[ignore = "run by a_missing_permission_is_named as another user"]
fn unprivileged_child() {
    if std::env::var_os("THALWEG_TEST_CHILD").is_some() {
        unprivileged();
    }
}

fn unprivileged() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Rtprio).current;
    for asked in [fifo(30), DEADLINE.into(), Scheduling { policy: Policy::Other, nice: -5 }] {
        if limit != Some(0) && asked == fifo(30) {
            println!("skipped: fifo:30 in a_missing_permission_is_named: because RLIMIT_RTPRIO is {limit:?}");
            continue;
        }
        let refused = sched::set(0, &asked).unwrap_err();
        assert!(matches!(refused.reason, Reason::MissingCapability("CAP_SYS_NICE")), "{refused}");
        assert!(refused.remedy.contains("setcap cap_sys_nice+ep /"), "{refused}");
        assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::PermissionDenied);
    }
    let (before, nicer) = (sched::read(0).unwrap(), Scheduling { policy: Policy::Other, nice: 19 });
    sched::apply(0, Some(&nicer), Some(&[1023])).unwrap_err();
    assert_eq!(
        sched::read(0).unwrap(),
        before,
        "what is refused in part changes nothing, though it could not be taken back"
    );
    sched::set(0, &nicer).unwrap(); // allowed from any present value
    match sched::lock_memory() {
        Ok(()) => {}
        Err(refused) => assert!(refused.remedy.contains("cap_ipc_lock"), "{refused}"),
    }
}

/// A group of the cpu controller (version 1), removed at the end.
struct Group(std::path::PathBuf);

impl Group {
    fn new() -> std::io::Result<Self> {
        let place = std::path::PathBuf::from(format!("/sys/fs/cgroup/cpu/thalweg-test-{}", std::process::id()));
        std::fs::create_dir(&place)?;
        let group = Self(place);
        std::fs::metadata(group.0.join("cpu.rt_runtime_us"))?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_group_without_budget_is_named_with_the_command_that_gives_one() {
    const NAME: &str = "a_group_without_budget_is_named_with_the_command_that_gives_one";
    if !may_schedule(NAME) {
        return;
    }
    let group = match Group::new() {
        Ok(group) => group,
        Err(error) => return println!("skipped: {NAME}: because there is no cpu group of version 1 to make: {error}"),
    };
    let sleeper = Sleeper::new();
    std::fs::write(group.0.join("tasks"), sleeper.tid.to_string()).unwrap();
    let refused = sched::set(sleeper.tid, &fifo(30)).unwrap_err();
    let file = group.0.join("cpu.rt_runtime_us");
    assert!(
        matches!(&refused.reason, Reason::RtGroupBudget { file: said } if *said == file.display().to_string()),
        "{refused}"
    );
    assert!(refused.remedy.contains(&format!("echo 300000 > {}", file.display())), "{refused}");
    std::fs::write(file, "300000").unwrap();
    sched::set(sleeper.tid, &fifo(30)).unwrap();
    sched::set(sleeper.tid, &Scheduling::default()).unwrap();
    drop(sleeper);
}

#[test]
fn memory_is_locked_or_the_limit_is_named() {
    if let Some(output) = child("memory_child", false) {
        passed(&output);
    }
}

#[test]
#[ignore = "run by memory_is_locked_or_the_limit_is_named in a process of its own"]
fn memory_child() {
    if std::env::var_os("THALWEG_TEST_CHILD").is_none() {
        return;
    }
    match sched::lock_memory() {
        Ok(()) => {
            let touched = vec![1u8; 1 << 20];
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:")).unwrap().trim();
            let kib: u64 = locked.split_whitespace().next().unwrap().parse().unwrap();
            assert!(kib >= 1024, "{locked} locked, {} touched", touched.len());
        }
        Err(refused) => assert!(matches!(refused.reason, Reason::MemoryLimit { .. }), "{refused}"),
    }
}
