//! Administrative commands to a port, which the whole house answers alike ([`thalweg::admin::answer`]), and the words of `yarp ping`.

use super::hub::Hub;
use super::names::target;
use super::port::{End, Port, Role};
use crate::lock;
use linux::sched::Scheduled;
use qos::priority::{Change, Changes, Mark, PrioritySettings, Scheduling};
use std::collections::BTreeMap;
use std::io;
use std::sync::MutexGuard;
use thalweg::ChannelReport;
use thalweg::admin::EndReport;
use thalweg::admin::answer::{Administered, Side, answer};
use thalweg::bottle::{Bottle, Property, Value};
use thalweg::carrier;

/// The port and carrier of a command that connects, which needs others and is not answered here.
pub(super) fn connects(command: &Bottle) -> Option<(String, Option<String>)> {
    let [first, rest @ ..] = &command.0[..] else { return None };
    if !first.word()?.eq_ignore_ascii_case("add") {
        return None;
    }
    let (carrier, name) = target(rest.first().and_then(Value::word).unwrap_or_default());
    let given = rest.get(1).and_then(Value::word).or(carrier).filter(|carrier| !carrier.is_empty());
    Some((name.to_owned(), given.map(str::to_owned)))
}

/// The answer to `add`.
pub(super) fn connected(port: &str, to: &str, done: &Result<(), String>) -> Bottle {
    Bottle(match done {
        Ok(()) => vec![Value::Int(0), Value::Text(format!("Added connection from {port} to {to}"))],
        Err(why) => vec![Value::Int(-1), Value::text(why.as_str())],
    })
}

/// Carries a command out.
pub(super) fn administer(port: &Port, hub: &Hub, command: &Bottle) -> Bottle {
    let mut desk = Desk { port, hub, properties: lock(&port.properties) };
    Bottle::parse(&answer(&command.to_string(), &mut desk).text).unwrap_or_default()
}

/// The lines of `*` (`PortCore::describe`).
pub(super) fn describe(port: &Port) -> Vec<String> {
    let ends = lock(&port.ends);
    let mut lines = vec![format!("This is {} at tcp://{}/", port.name, port.address)];
    let line = |kind: &str, from: &str, to: &str, end: &End| {
        format!("There is an {kind} connection from {from} to {to} using {}", end.carrier.name())
    };
    lines.extend(ends.outputs.iter().map(|end| line("output", &port.name, &end.other, end)));
    if ends.outputs.is_empty() {
        lines.push("There are no outgoing connections".to_owned());
    }
    lines.extend(ends.inputs.iter().map(|end| line("input", &end.other, &port.name, end)));
    if ends.inputs.is_empty() {
        lines.push("There are no incoming connections".to_owned());
    }
    lines
}

/// The lines of `?`.
pub(super) const HELP: [&str; 10] = [
    "This is a YARP port.  Here are the commands it responds to:",
    "*       Gives a description of this port",
    "d       Signals the beginning of input for the port's owner",
    "q       Disconnects",
    "r       Reverse connection type to be a reader",
    "/port   Requests to send output to /port",
    "!/port  Requests to stop sending output to /port",
    "~/port  Requests to stop receiving input from /port",
    "a       Signals the beginning of an administrative message",
    "?       Gives this help",
];

/// The lines after any other word.
pub(super) const NOT_UNDERSTOOD: [&str; 3] =
    ["Port command not understood.", "Type d to send data to the port's owner.", "Type ? for help."];

struct Desk<'a> {
    port: &'a Port,
    hub: &'a Hub,
    properties: MutexGuard<'a, BTreeMap<String, Value>>,
}

const MONITORS: &str = "monitors are attached to ports of Thalweg, not to those that a bridge has in YARP";
const THREADS: &str = "the connections of a bridge share one thread; (sched …) of the channel in Thalweg: thalweg set";

/// Changes all of these connections, or none.
fn change_all<'a>(ends: impl Iterator<Item = &'a mut End>, changes: &Changes, mark: Mark) -> io::Result<()> {
    let mut changed: Vec<(&mut End, PrioritySettings)> = Vec::new();
    for end in ends {
        let before = end.asked.clone();
        changes.apply(&mut end.asked);
        let marked = end.mark(mark);
        changed.push((end, before));
        if let Err(error) = marked {
            for (end, before) in changed {
                end.asked = before;
                let _ = end.mark(mark); // as it was before, so the kernel has taken it once
            }
            return Err(error);
        }
    }
    Ok(())
}

