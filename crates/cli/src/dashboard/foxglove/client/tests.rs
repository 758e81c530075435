//! A client in virtual time.

use super::*;
use crate::dashboard::access::Access;
use crate::dashboard::foxglove::queue::KEPT_BYTES;
use crate::dashboard::foxglove::queue::tests::sample;
use serde_json::Value;
use thalweg::codec::TypeDescription;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: foxglove.sdk.v1\r\nSec-WebSocket-Version: 13\r\n\r\n";
const SECOND: u64 = 1_000_000_000;

fn rules() -> Rules {
    Rules { access: Access::new("127.0.0.1:8765".parse().unwrap(), &[], None), origins: Vec::new() }
}

fn offers() -> Offers {
    (1..=3).map(|id| (id, Offer::new(&format!("/topic{id}"), &TypeDescription::of::<String>()))).collect()
}

/// A text of a client, in one frame; the mask is none.
fn text(text: &str) -> Vec<u8> {
    let mut bytes = frame::text(text);
    bytes[1] |= 0x80;
    let at = if bytes[1] == 0xfe { 4 } else { 2 };
    drop(bytes.splice(at..at, [0; 4]));
    bytes
}

/// A client with these subscriptions and their channels, and 10 samples per second of each.
fn subscribed(subscriptions: &[(u32, u32)]) -> Client {
    let mut client = Client::new(10, 0);
    client.receive(REQUEST.as_bytes(), &rules(), &offers(), 0);
    all(&mut client, 0);
    let wanted: Vec<Value> =
        subscriptions.iter().map(|(id, channel)| serde_json::json!({"id": id, "channelId": channel})).collect();
    let wanted = serde_json::json!({"op": "subscribe", "subscriptions": wanted}).to_string();
    client.receive(&text(&wanted), &rules(), &offers(), 0);
    client
}

/// All bytes that it gets now, written in pieces.
fn all(client: &mut Client, now_ns: u64) -> Vec<u8> {
    let mut found = Vec::new();
    loop {
        let bytes = client.bytes(now_ns);
        let some = &bytes[..bytes.len().min(50_000)];
        if some.is_empty() {
            return found;
        }
        found.extend_from_slice(some);
        let count = some.len();
        client.wrote(count);
    }
}

/// The subscription and the number of each sample in these frames of short samples.
fn samples(mut bytes: &[u8]) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    while let [0x82, length, rest @ ..] = bytes {
        let (payload, behind) = rest.split_at(usize::from(*length));
        found.push((payload[1], payload[13]));
        bytes = behind;
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    found
}

#[test]
fn a_client_is_told_of_the_channels_and_gets_samples_of_those_it_wants() {
    let mut client = Client::new(10, 0);
    for byte in REQUEST.as_bytes() {
        client.receive(&[*byte], &rules(), &offers(), 0);
    }
    let told = String::from_utf8_lossy(&all(&mut client, 0)).into_owned();
    assert!(told.starts_with("HTTP/1.1 101 ") && told.contains("\"serverInfo\"") && told.contains("/topic3"), "{told}");
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    assert_eq!(client.take_joined(), [(7, 1), (8, 2)]);
    assert_eq!(client.channels().collect::<Vec<_>>(), [1, 2]);
    (1..=3).for_each(|channel| client.offer(&sample(channel, channel as u8, 4)));
    assert_eq!(samples(&all(&mut client, 0)), [(7, 1), (8, 2)]);
    client.receive(&text(r#"{"op": "unsubscribe", "subscriptionIds": [7]}"#), &rules(), &offers(), 0);
    (1..=3).for_each(|channel| client.offer(&sample(channel, channel as u8, 4)));
    assert_eq!(samples(&all(&mut client, 0)), [(8, 2)]);
}

#[test]
fn each_topic_has_a_rate_and_the_last_samples_win() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    (0..100).for_each(|number| client.offer(&sample(1, number, 4)));
    let first: Vec<_> = (68..76).map(|number| (7, number)).collect();
    assert_eq!(samples(&all(&mut client, SECOND)), first, "a burst of the last 32");
    client.offer(&sample(2, 1, 4));
    assert_eq!(samples(&all(&mut client, SECOND)), [(8, 1)], "another topic has a rate of its own");
    assert_eq!(client.due_in(SECOND), Some(Duration::from_millis(100)));
    assert_eq!(samples(&all(&mut client, SECOND + 100_000_000)), [(7, 76)]);
    assert_eq!(samples(&all(&mut client, 2 * SECOND)).len(), 8, "no more than a burst is saved up");
}

#[test]
fn a_big_topic_delays_a_small_one_by_one_sample() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    (0..4).for_each(|number| client.offer(&sample(1, number, KEPT_BYTES / 4)));
    let begun = client.bytes(0).len();
    client.wrote(begun);
    (0..4).for_each(|number| client.offer(&sample(2, number, 4)));
    let bytes = all(&mut client, 0);
    let rest_of_the_first = KEPT_BYTES / 4;
    assert_eq!(samples(&bytes[rest_of_the_first..][..2 + 17]), [(8, 0)]);
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_is_let_go() {
    let mut client = subscribed(&[(1, 1), (2, 2), (3, 3)]);
    (0..3).for_each(|number| (1..=3).for_each(|channel| client.offer(&sample(channel, number, HELD / 2))));
    assert!(client.held <= HELD, "{}", client.held);
    client.tend(ASKED_NS + 1);
    assert!(!client.is_over() && client.said == frame::ping());
    client.tend(SILENT_NS + 1);
    assert!(client.is_over());
    let mut client = subscribed(&[]);
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'?'; 125]].concat().repeat(400);
    while !client.is_over() {
        client.receive(&ping, &rules(), &offers(), 0);
        assert!(client.said.len() <= SAID);
    }
}

