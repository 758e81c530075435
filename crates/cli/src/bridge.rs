//! `thalweg bridge`: topics of other middlewares.

use crate::definitions::{describe, directories_or_installed};
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::{Common, Participant};
use crate::quantity;
use crate::signals::TICK;
use clap::{Args, Subcommand};
use engines::bridge::{Notice, Rules, Status};
use engines::{Bridge, Engine};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
    Zenoh(Box<ZenohArguments>),
    Ros2(Box<Ros2Arguments>),
}

/// Carry topics to and from Zenoh: topic /a/b is key a/b
///
/// Messages keep their encoding: a program of Zenoh sees the CDR of a typed topic (encoding application/cdr), and what it puts
/// reaches subscribers of the type that they state.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge zenoh --connect 10.0.0.1:7447 --allow '/robot/**'\n         \
                  thalweg bridge zenoh --accept 127.0.0.1:7448 --config bridge.toml")]
struct ZenohArguments {
    /// A router or peer of Zenoh (repeatable) [default: 127.0.0.1:7447, unless --accept or --scout is given]
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "Zenoh")]
    connect: Vec<String>,
    /// Let programs of Zenoh connect to this address (repeatable): IP:port
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "Zenoh")]
    accept: Vec<String>,
    /// Look for programs of Zenoh by multicast
    #[arg(long, help_heading = "Zenoh")]
    scout: bool,
    /// Begin all keys with this: fleet/robot1
    #[arg(long, value_name = "KEY", default_value = "", help_heading = "Zenoh")]
    prefix: String,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// Carry topics to and from ROS 2 (rmw_zenoh)
///
/// The bridge is a node of ROS 2: `ros2 node list` and `ros2 topic info -v` show it with its publishers and subscribers. It needs a
/// router, `ros2 run rmw_zenoh_cpp rmw_zenohd`, as every node does. Nothing of ROS 2 has to be installed here; definitions of message
/// types show samples as values, and let Rust structs be the types of ROS 2.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg bridge ros2 --domain 7 --allow '/robot/**' --definitions /opt/ros/jazzy/share\n         \
                  thalweg bridge ros2 --connect 10.0.0.1:7447 --config bridge.toml"
)]
struct Ros2Arguments {
    /// The domain, ROS_DOMAIN_ID [default: that of the environment, else 0]
    #[arg(long, value_name = "NUMBER", help_heading = "ROS 2")]
    domain: Option<u32>,
    /// A router of rmw_zenoh (repeatable) [default: 127.0.0.1:7447]
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "ROS 2")]
    connect: Vec<String>,
    /// Let nodes of ROS 2 connect to this address, too (repeatable): IP:port
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer, help_heading = "ROS 2")]
    accept: Vec<String>,
    /// Name of the bridge's node there
    #[arg(long, value_name = "NAME", default_value = "thalweg", help_heading = "ROS 2")]
    ros_node: String,
    /// Where definitions are, as DIR/std_msgs/msg/String.msg (repeatable) [default: share in each of AMENT_PREFIX_PATH]
    #[arg(long, value_name = "DIR", help_heading = "ROS 2")]
    definitions: Vec<PathBuf>,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
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
        Chosen::Zenoh(arguments) => zenoh(arguments),
        Chosen::Ros2(arguments) => ros2(arguments),
    }
}

fn zenoh(arguments: &ZenohArguments) -> Result {
    let rules = arguments.topics.rules()?;
    let participant = arguments.common.open("bridge")?;
    let settings = arguments.settings();
    let about = json!({"connect": settings.connect, "accept": settings.listen, "scout": settings.scouting, "prefix": settings.prefix});
    free(&arguments.accept)?;
    let identity = rules.identity(participant.node.id());
    let engine = opened(&participant, || engines::zenoh::Zenoh::open(settings.clone(), Some(identity.clone())))?;
    engine.map_or(Ok(()), |engine| serve(participant, Box::new(engine), rules, &about))
}

fn ros2(arguments: &Ros2Arguments) -> Result {
    let rules = arguments.topics.rules()?;
    let settings = arguments.settings()?;
    let participant = arguments.common.open("bridge")?;
    let about = json!({"domain": settings.domain, "connect": settings.connect, "accept": settings.listen, "node": settings.node});
    free(&arguments.accept)?;
    let identity = rules.identity(participant.node.id());
    let engine = opened(&participant, || engines::ros2::Ros2::open(settings.clone(), Some(identity.clone())))?;
    engine.map_or(Ok(()), |engine| serve(participant, Box::new(engine), rules, &about))
}

