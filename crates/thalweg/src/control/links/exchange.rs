//! What peers say on their links, and what it leads to.

use super::frame::{Hello, Message, VERSION};
use super::link::Stage;
use super::lock;
use super::worker::{Close, Worker};
use crate::control::{Document, Event, NodeId};

impl Worker {
    /// Reads once from a link and takes all whole messages. The error says why the link is to be closed.
    pub(super) fn receive(&mut self, token: u64, scratch: &mut [u8]) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(&token) else { return Ok(()) };
        let ended = link.receive(scratch).is_none();
        while let Some(link) = self.links.get_mut(&token) {
            let next = link.reader.next().map_err(|e| Close::Refused(|c| &c.garbage, e.0))?;
            let Some(message) = next else { break };
            let peer = link.peer;
            match (message, peer) {
                (Message::Hello(hello), None) => self.greeted(token, hello)?,
                (Message::Bye(reason), _) => return Err(Close::Ended(reason)),
                (message, Some(peer)) => self.take(token, peer, message)?,
                (_, None) => return Err(Close::Refused(|c| &c.garbage, "a message before the hello".to_owned())),
            }
        }
        if ended { Err(Close::Ended(String::new())) } else { Ok(()) }
    }

    fn greeted(&mut self, token: u64, hello: Hello) -> Result<(), Close> {
        if hello.version != VERSION {
            let text = format!("it speaks version {} of the control link, this node {VERSION}", hello.version);
            return Err(Close::Refused(|c| &c.other_version, text));
        }
        if hello.realm != self.document.realm {
            let text = format!("it is in realm {:?}, this node in {:?}", hello.realm, self.document.realm);
            return Err(Close::Refused(|c| &c.other_realm, text));
        }
        let node = hello.node.ok_or_else(|| Close::Refused(|c| &c.garbage, "a hello without a node".to_owned()))?;
        if node == self.document.node {
            return Err(Close::Own);
        }
        let Some(link) = self.links.get_mut(&token) else { return Ok(()) };
        (link.peer, link.stage) = (Some(node), Stage::Open);
        link.reader.trust();
        link.owe_document();
        if let Some(target) = link.target {
            self.targets[target].welcomed();
        }
        self.peers.entry(node).or_default().links.push(token);
        lock(&self.shared.known).insert(node);
        self.flush(token);
        Ok(())
    }

    fn take(&mut self, token: u64, from: NodeId, message: Message) -> Result<(), Close> {
        let event = match message {
            Message::Document(document) => return self.take_document(token, from, document),
            Message::Change(change) => {
                let peer = self.peers.entry(from).or_default();
                if peer.told.is_some_and(|told| change.revision <= told) {
                    return Ok(());
                }
                // Beyond a gap the directory asks for the document; what it holds stays what was told.
                if peer.told == Some(change.base) {
                    peer.told = Some(change.revision);
                }
                Event::Change(from, change)
            }
            Message::Refresh => {
                if let Some(link) = self.links.get_mut(&token) {
                    link.owe_document();
                }
                self.flush(token);
                return Ok(());
            }
            Message::Call(id, request) => Event::Call { from, id, request },
            Message::Answer(id, answer) => Event::Answer { from, id, answer },
            Message::Hello(_) | Message::Bye(_) => {
                return Err(Close::Refused(|c| &c.garbage, "a second hello".to_owned()));
            }
        };
        self.sink.deliver(event);
        Ok(())
    }

    fn take_document(&mut self, token: u64, from: NodeId, document: Box<Document>) -> Result<(), Close> {
        if document.node != from || document.realm != self.document.realm {
            return Err(Close::Refused(|c| &c.garbage, "a document of another node".to_owned()));
        }
        let peer = self.peers.entry(from).or_default();
        let asked = std::mem::take(&mut peer.asked);
        if asked || peer.told.is_none_or(|told| document.revision > told) {
            peer.told = Some(document.revision);
            self.sink.deliver(Event::Document(document));
        }
        if let Some(target) = self.links.get(&token).and_then(|link| link.target) {
            self.unsettled.remove(&target);
        }
        Ok(())
    }
}
