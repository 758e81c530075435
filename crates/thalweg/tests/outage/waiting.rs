//! Publishers that wait for subscribers whose connections broke.

use super::addresses;
use super::world::agent::{Agent, number};
use super::world::net::{A, B, TwoHosts};
use super::world::{self, World, skipped};

/// Five subscribers reset their connections and do not return: a port waits for at most a quarter of its channel
/// limit of subscribers at one host.
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
    // A process that ends with unread samples resets its connection.
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