impl Desk<'_> {
    fn is_output(&self) -> bool {
        matches!(self.port.role, Role::Out)
    }

    /// `true` if the thread of the connections is scheduled so; 0 is also a nice value that was not stated.
    fn is_scheduled(&self, wanted: Scheduling) -> bool {
        let found = linux::sched::read(self.hub.thread()).ok().and_then(|found| found.scheduling());
        found.is_some_and(|found| [found, Scheduling { nice: 0, ..found }].contains(&wanted))
    }

    fn report(&self, end: &str, of: Option<&End>) -> EndReport {
        let tid = self.hub.thread();
        let found = linux::sched::read(tid).ok();
        let marks = of.and_then(|of| linux::marks::read(of.link.fd()).ok());
        EndReport {
            end: end.to_owned(),
            asked: of.map(|of| of.asked.clone()).unwrap_or_default(),
            tid: Some(tid),
            policy: found.as_ref().map_or("", Scheduled::policy_name).to_owned(),
            priority: found.as_ref().map_or(0, |found| found.priority().into()),
            tos: marks.map(|marks| marks.tos),
            socket_priority: marks.map(|marks| marks.priority),
            ..EndReport::default()
        }
    }
}

impl Administered for Desk<'_> {
    fn name(&self) -> String {
        self.port.name.clone()
    }

    fn side(&self) -> Side {
        if self.is_output() { Side::Out } else { Side::In }
    }

    fn tells_arguments(&self) -> bool {
        false
    }

    fn type_name(&self) -> String {
        String::new()
    }

    fn connections(&self) -> Vec<ChannelReport> {
        let ends = lock(&self.port.ends);
        let report = |end: &End| {
            let (own, other) = (self.port.name.clone(), end.other.clone());
            let (publisher, subscriber) = if self.is_output() { (own, other) } else { (other, own) };
            ChannelReport { publisher, subscriber, carrier: end.carrier.name().into(), ..ChannelReport::default() }
        };
        if self.is_output() {
            ends.outputs.iter().map(report).collect()
        } else {
            ends.inputs.iter().map(report).collect()
        }
    }

    fn connect(&mut self, other: &str, _: Option<&carrier::Name>) -> Result<String, String> {
        Err(format!("cannot connect to {other} here"))
    }

    fn disconnect(&mut self, other: &str) -> Result<String, String> {
        let name = &self.port.name;
        match self.hub.disconnect(self.port, |end| end.other == other) {
            0 => Err(format!("Could not find a connection to or from {other}")),
            _ if self.is_output() => Ok(format!("Removed connection from {name} to {other}")),
            _ => Ok(format!("Removing connection from {other} to {name}")),
        }
    }

    fn settings(&mut self, other: &str) -> Result<Vec<EndReport>, String> {
        if other == self.port.name {
            return Ok(vec![self.report("process", None)]);
        }
        let ends = lock(&self.port.ends);
        let end = if self.is_output() { "publisher" } else { "subscriber" };
        Ok(ends.all().filter(|found| found.other == other).map(|found| self.report(end, Some(found))).collect())
    }

    fn set(&mut self, other: &str, changes: &Changes) -> Result<String, String> {
        // YARP's priority-qos sends back what it was told of the thread.
        let reschedules = matches!(changes.sched, Change::Set(wanted) if !self.is_scheduled(wanted));
        if reschedules || matches!(changes.affinity, Change::Set(_)) {
            return Err(THREADS.to_owned());
        }
        if other == self.port.name {
            return Ok(String::new());
        }
        let ends = &mut *lock(&self.port.ends);
        let mark = ends.mark();
        let meant = ends.outputs.iter_mut().chain(&mut ends.inputs).filter(|end| end.other == other);
        change_all(meant, changes, mark).map_err(|error| format!("the kernel refuses the mark: {error}"))?;
        Ok(String::new())
    }

    fn is_port(&self, name: &str) -> bool {
        name.starts_with('/')
    }

    fn attach(&mut self, _: Side, _: Option<(&str, &[Property])>) -> Result<(), String> {
        Err(MONITORS.to_owned())
    }

    fn set_parameters(&mut self, _: Side, _: &[Property]) -> Result<(), String> {
        Err(MONITORS.to_owned())
    }

    fn parameters(&mut self, _: Side) -> Result<Vec<Property>, String> {
        Err(MONITORS.to_owned())
    }

    fn properties(&mut self) -> &mut BTreeMap<String, Value> {
        &mut self.properties
    }

    fn other(&mut self, _: &Bottle) -> Result<Option<Bottle>, String> {
        Ok(None)
    }
}
