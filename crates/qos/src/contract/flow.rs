//! The flows of a session through pipes: its subscribers are named with their domains.

use super::joined::{JoinError, join};
use super::pipe::{Neighbour, domains, is_domain};
use super::session::Session;
use super::{Contract, ContractError};
use crate::Class;
use crate::system::{Subscriber, System, Topic};
use std::net::IpAddr;

/// A flow through pipes. Times are ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The topic.
    pub topic: String,
    /// The publisher's node.
    pub publisher: String,
    /// The subscriber's port.
    pub subscriber: String,
    /// The subscriber's domain.
    pub domain: String,
    /// The subscriber's node, as its domain calls it.
    pub node: String,
    /// Bytes of a sample that leaves the publisher.
    pub size: u64,
    /// Shortest time between two of them.
    pub period: u64,
    /// Samples that may come at once.
    pub burst: u32,
    /// Largest delay of a release behind its period, on its way to the middleware, too.
    pub jitter: u64,
    /// From the application to the middleware and back.
    pub hand: u64,
    /// The latest that a sample may arrive.
    pub deadline: Option<u64>,
    /// Fixed by the user.
    pub class: Option<Class>,
    /// Every so many samples the publisher sends one.
    pub scale: u32,
    /// The address of the publisher's node, if the contract states it.
    pub source: Option<IpAddr>,
    /// The same at the most, if there is not enough room for all.
    pub scale_max: Option<u32>,
    /// The session's: lower ones give way first.
    pub importance: i64,
    /// Its publisher refuses samples beyond these.
    pub police: bool,
}

/// Most flows of a session.
const MOST: usize = 64;

/// The flows of a session, all of whose subscribers are named with a domain, in the domain `own`.
///
/// # Errors
/// [`ContractError`] at a line of the session's file.
pub fn flows(own: &str, text: &str, contract: &Contract, session: &Session) -> Result<Vec<Flow>, ContractError> {
    let mut whole = text.to_owned();
    let mut known: Vec<&str> = Vec::new();
    let wrong = |line: usize, problem: String| Err(ContractError { line, problem });
    if let Some((_, line)) = session.abroad.get(MOST) {
        return wrong(*line, format!("{} subscribers through pipes: allowed are {MOST}", session.abroad.len()));
    }
    for (node, line) in &session.abroad {
        let via = through(own, contract, node).map_err(|problem| ContractError { line: *line, problem })?;
        if !known.contains(&node.as_str()) {
            // For its reader it is a node behind the last one of the own domain.
            let via = &contract.system.nodes[via].name;
            let link =
                format!("\n[[node]]\nname = {node:?}\n[[link]]\nbetween = [{via:?}, {node:?}]\nrate = \"1 Gbit/s\"\n");
            whole.push_str(&link);
            known.push(node);
        }
    }
    let joined = join(&whole, &[session]).map_err(|error| match error {
        JoinError::Contract(error) | JoinError::Session(_, error) => error,
    })?;
    let part = &joined.parts[0];
    if let Some(chain) = part.chains.first() {
        let line = joined.contract.lines.chains[*chain] - first_line(&whole);
        return wrong(line, "a chain over several domains: allowed are chains in one".to_owned());
    }
    let lines = part.subscribers.iter().map(|index| joined.contract.lines.subscribers[*index] - first_line(&whole));
    let flow = |(index, line): (&usize, usize)| {
        let found = flow(&joined.contract.system, contract, *index);
        let found = found.map_err(|problem| ContractError { line, problem })?;
        Ok(Flow { importance: session.importance, ..found })
    };
    part.subscribers.iter().zip(lines).map(flow).collect()
}

/// Lines of the whole before those of the session.
fn first_line(whole: &str) -> usize {
    1 + whole.matches('\n').count()
}

/// The node (index) at which the way to `DOMAIN/NODE` leaves the own domain, or ends; if there is none, what is allowed.
fn through(own: &str, contract: &Contract, node: &str) -> Result<usize, String> {
    let (domain, rest) = node.split_once('/').unwrap_or((node, ""));
    let reached = |one: &Neighbour| domains(one).any(|reached| reached == domain);
    if domain == own {
        let found = contract.system.nodes.iter().position(|one| one.name == rest);
        return found.ok_or_else(|| format!("node = {node:?}: allowed are the nodes of this domain's contract"));
    }
    let found = contract.neighbours.iter().find(|one| reached(one)).map(|one| one.via);
    let allowed = || {
        let all: Vec<&str> = contract.neighbours.iter().flat_map(domains).take(12).collect();
        match all.is_empty() {
            true => format!("node = {node:?}: this domain has no [[neighbour]], so allowed is {own}/NODE"),
            false => {
                format!("node = {node:?}: allowed is DOMAIN/NODE with one of the domains {own}, {}", all.join(", "))
            }
        }
    };
    found.filter(|_| is_domain(domain) && !rest.is_empty() && !rest.contains('/')).ok_or_else(allowed)
}

