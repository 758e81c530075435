//! Three domains in a row, over the simulated network of [`world`]; all states that they can reach ([`model`]); and pipes that shrink ([`thinning`]).

mod model;
mod thinning;
mod world;

use super::*;
use crate::rules::{self, Usage};
use agent::message::{DomainExcess, Exceeded};
use agent::peer::Part;
use qos::Class;
use qos::plan::{Admitted, Limit};
use world::{NAMES, World, session, wanted};

#[test]
fn a_session_is_admitted_by_all_domains_with_the_cheapest_class_that_is_fast_enough() {
    let mut world = World::new(1);
    let key = world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
    assert_eq!(world.sold(), [[80_000.0, 0.0]; 3]);
    let first = world.broker("robot").find("teleop").unwrap().clone();
    let parts: Vec<(String, u64, u64)> = first.menus[0][&Class::High]
        .iter()
        .map(|Part { domain, bound, price, .. }| (domain.clone(), *bound, *price))
        .collect();
    assert_eq!(parts, NAMES.map(|name| (name.to_owned(), 20_000_000, 5)));
    assert_eq!(first.flows[0].bound, Some(60_000_000));
    let channels: Vec<_> = NAMES.iter().map(|name| world.broker(name).channels()).collect();
    assert_eq!(channels.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!((&*channels[0][0].publisher, &*channels[0][0].node), ("cam", "base/desk"));
    assert_eq!((&*channels[2][0].publisher, &*channels[2][0].node), ("robot/cam", "desk"));
    // A slow one takes the cheap pipes.
    let slow = world.request(&session("log", 1000, "1 s")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&slow), Some(&Ok(())));
    assert_eq!(world.sold(), [[80_000.0, 80_000.0]; 3]);
    world.stop("teleop");
    world.stop("log");
    world.wait(1);
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
    world.check("stopped");
}

#[test]
fn a_session_inside_one_domain_has_a_part_of_its_pipe() {
    let mut world = World::new(1);
    let key = world.request(&session("near", 1000, "20 ms").replace("base/desk", "robot/rw")).unwrap();
    assert_eq!(world.said(&key), Some(&Ok(())), "nobody else is asked");
    assert_eq!(world.sold(), [[80_000.0, 0.0], [0.0; 2], [0.0; 2]]);
    let channel = &world.broker("robot").channels()[0];
    assert_eq!((&*channel.publisher, &*channel.node), ("cam", "rw"));
    world.stop("near");
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
}

#[test]
fn what_one_domain_refuses_leaves_nothing_behind_in_any() {
    let mut world = World::new(1);
    // Two fit into the fast pipes, and a third one into none.
    for name in ["one", "two"] {
        let key = world.request(&session(name, 1000, "100 ms")).unwrap();
        world.wait(1);
        assert_eq!(world.said(&key), Some(&Ok(())));
    }
    let before = world.sold();
    let late = world.request(&session("late", 1000, "100 ms")).unwrap();
    world.wait(1);
    let refused = world.said(&late).unwrap().clone().unwrap_err();
    assert_eq!((&*refused.what, &*refused.needs, &*refused.has), ("deadline of /late@desk", "180 ms", "100 ms"));
    // The last domain has no such node.
    let nowhere = world.request(&session("three", 10, "1 s").replace("base/desk", "base/moon")).unwrap();
    world.wait(1);
    let refused = world.said(&nowhere).unwrap().clone().unwrap_err();
    assert_eq!((&*refused.domain, &*refused.what), ("base", "node moon of domain base"));
    assert_eq!(world.sold(), before);
    world.check("refused");
}

