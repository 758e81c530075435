//! Plans: on all their hosts or on none, kept there, and followed by channels.

use super::{BROKER, CONTRACT, Domain, HOSTS};
use crate::support::{LONG, Running};
use rustix::process::Signal;
use std::time::Instant;

#[test]
fn a_plan_is_on_all_its_hosts_or_on_none() {
    let Some(domain) = Domain::new("a plan on all hosts") else { return };
    let before = domain.queues();
    let _broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));

    let applied = domain.apply("plan.toml").json();
    assert_eq!(applied["hosts"].as_array().unwrap().len(), 3, "{applied}");
    assert_eq!(domain.ours(), [true; 4]);
    let installed = domain.queues();

    // One of them cannot: all get back what they had.
    let refused = domain.apply("other.toml");
    assert_eq!(refused.code(), 1, "{:?}", refused.lines);
    assert!(refused.errors.contains("b refused") && refused.errors.contains("nothing"), "{}", refused.errors);
    domain.until("all have the former plan", |domain| HOSTS.iter().all(|host| domain.host(host)["state"] == "applied"));
    assert_eq!(domain.queues(), installed);

    // A queue of a channel's own is counted by its name.
    let own = CONTRACT.replace("publisher = \"a\"\n", "publisher = \"a\"\nown_queue = true\n");
    domain.plan("own", &own.replace("20 ms", "60 ms"));
    assert_eq!(domain.apply("own.toml").code(), 0);
    domain.until("the own queue is counted", |domain| {
        let queues = domain.host("a")["queues"].as_array().cloned().unwrap_or_default();
        queues.iter().any(|queue| queue["own"]["topic"] == "state" && queue["own"]["subscriber"] == "/state@b")
    });
    let shown = domain.ask("hosts --queues");
    assert!(shown.code() == 0 && shown.lines.concat().contains("\"own\""), "{:?}", shown.lines);

    // A host that the plan leaves out gets back its former queues.
    assert_eq!(domain.apply("half.toml").code(), 0);
    domain.until("two devices have queues", |domain| domain.ours() == [true, true, false, false]);

    let restored = domain.ask("restore --all").json();
    assert_eq!(restored["hosts"].as_array().unwrap().len(), 2, "{restored}");
    assert_eq!(domain.queues(), before);
    for agent in agents {
        assert_eq!(agent.interrupt().code(), 0);
    }
}

#[test]
fn what_somebody_changes_is_changed_back_and_a_crash_changes_nothing() {
    let Some(domain) = Domain::new("an agent looks after its queues") else { return };
    let broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    assert_eq!(domain.apply("plan.toml").code(), 0);
    let installed = domain.queues();

    let tc = |line: &str| {
        let done = domain.row.command(0, "tc").args(line.split_whitespace()).output();
        done.is_ok_and(|done| done.status.success())
    };
    assert!(tc("qdisc del dev eth root"));
    domain.until("it is made anew", |domain| domain.queues() == installed);
    domain.until("it is reported", |domain| domain.host("a")["repairs"].as_u64().is_some_and(|repairs| repairs > 0));

    // The broker dies and starts again: traffic and queues do not notice, agents hear and report.
    broker.signal(Signal::KILL);
    drop(broker);
    assert_eq!(domain.queues(), installed);
    let _broker = domain.broker();
    domain.until("the broker knows them again", |domain| {
        HOSTS.iter().all(|host| domain.host(host)["state"] == "applied")
    });

    // An agent dies and starts again, beside a broker that is away.
    let [first, ..] = &agents;
    first.signal(Signal::KILL);
    let again = domain.agent(0);
    let said = again.json_line();
    assert_eq!(said["installed"][0], "eth", "{said}");
    assert_eq!(domain.queues(), installed);

    domain.ask("restore --all").json();
    assert!(!domain.ours().contains(&true));
}

#[test]
fn a_host_without_an_agent_is_named() {
    let Some(domain) = Domain::new("a host without an agent") else { return };
    let _broker = domain.broker();
    let _agents = [0, 1].map(|host| domain.agent(host));
    domain.until("both agents are heard", |domain| HOSTS[..2].iter().all(|host| !domain.host(host).is_null()));
    let before = domain.queues();
    let refused = domain.apply("plan.toml");
    assert_eq!(refused.code(), 1, "{:?}", refused.lines);
    assert!(refused.errors.contains("from b: is `thalweg agent` running there?"), "{}", refused.errors);
    domain.until("the others have it no more", |domain| domain.queues() == before);
    let foreign = domain.house.path("foreign");
    domain.house.run(&format!("keys init foreign {}", foreign.display()));
    domain.house.run(&format!("keys issue user ann --dir {}", foreign.display()));
    let mut command = domain.row.command(1, env!("CARGO_BIN_EXE_thalweg"));
    command.args(["hosts", "--user", "ann", "--broker", BROKER[1], "--keys"]).arg(foreign);
    let stranger = Running::start(command).finish();
    assert_eq!(stranger.code(), 3, "{:?} {}", stranger.lines, stranger.errors);
}

