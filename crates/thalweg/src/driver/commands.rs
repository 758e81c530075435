//! Administrators' commands to this node's ports: the questions of [`crate::admin::answer`] to a port.

use super::calls::Asker;
use super::control::{Command, Control};
use super::permit::Caller;
use super::reader::CALLBACK;
use super::state::NodeState;
use crate::admin::answer::{Administered, answer};
use crate::admin::grammar::Side;
use crate::admin::{self, EndReport, Reply, Request};
use crate::bottle::{Bottle, Property, Value};
use crate::carrier;
use crate::channel::{Channel, ChannelReport};
use crate::control::{Direction, NodeId, PortId, PortInfo};
use crate::event::Event;
use crate::guard::guarded;
use crate::port::monitor::slot::MonitorSlot;
use crate::port::monitor::{Monitor, ready};
use crate::port::{AnyPublisher, AnySubscriber};
use qos::priority::Changes;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// The error for an answer that does not fit its request.
const STRANGE: &str = "an answer that does not fit";

/// A user's answers to commands that are not part of the grammar.
pub(crate) type Reader = Box<dyn FnMut(&Bottle) -> Bottle + Send>;

/// Properties and a reader that users set at a port for administration.
#[derive(Default)]
pub(crate) struct Administration {
    pub properties: BTreeMap<String, Value>,
    pub reader: Option<Reader>,
}

/// The outcome of a request.
pub(super) enum Answered {
    /// This node has carried out or refused the request.
    Here(Reply),
    /// Another node has to carry it out.
    Elsewhere(Forwarded),
}

/// A command that another node has to carry out.
pub(super) struct Forwarded {
    pub to: NodeId,
    pub request: Vec<u8>,
    /// The answer to the command when the other node has carried it out.
    pub done: String,
}

/// One end of a node's channels.
#[derive(Clone)]
pub(crate) enum End {
    Out(Arc<dyn AnyPublisher>),
    In(Arc<dyn AnySubscriber>),
}

impl End {
    fn info(&self) -> &PortInfo {
        match self {
            End::Out(publisher_port) => publisher_port.info(),
            End::In(subscriber_port) => subscriber_port.info(),
        }
    }
    fn side(&self) -> Side {
        match self {
            End::Out(_) => Side::Out,
            End::In(_) => Side::In,
        }
    }
    fn reports(&self) -> Vec<ChannelReport> {
        match self {
            End::Out(publisher_port) => publisher_port.reports(),
            End::In(subscriber_port) => subscriber_port.reports(),
        }
    }
    fn slot(&self) -> &MonitorSlot {
        match self {
            End::Out(publisher_port) => publisher_port.monitor(),
            End::In(subscriber_port) => subscriber_port.monitor(),
        }
    }
    fn weak(&self) -> WeakEnd {
        match self {
            End::Out(publisher_port) => WeakEnd::Out(Arc::downgrade(publisher_port)),
            End::In(subscriber_port) => WeakEnd::In(Arc::downgrade(subscriber_port)),
        }
    }
    fn release(&self) {
        match self {
            End::Out(publisher_port) => publisher_port.release(),
            End::In(subscriber_port) => subscriber_port.release(),
        }
    }
    /// The channels on which a callback may run where this end releases late samples.
    fn calling(&self) -> Vec<Arc<Channel>> {
        match self {
            End::Out(publisher_port) => publisher_port
                .channels()
                .into_iter()
                .filter(|channel| channel.carrier == carrier::Name::Local)
                .collect(),
            End::In(subscriber_port) => {
                subscriber_port.channels().lock().map(|channels| channels.clone()).unwrap_or_default()
            }
        }
    }
}

enum WeakEnd {
    Out(Weak<dyn AnyPublisher>),
    In(Weak<dyn AnySubscriber>),
}

impl WeakEnd {
    fn there(&self) -> Option<End> {
        match self {
            WeakEnd::Out(publisher_port) => publisher_port.upgrade().map(End::Out),
            WeakEnd::In(subscriber_port) => subscriber_port.upgrade().map(End::In),
        }
    }
}