#[test]
fn a_domain_has_no_more_from_another_than_its_rules_permit() {
    let mut world = World::new(1);
    world
        .rules
        .insert("base", "[[rule]]\nname = \"yard\"\ndomains = [\"robot\"]\nsessions = 2\nrate = \"150 kbit/s\"\n");
    world.start("base");
    let mut asked = |name: &str, size| {
        let key = world.request(&session(name, size, "1 s")).unwrap();
        world.wait(1);
        world.said(&key).unwrap().clone()
    };
    assert_eq!((asked("one", 900), asked("two", 900)), (Ok(()), Ok(())));
    let third = asked("three", 100).unwrap_err();
    assert_eq!((&*third.domain, &*third.what, &*third.needs), ("base", "rule yard: sessions in domain base", "3"));
    // One that is changed counts once.
    assert_eq!(asked("two", 950), Ok(()));
    assert_eq!(asked("two", 1000).unwrap_err().what, "rule yard: rate in domain base");
    assert_eq!(world.sold(), [[0.0, 148_000.0]; 3]);
    assert_eq!(world.broker("robot").usage("ann", Some("one")), Usage { sessions: 1, rate: 76_000 });
    // A broker that starts again counts those that it had.
    world.start("base");
    world.wait(1);
    let again = world.request(&session("three", 100, "1 s")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&again).unwrap().clone().unwrap_err().what, "rule yard: sessions in domain base");
    world.stop("one");
    world.wait(1);
    let after = world.request(&session("three", 100, "1 s")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&after), Some(&Ok(())));
    let thinned = session("two", 1000, "1 s").replace("deadline", "scale = 2\ndeadline");
    let key = world.request(&thinned).unwrap();
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
    let sold = world.sold()[2][1];
    let of_base = world.broker("base").kept();
    let rates: Vec<u64> = of_base.iter().map(|one| rules::rate_of(&one.flows)).collect();
    assert_eq!(rates, [8_000, 40_000], "100 B at 10 Hz, and half of 1 kB");
    assert_eq!(sold, 48_000.0);
    world.rules.insert("base", "[[rule]]\nname = \"wan\"\ndomains = [\"wan\"]\n");
    world.start("base");
    let other = world.request(&session("four", 100, "1 s")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&other).unwrap().clone().unwrap_err().needs, "a rule for domain robot");
}

/// Where packets of no session are kept out, sessions are told by the addresses of their hosts.
#[test]
fn a_border_lets_in_what_is_admitted_by_the_addresses_of_its_hosts() {
    let mut world = World::new(1);
    world.changed.insert("wan", ["broker = \"h:1\"", "broker = \"h:1\"\ndevice = \"last\""]);
    world.start("wan");
    let ask = |world: &mut World, source: Option<&str>| {
        let mut wanted = wanted(&session("teleop", 1000, "100 ms"));
        wanted.flows[0].source = source.map(|address| address.parse().unwrap());
        let key = world.ask(wanted).unwrap();
        world.wait(1);
        (world.said(&key).unwrap().clone(), key)
    };
    let from = Some("10.97.0.1");
    assert_eq!(ask(&mut world, None).0.unwrap_err().what, "address of node cam for domain wan");
    assert_eq!(ask(&mut world, from).0.unwrap_err().what, "address of node desk for domain wan");
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
    world.changed.insert("base", ["name = \"desk\"", "name = \"desk\"\naddress = \"10.97.2.2\""]);
    world.start("base");
    assert_eq!(ask(&mut world, Some("fd00::1")).0.unwrap_err().needs, "an address of the publisher's IP version");
    let (said, key) = ask(&mut world, from);
    assert_eq!(said, Ok(()));
    // 1000 B and the headers of one packet each 100 ms, up to 20 ms late by the domain before. And 40 small packets a second, which come as late.
    let limit = Limit {
        rate_bits_per_s: 126_048,
        burst_bytes: 1_335 + 6 * 112,
        packets_per_hour: 218_160,
        packets: 4 + 6,
        packet_bytes: 1_572,
    };
    let expected = Admitted {
        session: "robot/teleop".into(),
        neighbour: "robot".into(),
        class: Class::High,
        source: "10.97.0.1".parse().unwrap(),
        destination: "10.97.2.2".parse().unwrap(),
        limit: Some(limit),
    };
    let admitted = |world: &mut World| NAMES.map(|name| world.broker(name).admitted_of(&key));
    assert_eq!(admitted(&mut world), [vec![], vec![expected.clone()], vec![]], "the others let in all");
    // A broker that starts again knows it.
    world.start("wan");
    world.wait(1);
    assert_eq!(admitted(&mut world), [vec![], vec![expected], vec![]]);
    world.stop("teleop");
    world.wait(1);
    assert_eq!(admitted(&mut world), [vec![], vec![], vec![]]);
    world.check("stopped");
}

