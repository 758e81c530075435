//! Packets of MQTT 5, as `rumqttc` has them, and their way through a socket. Of `rumqttc` only the packets are used
//! (docs/decisions/0024-libraries-of-engines.md).

mod publish;

use super::subscriptions::Filter;
use bytes::{BufMut, BytesMut};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Disconnect, DisconnectReasonCode, Filter as Wire, Packet, RetainForwardRule, Subscribe, SubscribeProperties,
    Unsubscribe,
};
use std::io::{self, Read};

/// Longest remaining length of a packet (MQTT 5, 1.5.5), and longest topic (1.5.4).
pub(crate) const LARGEST: u32 = 268_435_455;
pub(super) const LONGEST_TOPIC: usize = 65_535;

/// Memory for a packet grows by so much at a time, with what has come.
const STEP: usize = 64 << 10;

/// Reads one packet, which may have `largest` bytes behind its length.
///
/// # Errors
/// Those of the socket; InvalidData for a packet that is larger, or malformed.
pub(crate) fn read(from: &mut impl Read, largest: u32) -> io::Result<Packet> {
    let mut bytes = BytesMut::with_capacity(256);
    bytes.put_u8(octet(from)?);
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let next = octet(from)?;
        bytes.put_u8(next);
        length |= usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return rest(from, bytes, length, largest);
        }
    }
    Err(malformed("its length has more than 4 bytes"))
}

fn octet(from: &mut impl Read) -> io::Result<u8> {
    let mut octet = [0];
    from.read_exact(&mut octet)?;
    Ok(octet[0])
}

fn rest(from: &mut impl Read, mut bytes: BytesMut, length: usize, largest: u32) -> io::Result<Packet> {
    if length > largest as usize {
        return Err(malformed(&format!("{length} bytes, and this end takes {largest}")));
    }
    let header = bytes.len();
    let end = header + length;
    while bytes.len() < end {
        let at = bytes.len();
        bytes.resize(end.min(at + STEP), 0);
        from.read_exact(bytes.get_mut(at..).unwrap_or_default())?;
    }
    let first = bytes.first().copied().unwrap_or_default();
    // rumqttc reads no DISCONNECT that leaves out what it may, no CONNACK of MQTT 3.1.1, and no sample of several subscriptions.
    match (first >> 4, length) {
        (3, _) => publish::read(first, bytes.split_off(header).freeze()).map(Packet::Publish).map_err(malformed),
        (14, 0 | 1) => {
            let reason = bytes.get(2).map_or(Ok(DisconnectReasonCode::NormalDisconnection), |code| (*code).try_into());
            Ok(Packet::Disconnect(Disconnect::new(reason.map_err(|error| malformed(&error.to_string()))?)))
        }
        (2, 2) => Err(malformed("the broker answers in MQTT 3.1.1; one that speaks MQTT 5 is needed")),
        _ => Packet::read(&mut bytes, None).map_err(|error| malformed(&error.to_string())),
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a packet that cannot be used: {what}"))
}

/// Encodes a packet behind those in `into`.
///
/// # Errors
/// InvalidData for one that is too long; nothing of it is in `into` then.
pub(crate) fn write(packet: &Packet, into: &mut BytesMut) -> io::Result<()> {
    let before = into.len();
    match packet.write(into, None) {
        Ok(_) => Ok(()),
        Err(error) => {
            into.truncate(before);
            Err(malformed(&error.to_string()))
        }
    }
}

/// Asks for the samples of a filter, with its number on each of them.
pub(crate) fn subscribe(id: u16, filter: &Filter, number: u32) -> Packet {
    let wire = Wire {
        path: filter.path.clone(),
        qos: if filter.reliable { QoS::AtLeastOnce } else { QoS::AtMostOnce },
        nolocal: true,
        // Without it an end of an instance (empty, retained) looks like an empty sample.
        preserve_retain: true,
        retain_forward_rule: if filter.history {
            RetainForwardRule::OnEverySubscribe
        } else {
            RetainForwardRule::Never
        },
    };
    let properties = SubscribeProperties { id: Some(number as usize), user_properties: Vec::new() };
    Packet::Subscribe(Subscribe { pkid: id, filters: vec![wire], properties: Some(properties) })
}

pub(super) fn unsubscribe(id: u16, path: &str) -> Packet {
    Packet::Unsubscribe(Unsubscribe { pkid: id, filters: vec![path.to_owned()], properties: None })
}

/// The end of a connection, after which the broker publishes its last will if it has one. `rumqttc` writes none with a reason.
pub(crate) fn goodbye(will: bool) -> &'static [u8] {
    const NORMAL: &[u8] = &[0xe0, 0];
    const WITH_WILL: &[u8] = &[0xe0, 1, DisconnectReasonCode::DisconnectWithWillMessage as u8];
    if will { WITH_WILL } else { NORMAL }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rumqttc::v5::mqttbytes::v5::Publish;

    fn bytes(packet: &Packet) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        write(packet, &mut bytes).unwrap();
        bytes.to_vec()
    }

    fn publish(payload: &[u8]) -> Packet {
        let mut publish = Publish::new("a/b", QoS::AtLeastOnce, payload.to_vec(), None);
        publish.pkid = 7;
        Packet::Publish(publish)
    }

    #[test]
    fn a_packet_comes_as_it_was_sent_and_no_larger_than_allowed() {
        for size in [0, 1, 127, 128, 200_000] {
            let sent = publish(&vec![9; size]);
            let wire = bytes(&sent);
            assert_eq!(read(&mut &wire[..], LARGEST).unwrap(), sent);
            assert_eq!(read(&mut &wire[..wire.len() - 1], LARGEST).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let said = read(&mut &bytes(&publish(&[0; 100]))[..], 50).unwrap_err().to_string();
        assert!(said.contains("108 bytes, and this end takes 50"), "{said}");
    }

    #[test]
    fn what_may_be_left_out_is_read_and_an_old_broker_named() {
        use DisconnectReasonCode::{DisconnectWithWillMessage, NormalDisconnection, ServerShuttingDown};
        for (mut wire, reason) in [
            (&[0xe0, 1, 0x8b][..], ServerShuttingDown),
            (&[0xe0, 2, 0x8b, 0], ServerShuttingDown),
            (goodbye(true), DisconnectWithWillMessage),
            (goodbye(false), NormalDisconnection),
        ] {
            assert_eq!(read(&mut wire, 9).unwrap(), Packet::Disconnect(Disconnect::new(reason)));
        }
        let said = read(&mut &[0x20, 2, 0, 1][..], 9).unwrap_err().to_string();
        assert!(said.contains("MQTT 3.1.1"), "{said}");
    }
}
