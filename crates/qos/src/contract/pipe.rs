//! A contract's parts for sessions over several domains: neighbours, and pipes through the own domain.
//!
//! A pipe is planned as a topic that is always full: so many of its largest samples at once, and at its rate. Such stairs lie above a
//! token bucket with the pipe's burst and rate (Le Boudec & Thiran 2001, §1.2), whatever the sizes of the samples in it, as long as the overhead of a
//! packet is the same on all links. So a sample in a pipe that is not oversold keeps the pipe's deadline.

use super::Contract;
use super::file::{self, Names};
use super::tunnel::{self, TunnelEnd};
use super::value::{self, DAY, Value, Wrong, needed, wrong};
use crate::Class;
use crate::network::{Direction, Network, wire_bytes};
use crate::system::{Link, Node, Subscriber, System, Topic};
use std::ops::Range;
use toml::Spanned;

/// Most neighbours, and most domains behind one.
const MOST_NEIGHBOURS: usize = 64;
/// Most pipes.
const MOST_PIPES: usize = 1000;
/// Most samples of the largest size that a burst is worth.
const MOST_AT_ONCE: u64 = 100_000;

/// A domain beside this one, whose broker admits the part of a session that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name, which is its broker's.
    pub domain: String,
    /// The node (index) that is in both contracts: ways out of this domain end there, and ways in begin.
    pub via: usize,
    /// The address of its broker, `HOST:PORT`.
    pub broker: String,
    /// Further domains that are reached through it.
    pub reach: Vec<String>,
    /// The device of the node by which its packets come in: those of no session are kept out of what is reserved there. `None`: they are not.
    pub device: Option<String>,
    /// That device is the own end of a tunnel to it.
    pub tunnel: Option<TunnelEnd>,
}

impl Neighbour {
    /// The classes that packets which come in from it may have only if they belong to a session: those that ask for priority, and those of
    /// pipes that begin there. And the class that all others get.
    pub fn reserved(&self, pipes: &[Pipe]) -> (Vec<Class>, Option<Class>) {
        let begins = |class: Class| pipes.iter().any(|pipe| (pipe.from, pipe.class) == (self.via, class));
        let is_reserved = |class: &Class| *class >= Class::High || begins(*class);
        let reserved = Class::ALL.into_iter().filter(is_reserved).collect();
        (reserved, [Class::Normal, Class::Low].into_iter().find(|class| !is_reserved(class)))
    }
}

/// A pipe: capacity from one node to another that is sold to sessions over several domains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipe {
    /// Its name: `FROM-TO-CLASS` unless the contract gives one.
    pub name: String,
    /// The node (index) at which samples come in.
    pub from: usize,
    /// The node (index) at which they go out.
    pub to: usize,
    /// The class of its packets.
    pub class: Class,
    /// bit/s of frames, headers included.
    pub rate: u64,
    /// Bytes of frames that may come at once: as much as so many of its largest samples have.
    pub burst: u64,
    /// Bytes of its largest sample.
    pub largest: u64,
    /// The latest that a sample leaves it, ns: promised to whoever has a part of it.
    pub deadline: u64,
    /// The price of a flow in it, in a unit of the domains' own.
    pub price: u64,
    /// The largest payload of a packet in it, bytes.
    pub mtu: u64,
    /// The overhead of a packet on its links, bytes.
    pub overhead: u64,
}

impl Pipe {
    /// The name of its topic and of its subscriber in a plan.
    pub fn port(&self) -> String {
        format!("pipe {}", self.name)
    }

    /// Bytes of its largest sample with headers.
    pub fn frames(&self) -> u64 {
        self.largest.saturating_add(self.largest.div_ceil(self.mtu.max(1)).saturating_mul(self.overhead))
    }
}

