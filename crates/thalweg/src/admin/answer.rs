//! Carries a command out on a port and writes the answer in YARP's shapes (YS-13, YS-20…YS-22, YS-55): on ports of nodes, and on those that
//! a bridge has in YARP.

#![allow(clippy::disallowed_methods)] // the answer to `pray` is chosen by the time

pub use super::grammar::Side;

use super::EndReport;
use super::grammar::{Command, HELP};
use super::priority::Priority;
use crate::bottle::{Bottle, Property, Value};
use crate::carrier;
use crate::channel::ChannelReport;
use qos::priority::Changes;
use std::collections::BTreeMap;

/// The answer to a command, as [`super::Reply::Text`] carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// It was carried out.
    pub ok: bool,
    /// The answer as a nested list; a failure is `fail "reason"`.
    pub text: String,
}

/// A port that commands are carried out on. Every failure has a reason.
pub trait Administered {
    /// Its name.
    fn name(&self) -> String;
    /// The direction of its samples.
    fn side(&self) -> Side;
    /// `true` if the arguments of the process may be shown. They may be confidential: only callers of this host get
    /// them.
    fn tells_arguments(&self) -> bool;
    /// The name of its message type.
    fn type_name(&self) -> String;
    /// Its channels.
    fn connections(&self) -> Vec<ChannelReport>;
    /// Connects it to another port. Returns a note.
    ///
    /// # Errors
    /// The reason why not.
    fn connect(&mut self, other: &str, carrier: Option<&carrier::Name>) -> Result<String, String>;
    /// Disconnects it from another port. Returns a note.
    ///
    /// # Errors
    /// The reason why not.
    fn disconnect(&mut self, other: &str) -> Result<String, String>;
    /// Thread and packet settings of its end of the channel with `other`; those of the process for its own name.
    ///
    /// # Errors
    /// The reason why not.
    fn settings(&mut self, other: &str) -> Result<Vec<EndReport>, String>;
    /// Changes them: all, or with a reason none. Returns a note on changes that have nothing to act on there; empty: none.
    ///
    /// # Errors
    /// The reason why not.
    fn set(&mut self, other: &str, changes: &Changes) -> Result<String, String>;
    /// `true` if it is the name of a port of any node.
    fn is_port(&self, name: &str) -> bool;
    /// Attaches a monitor (`None`: detaches it).
    ///
    /// # Errors
    /// The reason why not.
    fn attach(&mut self, side: Side, monitor: Option<(&str, &[Property])>) -> Result<(), String>;
    /// Sets parameters of the monitor.
    ///
    /// # Errors
    /// The reason why not.
    fn set_parameters(&mut self, side: Side, parameters: &[Property]) -> Result<(), String>;
    /// Parameters and results of the monitor.
    ///
    /// # Errors
    /// There is none.
    fn parameters(&mut self, side: Side) -> Result<Vec<Property>, String>;
    /// Properties that users stored.
    fn properties(&mut self) -> &mut BTreeMap<String, Value>;
    /// A command of the user's own; `None`: the port has no reader for them.
    ///
    /// # Errors
    /// The reader panicked.
    fn other(&mut self, command: &Bottle) -> Result<Option<Bottle>, String>;
}

/// Most user properties that a port keeps, and the longest of them as text, in bytes.
const MOST_PROPERTIES: usize = 256;

/// Reads a command, such as `prop set /in (qos ((priority HIGH)))`, and carries it out.
pub fn answer(text: &str, port: &mut dyn Administered) -> Answer {
    match Command::parse(text).and_then(|command| carry_out(&command, port)) {
        Ok(values) => Answer { ok: true, text: Bottle(values).to_string() },
        Err(reason) => Answer { ok: false, text: Bottle(vec!["fail".into(), Value::Text(reason)]).to_string() },
    }
}

