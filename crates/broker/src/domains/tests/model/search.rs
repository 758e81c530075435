//! A breadth-first search of all states, on both processors.

use super::state::State;
use super::{Action, Protocol};
use std::collections::HashMap;

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Explored {
    pub(super) states: usize,
    /// The longest of the shortest ways to a state.
    pub(super) steps: usize,
    /// States in which a user was told that a session is active, and that it is refused.
    pub(super) active: usize,
    pub(super) refused: usize,
}

/// Each state that was found (its hash), with the one before it and the action that led to it.
type Ways = HashMap<u64, (u64, Option<Action>)>;

/// A state with its hash, the hash of the one before it, and the action between.
type Next = (State, u64, u64, Action);

/// Looks at all states, those that are nearest to the first one first.
///
/// # Panics
/// A state breaks a promise; the way to it is printed.
pub(super) fn explore(protocol: &Protocol) -> Explored {
    let first = protocol.first();
    let mut ways = Ways::from([(first.hash(), (0, None))]);
    let (mut level, mut explored) = (vec![first], Explored::default());
    while !level.is_empty() {
        explored.states += level.len();
        for state in &level {
            explored.active += usize::from(state.told.values().any(|active| *active));
            explored.refused += usize::from(state.told.values().any(|active| !active));
        }
        let next = beside(protocol, &level, &ways);
        level = Vec::new();
        for (state, hash, before, action) in next {
            ways.entry(hash).or_insert_with(|| {
                level.push(state);
                (before, Some(action))
            });
        }
        explored.steps += usize::from(!level.is_empty());
    }
    explored
}

/// The states that are one step from these, and new; each of these is checked.
fn beside(protocol: &Protocol, level: &[State], ways: &Ways) -> Vec<Next> {
    let halves = level.split_at(level.len() / 2);
    let of = |half: &[State]| half.iter().flat_map(|state| after(protocol, state, ways)).collect::<Vec<Next>>();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| of(halves.0));
        let mut all = of(halves.1);
        all.extend(other.join().unwrap());
        all
    })
}

fn after(protocol: &Protocol, state: &State, ways: &Ways) -> Vec<Next> {
    let before = state.hash();
    if let Some(broken) = protocol.broken(state) {
        panic!("{broken}:\n{}\n{state:?}", way(ways, before));
    }
    let next = |action: Action| {
        let next = protocol.next(state, action)?;
        let hash = next.hash();
        (!ways.contains_key(&hash)).then_some((next, hash, before, action))
    };
    protocol.actions(state).into_iter().filter_map(next).collect()
}

/// The actions from the first state to this one, one a line.
fn way(ways: &Ways, mut hash: u64) -> String {
    let mut lines = Vec::new();
    while let Some((before, Some(action))) = ways.get(&hash) {
        lines.push(format!("{action:?}"));
        hash = *before;
    }
    lines.reverse();
    lines.join("\n")
}
