//! Three brokers with a simulated network, disks and crashes.

use super::super::*;
use qos::admission::Bucket;
use qos::contract::session::Session as File;
use std::collections::VecDeque;

pub(super) const NAMES: [&str; 3] = ["robot", "wan", "base"];

/// The contract of a domain whose way leads over `nodes`, with neighbours before and behind.
fn contract(nodes: [&str; 2], neighbours: &[(&str, &str, &str)], pipes: &str) -> String {
    let [from, to] = nodes;
    let mut text = format!(
        "[[node]]\nname = {from:?}\n[[node]]\nname = {to:?}\n[[link]]\nbetween = [{from:?}, {to:?}]\nrate = \"10 Mbit/s\"\nscheduler = \"strict\"\noverhead = \"0 B\"\n"
    );
    for (domain, via, reach) in neighbours {
        text += &format!("[[neighbour]]\ndomain = {domain:?}\nvia = {via:?}\nbroker = \"h:1\"\nreach = [{reach}]\n");
    }
    text + pipes
}

fn pipe(from: &str, to: &str, class: &str, rate: &str, deadline: &str, price: u64) -> String {
    format!(
        "[[pipe]]\nfrom = {from:?}\nto = {to:?}\nclass = {class:?}\nrate = {rate:?}\nburst = \"20 kB\"\nlargest = \"1 kB\"\ndeadline = {deadline:?}\nprice = {price}\n"
    )
}

/// In each domain two pipes: a fast one of 200 kbit/s and a slow, cheap one of 400 kbit/s.
pub(super) fn contract_of(name: &str) -> String {
    let (nodes, neighbours): (_, &[(&str, &str, &str)]) = match name {
        "robot" => (["cam", "rw"], &[("wan", "rw", "\"base\"")]),
        "wan" => (["rw", "wb"], &[("robot", "rw", ""), ("base", "wb", "")]),
        _ => (["wb", "desk"], &[("wan", "wb", "\"robot\"")]),
    };
    let [from, to] = nodes;
    let pipes = pipe(from, to, "high", "200 kbit/s", "20 ms", 5) + &pipe(from, to, "low", "400 kbit/s", "60 ms", 1);
    contract(nodes, neighbours, &pipes)
}

/// A session of samples of so many bytes at 10 Hz.
pub(super) fn session(name: &str, size: u64, deadline: &str) -> String {
    format!(
        "[[session]]\nname = {name:?}\n[[topic]]\nname = {name:?}\nsize = \"{size} B\"\nrate = \"10 Hz\"\npublisher = \"cam\"\n\
         [[subscriber]]\ntopic = {name:?}\nnode = \"base/desk\"\ndeadline = {deadline:?}\n"
    )
}

pub(super) fn wanted(text: &str) -> Wanted {
    let (of_robot, file) = (contract_of("robot"), File::read(text).unwrap());
    let flows = qos::contract::flow::flows("robot", &of_robot, &Contract::read(&of_robot).unwrap(), &file).unwrap();
    let asker = Asker { owner: "ann".into(), text: text.to_owned(), ..Asker::default() };
    Wanted { name: file.name, asker, flows }
}

/// A seeded stream of numbers (SplitMix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

