//! From a contract file's text to a [`System`].

use super::chain;
use super::file::{self, File, Names, Starts, place, unreadable};
use super::pipe::{self, Neighbour, Pipe};
use super::rule::{self, Rule};
use super::tunnel;
use super::value::{self, DAY, LARGEST, Value, Wrong, needed, wrong};
use super::{Contract, ContractError, DEVICE, Lines, is_device};
use crate::Class;
use crate::network::{packets, wire_bytes};
use crate::quantity::{show_bit_rate, show_share};
use crate::system::{
    Link, MOST_AT_ONCE, Node, NodeKind, OWN_HEADERS, Objective, Pace, Placement, PlacementDelay, Proxies, Sched,
    Scheduler, Subscriber, System, Topic, Transport,
};
use std::collections::HashMap;
use std::ops::Range;
use toml::Spanned;

/// Most entries of each kind.
const MOST: usize = 100_000;
/// Most nodes that publish one topic.
const MOST_PUBLISHERS: usize = 1000;

/// Reads a contract without sessions.
pub(super) fn read_alone(text: &str) -> Result<Contract, ContractError> {
    let contract = read(text)?;
    match contract.lines.sessions.first() {
        Some(line) => Err(ContractError {
            line: *line,
            problem: "[[session]]: a session is a file of its own, asked for with `thalweg session request FILE`"
                .to_owned(),
        }),
        None => Ok(contract),
    }
}

/// Reads a contract, with the texts of sessions behind it.
pub(super) fn read(text: &str) -> Result<Contract, ContractError> {
    let starts = Starts::of(text);
    let line = |at: usize| starts.line(at);
    let failed = |(at, problem): Wrong| ContractError { line: line(at.start), problem };
    let file: File = toml::from_str(text).map_err(|e| failed(unreadable(text, &e)))?;
    let Parts { system, neighbours, pipes, rules } = parts_of(&file, &starts).map_err(failed)?;
    fn lines<T>(tables: &[Spanned<T>], line: impl Fn(usize) -> usize) -> Vec<usize> {
        tables.iter().map(|table| line(table.span().start)).collect()
    }
    // The topics and subscribers of pipes stand behind the others.
    let with_pipes = |own: Vec<usize>| own.into_iter().chain(lines(&file.pipe, line)).collect();
    let lines = Lines {
        nodes: lines(&file.node, line),
        links: lines(&file.link, line),
        topics: with_pipes(lines(&file.topic, line)),
        subscribers: with_pipes(lines(&file.subscriber, line)),
        chains: lines(&file.chain, line),
        sessions: lines(&file.session, line),
    };
    Ok(Contract { system, lines, neighbours, pipes, rules, hash: super::hash(text) })
}

/// A contract's system, and its parts for sessions over several domains.
struct Parts {
    system: System,
    neighbours: Vec<Neighbour>,
    pipes: Vec<Pipe>,
    rules: Vec<Rule>,
}

