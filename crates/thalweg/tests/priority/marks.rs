//! Marks, queues and pace: the packets on the wire.

use super::pair::{CRITICAL, Family, HIGH, LOW, NORMAL, Pair, changes, nodes, subscribe};
use crate::world::agent::Agent;
use crate::world::capture::{Capture, Packet};
use crate::world::net::{A, B, TwoHosts};
use crate::world::{LONG, World, alone, eventually, skipped};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::Event;
use thalweg::codec::Raw;

#[test]
fn the_next_packet_has_the_new_mark() {
    let _alone = alone();
    for (carrier, family) in [("tcp", Family::V4), ("tcp", Family::V6), ("udp", Family::V4), ("udp", Family::V6)] {
        let v6 = matches!(family, Family::V6);
        if v6 && let Err(why) = std::net::TcpListener::bind("[::1]:0") {
            skipped(format!("there is no IPv6 here: {why}"));
            continue;
        }
        let marker: &[u8] = b"thalweg mark";
        let capture = match Capture::start(marker) {
            Ok(capture) => capture,
            Err(why) => return skipped(why),
        };
        let mut pair = Pair::new(&format!("next-{carrier}-{v6}"), carrier, family, marker);
        let first = pair.exchange();
        assert_eq!(capture.mark_of(first), Some(NORMAL), "{carrier} v6 {v6}");
        for (words, octet, priority) in [
            ("class=high", HIGH, 6),
            ("dscp=EF", 0xb8, 4),
            ("dscp=EF priority=6", 0xb8, 6),
            ("tos=40 priority=default", 40, 2),
            ("class=low", LOW, 2),
            ("class=critical", CRITICAL, 6),
            ("class=default", NORMAL, 0),
        ] {
            let report = pair.set_out(words);
            let told = (report.tos, report.socket_priority, report.carrier.as_str());
            assert_eq!(told, (Some(octet), Some(priority), carrier), "{words}: {report:?}");
            let seq = pair.exchange();
            let packet = capture.packet_of(seq).unwrap();
            assert_eq!((packet.tos, packet.v6, packet.tcp), (octet, v6, carrier == "tcp"), "{carrier}: {words}");
        }
        pair.never_reconnected();
    }
}

#[test]
fn acknowledgements_and_the_stream_beside_udp_are_marked_too() {
    let _alone = alone();
    let marker: &[u8] = b"thalweg acks";
    for carrier in ["tcp", "udp"] {
        let capture = match Capture::start(marker) {
            Ok(capture) => capture,
            Err(why) => return skipped(why),
        };
        let mut pair = Pair::new(&format!("acks-{carrier}"), carrier, Family::V4, marker);
        assert_eq!(pair.set_in("class=high").tos, Some(HIGH));
        assert_eq!(pair.set_out("class=critical").tos, Some(CRITICAL));
        let begun = capture.packets().len();
        let seq = pair.exchange();
        let data = capture.packet_of(seq).unwrap();
        // TCP acknowledges within 40 ms; the stream beside udp sends a keep-alive each second, which is answered.
        let streams: Vec<u16> = pair.a.addresses().iter().map(SocketAddr::port).collect();
        // Packets from before the marks were set come first.
        let marked = |octet: u8, is: &dyn Fn(&Packet) -> bool| {
            let found = |p: &Packet| p.tcp && p.sample.is_none() && p.tos == octet && is(p);
            eventually(LONG, || capture.packets().split_off(begun).into_iter().find(found)).is_some()
        };
        let back = (data.ports.1, data.ports.0);
        let from_subscriber =
            |p: &Packet| if carrier == "tcp" { p.ports == back } else { streams.contains(&p.ports.1) };
        assert!(marked(HIGH, &from_subscriber), "{carrier}: no acknowledgement is marked");
        if carrier == "udp" {
            assert!(marked(CRITICAL, &|p| streams.contains(&p.ports.0)), "the publisher's stream is not marked");
        }
    }
}

