//! `thalweg set` and `thalweg get`: the priority of a live channel, and its effect. [`Given`] is the priority of a verb's own
//! port.

pub(crate) mod show;

use crate::ends::{self, End, Which};
use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::{Common, Participant};
use crate::policies::Policies;
use crate::quantity;
use clap::Args;
use qos::Qos;
use qos::priority::{Changes, PrioritySettings};
use serde_json::json;
use show::Shown;
use std::path::PathBuf;
use thalweg::admin::set::{self, Wish};
use thalweg::admin::{EndReport, Request};
use thalweg::control::Direction;
use thalweg::profile::Profile;

/// Change the priority of a live channel: packets and threads, at both ends, at once and without reconnecting
///
/// The settings are kept for the two port names at both nodes: a channel that is opened again has them again, also where
/// one of the processes started anew. With one port instead of two, sched= and affinity= hold for all threads of its
/// process. NAME=default takes a setting back.
#[derive(Args, Debug)]
#[command(
    override_usage = "thalweg set [OPTIONS] /OUT [/IN] [class=CLASS] [dscp=DSCP] [tos=N] [priority=N] [sched=SCHED] [affinity=CPUS] [pace=RATE] [police=RATE/SAMPLES/BYTES] [latency-budget=TIME] [every=N] [rate=P/Q] [picture=WxH] [proxy=PLACE]",
    after_help = "Example: thalweg set /arm/out /arm/in class=high sched=fifo:30 affinity=1\n         thalweg set /camera/out /viewer/in class=default sched=default"
)]
pub(crate) struct SetArguments {
    /// The publishing port, the subscribing port, and what is set: class=low|normal|high|critical, dscp=AF42, tos=144,
    /// priority=6 (of the socket), sched=other|fifo:30|rr:10|deadline:1ms/10ms, affinity=0-1, pace=20Mbit/s, police=100Hz/2/1000B, latency-budget=2ms; how much of the stream, and where the rest is
    /// left out: every=10, rate=4/5, picture=320x240, proxy=publisher|subscriber|relay:NAME
    #[arg(value_name = "PORT|NAME=VALUE", required = true, num_args = 1..)]
    words: Vec<String>,
    /// The end to set
    #[arg(long, value_enum, default_value_t)]
    end: Which,
    #[command(flatten)]
    common: Common,
}

/// Show the priority of channels as the kernel has it: threads, marks, queues, and whether they have an effect
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg get /arm/out /arm/in\n         thalweg get /arm/out --json")]
pub(crate) struct GetArguments {
    /// A port
    #[arg(value_name = "/OUT", value_parser = quantity::name)]
    port: String,
    /// The port at the other end [default: all channels of the port]
    #[arg(value_name = "/IN", value_parser = quantity::name)]
    other: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// The ports in the arguments of `set`, and what is set.
fn read(words: &[String]) -> Result<(Vec<&str>, Wish)> {
    let (ports, settings): (Vec<&str>, Vec<&str>) = words.iter().map(String::as_str).partition(|w| w.starts_with('/'));
    let wish = Wish::read(settings)?;
    if ports.is_empty() || ports.len() > 2 {
        return Err(Failure::Usage(
            "a publishing and a subscribing port are needed: thalweg set /OUT /IN class=high".into(),
        ));
    }
    if ports.len() < 2 {
        wish.check_process()?;
    }
    if wish.is_empty() {
        return Err(Failure::Usage(format!(
            "nothing is set: add class=high, sched=fifo:30 or the like; `thalweg get {}` shows what there is",
            ports.join(" ")
        )));
    }
    Ok((ports, wish))
}

/// Changes a channel's priority.
pub(crate) fn set(arguments: &SetArguments) -> Result {
    read(&arguments.words)?;
    let mut participant = arguments.common.open("set")?;
    participant.settled();
    let (out, other, reports) = make(&participant, &arguments.words, arguments.end)?;
    show::print(&participant, &out, &other, &reports)
}

/// Makes the changes of these words at both ends, and tells what became of them.
#[cfg(feature = "dashboard")]
pub(crate) fn carry_out(participant: &Participant, words: &[String]) -> Result<serde_json::Value> {
    let (publisher, subscriber, reports) = make(participant, words, Which::Both)?;
    Ok(json!({"publisher": publisher, "subscriber": subscriber, "ends": Shown::all(&reports)}))
}

/// The two ports, and their channel's ends afterwards.
fn make(participant: &Participant, words: &[String], which: Which) -> Result<(String, String, Vec<EndReport>)> {
    let (ports, wish) = read(words)?;
    let (out, other) = (ports[0], ports.get(1).copied().unwrap_or(ports[0]));
    let reports = set::set(&participant.node, out, subscriber(out, other), which.into(), &wish)?;
    Ok((out.to_owned(), other.to_owned(), reports))
}

/// The same port twice is its process.
fn subscriber<'a>(out: &str, other: &'a str) -> Option<&'a str> {
    Some(other).filter(|other| *other != out)
}

