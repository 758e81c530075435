//! `thalweg session`: topics and subscribers that a broker admits together, with a bound, or refuses together, with offers.

mod decision;
mod log;

use crate::domain::{BrokerArguments, failure};
use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, table, tell};
use crate::plan::{offers, refusals};
use crate::quantity;
use crate::signals::Stop;
use agent::client::{Client, ClientError};
use agent::message::{DomainExcess, DomainPart, Pipe, Session, SessionChannel, SessionState, Side};
use clap::{Args, Subcommand};
use decision::decided;
use qos::contract::session;
use qos::{show_bit_rate, show_time};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two looks at a session.
const TICK: Duration = Duration::from_millis(50);
/// Time between two looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Requests within a lease: two may be lost.
const RENEWALS: u32 = 3;

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
        /// Longest wait for domains that cannot decide yet, and then for the agents
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::duration)]
        patience: Duration,
        /// Only ask whether it would be admitted, and with which bounds
        #[arg(long, conflicts_with = "hold")]
        dry_run: bool,
        /// Go on until Ctrl-C: renew its lease, tell what changes, and stop it in the end
        #[arg(long)]
        hold: bool,
    },
    /// Show all sessions
    List,
    /// Show a session, with its channels
    Show {
        /// Its name
        name: String,
    },
    /// Tell each change of sessions, or of one, until Ctrl-C
    Watch {
        /// Its name
        name: Option<String>,
    },
    /// Show what happened to sessions, or to one: admitted, changed, thinned, suspended, resumed, over, each with its reason
    Log {
        /// Its name
        name: Option<String>,
        /// Only what is behind this record
        #[arg(long, value_name = "RECORD", default_value_t = 0, hide_default_value = true)]
        since: u64,
    },
    /// Show the pipes of the broker's domain, with what is sold of each
    Pipes,
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
        Verb::Request { file, dry_run: true, .. } => attempt(&client, &Asked::read(file)?, output),
        Verb::Request { file, patience, hold, .. } => {
            let asked = Asked::read(file)?;
            let stop = Stop::on_signals()?;
            let asked_at = Instant::now();
            let session = request(&client, &asked, (*patience, &stop), output)?;
            match session.state {
                _ if *hold => hold_on(&client, &asked, (asked_at, &stop), output),
                SessionState::Suspended => Err(Failure::No(format!("{} is admitted, and suspended", session.session))),
                _ => Ok(()),
            }
        }
        Verb::Watch { name } => watch(&client, name.as_deref(), &Stop::on_signals()?, output),
        Verb::Log { name, since } => log::log(&client, name.as_deref(), *since, output),
        Verb::List => {
            let all = client.sessions().map_err(failure)?;
            output.result(&all, || list(&all))
        }
        Verb::Show { name } => {
            let found = client.session(name).map_err(failure)?;
            output.result(&found, || shown(&found))
        }
        Verb::Pipes => {
            let all = client.pipes().map_err(failure)?;
            output.result(&all, || pipes(&all))
        }
        Verb::Stop { name } => {
            let accepted = client.stop_session(name).map_err(failure)?;
            output.result(&json!({"session": name, "revision": accepted.revision}), || format!("{name} is stopped"))
        }
    }
}

/// A session that is asked for: its file.
struct Asked<'a> {
    file: &'a Path,
    session: session::Session,
}

impl<'a> Asked<'a> {
    fn read(file: &'a Path) -> Result<Self> {
        let text = crate::plan::text_of(file)?;
        let session = session::Session::read(&text).map_err(|e| Failure::Usage(format!("{}:{e}", file.display())))?;
        Ok(Self { file, session })
    }

