//! Handshakes with publishers that leave meanwhile, and answers to subscribers that have left.

use super::Entry;
use crate::channel::PortRef;
use crate::codec::Raw;
use crate::control::{self, Change};
use crate::driver::{Command, Control};
use crate::event::Event;
use crate::{Node, Publisher, Settings, Subscriber};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Limit of waits, which a working node never reaches.
const LONG: Duration = Duration::from_secs(20);

fn until(what: &str, holds: impl FnMut() -> bool) {
    let look = Duration::from_millis(1);
    let mut looks = std::iter::repeat_with(holds).take(20_000).inspect(|_| std::thread::sleep(look));
    assert!(looks.any(|holds| holds), "never: {what}");
}

/// Holds up a node's control thread, as soon as this holds there, until what is given is dropped.
fn hold(node: &Node, what: &str, holds: impl Fn(&mut Control) -> bool + Copy + Send + 'static) -> Sender<()> {
    let mut held = None;
    until(what, || {
        let ((go_on, may_go_on), (tell, told)) = (channel::<()>(), channel());
        let look = move |control: &mut Control| {
            let holds = holds(control);
            let _ = tell.send(holds);
            if holds {
                let _ = may_go_on.recv(); // until the other end is gone
            }
        };
        node.state().command(Command::Look(Box::new(look)));
        held = told.recv().is_ok_and(|holds| holds).then_some(go_on);
        held.is_some()
    });
    held.unwrap()
}

/// The request has been sent, and all news have been taken.
fn has_asked(control: &mut Control) -> bool {
    let asked = |entry: &Entry| matches!(entry, Entry::ClientHandshake(its) if !its.connecting);
    control.state.mailbox.len() == 0 && control.descriptors.all().any(asked)
}

/// News that this port closed.
fn hear_end(control: &mut Control, port: PortRef) -> bool {
    let known = control.state.directory().node(port.node).map(|document| document.revision);
    let (origin, base) = (control.state.directory().origin(port.node).unwrap(), known.unwrap());
    let change = Change { base, revision: base + 1, removed: vec![port.port], ..Change::default() };
    control.directory_event(origin, control::Event::Change(port.node, change));
    true
}

fn nodes(test: &str) -> (Node, Node) {
    let realm = format!("leaves-{}-{test}", std::process::id());
    let node = |name: &str| {
        Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
    };
    (node("out"), node("into"))
}

/// A publisher that the other node knows.
fn open_publisher(out: &Node, into: &Node) -> Publisher<Raw> {
    let publisher = out.publisher::<Raw>("/t").open().unwrap();
    until("the publisher is known", || into.others().iter().any(|node| !node.ports.is_empty()));
    publisher
}

fn open_subscriber(into: &Node, carrier: &str) -> Subscriber<Raw> {
    into.subscriber::<Raw>("/t").carriers([carrier]).open().unwrap()
}

/// Publishes as soon as the port is connected, and its node has sent the answer.
fn publish_connected(out: &Node, publisher: &mut Publisher<Raw>) {
    assert!(publisher.wait_connected(1, LONG));
    drop(hold(out, "it has answered", |_| true));
    publisher.publish(b"x").unwrap();
}

fn comes(subscriber: &mut Subscriber<Raw>) -> bool {
    subscriber.wait(LONG).is_some_and(|sample| sample[..] == *b"x")
}

/// It accepts, publishes and closes while the control thread of the subscriber's node has no time.
#[test]
fn the_sample_of_a_publisher_that_closes_at_once_comes() {
    for carrier in ["shm", "tcp"] {
        let (out, into) = nodes(carrier);
        let mut publisher = open_publisher(&out, &into);
        let held_there = hold(&out, "it is held", |_| true);
        let mut subscriber = open_subscriber(&into, carrier);
        let held_here = hold(&into, "it has asked", has_asked);
        drop(held_there);
        publish_connected(&out, &mut publisher);
        assert!(publisher.close(LONG));
        until("news of its end", || into.state().mailbox.len() > 0);
        drop(held_here);
        assert!(comes(&mut subscriber), "{carrier}");
    }
}

