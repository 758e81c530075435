//! Threads and processes, from /proc.

use super::pair::{Family, Pair, changes, first_odd, may_schedule, nodes, scheduling_of};
use crate::world::agent::{Agent, number};
use crate::world::stranger::Stranger;
use crate::world::{LONG, World, alone, eventually, skipped};
use std::sync::{Arc, Mutex, mpsc};
use thalweg::codec::Raw;
use thalweg::proxy::Picture;
use thalweg::proxy::scaler::{Scaler, Scalers, Unscalable};
use thalweg::testing::handshake::{Accepted, Answer, Request};
use thalweg::{Node, Publisher, Settings};

/// `true` if the thread ends.
fn ended(tid: i32) -> bool {
    let gone = || (!std::path::Path::new(&format!("/proc/self/task/{tid}")).exists()).then_some(());
    eventually(LONG, gone).is_some()
}

#[test]
fn a_sending_thread_is_scheduled_as_proc_says_and_ends_when_unset() {
    let _alone = alone();
    if !may_schedule() {
        return;
    }
    let mut pair = Pair::new("scheduled", "tcp", Family::V4, b"");
    let report = pair.set_out("sched=fifo:30 affinity=0");
    let tid = report.tid.unwrap();
    assert_eq!(scheduling_of(tid), (1, 30));
    assert_eq!((report.policy.as_str(), report.priority, report.affinity), ("fifo", 30, vec![0]));
    assert!(report.own_thread);
    pair.exchange();
    // At once, by thread id: it is the same thread.
    let report = pair.set_out("sched=rr:7 affinity=default");
    assert_eq!((report.tid, scheduling_of(tid)), (Some(tid), (2, 7)));
    assert!(report.affinity.len() > 1 || std::thread::available_parallelism().unwrap().get() == 1);
    let report = pair.set_out("sched=deadline:1ms/10ms");
    assert_eq!((report.policy.as_str(), scheduling_of(tid).0), ("deadline", 6), "{report:?}");
    pair.exchange();
    let report = pair.set_out("sched=default");
    assert_eq!((report.tid, report.own_thread), (None, false));
    pair.exchange();
    assert!(ended(tid), "the thread did not end");
    // The thread ends with the channel.
    let tid = pair.set_out("sched=fifo:5").tid.unwrap();
    drop(pair.subscriber);
    assert!(ended(tid), "it outlived its channel");
}

/// Policy and priority of all threads of a process.
fn all_scheduling_of(pid: u32) -> Vec<(u32, u32)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let stat = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).ok();
    let numbers = |stat: String| {
        let fields: Vec<String> = stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect();
        Some((fields.get(41 - 3)?.parse().ok()?, fields.get(40 - 3)?.parse().ok()?))
    };
    tasks.filter_map(stat).filter_map(numbers).collect()
}

#[test]
fn a_process_is_scheduled_with_all_its_threads() {
    let _alone = alone();
    if !may_schedule() {
        return;
    }
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let _subscriber = Agent::start(&world, "subscriber topic=/a");
    publisher.connected(1);
    let set = publisher.ask("set to=process+sched=rr:3");
    assert!(set["ok"] == true && set["ends"][0]["end"] == "process" && set["ends"][0]["policy"] == "rr", "{set}");
    assert!(all_scheduling_of(publisher.pid()).iter().all(|found| *found == (2, 3)));
    let refused = publisher.ask("set to=process+affinity=1023");
    assert!(refused["ok"] == false && refused["why"].as_str().unwrap().contains("1023"), "{refused}");
    publisher.ask("set to=process+sched=default");
    assert!(all_scheduling_of(publisher.pid()).iter().all(|found| *found == (0, 0)));
}

