//! The channels of this host's programs. Their ends get the settings of the plan as soon as they are there, and lose them with it.

use crate::apply::channels::{self, Stays, TakenBack};
use crate::apply::host_file::Channel;
use crate::apply::planned;
use crate::ends::Which;
use crate::failure::Result;
use crate::output::{Output, tell};
use crate::participant::Participant;
use agent::message::{Counts, End, Side};
use qos::plan::{self, Plan};
use qos::priority::Changes;
use qos::verification::{Live, Route, find, is_subscriber};
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thalweg::ChannelReport;
use thalweg::admin::{EndReport, Reply, Request};
use thalweg::control::{Direction, Document, NodeId, PortInfo};
use thalweg::proxy::ProxyChanges;
use thalweg::stages::End as Role;

/// Time between two looks at the nodes that are there.
const TICK: Duration = Duration::from_millis(200);
/// Time between two looks at the ends after something changed: the two ports of a channel connect.
const SOON: Duration = Duration::from_millis(500);
/// The time for which it may take them.
const CONNECTING: Duration = Duration::from_secs(10);
/// Time between two looks at ends that nothing changed.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Time after which a refused setting is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// Time that a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// One end of a running channel: its port, and the port at the other end.
type Ports = (String, String);

/// The agent's side: tells the plan, and hears of the ends.
pub(super) struct Followed {
    plans: Sender<Option<Plan>>,
    ends: Arc<Mutex<Vec<End>>>,
    planned: Planned,
}

/// The topics of the plan that is installed.
#[derive(Clone, Debug, Default)]
pub(super) struct Planned(Arc<Mutex<Vec<String>>>);

impl Planned {
    /// `true` if a topic is planned.
    pub(super) fn has(&self, topic: &str) -> bool {
        let bare = |topic: &str| topic.trim_start_matches('/').to_owned();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|planned| bare(planned) == bare(topic))
    }

    fn are(&self, plan: Option<&Plan>) {
        let channels = plan.map(|plan| plan.channels.as_slice()).unwrap_or_default();
        let topics = channels.iter().filter(|channel| !channel.pipe).map(|channel| channel.topic.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = topics.collect();
    }
}

impl Followed {
    /// The topics of the plan, as they change.
    pub(super) fn planned(&self) -> Planned {
        self.planned.clone()
    }
}

impl agent::run::Channels for Followed {
    fn follow(&self, plan: Option<Plan>) {
        self.planned.are(plan.as_ref());
        let _ = self.plans.send(plan); // the other side ends after this one
    }

