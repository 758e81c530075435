//! Priorities of live channels by the command line, between real processes, compared with /proc and the sockets.
#![allow(clippy::unwrap_used)] // all of this is test

use crate::support;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};
use std::os::fd::{AsFd, RawFd};
use std::process::Command;
use support::{LONG, Running, Testbed};

/// `/publisher1` and `/subscriber1` on a channel over `carrier`.
struct Pair {
    house: Testbed,
    publisher: Running,
    subscriber: Running,
}

fn pair_with(publisher: &str, subscriber: &str) -> Pair {
    let house = Testbed::new();
    let publisher = house.start(&format!("pub /a --port /publisher1 --rate 200 {publisher}"));
    let subscriber = house.start(&format!("sub /a --port /subscriber1 --json {subscriber}"));
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    Pair { house, publisher, subscriber }
}

fn pair() -> Pair {
    pair_with("", "--carrier tcp")
}

impl Pair {
    fn run(&self, arguments: &str) -> support::Done {
        self.house.run(arguments)
    }

    fn done(&self, arguments: &str) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code(), 0, "{arguments}: {:?} {}", done.lines, done.errors);
        done.lines.join("\n")
    }

    fn refused(&self, arguments: &str, code: i32) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code(), code, "{arguments}: {:?} {}", done.lines, done.errors);
        assert!(done.errors.len() + done.lines.len() > 10, "{arguments}: a reason");
        done.errors + &done.lines.join("\n")
    }

    /// A command whose arguments contain spaces.
    fn admin(&self, words: &[&str]) -> support::Done {
        let mut command = self.house.command("admin");
        command.args(words);
        Running::start(command).finish()
    }

    /// The document of `get --json` about an end.
    fn end(&self, end: &str) -> Value {
        let got = self.run("get /publisher1 /subscriber1 --json").json();
        got["ends"].as_array().unwrap().iter().find(|e| e["end"] == end).unwrap().clone()
    }

    fn process(&self, end: &str) -> u32 {
        if end == "publisher" { self.publisher.child.id() } else { self.subscriber.child.id() }
    }

    /// Octet and priority of every internet socket of a process, from the kernel.
    fn marks(&self, end: &str) -> Vec<(u8, u32)> {
        let pid = self.process(end);
        let process = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let sockets =
            fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")));
        let numbers = sockets.filter_map(|fd| fd.file_name().to_str()?.parse::<RawFd>().ok());
        let copies = numbers.filter_map(|fd| pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).ok());
        copies.filter_map(|fd| linux::marks::read(fd.as_fd()).ok()).map(|m| (m.tos, m.priority)).collect()
    }

    /// Policy, real-time priority and processors of a thread, from /proc.
    fn thread(&self, end: &str, tid: &Value) -> (u64, u64, String) {
        let folder = format!("/proc/{}/task/{}", self.process(end), tid.as_u64().expect("a thread"));
        let stat = std::fs::read_to_string(format!("{folder}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
        (fields[38].parse().unwrap(), fields[37].parse().unwrap(), cpus) // fields 41 and 40 of proc(5)
    }
}

fn may_use_fifo() -> bool {
    let may = Command::new("chrt").args(["-f", "1", "true"]).output().is_ok_and(|out| out.status.success());
    if !may {
        println!("skipped: priority: because this user may not use SCHED_FIFO");
    }
    may
}

#[test]
fn y_02_set_changes_packets_and_threads_at_both_ends_and_get_says_what_the_kernel_says() {
    if !may_use_fifo() {
        return;
    }
    let pair = pair();
    let before = [pair.marks("publisher"), pair.marks("subscriber")].concat();
    assert!(!before.is_empty() && !before.contains(&(0x90, 6)), "{before:?}");
    let set = pair.done("set /publisher1 /subscriber1 class=high sched=fifo:30 affinity=0");
    assert!(set.contains("fifo 30") && set.contains("effective: ") && set.contains(", because "), "{set}");
    for end in ["publisher", "subscriber"] {
        let got = pair.end(end);
        assert_eq!(got["qos"]["tos"], 144, "{got}");
        assert_eq!(
            (&got["qos"]["dscp"], &got["qos"]["class"], &got["qos"]["socket_priority"]),
            (&json!("AF42"), &json!("high"), &json!(6))
        );
        assert!(pair.marks(end).contains(&(144, 6)), "{end}: {:?}", pair.marks(end));
        let sched = &got["sched"];
        assert_eq!(
            (&sched["policy"], &sched["priority"], &sched["own_thread"]),
            (&json!("fifo"), &json!(30), &json!(true))
        );
        assert_eq!(sched["affinity"], json!([0]));
        assert_eq!(pair.thread(end, &sched["tid"]), (1, 30, "0".to_owned()), "{end}: policy, priority, processors");
        assert!(got["effective"].is_boolean() && got["because"].as_str().unwrap().len() > 5, "{got}");
    }
    // One end alone, and back.
    pair.done("set /publisher1 /subscriber1 dscp=EF sched=rr:5 --end subscriber");
    assert_eq!(
        (&pair.end("publisher")["qos"]["tos"], &pair.end("subscriber")["qos"]["tos"]),
        (&json!(144), &json!(184))
    );
    assert_eq!(pair.end("subscriber")["sched"]["policy"], "rr");
    pair.done("set /publisher1 /subscriber1 class=default sched=default affinity=default");
    assert!(!pair.marks("publisher").contains(&(144, 6)) && !pair.marks("subscriber").iter().any(|m| m.0 == 184));
    assert_ne!(pair.end("publisher")["sched"]["policy"], "fifo");
    let got = pair.done("get /publisher1");
    assert!(got.contains("/publisher1 → /subscriber1 over tcp"), "{got}");
}

#[test]
fn y_20_y_21_y_22_the_papers_commands_verbatim() {
    if !may_use_fifo() {
        return;
    }
    let pair = pair();
    let sched = "prop set /subscriber1 (sched ((policy SCHED_FIFO) (priority 30)))";
    let qos = "prop set /subscriber1 (qos ((priority HIGH)))";
    // As in the paper, at the prompt of `admin rpc`.
    let mut prompt = pair.house.start("admin rpc /publisher1");
    for command in [sched, qos, "prop get /subscriber1", "wave", "ver"] {
        prompt.write(&format!("{command}\n"));
    }
    prompt.end_input();
    let done = prompt.finish();
    assert_eq!(done.code(), 0, "{}", done.errors);
    assert_eq!([&done.lines[0], &done.lines[1], &done.lines[4]], ["ok", "ok", "ver 1 2 3"], "{:?}", done.lines);
    let end = pair.end("publisher");
    let tid = &end["sched"]["tid"];
    let wanted = format!("(sched ((tid {tid}) (priority 30) (policy 1))) (qos ((tos 144)))");
    assert_eq!(done.lines[2], wanted); // YS-20
    assert_eq!(done.lines[3], "fail \"send [help] for list of valid commands\"");
    assert_eq!(pair.thread("publisher", tid).0, 1);
    assert!(pair.marks("publisher").contains(&(144, 6)));
    // As one argument, as several, and with quotes for the shell.
    for words in [
        vec!["/publisher1", "prop set /subscriber1 (sched ((policy SCHED_RR) (priority 9)))"],
        vec!["/publisher1", "prop", "set", "/subscriber1", "(sched ((policy 2) (priority 9)))"],
        vec!["rpc", "/publisher1", "prop", "set", "/subscriber1", "(sched", "((priority", "-1)))"],
        vec!["/publisher1", "[prop]", "[set]", "/subscriber1", "(qos ((tos -1)))", "--json"],
    ] {
        let done = pair.admin(&words);
        assert_eq!(done.code(), 0, "{words:?}: {:?} {}", done.lines, done.errors);
        assert!(done.lines[0] == "ok" || done.lines[0].contains("\"ok\":true"), "{:?}", done.lines);
    }
    assert_ne!(pair.end("publisher")["sched"]["policy"], "rr", "-1 is back to the default");
    // A failure exits with 1 and gives the reason (YS-55).
    let failed = pair.admin(&["/publisher1", "prop get /nobody"]);
    assert_eq!((failed.code(), failed.lines[0].as_str()), (1, "fail \"cannot find any connection to/from /nobody\""));
    let failed = pair.admin(&["/publisher1", "prop set /subscriber1 (qos ((priority URGENT)))", "--json"]);
    let told: Value = serde_json::from_str(&failed.lines[0]).unwrap();
    assert_eq!((failed.code(), &told["ok"]), (1, &json!(false)));
    assert!(told["answer"].as_str().unwrap().contains("critical (crit)"), "{told}");
}

#[test]
fn ys_30_ys_32_ys_51_ys_54_qos_and_sched_in_yarps_words() {
    let pair = pair();
    let ports = "--src /publisher1 --des /subscriber1";
    for (set, level, dscp, tos) in [
        ("--level high", "HIGH", "AF42", 144),
        ("--dscp AF11", "LOW", "AF11", 40),
        ("--tos 176", "CRITICAL", "VA", 176),
        ("LEVEL:NORM", "NORMAL", "CS0", 0),
        ("DSCP:36", "HIGH", "AF42", 144),
        ("TOS:184", "none", "EF", 184),
    ] {
        pair.done(&format!("qos set {ports} {set}"));
        let got = pair.done(&format!("qos get {ports}"));
        let value = format!("LEVEL:{level} DSCP:{dscp} TOS:{tos}");
        assert_eq!(got, format!("publisher   {value}\nsubscriber  {value}"), "{set}");
    }
    assert_eq!(pair.done(&format!("qos get {ports} --tos")), "publisher   TOS:184\nsubscriber  TOS:184");
    assert!(pair.done(&format!("qos describe {ports}")).contains("effective: "));
    assert!(pair.refused(&format!("qos set {ports}"), 2).contains("nothing is set"));
    assert!(pair.refused(&format!("qos set {ports} TOS:256"), 2).contains("0 to 255"));
    assert!(pair.refused(&format!("qos get {ports} TOS:3"), 2).contains("say set"));
    if may_use_fifo() {
        // Threads alone: the marks stay, and no command fails (YS-54).
        pair.done(&format!("sched set {ports} --policy 1 --priority 30"));
        assert_eq!(pair.done(&format!("sched get {ports}")), "publisher   POL:1 PRT:30\nsubscriber  POL:1 PRT:30");
        pair.done(&format!("priority-sched set {ports} --policy-label SCHED_RR --priority 7"));
        let told: Value = serde_json::from_str(&pair.done(&format!("sched get {ports} --json"))).unwrap();
        assert_eq!(told["values"][1], json!({"end": "subscriber", "value": "POL:2 PRT:7"}));
        pair.done(&format!("sched set {ports} PRT:-1"));
        assert_eq!(pair.end("publisher")["qos"]["tos"], 184);
    }
    assert!(pair.refused(&format!("sched set {ports} POL:9 PRT:1"), 2).contains("SCHED_RR (2)"));
}

#[test]
fn errors_are_refused_with_the_reason_and_nothing_is_half_applied() {
    let pair = pair();
    for (arguments, code, says) in [
        ("set /publisher1 /nobody class=high", 1, "no port /nobody is known"),
        ("set /nobody /subscriber1 class=high", 1, "no port /nobody is known"),
        ("set /subscriber1 /publisher1 class=high", 1, "say the publishing port first"),
        ("set /publisher1 /subscriber1 class=urgent", 2, "critical (crit)"),
        ("set /publisher1 /subscriber1 sched=idle", 2, "1 to 99"),
        ("set /publisher1 /subscriber1 sched=fifo:100", 2, "1 to 99"),
        ("set /publisher1 /subscriber1 tos=256", 2, "0 to 255"),
        ("set /publisher1 /subscriber1 colour=red", 2, "class=low"),
        ("set /publisher1 /subscriber1 class=high dscp=3", 2, "not two"),
        ("set /publisher1 /subscriber1", 2, "nothing is set"),
        ("set class=high", 2, "a publishing and a subscribing port"),
        ("set /publisher1 class=high", 1, "has no packets"),
        ("get /nobody", 1, "no port /nobody is known"),
        ("get /publisher1 /nobody", 1, "no port /nobody is known"),
        ("admin /nobody ver", 1, "no port /nobody is known"),
        ("admin ver", 2, "a port is needed"),
        ("pub /b --class urgent", 2, "critical (crit)"),
        ("pub /b --qos level:top", 2, "critical (crit)"),
        ("sub /b --qos priority:3", 2, "policy:1"),
        ("connect /publisher1 /nobody", 1, "no port /nobody is known"),
    ] {
        let said = pair.refused(arguments, code);
        assert!(said.contains(says), "{arguments}: {said}");
    }
    let deep = "(".repeat(200);
    for text in
        ["prop set /subscriber1 (sched ((policy", deep.as_str(), "prop set /subscriber1 (qos ((priority \"HIGH)))"]
    {
        let done = pair.admin(&["/publisher1", text]);
        assert_eq!(done.code(), 1);
        assert!(done.lines[0].starts_with("fail \"at character"), "{text}: {:?}", done.lines);
    }
    assert_eq!(pair.end("publisher")["asked"]["mark"], Value::Null);
}

/// `pub` and `sub` without the permission for real-time scheduling.
#[test]
fn y_16_a_refusal_by_the_kernel_exits_3_with_the_remedy_and_both_ends_are_as_before() {
    let house = Testbed::new();
    let root = rustix::process::geteuid().is_root();
    let unprivileged = |arguments: &str| {
        let plain = house.command(arguments);
        if !root {
            return plain;
        }
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-sys_nice"]).arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        command
    };
    if root && Command::new("setpriv").arg("--version").output().is_err() || !root && may_use_fifo() {
        return println!("skipped: y_16: because the right to SCHED_FIFO cannot be taken away here");
    }
    let publisher = house.start("pub /a --port /publisher1 --rate 100");
    let subscriber = Running::start(unprivileged("sub /a --port /subscriber1 --carrier tcp --json"));
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    let pair = Pair { house, publisher, subscriber };
    let said = pair.refused("set /publisher1 /subscriber1 class=high sched=fifo:30", 3);
    assert!(said.contains("CAP_SYS_NICE") && said.contains("setcap"), "{said}");
    for end in ["publisher", "subscriber"] {
        let got = pair.end(end);
        assert_eq!((&got["qos"]["tos"], &got["asked"]["mark"]), (&json!(0), &Value::Null), "{got}");
        assert_ne!(got["sched"]["policy"], "fifo");
    }
    let failed = pair.admin(&["/subscriber1", "prop set /publisher1 (sched ((policy 1) (priority 3)))"]);
    assert!(failed.code() == 1 && failed.lines[0].contains("CAP_SYS_NICE"), "{:?}", failed.lines);
}

#[test]
fn y_12_all_threads_of_a_ports_process() {
    if !may_use_fifo() {
        return;
    }
    let pair = pair();
    let set = pair.done("set /publisher1 sched=rr:2");
    assert!(set.contains("process") && set.contains("rr 2"), "{set}");
    let threads = std::fs::read_dir(format!("/proc/{}/task", pair.process("publisher"))).unwrap().flatten();
    let tids: Vec<Value> = threads.map(|t| json!(t.file_name().to_str().unwrap().parse::<u64>().unwrap())).collect();
    assert!(tids.len() > 2 && tids.iter().all(|tid| pair.thread("publisher", tid).0 == 2), "every thread is SCHED_RR");
    let back = pair.admin(&["/publisher1", "prop set /publisher1 (process ((policy 0) (priority 0)))"]);
    assert_eq!(back.lines, ["ok"]);
    assert!(tids.iter().all(|tid| pair.thread("publisher", tid).0 == 0));
}

#[test]
fn ys_31_ports_are_opened_with_the_priority_of_a_string_or_a_profile() {
    let house = Testbed::new();
    let profile = house.path("robot.toml");
    std::fs::write(
        &profile,
        "[[port]]\nname = '/subscriber1'\nqos = 'level:critical'\n[[port]]\ntopic = '/other'\ntos = 4\n",
    )
    .unwrap();
    let profile = profile.display();
    let publisher = house.start("pub /a --port /publisher1 --rate 100 --qos level:HIGH");
    let subscriber = house.start(&format!("sub /a --port /subscriber1 --carrier tcp --json --profile {profile}"));
    house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    let pair = Pair { house, publisher, subscriber };
    let tos = |end| pair.end(end)["qos"]["tos"].as_u64();
    assert_eq!((tos("publisher"), tos("subscriber")), (Some(144), Some(176)));
    let wrong = pair.house.path("wrong.toml");
    std::fs::write(&wrong, "[[port]]\nname = '/a'\nclass = 'urgent'\n").unwrap();
    let said = pair.refused(&format!("pub /a --profile {}", wrong.display()), 2);
    assert!(
        said.contains(&format!("{}:3: class = \"urgent\"", wrong.display())) && said.contains("critical (crit)"),
        "{said}"
    );
}

#[test]
fn ys_31_ys_33_a_connection_is_made_with_the_priority_of_a_string_and_carriers_are_listed() {
    let pair = pair();
    pair.done("disconnect /publisher1 /subscriber1");
    let connect = |qos: &str| {
        let mut command = pair.house.command("connect /publisher1 /subscriber1 --carrier tcp --json --qos");
        command.arg(qos);
        Running::start(command).finish()
    };
    let said = connect("level:highest");
    assert!(said.code() == 2 && said.errors.contains("level"), "{}", said.errors);
    assert_eq!(connect("Level:HIGH ; socket_priority:5").code(), 2, "no key of YARP's");
    assert_eq!(connect("Level:HIGH").json()["connected"], true);
    for end in ["publisher", "subscriber"] {
        assert_eq!(pair.end(end)["qos"]["tos"], 144, "{end}");
    }
    let listed = pair.run("connect --list-carriers --json").json();
    let names: Vec<_> = listed["carriers"].as_array().unwrap().iter().map(|c| c["carrier"].as_str().unwrap()).collect();
    assert_eq!(names, ["auto", "local", "shm", "tcp", "udp", "mcast"]);
    assert_eq!(pair.run("connect /publisher1").code(), 2);
    assert_eq!(pair.run("connect --qos level:low /publisher1 /nowhere").code(), 1);
}

#[test]
fn ys_53_an_end_whose_process_starts_anew_has_its_priority_again() {
    const SUBSCRIBE: &str = "sub /a --port /subscriber1 --json --carrier tcp";
    let mut pair = pair();
    pair.done("set /publisher1 /subscriber1 class=critical --end publisher");
    pair.done("set /publisher1 /subscriber1 class=high --end subscriber");
    let again = |pair: &Pair, end: &str, tos: u64| {
        support_until(|| {
            let channels = pair.run("list channels --json").json();
            let open = channels["channels"][0]["received"].as_u64() > Some(0);
            (open && pair.end(end)["qos"]["tos"] == tos).then_some(())
        });
    };
    pair.subscriber.signal(Signal::KILL);
    pair.subscriber = pair.house.start(SUBSCRIBE);
    again(&pair, "subscriber", 144);
    pair.publisher.signal(Signal::KILL);
    pair.publisher = pair.house.start("pub /a --port /publisher1 --rate 200");
    again(&pair, "publisher", 176);
    // A setting that was taken back does not return.
    pair.done("set /publisher1 /subscriber1 class=default");
    pair.subscriber.signal(Signal::KILL);
    pair.subscriber = pair.house.start(SUBSCRIBE);
    again(&pair, "subscriber", 0);
    for end in ["publisher", "subscriber"] {
        assert_eq!(pair.end(end)["asked"]["mark"], Value::Null, "{end}");
    }
}

#[test]
fn ys_33_a_persistent_connection_is_made_again_in_any_order_of_restarts() {
    let house = Testbed::new();
    let told = house.run("connect --persist /publisher1 /subscriber1 --json").json();
    assert_eq!((&told["connected"], &told["persistent"]), (&json!(false), &json!(true)));
    let publisher = || house.start("pub /a --port /publisher1 --rate 100 --wait 0");
    let subscriber = || house.start("sub /b --port /subscriber1 --json");
    let connected = || house.wait_for_list("channels", |channels| channels[0]["received"].as_u64() > Some(0));
    let gone = || house.wait_for_list("channels", |channels| channels.as_array().is_some_and(Vec::is_empty));
    let (first, second) = (publisher(), subscriber());
    connected();
    drop(second); // killed
    gone();
    let second = subscriber();
    connected();
    first.interrupt();
    gone();
    let first = publisher();
    connected();
    // The connection lasts until it is disconnected, and that lasts, too.
    assert_eq!(house.run("disconnect /publisher1 /subscriber1").code(), 0);
    gone();
    second.interrupt();
    let second = subscriber();
    house.wait_for_list("ports", |ports| ports.as_array().is_some_and(|p| p.len() == 2));
    let channels = house.run("list channels --json").json();
    assert_eq!(channels["channels"], json!([]));
    // If both ports exist it connects at once, and reports the carrier.
    let told = house.run("connect --persist /publisher1 /subscriber1 --carrier tcp --json").json();
    assert_eq!((&told["connected"], &told["carrier"]), (&json!(true), &json!("tcp")));
    drop((first, second));
    assert_eq!(house.run("disconnect /publisher1 /subscriber1").code(), 0, "kept, although nobody is there");
    assert_eq!(house.run("disconnect /publisher1 /subscriber1").code(), 1);
    assert!(house.run("connect --persist /a b/").code() == 1);
}

#[test]
fn ys_37_a_monitor_is_attached_to_a_live_port_by_command() {
    let mut pair = pair();
    assert_eq!(pair.admin(&["/subscriber1", "atch in (type statistics)"]).lines, ["ok"]);
    pair.subscriber.json_line();
    let counted = support_until(|| {
        let got = pair.admin(&["/subscriber1", "get in /subscriber1"]).lines.remove(0);
        (!got.contains("(count 0)")).then_some(got)
    });
    assert!(counted.starts_with("((type statistics) (count ") && counted.contains("(gap_mean_ms "), "{counted}");
    assert_eq!(pair.admin(&["/publisher1", "atch", "out", "(type throttle)", "(period_ms 60000)"]).lines, ["ok"]);
    let throttled = support_until(|| {
        let got = pair.admin(&["/publisher1", "get out /publisher1"]).lines.remove(0);
        (got.contains("(passed 1)") && !got.contains("(dropped 0)")).then_some(got)
    });
    assert!(throttled.contains("(period_ms 60000.0)"), "{throttled}");
    assert_eq!(pair.admin(&["/publisher1", "dtch out"]).lines, ["ok"]);
    assert_eq!(pair.admin(&["/publisher1", "dtch out"]).code(), 1);
    pair.publisher.end_input();
}

fn support_until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let until = std::time::Instant::now() + LONG;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(std::time::Instant::now() < until, "it never came");
    }
}
