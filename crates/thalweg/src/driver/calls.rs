//! Calls to other nodes: their numbers, the node whose answer counts, their deadlines, and the [`Asker`] that waits.
//!
//! [`Calls`] are pure: [`Control`] gives the time, sends the request, and passes the answer to the [`Asker`].

use super::control::Control;
use super::permit::Caller;
use crate::admin::{self, Reply};
use crate::bottle::{Bottle, Value};
use crate::control::NodeId;
use std::collections::HashMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The asker that waits for another node's answer.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A thread of this node.
    Here(mpsc::Sender<Vec<u8>>),
    /// The sender of a command that this node passed on.
    Command(Box<Asker>, String),
    /// No asker: the node calls on its own behalf, and drops the answer.
    Nobody,
    /// A node, with the number of its call.
    There(NodeId, u64),
    /// This node: a channel between two ports, one of them its own, is to go from multicast to unicast.
    Rehoming((String, String)),
}

impl Asker {
    /// The answer in the form that the asker expects: a command that was passed on is answered as a command.
    fn translate(self, answer: Vec<u8>) -> (Asker, Vec<u8>) {
        let Asker::Command(asker, done) = self else { return (self, answer) };
        let (ok, values) = match admin::unpack(&answer) {
            Ok(_) => (true, vec![Value::Int(0), Value::Text(done)]),
            Err(why) => (false, vec!["fail".into(), Value::Text(why.to_string())]),
        };
        asker.translate(admin::pack(&Reply::Text { ok, text: Bottle(values).to_string() }))
    }
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Call {
    to: NodeId,
    until: Instant,
    asker: Asker,
}

/// The calls that a node made and that were not answered yet.
#[derive(Debug)]
pub(super) struct Calls {
    last: u64,
    waiting: HashMap<u64, Call>,
}

impl Calls {
    /// Numbers calls from this one on. The first should be random: a number that others can guess lets them forge an answer.
    pub(super) fn new(first: u64) -> Self {
        Self { last: first, waiting: HashMap::new() }
    }

    /// The number of another call.
    pub(super) fn number(&mut self) -> u64 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// A call was sent, and waits for its answer.
    pub(super) fn sent(&mut self, id: u64, to: NodeId, asker: Asker, now: Instant) {
        self.waiting.insert(id, Call { to, until: now + LONGEST_CALL, asker });
    }

    /// The asker of this call, if the answer comes from the node that was asked. Other answers do not count.
    pub(super) fn answered(&mut self, from: NodeId, id: u64) -> Option<Asker> {
        self.waiting.get(&id).filter(|call| call.to == from)?;
        self.waiting.remove(&id).map(|call| call.asker)
    }

    /// A call could not be sent. Returns its asker.
    pub(super) fn unreachable(&mut self, id: u64) -> Option<Asker> {
        self.waiting.remove(&id).map(|call| call.asker)
    }

    /// A newer call asks for the same re-homing: answers to older ones do not count any more.
    pub(super) fn forget_rehoming(&mut self, ports: &(String, String)) {
        self.waiting.retain(|_, call| !matches!(&call.asker, Asker::Rehoming(of) if of == ports));
    }

    /// The deadline of the next call.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|call| call.until).min()
    }

    /// Forgets the calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        self.waiting.retain(|_, call| call.until > now);
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    pub(super) fn call(&mut self, to: NodeId, request: Vec<u8>, answer: mpsc::Sender<Vec<u8>>) {
        if to == self.state.id {
            return self.heard_call(request, Caller::HERE, Asker::Here(answer));
        }
        self.ask(to, &request, Asker::Here(answer));
    }

    pub(super) fn ask(&mut self, to: NodeId, request: &[u8], asker: Asker) {
        let id = self.calls.number();
        let addresses = self.direct_addresses(to, request, &asker);
        if self.discoveries.call_directly(to, &addresses, id, request) || self.discoveries.call(to, id, request) {
            self.calls.sent(id, to, asker, Instant::now());
        } else {
            self.give(asker, admin::pack(&admin::Reply::No(format!("node {to} cannot be reached"))));
        }
    }

    /// Another node answers a call.
    pub(super) fn answered(&mut self, from: NodeId, id: u64, answer: Vec<u8>) {
        if let Some(asker) = self.calls.answered(from, id) {
            self.give(asker, answer);
        }
    }

