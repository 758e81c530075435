//! All states that three brokers can reach, model-checked breadth first: every order of events, with up to so many faults
//! (docs/decisions/0021-model-checking.md).
//!
//! | | |
//! |---|---|
//! | network | a message arrives at any later time, in any order, whole; it may be lost, or arrive once more. Equal messages on the way are one |
//! | crash | a broker dies before any of its effects, or between two events, and starts again from its disk |
//! | time | passes at any moment, for all brokers alike, by one of the protocol's own limits |
//! | user | asks for the sessions in their order, and stops the first name, each at any time |
//!
//! In every state: no pipe is sold beyond its room; what was told to be active is committed on all three disks; and if from now on nothing
//! more is lost and nobody dies, each session is soon in all domains or in none, and stays so ([`Protocol::settles`]).

mod search;
mod state;

use super::super::*;
use super::world::{NAMES, contract_of, session, wanted};
use search::Explored;
use state::State;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The present, in every state: all times are counted from it, so that states that differ in nothing but the clock are one.
const NOW: Duration = Duration::from_secs(1000);
/// Most effects of one event.
const MOST_EFFECTS: usize = 8;
/// Steps of a calm time, each as long as [`REPEAT`]; after the session is settled so many more.
const CALM: u32 = 240;
const STAYS: u32 = 90;

/// How often each may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Bounds {
    stops: u8,
    crashes: u8,
    losses: u8,
    copies: u8,
    pauses: u8,
}

/// A time that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Repeat,
    Step,
    Hold,
}

impl Pause {
    const ALL: [Self; 3] = [Self::Repeat, Self::Step, Self::Hold];

    fn time(self) -> Duration {
        match self {
            Self::Repeat => REPEAT,
            Self::Step => STEP,
            Self::Hold => HOLD,
        }
    }
}

/// What happens to a broker, or to all of them. Messages are named by their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Ask,
    Stop,
    Arrives(usize),
    /// It arrives, and another time later.
    ArrivesTwice(usize),
    Passes(Pause),
}

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Event(Event),
    /// This broker dies before its effect of this number.
    Fatal(Event, usize, usize),
    Lost(usize),
    Dies(usize),
}

/// The three brokers, with the sessions that are asked for.
struct Protocol {
    contracts: [Contract; 3],
    wanted: Vec<Wanted>,
    bounds: Bounds,
    /// States (hashes) that are known to settle.
    settling: Mutex<HashSet<u64>>,
}

impl Protocol {
    fn new(sessions: &[String], bounds: Bounds) -> Self {
        let contracts = NAMES.map(|name| Contract::read(&contract_of(name)).unwrap());
        let wanted = sessions.iter().map(|text| wanted(text)).collect();
        Self { contracts, wanted, bounds, settling: Mutex::default() }
    }

    /// What an event does; `false`: it cannot happen, or a broker that should die in it does not get so far.
    fn happens(&self, state: &mut State, event: Event, fatal: Option<(usize, usize)>) -> bool {
        let dies = |who: usize| fatal.filter(|(victim, _)| *victim == who).map(|(_, at)| at);
        match event {
            Event::Ask => {
                let wanted = self.wanted[state.asked].clone();
                let asked = state.broker(0).request(NOW, wanted);
                state.asked += 1;
                asked.is_ok_and(|(_, effects)| self.perform(state, 0, effects, dies(0)))
            }
            Event::Stop => {
                let name = self.wanted[0].name.as_str();
                if state.brokers[0].find(name).is_none() {
                    return false;
                }
                state.bounds.stops -= 1;
                state.told.retain(|key, _| key.session != name);
                let keys: Vec<Key> = state.brokers[0].versions(NAMES[0], name).map(|one| one.key.clone()).collect();
                let effects = state.broker(0).stop(NOW, name);
                let done = self.perform(state, 0, effects, dies(0));
                // One that died in it has told its user nothing.
                state.stopped.extend(keys.into_iter().filter(|_| fatal.is_none()));
                done
            }
            Event::Arrives(place) | Event::ArrivesTwice(place) => {
                let packet = state.net[place].clone();
                match event {
                    Event::Arrives(_) => drop(state.net.remove(place)),
                    _ => state.bounds.copies -= 1,
                }
                let effects = state.broker(packet.to).receive(NOW, NAMES[packet.from], (*packet.message).clone());
                self.perform(state, packet.to, effects, dies(packet.to))
            }
            Event::Passes(pause) => {
                state.bounds.pauses -= 1;
                state.pass(pause.time());
                (0..NAMES.len()).all(|who| {
                    let effects = state.broker(who).tick(NOW);
                    self.perform(state, who, effects, dies(who))
                })
            }
        }
    }

