//! `thalweg connect` and `thalweg disconnect`: channels by administration.

use crate::census;
use crate::ends::{self, End, PATIENCE, Which, find, find_as};
use crate::failure::{Failure, Result};
use crate::output::table;
use crate::participant::{Common, Participant};
use crate::priority;
use crate::quantity;
use clap::Args;
use qos::priority::{Changes, PrioritySettings};
use serde_json::json;
use std::time::{Duration, Instant};
use thalweg::admin::Request;
use thalweg::control::{Direction, Document};

/// Connect two ports by name, whatever their topics, until they are disconnected or close
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg connect /camera/out /viewer/in --carrier tcp\n         thalweg connect /arm/out /arm/in --qos \"level:high; priority:30; policy:1\""
)]
pub(crate) struct ConnectArguments {
    /// The publishing port
    #[arg(value_name = "/OUT", value_parser = quantity::name, required_unless_present = "list_carriers")]
    publisher: Option<String>,
    /// The subscribing port
    #[arg(value_name = "/IN", value_parser = quantity::name, required_unless_present = "list_carriers")]
    subscriber: Option<String>,
    /// Carrier of the samples
    #[arg(long, default_value = "auto", value_parser = quantity::carrier())]
    carrier: String,
    /// Connect them whenever both are there, now and after they start anew, until they are disconnected; neither has to be
    /// there yet
    #[arg(long)]
    persist: bool,
    /// Priority of both ends as YARP writes it, from the first sample on: "level:high; priority:10; policy:1" (also dscp:,
    /// tos:). With --persist it is kept for ports that are not there yet
    #[arg(long, value_name = "STRING", value_parser = quantity::yarp_qos)]
    qos: Option<Changes>,
    /// List the carriers instead
    #[arg(long, conflicts_with_all = ["publisher", "persist", "qos"])]
    list_carriers: bool,
    #[command(flatten)]
    common: Common,
}

/// A requested connection.
#[derive(Clone, Copy)]
struct Wish<'a> {
    publisher: &'a str,
    subscriber: &'a str,
    carrier: Option<&'a str>,
    qos: Option<&'a Changes>,
}

/// Disconnect two ports by name; they stay apart until they are connected again
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg disconnect /camera/out /viewer/in")]
pub(crate) struct DisconnectArguments {
    /// The publishing port
    #[arg(value_name = "/OUT", value_parser = quantity::name)]
    publisher: String,
    /// The subscribing port
    #[arg(value_name = "/IN", value_parser = quantity::name)]
    subscriber: String,
    #[command(flatten)]
    common: Common,
}

/// Pause between two checks of a channel that is to open.
const PAUSE: Duration = Duration::from_millis(10);

/// Connects, and waits until the channel is open.
pub(crate) fn connect(arguments: &ConnectArguments) -> Result {
    let ConnectArguments { publisher, subscriber, carrier, persist, qos, .. } = arguments;
    let (Some(publisher), Some(subscriber)) = (publisher, subscriber) else { return list_carriers(arguments) };
    let carrier = Some(&carrier[..]).filter(|name| *name != "auto");
    let wish = Wish { publisher, subscriber, carrier, qos: qos.as_ref() };
    let mut participant = arguments.common.open("connect")?;
    let nodes = participant.settled();
    if let Some(changes) = qos {
        priority::change(&participant, &ends_there(&participant, wish, *persist)?, changes)?;
    }
    if *persist {
        keep(&participant, &nodes, wish)?;
        if [publisher, subscriber].iter().any(|name| find(&participant, name).is_err()) {
            let done =
                json!({"publisher": publisher, "subscriber": subscriber, "connected": false, "persistent": true});
            let text = || format!("{publisher} → {subscriber} will be connected whenever both are there");
            return participant.output.result(&done, text);
        }
    }
    find_as(&participant, publisher, Direction::Publisher)?;
    let node = find_as(&participant, subscriber, Direction::Subscriber)?;
    let request = Request::Connect {
        publisher: publisher.clone(),
        subscriber: subscriber.clone(),
        carrier: wish.carrier.map(Into::into),
    };
    participant.node.ask(node, &request, PATIENCE)?;
    let ends = nodes.into_iter().filter(|d| has(d, publisher) || has(d, subscriber)).collect();
    let chosen = wait_for_channel(&participant, ends, wish)?;
    let done = json!({
        "publisher": publisher,
        "subscriber": subscriber,
        "carrier": chosen,
        "connected": true,
        "persistent": persist,
    });
    participant.output.result(&done, || format!("{publisher} → {subscriber} over {chosen}"))
}

