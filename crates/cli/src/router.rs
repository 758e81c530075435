//! `thalweg router`: nodes that name it find each other through it.

use crate::failure::Result;
use crate::quantity;
use clap::Args;
use std::net::SocketAddr;

/// Run a control-plane router, for routed networks and many nodes
///
/// Nodes name it with --peer. It carries no samples: only who is there and what they have.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg router --listen 10.0.0.1:7447")]
pub struct Arguments {
    /// Listen on this address (repeatable) [default: 127.0.0.1:7447]
    #[arg(long, value_name = "ADDR", value_parser = quantity::listen)]
    listen: Vec<SocketAddr>,
    /// Another router (repeatable)
    #[arg(long, value_name = "ADDR", value_parser = quantity::peer)]
    peer: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs until told to stop.
#[cfg(feature = "zenoh")]
pub fn run(arguments: &Arguments) -> Result {
    use crate::failure::Failure;
    use crate::output::{Output, tell};
    use std::time::{Duration, Instant};

    let stop = crate::signals::Stop::on_signals()?;
    let listen = arguments.addresses();
    if arguments.listen.iter().any(|a| !a.ip().is_loopback()) {
        tell("warning: this router has no security: whoever reaches it can see and administer every node");
    }
    let _router =
        thalweg::control::zenoh::router(&listen, &arguments.peer).map_err(|e| Failure::System(e.to_string()))?;
    let listening = serde_json::json!({ "listening": listen });
    Output { json: arguments.json }.result(&listening, || format!("listening on {}", listen.join(", ")))?;
    while stop.sleep_until(Instant::now() + Duration::from_secs(3600)) {}
    Ok(())
}

/// This build has no router.
#[cfg(not(feature = "zenoh"))]
pub fn run(arguments: &Arguments) -> Result {
    let wanted = arguments.addresses().join(", ");
    let _ = (&arguments.peer, arguments.json);
    Err(crate::failure::Failure::System(format!(
        "no router on {wanted}: this build has no control plane across hosts; build with the feature zenoh (a default one)"
    )))
}

impl Arguments {
    fn addresses(&self) -> Vec<String> {
        let with_port = |a: &SocketAddr| if a.port() == 0 { SocketAddr::new(a.ip(), 7447) } else { *a };
        let given: Vec<String> = self.listen.iter().map(|a| with_port(a).to_string()).collect();
        if given.is_empty() { vec!["127.0.0.1:7447".to_owned()] } else { given }
    }
}
