//! `doctor` on this host with real faults: in network namespaces, in control groups, and without privileges. Each
//! result is compared with that of the same place without the fault, since the host itself may have faults.

use super::answer;
use super::space::{Namespace, run};
use crate::support::{Running, Testbed};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Findings of `doctor`, notes included, when it is started by `prefix`.
fn found(house: &Testbed, prefix: &str, more: &str) -> (BTreeSet<String>, i32, Value) {
    let line = format!("{prefix} {} doctor --json {more}", env!("CARGO_BIN_EXE_thalweg"));
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env("THALWEG_RUN_DIR", house.path("run"));
    let began = Instant::now();
    let done = Running::start(command).finish();
    let took = began.elapsed();
    let report: Value = serde_json::from_str(done.lines.first().unwrap_or_else(|| panic!("{}", done.errors))).unwrap();
    let all = ["findings", "notes"].into_iter().flat_map(|what| report[what].as_array().unwrap());
    // The load of a machine varies.
    let ids = all.map(|found| found["id"].as_str().unwrap().to_owned()).filter(|id| id != "load");
    let ids: BTreeSet<String> = ids.collect();
    // With --fix it looks twice.
    if more.is_empty() {
        answer::told("doctor", &ids.iter().map(String::as_str).collect::<Vec<_>>().join(", "), took);
    }
    (ids, done.code(), report)
}

/// Findings with the fault that were not there without it.
fn new(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    after.difference(before).cloned().collect()
}

#[test]
fn faults_of_devices_and_queues_are_named_where_they_are() {
    let Some(space) = Namespace::new("devices") else { return };
    let house = Testbed::new();
    let prefix = format!("ip netns exec {}", space.name);
    for command in ["ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up"] {
        space.does(command);
    }
    let (before, _, report) = found(&house, &prefix, "");
    for (seed, undo, id) in [
        ("ip link set lo down", "ip link set lo up", "loopback-down"),
        ("ip link set v0 multicast off", "ip link set v0 multicast on", "no-multicast"),
        ("ip link set v0 mtu 1000", "ip link set v0 mtu 1500", "mtu-small"),
        ("ip link set lo multicast off", "ip link set lo multicast on", "loopback-multicast"),
        ("tc qdisc add dev v0 root pfifo limit 100", "tc qdisc del dev v0 root", "no-bands"),
        ("tc qdisc add dev v0 root pfifo_fast", "tc qdisc del dev v0 root", "dscp-ignored"),
    ] {
        space.does(seed);
        let (after, code, report) = found(&house, &prefix, "");
        assert_eq!(new(&before, &after), [id], "{seed}: {report}");
        assert!(code == 0 || id == "loopback-down", "{report}");
        space.does(undo);
    }
    assert_eq!(found(&house, &prefix, "").0, before, "{report}");
}

#[test]
fn queues_are_fixed_and_put_back() {
    let Some(space) = Namespace::new("fix") else { return };
    let house = Testbed::new();
    let prefix = format!("ip netns exec {}", space.name);
    for command in ["ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up"] {
        space.does(command);
    }
    space.does("tc qdisc add dev v0 root pfifo limit 100");
    let (before, _, report) = found(&house, &prefix, "");
    assert!(before.contains("no-bands"), "{report}");
    let (fixed, code, report) = found(&house, &prefix, "--fix=no-bands");
    assert_eq!((new(&fixed, &before), code), (vec!["no-bands".to_owned()], 0), "{report}");
    assert_eq!(report["fixed"][0]["undo"], "thalweg restore", "{report}");
    space.thalweg(&house, "restore");
    assert_eq!(found(&house, &prefix, "").0, before);
    // Without the permission to change queues: exit code 3 and the remedy.
    let line =
        format!("{prefix} setpriv --bounding-set -net_admin {} doctor --fix=no-bands", env!("CARGO_BIN_EXE_thalweg"));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("THALWEG_RUN_DIR", house.path("run"));
    let refused = Running::start(command).finish();
    assert!(refused.code() == 3 && refused.errors.contains("sudo thalweg doctor --fix"), "{}", refused.errors);
}

