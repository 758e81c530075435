//! The priority of this node's ends of channels: changed while they are in use, kept by the names of the two ports, and
//! given again to a channel that is opened anew (YS-53).
//!
//! A change is carried out whole or, with the kernel's reason, not at all: sockets first, then the thread, and what was
//! changed before a refusal is put back.

mod report;
mod sockets;

use super::FlowNews;
use super::control::Control;
use super::entries::Entry;
use super::reader::ThreadError;
use crate::admin::{self, EndReport};
use crate::carrier::{SharedSocket, shared};
use crate::channel::flow::Flow;
use crate::control::{Direction, PortId};
use crate::event::Event;
use crate::port::{Channel, PortRef, Way};
use linux::sched;
use qos::Class;
use qos::priority::{Changes, Mark, PrioritySettings, band};
use sockets::{Marked, change_sockets, put_back};
use std::io;
use std::sync::{Arc, Weak};

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Publisher,
    Subscriber,
}

/// One end of a channel that is, or may come to be.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub side: Side,
    /// The port of this node.
    pub port: PortId,
    pub name: String,
    pub other: String,
}

/// Pairs of ports for which settings are kept.
const MOST_KEPT: usize = 4096;

impl Control {
    /// Changes the priority of one end of a channel.
    pub(super) fn set_priority(&mut self, port: &str, other: &str, changes: &Changes) -> admin::Reply {
        let done = if port == other { self.set_process(port, changes) } else { self.set_end(port, other, changes) };
        done.map_or_else(admin::Reply::No, |report| admin::Reply::Settings(vec![report]))
    }

    /// The priority of one end, or of all ends at a port.
    pub(super) fn get_priority(&self, port: &str, other: Option<&str>) -> admin::Reply {
        let found = match other {
            Some(other) if other == port => self.process_report(port).map(|report| vec![report]),
            Some(other) => self.find_end(port, other).and_then(|end| {
                let channel = self.channel_of(&end);
                if channel.is_none() && !self.kept.contains_key(&end.key()) {
                    return Err(self.no_channel(&end));
                }
                Ok(vec![self.report(&end, channel.as_deref())])
            }),
            None => self.find_port(port).map(|(side, id)| self.reports_of(side, id, port)),
        };
        found.map_or_else(admin::Reply::No, admin::Reply::Settings)
    }

    fn set_end(&mut self, port: &str, other: &str, changes: &Changes) -> Result<EndReport, String> {
        let end = self.find_end(port, other)?;
        let mut asked = self.kept.get(&end.key()).cloned().unwrap_or_default();
        changes.apply(&mut asked);
        asked.check().map_err(|wrong| wrong.to_string())?;
        if self.kept.len() >= MOST_KEPT && !self.kept.contains_key(&end.key()) {
            return Err(format!("settings of {MOST_KEPT} channels are kept already: take some back (NAME=default)"));
        }
        let channel = self.channel_of(&end);
        let wanted = asked.or(&self.state.priority(end.port));
        let mut note = None;
        match &channel {
            Some(channel) if end.side == Side::Publisher && self.is_multicast(channel) => {
                if asked != PrioritySettings::default() {
                    sockets::try_out(&wanted)?;
                    note = Some(self.rehome(&end, channel)?);
                }
            }
            Some(channel) => self.apply(&end, channel, &wanted)?,
            None => sockets::try_out(&wanted)?,
        }
        self.keep(&end, asked);
        let mut report = self.report(&end, channel.as_deref());
        report.note = note.unwrap_or(report.note);
        Ok(report)
    }

    fn keep(&mut self, end: &End, asked: PrioritySettings) {
        if asked == PrioritySettings::default() {
            self.kept.remove(&end.key());
        } else {
            self.kept.insert(end.key(), asked);
        }
    }

    /// What holds for the end: what was asked for it, and else for its port.
    fn wanted_by(&self, end: &End) -> PrioritySettings {
        let kept = self.kept.get(&end.key()).cloned().unwrap_or_default();
        kept.or(&self.state.priority(end.port))
    }