    /// Does what a broker wants; `false` if it should die before an effect that it does not have.
    fn perform(&self, state: &mut State, who: usize, effects: Vec<Effect>, dies: Option<usize>) -> bool {
        let mut left: VecDeque<Effect> = effects.into();
        let mut count = 0;
        while let Some(effect) = left.pop_front() {
            if dies == Some(count) {
                self.crash(state, who);
                return true;
            }
            count += 1;
            match effect {
                Effect::Keep(_) => left.extend(state.write(who)),
                Effect::Send(to, message) => state.send(who, &to, message),
                Effect::Told(key, said) => drop(state.told.insert(key, said.is_ok())),
            }
        }
        assert!(count <= MOST_EFFECTS, "{} has {count} effects", NAMES[who]);
        dies.is_none()
    }

    fn crash(&self, state: &mut State, who: usize) {
        state.bounds.crashes = state.bounds.crashes.saturating_sub(1);
        state.starts[who] += 1;
        let kept = state.disks[who].values().cloned().collect();
        let started = Domains::start(NAMES[who], &self.contracts[who], kept, state.starts[who], NOW);
        let (domains, effects) = started.unwrap();
        state.brokers[who] = Arc::new(domains);
        self.perform(state, who, effects, None);
    }

    /// `true` if without further faults each session is soon in all domains or in none, and stays so.
    fn settles(&self, state: &State) -> bool {
        let (mut state, mut path, mut settled) = (state.clone(), Vec::new(), 0);
        for _ in 0..CALM {
            self.deliver(&mut state);
            let is_settled = state.is_settled();
            if settled > 0 && !is_settled {
                return false;
            }
            let hash = state.hash_of_calm();
            if settled == STAYS || self.settling.lock().unwrap().contains(&hash) {
                self.settling.lock().unwrap().extend(path);
                return true;
            }
            path.push(hash);
            settled += u32::from(is_settled);
            state.pass(REPEAT);
            for who in 0..NAMES.len() {
                let effects = state.broker(who).tick(NOW);
                self.perform(&mut state, who, effects, None);
            }
        }
        false
    }

    /// Brings all that is on the way, and what is said to it.
    fn deliver(&self, state: &mut State) {
        while !state.net.is_empty() {
            assert!(self.happens(state, Event::Arrives(0), None));
        }
    }
}

/// For [`search`].
impl Protocol {
    fn first(&self) -> State {
        let broker = |who: usize| Domains::start(NAMES[who], &self.contracts[who], Vec::new(), 1, NOW).unwrap().0;
        State::new([0, 1, 2].map(broker), self.bounds)
    }

