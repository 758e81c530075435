//! `thalweg relay`: hosts proxies for others.

use crate::failure::Result;
use crate::quantity;
use crate::session::Common;
use crate::signals::TICK;
use clap::Args;
use serde_json::json;
use std::time::Instant;
use thalweg::RelayLimits;

/// Host proxies for others: subscribers name this node as the place where their stream is scaled
///
/// It takes each stream from its publisher once, whole, and feeds all who asked for it. What is beyond its limits is
/// refused, and served by the publisher instead; so is everything while no relay runs. `thalweg list nodes` shows its load.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg relay --name gate --listen 10.0.0.1\n         thalweg sub /camera/image --every 10 --proxy relay:gate"
)]
pub struct Arguments {
    /// Proxies at most: one for each channel that leads from it
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().proxies)]
    proxies: u32,
    /// Samples at most that come from their publishers within a second
    #[arg(long, value_name = "N", default_value_t = RelayLimits::default().samples_per_s)]
    samples: u64,
    /// Payload bytes at most that come from their publishers within a second: 100MB
    #[arg(long, value_name = "BYTES", value_parser = quantity::size)]
    bytes: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// Runs until told to stop.
pub fn run(arguments: &Arguments) -> Result {
    let Arguments { proxies, samples, bytes, common } = arguments;
    let default = RelayLimits::default();
    let bytes_per_s = bytes.map_or(default.bytes_per_s, |bytes| bytes as u64);
    let limits = RelayLimits { proxies: *proxies, samples_per_s: *samples, bytes_per_s };
    let mut session = common.open_relay(limits)?;
    let name = session.node.name().to_owned();
    let limits = json!({"proxies": proxies, "samples_per_s": samples, "bytes_per_s": bytes_per_s});
    let told = json!({"relay": name, "limits": limits});
    session.output.result(&told, || {
        format!("relay:{name} takes {proxies} proxies, {samples} samples/s, {bytes_per_s} bytes/s")
    })?;
    while session.stop.sleep_until(Instant::now() + TICK) {
        session.tell_events();
    }
    Ok(())
}