/// Neighbours of a contract.
pub(super) fn neighbours(tables: &[Spanned<file::Neighbour>], nodes: &Names<'_>) -> Result<Vec<Neighbour>, Wrong> {
    if let Some(table) = tables.get(MOST_NEIGHBOURS) {
        return Err((table.span(), format!("{} [[neighbour]] tables: allowed are {MOST_NEIGHBOURS}", tables.len())));
    }
    let mut known: Vec<Neighbour> = Vec::new();
    for table in tables {
        let neighbour = neighbour(table, nodes)?;
        let reached = |one: &Neighbour| domains(one).map(str::to_owned).collect::<Vec<_>>();
        let all: Vec<String> = known.iter().flat_map(reached).collect();
        let own: Vec<&str> = domains(&neighbour).collect();
        let mut each = own.iter().enumerate();
        let twice = each.find(|(at, domain)| own[..*at].contains(domain) || all.iter().any(|other| other == *domain));
        let twice = twice.map(|(_, domain)| domain);
        if let Some(domain) = twice {
            return Err((table.span(), format!("{domain:?} is reached twice: allowed is one way to each domain")));
        }
        if known.iter().any(|other| other.via == neighbour.via) {
            let said = "via: another neighbour is there, too: allowed is a node for each".to_owned();
            return Err((file::place(&table.get_ref().via, &table.span()), said));
        }
        known.push(neighbour);
    }
    Ok(known)
}

/// The domains that are reached through a neighbour: itself first.
pub fn domains(neighbour: &Neighbour) -> impl Iterator<Item = &str> {
    std::iter::once(neighbour.domain.as_str()).chain(neighbour.reach.iter().map(String::as_str))
}

fn neighbour(table: &Spanned<file::Neighbour>, nodes: &Names<'_>) -> Result<Neighbour, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let domain = needed(domain("domain", &entry.domain)?, at, "domain", "\"wan\"")?;
    let (device, tunnel) = tunnel::of_neighbour(entry, at)?;
    Ok(Neighbour {
        domain,
        via: nodes.need("via", &entry.via, at)?,
        broker: needed(value::name("broker", &entry.broker)?, at, "broker", "\"10.0.0.2:7450\"")?,
        reach: reach(&entry.reach)?,
        device,
        tunnel,
    })
}

/// A domain's name: that of its broker's certificate.
fn domain(key: &str, entry: &value::Entry) -> Result<Option<String>, Wrong> {
    match (value::name(key, entry)?, entry) {
        (Some(name), Some(value)) if !is_domain(&name) => wrong(key, value, DOMAIN),
        (found, _) => Ok(found),
    }
}

/// The names that are allowed for domains.
const DOMAIN: &str = "a broker's name, 1 to 63 letters, digits, - or _ that begin with a letter or digit";

