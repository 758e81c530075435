//! Publishers.

use super::loan::Loan;
use super::subscriber::Subscriber;
use super::wait_connected;
use crate::client::Node;
use crate::error::raised;
use crate::handle::{Closing, Handle, lock};
use crate::message::Type;
use crate::options::{Options, with_options};
use crate::process::{self, Birth, Inside, away};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use thalweg::codec::Untyped;
use thalweg::qos::Queue;

/// Messages at least this long are published without the interpreter's lock. To give it up and wait for it again costs more than a short one.
const LARGE: usize = 16 << 10;
/// Room that a thread keeps for encoded messages.
const KEPT: usize = 1 << 20;

thread_local! {
    /// Room for an encoded message. It is taken out while a message is encoded, for that may run code that publishes, too.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A publisher, until it is closed.
pub(super) struct State {
    held: Mutex<Held>,
    node: Arc<Handle>,
    /// `publish` may wait for room.
    blocks: bool,
    pub(super) birth: Birth,
    closing: AtomicBool,
}

/// What the lock of a publisher guards.
pub(super) struct Held {
    pub(super) publisher: Option<thalweg::Publisher<Untyped>>,
    /// Loans that are neither published nor dropped. Their memory is the publisher's, which closes after them.
    pub(super) loans: usize,
}

impl State {
    /// Does something with the open publisher.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Held) -> thalweg::Result<T>) -> thalweg::Result<T> {
        let mut held = lock(&self.held);
        if !self.is_open() || held.publisher.is_none() {
            return Err(thalweg::Error::Closed);
        }
        work(&mut held)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.closing.load(Ordering::Relaxed)
    }

    /// A loan is over.
    pub(super) fn returned(&self) {
        let mut held = lock(&self.held);
        held.loans = held.loans.saturating_sub(1);
        let last = if held.loans == 0 && !self.is_open() { held.publisher.take() } else { None };
        drop(held);
        drop(last);
    }
}

impl Closing for State {
    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let mut held = lock(&self.held);
        let publisher = if held.loans == 0 { held.publisher.take() } else { None };
        drop(held);
        drop(publisher); // sends what waits
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let publisher = self.held.get_mut().unwrap_or_else(PoisonError::into_inner).publisher.take();
        match self.birth.is_here() {
            true if publisher.is_some() => process::drop_away(|| drop(publisher)),
            true => {}
            false => std::mem::forget(publisher), // its threads are in another process
        }
    }
}

/// The outcome of a publication.
#[pyclass(frozen, get_all, module = "thalweg")]
pub(crate) struct Published {
    /// The sample's number, counted from 1.
    seq: u64,
    /// Channels on which it was sent.
    sent: u32,
    /// Channels on which it waits.
    queued: u32,
    /// Samples that channels dropped for it, or it.
    dropped: u32,
    /// Channels that are broken now.
    not_connected: u32,
}

#[pymethods]
impl Published {
    fn __repr__(&self) -> String {
        let Self { seq, sent, queued, dropped, not_connected } = self;
        format!("Published(seq={seq}, sent={sent}, queued={queued}, dropped={dropped}, not_connected={not_connected})")
    }
}

impl From<thalweg::Published> for Published {
    fn from(published: thalweg::Published) -> Self {
        let thalweg::Published { seq, sent, queued, dropped, not_connected, .. } = published;
        Self { seq, sent, queued, dropped, not_connected }
    }
}

/// Publishes samples of a topic: `publish`, or `loan` for a message that is written in place.
#[pyclass(frozen, generic, module = "thalweg")]
pub(crate) struct Publisher {
    state: Arc<State>,
    kind: Py<Type>,
    /// The port's name.
    #[pyo3(get)]
    name: String,
    /// The topic.
    #[pyo3(get)]
    topic: String,
}

