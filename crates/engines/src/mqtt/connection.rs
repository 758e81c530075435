//! A connection to a broker that comes back after it was lost.
//!
//! One thread connects and reads, another one writes, so that neither a broker that does not read nor one that does not answer holds up the
//! other direction. Who publishes waits for room alone, and that for at most [`PATIENCE`].

mod reading;
mod writing;

use super::dial::{Place, Refusal};
use super::outbox::Outbox;
use super::subscriptions::{Answer, Subscriptions, Target};
use crate::engine::Refusals;
use crate::engine::{Error, Result};
use crate::lock;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Publish;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Wait for the first connection, for room, and for the answer to a subscription.
const PATIENCE: Duration = Duration::from_secs(5);
/// Wait for what is not acknowledged, when a connection closes.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that are gathered for one call of the system.
const AT_ONCE: usize = 64 << 10;

pub(super) struct Connection {
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    place: Place,
    refusals: Arc<Refusals>,
    state: Mutex<State>,
    /// For the writing thread: there is something to do.
    work: Condvar,
    /// For all others.
    changed: Condvar,
}

struct State {
    link: Link,
    outbox: Outbox,
    subscriptions: Subscriptions,
    /// Largest packet that the broker takes.
    largest: u32,
    ping: Duration,
    /// [`PATIENCE`], and less in a test that has to see its end.
    patience: Duration,
    stop: bool,
    /// The writing thread has ended.
    silent: bool,
}

enum Link {
    Opening,
    Up(Arc<TcpStream>),
    Down(Refusal),
}

impl State {
    fn stream(&self) -> Option<&Arc<TcpStream>> {
        if let Link::Up(stream) = &self.link { Some(stream) } else { None }
    }
}

impl Connection {
    /// Connects, and stays connected until it is dropped.
    ///
    /// # Errors
    /// [`Error::Engine`] if that fails the first time; [`Error::Usage`] if it would fail again for the same reason.
    pub(super) fn open(place: Place, refusals: Arc<Refusals>) -> Result<Self> {
        let state = State {
            link: Link::Opening,
            outbox: Outbox::default(),
            subscriptions: Subscriptions::default(),
            largest: 0,
            ping: PATIENCE,
            patience: PATIENCE,
            stop: false,
            silent: false,
        };
        let shared =
            Shared { place, refusals, state: Mutex::new(state), work: Condvar::new(), changed: Condvar::new() };
        let mut connection = Self { shared: Arc::new(shared), reader: None, writer: None };
        connection.reader = Some(connection.start("mqtt-in", Shared::run)?);
        connection.writer = Some(connection.start("mqtt-out", Shared::write)?);
        let shared = &connection.shared;
        let state = shared.wait(lock(&shared.state), |state| matches!(state.link, Link::Opening));
        let failed = match &state.link {
            Link::Up(_) => None,
            Link::Opening => Some(Error::Engine(shared.text("no answer"))),
            Link::Down(Refusal { why, lasts: true }) => Some(Error::Usage(shared.text(why))),
            Link::Down(Refusal { why, .. }) => Some(Error::Engine(shared.text(why))),
        };
        drop(state);
        failed.map_or(Ok(connection), Err)
    }

    fn start(&self, name: &str, body: fn(&Shared)) -> Result<JoinHandle<()>> {
        // Samples are delivered on it: as deep as their takers go.
        let settings = linux::thread::Settings { stack: 1 << 20, ..linux::thread::Settings::named(name) };
        let shared = self.shared.clone();
        linux::thread::spawn(settings, move || body(&shared))
            .map_err(|error| Error::Engine(format!("MQTT: no thread {name}: {error}")))
    }

