//! `thalweg why`: problems between two ports.
//!
//! Both nodes report about the ports, several times within half a second. [`judge`] finds the problems in this evidence.

mod judge;

use crate::census;
use crate::failure::{Failure, Result};
use crate::participant::{Common, Participant};
use crate::quantity;
use clap::Args;
use judge::Diagnosis;
use linux::probe::Tree;
use linux::probe::process::{self, State};
use linux::queueing::{self, Counters, Handle, Queues};
use serde::Serialize;
use std::time::{Duration, Instant};
use thalweg::ChannelReport;
use thalweg::admin::explain::Explanation;
use thalweg::admin::{EndReport, MemoryReport, Reply, Request};
use thalweg::control::matching::check_name;
use thalweg::control::{Direction, Document, NodeId, PortInfo};
use thalweg::stages::End as Role;

/// Say why two ports do not talk to each other, or not well: matched? which policy? dropping where? setting
/// ineffective?
///
/// Exit code 1 when there is a problem. All kinds of problems: docs/diagnosis.md.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg why /camera/out /viewer/in")]
pub(crate) struct Arguments {
    /// The publishing port
    #[arg(value_name = "/OUT", value_parser = quantity::name)]
    publisher: String,
    /// The subscribing port
    #[arg(value_name = "/IN", value_parser = quantity::name)]
    subscriber: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Report<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    healthy: bool,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Gathers, judges and shows.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let Arguments { publisher, subscriber, common } = arguments;
    for name in [publisher, subscriber] {
        check_name(name).map_err(|error| Failure::Usage(format!("port name {error}")))?;
    }
    let mut participant = common.open("why")?;
    let evidence = gather(&mut participant, publisher, subscriber);
    let diagnosis = judge::judge(&evidence);
    let healthy = diagnosis.problems.is_empty();
    participant
        .output
        .result(&Report { publisher, subscriber, healthy, diagnosis: &diagnosis }, || diagnosis.to_string())?;
    if healthy { Ok(()) } else { Err(Failure::No(String::new())) }
}

/// Reports of both nodes about the two ports.
#[derive(Debug, Default)]
struct Evidence {
    /// The names in question.
    asked: [String; 2],
    /// All ports of the realm.
    ports: Vec<(String, Direction)>,
    /// Realms of this host in which a missing port was found.
    elsewhere: Vec<(String, String)>,
    /// Stopped processes, whose ports are not known.
    stopped: Vec<u32>,
    /// The realm that was searched.
    realm: String,
    /// `true` if no address was given, so that nodes of other hosts cannot be asked.
    here_only: bool,
    /// The first port.
    publisher: Option<End>,
    /// The second port.
    subscriber: Option<End>,
    /// Time between the first and the last look; zero if there was only one.
    watched: Duration,
}

/// One port, and its node's answer.
#[derive(Debug)]
struct End {
    /// The port.
    port: PortInfo,
    /// Its node.
    node: Document,
    /// Number of ports with this name.
    holders: usize,
    /// The node's answer.
    answer: Answer,
}

/// An answer of a node.
#[derive(Debug)]
enum Answer {
    /// No answer, and the state of its process if it is on this host.
    Silent(Option<State>),
    /// The reports.
    Said(Box<Said>),
}

/// The reports of a node.
#[derive(Debug, Default)]
struct Said {
    /// Its explanations, one per look.
    looks: Vec<Explanation>,
    /// The channel at its end, in the first and in the last look.
    channel: Option<(ChannelReport, ChannelReport)>,
    /// Nanoseconds that the end's thread waited for a processor between the first and the last look; `None`: it runs
    /// on another host, or there is none.
    starved_ns: Option<u64>,
    /// The priority of its end of the channel.
    settings: Option<EndReport>,
    /// Counters of the channel's own queue in the first and in the last look; `None`: it has none, or waits on another host.
    own_queue: Option<(Counters, Counters)>,
    /// The same of the queue of control traffic before the device by which its packets leave.
    control_queue: Option<(Counters, Counters)>,
    /// Memory of its node for all channels.
    memory: Option<MemoryReport>,
}