/// `true` if a domain can have this name.
pub fn is_domain(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && name.len() <= 63 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn reach(entry: &value::Entry) -> Result<Vec<String>, Wrong> {
    let Some(value) = entry else { return Ok(Vec::new()) };
    let Value::List(list) = value.get_ref() else { return wrong("reach", value, "a list of domains") };
    if list.len() > MOST_NEIGHBOURS {
        return wrong("reach", value, format_args!("a list of at most {MOST_NEIGHBOURS} domains"));
    }
    let one = |item: &Spanned<Value>| match item.get_ref() {
        Value::Text(name) if is_domain(name) => Ok(name.clone()),
        _ => wrong("reach", item, DOMAIN),
    };
    list.iter().map(one).collect()
}

/// Pipes of a contract with these nodes and links, which become topics and subscribers of the system.
pub(super) fn pipes(
    tables: &[Spanned<file::Pipe>],
    nodes: &Names<'_>,
    neighbours: &[Neighbour],
    system: &mut System,
) -> Result<Vec<Pipe>, Wrong> {
    if let Some(table) = tables.get(MOST_PIPES) {
        return Err((table.span(), format!("{} [[pipe]] tables: allowed are {MOST_PIPES}", tables.len())));
    }
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let network = Network::new(system);
    let mut pipes = Vec::new();
    for table in tables {
        let pipe = pipe(table, nodes, system, &network, &pipes)?;
        let (mut topic, subscriber) = planned(&pipe, system.topics.len(), system, &network);
        topic.forwarded = is_forwarded(&pipe, neighbours);
        let named = |name: &String| *name == topic.name;
        if system.topics.iter().map(|one| &one.name).chain(system.subscribers.iter().map(|one| &one.name)).any(named) {
            let said = format!(
                "name = {:?}: another pipe, topic or subscriber is called so: allowed is each name once",
                pipe.name
            );
            return Err((file::place(&table.get_ref().name, &table.span()), said));
        }
        system.topics.push(topic);
        system.subscribers.push(subscriber);
        let at = |one: &&Neighbour| one.via == pipe.from && one.device.is_some();
        let border = neighbours.iter().find(at);
        pipes.push(pipe);
        let full = border.filter(|one| one.reserved(&pipes).1.is_none());
        if let Some(neighbour) = full {
            let said = format!(
                "class: pipes in normal and low begin where domain {} comes in, so nothing is left for packets of no session: allowed is one of them",
                neighbour.domain
            );
            return Err((file::place(&table.get_ref().class, &table.span()), said));
        }
    }
    Ok(pipes)
}

fn pipe(
    table: &Spanned<file::Pipe>,
    nodes: &Names<'_>,
    system: &System,
    network: &Network,
    others: &[Pipe],
) -> Result<Pipe, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let [from, to] = [nodes.need("from", &entry.from, at)?, nodes.need("to", &entry.to, at)?];
    let classes = Class::ALL.map(|class| (class.name(), class));
    let class = needed(value::choice("class", &entry.class, &classes)?, at, "class", "\"high\"")?;
    let name = value::name("name", &entry.name)?;
    let name =
        name.unwrap_or_else(|| format!("{}-{}-{}", system.nodes[from].name, system.nodes[to].name, class.name()));
    if others.iter().any(|other| (other.from, other.to, other.class) == (from, to, class)) {
        return Err((at.clone(), format!("{name}: allowed is one pipe for the same ends and class")));
    }
    let (mtu, overhead) =
        packet(&way(at, &system.nodes, network, [from, to])?, system).map_err(|said| (at.clone(), said))?;
    let largest = value::bytes("largest", &entry.largest, 1..=1 << 20)?.unwrap_or(mtu);
    let frames = largest.saturating_add(largest.div_ceil(mtu).saturating_mul(overhead));
    let burst = value::bytes("burst", &entry.burst, 1..=1 << 30)?.unwrap_or(frames);
    if burst < frames || burst > frames.saturating_mul(MOST_AT_ONCE) {
        let most = frames.saturating_mul(MOST_AT_ONCE);
        let said =
            format!("burst = \"{burst} B\": allowed is {frames} B, its largest sample with headers, to {most} B");
        return Err((file::place(&entry.burst, at), said));
    }
    let rate = needed(value::bit_rate("rate", &entry.rate, 1000)?, at, "rate", "\"500 kbit/s\"")?;
    if period(frames, rate) > DAY {
        let said = format!("rate = \"{rate} bit/s\": allowed is at least its largest sample a day");
        return Err((file::place(&entry.rate, at), said));
    }
    Ok(Pipe {
        name,
        from,
        to,
        class,
        rate,
        burst,
        largest,
        deadline: needed(value::time("deadline", &entry.deadline, 1)?, at, "deadline", "\"20 ms\"")?,
        price: value::whole("price", &entry.price, 0..=1_000_000_000)?.unwrap_or(0) as u64,
        mtu,
        overhead,
    })
}

/// The directions of links that a pipe leads over.
fn way(at: &Range<usize>, nodes: &[Node], network: &Network, [from, to]: [usize; 2]) -> Result<Vec<Direction>, Wrong> {
    let found = network.route(from, to).filter(|way| !way.is_empty());
    found.ok_or_else(|| {
        let [from, to] = [from, to].map(|node| &nodes[node].name);
        (at.clone(), format!("no way leads from {from:?} to {to:?}: allowed are two nodes that links join"))
    })
}

/// The largest payload of a packet on a way, and its overhead.
fn packet(way: &[Direction], system: &System) -> Result<(u64, u64), String> {
    let links = || way.iter().map(|at| &system.links[at.link]);
    let overhead = links().next().map_or(0, |link| link.overhead);
    let different = links().find(|link| link.overhead != overhead);
    if let Some(link) = different {
        return Err(format!(
            "link {:?} has another overhead than the first one of the pipe's way: allowed is the same on all, or many small packets would be \
             more work there than a large one",
            link.name
        ));
    }
    if let Some(link) = links().find(|link| link.transmission.is_some()) {
        return Err(format!(
            "link {:?} states the transmission of a packet: allowed are links on which it follows from the packet's bytes",
            link.name
        ));
    }
    Ok((links().map(|link| link.mtu).min().unwrap_or(1), overhead))
}

