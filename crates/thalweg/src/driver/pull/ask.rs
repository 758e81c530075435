//! Asking the histories of this node and of others, one after the other, on the asking thread.

use super::answer::{AnswerReader, Answering, Arrived, Item, Paced};
use crate::channel::SampleInfo;
use crate::channel::bucket::Limit;
use crate::channel::buffer::Buffer;
use crate::channel::history::{Absent, Query};
use crate::channel::queue::Label;
use crate::codec::TypeDescription;
use crate::control::matching::topic_matches;
use crate::control::{Direction, Document, NodeId, NotKept, PULL, PortId, PortInfo};
use crate::driver::NodeState;
use crate::driver::handshake_client::connect;
use crate::driver::matching::{Route, routes};
use crate::error::{Error, Result};
use crate::handshake::{self, Refused};
use crate::port::Histories;
use crate::pull::{Answer, Identity, MOST_EXCEPT, Question, Run, VERSION};
use qos::Place;
use socket2::{Domain, SockRef, Socket};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// A port that keeps samples and can be asked.
pub(crate) struct Holder {
    node: NodeId,
    port: PortId,
    pub name: String,
    routes: Vec<Route>,
}

impl Holder {
    /// The ports that keep samples of the topic: those of the relays `first`, then publishers, then others that keep samples for other
    /// ports.
    pub(crate) fn all(state: &NodeState, topic: &str, named: Option<&str>, first: Option<&Place>) -> Vec<Holder> {
        let here = state.document();
        let directory = state.directory();
        let ports = directory.nodes().flat_map(|there| there.ports.iter().map(move |(id, port)| (there, *id, port)));
        let mut found: Vec<(u8, Holder)> = ports
            .filter(|(_, _, port)| port.can_be_asked() && named.is_none_or(|name| name == port.name))
            .filter(|(_, _, port)| match port.direction {
                Direction::Publisher => topic_matches(topic, &port.topic),
                Direction::Subscriber => topic_matches(&port.topic, topic) || topic_matches(topic, &port.topic),
            })
            .map(|(there, port, info)| {
                let routes = routes(&here, there);
                let turn = match info.direction {
                    Direction::Subscriber if first.is_some_and(|at| at.relays().any(|name| there.is_relay(name))) => 0,
                    Direction::Publisher => 1,
                    Direction::Subscriber => 2,
                };
                (turn, Holder { node: there.node, port, name: info.name.clone(), routes })
            })
            .collect();
        found.sort_by_key(|(turn, holder)| (*turn, holder.name.clone()));
        found.into_iter().map(|(_, holder)| holder).collect()
    }

    /// A port of this node.
    pub(crate) fn own(state: &NodeState, port: PortId, info: &PortInfo) -> Holder {
        Holder { node: state.id, port, name: info.name.clone(), routes: vec![Route::Process] }
    }

    /// The publisher at the other end of a channel.
    pub(crate) fn publisher(state: &NodeState, node: NodeId, port: PortId, info: &PortInfo) -> Holder {
        let routes = state.directory().node(node).map(|there| routes(&state.document(), there)).unwrap_or_default();
        Holder { node, port, name: info.name.clone(), routes }
    }
}

/// The refusals of relays to keep samples of a topic or pattern of topics, with the relays' names.
pub(crate) fn not_kept(state: &NodeState, topic: &str) -> Vec<(String, NotKept)> {
    let directory = state.directory();
    let of = |there: &Document| {
        let refusals = there.relay.iter().flat_map(|relay| &relay.not_kept).filter(|refusal| refusal.is_of(topic));
        refusals.map(|refusal| (there.name.clone(), refusal.clone())).collect::<Vec<_>>()
    };
    directory.nodes().flat_map(of).collect()
}

/// A question, to any holder.
pub(crate) struct Asked {
    pub topic: String,
    pub message: TypeDescription,
    pub max_message: u32,
    pub publisher: Option<String>,
    pub query: Query,
    /// The rate limit of answers from other nodes; `None`: no limit.
    pub limit: Option<Limit>,
    /// The longest pause in an answer.
    pub timeout: Duration,
}

/// A sample that was asked for.
pub(crate) struct Found {
    pub info: SampleInfo,
    pub buffer: Arc<Buffer>,
}