/// Gathers the evidence.
fn gather(participant: &mut Participant, publisher: &str, subscriber: &str) -> Evidence {
    let nodes = participant.settled();
    let mut found = [publisher, subscriber].map(|name| end(participant, &nodes, name));
    let names = [publisher, subscriber];
    let pairs = found.iter().zip(names).filter(|(end, _)| end.is_none());
    let elsewhere = pairs.flat_map(|(_, name)| other_realms(&participant.realm, name)).collect();
    let watched = watch(participant, &mut found, names);
    hearsay(&mut found, names);
    let ports = nodes.iter().flat_map(|node| node.ports.values().map(|port| (port.name.clone(), port.direction)));
    let [publisher, subscriber] = found;
    Evidence {
        asked: names.map(str::to_owned),
        ports: ports.collect(),
        elsewhere,
        stopped: census::stopped(&participant.realm, &nodes, participant.node.id()),
        realm: participant.realm.clone(),
        here_only: !participant.reaches_beyond(),
        publisher,
        subscriber,
        watched,
    }
}

/// The port that lookups by name find, of several with one name.
fn end(participant: &Participant, nodes: &[Document], name: &str) -> Option<End> {
    let (holder, port) = participant.node.holder(name)?;
    let node = nodes.iter().find(|node| node.node == holder)?.clone();
    let holders = nodes.iter().flat_map(|node| node.ports.values()).filter(|port| port.name == name).count();
    Some(End { port, node, holders, answer: Answer::Silent(None) })
}

/// Knowledge of other nodes: a stopped node sends newcomers no document, but nodes that met it before still know it.
fn hearsay(ends: &mut [Option<End>; 2], names: [&str; 2]) {
    for (missing, there) in [(0, 1), (1, 0)] {
        let look = |end: &End| end.said()?.looks.last()?.other.clone();
        if ends[missing].is_none()
            && let Some(node) = ends[there].as_ref().and_then(look)
        {
            let port = node.ports.values().find(|port| port.name == names[missing]).cloned();
            ends[missing] = port.map(|port| End { answer: silent(&node), port, node, holders: 1 });
        }
    }
}

fn silent(node: &Document) -> Answer {
    let here = node.host == linux::clock::host_id();
    Answer::Silent(here.then(|| process::state(&Tree::host(), node.pid)))
}

/// Searches the other realms of this host for a port.
fn other_realms(own: &str, name: &str) -> Vec<(String, String)> {
    let realms = thalweg::control::realms();
    let others = realms.into_iter().filter(|realm| *realm != own).take(MOST_REALMS);
    let has = |realm: &String| {
        let settings = thalweg::Settings { realm: realm.clone(), ..thalweg::Settings::default() };
        let node = thalweg::Node::with_settings(settings).ok()?;
        node.nodes().iter().any(|d| d.ports.values().any(|port| port.name == name)).then_some(())
    };
    others.filter(|realm| has(realm).is_some()).map(|realm| (name.to_owned(), realm)).collect()
}

/// Asks the existing nodes in parallel. If both have the channel, several times.
fn watch(participant: &Participant, ends: &mut [Option<End>; 2], names: [&str; 2]) -> Duration {
    let start = Instant::now();
    look(participant, ends, names);
    let open =
        ends.iter().all(|end| matches!(end.as_ref().map(|e| &e.answer), Some(Answer::Said(s)) if s.channel.is_some()));
    if !open {
        return Duration::ZERO;
    }
    let before = ends.each_ref().map(|end| end.as_ref().and_then(waited));
    for number in 1..LOOKS {
        if !participant.stop.sleep_until(start + PAUSE * number as u32) {
            break;
        }
        look(participant, ends, names);
    }
    for (end, before) in ends.iter_mut().flatten().zip(before) {
        let starved_ns = waited(end).zip(before).map(|(now, before)| now.saturating_sub(before));
        if let Answer::Said(said) = &mut end.answer {
            said.starved_ns = starved_ns;
        }
    }
    start.elapsed()
}

/// Time that this end's thread has waited for a processor, if it is on this host.
fn waited(end: &End) -> Option<u64> {
    let tid = end.said()?.settings.as_ref()?.tid?;
    let here = end.node.host == linux::clock::host_id();
    here.then(|| process::waited_ns(&Tree::host(), end.node.pid, tid)).flatten()
}

fn look(participant: &Participant, ends: &mut [Option<End>; 2], names: [&str; 2]) {
    std::thread::scope(|scope| {
        for (end, name) in ends.iter_mut().zip(names) {
            if let Some(end) = end {
                let other = if name == names[0] { names[1] } else { names[0] };
                scope.spawn(move || ask(participant, end, names, other));
            }
        }
    });
    ask_relay(participant, ends, names);
}