/// The existing ends. A lasting connection needs neither.
fn ends_there(
    participant: &Participant,
    Wish { publisher, subscriber, .. }: Wish<'_>,
    persist: bool,
) -> Result<Vec<End>> {
    if !persist {
        return ends::of(participant, publisher, subscriber, Which::Both);
    }
    let there = [(publisher, Which::Publisher), (subscriber, Which::Subscriber)].into_iter();
    let there = there.filter(|(name, _)| find(participant, name).is_ok());
    let found: Result<Vec<_>> = there.map(|(_, which)| ends::of(participant, publisher, subscriber, which)).collect();
    Ok(found?.concat())
}

fn list_carriers(arguments: &ConnectArguments) -> Result {
    let carriers = quantity::carriers();
    let document: Vec<_> = carriers.iter().map(|(name, about)| json!({"carrier": name, "about": about})).collect();
    let rows: Vec<_> = carriers.into_iter().map(|(name, about)| vec![name.to_owned(), about.to_owned()]).collect();
    let text = || table(&[("carrier", '<'), ("what it is", '<')], &rows);
    arguments.common.output().result(&json!({"carriers": document}), text)
}

/// Makes this host, and the hosts of the existing ports, keep the connection.
fn keep(participant: &Participant, nodes: &[Document], wish: Wish<'_>) -> Result {
    let Wish { publisher, subscriber, carrier, qos } = wish;
    for (name, wanted) in [(publisher, Direction::Publisher), (subscriber, Direction::Subscriber)] {
        if find(participant, name).is_ok() {
            find_as(participant, name, wanted)?;
        }
    }
    let carrier = carrier.map(Into::into);
    let mut priority = PrioritySettings::default();
    qos.into_iter().for_each(|changes| changes.apply(&mut priority));
    let (publisher_name, subscriber_name) = (publisher.to_owned(), subscriber.to_owned());
    let request = Request::Keep { publisher: publisher_name, subscriber: subscriber_name, carrier, priority };
    let there = nodes.iter().filter(|d| has(d, publisher) || has(d, subscriber)).map(|d| d.node);
    for node in [participant.node.id()].into_iter().chain(there) {
        participant.node.ask(node, &request, PATIENCE)?;
    }
    Ok(())
}

/// Disconnects.
pub(crate) fn disconnect(arguments: &DisconnectArguments) -> Result {
    let mut participant = arguments.common.open("disconnect")?;
    let DisconnectArguments { publisher, subscriber, .. } = arguments;
    let nodes = participant.settled();
    let request = Request::Disconnect { publisher: publisher.clone(), subscriber: subscriber.clone() };
    // A lasting connection is removed from this host and from the publisher's.
    let publishers = nodes.iter().filter(|d| has(d, publisher) && !has(d, subscriber)).map(|d| d.node);
    let forgot = |node| participant.node.ask(node, &request, PATIENCE).is_ok();
    let forgotten = [participant.node.id()].into_iter().chain(publishers).map(forgot).fold(false, |a, b| a | b);
    let ports = find_as(&participant, publisher, Direction::Publisher)
        .and_then(|_| find_as(&participant, subscriber, Direction::Subscriber));
    match ports.and_then(|node| Ok(participant.node.ask(node, &request, PATIENCE)?)) {
        Err(Failure::No(_)) if forgotten => {}
        other => drop(other?),
    }
    let done = json!({"publisher": publisher, "subscriber": subscriber, "connected": false});
    participant.output.result(&done, || format!("{publisher} → {subscriber} disconnected"))
}

fn has(document: &Document, port: &str) -> bool {
    document.ports.values().any(|p| p.name == port)
}

fn wait_for_channel(participant: &Participant, ends: Vec<Document>, wish: Wish<'_>) -> Result<String> {
    let Wish { publisher, subscriber, carrier, .. } = wish;
    let until = Instant::now() + PATIENCE;
    loop {
        let found = census::channels(participant, &ends).channels.into_iter().find(|c| {
            (&c.publisher[..], &c.subscriber[..]) == (publisher, subscriber)
                && c.received.is_some()
                && carrier.is_none_or(|wanted| c.carrier == wanted)
        });
        if let Some(channel) = found {
            return Ok(channel.carrier.to_string());
        }
        if Instant::now() > until || !participant.stop.sleep_until(Instant::now() + PAUSE) {
            let text = format!(
                "{subscriber} was told to connect to {publisher}, but no channel came up within {} s; it keeps trying",
                PATIENCE.as_secs()
            );
            return Err(Failure::No(text));
        }
    }
}
