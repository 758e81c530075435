//! Sessions: on all hosts or on none, permitted and accounted for, and giving way to links.

use super::{BROKER, CONTRACT, Domain, HOSTS, session};
use crate::support::LONG;
use rustix::process::Signal;
use serde_json::Value;
use std::time::Instant;

#[test]
fn a_session_is_active_on_all_hosts_or_on_none() {
    let Some(domain) = Domain::new("sessions of a domain") else { return };
    let before = domain.queues();
    let contract = domain.house.path("plan-contract.toml");
    let _broker = domain.broker_with(&format!("--contract {}", contract.display()));
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("the contract's queues are there", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });
    let without = domain.queues();
    let ask = |name: &str, bytes: u32| {
        let file = domain.house.path(&format!("{name}.toml"));
        std::fs::write(&file, session(name, bytes)).unwrap();
        domain.ask(&format!("session request {} --patience 2s", file.display()))
    };

    let file = domain.house.path("camera.toml");
    std::fs::write(&file, session("camera", 8000)).unwrap();
    let offered = domain.ask(&format!("session request {} --dry-run", file.display())).json();
    assert_eq!(offered["state"], "fits", "{offered}");
    assert_eq!((domain.queues(), domain.ask("session list").json()), (without.clone(), serde_json::json!([])));

    let camera = ask("camera", 8000).json();
    assert_eq!(camera["channels"], offered["channels"], "as it was offered");
    assert_eq!((&camera["state"], &camera["channels"][0]["topic"]), (&"active".into(), &"camera".into()), "{camera}");
    let bound = camera["channels"][0]["bound_us"].as_f64().unwrap();
    assert!(bound > 1000.0 * 8.0 * 8.0 / 10.0 && bound < 60_000.0, "{camera}");
    let with = domain.queues();

    // More than the links can carry beside it: refused with offers, and nothing is touched.
    let refused = ask("lidar", 20_000);
    assert_eq!(refused.code(), 1, "{:?} {}", refused.lines, refused.errors);
    let refused: Value = serde_json::from_str(&refused.lines[0]).unwrap();
    assert!(!refused["refusals"][0]["offers"].as_array().unwrap().is_empty(), "{refused}");
    assert_eq!(domain.queues(), with);

    // A host that does not answer: none has it.
    let [first, second, third] = agents;
    third.signal(Signal::KILL);
    drop(third);
    let late = ask("log", 100);
    assert_eq!(late.code(), 1, "{:?} {}", late.lines, late.errors);
    assert!(late.errors.contains("waits for b") && late.errors.contains("all hosts get back"), "{}", late.errors);
    let third = domain.agent(2);
    domain.until("all have what was before", |domain| HOSTS.iter().all(|host| domain.host(host)["state"] == "applied"));
    assert_eq!(domain.queues(), with);
    let all = domain.ask("session list").json();
    assert_eq!(all.as_array().unwrap().iter().map(|one| &one["session"]).collect::<Vec<_>>(), ["camera"]);

    // One that lasts as long as its command.
    let leased = session("held", 100).replacen('\n', "\nlease = \"2 s\"\n", 1);
    std::fs::write(&file, leased).unwrap();
    let line = format!("session request {} --hold --json --user ann --broker {}", file.display(), BROKER[1]);
    let held = domain.start(1, &line);
    assert_eq!(held.json_line()["state"], "active");
    let listed = domain.ask("session list").json();
    assert!(listed[1]["lease_left_ms"].as_u64().is_some_and(|left| left <= 2000), "{listed}");
    let watch = domain.start(1, &format!("session watch held --json --user ann --broker {}", BROKER[1]));
    assert_eq!(watch.json_line()["session"], "held");
    assert_eq!(held.interrupt().code(), 0);
    assert_eq!(watch.json_line()["state"], "stopped");
    assert_eq!(watch.interrupt().code(), 0);

    domain.ask("session stop camera").json();
    domain.until("the contract's queues are back", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied") && domain.queues() == without
    });
    domain.ask("restore --all").json();
    assert_eq!(domain.queues(), before);
    for agent in [first, second, third] {
        assert_eq!(agent.interrupt().code(), 0);
    }
}

/// A rule of the contract keeps a user from more, and what went through a session is in the accounts.
#[test]
fn a_session_has_what_a_rule_permits_and_is_accounted_for() {
    let Some(domain) = Domain::new("accounts") else { return };
    let rules = "[[rule]]\nname = \"operators\"\nusers = [\"ann\"]\nsessions = 1\n";
    let file = |name: &str, text: &str| {
        std::fs::write(domain.house.path(name), text).unwrap();
        domain.house.path(name).display().to_string()
    };
    let contract = file("system.toml", &format!("{CONTRACT}{rules}"));
    let (camera, map) = (file("camera.toml", &session("camera", 800)), file("map.toml", &session("map", 10)));
    let broker = domain.broker_with(&format!("--contract {contract}"));
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    domain.ask(&format!("session request {camera}")).json();
    let refused = domain.ask(&format!("session request {map}"));
    assert!(refused.code() == 1 && refused.lines[0].contains("rule operators: sessions"), "{refused:?}");

    let _subscriber = domain.program(2, "sub /camera --json");
    let _publisher = domain.program(0, "pub /camera --port /out --rate 50 --size 800");
    let counted = |host: &str| {
        let ends = domain.host(host)["ends"].as_array().cloned().unwrap_or_default();
        let end = ends.into_iter().find(|end| end["topic"] == "camera");
        end.and_then(|end| end["counts"]["samples"].as_u64()).unwrap_or(0)
    };
    domain.until("both ends are counted", |_| counted("a") > 0 && counted("b") > 0);
    let first = (counted("a"), counted("b"));
    domain.until("they go on", |_| counted("a") > first.0 && counted("b") > first.1);
    domain.ask("session stop camera").json();
    let saved = domain.house.path("accounts.jsonl").display().to_string();
    let audit = domain.ask(&format!("audit --save {saved}")).json();
    let had = &audit["sessions"][0];
    assert_eq!((&audit["last"], &had["session"], &had["active"]), (&2.into(), &"camera".into(), &false.into()));
    for side in ["sent", "received"] {
        let Counted { samples, bytes } = Counted::of(&had["traffic"][side]);
        assert!(samples > 0 && bytes == samples * 800, "{audit}");
    }
    drop(broker);
    let head = audit["head"].as_str().unwrap();
    let check = |head: &str| domain.house.run(&format!("audit {saved} --head {head} --json"));
    assert_eq!(check(head).json(), audit, "without a broker");
    let said = |line: &str| domain.house.run(line).lines.last().cloned().unwrap_or_default();
    assert_eq!(
        [format!("audit {saved}"), format!("audit {saved} --head {head}")].map(|line| said(&line)),
        [
            format!("records 1 to 2 fit together; later, --head {head} proves that none of them was changed"),
            "records 1 to 2 fit together, and none from 1 to 2 was changed since its hash was noted".to_owned(),
        ]
    );
    let text = std::fs::read_to_string(&saved).unwrap();
    std::fs::write(&saved, text.replacen("320000", "319999", 1)).unwrap();
    let changed = check(head);
    assert!(changed.code() == 1 && changed.errors.contains("record 1 or 2 was changed"), "{changed:?}");
}

