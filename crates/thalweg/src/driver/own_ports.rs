//! The names of a node's own ports, and the room that they take in its document. Peers refuse a document that is beyond a limit whole, with
//! all its ports: so a port that would make it one does not open.

use crate::control::PortInfo;
use crate::control::limits::{MOST_BYTES_OF_NODE, MOST_PORTS};
use crate::control::links::MESSAGE_LIMIT;
use crate::error::{Error, Result};
use std::collections::HashMap;

/// Bytes that are left for the rest of a document, at most: five names, 64 addresses, and 16 refusals of a relay with three texts each.
const BESIDES: usize = 64 << 10;
/// A port's number in the text, with quotation marks, colon and comma.
const NUMBER: usize = 16;

/// The ports of a node.
#[derive(Default)]
pub(super) struct OwnPorts {
    rooms: HashMap<String, Room>,
    taken: Room,
}

/// The room that a port takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Room {
    /// In the memory of a peer, about.
    memory: usize,
    /// In the message by which a peer gets the document.
    text: usize,
}

impl Room {
    fn of(port: &PortInfo) -> Self {
        let text = serde_json::to_vec(port).map_or(usize::MAX, |text| text.len());
        Self { memory: port.weight(), text: text.saturating_add(NUMBER) }
    }

    fn plus(self, other: Self) -> Self {
        let (memory, text) = (self.memory.saturating_add(other.memory), self.text.saturating_add(other.text));
        Self { memory, text }
    }

    fn minus(self, other: Self) -> Self {
        let (memory, text) = (self.memory.saturating_sub(other.memory), self.text.saturating_sub(other.text));
        Self { memory, text }
    }
}

impl OwnPorts {
    /// The room that one more port takes.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is none. The text is the same for all ports: who tries again with another one need not tell it twice.
    pub(super) fn room_for(&self, port: &PortInfo) -> Result<Room> {
        if self.rooms.len() >= MOST_PORTS {
            return Err(Error::Usage(format!("a node has at most {MOST_PORTS} ports, and this one has as many")));
        }
        let (room, memory, text) = (Room::of(port), MOST_BYTES_OF_NODE - BESIDES, MESSAGE_LIMIT - BESIDES);
        let taken = self.taken.plus(room);
        if taken.memory > memory || taken.text > text {
            return Err(Error::Usage(format!(
                "peers take a document of at most {text} bytes, or {memory} in memory, and that of this node has no room for one more port: \
                 open fewer, or with shorter names and types"
            )));
        }
        Ok(room)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.rooms.contains_key(name)
    }

    pub(super) fn add(&mut self, name: &str, room: Room) {
        self.taken = self.taken.plus(room);
        if let Some(before) = self.rooms.insert(name.to_owned(), room) {
            self.taken = self.taken.minus(before);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(room) = self.rooms.remove(name) {
            self.taken = self.taken.minus(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::matching::LONGEST_NAME;
    use crate::control::{Direction, Document, Foreign, MOST_PASSED, PortId, Ports};
    use crate::testing::discovery::{document, port};

    /// A port for a forged end: all its texts have the longest length, and `fill` is what they are full of.
    fn forged(number: usize, fill: char) -> PortInfo {
        let long = |begin: String| format!("{begin}{}", fill.to_string().repeat(LONGEST_NAME - begin.len()));
        let end = Foreign {
            engine: "dds".to_owned(),
            name: long(String::new()),
            network: long(String::new()),
            passed: vec![long(String::new()); MOST_PASSED],
            beside: false,
        };
        let (name, topic) = (long(format!("/{number}")), long("/".to_owned()));
        PortInfo { foreign: Some(end), ..port(Direction::Publisher, &name, &topic) }
    }

    /// Opens ports until one does not fit.
    fn filled(own: &mut OwnPorts, of: impl Fn(usize) -> PortInfo) -> Vec<PortInfo> {
        let open = |number: usize| {
            let port = of(number);
            let room = own.room_for(&port).ok()?;
            own.add(&port.name, room);
            Some(port)
        };
        (0..).map_while(open).collect()
    }

    #[test]
    fn forged_names_of_the_longest_length_fit_into_a_document_that_peers_take() {
        for fill in ['x', '"'] {
            let mut own = OwnPorts::default();
            let opened = filled(&mut own, |number| forged(number, fill));
            assert!((100..MOST_PORTS).contains(&opened.len()), "{} of {fill}", opened.len());
            let ports: Ports = (1..).map(PortId).zip(opened.iter().cloned()).collect();
            let full = Document { ports, ..document(1) };
            let (memory, text) = (full.weight(), serde_json::to_vec(&full).unwrap().len());
            assert!(memory <= MOST_BYTES_OF_NODE && text <= MESSAGE_LIMIT, "{memory} in memory, {text} of text");
            assert!(text > MESSAGE_LIMIT / 10 * 9, "{text}: the room is used");
        }
    }

    #[test]
    fn a_port_that_closes_leaves_its_room() {
        let mut own = OwnPorts::default();
        let opened = filled(&mut own, |number| forged(number, 'x'));
        let (first, more) = (&opened[0], forged(opened.len(), 'x'));
        assert!(own.has(&first.name) && own.room_for(&more).is_err());
        own.remove(&first.name);
        assert!(!own.has(&first.name) && own.room_for(&more).is_ok());
        opened.iter().for_each(|port| own.remove(&port.name));
        assert_eq!((own.taken.memory, own.taken.text), (0, 0));
    }

    #[test]
    fn ports_that_are_small_are_counted() {
        let mut own = OwnPorts::default();
        let opened = filled(&mut own, |number| port(Direction::Publisher, &format!("/{number}"), "/a"));
        assert_eq!(opened.len(), MOST_PORTS);
    }
}