/// Questions under way: returns the samples of all holders, each sample once.
pub(crate) struct Asking {
    state: Arc<NodeState>,
    asked: Asked,
    holders: VecDeque<Holder>,
    source: Option<(String, Source)>,
    run: Option<Arc<Run>>,
    /// The lowest and highest sequence numbers of each publisher from the holders asked before.
    before: BTreeMap<Identity, (u64, u64)>,
    span: Option<(u64, u64)>,
    /// The missing samples, by publisher, with the name of its port; an empty list: the answer was complete.
    absent: BTreeMap<Identity, (String, Vec<Absent>)>,
}

enum Source {
    Here(Box<Answering>),
    There(Box<AnswerReader>),
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Asking {
    pub(crate) fn new(state: Arc<NodeState>, asked: Asked, holders: Vec<Holder>) -> Self {
        let holders = holders.into();
        let (before, absent) = Default::default();
        Self { state, asked, holders, source: None, run: None, before, span: None, absent }
    }

    /// The missing samples, by the names of publishers.
    pub(crate) fn absent(&self) -> impl Iterator<Item = (&str, &Absent)> {
        self.absent.values().flat_map(|(name, all)| all.iter().map(move |absent| (name.as_str(), absent)))
    }

    /// The refusals of relays for which no other holder answered. The list is complete when all holders were asked.
    pub(crate) fn refused(&self) -> Vec<Error> {
        let answered = |publisher: &Option<String>| match publisher {
            Some(publisher) => self.absent.values().any(|(name, _)| name == publisher),
            None => !self.absent.is_empty(),
        };
        let asked = |publisher: &Option<String>| {
            publisher.is_none() || self.asked.publisher.is_none() || *publisher == self.asked.publisher
        };
        let refusals = not_kept(&self.state, &self.asked.topic).into_iter();
        let refusals = refusals.filter(|(_, refusal)| asked(&refusal.publisher) && !answered(&refusal.publisher));
        refusals.map(|(relay, refusal)| Error::Peer(format!("at relay:{relay}, {refusal}"))).collect()
    }

    /// The run whose samples arrive now.
    pub(crate) fn run(&self) -> Option<&Run> {
        self.run.as_deref()
    }

    /// The next sample; `None` when all holders were asked. After an error the next holder is asked.
    pub(crate) fn next(&mut self) -> Option<Result<Found>> {
        loop {
            if self.source.is_none() {
                let holder = self.holders.pop_front()?;
                match self.begin(&holder) {
                    Ok(source) => self.source = Some((holder.name, source)),
                    Err(error) => return Some(Err(error)),
                }
            }
            match self.step() {
                Ok(Some(found)) => return Some(Ok(found)),
                Ok(None) => {}
                Err(error) => {
                    self.end_run();
                    self.source = None;
                    return Some(Err(error));
                }
            }
        }
    }

    fn step(&mut self) -> Result<Option<Found>> {
        let Some((name, source)) = &mut self.source else { return Ok(None) };
        let arrived = match source {
            Source::Here(answering) => match answering.next(linux::clock::monotonic_ns()) {
                Item::Say(answer) => Err(answer),
                Item::Sample(entry) => Ok((entry.label(), entry.buffer)),
                Item::End => Err(Answer::Over),
            },
            Source::There(reader) => match reader.next() {
                Ok(Arrived::Said(answer)) => Err(answer),
                Ok(Arrived::Sample(header, buffer)) => Ok((Label::of(&header), buffer)),
                Err(error) => return Err(broken(name, &error, self.asked.timeout)),
            },
        };
        match arrived {
            Ok((label, buffer)) => Ok(self.found(label, buffer)),
            Err(answer) => self.said(answer).map(|()| None),
        }
    }

    fn found(&mut self, Label { seq, stamp, change, .. }: Label, buffer: Arc<Buffer>) -> Option<Found> {
        let run = self.run.as_ref()?;
        let Identity { node, port, incarnation } = run.publisher;
        if self.before.get(&run.publisher).is_some_and(|(first, last)| (*first..=*last).contains(&seq)) {
            return None; // another holder sent it
        }
        self.span = Some(self.span.map_or((seq, seq), |(first, last)| (first.min(seq), last.max(seq))));
        let same_clock = run.clock == self.state.clock;
        let received_ns = linux::clock::monotonic_ns();
        let info = SampleInfo {
            node,
            port,
            incarnation,
            seq,
            source_ns: stamp,
            received_ns,
            same_clock,
            historical: true,
            change,
            scaled: None,
        };
        Some(Found { info, buffer })
    }

    fn said(&mut self, answer: Answer) -> Result<()> {
        match answer {
            Answer::Run(run) => self.run = Some(Arc::new(run)),
            Answer::Ended(ended) => {
                let Some(run) = self.run.clone() else { return Ok(()) };
                // An earlier holder's answer counts, unless this holder has all the samples.
                let known = self.absent.contains_key(&run.publisher);
                if !known || ended.absent.is_empty() {
                    self.absent.insert(run.publisher, (run.name.clone(), ended.absent));
                }
                self.end_run();
                if ended.too_large > 0 {
                    let (count, limit) = (ended.too_large, self.asked.max_message);
                    let text = format!("{count} samples of {} are over max_message, {limit} bytes: raise it", run.name);
                    return Err(Error::Message(text));
                }
            }
            Answer::Over => self.source = None,
            Answer::Refused(Refused { policy, offered, requested, remedy, .. }) => {
                let name = self.source.take().map(|(name, _)| name).unwrap_or_default();
                let text =
                    format!("{name} does not answer: {policy}: {requested} is asked for, it has {offered}; {remedy}");
                return Err(Error::Peer(text));
            }
        }
        Ok(())
    }

    fn end_run(&mut self) {
        if let (Some(run), Some((first, last))) = (self.run.take(), self.span.take()) {
            let span = self.before.entry(run.publisher).or_insert((first, last));
            *span = (span.0.min(first), span.1.max(last));
        }
    }

    fn question(&self, holder: &Holder) -> Question {
        let complete = self.absent.iter().filter(|(_, (_, absent))| absent.is_empty());
        Question {
            version: VERSION,
            realm: self.state.settings.realm.clone(),
            to_node: holder.node,
            to_port: holder.port,
            topic: self.asked.topic.clone(),
            message: self.asked.message.clone(),
            max_message: self.asked.max_message,
            publisher: self.asked.publisher.clone(),
            except: complete.map(|(publisher, _)| *publisher).take(MOST_EXCEPT).collect(),
            query: self.asked.query.clone(),
        }
    }

    fn begin(&self, holder: &Holder) -> Result<Source> {
        let question = self.question(holder);
        if holder.node == self.state.id {
            let histories = self.state.histories(holder.port).ok_or(Error::Closed)?;
            let begun = self.state.questions.begin(question, histories);
            let refused = |refused: Refused| Error::Peer(format!("{}: {}", holder.name, refused.remedy));
            return begun.map(|answering| Source::Here(Box::new(answering))).map_err(refused);
        }
        let mut failed =
            io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address that can be reached from here");
        for route in &holder.routes {
            match self.connect_to(route, &question) {
                Ok(stream) => {
                    let reader =
                        AnswerReader::new(Paced::new(stream, self.asked.limit), self.asked.max_message as usize);
                    return Ok(Source::There(Box::new(reader)));
                }
                Err(error) => failed = error,
            }
        }
        Err(broken(&holder.name, &failed, self.asked.timeout))
    }

    fn connect_to(&self, route: &Route, question: &Question) -> io::Result<Socket> {
        let mut socket = Socket::from(connect(route)?);
        super::make_low(&socket);
        if !linux::poll::wait_writable(&socket, Some(self.asked.timeout))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if SockRef::from(&socket).domain()? == Domain::UNIX {
            self.state.users.admit(&socket)?;
        }
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(self.asked.timeout))?;
        socket.set_write_timeout(Some(self.asked.timeout))?;
        let mut bytes = vec![PULL];
        bytes.extend(handshake::pack(question).map_err(io::Error::other)?);
        socket.write_all(&bytes)?;
        Ok(socket)
    }
}

fn broken(name: &str, error: &io::Error, timeout: Duration) -> Error {
    let what = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("nothing came for {timeout:?}: it is stopped, unreachable, or needs more time")
        }
        io::ErrorKind::UnexpectedEof => "it ended in the middle of its answer, or is of an older version".to_owned(),
        _ => error.to_string(),
    };
    Error::Peer(format!("the history of {name}: {what}"))
}

impl NodeState {
    /// The histories that a port of this node keeps.
    pub(crate) fn histories(&self, port: PortId) -> Option<Arc<Histories>> {
        let kept = self.publisher_port(port).and_then(|(publisher_port, _)| publisher_port.histories().cloned());
        kept.or_else(|| self.subscriber_port(port).and_then(|subscriber_port| subscriber_port.histories().cloned()))
    }
}
