//! `thalweg agent`: installs this host's part of the plan that a broker keeps, and looks after it: its queues, and its programs' channels.

mod channels;

use crate::apply::{directory, has_prio};
use crate::failure::{Failure, Result};
use crate::keys;
use crate::output::{Output, line, tell};
use crate::participant::Common;
use crate::signals::Stop;
use agent::client::{Client, ClientError};
use agent::identity::Kind;
use agent::run::{News, Settings, run as run_agent};
use channels::Planned;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg::{Admission, AgentSocket, Question};

/// Install this host's part of the plan that a broker keeps, and look after it until told to stop
///
/// Its queues are installed at once; channels get the plan's classes, threads and proxies when their programs start. What somebody else
/// changes is changed back within ten seconds. Without a broker, and when the agent ends, all of it stays.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg agent --broker 10.0.0.1:7450 --keys /etc/thalweg --host arm")]
pub(crate) struct Arguments {
    /// Address of the broker
    #[arg(long, value_name = "HOST:PORT")]
    broker: String,
    /// Directory with realm.pem, host-NAME.pem and host-NAME.key
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// The node of the contract that this host is [default: the one of this host's name]
    #[arg(long, value_name = "NODE")]
    host: Option<String>,
    /// Directory for what it was told last, so that it starts without a broker, too
    #[arg(long, value_name = "DIR", default_value = "/var/lib/thalweg")]
    state: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Time between two looks at the request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Most programs that are answered at once.
const MOST_QUESTIONS: usize = 64;

/// This host's name.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Runs until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let stop = Stop::on_signals()?;
    let Arguments { broker, keys, host, state, common } = arguments;
    let json = common.json;
    let host = host.clone().unwrap_or_else(own_name);
    let client = Client::new(broker, &keys::read(keys, Kind::Host, &host)?);
    let prio = has_prio().ok_or_else(|| {
        Failure::System("an agent needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to install queues".to_owned())
    })?;
    let settings = Settings { host: host.clone(), journal: directory(), state: state.clone(), prio };
    let told = json!({"agent": host, "broker": client.address()});
    let (followed, keeper) = channels::keeper(common.open("agent")?, directory().join("agent"));
    Output { json }.result(&told, || format!("agent of {host}, broker {}", client.address()))?;
    let mut closed = None;
    let mut show = |news: News| {
        if let Err(failure) = report(json, &news) {
            closed = Some(failure);
        }
    };
    // Programs that join sessions ask here; without it the others have all that they had.
    let socket = AgentSocket::open().map_err(|e| tell(&format!("no program can join a session: {e}"))).ok();
    let (planned, over) = (followed.planned(), AtomicBool::new(false));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| keeper.run());
        if let Some(socket) = &socket {
            scope.spawn(|| {
                answer_programs(socket, &client, &host, &planned, &|| stop.asked() || over.load(Ordering::Relaxed))
            });
        }
        // The keeper ends when `followed` is dropped.
        let followed = followed;
        let done = run_agent(&client, &settings, &followed, &|| stop.asked(), &mut show);
        over.store(true, Ordering::Relaxed);
        done
    });
    done.map_err(|e| in_state(state, &e))?;
    closed.map_or(Ok(()), Err)
}

/// Answers programs of this host until told to stop, each on a thread of its own.
fn answer_programs(socket: &AgentSocket, client: &Client, host: &str, planned: &Planned, ended: &dyn Fn() -> bool) {
    let under_way = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        while !ended() {
            match socket.next(LOOK_EVERY) {
                Ok(Some(asking)) if under_way.load(Ordering::Relaxed) < MOST_QUESTIONS => {
                    under_way.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(|| {
                        asking.answer(|question| admission(client, host, planned, question));
                        under_way.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                Ok(_) => {} // a program beyond the limit hears nothing, and asks again
                Err(error) => return tell(&format!("no program can join a session any more: {error}")),
            }
        }
    });
}

/// The broker's answer. Without a broker, what is planned is admitted: a robot that is out of reach goes on.
fn admission(client: &Client, host: &str, planned: &Planned, question: &Question) -> Admission {
    match client.admitted(host, &question.session, &question.topic) {
        Ok(agent::message::Admission { admitted, because, offers }) => Admission { admitted, because, offers },
        Err(ClientError::Unreachable(why)) => {
            let admitted = planned.has(&question.topic);
            Admission { admitted, because: (!admitted).then_some(why), offers: Vec::new() }
        }
        Err(why) => Admission { because: Some(why.to_string()), ..Admission::default() },
    }
}

fn in_state(state: &Path, error: &std::io::Error) -> Failure {
    Failure::System(format!("{}: {error}; --state DIR names another directory", state.display()))
}

fn report(as_json: bool, news: &News) -> Result {
    let (word, value, text) = match news {
        News::Installed(revision, devices) => {
            ("installed", json!(devices), format!("revision {revision}: installed on {}", devices.join(", ")))
        }
        News::Restored(revision) => ("restored", json!(revision), format!("revision {revision}: as before")),
        News::Repaired(changes) => ("repaired", json!(changes), format!("changed back: {}", changes.join("; "))),
        News::Refused(revision, why) => ("refused", json!(why), format!("revision {revision}: refused: {why}")),
        News::Lost(why) => ("lost", json!(why), format!("{why}; what is installed stays")),
        News::Heard => ("heard", json!(true), "the broker answers again".to_owned()),
    };
    match (as_json, news) {
        (true, _) => Output { json: true }.document(&json!({ word: value })),
        (false, News::Lost(_) | News::Refused(..)) => {
            tell(&text);
            Ok(())
        }
        (false, _) => line(&text),
    }
}
