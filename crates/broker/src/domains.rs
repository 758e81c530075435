//! Sessions over several domains, as the broker of one domain takes part in them. Pure: times, messages and failures of the disk come as
//! arguments; what is to be sent, kept and told goes out as [`Effect`]s, in their order.
//!
//! The broker whose user asks is the first. Each broker does its own part of a step, asks the neighbours behind it for theirs, and answers when all have.
//!
//! ```text
//! quoting ─▶ holding ─▶ starting ─▶ committed ─▶ stopping      at the first
//! quoting ─▶ holding ─▶ held ─────▶ committed ─▶ stopping      at the others
//! ```
//!
//! | rule | reason |
//! |---|---|
//! | a hold is in memory alone, and ends after [`HOLD`] | a broker that dies holds nothing |
//! | `starting` and `committed` are kept before the next domain hears of them | whoever has committed is known to the one before, and is stopped by it |
//! | one that starts again stops what it was `starting` | nobody was told that it is active |
//! | a stop is kept, and repeated until it is answered | a neighbour that is away hears of it later |
//! | every [`PRESENT_EVERY`] each neighbour is told which sessions go through it | a lost disk is noticed at both ends |
//!
//! | module | contents |
//! |---|---|
//! | `crossing` | a session over several domains, as one of them has it |
//! | `disk` | what has to be on disk, what is there, and what it did not take |
//! | `legs` | one step of a session, here and at the domains behind |
//! | `choice` | the class of each flow |
//! | `borders` | the flows that may come in where all others are kept out |
//! | `permits` | what rules permit, and what counts for them |
//! | `summaries` | what neighbours have lost, and neighbours that are silent |
//! | `excess` | what borders have dropped of sessions that send too much |
//! | `thinning` | sessions that get fewer samples, because a pipe is smaller for a while |
//! | `view` | what users and agents see |
//!
//! A new version of a session is a session of its own that shares the former one's room; that one is stopped when the new one is active.

mod borders;
mod choice;
mod crossing;
mod disk;
mod excess;
mod legs;
mod permits;
mod summaries;
mod thinning;
mod view;

use crate::ledger::{Demand, Ledger};
use agent::peer::{Flow, HOLD, Key, MOST_HOPS, Menu, Message, Refused, Said, Step, StepName};
pub use crossing::{Asker, Crossing, Leg, Phase};
use qos::contract::rule::Rule;
use qos::contract::{Contract, flow, pipe};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use thinning::{Hearing, Telling};

/// Time between two summaries to a neighbour.
pub const PRESENT_EVERY: Duration = Duration::from_secs(10);
/// Time after which a session stops of which a domain beside is silent.
pub const GRACE: Duration = Duration::from_secs(600);
/// Longest time of a step at the first domain; at each further one it is shorter by [`PER_HOP`].
const STEP: Duration = Duration::from_secs(3);
/// The time by which a domain gives up before the one that asked it.
const PER_HOP: Duration = Duration::from_millis(150);
/// Time after which an unanswered message is repeated.
const REPEAT: Duration = Duration::from_millis(500);
/// The longest such time, for stops.
const REPEAT_SLOWLY: Duration = Duration::from_secs(5);
/// Time between two attempts to write what the disk did not take.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Most letters of a reason that is told to neighbours.
const LONGEST_REASON: usize = 250;

/// A neighbour, with the name of the node that is in both contracts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its domain.
    pub domain: String,
    /// The node.
    pub via: String,
    /// The address of its broker.
    pub broker: String,
    /// The domains that are reached through it, its own among them.
    reach: Vec<String>,
    /// The device by which its packets come in, if those of no session are kept out there.
    border: Option<String>,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// [`Domains::changes`] have to be on disk before anything further is done. If they cannot be: [`Domains::unkept`].
    Keep(Key),
    /// A message to the broker of a neighbour.
    Send(String, Message),
    /// The answer for who asked: it is active (or fits), or refused.
    Told(Key, Result<(), Refused>),
}

/// A session that is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Who asks.
    pub asker: Asker,
    /// Its flows.
    pub flows: Vec<flow::Flow>,
}

