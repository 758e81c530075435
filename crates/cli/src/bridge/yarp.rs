//! `thalweg bridge yarp`.

use super::{Result, Topics, carry};
use crate::failure::Failure;
use crate::participant::Common;
use clap::Args;
use engines::yarp::{Settings, Yarp};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};

/// Carry topics to and from YARP: topic /a/b is output port /thalweg/a/b, port /x is topic /x
///
/// Each published topic is an output port, to which readers are connected as to any (yarp connect /thalweg/a/b /reader). A topic that is
/// subscribed to comes from the output port of its name. With --serve the bridge is the name server, and nothing of YARP has to run.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge yarp --server 10.0.0.1:10000 --allow '/icub/**'\n         \
                  thalweg bridge yarp --serve 127.0.0.1:10000")]
pub(super) struct YarpArguments {
    /// The name server [default: 127.0.0.1:10000]
    #[arg(long, value_name = "HOST:PORT", value_parser = server, help_heading = "YARP", conflicts_with = "serve")]
    server: Option<String>,
    /// Be the name server, at this address: IP:port
    #[arg(long, value_name = "ADDR", help_heading = "YARP")]
    serve: Option<SocketAddr>,
    /// This host's address for programs of YARP [default: the one by which the name server is reached]
    #[arg(long, value_name = "IP", help_heading = "YARP")]
    host: Option<IpAddr>,
    /// Begin the names of the bridge's ports with this
    #[arg(long, value_name = "NAME", default_value = "/thalweg", help_heading = "YARP")]
    prefix: String,
    /// Take ports below this name for the topics that follow it (repeatable) [default: all; names are topics]
    #[arg(long, value_name = "NAME", help_heading = "YARP")]
    from: Vec<String>,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// A host and a port.
fn server(text: &str) -> std::result::Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "10000"));
    match port.parse::<u16>() {
        Ok(1..) if !host.is_empty() => Ok(format!("{host}:{port}")),
        _ => Err("the address of a YARP name server, such as 10.0.0.1 or robot.local:10000".to_owned()),
    }
}

/// Runs until told to stop.
pub(super) fn run(arguments: &YarpArguments) -> Result {
    let settings = arguments.settings()?;
    let about = json!({
        "server": settings.server, "serve": settings.serve, "host": settings.host, "prefix": settings.prefix, "from": settings.from,
    });
    let open = |bridge| Yarp::open(settings.clone(), Some(bridge));
    carry(&arguments.common, arguments.topics.rules()?, &about, open)
}

impl YarpArguments {
    fn settings(&self) -> Result<Settings> {
        let default = Settings::default();
        if self.serve.is_some_and(|at| at.port() == 0) {
            return Err(Failure::Usage("--serve needs a port that programs of YARP know: 127.0.0.1:10000".to_owned()));
        }
        Ok(Settings {
            server: self.server.clone().unwrap_or(default.server),
            serve: self.serve,
            host: self.host,
            prefix: self.prefix.clone(),
            from: if self.from.is_empty() { default.from } else { self.from.clone() },
            max_message: default.max_message,
        })
    }
}
