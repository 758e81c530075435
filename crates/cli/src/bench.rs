//! `thalweg bench`: the cost of a message, and the cost beyond that of a bare socket.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | the measurements, the roles of an engine, and the engines |
//! | [`figures`] | histograms, percentiles, the JSON documents |
//! | [`roles`] | one process per role: pinning, starting the other process |
//! | [`compare`], [`targets`] | Thalweg against the limit, round by round; the rows and their targets |
//! | `tools` | figures of the recorder, the replay and the dashboard (features `dashboard` and `recording`) |

mod compare;
mod engine;
mod figures;
mod roles;
mod targets;
#[cfg(all(feature = "dashboard", feature = "recording"))]
mod tools;

use crate::output::{line, tell};
use crate::participant::Reach;
use clap::{Args, Subcommand, ValueEnum};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures as asked. Exit code 1: a target is missed; 2: bad usage; 3: the system refused; 4: too noisy to tell.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let measured = match &arguments.what {
        What::Latency(options) => roles::latency(options),
        What::Throughput(options) => roles::throughput(options),
        What::Fanout(options) => roles::fanout(options),
        What::Start(options) => roles::start(options),
        What::Storm(options) => roles::storm(options),
        What::Crowd(options) => roles::crowd(options),
        What::Resume(options) => roles::resume(options),
        What::Compare(options) => return ended(compare::run(options)),
        #[cfg(all(feature = "dashboard", feature = "recording"))]
        What::Recording(options) => tools::recording::run(options),
        #[cfg(all(feature = "dashboard", feature = "recording"))]
        What::Replay(options) => tools::replay::run(options),
        #[cfg(all(feature = "dashboard", feature = "recording"))]
        What::Dashboard(options) => tools::dashboard::run(options),
        #[cfg(all(feature = "dashboard", feature = "recording"))]
        What::Part(options) => tools::part::run(options),
    };
    ended(measured.map(|is_good| u8::from(!is_good)))
}

fn ended(outcome: Result<u8, Error>) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tell(&format!("thalweg bench: {error}"));
            ExitCode::from(error.code())
        }
    }
}

/// Writes to standard output; a reader that closed it early is no error.
fn print(text: &str) {
    let _ = line(text);
}

/// Measure latency, throughput and fan-out.
#[derive(Args)]
#[command(
    after_help = "Example: thalweg bench latency --carrier shm --size 1MiB --json\n         thalweg bench compare --quick"
)]
pub(crate) struct Arguments {
    /// The measurement.
    #[command(subcommand)]
    what: What,
}

/// A measurement.
#[derive(Subcommand)]
enum What {
    /// Round trips between two processes
    #[command(after_help = "Example: thalweg bench latency --carrier shm --size 1MiB --json\n\
                      On two hosts: thalweg bench latency --role pong --listen 10.0.0.2\n         \
                      and: thalweg bench latency --role ping --listen 10.0.0.1 --peer 10.0.0.2")]
    Latency(Options),
    /// One way, as fast as it goes: ping sends, pong counts
    #[command(after_help = "Example: thalweg bench throughput --carrier tcp --batched")]
    Throughput(Options),
    /// One publisher (ping) at 1 kHz to several subscriber processes (pong): the latency of the last one
    #[command(after_help = "Example: thalweg bench fanout --carrier udp --subscribers 8")]
    Fanout(Options),
    /// A node beside another one: how long it takes to open and to match, and the threads of many channels
    #[command(after_help = "Example: thalweg bench start --count 1000")]
    Start(Options),
    /// Publish at 1 kHz while another process joins and leaves without a pause: the duration of each call
    #[command(after_help = "Example: thalweg bench storm --carrier shm")]
    Storm(Options),
    /// A node for every ten ports, in two processes: how long it takes until each port has its channel
    #[command(after_help = "Example: thalweg bench crowd --count 1000")]
    Crowd(Options),
    /// Two hosts (network namespaces, by root) whose link is down for --count seconds: how soon samples come afterwards
    #[command(after_help = "Example: thalweg bench resume --carrier udp --count 10")]
    Resume(Options),
    /// Thalweg against bare sockets and a bare futex ring, and its bindings against Rust, alternating, with a target for each row; exit 1 if
    /// one is missed, 4 if noise hides whether a binding's or a tool's is
    #[command(after_help = "Example: thalweg bench compare tcp-64-p50 tcp-64-p99 --rounds 7 --json\n         \
                      thalweg bench compare python cpp\n         \
                      thalweg bench compare record page --dir /data")]
    Compare(CompareOptions),
    /// `thalweg record`: its rate, what it loses, and its cost for the channels that it records; exit 1 if a target is missed
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    #[command(
        after_help = "Example: thalweg bench recording --dir /data\n         thalweg bench recording --quick --json"
    )]
    Recording(tools::ToolOptions),
    /// `thalweg play`: the intervals of a replay, and whether --check names a delay of 2 ms, and passes without one; exit 1 if not
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    #[command(after_help = "Example: thalweg bench replay --rounds 7")]
    Replay(tools::ToolOptions),
    /// `thalweg dashboard`: its cost for a channel, on and off, and its own for 500 channels; exit 1 if a target is missed
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    #[command(after_help = "Example: thalweg bench dashboard --json")]
    Dashboard(tools::ToolOptions),
    /// A program of these measurements
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    #[command(hide = true)]
    Part(tools::part::PartOptions),
}