fn carry_out(command: &Command, port: &mut dyn Administered) -> Result<Vec<Value>, String> {
    match command {
        Command::Help => Ok(HELP.iter().map(|line| Value::text(*line)).collect()),
        Command::Version => Ok(vec!["ver".into(), Value::Int(1), Value::Int(2), Value::Int(3)]),
        Command::Pray => Ok(vec![Value::text(sign(&port.name()))]),
        Command::Add { other, carrier } => port.connect(other, carrier.as_ref()).map(done),
        Command::Delete { other } => port.disconnect(other).map(done),
        Command::Attach { side, properties } => attach(port, *side, properties).map(|()| ok()),
        Command::Detach { side } => port.attach(*side, None).map(|()| ok()),
        Command::List { side, other } => list(port, *side, other.as_deref()),
        Command::SetParameters { side, name, parameters } if *name == port.name() => {
            port.set_parameters(*side, parameters).map(|()| ok())
        }
        Command::SetParameters { name, .. } => Err(format!(
            "{name} is not this port: set in|out {} (KEY VALUE) sets its monitor; carriers have no parameters to set",
            port.name()
        )),
        Command::GetParameters { side, name } if *name == port.name() => {
            port.parameters(*side).map(|found| vec![dictionary(&found)])
        }
        Command::GetParameters { side, name } => list(port, *side, Some(name)).map(|found| vec![Value::List(found)]),
        Command::Properties => Ok(port.properties().iter().map(|(k, v)| Value::pair(k, v.clone())).collect()),
        Command::Property(key) => match port.properties().get(key) {
            Some(value) => Ok(vec![value.clone()]),
            None => Err(format!("there is no property {key}; prop get lists those there are")),
        },
        Command::Settings(name) if *name == port.name() => own(port),
        Command::Settings(name) => settings(port, name),
        Command::Set { key, value, priority } => set(port, key, value, priority.as_ref()).map(ok_but),
        Command::Other(command) => match port.other(command)? {
            Some(Bottle(values)) => Ok(values),
            None => Err("send [help] for list of valid commands".to_owned()),
        },
    }
}

fn ok() -> Vec<Value> {
    vec!["ok".into()]
}

/// `ok`, with a remark.
fn ok_but(said: String) -> Vec<Value> {
    let said = Some(said).filter(|said| !said.is_empty()).map(Value::Text);
    ok().into_iter().chain(said).collect()
}

fn done(text: String) -> Vec<Value> {
    vec![Value::Int(0), Value::Text(text)]
}

fn dictionary(properties: &[Property]) -> Value {
    Value::List(properties.iter().map(|(key, value)| Value::pair(key, value.clone())).collect())
}

fn attach(port: &mut dyn Administered, side: Side, properties: &[Property]) -> Result<(), String> {
    let named = |p: &&Property| p.0 == "type";
    let kind = properties.iter().find(named).and_then(|(_, kind)| kind.word());
    let kind = kind.ok_or_else(|| format!("(type NAME) is missing: {}", crate::port::monitor::TYPES))?.to_owned();
    let parameters: Vec<Property> = properties.iter().filter(|p| !named(p)).cloned().collect();
    port.attach(side, Some((&kind, &parameters)))
}

fn unknown(name: &str) -> String {
    format!("cannot find any connection to/from {name}") // YS-22
}

/// The other ends, or details of one.
fn list(port: &mut dyn Administered, side: Side, other: Option<&str>) -> Result<Vec<Value>, String> {
    let all = port.connections().into_iter().filter(|_| side == port.side());
    let far = |c: &ChannelReport| if side == Side::Out { c.subscriber.clone() } else { c.publisher.clone() };
    let Some(other) = other else { return Ok(all.map(|c| Value::Text(far(&c))).collect()) };
    let found = all.into_iter().find(|c| far(c) == other).ok_or_else(|| unknown(other))?;
    let mut details = vec![
        Value::pair("from", found.publisher.as_str()),
        Value::pair("to", found.subscriber.as_str()),
        Value::pair("carrier", found.carrier.as_str()),
    ];
    if found.carrier.is_lossy() {
        details.push(Value::pair("connectionless", 1));
    }
    Ok(details)
}

fn whole(number: impl Into<i64>) -> Value {
    Value::Int(number.into())
}

/// The kernel's number of a policy by its name.
fn policy_number(name: &str) -> i64 {
    let numbers = [("fifo", 1), ("rr", 2), ("batch", 3), ("idle", 5), ("deadline", 6)];
    numbers.into_iter().find(|(n, _)| *n == name).map_or(0, |(_, number)| number)
}

fn thread(report: &EndReport) -> Value {
    let sched = vec![
        Value::pair("tid", whole(report.tid.unwrap_or(-1))),
        Value::pair("priority", whole(report.priority)),
        Value::pair("policy", whole(policy_number(&report.policy))),
    ];
    Value::pair("sched", sched)
}

