//! Sessions over several domains: the disk, the messages and the waiting users around [`crate::domains`].

mod offers;
mod peers;
mod requests;

pub(super) use peers::{Peer, peer, pipes};
pub(super) use requests::taken;

use super::Broker;
use crate::domains::{Crossing, Domains, Effect, PRESENT_EVERY};
use crate::hosts::Kept;
use crate::leases::Leases;
use crate::planning::Reduction;
use agent::client::Client;
use agent::keys::Keys;
use agent::message::{Desired, Exceeded, LARGEST_PLAN, SessionState};
use agent::peer::{self, Key, Message};
use peers::deliver;
use qos::admission::Bucket;
use qos::contract::rule::Rule;
use qos::contract::{Contract, pipe};
use qos::plan;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Time between two looks at what has to be repeated or forgotten.
const TICK: Duration = Duration::from_millis(100);
/// Most messages that wait for one neighbour. One that does not fit is repeated later.
const WAITING: usize = 1000;
/// Most bytes of the channels of sessions with parts of pipes: agents read them with the plan.
const MOST_OF_CHANNELS: usize = LARGEST_PLAN / 2;
/// Why pipes sell nothing whose queues a user has taken away.
const TAKEN_AWAY: &str = "the plan was taken away from the hosts (`thalweg restore --all`); a session inside this domain brings it \
                          back, or a new start of its broker";

/// A broker's part in sessions over several domains.
#[derive(Debug)]
pub(super) struct Crossings {
    pub(super) name: String,
    contract: Contract,
    text: String,
    domains: Mutex<Domains>,
    leases: Mutex<Leases>,
    /// The revision of the plan in which the last of its pipes came.
    revision: AtomicU64,
    /// The pipes that are smaller in that plan (by name), and why; locked after `domains`.
    sizes: Mutex<(BTreeMap<String, Bucket>, String)>,
    texts: Mutex<Texts>,
    /// The messages that wait for each neighbour.
    out: HashMap<String, mpsc::Sender<Message>>,
    /// Their brokers.
    pub(super) clients: BTreeMap<String, Arc<Client>>,
    /// The other ends of these, until they are served.
    unserved: Mutex<Vec<(Arc<Client>, mpsc::Receiver<Message>)>>,
    /// Users who wait for an answer.
    asked: Mutex<HashMap<Key, oneshot::Sender<Result<(), peer::Refused>>>>,
}

impl Crossings {
    /// What is to be done first are the effects.
    pub(super) fn start(
        text: &str,
        keys: &Keys,
        (kept, before): (&Kept, Vec<Crossing>),
        now: Duration,
    ) -> Result<(Self, Vec<Effect>), String> {
        let contract = Contract::read(text).map_err(|error| format!("line {error}"))?;
        let name = keys.identity.name();
        let (mut domains, effects) = Domains::start(name, &contract, before, kept.epoch, now)?;
        domains.set_unready(Some("its hosts have not reported yet".to_owned()));
        let (mut out, mut clients, mut unserved) = (HashMap::new(), BTreeMap::new(), Vec::new());
        for neighbour in domains.neighbours() {
            let (sender, receiver) = mpsc::channel(WAITING);
            let client = Arc::new(Client::new(&neighbour.broker, keys));
            out.insert(neighbour.domain.clone(), sender);
            clients.insert(neighbour.domain.clone(), client.clone());
            unserved.push((client, receiver));
        }
        let mut leases = Leases::default();
        let lease = |one: &&Crossing| one.asker.as_ref().and_then(|asker| asker.lease);
        domains.own().iter().for_each(|one| leases.begin(now, &one.key.session, lease(one)));
        let crossings = Self {
            name: name.to_owned(),
            contract,
            text: text.to_owned(),
            domains: Mutex::new(domains),
            leases: Mutex::new(leases),
            revision: AtomicU64::new(kept.revision),
            sizes: Mutex::default(),
            texts: Mutex::default(),
            out,
            clients,
            unserved: Mutex::new(unserved),
            asked: Mutex::default(),
        };
        let keys: Vec<Key> = crossings.domains().keys();
        keys.iter().for_each(|key| crossings.texts().set(key, crossings.text_of(key)));
        crossings.domains().came_with(kept.revision, &keys);
        let lost = crossings.fit_pipes(now, &kept.reduction, kept.revision);
        Ok((crossings, effects.into_iter().chain(lost.into_iter().flatten()).collect()))
    }

    pub(super) fn domains(&self) -> MutexGuard<'_, Domains> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pipes that are left out sell nothing, and all others do; those that are smaller are so at once, and larger when all hosts have this
    /// revision. What has to be done for each session that is lost is a list of its own.
    pub(super) fn fit_pipes(&self, now: Duration, reduction: &Reduction, revision: u64) -> Vec<Vec<Effect>> {
        let pipes = self.contract.pipes.iter().filter(|pipe| reduction.left_out.contains(&pipe.port()));
        let names: Vec<String> = pipes.map(|pipe| pipe.name.clone()).collect();
        let wanted = self.sizes_in(reduction);
        let mut domains = self.domains();
        let at_once = smaller(&domains.sizes(), &wanted);
        if domains.opens(&names) || at_once != wanted {
            self.revision.store(revision, Ordering::Relaxed);
            domains.set_unready(Some("its hosts have not reported the pipes yet".to_owned()));
        }
        let mut all = domains.close_pipes(now, &names, &reduction.because);
        if domains.sizes() != at_once {
            all.extend(domains.resize_pipes(now, &at_once, &reduction.because));
        }
        *self.sizes.lock().unwrap_or_else(PoisonError::into_inner) = (wanted, reduction.because.clone());
        all
    }