/// The topic and subscriber that are planned for a pipe.
fn planned(pipe: &Pipe, topic: usize, system: &System, network: &Network) -> (Topic, Subscriber) {
    let way = network.route(pipe.from, pipe.to).unwrap_or_default();
    let links = || way.iter().map(|at| &system.links[at.link]);
    let frames = links().map(|link| wire_bytes(link, pipe.largest)).max().unwrap_or(pipe.largest);
    let time = |link: &Link| (u128::from(frames) * 8_000_000_000).div_ceil(u128::from(link.rate.max(1))) as u64;
    let name = pipe.port();
    let period = period(frames, pipe.rate).max(1);
    let topic_of = Topic {
        name: name.clone(),
        size: pipe.largest,
        rate: 1e9 / period as f64,
        period,
        // Small samples are at each further link as much sooner than large ones.
        jitter: links().take(way.len().saturating_sub(1)).map(time).sum(),
        burst: u32::try_from(pipe.burst.div_ceil(frames) + 1).unwrap_or(u32::MAX),
        publishers: vec![pipe.from],
        class: Some(pipe.class),
        pipe: true,
        ..Topic::default()
    };
    let deadline = Some(pipe.deadline);
    (topic_of, Subscriber { topic, node: pipe.to, name, scale: 1, deadline, importance: 1, ..Subscriber::default() })
}

/// Plans pipes anew for links that have changed. Gives the ports of those that have no way any more, or one whose packets differ from what is sold:
/// they stay as they were, and are to be left out.
pub fn replan(contract: &mut Contract) -> Vec<String> {
    let Contract { system, neighbours, pipes, .. } = contract;
    let network = Network::new(system);
    let (topics, subscribers) = (system.topics.len() - pipes.len(), system.subscribers.len() - pipes.len());
    let mut unfit = Vec::new();
    for (index, pipe) in pipes.iter().enumerate() {
        let way = network.route(pipe.from, pipe.to).filter(|way| !way.is_empty());
        if way.is_none_or(|way| packet(&way, system) != Ok((pipe.mtu, pipe.overhead))) {
            unfit.push(pipe.port());
            continue;
        }
        let (mut topic, subscriber) = planned(pipe, topics + index, system, &network);
        topic.forwarded = is_forwarded(pipe, neighbours);
        (system.topics[topics + index], system.subscribers[subscribers + index]) = (topic, subscriber);
    }
    unfit
}

/// Plans pipes (index, bit/s, bytes at once) anew that are smaller than the contract says; each holds its largest sample at least. One without a
/// way stays as it was.
pub fn resize(contract: &mut Contract, sizes: &[(usize, u64, u64)]) {
    let Contract { system, neighbours, pipes, .. } = contract;
    let network = Network::new(system);
    let (topics, subscribers) = (system.topics.len() - pipes.len(), system.subscribers.len() - pipes.len());
    for (index, rate, burst) in sizes {
        let Some(pipe) = pipes.get_mut(*index) else { continue };
        (pipe.rate, pipe.burst) = (pipe.rate.min(*rate).max(1000), pipe.burst.min(pipe.frames().max(*burst)));
        if network.route(pipe.from, pipe.to).is_none_or(|way| way.is_empty()) {
            continue;
        }
        let (mut topic, subscriber) = planned(pipe, topics + index, system, &network);
        topic.forwarded = is_forwarded(pipe, neighbours);
        (system.topics[topics + index], system.subscribers[subscribers + index]) = (topic, subscriber);
    }
}

/// `true` if its samples come from another domain.
fn is_forwarded(pipe: &Pipe, neighbours: &[Neighbour]) -> bool {
    neighbours.iter().any(|neighbour| neighbour.via == pipe.from)
}