fn parts_of(file: &File, starts: &Starts) -> Result<Parts, Wrong> {
    at_most(&file.node, "node")?;
    at_most(&file.link, "link")?;
    at_most(&file.topic, "topic")?;
    at_most(&file.subscriber, "subscriber")?;
    at_most(&file.chain, "chain")?;
    if file.node.is_empty() {
        let tables = "[system], [[node]], [[link]], [[topic]], [[subscriber]], [[chain]], [[neighbour]], [[pipe]], [[rule]] and [placement]";
        return Err((0..0, format!("no [[node]]: a contract has the tables {tables}")));
    }
    let mut names = Names::new("node", starts);
    let nodes = file.node.iter().map(|table| node(table, &mut names)).collect::<Result<Vec<_>, _>>()?;
    let mut link_names = Names::new("link", starts);
    let link = |table| link(table, &names, &nodes, &mut link_names);
    let links = file.link.iter().map(link).collect::<Result<Vec<_>, _>>()?;
    devices_once(&file.link, &links, &nodes)?;
    let mut topic_names = Names::new("topic", starts);
    let topic = |table| topic(table, &names, &links, &mut topic_names);
    let topics = file.topic.iter().map(topic).collect::<Result<Vec<_>, _>>()?;
    let mut readers = Subscribers {
        nodes: &nodes,
        topics: &topics,
        node_names: &names,
        topic_names: &topic_names,
        parts: parts(nodes.len(), &links),
        names: Names::new("subscriber", starts),
        unnamed: HashMap::new(),
    };
    let subscribers = file.subscriber.iter().map(|table| readers.read(table)).collect::<Result<Vec<_>, _>>()?;
    let named = chain::Named { nodes: &names, topics: &topic_names, subscribers: &readers.names };
    let chains = chain::chains(&file.chain, &named, starts, &nodes, &topics, &subscribers)?;
    let name = file.system.as_ref().map_or(Ok(None), |system| value::name("name", &system.name))?;
    let placement = placement(file.placement.as_ref().unwrap_or(&file::Placement::default()))?;
    let neighbours = pipe::neighbours(&file.neighbour, &names)?;
    tunnel::once(&file.neighbour, &neighbours, &links)?;
    let mut system = System { name: name.unwrap_or_default(), nodes, links, topics, subscribers, chains, placement };
    own_queues(&file.topic, &system)?;
    let pipes = pipe::pipes(&file.pipe, &names, &neighbours, &mut system)?;
    let rules = rule::rules(&file.rule, &neighbours)?;
    Ok(Parts { system, neighbours, pipes, rules })
}

fn at_most<T>(tables: &[Spanned<T>], kind: &str) -> Result<(), Wrong> {
    match tables.get(MOST) {
        Some(first) => Err((first.span(), format!("{} [[{kind}]] tables: allowed are {MOST}", tables.len()))),
        None => Ok(()),
    }
}

fn node(table: &Spanned<file::Node>, names: &mut Names<'_>) -> Result<Node, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let name = needed(value::name("name", &entry.name)?, at, "name", "\"n1\"")?;
    names.add(&name, &entry.name, at)?;
    let kinds = [("host", NodeKind::Host), ("router", NodeKind::Router), ("switch", NodeKind::Switch)];
    Ok(Node {
        name,
        kind: value::choice("kind", &entry.kind, &kinds)?.unwrap_or_default(),
        cpus: value::whole("cpus", &entry.cpus, 1..=4096)?.map_or(1, |cpus| cpus as u32),
        domain: value::name("domain", &entry.domain)?,
        proxy: value::flag("proxy", &entry.proxy)?.unwrap_or(true),
        proxy_capacity: value::rate("proxy_capacity", &entry.proxy_capacity)?,
        sched: sched(&entry.sched)?,
        hand_over: value::time("hand_over", &entry.hand_over, 0)?.unwrap_or(0),
        address: value::address("address", &entry.address)?,
    })
}

fn link(table: &Spanned<file::Link>, nodes: &Names<'_>, all: &[Node], names: &mut Names<'_>) -> Result<Link, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let between = between(entry, at, nodes)?;
    let name = value::name("name", &entry.name)?;
    let name = name.unwrap_or_else(|| format!("{}-{}", all[between[0]].name, all[between[1]].name));
    names.add(&name, &entry.name, at)?;
    let schedulers =
        [("fifo", Scheduler::Fifo), ("strict", Scheduler::Strict), ("htb", Scheduler::Htb), ("hfsc", Scheduler::Hfsc)];
    let scheduler = value::choice("scheduler", &entry.scheduler, &schedulers)?.unwrap_or_default();
    let tunnel = tunnel::of_link(entry, between, all)?;
    let (mtu, overhead) = tunnel::sizes(entry, at, tunnel.as_ref())?;
    let link = Link {
        name,
        between,
        rate: needed(value::bit_rate("rate", &entry.rate, 1)?, at, "rate", "\"100 Mbit/s\"")?,
        delay: value::time("delay", &entry.delay, 0)?.unwrap_or(0),
        forwarding: value::time("forwarding", &entry.forwarding, 0)?.unwrap_or(0),
        transmission: value::time("transmission", &entry.transmission, 1)?,
        mtu,
        overhead,
        tunnel,
        scheduler,
        shares: shares(entry.shares.as_ref(), scheduler)?,
        background: value::bit_rate("background", &entry.background, 0)?.unwrap_or(0),
        control: value::bit_rate("control", &entry.control, 1000)?.unwrap_or(0),
        segments: [None; 2],
        devices: devices(entry, between, all)?,
        down: false,
    };
    control(&link).map_err(|problem| (place(&entry.control, at), format!("control: {problem}")))?;
    Ok(link)
}

