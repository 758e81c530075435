//! Pipes that are smaller for a while, in one of three domains or in several.

use super::world::{Dice, NAMES, World, session};
use super::*;
use proptest::prelude::*;
use qos::admission::Bucket;

/// The fast pipe of each domain.
const PIPES: [&str; 3] = ["cam-rw-high", "rw-wb-high", "wb-desk-high"];

/// 80 kbit/s, of which one of `most` samples is enough.
fn thinnable(name: &str, importance: i64, most: u32) -> String {
    let text = session(name, 1000, "100 ms").replace("[[topic]]", &format!("importance = {importance}\n[[topic]]"));
    text.replace("deadline", &format!("scale_max = {most}\ndeadline"))
}

impl World {
    fn admit(&mut self, text: &str) -> Key {
        let key = self.request(text).unwrap();
        self.wait(1);
        assert_eq!(self.said(&key), Some(&Ok(())));
        key
    }

    /// The fast pipe of a domain has this rate now; `None`: that of the contract.
    fn resize(&mut self, domain: usize, rate: Option<f64>) {
        let sizes = rate.map(|rate| (PIPES[domain].to_owned(), Bucket { burst: 20_000, rate }));
        self.sizes.insert(NAMES[domain], sizes.into_iter().collect());
        self.resized(NAMES[domain]);
    }

    /// The ratio that the agents of a domain's hosts are told for a session.
    fn told_scale(&self, domain: &str, session: &str) -> u32 {
        let channels = self.brokers[domain].channels();
        channels.iter().find(|channel| channel.topic == session).map_or(0, |channel| channel.scale)
    }

    /// What the pipes of all domains have room for together.
    fn room(&self, session: &str) -> u32 {
        let of = |name: &&str| {
            let broker = &self.brokers[*name];
            let key = broker.crossings.keys().find(|key| key.session == session);
            key.and_then(|key| broker.ledger.scales(key).first().copied()).unwrap_or(0)
        };
        NAMES.iter().map(of).max().unwrap_or(0)
    }
}

#[test]
fn a_smaller_pipe_anywhere_thins_the_least_important_session_at_its_publisher() {
    for (domain, name) in NAMES.iter().enumerate() {
        let mut world = World::new(1);
        ["top", "low"]
            .iter()
            .zip([9, 1])
            .for_each(|(name, importance)| drop(world.admit(&thinnable(name, importance, 4))));
        let told =
            |world: &World| ["robot", "base"].map(|end| ["top", "low"].map(|session| world.told_scale(end, session)));
        world.resize(domain, Some(120_000.0));
        world.wait(1);
        assert_eq!(told(&world), [[1, 2]; 2], "{name}");
        assert_eq!(world.sold(), [[160_000.0, 0.0]; 3], "what is sold stays sold");
        let shown = world.broker("robot").find("low").unwrap().shown(0);
        assert_eq!(shown.state, agent::message::SessionState::Active);
        assert_eq!(shown.because.as_deref(), Some("/low@desk gets one of 2 samples: air is slow"), "{name}");
        assert_eq!(world.broker("robot").find("top").unwrap().shown(0).because, None);
        world.check(name);
        // Other domains have room for the other half, and sell no more: it is theirs again soon.
        world.resize(domain, Some(60_000.0));
        world.wait(1);
        assert_eq!(told(&world), [[2, 4]; 2], "{name}");
        world.resize(domain, None);
        world.wait(1);
        assert_eq!(told(&world), [[1, 1]; 2], "{name}");
        assert_eq!(world.broker("robot").find("low").unwrap().shown(0).because, None);
        world.check(name);
        // Nothing is left to be told.
        world.wait(60);
        assert!(world.brokers.values().all(|broker| broker.tellings.is_empty()), "{name}");
    }
}