/// Time between two samples of so many bytes at this rate, ns.
fn period(frames: u64, rate: u64) -> u64 {
    (u128::from(frames) * 8_000_000_000 / u128::from(rate.max(1))).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = r#"
[[node]]
name = "cam"
[[node]]
name = "gate"
kind = "router"
[[node]]
name = "border"
[[link]]
between = ["cam", "gate"]
rate = "10 Mbit/s"
scheduler = "strict"
[[link]]
between = ["gate", "border"]
rate = "1 Mbit/s"
scheduler = "strict"
[[neighbour]]
domain = "wan"
via = "border"
broker = "10.0.0.2:7450"
reach = ["base"]
[[pipe]]
from = "cam"
to = "border"
class = "high"
rate = "500 kbit/s"
burst = "4 KiB"
largest = "1 kB"
deadline = "90 ms"
price = 12
"#;

    #[test]
    fn a_pipe_is_planned_as_a_topic_that_is_always_full() {
        let contract = Contract::read(CONTRACT).unwrap();
        let [pipe] = contract.pipes.as_slice() else { panic!("{contract:?}") };
        assert_eq!((&*pipe.name, pipe.rate, pipe.burst, pipe.price), ("cam-border-high", 500_000, 4096, 12));
        assert_eq!((pipe.deadline, pipe.mtu, pipe.overhead), (90_000_000, 1500, 66));
        let (topic, subscriber) = (&contract.system.topics[0], &contract.system.subscribers[0]);
        // 1066 B of frames are 17.056 ms at this rate, and 852.8 µs on the first link. Four of them hold 4 KiB, and one is on its way.
        assert_eq!((topic.size, topic.period, topic.jitter, topic.burst), (1000, 17_056_000, 852_800, 5));
        assert!(topic.pipe && topic.class == Some(Class::High) && subscriber.deadline == Some(90_000_000));
        let neighbour = &contract.neighbours[0];
        assert_eq!(domains(neighbour).collect::<Vec<_>>(), ["wan", "base"]);
        assert_eq!((neighbour.via, &*neighbour.broker), (2, "10.0.0.2:7450"));
    }

    #[test]
    fn a_smaller_pipe_is_planned_as_one_that_the_contract_states_so() {
        let mut contract = Contract::read(CONTRACT).unwrap();
        let smaller = CONTRACT.replace("500 kbit/s", "200 kbit/s").replace("4 KiB", "2 KiB");
        resize(&mut contract, &[(0, 200_000, 2048), (7, 1, 1)]);
        assert_eq!(contract.system, Contract::read(&smaller).unwrap().system);
        resize(&mut contract, &[(0, 900_000, 9)]);
        assert_eq!(
            (contract.pipes[0].rate, contract.pipes[0].burst),
            (200_000, 1066),
            "never larger, nor smaller than a sample"
        );
    }

    #[test]
    fn what_comes_from_another_domain_is_forwarded_at_its_border() {
        let back = CONTRACT.replace("from = \"cam\"\nto = \"border\"", "from = \"border\"\nto = \"cam\"");
        for (text, forwarded) in [(CONTRACT, false), (&back, true)] {
            assert_eq!(Contract::read(text).unwrap().system.topics[0].forwarded, forwarded);
        }
    }

    #[test]
    fn what_cannot_be_a_pipe_or_a_neighbour_is_refused_at_its_line() {
        let refused = |from: &str, to: &str, line: usize, words: &str| {
            let text = CONTRACT.replace(from, to);
            assert_ne!(text, CONTRACT);
            let error = Contract::read(&text).unwrap_err();
            assert!(error.line == line && error.problem.contains(words), "{error}");
        };
        refused("to = \"border\"", "to = \"cam\"", 22, "no way leads");
        refused("\"4 KiB\"", "\"1 kB\"", 27, "1066 B");
        refused("class = \"high\"", "class = \"huge\"", 25, "critical");
        refused("deadline = \"90 ms\"\n", "", 22, "deadline is missing");
        refused("rate = \"1 Mbit/s\"", "rate = \"1 Mbit/s\"\noverhead = \"20 B\"", 23, "another overhead");
        refused("\"wan\"", "\"w/a\"", 18, "a broker's name");
        refused("[\"base\"]", "[\"wan\"]", 17, "reached twice");
        refused("via = \"border\"", "via = \"nowhere\"", 19, "the name of a node");
    }
}
