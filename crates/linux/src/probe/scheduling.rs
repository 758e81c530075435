//! Limits on threads: real-time throttling, group budgets and quotas; and threads that take a whole processor.

use super::Tree;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Throttling and budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Microseconds that real-time threads may run per period; −1: without limit.
    pub runtime_us: Option<i64>,
    /// The period in microseconds.
    pub period_us: Option<i64>,
    /// The processor group of this process.
    pub group: Option<Group>,
}

/// A control group and the budgets of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its folder, as a path from the root.
    pub folder: String,
    /// Microseconds for its real-time threads per period (RT_GROUP_SCHED); `None`: the kernel has no such budgets.
    pub runtime_us: Option<i64>,
    /// Quota and period of its ordinary threads in microseconds; `None`: no quota.
    pub quota_us: Option<(u64, u64)>,
    /// Number of times that its threads were stopped at the end of their quota.
    pub throttled: u64,
}

/// Reads them.
pub(super) fn read(tree: &Tree) -> Scheduling {
    Scheduling {
        runtime_us: tree.number("proc/sys/kernel/sched_rt_runtime_us"),
        period_us: tree.number("proc/sys/kernel/sched_rt_period_us"),
        group: group(tree),
    }
}

/// Version 1 groups are mounted per controller, version 2 groups together.
fn group(tree: &Tree) -> Option<Group> {
    let memberships = tree.text("proc/self/cgroup")?;
    let of = |wanted: &str| {
        memberships.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|c| c == wanted).then_some(path)
        })
    };
    let places =
        [("sys/fs/cgroup/cpu", of("cpu")), ("sys/fs/cgroup/cpu,cpuacct", of("cpu")), ("sys/fs/cgroup", of(""))];
    // In a container the path may start above the mounted root.
    let folders = places.into_iter().flat_map(|(mount, path)| {
        path.into_iter().flat_map(move |path| [format!("{mount}{}", path.trim_end_matches('/')), mount.to_owned()])
    });
    folders.map(|folder| read_group(tree, folder)).find(|group| group.is_some())?
}

fn read_group(tree: &Tree, folder: String) -> Option<Group> {
    let file = |name: &str| format!("{folder}/{name}");
    let runtime_us = tree.number(&file("cpu.rt_runtime_us"));
    let old = || Some((tree.number(&file("cpu.cfs_quota_us"))?, tree.number(&file("cpu.cfs_period_us"))?));
    let new = || {
        let text = tree.text(&file("cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        Some((quota.parse().ok()?, period.parse().ok()?))
    };
    let statistics = tree.text(&file("cpu.stat"));
    let throttled = statistics.iter().flat_map(|text| text.lines()).find_map(|l| l.strip_prefix("nr_throttled "));
    let throttled = throttled.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    (statistics.is_some() || runtime_us.is_some()).then(|| Group {
        runtime_us,
        quota_us: old().or_else(new),
        throttled,
        folder: format!("/{folder}"),
    })
}

/// A thread with real-time priority that takes (nearly) all of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hog {
    /// The thread.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// Its real-time priority.
    pub priority: u32,
    /// Its share of one processor in percent.
    pub percent: u32,
}

/// Real-time threads of programs that took at least `percent` of a processor while this call waited for `watch`.
pub fn hogs(tree: &Tree, watch: Duration, percent: u32) -> Vec<Hog> {
    let (before, start) = (real_time_threads(tree), Instant::now());
    if before.is_empty() {
        return Vec::new();
    }
    std::thread::sleep(watch);
    busy(&before, &real_time_threads(tree), start.elapsed(), percent)
}

/// A thread's name, priority and nanoseconds run so far.
type Threads = BTreeMap<u32, (String, u32, u64)>;

fn busy(before: &Threads, after: &Threads, elapsed: Duration, percent: u32) -> Vec<Hog> {
    let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
    let hog = |(tid, (name, priority, ran)): (&u32, &(String, u32, u64))| {
        let share = ran.saturating_sub(before.get(tid)?.2).saturating_mul(100) / elapsed;
        let share = u32::try_from(share).unwrap_or(u32::MAX);
        (share >= percent).then(|| Hog { tid: *tid, name: name.clone(), priority: *priority, percent: share })
    };
    after.iter().filter_map(hog).collect()
}

fn real_time_threads(tree: &Tree) -> Threads {
    let processes = tree.names("proc").into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
    let threads = processes.flat_map(|process| {
        let folder = format!("proc/{process}/task");
        tree.names(&folder).into_iter().map(move |thread| format!("{folder}/{thread}"))
    });
    threads.filter_map(|thread| real_time_thread(tree, &thread)).collect()
}

/// proc_pid_stat(5): the name may hold anything, so that the columns count from its end.
fn real_time_thread(tree: &Tree, folder: &str) -> Option<(u32, (String, u32, u64))> {
    const KERNEL_THREAD: u64 = 0x0020_0000; // PF_KTHREAD
    let text = tree.text(&format!("{folder}/stat"))?;
    let (start, columns) = text.rsplit_once(')')?;
    let (tid, name) = start.split_once('(')?;
    let columns: Vec<&str> = columns.split_whitespace().collect();
    let column = |number: usize| columns.get(number - 3).and_then(|c| c.parse::<u64>().ok());
    let (flags, priority, policy) = (column(9)?, column(40)?, column(41)?);
    let real_time = matches!(policy as i32, libc::SCHED_FIFO | libc::SCHED_RR);
    if !real_time || flags & KERNEL_THREAD != 0 {
        return None;
    }
    let ran = tree.text(&format!("{folder}/schedstat"))?.split_whitespace().next()?.parse().ok()?;
    Some((tid.trim().parse().ok()?, (name.to_owned(), u32::try_from(priority).ok()?, ran)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hog_is_who_ran_nearly_all_the_time() {
        let thread = |ran: u64| ("spin".to_owned(), 80, ran);
        let before = Threads::from([(7, thread(1_000)), (8, thread(0)), (9, thread(0))]);
        let after = Threads::from([(7, thread(95_001_000)), (8, thread(3_000_000)), (10, thread(100_000_000))]);
        let found = busy(&before, &after, Duration::from_millis(100), 80);
        assert_eq!(found, [Hog { tid: 7, name: "spin".into(), priority: 80, percent: 95 }]);
    }

    #[test]
    fn threads_of_the_kernel_and_ordinary_ones_are_no_hogs() {
        let root = std::env::temp_dir().join(format!("thalweg-probe-{}", std::process::id()));
        let tree = Tree::at(&root);
        let stat = |flags: u64, priority: u32, policy: u32| {
            let middle = "0 ".repeat(30); // columns 10 … 39
            format!("7 (a (b) c) R 1 1 1 0 -1 {flags} {middle}{priority} {policy} 0 0")
        };
        let folder = root.join("proc/7/task/7");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("schedstat"), "1234 5 6").unwrap();
        let found = |text: String| {
            std::fs::write(folder.join("stat"), text).unwrap();
            real_time_threads(&tree)
        };
        assert_eq!(found(stat(0, 80, 1)), Threads::from([(7, ("a (b) c".into(), 80, 1234))]));
        assert!(found(stat(0x0020_0000, 50, 1)).is_empty() && found(stat(0, 0, 0)).is_empty());
        std::fs::remove_dir_all(root).unwrap();
    }
}
