//! Trials of nodes that have a target and no counterpart without middleware: publishing while others join and leave, many
//! nodes, and an outage.

use super::{FAILED, Line, PASSED, PATIENCE, Ports, Settings, connected, hear, hear_words, raise_open_files, tell};
use crate::bench::Error;
use crate::bench::figures::{Crowd, Meter, Resume, Storm};
use baseline::fanout::Pace;
use baseline::meeting::{Meeting, write_words};
use linux::clock::monotonic_ns;
use linux::poll::wait_readable;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use thalweg::codec::Raw;
use thalweg::{Publisher, Subscriber};

/// Publishes at 1 kHz while the other end joins and leaves. Each call of `publish` is measured.
pub(in crate::bench) fn storm(settings: &Settings) -> Result<Storm, Error> {
    let terms = &settings.terms;
    let line = Line::join(&meeting(settings, "storm"), "storm", settings)?;
    tell(&line.control, terms)?;
    let ports = Ports::open("publisher", std::process::id().into(), settings.carrier, terms, None)?;
    let mut publisher = ports.node.publisher::<Raw>(STORM).max_message(ports.largest()).open()?;
    connected(&publisher, 1)?; // one that stays
    let (mut meter, message, mut pace) = (Meter::new(), vec![0; terms.size], Pace::new(Duration::from_millis(1)));
    let mut publish = |count: u64, meter: &mut Meter| {
        (0..count).try_for_each(|_| {
            pace.wait();
            let calling = monotonic_ns();
            publisher.publish(&message)?;
            meter.record(monotonic_ns().saturating_sub(calling));
            Ok::<_, Error>(())
        })
    };
    publish(terms.warmup, &mut Meter::new())?;
    write_words(&line.control, &[PASSED])?;
    meter.start();
    publish(terms.count, &mut meter)?;
    meter.stop();
    write_words(&line.control, &[PASSED])?;
    let [joins] = hear_words(&line.control)?;
    if joins * FEWEST_JOINS < terms.count {
        return Err(Error::Peer(format!("{joins} joins during {} samples: that is no storm", terms.count)));
    }
    Ok(Storm::new(settings, joins, &meter))
}

/// Joins and leaves until the publisher is done.
pub(in crate::bench) fn join_and_leave(settings: &Settings) -> Result<(), Error> {
    let line = Line::host(&meeting(settings, "storm"), "storm", settings)?;
    let (terms, realm) = hear(&line.control, settings)?;
    let ports = Ports::open("storm", realm, settings.carrier, &terms, None)?;
    let join = || -> Result<Subscriber<Raw>, Error> { Ok(ports.subscriber(STORM).callback(|_| {})?) };
    let _stays = join()?;
    let [_go] = hear_words(&line.control)?;
    let mut joins = 0;
    while !wait_readable(&line.control, Some(PAUSE))? {
        if !join()?.wait_connected(1, PATIENCE) {
            return Err(Error::Peer(format!("no channel within {PATIENCE:?}")));
        }
        joins += 1;
    }
    Ok(write_words(&line.control, &[joins])?)
}

/// Opens half of the nodes, with one publisher for each pair of ports, while the other end opens the other half. Measures
/// the time until each port has its channel.
pub(in crate::bench) fn crowd(settings: &Settings) -> Result<Crowd, Error> {
    raise_open_files();
    let terms = &settings.terms;
    let line = Line::join(&meeting(settings, "crowd"), "crowd", settings)?;
    tell(&line.control, terms)?;
    let opening = Instant::now();
    let open = |ports: &Ports, number| Ok(ports.publisher(&pair(number)).open()?);
    let publishers: Vec<(Ports, Vec<Publisher<Raw>>)> =
        nodes("publishers", std::process::id().into(), settings, terms.count, open)?;
    publishers.iter().flat_map(|(_, all)| all).try_for_each(|publisher| connected(publisher, 1))?;
    let [_matched] = hear_words(&line.control)?;
    let took = opening.elapsed();
    write_words(&line.control, &[PASSED])?;
    Ok(Crowd::new(settings, publishers.len() as u64 * 2, took))
}

/// The other half, with the subscribers.
pub(in crate::bench) fn other_half(settings: &Settings) -> Result<(), Error> {
    raise_open_files();
    let line = Line::host(&meeting(settings, "crowd"), "crowd", settings)?;
    let (terms, realm) = hear(&line.control, settings)?;
    let open = |ports: &Ports, number| Ok(ports.subscriber(&pair(number)).callback(|_| {})?);
    let subscribers: Vec<(Ports, Vec<Subscriber<Raw>>)> = nodes("subscribers", realm, settings, terms.count, open)?;
    if !subscribers.iter().flat_map(|(_, all)| all).all(|subscriber| subscriber.wait_connected(1, PATIENCE)) {
        return Err(Error::Peer(format!("a subscriber has no channel within {PATIENCE:?}")));
    }
    write_words(&line.control, &[PASSED])?;
    let [_measured] = hear_words(&line.control)?;
    Ok(())
}

