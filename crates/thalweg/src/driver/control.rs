//! The control thread of a node: one loop over listeners, handshakes, keep-alives, commands and timers. It carries out the actions of
//! [`Matching`]: it begins handshakes, ends channels and pushes events.

use super::admission::Admission;
use super::attachments::Attachments;
use super::calls::Calls;
use super::channels::SubscriberEnd;
use super::entries::{Descriptors, Entry};
use super::flows::Groups;
use super::handshake_client::{ClientHandshake, UNWATCHED};
use super::heartbeat::Heartbeat;
use super::host::Relay;
use super::housekeeping::Housekeeping;
use super::interfaces::Interfaces;
use super::keep::Lasting;
use super::matching::{Action, Candidate, Known, Matching, OwnPorts, Pair, Route};
use super::news::Discoveries;
use super::peering::Peering;
use super::policies::Policies;
use super::priority::Priorities;
use super::proxy::Moves;
use super::state::NodeState;
use super::succession::CutOffs;
use crate::carrier;
use crate::channel::inbound::Inbound;
use crate::channel::proxy::Proxy;
use crate::channel::{Channel, FlowNews, PortRef};
use crate::control::local::shares::Shares;
use crate::control::{NodeId, PortId, PortInfo};
use crate::event::Event;
use crate::port::{AnyPublisher, AnySubscriber};
use linux::poll::{Readiness, Ready};
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Requests of other threads to the control thread.
pub(crate) enum Command {
    PortAdded(PortId, PortInfo),
    PortRemoved(PortId),
    /// Links are wanted to nodes of this host that share this. The reply is `true` if some links are being made.
    Meet(Shares, mpsc::Sender<bool>),
    /// A panic is injected: once, or from now on whenever timers are looked at.
    #[cfg(test)]
    Panic(bool),
    /// A test looks at the control thread's state, or holds the thread up.
    #[cfg(test)]
    Look(Box<dyn FnOnce(&mut Control) + Send>),
    /// A reader has finished with a channel.
    Ended {
        channel: Arc<Channel>,
        why: String,
    },
    /// The port that answers a channel's samples is ready: the channel may begin.
    Begin {
        questions: Box<Inbound>,
        /// The channel of the answers, by its ports and number; `None`: it could not be opened.
        answers: Option<(Pair, u64)>,
    },
    /// The new flow of a proxy that moved has taken over.
    Moved(Pair),
    /// A report of the flow with this id.
    Flow(u32, FlowNews),
    /// A publishing port is alive; `None`: all ports whose liveliness is by node.
    Alive(Option<PortId>),
    /// All commands before it were carried out.
    Barrier(mpsc::Sender<()>),
    /// Ask another node.
    Call {
        to: NodeId,
        request: Vec<u8>,
        answer: mpsc::Sender<Vec<u8>>,
    },
}