/// All sessions over several domains that one domain has a part in.
#[derive(Clone, Debug)]
pub struct Domains {
    name: String,
    /// Why nothing new is admitted: its pipes are not installed on all hosts.
    unready: Option<String>,
    /// The nodes of the contract, with their addresses.
    nodes: BTreeMap<String, Option<IpAddr>>,
    neighbours: Vec<Neighbour>,
    rules: Vec<Rule>,
    ledger: Ledger,
    crossings: BTreeMap<Key, Crossing>,
    /// Those that wait for something.
    open: BTreeSet<Key>,
    /// Those that are not on disk as they are.
    dirty: BTreeSet<Key>,
    version: u64,
    /// The time of the last summary of each neighbour.
    heard: BTreeMap<String, Duration>,
    told: Duration,
    /// The last time that something was to be written which should have been.
    tried: Duration,
    /// Why pipes are smaller.
    because: String,
    /// What neighbours are told about sessions that get fewer samples, and what was heard of each; the number of the last message.
    tellings: BTreeMap<String, Telling>,
    hearings: BTreeMap<String, Hearing>,
    number: u64,
    /// What neighbours have told last of sessions that send too much.
    excess: BTreeMap<String, excess::Told>,
}

impl Domains {
    /// The domain of this name, with the contract's pipes and neighbours and the sessions that were kept. Versions of sessions come after those of all
    /// earlier starts: `start` is the number of this one. What has to be done first are the effects.
    ///
    /// # Errors
    /// The contract has not what is sold.
    pub fn start(
        name: &str,
        contract: &Contract,
        kept: Vec<Crossing>,
        start: u64,
        now: Duration,
    ) -> Result<(Self, Vec<Effect>), String> {
        let named = |one: &pipe::Neighbour| Neighbour {
            domain: one.domain.clone(),
            via: contract.system.nodes[one.via].name.clone(),
            broker: one.broker.clone(),
            reach: pipe::domains(one).map(str::to_owned).collect(),
            border: one.device.clone(),
        };
        let mut domains = Self {
            name: name.to_owned(),
            unready: None,
            nodes: contract.system.nodes.iter().map(|node| (node.name.clone(), node.address)).collect(),
            neighbours: contract.neighbours.iter().map(named).collect(),
            rules: contract.rules.clone(),
            ledger: Ledger::new(name, contract),
            crossings: BTreeMap::new(),
            open: BTreeSet::new(),
            dirty: BTreeSet::new(),
            version: start << 32,
            heard: contract.neighbours.iter().map(|one| (one.domain.clone(), now)).collect(),
            told: now,
            tried: now,
            because: String::new(),
            tellings: BTreeMap::new(),
            hearings: BTreeMap::new(),
            number: start << 32,
            excess: BTreeMap::new(),
        };
        let mut effects = Vec::new();
        for crossing in kept {
            effects.extend(domains.resume(crossing, now)?);
        }
        // A change was on disk, and the former version had not ended yet.
        let active = |one: &&Crossing| one.is_active() && one.passed.is_empty();
        let keys: Vec<Key> = domains.crossings.values().filter(active).map(|one| one.key.clone()).collect();
        keys.iter().for_each(|key| effects.extend(domains.replaced(now, key)));
        domains.tell_again();
        Ok((domains, effects))
    }

    /// Takes over a session that was kept.
    fn resume(&mut self, mut crossing: Crossing, now: Duration) -> Result<Vec<Effect>, String> {
        let key = crossing.key.clone();
        (crossing.kept, crossing.since, crossing.sent) = (true, now, now);
        crossing.written = Some(crossing.phase);
        let lives = matches!(crossing.phase, Phase::Starting | Phase::Committed);
        if lives {
            let targets = self.targets(&crossing.flows, crossing.passed.last());
            let known = targets.and_then(|targets| self.known(&crossing).map(|()| targets));
            let held = known.and_then(|targets| self.hold(&key, &crossing.flows, &targets));
            held.map_err(|why| format!("session {key} has what the contract has not any more: {}", why.what))?;
        }
        // Whether domains behind have committed, too, is not known: they are asked if the one before asks again.
        crossing.failed = crossing.phase == Phase::Committed;
        let phase = crossing.phase;
        self.crossings.insert(key.clone(), crossing);
        Ok(match phase {
            Phase::Starting | Phase::Stopping => self.end(now, &key),
            _ => Vec::new(),
        })
    }

    /// From now on nothing goes through these pipes, for this reason, and through all others it does. Sessions that have a part of one of them are lost.
    /// What is to be done for each of them is a list of its own.
    pub fn close_pipes(&mut self, now: Duration, names: &[String], because: &str) -> Vec<Vec<Effect>> {
        let keys = self.ledger.close(names, because);
        let because = format!("domain {}: {because}: ask for it again", self.name);
        let because: String = because.chars().take(LONGEST_REASON).collect();
        keys.iter().map(|key| self.end_for(now, key, &because)).collect()
    }

    /// What is sold of each pipe.
    pub fn demand(&self) -> Demand {
        self.ledger.demand()
    }

