//! Messages of peers on their links, and their effects.
//!
//! Each source has a budget: a token bucket for messages, and bounds for messages that are begun and not ended. [`Budgets`] are pure:
//! time is an argument.

use super::connections::Close;
use super::frame::{Hello, Kind, Message, VERSION};
use super::link::{Link, Stage};
use super::lock;
use super::worker::{MOST_ASKED, Worker};
use crate::control::limits::{MOST_ADDRESSES, MOST_BYTES_OF_NODE};
use crate::control::{Document, Event, NodeId, Origin, Peer, number_call};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Worker {
    /// Reads once from a link and takes all whole messages. The error is the reason to close the link.
    pub(super) fn receive(&mut self, token: u64, scratch: &mut [u8], now: Instant) -> Result<(), Close> {
        let Some(link) = self.links.get_mut(&token) else { return Ok(()) };
        let ended = link.receive(scratch).is_none();
        self.take_messages(token, now)?;
        self.check_unfinished(token)?;
        if ended { Err(Close::Ended(String::new())) } else { Ok(()) }
    }

    /// Takes the whole messages of a link, as far as there is room for them and its source has a budget. Otherwise
    /// the link pauses.
    pub(super) fn take_messages(&mut self, token: u64, now: Instant) -> Result<(), Close> {
        let mut taken = false;
        while let Some(link) = self.links.get_mut(&token) {
            if let Some((kind, size)) = link.reader.peek() {
                let source = self.source_of(token);
                let may =
                    if self.sink.has_room() { self.budgets.take(source, kind, size, now) } else { Err(NO_ROOM_PAUSE) };
                if let Err(wait) = may {
                    self.hold(token, now + wait);
                    break;
                }
            }
            let Some(link) = self.links.get_mut(&token) else { break };
            let next = link.reader.next().map_err(|e| Close::Refused(|c| &c.garbage, e.0))?;
            let Some(message) = next else { break };
            taken = true;
            let peer = link.peer;
            match (message, peer) {
                (Message::Hello(hello), None) => self.greeted(token, hello)?,
                (Message::Bye(reason), _) => return Err(Close::Ended(reason)),
                (message, Some(peer)) => self.take(token, peer, message)?,
                (_, None) => return Err(Close::Refused(|c| &c.garbage, "a message before the hello".to_owned())),
            }
        }
        if let Some(link) = self.links.get_mut(&token) {
            link.note_unfinished(taken, now);
        }
        Ok(())
    }

    /// The source in whose budget a link's messages are counted.
    pub(super) fn source_of(&self, token: u64) -> Source {
        match self.origins.get(&token) {
            Some(Origin::Tcp { from, .. }) => Source::Peer(Peer::at(*from)),
            _ => self.links.get(&token).and_then(Link::process).map_or(Source::Link(token), Source::Process),
        }
    }

    /// A source has no more than its share of unfinished messages, and all together no more than theirs: the link that goes
    /// beyond is closed, in the latter case the one that holds most.
    fn check_unfinished(&mut self, token: u64) -> Result<(), Close> {
        let held = |link: &Link| link.reader.unfinished();
        let Some(own) = self.links.get(&token).map(held).filter(|own| *own > 64 << 10) else { return Ok(()) };
        let source = self.source_of(token);
        let of_source = self.links.iter().filter(|(other, _)| self.source_of(**other) == source);
        let of_source = of_source.map(|(_, link)| held(link)).sum::<usize>();
        let too_much = |whose: &str, most: usize| {
            Close::Refused(|c| &c.garbage, format!("{} MiB of unfinished messages {whose}, the most is", most >> 20))
        };
        if of_source > UNFINISHED_OF_SOURCE {
            return Err(too_much("of one source", UNFINISHED_OF_SOURCE));
        }
        if self.links.values().map(held).sum::<usize>() > UNFINISHED {
            let most = self.links.iter().map(|(token, link)| (held(link), *token)).max();
            match most.filter(|(bytes, _)| *bytes > own) {
                Some((_, victim)) => self.close(victim, too_much("of all", UNFINISHED)),
                None => return Err(too_much("of all", UNFINISHED)),
            }
        }
        Ok(())
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
        if matches!(link.origin(), Origin::Host { .. }) {
            lock(&self.shared.here).insert(node);
        }
        self.join(node, token);
        lock(&self.shared.known).insert(node);
        self.flush(token);
        self.reached(node);
        Ok(())
    }

    /// Registers a link to a node. The node's statements count on one link only: the best known, and of several such
    /// the first. A peer that claims to be a node with a link is ignored, and a unix socket outranks TCP.
    fn join(&mut self, node: NodeId, token: u64) {
        let origin = |token: &u64| self.origins.get(token).copied().unwrap_or(Origin::Zenoh);
        let rank = |token: &u64| u8::from(!matches!(origin(token), Origin::Host { .. }));
        let own = rank(&token);
        let peer = self.peers.entry(node).or_default();
        let place = peer.links.iter().position(|other| rank(other) > own).unwrap_or(peer.links.len());
        peer.links.insert(place, token);
        if place == 0 {
            peer.told = None; // its document is on its way
        } else {
            self.shared.counters.second.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `true` if messages on this link count as the node's own statements.
    fn speaks_for(&self, token: u64, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.links.first() == Some(&token))
    }

    /// `true` if a call or an answer on this link can be the node's. If two nodes made several links to each other,
    /// each may consider another one the first. So it may come from the origin of the first one, and from the
    /// addresses that the node announces there.
    fn is_of(&self, token: u64, node: NodeId) -> bool {
        let Some(peer) = self.peers.get(&node) else { return false };
        let first = peer.links.first().and_then(|first| self.origins.get(first));
        match (first, self.origins.get(&token)) {
            (Some(Origin::Tcp { from: first, here, .. }), Some(Origin::Tcp { from, here: same, .. })) => {
                from == first || (here == same && peer.addresses.contains(from))
            }
            (first, origin) => first == origin,
        }
    }

    fn take(&mut self, token: u64, from: NodeId, message: Message) -> Result<(), Close> {
        let origin = self.origins.get(&token).copied().unwrap_or(Origin::Zenoh);
        let event = match message {
            Message::Document(document) => return self.take_document(token, from, document),
            Message::Change(_) if !self.speaks_for(token, from) => return Ok(()),
            Message::Change(change) => {
                let peer = self.peers.entry(from).or_default();
                if peer.told.is_some_and(|told| change.revision <= told) {
                    return Ok(());
                }
                // Beyond a gap the directory asks for the document; its contents stay as announced.
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
            Message::Call(id, request) => {
                let id = self.expect_answer(token, id);
                Event::Call { from, genuine: self.is_of(token, from), id, request }
            }
            Message::Answer(..) if !self.is_of(token, from) => return Ok(()),
            Message::Answer(id, answer) => Event::Answer { from, id, answer },
            Message::Hello(_) | Message::Bye(_) => {
                return Err(Close::Refused(|c| &c.garbage, "a second hello".to_owned()));
            }
        };
        self.sink.deliver(origin, event);
        Ok(())
    }

    /// Records the destination of a call's answer; the oldest open one gives way. Returns the call's number here.
    fn expect_answer(&self, token: u64, theirs: u64) -> u64 {
        let mut asked = lock(&self.shared.asked);
        if asked.len() >= MOST_ASKED {
            asked.pop_first();
        }
        let id = number_call();
        asked.insert(id, (token, theirs));
        id
    }

    fn take_document(&mut self, token: u64, from: NodeId, document: Box<Document>) -> Result<(), Close> {
        if document.node != from || document.realm != self.document.realm {
            return Err(Close::Refused(|c| &c.garbage, "a document of another node".to_owned()));
        }
        if document.weight() > MOST_BYTES_OF_NODE {
            let text = format!("a document of {} bytes where {MOST_BYTES_OF_NODE} are allowed", document.weight());
            return Err(Close::Refused(|c| &c.garbage, text));
        }
        if let Some(target) = self.links.get(&token).and_then(|link| link.target) {
            self.unsettled.remove(&target);
        }
        if !self.speaks_for(token, from) {
            return Ok(());
        }
        let origin = self.origins.get(&token).copied().unwrap_or(Origin::Zenoh);
        let peer = self.peers.entry(from).or_default();
        let asked = std::mem::take(&mut peer.asked);
        if asked || peer.told.is_none_or(|told| document.revision > told) {
            peer.told = Some(document.revision);
            let addresses = document.addresses.iter().map(|address| address.ip().to_canonical());
            peer.addresses = addresses.take(MOST_ADDRESSES).collect();
            // The statement of another link gives way: after that of the better known one, before that of a
            // replacement.
            let before = peer.told_by.replace(origin);
            let renewed = std::mem::take(&mut peer.renewed);
            if let (Some(before), true) = (before, renewed) {
                self.sink.deliver(before, Event::Gone(from));
            }
            self.sink.deliver(origin, Event::Document(document));
            // A node is known by ways: another connection of the same one replaces the word of the one before.
            let another = |before: &Origin| std::mem::discriminant(before) != std::mem::discriminant(&origin);
            if let (Some(before), false) = (before.filter(another), renewed) {
                self.sink.deliver(before, Event::Gone(from));
            }
        }
        Ok(())
    }
}

/// The source whose messages are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// All links to one host.
    Peer(Peer),
    /// All links of a process of this host, identified by the kernel; else it would have as many budgets as links.
    Process(u32),
    /// One link over a unix socket whose process the kernel does not report.
    Link(u64),
}

/// The used budgets of sources.
#[derive(Default)]
pub(super) struct Budgets(HashMap<Source, Budget>);

struct Budget {
    tokens: f64,
    /// Bytes of messages that are no answers.
    unasked: f64,
    at: Instant,
}

impl Budgets {
    /// Takes a message of this size, or returns the time that its source has to wait. A source may owe one message.
    pub(super) fn take(&mut self, source: Source, kind: u8, bytes: usize, now: Instant) -> Result<(), Duration> {
        let budget = self.0.entry(source).or_insert(Budget { tokens: BURST, unasked: UNASKED_BURST, at: now });
        let since = now.saturating_duration_since(budget.at).as_secs_f64();
        budget.tokens = (budget.tokens + since * RATE).min(BURST);
        budget.unasked = (budget.unasked + since * UNASKED_RATE).min(UNASKED_BURST);
        budget.at = now;
        let owed = if kind == IS_ANSWER { 0.0 } else { -budget.unasked / UNASKED_RATE };
        let lacks = owed.max((1.0 - budget.tokens) / RATE);
        if lacks > 0.0 {
            return Err(Duration::from_secs_f64(lacks));
        }
        let times = if kind == IS_CALL { CALL } else { 1.0 };
        budget.tokens -= times * (1.0 + bytes as f64 / BYTES_PER_TOKEN);
        if kind != IS_ANSWER {
            budget.unasked -= times * bytes as f64;
        }
        Ok(())
    }

    /// Notes that a source has no link any more. Its debt is kept until it is paid.
    pub(super) fn forget(&mut self, source: Source, now: Instant) {
        let paid = |budget: &Budget| {
            let since = now.saturating_duration_since(budget.at).as_secs_f64();
            budget.tokens + since * RATE >= BURST && budget.unasked + since * UNASKED_RATE >= UNASKED_BURST
        };
        if matches!(source, Source::Link(_)) {
            self.0.remove(&source);
        }
        self.0.retain(|_, budget| !paid(budget));
    }
}

/// The deadline of a message with this start and number of received bytes.
pub(super) fn due(begun: Instant, bytes: usize) -> Instant {
    begun + IDLE + Duration::from_millis(bytes as u64 * 1000 / SLOWEST)
}

/// A message is looked at again when the mailbox may have room.
pub(super) const NO_ROOM_PAUSE: Duration = Duration::from_millis(5);
/// Tokens that come per second, and that are there at most. A message costs one, and one for each 4 KiB; a call four times
/// as much: it is work for the control thread, a change less. So one source gets through 250 small calls per second, or
/// 4 MiB of answers.
const RATE: f64 = 1000.0;
const BURST: f64 = 4096.0;
const BYTES_PER_TOKEN: f64 = 4096.0;
const CALL: f64 = 4.0;
/// Bytes per second, and at once, of messages that are no answers. A thousand nodes of one host that start
/// together send less. The limit bounds the processor time that is taken from samples.
const UNASKED_RATE: f64 = (1 << 20) as f64;
const UNASKED_BURST: f64 = (2 << 20) as f64;
/// The kind of calls, as in frames.
const IS_CALL: u8 = Kind::Call as u8;
const IS_ANSWER: u8 = Kind::Answer as u8;
/// Most bytes of unfinished messages of one source: two of the largest.
const UNFINISHED_OF_SOURCE: usize = 8 << 20;
/// Most bytes of unfinished messages of all links.
const UNFINISHED: usize = 16 << 20;
/// Most links of one address that is not on this host; and of one that is, where each node has the same one.
pub(super) const LINKS_OF_ADDRESS: usize = 64;
pub(super) const LINKS_OF_LOOPBACK: usize = 1024;
/// The most of these without a hello: the oldest gives way.
pub(super) const GREETING_OF_SOURCE: usize = 16;
/// A message that was begun is complete within this time …
const IDLE: Duration = Duration::from_secs(5);
/// … plus the time of its bytes at this rate: half a megabit per second.
const SLOWEST: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: u8 = Kind::Document as u8;

    #[test]
    fn a_flood_is_slowed_to_its_rate_and_a_burst_passes() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let source = Source::Peer(Peer::at([10, 0, 0, 1].into()));
        let mut now = start;
        let mut taken = 0;
        for _ in 0..100_000 {
            match budgets.take(source, IS_CALL, 0, now) {
                Ok(()) => taken += 1,
                Err(wait) => now += wait.max(Duration::from_millis(1)),
            }
        }
        let most = 1025 + ((now - start).as_secs_f64() * 250.0) as usize;
        assert!((1024..=most + 10).contains(&taken), "{taken} calls within {:?}", now - start);
        assert!(budgets.take(Source::Process(1), IS_CALL, 0, now).is_ok(), "others are not slowed");
        assert!(budgets.take(source, DOCUMENT, 3_500_000, now + Duration::from_secs(5)).is_ok());
    }

    #[test]
    fn large_documents_are_slowed_and_answers_are_not() {
        let (mut budgets, start) = (Budgets::default(), Instant::now());
        let source = Source::Peer(Peer::at([10, 0, 0, 1].into()));
        let taken = |budgets: &mut Budgets, millis: u64| {
            budgets.take(source, DOCUMENT, 1 << 20, start + Duration::from_millis(millis)).is_ok()
        };
        let documents = (0..10_000).filter(|millis| taken(&mut budgets, *millis)).count();
        assert_eq!(documents, 12, "2 at once and one that is owed, and then one per second");
        assert!(budgets.take(source, IS_ANSWER, 1 << 20, start + Duration::from_secs(10)).is_ok());
        let small = |n| budgets.take(Source::Process(1), DOCUMENT, 2000, start + Duration::from_micros(n)).is_ok();
        assert!((0..1000).all(small), "a thousand nodes of one host");
    }

    #[test]
    fn a_message_that_drips_ends_in_time() {
        let now = Instant::now();
        assert_eq!(due(now, 0) - now, IDLE);
        assert_eq!((due(now, 4 << 20) - now).as_secs(), 69);
    }
}
