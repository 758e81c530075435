//! The control line between the two ends: a unix socket on one host; between hosts, two topics of the library itself.

use super::{PATIENCE, Settings};
use crate::bench::Error;
use crate::bench::arguments::name_of;
use crate::bench::engine::tell_alone;
use baseline::meeting::Meeting;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;
use thalweg::codec::Raw;
use thalweg::{Node, Publisher, Subscriber};

const TO_PING: &str = "/bench/to-ping";
const TO_PONG: &str = "/bench/to-pong";
/// Time after which a lone process prints the command that starts the other end.
const ALONE: Duration = Duration::from_secs(1);
/// Interval between checks for the end of the other process.
const TICK: Duration = Duration::from_millis(100);
/// Time for the last messages to leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// The line to the other end, in both directions.
pub(super) struct Line {
    /// This end of the line.
    pub control: UnixStream,
    node: Option<Node>,
    carrying: Option<JoinHandle<()>>,
}

impl Line {
    /// Connects to the waiting passive end.
    pub(super) fn join(meeting: &Meeting, mode: &str, settings: &Settings) -> Result<Self, Error> {
        if settings.reach.beyond() {
            return Self::between_hosts(mode, settings, TO_PONG, TO_PING);
        }
        Ok(Self { control: meeting.join()?, node: None, carrying: None })
    }

    /// Waits for the active end.
    pub(super) fn host(meeting: &Meeting, mode: &str, settings: &Settings) -> Result<Self, Error> {
        if settings.reach.beyond() {
            return Self::between_hosts(mode, settings, TO_PING, TO_PONG);
        }
        let nobody = || Error::Peer("nobody came".to_owned());
        let control = meeting.host(1)?.pop().ok_or_else(nobody)?;
        Ok(Self { control, node: None, carrying: None })
    }

    /// The node to measure with, if the line uses one.
    pub(super) fn node(&self) -> Option<Node> {
        self.node.clone()
    }

    fn between_hosts(mode: &str, settings: &Settings, out: &str, into: &str) -> Result<Self, Error> {
        let node = Node::with_settings(thalweg::Settings {
            name: format!("bench-{}", std::process::id()),
            realm: format!("bench-{mode}-{}", name_of(settings.carrier)),
            ..settings.reach.settings()
        })?;
        let (control, far) = UnixStream::pair()?;
        let publisher = node.publisher::<Raw>(out).carriers(["tcp"]).open()?;
        let mut heard = far.try_clone()?;
        let hear = move |sample: thalweg::Sample<'_, Raw>| drop(heard.write_all(&sample));
        let subscriber = node.subscriber::<Raw>(into).carriers(["tcp"]).callback(hear)?;
        if !publisher.wait_connected(1, ALONE) {
            tell_alone();
        }
        if !publisher.wait_connected(1, PATIENCE) || !subscriber.wait_connected(1, PATIENCE) {
            let mut events = node.events();
            let said: Vec<_> = std::iter::from_fn(|| events.wait(Duration::ZERO)).map(|e| e.to_string()).collect();
            return Err(Error::Peer(format!("nobody came within {PATIENCE:?}; {}", said.join("; "))));
        }
        far.set_read_timeout(Some(TICK))?;
        let thread = linux::thread::Settings::named("line");
        let carrying = linux::thread::spawn(thread, move || carry(far, publisher, &subscriber))?;
        Ok(Self { control, node: Some(node), carrying: Some(carrying) })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.control.shutdown(Shutdown::Write);
        if let Some(carrying) = self.carrying.take() {
            let _ = carrying.join();
        }
    }
}

/// Publishes all that this end writes. Reading ends when the other end does.
fn carry(mut far: UnixStream, mut publisher: Publisher<Raw>, subscriber: &Subscriber<Raw>) {
    let mut bytes = [0; 4096];
    loop {
        match far.read(&mut bytes) {
            Ok(count) if count > 0 && publisher.publish(&bytes[..count]).is_ok() => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if subscriber.connected() == 0 {
                    let _ = far.shutdown(Shutdown::Write);
                }
            }
            _ => break,
        }
    }
    publisher.close(FAREWELL);
}
