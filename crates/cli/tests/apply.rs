//! `thalweg apply` and `thalweg restore`, in a network namespace of their own.
#![allow(clippy::unwrap_used)]

mod plans;

use crate::support;
use linux::namespace::Namespace;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use support::Testbed;

const SHARES: &str = "shares = { critical = \"5 %\", high = \"30 %\", normal = \"45 %\", low = \"20 %\" }";

/// A host with a cable to itself, and a house for its files.
struct Host {
    namespace: Namespace,
    house: Testbed,
}

impl Host {
    fn new(test: &str) -> Option<Self> {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => {
                println!("skipped: {test}: because {error}");
                return None;
            }
        };
        let host = Self { namespace, house: Testbed::new() };
        for line in [
            "link set lo up",
            "link add wire type veth peer name far",
            "link set wire up",
            "link set far up",
            "address add 10.98.0.1/24 dev wire",
        ] {
            assert!(host.out(Command::new("ip").args(line.split(' '))).status.success(), "ip {line}");
        }
        Some(host)
    }

    /// A host with `nft`, which the rules of this test are set with.
    fn with_nft(test: &str) -> Option<Self> {
        if support::has_nft(test) { Self::new(test) } else { None }
    }

    fn out(&self, command: &mut Command) -> Output {
        self.namespace.run(|| command.output()).unwrap().unwrap()
    }

    /// `thalweg` with these arguments: exit code, output, errors.
    fn thalweg(&self, arguments: &str) -> (i32, String, String) {
        let output = self.out(&mut self.house.command(arguments));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    fn queues(&self) -> String {
        let tc = |what| {
            let mut command = Command::new("tc");
            String::from_utf8(self.out(command.args(["-d", what, "show", "dev", "wire"])).stdout).unwrap()
        };
        [tc("qdisc"), tc("class")].concat()
    }

    fn file(&self, text: &str) -> String {
        let path = self.house.path("host.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

fn device(more: &str) -> String {
    format!("[[device]]\nname = \"wire\"\nrate = \"100 Mbit/s\"\n{more}\n")
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn queues_are_applied_proved_and_restored() {
    let Some(host) = Host::new("queues_are_applied_proved_and_restored") else { return };
    // IPv6 works once the link-local address is there.
    let until = std::time::Instant::now() + support::LONG;
    let linked = ["-6", "-o", "address", "show", "dev", "wire", "scope", "link", "-tentative"];
    while host.out(Command::new("ip").args(linked)).stdout.is_empty() {
        assert!(std::time::Instant::now() < until, "no link-local address");
    }
    let before = host.queues();
    let htb = host.file(&device(&format!("scheduler = \"htb\"\n{SHARES}")));
    let (code, said, errors) = host.thalweg(&format!("apply {htb} --json"));
    assert_eq!(code, 0, "{errors}");
    let proof = json(&said);
    assert_eq!(proof["effective"], true);
    let classes = proof["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 8, "four classes, IPv4 and IPv6");
    assert_eq!((&classes[0]["class"], &classes[0]["place"]), (&"critical".into(), &"class 7a2:10".into()));
    assert!(classes.iter().all(|class| class["proved"] == "counted"), "{classes:?}");
    assert!(host.queues().contains("htb 7a2:20 parent 7a2:1"), "{}", host.queues());
    let (code, _, errors) = host.thalweg(&format!("apply {htb}"));
    assert!(code == 0 && errors.contains("wire: has these queues already"), "{errors}");
    let other = SHARES.replace("30 %", "35 %").replace("45 %", "40 %");
    let other = host.file(&device(&format!("scheduler = \"htb\"\n{other}")));
    let (code, _, errors) = host.thalweg(&format!("apply {other}"));
    assert!(code == 0 && errors.contains("wire: changed in place, 2 changes"), "{errors}");
    let strict = host.file(&device(""));
    let (code, said, errors) = host.thalweg(&format!("apply {strict}"));
    assert_eq!(code, 0, "{errors}");
    assert!(said.contains("band") && said.contains("counted"), "{said}");
    assert!(errors.contains("wire: made anew"), "{errors}");
    let (code, said, _) = host.thalweg("restore");
    assert_eq!((code, said.trim()), (0, "wire: as before"));
    assert_eq!(host.queues(), before);
    assert_eq!(host.thalweg("restore").1.trim(), "nothing was applied");
}

#[test]
fn packets_that_go_elsewhere_undo_it() {
    let Some(host) = Host::with_nft("packets_that_go_elsewhere_undo_it") else { return };
    let before = host.queues();
    for words in ["add table inet theirs", "add chain inet theirs last { type filter hook postrouting priority 0 ; }"] {
        assert!(host.out(Command::new("nft").arg(words)).status.success(), "nft {words}");
    }
    assert!(host.out(Command::new("nft").arg("add rule inet theirs last meta priority set 7a2:40")).status.success());
    let htb = host.file(&device(&format!("scheduler = \"htb\"\n{SHARES}")));
    let (code, said, errors) = host.thalweg(&format!("apply {htb}"));
    assert_eq!((code, said.as_str(), host.queues()), (1, "", before), "{errors}");
    assert!(errors.contains("class critical over IPv4 was counted in class 7a2:40, not in class 7a2:10"), "{errors}");
    assert_eq!(host.thalweg("restore").1.trim(), "nothing was applied");
    let fifo = host.file(&device("scheduler = \"fifo\""));
    let (code, said, errors) = host.thalweg(&format!("apply {fifo} --json"));
    assert_eq!((code, &json(&said)["classes"][0]["proved"]), (0, &"counted".into()), "{errors}");
}

#[test]
fn a_dry_run_prints_commands_that_do_the_same() {
    let Some(host) = Host::with_nft("a_dry_run_prints_commands_that_do_the_same") else { return };
    let file = host.file(&device(&format!("scheduler = \"htb\"\n{SHARES}\nmap = \"router\"")));
    let before = host.queues();
    let (code, script, _) = host.thalweg(&format!("apply {file} --dry-run"));
    assert_eq!((code, host.queues()), (0, before));
    assert_eq!(host.thalweg(&format!("apply {file}")).0, 0);
    let applied = host.queues();
    assert_eq!(host.thalweg("restore").0, 0);
    let output = host.out(Command::new("sh").args(["-e", "-c", &script]));
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    // `tc` rounds bursts down to whole microseconds, our library up to the kernel's ticks; hosts also send packets of
    // their own.
    let without_bursts = |text: &str| {
        let words = text.split(' ').scan("", |before, word| Some((std::mem::replace(before, word), word)));
        words
            .filter(|(before, _)| !before.ends_with("burst") && *before != "direct_packets_stat")
            .map(|(_, word)| word.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(without_bursts(&host.queues()), without_bursts(&applied));
}

#[test]
fn bad_files_exit_2_and_refusals_3() {
    let Some(host) = Host::new("bad_files_exit_2_and_refusals_3") else { return };
    let before = host.queues();
    let bad = host.file(&device("scheduler = \"fair\""));
    let (code, said, errors) = host.thalweg(&format!("apply {bad}"));
    assert_eq!((code, said.as_str()), (2, ""), "{errors}");
    assert!(errors.contains("host.toml:4: scheduler = \"fair\": allowed is fifo, strict, htb or hfsc"), "{errors}");
    let absent = host.file(&format!("{}\n[[device]]\nname = \"eth9\"\nrate = \"1 Mbit/s\"\n", device("")));
    let (code, _, errors) = host.thalweg(&format!("apply {absent}"));
    assert_eq!((code, host.queues()), (2, before.clone()), "{errors}");
    assert!(errors.contains("host.toml:6: name = \"eth9\": there is no network device"), "{errors}");
    assert_eq!(host.thalweg("apply no-such-file.toml").0, 2);
    let fine = host.file(&device(""));
    let own = std::env::temp_dir().join(format!("thalweg-nobody-{}", std::process::id()));
    let copy = own.join("thalweg");
    std::fs::create_dir_all(&own).unwrap();
    // The user `nobody` can read neither the house nor the folder of the program.
    std::fs::copy(env!("CARGO_BIN_EXE_thalweg"), &copy).unwrap();
    std::fs::copy(&fine, own.join("host.toml")).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let mut nobody = Command::new(&copy);
    nobody.args(["apply", "host.toml"]).current_dir(&own).env("THALWEG_RUN_DIR", own.join("run")).uid(65534).gid(65534);
    let output = host.out(&mut nobody);
    std::fs::remove_dir_all(&own).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), host.queues()), (Some(3), before), "{errors}");
    assert!(errors.contains("CAP_NET_ADMIN") && errors.contains("setcap"), "{errors}");
}

#[test]
fn channels_get_their_priority_and_give_it_back() {
    let Some(host) = Host::new("channels_get_their_priority_and_give_it_back") else { return };
    let start = |arguments: &str| {
        let command = host.house.command(arguments);
        host.namespace.run(|| support::Running::start(command)).unwrap()
    };
    let _publisher = start("pub /topic --port /out --carrier tcp --rate 50 --size 64");
    let subscriber = start("sub /topic --port /in --carrier tcp");
    subscriber.line();
    let text = "[[channel]]\npublisher = \"/out\"\nsubscriber = \"/in\"\nclass = \"high\"\n";
    let file = host.file(&format!("{}\n{text}", device("")));
    let (code, said, errors) = host.thalweg(&format!("apply {file} --json"));
    assert_eq!(code, 0, "{errors}");
    let ends = json(&said)["channels"].as_array().unwrap().clone();
    assert_eq!(ends.iter().map(|e| e["end"].as_str().unwrap()).collect::<Vec<_>>(), ["publisher", "subscriber"]);
    assert!(ends.iter().all(|end| end["dscp"] == 36), "{ends:?}");
    // A missing port is noticed before anything changes.
    let applied = host.queues();
    let absent = host.file(&text.replace("/in", "/nobody"));
    let (code, _, errors) = host.thalweg(&format!("apply {absent}"));
    assert_eq!((code, host.queues()), (1, applied), "{errors}");
    assert!(errors.contains("no port /nobody is known"), "{errors}");
    // A refusal takes back the settings made before it.
    let refused = text.replace("class = \"high\"", "affinity = \"1000\"");
    let (code, _, errors) = host.thalweg(&format!("apply {}", host.file(&format!("{text}\n{refused}"))));
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("1000") && errors.contains("taken back: /in with /out: as before"), "{errors}");
    let file = host.file(&format!("{}\n{text}", device("")));
    let (code, said, errors) = host.thalweg(&format!("apply {file} --json"));
    assert_eq!(code, 0, "{said}{errors}");
    let (code, said, _) = host.thalweg("restore");
    assert_eq!((code, said.contains("/out with /in: as before")), (0, true), "{said}");
}

#[test]
fn settings_of_a_stopped_program_stay_in_the_journal() {
    let Some(host) = Host::new("settings_of_a_stopped_program_stay_in_the_journal") else { return };
    let start = |arguments: &str| {
        let command = host.house.command(arguments);
        host.namespace.run(|| support::Running::start(command)).unwrap()
    };
    let publisher = start("pub /topic --port /out --carrier tcp --rate 50 --size 64");
    let subscriber = start("sub /topic --port /in --carrier tcp");
    subscriber.line();
    let file = host.file("[[channel]]\npublisher = \"/out\"\nsubscriber = \"/in\"\nclass = \"high\"\n");
    let (code, _, errors) = host.thalweg(&format!("apply {file}"));
    assert_eq!(code, 0, "{errors}");
    subscriber.signal(rustix::process::Signal::STOP);
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!(code, 1, "{said}{errors}");
    assert!(said.contains("/in with /out: not as before") && said.contains("/out with /in: as before"), "{said}");
    subscriber.signal(rustix::process::Signal::CONT);
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!((code, said.trim()), (0, "/in with /out: as before"), "{errors}");
    // The priority of an ended program is gone with it: there is nothing to undo.
    assert_eq!(host.thalweg(&format!("apply {file}")).0, 0);
    drop((publisher, subscriber));
    let (code, said, errors) = host.thalweg("restore");
    assert_eq!((code, said.matches("gone, and its priority with it").count()), (0, 2), "{said}{errors}");
    assert_eq!(host.thalweg("restore").1.trim(), "nothing was applied");
}

#[test]
fn other_programs_are_limited_and_their_groups_get_back_what_they_had() {
    let Some(host) = Host::new("other_programs_are_limited_and_their_groups_get_back_what_they_had") else { return };
    let name = format!("thalweg-apply-{}", std::process::id());
    let places = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup"];
    let place = places.map(|top| std::path::Path::new(top).join(&name)).into_iter().find(|place| {
        let made = std::fs::create_dir(place).is_ok();
        let limited = place.join("cpu.max").exists() || place.join("cpu.cfs_quota_us").exists();
        made && (limited || std::fs::remove_dir(place).is_err())
    });
    let Some(place) = place else { return println!("skipped: because no group can be made with a quota") };
    let limits =
        || ["cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| std::fs::read(place.join(file)).ok());
    let before = limits();
    let file = host.file(&format!("[[cgroup]]\nname = \"{name}\"\nquota = \"25 %\"\n"));
    let (code, said, errors) = host.thalweg(&format!("apply {file} --dry-run"));
    assert!(code == 0 && said.contains("echo \"25000") && limits() == before, "{said}{errors}");
    let (code, said, errors) = host.thalweg(&format!("apply {file} --json"));
    assert!(code == 0 && json(&said)["groups"].as_array().is_some_and(|all| !all.is_empty()), "{said}{errors}");
    assert_ne!(limits(), before);
    let (code, said, errors) = host.thalweg("restore");
    assert!(code == 0 && said.contains("as before") && limits() == before, "{said}{errors}");
    let absent = host.file("[[cgroup]]\nname = \"thalweg-nobody\"\nquota = \"25 %\"\n");
    let (code, _, errors) = host.thalweg(&format!("apply {absent}"));
    assert!(code == 3 && errors.contains("cpu quota of thalweg-nobody: there is no "), "{errors}");
    std::fs::remove_dir(place).unwrap();
}