/// Its agent gives the publisher the limit that the pipe's part is for; nobody else has its program.
#[test]
fn the_publisher_s_own_domain_polices_a_session_that_asks_for_it() {
    let mut world = World::new(1);
    let text = session("teleop", 1000, "100 ms");
    let policed = text.replace("publisher", "jitter = \"25 ms\"\nburst = 2\npolice = true\npublisher");
    for (text, expected) in [(text, None), (policed, Some("10Hz/2.25/1000B"))] {
        let key = world.request(&text).unwrap();
        world.wait(1);
        assert_eq!(world.said(&key), Some(&Ok(())));
        let police = |world: &mut World, name: &str| {
            world.broker(name).channels_of(&key).first().and_then(|channel| channel.police.clone())
        };
        assert_eq!((police(&mut world, "robot").as_deref(), police(&mut world, "base")), (expected, None));
    }
}

/// Borders of `wan` and `base` have dropped some of it: `robot`, where it was asked for, hears of both by `wan`.
#[test]
fn what_borders_have_dropped_of_a_session_is_known_where_it_was_asked_for() {
    let mut world = World::new(1);
    let key = world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    let now = world.now;
    let dropped = |names: &str, packets| Exceeded {
        session: names.into(),
        device: "last".into(),
        class: Class::High,
        packets,
        bytes: 100 * packets,
    };
    let tell = |world: &mut World, from: &str, to: &str, all: &[Exceeded]| {
        for effect in world.broker(from).tell_excess(now, all) {
            match effect {
                Effect::Send(neighbour, message) if neighbour == to => {
                    assert_eq!(world.broker(to).receive(now, from, message), []);
                }
                other => panic!("{other:?}"),
            }
        }
    };
    tell(&mut world, "base", "wan", &[dropped("robot/teleop, robot/other", 3), dropped("robot/other", 9)]);
    let at_wan = [dropped("robot/teleop", 5), dropped("robot/teleop", 2), dropped("strange", 1)];
    tell(&mut world, "wan", "robot", &at_wan);
    let found = |world: &mut World, after| world.broker("robot").excess_of(now + Duration::from_secs(after), &key);
    let expected = |domain: &str, packets, shared| {
        let (domain, class, bytes) = (domain.into(), Class::High, 100 * packets);
        DomainExcess { domain, class, packets, bytes, shared }
    };
    assert_eq!(found(&mut world, 0), [expected("wan", 7, false), expected("base", 3, true)]);
    assert_eq!(found(&mut world, 34).len(), 2);
    assert_eq!(found(&mut world, 35), [], "nobody tells it any more");
    assert_eq!(world.broker("robot").tell_excess(now, &[]), [], "it comes from nobody");
    // A neighbour says nothing of sessions that do not go to it, nor of the borders of who hears it.
    let lie = |session: &str, domain: &str| {
        let (first, session, domain) = ("robot".into(), session.into(), domain.into());
        agent::peer::Excess { first, session, domain, ..Default::default() }
    };
    let lies = Message::Exceeded(vec![lie("near", "wan"), lie("teleop", "robot")]);
    world.broker("robot").receive(now, "wan", lies);
    assert_eq!(found(&mut world, 0), [], "and its last message counts");
    let near = Key { session: "near".into(), ..key.clone() };
    assert_eq!(world.broker("robot").excess_of(now, &near), []);
}

