//! `thalweg bridge zeromq`.

use super::{Result, Topics, carry};
use crate::participant::Common;
use clap::Args;
use engines::zeromq::{Settings, ZeroMq};
use serde_json::json;

/// Carry topics to and from ZeroMQ (PUB and SUB): topic /a/b is a message of two frames, a/b and the payload
///
/// ZeroMQ looks for nobody: state where the bridge's publishers are (--bind), where those of others are (--connect), or both. Samples
/// of class normal leave at the port of --bind, low, high and critical ones at the three ports after it, for those who connect there.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge zeromq --bind 0.0.0.0:5556 --allow '/robot/**'\n         \
                  thalweg bridge zeromq --connect 10.0.0.1:5556 --connect 10.0.0.2:5556 --config bridge.toml")]
pub(super) struct ZeromqArguments {
    /// Let programs of ZeroMQ subscribe at this endpoint (repeatable): IP:port, tcp://IP:port or ipc://PATH
    #[arg(long, value_name = "ADDR", help_heading = "ZeroMQ")]
    bind: Vec<String>,
    /// Subscribe at this endpoint (repeatable; needed without --bind): HOST:port, tcp://HOST:port or ipc://PATH
    #[arg(long, value_name = "ADDR", help_heading = "ZeroMQ", required_unless_present = "bind")]
    connect: Vec<String>,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// Runs until told to stop.
pub(super) fn run(arguments: &ZeromqArguments) -> Result {
    let (bind, connect) = (arguments.bind.clone(), arguments.connect.clone());
    let about = json!({"bind": bind, "connect": connect});
    let settings = Settings { bind, connect, ..Settings::default() };
    carry(&arguments.common, arguments.topics.rules()?, &about, |_| ZeroMq::open(&settings))
}
