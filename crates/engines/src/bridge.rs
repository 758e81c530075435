//! Bridges: routes between the topics of a node's realm and those of an engine, opened on demand.
//!
//! | module | contents |
//! |---|---|
//! | `outlet` | from Thalweg: a publisher in the engine for each publisher here |
//! | `inlet` | to Thalweg: a subscriber in the engine for each topic that somebody subscribes to here |
//! | [`rules`] | which topics, in which direction, with which policies |
//! | `routes` | the routes that are wanted |
//! | `early` | samples that wait until their way is known |
//! | `left` | subscribers that have just gone, whose routes stay for a moment |
//! | `place` | the network there, and ways that would lead back to it |
//! | `demands` | what is asked of bridges to other networks |
//! | `notice` | its state, and what a person should know |
//!
//! A sample leaves with its publisher's port as its origin, and no bridge brings it back to a realm in which that node is. Where publishers
//! state their way instead, none carries one on to a network or a realm in which its samples have been. Of several bridges of one realm that
//! find each other in the engine, the one whose node has the lowest id carries the samples, the others take over when it is gone.

#![allow(clippy::disallowed_methods)] // the event loop reads the clock

mod demands;
mod early;
mod inlet;
mod left;
mod notice;
mod outlet;
mod place;
mod routes;
pub mod rules;

pub use notice::{Notice, Status};
pub use rules::{RuleError, Rules, Way};

use crate::engine::{Endpoint, Engine, Error};
use crate::lock;
use demands::{Demands, Wanted, demands};
use inlet::{Around, Inlet};
use left::Left;
use outlet::Outlet;
use place::Place;
use routes::{In, InKey, Out, Routes, ports, routes};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg::control::{NodeId, PortInfo};
use thalweg::{Node, PortRef};

/// A bridge between a node's realm and an engine.
pub struct Bridge {
    node: Node,
    around: Around,
    /// The counts of changes that the routes are of: the node's, and the engine's.
    seen: (u64, u64),
    /// The documents that the routes are of: node, start and revision.
    revisions: Vec<(NodeId, u64, u64)>,
    left: Left,
    /// The node that carries the samples.
    carrier: Option<NodeId>,
    outlets: BTreeMap<String, Outlet>,
    inlets: BTreeMap<InKey, Inlet>,
    demands: Demands,
    /// The outlet whose classes were looked at last, and when that was.
    looked: (String, Instant),
    /// Samples of routes that are closed: sent, and come.
    before: (u64, u64),
    /// The number of refused things that was told last.
    refused: u64,
    /// The surroundings have changed since the routes were computed.
    due: bool,
    /// The routes are not computed before: as long after the last time as that took. So half of the time is left for the channels while
    /// a thousand endpoints appear one by one.
    rest: Instant,
    /// The next time to try what has failed.
    again: Option<Instant>,
    /// What was told once.
    told: HashSet<String>,
    /// Last, because it closes after its ends.
    engine: Box<dyn Engine>,
}

/// Classes that administrators set are looked at this often, of this number of topics; of fewer, if the node is so busy that it takes longer.
const CLASSES_AGAIN: Duration = Duration::from_millis(250);
const CLASSES_AT_ONCE: usize = 32;
const CLASSES_LONGEST: Duration = Duration::from_millis(10);
/// Pause before what has failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Notices that are remembered as told.
const MOST_TOLD: usize = 4096;

impl Bridge {
    /// A bridge that has no routes before its first [`turn`](Self::turn).
    pub fn new(node: Node, engine: Box<dyn Engine>, rules: Rules) -> Self {
        let place = Arc::new(Place::of(&*engine, &rules));
        Self {
            node,
            around: Around { rules: Arc::new(rules), place, ..Around::default() },
            seen: (0, 0),
            revisions: Vec::new(),
            left: Left::default(),
            carrier: None,
            outlets: BTreeMap::new(),
            inlets: BTreeMap::new(),
            demands: Demands::default(),
            looked: (String::new(), Instant::now()),
            before: (0, 0),
            refused: 0,
            due: false,
            rest: Instant::now(),
            again: None,
            told: HashSet::new(),
            engine,
        }
    }

    /// Waits for a change of the node's surroundings, at most for `patience`, and brings the routes in line with them. What the engine
    /// tells is looked at each time.
    pub fn turn(&mut self, patience: Duration) -> Vec<Notice> {
        let patience =
            if self.due { patience.min(self.rest.saturating_duration_since(Instant::now())) } else { patience };
        let here = self.node.wait_for_changes(self.seen.0, patience);
        let there = self.engine.changes();
        let changed = (here != self.seen.0 && self.have_others_changed()) || there != self.seen.1;
        self.seen = (here, there);
        let mut notices = Vec::new();
        let again = self.again.take_if(|again| *again <= Instant::now()).is_some();
        let began = Instant::now();
        self.due |= self.elect() || changed || again || self.left.is_over(began);
        if self.due && self.rest <= began {
            notices.extend(self.adjust());
            (self.due, self.rest) = (false, Instant::now() + began.elapsed());
        }
        notices.extend(self.look());
        self.node.note_left_out(self.left_out() as u64);
        if self.told.len() + notices.len() > MOST_TOLD {
            self.told.clear(); // rather told twice than never
        }
        notices.retain(|notice| self.told.insert(notice.to_string()));
        notices
    }

