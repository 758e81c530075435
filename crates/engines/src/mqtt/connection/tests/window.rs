//! With brokers that send more samples than this end takes without acknowledgement, as mosquitto before 2.0.13 does.

use super::super::super::dial::WINDOW;
use super::*;

/// Larger than what the buffers of a connection take: the writing thread is at it until the broker reads.
const LARGE: usize = 16 << 20;

/// A connection that writes [`LARGE`] bytes, and what comes over it.
fn busy(fake: &Fake) -> (Connection, End, Receiver<u8>) {
    let (connection, end) = fake.pair(fake.place(), 10);
    lock(&connection.shared.state).ping = LONG; // nothing but samples and their acknowledgements
    let (target, told) = target("b");
    std::thread::scope(|scope| {
        scope.spawn(|| end.grant(GRANTED));
        connection.subscribe(&target).unwrap();
    });
    connection.publish(Publish::new("a", QoS::AtMostOnce, vec![7; LARGE], None)).unwrap();
    assert_eq!(end.0.peek(&mut [0]).unwrap(), 1, "it has begun");
    (connection, end, told)
}

/// Sends twice as many samples as may come, at once, each with its packet id.
fn flood(end: &End) {
    let mut bytes = BytesMut::new();
    for pkid in 1..=2 * WINDOW {
        let sample = Publish::new("b", QoS::AtLeastOnce, vec![pkid as u8], None);
        packet::write(&Packet::Publish(Publish { pkid, ..sample }), &mut bytes).unwrap();
    }
    (&end.0).write_all(&bytes).unwrap();
}

#[test]
fn what_a_broker_sends_too_early_waits() {
    let fake = Fake::new();
    let (connection, end, told) = busy(&fake);
    lock(&connection.shared.state).patience = LONG;
    flood(&end);
    let comes = |id: u16| assert_eq!(told.recv_timeout(LONG), Ok(id as u8));
    (1..=WINDOW + 1).for_each(comes); // there is no room for the acknowledgement of the last one
    assert_eq!(end.sample(), (7, 0));
    for id in 1..=2 * WINDOW {
        assert!(matches!(end.read(), Packet::PubAck(answer) if answer.pkid == id), "{id}");
    }
    (WINDOW + 2..=2 * WINDOW).for_each(comes);
}

#[test]
fn a_broker_that_sends_too_early_and_reads_nothing_is_left() {
    let fake = Fake::new();
    let (connection, end, told) = busy(&fake);
    lock(&connection.shared.state).patience = Duration::from_millis(100);
    flood(&end);
    fake.reached();
    (1..=WINDOW + 1).for_each(|id| assert_eq!(told.recv_timeout(LONG), Ok(id as u8)));
    assert!(told.try_recv().is_err(), "and nothing more");
}