    fn ends(&self) -> Vec<End> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Gives the ends of channels their settings.
pub(super) struct Keeper {
    participant: Participant,
    journal: PathBuf,
    output: Output,
    plans: Receiver<Option<Plan>>,
    told: Arc<Mutex<Vec<End>>>,
    looks: Looks,
    /// Settings of ends that were refused, and when; they are tried again when something changes, or after [`TRY_AGAIN`].
    refused: HashMap<(Ports, String), (String, Instant)>,
    /// What was told of ends whose settings could not be taken back.
    stuck: Vec<String>,
}

/// A keeper with the node that reaches the programs of this host, and the agent's side of it.
pub(super) fn keeper(participant: Participant, journal: PathBuf) -> (Followed, Keeper) {
    let (plans, told) = (channel(), Arc::default());
    let followed = Followed { plans: plans.0, ends: Arc::clone(&told), planned: Planned::default() };
    let (output, looks) = (participant.output, Looks::default());
    (
        followed,
        Keeper {
            participant,
            journal,
            output,
            plans: plans.1,
            told,
            looks,
            refused: HashMap::new(),
            stuck: Vec::new(),
        },
    )
}

impl Keeper {
    /// Looks after the ends until the agent ends. Then they stay as they are.
    pub(super) fn run(mut self) {
        let mut plan = None;
        loop {
            match self.plans.recv_timeout(TICK) {
                Ok(next) if plan.as_ref() == Some(&next) => continue,
                Ok(next) => {
                    plan = Some(next);
                    self.looks.changed(Instant::now());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(plan) = &plan else { continue };
            self.participant.tell_events();
            let nodes = self.participant.others();
            let host = linux::clock::host_id();
            let here: Vec<Document> = nodes.iter().filter(|node| node.host == host).cloned().collect();
            if self.looks.due(Instant::now(), here.iter().map(|node| (node.node, node.revision)).collect()) {
                let nodes = Nodes { here: &here, all: &nodes };
                self.look(plan.as_ref(), nodes).unwrap_or_else(|why| tell(why.text()));
            }
        }
    }

    /// Sets what is not set, and takes back what is not in the plan any more.
    fn look(&mut self, plan: Option<&Plan>, nodes: Nodes<'_>) -> Result {
        let Found { wanted, silent, mut unfit } = plan.map_or_else(Found::default, |plan| self.find(plan, nodes));
        self.take_back(&wanted, &silent, nodes)?;
        self.refused.retain(|(ports, _), _| wanted.iter().any(|one| one.ports == *ports));
        let is_silent = |one: &&Wanted| silent.contains(&one.ports.0);
        let asleep = wanted.iter().filter(is_silent).map(|one| one.end_because("its program does not answer"));
        unfit.extend(asleep);
        let settled: Vec<End> = wanted.iter().filter(|one| !is_silent(one)).map(|one| self.settle(one)).collect();
        let mut ends: Vec<End> = Vec::new();
        for end in settled.into_iter().chain(unfit) {
            match ends.iter_mut().find(|other| is_same(other, &end)) {
                Some(other) => other.because = other.because.take().or(end.because), // thread and class of one end
                None => ends.push(end),
            }
        }
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = ends;
        Ok(())
    }

    /// Takes back the settings that the plan does not state any more.
    fn take_back(&mut self, wanted: &[Wanted], silent: &[String], nodes: Nodes<'_>) -> Result {
        let mut stated: HashMap<&Ports, (Changes, ProxyChanges)> = HashMap::new();
        for one in wanted {
            let (changes, proxy) = stated.entry(&one.ports).or_default();
            changes.fill(&one.channel.changes);
            proxy.fill(&one.channel.proxy);
        }
        let stays = |port: &str, other: &str| {
            // The channels of a program that does not answer now are not known.
            if silent.iter().any(|silent| silent == port) {
                return Stays::All;
            }
            let (changes, proxy) = stated.get(&(port.to_owned(), other.to_owned())).cloned().unwrap_or_default();
            Stays::Stated(changes, proxy)
        };
        let TakenBack { told, stuck } =
            channels::take_back_others(&self.participant, nodes.here, &self.journal, &stays)?;
        // An end that is stuck stays so for many looks.
        told.iter().filter(|text| !self.stuck.contains(text)).for_each(|text| self.tell(text));
        self.stuck = stuck;
        Ok(())
    }

    /// Gives an end its settings, unless it has them.
    fn settle(&mut self, one: &Wanted) -> End {
        let Wanted { channel, ports, report, end } = one;
        let words = channel.words.join(" ");
        let key = (ports.clone(), words.clone());
        if report.as_ref().is_some_and(|report| channels::has(report, channel)) {
            self.refused.remove(&key);
            return end.clone();
        }
        let known = self.refused.get(&key);
        if let Some((why, _)) = known.filter(|(_, at)| !self.looks.is_fresh() && at.elapsed() < TRY_AGAIN) {
            return one.end_because(why);
        }
        let set = channels::add(&self.participant, &[(0, channel.clone())], &self.journal).map(channels::Applied::keep);
        let (port, other) = ports;
        match set {
            Ok(_) => {
                self.refused.remove(&key);
                self.tell(&format!("{port} with {other}: {words}"));
                end.clone()
            }
            Err(why) => {
                let why = format!("{words}: {}", why.text());
                if self.refused.insert(key, (why.clone(), Instant::now())).is_none_or(|(before, _)| before != why) {
                    tell(&format!("{port} with {other}: refused: {why}"));
                }
                one.end_because(&why)
            }
        }
    }

    fn tell(&self, text: &str) {
        // The agent itself notices a closed output.
        let _ = self.output.result(&json!({ "channel": text }), || text.to_owned());
    }

    /// The ends of the plan that are here.
    fn find(&self, plan: &Plan, nodes: Nodes<'_>) -> Found {
        let (reports, silent) = self.reports(plan, nodes.here);
        let counts = self.counts(plan, nodes.here, &silent);
        // Where one is open, no setting waits for another: a subscriber may have another name than the plan's.
        let (open, waiting) = (open(nodes, &reports), waiting(plan, nodes, &reports));
        let routes = [&open, &waiting].map(|live| find(plan, live).planned);
        let mut found = Found { silent, ..Found::default() };
        for (index, planned) in plan.channels.iter().enumerate() {
            let at = |routes: &[Option<Route>]| routes.get(index)?.as_ref().map(|route| route.channel);
            let [first, second] = routes.each_ref().map(|routes| at(routes));
            let live = first.and_then(|at| open.get(at)).or_else(|| waiting.get(second?));
            let Some(live) = live else { continue };
            match planned::settings(planned, live) {
                Ok(channels) => found.wanted.extend(channels.iter().flat_map(|channel| {
                    let sides = [Side::Publisher, Side::Subscriber].into_iter();
                    let concerned = sides.filter(|side| concerns(channel.end, *side));
                    concerned
                        .filter_map(|side| Wanted::new(planned, channel, side, nodes.here, &reports))
                        .map(|one| one.with(&counts))
                        .collect::<Vec<_>>()
                })),
                // A word of the plan that nobody knows: somebody changed the file.
                Err(why) => found.unfit.extend(
                    [(Side::Publisher, &live.publisher), (Side::Subscriber, &live.subscriber)]
                        .into_iter()
                        .filter(|(_, port)| ports(nodes.here).any(|(_, here)| here.name == **port))
                        .map(|(side, _)| End { because: Some(why.text().to_owned()), ..end(planned, side) }),
                ),
            }
        }
        found
    }

    /// The ends of the plan's ports that are here, by port and other port, and ports whose program did not answer.
    fn reports(&self, plan: &Plan, nodes: &[Document]) -> (HashMap<Ports, EndReport>, Vec<String>) {
        let (mut all, mut silent) = (HashMap::new(), Vec::new());
        for (node, port) in ports(nodes).filter(|(_, port)| plan.channels.iter().any(|one| is_of(one, port))) {
            let get = Request::Get { port: port.name.clone(), other: None };
            let Ok(Reply::Settings(ends)) = self.participant.node.ask(node.node, &get, PATIENCE) else {
                silent.push(port.name.clone());
                continue;
            };
            for end in ends {
                let other = if end.publisher == port.name { &end.subscriber } else { &end.publisher };
                all.insert((port.name.clone(), other.clone()), end);
            }
        }
        (all, silent)
    }

    /// What went through the ends of the plan's topics here, as their programs count it. Those of one that does not answer are reported at the next look.
    fn counts(&self, plan: &Plan, nodes: &[Document], silent: &[String]) -> Traffic {
        let has = |node: &&Document| {
            let answered = node.ports.values().all(|port| !silent.contains(&port.name));
            answered && node.ports.values().any(|port| plan.channels.iter().any(|planned| is_of(planned, port)))
        };
        let answer = |node: &Document| self.participant.node.ask(node.node, &Request::Channels, PATIENCE);
        let reports = nodes.iter().filter(has).filter_map(|node| match answer(node) {
            Ok(Reply::Channels(reports)) => Some(reports),
            _ => None,
        });
        let count = |report: ChannelReport| {
            let ChannelReport { publisher, subscriber, end, samples, bytes, .. } = report;
            let ports = if end == Role::Publisher { (publisher, subscriber) } else { (subscriber, publisher) };
            (ports, Counts { samples, bytes })
        };
        reports.flatten().map(count).collect()
    }
}

/// What went through the ends of channels, by port and other port.
type Traffic = HashMap<Ports, Counts>;

/// The settings that an end has to have.
struct Wanted {
    channel: Channel,
    ports: Ports,
    report: Option<EndReport>,
    end: End,
}

impl Wanted {
    /// `None` if the end is not here.
    fn new(
        planned: &plan::Channel,
        channel: &Channel,
        side: Side,
        nodes: &[Document],
        reports: &HashMap<Ports, EndReport>,
    ) -> Option<Self> {
        let (publisher, subscriber) = (channel.publisher.clone(), channel.subscriber.clone());
        let (which, ports) = match side {
            Side::Publisher => (Which::Publisher, (publisher, subscriber)),
            Side::Subscriber => (Which::Subscriber, (subscriber, publisher)),
        };
        let is_here = self::ports(nodes).any(|(_, port)| port.name == ports.0);
        let end = end(planned, side);
        let channel = Channel { end: which, ..channel.clone() };
        is_here.then(|| Self { channel, report: reports.get(&ports).cloned(), ports, end })
    }

    /// With what went through it.
    fn with(self, counts: &Traffic) -> Self {
        let counts = counts.get(&self.ports).copied();
        Self { end: End { counts, ..self.end }, ..self }
    }

    /// The end, which does not have its settings for this reason.
    fn end_because(&self, why: &str) -> End {
        End { because: Some(why.to_owned()), ..self.end.clone() }
    }
}

/// The nodes of this host, and all that are known.
#[derive(Clone, Copy)]
struct Nodes<'a> {
    here: &'a [Document],
    all: &'a [Document],
}

/// The ends of a plan that are here.
#[derive(Default)]
struct Found {
    wanted: Vec<Wanted>,
    /// Ports whose program did not answer.
    silent: Vec<String>,
    /// Ends for which the plan has no settings that can be made.
    unfit: Vec<End>,
}

/// An end of a channel of the plan.
fn end(planned: &plan::Channel, side: Side) -> End {
    let plan::Channel { topic, publisher, subscriber, .. } = planned.clone();
    End { topic, publisher, subscriber, end: side, because: None, counts: None }
}

/// `true` if settings for these ends are for the one on this side.
fn concerns(which: Which, side: Side) -> bool {
    match side {
        Side::Publisher => which != Which::Subscriber,
        Side::Subscriber => which != Which::Publisher,
    }
}

fn is_same(one: &End, other: &End) -> bool {
    (&one.topic, &one.publisher, &one.subscriber, one.end)
        == (&other.topic, &other.publisher, &other.subscriber, other.end)
}

fn ports(nodes: &[Document]) -> impl Iterator<Item = (&Document, &PortInfo)> {
    nodes.iter().flat_map(|node| node.ports.values().map(move |port| (node, port)))
}

fn bare(topic: &str) -> &str {
    topic.strip_prefix('/').unwrap_or(topic)
}

/// `true` if the port may be an end of this channel of the plan.
fn is_of(planned: &plan::Channel, port: &PortInfo) -> bool {
    match port.direction {
        Direction::Publisher => bare(&planned.topic) == bare(&port.topic),
        Direction::Subscriber => is_subscriber(planned, &port.name),
    }
}

/// A channel between two ports, of which one is here.
fn between(nodes: Nodes<'_>, (port, other): &Ports) -> Option<Live> {
    let (_, here) = ports(nodes.here).find(|(_, here)| here.name == *port)?;
    let (publisher, subscriber) = match here.direction {
        Direction::Publisher => (port.clone(), other.clone()),
        Direction::Subscriber => (other.clone(), port.clone()),
    };
    let holder = ports(nodes.all).find(|(_, port)| port.name == publisher);
    let publisher_node = holder.map(|(node, _)| node.name.clone()).unwrap_or_default();
    Some(Live { topic: here.topic.clone(), publisher, publisher_node, subscriber, over: None })
}

/// The channels that have an end here.
fn open(nodes: Nodes<'_>, reports: &HashMap<Ports, EndReport>) -> Vec<Live> {
    let open = reports.iter().filter(|(_, end)| !end.carrier.as_str().is_empty()).map(|(ports, _)| ports);
    let mut all: Vec<Live> = open.filter_map(|ports| between(nodes, ports)).collect();
    all.sort_by(|a, b| (&a.publisher, &a.subscriber).cmp(&(&b.publisher, &b.subscriber)));
    all.dedup(); // both of its ends are here
    all
}

/// Those that will have one: ports with those at the other end for which settings are kept, and publishers with the plan's subscribers
/// of their topic.
fn waiting(plan: &Plan, nodes: Nodes<'_>, reports: &HashMap<Ports, EndReport>) -> Vec<Live> {
    let kept = reports.iter().filter(|(_, end)| end.carrier.as_str().is_empty()).map(|(ports, _)| ports.clone());
    let publishers = ports(nodes.here).filter(|(_, port)| port.direction == Direction::Publisher);
    let planned = publishers.flat_map(|(_, port)| {
        let of_topic = plan.channels.iter().filter(|planned| is_of(planned, port));
        of_topic.map(|planned| (port.name.clone(), planned.subscriber.clone())).collect::<Vec<_>>()
    });
    let mut all: Vec<Ports> = kept.chain(planned).collect();
    all.sort_unstable();
    all.dedup();
    all.iter().filter_map(|ports| between(nodes, ports)).collect()
}

/// The times of looks: soon after a change, rarely otherwise. Pure.
#[derive(Debug, Default)]
struct Looks {
    seen: Vec<(NodeId, u64)>,
    changed: Option<Instant>,
    last: Option<Instant>,
    fresh: bool,
}

impl Looks {
    /// Something changed: a look is due.
    fn changed(&mut self, now: Instant) {
        (self.changed, self.last) = (Some(now), None);
    }

