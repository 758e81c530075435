//! Existence of both ports, answers of their nodes, and the match of the two. A missing port is reported with similar
//! names.

use super::super::{Answer, End, Evidence, Said};
use super::{
    APART, Both, DIRECTION, Diagnosis, MISMATCH, MISMATCH_CARRIER, MISMATCH_RELIABILITY, MISMATCH_TYPE, NAME_TWICE,
    NO_PORT, NODE_DEAD, NODE_SILENT, NODE_STOPPED, OTHER_REALM, Problem, TOPIC,
};
use linux::probe::process::State;
use qos::PolicyName;
use thalweg::control::matching::{Match, Mismatch, Subject, compare};
use thalweg::control::{Direction, PortInfo};

/// Both ports, if they exist and each has the right direction.
pub(super) fn ports<'a>(evidence: &'a Evidence, found: &mut Diagnosis) -> Option<(&'a End, &'a End)> {
    let Evidence { asked: [publisher, subscriber], .. } = evidence;
    let sides = [
        (publisher, &evidence.publisher, Direction::Publisher),
        (subscriber, &evidence.subscriber, Direction::Subscriber),
    ];
    for (name, end, direction) in sides {
        match end {
            None => found.problem([missing(evidence, name, direction)]),
            Some(end) => {
                found.line(word(direction), describe(end));
                found.problem(twice(name, end));
            }
        }
    }
    let (publisher, subscriber) = (evidence.publisher.as_ref()?, evidence.subscriber.as_ref()?);
    found.problem(directions(&publisher.port, &subscriber.port));
    let fits = publisher.port.direction == Direction::Publisher && subscriber.port.direction == Direction::Subscriber;
    fits.then_some((publisher, subscriber))
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Publisher => "publisher",
        Direction::Subscriber => "subscriber",
    }
}

fn describe(end: &End) -> String {
    let End { port, node, .. } = end;
    let verb = if port.direction == Direction::Publisher { "publishes" } else { "subscribes to" };
    let place = format!("node {} (process {} on {})", node.name, node.pid, node.host_name);
    let foreign = port.foreign.as_ref().map_or(String::new(), |end| format!(", for {end}"));
    format!("{} {verb} {}, type {}, of {place}{foreign}", port.name, port.topic, port.message.name)
}

fn missing(evidence: &Evidence, name: &str, wanted: Direction) -> Problem {
    if let Some((_, realm)) = evidence.elsewhere.iter().find(|(port, _)| port == name) {
        let what = format!("{name} is in realm {realm}, not in realm {}", evidence.realm);
        return OTHER_REALM.found(what, format!("start both in one realm: --realm {realm} for each of them"));
    }
    if let Some(problem) = cut_off(evidence, name, wanted) {
        return problem;
    }
    if let Some(pid) = evidence.stopped.first() {
        let what =
            format!("there is no {} {name}; process {pid} has a node, is stopped, and may have it", word(wanted));
        return NODE_STOPPED.found(what, format!("kill -CONT {pid}"));
    }
    let same: Vec<&str> = evidence.ports.iter().filter(|(_, d)| *d == wanted).map(|(name, _)| &name[..]).collect();
    let like = near(name, same.iter().copied());
    let remedy = match (like.as_slice(), same.as_slice()) {
        ([], []) => format!("start it; there is no {} in realm {}", word(wanted), evidence.realm),
        ([], [only]) => format!("start it; the only {} is {only}", word(wanted)),
        ([], _) => "start it; see `thalweg list ports`".to_owned(),
        (like, _) => format!("is it {}?", like.join(" or ")),
    };
    NO_PORT.found(format!("there is no {} {name}", word(wanted)), remedy)
}

/// The other port has a channel with the missing one, whose node was known and is known no more.
fn cut_off(evidence: &Evidence, name: &str, wanted: Direction) -> Option<Problem> {
    let there = [&evidence.publisher, &evidence.subscriber].into_iter().flatten().next()?;
    let (_, channel) = there.said()?.channel.as_ref()?;
    [&channel.publisher, &channel.subscriber].into_iter().find(|end| *end == name)?;
    let what = format!(
        "the node of the {} {name} is not heard; {} has a channel with it over {}, on which {} samples wait",
        word(wanted),
        there.port.name,
        channel.carrier,
        channel.waiting
    );
    let remedy =
        format!("see at its host whether the link is up (ip link) and the process of {name} runs (it may be stopped)");
    Some(NODE_SILENT.found(what, remedy))
}