impl NodeState {
    /// Attaches a monitor to a port. If it delays samples, a thread waits until these are due.
    pub(crate) fn attach_monitor(self: &Arc<Self>, end: &End, monitor: Box<dyn Monitor>) {
        end.slot().attach(monitor);
        if !end.slot().claim_server() {
            return;
        }
        let (name, end, state) = (end.info().name.clone(), end.weak(), Arc::downgrade(self));
        let started = self.readers.run("late", move |stop| {
            while let Some(end) = end.there().filter(|end| !stop.load(Ordering::Relaxed) && !end.slot().is_done()) {
                let released = guarded(CALLBACK, || end.release());
                if let (Err(why), Some(state)) = (released, state.upgrade()) {
                    end.slot().lost();
                    state.late_panicked(&end, &why);
                }
            }
        });
        if let Err(error) = started {
            let text = format!("{name}: no thread for the samples that its monitor delays ({error}): they stay");
            self.events.push(Event::Warning { text });
        }
    }

    /// A callback panicked while it was shown a late sample. Its channels end, as they do where a reader's callback panics.
    fn late_panicked(&self, end: &End, why: &str) {
        let text = format!("{}: a late sample is lost: {why}", end.info().name);
        self.events.push(Event::Warning { text });
        // A subscriber of another node in this process keeps its channel: only its own node can end it.
        for channel in end.calling().into_iter().filter(|channel| channel.subscriber.node == self.id) {
            self.command(Command::Ended { channel: channel.clone(), why: why.to_owned() });
            channel.cut(); // after the command with the reason
        }
    }

    /// The port of this name, with its number.
    pub(crate) fn end_named(&self, name: &str) -> Option<(PortId, End)> {
        let publisher_port = self.publisher_named(name).map(|(id, publisher_port)| (id, End::Out(publisher_port)));
        let subscriber_ports =
            || self.subscriber_ports().into_iter().map(|(id, subscriber_port)| (id, End::In(subscriber_port)));
        publisher_port.or_else(|| subscriber_ports().find(|(_, end)| end.info().name == name))
    }
}

impl Control {
    /// Carries out an administrator's command on one of this node's ports.
    pub(super) fn command_port(&mut self, port: &str, text: &str, caller: Caller) -> Answered {
        let Some((id, end)) = self.state.end_named(port) else {
            return Answered::Here(Reply::No(format!("this node has no port {port}")));
        };
        let mut kept = self.state.take_administration(id);
        let mut administered = Port { control: self, caller, end, kept: &mut kept, forwarded: None };
        let answer = answer(text, &mut administered);
        let forwarded = administered.forwarded.take();
        self.state.put_administration(id, kept);
        let reply = Reply::Text { ok: answer.ok, text: answer.text };
        forwarded.map_or(Answered::Here(reply), Answered::Elsewhere)
    }
}

/// A port while a command is carried out on it.
struct Port<'a> {
    control: &'a mut Control,
    caller: Caller,
    end: End,
    kept: &'a mut Administration,
    forwarded: Option<Forwarded>,
}

impl Port<'_> {
    /// Passes a request to the subscriber's node. If that is another node, its answer is the answer to the command.
    fn ask_subscriber(&mut self, subscriber: &str, request: &Request, done: String) -> Result<String, String> {
        let found = self.control.state.directory().port_named(subscriber).map(|(key, info)| (key.node, info.direction));
        match found {
            None => Err(format!("no port {subscriber} is known")),
            Some((_, Direction::Publisher)) => Err(format!("{subscriber} is a publisher: it has no input")),
            Some((node, _)) if node == self.control.state.id => self.administer(request.clone()).map(|_| done),
            Some((to, _)) => {
                self.forwarded = Some(Forwarded { to, request: admin::pack(request), done: done.clone() });
                Ok(done)
            }
        }
    }

    /// Carries out a request that is no command.
    fn administer(&mut self, request: Request) -> Result<Reply, String> {
        match self.control.administer(request, self.caller) {
            Answered::Here(Reply::No(why) | Reply::Refused(why)) => Err(why),
            Answered::Here(reply) => Ok(reply),
            Answered::Elsewhere(_) => Err(STRANGE.to_owned()),
        }
    }

    fn sided(&self, side: Side) -> Result<&MonitorSlot, String> {
        if side == self.end.side() {
            return Ok(self.end.slot());
        }
        let (kind, has) = if side == Side::In { ("publisher", "out") } else { ("subscriber", "in") };
        Err(format!("{} is a {kind}: it has {has} only", self.name()))
    }
}