/// A rule for all domains is one for each: `wan` makes up none that is not behind it.
#[test]
fn a_neighbour_speaks_for_no_domain_that_is_not_behind_it() {
    let mut world = World::new(1);
    world.rules.insert("base", "[[rule]]\nname = \"each\"\ndomains = [\"*\"]\nsessions = 1\n");
    world.start("base");
    let key = world.request(&session("one", 100, "1 s")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
    let base = world.broker("base").kept().remove(0);
    let mut ask = |first: &str, session: &str, step: fn(Vec<Flow>) -> Step| {
        let key = Key { first: first.into(), session: session.into(), version: 1 };
        let passed = if first == "wan" { vec!["wan".to_owned()] } else { vec![first.to_owned(), "wan".to_owned()] };
        let flows = base.flows.iter().map(|flow| Flow { topic: session.into(), ..flow.clone() }).collect();
        let now = world.now;
        let effects = world.broker("base").receive(now, "wan", Message::Request { key, passed, step: step(flows) });
        let said = effects.into_iter().find_map(|effect| match effect {
            Effect::Send(_, Message::Answer { said, .. }) => Some(said),
            _ => None,
        });
        match said {
            Some(Said::Refused(why)) => Err(why.because),
            other => Ok(other.is_some()),
        }
    };
    let (quote, hold) = (Step::Quote as fn(_) -> _, Step::Hold as fn(_) -> _);
    assert!(ask("moon", "two", hold).is_err_and(|why| why.contains("not reached through its sender")));
    assert!(ask("robot", "two", hold).is_err_and(|why| why.contains("has 1 session")));
    // Its own share is another one.
    assert_eq!((ask("wan", "three", quote), ask("wan", "four", quote)), (Ok(true), Ok(true)));
    assert_eq!(ask("wan", "three", hold), Ok(true));
    assert!(ask("wan", "four", hold).is_err());
}

/// Two questions are under way in `wan` at once, which permits one session.
#[test]
fn questions_of_a_neighbour_use_up_nothing_of_what_a_rule_permits() {
    let mut world = World::new(1);
    world.rules.insert("wan", "[[rule]]\nname = \"one\"\ndomains = [\"robot\"]\nsessions = 1\n");
    world.start("wan");
    let keys = ["one", "two"].map(|name| {
        let (now, mut asked) = (world.now, wanted(&session(name, 100, "1 s")));
        asked.asker.dry_run = true;
        let (key, effects) = world.broker("robot").request(now, asked).unwrap();
        world.perform("robot", effects);
        key
    });
    world.wait(1);
    assert_eq!(keys.map(|key| world.said(&key).cloned()), [Some(Ok(())), Some(Ok(()))]);
    let real = ["one", "two"].map(|name| world.request(&session(name, 100, "1 s")).unwrap());
    world.wait(1);
    assert_eq!(real.map(|key| world.said(&key).unwrap().is_ok()), [true, false]);
}

#[test]
fn a_session_whose_pipe_closes_is_lost_in_all_domains_at_once() {
    for (closes, pipe) in [("robot", "cam-rw-high"), ("wan", "rw-wb-high"), ("base", "wb-desk-high")] {
        let mut world = World::new(1);
        for (name, deadline) in [("teleop", "100 ms"), ("log", "1 s")] {
            world.request(&session(name, 1000, deadline)).unwrap();
            world.wait(1);
        }
        assert_eq!(world.sold(), [[80_000.0; 2]; 3]);
        let close = |world: &mut World, names: &[String]| {
            let now = world.now;
            let effects = world.broker(closes).close_pipes(now, names, "link air is down");
            effects.into_iter().for_each(|effects| world.perform(closes, effects));
            world.wait(1);
        };
        close(&mut world, &[pipe.to_owned()]);
        assert_eq!(world.sold(), [[0.0, 80_000.0]; 3], "{closes}: the other session stays");
        let lost = world.broker("robot").find("teleop").unwrap().shown(0).because.unwrap();
        assert_eq!(lost, format!("domain {closes}: link air is down: ask for it again"));
        // Nothing more goes through it; the other class would be too slow.
        let again = world.request(&session("again", 1000, "100 ms")).unwrap();
        world.wait(1);
        let refused = world.said(&again).unwrap().clone().unwrap_err();
        assert_eq!((&*refused.domain, refused.has.as_str()), ("base", "100 ms"), "{closes}: {refused:?}");
        close(&mut world, &[]);
        let back = world.request(&session("back", 1000, "100 ms")).unwrap();
        world.wait(1);
        assert_eq!(world.said(&back), Some(&Ok(())), "{closes}");
        world.stop("teleop");
        world.wait(1);
        world.check(closes);
    }
}

#[test]
fn a_dry_run_holds_nothing() {
    let mut world = World::new(1);
    let now = world.now;
    let mut asked = wanted(&session("teleop", 1000, "100 ms"));
    asked.asker.dry_run = true;
    let (key, effects) = world.broker("robot").request(now, asked).unwrap();
    world.perform("robot", effects);
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
    let fits = world.broker("robot").forget(&key).unwrap();
    assert_eq!(fits.flows[0].bound, Some(60_000_000));
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
    world.check("dry run");
}

#[test]
fn a_change_that_does_not_fit_leaves_the_session_as_it_was() {
    let mut world = World::new(1);
    let first = world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    let second = world.request(&session("teleop", 800, "100 ms")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&second), Some(&Ok(())));
    assert_eq!(world.versions("teleop")[2], [second.version]);
    assert_eq!(world.sold(), [[64_000.0, 0.0]; 3]);
    assert!(world.said(&first).unwrap().is_ok());
    let third = world.request(&session("teleop", 800, "10 ms")).unwrap();
    world.wait(1);
    assert!(world.said(&third).unwrap().is_err());
    assert_eq!(world.versions("teleop")[0], [second.version]);
    world.check("changed");
}