pub(super) struct World {
    pub(super) brokers: BTreeMap<&'static str, Domains>,
    pub(super) disks: BTreeMap<&'static str, Vec<Crossing>>,
    pub(super) net: VecDeque<(&'static str, String, Message)>,
    pub(super) told: Vec<(Key, Result<(), Refused>)>,
    pub(super) now: Duration,
    pub(super) starts: u64,
    /// The broker that dies before its own effect of this number.
    pub(super) crash: Option<(&'static str, u64)>,
    pub(super) crashes: u32,
    /// Effects of each broker so far.
    pub(super) effects: BTreeMap<&'static str, u64>,
    /// Of 100 writes so many fail.
    pub(super) failing: u64,
    /// Of 100 messages so many are lost, and so many come twice; they come in any order then.
    pub(super) lossy: Option<(u64, u64)>,
    /// Rules of the contract of a domain.
    pub(super) rules: BTreeMap<&'static str, &'static str>,
    /// Words of the contract of a domain, and those in their place.
    pub(super) changed: BTreeMap<&'static str, [&'static str; 2]>,
    /// Pipes of a domain that are smaller.
    pub(super) sizes: BTreeMap<&'static str, BTreeMap<String, Bucket>>,
    pub(super) dice: Dice,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut world = Self {
            brokers: BTreeMap::new(),
            disks: BTreeMap::new(),
            net: VecDeque::new(),
            told: Vec::new(),
            now: Duration::ZERO,
            starts: 0,
            crash: None,
            crashes: 0,
            effects: BTreeMap::new(),
            failing: 0,
            lossy: None,
            rules: BTreeMap::new(),
            changed: BTreeMap::new(),
            sizes: BTreeMap::new(),
            dice: Dice(seed),
        };
        NAMES.iter().for_each(|name| world.start(name));
        world
    }

    pub(super) fn start(&mut self, name: &'static str) {
        self.starts += 1;
        let kept = self.disks.get(name).cloned().unwrap_or_default();
        // As a disk has them: without what is not written.
        let text = serde_json::to_string(&kept).unwrap();
        let rules = self.rules.get(name).copied().unwrap_or_default();
        let [from, to] = self.changed.get(name).copied().unwrap_or(["", ""]);
        let contract = Contract::read(&format!("{}{rules}", contract_of(name).replacen(from, to, 1))).unwrap();
        let kept = serde_json::from_str(&text).unwrap();
        let (domains, effects) = Domains::start(name, &contract, kept, self.starts, self.now).unwrap();
        self.brokers.insert(name, domains);
        self.perform(name, effects);
        if self.sizes.contains_key(name) {
            self.resized(name);
        }
    }

    /// A broker's pipes have the sizes of its plan.
    pub(super) fn resized(&mut self, name: &'static str) {
        let (now, sizes) = (self.now, self.sizes.get(name).cloned().unwrap_or_default());
        let effects = self.broker(name).resize_pipes(now, &sizes, "air is slow");
        effects.into_iter().for_each(|effects| self.perform(name, effects));
    }

    pub(super) fn broker(&mut self, name: &str) -> &mut Domains {
        self.brokers.get_mut(name).unwrap()
    }

    /// Does what a broker wants, until it dies.
    pub(super) fn perform(&mut self, name: &'static str, effects: Vec<Effect>) {
        let mut left: VecDeque<Effect> = effects.into();
        while let Some(effect) = left.pop_front() {
            let count = self.effects.entry(name).or_default();
            *count += 1;
            if self.crash.is_some_and(|(who, at)| who == name && at <= *count) {
                self.crash = None;
                self.crashes += 1;
                return self.start(name);
            }
            match effect {
                Effect::Keep(key) => match self.write(name) {
                    Some(next) => left.extend(next),
                    None => {
                        let now = self.now;
                        left = self.broker(name).unkept(now, &key).map_or(left, VecDeque::from);
                    }
                },
                Effect::Send(to, message) => self.net.push_back((name, to, message)),
                Effect::Told(key, said) => self.told.push((key, said)),
            }
        }
    }

    /// Writes what has changed, as a broker does; `None`: the disk takes nothing.
    fn write(&mut self, name: &'static str) -> Option<Vec<Effect>> {
        let (now, fails) = (self.now, self.dice.below(100) < self.failing);
        let changes = self.broker(name).changes();
        if fails {
            self.broker(name).unwritten(changes.into_iter().map(|(key, _)| key));
            return None;
        }
        let disk = self.disks.entry(name).or_default();
        for (key, crossing) in changes.clone() {
            disk.retain(|one| one.key != key);
            disk.extend(crossing);
        }
        disk.sort_by(|one, other| one.key.cmp(&other.key));
        Some(self.broker(name).wrote(now, &changes))
    }