#[test]
fn queues_that_a_killed_process_left_are_named_and_taken_away() {
    let Some(space) = Namespace::new("left") else { return };
    let house = Testbed::new();
    let prefix = format!("ip netns exec {}", space.name);
    for command in ["ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up"] {
        space.does(command);
    }
    let (before, ..) = found(&house, &prefix, "");
    let mut command = Command::new("ip");
    let part = super::part::command(&house, "queues");
    command.args(["netns", "exec", &space.name]).arg(part.get_program()).args(part.get_args());
    command.envs(part.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let holder = Running::start(command);
    while !holder.line().contains("installed") {}
    assert_eq!(new(&before, &found(&house, &prefix, "").0), ["dscp-ignored"]);
    holder.signal(rustix::process::Signal::KILL);
    drop(holder);
    let (after, _, report) = found(&house, &prefix, "");
    assert!(after.contains("queues-left"), "{report}");
    let (after, _, report) = found(&house, &prefix, "--fix=queues-left");
    assert_eq!(after, before, "{report}");
}

#[test]
fn ports_of_a_bridge_that_take_different_packets_are_named() {
    let Some(space) = Namespace::new("bridge") else { return };
    let house = Testbed::new();
    let prefix = format!("ip netns exec {}", space.name);
    for command in [
        "ip link add br0 type bridge mcast_querier 1",
        "ip link add p0 type veth peer name h0",
        "ip link add p1 type veth peer name h1",
    ] {
        space.does(command);
    }
    ["br0", "p0", "p1", "h0", "h1"].iter().for_each(|name| space.does(&format!("ip link set {name} up")));
    ["p0", "p1"].iter().for_each(|name| space.does(&format!("ip link set {name} master br0")));
    let (before, ..) = found(&house, &prefix, "");
    space.does("ip link set p1 mtu 1400");
    let (after, _, report) = found(&house, &prefix, "");
    assert_eq!(new(&before, &after), ["mtu-differs"], "{report}");
    space.does("ip link set br0 type bridge mcast_querier 0");
    space.does("ip link set p1 mtu 1500");
    assert_eq!(new(&before, &found(&house, &prefix, "").0), ["bridge-querier"]);
}

#[test]
fn rights_that_are_missing_are_named() {
    if !run("setpriv", "--bounding-set -sys_nice true") {
        return println!("skipped: rights: because setpriv may not drop a capability: it needs root and util-linux");
    }
    let house = Testbed::new();
    let (before, ..) = found(&house, "setpriv", "");
    for (prefix, id) in [
        ("setpriv --bounding-set -sys_nice prlimit --rtprio=0", "rt-permission"),
        ("prlimit --nofile=256", "descriptors"),
        ("prlimit --memlock=65536 setpriv --bounding-set -ipc_lock", "memory-lock"),
        ("setpriv --bounding-set -net_admin", "net-admin"),
    ] {
        if before.contains(id) {
            println!("skipped: rights: because this user has not what is taken away for {id}");
            continue;
        }
        let (after, code, report) = found(&house, prefix, "");
        assert_eq!(new(&before, &after), [id], "{report}");
        assert!(code == 1 || id != "rt-permission", "{report}");
    }
}

#[test]
fn a_run_directory_that_cannot_be_used_is_named() {
    let house = Testbed::new();
    std::fs::write(house.path("run"), "a file").unwrap();
    let (after, code, report) = found(&house, "env", "");
    assert!(after.contains("run-directory") && code == 1, "{report}");
}

/// A control group of processors (version 1), gone when dropped.
struct Group(String);

impl Group {
    fn new() -> Option<Self> {
        let path = format!("/sys/fs/cgroup/cpu/thalweg-{}", std::process::id());
        let made = std::fs::create_dir(&path).is_ok() && Path::new(&path).join("cpu.rt_runtime_us").exists();
        if !made {
            let _ = std::fs::remove_dir(&path);
            println!(
                "skipped: group: because there is no cgroup of version 1 with real-time budgets that may be changed"
            );
        }
        made.then_some(Self(path))
    }

    /// A shell that moves itself into the group and then becomes `doctor`.
    fn doctor(&self, house: &Testbed, more: &str) -> (BTreeSet<String>, i32, Value) {
        let script = house.path("enter");
        let text = format!("#!/bin/sh\necho $$ > {}/cgroup.procs && exec \"$@\"\n", self.0);
        std::fs::write(&script, text).unwrap();
        found(house, &format!("sh {}", script.display()), more)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn groups_without_budget_and_with_quota_are_named() {
    let Some(group) = Group::new() else { return };
    let house = Testbed::new();
    let (before, ..) = found(&house, "env", "");
    let (after, code, report) = group.doctor(&house, "");
    assert_eq!((new(&before, &after), code), (vec!["rt-group-budget".to_owned()], 1), "{report}");
    std::fs::write(format!("{}/cpu.cfs_quota_us", group.0), "50000").unwrap();
    assert!(group.doctor(&house, "").0.contains("group-quota"));
    std::fs::write(format!("{}/cpu.cfs_quota_us", group.0), "-1").unwrap();
    // Only this finding: everything else that `--fix` would change belongs to the whole host.
    std::fs::write(format!("{}/cpu.rt_runtime_us", group.0), "10000").unwrap();
    assert_eq!(new(&before, &group.doctor(&house, "").0), [""; 0]);
}

#[test]
fn a_thread_that_never_waits_is_named() {
    let mut spin = Command::new("chrt");
    spin.args(["-r", "1", "sh", "-c", "echo; while :; do :; done"]);
    let spin = Running::start(spin);
    if spin.try_line().is_none() {
        return println!("skipped: hog: because chrt may not give a real-time priority");
    }
    let (after, _, report) = found(&Testbed::new(), "env", "");
    assert!(after.contains("hog"), "{report}");
    let hog = report["findings"].as_array().unwrap().iter().find(|f| f["id"] == "hog").unwrap();
    assert!(hog["remedy"].as_str().unwrap().ends_with(&format!("chrt -o -p 0 {}", spin.child.id())), "{hog}");
}