fn flow(system: &System, contract: &Contract, index: usize) -> Result<Flow, String> {
    let subscriber = &system.subscribers[index];
    let topic = &system.topics[subscriber.topic];
    let [publisher] = topic.publishers.as_slice() else {
        return Err(format!("topic {:?} has {} publishers: allowed is one", topic.name, topic.publishers.len()));
    };
    possible(topic, subscriber)?;
    let whole = &system.nodes[subscriber.node].name;
    if contract.neighbours.iter().any(|other| other.via == *publisher) {
        return Err(format!(
            "topic {:?} comes from {:?}, which is a neighbour's: allowed are publishers of the own domain",
            topic.name, system.nodes[*publisher].name
        ));
    }
    let (domain, node) = whole.split_once('/').unwrap_or((whole, ""));
    let unnamed = |node: &str| format!("/{}@{node}", topic.name.trim_start_matches('/'));
    let scale = subscriber.scale.max(1);
    Ok(Flow {
        topic: topic.name.clone(),
        publisher: system.nodes[*publisher].name.clone(),
        // A program there does not know by which domain it is called.
        subscriber: if subscriber.name == unnamed(whole) { unnamed(node) } else { subscriber.name.clone() },
        domain: domain.to_owned(),
        node: node.to_owned(),
        size: topic.size,
        period: topic.period.saturating_mul(u64::from(scale)),
        burst: topic.burst,
        jitter: topic.jitter.saturating_add(topic.hand_in),
        hand: topic.hand_in.saturating_add(topic.hand_out),
        deadline: subscriber.deadline,
        class: topic.class,
        scale,
        source: system.nodes[*publisher].address,
        scale_max: subscriber.scale_max,
        importance: 0,
        police: topic.police,
    })
}

/// What pipes cannot carry.
fn possible(topic: &Topic, subscriber: &Subscriber) -> Result<(), String> {
    let name = &topic.name;
    match () {
        () if topic.pipe => Err(format!("{name:?} is a pipe: allowed are topics")),
        () if topic.cpu_send > 0 || subscriber.cpu_receive > 0 => Err(format!(
            "{name:?} states processor time, which no pipe has: allowed are topics and subscribers without cpu_send and cpu_receive"
        )),
        () if topic.latency_budget.is_some() => {
            Err(format!("{name:?} states latency_budget: allowed through pipes are topics without it"))
        }
        () if topic.pace.is_some() => Err(format!("{name:?} states pace: allowed through pipes are topics without it")),
        () if topic.own_queue => Err(format!("{name:?} states own_queue: allowed through pipes are topics without it")),
        // Nobody on the way makes samples smaller.
        () if subscriber.picture.is_some() || subscriber.scaled_size.is_some() => {
            Err("picture or scaled_size: allowed through pipes is scale, and a smaller size of the topic".to_owned())
        }
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = "[[node]]\nname = \"cam\"\n[[node]]\nname = \"border\"\n[[link]]\nbetween = [\"cam\", \"border\"]\nrate = \"1 Mbit/s\"\n\
        [[neighbour]]\ndomain = \"wan\"\nvia = \"border\"\nbroker = \"h:1\"\nreach = [\"base\"]\n";

    fn read(rest: &str) -> Result<Vec<Flow>, ContractError> {
        let session = Session::read(&format!("[[session]]\nname = \"teleop\"\n{rest}"))?;
        flows("home", CONTRACT, &Contract::read(CONTRACT).unwrap(), &session)
    }

    fn video(more: &str, subscriber: &str) -> String {
        format!(
            "[[topic]]\nname = \"video\"\nsize = \"1 kB\"\nrate = \"50 Hz\"\npublisher = \"cam\"\n{more}\
             [[subscriber]]\ntopic = \"video\"\n{subscriber}"
        )
    }

    #[test]
    fn a_subscriber_in_another_domain_is_a_flow() {
        let found = read(&video(
            "hand_in = \"1 ms\"\n",
            "node = \"base/desk\"\nscale = 2\nscale_max = 6\ndeadline = \"80 ms\"\n",
        ))
        .unwrap();
        let [flow] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((flow.scale_max, flow.importance), (Some(6), 1));
        assert_eq!((&*flow.domain, &*flow.node, &*flow.subscriber), ("base", "desk", "/video@desk"));
        assert_eq!((flow.period, flow.jitter, flow.hand, flow.scale), (40_000_000, 1_000_000, 1_000_000, 2));
        assert_eq!((&*flow.publisher, flow.deadline), ("cam", Some(80_000_000)));
        assert!(!flow.police);
        let inside = read(&video("police = true\n", "node = \"home/border\"\n")).unwrap();
        assert!(inside[0].police);
        assert_eq!((&*inside[0].domain, &*inside[0].node, &*inside[0].subscriber), ("home", "border", "/video@border"));
    }

    #[test]
    fn what_cannot_cross_is_refused_at_its_line() {
        let refused = |text: &str, line: usize, words: &str| {
            let error = read(text).unwrap_err();
            assert!(error.line == line && error.problem.contains(words), "{error}");
        };
        refused(&video("", "node = \"moon/desk\"\n"), 10, "home, wan, base");
        refused(&video("", "node = \"home/desk\"\n"), 10, "nodes of this domain");
        refused(&video("", "node = \"base/\"\n"), 10, "DOMAIN/NODE");
        refused(&video("cpu_send = \"1 ms\"\n", "node = \"base/desk\"\n"), 9, "processor time");
        refused(&video("", "node = \"base/desk\"\npicture = \"10x10\"\n"), 8, "scaled_size");
        refused(&video("", "node = \"base/desk\"\nscaled_size = \"10 B\"\n"), 8, "smaller size");
        refused(&video("rate = 3\n", "node = \"base/desk\"\n"), 8, "rate");
        let both = video("", "node = \"base/desk\"\n[[subscriber]]\ntopic = \"video\"\nnode = \"cam\"\n");
        refused(&both, 11, "own domain");
        let of_neighbour = video("", "node = \"base/desk\"\n").replace("publisher = \"cam\"", "publisher = \"border\"");
        refused(&of_neighbour, 8, "neighbour's");
    }
}