/// A queue for control traffic stands beside those of classes, has a part of the link, and counts bytes.
fn control(link: &Link) -> Result<(), String> {
    if link.control == 0 {
        return Ok(());
    }
    if link.scheduler != Scheduler::Htb {
        return Err("only with scheduler = \"htb\"".to_owned());
    }
    if link.transmission.is_some() {
        return Err("only without transmission".to_owned());
    }
    let part = link.control as f64 / link.rate as f64;
    let sum = part + link.shares.map_or(0.0, |shares| shares.iter().sum());
    match sum > 1.0 + 1e-9 {
        true => Err(format!("with the shares it adds up to {}: allowed is at most 100 %", show_share(sum))),
        false => Ok(()),
    }
}

/// The network devices of both ends.
fn devices(entry: &file::Link, between: [usize; 2], nodes: &[Node]) -> Result<[Option<String>; 2], Wrong> {
    let mut found = [None, None];
    let Some(given) = &entry.devices else { return Ok(found) };
    for (node, value) in given.get_ref() {
        let ends = between.map(|end| nodes[end].name.as_str());
        let Some(end) = ends.iter().position(|end| end == node) else {
            let problem =
                format!("devices: {node:?} is no end of this link: allowed are {:?} and {:?}", ends[0], ends[1]);
            return Err((value.span(), problem));
        };
        match value.get_ref() {
            Value::Text(name) if is_device(name) => found[end] = Some(name.clone()),
            _ => return wrong(node, value, DEVICE),
        }
    }
    Ok(found)
}

/// Each device of a node belongs to one link.
fn devices_once(tables: &[Spanned<file::Link>], links: &[Link], nodes: &[Node]) -> Result<(), Wrong> {
    let mut known = HashMap::new();
    for (table, link) in tables.iter().zip(links) {
        for (node, device) in link.between.iter().zip(&link.devices) {
            let Some(device) = device else { continue };
            if let Some(other) = known.insert((*node, device), &link.name) {
                let node = &nodes[*node].name;
                let problem = format!(
                    "devices: {device} of {node:?} is that of link {other:?}: allowed is one link for each device"
                );
                return Err((table.span(), problem));
            }
        }
    }
    Ok(())
}

fn between(entry: &file::Link, at: &Range<usize>, nodes: &Names<'_>) -> Result<[usize; 2], Wrong> {
    const ALLOWED: &str = "a list of two different nodes, such as [\"n1\", \"n2\"]";
    let value = needed(entry.between.as_ref(), at, "between", "[\"n1\", \"n2\"]")?;
    let Value::List(ends) = value.get_ref() else { return wrong("between", value, ALLOWED) };
    let [first, second] = ends.as_slice() else { return wrong("between", value, ALLOWED) };
    let ends = [nodes.find("between", first)?, nodes.find("between", second)?];
    if ends[0] == ends[1] { wrong("between", value, ALLOWED) } else { Ok(ends) }
}

fn shares(given: Option<&Spanned<file::Shares>>, scheduler: Scheduler) -> Result<Option<[f64; 4]>, Wrong> {
    let shared = matches!(scheduler, Scheduler::Htb | Scheduler::Hfsc);
    let Some(given) = given else { return Ok(None) };
    if !shared {
        return Err((given.span(), "shares: only with scheduler = \"htb\" or \"hfsc\"".to_owned()));
    }
    let (classes, at) = (given.get_ref(), &given.span());
    let share = |key: &str, entry| match value::share(key, entry)? {
        Some(share) if share > 0.0 => Ok(share),
        Some(_) => Err((place(entry, at), format!("{key} = \"0 %\": allowed is more than 0 %"))),
        None => needed(None, at, key, "\"20 %\""),
    };
    // The order of `Class::ALL`.
    let shares = [
        share("low", &classes.low)?,
        share("normal", &classes.normal)?,
        share("high", &classes.high)?,
        share("critical", &classes.critical)?,
    ];
    let sum: f64 = shares.iter().sum();
    if sum > 1.0 + 1e-9 {
        return Err((at.clone(), format!("shares add up to {}: allowed is at most 100 %", show_share(sum))));
    }
    Ok(Some(shares))
}

