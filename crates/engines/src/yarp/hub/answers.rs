//! What is done about what a connection says.

use super::super::bottle;
use super::super::desk::{HELP, NOT_UNDERSTOOD, administer, connected, connects, describe};
use super::super::frame::{Acknowledgements, Carrier, Heard, Payload};
use super::super::link::Link;
use super::super::names::{self, shown};
use super::super::port::{End, Port, Role};
use super::{Connection, Job, Loop, Side};
use crate::lock;
use qos::priority::PrioritySettings;
use std::net::TcpStream;
use std::sync::Arc;
use thalweg::bottle::{Bottle, Value};

impl Loop {
    /// Does what a connection asks for; `false`: it is over.
    pub(super) fn act(&mut self, connection: &mut Connection, heard: Heard) -> Result<bool, String> {
        let (port, link) = (connection.port.clone(), connection.link.clone());
        let Side::In(_, carrier, from) = &mut connection.side else { return Ok(true) };
        let mut reply = match heard {
            Heard::Opened(opened, name) => {
                (*carrier, *from) = (opened, sender(&name)?);
                connection.silent = None;
                self.open(&port, &link, *carrier, from)?;
                link.reply(&self.hub.poller, carrier.welcome(from, port.address.port()));
                return Ok(true);
            }
            Heard::Data(payload) => self.data(&port, &link, payload),
            Heard::Admin(command) => match connects(&command) {
                Some((to, given)) => return Ok(self.ask(port, &link, *carrier, true, to, given)),
                None => carrier.reply(&administer(&port, &self.hub, &command)),
            },
            Heard::Command(text) => match text.as_bytes().first() {
                Some(b'q') => {
                    link.end(&self.hub.poller, carrier.acknowledgement());
                    return Ok(true); // over when that has left
                }
                Some(b'r') if matches!(port.role, Role::Out) => {
                    link.only_replies(false);
                    link.reply(&self.hub.poller, carrier.acknowledgement());
                    let (carrier, other) = (*carrier, from.clone());
                    connection.side = Side::Out(Acknowledgements::new(carrier));
                    drop(lock(&port.ends).take(|end| end.link.token == link.token));
                    self.put_out(&port, link, carrier, &other);
                    return Ok(true);
                }
                Some(b'/') => {
                    let (given, to) = names::target(&text);
                    let (to, given) = (to.to_owned(), given.map(str::to_owned));
                    return Ok(self.ask(port, &link, *carrier, false, to, given));
                }
                _ => lines(*carrier, &self.command(&port, &text)),
            },
        };
        reply.extend(carrier.acknowledgement());
        link.reply(&self.hub.poller, reply);
        Ok(true)
    }

    /// A connection has said who it is.
    fn open(&self, port: &Port, link: &Arc<Link>, carrier: Carrier, from: &str) -> Result<(), String> {
        if carrier == Carrier::NameServer && !matches!(port.role, Role::Names(_)) {
            return Err("a command to the name server: this port is none".to_owned());
        }
        let rooted = from.starts_with('/');
        if rooted && lock(&self.hub.own).contains(from) {
            return Err(format!("{} is a port of the same bridge: samples would go round in a circle", shown(from)));
        }
        if rooted {
            // A sender that comes again has lost its connection.
            let again = |end: &mut End| end.other == from && end.link.token != link.token;
            let before: Vec<End> = lock(&port.ends).inputs.extract_if(.., again).collect();
            before.iter().for_each(|end| end.link.close());
        }
        let asked = PrioritySettings::default();
        lock(&port.ends).inputs.push(End { other: from.to_owned(), carrier, link: link.clone(), asked });
        Ok(())
    }

    /// Data for the owner of the port, and the reply.
    fn data(&self, port: &Port, link: &Link, payload: Payload) -> Vec<u8> {
        match (&port.role, payload) {
            (Role::In(_), Payload::Bytes(message)) => port.deliver(&message),
            (Role::In(_), Payload::Text(text)) => match Bottle::parse(&text) {
                Ok(read) => port.deliver(&bottle::encode(&read)),
                Err(wrong) => self.hub.refuse(format!("{}: a text {wrong}", port.name)),
            },
            (Role::Names(names), Payload::Text(command)) => {
                let said = lock(names).answer(&command, &link.peer()).text();
                return said.replace('\n', "\r\n").into_bytes();
            }
            (Role::Names(names), Payload::Bytes(bytes)) => {
                let command = bottle::decode(&bytes).map(|read| read.to_string()).unwrap_or_default();
                return bottle::encode(&lock(names).answer(&command, &link.peer()).bottle());
            }
            (Role::Out | Role::Sign, _) => {} // nobody reads it, as YARP has it
        }
        Vec::new()
    }

