//! The priority of this node's ends of channels: changed while the channels are in use, kept by the names of the two ports, and applied
//! again when a channel is opened again (YS-53).
//!
//! A change is carried out completely, or, with the kernel's reason, not at all. The sockets are changed first, then the thread. After a
//! refusal, the settings that were changed before it are restored.

mod ends;
mod kept;
mod report;

pub(super) use ends::{End, Side};
pub(super) use kept::{Priorities, Source};

use super::calls::Asker;
use super::control::Control;
use super::entries::Entry;
use super::reader::ThreadError;
use crate::admin::{self, EndReport, Reply, Request};
use crate::carrier::{self, SharedSocket, shared};
use crate::channel::flow::Flow;
use crate::channel::{Channel, FlowNews, PortRef};
use crate::event::Event;
use crate::port::Way;
use ends::{change_sockets, put_back, try_out};
use kept::{Action, Marked, Names, Step};
use linux::sched;
use qos::Class;
use qos::priority::{Changes, Mark, PrioritySettings, band};
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

/// The reason why a priority stays as it was.
#[derive(Debug)]
enum Refusal {
    /// The request is wrong, or does not fit the present ports and channels.
    No(String),
    /// The kernel refused; the text names the remedy.
    Kernel(String),
}

impl Refusal {
    pub(super) fn kernel(why: impl fmt::Display) -> Self {
        Refusal::Kernel(why.to_string())
    }
    pub(super) fn reply(self) -> Reply {
        match self {
            Refusal::No(why) => Reply::No(why),
            Refusal::Kernel(why) => Reply::Refused(why),
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal::No(why)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refusal::No(why) | Refusal::Kernel(why)) = self;
        f.write_str(why)
    }
}

#[allow(clippy::disallowed_methods)] // the threads of the driver read the clock
impl Control {
    /// Changes the priority of one end of a channel.
    pub(super) fn set_priority(&mut self, port: &str, other: &str, changes: &Changes) -> Reply {
        let done = if port == other { self.set_process(port, changes) } else { self.set_end(port, other, changes) };
        done.map_or_else(Refusal::reply, |report| Reply::Settings(vec![report]))
    }

    /// The priority of one end, or of all ends at a port.
    pub(super) fn get_priority(&self, port: &str, other: Option<&str>) -> Reply {
        let found = match other {
            Some(other) if other == port => self.process_report(port).map(|report| vec![report]),
            Some(other) => self.find_end(port, other).and_then(|end| {
                let channel = self.channel_of(&end);
                if channel.is_none() && self.priorities.of(&end.key()).is_none() {
                    return Err(self.no_channel(&end));
                }
                Ok(vec![self.report(&end, channel.as_deref())])
            }),
            None => self.find_port(port).map(|(side, id)| self.reports_of(side, id, port)),
        };
        found.map_or_else(Reply::No, Reply::Settings)
    }

    fn set_end(&mut self, port: &str, other: &str, changes: &Changes) -> Result<EndReport, Refusal> {
        let end = self.find_end(port, other)?;
        let asked = self.priorities.changed(&end.key(), changes)?;
        self.carry_out(&end, asked, Source::Set)
    }

    /// Applies the settings that are asked for an end, now or when the end exists, and keeps them.
    fn carry_out(&mut self, end: &End, asked: PrioritySettings, source: Source) -> Result<EndReport, Refusal> {
        self.priorities.make_room(&end.key())?;
        let mut channels = self.channels_of(end);
        let channel = channels.pop();
        let wanted = asked.or(&self.state.priority(end.port));
        let mut note = None;
        let open = channel.as_ref().map(|channel| self.sends_to_group(end, channel));
        match (kept::step(open, &asked), &channel) {
            (Step::Apply, Some(channel)) => self.apply(end, channel, &wanted)?,
            (Step::Rehome, Some(channel)) => {
                try_out(&wanted)?;
                note = Some(self.rehome(end, channel)?);
            }
            (Step::Stay, _) => {}
            (_, None) | (Step::TryOut, _) => try_out(&wanted)?,
        }
        self.apply_to_older(end, &channels, &wanted);
        self.keep(end.key(), asked, source);
        let mut report = self.report(end, channel.as_deref());
        report.note = note.unwrap_or(report.note);
        Ok(report)
    }

