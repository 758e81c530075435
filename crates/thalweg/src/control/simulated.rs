//! An in-process hub, for tests: nodes that join it see each other at once. Can lose changes, by a seeded choice.

use super::{Change, Discovery, Document, Event, NodeId, Origin, Sink};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A network of simulated nodes. Cloning gives another handle of the same hub.
#[derive(Clone, Default)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    members: BTreeMap<NodeId, Member>,
    loss: Option<Loss>,
}

struct Member {
    document: Arc<Document>,
    sink: Sink,
}

/// Loses one in `one_in` changes, chosen by an xorshift generator.
struct Loss {
    state: u64,
    one_in: u64,
}

impl Loss {
    fn strikes(&mut self) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.is_multiple_of(self.one_in)
    }
}

impl Hub {
    /// A hub that loses nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A hub that loses one in `one_in` deliveries of a change (1: all of them); the same seed loses the same ones.
    pub fn with_loss(seed: u64, one_in: u64) -> Self {
        let hub = Self::default();
        hub.state().loss = Some(Loss { state: seed | 1, one_in: one_in.max(1) });
        hub
    }

    /// Joins. The documents of all present nodes of the realm are delivered before this returns.
    pub fn join(&self, document: Arc<Document>, sink: Sink) -> Simulated {
        let node = document.node;
        let mut state = self.state();
        for member in state.others(node, &document.realm) {
            sink.deliver(Origin::this_user(), Event::Document(Box::new((*member.document).clone())));
            member.sink.deliver(Origin::this_user(), Event::Document(Box::new((*document).clone())));
        }
        state.members.insert(node, Member { document, sink });
        drop(state);
        Simulated { hub: self.clone(), node }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn others(&self, node: NodeId, realm: &str) -> impl Iterator<Item = &Member> {
        self.members.values().filter(move |m| m.document.node != node && m.document.realm == realm)
    }

    /// Two members of one realm: the one that asks and the one that is asked.
    fn pair(&self, from: NodeId, to: NodeId) -> Option<(&Member, &Member)> {
        let (from, to) = (self.members.get(&from)?, self.members.get(&to)?);
        (from.document.realm == to.document.realm).then_some((from, to))
    }
}

/// A node's connection to a [`Hub`]; dropping it leaves.
pub struct Simulated {
    hub: Hub,
    node: NodeId,
}

impl Simulated {
    fn send(&self, to: NodeId, event: Event) -> bool {
        let state = self.hub.state();
        state.pair(self.node, to).map(|(_, member)| member.sink.deliver(Origin::this_user(), event)).is_some()
    }
}

impl Discovery for Simulated {
    fn announce(&mut self, document: &Arc<Document>, change: &Change) {
        let mut state = self.hub.state();
        let mut loss = state.loss.take();
        for member in state.others(self.node, &document.realm) {
            if !loss.as_mut().is_some_and(Loss::strikes) {
                member.sink.deliver(Origin::this_user(), Event::Change(self.node, change.clone()));
            }
        }
        state.loss = loss;
        if let Some(own) = state.members.get_mut(&self.node) {
            own.document = document.clone();
        }
    }

    fn call(&mut self, to: NodeId, id: u64, request: &[u8]) -> bool {
        self.send(to, Event::Call { from: self.node, genuine: true, id, request: request.to_vec() })
    }

    fn answer(&mut self, to: NodeId, id: u64, answer: &[u8]) -> bool {
        self.send(to, Event::Answer { from: self.node, id, answer: answer.to_vec() })
    }

    fn refresh(&mut self, node: NodeId) -> bool {
        let state = self.hub.state();
        let Some((own, asked)) = state.pair(self.node, node) else { return false };
        own.sink.deliver(Origin::this_user(), Event::Document(Box::new((*asked.document).clone())));
        true
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        let Some(own) = state.members.remove(&self.node) else { return };
        for member in state.others(self.node, &own.document.realm) {
            member.sink.deliver(Origin::this_user(), Event::Gone(self.node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::discovery::{self, Back, Stage};

    struct Simulation(Hub);

    impl Stage for Simulation {
        fn back(&mut self, document: &mut Document, sink: Sink) -> Back {
            Back::new(self.0.join(Arc::new(document.clone()), sink))
        }
    }

    #[test]
    fn conforms() {
        discovery::conforms(|| Simulation(Hub::new()));
    }

    #[test]
    fn conforms_when_changes_are_lost() {
        discovery::recovers_from_gaps(Simulation(Hub::with_loss(7, 3)));
    }

    #[test]
    fn a_hundred_nodes_know_a_thousand_ports() {
        discovery::hundred_nodes("simulated", &mut Simulation(Hub::new()));
    }

    #[test]
    fn realms_do_not_see_each_other() {
        let hub = Hub::new();
        let sink = || Sink::new(|event| panic!("{event:?}"));
        let mut first = hub.join(Arc::new(discovery::document(1)), sink());
        let stranger = Document { realm: "other".into(), ..discovery::document(2) };
        let _second = hub.join(Arc::new(stranger), sink());
        assert!(!first.call(NodeId(2), 1, b"?") && !first.refresh(NodeId(2)));
    }
}