/// Changes all ends or none.
pub(crate) fn change(participant: &Participant, all: &[End], changes: &Changes) -> Result<Vec<EndReport>> {
    Ok(set::change(&participant.node, all, changes)?)
}

/// Shows channels' priorities.
pub(crate) fn get(arguments: &GetArguments) -> Result {
    let mut participant = arguments.common.open("get")?;
    participant.settled();
    let GetArguments { port, other, .. } = arguments;
    let reports = match other {
        Some(other) => of_channel(&participant, port, other)?,
        None => of_port(&participant, port)?,
    };
    if reports.is_empty() {
        let nothing = json!({"port": port, "ends": Shown::all(&reports)});
        return participant.output.result(&nothing, || format!("{port} has no channels"));
    }
    show::print(&participant, port, other.as_deref().unwrap_or_default(), &reports)
}

/// Both ends of a channel, or a port's process.
pub(crate) fn of_channel(participant: &Participant, port: &str, other: &str) -> Result<Vec<EndReport>> {
    Ok(set::get(&participant.node, port, subscriber(port, other))?)
}

/// All channels of a port, both ends of each.
fn of_port(participant: &Participant, port: &str) -> Result<Vec<EndReport>> {
    let (node, _) = ends::find(participant, port)?;
    let mut reports = Vec::new();
    for near in ends::settings(participant, node, &Request::Get { port: port.to_owned(), other: None })? {
        let other = if near.publisher == port { near.subscriber.clone() } else { near.publisher.clone() };
        // The other end may be gone, or not there yet.
        let far = ends::find(participant, &other)
            .and_then(|(node, _)| Ok(End { node, port: other, other: port.to_owned() }.get(&participant.node)?));
        let (first, second) = if near.publisher == port {
            (vec![near], far.unwrap_or_default())
        } else {
            (far.unwrap_or_default(), vec![near])
        };
        reports.extend(first.into_iter().chain(second));
    }
    Ok(reports)
}

/// Options of verbs whose purpose is a port.
#[derive(Args, Clone, Debug)]
pub(crate) struct Given {
    /// Priority of the port's channels as YARP writes it: "level:high; priority:10; policy:1" (also dscp:, tos:)
    #[arg(long, value_name = "STRING", value_parser = quantity::yarp_qos)]
    qos: Option<Changes>,
    /// Policies and priorities by port name and topic, from a TOML file or a DDS XML profile (docs/qos.md)
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    policies: Policies,
}

impl Given {
    /// The settings of a port: those of the profile, overridden by the command line. Policies are set in `qos`.
    pub(crate) fn settings(
        &self,
        name: &str,
        topic: &str,
        direction: Direction,
        qos: &mut Qos,
    ) -> Result<PrioritySettings> {
        let profile = self.profile.as_deref().map(Profile::read).transpose();
        let profile = profile.map_err(|wrong| Failure::Usage(wrong.to_string()))?.unwrap_or_default();
        profile.ignored().iter().for_each(|what| tell(&format!("{what}: has no meaning here, ignored")));
        let mut settings = profile.settings(name, topic, direction);
        profile.policies(name, topic, direction, qos);
        self.policies.apply(qos)?;
        if let Some(changes) = &self.qos {
            changes.apply(&mut settings);
        }
        Ok(settings)
    }
}