    /// The answer of the broker. If it does not fit, why, and what would.
    fn admitted(&self, answer: std::result::Result<Session, ClientError>, output: Output) -> Result<Session> {
        match answer {
            Err(ClientError::Unfit(said, why)) => {
                let document = json!({"session": self.session.name, "state": "unadmitted", "refusals": why});
                output.result(&document, || format!("{said}\n{}", refusals(&why)))?;
                Err(Failure::No(String::new()))
            }
            Err(ClientError::Refused(422, said)) => Err(Failure::Usage(format!("{}: {said}", self.file.display()))),
            other => other.map_err(failure),
        }
    }
}

/// Asks whether a session would be admitted.
fn attempt(client: &Client, asked: &Asked<'_>, output: Output) -> Result {
    let session::Session { name, text, .. } = &asked.session;
    let session = asked.admitted(client.try_session(name, text), output)?;
    output.result(&session, || shown(&session))
}

/// Asks for a session. It is active when all hosts have its queues, or suspended if links carry too little now. If a host refuses them, what was
/// before is asked for again.
fn request(client: &Client, asked: &Asked<'_>, waits: (Duration, &Stop), output: Output) -> Result<Session> {
    let session::Session { name, text, .. } = &asked.session;
    let before = match client.session(name) {
        Ok(session) => session.text,
        Err(ClientError::Refused(404, _)) => None,
        Err(other) => return Err(failure(other)),
    };
    let ((patience, stop), began) = (waits, Instant::now());
    let again = || began.elapsed() < patience && stop.sleep_until(Instant::now() + LOOK_EVERY);
    asked.admitted(decided(|| client.request_session(name, text), again), output)?;
    let session = active(client, asked, waits).map_err(|why| put_back(client, name, before, &why))?;
    output.result(&session, || shown(&session))?;
    Ok(session)
}

/// Renews a session's lease until told to stop, and stops it then. A broker that does not answer is asked again: it may come back
/// before the lease is over.
fn hold_on(client: &Client, asked: &Asked<'_>, (asked_at, stop): (Instant, &Stop), output: Output) -> Result {
    let session::Session { name, .. } = &asked.session;
    let (mut changes, mut lease) = (Changes::default(), Lease { asked, renewed: asked_at });
    while !stop.asked() {
        if let Some(refused) = lease.renew(client) {
            asked.admitted(Err(refused), output)?;
        }
        if let Ok(session) = client.session(name) {
            changes.tell(vec![session], output)?;
        }
        stop.sleep_until(Instant::now() + LOOK_EVERY);
    }
    client.stop_session(name).map(drop).map_err(failure)
}

/// The lease of a session that is held.
struct Lease<'a> {
    asked: &'a Asked<'a>,
    /// The start of the last request that was answered.
    renewed: Instant,
}

impl Lease<'_> {
    /// Asks again when a third of it is over. A broker that is busy, or does not answer, is asked again at the next look; any other refusal is
    /// returned.
    fn renew(&mut self, client: &Client) -> Option<ClientError> {
        let session::Session { name, text, lease, .. } = &self.asked.session;
        lease.filter(|lease| self.renewed.elapsed() >= *lease / RENEWALS)?;
        let began = Instant::now();
        match client.request_session(name, text) {
            Ok(_) => self.renewed = began,
            Err(ClientError::Unreachable(why)) => tell(&why),
            Err(ClientError::Refused(408 | 500.., why)) => tell(&why),
            Err(other) => return Some(other),
        }
        None
    }
}

/// Tells each change of sessions until told to stop.
fn watch(client: &Client, name: Option<&str>, stop: &Stop, output: Output) -> Result {
    let mut changes = Changes::default();
    while !stop.asked() {
        let mut sessions = client.sessions().map_err(failure)?;
        sessions.retain(|session| name.is_none_or(|name| session.session == name));
        changes.tell(sessions, output)?;
        stop.sleep_until(Instant::now() + LOOK_EVERY);
    }
    Ok(())
}

/// The sessions as they were told last.
#[derive(Default)]
struct Changes(BTreeMap<String, Session>);

