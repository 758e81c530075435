//! A port: its connections, what is published by it, and who takes what it receives.

use super::frame::{self, Carrier};
use super::link::{Link, Sent};
use super::server::Names;
use crate::engine::{Deliver, Sample};
use crate::lock;
use linux::poll::Poller;
use qos::Class;
use qos::priority::{Mark, PrioritySettings};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use thalweg::Change;
use thalweg::bottle::Value;

/// What a port is for.
pub(crate) enum Role {
    /// Publishes a topic.
    Out,
    /// Takes the samples of a topic.
    In(String),
    /// Is the name server.
    Names(Box<Mutex<Names>>),
    /// Only says that its program is there.
    Sign,
}

pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) role: Role,
    /// The name server has it. Held while it is asked, so that nobody gives a name back that another one takes.
    pub(crate) registered: Mutex<bool>,
    pub(crate) ends: Mutex<Ends>,
    /// What administrators have stored.
    pub(crate) properties: Mutex<BTreeMap<String, Value>>,
}

/// The connections of a port, and its users here.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) outputs: Vec<End>,
    pub(crate) inputs: Vec<End>,
    /// The classes of the publishers that share the port.
    classes: Vec<Class>,
    takers: Vec<Arc<Taker>>,
}

/// A connection.
#[derive(Clone)]
pub(crate) struct End {
    /// The port at the other end.
    pub(crate) other: String,
    pub(crate) carrier: Carrier,
    pub(crate) link: Arc<Link>,
    /// What an administrator asked for (`prop set`).
    pub(crate) asked: PrioritySettings,
}

/// Who takes samples, until it is dropped.
pub(crate) struct Taker(pub(crate) Mutex<Option<Deliver>>);

impl Port {
    pub(crate) fn new(name: &str, address: SocketAddr, role: Role) -> Self {
        let (registered, ends, properties) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { name: name.to_owned(), address, role, registered, ends, properties }
    }

    /// Publishes to all readers. The first problem is told; the other readers have the message all the same.
    pub(crate) fn publish(&self, poller: &Poller, message: &[u8], patient: bool) -> Result<(), String> {
        let outputs = lock(&self.ends).outputs.clone();
        let (mut binary, mut text, mut problem) = (None, None, None);
        for End { other, carrier, link, .. } in outputs {
            let form = if carrier.is_text() { &mut text } else { &mut binary };
            let framed = form.get_or_insert_with(|| frame::data(carrier, message).map(Arc::new));
            let why = match framed.as_ref().map(|framed| link.send(poller, framed, patient)) {
                Ok(Sent::Yes | Sent::Over) => continue,
                // A best-effort publisher drops samples as a matter of course.
                Ok(Sent::Lost) if !patient => continue,
                Ok(Sent::Lost | Sent::Stalls) => "takes nothing: its samples are lost until it does".to_owned(),
                Err(why) => format!("cannot have this message on a {} connection: {why}", carrier.name()),
            };
            problem.get_or_insert(format!("{}: {other} {why}", self.name));
        }
        problem.map_or(Ok(()), Err)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !lock(&self.ends).outputs.is_empty()
    }

    /// Gives a sample to all who take the port's topic.
    pub(crate) fn deliver(&self, message: &[u8]) {
        let Role::In(topic) = &self.role else { return };
        let takers = lock(&self.ends).takers.clone();
        let (change, publisher) = (Change::Written, 0);
        let sample = Sample { topic, message, publisher, origin: None, change, age_ns: 0, historical: false };
        takers.iter().for_each(|taker| taker.take(&sample));
    }

    pub(crate) fn add_taker(&self, taker: Arc<Taker>) {
        lock(&self.ends).takers.push(taker);
    }

    pub(crate) fn remove_taker(&self, taker: &Arc<Taker>) {
        lock(&self.ends).takers.retain(|other| !Arc::ptr_eq(other, taker));
    }

    /// A publisher of this class shares the port, or (`false`) no longer. Connections have the mark of the highest class.
    pub(crate) fn share(&self, class: Class, joins: bool) {
        let mut ends = lock(&self.ends);
        match ends.classes.iter().position(|other| *other == class) {
            Some(at) if !joins => drop(ends.classes.remove(at)),
            _ if joins => ends.classes.push(class),
            _ => {}
        }
        let mark = ends.mark();
        for end in &ends.outputs {
            let _ = end.mark(mark); // the next look at the socket tells
        }
    }
}

impl Ends {
    /// The mark of connections for which no administrator has set one.
    pub(crate) fn mark(&self) -> Mark {
        Mark::Class(self.classes.iter().copied().max().unwrap_or_default())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &End> {
        self.outputs.iter().chain(&self.inputs)
    }

    /// Takes connections away.
    pub(crate) fn take(&mut self, which: impl Fn(&End) -> bool) -> Vec<End> {
        let mut taken: Vec<End> = self.outputs.extract_if(.., |end| which(end)).collect();
        taken.extend(self.inputs.extract_if(.., |end| which(end)));
        taken
    }
}

impl End {
    /// Gives its packets the mark that an administrator has asked for, else this one.
    pub(crate) fn mark(&self, mark: Mark) -> std::io::Result<()> {
        self.link.mark(self.asked.mark.unwrap_or(mark), self.asked.socket_priority)
    }
}

impl Taker {
    fn take(&self, sample: &Sample<'_>) {
        if let Some(deliver) = lock(&self.0).as_mut() {
            deliver(sample);
        }
    }
}
