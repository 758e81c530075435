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
use qos::priority::{Changes, PrioritySettings};
use qos::{Place, Qos};
use serde_json::json;
use show::Shown;
use std::path::PathBuf;
use thalweg::admin::{EndReport, Request};
use thalweg::control::Direction;
use thalweg::profile::Profile;
use thalweg::proxy::ProxyChanges;

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

/// Arguments of `set`.
struct Wish<'a> {
    ports: Vec<&'a str>,
    changes: Changes,
    proxy: ProxyChanges,
}

impl<'a> Wish<'a> {
    fn read(words: &'a [String]) -> Result<Self> {
        let (ports, settings): (Vec<&str>, Vec<&str>) =
            words.iter().map(String::as_str).partition(|w| w.starts_with('/'));
        let mut changes = Changes::default();
        let mut proxy = ProxyChanges::default();
        for word in settings {
            if !proxy.add(word).map_err(|wrong| Failure::Usage(wrong.to_string()))? {
                changes.add(word).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
            }
        }
        if ports.is_empty() || ports.len() > 2 {
            return Err(Failure::Usage(
                "a publishing and a subscribing port are needed: thalweg set /OUT /IN class=high".into(),
            ));
        }
        if !proxy.is_empty() && ports.len() < 2 {
            return Err(Failure::Usage("every, rate, picture and proxy are for one channel: name both ports".into()));
        }
        if changes.is_empty() && proxy.is_empty() {
            return Err(Failure::Usage(format!(
                "nothing is set: add class=high, sched=fifo:30 or the like; `thalweg get {}` shows what there is",
                ports.join(" ")
            )));
        }
        Ok(Self { ports, changes, proxy })
    }
}

/// Changes a channel's priority.
pub(crate) fn set(arguments: &SetArguments) -> Result {
    Wish::read(&arguments.words)?;
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
    let Wish { ports, changes, proxy } = Wish::read(words)?;
    let (out, other) = (ports[0], ports.get(1).copied().unwrap_or(ports[0]));
    let made = |reports| Ok((out.to_owned(), other.to_owned(), reports));
    if !proxy.is_empty() {
        let node = ends::find_as(participant, other, Direction::Subscriber)?;
        let (publisher, subscriber) = (out.to_owned(), other.to_owned());
        participant.node.ask(node, &Request::Scale { publisher, subscriber, changes: proxy }, ends::PATIENCE)?;
        if changes.is_empty() {
            return made(of_channel(participant, out, other)?);
        }
    }
    let ends = ends_of(participant, out, other, which)?;
    made(change(participant, &ends, &changes)?)
}

fn ends_of(participant: &Participant, out: &str, other: &str, which: Which) -> Result<Vec<End>> {
    if out == other {
        let (node, _) = ends::find(participant, out)?;
        return Ok(vec![End { node, port: out.to_owned(), other: out.to_owned() }]);
    }
    ends::of(participant, out, other, which)
}

/// Changes all ends or none. After a refusal the changes made so far are undone, and the reason is returned.
pub(crate) fn change(participant: &Participant, all: &[End], changes: &Changes) -> Result<Vec<EndReport>> {
    let (mut reports, mut undo) = (Vec::new(), Vec::<(&End, Changes)>::new());
    for end in all {
        // An end without a channel and settings has no former state.
        let before = end.get(participant).ok().and_then(|reports| reports.into_iter().next()).map(|r| r.asked);
        let request = Request::Set { port: end.port.clone(), other: end.other.clone(), changes: changes.clone() };
        match ends::settings(participant, end.node, &request) {
            Ok(found) => reports.extend(found),
            Err(failure) => {
                for (end, back) in undo {
                    let request = Request::Set { port: end.port.clone(), other: end.other.clone(), changes: back };
                    if let Err(stuck) = ends::settings(participant, end.node, &request) {
                        crate::output::tell(&format!("{} could not be set back: {}", end.port, stuck.text()));
                    }
                }
                return Err(failure.at(&format!("at {}", end.port)));
            }
        }
        undo.push((end, changes.undone(&before.unwrap_or_default())));
    }
    Ok(reports)
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
    let (mut reports, mut failed) = (Vec::new(), None);
    for end in ends_of(participant, port, other, Which::Both)? {
        match end.get(participant) {
            Ok(found) => reports.extend(found),
            Err(failure) => failed = Some(failure),
        }
    }
    // If a relay serves the subscriber, the publisher has no channel with it.
    let at_relay = |report: &EndReport| report.proxied.as_ref().is_some_and(|p| matches!(p.place, Place::Relay(_)));
    failed.filter(|_| !reports.iter().any(at_relay)).map_or(Ok(reports), Err)
}

/// All channels of a port, both ends of each.
fn of_port(participant: &Participant, port: &str) -> Result<Vec<EndReport>> {
    let (node, _) = ends::find(participant, port)?;
    let mut reports = Vec::new();
    for near in ends::settings(participant, node, &Request::Get { port: port.to_owned(), other: None })? {
        let other = if near.publisher == port { near.subscriber.clone() } else { near.publisher.clone() };
        // The other end may be gone, or not there yet.
        let far = ends::find(participant, &other)
            .and_then(|(node, _)| End { node, port: other, other: port.to_owned() }.get(participant));
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