    /// The promise that a state breaks.
    fn broken(&self, state: &State) -> Option<&'static str> {
        let promises = [
            ("a pipe is sold beyond its room", state.is_within_room()),
            ("what was told to be active is not committed by all", state.keeps_its_word()),
            ("in a calm time it does not settle", self.settles(state)),
        ];
        promises.into_iter().find(|(_, kept)| !kept).map(|(broken, _)| broken)
    }

    /// What may happen next, possible or not.
    fn actions(&self, state: &State) -> Vec<Action> {
        let Bounds { stops, crashes, losses, copies, pauses } = state.bounds;
        let (mut events, mut actions) = (Vec::new(), Vec::new());
        events.extend((state.asked < self.wanted.len()).then_some(Event::Ask));
        events.extend((stops > 0 && state.asked > 0).then_some(Event::Stop));
        events.extend((0..state.net.len()).map(Event::Arrives));
        events.extend((0..state.net.len()).filter(|_| copies > 0).map(Event::ArrivesTwice));
        events.extend(Pause::ALL.into_iter().filter(|_| pauses > 0).map(Event::Passes));
        for event in events {
            actions.push(Action::Event(event));
            let concerned = match event {
                Event::Ask | Event::Stop => 0..1,
                Event::Arrives(place) | Event::ArrivesTwice(place) => state.net[place].to..state.net[place].to + 1,
                Event::Passes(_) => 0..NAMES.len(),
            };
            for who in concerned.filter(|_| crashes > 0) {
                actions.extend((0..MOST_EFFECTS).map(|at| Action::Fatal(event, who, at)));
            }
        }
        actions.extend((0..state.net.len()).filter(|_| losses > 0).map(Action::Lost));
        actions.extend((0..NAMES.len()).filter(|_| crashes > 0).map(Action::Dies));
        actions
    }

    /// The state after an action; `None`: it is not possible.
    fn next(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        let possible = match action {
            Action::Event(event) => self.happens(&mut state, event, None),
            Action::Fatal(event, who, at) => self.happens(&mut state, event, Some((who, at))),
            Action::Lost(place) => {
                state.net.remove(place);
                state.bounds.losses -= 1;
                true
            }
            Action::Dies(who) => {
                self.crash(&mut state, who);
                true
            }
        };
        possible.then_some(state)
    }
}

/// Explores all states, and tells how many.
fn check(what: &str, sessions: &[String], bounds: Bounds) {
    let began = Instant::now();
    let Explored { states, steps, active, refused } = search::explore(&Protocol::new(sessions, bounds));
    println!("{what}: {states} states, up to {steps} steps from the first, {:.1?}: {bounds:?}", began.elapsed());
    assert!(active > 0 && refused > 0, "{active} with an active session, {refused} with a refused one");
}

/// Explores more with `THALWEG_FAULTS` (docs/sessions.md), and less in a build that is not optimised.
fn bounds(quick: Bounds, gate: Bounds, whole: Bounds) -> Bounds {
    match std::env::var_os("THALWEG_FAULTS") {
        Some(_) => whole,
        None if cfg!(debug_assertions) => quick,
        None => gate,
    }
}

const NONE: Bounds = Bounds { stops: 0, crashes: 0, losses: 0, copies: 0, pauses: 0 };

#[test]
fn one_session_is_in_all_domains_or_in_none_in_every_state() {
    let quick = Bounds { crashes: 1, losses: 1, stops: 1, ..NONE };
    let gate = Bounds { copies: 1, ..quick };
    let whole = Bounds { crashes: 2, ..gate };
    check("one session", &[session("teleop", 1000, "100 ms")], bounds(quick, gate, whole));
}

/// The same where time passes: steps are repeated and given up, and holds end.
#[test]
fn one_session_is_in_all_domains_or_in_none_whenever_time_passes() {
    let quick = Bounds { losses: 1, pauses: 1, ..NONE };
    let gate = Bounds { crashes: 1, losses: 1, pauses: 1, ..NONE };
    let whole = Bounds { stops: 1, ..gate };
    check("one session, and time", &[session("teleop", 1000, "100 ms")], bounds(quick, gate, whole));
}

#[test]
fn a_changed_session_is_one_version_in_every_state() {
    let quick = Bounds { crashes: 1, ..NONE };
    let gate = Bounds { losses: 1, copies: 1, ..quick };
    let whole = Bounds { crashes: 2, ..gate };
    let both = [session("teleop", 1000, "100 ms"), session("teleop", 900, "100 ms")];
    check("a session and its change", &both, bounds(quick, gate, whole));
}

#[test]
fn two_sessions_that_compete_for_a_pipe_are_never_both_sold() {
    let quick = Bounds { crashes: 1, ..NONE };
    let gate = Bounds { losses: 1, ..quick };
    let whole = Bounds { copies: 1, ..gate };
    // 160 kbit/s each, of 200.
    let both = ["one", "two"].map(|name| session(name, 1000, "100 ms").replace("10 Hz", "20 Hz"));
    check("two sessions of which one fits", &both, bounds(quick, gate, whole));
}
