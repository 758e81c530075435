//! With brokers that answer wrongly, or not at all.

mod window;

use super::super::dial::Presence;
use super::super::packet;
use super::super::subscriptions::{Filter, Round};
use super::*;
use bytes::BytesMut;
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, ConnectReturnCode, DisconnectReasonCode, Packet, PubAck, PubAckReason, SubAck,
    SubscribeReasonCode,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

const LONG: Duration = Duration::from_secs(20);

struct Fake(TcpListener);

/// The broker's end of a connection.
struct End(TcpStream);

impl Fake {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn place(&self) -> Place {
        Place {
            host: "127.0.0.1".to_owned(),
            port: self.0.local_addr().unwrap().port(),
            user: "robot".to_owned(),
            password: String::new(),
            client: "test".to_owned(),
            class: qos::Class::Normal,
            max_message: 1000,
            presence: None,
        }
    }

    fn next(&self) -> TcpStream {
        let look = Duration::from_millis(5);
        for _ in 0..LONG.as_millis() / look.as_millis() {
            match self.0.accept() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(look), // between two looks
                accepted => return accepted.unwrap().0,
            }
        }
        panic!("no connection within {LONG:?}")
    }

    /// Takes a connection up to its first packet.
    fn reached(&self) -> End {
        let end = End(self.next());
        end.0.set_read_timeout(Some(LONG)).unwrap();
        assert!(matches!(end.read(), Packet::Connect(..)));
        end
    }

    fn accept(&self, window: u16) -> End {
        let end = self.reached();
        end.answer(ConnectReturnCode::Success, takes(window));
        end
    }

    /// A connection, with the broker's end of it.
    fn pair(&self, place: Place, window: u16) -> (Connection, End) {
        std::thread::scope(|scope| {
            let end = scope.spawn(|| self.accept(window));
            (Connection::open(place, Arc::default()).unwrap(), end.join().unwrap())
        })
    }

    fn refuses(&self, answer: impl FnOnce(&End) + Send) -> Error {
        std::thread::scope(|scope| {
            let end = scope.spawn(|| {
                let end = self.reached();
                answer(&end);
                end
            });
            let refused = Connection::open(self.place(), Arc::default()).err().unwrap();
            end.join().unwrap();
            refused
        })
    }
}

impl End {
    fn read(&self) -> Packet {
        packet::read(&mut &self.0, packet::LARGEST).unwrap()
    }

    fn send(&self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        packet::write(packet, &mut bytes).unwrap();
        (&self.0).write_all(&bytes).unwrap();
    }

    fn answer(&self, code: ConnectReturnCode, properties: ConnAckProperties) {
        self.send(&Packet::ConnAck(ConnAck { session_present: false, code, properties: Some(properties) }));
    }