/// YS-20.
fn settings(port: &mut dyn Administered, name: &str) -> Result<Vec<Value>, String> {
    if !is_connected(port, name) {
        return Err(unknown(name));
    }
    let reports = port.settings(name)?;
    let report = reports.first().ok_or_else(|| unknown(name))?;
    let tos = report.tos.map_or(-1, i64::from);
    Ok(vec![thread(report), Value::pair("qos", vec![Value::pair("tos", whole(tos))])])
}

fn is_connected(port: &dyn Administered, other: &str) -> bool {
    port.connections().iter().any(|c| c.publisher == other || c.subscriber == other)
}

/// YS-21.
fn own(port: &mut dyn Administered) -> Result<Vec<Value>, String> {
    let name = port.name();
    let report = port.settings(&name)?.into_iter().next().unwrap_or_default();
    let mut arguments = std::env::args_os().map(|a| a.to_string_lossy().into_owned());
    let path = arguments.next().unwrap_or_default();
    let program = path.rsplit('/').next().unwrap_or_default();
    let arguments = match port.tells_arguments() {
        true => arguments.collect::<Vec<_>>().join(" "),
        false => "(told to its own host only)".to_owned(),
    };
    let process = vec![
        Value::pair("pid", whole(std::process::id())),
        Value::pair("name", program),
        Value::pair("arguments", arguments.as_str()),
        Value::pair("priority", whole(report.priority)),
        Value::pair("policy", whole(policy_number(&report.policy))),
    ];
    let platform = vec![
        Value::pair("os", "Linux"),
        Value::pair("hostname", rustix::system::uname().nodename().to_string_lossy().as_ref()),
    ];
    let kind = vec![
        Value::pair("is_input", whole(u8::from(port.side() == Side::In))),
        Value::pair("is_output", whole(u8::from(port.side() == Side::Out))),
        Value::pair("is_rpc", whole(0)),
        Value::pair("type", port.type_name().as_str()),
    ];
    Ok(vec![
        thread(&report),
        Value::pair("process", process),
        Value::pair("platform", platform),
        Value::pair("port", kind),
    ])
}

fn set(port: &mut dyn Administered, key: &str, value: &Value, wanted: Option<&Priority>) -> Result<String, String> {
    let said = match wanted {
        Some(wanted) => set_priority(port, key, wanted)?,
        None if key == port.name() || is_connected(port, key) || port.is_port(key) => {
            let group = value.group().map_or_else(|| value.to_string(), |(name, _)| format!("({name} …)"));
            return Err(format!("{group}: groups are sched, qos and process")); // a slip, not a property
        }
        None => String::new(),
    };
    let properties = port.properties();
    if properties.len() >= MOST_PROPERTIES && !properties.contains_key(key) {
        return Err(format!("this port has {MOST_PROPERTIES} properties already: set one of them anew"));
    }
    properties.insert(key.to_owned(), value.clone()); // YS-15
    Ok(said)
}

fn set_priority(port: &mut dyn Administered, key: &str, wanted: &Priority) -> Result<String, String> {
    let own = key == port.name();
    if let Some(process) = &wanted.process {
        if !own {
            return Err(format!("(process …) is for the port's own name {}, not {key}", port.name()));
        }
        if wanted.sched.is_some() || wanted.qos.is_some() {
            return Err(
                "(process …) sets all threads of the process: (sched …) and (qos …) name a connection".to_owned()
            );
        }
        let now = port.settings(key)?.first().and_then(|report| report.asked.sched);
        let changes =
            Changes { sched: process.scheduling(now)?, affinity: process.affinity().clone(), ..Changes::default() };
        return port.set(key, &changes);
    }
    if own {
        return Err(format!(
            "{key} is this port: (sched …) and (qos …) name the other end of a connection, (process …) this port"
        ));
    }
    if !is_connected(port, key) {
        return Err(unknown(key));
    }
    let now = port.settings(key)?.first().and_then(|report| report.asked.sched);
    let changes = wanted.changes(now)?;
    if changes.is_empty() { Ok(String::new()) } else { port.set(key, &changes) }
}

/// The port's omen, for `pray`.
fn sign(name: &str) -> String {
    let signs = [
        format!("You feel that {name} is well-pleased."),
        format!("You feel that {name} is displeased."),
        format!("The voice of {name} rings out: \"Thou must relearn thy deadlines!\""),
        format!("{name} hums. Your latency feels shorter."),
        format!("{name} is silent. It has a sample to send."),
    ];
    let chosen = linux::clock::monotonic_ns() / 1000 % signs.len() as u64;
    signs[chosen as usize].clone()
}
