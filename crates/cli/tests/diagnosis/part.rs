//! Programs with a fault in them, as processes of their own: this test binary, started again with `PART` set.

use crate::support::{Running, Testbed};
use linux::queueing::Wanted;
use std::process::Command;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{DiscoverySource, Node, Publisher, Settings};

/// Starts a part in the house.
pub fn start(house: &Testbed, part: &str) -> Running {
    Running::start(command(house, part))
}

/// The command of a part. With `LISTEN` and `NODES` set, its node listens there and finds those nodes.
pub fn command(house: &Testbed, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "diagnosis::part::play", "--nocapture"]);
    command.env("PART", part).env("THALWEG_RUN_DIR", house.path("run"));
    command
}

fn open(part: &str) -> Node {
    let mut settings = Settings { name: part.to_owned(), ..Settings::default() };
    if let (Ok(listen), Ok(nodes)) = (std::env::var("LISTEN"), std::env::var("NODES")) {
        settings.listen = vec![listen.parse().unwrap()];
        settings.discovery = DiscoverySource::Static(nodes.into());
    }
    Node::with_settings(settings).unwrap()
}

/// Not a test: the body of the processes of [`start`].
#[test]
#[ignore = "started by other tests"]
fn play() {
    let Ok(part) = std::env::var("PART") else { return };
    let node = open(&part);
    match part.as_str() {
        "floods" => publish(node.publisher("/a").named("/out").open().unwrap(), 64, Duration::from_micros(500)),
        "expedited" => {
            let publisher = node.publisher("/a").named("/out").carriers(["tcp"]).open().unwrap();
            node.set_priority("/out", "/in", &"dscp=EF".parse().unwrap()).unwrap();
            publish(publisher, 64, Duration::from_millis(10));
        }
        "queues" => {
            let scheduler = linux::queueing::Scheduler::Strict;
            let wanted = Wanted {
                device: "v0".into(),
                rate: 100_000_000,
                queue: 100,
                scheduler,
                segments: None,
                encapsulation: 0,
                labels: false,
                map: None,
                boundary: false,
            };
            let applied = std::path::PathBuf::from(std::env::var_os("THALWEG_RUN_DIR").unwrap()).join("applied");
            let _installed = linux::queueing::install(&applied, &[wanted]).unwrap();
            println!("installed");
            forever();
        }
        "large" => publish(node.publisher("/a").named("/out").open().unwrap(), 1000, Duration::from_millis(10)),
        "silent" => {
            let _publisher = node.publisher::<Raw>("/a").named("/out").open().unwrap();
            forever();
        }
        "numbers" => {
            let _publisher = node.publisher::<u32>("/a").named("/out").open().unwrap();
            forever();
        }
        "texts" => {
            let _subscriber = node.subscriber::<String>("/a").named("/in").callback(|_| ()).unwrap();
            forever();
        }
        "slow" => {
            let nap = |_: thalweg::Sample<'_, Raw>| std::thread::sleep(Duration::from_millis(400));
            let _subscriber = node.subscriber::<Raw>("/a").named("/in").callback(nap).unwrap();
            forever();
        }
        "lazy" => {
            let _subscriber = node.subscriber::<Raw>("/a").named("/in").open().unwrap();
            forever();
        }
        "narrow" => {
            let port = node.subscriber::<Raw>("/a").named("/in").max_message(100);
            let _subscriber = port.callback(|_| ()).unwrap();
            forever();
        }
        _ => panic!("no part {part}"),
    }
}

fn publish(mut publisher: Publisher<Raw>, size: usize, pause: Duration) {
    loop {
        let _ = publisher.publish(&vec![0; size][..]);
        std::thread::sleep(pause);
    }
}

/// Waits until the test kills this process.
fn forever() {
    loop {
        std::thread::park();
    }
}