impl Changes {
    /// Tells what differs from the last time.
    fn tell(&mut self, sessions: Vec<Session>, output: Output) -> Result {
        // Counters that grow are no change.
        let alike = |session: Session| Session { lease_left_ms: None, text: None, exceeded: Vec::new(), ..session };
        let now: BTreeMap<String, Session> =
            sessions.into_iter().map(|session| (session.session.clone(), alike(session))).collect();
        for name in self.0.keys().filter(|name| !now.contains_key(*name)) {
            output.result(&json!({"session": name, "state": "stopped"}), || format!("{name}: stopped"))?;
        }
        for (name, session) in now.iter().filter(|(name, session)| self.0.get(*name) != Some(session)) {
            output.result(session, || format!("{name}: {}, {}", state(session), ends(session)))?;
        }
        self.0 = now;
        Ok(())
    }
}

/// The number of ends of channels that have the plan's settings.
fn ends(session: &Session) -> String {
    let set: usize = session.channels.iter().map(|channel| channel.set.len()).sum();
    format!("{set} of {} ends set", 2 * session.channels.len())
}

/// Waits until a session is active, or suspended, and renews its lease meanwhile.
fn active(client: &Client, asked: &Asked<'_>, (patience, stop): (Duration, &Stop)) -> Result<Session> {
    let until = Instant::now() + patience;
    let mut lease = Lease { asked, renewed: Instant::now() };
    loop {
        if let Some(refused) = lease.renew(client) {
            return Err(failure(refused));
        }
        let session = client.session(&asked.session.name).map_err(failure)?;
        let because = session.because.as_deref().unwrap_or_default();
        match session.state {
            SessionState::Active | SessionState::Suspended => return Ok(session),
            SessionState::Refused => return Err(Failure::No(format!("refused by {because}"))),
            SessionState::Waiting if stop.asked() => return Err(Failure::No(format!("interrupted: {because}"))),
            SessionState::Waiting if Instant::now() > until => {
                let text = format!("not active within {patience:?}: {because}; is `thalweg agent` running there?");
                return Err(Failure::No(text));
            }
            SessionState::Waiting | SessionState::Fits => std::thread::sleep(TICK),
        }
    }
}