fn twice(name: &str, end: &End) -> Option<Problem> {
    let what = format!("{} ports are called {name}: this one, of node {}, is found", end.holders, end.node.name);
    (end.holders > 1).then(|| NAME_TWICE.found(what, "give each port a name of its own: --port /other"))
}

fn directions(publisher: &PortInfo, subscriber: &PortInfo) -> Option<Problem> {
    let (p, s) = (&publisher.name, &subscriber.name);
    let (what, remedy) = match (publisher.direction, subscriber.direction) {
        (Direction::Publisher, Direction::Subscriber) => return None,
        (Direction::Subscriber, Direction::Publisher) => {
            (format!("{p} subscribes, and {s} publishes"), format!("ask the other way round: thalweg why {s} {p}"))
        }
        (Direction::Subscriber, _) => {
            (format!("both subscribe: {p} and {s}"), "one of the two must publish; see `thalweg list ports`".to_owned())
        }
        (Direction::Publisher, _) => {
            (format!("both publish: {p} and {s}"), "one of the two must subscribe; see `thalweg list ports`".to_owned())
        }
    };
    Some(DIRECTION.found(what, remedy))
}

/// The reports of both nodes, if both answered.
pub(super) fn answers<'a>(
    evidence: &Evidence,
    (publisher, subscriber): (&'a End, &'a End),
    found: &mut Diagnosis,
) -> Option<(&'a Said, &'a Said)> {
    for end in [publisher, subscriber] {
        if let Answer::Silent(state) = &end.answer {
            found.problem([silent(end, *state, evidence.here_only)]);
        }
    }
    publisher.said().zip(subscriber.said())
}

fn silent(end: &End, state: Option<State>, here_only: bool) -> Problem {
    let (node, pid) = (&end.node.name, end.node.pid);
    let of = format!("{}: its node {node} (process {pid} on {})", end.port.name, end.node.host_name);
    match state {
        Some(State::Stopped) => {
            NODE_STOPPED.found(format!("{of} is stopped, and answers nothing"), format!("kill -CONT {pid}"))
        }
        Some(State::Gone | State::Zombie) => {
            NODE_DEAD.found(format!("{of} has ended without closing"), "start it again")
        }
        Some(State::Blocked) => {
            NODE_SILENT.found(format!("{of} is blocked within the kernel"), format!("see where: cat /proc/{pid}/stack"))
        }
        Some(State::Alive) => {
            let remedy = format!("see whether it gets a processor: top -H -p {pid}; and what it does: gdb -p {pid}");
            NODE_SILENT.found(format!("{of} runs, but does not answer"), remedy)
        }
        None if here_only => NODE_SILENT.found(
            format!("{of} was not asked: this command reaches no other host"),
            format!("name an address: --listen IP of this host, or --peer IP:PORT; or ask on {}", end.node.host_name),
        ),
        None => NODE_SILENT
            .found(format!("{of} does not answer"), format!("ask on {}: thalweg list nodes", end.node.host_name)),
    }
}

/// `true` if the two ports should have a channel; else the problem is recorded.
pub(super) fn belong_together(both: &Both<'_>, found: &mut Diagnosis) -> bool {
    let (publisher, subscriber) = (&both.publisher.port, &both.subscriber.port);
    let (p, s) = (&publisher.name, &subscriber.name);
    let heard = |said: &Said, is: fn(&thalweg::admin::explain::Explanation) -> bool| said.looks.last().is_some_and(is);
    if heard(both.received, |look| look.apart) || heard(both.sent, |look| look.apart) {
        let what = format!("{p} and {s} were disconnected by an administrator");
        found.problem([APART.found(what, format!("thalweg connect {p} {s}"))]);
        return false;
    }
    let by_name = heard(both.received, |look| look.by_name);
    let (mut offered, mut wanted) = (publisher.clone(), subscriber.clone());
    if by_name {
        // In a connection by name, topics and carriers do not count.
        offered.topic.clone_from(&wanted.topic);
        (offered.carriers, wanted.carriers) = Default::default();
    }
    let problems = mismatches(&offered, &wanted, found);
    let fits = problems.is_empty();
    found.problem(problems);
    fits
}

