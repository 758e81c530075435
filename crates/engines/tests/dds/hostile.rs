//! Malformed packets, messages beyond a limit, and a subscriber that is slow.

use super::{HEADER, domain, open, settings, topic, until, written};
use crate::world::LONG;
use qos::Qos;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use thalweg_engines::dds::{Dds, Settings};
use thalweg_engines::{Deliver, Engine};

/// Packets of nobody (DDSI-RTPS 2.5 §8.3): a header, and submessages that are cut off, or lie about their lengths.
#[test]
fn malformed_packets_are_counted_and_do_no_harm() {
    let domain = domain();
    let (first, second) = (open(domain), open(domain));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let header = [&b"RTPS\x02\x03\x01\x10"[..], &[7; 12]].concat();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..400_usize {
        let mut packet = header[..header.len().min(8 + round)].to_vec();
        // DATA, DATA_FRAG, HEARTBEAT, GAP and what else there is; flags, length, content.
        packet.extend([[0x15, 0x16, 0x07, 0x08, 0x06][round % 5], round as u8]);
        packet.extend((0..round % 90).map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u8
        }));
        // The ports of the first participants of a host (§9.6.2.3): discovery, and data.
        for port in (0..8).map(|number| 7410 + 250 * domain + number) {
            let _ = socket.send_to(&packet, ("127.0.0.1", u16::try_from(port).unwrap()));
        }
    }
    until("they are told", || first.refused().last.contains("malformed packet"));
    let publisher = first.publisher(&topic("/after"), &Qos::default()).unwrap();
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| tell.send(sample.message.to_vec()).unwrap());
    let _subscriber = second.subscriber(&topic("/after"), &Qos::default(), deliver).unwrap();
    until("they find each other", || publisher.is_wanted());
    publisher.publish(&written(&HEADER)).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), HEADER);
}

#[test]
fn a_message_beyond_the_limit_is_refused_on_both_sides() {
    let domain = domain();
    let (small, large) = (Settings { max_message: 4096, ..settings(domain) }, open(domain));
    let small = Dds::open(small, None).unwrap();
    let publisher = large.publisher(&topic("/large"), &Qos::default()).unwrap();
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| tell.send(sample.message.len()).unwrap());
    let _subscriber = small.subscriber(&topic("/large"), &Qos::default(), deliver).unwrap();
    until("they find each other", || publisher.is_wanted());
    let mut message = HEADER.to_vec();
    for length in [4100, 4096] {
        message.resize(length, 0);
        publisher.publish(&written(&message)).unwrap();
    }
    assert_eq!(told.recv_timeout(LONG).unwrap(), 4096);
    until("it is told", || small.refused().last.contains("oversize"));
    message.push(0);
    let own = small.publisher(&topic("/own"), &Qos::default()).unwrap();
    assert!(own.publish(&written(&message)).unwrap_err().to_string().contains("at most 4096"));
}

/// The subscriber does not take its first sample before the publisher waits for room, or is through.
#[test]
fn a_slow_subscriber_loses_nothing() {
    const LARGE: usize = 60_000;
    const SAMPLES: u32 = 100;
    let domain = domain();
    let (first, second) = (open(domain), open(domain));
    let sent = Arc::new(AtomicU32::new(0));
    let (progress, (tell, told)) = (sent.clone(), channel());
    let mut is_first = true;
    let deliver: Deliver = Box::new(move |sample| {
        let mut seen = None;
        while is_first && seen != Some(progress.load(Ordering::Acquire)) {
            seen = Some(progress.load(Ordering::Acquire));
            std::thread::sleep(Duration::from_millis(300)); // between two looks whether it waits
        }
        is_first = false;
        let _ = tell.send(sample.message.last().copied());
    });
    let publisher = first.publisher(&topic("/large"), &Qos::default()).unwrap();
    let _subscriber = second.subscriber(&topic("/large"), &Qos::default(), deliver).unwrap();
    until("they have found each other", || publisher.is_wanted());
    for number in 0..SAMPLES {
        let mut message = HEADER.to_vec();
        message.resize(LARGE, number as u8);
        publisher.publish(&written(&message)).unwrap();
        sent.fetch_add(1, Ordering::Release);
    }
    let got: Vec<_> = (0..SAMPLES).map(|_| told.recv_timeout(LONG).unwrap().unwrap()).collect();
    assert_eq!(got, (0..SAMPLES as u8).collect::<Vec<_>>());
}