    /// A call that cannot be sent is answered with the reason.
    pub(super) fn unreachable(&mut self, id: u64, why: String) {
        if let Some(asker) = self.calls.unreachable(id) {
            self.give(asker, admin::pack(&admin::Reply::No(why)));
        }
    }

    /// Passes an answer to its asker.
    pub(super) fn give(&mut self, asker: Asker, answer: Vec<u8>) {
        let (asker, answer) = asker.translate(answer);
        match asker {
            Asker::Here(waiting) => drop(waiting.send(answer)),
            Asker::Nobody | Asker::Command(..) => {}
            Asker::Rehoming(ports) => self.rehomed(ports, &answer),
            Asker::There(from, id) => {
                self.discoveries.answer(from, id, &answer);
            }
        }
    }
}

/// Longest wait for an answer.
const LONGEST_CALL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::unpack;

    const ASKED: NodeId = NodeId(7);

    fn calls() -> (Calls, Instant) {
        (Calls::new(u64::MAX - 1), Instant::now())
    }

    fn there(asker: Option<Asker>) -> Option<u64> {
        asker.map(|asker| match asker {
            Asker::There(_, id) => id,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn numbers_follow_each_other_and_wrap() {
        let (mut calls, _) = calls();
        assert_eq!([calls.number(), calls.number(), calls.number()], [u64::MAX, 0, 1]);
    }

    #[test]
    fn an_answer_counts_once_and_only_from_the_node_that_was_asked() {
        let (mut calls, now) = calls();
        let id = calls.number();
        calls.sent(id, ASKED, Asker::There(NodeId(1), 5), now);
        assert_eq!(there(calls.answered(NodeId(8), id)), None);
        assert_eq!(there(calls.answered(ASKED, 0)), None);
        assert_eq!(there(calls.answered(ASKED, id)), Some(5));
        assert_eq!(there(calls.answered(ASKED, id)), None);
        assert_eq!(calls.next_deadline(), None);
    }

    #[test]
    fn a_call_that_cannot_be_sent_waits_for_nothing() {
        let (mut calls, now) = calls();
        calls.sent(3, ASKED, Asker::There(NodeId(1), 5), now);
        assert_eq!(there(calls.unreachable(3)), Some(5));
        assert_eq!(there(calls.answered(ASKED, 3)), None);
    }

    #[test]
    fn a_call_that_nobody_answers_is_forgotten_at_its_deadline() {
        let (mut calls, now) = calls();
        let later = now + Duration::from_secs(1);
        calls.sent(1, ASKED, Asker::Nobody, now);
        calls.sent(2, ASKED, Asker::There(NodeId(1), 5), later);
        assert_eq!(calls.next_deadline(), Some(now + LONGEST_CALL));
        calls.expire(now + LONGEST_CALL);
        assert!(calls.answered(ASKED, 1).is_none());
        assert_eq!(calls.next_deadline(), Some(later + LONGEST_CALL));
        assert_eq!(there(calls.answered(ASKED, 2)), Some(5));
    }

    #[test]
    fn the_later_of_two_calls_to_rehome_a_channel_counts() {
        let (mut calls, now) = calls();
        let (one, other) = (("/out".to_owned(), "/a".to_owned()), ("/out".to_owned(), "/b".to_owned()));
        calls.sent(1, ASKED, Asker::Rehoming(one.clone()), now);
        calls.sent(2, ASKED, Asker::Rehoming(other), now);
        calls.forget_rehoming(&one);
        calls.sent(3, ASKED, Asker::Rehoming(one), now);
        let counts = [1, 2, 3].map(|id| calls.answered(ASKED, id).is_some());
        assert_eq!(counts, [false, true, true]);
    }

    #[test]
    fn a_command_that_was_passed_on_is_answered_as_a_command() {
        let passed = || Asker::Command(Box::new(Asker::There(NodeId(1), 5)), "Added.".into());
        for (answer, said) in [(Reply::Done, "Added."), (Reply::No("no such port".into()), "fail")] {
            let (asker, answer) = passed().translate(admin::pack(&answer));
            assert_eq!(there(Some(asker)), Some(5));
            let Ok(Reply::Text { text, .. }) = unpack(&answer) else { panic!("{answer:?}") };
            assert!(text.contains(said), "{text}");
        }
    }
}