#[pymethods]
impl Publisher {
    #[new]
    #[pyo3(signature = (node, topic, kind, options, answered_at=None))]
    fn open(
        py: Python<'_>,
        node: &Bound<'_, Node>,
        topic: &str,
        kind: Py<Type>,
        options: Options,
        answered_at: Option<&Bound<'_, Subscriber>>,
    ) -> PyResult<Self> {
        let handle = node.get().handle().clone();
        let blocks = matches!(options.qos()?.queue, Queue::Block { .. });
        let builder = handle.node()?.publisher::<Untyped>(topic).described(kind.get().description().clone());
        let mut builder = with_options!(builder, options);
        if let Some(answers) = answered_at {
            builder = answers.get().with(py, |subscriber| builder.answered_at(subscriber))?;
        }
        let publisher = away(py, || builder.open())?.map_err(|error| raised(py, error))?;
        let (name, topic) = (publisher.name().to_owned(), publisher.topic().to_owned());
        let state = Arc::new(State {
            held: Mutex::new(Held { publisher: Some(publisher), loans: 0 }),
            birth: handle.birth(),
            node: handle,
            blocks,
            closing: AtomicBool::new(false),
        });
        let port: Arc<dyn Closing> = state.clone();
        state.node.keep(&port);
        Ok(Self { state, kind, name, topic })
    }

    /// Publishes a value on all channels.
    fn publish(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Published> {
        self.state.birth.check()?;
        let _inside = Inside::enter(py)?;
        let kind = self.kind.get();
        if let (true, Ok(bytes)) = (kind.is_bytes(), value.cast::<PyBytes>()) {
            return self.send(py, bytes.as_bytes());
        }
        let mut room = ROOM.take();
        room.clear();
        let published = kind.encode_into(value, &mut room).and_then(|()| self.send(py, &room));
        if room.capacity() <= KEPT {
            ROOM.set(room);
        }
        published
    }

    /// A message of `size` bytes that is written in place: in the subscribers' own shared memory where the carrier allows.
    fn loan(&self, py: Python<'_>, size: usize) -> PyResult<Loan> {
        self.state.birth.check()?;
        Loan::of(py, &self.state, size)
    }

    /// The number of channels.
    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, thalweg::Publisher::connected)
    }

    /// Waits until there are `count` channels, for `timeout` seconds at most if they are given. `False`: the time has passed.
    #[pyo3(signature = (count=1, timeout=None))]
    fn wait_connected(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyResult<bool> {
        wait_connected(py, &self.state.node, timeout, || Ok(self.connected(py)? >= count))
    }

    /// Closes the port after its waiting samples are sent, for a second at most.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.birth.check()?;
        away(py, || self.state.close())
    }

    /// `with node.publisher(...) as publisher:` closes the port at the end of the block.
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    /// Closes the port, as `close` does.
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<publisher {} of {}>", self.name, self.topic)
    }
}

impl Publisher {
    /// Does something with the open publisher.
    pub(crate) fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&thalweg::Publisher<Untyped>) -> T) -> PyResult<T> {
        self.state.birth.check()?;
        let some = |held: &mut Held| held.publisher.as_ref().map(work).ok_or(thalweg::Error::Closed);
        self.state.with(some).map_err(|error| raised(py, error))
    }

    /// Publishes an encoded message; a long one, or where another thread publishes or a queue may be full, without the interpreter's lock.
    fn send(&self, py: Python<'_>, message: &[u8]) -> PyResult<Published> {
        let publish = |held: &mut Held| match &mut held.publisher {
            Some(publisher) => publisher.publish(message),
            None => Err(thalweg::Error::Closed),
        };
        let is_at_once = message.len() < LARGE && !self.state.blocks && self.state.is_open();
        let at_once = if is_at_once { self.state.held.try_lock().ok() } else { None };
        let published = match at_once {
            Some(mut held) => publish(&mut held),
            None => py.detach(|| self.state.with(publish)),
        };
        published.map(Published::from).map_err(|error| raised(py, error))
    }
}
