//! The participants of a domain: one for each class in use.
//!
//! Cyclone marks no packet. But a participant has sockets of its own, so each class whose packets have a mark has a participant, opened when
//! first used and marked then. All readers, and the writers of class NORMAL, are of the first one.
//!
//! Cyclone shows no descriptors of its sockets. Each participant asks for a send buffer of a size that nobody else asks for, and its sockets
//! are found by that.

use super::failed;
use super::graph::Graph;
use super::ros::{Member, Membership, listen};
use crate::engine::{Error, Result};
use crate::lock;
use cyclone::{Complaints, Guid, Participant, Place, Reader};
use linux::net::mark_by_send_buffer;
use qos::Class;
use qos::priority::{Dscp, Mark};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A participant, and the node that it is in ROS 2.
#[derive(Clone)]
pub(super) struct Presence {
    pub(super) participant: Participant,
    node: Option<Arc<Membership>>,
}

impl Presence {
    /// Names an end as one of its node, in ROS 2.
    pub(super) fn member(&self, guid: Guid, writes: bool) -> Option<Member> {
        self.node.as_ref().map(|node| node.enter(guid, writes))
    }
}

/// What the participants of classes have in common.
pub(super) struct Setup {
    pub(super) place: Place,
    /// Their user data.
    pub(super) user_data: &'static str,
    /// The node of ROS 2, if this is one.
    pub(super) node: Option<String>,
    /// Code points of classes that have others than their own.
    pub(super) marks: Vec<(Class, Dscp)>,
}

impl Setup {
    /// The mark of a class's packets.
    fn mark(&self, class: Class) -> Mark {
        let stated = self.marks.iter().rev().find(|(of, _)| *of == class);
        stated.map_or(Mark::Class(class), |(_, dscp)| Mark::Dscp(*dscp))
    }
}

pub(super) struct Participants {
    setup: Setup,
    graph: Arc<Graph>,
    first: Presence,
    /// By class, in the order of [`Class::ALL`].
    marked: Mutex<[Option<Marked>; 4]>,
    _nodes: Option<Reader>,
}

/// The participant of a class.
struct Marked {
    presence: Presence,
    /// The send buffer that it has asked for, until its sockets are marked.
    to_mark: Option<u32>,
}

/// Sizes of send buffers, in bytes: no less than what a socket has without a wish, of which the kernel grants twice as many.
const LEAST_BUFFER: u32 = 110_003;
/// The number of sizes. The largest is below the kernel's own limit (`net.core.wmem_max`), unless an administrator has set a lower one.
const BUFFERS: u32 = 100_000;

impl Participants {
    /// `first` has joined already.
    pub(super) fn new(first: Participant, setup: Setup, graph: &Arc<Graph>) -> Result<Self> {
        let nodes = setup.node.is_some().then(|| listen(&first, graph)).transpose()?;
        let node = setup.node.clone().map(|node| Membership::open(&first, graph, node)).transpose()?;
        let first = Presence { participant: first, node };
        Ok(Self { setup, graph: graph.clone(), first, marked: Mutex::default(), _nodes: nodes })
    }

    /// That of all readers, and of writers of class NORMAL.
    pub(super) fn first(&self) -> &Presence {
        &self.first
    }

    /// That of the writers of a class. The first use of a class opens it.
    pub(super) fn of(&self, class: Class) -> Result<Presence> {
        if class == Class::Normal {
            return Ok(self.first.clone());
        }
        let mut marked = lock(&self.marked);
        let at = Class::ALL.iter().position(|other| *other == class).and_then(|index| marked.get_mut(index));
        let Some(at) = at else { return Err(Error::Usage(format!("no class {class}"))) };
        if at.is_none() {
            *at = Some(self.open(class)?);
        }
        match at {
            Some(opened) => opened.marked(class, &self.setup.mark(class)),
            None => Err(Error::Engine(format!("class {class} has no participant"))),
        }
    }

    fn open(&self, class: Class) -> Result<Marked> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let send_buffer = LEAST_BUFFER + NEXT.fetch_add(1, Ordering::Relaxed) % BUFFERS;
        let place = Place { send_buffer: Some(send_buffer), ..self.setup.place.clone() };
        let beside = &self.first.participant;
        let participant = beside.open_beside(&place, self.setup.user_data.as_bytes()).map_err(failed)?;
        let open = |node| Membership::open(&participant, &self.graph, format!("{node}_{class}"));
        let node = self.setup.node.as_ref().map(open).transpose()?;
        Ok(Marked { presence: Presence { participant, node }, to_mark: Some(send_buffer) })
    }

    /// Tells others of the nodes what there was no room for before.
    pub(super) fn catch_up(&self) {
        self.all().iter().flatten().filter_map(|presence| presence.node.as_ref()).for_each(|node| node.catch_up());
    }

    /// What Cyclone has complained of, by participant: the first, and those of the classes.
    pub(super) fn complaints(&self) -> Vec<Complaints> {
        let of = |presence: &Option<Presence>| presence.as_ref().map(|presence| presence.participant.complaints());
        self.all().iter().map(|presence| of(presence).unwrap_or_default()).collect()
    }

    fn all(&self) -> Vec<Option<Presence>> {
        let marked = lock(&self.marked);
        let of_classes = marked.iter().map(|marked| marked.as_ref().map(|marked| marked.presence.clone()));
        [Some(self.first.clone())].into_iter().chain(of_classes).collect()
    }
}

impl Marked {
    /// Its presence, with marked sockets. On this host they wait in the band of the class, whatever their mark is.
    fn marked(&mut self, class: Class, mark: &Mark) -> Result<Presence> {
        if let Some(asked) = self.to_mark {
            let size = 2 * asked as usize;
            let marked = mark_by_send_buffer(size, mark, class.socket_priority())
                .map_err(|error| Error::Engine(format!("DDS: the mark of class {class}: {error}")))?;
            if marked == 0 {
                return Err(Error::Engine(format!(
                    "DDS: class {class} is not carried, because no socket of Cyclone has the send buffer of {asked} bytes by which it would be \
                     marked: allow that many (sysctl net.core.wmem_max), and no transport but UDP in Cyclone's configuration"
                )));
            }
            self.to_mark = None;
        }
        Ok(self.presence.clone())
    }
}