fn topic(
    table: &Spanned<file::Topic>,
    nodes: &Names<'_>,
    links: &[Link],
    names: &mut Names<'_>,
) -> Result<Topic, Wrong> {
    let (entry, at) = (table.get_ref(), &table.span());
    let name = needed(value::name("name", &entry.name)?, at, "name", "\"video\"")?;
    names.add(&name, &entry.name, at)?;
    let (rate, period) = rate_and_period(entry, at)?;
    let size = needed(value::bytes("size", &entry.size, 1..=LARGEST)?, at, "size", "\"8 KiB\"")?;
    crossable(size, links).map_err(|problem| (place(&entry.size, at), problem))?;
    let cpu_send = value::time("cpu_send", &entry.cpu_send, 0)?.unwrap_or(0);
    let classes = Class::ALL.map(|class| (class.name(), class));
    Ok(Topic {
        name,
        size,
        rate,
        period,
        jitter: value::time("jitter", &entry.jitter, 0)?.unwrap_or(0),
        burst: value::whole("burst", &entry.burst, 1..=1_000_000)?.map_or(1, |burst| burst as u32),
        publishers: publishers(entry, at, nodes)?,
        cpu_send,
        service: value::time("service", &entry.service, 1)?.unwrap_or(cpu_send),
        hand_in: value::time("hand_in", &entry.hand_in, 0)?.unwrap_or(0),
        hand_out: value::time("hand_out", &entry.hand_out, 0)?.unwrap_or(0),
        buffer: value::whole("buffer", &entry.buffer, 1..=1_000_000)?.map(|messages| messages as u32),
        class: value::choice("class", &entry.class, &classes)?,
        sched: sched(&entry.sched)?,
        police: value::flag("police", &entry.police)?.unwrap_or(false),
        own_queue: value::flag("own_queue", &entry.own_queue)?.unwrap_or(false),
        latency_budget: value::latency_budget("latency_budget", &entry.latency_budget)?,
        pace: pace(entry, size, rate)?,
        pipe: false,
        forwarded: false,
    })
}

/// A queue of a topic's own has room for what comes until its deadline.
fn own_queues(tables: &[Spanned<file::Topic>], system: &System) -> Result<(), Wrong> {
    for (index, (table, topic)) in tables.iter().zip(&system.topics).enumerate().filter(|(_, (_, one))| one.own_queue) {
        let wrong = |allowed: String| {
            Err((place(&table.get_ref().own_queue, &table.span()), format!("own_queue = true: allowed {allowed}")))
        };
        if system.placement.transport == Transport::Multicast {
            return wrong("with transport = \"unicast\"".to_owned());
        }
        for subscriber in system.subscribers.iter().filter(|subscriber| subscriber.topic == index) {
            let Some(deadline) = subscriber.deadline else {
                return wrong(format!("where each subscriber has a deadline: {} has none", subscriber.name));
            };
            let until = topic.within(deadline).saturating_add(1);
            let bytes = |link: &Link| wire_bytes(link, topic.size) + packets(link, topic.size) * OWN_HEADERS;
            let sample = system.links.iter().map(bytes).max().unwrap_or(topic.size);
            if until.saturating_mul(sample) > MOST_AT_ONCE {
                let name = &subscriber.name;
                return wrong(format!(
                    "up to 16 MiB within a deadline: {until} samples may leave together by that of {name}"
                ));
            }
        }
    }
    Ok(())
}

/// A pace that carries the samples: of their bytes, without headers.
fn pace(entry: &file::Topic, size: u64, rate: f64) -> Result<Option<Pace>, Wrong> {
    let pace = value::pace("pace", &entry.pace)?;
    let needs = size as f64 * 8.0 * rate;
    match (pace, &entry.pace) {
        (Some(Pace::Stated(stated)), Some(written)) if (stated as f64) < needs => {
            let (stated, needs) = (show_bit_rate(stated as f64), show_bit_rate(needs));
            Err((written.span(), format!("pace {stated}: allowed is at least what the samples take, {needs}")))
        }
        _ => Ok(pace),
    }
}

