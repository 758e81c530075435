//! Any former queues are restored exactly, also after a crash.

use crate::world::{Host, cable, hosts};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use thalweg_linux::queueing::{
    Curve, Hook, Outcome, QueueError, Reason, Restored, Scheduler, Service, Share, Wanted, install, recover, restore,
};

/// Queues in the style of other programs.
const FORMER: [&[&str]; 7] = [
    &[],
    &["tc qdisc add dev veth root handle 5: pfifo limit 77"],
    &["tc qdisc add dev veth root bfifo limit 15000"],
    &["ip link set veth txqueuelen 55", "tc qdisc add dev veth root pfifo_fast"],
    &[
        "tc qdisc add dev veth root handle 1: tbf rate 10mbit burst 3200 limit 100000",
        "tc qdisc add dev veth parent 1:1 handle 10: pfifo limit 31",
    ],
    &[
        "tc qdisc add dev veth root handle 1: stab overhead 24 linklayer ethernet htb default 40 r2q 20",
        "tc class add dev veth parent 1: classid 1:1 htb rate 100mbit ceil 20gbit",
        "tc class add dev veth parent 1:1 classid 1:20 htb rate 30mbit ceil 100mbit prio 1 burst 3200 cburst 3200 quantum 1514",
        "tc class add dev veth parent 1:1 classid 1:40 htb rate 40mbit ceil 100mbit prio 3 quantum 3000",
        "tc qdisc add dev veth parent 1:20 handle 20: pfifo limit 7",
        "tc qdisc add dev veth parent 1:40 handle 40: htb default 1",
        "tc class add dev veth parent 40: classid 40:1 htb rate 1mbit quantum 1600",
        "tc filter add dev veth parent 1: protocol ipv6 prio 5 u32 match ip6 priority 0xb8 0xfc flowid 1:20",
        "tc filter add dev veth parent 1: protocol ip prio 1 u32 match ip tos 0xb8 0xfc match ip dport 7000 0xffff flowid 1:20",
        "tc filter add dev veth parent 1: protocol ip prio 1 u32 match ip src 10.0.0.0/8 flowid 1:40",
    ],
    &[
        "tc qdisc add dev veth root handle 1: htb default 1",
        "tc class add dev veth parent 1: classid 1:1 htb rate 100mbit quantum 1600",
        "tc filter add dev veth parent 1: prio 5 handle 2: protocol ip u32 divisor 256",
        "tc filter add dev veth protocol ip parent 1: prio 5 u32 ht 2:7b: match ip src 1.2.0.123 flowid 1:1",
        "tc filter add dev veth protocol ip parent 1: prio 5 u32 ht 800:: match ip src 1.2.0.0/16 hashkey mask 0x000000ff at 12 link 2:",
    ],
];

pub fn wanted(scheduler: Scheduler) -> Wanted {
    Wanted {
        device: "veth".to_owned(),
        rate: 100_000_000,
        queue: 100,
        scheduler,
        segments: None,
        encapsulation: 0,
        labels: false,
        map: None,
        boundary: false,
    }
}

pub fn shares() -> Scheduler {
    let share = |percent: u64| Share { rate: percent * 1_000_000, ceil: None, priority: None };
    Scheduler::Htb([20, 45, 30, 5].map(share), Vec::new())
}

/// A directory for journals, gone with the test.
pub struct Journals(pub PathBuf);

impl Journals {
    pub fn new(test: &str) -> Self {
        Self(std::env::temp_dir().join(format!("thalweg-queueing-{}-{test}", std::process::id())))
    }
    pub fn are_gone(&self) -> bool {
        let files = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        files.filter(|f| f.path().extension().is_some_and(|e| e == "json")).count() == 0
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn veth(test: &str) -> Option<[Host; 2]> {
    let [a, b] = hosts(test)?;
    cable(&a, "veth", &b, "veth");
    Some([a, b])
}

pub fn as_before() -> Vec<Restored> {
    vec![Restored { device: "veth".to_owned(), outcome: Outcome::AsBefore }]
}

#[test]
fn a_restored_queue_is_as_before() {
    let ours = || [Scheduler::Fifo, Scheduler::Strict, shares()];
    FORMER.iter().for_each(|former| restored_over("a_restored_queue_is_as_before", former, ours()));
}

/// Makes queues by these commands, ours over them, and compares all that `tc` says before and afterwards.
pub fn restored_over<const N: usize>(test: &str, former: &[&str], ours: [Scheduler; N]) {
    let Some([a, _b]) = veth(test) else { return };
    let journals = Journals::new(test);
    former.iter().for_each(|line| drop(a.run(line)));
    let before = a.queues("veth");
    for scheduler in ours {
        let all = [Wanted { map: Some(Hook::Router), ..wanted(scheduler) }];
        a.inside(|| install(&journals.0, &all).unwrap().keep().unwrap());
        let installed = a.queues("veth");
        assert!(installed.contains("qdisc tbf 7a3: root") && installed != before, "{installed}");
        assert!(a.run("nft list ruleset").contains("oifname \"veth\""));
        let restored = a.inside(|| restore(&journals.0)).unwrap();
        assert_eq!(a.queues("veth"), before, "{restored:?}");
        assert_eq!(restored, as_before());
        assert_eq!((a.run("nft list ruleset").as_str(), journals.are_gone()), ("", true));
    }
}

#[test]
fn a_drop_restores_and_a_replacement_keeps_the_first_state() {
    let journals = Journals::new("dropped");
    let Some([a, _b]) = veth("a_drop_restores_and_a_replacement_keeps_the_first_state") else { return };
    a.run(FORMER[1][0]);
    let before = a.queues("veth");
    a.inside(|| {
        let first = install(&journals.0, &[wanted(Scheduler::Strict)]).unwrap();
        first.keep().unwrap();
        let second = install(&journals.0, &[wanted(shares())]).unwrap();
        assert_eq!(second.restored, as_before());
        drop(second);
    });
    assert_eq!((a.queues("veth"), journals.are_gone()), (before, true));
}

/// Journal directory of the process that is to be killed; only set for that process.
const VICTIM: &str = "THALWEG_TEST_VICTIM";

#[test]
#[ignore = "the process that a_crash_is_undone_by_the_next_start kills"]
fn victim() {
    let Some(directory) = std::env::var_os(VICTIM) else { return };
    let _installed = install(directory.as_ref(), &[wanted(shares())]).unwrap();
    println!("installed");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_crash_is_undone_by_the_next_start() {
    let journals = Journals::new("crash");
    let Some([a, _b]) = veth("a_crash_is_undone_by_the_next_start") else { return };
    FORMER[5].iter().for_each(|line| drop(a.run(line)));
    let before = a.queues("veth");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "restoring::victim", "--nocapture"]).env(VICTIM, &journals.0);
    let mut victim = a.inside(|| command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()).unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("installed")));
    assert_eq!(a.inside(|| recover(&journals.0)).unwrap(), [], "its process still runs");
    let busy = a.inside(|| install(&journals.0, &[wanted(Scheduler::Fifo)]).map(drop)).unwrap_err();
    assert!(busy.to_string().contains(&format!("process {} holds", victim.id())), "{busy}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(a.queues("veth").contains("htb 7a2:"), "nobody took them away");
    assert_eq!(a.inside(|| recover(&journals.0)).unwrap(), as_before());
    assert_eq!((a.queues("veth"), journals.are_gone()), (before, true));
}