    /// Sends a sample. A reliable one waits for room, and is kept until the broker has it.
    ///
    /// # Errors
    /// [`Error::Engine`] for one that the broker does not take, or for which there is no room.
    pub(super) fn publish(&self, sample: Publish) -> Result<()> {
        let shared = &self.shared;
        let (bytes, size) = (sample.payload.len(), sample.size() + 2);
        let mut state = lock(&shared.state);
        if let (true, Link::Down(Refusal { why, .. })) = (state.stop, &state.link) {
            return Err(Error::Engine(shared.text(why)));
        }
        if size > state.largest as usize {
            let most = state.largest;
            return Err(Error::Engine(shared.text(&format!(
                "a sample is too large: {size} bytes with its topic, and the broker takes {most} (its maximum packet size)"
            ))));
        }
        let reliable = sample.qos != QoS::AtMostOnce;
        if reliable {
            state = shared.wait(state, |state| !state.stop && !state.outbox.has_room(bytes));
        }
        match &state.link {
            Link::Down(Refusal { why, .. }) if !reliable => {
                return Err(Error::Engine(shared.text(&format!("best-effort samples are dropped: {why}"))));
            }
            _ if state.outbox.has_room(bytes) => state.outbox.put(sample),
            Link::Down(Refusal { why, .. }) => {
                return Err(Error::Engine(shared.text(&format!("no room for a sample: {why}"))));
            }
            _ => {
                let why = "no room for a sample: the broker, or the way to it, is too slow";
                return Err(Error::Engine(shared.text(why)));
            }
        }
        shared.work.notify_one();
        Ok(())
    }

    /// Subscribes. Samples that are published after it returns come to the target.
    ///
    /// # Errors
    /// [`Error::Engine`] without a connection, for a broker that refuses, or for one that does not answer.
    pub(super) fn subscribe(&self, target: &Arc<Target>) -> Result<()> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        if let Link::Down(Refusal { why, .. }) = &state.link {
            return Err(Error::Engine(shared.text(why)));
        }
        let State { outbox, subscriptions, .. } = &mut *state;
        let (number, packet) = subscriptions.add(target.clone(), || outbox.id());
        packet.into_iter().for_each(|packet| outbox.put_control(packet));
        shared.work.notify_one();
        let awaited =
            |state: &mut State| matches!(state.subscriptions.answer(number), Some(Answer::Awaited(_))) && !state.stop;
        let state = shared.wait(state, awaited);
        let why = match state.subscriptions.answer(number) {
            Some(Answer::Granted) => return Ok(()),
            Some(Answer::Refused(why)) => format!("the broker refuses {}: {why}", target.filter.path),
            _ => format!("no answer to the subscription to {} within {:?}", target.filter.path, state.patience),
        };
        drop(state);
        self.unsubscribe(target);
        Err(Error::Engine(shared.text(&why)))
    }

    /// Ends a subscription. No call of its target begins afterwards.
    pub(super) fn unsubscribe(&self, target: &Arc<Target>) {
        target.close();
        let mut state = lock(&self.shared.state);
        let State { outbox, subscriptions, .. } = &mut *state;
        if let Some(packet) = subscriptions.remove(target, || outbox.id()) {
            outbox.put_control(packet);
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let shared = &self.shared;
        let state = lock(&shared.state);
        let unsent = |state: &mut State| state.stream().is_some() && !state.outbox.is_empty();
        let waited = shared.changed.wait_timeout_while(state, LINGER, unsent);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.stop = true;
        let stream = state.stream().cloned(); // none: the reading thread may be connecting, which it ends alone
        shared.work.notify_all();
        shared.changed.notify_all();
        let writes = self.writer.is_some();
        let waited = shared.changed.wait_timeout_while(state, LINGER, |state| writes && !state.silent);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        if let Some(stream) = &stream {
            let _ = stream.shutdown(Shutdown::Both); // a broker that does not read holds up the writing thread
        }
        let reader = self.reader.take().filter(|_| stream.is_some());
        self.writer.take().into_iter().chain(reader).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn text(&self, what: &str) -> String {
        format!("MQTT broker {}:{}: {what}", self.place.host, self.place.port)
    }

    /// Waits while `holds`, at most [`PATIENCE`].
    fn wait<'a>(&self, state: MutexGuard<'a, State>, holds: impl FnMut(&mut State) -> bool) -> MutexGuard<'a, State> {
        let patience = state.patience;
        let waited = self.changed.wait_timeout_while(state, patience, holds);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Held by a thread while it runs. A panic, such as one of whoever takes a sample, ends the whole connection: half of it would look like one.
struct Runs<'a>(&'a Shared);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let why = "a thread of the connection panicked: it is not opened again".to_owned();
        self.0.refusals.add(self.0.text(&why));
        let mut state = lock(&self.0.state);
        if let Some(stream) = state.stream() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        (state.stop, state.link) = (true, Link::Down(Refusal { why, lasts: false }));
        self.0.work.notify_all();
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
