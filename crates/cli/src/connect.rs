//! `thalweg connect` and `thalweg disconnect`: channels by administration.

use crate::census;
use crate::ends::{PATIENCE, find, find_as};
use crate::failure::{Failure, Result};
use crate::quantity;
use crate::session::{Common, Session};
use clap::Args;
use serde_json::json;
use std::time::{Duration, Instant};
use thalweg::admin::Request;
use thalweg::control::{Direction, Document};

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
    /// Connect them whenever both are there, now and after they start anew, until they are disconnected; neither has to be
    /// there yet
    #[arg(long)]
    persist: bool,
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

/// Pause between two looks at a channel that is to open.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects, and waits until the channel is open.
pub fn connect(arguments: &ConnectArguments) -> Result {
    let mut session = arguments.common.open("connect")?;
    let ConnectArguments { publisher, subscriber, carrier, .. } = arguments;
    let nodes = session.settled();
    let carrier = (carrier != "auto").then(|| carrier.clone());
    if arguments.persist {
        keep(&session, &nodes, arguments, carrier.clone())?;
        if [publisher, subscriber].iter().any(|name| find(&nodes, name).is_err()) {
            let done =
                json!({"publisher": publisher, "subscriber": subscriber, "connected": false, "persistent": true});
            let text = || format!("{publisher} → {subscriber} will be connected whenever both are there");
            return session.output.result(&done, text);
        }
    }
    find_as(&nodes, publisher, Direction::Publisher)?;
    let node = find_as(&nodes, subscriber, Direction::Subscriber)?;
    let request =
        Request::Connect { publisher: publisher.clone(), subscriber: subscriber.clone(), carrier: carrier.clone() };
    session.node.ask(node, &request, PATIENCE)?;
    let ends = nodes.into_iter().filter(|d| has(d, publisher) || has(d, subscriber)).collect();
    let chosen = wait_for_channel(&session, ends, arguments, carrier.as_deref())?;
    let persistent = arguments.persist;
    let done = json!({
        "publisher": publisher,
        "subscriber": subscriber,
        "carrier": chosen,
        "connected": true,
        "persistent": persistent,
    });
    session.output.result(&done, || format!("{publisher} → {subscriber} over {chosen}"))
}

/// Has the connection kept: by this host, and by those of the ports that are there.
fn keep(session: &Session, nodes: &[Document], arguments: &ConnectArguments, carrier: Option<String>) -> Result {
    let ConnectArguments { publisher, subscriber, .. } = arguments;
    for (name, wanted) in [(publisher, Direction::Publisher), (subscriber, Direction::Subscriber)] {
        if find(nodes, name).is_ok() {
            find_as(nodes, name, wanted)?;
        }
    }
    let request = Request::Keep { publisher: publisher.clone(), subscriber: subscriber.clone(), carrier };
    let there = nodes.iter().filter(|d| has(d, publisher) || has(d, subscriber)).map(|d| d.node);
    for node in [session.node.id()].into_iter().chain(there) {
        session.node.ask(node, &request, PATIENCE)?;
    }
    Ok(())
}

/// Disconnects.
pub fn disconnect(arguments: &DisconnectArguments) -> Result {
    let mut session = arguments.common.open("disconnect")?;
    let DisconnectArguments { publisher, subscriber, .. } = arguments;
    let nodes = session.settled();
    let request = Request::Disconnect { publisher: publisher.clone(), subscriber: subscriber.clone() };
    // A connection that was to last is forgotten by this host, too, and by the publisher's.
    let publishers = nodes.iter().filter(|d| has(d, publisher) && !has(d, subscriber)).map(|d| d.node);
    let forgot = |node| session.node.ask(node, &request, PATIENCE).is_ok();
    let forgotten = [session.node.id()].into_iter().chain(publishers).map(forgot).fold(false, |a, b| a | b);
    let ports = find_as(&nodes, publisher, Direction::Publisher)
        .and_then(|_| find_as(&nodes, subscriber, Direction::Subscriber));
    match ports.and_then(|node| Ok(session.node.ask(node, &request, PATIENCE)?)) {
        Err(Failure::No(_)) if forgotten => {}
        other => drop(other?),
    }
    let done = json!({"publisher": publisher, "subscriber": subscriber, "connected": false});
    session.output.result(&done, || format!("{publisher} → {subscriber} disconnected"))
}

fn has(document: &Document, port: &str) -> bool {
    document.ports.values().any(|p| p.name == port)
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
