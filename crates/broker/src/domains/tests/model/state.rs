//! One state of the model: brokers, disks, messages on the way, and what users were told.

use super::super::super::*;
use super::super::world::NAMES;
use super::{Bounds, NOW};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The age from which all are alike: longer than any limit that a test waits for. ([`GRACE`] is none: neighbours count as heard.)
const OLD: Duration = Duration::from_secs(40);

/// A message on its way.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) message: Arc<Message>,
    hash: u64,
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) brokers: [Arc<Domains>; 3],
    pub(super) disks: [Arc<BTreeMap<Key, Crossing>>; 3],
    pub(super) starts: [u64; 3],
    /// In the order of their hashes, each once.
    pub(super) net: Vec<Packet>,
    /// What the user was told last: `true`, it is active.
    pub(super) told: BTreeMap<Key, bool>,
    /// Those that the user has stopped.
    pub(super) stopped: BTreeSet<Key>,
    /// Number of sessions that were asked for.
    pub(super) asked: usize,
    /// What may happen yet.
    pub(super) bounds: Bounds,
}

impl State {
    pub(super) fn new(brokers: [Domains; 3], bounds: Bounds) -> Self {
        Self {
            brokers: brokers.map(Arc::new),
            disks: Default::default(),
            starts: [1; 3],
            net: Vec::new(),
            told: BTreeMap::new(),
            stopped: BTreeSet::new(),
            asked: 0,
            bounds,
        }
    }

    pub(super) fn broker(&mut self, who: usize) -> &mut Domains {
        Arc::make_mut(&mut self.brokers[who])
    }

    pub(super) fn send(&mut self, from: usize, to: &str, message: Message) {
        let to = NAMES.iter().position(|name| *name == to).unwrap();
        let hash = hash(&(from, to, &message));
        if let Err(place) = self.net.binary_search_by_key(&hash, |packet| packet.hash) {
            self.net.insert(place, Packet { from, to, message: Arc::new(message), hash });
        }
    }

    /// Writes what has changed; gives what is to be done then.
    pub(super) fn write(&mut self, who: usize) -> Vec<Effect> {
        let changes = self.broker(who).changes();
        let disk = Arc::make_mut(&mut self.disks[who]);
        for (key, crossing) in &changes {
            match crossing {
                Some(crossing) => drop(disk.insert(key.clone(), as_read(crossing))),
                None => drop(disk.remove(key)),
            }
        }
        self.broker(who).wrote(NOW, &changes)
    }

    /// Lets time pass: all that has a time is older.
    pub(super) fn pass(&mut self, time: Duration) {
        let older = |at: &mut Duration| *at = at.saturating_sub(time).max(NOW - OLD);
        for broker in self.brokers.iter_mut().map(Arc::make_mut) {
            broker.crossings.values_mut().for_each(|one| [&mut one.since, &mut one.sent].into_iter().for_each(older));
            [&mut broker.told, &mut broker.tried].into_iter().for_each(older);
            broker.heard.values_mut().for_each(|heard| *heard = NOW);
        }
    }

    pub(super) fn is_within_room(&self) -> bool {
        let pipes = self.brokers.iter().flat_map(|broker| broker.ledger.pipes());
        pipes.into_iter().all(|(pipe, sold)| sold.rate <= pipe.whole.rate && sold.burst <= pipe.whole.burst)
    }

    /// What the user was told to be active, in this version or a later one, is committed on each disk.
    pub(super) fn keeps_its_word(&self) -> bool {
        let committed =
            |disk: &BTreeMap<Key, Crossing>, key: &Key| disk.get(key).is_some_and(|one| one.phase == Phase::Committed);
        let by_all = |key: &Key| self.disks.iter().all(|disk| committed(disk, key));
        let later = |key: &Key| {
            let all = self.disks[0].keys().filter(|one| one.session == key.session && one.version >= key.version);
            all.cloned().collect::<Vec<_>>()
        };
        let active = self.told.iter().filter(|(key, active)| **active && !self.stopped.contains(*key));
        active.into_iter().all(|(key, _)| later(key).iter().any(by_all))
    }