/// Asks the relay, if one sends in the publisher's stead: its node has that end of the channel.
fn ask_relay(participant: &Participant, ends: &mut [Option<End>; 2], names: [&str; 2]) {
    let [Some(End { node, answer: Answer::Said(sent), .. }), Some(subscriber)] = ends else { return };
    let proxied = subscriber.said().and_then(|said| said.channel.as_ref()?.1.proxied.as_ref());
    let at =
        proxied.map(|proxied| proxied.provenance.node).filter(|at| *at != node.node && *at != subscriber.node.node);
    if let Some(at) = at {
        note_channel(participant, at, names, Role::Publisher, sent);
    }
}

/// Records a node's report of its end of the channel.
fn note_channel(
    participant: &Participant,
    node: NodeId,
    [publisher, subscriber]: [&str; 2],
    role: Role,
    said: &mut Said,
) {
    let Ok(Reply::Channels(reports)) = participant.node.ask(node, &Request::Channels, PATIENCE) else { return };
    let mine = |r: &ChannelReport| r.publisher == publisher && r.subscriber == subscriber && r.end == role;
    if let Some(report) = reports.into_iter().find(mine) {
        let first = said.channel.take().map_or_else(|| report.clone(), |(first, _)| first);
        said.channel = Some((first, report));
    }
}

fn ask(participant: &Participant, end: &mut End, names: [&str; 2], other: &str) {
    let to = end.node.node;
    let [publisher, subscriber] = names.map(str::to_owned);
    let explain = Request::Explain { publisher, subscriber };
    let Ok(Reply::Explanation(explanation)) = participant.node.ask(to, &explain, PATIENCE) else {
        if matches!(end.answer, Answer::Silent(_)) {
            end.answer = silent(&end.node);
        }
        return;
    };
    let mut said = match std::mem::replace(&mut end.answer, Answer::Silent(None)) {
        Answer::Said(said) => said,
        Answer::Silent(_) => Box::default(),
    };
    said.looks.push(explanation);
    let role = if end.port.direction == Direction::Publisher { Role::Publisher } else { Role::Subscriber };
    note_channel(participant, to, names, role, &mut said);
    let get = Request::Get { port: end.port.name.clone(), other: Some(other.to_owned()) };
    if said.settings.is_none()
        && let Ok(Reply::Settings(reports)) = participant.node.ask(to, &get, PATIENCE)
    {
        said.settings = reports.into_iter().next();
    }
    let queues = queues(&end.node, &said);
    let own = queues.as_ref().and_then(|queues| own_queue(queues, &said));
    said.own_queue = first_and_last(said.own_queue, own);
    said.control_queue = first_and_last(said.control_queue, queues.as_ref().and_then(Queues::control));
    if said.memory.is_none()
        && let Ok(Reply::Memory(memory)) = participant.node.ask(to, &Request::Memory, PATIENCE)
    {
        said.memory = Some(memory);
    }
    end.answer = Answer::Said(said);
}

/// The queues of the device by which this end's packets leave, if it is on this host.
fn queues(node: &Document, said: &Said) -> Option<Queues> {
    let device = said.settings.as_ref()?.device.as_ref()?;
    let is_here = node.host == linux::clock::host_id();
    is_here.then(|| queueing::read(device).ok()).flatten()
}

/// The counters of the queue that this end's socket names.
fn own_queue(queues: &Queues, said: &Said) -> Option<Counters> {
    let class = Handle(said.settings.as_ref()?.socket_priority?);
    queues.class(class).filter(|_| class.major() != 0).map(|class| class.counters)
}

/// The counters of the first look and of this one.
fn first_and_last(known: Option<(Counters, Counters)>, now: Option<Counters>) -> Option<(Counters, Counters)> {
    now.map(|now| (known.map_or(now, |(first, _)| first), now))
}

impl End {
    /// The reports, if the node answered.
    fn said(&self) -> Option<&Said> {
        match &self.answer {
            Answer::Said(said) => Some(said),
            Answer::Silent(_) => None,
        }
    }
}

/// A node that does not answer within this time is silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// Looks at an open channel, and the pause between two of them.
const LOOKS: usize = 6;
const PAUSE: Duration = Duration::from_millis(100);
/// Largest number of realms that are searched for a missing port.
const MOST_REALMS: usize = 4;