/// As before, where the channel of the questions begins after that of the answers.
#[test]
fn the_question_of_a_publisher_that_closes_at_once_comes() {
    let (out, into) = nodes("question");
    let answers = out.subscriber::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
    let with = into.publisher::<Raw>("/answers").carriers(["tcp"]).open().unwrap();
    assert!(with.wait_connected(1, LONG) && answers.wait_connected(1, LONG));
    let mut publisher = out.publisher::<Raw>("/t").answered_at(&answers).open().unwrap();
    let named = |name: &str| into.state().directory().port_named(name).is_some();
    until("the publisher is known", || named(publisher.name()));
    let held_there = hold(&out, "it is held", |_| true);
    let builder = into.subscriber::<Raw>("/t").carriers(["tcp"]);
    let mut subscriber = builder.answering_with(&with).open().unwrap();
    let held_here = hold(&into, "it has asked", has_asked);
    drop(held_there);
    publish_connected(&out, &mut publisher);
    assert!(publisher.close(LONG));
    until("news of its end", || into.state().mailbox.len() > 0);
    drop(held_here);
    assert!(comes(&mut subscriber));
}

/// Over a network they take different connections.
#[test]
fn the_sample_of_a_publisher_comes_whose_end_is_heard_before_its_answer() {
    for carrier in ["shm", "tcp"] {
        let (out, into) = nodes(&format!("news-{carrier}"));
        let mut publisher = open_publisher(&out, &into);
        let port = publisher.port();
        let held_there = hold(&out, "it is held", |_| true);
        let mut subscriber = open_subscriber(&into, carrier);
        let asked = move |control: &mut Control| has_asked(control) && hear_end(control, port);
        let held_here = hold(&into, "it has asked, and heard of the end", asked);
        drop(held_there);
        publish_connected(&out, &mut publisher);
        assert!(publisher.close(LONG));
        drop(held_here);
        assert!(comes(&mut subscriber), "{carrier}");
    }
}

/// The channel joins within `publish`. The control thread, which sends the answer, has no time before the port closes.
#[test]
fn a_port_that_closes_sends_the_answers_that_are_left() {
    let (out, into) = nodes("answers");
    let mut publisher = open_publisher(&out, &into);
    let held_there = hold(&out, "it is held", |_| true);
    let mut subscriber = open_subscriber(&into, "shm");
    let held_here = hold(&into, "it has asked", has_asked);
    let loan = publisher.loan(1).unwrap(); // meanwhile nothing joins
    drop(held_there);
    let held_there = hold(&out, "the channel waits", |control| control.attachments.is_busy());
    drop(loan);
    publisher.publish(b"x").unwrap();
    assert_eq!(publisher.connected(), 1);
    assert!(publisher.close(LONG));
    drop((held_there, held_here));
    assert!(comes(&mut subscriber));
}

/// The subscriber's node has no time for longer than it would wait for an answer. The publisher has the channel since.
#[test]
fn an_answer_that_has_come_is_not_late() {
    let (out, into) = nodes("late");
    let mut publisher = open_publisher(&out, &into);
    let held_there = hold(&out, "it is held", |_| true);
    let mut subscriber = open_subscriber(&into, "shm");
    let held_here = hold(&into, "it has asked", has_asked);
    drop(held_there);
    publish_connected(&out, &mut publisher);
    let expire = |control: &mut Control| control.expire_streams(Instant::now() + LONG);
    into.state().command(Command::Look(Box::new(expire)));
    drop(held_here);
    assert!(comes(&mut subscriber));
}

/// So it does if its wait for the answer was too long.
#[test]
fn a_subscriber_that_leaves_before_its_request_is_read_gets_no_channel() {
    let (out, into) = nodes("left");
    let publisher = open_publisher(&out, &into);
    let mut events = out.events();
    let held = hold(&out, "it is held", |_| true);
    let left = into.subscriber::<Raw>("/t").named("/left").carriers(["shm"]).open().unwrap();
    drop(hold(&into, "it has asked", has_asked));
    drop(left);
    drop(hold(&into, "it has left", |_| true));
    let stays = into.subscriber::<Raw>("/t").named("/stays").carriers(["shm"]).open().unwrap();
    drop(held);
    assert!(stays.wait_connected(1, LONG));
    drop(hold(&out, "it has answered", |_| true));
    let subscriber = |event: Event| if let Event::Matched { subscriber, .. } = event { Some(subscriber) } else { None };
    let matched: Vec<String> = std::iter::from_fn(|| events.wait(Duration::ZERO)).filter_map(subscriber).collect();
    assert_eq!((matched, publisher.connected()), (vec!["/stays".to_owned()], 1));
}