    /// At the publisher: what a channel that is being opened leaves by, and what holds for it.
    pub(super) fn prioritise_sent(&mut self, channel: &Arc<Channel>, way: &Way, entry: &Entry) {
        let flow = match way {
            Way::Flow(flow) | Way::Group(flow) => Some(flow),
            Way::Local(_) | Way::Ring(_) => None,
        };
        let mut sockets: Vec<SharedSocket> = flow.and_then(|flow| flow.socket()).into_iter().collect();
        if let Entry::Served(stream, _) | Entry::Shared(stream, _) = entry {
            let stream = shared(stream);
            if !sockets.iter().any(|socket| socket.ptr_eq(&stream)) {
                sockets.push(stream);
            }
        }
        let _ = channel.sockets.set(sockets);
        if let Some(flow) = flow {
            let _ = channel.flow.set(Arc::downgrade(flow));
        }
        self.prioritise_opened(Side::Publisher, channel);
    }

    /// Gives a channel that was just opened what holds for it. What the kernel refuses is told, and the channel goes on
    /// without it.
    pub(super) fn prioritise_opened(&mut self, side: Side, channel: &Arc<Channel>) {
        let end = End::of(side, channel);
        let mut wanted = self.wanted_by(&end);
        if side == Side::Publisher && self.is_multicast(channel) {
            if self.kept.contains_key(&end.key())
                && let Err(why) = self.rehome(&end, channel)
            {
                self.warn(format!("{} to {}: {why}", end.name, end.other));
            }
            wanted = self.state.priority(end.port);
        }
        let class = self.class_of(&end, channel);
        if wanted == PrioritySettings::default() && class == Class::Normal {
            return;
        }
        if let Err(why) = self.apply(&end, channel, &wanted) {
            self.warn(format!("{} to {}: its priority is not as asked: {why}", end.name, end.other));
            // What it can have besides, it has.
            let packets = PrioritySettings { sched: None, affinity: None, ..wanted };
            let _ = self.apply(&end, channel, &packets);
        }
    }

    /// Carries the settings out on a channel.
    fn apply(&self, end: &End, channel: &Arc<Channel>, wanted: &PrioritySettings) -> Result<(), String> {
        let mark = wanted.mark.unwrap_or(Mark::Class(self.class_of(end, channel)));
        let priority = wanted.socket_priority.unwrap_or_else(|| mark.socket_priority());
        let pace = wanted.pace.filter(|_| end.side == Side::Publisher);
        let before = change_sockets(channel, &Marked { mark, priority, pace })?;
        let flow = channel.flow.get().and_then(Weak::upgrade);
        let served = match (end.side, &flow) {
            (Side::Subscriber, _) => self.receive_as(channel, wanted),
            (Side::Publisher, Some(flow)) => self.send_as(end.port, flow, wanted),
            (Side::Publisher, None) => Ok(()), // no flow: the publishing thread hands over or writes into the ring
        };
        if let Err(why) = served {
            put_back(before);
            return Err(why);
        }
        if let Some(flow) = &flow {
            flow.set_pace(pace);
            flow.set_class(sending_class(mark, priority));
        }
        Ok(())
    }

    /// The sending thread of a flow: its own while scheduling or processors are set, at once by its id.
    fn send_as(&self, port: PortId, flow: &Arc<Flow>, wanted: &PrioritySettings) -> Result<(), String> {
        if !wanted.wants_own_thread() {
            if flow.own().is_some() {
                flow.move_to(None);
            }
            return Ok(());
        }
        let wanted = with_defaults(wanted).map_err(|error| error.to_string())?;
        match flow.own() {
            Some(own) => sched::apply(own.tid(), wanted.sched.as_ref(), wanted.affinity.as_deref())
                .map_err(|refused| refused.to_string()),
            None => {
                let own = self.state.senders.start_own(flow, &wanted).map_err(|error| error.to_string())?;
                if let Some((outlet, _)) = self.state.outlet(port) {
                    outlet.prepare_to_hand_over();
                }
                flow.move_to(Some(own));
                Ok(())
            }
        }
    }

