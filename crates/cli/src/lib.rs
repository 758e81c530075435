//! The command `thalweg`: all of it but `main`, so that it compiles in parallel with the libraries.
//!
//! | module | contents |
//! |---|---|
//! | [`demo`] | a small robot of separate processes |
//! | [`bench`] | the cost of a message, compared with bare sockets |
//! | [`publish`], [`subscribe`] | `pub` and `sub` |
//! | [`pull`] | samples that were published before |
//! | [`list`], [`info`], [`top`] | nodes, ports, topics and channels, as all nodes report them ([`census`]) |
//! | `dashboard` | the same as [`top`] and [`verify`] on a page, and as metrics (feature `dashboard`) |
//! | [`connect`] | channels by administration |
//! | [`plan`] | bounds, classes and proxies from a contract |
//! | [`apply`] | queues and priorities of this host, or of all hosts, from a file, and undoing them |
//! | `agent`, `broker`, `domain`, `keys`, `sessions`, `links`, `audit` | a plan on all hosts: who obeys, who decides, who asks, their certificates, what is admitted beside it, what links carry, and who had how much (feature `sessions`) |
//! | [`verify`] | promises of a plan, and measurements |
//! | [`priority`] | `set` and `get`: packets and threads of live channels |
//! | [`admin`], [`yarp`] | the same in YARP's words |
//! | [`measure`] | `hz`, `bw` and `delay` |
//! | [`lab`] | the experiments of the papers |
//! | [`why`] | problems between two ports |
//! | [`config`] | settings, each with its value and the origin of the value |
//! | [`new`] | a project that builds, in a language |
//! | [`help`] | the verbs by task |
//! | [`doctor`] | findings about real time on this host |
//! | `shell` | completions and man pages (feature `shell`) |
//! | `bridge` | topics of other middlewares (features `mqtt`, `rtps`, `yarp`, `zenoh`, `zeromq`) |
//! | `play` | the samples of a file, and its figures beside others (feature `recording`) |
//! | `record` | topics into files (feature `recording`) |
//! | [`router`], [`relay`] | the control-plane router; proxies for others |
//! | [`participant`], [`tap`], [`ends`], [`show`] | the node of a verb; a subscriber to any type; the ends of a channel; a sample |
//! | [`definitions`] | files of ROS 2's definitions |
//! | [`quantity`], [`output`], [`signals`], [`failure`] | arguments in; results, tables and exit codes out |
#![allow(clippy::disallowed_methods)] // a command measures, and waits for its user
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers

