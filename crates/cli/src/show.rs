//! One sample, for people and programs.

use crate::output::micros;
use crate::participant::Participant;
use lab::statistics::microseconds;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use thalweg::codec::{TypeDescription, from_cdr, to_json};
use thalweg::control::{NodeId, PortId};
use thalweg::{Change, PublisherInfo, SampleInfo};

/// The publisher of a sample, from its node's document.
pub(crate) struct Origin {
    /// The topic.
    pub topic: String,
    /// The port's name.
    pub port: String,
    /// The type of its samples.
    pub message: Option<TypeDescription>,
}

/// The known publishers.
#[derive(Default)]
pub(crate) struct Origins(HashMap<(NodeId, PortId), Arc<Origin>>);

/// Largest number of publishers that are remembered.
const MOST_ORIGINS: usize = 10_000;

impl Origins {
    /// The publisher of a sample. `topic` is the subscribed topic or pattern; `known` holds the subscriber's
    /// knowledge of a publisher that may be gone.
    pub(crate) fn of(
        &mut self,
        participant: &Participant,
        info: &SampleInfo,
        topic: &str,
        known: impl FnOnce() -> Option<Arc<PublisherInfo>>,
    ) -> Arc<Origin> {
        let key = (info.node, info.port);
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        if let Some(publisher) = known() {
            let PublisherInfo { name, topic, message } = publisher.as_ref().clone();
            return self.remember(key, Origin { topic, port: name, message: Some(message) });
        }
        let nodes = participant.node.nodes();
        let port = nodes.iter().find(|d| d.node == info.node).and_then(|d| d.ports.get(&info.port));
        let Some(port) = port else {
            let port = format!("{}#{}", info.node, info.port.0);
            return Arc::new(Origin { topic: topic.to_owned(), port, message: None });
        };
        let (topic, message) = (port.topic.clone(), Some(port.message.clone()));
        self.remember(key, Origin { topic, port: port.name.clone(), message })
    }

    fn remember(&mut self, key: (NodeId, PortId), origin: Origin) -> Arc<Origin> {
        let origin = Arc::new(origin);
        if self.0.len() < MOST_ORIGINS {
            self.0.insert(key, origin.clone());
        }
        origin
    }
}

/// A sample to be shown.
pub(crate) struct Shown<'a> {
    /// Its publisher.
    pub origin: &'a Origin,
    /// Its sequence number and time stamps.
    pub info: &'a SampleInfo,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// `true` to show all bytes.
    pub full: bool,
}

/// Bytes of a sample that are shown by default.
const CUT: usize = 256;

impl Shown<'_> {
    /// One JSON object.
    pub(crate) fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("topic".into(), json!(self.origin.topic));
        object.insert("publisher".into(), json!(self.origin.port));
        object.insert("seq".into(), json!(self.info.seq));
        // As text: numbers in JSON are exact only up to 2^53.
        object.insert("id".into(), json!(format!("{}:{}", self.info.incarnation, self.info.seq)));
        object.insert("historical".into(), json!(self.info.historical));
        if self.info.change != Change::Written {
            object.insert("change".into(), json!(self.info.change));
        }
        object.insert("source_ns".into(), json!(self.info.source_ns));
        object.insert("received_ns".into(), json!(self.info.received_ns));
        object.insert("latency_us".into(), json!(self.info.latency_ns().map(microseconds)));
        object.insert("size".into(), json!(self.bytes.len()));
        if let Some(scaled) = &self.info.scaled {
            object.insert("scaled".into(), json!(scaled));
        }
        object.insert("type".into(), json!(self.origin.message.as_ref().map(|m| &m.name)));
        match self.value() {
            Some(value) => object.insert("data".into(), value),
            None => object.insert("hex".into(), json!(hex(self.shown_bytes()))),
        };
        Value::Object(object)
    }

    /// Text: typed content on one line, other bytes as a dump under a heading.
    pub(crate) fn text(&self, with_topic: bool, with_latency: bool) -> String {
        let mut head = String::new();
        if with_topic {
            let _ = write!(head, "{} ", self.origin.topic);
        }
        if with_latency {
            let age = self.info.latency_ns().map_or("?".to_owned(), |ns| micros(microseconds(ns)));
            let _ = write!(head, "#{} {age} ", self.info.seq);
        }
        match self.info.change {
            Change::Written => {}
            Change::Disposed => head += "disposed: ",
            Change::Unregistered => head += "unregistered: ",
        }
        match self.value() {
            Some(Value::String(text)) => head + &text,
            Some(value) => head + &value.to_string(),
            None => self.dump(&head),
        }
    }

    /// The typed content, if the type is known and the bytes decode.
    fn value(&self) -> Option<Value> {
        let message = self.origin.message.as_ref()?;
        match &message.schema {
            Some(schema) => to_json(schema, self.bytes).ok(),
            // A type of unknown structure is still a string if its name says so.
            None if is_string(&message.name) => from_cdr(self.bytes).ok().map(Value::String),
            None => None,
        }
    }

    fn shown_bytes(&self) -> &[u8] {
        let most = if self.full { usize::MAX } else { CUT };
        self.bytes.get(..most).unwrap_or(self.bytes)
    }

    fn dump(&self, head: &str) -> String {
        let number = if head.contains('#') { String::new() } else { format!("#{} ", self.info.seq) };
        let mut text = format!("{head}{number}{} bytes", self.bytes.len());
        let shown = self.shown_bytes();
        dump(&mut text, shown);
        let cut = self.bytes.len() - shown.len();
        if cut > 0 {
            let _ = write!(text, "\n… {cut} more (--full shows them)");
        }
        text
    }
}

fn is_string(name: &str) -> bool {
    name.rsplit("::").next().is_some_and(|last| last.eq_ignore_ascii_case("string"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A dump as of `hexdump -C`: offset, sixteen bytes, and their printable characters.
fn dump(text: &mut String, bytes: &[u8]) {
    for (row, line) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "\n{:08x} ", row * 16);
        for column in 0..16 {
            let gap = if column == 8 { " " } else { "" };
            let _ = match line.get(column) {
                Some(byte) => write!(text, "{gap} {byte:02x}"),
                None => write!(text, "{gap}   "),
            };
        }
        let printable = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let _ = write!(text, "  |{}|", line.iter().map(printable).collect::<String>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_dumped_as_hexdump_does() {
        let mut text = String::new();
        dump(&mut text, b"0123456789abcdef\x00z");
        let expected = "\n00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  |0123456789abcdef|\
                        \n00000010  00 7a                                             |.z|";
        assert_eq!(text, expected);
        assert_eq!(hex(&[0, 255]), "00ff");
    }

    #[test]
    fn large_samples_are_cut_and_say_so() {
        let info = SampleInfo {
            node: NodeId(1),
            port: PortId(1),
            incarnation: 1,
            seq: 7,
            source_ns: 1000,
            received_ns: 13_345,
            same_clock: true,
            historical: false,
            change: Change::Written,
            scaled: None,
        };
        let origin = Origin { topic: "/a".into(), port: "/p".into(), message: None };
        let shown = Shown { origin: &origin, info: &info, bytes: &[1; 300], full: false };
        let text = shown.text(true, true);
        assert!(text.starts_with("/a #7 12.3 us 300 bytes\n00000000  01"), "{text}");
        assert!(text.ends_with("… 44 more (--full shows them)"), "{text}");
        assert_eq!(shown.json()["hex"].as_str().unwrap().len(), 512);
        assert_eq!(Shown { full: true, ..shown }.json()["hex"].as_str().unwrap().len(), 600);
    }
}