    /// Takes note of the node's surroundings; `true` if other nodes have changed. What the bridge does here changes its own ports and channels,
    /// one by one: for a thousand topics the routes would be computed a thousand times.
    fn have_others_changed(&mut self) -> bool {
        let own = self.node.id();
        let mut revisions = self.node.revisions();
        revisions.retain(|(node, ..)| *node != own);
        let changed = revisions != self.revisions;
        if changed {
            let documents = self.node.others();
            *lock(&self.around.known) = documents.iter().map(|document| document.node).chain([own]).collect();
            self.left.note(&self.around.documents, &documents, own, Instant::now());
            self.around.documents = Arc::new(documents);
            self.revisions = revisions;
        }
        changed
    }

    /// The state now.
    pub fn status(&self) -> Status {
        Status {
            standby_for: self.carrier.filter(|carrier| *carrier != self.node.id()),
            publishers: self.outlets.values().map(Outlet::publishers).sum(),
            out: self.outlets.values().filter(|outlet| outlet.is_open()).count(),
            into: self.inlets.values().filter(|inlet| inlet.comes()).count(),
            left_out: self.left_out(),
            sent: self.before.0 + self.outlets.values().map(Outlet::sent).sum::<u64>(),
            came: self.before.1 + self.inlets.values().map(Inlet::came).sum::<u64>(),
        }
    }

    /// What has no port here.
    fn left_out(&self) -> usize {
        let (out, into) = (self.outlets.values().filter(|outlet| outlet.is_left_out()), self.inlets.values());
        out.count() + into.map(Inlet::left_out).sum::<usize>() + self.demands.left_out()
    }

    /// `true` while the engine knows that nobody is connected to it.
    pub fn is_alone(&self) -> bool {
        self.engine.is_alone()
    }

    /// Decides which bridge of this realm carries the samples; `true` if that is another one than before.
    fn elect(&mut self) -> bool {
        let rivals = self.engine.bridges().into_iter().filter(|node| lock(&self.around.known).contains(node));
        let carrier = rivals.chain([self.node.id()]).min();
        let another = carrier != self.carrier;
        self.carrier = carrier;
        another
    }

    fn adjust(&mut self) -> Vec<Notice> {
        let carries = self.carrier == Some(self.node.id());
        let ends = self.engine.abilities().endpoints.then(|| self.ends());
        let documents = if carries { &self.around.documents[..] } else { &[] };
        let (ends, here) = (ends.as_deref(), || ports(documents, self.node.id()));
        let mut wanted = self.routes(here(), ends);
        self.left.forget(Instant::now());
        if carries && !self.left.is_empty() {
            let before = self.routes(here().chain(self.left.ports()), ends);
            left::stay(&mut wanted.into, before.into, self.inlets.iter().map(|(key, inlet)| (key, &inlet.route)));
        }
        let asked = if carries { demands(&self.around.place, &self.around.rules, ends) } else { Wanted::new() };
        let mut notices = Vec::new();
        self.again = None;
        notices.extend(self.adjust_demands(asked));
        notices.extend(wanted.left_out().map(Notice::NotCarried));
        notices.extend(self.not_kept(&wanted.out));
        let topics = ends.map(|ends| ends.iter().map(|end| &end.topic.name[..]).collect());
        notices.extend(self.adjust_outlets(wanted.out, topics.as_ref()));
        notices.extend(self.adjust_inlets(wanted.into));
        notices
    }

