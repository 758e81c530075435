//! Samples as they come, read here: `rumqttc` 0.25.1 counts each subscription identifier one byte too long, ends the properties of a
//! sample with several of them too early, and takes the rest for the beginning of the payload.

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{Publish, PublishProperties};

type Result<T> = std::result::Result<T, &'static str>;

/// Reads a PUBLISH from its first byte and what is behind its length (MQTT 5, 3.3).
pub(super) fn read(first: u8, mut rest: Bytes) -> Result<Publish> {
    let qos = match (first >> 1) & 3 {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        2 => QoS::ExactlyOnce,
        _ => return Err("a sample of QoS 3"),
    };
    let topic = block(&mut rest)?;
    let pkid = if qos == QoS::AtMostOnce { 0 } else { number(&mut rest)? };
    if qos != QoS::AtMostOnce && pkid == 0 {
        return Err("a sample with the packet identifier 0");
    }
    let length = variable(&mut rest)?;
    let properties = split(&mut rest, length)?;
    let properties = if properties.is_empty() { None } else { Some(all(properties)?) };
    Ok(Publish { dup: first & 8 != 0, retain: first & 1 != 0, qos, pkid, topic, payload: rest, properties })
}

/// The properties (3.3.2.3).
fn all(mut from: Bytes) -> Result<PublishProperties> {
    let mut all = PublishProperties::default();
    while !from.is_empty() {
        match octet(&mut from)? {
            0x01 => all.payload_format_indicator = Some(octet(&mut from)?),
            0x02 => {
                let high = u32::from(number(&mut from)?);
                all.message_expiry_interval = Some((high << 16) | u32::from(number(&mut from)?));
            }
            0x03 => all.content_type = Some(text(&mut from)?),
            0x08 => all.response_topic = Some(text(&mut from)?),
            0x09 => all.correlation_data = Some(block(&mut from)?),
            0x0b => all.subscription_identifiers.push(variable(&mut from)?),
            0x23 => all.topic_alias = Some(number(&mut from)?),
            0x26 => {
                let key = text(&mut from)?;
                all.user_properties.push((key, text(&mut from)?));
            }
            _ => return Err("a sample with a property that samples do not have"),
        }
    }
    Ok(all)
}

fn split(from: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > from.len() {
        return Err("a sample that ends within a field");
    }
    Ok(from.split_to(length))
}

fn octet(from: &mut Bytes) -> Result<u8> {
    Ok(split(from, 1)?.first().copied().unwrap_or_default())
}

fn number(from: &mut Bytes) -> Result<u16> {
    Ok(split(from, 2)?.iter().fold(0, |number, octet| (number << 8) | u16::from(*octet)))
}

/// A number of one to four bytes (1.5.5).
fn variable(from: &mut Bytes) -> Result<usize> {
    let mut number = 0;
    for shift in [0, 7, 14, 21] {
        let next = octet(from)?;
        number |= usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a sample with a number of more than 4 bytes")
}

/// Bytes behind their number.
fn block(from: &mut Bytes) -> Result<Bytes> {
    let length = number(from)?;
    split(from, length.into())
}

fn text(from: &mut Bytes) -> Result<String> {
    String::from_utf8(block(from)?.to_vec()).map_err(|_| "a sample with a text that is no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    /// What is behind the first byte and the length, which must be one byte.
    fn body(sample: &Publish) -> (u8, Bytes) {
        let mut bytes = BytesMut::new();
        sample.write(&mut bytes).unwrap();
        assert!(bytes[1] < 0x80);
        (bytes[0], bytes.freeze().slice(2..))
    }

    fn sample(numbers: &[usize]) -> Publish {
        let properties = PublishProperties {
            payload_format_indicator: Some(1),
            message_expiry_interval: Some(0x0102_0304),
            topic_alias: Some(0x0506),
            response_topic: Some("r".to_owned()),
            correlation_data: Some(Bytes::from_static(b"c")),
            user_properties: vec![("thalweg".to_owned(), "1 2 3".to_owned()), ("k".to_owned(), String::new())],
            subscription_identifiers: numbers.to_vec(),
            content_type: Some("t".to_owned()),
        };
        let mut sample = Publish::new("a/b", QoS::AtLeastOnce, &b"payload"[..], Some(properties));
        (sample.pkid, sample.retain, sample.dup) = (0x0708, true, true);
        sample
    }

    #[test]
    fn all_subscriptions_of_a_sample_are_read_and_its_payload_is_whole() {
        let lists: [&[usize]; 4] = [&[], &[1], &[1, 2, 3], &[127, 128, 16_384, 2_097_152, 268_435_455]];
        for numbers in lists {
            let sent = sample(numbers);
            let (first, body) = body(&sent);
            assert_eq!(read(first, body), Ok(sent));
        }
        let bare = Publish { properties: None, ..sample(&[]) };
        let (first, body) = body(&bare);
        assert_eq!(read(first, body), Ok(bare));
    }

    #[test]
    fn a_sample_that_ends_early_is_refused() {
        let (first, body) = body(&Publish { payload: Bytes::new(), ..sample(&[1, 128, 3]) });
        for end in 0..body.len() {
            assert!(read(first, body.slice(..end)).is_err(), "{end}");
        }
        for (wrong, says) in [
            (&b"\x00\x01a\x00\x00\x00"[..], "identifier 0"),
            (b"\x00\x01a\x00\x01\x02\x22\x00", "property"),
            (b"\x00\x01a\x00\x01\x05\x0b\xff\xff\xff\xff", "4 bytes"),
            (b"\x00\x01a\x00\x01\x04\x08\x00\x01\xff", "UTF-8"),
            (b"\x00\x01a\x00\x01\x02\x0b\xff\x01", "ends within"),
        ] {
            assert!(read(0x32, Bytes::from_static(wrong)).is_err_and(|why| why.contains(says)), "{says}");
        }
        assert!(read(0x36, body).is_err_and(|why| why.contains("QoS 3")));
    }
}
