//! Samples beyond a contract are refused at the publisher, over each carrier.
#![allow(clippy::unwrap_used)] // all of this is test

use qos::priority::{Changes, PrioritySettings};
use qos::{Queue, Reliability, ResourceLimit};
use std::sync::mpsc;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Settings};

const LONG: Duration = Duration::from_secs(30);

fn police(text: &str) -> Changes {
    format!("police={text}").parse().unwrap()
}

/// Publishes samples of these sizes; `true` for each that is refused because of the contract.
fn refused(publisher: &mut Publisher<Raw>, sizes: &[usize]) -> Vec<bool> {
    let one = |size: &usize| {
        let published = publisher.publish(&vec![1; *size]).unwrap();
        assert_eq!(published.refused, u32::from(published.limit == Some(ResourceLimit::Policing)), "{published:?}");
        assert_eq!(published.channels(), 1, "{published:?}");
        published.refused == 1
    };
    sizes.iter().map(one).collect()
}

#[test]
fn no_more_than_the_contract_leaves_over_any_carrier() {
    for carrier in ["shm", "tcp", "udp", "mcast"] {
        let realm = format!("policing-{carrier}-{}", std::process::id());
        let node = |name: &str| {
            Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
        };
        let (near, far) = (node("near"), node("far"));
        // Three at once, then one an hour.
        let mut settings = PrioritySettings::default();
        police("0.0003Hz/3/100B").apply(&mut settings);
        let builder = near.publisher::<Raw>("/t").named("/out").queue(Queue::KeepAll(100)).priority(settings);
        let mut publisher = builder.reliability(Reliability::BestEffort).open().unwrap();
        let (tell, told) = mpsc::channel();
        let subscriber = far.subscriber::<Raw>("/t").named("/in").carriers([carrier]);
        let subscriber = subscriber.reliability(Reliability::BestEffort);
        let _subscriber = subscriber.callback(move |sample| tell.send(sample.len()).unwrap()).unwrap();
        assert!(publisher.wait_connected(1, LONG), "{carrier}");

        let sizes = [100, 101, 10, 1, 1, 1];
        assert_eq!(refused(&mut publisher, &sizes), [false, true, false, false, true, true], "{carrier}");
        publisher.dispose(&Vec::new()).unwrap(); // the end of an instance always passes
        let [report] = &publisher.channels()[..] else { panic!("{carrier}") };
        assert_eq!((report.policed, report.lost, report.samples), (3, 3, 4), "{carrier}");

        if carrier == "mcast" {
            continue; // a member with settings of its own leaves the group
        }
        // An administrator takes it back, and sets it anew.
        near.set_priority("/out", "/in", &police("default")).unwrap();
        assert_eq!(refused(&mut publisher, &[1, 2, 500]), [true; 3], "{carrier}: the port's own setting stays");
        near.set_priority("/out", "/in", &police("1000000Hz/1000/600B")).unwrap();
        assert_eq!(refused(&mut publisher, &[500, 601]), [false, true], "{carrier}");
        let asked = near.priority_report("/out", Some("/in")).unwrap()[0].asked.police.unwrap();
        assert_eq!((asked.period_ns, asked.largest), (1000, 600), "{carrier}");
        let arrived: Vec<usize> = std::iter::from_fn(|| {
            let size = told.recv_timeout(LONG).unwrap();
            (size != 500).then_some(size)
        })
        .collect();
        assert_eq!(arrived.iter().filter(|size| **size > 0).copied().collect::<Vec<_>>(), [100, 10, 1], "{carrier}");
    }
}

/// A reliable channel loses nothing of what it took: refused samples were never its own.
#[test]
fn a_reliable_channel_has_no_gap_where_samples_were_refused() {
    let realm = format!("policing-reliable-{}", std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
    };
    let (near, far) = (node("near"), node("far"));
    let mut settings = PrioritySettings::default();
    police("0.0003Hz/1000/100B").apply(&mut settings);
    let mut publisher = near.publisher::<Raw>("/t").queue(Queue::KeepAll(5000)).priority(settings).open().unwrap();
    let (tell, told) = mpsc::channel();
    let subscriber = far.subscriber::<Raw>("/t").carriers(["udp"]);
    let _subscriber = subscriber.callback(move |sample| tell.send((sample.info().seq, sample.len())).unwrap()).unwrap();
    assert!(publisher.wait_connected(1, LONG));
    // Every other sample is too large.
    for number in 0..2000_usize {
        publisher.publish(&vec![0; 100 + number % 2]).unwrap();
    }
    for number in 0..1000 {
        assert_eq!(told.recv_timeout(LONG).unwrap(), (1 + 2 * number, 100));
    }
    assert_eq!(publisher.channels()[0].policed, 1000);
}