    /// `true` if a look is due, with nodes of these revisions.
    fn due(&mut self, now: Instant, nodes: Vec<(NodeId, u64)>) -> bool {
        if self.seen != nodes {
            self.seen = nodes;
            self.changed(now);
        }
        let connects = self.changed.is_some_and(|at| now.duration_since(at) < CONNECTING);
        let every = if connects { SOON } else { LOOK_EVERY };
        let due = self.last.is_none_or(|last| now.duration_since(last) >= every);
        if due {
            self.fresh = self.last.is_none();
            self.last = Some(now);
        }
        due
    }

    /// `true` if this look is the first one since something changed.
    fn is_fresh(&self) -> bool {
        self.fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_at_a_change_soon_after_it_and_then_rarely() {
        let (mut looks, start) = (Looks::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let nodes = |revision| vec![(NodeId(1), revision)];
        assert!(looks.due(at(0), nodes(1)) && looks.is_fresh());
        assert!(!looks.due(at(400), nodes(1)));
        assert!(looks.due(at(600), nodes(1)) && !looks.is_fresh());
        assert!(!looks.due(at(10_500), nodes(1)) && looks.due(at(10_700), nodes(1)));
        assert!(!looks.due(at(20_600), nodes(1)) && looks.due(at(20_800), nodes(1)));
        assert!(looks.due(at(20_900), nodes(2)) && looks.is_fresh(), "a port came");
        looks.changed(at(21_000));
        assert!(looks.due(at(21_000), nodes(2)), "another plan");
    }
}