    /// The same reduction, by which all pipes are left out.
    pub(super) fn without_pipes(&self, reduction: Reduction) -> Reduction {
        let left_out = self.contract.pipes.iter().map(pipe::Pipe::port).collect();
        Reduction { left_out, because: TAKEN_AWAY.to_owned(), ..reduction }
    }

    /// The pipes (by name) that are smaller by this reduction.
    fn sizes_in(&self, reduction: &Reduction) -> BTreeMap<String, Bucket> {
        let pipes = self.contract.pipes.iter();
        let sizes = pipes.filter_map(|pipe| {
            let size = reduction.pipes.get(&pipe.port())?;
            let is_smaller = size.rate < pipe.rate || size.burst < pipe.burst;
            is_smaller.then(|| (pipe.name.clone(), Bucket { burst: size.burst, rate: size.rate as f64 }))
        });
        sizes.collect()
    }

    /// All hosts have this revision of the plan: pipes that are larger there are so from now on.
    fn grow_pipes(&self, now: Duration, revision: u64) -> Vec<Vec<Effect>> {
        let mut domains = self.domains();
        let (sizes, because) = self.sizes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.revision.load(Ordering::Relaxed) != revision || domains.sizes() == sizes {
            return Vec::new();
        }
        domains.resize_pipes(now, &sizes, &because)
    }

