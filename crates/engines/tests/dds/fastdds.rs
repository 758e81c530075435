//! Fast DDS 2, by a program in C++ that is compiled here (`fastdds_peer.cpp`). Its library is Debian's.

use super::peers::{COUNT, Peer};
use super::{bridge, domain, until};
use crate::world::{LONG, node, realm};
use qos::{Durability, Qos, Queue, Reliability};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg::Event;

/// The type `robot::Line` of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    data: String,
}

fn line(number: u32) -> Line {
    Line { data: said(number) }
}

fn said(number: u32) -> String {
    format!("sample {number}")
}

/// `policies`: reliability, durability and depth; `samples`: writers, and samples of each. `None`, with the reason printed, if there is no
/// Fast DDS.
fn start(what: [&str; 2], domain: u32, topic: &str, policies: [&str; 3], samples: [u32; 2]) -> Option<Peer> {
    let program = program().as_ref().map_err(|why| println!("skipped: because {why}")).ok()?;
    let [role, told] = what;
    let mut command = Command::new(program);
    command.args([role, &domain.to_string(), topic, "robot::Line", told]).args(policies);
    command.args(samples.map(|number| number.to_string()));
    Some(Peer::spawn(command))
}

/// The program, compiled unless it is newer than its text. That takes 6 s of a processor.
fn program() -> &'static Result<PathBuf, &'static str> {
    static PROGRAM: OnceLock<Result<PathBuf, &'static str>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/fastrtps/types/DynamicPubSubType.h").exists() {
            return Err("there is no Fast DDS 2 (Debian 12's package libfastrtps-dev)");
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fastdds_peer.cpp");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fastdds_peer");
        if written(&program) <= written(&source) {
            let made = program.with_extension("made");
            let mut compiler = Command::new("c++");
            compiler.arg("-O0").arg(source).arg("-o").arg(&made).arg("-lfastrtps");
            let Ok(output) = compiler.output() else { return Err("there is no c++ (Debian's package g++)") };
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            std::fs::rename(made, &program).unwrap(); // whole, or not there
        }
        Ok(program)
    })
}

/// When a file was written; `None`, which is before all times, if there is none.
fn written(file: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(file).ok()?.modified().ok()
}

/// The writer describes its type, in a way that Cyclone takes for malformed.
#[test]
fn a_thousand_samples_of_fast_dds_reach_a_rust_struct() {
    let (domain, realm) = (domain(), realm("fastdds-in"));
    let here = node("here", &realm);
    let (tell, told) = channel();
    let subscriber = here.subscriber::<Line>("/robot/line");
    let subscriber = subscriber.callback(move |sample| tell.send(sample.data.clone()).unwrap()).unwrap();
    let _bridge = bridge(&realm, domain);
    let policies = ["reliable", "volatile", "0"];
    let Some(peer) = start(["pub", "described"], domain, "robot/line", policies, [1, COUNT]) else { return };
    for number in 0..COUNT {
        assert_eq!(told.recv_timeout(LONG).unwrap(), said(number));
    }
    peer.end();
    until("the writer's port is gone", || subscriber.connected() == 0);
}

/// The reader describes its type.
#[test]
fn fast_dds_gets_a_thousand_samples_of_a_rust_struct() {
    let (domain, realm) = (domain(), realm("fastdds-out"));
    let here = node("here", &realm);
    let mut publisher = here.publisher::<Line>("/robot/line").queue(Queue::KeepAll(1024)).open().unwrap();
    let bridge = bridge(&realm, domain);
    let policies = ["reliable", "volatile", "0"];
    let Some(mut peer) = start(["sub", "described"], domain, "robot/line", policies, [0, 0]) else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    assert!(publisher.wait_connected(1, LONG), "{:?}", bridge.notices());
    for number in 0..COUNT {
        until("there is room", || publisher.publish(&line(number)).unwrap().refused == 0);
    }
    let got: Vec<String> = lines.by_ref().take(COUNT as usize).collect();
    assert_eq!(got, (0..COUNT).map(said).collect::<Vec<_>>());
    peer.end();
    assert_eq!(lines.next(), None);
}

