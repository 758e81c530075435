//! `thalweg bridge`: topics of other middlewares. Each engine has a module with its options.

#[cfg(feature = "rtps")]
mod dds;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "zenoh")]
mod ros2;
#[cfg(feature = "yarp")]
mod yarp;
#[cfg(feature = "zenoh")]
mod zenoh;
#[cfg(feature = "zeromq")]
mod zeromq;

use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::{Common, Participant};
use crate::quantity;
use crate::signals::TICK;
use clap::{Args, Subcommand};
use engines::bridge::{Notice, Rules, Status};
use engines::{Bridge, Engine, Identity};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Carry topics between Thalweg and another middleware
///
/// A topic is carried when somebody wants it on the other side. `thalweg list`, `info` and `why` show the bridge's ports, and
/// `thalweg set` their priorities, as those of any port.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    engine: Chosen,
}

#[derive(Subcommand, Debug)]
enum Chosen {
    #[cfg(feature = "mqtt")]
    Mqtt(Box<mqtt::MqttArguments>),
    #[cfg(feature = "zenoh")]
    Zenoh(Box<zenoh::ZenohArguments>),
    #[cfg(feature = "zenoh")]
    Ros2(Box<ros2::Ros2Arguments>),
    #[cfg(feature = "rtps")]
    Dds(Box<dds::DdsArguments>),
    #[cfg(feature = "zeromq")]
    Zeromq(Box<zeromq::ZeromqArguments>),
    #[cfg(feature = "yarp")]
    Yarp(Box<yarp::YarpArguments>),
}

/// Selection of topics.
#[derive(Args, Debug)]
#[command(next_help_heading = "Topics")]
struct Topics {
    /// Carry only this topic, or pattern of topics (repeatable) [default: all]
    #[arg(long, value_name = "TOPIC", value_parser = quantity::name)]
    allow: Vec<String>,
    /// Do not carry this topic, or pattern of topics (repeatable)
    #[arg(long, value_name = "TOPIC", value_parser = quantity::name)]
    deny: Vec<String>,
    /// Rules by topic: direction, name there, policies (docs/bridges.md)
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

impl Topics {
    fn rules(&self) -> Result<Rules> {
        let rules = self.config.as_deref().map_or(Ok(Rules::default()), read)?;
        rules.within(&self.allow, &self.deny).map_err(|wrong| Failure::Usage(wrong.to_string()))
    }
}

fn read(file: &Path) -> Result<Rules> {
    let place = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::Usage(format!("{place}: {error}")))?;
    Rules::parse(&text).map_err(|wrong| Failure::Usage(format!("{place}: {wrong}")))
}

/// Runs until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    match &arguments.engine {
        #[cfg(feature = "mqtt")]
        Chosen::Mqtt(arguments) => mqtt::run(arguments),
        #[cfg(feature = "zenoh")]
        Chosen::Zenoh(arguments) => zenoh::run(arguments),
        #[cfg(feature = "zenoh")]
        Chosen::Ros2(arguments) => ros2::run(arguments),
        #[cfg(feature = "rtps")]
        Chosen::Dds(arguments) => dds::run(arguments),
        #[cfg(feature = "zeromq")]
        Chosen::Zeromq(arguments) => zeromq::run(arguments),
        #[cfg(feature = "yarp")]
        Chosen::Yarp(arguments) => yarp::run(arguments),
    }
}

/// Opens the engine and carries topics until told to stop. `about` tells the engine's settings.
fn carry<E: Engine + 'static>(
    common: &Common,
    rules: Rules,
    about: &Value,
    open: impl Fn(Identity) -> engines::Result<E>,
) -> Result {
    let participant = common.open("bridge")?;
    let identity = rules.identity(participant.node.id());
    let engine = opened(&participant, || open(identity.clone()))?;
    engine.map_or(Ok(()), |engine| serve(participant, Box::new(engine), rules, about))
}

/// Pause between two attempts to reach a router, peer or broker.
const AGAIN: Duration = Duration::from_secs(1);

/// The engine, once it can be reached; `None` if the user asks to end before.
fn opened<E>(participant: &Participant, open: impl Fn() -> engines::Result<E>) -> Result<Option<E>> {
    let mut told = false;
    loop {
        match open() {
            Ok(engine) => return Ok(Some(engine)),
            Err(engines::Error::Engine(why)) if !std::mem::replace(&mut told, true) => {
                tell(&format!("waiting for a router, peer or broker: {}", without_place(&why)));
            }
            Err(engines::Error::Engine(_)) => {}
            Err(wrong) => return Err(Failure::Usage(wrong.to_string())),
        }
        if !participant.stop.sleep_until(Instant::now() + AGAIN) {
            return Ok(None);
        }
    }
}

/// The text without the place in a source file that Zenoh's errors end with.
fn without_place(text: &str) -> &str {
    text.split("  at /").next().unwrap_or(text).trim_end()
}

fn serve(mut participant: Participant, engine: Box<dyn Engine>, rules: Rules, about: &Value) -> Result {
    let name = engine.name();
    if !rules.network().is_empty() && !engine.states_ways() {
        let network = rules.network();
        return Err(Failure::Usage(format!(
            "network = {network:?}: networks of {name} are not joined, those of dds are"
        )));
    }
    let output = participant.output;
    let mut bridge = Bridge::new(participant.node.clone(), engine, rules);
    let begun = json!({"bridge": name, "node": participant.node.name(), "settings": about});
    output.result(&begun, || format!("bridge to {name}: {}", participant.node.name()))?;
    let (mut told, mut alone) = (None, Some(Instant::now() + ALONE));
    while !participant.stop.asked() {
        bridge.turn(TICK).iter().for_each(tell_notice);
        if alone.take_if(|due| Instant::now() >= *due).is_some() && bridge.is_alone() {
            tell(&format!(
                "nobody of {name} is connected yet: is a router where --connect says? --accept takes programs without one"
            ));
        }
        participant.tell_events();
        let status = bridge.status();
        let routes = (status.standby_for, status.publishers, status.out, status.into, status.left_out);
        if told.replace(routes) != Some(routes) {
            output.result(&document(&status), || text(&status))?;
        }
    }
    let status = bridge.status();
    output.result(&document(&status), || text(&status))
}

/// The time after which a bridge that nobody is connected to says so.
const ALONE: Duration = Duration::from_secs(3);

fn tell_notice(notice: &Notice) {
    tell(&format!("warning: {notice}"));
}

fn document(status: &Status) -> Value {
    let standby_for = status.standby_for.map(|node| node.to_string());
    json!({
        "standby_for": standby_for, "publishers": status.publishers, "out": status.out, "in": status.into, "sent": status.sent,
        "came": status.came, "left_out": status.left_out,
    })
}

fn text(status: &Status) -> String {
    let Status { standby_for, publishers, out, into, left_out, sent, came } = status;
    match standby_for {
        Some(node) => format!("on standby: the bridge of node {node} carries the samples"),
        None => {
            let left_out = if *left_out > 0 { format!(", left out: {left_out}") } else { String::new() };
            format!(
                "our publishers there: {publishers}, topics out: {out}, in: {into}{left_out}; samples out: {sent}, in: {came}"
            )
        }
    }
}