/// The session as it was before, or none.
fn put_back(client: &Client, name: &str, before: Option<String>, why: &Failure) -> Failure {
    let done = match before {
        Some(text) => client.request_session(name, &text).map(drop),
        None => match client.stop_session(name) {
            Err(ClientError::Refused(404, _)) => Ok(()), // its lease was over
            other => other.map(drop),
        },
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
    let headers =
        [("session", '<'), ("state", '<'), ("channels", '>'), ("least slack", '>'), ("lease", '>'), ("owner", '<')];
    let row = |session: &Session| {
        let slack = session.channels.iter().filter_map(slack_us).min_by(f64::total_cmp);
        let slack = slack.map_or("-".to_owned(), show_time);
        let count = session.channels.len().to_string();
        vec![session.session.clone(), state(session), count, slack, lease(session), session.owner.clone()]
    };
    table(&headers, &sessions.iter().map(row).collect::<Vec<_>>())
}

/// The time until it ends unless it is asked for again.
fn lease(session: &Session) -> String {
    session.lease_left_ms.map_or("-".to_owned(), |ms| format!("{} s", ms / 1000))
}

/// For people: one session.
pub(crate) fn shown(session: &Session) -> String {
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
        let SessionChannel { topic, publisher, subscriber, class, bound_us, deadline_us, set, .. } = channel;
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
    let channels = format!("{}: {}\n\n{}", session.session, state(session), table(&headers, &rows));
    let domains = (!session.domains.is_empty()).then(|| domains(session));
    let offers = (!session.offers.is_empty()).then(|| format!("it could have now\n{}", offers(&session.offers)));
    let exceeded = (!session.exceeded.is_empty()).then(|| exceeded(session));
    [Some(channels), domains, exceeded, offers].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

/// For people: what each domain promises.
fn domains(session: &Session) -> String {
    let headers = [("domain", '<'), ("to", '<'), ("pipe", '<'), ("bound", '>'), ("price", '>')];
    let row = |part: &DomainPart| {
        let DomainPart { domain, subscriber, pipe, bound_us, price } = part;
        vec![domain.clone(), subscriber.clone(), pipe.clone(), show_time(*bound_us), price.to_string()]
    };
    table(&headers, &session.domains.iter().map(row).collect::<Vec<_>>())
}

/// For people: what borders have dropped of what it sends.
fn exceeded(session: &Session) -> String {
    let headers = [("at domain", '<'), ("class", '<'), ("dropped", '>'), ("bytes", '>'), ("of", '<')];
    let row = |one: &DomainExcess| {
        let of = if one.shared { "all sessions between the same hosts" } else { "this session" };
        let counts = [one.packets.to_string(), bytes(one.bytes as f64)];
        let names = [one.domain.clone(), one.class.to_string()];
        names.into_iter().chain(counts).chain([of.to_owned()]).collect()
    };
    let rows: Vec<Vec<String>> = session.exceeded.iter().map(row).collect();
    format!("beyond what was reserved\n{}", table(&headers, &rows))
}

/// For people: one line per pipe.
fn pipes(pipes: &[Pipe]) -> String {
    if pipes.is_empty() {
        return "the contract of this broker has no [[pipe]]".to_owned();
    }
    let headers = [
        ("pipe", '<'),
        ("from", '<'),
        ("to", '<'),
        ("class", '<'),
        ("bound", '>'),
        ("price", '>'),
        ("sold", '>'),
        ("of", '>'),
        ("at once", '>'),
        ("of", '>'),
    ];
    let row = |one: &Pipe| {
        let words = [one.pipe.clone(), one.from.clone(), one.to.clone(), one.class.to_string()];
        let whole = show_bit_rate(one.rate_bits_per_s);
        let rate = one.carries_bits_per_s.map(|now| format!("{} instead of {whole}", show_bit_rate(now)));
        let rates = [show_bit_rate(one.sold_bits_per_s), rate.unwrap_or(whole)];
        let bursts = [one.sold_bytes, one.burst_bytes].map(|bytes| format!("{bytes} B"));
        let middle = [show_time(one.bound_us), one.price.to_string()];
        words.into_iter().chain(middle).chain(rates).chain(bursts).collect()
    };
    table(&headers, &pipes.iter().map(row).collect::<Vec<_>>())
}

fn state(session: &Session) -> String {
    let because = session.because.as_deref().unwrap_or_default();
    match session.state {
        SessionState::Fits => "fits, and nothing is changed".to_owned(),
        SessionState::Active if because.is_empty() => "active".to_owned(),
        SessionState::Active => format!("active; {because}"),
        SessionState::Waiting => because.to_owned(),
        SessionState::Refused => format!("refused by {because}"),
        SessionState::Suspended => format!("suspended; {because}"),
    }
}

fn slack_us(channel: &SessionChannel) -> Option<f64> {
    Some(channel.deadline_us? - channel.bound_us?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_borders_have_dropped_is_shown() {
        let session = json!({
            "session": "video", "owner": "ann", "revision": 3, "state": "active", "channels": [],
            "exceeded": [
                { "domain": "wan", "class": "high", "packets": 76, "bytes": 9700 },
                { "domain": "base", "class": "low", "packets": 1, "bytes": 100, "shared": true },
            ],
        });
        let mut session: Session = serde_json::from_value(session).unwrap();
        let says = "\
beyond what was reserved
at domain  class  dropped   bytes  of
wan        high        76  9.7 kB  this session
base       low          1   100 B  all sessions between the same hosts";
        assert!(shown(&session).ends_with(says), "{}", shown(&session));
        session.exceeded.clear();
        assert!(!shown(&session).contains("beyond"), "{}", shown(&session));
    }
}