    pub(super) fn deliver(&mut self) {
        while !self.net.is_empty() {
            let at = if self.lossy.is_some() { self.dice.below(self.net.len() as u64) as usize } else { 0 };
            let Some((from, to, message)) = self.net.remove(at) else { return };
            if let Some((lost, twice)) = self.lossy {
                match self.dice.below(100) {
                    n if n < lost => continue,
                    n if n < lost + twice => self.net.push_back((from, to.clone(), message.clone())),
                    _ => {}
                }
            }
            let name = NAMES.into_iter().find(|name| *name == to).unwrap();
            assert!(message.is_bounded(), "{message:?}");
            let now = self.now;
            let effects = self.broker(name).receive(now, from, message);
            self.perform(name, effects);
        }
    }

    /// Lets so many seconds pass.
    pub(super) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.deliver();
            self.now += Duration::from_millis(100);
            for name in NAMES {
                let now = self.now;
                let effects = self.broker(name).tick(now);
                self.perform(name, effects);
            }
        }
        self.deliver();
    }

    pub(super) fn request(&mut self, text: &str) -> Option<Key> {
        self.ask(wanted(text))
    }

    pub(super) fn ask(&mut self, wanted: Wanted) -> Option<Key> {
        let now = self.now;
        match self.broker("robot").request(now, wanted) {
            Ok((key, effects)) => {
                self.perform("robot", effects);
                Some(key)
            }
            Err(_) => None,
        }
    }

    pub(super) fn stop(&mut self, name: &str) {
        let now = self.now;
        let effects = self.broker("robot").stop(now, name);
        self.perform("robot", effects);
    }

    pub(super) fn said(&self, key: &Key) -> Option<&Result<(), Refused>> {
        self.told.iter().rev().find(|(told, _)| told == key).map(|(_, said)| said)
    }

    /// The versions of a session in each domain, if all that is there is committed.
    pub(super) fn versions(&self, session: &str) -> [Vec<u64>; 3] {
        NAMES.map(|name| {
            let of = self.brokers[name].crossings.values().filter(|one| one.key.session == session);
            of.inspect(|one| assert_eq!(one.phase, Phase::Committed, "{name}: {one:?}"))
                .map(|one| one.key.version)
                .collect()
        })
    }

    /// What is sold of the fast and the slow pipe of each domain, bit/s.
    pub(super) fn sold(&self) -> [[f64; 2]; 3] {
        NAMES.map(|name| {
            let sold: Vec<f64> = self.brokers[name].ledger.pipes().map(|(_, sold)| sold.rate).collect();
            [sold[0], sold[1]]
        })
    }

    /// Every session is in all domains with the same versions, and what is sold is theirs.
    pub(super) fn check(&self, context: &str) {
        let mut names: Vec<String> = Vec::new();
        for broker in self.brokers.values() {
            names.extend(broker.crossings.keys().map(|key| key.session.clone()));
        }
        for name in names {
            let [robot, wan, base] = self.versions(&name);
            assert!(robot == wan && wan == base, "{context}: {name}: {robot:?}, {wan:?}, {base:?}");
            assert!(robot.len() <= 1, "{context}: {name} has versions {robot:?}");
        }
        for (name, broker) in &self.brokers {
            let held: Vec<bool> = broker.crossings.keys().map(|key| broker.ledger.has(key)).collect();
            assert!(held.iter().all(|has| *has), "{context}: {name}");
            if broker.crossings.is_empty() {
                assert!(
                    broker.ledger.pipes().all(|(_, sold)| sold.rate == 0.0 && sold.burst == 0),
                    "{context}: {name}"
                );
            }
            let on_disk = self.disks.get(name).cloned().unwrap_or_default();
            let [now, on_disk] = [&broker.kept(), &on_disk].map(|all| serde_json::to_string(all).unwrap());
            assert_eq!(now, on_disk, "{context}: disk of {name}");
        }
    }
}