    /// The receiving thread of a channel.
    fn receive_as(&self, channel: &Channel, wanted: &PrioritySettings) -> Result<(), String> {
        match self.state.readers.set_priority(channel.id, wanted) {
            // One that is not received yet, or no more, has no thread to change.
            Err(ThreadError::NoChannel) if !wanted.wants_own_thread() => Ok(()),
            done => done.map(drop).map_err(|why| why.to_string()),
        }
    }

    /// The class of an end whose mark nobody set: its publisher's, and low for bulk that states none (design: bulk must
    /// not stand in the way of what is small).
    fn class_of(&self, end: &End, channel: &Channel) -> Class {
        let class = match end.side {
            Side::Publisher => self.state.outlet(end.port).map(|(outlet, _)| outlet.info().qos.class),
            Side::Subscriber => {
                self.wanted.get(&(channel.publisher, channel.subscriber)).map(|w| w.publisher.qos.class)
            }
        };
        let bulk = channel.flow.get().and_then(Weak::upgrade).is_some_and(|flow| flow.is_bulk());
        match class.unwrap_or_default() {
            Class::Normal if bulk => Class::Low,
            class => class,
        }
    }

    /// A flow has something to say.
    pub(super) fn flow_news(&mut self, flow: u32, news: FlowNews) {
        let sends = |channel: &Channel| {
            channel.flow.get().and_then(Weak::upgrade).is_some_and(|found| found.settings.id == flow)
        };
        let channels: Vec<Arc<Channel>> = self.state.outlets().iter().flat_map(|o| o.channels()).collect();
        for channel in channels.into_iter().filter(|channel| sends(channel)) {
            match &news {
                FlowNews::NoThread(why) => self.unmatched(&channel, why),
                FlowNews::Bulk => self.became_bulk(&channel),
            }
        }
    }

    fn became_bulk(&mut self, channel: &Arc<Channel>) {
        let end = End::of(Side::Publisher, channel);
        let wanted = if self.is_multicast(channel) { self.state.priority(end.port) } else { self.wanted_by(&end) };
        if wanted.mark.is_some() || self.class_of(&end, channel) != Class::Low {
            return;
        }
        let change = match self.apply(&end, channel, &wanted) {
            Ok(()) => {
                "class=low, because it sends samples above 64 KiB and nobody set its class (class=normal keeps it)"
                    .into()
            }
            Err(why) => format!("it sends samples above 64 KiB, but cannot get class=low: {why}"),
        };
        let (publisher, subscriber) = (end.name, end.other);
        self.state.events.push(Event::PriorityChanged { publisher, subscriber, change });
    }

    // --- multicast ---------------------------------------------------------------------------------------------

    fn is_multicast(&self, channel: &Channel) -> bool {
        self.carrier(&channel.carrier).is_some_and(|carrier| carrier.capabilities().multicast)
    }

