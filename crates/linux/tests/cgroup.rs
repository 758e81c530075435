//! Limits of a control group of this test's own, by whichever version this machine has.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use thalweg_linux::cgroup::{self, Limit, Outcome, Reason};

/// A group in every hierarchy that has a controller of processors.
struct Group {
    name: String,
    places: Vec<PathBuf>,
}

impl Group {
    fn new(test: &str) -> Option<Self> {
        let name = format!("thalweg-{test}-{}", std::process::id());
        let tops = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"];
        let has = |top: &&&str| {
            let controllers = std::fs::read_to_string(Path::new(top).join("cgroup.controllers"));
            **top != "/sys/fs/cgroup" || controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
        };
        let places = tops.iter().filter(has).map(|top| Path::new(top).join(&name));
        let places: Vec<PathBuf> = places.filter(|place| std::fs::create_dir(place).is_ok()).collect();
        let limited =
            places.iter().any(|place| place.join("cpu.max").exists() || place.join("cpu.cfs_quota_us").exists());
        if !limited {
            println!("skipped: {test}: because this process can make no control group with a quota");
            return None;
        }
        let group = Self { name, places };
        // Version 1 wants the memory nodes first.
        for place in &group.places {
            let mems = std::fs::read(place.parent().unwrap().join("cpuset.mems")).unwrap_or_default();
            let _ = std::fs::write(place.join("cpuset.mems"), mems);
        }
        Some(group)
    }

    /// All files that limit it.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = ["cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpuset.cpus"];
        let all = self.places.iter().flat_map(|place| names.map(|name| place.join(name)));
        all.filter_map(|file| Some((file.clone(), std::fs::read(file).ok()?))).collect()
    }

    fn limit(&self, quota_us: u64) -> Limit {
        let cpus = self.files().iter().any(|(file, _)| file.ends_with("cpuset.cpus")).then(|| "0".to_owned());
        Limit { group: self.name.clone(), quota_us: Some(quota_us), cpus }
    }

    fn hog(&self) -> Hog {
        let hog = Hog(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        for place in &self.places {
            std::fs::write(place.join("cgroup.procs"), hog.0.id().to_string()).unwrap();
        }
        hog
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| drop(std::fs::remove_dir(place)));
    }
}

/// A program that computes without pause.
struct Hog(Child);

impl Hog {
    /// Processor time that it has used, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn directory(test: &str) -> PathBuf {
    std::env::temp_dir().join(format!("thalweg-cgroup-{test}-{}", std::process::id()))
}

#[test]
fn a_group_has_its_limits_and_gets_its_former_ones_back() {
    let Some(group) = Group::new("a_group_has_its_limits_and_gets_its_former_ones_back") else { return };
    let (directory, before) = (directory("limits"), group.files());
    let limited = cgroup::limit(&directory, &[group.limit(10_000)]).unwrap();
    let hog = group.hog();
    // A tenth of a processor: at most a fifth of what passes, which a busy machine only lessens.
    let (from, began) = (hog.ticks(), Instant::now());
    while began.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (used, passed) = (hog.ticks() - from, began.elapsed().as_millis() as u64 / 10);
    assert!(used * 5 <= passed, "{used} of {passed} ticks with a quota of 10 %");
    drop(hog);
    assert!(!limited.keep().is_empty());
    // A second call replaces the first, and one `restore` takes back both.
    drop(cgroup::limit(&directory, &[group.limit(20_000)]).unwrap().keep());
    let done = cgroup::restore(&directory).unwrap();
    assert!(!done.is_empty() && done.iter().all(|(_, outcome)| *outcome == Outcome::AsBefore), "{done:?}");
    assert_eq!(group.files(), before);
    assert!(cgroup::restore(&directory).unwrap().is_empty());
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn limits_are_set_all_or_none() {
    let Some(group) = Group::new("limits_are_set_all_or_none") else { return };
    let (directory, before) = (directory("none"), group.files());
    let absent = Limit { group: "thalweg-nobody".into(), quota_us: Some(10_000), cpus: None };
    let refused = cgroup::limit(&directory, &[group.limit(10_000), absent]).unwrap_err();
    assert!(
        matches!(refused.reason, Reason::NoGroup(_)) && refused.to_string().contains("make the group"),
        "{refused}"
    );
    assert_eq!(group.files(), before);
    // 0.01 % is less than the kernel's least quota: it refuses after the first limit was set.
    let refused = cgroup::limit(&directory, &[group.limit(10_000), group.limit(10)]).unwrap_err();
    assert!(matches!(refused.reason, Reason::Kernel(..)), "{refused}");
    assert_eq!(group.files(), before);
    // A group that is gone has nothing to give back.
    cgroup::limit(&directory, &[group.limit(10_000)]).unwrap().keep();
    drop(group);
    assert!(cgroup::restore(&directory).unwrap().iter().all(|(_, outcome)| *outcome == Outcome::Gone));
    let _ = std::fs::remove_dir_all(directory);
}
