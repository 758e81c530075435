//! Documents between nodes: handshakes, control links, and pull.

use super::codec::Everything;
use super::frames::emitted;
use super::{FLOW, MAX_MESSAGE};
use crate::channel::history::{History, Query};
use crate::channel::queue::Entry;
use crate::codec;
use crate::control::links::frame;
use crate::handshake::{self, Answer, Checked, Request, Watching};
use crate::pull::{self, Identity, Question};
use crate::wire::{Header, Kind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Handshake documents of any content: refused, incomplete, or read; a document that is read is written and read back
/// unchanged.
pub fn handshake(bytes: &[u8]) {
    document::<Request>(bytes);
    document::<Answer>(bytes);
    document::<Watching>(bytes);
}

fn document<T: Serialize + DeserializeOwned + Checked + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(Some((document, length))) = handshake::unpack::<T>(bytes) {
        assert!(length <= bytes.len().min(4 + handshake::LARGEST));
        if let Ok(again) = handshake::pack(&document) {
            let read = handshake::unpack::<T>(&again);
            assert_eq!(read, Ok(Some((document, again.len()))), "a document survives the way");
        }
    }
}

/// A control link of any content, from a stranger and from a known peer.
pub fn control(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let mut reader = frame::Reader::new();
    if piece & 1 == 1 {
        reader.trust();
    }
    for part in bytes.chunks(usize::from(piece) + 1) {
        reader.feed(part);
        loop {
            match reader.next() {
                Ok(Some(frame::Message::Call(_, body) | frame::Message::Answer(_, body))) => {
                    assert!(body.len() <= bytes.len().min(frame::MESSAGE_LIMIT));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A request, and an answer at the end that asked: nothing is read beyond an error, no sample is larger than allowed.
pub fn pull(bytes: &[u8]) {
    if let Ok(Some((question, used))) = handshake::unpack::<Question>(bytes) {
        assert!(used <= bytes.len());
        let limits = qos::PullBuffer { samples: 4, ..qos::PullBuffer::default() };
        let mut history = History::new(7, limits);
        assert!((1..=9).all(|seq| {
            history.keep(
                Entry {
                    buffer: Arc::default(),
                    seq,
                    stamp: seq,
                    now: seq,
                    change: Default::default(),
                    historical: false,
                    offered: 0,
                    batch: false,
                    charge: Default::default(),
                },
                seq,
            )
        }));
        let (mut reading, mut found) = (history.ask(&question.query, 10), Vec::new());
        while !reading.is_over() {
            history.read(&mut reading, 4, 100, &mut found);
            assert!(found.drain(..).all(|entry| (6..=9).contains(&entry.seq)));
        }
        reading.absent.iter().for_each(|absent| drop(absent.to_string()));
    }
    crate::driver::read_answer(bytes, MAX_MESSAGE);
}

/// A request and an answer.
pub(super) fn handshakes() -> Vec<Vec<u8>> {
    let node = crate::control::NodeId(1);
    let port = crate::control::PortId(1);
    let request = Request {
        proxy: None,
        moves: false,
        token: Some(1 << 63),
        version: handshake::VERSION,
        realm: "default".to_owned(),
        node,
        port,
        subscriber: crate::control::PortInfo {
            name: "/in".to_owned(),
            direction: crate::control::Direction::Subscriber,
            topic: "/topic".to_owned(),
            message: codec::TypeDescription::of::<Everything>(),
            qos: qos::Qos::default(),
            carriers: vec!["udp".into()],
            answers: None,
            pull: Default::default(),
        },
        to_node: node,
        to_port: port,
        carrier: "udp".into(),
        clock: "boot".to_owned(),
        by_name: false,
        parameters: crate::carrier::Parameters { udp_port: Some(9), ..Default::default() },
        answers: None,
    };
    let accepted = Answer::Accepted(handshake::Accepted {
        scaled: None,
        flow: FLOW,
        incarnation: 1,
        last_seq: 0,
        max_message: MAX_MESSAGE as u32,
        clock: "boot".to_owned(),
        parameters: Default::default(),
        answers: None,
    });
    vec![handshake::pack(&request).unwrap_or_default(), handshake::pack(&accepted).unwrap_or_default()]
}

/// A control link from its beginning to its end.
pub(super) fn controls() -> Vec<Vec<u8>> {
    let mut bytes = vec![33];
    let hello = br#"{"version":1,"realm":"default","node":"0000000000000001"}"#;
    frame::write(frame::Kind::Hello, &[hello], &mut bytes);
    frame::write(frame::Kind::Refresh, &[], &mut bytes);
    frame::write(frame::Kind::Call, &[&1u64.to_le_bytes(), b"question"], &mut bytes);
    frame::write(frame::Kind::Bye, &[b"closed"], &mut bytes);
    vec![bytes]
}

/// A question and its answer.
pub(super) fn questions() -> Vec<Vec<u8>> {
    let (node, port) = (crate::control::NodeId(1), crate::control::PortId(1));
    let message = codec::TypeDescription::opaque("bytes");
    let question = Question {
        version: crate::pull::VERSION,
        realm: "default".to_owned(),
        to_node: node,
        to_port: port,
        topic: "/topic".to_owned(),
        message: message.clone(),
        max_message: MAX_MESSAGE as u32,
        publisher: None,
        except: Vec::new(),
        query: Query::Range { incarnation: Some(7), first: 2, last: 12 },
    };
    let (name, topic, clock) = ("/p".to_owned(), "/topic".to_owned(), "boot".to_owned());
    let publisher = Identity { node, port, incarnation: 7 };
    let run = pull::Run { publisher, name, topic, message, clock, flow: FLOW };
    let mut answer = handshake::pack(&pull::Answer::Run(run)).unwrap_or_default();
    for (kind, length) in [(Kind::Message, 5), (Kind::End, 0)] {
        let header = Header { length, kind, flags: 0, flow: FLOW, sequence: 0, sample: 2, stamp_ns: 3 };
        answer.extend(emitted(&header, &vec![5; length as usize]));
    }
    answer.extend(handshake::pack(&pull::Answer::Ended(pull::Ended::default())).unwrap_or_default());
    answer.extend(handshake::pack(&pull::Answer::Over).unwrap_or_default());
    vec![handshake::pack(&question).unwrap_or_default(), answer]
}