#[test]
fn a_journal_without_queues_changes_nothing() {
    let journals = Journals::new("early");
    let Some([a, _b]) = veth("a_journal_without_queues_changes_nothing") else { return };
    let kept = a.inside(|| install(&journals.0, &[wanted(shares())]).unwrap());
    std::mem::forget(kept);
    // A crash between the journal and the kernel, and one between the kernel and the journal's end, look like this.
    a.run("tc qdisc del dev veth root");
    let before = a.queues("veth");
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
    assert_eq!(a.queues("veth"), before);
}

#[test]
fn others_queues_and_vanished_devices_are_left_alone() {
    let journals = Journals::new("vanished");
    let Some([a, b]) = veth("others_queues_and_vanished_devices_are_left_alone") else { return };
    let outcome = || a.inside(|| restore(&journals.0)).unwrap().remove(0).outcome;
    a.inside(|| install(&journals.0, &[wanted(shares())]).unwrap().keep().unwrap());
    a.run("tc qdisc replace dev veth root handle 3: pfifo limit 3");
    assert_eq!(outcome(), Outcome::Replaced);
    assert!(a.queues("veth").contains("pfifo 3: root") && journals.are_gone());
    a.run("tc qdisc del dev veth root");
    a.inside(|| install(&journals.0, &[wanted(shares())]).unwrap().keep().unwrap());
    a.run("ip link del veth");
    cable(&a, "veth", &b, "veth");
    let other = a.queues("veth");
    assert_eq!(outcome(), Outcome::Vanished, "a device of the same name is another device");
    assert_eq!((a.queues("veth"), journals.are_gone()), (other, true));
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    let journals = Journals::new("refused");
    let Some([a, b]) = veth("a_refusal_leaves_nothing_behind") else { return };
    cable(&a, "second", &b, "second");
    let before = a.queues("veth");
    let refused = |all: &[Wanted]| -> QueueError { a.inside(|| install(&journals.0, all).map(drop)).unwrap_err() };
    let absent = Wanted { device: "eth9".to_owned(), ..wanted(shares()) };
    assert!(matches!(refused(&[wanted(shares()), absent]).reason, Reason::NoDevice(name) if name == "eth9"));
    // The kernel refuses a rate of 0, on the second device, after the first is done.
    let Scheduler::Htb(mut none, _) = shares() else { unreachable!() };
    none[0].rate = 0;
    let broken = Wanted { device: "second".to_owned(), ..wanted(Scheduler::Htb(none, Vec::new())) };
    let error = refused(&[wanted(shares()), broken]);
    assert!(error.to_string().starts_with("tc class add dev second"), "{error}");
    assert_eq!((a.queues("veth"), journals.are_gone()), (before, true));
    a.inside(|| {
        install(&journals.0, &[Wanted { map: Some(Hook::Router), ..wanted(shares()) }]).unwrap().keep().unwrap()
    });
    let (earlier, table) = (a.queues_without_counters("veth"), a.run("nft list ruleset"));
    let broken = Wanted { rate: 0, ..wanted(Scheduler::Strict) };
    assert!(matches!(refused(&[broken]).reason, Reason::Other(_)));
    assert_eq!(
        (a.queues_without_counters("veth"), a.run("nft list ruleset")),
        (earlier, table),
        "what was installed earlier stays"
    );
    assert_eq!(a.inside(|| restore(&journals.0)).unwrap(), as_before());
    let curve = Some(Curve::linear(5_000_000));
    let service = Service { real_time: curve, link_share: curve, upper_limit: None };
    let hfsc = a.inside(|| install(&journals.0, &[wanted(Scheduler::Hfsc([service; 4]))]).map(|_| ()));
    let has = a.try_run("tc qdisc add dev second root hfsc").is_ok();
    match hfsc {
        Ok(()) => assert!(has, "installed and read back"),
        Err(error) => assert!(!has && matches!(error.reason, Reason::MissingFeature), "{error}"),
    }
    a.run("ip link del second");
    assert_eq!(a.queues("veth").matches("7a1:").count(), 0);
}