    /// `true` if a pipe that sells nothing now is not among these.
    pub fn opens(&self, names: &[String]) -> bool {
        self.ledger.closed().any(|pipe| !names.contains(&pipe.name))
    }

    /// A user asks for a session, or for a change of one. Its key is in all effects about it.
    ///
    /// # Errors
    /// It cannot be asked for now.
    pub fn request(&mut self, now: Duration, wanted: Wanted) -> Result<(Key, Vec<Effect>), Refused> {
        let is_busy = |one: &Crossing| {
            matches!(one.phase, Phase::Quoting | Phase::Holding | Phase::Starting) && !one.is_question()
        };
        if self.versions(&self.name, &wanted.name).any(is_busy) {
            let because = "the former request is not decided yet: try again".to_owned();
            return Err(self.refusal(format!("session {}", wanted.name), because));
        }
        self.version += 1;
        let key = Key { first: self.name.clone(), session: wanted.name.clone(), version: self.version };
        let flows: Vec<Flow> = wanted.flows.into_iter().map(choice::as_it_enters).collect();
        if let Some(flow) = flows.iter().find(|flow| !flow.is_bounded()) {
            let because = format!("{} has a name, size or time that no neighbour takes", flow.subscriber);
            return Err(self.refusal(format!("session {}", wanted.name), because));
        }
        let asked = Crossing::new(key.clone(), Vec::new(), flows, now);
        let effects = self.enter(now, Crossing { asker: Some(wanted.asker), ..asked });
        Ok((key, effects))
    }

    /// A message of a neighbour's broker. One that is no neighbour is not heard.
    pub fn receive(&mut self, now: Duration, from: &str, message: Message) -> Vec<Effect> {
        if !self.neighbours.iter().any(|one| one.domain == from) {
            return Vec::new();
        }
        match message {
            Message::Request { key, passed, step } => {
                let name = step.name();
                match self.possible(from, &key, &passed, &step) {
                    Ok(()) => self.asked(now, from, key, passed, step),
                    Err(why) => vec![answer(from, &key, name, Said::Refused(why))],
                }
            }
            Message::Answer { key, step, said } => self.answered(now, from, &key, step, said),
            Message::Present(keys) => self.present(now, from, &keys),
            Message::Unknown(keys) => {
                let because = format!("domain {from} has lost it: ask for it again");
                keys.iter().flat_map(|key| self.lost(now, from, key, &because)).collect()
            }
            Message::Lost(key, because) => self.lost(now, from, &key, &because),
            Message::Thinned(thinned) => self.hear_thinned(from, thinned),
            Message::Exceeded(told) => {
                self.hear_excess(now, from, told);
                Vec::new()
            }
        }
    }

    /// Checks that a neighbour may ask for a step.
    fn possible(&self, from: &str, key: &Key, passed: &[String], step: &Step) -> Result<(), Refused> {
        let refused = |because: String| Err(self.refusal(format!("session {key}"), because));
        if passed.first() != Some(&key.first) || passed.last().map(String::as_str) != Some(from) {
            return refused(format!("{from} asks in another's name"));
        }
        if passed.contains(&self.name) || passed.len() >= MOST_HOPS {
            return refused(format!(
                "it has passed {} already: allowed is each of {MOST_HOPS} domains once",
                passed.join(", ")
            ));
        }
        if self.crossings.get(key).is_some_and(|known| known.passed != passed) {
            return refused("it came another way before: allowed is one way".to_owned());
        }
        let via = self.neighbours.iter().find(|one| one.domain == from).map(|one| one.via.as_str());
        if let Some(flow) = step.flows().iter().find(|flow| Some(flow.enters.as_str()) != via) {
            let via = via.unwrap_or_default();
            return refused(format!("a flow comes in at {:?}: allowed is {via:?}, by the contract", flow.enters));
        }
        match step.flows().iter().find(|flow| flow.before.is_empty()) {
            Some(flow) => refused(format!("no class is asked for {:?}", flow.topic)),
            None => Ok(()),
        }
    }