    /// The next sample: its payload and packet id.
    fn sample(&self) -> (u8, u16) {
        loop {
            match self.read() {
                Packet::Publish(sample) => return (sample.payload[0], sample.pkid),
                Packet::PingReq(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Waits until the other end is closed.
    fn ends(&self) {
        while (&self.0).read(&mut [0; 64]).unwrap() > 0 {}
    }

    /// Answers the next subscription.
    fn grant(&self, reason: SubscribeReasonCode) -> String {
        let Packet::Subscribe(asked) = self.read() else { panic!("no subscription") };
        self.send(&Packet::SubAck(SubAck { pkid: asked.pkid, return_codes: vec![reason], properties: None }));
        asked.filters[0].path.clone()
    }
}

/// What a broker says that takes so many samples at once.
fn takes(window: u16) -> ConnAckProperties {
    ConnAckProperties {
        receive_max: Some(window),
        max_packet_size: None,
        max_qos: None,
        session_expiry_interval: None,
        retain_available: None,
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

fn sample(number: u8) -> Publish {
    Publish::new("a", QoS::AtLeastOnce, vec![number], None)
}

fn target(path: &str) -> (Arc<Target>, Receiver<u8>) {
    let (tell, told) = channel();
    let filter = Filter { path: path.to_owned(), reliable: true, history: false };
    (Target::new(filter, Box::new(move |sample, _| tell.send(sample.payload[0]).unwrap())), told)
}

const GRANTED: SubscribeReasonCode = SubscribeReasonCode::Success(QoS::AtLeastOnce);

#[test]
fn what_is_not_acknowledged_is_sent_again_and_subscribed_again() {
    let fake = Fake::new();
    let (connection, end) = fake.pair(fake.place(), 10);
    let (target, told) = target("b");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(end.grant(GRANTED), "b"));
        connection.subscribe(&target).unwrap();
    });
    (1..=3).for_each(|number| connection.publish(sample(number)).unwrap());
    let ids = [end.sample(), end.sample(), end.sample()];
    assert_eq!(ids.map(|(number, _)| number), [1, 2, 3]);
    end.send(&Packet::PubAck(PubAck::new(ids[0].1, None)));
    // The acknowledgement is taken before the connection is seen to end.
    drop(end);
    let end = fake.accept(10);
    assert_eq!(end.grant(GRANTED), "b");
    assert_eq!([end.sample(), end.sample()], [ids[1], ids[2]]);
    end.send(&Packet::Publish(Publish::new("b", QoS::AtMostOnce, vec![9], None)));
    assert_eq!(told.recv_timeout(LONG), Ok(9));
}

/// Half a message, and packets that are none: the connection is made anew, nobody gets them.
#[test]
fn a_broker_that_goes_mad_or_away_is_left() {
    let fake = Fake::new();
    let (connection, mut end) = fake.pair(fake.place(), 10);
    let (target, told) = target("#");
    std::thread::scope(|scope| {
        scope.spawn(|| end.grant(GRANTED));
        connection.subscribe(&target).unwrap();
    });
    let sampled = |number| Packet::Publish(Publish::new("b", QoS::AtMostOnce, vec![number; 10], None));
    let mut whole = BytesMut::new();
    packet::write(&sampled(1), &mut whole).unwrap();
    let wrong: [&[u8]; 5] = [
        &whole[..whole.len() - 1],                // it vanishes within a message
        &[0xff; 8],                               // a length of too many bytes
        &[0x30, 0xff, 0xff, 0xff, 0x7f, 0, 1, 2], // a message of 256 MiB
        &[0x30, 3, 0xff, 0xff, 0],                // a topic that is longer than its packet
        &[0x82, 6, 0, 1, 0, 0, 1, 0],             // a packet that only clients send
    ];
    for bytes in wrong {
        (&end.0).write_all(bytes).unwrap();
        if bytes.len() == whole.len() - 1 {
            end.0.shutdown(Shutdown::Both).unwrap();
        }
        end = fake.accept(10);
        end.grant(GRANTED);
    }
    end.send(&sampled(2));
    assert_eq!(told.recv_timeout(LONG), Ok(2), "and nothing before");
}

#[test]
fn publishing_ends_with_the_reason_when_a_broker_acknowledges_nothing() {
    let fake = Fake::new();
    let (connection, end) = fake.pair(fake.place(), 1);
    lock(&connection.shared.state).patience = Duration::from_millis(100);
    let mut sent = 0;
    let refused = loop {
        match connection.publish(sample(1)) {
            Ok(()) => sent += 1,
            Err(refused) => break refused.to_string(),
        }
    };
    assert!(sent >= 1024 && refused.contains("no room") && refused.contains("too slow"), "{sent}: {refused}");
    end.send(&Packet::PubAck(PubAck::new(end.sample().1, None)));
    end.sample();
    connection.publish(sample(2)).unwrap();
    drop((fake, end));
    let refused = connection.publish(sample(3)).unwrap_err().to_string();
    assert!(refused.contains("no room"), "{refused}");
}

#[test]
fn a_best_effort_sample_is_told_when_there_is_no_broker() {
    let fake = Fake::new();
    let (connection, end) = fake.pair(fake.place(), 10);
    let best_effort = || Publish::new("a", QoS::AtMostOnce, vec![1], None);
    connection.publish(best_effort()).unwrap();
    assert_eq!(end.sample(), (1, 0));
    (&end.0).write_all(packet::goodbye(false)).unwrap();
    end.ends();
    let why = connection.publish(best_effort()).unwrap_err().to_string();
    let port = fake.place().port;
    assert!(why.contains(&format!("127.0.0.1:{port}: best-effort samples are dropped: it ended")), "{why}");
}

#[test]
fn a_broker_that_refuses_is_named_with_its_reason() {
    let fake = Fake::new();
    let refused = fake.refuses(|end| end.answer(ConnectReturnCode::NotAuthorized, takes(1)));
    assert!(matches!(&refused, Error::Usage(why) if why.contains("NotAuthorized")), "{refused}");
    let refused = fake.refuses(|end| end.answer(ConnectReturnCode::ServerBusy, takes(1)));
    assert!(matches!(&refused, Error::Engine(why) if why.contains("ServerBusy")), "{refused}");
    let lacks = ConnAckProperties { retain_available: Some(0), ..takes(1) };
    let refused = fake.refuses(|end| end.answer(ConnectReturnCode::Success, lacks));
    assert!(matches!(&refused, Error::Usage(why) if why.contains("it has no retained messages")), "{refused}");
    let refused = fake.refuses(|end| (&end.0).write_all(&[0x20, 2, 0, 1]).unwrap());
    assert!(matches!(&refused, Error::Engine(why) if why.contains("MQTT 3.1.1")), "{refused}");
    let place = fake.place();
    drop(fake);
    let refused = Connection::open(place, Arc::default()).err().unwrap();
    assert!(matches!(&refused, Error::Engine(why) if why.contains("refused")), "{refused}");
}

#[test]
fn a_subscription_or_a_sample_that_is_refused_is_told() {
    let fake = Fake::new();
    let refusals = Arc::new(Refusals::default());
    let (connection, end) = std::thread::scope(|scope| {
        let end = scope.spawn(|| {
            let end = fake.reached();
            end.answer(ConnectReturnCode::Success, ConnAckProperties { max_packet_size: Some(50), ..takes(10) });
            end
        });
        (Connection::open(fake.place(), refusals.clone()).unwrap(), end.join().unwrap())
    });
    let why = std::thread::scope(|scope| {
        scope.spawn(|| end.grant(SubscribeReasonCode::NotAuthorized));
        connection.subscribe(&target("secret").0).unwrap_err().to_string()
    });
    assert!(why.contains("refuses secret: [NotAuthorized]"), "{why}");
    assert!(matches!(end.read(), Packet::Unsubscribe(_)));
    let why = connection.publish(Publish::new("a", QoS::AtLeastOnce, vec![0; 50], None)).unwrap_err().to_string();
    assert!(why.contains("58 bytes") && why.contains("takes 50"), "{why}");
    connection.publish(sample(1)).unwrap();
    let mut answer = PubAck::new(end.sample().1, None);
    answer.reason = PubAckReason::NotAuthorized;
    end.send(&Packet::PubAck(answer));
    drop(connection);
    assert_eq!(
        (refusals.so_far().count, &refusals.so_far().last[..]),
        (2, "the broker refuses a sample of a: NotAuthorized")
    );
}

/// What waits is sent before the connection closes, and the last will of a bridge is published.
#[test]
fn the_end_comes_after_what_waits() {
    let fake = Fake::new();
    let presence = Presence { topic: "p".to_owned(), known: Arc::default() };
    let (connection, end) = fake.pair(Place { presence: Some(presence), ..fake.place() }, 10);
    assert_eq!(end.sample(), (b'1', 0), "its presence");
    connection.publish(sample(5)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(connection));
        end.send(&Packet::PubAck(PubAck::new(end.sample().1, None)));
        let Packet::Disconnect(last) = end.read() else { panic!("no goodbye") };
        assert_eq!(last.reason_code, DisconnectReasonCode::DisconnectWithWillMessage);
        assert_eq!((&end.0).read(&mut [0]).unwrap(), 0);
    });
}

/// Its thread is still at it, and a broker may answer at any time.
#[test]
fn a_connection_that_is_dropped_while_it_is_made_enters_no_session() {
    let fake = Fake::new();
    let presence = Presence { topic: "p".to_owned(), known: Arc::default() };
    let (connection, end) = fake.pair(Place { presence: Some(presence), ..fake.place() }, 10);
    drop(end);
    let end = fake.reached();
    drop(connection);
    end.answer(ConnectReturnCode::Success, takes(10));
    let Packet::Disconnect(last) = end.read() else { panic!("no goodbye") };
    assert_eq!(last.reason_code, DisconnectReasonCode::NormalDisconnection, "without its last will");
    end.ends();
}

#[test]
fn a_panic_of_one_who_takes_a_sample_ends_the_connection() {
    let fake = Fake::new();
    let refusals = Arc::new(Refusals::default());
    let (connection, end) = std::thread::scope(|scope| {
        let end = scope.spawn(|| fake.accept(10));
        (Connection::open(fake.place(), refusals.clone()).unwrap(), end.join().unwrap())
    });
    let filter = Filter { path: "b".to_owned(), reliable: true, history: false };
    let fails = |sample: &Publish, _: Round| assert!(sample.payload.is_empty(), "this one panics, as the test wants");
    std::thread::scope(|scope| {
        scope.spawn(|| end.grant(GRANTED));
        connection.subscribe(&Target::new(filter, Box::new(fails))).unwrap();
    });
    end.send(&Packet::Publish(Publish::new("b", QoS::AtMostOnce, vec![1], None)));
    end.ends();
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let why = connection.publish(Publish::new("a", qos, vec![1], None)).unwrap_err().to_string();
        assert!(why.contains("panicked"), "{why}");
    }
    assert!(connection.subscribe(&target("c").0).is_err());
    assert_eq!(refusals.so_far().count, 1);
}

#[test]
fn each_class_has_its_mark() {
    use std::os::fd::AsFd;
    let fake = Fake::new();
    for (class, tos) in qos::Class::ALL.into_iter().zip([0x28, 0, 0x90, 0xb0]) {
        let (connection, _end) = fake.pair(Place { class, ..fake.place() }, 10);
        let state = lock(&connection.shared.state);
        let marks = linux::marks::read(state.stream().unwrap().as_fd()).unwrap();
        assert_eq!((marks.tos, marks.priority), (tos, class.socket_priority()), "{class}");
    }
}
