//! Two nodes with a channel between them.

use crate::world::{LONG, eventually, skipped};
use qos::Reliability;
use qos::priority::{Changes, PrioritySettings};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg::admin::EndReport;
use thalweg::codec::Raw;
use thalweg::{Event, Node, Publisher, Settings, Subscriber};

pub const NORMAL: u8 = 0;
pub const LOW: u8 = 0x28;
pub const HIGH: u8 = 0x90;
pub const CRITICAL: u8 = 0xb0;

pub fn changes(words: &str) -> Changes {
    words.parse().unwrap()
}

pub fn asks(words: &str) -> PrioritySettings {
    let mut settings = PrioritySettings::default();
    changes(words).apply(&mut settings);
    settings
}

/// Two nodes, a publisher `/out` on one and a subscriber `/in` on the other.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub publisher: Publisher<Raw>,
    pub subscriber: Subscriber<Raw>,
    pub seqs: Arc<Mutex<Vec<u64>>>,
    pub marker: &'static [u8],
}

/// The first address family on which the publisher's node listens, which channels then use.
pub enum Family {
    V4,
    V6,
}

pub fn nodes(test: &str, family: &Family) -> (Node, Node) {
    let realm = format!("{test}-{}", std::process::id());
    let listen = match family {
        Family::V4 => Vec::new(),
        Family::V6 => {
            let free = std::net::TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
            vec![SocketAddr::new(free.ip(), free.port())]
        }
    };
    let open = |name: &str, listen| {
        Node::with_settings(Settings { name: name.into(), realm: realm.clone(), listen, ..Settings::default() })
            .unwrap()
    };
    (open("a", listen), open("b", Vec::new()))
}

pub fn reliability(carrier: &str) -> Reliability {
    if matches!(carrier, "udp" | "mcast") { Reliability::BestEffort } else { Reliability::Reliable }
}

impl Pair {
    pub fn new(test: &str, carrier: &str, family: Family, marker: &'static [u8]) -> Self {
        let (a, b) = nodes(test, &family);
        let seqs = Arc::<Mutex<Vec<u64>>>::default();
        let subscriber = subscribe(&b, "/in", carrier, seqs.clone());
        let publisher = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000)).open().unwrap();
        assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
        Self { a, b, publisher, subscriber, seqs, marker }
    }

    pub fn publish(&mut self) -> u64 {
        let mut message = self.marker.to_vec();
        message.extend([7; 48]);
        self.publisher.publish(&message).unwrap().seq
    }

    pub fn arrived(&self, seq: u64) {
        let got = eventually(LONG, || (self.seqs.lock().unwrap().last() == Some(&seq)).then_some(()));
        assert!(got.is_some(), "sample {seq} did not arrive; the last was {:?}", self.seqs.lock().unwrap().last());
    }

    /// Publishes one sample, which arrives.
    pub fn exchange(&mut self) -> u64 {
        let seq = self.publish();
        self.arrived(seq);
        seq
    }

    pub fn set_out(&self, words: &str) -> EndReport {
        self.a.set_priority("/out", "/in", &changes(words)).unwrap()
    }

    pub fn set_in(&self, words: &str) -> EndReport {
        self.b.set_priority("/in", "/out", &changes(words)).unwrap()
    }

    /// Asserts that the channel was matched once and never ended: no change reopened it.
    pub fn never_reconnected(&self) {
        for node in [&self.a, &self.b] {
            let mut events = node.events();
            let told: Vec<Event> = std::iter::from_fn(|| events.wait(Duration::ZERO)).collect();
            let matched = told.iter().filter(|e| matches!(e, Event::Matched { .. })).count();
            assert!(matched == 1 && !told.iter().any(|e| matches!(e, Event::Unmatched { .. })), "{told:?}");
        }
    }
}

pub fn subscribe(node: &Node, name: &str, carrier: &str, seqs: Arc<Mutex<Vec<u64>>>) -> Subscriber<Raw> {
    let subscriber = node.subscriber::<Raw>("/t").named(name).reliability(reliability(carrier)).carriers([carrier]);
    subscriber.callback(move |sample| seqs.lock().unwrap().push(sample.info().seq)).unwrap()
}

/// Policy and real-time priority of a thread, from /proc.
pub fn scheduling_of(tid: i32) -> (u32, u32) {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Counted from the state, field 3: rt_priority is field 40, policy 41.
    (fields[41 - 3].parse().unwrap(), fields[40 - 3].parse().unwrap())
}

/// `true` if this process may use real-time scheduling; prints the reason if not.
pub fn may_schedule() -> bool {
    let settings = linux::thread::Settings {
        scheduling: Some("fifo:1".parse().unwrap()),
        ..linux::thread::Settings::named("trial")
    };
    linux::thread::start(settings, || ()).map_err(skipped).is_ok()
}

pub fn first_odd(seqs: &[u64]) -> Option<(usize, &[u64])> {
    let at = seqs.windows(2).position(|w| w[1] != w[0] + 1)?;
    Some((at, &seqs[at.saturating_sub(2)..(at + 4).min(seqs.len())]))
}
