//! Opens the connections that output ports here are asked for, on a thread that may wait for the ports of others.

use super::client::{Client, enter};
use super::frame::Carrier;
use super::hub::{Hub, Job, Order};
use super::names::{self, shown};
use std::net::TcpStream;
use std::sync::mpsc::Receiver;

/// Opens one after the other, until there is nobody left to ask. Those that wait when the event loop stops are not wanted any more.
pub(crate) fn open_connections(jobs: &Receiver<Job>, client: &Client, hub: &Hub) {
    while let Some(job) = jobs.recv().ok().filter(|_| !hub.stops()) {
        let joined = join(&job, client);
        hub.order(Order::Joined(job, joined));
    }
}

fn join(job: &Job, client: &Client) -> Result<(Carrier, TcpStream), String> {
    let Job { port, to, carrier, .. } = job;
    names::check(to)?;
    let found = client.query(to).map_err(|error| error.to_string())?;
    let found = found.ok_or_else(|| format!("Do not know how to connect to {to}"))?;
    let wanted = carrier.as_deref().unwrap_or(&found.carrier);
    let Some(carrier) = Carrier::OFFERED.into_iter().find(|carrier| carrier.name() == wanted) else {
        let offered = Carrier::OFFERED.map(Carrier::name).join(", ");
        return Err(format!("Cannot connect to {to} by {}: {} offers {offered}", shown(wanted), port.name));
    };
    let stream = enter(&found.address(), carrier, &port.name);
    stream.map(|stream| (carrier, stream)).map_err(|error| format!("Cannot connect to {to}: {error}"))
}
