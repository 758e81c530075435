//! The cost of a node: time to open and to match, and threads with many channels.

use super::line::Line;
use super::{FAILED, PASSED, PATIENCE, Ports, Settings, connected, hear, hear_words, tell};
use crate::bench::Error;
use crate::bench::figures::Start;
use baseline::meeting::{Meeting, write_words};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Instant;
use thalweg::Publisher;
use thalweg::codec::Raw;

/// Opens a node beside another one, and measures the time of the node and of its first channel. Then opens all other
/// channels.
pub(super) fn start(meeting: &Meeting, name: &'static str, settings: &Settings) -> Result<Start, Error> {
    let terms = &settings.terms;
    raise_open_files();
    let line = Line::join(meeting, "start", settings)?;
    tell(&line.control, terms)?;
    let [_ready] = hear_words(&line.control)?;
    let before = linux::thread::count();
    let opening = Instant::now();
    let ports = Ports::open("second", std::process::id().into(), settings.carrier, terms, None)?;
    let open = opening.elapsed();
    let opened = Instant::now();
    let subscriber = |number: u64| ports.subscriber(&topic(number)).callback(|_| {});
    let first = subscriber(0)?;
    if !first.wait_connected(1, PATIENCE) {
        return Err(Error::Peer(format!("no channel within {PATIENCE:?}")));
    }
    let matched = opened.elapsed();
    let others = (1..terms.count).map(subscriber).collect::<Result<Vec<_>, _>>()?;
    if let Some(late) = others.iter().find(|s| !s.wait_connected(1, PATIENCE)) {
        return Err(Error::Peer(format!("no channel to {} within {PATIENCE:?}", late.name())));
    }
    let own = linux::thread::count() - before;
    write_words(&line.control, &[PASSED])?;
    let [others_threads] = hear_words(&line.control)?;
    Ok(Start::new(name, settings, open, matched, others_threads.max(own as u64)))
}

/// The node that is open already, with one publisher per channel.
pub(super) fn stand_by(meeting: &Meeting, settings: &Settings) -> Result<(), Error> {
    raise_open_files();
    let line = Line::host(meeting, "start", settings)?;
    let (terms, realm) = hear(&line.control, settings)?;
    let before = linux::thread::count();
    let ports = Ports::open("first", realm, settings.carrier, &terms, None)?;
    let open = |number: u64| ports.publisher(&topic(number)).open();
    let publishers: Vec<Publisher<Raw>> = (0..terms.count).map(open).collect::<Result<_, _>>()?;
    write_words(&line.control, &[PASSED])?;
    let [word] = hear_words(&line.control)?;
    if word == FAILED {
        return Err(Error::Peer("the other node failed".to_owned()));
    }
    publishers.iter().try_for_each(|publisher| connected(publisher, 1))?;
    write_words(&line.control, &[(linux::thread::count() - before) as u64])?;
    Ok(())
}

fn topic(number: u64) -> String {
    format!("/bench/start/{number}")
}

/// A channel takes up to three descriptors.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
