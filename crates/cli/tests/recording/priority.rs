//! The recorder's threads beside those of other programs.

use super::record;
use crate::support::{LONG, Running, Testbed};
use std::process::Command;
use std::time::{Duration, Instant};

/// Nice value and policy of a process's threads of this name (proc_pid_stat(5): fields 19 and 41, with the state as the third).
fn threads(process: u32, name: &str) -> Vec<[i64; 2]> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    let of_name = |stat: String| {
        let (head, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        head.ends_with(&format!("({name}")).then(|| [16, 38].map(|at| fields[at].parse().unwrap()))
    };
    stats.filter_map(of_name).collect()
}

#[test]
fn threads_of_the_recorder_give_way_unless_it_is_told_otherwise() {
    const OTHER: i64 = 0;
    const IDLE: i64 = 5;
    let house = Testbed::new();
    let _publish = house.start("pub /a --rate 100");
    let own = i64::from(linux::sched::read(0).unwrap().nice);
    for (name, receiving, writing) in
        [("low", [own.max(10), OTHER], [19, IDLE]), ("normal", [own, OTHER], [own, OTHER])]
    {
        let recorder = record(&house, &house.path(&format!("{name}.mcap")), &format!("/a --priority {name}"));
        let found = || ["reader", "record-disk"].map(|thread| threads(recorder.child.id(), thread));
        let fits = |[readers, writers]: [Vec<[i64; 2]>; 2]| {
            !readers.is_empty() && readers.iter().all(|reader| *reader == receiving) && writers == [writing]
        };
        let until = Instant::now() + LONG;
        while !fits(found()) {
            assert!(Instant::now() < until, "{name}: {:?}", found());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The programs of one session are one group for the kernel, and nice values count within it only.
#[test]
fn a_session_of_the_recorder_alone_gives_way_and_one_of_others_does_not() {
    let group = |process: &str| std::fs::read_to_string(format!("/proc/{process}/autogroup"));
    let Ok(before) = group("self") else { return println!("skipped: because this kernel has no groups of sessions") };
    let house = Testbed::new();
    let beside = record(&house, &house.path("beside.mcap"), "--all");
    assert_eq!(group("self").unwrap(), before);
    drop(beside);
    let recorder = house.command(&format!("record {} --all", house.path("alone.mcap").display()));
    let mut command = Command::new("setsid");
    command.arg(recorder.get_program()).args(recorder.get_args());
    command.envs(recorder.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let recorder = Running::start(command);
    while !recorder.error_line().expect("it begins").starts_with("recording to") {}
    let alone = group(&recorder.child.id().to_string()).unwrap();
    assert!(alone.ends_with("nice 19\n"), "{alone}");
}
