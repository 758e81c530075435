//! Changes while samples flow: no loss, overtaking or reconnection; lasting settings, and refusals.

use super::pair::{
    CRITICAL, Family, HIGH, LOW, NORMAL, Pair, asks, changes, first_odd, may_schedule, nodes, subscribe,
};
use crate::world::{LONG, alone, eventually};
use qos::priority::{Changes, PrioritySettings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thalweg::admin::{EndReport, Request};
use thalweg::codec::Raw;

/// Publishes at 1 kHz while `words` are set in turn at the publisher, each several times.
fn change_while_publishing(carrier: &str, words: &[&str], times: usize) {
    let mut pair = Pair::new(&format!("live-{carrier}-{}", words.len()), carrier, Family::V4, b"");
    pair.exchange();
    let (a, done) = (pair.a.clone(), AtomicBool::new(false));
    let published = std::thread::scope(|scope| {
        let administrator = scope.spawn(|| {
            for round in 0..times {
                for words in words {
                    let report = a.set_priority("/out", "/in", &changes(words));
                    assert!(report.is_ok(), "round {round}, {words}: {report:?}");
                    std::thread::sleep(Duration::from_millis(7)); // some samples under each setting
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let (start, mut index, mut seq) = (Instant::now(), 0, 0);
        while !done.load(Ordering::Relaxed) && !administrator.is_finished() {
            index += 1;
            if let Some(early) = (start + Duration::from_millis(index)).checked_duration_since(Instant::now()) {
                std::thread::sleep(early);
            }
            seq = pair.publish();
        }
        administrator.join().unwrap();
        seq
    });
    pair.arrived(published);
    let seqs = pair.seqs.lock().unwrap().clone();
    assert!(seqs.iter().copied().eq(1..=published), "lost or out of order: {:?}", first_odd(&seqs));
    assert_eq!(pair.subscriber.channels()[0].lost, 0);
    pair.never_reconnected();
}

#[test]
fn a_hundred_changes_of_marks_lose_nothing() {
    let _alone = alone();
    for carrier in ["tcp", "udp"] {
        change_while_publishing(carrier, &["class=high", "class=low", "class=critical", "class=default"], 25);
    }
}

#[test]
fn a_hundred_changes_of_threads_lose_nothing() {
    let _alone = alone();
    if !may_schedule() {
        return;
    }
    for carrier in ["tcp", "udp"] {
        change_while_publishing(carrier, &["sched=fifo:30", "sched=other", "sched=fifo:20", "sched=default"], 25);
    }
}

#[test]
fn a_batching_channel_gets_and_loses_its_thread_without_loss() {
    let _alone = alone();
    let (a, b) = nodes("batching", &Family::V4);
    let seqs = Arc::<Mutex<Vec<u64>>>::default();
    let subscriber = subscribe(&b, "/in", "tcp", seqs.clone());
    let builder = a.publisher::<Raw>("/t").named("/out").queue(qos::Queue::KeepAll(10_000));
    let mut publisher = builder.batching(thalweg::Batching::default()).open().unwrap();
    assert!(publisher.wait_connected(1, LONG) && subscriber.wait_connected(1, LONG));
    let mut last = 0;
    for round in 0..40 {
        let words = if round % 2 == 0 { "affinity=0" } else { "affinity=default" };
        a.set_priority("/out", "/in", &changes(words)).unwrap();
        for _ in 0..100 {
            last = publisher.publish(&[1; 300]).unwrap().seq;
        }
    }
    let all = eventually(LONG, || (seqs.lock().unwrap().len() as u64 == last).then_some(()));
    let seqs = seqs.lock().unwrap();
    assert!(all.is_some() && seqs.iter().copied().eq(1..=last), "{} of {last}: {:?}", seqs.len(), first_odd(&seqs));
}

#[test]
fn settings_outlast_a_reopened_channel() {
    let _alone = alone();
    let marker: &[u8] = b"thalweg anew";
    let pair = Pair::new("anew", "tcp", Family::V4, marker);
    let Pair { a, b, mut publisher, subscriber, .. } = pair;
    let mut settings = "class=high".to_owned();
    if may_schedule() {
        settings.push_str(" sched=fifo:12");
    }
    a.set_priority("/out", "/in", &changes(&settings)).unwrap();
    b.set_priority("/in", "/out", &changes("class=low")).unwrap();
    drop(subscriber);
    let gone = a.priority_report("/out", Some("/in")).unwrap();
    assert!(eventually(LONG, || (publisher.connected() == 0).then_some(())).is_some());
    let gone = if gone[0].carrier.as_str().is_empty() { gone } else { a.priority_report("/out", Some("/in")).unwrap() };
    assert!(gone[0].note.contains("stored"), "{gone:?}");
    let seqs = Arc::<Mutex<Vec<u64>>>::default();
    let again = subscribe(&b, "/in", "tcp", seqs.clone());
    assert!(publisher.wait_connected(1, LONG) && again.wait_connected(1, LONG));
    let report = a.priority_report("/out", None).unwrap().remove(0);
    assert_eq!((report.tos, report.class, report.asked.clone()), (Some(HIGH), Some(qos::Class::High), asks(&settings)));
    assert_eq!(report.own_thread, settings.contains("sched"), "{report:?}");
    assert_eq!(b.priority_report("/in", Some("/out")).unwrap()[0].tos, Some(LOW));
    let seq = publisher.publish(b"x").unwrap().seq;
    assert!(eventually(LONG, || seqs.lock().unwrap().contains(&seq).then_some(())).is_some());
    // The channel is opened again while both ports stay.
    let request = Request::Connect { publisher: "/out".into(), subscriber: "/in".into(), carrier: Some("tcp".into()) };
    let own = |report: &EndReport| (report.tid, report.asked.clone());
    let before = own(&report);
    a.ask(b.id(), &request, LONG).unwrap();
    let report = eventually(LONG, || {
        let report = a.priority_report("/out", None).unwrap().remove(0);
        (report.tos == Some(HIGH) && (own(&report) != before || before.0.is_none())).then_some(report)
    });
    assert_eq!(report.unwrap().asked, asks(&settings));
}

#[test]
fn settings_before_a_channel_are_stored() {
    let _alone = alone();
    let (a, b) = nodes("early", &Family::V4);
    let mut publisher =
        a.publisher::<Raw>("/t").named("/out").priority(asks("class=low pace=80Mbit/s")).open().unwrap();
    let report = a.set_priority("/out", "/in", &changes("class=critical")).unwrap();
    assert!(report.carrier.as_str().is_empty() && report.note.starts_with("stored"), "{report:?}");
    let (one, two) = (subscribe(&b, "/in", "tcp", Arc::default()), subscribe(&b, "/other", "tcp", Arc::default()));
    assert!(publisher.wait_connected(2, LONG) && one.wait_connected(1, LONG) && two.wait_connected(1, LONG));
    let marks = a.priority_report("/out", None).unwrap().into_iter().map(|r| (r.subscriber, r.tos, r.asked.pace));
    let expected = [("/in", CRITICAL), ("/other", LOW)].map(|(n, tos)| (n.to_owned(), Some(tos), Some(10_000_000)));
    assert_eq!(marks.collect::<Vec<_>>(), expected);
    publisher.publish(b"x").unwrap();
}

#[test]
fn remembered_settings_give_way_to_local_ones() {
    let _alone = alone();
    let mut pair = Pair::new("remembered", "tcp", Family::V4, b"");
    let tell = |port: &str, settings: PrioritySettings| {
        let request = Request::Remember { port: port.into(), other: "/out".into(), settings };
        pair.a.ask(pair.b.id(), &request, LONG)
    };
    let tos = || pair.b.priority_report("/in", Some("/out")).unwrap()[0].tos;
    let wrong = PrioritySettings { socket_priority: Some(16), ..PrioritySettings::default() };
    assert!(tell("/in", wrong).is_err() && tell("no name", asks("class=high")).is_err());
    // A setting for a port elsewhere is kept, without effect here.
    tell("/elsewhere", asks("class=critical")).unwrap();
    assert_eq!(tos(), Some(NORMAL));
    tell("/in", asks("class=critical")).unwrap();
    assert_eq!(tos(), Some(CRITICAL));
    tell("/in", asks("class=high")).unwrap();
    assert_eq!(tos(), Some(CRITICAL), "it is old news");
    pair.set_in("class=default");
    tell("/in", asks("class=high")).unwrap();
    assert_eq!(tos(), Some(NORMAL), "it was taken back");
    pair.exchange();
    pair.never_reconnected();
}

#[test]
fn a_refusal_changes_nothing() {
    let _alone = alone();
    let mut pair = Pair::new("refused", "tcp", Family::V4, b"");
    pair.set_out("class=high");
    let before = pair.a.priority_report("/out", Some("/in")).unwrap();
    // The test machines have no processor 1023: the kernel refuses it after it accepted the marks.
    let refused = pair.a.set_priority("/out", "/in", &changes("class=low affinity=1023")).unwrap_err().to_string();
    assert!(refused.contains("1023") && !refused.contains("Os {"), "{refused}");
    let unknown = [
        ("/nobody", "/in", "this node has no port /nobody: it has /out"),
        ("/out", "/out2", "both are publishers"),
        ("/out", "no name", "name"),
    ];
    let _second = pair.a.publisher::<Raw>("/u").named("/out2").open().unwrap();
    for (port, other, says) in unknown {
        let said = pair.a.set_priority(port, other, &changes("class=low")).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
    let said = pair.a.priority_report("/out", Some("/else")).unwrap_err().to_string();
    assert!(said.contains("it has channels with /in"), "{said}");
    let said = pair.a.set_priority("/out", "/out", &changes("class=low")).unwrap_err().to_string();
    assert!(said.contains("has no packets"), "{said}");
    let out_of_range = Changes { socket_priority: qos::priority::Change::Set(16), ..Changes::default() };
    assert!(pair.a.set_priority("/out", "/in", &out_of_range).is_err());
    assert_eq!(pair.a.priority_report("/out", Some("/in")).unwrap(), before);
    pair.exchange();
    pair.never_reconnected();
}