#[test]
fn memory_is_locked_where_that_is_asked_for() {
    let _alone = alone();
    let world = World::new();
    if let Err(refused) =
        Node::with_settings(Settings { lock_memory: true, name: "trial".into(), ..Settings::default() })
    {
        return skipped(refused);
    }
    rustix::mm::munlockall().unwrap(); // this process has other tests
    for (part, locked) in [("publisher topic=/a lock=1", true), ("publisher topic=/b", false)] {
        let publisher = Agent::start(&world, part);
        let status = std::fs::read_to_string(format!("/proc/{}/status", publisher.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmLck:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(kib > 0, locked, "{line}");
    }
}

/// Lets a process open no descriptor above this number.
fn limit_descriptors(pid: u32, number: u32) -> bool {
    let limit = std::process::Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--nofile={number}:")])
        .status();
    limit.is_ok_and(|status| status.success())
}

/// A channel whose waiting samples no thread can send ends with its reason, instead of falling silent.
#[test]
fn a_channel_without_a_sending_thread_ends_with_the_reason() {
    let _alone = alone();
    // A datagram never waits for a subscriber that does not read. Fragments of a message pause after a quarter of the
    // subscriber's buffer, which is 1 MiB where the kernel grants the full size: 1 MB left whole, so that nothing
    // waited.
    for (carrier, size) in [("tcp", 60_000), ("udp", 4_000_000)] {
        let world = World::new();
        let mut publisher = Agent::start(&world, &format!("publisher topic=/a max={size}"));
        let mut subscriber = Agent::start(&world, &format!("subscriber topic=/a carriers={carrier} max={size}"));
        publisher.connected(1);
        if !limit_descriptors(publisher.pid(), 3) {
            return skipped("prlimit could not lower the number of descriptors");
        }
        // The thread of its former class exists since the channel was opened.
        let set = publisher.ask("set to=class=high");
        assert!(set["ok"] == true, "{carrier}: {set}");
        subscriber.stop();
        publisher.ask(&format!("publish count=400 hz=100000 size={size}"));
        assert!(publisher.told("no thread for what waits", LONG), "{carrier}");
        assert!(limit_descriptors(publisher.pid(), 1000));
        subscriber.go_on();
        // With descriptors again it is reconnected, and continues.
        subscriber.ask("reset");
        let heard = eventually(LONG, || {
            publisher.ask("publish count=1 size=64");
            (number(&subscriber.ask("report"), "received") > 0.0).then_some(())
        });
        assert!(heard.is_some(), "{carrier}: {}", publisher.ask("status"));
    }
}

/// Waiting samples move with their channel while the socket is full: from the class's thread to the channel's own and
/// back, and to another class's.
#[test]
fn waiting_samples_move_to_the_new_thread_in_order() {
    let _alone = alone();
    let (a, b) = nodes("backlog", &Family::V4);
    let (seqs, gate) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(Mutex::new(())));
    let (note, wait) = (seqs.clone(), gate.clone());
    let builder = b.subscriber::<Raw>("/t").named("/in").carriers(["tcp"]);
    let subscriber = builder.callback(move |sample| {
        drop(wait.lock().unwrap());
        note.lock().unwrap().push(sample.info().seq);
    });
    let subscriber = subscriber.unwrap();
    let builder = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000));
    let mut publisher = builder.open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    for round in ["class=high", "affinity=0", "class=low", "affinity=default class=default"] {
        let closed = gate.lock().unwrap();
        let waits = |publisher: &Publisher<Raw>| publisher.channels()[0].waiting > 0;
        while !waits(&publisher) {
            publisher.publish(&[5; 20_000]).unwrap();
        }
        a.set_priority("/out", "/in", &changes(round)).unwrap();
        publisher.publish(&[6; 20_000]).unwrap();
        drop(closed);
        let last = publisher.publish(&[7; 64]).unwrap().seq;
        let all = eventually(LONG, || (seqs.lock().unwrap().last() == Some(&last)).then_some(()));
        let seqs = seqs.lock().unwrap();
        assert!(all.is_some() && seqs.iter().copied().eq(1..=last), "{round}: {:?}", first_odd(&seqs));
    }
}

#[test]
fn both_ends_have_threads_of_their_own_and_say_where_packets_wait() {
    let _alone = alone();
    if !may_schedule() {
        return;
    }
    for carrier in ["tcp", "udp"] {
        let mut pair = Pair::new(&format!("ends-{carrier}"), carrier, Family::V4, b"");
        let (sends, receives) = (pair.set_out("class=high sched=fifo:21"), pair.set_in("sched=fifo:22"));
        let both = [sends.tid, receives.tid].map(|tid| scheduling_of(tid.unwrap()));
        assert_eq!(both, [(1, 21), (1, 22)], "{carrier}");
        assert!(sends.own_thread && receives.own_thread);
        // Packets never wait on the loopback interface.
        assert_eq!((sends.device.as_deref(), sends.effective), (Some("lo"), false), "{sends:?}");
        assert!(sends.because.contains("lo") || sends.because.contains("queue"), "{sends:?}");
        pair.exchange();
        let back = pair.set_in("sched=default");
        assert_eq!((back.policy.as_str(), back.priority), ("other", 0), "{back:?}");
        pair.exchange();
        pair.never_reconnected();
    }
}