#[test]
fn a_neighbour_that_is_away_is_told_of_a_stop_when_it_is_back() {
    let mut world = World::new(1);
    world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    world.lossy = Some((100, 0));
    world.stop("teleop");
    let second = world.request(&session("other", 1000, "100 ms")).unwrap();
    world.wait(60);
    let refused = world.said(&second).unwrap().clone().unwrap_err();
    assert!(refused.because.contains("did not answer within 3s"), "{refused:?}");
    assert_eq!(world.sold(), [[0.0, 0.0], [80_000.0, 0.0], [80_000.0, 0.0]]);
    world.lossy = None;
    world.wait(10);
    world.check("back");
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
}

#[test]
fn a_first_domain_that_is_gone_for_good_loses_its_sessions_after_a_while() {
    let mut world = World::new(1);
    world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    world.lossy = Some((100, 0));
    world.wait(GRACE.as_secs() - 60);
    assert_eq!(world.sold()[1], [80_000.0, 0.0]);
    world.wait(70);
    // Nobody heard anything: each ends its part by itself, and the first one says why.
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
    let first = world.broker("robot").find("teleop").unwrap();
    assert!(first.because.as_ref().is_some_and(|because| because.contains("wan was not heard")), "{first:?}");
    world.lossy = None;
    world.disks.remove("robot");
    world.start("robot");
    world.wait(60);
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
    world.check("gone");
}

#[test]
fn a_domain_that_lost_its_disk_is_found_out_at_both_ends() {
    for lost in NAMES {
        let mut world = World::new(1);
        world.request(&session("teleop", 1000, "100 ms")).unwrap();
        world.wait(40);
        world.disks.remove(lost);
        world.start(lost);
        world.wait(60);
        assert_eq!(world.sold(), [[0.0; 2]; 3], "{lost}");
        if lost != "robot" {
            let told = world.broker("robot").find("teleop").unwrap().clone();
            assert!(told.phase == Phase::Lost && told.because.unwrap().contains("has lost it"), "{lost}");
            world.stop("teleop");
            world.wait(1);
        }
        world.check(lost);
    }
}

/// Each broker dies before each of its effects: while a session is asked for, changed, and stopped.
#[test]
fn a_crash_at_any_point_leaves_a_session_in_all_domains_or_in_none() {
    let mut points = 0;
    for dies in NAMES {
        for at in 1..200 {
            let mut world = World::new(at);
            world.crash = Some((dies, at));
            let context = format!("{dies} dies at {at}");
            let first = world.request(&session("teleop", 1000, "100 ms"));
            world.wait(60);
            world.check(&format!("{context}, asked for"));
            let active = first.as_ref().is_some_and(|key| world.said(key) == Some(&Ok(())));
            if active {
                assert_eq!(world.versions("teleop")[2].len(), 1, "{context}: it was told to be active");
            }
            let second = world.request(&session("teleop", 900, "100 ms"));
            world.wait(60);
            world.check(&format!("{context}, changed"));
            if let Some(key) = second.filter(|key| world.said(key) == Some(&Ok(()))) {
                assert_eq!(world.versions("teleop")[1], [key.version], "{context}: it was told to be changed");
            } else if active {
                assert_eq!(world.versions("teleop")[1].len(), 1, "{context}: what was active is no more");
            }
            world.stop("teleop");
            world.wait(60);
            world.check(&format!("{context}, stopped"));
            if world.crash.is_some() {
                break; // it has not so many effects
            }
            points += 1;
        }
    }
    assert!(points > 100, "{points} points only");
    println!("{points} points");
}

