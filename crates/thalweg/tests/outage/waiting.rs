//! Publishers that wait for subscribers whose connections broke.

use super::addresses;
use super::world::agent::{Agent, number};
use super::world::net::{A, B, TwoHosts};
use super::world::{self, World, skipped};

/// Each of five subscribers resets its connection and does not come back: a port waits for as many of a host as a quarter of the
/// channels that its node may have.
#[test]
fn a_port_waits_for_some_subscribers_of_a_host() {
    let _alone = world::alone();
    let hosts = match TwoHosts::new("w") {
        Ok(hosts) => hosts,
        Err(why) => return skipped(why),
    };
    let world = World::new();
    let at = Vec::from_iter((0..6).map(|n| format!("{}:{}", if n == 0 { A } else { B }, 7400 + n)));
    let file = addresses(&world, &at);
    let publisher = format!("publisher topic=/a name=/p channels=10 file={file} listen={}", at[0]);
    let mut publisher = Agent::start_by(&world, &publisher, &hosts.in_a());
    let subscribers = Vec::from_iter(at[1..].iter().map(|at| {
        let part = format!("subscriber topic=/a carriers=tcp reliable=1 file={file} listen={at}");
        let mut subscriber = Agent::start_by(&world, &part, &hosts.in_b());
        subscriber.connected(1);
        subscriber
    }));
    publisher.connected(5);
    // Who has not read all that came resets its connection when it ends.
    subscribers.iter().for_each(Agent::stop);
    let published = publisher.ask("publish count=1");
    assert_eq!(number(&published, "sent"), 5.0, "{published}");
    subscribers.into_iter().for_each(Agent::kill);
    let left = publisher.ask("left n=0");
    assert!(left["ok"] == true, "{left}");
    let published = publisher.ask("publish count=1");
    assert_eq!(number(&published, "queued"), 3.0, "it waits for as many: {published} {}", publisher.ask("status"));
    publisher.finish();
}