fn sched(entry: &value::Entry) -> Result<Option<Sched>, Wrong> {
    value::choice("sched", entry, &[("priority", Sched::Priority), ("reserved", Sched::Reserved)])
}

/// Samples per second, and the whole nanoseconds between two of them.
fn rate_and_period(entry: &file::Topic, at: &Range<usize>) -> Result<(f64, u64), Wrong> {
    match (value::rate("rate", &entry.rate)?, value::time("period", &entry.period, 100)?) {
        (Some(rate), None) => Ok((rate, (1e9 / rate) as u64)),
        (None, Some(period)) => Ok((1e9 / period as f64, period)),
        (None, None) => needed(None, at, "period", "\"10 ms\" (or rate = \"100 Hz\")"),
        (Some(_), Some(_)) => Err((place(&entry.rate, at), "rate and period: allowed is one of both".to_owned())),
    }
}

/// No link may take longer than a day for one sample: with that, sums of delays stay within their numbers.
fn crossable(size: u64, links: &[Link]) -> Result<(), String> {
    let day_bits = |link: &Link| u128::from(link.rate) * u128::from(DAY / 1_000_000_000);
    let bits = |link: &Link| {
        let packets = size.div_ceil(link.mtu);
        8 * (u128::from(size) + u128::from(packets) * u128::from(link.overhead))
    };
    let slow = |link: &&Link| {
        let stated = u128::from(link.transmission.unwrap_or(0)) * u128::from(size.div_ceil(link.mtu));
        bits(link) > day_bits(link) || stated > u128::from(DAY)
    };
    links.iter().find(slow).map_or(Ok(()), |link| {
        let allowed = "what each link carries within a day";
        Err(format!("size = \"{size} B\" takes longer than a day on link {:?}: allowed is {allowed}", link.name))
    })
}

fn publishers(entry: &file::Topic, at: &Range<usize>, nodes: &Names<'_>) -> Result<Vec<usize>, Wrong> {
    let value = needed(entry.publisher.as_ref(), at, "publisher", "\"n1\" (or a list of nodes)")?;
    let Value::List(list) = value.get_ref() else { return Ok(vec![nodes.find("publisher", value)?]) };
    if !(1..=MOST_PUBLISHERS).contains(&list.len()) {
        return wrong("publisher", value, format_args!("a node, or a list of 1 to {MOST_PUBLISHERS} nodes"));
    }
    let mut found = Vec::new();
    for item in list {
        let node = nodes.find("publisher", item)?;
        if found.contains(&node) {
            return wrong("publisher", item, "each node once");
        }
        found.push(node);
    }
    Ok(found)
}

/// The parts that subscribers refer to.
struct Subscribers<'a> {
    nodes: &'a [Node],
    topics: &'a [Topic],
    node_names: &'a Names<'a>,
    topic_names: &'a Names<'a>,
    /// For each node a number that is equal for nodes with a way between them.
    parts: Vec<usize>,
    names: Names<'a>,
    /// Number of subscribers without a name of a topic at a node.
    unnamed: HashMap<(usize, usize), u32>,
}