    /// Applies settings to the channels from which an end moves: they go on if the move is given up.
    fn apply_to_older(&self, end: &End, older: &[Arc<Channel>], wanted: &PrioritySettings) {
        for channel in older.iter().filter(|channel| !self.sends_to_group(end, channel)) {
            if let Err(why) = self.apply(end, channel, wanted) {
                self.warn(format!("{} to {}: the older channel is not as asked: {why}", end.name, end.other));
            }
        }
    }

    /// Keeps the settings of an end.
    fn keep(&mut self, end: Names, asked: PrioritySettings, source: Source) {
        let other = self.known(&end.1).map(|(at, _)| at.node);
        if let Some(action) = self.priorities.keep(end, asked, source, other) {
            self.prioritise(action);
        }
    }

    /// A port came: its node is told the settings that concern it.
    pub(super) fn tell_of_priorities(&mut self, at: PortRef, name: &str) {
        for action in self.priorities.came(at.node, name) {
            self.prioritise(action);
        }
    }

    /// Another node, or a file, says the settings of the first port's end.
    pub(super) fn remember(&mut self, end: Names, settings: PrioritySettings, source: Source) -> Reply {
        let is_own = self.find_port(&end.0).is_ok();
        match self.priorities.learn(end, settings, source, is_own) {
            Ok(Some(action)) => self.prioritise(action),
            Ok(None) => Reply::Done,
            Err(why) => Reply::No(why),
        }
    }

    /// Carries out an action of [`Priorities`]: gives an end its settings, or tells another node.
    fn prioritise(&mut self, action: Action) -> Reply {
        match action {
            Action::Tell(to, (port, other), settings) => {
                self.ask(to, &admin::pack(&Request::Remember { port, other, settings }), Asker::Nobody);
                Reply::Done
            }
            Action::Set((name, other), settings, source) => {
                let end = self.find_end(&name, &other).map_err(Into::into);
                let Err(why) = end.and_then(|end| self.carry_out(&end, settings, source)) else { return Reply::Done };
                self.warn(format!("{name} to {other}: its priority is not as it was before the start: {why}"));
                why.reply()
            }
        }
    }

    /// The settings that are asked for an end, and otherwise those of its port.
    fn asked_for(&self, end: &End) -> PrioritySettings {
        self.priorities.wanted(&end.key(), &self.state.priority(end.port))
    }

    /// The settings that hold for the end of a channel. One send to a group has those of the port.
    fn wanted_by(&self, end: &End, channel: &Channel) -> PrioritySettings {
        match self.sends_to_group(end, channel) || self.is_claimed(end, channel) {
            true => self.state.priority(end.port),
            false => self.asked_for(end),
        }
    }

    /// At the publisher: notes the sockets and the flow of a channel that is being opened, and applies its settings.
    pub(super) fn prioritise_sent(&mut self, channel: &Arc<Channel>, way: &Way, entry: &Entry) {
        let flow = match way {
            Way::Flow(flow) | Way::Group(flow) => Some(flow),
            Way::Local(_) | Way::Ring(_) => None,
        };
        let mut sockets: Vec<SharedSocket> = flow.and_then(|flow| flow.socket()).into_iter().collect();
        if let Entry::Served(stream, _) | Entry::Shared(stream, ..) = entry {
            let stream = shared(stream);
            if !sockets.iter().any(|socket| socket.ptr_eq(&stream)) {
                sockets.push(stream);
            }
        }
        let _ = channel.sockets.set(sockets);
        if let Some(flow) = flow {
            let _ = channel.flow.set(Arc::downgrade(flow));
            let _ = flow.stages.set(channel.stages.clone());
        }
        self.prioritise_opened(Side::Publisher, channel);
    }