#[test]
fn what_is_wrong_is_told_and_ends_nothing_but_what_breaks_the_protocol() {
    let mut client = subscribed(&[(7, 1)]);
    for (says, sent) in [
        ("no message", text("}")),
        ("no message", text(r#"{"op": "subscribe", "subscriptions": 7}"#)),
        ("no channel 9", text(r#"{"op": "subscribe", "subscriptions": [{"id": 1, "channelId": 9}]}"#)),
        ("subscription 7 already", text(r#"{"op": "subscribe", "subscriptions": [{"id": 7, "channelId": 2}]}"#)),
        ("no subscription 5", text(r#"{"op": "unsubscribe", "subscriptionIds": [5]}"#)),
        ("nothing can be published", [0x82, 0x81, 0, 0, 0, 0, 1].to_vec()),
    ] {
        client.receive(&sent, &rules(), &offers(), 0);
        let told = String::from_utf8_lossy(&all(&mut client, 0)).into_owned();
        assert!(told.contains(says) && told.contains("\"status\""), "{says}: {told}");
    }
    client.offer(&sample(1, 1, 4));
    assert_eq!(samples(&all(&mut client, 0)), [(7, 1)]);
    client.receive(&[0x82, 1, 1], &rules(), &offers(), 0);
    let told = all(&mut client, 0);
    assert!(told.starts_with(&[0x88]) && told[2..4] == 1002u16.to_be_bytes() && client.is_over(), "{told:?}");
}

#[test]
fn a_request_has_a_limit_and_a_time() {
    let mut client = Client::new(10, 0);
    client.receive(&[b'x'; handshake::MOST + 1], &rules(), &offers(), 0);
    assert!(all(&mut client, 0).starts_with(b"HTTP/1.1 431 ") && client.is_over());
    let mut client = Client::new(10, 0);
    client.receive(b"GET / HTTP/1.1\r\n", &rules(), &offers(), OPENING_NS);
    client.tend(OPENING_NS);
    assert!(!client.is_over());
    client.tend(OPENING_NS + 1);
    assert!(client.is_over());
}

#[test]
fn channels_that_are_gone_end_their_subscriptions() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    client.offer(&sample(1, 1, 4));
    client.announce(&[3], &[1], &offers());
    let told = String::from_utf8_lossy(&all(&mut client, 0)).into_owned();
    assert!(told.contains("\"unadvertise\"") && told.contains("/topic3") && !told.contains("/topic2"), "{told}");
    assert_eq!((client.channels().collect::<Vec<_>>(), client.held), (vec![2], 0));
}