#[test]
fn two_subscribers_of_one_topic_have_different_marks_at_once() {
    let _alone = alone();
    let marker: &[u8] = b"thalweg both";
    let capture = match Capture::start(marker) {
        Ok(capture) => capture,
        Err(why) => return skipped(why),
    };
    for carrier in ["tcp", "udp"] {
        let mut pair = Pair::new(&format!("both-{carrier}"), carrier, Family::V4, marker);
        let second = subscribe(&pair.b, "/in2", carrier, Arc::default());
        assert!(pair.publisher.wait_connected(2, LONG) && second.wait_connected(1, LONG));
        pair.set_out("class=low");
        pair.a.set_priority("/out", "/in2", &changes("class=high")).unwrap();
        let begun = capture.packets().len();
        let seq = pair.exchange();
        // Each packet of the loopback interface is captured when it leaves and when it arrives.
        let octets = eventually(LONG, || {
            let late = capture.packets().split_off(begun);
            let mut found: Vec<u8> = late.iter().filter(|p| p.sample == Some(seq)).map(|p| p.tos).collect();
            found.sort_unstable();
            found.dedup();
            (found.len() == 2).then_some(found)
        });
        assert_eq!(octets, Some(vec![LOW, HIGH]), "{carrier}");
    }
}

/// A mark's effect depends on the queue, and the answer names the band.
#[test]
fn a_report_names_the_band_and_its_effect() {
    let _alone = alone();
    let hosts = match TwoHosts::new("p").and_then(|hosts| hosts.bands().map(|()| hosts)) {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let file = world.dir().join("nodes.toml");
    let at = [format!("{A}:7400"), format!("{B}:7400")];
    std::fs::write(&file, at.each_ref().map(|a| format!("[[node]]\naddress = \"{a}\"\n")).concat()).unwrap();
    let file = file.display();
    let part = |role: &str, at: &str| format!("{role} topic=/a file={file} listen={at}");
    let mut publisher = Agent::start_by(&world, &part("publisher", &at[0]), &hosts.in_a());
    for carrier in ["tcp", "udp"] {
        let role = format!("subscriber carriers={carrier}");
        let mut subscriber = Agent::start_by(&world, &part(&role, &at[1]), &hosts.in_b());
        publisher.connected(1);
        for (words, effective, place) in [
            ("class=high", true, "band 0"),
            ("dscp=EF", false, "band 1"),
            ("dscp=EF+priority=6", true, "band 0"),
            ("class=low+priority=default", true, "band 2"),
        ] {
            let set = publisher.ask(&format!("set to={words}"));
            let ends = set["ends"].as_array().unwrap();
            let end = ends.iter().find(|end| end["carrier"] == carrier).unwrap(); // others are kept for ports that left
            assert_eq!((end["device"].as_str(), end["effective"].as_bool()), (Some("veth"), Some(effective)), "{set}");
            assert!(end["band"].as_str().unwrap().contains(place), "{words}: {set}");
            assert!(!end["because"].as_str().unwrap().is_empty());
        }
        // At the other end no packet waits.
        let set = subscriber.ask("set to=class=high");
        assert_eq!((set["ends"][0]["tos"].as_u64(), set["ends"][0]["effective"].as_bool()), (Some(0x90), Some(false)));
        subscriber.finish();
        let gone = eventually(LONG, || (publisher.ask("status")["connected"] == 0).then_some(()));
        assert!(gone.is_some(), "{}", publisher.ask("status"));
    }
}

#[test]
fn carriers_without_packets_accept_marks_and_report_it() {
    let _alone = alone();
    for carrier in ["shm", "local"] {
        let (a, b) = nodes(&format!("none-{carrier}"), &Family::V4);
        let _subscriber = subscribe(&b, "/in", carrier, Arc::default());
        let publisher = a.publisher::<Raw>("/t").named("/out").open().unwrap();
        assert!(publisher.wait_connected(1, LONG));
        let report = a.set_priority("/out", "/in", &changes("class=high")).unwrap();
        assert_eq!((report.carrier.as_str(), report.tos, report.effective), (carrier, None, false));
        assert!(report.because.contains("no packets on this carrier"), "{report:?}");
        assert!(report.without_effect.contains("the mark has no effect"), "{report:?}");
        let report = a.set_priority("/out", "/in", &changes("class=default pace=20Mbit/s affinity=0")).unwrap();
        for part in ["pace has no effect", "sched and affinity have no effect"] {
            assert!(report.note.contains(part) && !report.note.contains("the mark"), "{report:?}");
        }
    }
}

#[test]
fn the_pace_is_read_back_where_it_acts() {
    let _alone = alone();
    let pair = Pair::new("pace", "tcp", Family::V4, b"");
    let report = pair.set_out("pace=20Mbit/s");
    assert_eq!((report.pace, report.without_effect.as_str()), (Some(2_500_000), ""));
    assert_eq!(pair.set_out("pace=default").pace, None);
    let report = pair.set_in("pace=20Mbit/s");
    assert!(report.pace.is_none() && report.note.contains("pace has no effect here"), "{report:?}");
}

#[test]
fn a_member_of_a_multicast_group_is_rehomed_to_unicast() {
    let _alone = alone();
    let marker: &[u8] = b"thalweg group";
    let capture = match Capture::start(marker) {
        Ok(capture) => capture,
        Err(why) => return skipped(why),
    };
    let mut pair = Pair::new("rehomed", "mcast", Family::V4, marker);
    let others = Arc::<Mutex<Vec<u64>>>::default();
    let second = subscribe(&pair.b, "/in2", "mcast", others.clone());
    assert!(pair.publisher.wait_connected(2, LONG) && second.wait_connected(1, LONG));
    let report = pair.set_out("class=high");
    assert!(report.note.contains("unicast udp"), "{report:?}");
    let moved = eventually(LONG, || {
        let report = pair.a.priority_report("/out", Some("/in")).ok()?.remove(0);
        (report.carrier == "udp").then_some(report)
    });
    assert_eq!(moved.unwrap().tos, Some(HIGH));
    assert!(pair.publisher.wait_connected(2, LONG));
    let seq = pair.exchange();
    assert!(eventually(LONG, || others.lock().unwrap().contains(&seq).then_some(())).is_some());
    let octets = eventually(LONG, || {
        let mut found: Vec<u8> = capture.packets().iter().filter(|p| p.sample == Some(seq)).map(|p| p.tos).collect();
        found.sort_unstable();
        found.dedup();
        (found.len() == 2).then_some(found)
    });
    assert_eq!(octets, Some(vec![NORMAL, HIGH]));
}

#[test]
fn bulk_that_nobody_marked_gets_a_lower_class_and_its_owner_is_told() {
    let _alone = alone();
    let mut pair = Pair::new("bulk", "tcp", Family::V4, b"");
    pair.exchange();
    let tos = |pair: &Pair| pair.a.priority_report("/out", Some("/in")).unwrap()[0].tos;
    assert_eq!(tos(&pair), Some(NORMAL));
    let large = vec![1; 100_000];
    let seq = pair.publisher.publish(&large).unwrap().seq;
    pair.arrived(seq);
    assert!(eventually(LONG, || (tos(&pair) == Some(LOW)).then_some(())).is_some());
    let mut events = pair.a.events();
    let told =
        std::iter::from_fn(|| events.wait(Duration::from_secs(5))).find(|e| matches!(e, Event::PriorityChanged { .. }));
    assert!(told.unwrap().to_string().contains("64 KiB"));
    assert_eq!(pair.set_out("class=normal").tos, Some(NORMAL));
    assert_eq!(pair.set_out("class=default").tos, Some(LOW));
    pair.exchange();
    pair.never_reconnected();
}

#[test]
fn a_pace_is_kept_to() {
    let _alone = alone();
    // Large samples, and such that are a datagram each.
    for (carrier, size) in [("tcp", 100_000), ("udp", 100_000), ("udp", 1000)] {
        let mut pair = Pair::new("paced", carrier, Family::V4, b"");
        assert_eq!(pair.set_out("pace=40Mbit/s").asked.pace, Some(5_000_000));
        // 2 MB at 5 MB/s take 400 ms. Only "not much faster" is asserted, which is the purpose of pacing.
        let (start, mut seq) = (Instant::now(), 0);
        for _ in 0..2_000_000 / size {
            seq = pair.publisher.publish(&vec![3; size]).unwrap().seq;
        }
        pair.arrived(seq);
        assert!(start.elapsed() > Duration::from_millis(200), "{carrier}, {size} B: {:?}", start.elapsed());
    }
}