    /// Applies the settings of an end to a channel that was just opened. A refusal by the kernel is reported as a warning, and the channel
    /// continues without these settings.
    pub(super) fn prioritise_opened(&mut self, side: Side, channel: &Arc<Channel>) {
        let end = End::of(side, channel);
        let wanted = self.wanted_by(&end, channel);
        if self.sends_to_group(&end, channel)
            && !self.is_claimed(&end, channel)
            && self.priorities.of(&end.key()).is_some()
            && let Err(why) = self.rehome(&end, channel)
        {
            self.warn(format!("{} to {}: {why}", end.name, end.other));
        }
        let class = self.class_of(&end, channel);
        if wanted == PrioritySettings::default() && class == Class::Normal {
            return;
        }
        if let Err(why) = self.apply(&end, channel, &wanted) {
            self.warn(format!("{} to {}: its priority is not as asked: {why}", end.name, end.other));
            // The settings for packets are applied without those for the thread.
            let packets = PrioritySettings { sched: None, affinity: None, ..wanted };
            let _ = self.apply(&end, channel, &packets);
        }
    }

    /// Applies settings to an open channel.
    fn apply(&self, end: &End, channel: &Arc<Channel>, wanted: &PrioritySettings) -> Result<(), Refusal> {
        let marked = Marked::new(wanted, self.class_of(end, channel), end.side);
        let before = change_sockets(channel, &marked)?;
        let flow = channel.sent_by();
        let served = match (end.side, &flow) {
            (Side::Subscriber, _) => self.receive_as(channel, wanted),
            (Side::Publisher, Some(flow)) => self.send_as(channel, flow, wanted),
            (Side::Publisher, None) => Ok(()), // no flow: the publishing thread hands over or writes into the ring
        };
        if let Err(why) = served {
            put_back(before);
            return Err(why);
        }
        // Within a process no link is used.
        let leaves = end.side == Side::Publisher && channel.carrier != carrier::Name::Local;
        channel.policer.set(wanted.police.filter(|_| leaves));
        if let Some(flow) = &flow {
            flow.set_pace(marked.pace);
            flow.set_latency_budget(wanted.latency_budget_ns);
            flow.set_class(sending_class(marked.mark, marked.priority));
        }
        Ok(())
    }

    /// Sets the sending thread of a flow. While scheduling or processors are set, the flow has a thread of its own, which is changed at
    /// once.
    fn send_as(&self, channel: &Channel, flow: &Arc<Flow>, wanted: &PrioritySettings) -> Result<(), Refusal> {
        if !wanted.wants_own_thread() {
            if flow.own().is_some() {
                flow.move_to(None);
            }
            return Ok(());
        }
        let wanted = with_defaults(wanted).map_err(Refusal::kernel)?;
        match flow.own() {
            Some(own) => {
                sched::apply(own.tid(), wanted.sched.as_ref(), wanted.affinity.as_deref()).map_err(Refusal::kernel)
            }
            None => {
                let own = self.state.senders.start_own(flow, &wanted).map_err(Refusal::kernel)?;
                if let Some(publisher_port) = self.publisher_port_of(channel) {
                    publisher_port.prepare_to_hand_over();
                }
                flow.move_to(Some(own));
                Ok(())
            }
        }
    }

    /// Sets the receiving thread of a channel.
    fn receive_as(&self, channel: &Channel, wanted: &PrioritySettings) -> Result<(), Refusal> {
        match self.state.readers.set_priority(channel.id, wanted) {
            // A channel that is not received yet, or not any more, has no thread to change.
            Err(ThreadError::NoChannel) if !wanted.wants_own_thread() => Ok(()),
            Err(ThreadError::NoChannel) => Err(ThreadError::NoChannel.to_string().into()),
            done => done.map(drop).map_err(Refusal::kernel),
        }
    }

    /// The class of an end without a mark of its own.
    fn class_of(&self, end: &End, channel: &Channel) -> Class {
        let class = match end.side {
            Side::Publisher => self.publisher_port_of(channel).map(|publisher_port| publisher_port.info().qos.class),
            Side::Subscriber => {
                self.matching.get(&(channel.publisher, channel.subscriber)).map(|w| w.publisher.qos.class)
            }
        };
        kept::default_class(class, channel.sent_by().is_some_and(|flow| flow.is_bulk()))
    }

