//! A client in virtual time.

use super::*;
use crate::dashboard::foxglove::queue::tests::sample;
use serde_json::Value;
use thalweg::codec::TypeDescription;

const SECOND: u64 = 1_000_000_000;

pub(in super::super) fn offers() -> Offers {
    (1..=3).map(|id| (id, Arc::new(Offer::new(&format!("/topic{id}"), &TypeDescription::of::<String>())))).collect()
}

/// The message that subscribes to channels.
pub(in super::super) fn subscribe(subscriptions: &[(u32, u32)]) -> Message {
    let wanted: Vec<Value> =
        subscriptions.iter().map(|(id, channel)| serde_json::json!({"id": id, "channelId": channel})).collect();
    Message::text(serde_json::json!({"op": "subscribe", "subscriptions": wanted}).to_string())
}

/// A client with these subscriptions and their channels, and 10 samples per second of each.
fn subscribed(subscriptions: &[(u32, u32)]) -> Client {
    let mut client = Client::new(10, "1", &offers());
    text(&mut client);
    client.receive(&subscribe(subscriptions), &offers());
    client
}

/// All messages that it gets now.
fn all(client: &mut Client, now_ns: u64) -> Vec<Message> {
    std::iter::from_fn(|| client.next(now_ns)).collect()
}

/// The same, which are texts.
fn text(client: &mut Client) -> String {
    let all = all(client, 0);
    all.iter().map(|message| message.to_text().unwrap()).collect()
}

/// The same, which are frames.
fn frames(client: &mut Client, now_ns: u64) -> Vec<Frame> {
    let frame = |message: Message| match message {
        Message::Frame(frame) => frame,
        other => panic!("{other}"),
    };
    all(client, now_ns).into_iter().map(frame).collect()
}

/// The same, which are samples of one frame each: the subscription and the number.
fn samples(client: &mut Client, now_ns: u64) -> Vec<(u8, u8)> {
    frames(client, now_ns).iter().map(|frame| (frame.payload()[1], frame.payload()[13])).collect()
}