    fn routes<'a>(&self, ports: impl Iterator<Item = (PortRef, &'a PortInfo)>, ends: Option<&[Endpoint]>) -> Routes {
        routes(ports, &self.around.place, &self.around.rules, ends)
    }

    /// The publishers and subscribers there, but for those whose samples have been there or here before: these are barred.
    fn ends(&self) -> Vec<Endpoint> {
        let ends = self.engine.endpoints();
        let known = lock(&self.around.known);
        let leads_back = |end: &Endpoint| self.around.place.leads_back(&end.way, &known);
        let (barred, ends): (Vec<_>, Vec<_>) = ends.into_iter().partition(leads_back);
        *lock(&self.around.barred) = barred.into_iter().map(|end| end.id).collect();
        ends
    }

    fn adjust_demands(&mut self, asked: Wanted) -> Vec<Notice> {
        let Around { place, rules, .. } = &self.around;
        let failed = self.demands.follow(&self.node, place, rules, asked);
        if !failed.is_empty() {
            self.again = Some(Instant::now() + AGAIN);
        }
        failed.into_iter().map(|(topic, error)| Notice::NotCarried(format!("{topic}: {error}"))).collect()
    }

    fn not_kept(&self, routes: &BTreeMap<PortRef, Out>) -> Vec<Notice> {
        let abilities = self.engine.abilities();
        let lost =
            routes.values().map(|out| (out, abilities.lost(&out.qos))).filter(|(_, policies)| !policies.is_empty());
        lost.map(|(out, policies)| Notice::NotKept { topic: out.topic.clone(), policies }).collect()
    }

    /// `topics` are those of others in the engine, if it tells of them: what nobody there has is not missed.
    fn adjust_outlets(&mut self, routes: BTreeMap<PortRef, Out>, topics: Option<&HashSet<&str>>) -> Vec<Notice> {
        let mut by_topic: HashMap<String, BTreeMap<PortRef, Out>> = HashMap::new();
        for (at, out) in routes {
            by_topic.entry(out.topic.clone()).or_default().insert(at, out);
        }
        let documents = &self.around.documents;
        let is_there = |at: &PortRef| {
            documents.iter().any(|document| document.node == at.node && document.ports.contains_key(&at.port))
        };
        let here: BTreeSet<String> = self.outlets.keys().chain(by_topic.keys()).cloned().collect();
        let mut notices = Vec::new();
        for topic in here {
            let outlet = self.outlets.entry(topic.clone()).or_insert_with(Outlet::new);
            let failed = outlet.adjust(
                &*self.engine,
                by_topic.get(&topic).unwrap_or(&BTreeMap::new()),
                is_there,
                Instant::now(),
            );
            if failed.iter().any(|(_, error)| matches!(error, Error::Engine(_))) {
                self.again = Some(Instant::now() + AGAIN);
            }
            if topics.is_none_or(|topics| failed.iter().any(|(there, _)| topics.contains(&there[..]))) {
                notices.extend(failed.into_iter().map(|(_, error)| Notice::NotCarried(error.to_string())));
            }
        }
        notices
    }

    fn adjust_inlets(&mut self, routes: BTreeMap<InKey, In>) -> Vec<Notice> {
        let came = &mut self.before.1;
        self.inlets.retain(|key, inlet| {
            routes.get(key).is_some_and(|route| inlet.route.serves(route)) || {
                *came += inlet.came();
                false
            }
        });
        let mut notices = Vec::new();
        for (key, route) in routes {
            let begin = || Inlet::new(&self.node, &*self.engine, &route, &self.around);
            let inlet = self.inlets.entry(key).or_insert_with(begin);
            if let Err(error) = inlet.adjust(&route, &self.around) {
                notices.push(Notice::NotCarried(format!("{}: {error}", route.topic)));
                self.again = Some(Instant::now() + AGAIN);
            }
        }
        notices
    }

    /// What others want or report meanwhile.
    fn look(&mut self) -> Vec<Notice> {
        let (node, place) = (&self.node, &self.around.place);
        let mut notices = Vec::new();
        for (topic, outlet) in &mut self.outlets {
            let opened = outlet.open_or_close(node, topic, place, Instant::now()).err();
            let failed = opened.into_iter().chain(outlet.failed());
            notices.extend(failed.map(|error| Notice::NotCarried(format!("{topic}: {error}"))));
        }
        notices.extend(self.look_at_classes());
        for inlet in self.inlets.values_mut() {
            let questions = inlet.questions().and_then(|topic| self.outlets.get(topic));
            let expected = questions.is_some_and(|questions| !questions.is_over());
            let failed = inlet.look(&*self.engine, expected).err().into_iter().chain(inlet.failed());
            notices.extend(failed.map(|error| Notice::NotCarried(format!("{}: {error}", inlet.route.topic))));
        }
        let sent = &mut self.before.0;
        self.outlets.retain(|_, outlet| {
            !outlet.is_over() || {
                *sent += outlet.sent();
                false
            }
        });
        notices.extend(self.engine.incompatible().into_iter().map(Notice::Incompatible));
        let refused = self.engine.refused();
        if refused.count > 2 * self.refused {
            self.refused = refused.count;
            notices.push(Notice::Refused(refused));
        }
        notices
    }

    /// Follows what administrators set, of some topics at a time.
    fn look_at_classes(&mut self) -> Vec<Notice> {
        self.outlets.values().for_each(Outlet::go_over);
        if self.looked.1.elapsed() < CLASSES_AGAIN {
            return Vec::new();
        }
        let (mut notices, mut last, began) = (Vec::new(), None, Instant::now());
        let from = self.looked.0.clone();
        for (topic, outlet) in
            self.outlets.range::<String, _>((Bound::Excluded(from), Bound::Unbounded)).take(CLASSES_AT_ONCE)
        {
            let followed = outlet.follow_classes(&self.node, &*self.engine);
            notices.extend(followed.into_iter().map(|error| Notice::NotCarried(format!("{topic}: {error}"))));
            last = Some(topic.clone());
            if began.elapsed() >= CLASSES_LONGEST {
                break;
            }
        }
        self.looked = (last.unwrap_or_default(), Instant::now());
        notices
    }
}