impl Administered for Port<'_> {
    fn name(&self) -> String {
        self.end.info().name.clone()
    }
    fn side(&self) -> Side {
        self.end.side()
    }
    fn tells_arguments(&self) -> bool {
        self.caller.is_here()
    }
    fn type_name(&self) -> String {
        self.end.info().message.name.clone()
    }
    fn connections(&self) -> Vec<ChannelReport> {
        self.end.reports()
    }
    fn connect(&mut self, other: &str, carrier: Option<&carrier::Name>) -> Result<String, String> {
        let (name, carrier) = (self.name(), carrier.cloned());
        if self.side() == Side::In {
            return Err(format!("{name} is a subscriber: add connects an output; say it to {other}"));
        }
        let done = format!("Added output connection from \"{name}\" to \"{other}\".");
        let request = Request::Connect { publisher: name, subscriber: other.to_owned(), carrier };
        self.ask_subscriber(other, &request, done)
    }
    fn disconnect(&mut self, other: &str) -> Result<String, String> {
        let (name, other) = (self.name(), other.to_owned());
        let (publisher, subscriber) = if self.side() == Side::Out { (name, other) } else { (other, name) };
        // The publisher's node forgets a lasting connection, too: otherwise it would remind the subscriber's node.
        let forgotten = self.side() == Side::Out && self.control.forget_kept(&publisher, &subscriber);
        let publishing = self.control.state.directory().port_named(&publisher).map(|(key, _)| key.node);
        let done = format!("Removed connection from \"{publisher}\" to \"{subscriber}\".");
        let request = Request::Disconnect { publisher, subscriber: subscriber.clone() };
        if let Some(node) = publishing.filter(|node| *node != self.control.state.id) {
            self.control.ask(node, &admin::pack(&request), Asker::Nobody);
        }
        match self.ask_subscriber(&subscriber, &request, done.clone()) {
            Err(_) if forgotten => Ok(done),
            answer => answer,
        }
    }
    fn settings(&mut self, other: &str) -> Result<Vec<EndReport>, String> {
        let request = Request::Get { port: self.name(), other: Some(other.to_owned()) };
        match self.administer(request)? {
            Reply::Settings(reports) => Ok(reports),
            _ => Err(STRANGE.to_owned()),
        }
    }
    fn set(&mut self, other: &str, changes: &Changes) -> Result<String, String> {
        let request = Request::Set { port: self.name(), other: other.to_owned(), changes: changes.clone() };
        Ok(match self.administer(request)? {
            Reply::Settings(reports) => reports.into_iter().map(|report| report.without_effect).collect(),
            _ => String::new(),
        })
    }
    fn is_port(&self, name: &str) -> bool {
        self.control.state.directory().port_named(name).is_some()
    }
    fn attach(&mut self, side: Side, monitor: Option<(&str, &[Property])>) -> Result<(), String> {
        let slot = self.sided(side)?;
        match monitor {
            Some((kind, parameters)) => {
                self.control.state.attach_monitor(&self.end, ready(kind, parameters).map_err(|e| e.to_string())?);
                Ok(())
            }
            None if slot.detach() => Ok(()),
            None => Err(format!("no monitor is attached to the {}put of {}", side.name(), self.name())),
        }
    }
    fn set_parameters(&mut self, side: Side, parameters: &[Property]) -> Result<(), String> {
        self.sided(side)?.set(parameters)
    }
    fn parameters(&mut self, side: Side) -> Result<Vec<Property>, String> {
        self.sided(side)?.parameters()
    }
    fn properties(&mut self) -> &mut BTreeMap<String, Value> {
        &mut self.kept.properties
    }
    fn other(&mut self, command: &Bottle) -> Result<Option<Bottle>, String> {
        let reader = self.kept.reader.as_mut();
        reader.map(|reader| guarded("the port's reader", || reader(command))).transpose()
    }
}