#[test]
fn a_session_without_room_however_thinned_is_lost_with_an_offer() {
    let mut world = World::new(1);
    ["top", "low"].iter().zip([9, 1]).for_each(|(name, importance)| drop(world.admit(&thinnable(name, importance, 2))));
    world.resize(1, Some(60_000.0));
    world.wait(1);
    let because = world.broker("robot").find("low").unwrap().shown(0).because.unwrap();
    assert_eq!(
        because,
        "domain wan: air is slow: what is at least as important takes it; with scale_max = 4 it would have stayed"
    );
    assert_eq!((world.told_scale("base", "top"), world.sold()), (2, [[80_000.0, 0.0]; 3]));
    world.stop("low");
    world.wait(1);
    // With what was offered it is admitted as soon as the pipe is as before, and stays the next time.
    world.resize(1, None);
    world.wait(1);
    world.admit(&thinnable("low", 1, 4));
    world.resize(1, Some(60_000.0));
    world.wait(1);
    assert_eq!(["top", "low"].map(|session| world.told_scale("base", session)), [2, 4]);
    world.check("offered");
}

#[test]
fn a_broker_that_starts_again_goes_on_with_what_was_decided() {
    for again in NAMES {
        let mut world = World::new(1);
        world.admit(&thinnable("low", 1, 4));
        world.resize(1, Some(40_000.0));
        world.wait(1);
        world.start(again);
        assert_eq!(
            ["robot", "base"].map(|end| world.told_scale(end, "low")),
            [2; 2],
            "{again}: never whole in between"
        );
        world.wait(60);
        assert_eq!(["robot", "base"].map(|end| world.told_scale(end, "low")), [2; 2], "{again}");
        world.check(again);
        // The pipe grows while nobody hears of it.
        world.lossy = Some((100, 0));
        world.resize(1, None);
        world.wait(5);
        world.start("wan");
        world.lossy = None;
        world.wait(60);
        assert_eq!(["robot", "base"].map(|end| world.told_scale(end, "low")), [1; 2], "{again}");
        world.check(again);
    }
}

#[test]
fn no_neighbour_thins_a_session_further_than_it_admits() {
    let mut world = World::new(1);
    let key = world.admit(&thinnable("low", 1, 4));
    let mut tell = |number, scales: Vec<u32>| {
        let now = world.now;
        let thinned = agent::peer::Thinned { number, sessions: vec![(key.clone(), scales)], because: "a lie".into() };
        let effects = world.broker("robot").receive(now, "wan", Message::Thinned(thinned));
        world.perform("robot", effects);
        world.told_scale("robot", "low")
    };
    assert_eq!([tell(1 << 60, vec![1000]), tell((1 << 60) + 1, vec![3; 64])], [4, 3]);
    assert_eq!(tell(7, vec![1]), 3, "an earlier message that comes late");
    assert_eq!(tell((1 << 60) + 2, Vec::new()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Pipes of all domains shrink and grow over a network that loses, doubles and reorders, and brokers start again. In the end each session gets
    /// what all domains have room for, and both ends know it.
    #[test]
    fn all_domains_agree_in_the_end(seed in any::<u64>()) {
        let mut world = World::new(seed);
        let names = ["one", "two"];
        let mut dice = Dice::new(seed);
        for name in names {
            let (importance, most) = (dice.below(3) as i64, 2 + dice.below(6) as u32);
            world.admit(&thinnable(name, importance, most));
        }
        world.lossy = Some((30, 20));
        for _ in 0..12 {
            let domain = dice.below(3) as usize;
            match dice.below(5) {
                0 => world.start(NAMES[domain]),
                1 => world.resize(domain, None),
                // No less than both need at least: nobody is lost.
                _ => world.resize(domain, Some(80_000.0 + dice.below(100) as f64 * 1e3)),
            }
            world.wait(dice.below(15));
        }
        world.lossy = None;
        world.wait(70);
        for name in names {
            let room = world.room(name);
            prop_assert!(room > 0, "{} is lost", name);
            prop_assert_eq!(["robot", "base"].map(|end| world.told_scale(end, name)), [room; 2], "{}", name);
        }
        world.check("agreed");
        (0..3).for_each(|domain| world.resize(domain, None));
        world.wait(70);
        for name in names {
            prop_assert_eq!(["robot", "base"].map(|end| world.told_scale(end, name)), [1; 2], "{}", name);
        }
        world.check("back");
    }
}