    /// Nobody waits for anything; each session is committed in all domains, in one version and on disk, or in none; and what users were
    /// told is so.
    pub(super) fn is_settled(&self) -> bool {
        let [first, ..] = &self.brokers;
        let rests = |broker: &Domains| broker.open.is_empty() && broker.dirty.is_empty();
        let is_whole = |one: &Crossing| one.is_active();
        let alike = |broker: &Domains| broker.crossings.keys().eq(first.crossings.keys());
        let holds = |broker: &Domains| {
            let sold = broker.ledger.pipes().any(|(_, sold)| sold.rate > 0.0);
            broker.crossings.keys().all(|key| broker.ledger.has(key)) && sold != broker.crossings.is_empty()
        };
        let on_disk = |(broker, disk): (&Arc<Domains>, &Arc<BTreeMap<Key, Crossing>>)| {
            let phases = |one: &Crossing| (one.key.clone(), one.phase);
            broker.kept().iter().map(phases).eq(disk.values().map(phases))
        };
        let names: BTreeSet<&str> = first.crossings.keys().map(|key| key.session.as_str()).collect();
        let told = |(key, active): (&Key, &bool)| {
            let later = first.crossings.keys().any(|one| one.session == key.session && one.version >= key.version);
            if *active { later } else { !first.crossings.contains_key(key) }
        };
        self.net.is_empty()
            && self.brokers.iter().all(|one| rests(one) && alike(one) && holds(one))
            && self.brokers.iter().flat_map(|one| one.crossings.values()).all(is_whole)
            && self.brokers.iter().zip(&self.disks).all(on_disk)
            && names.len() == first.crossings.len()
            && !self.stopped.iter().any(|key| first.crossings.contains_key(key))
            && self.told.iter().all(told)
    }

    /// It tells states apart.
    pub(super) fn hash(&self) -> u64 {
        hash(self)
    }

    /// The hash of all but what may happen yet.
    pub(super) fn hash_of_calm(&self) -> u64 {
        hash(&Self { bounds: Bounds::default(), ..self.clone() })
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A session as a disk gives it back.
fn as_read(crossing: &Crossing) -> Crossing {
    serde_json::from_slice(&serde_json::to_vec(crossing).unwrap()).unwrap()
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { brokers, disks, starts, net, told, stopped, asked, bounds } = self;
        for broker in brokers {
            let Domains { unready, ledger, crossings, open, dirty, version, heard, told, tried, .. } = &**broker;
            (unready, crossings, open, dirty, version, heard, told, tried).hash(hasher);
            ledger.pipes().for_each(|(_, sold)| (sold.rate.to_bits(), sold.burst).hash(hasher));
            crossings.keys().for_each(|key| ledger.has(key).hash(hasher));
        }
        net.iter().for_each(|packet| packet.hash.hash(hasher));
        (disks, starts, told, stopped, asked, bounds).hash(hasher);
    }
}

/// For the path to a state that breaks a promise.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((name, broker), disk) in NAMES.iter().zip(&self.brokers).zip(&self.disks) {
            let shown = |one: &Crossing| format!("{} {:?}", one.key, one.phase);
            let [has, kept] = [&broker.crossings, &**disk].map(|all| all.values().map(shown).collect::<Vec<_>>());
            write!(f, "\n  {name}: {has:?}, on disk {kept:?}")?;
        }
        for Packet { from, to, message, .. } in &self.net {
            let what = match &**message {
                Message::Request { key, step, .. } => format!("{key} {:?}", step.name()),
                Message::Answer { key, step, said } => {
                    format!("{key} {step:?}: {}", matches!(said, Said::Done | Said::Menus(_)))
                }
                other => format!("{other:?}"),
            };
            write!(f, "\n  {} to {}: {what}", NAMES[*from], NAMES[*to])?;
        }
        write!(f, "\n  told {:?}", self.told)
    }
}
