//! The worth of a band on a full link (docs/queueing.md): 10 Mbit/s, `pfifo_fast`, one best-effort flood.

use crate::packets::{marked, receive, receiver};
use crate::world::pair;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thalweg_linux::clock::monotonic_ns;

/// Name, code point, socket priority set afterwards.
const PROBES: [(&str, u8, Option<u32>); 7] = [
    ("default", 0, None),
    ("EF", 46, None),
    ("AF12", 12, None),
    ("AF42", 36, None),
    ("VA", 44, None),
    ("EF and SO_PRIORITY 6", 46, Some(6)),
    ("AF41", 34, None),
];
const ROUNDS: usize = 60;
const FLOOD: u8 = 255;

/// Waits in milliseconds of each probe that arrived during the flood: the median, infinite if most were lost.
fn median(waits: &[f64]) -> f64 {
    let mut all = waits.to_vec();
    all.resize(ROUNDS, f64::INFINITY);
    all.sort_by(f64::total_cmp);
    all[ROUNDS / 2]
}

#[test]
fn marked_packets_wait_as_their_band_says() {
    let Some([a, b]) = pair("marked_packets_wait_as_their_band_says") else { return };
    a.run("ip link set veth txqueuelen 100");
    a.run("tc qdisc add dev veth root handle 1: tbf rate 10mbit burst 3200 limit 10000000");
    a.run("tc qdisc add dev veth parent 1:1 handle 2: pfifo_fast");
    let address: IpAddr = "10.99.0.2".parse().unwrap();
    let (sink, port) = b.inside(|| receiver(address));
    let (to, ended) = (SocketAddr::new(address, port), AtomicBool::new(false));
    let mut waits: HashMap<u8, Vec<f64>> = HashMap::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            a.inside(|| {
                let flood = marked(to, 0, None);
                while !ended.load(Ordering::Relaxed) {
                    let _ = flood.send(&[FLOOD; 1400]); // waits when the socket's buffer is full
                }
            });
        });
        scope.spawn(|| {
            // The queue is full before the first probe.
            let full = || {
                a.inside(|| thalweg_linux::queueing::read("veth")).unwrap().root().map_or(0, |r| r.counters.waiting)
                    >= 50
            };
            while !full() {
                std::thread::yield_now();
            }
            a.inside(|| {
                let sockets = PROBES.map(|(_, dscp, priority)| marked(to, dscp << 2, priority));
                let began = Instant::now();
                for round in 0..ROUNDS as u32 {
                    std::thread::sleep(
                        (began + Duration::from_millis(20) * round).saturating_duration_since(Instant::now()),
                    );
                    for (probe, socket) in sockets.iter().enumerate() {
                        let mut bytes = [probe as u8; 64];
                        bytes[8..16].copy_from_slice(&monotonic_ns().to_le_bytes());
                        let _ = socket.send(&bytes);
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(300)); // starved packets have their chance while the flood lasts
            ended.store(true, Ordering::Relaxed);
        });
        let mut buffer = [0; 1500];
        while !ended.load(Ordering::Relaxed) {
            let length = receive(&sink, &mut buffer);
            let sent = u64::from_le_bytes(buffer[8..16].try_into().unwrap());
            if length == 64 {
                waits.entry(buffer[0]).or_default().push(monotonic_ns().saturating_sub(sent) as f64 / 1e6);
            }
        }
    });
    let medians: Vec<f64> = (0..PROBES.len() as u8).map(|p| median(waits.get(&p).map_or(&[][..], |w| w))).collect();
    for ((name, ..), wait) in PROBES.iter().zip(&medians) {
        println!("{name}: median {wait:.2} ms");
    }
    let [default, ef, af12, af42, va, helped, af41] = medians[..] else { unreachable!() };
    for waits in [default, ef] {
        assert!(waits >= 20.0, "behind the flood: {waits} ms");
    }
    for first in [af12, af42, va, helped] {
        assert!(first < 10.0 && first * 4.0 < default.min(ef), "before the flood: {first} ms");
    }
    assert!(af41 > 2.0 * default, "AF41 is below best effort: {af41} ms");
}
