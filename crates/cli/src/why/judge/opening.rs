//! A wanted channel that is not open, and the reason why an open one has no better carrier.

use super::{Both, CARRIER_FAILED, Diagnosis, NOT_OPEN, ONE_SIDED, Problem, REFUSED, SLOWER_CARRIER, UNREACHABLE};
use thalweg::Event;
use thalweg::admin::explain::{Explanation, Stage};
use thalweg::carrier::Name;
use thalweg::control::PortInfo;

/// Finds the reason why the channel is not open.
pub(super) fn judge(both: &Both<'_>, found: &mut Diagnosis) {
    let Some(look) = both.received.looks.last() else { return };
    let (p, s) = (&both.publisher.port.name, &both.subscriber.port.name);
    let failures = failures(&look.events);
    ways(look, found);
    failures.iter().for_each(|(carrier, why)| found.line("tried", format!("{carrier}: {why}")));
    let problem = match look.stage {
        Stage::Unwanted if look.other.is_none() => {
            let (node, other) = (&both.subscriber.node.name, &both.publisher.node.name);
            let remedy = format!("let them find each other: --peer or --listen for node {node}, or its static file");
            ONE_SIDED.found(format!("node {node} of {s} does not know node {other} of {p}"), remedy)
        }
        Stage::Unwanted => unreachable(both, look),
        Stage::Refused => refused(&look.events, p, s),
        Stage::Waiting | Stage::Trying if !failures.is_empty() => {
            let tried: Vec<String> = failures.iter().map(|(carrier, why)| format!("{carrier} ({why})")).collect();
            CARRIER_FAILED.found(
                format!("{s} tries to reach {p}, and no carrier works: {}", tried.join("; ")),
                "let the two hosts reach each other (addresses, firewall, `ip route get`); it is tried on and on",
            )
        }
        _ => NOT_OPEN.found(
            format!("the channel {p} → {s} is about to open"),
            "ask again in a second; does it stay so, see `thalweg list channels`",
        ),
    };
    found.problem([problem]);
}

fn unreachable(both: &Both<'_>, look: &Explanation) -> Problem {
    let (publisher, subscriber) = (both.publisher, both.subscriber);
    let (p, s) = (&publisher.port.name, &subscriber.port.name);
    let loopback = publisher.node.addresses.iter().all(|address| address.ip().is_loopback());
    if publisher.node.host != subscriber.node.host && loopback {
        let node = &publisher.node;
        let what =
            format!("{p} is on another host ({}), and its node {} listens on loopback only", node.host_name, node.name);
        return UNREACHABLE.found(what, "start it with --listen and an address of its host");
    }
    let around =
        if look.around { "; faults or a capture are around the node, which exclude local and shm" } else { "" };
    let what = format!(
        "no carrier leads from {p} ({}) to {s} ({}){around}",
        listed(&publisher.port),
        listed(&subscriber.port)
    );
    UNREACHABLE.found(what, "allow another carrier at both ports: tcp goes everywhere")
}

fn refused(events: &[Event], p: &str, s: &str) -> Problem {
    let last = events.iter().rev().find_map(|event| match event {
        Event::Incompatible { policy, offered, requested, remedy, .. } => {
            Some((format!("{policy}: {p} offers {offered}, {s} requests {requested}"), remedy.clone()))
        }
        _ => None,
    });
    let (why, remedy) =
        last.unwrap_or_else(|| ("for a reason it has forgotten".into(), "start one of them anew".into()));
    REFUSED.found(format!("the node of {p} refused {s}: {why}"), remedy)
}

fn listed(port: &PortInfo) -> String {
    let names: Vec<&str> = port.carriers.iter().map(Name::as_str).collect();
    names.join(", ")
}

/// The last failure of each carrier since the channel was last open.
fn failures(events: &[Event]) -> Vec<(Name, String)> {
    let since = events.iter().rposition(|event| matches!(event, Event::Matched { .. }));
    let mut last: Vec<(Name, String)> = Vec::new();
    for event in &events[since.map_or(0, |at| at + 1)..] {
        if let Event::CarrierFailed { carrier, reason, .. } = event {
            last.retain(|(name, _)| name != carrier);
            last.push((carrier.clone(), reason.clone()));
        }
    }
    last
}

fn ways(look: &Explanation, found: &mut Diagnosis) {
    if !look.ways.is_empty() {
        let ways: Vec<String> = look.ways.iter().map(|way| format!("{} by {}", way.carrier, way.to)).collect();
        found.line("ways", ways.join(", then "));
    }
}

/// Explains the choice of the carrier over a better one.
pub(super) fn carrier(both: &Both<'_>, chosen: &Name, found: &mut Diagnosis) {
    let Some(look) = both.received.looks.last() else { return };
    // A carrier that is none of the ways was chosen by an administrator since.
    let at = look.ways.iter().position(|way| way.carrier == *chosen).unwrap_or(0);
    let better = look.ways[..at].iter().map(|way| &way.carrier);
    found.line("carrier", format!("{chosen}: {}", reason(both, look, chosen)));
    let opened = look.events.iter().rposition(|event| matches!(event, Event::Matched { .. })).unwrap_or(0);
    let failed = failures(&look.events[..opened]);
    for name in better {
        let why = failed.iter().find(|(carrier, _)| carrier == name).map(|(_, why)| why.as_str());
        if *name == Name::Local && why.is_none() {
            continue; // two processes that have one number, each in a container of its own
        }
        let what = format!(
            "the channel goes over {chosen}; {name} was tried first, and failed{}",
            why.map_or(String::new(), |w| format!(": {w}"))
        );
        found.problem([SLOWER_CARRIER.found(what, remedy(name))]);
    }
}

fn remedy(carrier: &Name) -> &'static str {
    match carrier {
        Name::Shm => "see `thalweg doctor`: shared memory, descriptors, threads left; then connect anew",
        _ => "see the reason; `thalweg connect` tries again",
    }
}

fn reason(both: &Both<'_>, look: &Explanation, chosen: &Name) -> String {
    let (publisher, subscriber) = (both.publisher, both.subscriber);
    let same_host = publisher.node.host == subscriber.node.host;
    let same_process = same_host && publisher.node.pid == subscriber.node.pid;
    let named = [publisher, subscriber].into_iter().find(|end| !end.port.carriers.contains(&Name::Shm));
    let reliable = subscriber.port.qos.reliability == qos::Reliability::Reliable;
    match (chosen, named) {
        (Name::Local, _) => "both ports are in one process".into(),
        (Name::Shm, _) if same_process => "as asked for, though both ports are in one process".into(),
        (Name::Shm, _) => "both nodes are on one host".into(),
        _ if look.by_name => "as the administrator asked, or the best there is for ports connected by name".into(),
        (_, Some(end)) => format!("{} allows {} only", end.port.name, listed(&end.port)),
        _ if look.around => "faults or a capture are around the node, which exclude local and shm".into(),
        _ if same_host => "local and shm could not be used".into(),
        (Name::Udp, _) => "the nodes are on different hosts, and the subscriber allows losses".into(),
        (Name::Tcp, _) if reliable => "the nodes are on different hosts, and the subscriber is reliable".into(),
        _ => "the nodes are on different hosts".into(),
    }
}