/// The ends of a plan's channel get its class when their programs start, and lose it with the plan.
#[test]
fn channels_follow_the_plan_as_their_programs_start() {
    let Some(domain) = Domain::new("channels of a plan") else { return };
    let _broker = domain.broker();
    let agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    let subscriber = domain.program(2, "sub /state --json");
    domain.plan("high", &CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\nclass = \"high\""));
    assert_eq!(domain.apply("high.toml").code(), 0);
    let publisher = domain.program(0, "pub /state --port /out --rate 100 --size 100");
    let ends = |host: &str| domain.host(host)["ends"].clone();
    domain.until("both ends are reported", |_| ["a", "b"].iter().all(|host| ends(host)[0]["subscriber"] == "/state@b"));
    assert_eq!((&ends("a")[0]["end"], &ends("b")[0]["end"]), (&"publisher".into(), &"subscriber".into()));
    assert!(ends("a")[0]["because"].is_null() && ends("g").is_null(), "{} {}", ends("a"), ends("g"));

    // A program that starts again has it again.
    assert_eq!(publisher.interrupt().code(), 0);
    domain.until("its end is gone", |_| ends("a").is_null());
    let _publisher = domain.program(0, "pub /state --port /out --rate 100 --size 100");
    domain.until("its end is back", |_| ends("a")[0]["end"] == "publisher");

    // The kernels of its way count its packets in its class.
    let high = |host: &str, device: &str| {
        let queues = domain.host(host)["queues"].as_array().cloned().unwrap_or_default();
        queues.into_iter().find(|queue| queue["device"] == device && queue["class"] == "high").unwrap_or_default()
    };
    domain.until("its packets are counted", |_| {
        [("a", "eth"), ("g", "gb")].iter().all(|(host, device)| high(host, device)["packets"].as_u64() > Some(100))
    });
    assert_eq!(high("a", "eth")["dropped"], 0, "{}", domain.host("a"));

    // What only one plan states goes with it, though the channel stays.
    let scaled = |wanted: bool| {
        let until = Instant::now() + LONG;
        while subscriber.json_line()["scaled"].is_null() == wanted {
            assert!(Instant::now() < until, "scaled: {wanted}");
        }
    };
    let high = CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\nclass = \"high\"");
    domain.plan("scaled", &high.replace("deadline = \"20 ms\"", "scale = 2\ndeadline = \"60 ms\""));
    assert_eq!(domain.apply("scaled.toml").code(), 0);
    scaled(true);
    assert_eq!(domain.apply("high.toml").code(), 0);
    scaled(false);

    // What somebody else sets is set back.
    let asked = || domain.asked("/out /b/state/sub1");
    let high = asked();
    assert!(high.to_string().contains("high"), "{high}");
    let other = domain.administer("set /out /b/state/sub1 class=low --end publisher");
    assert!(other.code() == 0 && other.lines[0].contains("low"), "{:?} {}", other.lines, other.errors);
    domain.until("it is changed back", |_| asked() == high);

    domain.ask("restore --all").json();
    domain.until("no end has it", |_| asked().is_null());
    drop(subscriber);
    for agent in agents {
        assert_eq!(agent.interrupt().code(), 0);
    }
}

/// A publisher that sends five times as much as the contract says gets no more through, and all when the plan is taken back.
#[test]
fn a_publisher_beyond_its_contract_is_policed_by_its_agent() {
    let Some(domain) = Domain::new("policing") else { return };
    let _broker = domain.broker();
    let _agents = [0, 1, 2].map(|host| domain.agent(host));
    domain.until("all agents are heard", |domain| HOSTS.iter().all(|host| !domain.host(host).is_null()));
    let policed = CONTRACT.replace("publisher = \"a\"", "publisher = \"a\"\njitter = \"5 ms\"\npolice = true");
    domain.plan("policed", &policed.replace("20 ms", "60 ms"));
    assert_eq!(domain.apply("policed.toml").code(), 0);
    let subscriber = domain.program(2, "sub /state --json");
    let _publisher = domain.program(0, "pub /state --port /out --rate 500 --size 90");
    // Of so many samples in a row, the number that were published meanwhile.
    let published = |count: u64| {
        let seq = || subscriber.json_line()["seq"].as_u64().unwrap();
        let first = seq();
        for _ in 1..count {
            seq();
        }
        seq() - first
    };
    let until = Instant::now() + LONG;
    while published(100) < 400 {
        assert!(Instant::now() < until, "{:?}", domain.administer("get /out /b/state/sub1").lines);
    }
    let told = domain.administer("get /out /b/state/sub1");
    assert!(told.lines[0].contains("\"largest\":100"), "{:?} {}", told.lines, told.errors);
    domain.ask("restore --all").json();
    while published(100) > 101 {
        assert!(Instant::now() < until, "{:?}", domain.administer("get /out /b/state/sub1").lines);
    }
}
