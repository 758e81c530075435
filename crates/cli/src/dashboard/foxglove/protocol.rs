//! Messages of Foxglove's protocol (`foxglove.websocket.v1` and `foxglove.sdk.v1`), of its parts that a viewer of topics needs.

use recording::file::SchemaText;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg::codec::TypeDescription;

/// Opcode of a sample.
const MESSAGE_DATA: u8 = 1;

/// A message of a client.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(tag = "op", rename_all = "camelCase")]
pub(super) enum Ask {
    /// Channels that it wants from now on.
    Subscribe { subscriptions: Vec<Wanted> },
    /// Subscriptions that it gives up.
    Unsubscribe {
        #[serde(rename = "subscriptionIds")]
        ids: Vec<u32>,
    },
    /// Anything else: nothing that is offered here.
    #[serde(other)]
    Other,
}

/// A subscription, which the client numbers.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wanted {
    pub(super) id: u32,
    pub(super) channel_id: u32,
}

/// A channel: a topic, with the type of its samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) topic: String,
    /// The type's name here.
    name: String,
    hash: u64,
    /// The type's text; `None`: nobody can decode the samples.
    schema: Option<SchemaText>,
}

impl Offer {
    /// The offer of a topic with samples of this type.
    pub(super) fn new(topic: &str, message: &TypeDescription) -> Self {
        let (topic, name) = (topic.to_owned(), message.name.clone());
        Self { topic, name, hash: message.hash, schema: SchemaText::of(message) }
    }

    /// `true` if samples of this type are of this channel.
    pub(super) fn is_of(&self, message: &TypeDescription) -> bool {
        (self.hash, &self.name) == (message.hash, &message.name)
    }

    fn json(&self, id: u32) -> Value {
        let Self { topic, name, schema, .. } = self;
        match schema {
            Some(SchemaText { name, encoding, text }) => {
                json!({"id": id, "topic": topic, "encoding": "cdr", "schemaName": name, "schemaEncoding": encoding, "schema": text})
            }
            None => json!({"id": id, "topic": topic, "encoding": "bytes", "schemaName": name, "schema": ""}),
        }
    }
}

/// The first message to a client.
pub(super) fn server_info(session: &str) -> String {
    let about = json!({"thalweg": env!("CARGO_PKG_VERSION")});
    json!({"op": "serverInfo", "name": "thalweg", "capabilities": [], "metadata": about, "sessionId": session})
        .to_string()
}

/// Channels that there are: the first of those that wait, at least one, in so many bytes if that one is not longer.
pub(super) fn advertise(waiting: &mut VecDeque<(u32, Arc<Offer>)>, most: usize) -> String {
    let (mut channels, mut bytes) = (Vec::new(), 0);
    while let Some((id, offer)) = waiting.front() {
        let text = offer.json(*id).to_string();
        bytes += text.len() + 1;
        if bytes > most && !channels.is_empty() {
            break;
        }
        channels.push(text);
        waiting.pop_front();
    }
    format!("{{\"op\":\"advertise\",\"channels\":[{}]}}", channels.join(","))
}

/// Channels that are gone.
pub(super) fn unadvertise(ids: &[u32]) -> String {
    json!({"op": "unadvertise", "channelIds": ids}).to_string()
}

/// The weight of a status message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Warning = 1,
    Error = 2,
}

/// A message for the person in front of the client.
pub(super) fn status(level: Level, message: &str) -> String {
    json!({"op": "status", "level": level as u8, "message": message}).to_string()
}

/// What stands before the bytes of a sample: the subscription, and the time at which it came here, ns since 1970.
pub(super) fn data_head(subscription: u32, time_ns: u64) -> [u8; 13] {
    let mut head = [MESSAGE_DATA; 13];
    head[1..5].copy_from_slice(&subscription.to_le_bytes());
    head[5..].copy_from_slice(&time_ns.to_le_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        let read = |text: &str| serde_json::from_str::<Ask>(text);
        let wanted = Ask::Subscribe { subscriptions: vec![Wanted { id: 0, channel_id: 3 }] };
        let text = r#"{"op": "subscribe", "subscriptions": [{"id": 0, "channelId": 3}], "new": 1}"#;
        assert_eq!(read(text).unwrap(), wanted);
        let text = r#"{"op": "unsubscribe", "subscriptionIds": [0, 7]}"#;
        assert_eq!(read(text).unwrap(), Ask::Unsubscribe { ids: vec![0, 7] });
        assert_eq!(read(r#"{"op": "clientInfo", "name": "x"}"#).unwrap(), Ask::Other);
        for wrong in ["", "[]", "{}", r#"{"op": "subscribe"}"#, r#"{"op": "unsubscribe", "subscriptionIds": [-1]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(data_head(0x0102, 0x0304), [1, 2, 1, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_channel_has_its_type_and_one_whose_structure_is_not_known_says_so() {
        let typed = Offer::new("/word", &TypeDescription::of::<String>());
        let [offer] = &told([(4, &typed)])[..] else { panic!("one channel") };
        assert_eq!((&offer["id"], &offer["topic"], &offer["encoding"]), (&4.into(), &"/word".into(), &"cdr".into()));
        assert_eq!((&offer["schemaEncoding"], &offer["schemaName"]), (&"ros2msg".into(), &"thalweg/msg/String".into()));
        let opaque = Offer::new("/blob", &TypeDescription::opaque("Blob"));
        assert_eq!(told([(5, &opaque)])[0]["encoding"], "bytes");
        assert!(typed.is_of(&TypeDescription::of::<String>()) && !typed.is_of(&TypeDescription::opaque("Blob")));
    }

    fn told<const N: usize>(offers: [(u32, &Offer); N]) -> Vec<Value> {
        let mut waiting: VecDeque<_> = offers.into_iter().map(|(id, offer)| (id, Arc::new(offer.clone()))).collect();
        let message: Value = serde_json::from_str(&advertise(&mut waiting, 1 << 20)).unwrap();
        assert!(waiting.is_empty());
        message["channels"].as_array().unwrap().clone()
    }
}
