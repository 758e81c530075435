//! `thalweg session`: topics and subscribers that a broker admits together, with a bound, or refuses together, with offers.

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::output::{Output, table};
use crate::plan::refusals;
use crate::quantity;
use agent::client::{Client, ClientError};
use agent::message::{Session, SessionChannel, SessionState, Side};
use clap::{Args, Subcommand};
use qos::contract::session;
use qos::show_time;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two looks at a session.
const TICK: Duration = Duration::from_millis(50);

/// Ask a broker for topics and subscribers beside those of its contract: all are admitted, each with its bound, or none
///
/// Exit code 1 when the session does not fit (the answer says why, and what would), or a host refused its queues.
/// The keys of a session file: docs/sessions.md.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg session request camera.toml --broker 10.0.0.1:7450 --keys keys\n         thalweg session list --broker 10.0.0.1:7450 --keys keys\n         thalweg session stop camera --broker 10.0.0.1:7450 --keys keys"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Ask for the session of a file, or for a change of it, and wait until all hosts have its queues
    Request {
        /// The session: a TOML file
        file: PathBuf,
        /// Longest wait for the agents
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
        patience: Duration,
    },
    /// Show all sessions
    List,
    /// Show a session, with its channels
    Show {
        /// Its name
        name: String,
    },
    /// Stop a session that you asked for
    Stop {
        /// Its name
        name: String,
    },
}

/// Asks, shows or stops.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let (client, output) = (arguments.broker.client()?, Output { json: arguments.json });
    match &arguments.verb {
        Verb::Request { file, patience } => request(&client, file, *patience, output),
        Verb::List => {
            let all = client.sessions().map_err(failure)?;
            output.result(&all, || list(&all))
        }
        Verb::Show { name } => {
            let found = client.session(name).map_err(failure)?;
            output.result(&found, || shown(&found))
        }
        Verb::Stop { name } => {
            let accepted = client.stop_session(name).map_err(failure)?;
            output.result(&json!({"session": name, "revision": accepted.revision}), || format!("{name} is stopped"))
        }
    }
}

/// Asks for a session. It is active when all hosts have its queues; if one refuses them, what was before is asked for again.
fn request(client: &Client, file: &Path, patience: Duration, output: Output) -> Result {
    let text = crate::plan::text_of(file)?;
    let read = session::Session::read(&text).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))?;
    let before = match client.session(&read.name) {
        Ok(session) => session.text,
        Err(ClientError::Refused(404, _)) => None,
        Err(other) => return Err(failure(other)),
    };
    match client.request_session(&read.name, &text) {
        Err(ClientError::Unfit(said, why)) => {
            output.result(&json!({"session": read.name, "state": "unadmitted", "refusals": why}), || {
                format!("{said}\n{}", refusals(&why))
            })?;
            return Err(Failure::No(String::new()));
        }
        Err(ClientError::Refused(422, said)) => return Err(Failure::Usage(format!("{}: {said}", file.display()))),
        admitted => drop(admitted.map_err(failure)?),
    }
    let session = active(client, &read.name, patience).map_err(|why| put_back(client, &read.name, before, &why))?;
    output.result(&session, || shown(&session))
}

/// Waits until a session is active.
fn active(client: &Client, name: &str, patience: Duration) -> Result<Session> {
    let until = Instant::now() + patience;
    loop {
        let session = client.session(name).map_err(failure)?;
        let because = session.because.as_deref().unwrap_or_default();
        match session.state {
            SessionState::Active => return Ok(session),
            SessionState::Refused => return Err(Failure::No(format!("refused by {because}"))),
            SessionState::Waiting if Instant::now() > until => {
                let text = format!("not active within {patience:?}: {because}; is `thalweg agent` running there?");
                return Err(Failure::No(text));
            }
            SessionState::Waiting => std::thread::sleep(TICK),
        }
    }
}

/// The session as it was before, or none.
fn put_back(client: &Client, name: &str, before: Option<String>, why: &Failure) -> Failure {
    let done = match before {
        Some(text) => client.request_session(name, &text).map(drop),
        None => client.stop_session(name).map(drop),
    };
    match done {
        Ok(()) => Failure::No(format!("{name} is not admitted: {}; all hosts get back what they had", why.text())),
        Err(lost) => Failure::System(format!("{}; what was before is not back: {lost}", why.text())),
    }
}

/// For people: one line per session.
fn list(sessions: &[Session]) -> String {
    if sessions.is_empty() {
        return "no session is admitted".to_owned();
    }
    let headers = [("session", '<'), ("state", '<'), ("channels", '>'), ("least slack", '>'), ("owner", '<')];
    let row = |session: &Session| {
        let slack = session.channels.iter().filter_map(slack_us).min_by(f64::total_cmp);
        let slack = slack.map_or("-".to_owned(), show_time);
        let count = session.channels.len().to_string();
        vec![session.session.clone(), state(session), count, slack, session.owner.clone()]
    };
    table(&headers, &sessions.iter().map(row).collect::<Vec<_>>())
}

/// For people: one session.
fn shown(session: &Session) -> String {
    let headers = [
        ("topic", '<'),
        ("from", '<'),
        ("to", '<'),
        ("class", '<'),
        ("set at", '<'),
        ("bound", '>'),
        ("deadline", '>'),
        ("slack", '>'),
    ];
    let row = |channel: &SessionChannel| {
        let SessionChannel { topic, publisher, subscriber, class, bound_us, deadline_us, set } = channel;
        let time = |us: Option<f64>| us.map_or("-".to_owned(), show_time);
        let times = [*bound_us, *deadline_us, slack_us(channel)].map(time);
        let set = match set.as_slice() {
            [] => "-",
            [Side::Publisher] => "publisher",
            [Side::Subscriber] => "subscriber",
            _ => "both ends",
        };
        let words = [topic.clone(), publisher.clone(), subscriber.clone(), class.to_string(), set.to_owned()];
        words.into_iter().chain(times).collect()
    };
    let rows: Vec<Vec<String>> = session.channels.iter().map(row).collect();
    format!("{}: {}\n\n{}", session.session, state(session), table(&headers, &rows))
}

fn state(session: &Session) -> String {
    let because = session.because.as_deref().unwrap_or_default();
    match session.state {
        SessionState::Active => "active".to_owned(),
        SessionState::Waiting => because.to_owned(),
        SessionState::Refused => format!("refused by {because}"),
    }
}

fn slack_us(channel: &SessionChannel) -> Option<f64> {
    Some(channel.deadline_us? - channel.bound_us?)
}
