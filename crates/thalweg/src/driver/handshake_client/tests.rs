//! Handshakes with publishers that leave meanwhile.

use super::Entry;
use crate::codec::Raw;
use crate::driver::{Command, Control};
use crate::{Node, Settings};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Limit of waits, which a working node never reaches.
const LONG: Duration = Duration::from_secs(20);

fn until(what: &str, holds: impl FnMut() -> bool) {
    let look = Duration::from_millis(1);
    let mut looks = std::iter::repeat_with(holds).take(20_000).inspect(|_| std::thread::sleep(look));
    assert!(looks.any(|holds| holds), "never: {what}");
}

/// Holds up a node's control thread, as soon as this holds there, until what is given is dropped.
fn hold(node: &Node, what: &str, holds: fn(&Control) -> bool) -> Sender<()> {
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
fn has_asked(control: &Control) -> bool {
    let asked = |entry: &Entry| matches!(entry, Entry::ClientHandshake(its) if !its.connecting);
    control.state.mailbox.len() == 0 && control.descriptors.all().any(asked)
}

/// It accepts, publishes and closes while the control thread of the subscriber's node has no time.
#[test]
fn the_sample_of_a_publisher_that_closes_at_once_comes() {
    for carrier in ["shm", "tcp"] {
        let realm = format!("leaves-{}-{carrier}", std::process::id());
        let node = |name: &str| {
            Node::with_settings(Settings { realm: realm.clone(), name: name.into(), ..Settings::default() }).unwrap()
        };
        let (out, into) = (node("out"), node("into"));
        let mut publisher = out.publisher::<Raw>("/t").open().unwrap();
        until("the publisher is known", || into.others().iter().any(|node| !node.ports.is_empty()));
        let held_there = hold(&out, "it is held", |_| true);
        let mut subscriber = into.subscriber::<Raw>("/t").carriers([carrier]).open().unwrap();
        let held_here = hold(&into, "it has asked", has_asked);
        drop(held_there);
        assert!(publisher.wait_connected(1, LONG));
        publisher.publish(b"x").unwrap();
        assert!(publisher.close(LONG));
        until("news of its end", || into.state().mailbox.len() > 0);
        drop(held_here);
        assert!(subscriber.wait(LONG).is_some_and(|sample| sample[..] == *b"x"), "{carrier}");
    }
}