    /// Words of people.
    fn command(&self, port: &Port, text: &str) -> Vec<String> {
        let listed = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let end = |kind: &str, way: &str| {
            let other = text.get(1..).unwrap_or_default();
            match self.hub.disconnect(port, |end| end.other == other) {
                0 => vec![format!("Could not find an {kind} connection {way} {}", shown(other))],
                _ => vec![format!("Removed connection of {} {way} {other}", port.name)],
            }
        };
        match text.as_bytes().first() {
            Some(b'*') => describe(port),
            Some(b'!') => end("outgoing", "to"),
            Some(b'~') => end("incoming", "from"),
            Some(b'?' | b'h') => listed(&HELP),
            _ => listed(&NOT_UNDERSTOOD),
        }
    }

    /// Asks for a connection. It is answered when that is done, or cannot be.
    fn ask(
        &self,
        port: Arc<Port>,
        link: &Link,
        carrier: Carrier,
        administrative: bool,
        to: String,
        given: Option<String>,
    ) -> bool {
        let (own, other) = (port.name.clone(), to.clone());
        if let Err(why) = self.connect(Job { port, to, carrier: given, asked: (link.token, administrative) }) {
            link.reply(&self.hub.poller, answered(carrier, administrative, &own, &other, &Err(why)));
        }
        true
    }

    /// Has a port connect to another one: a thread that may wait looks for it.
    fn connect(&self, job: Job) -> Result<(), String> {
        if !matches!(job.port.role, Role::Out) {
            return Err(format!("Outputs not allowed: {} is no output port", job.port.name));
        }
        let full = "too many ports are to be connected at once: try again".to_owned();
        self.jobs.try_send(job).map_err(|_| full)
    }

    /// A connection was opened, or not: answers who asked.
    pub(super) fn join(&mut self, job: &Job, joined: Result<(Carrier, TcpStream), String>) {
        let Job { port, to, asked: (token, administrative), .. } = job;
        let is_open = self.listeners.values().any(|(other, _)| Arc::ptr_eq(other, port));
        let joined = if is_open { joined } else { joined.and(Err(format!("{} is closed", port.name))) };
        let done = joined.and_then(|(carrier, socket)| {
            let side = Side::Out(Acknowledgements::new(carrier));
            let link = self.add(port.clone(), socket, side, None).ok_or("the kernel refuses the socket")?;
            self.put_out(port, link, carrier, to);
            Ok(())
        });
        if let Some(Connection { link, side: Side::In(_, carrier, _), .. }) = self.connections.get(token) {
            link.reply(&self.hub.poller, answered(*carrier, *administrative, &port.name, to, &done));
        }
    }

    /// A reader has come, in place of an older connection of its.
    fn put_out(&self, port: &Port, link: Arc<Link>, carrier: Carrier, to: &str) {
        self.hub.disconnect(port, |end| end.other == to && to.starts_with('/'));
        let end = End { other: to.to_owned(), carrier, link, asked: PrioritySettings::default() };
        let mut ends = lock(&port.ends);
        if let Err(error) = end.mark(ends.mark()) {
            self.hub.refuse(format!("{} to {to}: the kernel refuses the mark: {error}", port.name));
        }
        ends.outputs.push(end);
    }
}

/// The sender's name, which may have modifiers of its carrier behind it (`Protocol::getSenderSpecifier`).
fn sender(name: &str) -> Result<String, String> {
    let (name, modifiers) = name.split_once(' ').unwrap_or((name, ""));
    if modifiers.contains("recv") || modifiers.contains("send") {
        return Err(format!(
            "{} has modifiers of its carrier, {}: ports here have none",
            shown(name),
            shown(modifiers)
        ));
    }
    Ok(name.chars().filter(|character| !character.is_control()).take(names::LONGEST_NAME).collect())
}

/// The answer to who has asked for a connection, in the words of `add` or of `/port`.
fn answered(carrier: Carrier, administrative: bool, port: &str, to: &str, done: &Result<(), String>) -> Vec<u8> {
    let said = connected(port, to, done);
    let text = said.0.get(1).and_then(Value::word).unwrap_or_default().to_owned();
    let mut reply = if administrative { carrier.reply(&said) } else { lines(carrier, &[text]) };
    reply.extend(carrier.acknowledgement());
    reply
}

/// Lines of text, which only text connections have.
fn lines(carrier: Carrier, all: &[String]) -> Vec<u8> {
    if !carrier.is_text() {
        return Vec::new();
    }
    all.iter().map(|line| format!("{line}\r\n")).collect::<String>().into_bytes()
}