/// Options of one measurement.
#[derive(Args, Clone, Debug)]
struct Options {
    /// The engine to measure
    #[arg(long, value_enum, default_value = "thalweg")]
    engine: EngineName,
    /// Carrier of the messages
    #[arg(long, value_enum, default_value = "tcp")]
    carrier: Carrier,
    /// Role of this process; the two ends find each other. "both" starts the other end itself
    #[arg(long, value_enum, default_value = "both")]
    role: Role,
    /// Bytes per message, such as 64 or 1MiB
    #[arg(long, default_value = "64", value_parser = parse_size, allow_negative_numbers = true)]
    size: usize,
    /// Messages (or round trips) that are measured [default: 20000; fanout 2000; storm 4000; throughput 500000]; channels of
    /// start, ports of crowd [default: 1000]; seconds of resume [default: 10]
    #[arg(long)]
    count: Option<u64>,
    /// Messages before the measurement, as warm-up [default: a tenth]
    #[arg(long)]
    warmup: Option<u64>,
    /// Subscriber processes (fanout only)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    subscribers: u32,
    /// Work of both ends on the payload (latency only)
    #[arg(long, value_enum, default_value = "copied")]
    payload: Payload,
    /// Several messages per write (throughput only)
    #[arg(long)]
    batched: bool,
    /// The latency budget of both ends, such as 100us: small samples may leave together within it (thalweg throughput only)
    #[arg(long, value_name = "TIME", value_parser = qos::parse_duration)]
    latency_budget: Option<std::time::Duration>,
    /// Do not declare that the channels of the two directions belong together (thalweg latency only)
    #[arg(long)]
    plain: bool,
    /// Retransmit lost messages over udp (thalweg only)
    #[arg(long)]
    reliable: bool,
    /// Measure the stages of every sample at both ends meanwhile (thalweg latency only)
    #[arg(long)]
    stages: bool,
    /// The two ends on two hosts, network namespaces that find each other by Zenoh; needs root and iproute2 (start only)
    #[arg(long)]
    hosts: bool,
    /// A second topic of the subscriber's process, at 10 Hz, with a callback (fanout of python only)
    #[arg(long, value_enum)]
    beside: Option<Beside>,
    /// Source tree of the bindings that are measured, built beside this command [default: the tree in which this command was built; without
    /// one, the installed bindings]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Folder with the programs of a binding's ends
    #[arg(long, hide = true)]
    programs: Option<PathBuf>,
    /// Namespace of this end
    #[arg(long, hide = true)]
    within: Option<String>,
    /// The processor this process runs on [default: the first one it may use]
    #[arg(long, value_name = "CPU", conflicts_with = "no_pin")]
    pin: Option<usize>,
    /// The processor the other processes run on, when this one starts them [default: the same]
    #[arg(long, value_name = "CPU", conflicts_with = "no_pin")]
    pin_peer: Option<usize>,
    /// Let the scheduler choose the processors
    #[arg(long)]
    no_pin: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Settings to reach the other end's host.
    #[command(flatten)]
    reach: Reach,
    /// A name known to both ends only, so that several measurements can run side by side
    #[arg(long, hide = true)]
    meet: Option<String>,
}