/// Checks that these endpoints can be listened on: a router's errors do not tell that from an absent peer.
fn free(accept: &[String]) -> Result {
    let addresses: Vec<String> =
        accept.iter().filter_map(|endpoint| Some(endpoint.strip_prefix("tcp/")?.to_owned())).collect();
    crate::router::check(&addresses)
}

/// Pause between two attempts to reach a router.
const AGAIN: Duration = Duration::from_secs(1);

/// The engine, once it can be reached; `None` if the user asks to end before.
fn opened<E>(participant: &Participant, open: impl Fn() -> engines::Result<E>) -> Result<Option<E>> {
    let mut told = false;
    loop {
        match open() {
            Ok(engine) => return Ok(Some(engine)),
            Err(engines::Error::Engine(why)) if !std::mem::replace(&mut told, true) => {
                tell(&format!("waiting for a router or peer: {}", without_place(&why)));
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

impl Ros2Arguments {
    fn settings(&self) -> Result<engines::ros2::Settings> {
        let default = engines::ros2::Settings::default();
        let directories = directories_or_installed(&self.definitions);
        Ok(engines::ros2::Settings {
            domain: self.domain.map_or_else(domain, Ok)?,
            connect: if self.connect.is_empty() { default.connect } else { self.connect.clone() },
            listen: if self.accept.is_empty() { default.listen } else { self.accept.clone() },
            node: self.ros_node.clone(),
            // A type without a definition is carried all the same.
            describe: Arc::new(move |name| describe(name, &directories).ok()),
            ..engines::ros2::Settings::default()
        })
    }
}

/// The domain of the environment.
fn domain() -> Result<u32> {
    const NAME: &str = "ROS_DOMAIN_ID";
    let Ok(text) = std::env::var(NAME) else { return Ok(0) };
    text.trim().parse().map_err(|_| Failure::Usage(format!("{NAME} is {text:?}: a number is expected, or --domain")))
}

impl ZenohArguments {
    fn settings(&self) -> engines::zenoh::Settings {
        let alone = self.connect.is_empty() && self.accept.is_empty() && !self.scout;
        let connect = if alone { vec!["tcp/127.0.0.1:7447".to_owned()] } else { self.connect.clone() };
        engines::zenoh::Settings {
            connect,
            listen: self.accept.clone(),
            scouting: self.scout,
            prefix: self.prefix.clone(),
            ..engines::zenoh::Settings::default()
        }
    }
}

fn serve(mut participant: Participant, engine: Box<dyn Engine>, rules: Rules, about: &Value) -> Result {
    let name = engine.name();
    let output = participant.output;
    let mut bridge = Bridge::new(participant.node.clone(), engine, rules);
    let begun = json!({"bridge": name, "node": participant.node.name(), "settings": about});
    output.result(&begun, || format!("bridge to {name}: {}", participant.node.name()))?;
    let mut told = None;
    while !participant.stop.asked() {
        bridge.turn(TICK).iter().for_each(tell_notice);
        participant.tell_events();
        let status = bridge.status();
        let routes = (status.standby_for, status.publishers, status.out, status.into);
        if told.replace(routes) != Some(routes) {
            output.result(&document(&status), || text(&status))?;
        }
    }
    let status = bridge.status();
    output.result(&document(&status), || text(&status))
}

fn tell_notice(notice: &Notice) {
    tell(&format!("warning: {notice}"));
}

fn document(status: &Status) -> Value {
    let standby_for = status.standby_for.map(|node| node.to_string());
    json!({
        "standby_for": standby_for, "publishers": status.publishers, "out": status.out, "in": status.into, "sent": status.sent,
        "came": status.came,
    })
}

fn text(status: &Status) -> String {
    let Status { standby_for, publishers, out, into, sent, came } = status;
    match standby_for {
        Some(node) => format!("on standby: the bridge of node {node} carries the samples"),
        None => {
            format!("publishers there: {publishers}, topics out: {out}, in: {into}; samples out: {sent}, in: {came}")
        }
    }
}
