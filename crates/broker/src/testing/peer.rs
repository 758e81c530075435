//! Messages of neighbours' brokers, in any order, with any contents: no more is sold than there is, and what is sold in the end is what is on disk.

use super::CONTRACT;
use crate::domains::{Crossing, Domains, Effect};
use agent::peer::{Excess, Flow, Key, Menu, Message, Part, Said, Step, StepName, Thinned};
use qos::Class;
use qos::contract::Contract;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The domains that speak, by the first byte of a line; the last one is no neighbour.
const SPEAKERS: [&str; 3] = ["robot", "base", "mallory"];
/// Time after which all that was only held is gone.
const LATER: u64 = 120;
/// Most effects of one message.
const MOST_EFFECTS: usize = 10_000;

struct World {
    domains: Domains,
    disk: BTreeMap<Key, Crossing>,
    now: Duration,
}

impl World {
    fn start(disk: BTreeMap<Key, Crossing>, epoch: u64, now: Duration) -> Self {
        let contract = Contract::read(CONTRACT).unwrap_or_else(|error| panic!("{error}"));
        // As a disk has them: without what is not written.
        let text = serde_json::to_string(&disk.values().collect::<Vec<_>>()).unwrap_or_default();
        let kept: Vec<Crossing> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        let (domains, effects) =
            Domains::start("wan", &contract, kept, epoch, now).unwrap_or_else(|error| panic!("{error}"));
        let mut world = Self { domains, disk, now };
        world.perform(effects);
        world
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let (mut left, mut count): (VecDeque<Effect>, usize) = (effects.into(), 0);
        while let Some(effect) = left.pop_front() {
            count += 1;
            assert!(count < MOST_EFFECTS, "one message has more than {MOST_EFFECTS} effects");
            if matches!(effect, Effect::Keep(_)) {
                let changes = self.domains.changes();
                for (key, crossing) in changes.clone() {
                    match crossing {
                        Some(crossing) => drop(self.disk.insert(key, crossing)),
                        None => drop(self.disk.remove(&key)),
                    }
                }
                left.extend(self.domains.wrote(self.now, &changes));
            }
        }
        for pipe in self.domains.pipes() {
            let fits = pipe.sold_bits_per_s <= pipe.rate_bits_per_s && pipe.sold_bytes <= pipe.burst_bytes;
            assert!(fits, "more is sold than there is: {pipe:?}");
        }
    }

    fn passes(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            let effects = self.domains.tick(self.now);
            self.perform(effects);
        }
    }

    fn sold(&self) -> Vec<(f64, u64)> {
        self.domains.pipes().iter().map(|pipe| (pipe.sold_bits_per_s, pipe.sold_bytes)).collect()
    }
}

/// Lines: `0`, `1` or `2` and a message of that speaker in JSON, or `t`: a second passes.
pub fn peer(bytes: &[u8]) {
    let mut world = World::start(BTreeMap::new(), 1, Duration::ZERO);
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((b't', _)) => world.passes(1),
            Some((speaker @ b'0'..=b'2', text)) => {
                let Ok(message) = serde_json::from_slice::<Message>(text) else { continue };
                if message.is_bounded() {
                    let effects = world.domains.receive(world.now, SPEAKERS[usize::from(speaker - b'0')], message);
                    world.perform(effects);
                }
            }
            _ => {}
        }
    }
    world.passes(LATER);
    let mut again = World::start(world.disk.clone(), 2, world.now);
    again.passes(LATER);
    assert_eq!(again.sold(), world.sold(), "what is sold is what is on disk: {:?}", world.disk.keys());
}

/// Conversations about a session from `robot` through this domain to `base`.
pub fn peers() -> Vec<Vec<u8>> {
    let key = |version| Key { first: "robot".into(), session: "tele".into(), version };
    let flow = Flow {
        topic: "video".into(),
        publisher: "cam".into(),
        subscriber: "/viewer".into(),
        domain: "base".into(),
        node: "desk".into(),
        enters: "rw".into(),
        size: 500,
        period: 100_000_000,
        burst: 1,
        before: [(Class::Low, 1_000_000), (Class::High, 1_000_000)].into(),
        scale: 1,
        ..Flow::default()
    };
    let one_class = Flow { before: [(Class::Low, 1_000_000)].into(), bound: Some(200_000_000), ..flow.clone() };
    let request = |version, step| Message::Request { key: key(version), passed: vec!["robot".into()], step };
    let answer = |version, step, said| Message::Answer { key: key(version), step, said };
    let part = Part { domain: "base".into(), pipe: "wb-desk".into(), bound: 1_000_000, price: 3, ..Part::default() };
    let menus = || Said::Menus(vec![Menu::from([(Class::Low, vec![part.clone()])])]);
    let line =
        |speaker: char, message: &Message| format!("{speaker}{}\n", serde_json::to_string(message).unwrap_or_default());
    let quote =
        line('0', &request(1, Step::Quote(vec![flow.clone()]))) + &line('1', &answer(1, StepName::Quote, menus()));
    let hold = line('0', &request(1, Step::Hold(vec![one_class.clone()])))
        + &line('1', &answer(1, StepName::Hold, Said::Done));
    let commit = line('0', &request(1, Step::Commit)) + &line('1', &answer(1, StepName::Commit, Said::Done));
    let stop = line('0', &request(1, Step::Stop)) + &line('1', &answer(1, StepName::Stop, Said::Done));
    let ends_here = Flow { domain: "wan".into(), node: "wb".into(), ..one_class.clone() };
    let own = line('0', &request(2, Step::Hold(vec![ends_here]))) + &line('0', &request(2, Step::Commit));
    let summaries = line('0', &Message::Present(vec![key(1), key(2)]))
        + &line('1', &Message::Unknown(vec![key(1)]))
        + &line('0', &Message::Lost(key(1), "gone".into()));
    let thinned = |number, scales: &[u32]| {
        let sessions = scales.iter().map(|scale| (key(1), vec![*scale])).collect();
        Message::Thinned(Thinned { number, sessions, because: "slow".into() })
    };
    let dropped = Excess { first: "robot".into(), session: "tele".into(), domain: "base".into(), ..Excess::default() };
    let summaries = summaries + &line('1', &Message::Exceeded(vec![dropped]));
    let slow = line('1', &thinned(1, &[3])) + &line('0', &thinned(1, &[2])) + &line('1', &thinned(2, &[]));
    let whole = format!("{quote}{hold}{commit}");
    [
        whole.clone(),
        format!("{whole}t\nt\n{stop}"),
        format!("{quote}{hold}t\n{commit}{own}t\n{summaries}"),
        format!("{own}{summaries}{stop}2{}", &quote[1..]),
        format!("{whole}t\n{slow}t\n{summaries}{slow}{stop}"),
    ]
    .map(String::into_bytes)
    .to_vec()
}