impl Subscribers<'_> {
    fn read(&mut self, table: &Spanned<file::Subscriber>) -> Result<Subscriber, Wrong> {
        let (entry, at) = (table.get_ref(), &table.span());
        let topic = self.topic_names.need("topic", &entry.topic, at)?;
        let node = self.node_names.need("node", &entry.node, at)?;
        self.reachable(topic, node).map_err(|problem| (place(&entry.node, at), problem))?;
        let name = match value::name("name", &entry.name)? {
            Some(name) => name,
            None => self.unused_name(topic, node),
        };
        self.names.add(&name, &entry.name, at)?;
        let period = self.topics[topic].period;
        let scale = scale("scale", &entry.scale, at, (1, period))?;
        Ok(Subscriber {
            topic,
            node,
            name,
            scale: scale.unwrap_or(1),
            scale_max: self::scale("scale_max", &entry.scale_max, at, (scale.unwrap_or(1), period))?,
            picture: value::picture("picture", &entry.picture)?,
            scaled_size: value::bytes("scaled_size", &entry.scaled_size, 1..=LARGEST)?,
            deadline: value::time("deadline", &entry.deadline, 1)?,
            cpu_receive: value::time("cpu_receive", &entry.cpu_receive, 0)?.unwrap_or(0),
            sched: sched(&entry.sched)?,
            importance: importance(&entry.importance)?,
        })
    }

    fn reachable(&self, topic: usize, node: usize) -> Result<(), String> {
        let cut = |publisher: &&usize| self.parts[**publisher] != self.parts[node];
        let Some(publisher) = self.topics[topic].publishers.iter().find(cut) else { return Ok(()) };
        let (from, to) = (&self.nodes[*publisher].name, &self.nodes[node].name);
        let topic = &self.topics[topic].name;
        Err(format!(
            "node = {to:?}: no link leads there from {from:?}, which publishes {topic:?}: join them by [[link]]"
        ))
    }

    /// `/TOPIC@NODE`, numbered from the second on.
    fn unused_name(&mut self, topic: usize, node: usize) -> String {
        let plain = format!("/{}@{}", self.topics[topic].name.trim_start_matches('/'), self.nodes[node].name);
        let count = self.unnamed.entry((topic, node)).or_insert(0);
        loop {
            *count += 1;
            let name = if *count == 1 { plain.clone() } else { format!("{plain}#{count}") };
            if !self.names.has(&name) {
                return name;
            }
        }
    }
}

/// Every so many samples of a topic with this period one is wanted, at least so many.
fn scale(
    key: &str,
    entry: &value::Entry,
    at: &Range<usize>,
    (least, period): (u32, u64),
) -> Result<Option<u32>, Wrong> {
    let Some(found) = value::whole(key, entry, i64::from(least)..=1_000_000)? else { return Ok(None) };
    if (found as u64).saturating_mul(period) > DAY {
        return Err((place(entry, at), format!("{key} = {found}: allowed is at least one sample a day")));
    }
    Ok(Some(found as u32))
}

/// Order of giving way: higher stays.
pub(super) fn importance(entry: &value::Entry) -> Result<i64, Wrong> {
    Ok(value::whole("importance", entry, -1_000_000..=1_000_000)?.unwrap_or(1))
}

/// Connected parts of the network: nodes with a path between them have equal numbers.
fn parts(nodes: usize, links: &[Link]) -> Vec<usize> {
    fn root(of: &mut [usize], mut node: usize) -> usize {
        while of[node] != node {
            of[node] = of[of[node]];
            node = of[node];
        }
        node
    }
    let mut of: Vec<usize> = (0..nodes).collect();
    for [first, second] in links.iter().map(|link| link.between) {
        let (first, second) = (root(&mut of, first), root(&mut of, second));
        of[first.max(second)] = first.min(second);
    }
    (0..nodes).map(|node| root(&mut of, node)).collect()
}

fn placement(entry: &file::Placement) -> Result<Placement, Wrong> {
    let proxies =
        [("per-topic", Proxies::PerTopic), ("per-subscriber", Proxies::PerSubscriber), ("merged", Proxies::Merged)];
    let objectives = [
        ("messages", Objective::Messages),
        ("bandwidth", Objective::Bandwidth),
        ("cpu", Objective::Cpu),
        ("weighted", Objective::Weighted),
    ];
    let transports = [("unicast", Transport::Unicast), ("multicast", Transport::Multicast)];
    let delays = [("paper", PlacementDelay::Paper), ("bound", PlacementDelay::Bound)];
    Ok(Placement {
        proxies: value::choice("proxies", &entry.proxies, &proxies)?.unwrap_or_default(),
        objective: value::choice("objective", &entry.objective, &objectives)?.unwrap_or_default(),
        cpu_weight: value::number("cpu_weight", &entry.cpu_weight, 0.0..=1e9)?.unwrap_or(0.5),
        transport: value::choice("transport", &entry.transport, &transports)?.unwrap_or_default(),
        delay: value::choice("delay", &entry.delay, &delays)?.unwrap_or_default(),
        cpu_proxy: value::time("cpu_proxy", &entry.cpu_proxy, 0)?.unwrap_or(0),
    })
}
