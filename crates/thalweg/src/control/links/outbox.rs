//! Messages of this node on its links.

use super::close::{Close, not_reading};
use super::frame::{Kind, MESSAGE_LIMIT};
use super::link::{Overflow, Stage};
use super::worker::Worker;
use crate::control::{Change, Document, Event, NodeId, Origin, Sink};
use std::sync::Arc;

impl Worker {
    pub(super) fn announce(&mut self, document: Arc<Document>, change: &Change) {
        self.document = document;
        self.encoded = None;
        let Ok(encoded) = serde_json::to_vec(change) else { return };
        let open: Vec<u64> = self.links.iter().filter(|(_, l)| l.stage == Stage::Open).map(|(t, _)| *t).collect();
        for token in open {
            let Some(link) = self.links.get_mut(&token) else { continue };
            if encoded.len() > MESSAGE_LIMIT {
                link.owe_document();
            }
            match link.owe_change(change, &encoded) {
                Ok(()) => self.flush(token),
                Err(Overflow) => self.close(token, not_reading()),
            }
        }
    }

    pub(super) fn send(&mut self, to: NodeId, kind: Kind, parts: &[&[u8]]) {
        if let Some(token) = self.peers.get(&to).and_then(|p| p.links.first().copied()) {
            self.send_on(token, kind, parts);
        }
    }

    pub(super) fn send_on(&mut self, token: u64, kind: Kind, parts: &[&[u8]]) {
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.queue(kind, parts) {
            Ok(()) => self.flush(token),
            Err(Overflow) => self.close(token, not_reading()),
        }
    }

    /// Writes a link's data, and watches for room if some remains.
    pub(super) fn flush(&mut self, token: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let (document, encoded, sink) = (&self.document, &mut self.encoded, &self.sink);
        let mut body = || encoded.get_or_insert_with(|| encode(document, sink)).clone();
        if let Err(error) = link.flush(&mut body) {
            return self.close(token, Close::Ended(error.to_string()));
        }
        let wants_room = link.waiting() > 0;
        if wants_room != link.watches_room {
            link.watches_room = wants_room;
            if let Err(error) = self.poller.change(&*link, token, link.wanted()) {
                self.close(token, Close::Ended(error.to_string()));
            }
        }
    }
}

/// The encoded document. If it exceeds the limit of a message, it is sent without its ports, with a warning.
fn encode(document: &Document, sink: &Sink) -> Vec<u8> {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    if bytes.len() <= MESSAGE_LIMIT {
        return bytes;
    }
    let (ports, size) = (document.ports.len(), bytes.len());
    sink.deliver(
        Origin::Own,
        Event::Warning(format!(
            "the {ports} ports of this node need {size} bytes, {MESSAGE_LIMIT} are allowed: others cannot see them"
        )),
    );
    serde_json::to_vec(&Document { ports: Default::default(), ..document.clone() }).unwrap_or_default()
}