    /// The contract's.
    pub(super) fn rules(&self) -> &[Rule] {
        &self.contract.rules
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the lease of a session that is active.
    fn begin_lease(&self, now: Duration, key: &Key, is_active: bool) {
        let domains = self.domains();
        let one = domains.find(&key.session).filter(|one| one.key == *key && one.is_active());
        let lease = one.map(|one| one.asker.as_ref().and_then(|asker| asker.lease));
        drop(domains);
        if let Some(lease) = lease.filter(|_| is_active) {
            self.leases().begin(now, &key.session, lease);
        }
    }

    /// A session's channels and what it lets in, as they are now, for the hosts.
    fn text_of(&self, key: &Key) -> String {
        let domains = self.domains();
        let channels = plan::Plan::text_of_channels(&domains.channels_of(key));
        channels + &plan::Plan::text_of_admitted(&domains.admitted_of(key))
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Key, oneshot::Sender<Result<(), peer::Refused>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease of the session of this text, if it is there.
    fn renewed(&self, now: Duration, name: &str, owner: &str, text: &str) -> bool {
        let is_same = |one: &Crossing| {
            one.is_active() && one.asker.as_ref().is_some_and(|by| by.owner == owner && by.text == text)
        };
        let found = self.domains().find(name).is_some_and(is_same);
        if found {
            self.leases().renew(now, name);
        }
        found
    }
}

/// The channels of sessions with parts of pipes, as text behind a plan.
#[derive(Debug, Default)]
struct Texts {
    by_session: BTreeMap<Key, String>,
    bytes: usize,
}

impl Texts {
    fn set(&mut self, key: &Key, text: String) {
        let before = if text.is_empty() {
            self.by_session.remove(key)
        } else {
            self.bytes += text.len();
            self.by_session.insert(key.clone(), text)
        };
        self.bytes -= before.map_or(0, |before| before.len());
    }

    /// `true` if this text is another one than it has.
    fn differs(&self, key: &Key, text: &str) -> bool {
        self.by_session.get(key).map_or("", String::as_str) != text
    }
}

impl Broker {
    /// A state with the channels of sessions that have parts of pipes.
    pub(super) fn with_sold(&self, desired: Desired) -> Desired {
        let Some(crossings) = self.crossings() else { return desired };
        let with = |plan: String| {
            let texts = crossings.texts();
            let mut whole = String::with_capacity(plan.len() + texts.bytes);
            whole.push_str(&plan);
            texts.by_session.values().for_each(|text| whole.push_str(text));
            whole
        };
        Desired { plan: desired.plan.map(with), ..desired }
    }

    /// Writes all sessions over several domains that are not on disk as they are: also those of others who wait for the disk meanwhile. What is to be
    /// done after it are the effects.
    async fn keep_crossings(self: &Arc<Self>, crossings: &Arc<Crossings>) -> std::io::Result<Vec<Effect>> {
        let mut disk = self.disk().await;
        let changes = crossings.domains().changes();
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (broker, crossings) = (self.clone(), crossings.clone());
        // To the end, even if the request is given up meanwhile.
        let written = tokio::task::spawn_blocking(move || {
            let texts: Vec<String> = changes.iter().map(|(key, _)| crossings.text_of(key)).collect();
            let shown = || changes.iter().map(|(key, _)| key).zip(&texts);
            // Without a plan hosts hear of no channels.
            let (before, is_planning) = {
                let hosts = broker.hosts();
                (hosts.kept().revision, hosts.kept().is_planning())
            };
            let is_news = is_planning && shown().any(|(key, text)| crossings.texts().differs(key, text));
            let revision = before + u64::from(is_news);
            let done = disk.keep_crossings(revision, &changes);
            let mut domains = crossings.domains();
            match done {
                Ok(()) => {
                    shown().for_each(|(key, text)| crossings.texts().set(key, text.clone()));
                    domains.came_with(revision, changes.iter().map(|(key, _)| key));
                    let next = domains.wrote(broker.now(), &changes);
                    drop(domains);
                    // Before anybody else keeps a revision.
                    broker.hosts().advance(revision);
                    drop(disk);
                    broker.changed.send_replace(revision);
                    Ok(next)
                }
                Err(error) => {
                    domains.unwritten(changes.into_iter().map(|(key, _)| key));
                    Err(error)
                }
            }
        });
        written.await.map_err(std::io::Error::other)?
    }

    /// Does what has to be done, in order.
    pub(super) async fn carry_out(self: &Arc<Self>, effects: Vec<Effect>) {
        let mut left: VecDeque<Effect> = effects.into();
        while let (Some(effect), Some(crossings)) = (left.pop_front(), self.crossings()) {
            match effect {
                Effect::Keep(key) => match self.keep_crossings(&crossings).await {
                    Ok(next) => left.extend(next),
                    Err(_) => left = crossings.domains().unkept(self.now(), &key).map_or(left, VecDeque::from),
                },
                // What has no room is repeated later.
                Effect::Send(to, message) => drop(crossings.out.get(&to).map(|out| out.try_send(message))),
                Effect::Told(key, said) => {
                    crossings.begin_lease(self.now(), &key, said.is_ok());
                    drop(crossings.asked().remove(&key).map(|user| user.send(said)));
                }
            }
        }
    }

    /// The same on a task of its own, which goes on to the end whoever gives up meanwhile.
    pub(super) fn spawn(self: &Arc<Self>, effects: Vec<Effect>) {
        let broker = self.clone();
        tokio::spawn(async move { broker.carry_out(effects).await });
    }

    /// Looks after sessions over several domains as long as the broker runs.
    pub(crate) async fn serve_crossings(self: &Arc<Self>) {
        let sells = |crossings: &Arc<Crossings>| !crossings.contract.pipes.is_empty();
        let Some(crossings) = self.crossings().filter(sells) else { return std::future::pending().await };
        let unserved = std::mem::take(&mut *crossings.unserved.lock().unwrap_or_else(PoisonError::into_inner));
        for (client, messages) in unserved {
            tokio::spawn(deliver(client, messages));
        }
        let first = std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner));
        self.carry_out(first).await;
        let mut told = self.now();
        loop {
            tokio::time::sleep(TICK).await;
            if self.now().saturating_sub(told) >= PRESENT_EVERY {
                told = self.now();
                self.spawn(self.tell_excess(&crossings));
            }
            let revision = crossings.revision.load(Ordering::Relaxed);
            let (state, because) = self.hosts().reached(revision);
            let full = (crossings.texts().bytes > MOST_OF_CHANNELS).then(|| {
                format!("the channels of all sessions have more than {MOST_OF_CHANNELS} bytes, which is the limit")
            });
            let unready = full
                .or_else(|| self.without_plan())
                .or((state != SessionState::Active).then(|| because.unwrap_or_default()));
            let effects = {
                let mut domains = crossings.domains();
                domains.set_unready(unready);
                domains.tick(self.now())
            };
            self.spawn(effects);
            if state == SessionState::Active {
                crossings.grow_pipes(self.now(), revision).into_iter().for_each(|effects| self.spawn(effects));
            }
            for name in self.over(&crossings) {
                let effects = crossings.domains().stop(self.now(), &name);
                self.spawn(effects);
            }
        }
    }

    /// What neighbours are to be told of sessions that send too much.
    fn tell_excess(&self, crossings: &Crossings) -> Vec<Effect> {
        let now = self.now();
        let reported: Vec<Exceeded> = self.hosts().exceeded(now).cloned().collect();
        crossings.domains().tell_excess(now, &reported)
    }

    /// The sessions whose lease is over, each told once.
    fn over(&self, crossings: &Crossings) -> Vec<String> {
        let mut leases = crossings.leases();
        let over = leases.over(self.now());
        over.iter().for_each(|name| leases.begin(self.now(), name, None));
        over
    }
}

/// Of each pipe (by name) the smaller one of two sizes; one that is not named has that of the contract.
fn smaller(some: &BTreeMap<String, Bucket>, others: &BTreeMap<String, Bucket>) -> BTreeMap<String, Bucket> {
    let mut all = some.clone();
    for (name, other) in others {
        let size = all.entry(name.clone()).or_insert(*other);
        *size = Bucket { burst: size.burst.min(other.burst), rate: size.rate.min(other.rate) };
    }
    all
}