mod admin;
#[cfg(feature = "sessions")]
mod agent;
mod apply;
#[cfg(feature = "sessions")]
mod audit;
mod bench;
#[cfg(feature = "bridge")]
mod bridge;
#[cfg(feature = "sessions")]
mod broker;
mod census;
mod config;
mod connect;
#[cfg(feature = "dashboard")]
mod dashboard;
mod definitions;
mod demo;
mod doctor;
#[cfg(feature = "sessions")]
mod domain;
mod ends;
mod failure;
mod help;
mod info;
#[cfg(feature = "sessions")]
mod keys;
mod lab;
#[cfg(feature = "sessions")]
mod links;
mod list;
mod measure;
mod new;
mod output;
mod participant;
mod plan;
#[cfg(feature = "recording")]
mod play;
mod policies;
mod priority;
mod publish;
mod pull;
mod quantity;
#[cfg(feature = "recording")]
mod record;
mod relay;
mod router;
#[cfg(feature = "sessions")]
mod sessions;
#[cfg(feature = "shell")]
mod shell;
mod show;
mod signals;
mod subscribe;
mod tap;
#[cfg(test)]
mod tests;
mod top;
mod verify;
mod why;
mod yarp;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Real-time publish/subscribe
///
/// Exit codes: 0 did it; 1 a check failed or the answer is "no"; 2 bad usage or input; 3 the system refused; 4 the machine was too noisy
/// to tell.
#[derive(Parser)]
#[command(name = "thalweg", version, after_help = "`thalweg VERB --help` says more of each.\n\nExample: thalweg demo")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Demo(demo::Arguments),
    #[command(name = demo::PART, hide = true)]
    DemoPart(demo::PartArguments),
    Pub(publish::Arguments),
    Sub(subscribe::Arguments),
    Pull(pull::Arguments),
    List(list::Arguments),
    Info(info::Arguments),
    Connect(connect::ConnectArguments),
    Disconnect(connect::DisconnectArguments),
    Set(priority::SetArguments),
    Get(priority::GetArguments),
    Admin(admin::Arguments),
    #[command(visible_alias = "priority-qos")]
    Qos(yarp::QosArguments),
    #[command(visible_alias = "priority-sched")]
    Sched(yarp::SchedArguments),
    Hz(measure::HzArguments),
    Bw(measure::BwArguments),
    Delay(measure::DelayArguments),
    Top(top::Arguments),
    #[cfg(feature = "dashboard")]
    Dashboard(dashboard::Arguments),
    Why(why::Arguments),
    Doctor(doctor::Arguments),
    Router(router::Arguments),
    Relay(relay::Arguments),
    #[cfg(feature = "bridge")]
    Bridge(bridge::Arguments),
    #[cfg(feature = "recording")]
    Record(record::Arguments),
    #[cfg(feature = "recording")]
    Play(play::Arguments),
    /// Measure latency, throughput and fan-out, and compare them with bare sockets
    Bench(bench::Arguments),
    Plan(plan::Arguments),
    Apply(apply::ApplyArguments),
    Restore(apply::RestoreArguments),
    Verify(verify::Arguments),
    #[cfg(feature = "sessions")]
    Keys(keys::Arguments),
    #[cfg(feature = "sessions")]
    Broker(broker::Arguments),
    #[cfg(feature = "sessions")]
    Agent(agent::Arguments),
    #[cfg(feature = "sessions")]
    Hosts(domain::Arguments),
    #[cfg(feature = "sessions")]
    Session(sessions::Arguments),
    #[cfg(feature = "sessions")]
    Links(links::Arguments),
    #[cfg(feature = "sessions")]
    Audit(audit::Arguments),
    Config(config::Arguments),
    New(new::Arguments),
    #[cfg(feature = "shell")]
    Completions(shell::CompletionsArguments),
    #[cfg(feature = "shell")]
    #[command(name = shell::NAMES, hide = true)]
    Names(shell::NamesArguments),
    #[cfg(feature = "shell")]
    Man(shell::ManArguments),
    Lab(lab::Arguments),
    #[command(name = lab::PART, hide = true)]
    LabPart(lab::PartArguments),
}

