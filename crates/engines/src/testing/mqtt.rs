//! The body of a fuzz target: what a broker sends. It panics when a promise is broken: a sample that is read can be written, and is the same
//! when it is read again.

use crate::mqtt::packet::{LARGEST, goodbye, read, subscribe, write};
use crate::mqtt::subscriptions::Filter;
use bytes::BytesMut;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Packet, PubAck, Publish, PublishProperties};

/// One packet.
pub fn mqtt(bytes: &[u8]) {
    let Ok(packet @ Packet::Publish(_)) = read(&mut &bytes[..], LARGEST) else { return };
    let mut wire = BytesMut::new();
    if write(&packet, &mut wire).is_ok() {
        assert_eq!(read(&mut &wire[..], LARGEST).ok(), Some(packet));
    }
}

/// Inputs to begin from.
pub fn mqtt_examples() -> Vec<Vec<u8>> {
    let several = PublishProperties { subscription_identifiers: vec![1, 200, 3], ..PublishProperties::default() };
    let mut reliable = Publish::new("a/b", QoS::AtLeastOnce, &b"payload"[..], None);
    reliable.pkid = 7;
    let packets = [
        Packet::Publish(reliable),
        Packet::Publish(Publish::new("a/b", QoS::AtMostOnce, &b"payload"[..], Some(several))),
        Packet::PubAck(PubAck::new(1, None)),
        subscribe(1, &Filter { path: "a/+".to_owned(), reliable: true, history: true }, 3),
    ];
    let written = packets.iter().map(|packet| {
        let mut wire = BytesMut::new();
        write(packet, &mut wire).unwrap();
        wire.to_vec()
    });
    written.chain([goodbye(true).to_vec()]).collect()
}

#[cfg(test)]
mod tests {
    /// A length beyond what comes costs no memory, and nothing that comes a panic.
    #[test]
    fn what_a_broker_sends_is_read_or_refused() {
        let seeds = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        qos::testing::inputs::run("mqtt", super::mqtt, super::mqtt_examples(), &seeds);
    }
}