/// The processors that each thread of a process may use.
fn processors_of(pid: u32) -> std::collections::BTreeSet<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let line = |status: String| status.lines().find(|l| l.starts_with("Cpus_allowed_list:")).map(str::to_owned);
    status.filter_map(line).collect()
}

#[test]
fn a_process_gets_the_processors_back_that_it_had() {
    let _alone = alone();
    let world = World::new();
    let mut publisher = Agent::start(&world, "publisher topic=/a");
    let before = processors_of(publisher.pid());
    assert!(publisher.ask("set to=process+affinity=0")["ok"] == true);
    assert_eq!(processors_of(publisher.pid()), ["Cpus_allowed_list:\t0".to_owned()].into());
    assert!(publisher.ask("set to=process+affinity=default")["ok"] == true);
    assert_eq!(processors_of(publisher.pid()), before);
}

/// Keeps the first `width` bytes of a message.
struct Cut;

impl Scaler for Cut {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        out.extend_from_slice(&message[..message.len().min(picture.width.into())]);
        Ok(())
    }
}

/// The publisher's node sends smaller pictures by another port than the whole ones. The end is the publisher's all the same.
#[test]
fn a_thread_that_sends_smaller_pictures_is_set_and_taken_back() {
    let _alone = alone();
    let settings = |name: &str| Settings {
        name: name.into(),
        realm: format!("smaller-{}", std::process::id()),
        scalers: Scalers::default().with("/t", || Cut),
        ..Settings::default()
    };
    let (a, b) = (Node::with_settings(settings("a")).unwrap(), Node::with_settings(settings("b")).unwrap());
    let mut publisher = a.publisher::<Raw>("/t").named("/out").open().unwrap();
    let subscribe = || {
        let (tell, told) = mpsc::channel();
        let builder = b.subscriber::<Raw>("/t").named("/in").carriers(["tcp"]).picture(10, 1);
        let subscriber = builder.callback(move |sample| {
            let _ = tell.send(sample.len());
        });
        (subscriber.unwrap(), told)
    };
    let set = |words: &str| a.set_priority("/out", "/in", &changes(words)).unwrap();
    let before = subscribe();
    assert!(before.0.wait_connected(1, LONG));
    let report = set("affinity=0");
    assert!(report.own_thread && report.affinity == [0] && report.carrier.as_str() == "tcp", "{report:?}");
    drop(before);
    assert!(ended(report.tid.unwrap()), "it outlived its channel");
    // Settings that are kept hold for the next channel.
    let (subscriber, told) = subscribe();
    assert!(subscriber.wait_connected(1, LONG));
    let report = a.priority_report("/out", Some("/in")).unwrap().remove(0);
    publisher.publish(&[7; 100]).unwrap();
    assert_eq!((told.recv_timeout(LONG), report.own_thread), (Ok(10), true));
    assert!(!set("affinity=default").own_thread && ended(report.tid.unwrap()), "it was not taken back");
    publisher.publish(&[7; 100]).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(10));
}

/// While a proxy moves, two channels lead from one port to the other. Either of them may be the one that stays.
#[test]
fn both_channels_of_a_move_have_the_settings_of_their_end() {
    let _alone = alone();
    let (a, _) = nodes("moving", &Family::V4);
    let _publisher = a.publisher::<Raw>("/t").named("/out").open().unwrap();
    let stranger = Stranger::of_node(&a);
    let request = |moves| Request { moves, token: Some(7), ..stranger.request("/t", 1) };
    let open = [false, true].map(|moves| match stranger.ask(&request(moves)) {
        (stream, Some(Answer::Accepted(Accepted { flow, .. }))) => (stream, format!("send-{flow:x}")),
        (_, refused) => panic!("{refused:?}"),
    });
    let has_thread = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.any(|found| found.trim_end() == name)
    };
    let set = |words: &str| a.set_priority("/out", "/stranger/1", &changes(words)).unwrap();
    assert!(set("affinity=0").own_thread);
    assert!(open.iter().all(|(_, name)| has_thread(name)), "one of them has none");
    assert!(!set("affinity=default").own_thread);
    let gone = || open.iter().all(|(_, name)| !has_thread(name)).then_some(());
    assert!(eventually(LONG, gone).is_some(), "one of them kept it");
}
