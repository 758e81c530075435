//! `thalweg pull`: print samples that were published before.

use crate::failure::{Failure, Result};
use crate::output::{line, tell};
use crate::participant::{Common, Participant};
use crate::quantity;
use crate::show::{Origin, Shown};
use crate::tap::largest;
use clap::Args;
use std::time::Duration;
use thalweg::Pulled;
use thalweg::codec::Untyped;
use thalweg::{PullFrom, Query};

/// Print samples that were published before, from the histories of those that keep them
///
/// Publishers keep their own (`pub`: the last 64, see its --history), relays those of others. Who is asked answers in
/// class low. Exit 1 when what was asked is not there: it is said which samples are.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg pull /robot/imu --latest\n         thalweg pull /log --since 2s\n         thalweg pull /camera/left --seq 120..140 --json"
)]
pub(crate) struct Arguments {
    /// The topic, or a pattern of topics: * is any one segment, ** any number of segments
    #[arg(value_parser = quantity::name)]
    topic: String,
    #[command(flatten)]
    which: Which,
    /// Samples of this publisher only
    #[arg(long, value_name = "/NAME", value_parser = quantity::name)]
    publisher: Option<String>,
    /// Ask only this port: a publisher, or a port that keeps samples for others
    #[arg(long, value_name = "/NAME", value_parser = quantity::name)]
    at: Option<String>,
    /// Highest rate of samples: 200Mbit/s; none: as fast as it goes, which takes the processors from others
    #[arg(long, value_name = "RATE", default_value = "400Mbit/s", value_parser = limit)]
    limit: Limit,
    /// The longest that nothing may come
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = quantity::duration)]
    timeout: Duration,
    /// All bytes of large samples, not only the first 256
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    common: Common,
}

/// A rate limit; `None`: full speed.
#[derive(Clone, Copy, Debug)]
struct Limit(Option<thalweg::Limit>);

fn limit(text: &str) -> std::result::Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        rate => quantity::limit(rate).map(|limit| Limit(Some(limit))).map_err(|why| format!("{why}, or none")),
    }
}

/// The chosen samples.
#[derive(Args, Debug)]
#[group(multiple = false)]
struct Which {
    /// The latest of each publisher (the default)
    #[arg(long)]
    latest: bool,
    /// The n-th latest of each publisher; 1 is the latest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    nth: Option<u64>,
    /// The one with this sequence number, or all from A to B; before it may stand INCARNATION: as --json shows it
    #[arg(long, value_name = "A[..B]")]
    seq: Option<Query>,
    /// All that were published within this time: 2s
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    since: Option<Duration>,
}

impl Which {
    fn query(&self) -> Query {
        let nth = || Query::Nth(self.nth.unwrap_or(1));
        self.seq.clone().or(self.since.map(Query::Since)).unwrap_or_else(nth)
    }

    /// `true` if single samples are chosen, not a period of time.
    fn is_numbered(&self) -> bool {
        self.since.is_none()
    }
}

/// The result besides the samples.
#[derive(Default)]
struct Told {
    count: u64,
    problems: Vec<String>,
    absent: Vec<String>,
}

/// Pulls as asked.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut participant = arguments.common.open("pull")?;
    participant.settled();
    let largest = largest(&participant, &arguments.topic);
    let port = participant.node.subscriber::<Untyped>(&arguments.topic).max_message(largest).pull_only().open()?;
    participant.node.wait_until(arguments.timeout, || participant.stop.asked() || port.can_pull());
    let from =
        PullFrom { publisher: arguments.publisher.clone(), holder: arguments.at.clone(), limit: arguments.limit.0 };
    let pulled = port.pull_from(&from, arguments.which.query(), arguments.timeout)?;
    let mut told = print(arguments, &participant, pulled)?;
    told.problems.iter().for_each(|text| tell(text));
    if told.count == 0 && told.problems.is_empty() && told.absent.is_empty() {
        told.absent.push(format!("nothing of {} is kept that was asked for", arguments.topic));
    }
    let missed = !told.absent.is_empty() && (arguments.which.is_numbered() || told.count == 0);
    if missed || !told.problems.is_empty() {
        return Err(Failure::No(told.absent.join("; ")));
    }
    told.absent.iter().for_each(|text| tell(text));
    Ok(())
}

fn print(arguments: &Arguments, participant: &Participant, mut pulled: Pulled<Untyped>) -> Result<Told> {
    let mut told = Told::default();
    while !participant.stop.asked() {
        let sample = match pulled.next() {
            None => break,
            Some(Ok(sample)) => sample,
            Some(Err(error)) => {
                told.problems.push(error.to_string());
                continue;
            }
        };
        let Some(run) = pulled.origin() else { continue };
        let (topic, port, message) = (run.topic.to_owned(), run.publisher.to_owned(), Some(run.message.clone()));
        let origin = Origin { topic, port, message };
        let shown = Shown { origin: &origin, info: sample.info(), bytes: sample.bytes(), full: arguments.full };
        told.count += 1;
        if participant.output.json {
            participant.output.document(&shown.json())?;
        } else {
            line(&shown.text(arguments.topic.contains('*'), false))?;
        }
    }
    told.absent = pulled.absent().map(|(publisher, absent)| format!("{publisher}: {absent}")).collect();
    Ok(told)
}