/// Many sessions over a network that loses, doubles and reorders, with brokers that die at any time.
#[test]
fn random_schedules_with_losses_and_crashes_leave_no_session_in_some_domains() {
    let (mut admitted, mut crashes) = (0_u32, 0_u32);
    for seed in 0..1000 {
        let mut world = World::new(seed);
        (world.lossy, world.failing) = (Some((20, 10)), 3);
        let mut active: BTreeMap<String, Key> = BTreeMap::new();
        for _ in 0..30 {
            let name = ["one", "two", "three", "four"][world.dice.below(4) as usize];
            match world.dice.below(5) {
                0 => {
                    world.stop(name);
                    active.remove(name);
                }
                1 => {
                    let who = NAMES[world.dice.below(3) as usize];
                    let later = world.dice.below(20);
                    world.crash = Some((who, world.effects.get(who).copied().unwrap_or_default() + later));
                }
                _ => {
                    let size = 100 + world.dice.below(900);
                    let deadline = ["100 ms", "1 s"][world.dice.below(2) as usize];
                    if let Some(key) = world.request(&session(name, size, deadline)) {
                        active.insert(name.to_owned(), key);
                    }
                }
            }
            let pause = world.dice.below(4);
            world.wait(pause);
            for broker in world.brokers.values() {
                for (pipe, sold) in broker.ledger.pipes() {
                    assert!(
                        sold.rate <= pipe.whole.rate && sold.burst <= pipe.whole.burst,
                        "seed {seed}: {}",
                        pipe.name
                    );
                }
            }
        }
        (world.lossy, world.crash, world.failing) = (None, None, 0);
        crashes += world.crashes;
        world.wait(120);
        world.check(&format!("seed {seed}"));
        for key in active.values().filter(|key| world.said(key) == Some(&Ok(()))) {
            assert_eq!(
                world.versions(&key.session)[2].len(),
                1,
                "seed {seed}: {key} was active, and nobody stopped it"
            );
            admitted += 1;
        }
    }
    assert!(admitted > 1000 && crashes > 1000, "{admitted} sessions, {crashes} crashes");
    println!("{admitted} sessions active in the end, {crashes} crashes");
}

/// What is not on disk yet is not told, however often the domain before asks.
#[test]
fn a_commit_that_is_not_written_is_answered_by_nobody() {
    let mut world = World::new(1);
    let key = world.request(&session("teleop", 1000, "100 ms")).unwrap();
    let commit = |message: &Message| matches!(message, Message::Request { step: Step::Commit, .. });
    // Until the last domain is asked to commit.
    while !world.net.iter().any(|(_, to, message)| to == "base" && commit(message)) {
        let (from, to, message) = world.net.pop_front().unwrap();
        let (now, name) = (world.now, NAMES.into_iter().find(|name| *name == to).unwrap());
        let effects = world.broker(name).receive(now, from, message);
        world.perform(name, effects);
    }
    let (from, _, message) = world.net.pop_front().unwrap();
    let now = world.now;
    let first = world.broker("base").receive(now, from, message.clone());
    assert!(matches!(first[0], Effect::Keep(_)), "{first:?}");
    let again = world.broker("base").receive(now, from, message);
    assert!(again.is_empty(), "before it is written: {again:?}");
    world.perform("base", first);
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
}