/// The state of the control thread.
pub(crate) struct Control {
    pub(super) state: Arc<NodeState>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) descriptors: Descriptors,
    pub(super) discoveries: Discoveries,
    pub(super) groups: Groups,
    pub(super) interfaces: Interfaces,
    pub(super) matching: Matching,
    /// The open channels of wanted pairs, and those to come.
    pub(super) ends: BTreeMap<Pair, SubscriberEnd>,
    pub(super) attachments: Attachments,
    /// Channels of publishers whose subscribers may come back.
    pub(super) cut_off: CutOffs,
    pub(super) calls: Calls,
    pub(super) moves: Moves,
    pub(super) lasting: Lasting,
    pub(super) priorities: Priorities,
    pub(super) heartbeat: Heartbeat,
    pub(super) relay: Relay,
    pub(super) housekeeping: Housekeeping,
    pub(super) policies: Policies,
    pub(super) peering: Peering,
    pub(super) admission: Admission,
    #[cfg(test)]
    pub(super) panics: bool,
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    pub(super) fn run(mut self) {
        super::serves_others();
        self.state.readers.as_this_thread();
        let mut ready: Vec<Ready> = Vec::with_capacity(64);
        let mut in_vain = 0;
        while !self.state.is_closed() {
            let timeout = match self.state.mailbox.len() {
                0 => self.next_timer().map(|at| at.saturating_duration_since(Instant::now())),
                _ => Some(Duration::ZERO),
            };
            if let Err(error) = self.descriptors.poller.wait(&mut ready, timeout) {
                crate::guard::abort(&format!("the control thread cannot wait any more: {error}"));
            }
            for event in ready.iter().filter(|e| e.token != WAKER) {
                let index = event.token as usize;
                if !self.survives("what came on a connection", |control| control.entry_ready(index)) {
                    self.give_up(index);
                }
            }
            self.state.waker.clear();
            self.take_commands();
            self.take_news(NEWS_AT_ONCE, Some(Instant::now() + NEWS_TIME));
            let survived = self.survives("a timer", |control| control.timers(Instant::now()));
            in_vain = if survived { 0 } else { in_vain + 1 };
            if in_vain >= MOST_PANICS {
                crate::guard::abort("the control thread cannot look at its timers any more");
            }
        }
        self.open_channels().for_each(|channel| channel.cut());
        for subscriber_port in self.state.subscriber_ports() {
            subscriber_port.1.close();
        }
        for publisher_port in self.publisher_ports() {
            publisher_port.close();
        }
    }

    /// Carries out the commands of other threads, in their order. Ports that were opened right after each other become known together.
    fn take_commands(&mut self) {
        let mut opened = Vec::new();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::PortAdded(port, info) => opened.push((port, info)),
                other => {
                    self.own_ports_added(std::mem::take(&mut opened));
                    self.survives("a command", |control| control.command(other));
                }
            }
        }
        self.own_ports_added(opened);
    }

    /// Handles one event. A panic within it is caught and reported as a warning. `false`: the event panicked, and its origin is to be
    /// dropped.
    pub(super) fn survives(&mut self, what: &'static str, event: impl FnOnce(&mut Self)) -> bool {
        let Err(why) = crate::guard::guarded(what, || event(self)) else { return true };
        self.warn(format!("an error of this program, please report it: {why}; what asked for it is dropped"));
        std::thread::sleep(PANIC_PAUSE);
        false
    }

    /// Takes events of others, at most `most` of them and not beyond `until`.
    fn take_news(&mut self, most: usize, until: Option<Instant>) {
        for _ in 0..most {
            let Some((origin, event)) = self.state.mailbox.take() else { return };
            self.survives("what another node said", |control| control.discovered(origin, event));
            if until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let streams = self.descriptors.all().filter_map(|e| match e {
            Entry::Incoming(incoming) => Some(incoming.until),
            Entry::ClientHandshake(handshake) => Some(handshake.until),
            Entry::Probing(probing) => Some(probing.due()),
            _ => None,
        });
        streams
            .chain(self.matching.next_deadline())
            .chain(self.moves.next_deadline())
            .chain(self.attachments.next_deadline(Instant::now()))
            .chain(self.calls.next_deadline())
            .chain(self.relay.next_deadline())
            .chain(self.heartbeat.next_deadline())
            .chain(self.policies.next_deadline())
            .chain(self.peering.next_deadline())
            .chain([self.housekeeping.next_deadline(!self.matching.is_empty())])
            .chain(self.admission.next_deadline())
            .chain(self.cut_off.next_deadline())
            .min()
    }

    pub(super) fn timers(&mut self, now: Instant) {
        #[cfg(test)]
        assert!(!self.panics, "injected");
        self.ask_publishers();
        self.end_older(now);
        self.give_up_cut_off(now, |_| false);
        let noticed = self.policies.poll(now, linux::clock::monotonic_ns());
        self.emit(noticed);
        self.keep_house(now);
        let actions = self.matching.time(now);
        self.act(actions);
        self.calls.expire(now);
        self.ask_for_signs(now);
        self.retry_moves(now);
        self.look_after_hosted(now);
        self.expire_streams(now);
        self.look_after_socket(now);
        self.unpark(now);
        let actions = self.admission.poll(now);
        self.admit_as_said(actions);
    }

    pub(super) fn expire_streams(&mut self, now: Instant) {
        for index in 0..self.descriptors.len() {
            match self.descriptors.get(index) {
                Some(Entry::Incoming(incoming)) if incoming.until <= now => {
                    let peer = incoming.peer;
                    self.unwatch(index);
                    self.came_to_nothing(peer, "incoming streams that said nothing in time");
                }
                Some(Entry::ClientHandshake(handshake)) if handshake.until <= now => self.handshake_late(index),
                Some(Entry::Probing(probing)) if probing.due() <= now => self.probe_due(index, now),
                _ => {}
            }
        }
    }

    pub(super) fn matched(&self, channel: &Channel) {
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        self.state.events.push(Event::Matched { publisher, subscriber, carrier: channel.carrier.clone() });
        self.state.made_progress();
    }

    pub(super) fn unmatched(&self, channel: &Channel, why: &str) {
        let (publisher, subscriber) = (channel.publisher_name.clone(), channel.subscriber_name.clone());
        self.state.events.push(Event::Unmatched { publisher, subscriber, reason: why.to_owned() });
        self.state.made_progress();
    }

    pub(super) fn warn(&self, text: String) {
        self.state.events.push(Event::Warning { text });
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::PortAdded(port, info) => self.own_ports_added(vec![(port, info)]),
            Command::PortRemoved(port) => self.own_port_removed(port),
            Command::Meet(shares, met) => drop(met.send(self.meet(shares))),
            #[cfg(test)]
            Command::Panic(always) => {
                self.panics = always;
                assert!(always, "injected");
            }
            #[cfg(test)]
            Command::Look(look) => look(self),
            Command::Ended { channel, why } => self.channel_ended(&channel, why),
            Command::Begin { questions, answers } => self.answers_ready(*questions, answers),
            Command::Moved(pair) => self.moved(pair),
            Command::Flow(flow, news) => self.flow_news(flow, news),
            Command::Alive(port) => {
                let ports = port.map_or_else(|| self.alive_by_node(), |port| vec![port]);
                self.tell_alive(ports);
            }
            Command::Barrier(reached) => {
                self.take_news(self.state.mailbox.len(), None); // events that arrived before the barrier are part of it
                let _ = reached.send(());
            }
            Command::Call { to, request, answer } => self.call(to, request, answer),
        }
    }

    /// Passes the matching state machine, with what this node knows, to `ask`.
    pub(super) fn ask_matching<R>(&mut self, ask: impl FnOnce(&mut Matching, Known) -> R) -> R {
        let here = self.state.document();
        let directory = self.state.directory();
        ask(&mut self.matching, Known { here: &here, directory: &directory })
    }

    /// Carries out these actions.
    pub(super) fn act(&mut self, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            match action {
                Action::Begin(pair) => self.begin_wanted(pair),
                Action::Try(pair, way) => self.try_way(pair, &way),
                Action::End { pair, why, cut: true } => self.cut_wanted(pair, why),
                Action::End { pair, why, cut: false } => self.drop_wanted(pair, why),
                Action::Tell(event) => self.state.events.push(event),
            }
        }
    }

    /// This node's ports.
    pub(super) fn own_ports(&self) -> Ports {
        Ports { publisher_ports: self.state.publisher_ports(), subscriber_ports: self.state.subscriber_ports() }
    }

    /// Compares two ports, and begins a channel between them if they match.
    pub(super) fn consider(&mut self, publisher: PortRef, offered: &PortInfo, subscriber: PortRef, asked: &PortInfo) {
        let now = Instant::now();
        let actions = self
            .ask_matching(|matching, known| matching.consider((publisher, offered), (subscriber, asked), known, now));
        self.act(actions);
    }

    /// The ways to a publisher, best first.
    pub(super) fn ways(&mut self, pair: Pair, offered: &PortInfo, asked: &PortInfo, proxy: &Proxy) -> Vec<Candidate> {
        self.ask_matching(|matching, known| matching.ways(pair, (offered, asked), proxy, known))
    }

    fn begin_wanted(&mut self, pair: Pair) {
        let Some(wanted) = self.matching.get(&pair) else { return };
        let offered = wanted.publisher.clone();
        if !self.may_keep(pair.0, &offered, pair.1) {
            self.matching.forget(pair);
            return;
        }
        let action = self.matching.try_next(pair);
        self.act(action);
    }

    fn try_way(&mut self, pair: Pair, way: &Candidate) {
        let now = Instant::now();
        let Some(wanted) = self.matching.get(&pair) else { return };
        if way.route == Route::Process {
            return self.try_local(pair);
        }
        // A ring's reader needs a thread of its own. When these threads are used up, a socket is chosen: sockets share one thread.
        let others = wanted.candidates.iter().any(|c| c.carrier != carrier::Name::Shm);
        if matches!(way.route, Route::Tcp(_)) && !self.may_begin_handshake(pair) {
            return self.matching.had_no_room(pair, now);
        }
        let has_thread = || self.state.readers.has_own_thread_left(self.descriptors.handshakes().threads());
        if way.carrier == carrier::Name::Shm && others && !has_thread() {
            return self.matching.pass_over(pair, now);
        }
        match ClientHandshake::start(&self.state, pair, wanted, way, None) {
            Ok(handshake) => {
                if self.watch(Entry::ClientHandshake(Box::new(handshake)), Readiness::OUT).is_none() {
                    self.try_failed(pair, UNWATCHED);
                }
            }
            Err(why) => self.try_failed(pair, &why),
        }
    }

    pub(super) fn try_failed(&mut self, pair: Pair, why: &str) {
        if self.begin_upcoming(pair) {
            return;
        }
        let now = Instant::now();
        let action = self.ask_matching(|matching, known| matching.failed(pair, why, known, now));
        self.act(action);
    }
}

/// Ports of this node, held while they are compared with others.
pub(super) struct Ports {
    publisher_ports: Vec<Arc<dyn AnyPublisher>>,
    subscriber_ports: Vec<(PortId, Arc<dyn AnySubscriber>)>,
}

impl Ports {
    pub(super) fn as_own(&self) -> OwnPorts<'_> {
        OwnPorts {
            publishers: self.publisher_ports.iter().map(|publisher_port| publisher_port.info()).collect(),
            subscribers: self
                .subscriber_ports
                .iter()
                .map(|(port, subscriber_port)| (*port, subscriber_port.info()))
                .collect(),
        }
    }
}

pub(super) const WAKER: u64 = u64::MAX;
/// Most events of others that are taken before own commands and timers have their turn, and the longest time for them.
const NEWS_AT_ONCE: usize = 64;
const NEWS_TIME: Duration = Duration::from_millis(2);
/// Pause after a panic: an event that panics again and again takes little of a processor.
const PANIC_PAUSE: Duration = Duration::from_millis(10);
/// Most panics of the timers in a row, about one second of them. After these the process is of no use, and aborts.
const MOST_PANICS: u32 = 100;