    /// Handles a report of a flow.
    pub(super) fn flow_news(&mut self, flow: u32, news: FlowNews) {
        let sends = |channel: &Channel| channel.sent_by().is_some_and(|found| found.settings.id == flow);
        let channels: Vec<Arc<Channel>> = self.publisher_ports().iter().flat_map(|o| o.channels()).collect();
        for channel in channels.into_iter().filter(|channel| sends(channel)) {
            match &news {
                FlowNews::NoThread(why) => {
                    self.unmatched(&channel, why);
                    channel.close();
                    self.end_served(&channel); // the subscriber may not see the end of the flow itself
                }
                FlowNews::Bulk => self.became_bulk(&channel),
            }
        }
    }

    fn became_bulk(&mut self, channel: &Arc<Channel>) {
        let end = End::of(Side::Publisher, channel);
        let wanted = self.wanted_by(&end, channel);
        if wanted.mark.is_some() || self.class_of(&end, channel) != Class::Low {
            return;
        }
        let (publisher, subscriber) = (end.name.clone(), end.other.clone());
        if let Err(why) = self.apply(&end, channel, &wanted) {
            let text =
                format!("{publisher} to {subscriber}: it sends samples above 64 KiB, but cannot get class=low: {why}");
            return self.warn(text);
        }
        let change =
            "class=low, because it sends samples above 64 KiB and nobody set its class (class=normal keeps it)".into();
        self.state.events.push(Event::PriorityChanged { publisher, subscriber, change });
    }

    /// `true` if this is the sending end of a multicast channel: one send has one mark for all members.
    fn sends_to_group(&self, end: &End, channel: &Channel) -> bool {
        end.side == Side::Publisher && self.is_multicast(channel)
    }

    fn is_multicast(&self, channel: &Channel) -> bool {
        self.state.carrier(&channel.carrier).is_some_and(|carrier| carrier.capabilities().multicast)
    }

    /// Gives a member a flow of its own over udp: one send can neither carry two marks nor leave on two threads.
    fn rehome(&mut self, end: &End, channel: &Channel) -> Result<String, String> {
        let (publisher, subscriber) = (end.name.clone(), end.other.clone());
        let note = format!(
            "re-homed from {} to unicast udp, because one multicast send has one mark for all members: connected anew, \
             samples published meanwhile may be lost",
            channel.carrier
        );
        if channel.subscriber.node == self.state.id {
            return match self.connect(publisher, subscriber, Some("udp".into())) {
                admin::Reply::No(why) => Err(why),
                _ => Ok(note),
            };
        }
        let request = admin::pack(&admin::Request::Connect { publisher, subscriber, carrier: Some("udp".into()) });
        let (id, to) = (self.calls.number(), channel.subscriber.node);
        if !self.discoveries.call(to, id, &request) {
            return Err(format!("{} has to connect by udp for it, and its node cannot be asked now", end.other));
        }
        self.calls.forget_rehoming(&end.key());
        self.calls.sent(id, to, Asker::Rehoming(end.key()), Instant::now());
        Ok(note)
    }

    /// The subscriber's node answered: a member that stays in its group keeps the group's priority.
    pub(super) fn rehomed(&mut self, key: (String, String), answer: &[u8]) {
        if let Err(why) = admin::unpack(answer) {
            self.warn(format!("{} to {} keeps its group's priority: {why}", key.0, key.1));
            self.keep(key, PrioritySettings::default(), Source::Set);
        }
    }
}

/// Complete settings for a thread. Values that are not asked for are those of the calling thread, which no setting has changed.
fn with_defaults(wanted: &PrioritySettings) -> io::Result<PrioritySettings> {
    let model = sched::read(0)?;
    let sched = wanted.sched.or(model.scheduling());
    Ok(PrioritySettings { sched, affinity: Some(wanted.affinity.clone().unwrap_or(model.affinity)), ..wanted.clone() })
}

/// The class of the thread that sends queued samples: that of the mark, or that of the socket priority's band.
fn sending_class(mark: Mark, socket_priority: u32) -> Class {
    mark.class().unwrap_or(match band(socket_priority) {
        0 => Class::High,
        1 => Class::Normal,
        _ => Class::Low,
    })
}