    fn asked(&mut self, now: Duration, from: &str, key: Key, passed: Vec<String>, step: Step) -> Vec<Effect> {
        let phase = self.crossings.get(&key).map(|known| known.phase);
        let name = step.name();
        let say = |said: Said| vec![answer(from, &key, name, said)];
        match (step, phase) {
            (Step::Quote(_), Some(Phase::Quoting)) | (Step::Hold(_), Some(Phase::Holding)) => Vec::new(), // under way
            (Step::Quote(flows), None) => self.enter(now, Crossing::new(key, passed, flows, now)),
            (Step::Hold(flows), None | Some(Phase::Quoting)) => {
                let asked = Crossing::new(key, passed, flows, now);
                self.enter(now, Crossing { phase: Phase::Holding, ..asked })
            }
            (Step::Hold(flows), Some(Phase::Held | Phase::Committed)) => {
                let same = self.crossings.get(&key).is_some_and(|known| known.flows == flows);
                let other =
                    || Said::Refused(self.refusal(format!("session {key}"), "it has other flows already".to_owned()));
                say(if same { Said::Done } else { other() })
            }
            (Step::Commit, Some(Phase::Held)) => self.commit(now, &key),
            (Step::Commit, Some(Phase::Committed)) => self.committed_again(now, &key),
            (Step::Stop, None) => say(Said::Done),
            (Step::Stop, Some(_)) => {
                let mut effects = self.end(now, &key);
                effects.extend(say(Said::Done));
                effects
            }
            (Step::Quote(_) | Step::Hold(_) | Step::Commit, _) => {
                let because = "nothing is held for it: it took too long, or the broker started again".to_owned();
                say(Said::Refused(self.refusal(format!("session {key}"), because)))
            }
        }
    }

    /// A session comes in: its menus are asked for, or what it needs is held, here and behind.
    fn enter(&mut self, now: Duration, mut crossing: Crossing) -> Vec<Effect> {
        let (key, phase) = (crossing.key.clone(), crossing.phase);
        let own = self.own_part(&crossing).map(|(legs, menus)| (crossing.legs, crossing.menus) = (legs, menus));
        self.crossings.insert(key.clone(), crossing);
        match own {
            Ok(()) => self.step(now, &key, phase),
            Err(why) => self.fail(now, &key, why),
        }
    }

    /// The domains behind, and the own menus; held, if the session is.
    fn own_part(&mut self, crossing: &Crossing) -> Result<(Vec<Leg>, Vec<Menu>), Refused> {
        let Crossing { key, flows, passed, phase, .. } = crossing;
        let targets = self.targets(flows, passed.last())?;
        self.ready()?;
        if !passed.is_empty() {
            self.permit(key, passed, flows)?;
            self.known(crossing)?;
        }
        let (legs, menus) = (self.legs(&targets), self.menus(key, flows, &targets)?);
        if *phase == Phase::Holding {
            self.room(&legs)?;
            self.hold(key, flows, &targets)?;
        }
        Ok((legs, menus))
    }

    /// Commits: kept here, then asked for behind.
    fn commit(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        if let Some(crossing) = self.crossings.get_mut(key) {
            crossing.kept = true;
        }
        let mut effects = vec![self.keep(key)];
        let crossing = self.crossings.get(key);
        if crossing.is_some_and(|crossing| crossing.passed.is_empty() && crossing.legs.is_empty()) {
            return self.active(now, key); // nobody else has to commit, so it is kept once
        }
        let is_first = crossing.is_some_and(|crossing| crossing.passed.is_empty());
        effects.extend(self.step(now, key, if is_first { Phase::Starting } else { Phase::Committed }));
        effects
    }