/// Options of the comparison.
#[derive(Args, Clone, Debug)]
struct CompareOptions {
    /// The rows to measure, by name or the beginning of a name [default: all but those of tools (record, replay, check, page), which take
    /// minutes each, and 10 GB of disk]
    rows: Vec<String>,
    /// Measurements of each row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The two ends on two processors instead of one
    #[arg(long)]
    two_cores: bool,
    /// The processor both ends run on [default: the first one this process may use]
    #[arg(long, value_name = "CPU")]
    pin: Option<usize>,
    /// The engine to compare with the limit; "raw" shows how far two equal runs differ here
    #[arg(long, value_enum, default_value = "thalweg")]
    engine: EngineName,
    /// One short round that checks that everything runs; nothing is judged
    #[arg(long)]
    quick: bool,
    /// Messages in each measurement [default: by row]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Source tree of the bindings that are measured, built beside this command [default: the tree in which this command was built; without
    /// one, the installed bindings]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// A folder for the recordings of tools, which are removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// An engine by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EngineName {
    /// Bare blocking sockets and a bare futex ring
    Raw,
    /// The library
    Thalweg,
    /// The library by its C++ headers
    Cpp,
    /// The library by its Python package
    Python,
    /// MQTT, by the broker at 127.0.0.1:1883
    #[cfg(feature = "mqtt")]
    Mqtt,
    /// ROS 2 over Zenoh
    #[cfg(feature = "zenoh")]
    Ros2,
    /// YARP
    #[cfg(feature = "yarp")]
    Yarp,
    /// Zenoh
    #[cfg(feature = "zenoh")]
    Zenoh,
    /// DDS (Cyclone)
    #[cfg(feature = "rtps")]
    Dds,
    /// ZeroMQ
    #[cfg(feature = "zeromq")]
    Zeromq,
}

/// A carrier by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Carrier {
    /// TCP over loopback
    Tcp,
    /// UDP over loopback
    Udp,
    /// A unix stream (raw only)
    Unix,
    /// Shared memory
    Shm,
    /// One process, callback on the publisher's thread (thalweg only)
    Local,
}

/// The callback of a second topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Beside {
    /// It returns at once
    Awake,
    /// It sleeps for 100 ms
    Asleep,
}

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// The end that measures: it pings, sends or publishes
    Ping,
    /// The other end: it echoes, counts or subscribes
    Pong,
    /// Ping, with the other end started as a process of its own
    Both,
}

/// Use of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Payload {
    /// Copied in and out
    Copied,
    /// Handed over in place (loaned), not touched
    Untouched,
    /// Written in place and checksummed on arrival
    Checked,
}

/// The name of a value on the command line, which is also its name in results.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

fn parse_size(text: &str) -> Result<usize, String> {
    let bytes = match text.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => qos::parse_bytes(text).map_err(|e| e.to_string())?,
    };
    usize::try_from(bytes).map_err(|_| format!("{bytes} bytes do not fit in memory"))
}

/// An error with its exit code.
#[derive(Debug)]
enum Error {
    /// The arguments are impossible or unknown: exit code 2.
    Usage(String),
    /// The other process did not come, left early or failed: exit code 1.
    Peer(String),
    /// The system refused: exit code 3.
    System(String),
    /// The machine was too noisy to tell: exit code 4.
    #[cfg(all(feature = "dashboard", feature = "recording"))]
    Noisy(String),
}

impl Error {
    /// The exit code of the process.
    fn code(&self) -> u8 {
        match self {
            Error::Peer(_) => 1,
            Error::Usage(_) => 2,
            Error::System(_) => 3,
            #[cfg(all(feature = "dashboard", feature = "recording"))]
            Error::Noisy(_) => 4,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Peer(text) | Error::System(text) => f.write_str(text),
            #[cfg(all(feature = "dashboard", feature = "recording"))]
            Error::Noisy(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, InvalidInput, TimedOut, UnexpectedEof};
        let text = error.to_string();
        match error.kind() {
            InvalidInput => Error::Usage(text),
            BrokenPipe | ConnectionRefused | ConnectionReset | TimedOut | UnexpectedEof => Error::Peer(text),
            _ => Error::System(text),
        }
    }
}

impl From<lab::Error> for Error {
    fn from(error: lab::Error) -> Self {
        let text = error.to_string();
        if error.exit_code() == 2 { Error::Usage(text) } else { Error::System(text) }
    }
}

impl From<thalweg::Error> for Error {
    fn from(error: thalweg::Error) -> Self {
        let text = error.to_string();
        match error.exit_code() {
            2 => Error::Usage(text),
            3 => Error::System(text),
            _ => Error::Peer(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_or_has_a_unit() {
        assert_eq!((parse_size("64"), parse_size("1MiB")), (Ok(64), Ok(1 << 20)));
        assert!(parse_size("-1").is_err() && parse_size("1 parsec").is_err());
    }

    #[test]
    fn names_are_those_of_the_command_line() {
        assert_eq!((name_of(Carrier::Shm), name_of(Payload::Untouched)), ("shm".into(), "untouched".into()));
    }

    #[test]
    fn the_exit_code_says_whose_fault_it_is() {
        let code = |kind| Error::from(io::Error::new(kind, "x")).code();
        assert_eq!(code(io::ErrorKind::UnexpectedEof), 1);
        assert_eq!(code(io::ErrorKind::InvalidInput), 2);
        assert_eq!(code(io::ErrorKind::PermissionDenied), 3);
    }
}
