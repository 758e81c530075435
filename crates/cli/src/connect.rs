//! `thalweg connect` and `thalweg disconnect`: channels by administration.

use crate::census;
use crate::failure::{Failure, Result};
use crate::quantity;
use crate::session::{Common, Session};
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};
use thalweg::admin::Request;
use thalweg::control::{Direction, Document, NodeId, PortInfo};

/// Connect two ports by name, whatever their topics, until they are disconnected or close
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg connect /camera/out /viewer/in --carrier tcp")]
pub struct ConnectArguments {
    /// The publishing port
    #[arg(value_name = "/OUT")]
    publisher: String,
    /// The subscribing port
    #[arg(value_name = "/IN")]
    subscriber: String,
    /// What carries the samples
    #[arg(long, default_value = "auto", value_parser = quantity::carrier())]
    carrier: String,
    #[command(flatten)]
    common: Common,
}

/// Disconnect two ports by name; they stay apart until they are connected again
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg disconnect /camera/out /viewer/in")]
pub struct DisconnectArguments {
    /// The publishing port
    #[arg(value_name = "/OUT")]
    publisher: String,
    /// The subscribing port
    #[arg(value_name = "/IN")]
    subscriber: String,
    #[command(flatten)]
    common: Common,
}

/// How long a node may take to answer, and a channel to open.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks at a channel that is to open.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects, and waits until the channel is open.
pub fn connect(arguments: &ConnectArguments) -> Result {
    let mut session = arguments.common.open("connect")?;
    let ConnectArguments { publisher, subscriber, carrier, .. } = arguments;
    let nodes = session.settled();
    let ends = Ends::find(&nodes, publisher, subscriber)?;
    let carrier = (carrier != "auto").then(|| carrier.clone());
    let request =
        Request::Connect { publisher: publisher.clone(), subscriber: subscriber.clone(), carrier: carrier.clone() };
    session.node.ask(ends.subscriber, &request, PATIENCE)?;
    let chosen = wait_for_channel(&session, ends.documents(&nodes), arguments, carrier.as_deref())?;
    let done = json!({"publisher": publisher, "subscriber": subscriber, "carrier": chosen, "connected": true});
    session.output.result(&done, || format!("{publisher} → {subscriber} over {chosen}"))
}

/// Disconnects.
pub fn disconnect(arguments: &DisconnectArguments) -> Result {
    let mut session = arguments.common.open("disconnect")?;
    let DisconnectArguments { publisher, subscriber, .. } = arguments;
    let ends = Ends::find(&session.settled(), publisher, subscriber)?;
    let request = Request::Disconnect { publisher: publisher.clone(), subscriber: subscriber.clone() };
    session.node.ask(ends.subscriber, &request, PATIENCE)?;
    let done = json!({"publisher": publisher, "subscriber": subscriber, "connected": false});
    session.output.result(&done, || format!("{publisher} → {subscriber} disconnected"))
}

/// The nodes of the two ports.
struct Ends {
    publisher: NodeId,
    subscriber: NodeId,
}

impl Ends {
    fn find(nodes: &[Document], publisher: &str, subscriber: &str) -> Result<Self> {
        let find = |name: &str, wanted| match port_named(nodes, name) {
            Some((node, port)) if port.direction == wanted => Ok(node),
            Some((_, port)) => Err(Failure::No(format!(
                "{name} is a {}; say the publishing port first, then the subscribing one",
                format!("{:?}", port.direction).to_lowercase()
            ))),
            None => Err(Failure::No(format!("no port {name} is known; see `thalweg list ports`"))),
        };
        Ok(Self {
            publisher: find(publisher, Direction::Publisher)?,
            subscriber: find(subscriber, Direction::Subscriber)?,
        })
    }

    fn documents(&self, nodes: &[Document]) -> Vec<Document> {
        nodes.iter().filter(|d| d.node == self.publisher || d.node == self.subscriber).cloned().collect()
    }
}

fn port_named<'a>(nodes: &'a [Document], name: &str) -> Option<(NodeId, &'a PortInfo)> {
    nodes.iter().flat_map(|d| d.ports.values().map(|p| (d.node, p))).find(|(_, p)| p.name == name)
}

fn wait_for_channel(
    session: &Session,
    ends: Vec<Document>,
    arguments: &ConnectArguments,
    carrier: Option<&str>,
) -> Result<String> {
    let ConnectArguments { publisher, subscriber, .. } = arguments;
    let until = Instant::now() + PATIENCE;
    loop {
        let found = census::channels(session, &ends).channels.into_iter().find(|c| {
            (&c.publisher, &c.subscriber) == (publisher, subscriber)
                && c.received.is_some()
                && carrier.is_none_or(|wanted| c.carrier == wanted)
        });
        if let Some(channel) = found {
            return Ok(channel.carrier);
        }
        if Instant::now() > until || !session.stop.sleep_until(Instant::now() + PAUSE) {
            let text = format!(
                "{subscriber} was told to connect to {publisher}, but no channel came up within {} s; it keeps trying",
                PATIENCE.as_secs()
            );
            return Err(Failure::No(text));
        }
    }
}