fn mismatches(publisher: &PortInfo, subscriber: &PortInfo, found: &mut Diagnosis) -> Vec<Problem> {
    let (p, s) = (&publisher.name, &subscriber.name);
    match compare(publisher, subscriber) {
        Match::Matched(given_up) => {
            let without = |m: &Mismatch| format!("{}: gets {}, requested {}", m.policy, m.offered, m.requested);
            given_up.iter().for_each(|mismatch| found.line("fallback", without(mismatch)));
            Vec::new()
        }
        Match::NotSameTopic if comes_back(publisher, subscriber) => {
            let what = format!("samples of {p} have been in the network to which {s} leads, and do not go back there");
            let remedy = "if these are two networks of DDS, name both (thalweg bridge dds --network NAME)".to_owned();
            vec![TOPIC.found(what, remedy)]
        }
        Match::NotSameTopic => {
            let what = format!("{p} publishes {}, and {s} subscribes to {}", publisher.topic, subscriber.topic);
            let unlike = near(&subscriber.topic, [publisher.topic.as_str()].into_iter()).is_empty();
            let slip = if unlike { "" } else { " (a slip of the pen?)" };
            let remedy = format!("use one topic for both{slip}, or connect them by name: thalweg connect {p} {s}");
            vec![TOPIC.found(what, remedy)]
        }
        Match::Mismatched(between) => between.into_iter().map(|mismatch| stands_between(p, s, mismatch)).collect(),
    }
}

/// `true` for ports of bridges whose samples would go round.
fn comes_back(publisher: &PortInfo, subscriber: &PortInfo) -> bool {
    let ends = publisher.foreign.as_ref().zip(subscriber.foreign.as_ref());
    ends.is_some_and(|(from, to)| from.has_passed(&to.place()))
}

fn stands_between(p: &str, s: &str, mismatch: Mismatch) -> Problem {
    let Mismatch { policy, offered, requested, remedy } = mismatch;
    let kind = match policy {
        Subject::Type => &MISMATCH_TYPE,
        Subject::Policy(PolicyName::Reliability) => &MISMATCH_RELIABILITY,
        Subject::Carrier => &MISMATCH_CARRIER,
        _ => &MISMATCH,
    };
    kind.found(format!("{policy}: {p} offers {offered}, {s} requests {requested}"), remedy)
}

/// At most three of `names` that are similar to `name`, the most similar first.
fn near<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<(usize, &str)> =
        names.filter(|other| *other != name).filter_map(|other| Some((likeness(name, other)?, other))).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, other)| other).collect()
}

/// The rank of a similar name, 0 the best; `None`: not similar.
fn likeness(name: &str, other: &str) -> Option<usize> {
    let plain = |text: &str| text.trim_matches('/').to_ascii_lowercase();
    let (a, b) = (plain(name), plain(other));
    let steps = qos::distance(&a, &b);
    let last = |text: &str| text.rsplit('/').next().map(str::to_owned);
    match steps {
        0 => Some(0),
        _ if steps <= 2.max(a.len() / 4) && steps < a.len().max(b.len()) => Some(steps),
        _ if last(&a) == last(&b) || a.contains(&b) || b.contains(&a) => Some(steps + 100),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_found_the_most_similar_first() {
        let all = ["/camera/left/out", "/camera/right/out", "/viewer/in", "/in"];
        assert_eq!(near("/camera/lfet/out", all.into_iter())[0], "/camera/left/out");
        assert_eq!(near("/Viewer/IN", all.into_iter())[0], "/viewer/in");
        assert_eq!(near("/viewr/in", all.into_iter()), ["/viewer/in", "/in"]);
        assert_eq!(near("/motor", all.into_iter()), [""; 0]);
        assert_eq!(near("/ni", ["/in", "/ax"].into_iter()), ["/in"]);
    }
}