struct Counted {
    samples: u64,
    bytes: u64,
}

impl Counted {
    fn of(counts: &Value) -> Self {
        let number = |key: &str| counts[key].as_u64().unwrap();
        Self { samples: number("samples"), bytes: number("bytes") }
    }
}

/// The camera is thinned while the right link is slow, suspended while it is cut, and as before when it is back.
#[test]
fn a_session_gives_way_while_a_link_is_slow_or_cut() {
    let Some(domain) = Domain::new("links that are slow or cut") else { return };
    domain.plan("patient", &CONTRACT.replace("20 ms", "200 ms"));
    let contract = domain.house.path("patient-contract.toml");
    let _broker = domain.broker_with(&format!("--contract {}", contract.display()));
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("the contract's queues are there", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });
    let without = domain.queues();
    let file = domain.house.path("camera.toml");
    let text = session("camera", 8000).replace("deadline = \"60 ms\"", "deadline = \"900 ms\"\nscale_max = 8");
    std::fs::write(&file, text).unwrap();
    assert_eq!(domain.ask(&format!("session request {}", file.display())).json()["state"], "active");
    let camera = || domain.ask("session show camera").json();
    let subscriber = domain.program(2, "sub /camera --json");
    let _publisher = domain.program(0, "pub /camera --port /out --rate 50 --size 8000");
    // Samples that are one of `every`, twice in a row.
    let arrives = |every: u64| {
        let (until, mut last, mut in_a_row) = (Instant::now() + LONG, 0, 0);
        while in_a_row < 2 {
            let sample = subscriber.json_line();
            let seq = sample["seq"].as_u64().unwrap();
            in_a_row = if seq == last + every { in_a_row + 1 } else { 0 };
            last = seq;
            assert!(Instant::now() < until, "every {every}: {sample} {}", camera());
        }
    };
    arrives(1);
    let with = domain.queues();

    let links = domain.ask("links right --rate 1Mbit/s").json();
    assert_eq!(
        (&links["links"][1]["carries_bits_per_s"], &links["links"][1]["stated"]),
        (&1_000_000.into(), &true.into())
    );
    let every = camera()["channels"][0]["scale"].as_u64().unwrap();
    assert!((2..=8).contains(&every), "{}", camera());
    arrives(every);
    domain.until("the queues are slower", |domain| domain.queues().concat().contains("rate 1Mbit"));

    let began = Instant::now();
    let set = |state| {
        let line = ["link", "set", "dev", "gb", state];
        assert!(domain.row.command(1, "ip").args(line).status().unwrap().success());
    };
    set("down");
    domain.until("the camera is suspended", |_| camera()["state"] == "suspended");
    println!("FIGURE domain: a cut link is seen, and its session suspended, within {:.2?}", began.elapsed());
    let links = domain.ask("links").json();
    assert_eq!((&links["links"][1]["carries_bits_per_s"], &links["left_out"][0]), (&0.into(), &"/state@b".into()));
    assert!(camera()["because"].as_str().unwrap().contains("no way leads to /camera@b: down is right"), "{}", camera());

    set("up");
    domain.ask("links right --clear").json();
    domain.until("the camera is active", |_| camera()["state"] == "active" && camera()["channels"][0]["scale"] == 1);
    arrives(1);
    domain.until("the queues are as before", |domain| domain.queues() == with);
    domain.ask("session stop camera").json();
    domain.until("the contract's queues are back", |domain| domain.queues() == without);

    // A device that is gone keeps the host's other one from nothing, and nobody waits for the host behind it.
    assert!(domain.row.command(1, "ip").args(["link", "delete", "dev", "gb"]).status().unwrap().success());
    domain.until("the link is down", |domain| domain.ask("links").json()["links"][1]["carries_bits_per_s"] == 0);
    let near = domain.house.path("near.toml");
    std::fs::write(&near, session("near", 100).replace("node = \"b\"", "node = \"g\"")).unwrap();
    assert_eq!(domain.ask(&format!("session request {}", near.display())).json()["state"], "active");
    assert!(["a", "g"].iter().all(|host| domain.host(host)["state"] == "applied"), "{:?}", domain.ask("hosts").lines);
}