/// Three writers, each of which keeps the last two of its three samples.
#[test]
fn a_late_subscriber_gets_the_histories_of_fast_dds() {
    let (domain, realm) = (domain(), realm("fastdds-kept"));
    let here = node("here", &realm);
    let _bridge = bridge(&realm, domain);
    let policies = ["reliable", "transient-local", "2"];
    let Some(mut peer) = start(["pub", "named"], domain, "robot/map", policies, [3, 3]) else { return };
    assert_eq!(peer.lines().next().unwrap(), "ready");
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..Qos::default() };
    let (tell, told) = channel();
    let late = here.subscriber::<Line>("/robot/map").qos(durable);
    let _late = late.callback(move |sample| tell.send(sample.data.clone()).unwrap()).unwrap();
    let mut got: Vec<String> = (0..6).map(|_| told.recv_timeout(LONG).unwrap()).collect();
    got.sort_unstable();
    assert_eq!(got, [1, 2, 4, 5, 7, 8].map(said));
    peer.end();
}

#[test]
fn a_late_reader_of_fast_dds_gets_the_history_of_a_publisher() {
    let (domain, realm) = (domain(), realm("fastdds-late"));
    let here = node("here", &realm);
    let durable = Qos { durability: Durability::TransientLocal, history: 5, ..Qos::default() };
    let mut publisher = here.publisher::<Line>("/robot/map").qos(durable).open().unwrap();
    let mut publish = |number| until("there is room", || publisher.publish(&line(number)).unwrap().refused == 0);
    (0..10).for_each(&mut publish);
    let _bridge = bridge(&realm, domain);
    let policies = ["reliable", "transient-local", "0"];
    let Some(mut peer) = start(["sub", "named"], domain, "robot/map", policies, [0, 0]) else { return };
    let mut lines = peer.lines();
    assert_eq!(lines.next().unwrap(), "ready");
    let kept: Vec<String> = lines.by_ref().take(5).collect();
    assert_eq!(kept, (5..10).map(said).collect::<Vec<_>>());
    publish(10);
    assert_eq!(lines.next().unwrap(), said(10));
    peer.end();
    assert_eq!(lines.next(), None);
}

/// A best-effort writer and a reliable reader: the side of the reader is told, and in Fast DDS by its status.
#[test]
fn fast_dds_and_a_port_that_do_not_match_are_told() {
    let (domain, realm) = (domain(), realm("fastdds-qos"));
    let here = node("here", &realm);
    let bridge = bridge(&realm, domain);
    let mut events = here.events();
    let lossy = ["best-effort", "volatile", "0"];
    let Some(writer) = start(["pub", "named"], domain, "sensor", lossy, [1, 1]) else { return };
    let _reliable = here.subscriber::<Line>("/sensor").open().unwrap();
    until("the subscriber here is told", || {
        let told = events.wait(Duration::from_millis(20));
        matches!(told, Some(Event::Incompatible { policy, offered, .. }) if policy == "reliability" && offered == "best-effort")
    });
    let best_effort = Qos { reliability: Reliability::BestEffort, ..Qos::default() };
    let _lossy = here.publisher::<Line>("/fast").qos(best_effort).open().unwrap();
    let reliable = ["reliable", "volatile", "0"];
    let Some(mut reader) = start(["sub", "named"], domain, "fast", reliable, [0, 0]) else { return };
    let mut lines = reader.lines();
    assert_eq!(lines.by_ref().take(2).collect::<Vec<_>>(), ["ready", "incompatible reliability"]);
    let mismatch = "/fast: reliability offered best-effort, requested reliable";
    until("the bridge tells", || bridge.notices().iter().any(|notice| notice == mismatch));
    writer.end();
    reader.end();
}