/// A change that a disk does not take leaves the former version, in all domains: also if it is the last write of all.
#[test]
fn a_change_that_cannot_be_kept_leaves_the_session_as_it_was() {
    for (fails, from) in [("robot", None), ("robot", Some(Phase::Starting)), ("wan", None), ("base", None)] {
        let mut world = World::new(1);
        let first = world.request(&session("teleop", 1000, "100 ms")).unwrap();
        world.wait(1);
        let second = world.request(&session("teleop", 800, "100 ms")).unwrap();
        // The disk of one domain is full until the change has come to nothing.
        while let Some((from_whom, to, message)) = world.net.pop_front() {
            let (now, name) = (world.now, NAMES.into_iter().find(|name| *name == to).unwrap());
            let phase = world.broker(name).crossings.get(&second).map(|one| one.phase);
            let effects = world.broker(name).receive(now, from_whom, message);
            world.failing = if name == fails && (from.is_none() || phase == from) { 100 } else { 0 };
            world.perform(name, effects);
        }
        world.failing = 0;
        world.wait(60);
        assert!(world.said(&second).unwrap().is_err(), "{fails}, {from:?}");
        assert_eq!(
            world.versions("teleop"),
            [vec![first.version], vec![first.version], vec![first.version]],
            "{fails}"
        );
        world.check(fails);
    }
}

/// A question whose answer nobody takes does not keep its name busy.
#[test]
fn a_dry_run_that_is_given_up_is_forgotten() {
    let mut world = World::new(1);
    let now = world.now;
    let mut asked = wanted(&session("teleop", 1000, "100 ms"));
    asked.asker.dry_run = true;
    let (_, effects) = world.broker("robot").request(now, asked).unwrap();
    world.perform("robot", effects);
    world.wait(1);
    assert!(world.broker("robot").find("teleop").is_none(), "it is no session");
    world.wait(5);
    world.check("given up");
    let key = world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    assert_eq!(world.said(&key), Some(&Ok(())));
}

#[test]
fn nobody_asks_in_another_s_name() {
    let mut world = World::new(1);
    world.request(&session("teleop", 1000, "100 ms")).unwrap();
    world.wait(1);
    let key = world.broker("robot").find("teleop").unwrap().key.clone();
    let request = |passed: &[&str], step| Message::Request {
        key: key.clone(),
        passed: passed.iter().map(|name| (*name).to_owned()).collect(),
        step,
    };
    let forged = [
        ("base", request(&["robot"], Step::Stop)),         // base says that robot asks
        ("base", request(&["robot", "base"], Step::Stop)), // base says that it stands between
        ("moon", request(&["robot"], Step::Stop)),         // no neighbour
        ("robot", request(&["robot", "wan", "robot"], Step::Stop)), // in a ring
    ];
    for (from, message) in forged {
        let now = world.now;
        let effects = world.broker("wan").receive(now, from, message.clone());
        world.perform("wan", effects.into_iter().filter(|effect| !matches!(effect, Effect::Send(..))).collect());
        assert_eq!(world.sold(), [[80_000.0, 0.0]; 3], "{from}: {message:?}");
    }
}

#[test]
fn a_disk_that_takes_nothing_admits_nothing() {
    let mut world = World::new(1);
    let now = world.now;
    let (key, effects) = world.broker("robot").request(now, wanted(&session("teleop", 1000, "100 ms"))).unwrap();
    world.perform("robot", effects);
    // All but the disk of the first domain.
    for _ in 0..20 {
        let Some((from, to, message)) = world.net.pop_front() else { break };
        let name = NAMES.into_iter().find(|name| *name == to).unwrap();
        let effects = world.broker(name).receive(now, from, message);
        let full = name == "robot" && effects.iter().any(|effect| matches!(effect, Effect::Keep(_)));
        let effects = if full {
            world.broker("robot").changes();
            world.broker("robot").unwritten([key.clone()]);
            world.broker("robot").unkept(now, &key).unwrap()
        } else {
            effects
        };
        world.perform(name, effects);
    }
    world.wait(20);
    assert!(world.said(&key).unwrap().clone().unwrap_err().because.contains("disk"));
    assert_eq!(world.sold(), [[0.0; 2]; 3]);
}
