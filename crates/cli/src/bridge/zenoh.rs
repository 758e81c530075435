//! `thalweg bridge zenoh`.

use super::{Result, Topics, carry};
use crate::participant::Common;
use crate::quantity;
use clap::Args;
use engines::zenoh::{Settings, Zenoh};
use serde_json::json;

/// Carry topics to and from Zenoh: topic /a/b is key a/b
///
/// Messages keep their encoding: a program of Zenoh sees the CDR of a typed topic (encoding application/cdr), and what it puts
/// reaches subscribers of the type that they state.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge zenoh --connect 10.0.0.1:7447 --allow '/robot/**'\n         \
                  thalweg bridge zenoh --accept 127.0.0.1:7448 --config bridge.toml")]
pub(super) struct ZenohArguments {
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

/// Runs until told to stop.
pub(super) fn run(arguments: &ZenohArguments) -> Result {
    let settings = arguments.settings();
    let about = json!({"connect": settings.connect, "accept": settings.listen, "scout": settings.scouting, "prefix": settings.prefix});
    free(&arguments.accept)?;
    let open = |bridge| Zenoh::open(settings.clone(), Some(bridge));
    carry(&arguments.common, arguments.topics.rules()?, &about, open)
}

/// Checks that these endpoints can be listened on: a router's errors do not tell that from an absent peer.
pub(super) fn free(accept: &[String]) -> Result {
    let addresses: Vec<String> =
        accept.iter().filter_map(|endpoint| Some(endpoint.strip_prefix("tcp/")?.to_owned())).collect();
    crate::router::check(&addresses)
}

impl ZenohArguments {
    fn settings(&self) -> Settings {
        let alone = self.connect.is_empty() && self.accept.is_empty() && !self.scout;
        let connect = if alone { vec!["tcp/127.0.0.1:7447".to_owned()] } else { self.connect.clone() };
        Settings {
            connect,
            listen: self.accept.clone(),
            scouting: self.scout,
            prefix: self.prefix.clone(),
            ..Settings::default()
        }
    }
}