/// Nodes with half of `count` ports. The ports of a node have theirs at several nodes of the other half.
fn nodes<P>(
    role: &str,
    realm: u64,
    settings: &Settings,
    count: u64,
    open: impl Fn(&Ports, u64) -> Result<P, Error>,
) -> Result<Vec<(Ports, Vec<P>)>, Error> {
    let (pairs, half) = (count / 2, (count / PORTS / 2).max(1));
    let strided = role == "subscribers";
    let node = |index: u64| {
        let ports = Ports::open(&format!("{role}-{index}"), realm, settings.carrier, &settings.terms, None)?;
        let of_node = |number: &u64| if strided { number % half == index } else { number * half / pairs == index };
        let opened = (0..pairs).filter(of_node).map(|number| open(&ports, number)).collect::<Result<_, _>>()?;
        Ok((ports, opened))
    };
    (0..half).map(node).collect()
}

/// Publishes at 100 Hz to another host; its link is down for `terms.count` seconds. Measures the time from its return to
/// the first sample.
pub(in crate::bench) fn resume(settings: &Settings) -> Result<Resume, Error> {
    let hosts = settings.hosts.as_deref().ok_or_else(|| Error::Usage("resume needs --role both".to_owned()))?;
    let terms = &settings.terms;
    let line = Line::join(&meeting(settings, "resume"), "resume", settings)?;
    tell(&line.control, terms)?;
    let link = |state| hosts.host(2).ip(&["link", "set", lab::topology::DEVICE, state]).map_err(Error::from);
    settings.go_to_host()?;
    let ports = Ports::at_host("publisher", std::process::id().into(), terms, settings)?;
    let mut publisher = ports.node.publisher::<Raw>(OUTAGE).carriers([ports.carrier()]).open()?;
    connected(&publisher, 1)?;
    let (message, mut pace) = (vec![0; terms.size], Pace::new(PERIOD));
    let mut publish = |time: Duration, control: &UnixStream| -> Result<bool, Error> {
        let began = Instant::now();
        while began.elapsed() < time {
            pace.wait();
            publisher.publish(&message)?;
            if wait_readable(control, Some(Duration::ZERO))? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let down = Duration::from_secs(terms.count);
    publish(BEFORE, &line.control)?;
    link("down")?;
    let told = publish(down, &line.control)?;
    link("up")?;
    let up = monotonic_ns();
    if told {
        return Err(Error::Peer("samples came while the link was down".to_owned()));
    }
    if !publish(PATIENCE, &line.control)? {
        return Err(Error::Peer(format!("no sample within {PATIENCE:?} after the link was up again")));
    }
    let [first] = hear_words(&line.control)?;
    write_words(&line.control, &[PASSED])?;
    Ok(Resume::new(settings, down, Duration::from_nanos(first.saturating_sub(up))))
}

/// Reports the time of the first sample after a long gap.
pub(in crate::bench) fn notice(settings: &Settings) -> Result<(), Error> {
    let line = Line::host(&meeting(settings, "resume"), "resume", settings)?;
    let (terms, realm) = hear(&line.control, settings)?;
    settings.go_to_host()?;
    let ports = Ports::at_host("subscriber", realm, &terms, settings)?;
    let (mut last, control) = (monotonic_ns(), line.control.try_clone()?);
    let _subscriber = ports.subscriber(OUTAGE).callback(move |_| {
        let now = monotonic_ns();
        if now - std::mem::replace(&mut last, now) > GAP.as_nanos() as u64 {
            let _ = write_words(&control, &[now]); // an error: the other end has gone
        }
    })?;
    match hear_words(&line.control)? {
        [FAILED] => Err(Error::Peer("the publisher failed".to_owned())),
        [_] => Ok(()),
    }
}

fn meeting(settings: &Settings, mode: &str) -> Meeting {
    settings.meeting("thalweg", mode)
}

fn pair(number: u64) -> String {
    format!("/bench/crowd/{number}")
}

const STORM: &str = "/bench/storm";
const OUTAGE: &str = "/bench/outage";
/// Between two joins.
const PAUSE: Duration = Duration::from_millis(5);
/// A storm has at least one join during so many samples, which take a millisecond each.
const FEWEST_JOINS: u64 = 100;
/// Ports of a node of a crowd.
const PORTS: u64 = 10;
const PERIOD: Duration = Duration::from_millis(10);
/// Time before the link goes down.
const BEFORE: Duration = Duration::from_secs(1);
/// A gap that no scheduler makes. An outage is longer.
const GAP: Duration = Duration::from_millis(900);
