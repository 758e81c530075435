//! The control thread carries out the actions of [`Matching`](super::matching::Matching): it begins handshakes, ends channels and pushes
//! events.

use super::control::Control;
use super::dial::Dial;
use super::entries::Entry;
use super::matching::{Action, Candidate, Known, Matching, OwnPorts, Pair, Route};
use crate::carrier;
use crate::channel::PortRef;
use crate::channel::proxy::Proxy;
use crate::control::{PortId, PortInfo};
use crate::port::{AnyInlet, AnyOutlet};
use linux::poll::Readiness;
use std::sync::Arc;
use std::time::Instant;

/// Ports of this node, held while they are compared with others.
pub(super) struct Ports {
    outlets: Vec<Arc<dyn AnyOutlet>>,
    inlets: Vec<(PortId, Arc<dyn AnyInlet>)>,
}

impl Ports {
    pub(super) fn as_own(&self) -> OwnPorts<'_> {
        OwnPorts {
            publishers: self.outlets.iter().map(|outlet| outlet.info()).collect(),
            subscribers: self.inlets.iter().map(|(port, inlet)| (*port, inlet.info())).collect(),
        }
    }
}

impl Control {
    /// Passes the matching state machine, with what this node knows, to `ask`.
    pub(super) fn ask_matching<R>(&mut self, ask: impl FnOnce(&mut Matching, Known) -> R) -> R {
        let here = self.state.document();
        let directory = self.state.directory();
        ask(&mut self.matching, Known { here: &here, directory: &directory })
    }

    /// Carries out these actions.
    pub(super) fn act(&mut self, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Begin(pair) => self.begin_wanted(pair),
                Action::Try(pair, way) => self.try_way(pair, &way),
                Action::End { pair, why, cut: true } => self.cut_wanted(pair, why),
                Action::End { pair, why, cut: false } => self.drop_wanted(pair, why),
                Action::Tell(event) => self.state.events.push(event),
            }
        }
    }

    /// This node's ports.
    pub(super) fn own_ports(&self) -> Ports {
        Ports { outlets: self.state.outlets(), inlets: self.state.inlets() }
    }

    /// Compares two ports, and begins a channel between them if they match.
    pub(super) fn consider(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef, asked: &PortInfo) {
        let now = Instant::now();
        let actions = self
            .ask_matching(|matching, known| matching.consider((publisher, offered), (subscriber, asked), known, now));
        self.act(actions);
    }

    /// The ways to a publisher, best first.
    pub(super) fn ways(&mut self, pair: Pair, offered: &PortInfo, asked: &PortInfo, proxy: &Proxy) -> Vec<Candidate> {
        self.ask_matching(|matching, known| matching.ways(pair, (offered, asked), proxy, known))
    }

    fn begin_wanted(&mut self, pair: Pair) {
        let Some(wanted) = self.matching.get(&pair) else { return };
        let offered = wanted.publisher.clone();
        if !self.may_keep(pair.0, &offered, pair.1) {
            self.matching.forget(pair);
            return;
        }
        let action = self.matching.try_next(pair);
        self.act(action);
    }

    fn try_way(&mut self, pair: Pair, way: &Candidate) {
        let now = Instant::now();
        let Some(wanted) = self.matching.get(&pair) else { return };
        if way.route == Route::Process {
            return self.try_local(pair);
        }
        // A ring's reader needs a thread of its own. When these threads are used up, a socket is chosen: sockets share one thread.
        let others = wanted.candidates.iter().any(|c| c.carrier != carrier::Name::Shm);
        if matches!(way.route, Route::Tcp(_)) && !self.may_dial(pair) {
            return self.matching.had_no_room(pair, now);
        }
        if way.carrier == carrier::Name::Shm && others && !self.state.readers.has_own_thread_left() {
            return self.matching.pass_over(pair, now);
        }
        match Dial::start(&self.state, pair, wanted, way, false) {
            Ok(dial) => {
                if self.watch(Entry::Dial(Box::new(dial)), Readiness::OUT).is_none() {
                    self.try_failed(pair, "the connection cannot be watched: out of descriptors?");
                }
            }
            Err(why) => self.try_failed(pair, &why),
        }
    }

    pub(super) fn try_failed(&mut self, pair: Pair, why: &str) {
        if self.begin_upcoming(pair) {
            return;
        }
        let now = Instant::now();
        let action = self.ask_matching(|matching, known| matching.failed(pair, why, known, now));
        self.act(action);
    }
}