/// Runs the verb of the process's arguments.
pub fn main() -> ExitCode {
    let words = admin::without_options(std::env::args_os());
    let read = help::by_task(Arguments::command()).try_get_matches_from(words);
    let read = read.and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { verb } = read.unwrap_or_else(|error| refuse(with_verbs(error)));
    if let Err(wrong) = thalweg::Settings::configured() {
        return report(&wrong.into());
    }
    let outcome = match &verb {
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::DemoPart(arguments) => demo::part(arguments),
        Verb::Pub(arguments) => publish::run(arguments),
        Verb::Sub(arguments) => subscribe::run(arguments),
        Verb::Pull(arguments) => pull::run(arguments),
        Verb::List(arguments) => list::run(arguments),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Connect(arguments) => connect::connect(arguments),
        Verb::Disconnect(arguments) => connect::disconnect(arguments),
        Verb::Set(arguments) => priority::set(arguments),
        Verb::Get(arguments) => priority::get(arguments),
        Verb::Admin(arguments) => admin::run(arguments),
        Verb::Qos(arguments) => yarp::qos(arguments),
        Verb::Sched(arguments) => yarp::sched(arguments),
        Verb::Hz(arguments) => measure::hz(arguments),
        Verb::Bw(arguments) => measure::bw(arguments),
        Verb::Delay(arguments) => measure::delay(arguments),
        Verb::Top(arguments) => top::run(arguments),
        #[cfg(feature = "dashboard")]
        Verb::Dashboard(arguments) => dashboard::run(arguments),
        Verb::Why(arguments) => why::run(arguments),
        Verb::Doctor(arguments) => doctor::run(arguments),
        Verb::Router(arguments) => router::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Relay(arguments) => relay::run(arguments),
        #[cfg(feature = "bridge")]
        Verb::Bridge(arguments) => bridge::run(arguments),
        #[cfg(feature = "recording")]
        Verb::Record(arguments) => record::run(arguments),
        #[cfg(feature = "recording")]
        Verb::Play(arguments) => play::run(arguments),
        Verb::Apply(arguments) => apply::apply(arguments),
        Verb::Restore(arguments) => apply::restore(arguments),
        Verb::Verify(arguments) => verify::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Keys(arguments) => keys::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Broker(arguments) => broker::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Agent(arguments) => agent::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Hosts(arguments) => domain::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Session(arguments) => sessions::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Links(arguments) => links::run(arguments),
        #[cfg(feature = "sessions")]
        Verb::Audit(arguments) => audit::run(arguments),
        Verb::Bench(arguments) => return bench::run(arguments),
        Verb::Config(arguments) => config::run(arguments),
        Verb::New(arguments) => new::run(arguments),
        #[cfg(feature = "shell")]
        Verb::Completions(arguments) => shell::completions(arguments, &Arguments::command()),
        #[cfg(feature = "shell")]
        Verb::Names(arguments) => shell::names(arguments),
        #[cfg(feature = "shell")]
        Verb::Man(arguments) => shell::man(arguments, &Arguments::command()),
        Verb::Lab(arguments) => lab::run(arguments),
        Verb::LabPart(arguments) => lab::part(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => report(&failure),
    }
}

/// Tells a failure, and gives its exit code.
fn report(failure: &failure::Failure) -> ExitCode {
    if !failure.text().is_empty() {
        output::tell(&format!("thalweg: {}", failure.text()));
    }
    ExitCode::from(failure.code())
}

/// Prints the error in the arguments, which may hold any bytes.
fn refuse(error: clap::Error) -> ! {
    if error.exit_code() == 0 {
        error.exit(); // help and version were asked for
    }
    output::tell(error.to_string().trim_end());
    std::process::exit(error.exit_code())
}

/// Words of the commands `ros2` and `yarp`, and the verbs that do the same.
const ELSEWHERE: [(&str, &[&str]); 6] = [
    ("bag", &["record", "play", "info"]),
    ("echo", &["sub"]),
    ("node", &["list", "info"]),
    ("read", &["sub"]),
    ("topic", &["list", "info", "pub", "sub", "hz", "bw", "delay"]),
    ("write", &["pub"]),
];

/// Lists all verbs after an unknown one, and adds similar verbs where the parser found none: it knows neither transposed
/// letters nor the words of others.
fn with_verbs(mut error: clap::Error) -> clap::Error {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(written))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return error;
    };
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let all = Arguments::command();
    // A verb such as bench has subcommands of its own.
    let above = std::env::args_os().nth(1).and_then(|first| all.find_subcommand(first));
    let verbs = above.unwrap_or(&all).get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: Vec<&str> = verbs.map(clap::Command::get_name).filter(|verb| *verb != "help").collect();
    let those = |close: &dyn Fn(&str) -> bool| {
        verbs.iter().filter(|verb| close(verb)).map(|verb| (*verb).to_owned()).collect::<Vec<String>>()
    };
    let mut suggested = those(&|verb| ELSEWHERE.iter().any(|(word, same)| word == written && same.contains(&verb)));
    if suggested.is_empty() {
        suggested = those(&|verb| sorted(verb) == sorted(written));
    }
    if suggested.is_empty() && error.get(ContextKind::SuggestedSubcommand).is_none() {
        suggested = those(&|verb| verb.chars().next() == written.chars().next());
    }
    if !suggested.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
    }
    let list = format!("allowed are {}", verbs.join(", "));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![list.into()]));
    error
}
