//! Networks of DDS that are joined over Thalweg. Domains stand for hosts: their programs do not see each other.

use super::{Text, domain, open, settings, text, topic, written};
use crate::running::{Running, until};
use crate::world::{LONG, node, realm};
use qos::{Durability, Qos};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use thalweg::codec::{from_cdr, to_cdr};
use thalweg_engines::bridge::Rules;
use thalweg_engines::dds::{Dds, Settings};
use thalweg_engines::{Deliver, Engine, Publisher, Subscriber};

const COUNT: u32 = 1000;

/// A bridge to a network of this name.
pub(super) fn join(realm: &str, network: &str, settings: Settings) -> Running {
    let (own, rules) = (node(network, realm), format!("network = {network:?}"));
    let identity = Rules::parse(&rules).unwrap().identity(own.id());
    Running::with(own, Box::new(Dds::open(settings, Some(identity)).unwrap()), &rules)
}

/// A program of DDS that subscribes, and the numbers that it gets.
fn listen(engine: &Dds, name: &str, request: &Qos) -> (Box<dyn Subscriber>, Receiver<u32>) {
    let (tell, told) = channel();
    let deliver: Deliver = Box::new(move |sample| {
        let _ = tell.send(from_cdr::<Text>(sample.message).unwrap().number);
    });
    (engine.subscriber(&topic(name), request, deliver).unwrap(), told)
}

fn publish(publisher: &dyn Publisher, number: u32) {
    publisher.publish(&written(&to_cdr(&text(number)).unwrap())).unwrap();
}

fn take(told: &Receiver<u32>, count: u32) -> Vec<u32> {
    (0..count).map(|_| told.recv_timeout(LONG).unwrap()).collect()
}

#[test]
fn a_thousand_samples_cross_once_and_none_while_nobody_wants_them() {
    let (realm, [left, right]) = (realm("dds-joined"), [domain(), domain()]);
    let (talker, beside, listener) = (open(left), open(left), open(right));
    let bridges = [join(&realm, "left", settings(left)), join(&realm, "right", settings(right))];
    let there = talker.publisher(&topic("/there"), &Qos::default()).unwrap();
    let back = listener.publisher(&topic("/back"), &Qos::default()).unwrap();
    let all = |count: usize, of: fn(&Running) -> usize| bridges.iter().all(|bridge| of(bridge) == count);
    until("each network has the other one's topic", || {
        all(1, |bridge| bridge.status().into) && all(1, |bridge| bridge.status().publishers)
    });
    assert!(!there.is_wanted() && !back.is_wanted() && all(0, |bridge| bridge.status().out));
    let (subscriber, told_there) = listen(&listener, "/there", &Qos::default());
    let (_subscriber, told_back) = listen(&beside, "/back", &Qos::default());
    let (_beside, told_beside) = listen(&beside, "/there", &Qos::default());
    until("a bridge and a program subscribe", || there.wanted_by() == 2 && back.is_wanted());
    // No more at once than the queues keep.
    for first in (0..COUNT).step_by(8) {
        let some: Vec<u32> = (first..first + 8).collect();
        for number in &some {
            publish(&*there, *number);
            publish(&*back, *number);
        }
        for told in [&told_there, &told_back, &told_beside] {
            assert_eq!(take(told, 8), some);
        }
    }
    let exchanged = |bridge: &Running| {
        let status = bridge.status();
        (status.publishers, status.sent, status.came) == (1, u64::from(COUNT), u64::from(COUNT))
    };
    until("each bridge has brought and taken as many", || bridges.iter().all(exchanged));
    for told in [&told_there, &told_back, &told_beside] {
        assert_eq!(told.try_recv(), Err(TryRecvError::Empty), "none twice");
    }
    drop(subscriber);
    until("no bridge subscribes any more", || there.wanted_by() == 1);
}

/// Regression: the bridge's reader has the samples of all writers of a topic, and took those of one that was left out for another one's, whose
/// endpoint was not known yet.
#[test]
fn what_has_gone_round_ends_beside_a_writer_whose_samples_are_carried() {
    let (realm, [left, right]) = (realm("dds-round"), [domain(), domain()]);
    let (talker, round, listener) = (open(left), open(left), open(right));
    let _bridges = [join(&realm, "left", settings(left)), join(&realm, "right", settings(right))];
    let (_subscriber, told) = listen(&listener, "/a", &Qos::default());
    let publisher = talker.publisher(&topic("/a"), &Qos::default()).unwrap();
    let way = ["dds/left", "@00000000000000a7"].map(str::to_owned);
    let returning = round.publisher_by(&topic("/a"), &Qos::default(), &way).unwrap();
    until("the bridge reads both writers", || publisher.is_wanted() && returning.is_wanted());
    publish(&*returning, COUNT);
    let mut number = 0;
    until("samples of a writer that is not known would have been taken for the other one's", || {
        publish(&*publisher, number);
        assert_eq!(told.recv_timeout(LONG), Ok(number));
        number += 1;
        number == 100
    });
}

/// Two realms with a network between them: of both its bridges each knows where the samples have been.
#[test]
fn a_late_joiner_gets_a_history_from_two_networks_away() {
    let (realms, [left, middle, right]) = (["one", "two"].map(realm), [domain(), domain(), domain()]);
    let (talker, between, listener) = (open(left), open(middle), open(right));
    let durable = Qos { durability: Durability::TransientLocal, history: 2, ..Qos::default() };
    let publisher = talker.publisher(&topic("/map"), &durable).unwrap();
    (11..=13).for_each(|number| publish(&*publisher, number));
    let _first = [join(&realms[0], "left", settings(left)), join(&realms[0], "middle", settings(middle))];
    let second = [join(&realms[1], "middle", settings(middle)), join(&realms[1], "right", settings(right))];
    until("the history has arrived", || second[1].status().sent == 2);
    for _ in 0..2 {
        let (_late, told) = listen(&listener, "/map", &durable);
        assert_eq!(take(&told, 2), [12, 13]);
    }
    let ways: Vec<Vec<String>> =
        between.endpoints().into_iter().map(|end| end.way).filter(|way| !way.is_empty()).collect();
    assert!(
        ways.len() == 1 && ways[0].len() == 2 && ways[0][0] == "dds/left" && ways[0][1].starts_with('@'),
        "{ways:?}"
    );
}