    /// One send cannot carry two marks, nor leave on two threads: the member gets a flow of its own over udp.
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
        let (id, to) = (self.next_call, channel.subscriber.node);
        self.next_call += 1;
        if !self.discoveries.iter_mut().any(|d| d.call(to, id, &request)) {
            return Err(format!("{} has to connect by udp for it, and its node cannot be asked now", end.other));
        }
        self.rehoming.retain(|(_, key)| *key != end.key());
        self.rehoming.push((id, end.key()));
        Ok(note)
    }

    /// The subscriber's node answered: a member that stays in its group keeps the group's priority.
    pub(super) fn rehomed(&mut self, id: u64, answer: &[u8]) {
        let Some(at) = self.rehoming.iter().position(|(call, _)| *call == id) else { return };
        let (_, key) = self.rehoming.swap_remove(at);
        if let Err(why) = admin::unpack(answer) {
            self.kept.remove(&key);
            self.warn(format!("{} to {} keeps its group's priority: {why}", key.0, key.1));
        }
    }

    // --- which end ---------------------------------------------------------------------------------------------

    fn find_end(&self, name: &str, other: &str) -> Result<End, String> {
        let (side, port) = self.find_port(name)?;
        let direction = self.state.directory().port_named(other).map(|(_, info)| info.direction);
        let same = match side {
            Side::Publisher => direction == Some(Direction::Publisher),
            Side::Subscriber => direction == Some(Direction::Subscriber),
        };
        if same {
            return Err(format!("no channel leads from {name} to {other}: both are {}s", side.name()));
        }
        crate::control::matching::check_name(other).map_err(|wrong| format!("port name {wrong}"))?;
        Ok(End { side, port, name: name.to_owned(), other: other.to_owned() })
    }

    fn find_port(&self, name: &str) -> Result<(Side, PortId), String> {
        if let Some((port, _)) = self.state.outlet_named(name) {
            return Ok((Side::Publisher, port));
        }
        let inlets = self.state.inlets();
        if let Some((port, _)) = inlets.iter().find(|(_, inlet)| inlet.info().name == name) {
            return Ok((Side::Subscriber, *port));
        }
        let outlets = self.state.outlets();
        let names = outlets.iter().map(|o| &o.info().name).chain(inlets.iter().map(|(_, i)| &i.info().name));
        Err(format!("this node has no port {name}: it has {}", listed(names)))
    }

    fn channels_at(&self, side: Side, port: PortId) -> Vec<Arc<Channel>> {
        match side {
            Side::Publisher => {
                let waiting = self.attaching.iter().map(|pending| pending.channel.clone());
                let attached = self.state.outlet(port).map(|(outlet, _)| outlet.channels()).unwrap_or_default();
                attached.into_iter().chain(waiting.filter(|channel| channel.publisher.port == port)).collect()
            }
            Side::Subscriber => {
                let inlet = self.state.inlet(port);
                let channels = inlet.and_then(|i| i.channels().lock().map(|channels| channels.clone()).ok());
                channels.unwrap_or_default().into_iter().filter(|channel| !channel.is_closed()).collect()
            }
        }
    }

    fn channel_of(&self, end: &End) -> Option<Arc<Channel>> {
        let channels = self.channels_at(end.side, end.port);
        channels.into_iter().rev().find(|channel| *end.side.other_name(channel) == end.other)
    }

    /// Which channels there are instead of the one that was meant.
    fn no_channel(&self, end: &End) -> String {
        let channels = self.channels_at(end.side, end.port);
        let names = listed(channels.iter().map(|channel| end.side.other_name(channel)));
        format!("{} has no channel with {}: it has channels with {names}", end.name, end.other)
    }
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Publisher => "publisher",
            Side::Subscriber => "subscriber",
        }
    }
    fn port(self, channel: &Channel) -> PortRef {
        if self == Side::Publisher { channel.publisher } else { channel.subscriber }
    }
    fn own_name(self, channel: &Channel) -> &String {
        if self == Side::Publisher { &channel.publisher_name } else { &channel.subscriber_name }
    }
    fn other_name(self, channel: &Channel) -> &String {
        if self == Side::Publisher { &channel.subscriber_name } else { &channel.publisher_name }
    }
}

impl End {
    fn of(side: Side, channel: &Channel) -> Self {
        let (name, other) = (side.own_name(channel).clone(), side.other_name(channel).clone());
        End { side, port: side.port(channel).port, name, other }
    }
    fn key(&self) -> (String, String) {
        (self.name.clone(), self.other.clone())
    }
}

/// A thread's settings, whole: what is not asked for is as this thread has it, which nobody set.
fn with_defaults(wanted: &PrioritySettings) -> io::Result<PrioritySettings> {
    let model = sched::read(0)?;
    let sched = wanted.sched.or(model.scheduling());
    Ok(PrioritySettings { sched, affinity: Some(wanted.affinity.clone().unwrap_or(model.affinity)), ..wanted.clone() })
}

/// The class whose thread sends what has to wait: the mark's, or that of the band it falls into.
fn sending_class(mark: Mark, socket_priority: u32) -> Class {
    mark.class().unwrap_or(match band(socket_priority) {
        0 => Class::High,
        1 => Class::Normal,
        _ => Class::Low,
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const MOST: usize = 16;
    let names: Vec<&str> = names.map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST => format!("{} and {} more", names[..MOST].join(", "), count - MOST),
        _ => names.join(", "),
    }
}