#[test]
fn a_client_is_told_of_the_channels_and_gets_samples_of_those_it_wants() {
    let told = text(&mut Client::new(10, "1", &offers()));
    assert!(told.contains("\"serverInfo\"") && told.contains("/topic3"), "{told}");
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    assert_eq!(client.take_joined(), [(7, 1), (8, 2)]);
    assert_eq!(client.channels().collect::<Vec<_>>(), [1, 2]);
    (1..=3).for_each(|channel| client.offer(&sample(channel, channel as u8, 4)));
    assert_eq!(samples(&mut client, 0), [(7, 1), (8, 2)]);
    client.receive(&Message::text(r#"{"op": "unsubscribe", "subscriptionIds": [7]}"#), &offers());
    (1..=3).for_each(|channel| client.offer(&sample(channel, channel as u8, 4)));
    assert_eq!(samples(&mut client, 0), [(8, 2)]);
}

#[test]
fn many_channels_are_told_in_several_messages_and_those_that_are_gone_not_at_all() {
    let long = |id: u32| {
        Arc::new(Offer::new(&format!("/{id}/{}", "x".repeat(ADVERTISED / 4)), &TypeDescription::of::<String>()))
    };
    let offers: Offers = (0..100).map(|id| (id, long(id))).collect();
    let mut client = Client::new(10, "1", &offers);
    client.announce(&[], &[99], &offers);
    let told = all(&mut client, 0);
    let texts: Vec<&str> = told.iter().map(|message| message.to_text().unwrap()).collect();
    assert!(!client.is_overrun() && texts.iter().all(|text| text.len() <= ADVERTISED + 64));
    let channels = |text: &&str| -> usize {
        let message: Value = serde_json::from_str(text).unwrap();
        message["channels"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(texts.iter().map(channels).sum::<usize>(), 99);
}

#[test]
fn a_sample_that_is_larger_than_all_that_may_wait_is_told_once() {
    let mut client = subscribed(&[(7, 1)]);
    let large = sample(1, 0, HELD + 1);
    client.offer(&large);
    client.offer(&large);
    client.offer(&sample(2, 0, HELD + 1));
    let told = text(&mut client);
    assert!(told.matches("not shown").count() == 1 && told.contains("channel 1 "), "{told}");
    assert_eq!(client.held, 0);
}

#[test]
fn each_topic_has_a_rate_and_the_last_samples_win() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    (0..100).for_each(|number| client.offer(&sample(1, number, 4)));
    let first: Vec<_> = (68..76).map(|number| (7, number)).collect();
    assert_eq!(samples(&mut client, SECOND), first, "a burst of the last 32");
    client.offer(&sample(2, 1, 4));
    assert_eq!(samples(&mut client, SECOND), [(8, 1)], "another topic has a rate of its own");
    assert_eq!(client.due_in(SECOND), Some(Duration::from_millis(100)));
    assert_eq!(samples(&mut client, SECOND + 100_000_000), [(7, 76)]);
    assert_eq!(samples(&mut client, 2 * SECOND).len(), 8, "no more than a burst is saved up");
}

#[test]
fn a_big_topic_delays_a_small_one_by_one_sample() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    (0..2).for_each(|number| client.offer(&sample(1, number, 2 * FRAME)));
    assert!(client.next(0).is_some());
    client.offer(&sample(2, 9, 4));
    let frames = frames(&mut client, 0);
    let found: Vec<_> = frames.iter().map(|frame| (frame.header().is_final, frame.payload().len())).collect();
    assert_eq!(found, [(true, FRAME), (true, 13 + 4), (false, 13 + FRAME), (true, FRAME)]);
    assert_eq!((frames[1].payload()[1], frames[1].payload()[13]), (8, 9));
}

#[test]
fn a_text_waits_for_the_end_of_a_sample_and_goes_before_the_next_one() {
    let mut client = subscribed(&[(7, 1)]);
    client.offer(&sample(1, 0, 2 * FRAME));
    client.offer(&sample(1, 1, 0));
    assert!(client.next(0).is_some());
    client.receive(&Message::text("}"), &offers());
    let all = all(&mut client, 0);
    assert!(matches!(&all[..], [Message::Frame(_), Message::Text(_), Message::Frame(_)]), "{}", all.len());
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_is_let_go() {
    let mut client = subscribed(&[(1, 1), (2, 2), (3, 3)]);
    (0..3).for_each(|number| (1..=3).for_each(|channel| client.offer(&sample(channel, number, HELD / 2))));
    assert!(client.held <= HELD, "{}", client.held);
    while !client.is_overrun() {
        client.receive(&Message::text("}"), &offers());
        assert!(client.said_bytes <= SAID);
    }
}

#[test]
fn what_is_wrong_is_told_and_ends_nothing() {
    let mut client = subscribed(&[(7, 1)]);
    for (says, sent) in [
        ("no message", Message::text("}")),
        ("no message", Message::text(r#"{"op": "subscribe", "subscriptions": 7}"#)),
        ("no channel 9", subscribe(&[(1, 9)])),
        ("subscription 7 already", subscribe(&[(7, 2)])),
        ("no subscription 5", Message::text(r#"{"op": "unsubscribe", "subscriptionIds": [5]}"#)),
        ("nothing can be published", Message::binary(vec![1u8])),
    ] {
        client.receive(&sent, &offers());
        let told = text(&mut client);
        assert!(told.contains(says) && told.contains("\"status\""), "{says}: {told}");
    }
    client.offer(&sample(1, 1, 4));
    assert_eq!(samples(&mut client, 0), [(7, 1)]);
}

#[test]
fn channels_that_are_gone_end_their_subscriptions() {
    let mut client = subscribed(&[(7, 1), (8, 2)]);
    client.offer(&sample(1, 1, 4));
    client.announce(&[3], &[1], &offers());
    let told = text(&mut client);
    assert!(told.contains("\"unadvertise\"") && told.contains("/topic3") && !told.contains("/topic2"), "{told}");
    assert_eq!((client.channels().collect::<Vec<_>>(), client.held), (vec![2], 0));
}
