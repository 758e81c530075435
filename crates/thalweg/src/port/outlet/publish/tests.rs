//! Samples of a history that a relay forwards.

use super::*;
use crate::codec::Raw;
use crate::node::Node;
use crate::settings::Settings;
use std::sync::mpsc::channel;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

/// A relay gets samples of a history after later ones. The next hop delivers and marks them.
#[test]
fn a_forwarded_historical_sample_stays_historical() {
    for carrier in ["local", "shm", "tcp", "udp"] {
        let realm = format!("forward-{carrier}-{}", std::process::id());
        let node = || Node::with_settings(Settings { realm: realm.clone(), ..Settings::default() }).unwrap();
        let (gate, there) = (node(), node());
        let publisher = gate.publisher::<Raw>("/a").open().unwrap();
        let (tell, told) = channel();
        let builder = there.subscriber::<Raw>("/a").reliability(qos::Reliability::BestEffort).carriers([carrier]);
        let port = builder.callback(move |s| tell.send((s.info().seq, s.info().historical)).unwrap()).unwrap();
        assert!(publisher.wait_connected(1, LONG) && port.wait_connected(1, LONG));
        let samples = [(1, false), (2, false), (5, false), (3, true), (4, true), (6, false)];
        for (seq, historical) in samples {
            let (me, incarnation) = (publisher.outlet.me, publisher.outlet.incarnation);
            let info = SampleInfo {
                node: me.node,
                port: me.port,
                incarnation,
                seq,
                source_ns: seq,
                received_ns: seq,
                same_clock: true,
                historical,
                change: Change::Written,
                scaled: None,
            };
            publisher.outlet.forward(&info, b"sample");
        }
        let got: Vec<_> = samples.iter().map_while(|_| told.recv_timeout(LONG).ok()).collect();
        assert_eq!(got, samples, "{carrier}");
        assert_eq!(publisher.outlet.published.load(Ordering::Relaxed), 6);
        drop(port);
    }
}