    /// The domain before asks again.
    fn committed_again(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key).filter(|one| one.is_written()) else { return Vec::new() };
        if crossing.legs.iter().all(|leg| leg.done) {
            return self.say(key, StepName::Commit, Said::Done);
        }
        if std::mem::take(&mut crossing.failed) {
            (crossing.since, crossing.sent) = (now, now);
            self.open.insert(key.clone());
            return self.ask(key);
        }
        Vec::new()
    }

    /// Nobody waits for a request any more: it comes to nothing, unless it is decided.
    pub fn withdraw(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let waits = |one: &&Crossing| matches!(one.phase, Phase::Quoting | Phase::Holding | Phase::Starting);
        if self.crossings.get(key).filter(waits).is_none() {
            return Vec::new();
        }
        let why = self.refusal(format!("session {key}"), "nobody waits for it any more".to_owned());
        self.fail(now, key, why)
    }

    /// A user stops a session that was asked for here: all its versions.
    pub fn stop(&mut self, now: Duration, name: &str) -> Vec<Effect> {
        let keys: Vec<Key> = self.versions(&self.name, name).map(|one| one.key.clone()).collect();
        let stopped = |domains: &Self| domains.refusal(format!("session {name}"), "it was stopped".to_owned());
        keys.iter()
            .flat_map(|key| {
                let waits = self
                    .crossings
                    .get(key)
                    .is_some_and(|one| !matches!(one.phase, Phase::Committed | Phase::Stopping | Phase::Lost));
                let mut effects = self.end(now, key);
                effects.extend(waits.then(|| Effect::Told(key.clone(), Err(stopped(self)))));
                effects
            })
            .collect()
    }

    /// Ends a session here, and asks for its end behind.
    fn end(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        self.ledger.release(key);
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        if crossing.phase == Phase::Stopping && crossing.legs.iter().any(|leg| leg.done) {
            return Vec::new(); // under way
        }
        if crossing.phase == Phase::Lost {
            crossing.legs.clear();
            crossing.because = None;
        }
        let was_kept = crossing.kept;
        // A quote leaves nothing behind; those that hold are told, so that nobody waits for the end of the hold.
        if crossing.phase == Phase::Quoting {
            crossing.legs.clear();
        }
        let asks = self.step(now, key, Phase::Stopping);
        was_kept.then(|| self.keep(key)).into_iter().chain(asks).collect()
    }

    /// The versions of a session.
    fn versions(&self, first: &str, session: &str) -> impl Iterator<Item = &Crossing> {
        let key = |version| Key { first: first.to_owned(), session: session.to_owned(), version };
        self.crossings.range(key(0)..=key(u64::MAX)).map(|(_, one)| one)
    }

    /// Time has passed: repeats, gives up, and forgets what was held for too long.
    pub fn tick(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        for key in self.open.iter().cloned().collect::<Vec<_>>() {
            effects.extend(self.look(now, &key));
            if !self.waits(&key) {
                self.open.remove(&key);
            }
        }
        effects.extend(self.tick_thinned(now));
        // What the disk did not take is tried again.
        if let Some(key) = self.dirty.first().cloned().filter(|_| now.saturating_sub(self.tried) >= TRY_AGAIN) {
            self.tried = now;
            effects.push(Effect::Keep(key));
        }
        if now.saturating_sub(self.told) >= PRESENT_EVERY {
            self.told = now;
            effects.extend(self.abandoned(now));
            effects.extend(self.summaries());
        }
        effects
    }

    /// `true` as long as time changes something about a session.
    fn waits(&self, key: &Key) -> bool {
        self.crossings.get(key).is_some_and(|one| match one.phase {
            Phase::Lost => false,
            Phase::Committed => !one.failed && one.legs.iter().any(|leg| !leg.done),
            _ => true,
        })
    }

    fn look(&mut self, now: Duration, key: &Key) -> Vec<Effect> {
        let Some(crossing) = self.crossings.get_mut(key) else { return Vec::new() };
        let age = now.saturating_sub(crossing.since);
        let waits = crossing.legs.iter().any(|leg| !leg.done) && !crossing.failed;
        let limit = STEP.saturating_sub(PER_HOP * crossing.passed.len() as u32);
        match crossing.phase {
            Phase::Held if age >= HOLD => {
                self.ledger.release(key);
                self.crossings.remove(key);
                Vec::new()
            }
            Phase::Stopping if waits && now.saturating_sub(crossing.sent) >= crossing.repeat => {
                crossing.repeat = (crossing.repeat * 2).min(REPEAT_SLOWLY);
                crossing.sent = now;
                self.ask(key)
            }
            Phase::Quoting if !waits && age >= limit => {
                self.crossings.remove(key); // a question whose answer nobody took
                Vec::new()
            }
            Phase::Starting | Phase::Committed if !crossing.is_written() => Vec::new(),
            Phase::Quoting | Phase::Holding | Phase::Starting | Phase::Committed if waits => {
                if age >= limit {
                    let silent: Vec<&str> =
                        crossing.legs.iter().filter(|leg| !leg.done).map(|leg| leg.domain.as_str()).collect();
                    let because = format!("the broker of {} did not answer within {limit:?}", silent.join(", "));
                    let why = self.refusal(format!("session {key}"), because);
                    self.fail(now, key, why)
                } else if now.saturating_sub(crossing.sent) >= REPEAT {
                    crossing.sent = now;
                    self.ask(key)
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        }
    }

    /// From now on, or until further notice, nothing new is admitted.
    pub fn set_unready(&mut self, because: Option<String>) {
        self.unready = because;
    }

    fn ready(&self) -> Result<(), Refused> {
        let because = |why: &String| self.refusal(format!("pipes of domain {}", self.name), why.clone());
        self.unready.as_ref().map_or(Ok(()), |why| Err(because(why)))
    }

    fn refusal(&self, what: String, because: String) -> Refused {
        let because = because.chars().take(LONGEST_REASON).collect();
        Refused { domain: self.name.clone(), what, because, ..Refused::default() }
    }
}

fn answer(to: &str, key: &Key, step: StepName, said: Said) -> Effect {
    Effect::Send(to.to_owned(), Message::Answer { key: key.clone(), step, said })
}

#[cfg(test)]
mod tests;
