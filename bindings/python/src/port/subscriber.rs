//! Subscribers: taking samples, and waiting for them on threads or by a descriptor.

use super::publisher::Publisher;
use super::signal::Signal;
use super::{SLICE, wait_connected};
use crate::client::Node;
use crate::error::{UsageError, closed, raised};
use crate::handle::{Closing, Handle, lock};
use crate::message::Type;
use crate::options::{Options, timeout, with_options};
use crate::process::{self, Birth, Inside, away};
use crate::sample::{Sample, Source};
use pyo3::prelude::*;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;
use thalweg::codec::Untyped;
use thalweg::{Descriptor, SampleInfo, TakenSample, Waitable};

/// A subscriber, until it is closed.
pub(crate) struct State {
    subscriber: Mutex<Option<thalweg::Subscriber<Untyped>>>,
    node: Arc<Handle>,
    birth: Birth,
    /// For threads that wait; all share it, for the library wakes one.
    signal: Arc<Signal>,
    waker: Waker,
    /// For an event loop that waits. It stays as long as the subscriber: a loop that still has its number watches no other file.
    descriptor: OnceLock<Descriptor>,
}

impl State {
    /// The oldest waiting sample.
    fn take(&self) -> thalweg::Result<Option<TakenSample<Untyped>>> {
        lock(&self.subscriber).as_mut().map(thalweg::Subscriber::take).ok_or(thalweg::Error::Closed)
    }

    /// Waits for a sample until this time. The clock is read only when there is none.
    #[allow(clippy::disallowed_methods)] // a user waits
    fn wait(&self, until: Instant) -> thalweg::Result<Option<TakenSample<Untyped>>> {
        loop {
            let seen = self.signal.news();
            {
                let mut held = lock(&self.subscriber);
                let subscriber = held.as_mut().ok_or(thalweg::Error::Closed)?;
                if let Some(sample) = subscriber.take() {
                    return Ok(Some(sample));
                }
                if subscriber.is_ready(&self.waker) {
                    continue;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.signal.wait(seen, left);
        }
    }
}

impl Source for State {
    fn name(&self, info: &SampleInfo) -> Option<String> {
        let held = if self.birth.is_here() { lock(&self.subscriber) } else { return None };
        held.as_ref()?.publisher(info).map(|publisher| publisher.name.clone())
    }
}

impl Closing for State {
    fn close(&self) {
        let subscriber = lock(&self.subscriber).take();
        self.signal.tell();
        // A loop that waits finds its descriptor readable, because the port wakes its waiter.
        drop(subscriber);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let subscriber = self.subscriber.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match self.birth.is_here() {
            true if subscriber.is_some() => process::drop_away(|| drop(subscriber)),
            true => {}
            false => std::mem::forget(subscriber), // its threads are in another process
        }
    }
}

/// A subscriber as Python holds it; `thalweg.Subscriber` adds iteration and callbacks.
#[pyclass(frozen, generic, subclass, module = "thalweg._thalweg")]
pub(crate) struct Subscriber {
    state: Arc<State>,
    kind: Py<Type>,
    /// The port's name.
    #[pyo3(get)]
    name: String,
    /// The topic, or pattern of topics.
    #[pyo3(get)]
    topic: String,
}

impl Subscriber {
    /// Does something with the open subscriber.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&thalweg::Subscriber<Untyped>) -> T) -> PyResult<T> {
        self.state.birth.check()?;
        lock(&self.state.subscriber).as_ref().map(work).ok_or_else(closed)
    }

    fn sample(&self, py: Python<'_>, taken: TakenSample<Untyped>) -> PyResult<Sample> {
        Sample::new(py, taken, self.kind.clone_ref(py), self.state.clone())
    }
}

#[pymethods]
impl Subscriber {
    #[new]
    #[pyo3(signature = (node, topic, kind, options, answering_with=None))]
    fn open(
        py: Python<'_>,
        node: &Bound<'_, Node>,
        topic: &str,
        kind: Py<Type>,
        options: Options,
        answering_with: Option<&Bound<'_, Publisher>>,
    ) -> PyResult<Self> {
        let handle = node.get().handle().clone();
        let mut builder = with_options!(handle.node()?.subscriber::<Untyped>(topic), options);
        if !kind.get().is_any() {
            builder = builder.described(kind.get().description().clone());
        }
        if let Some(answers) = answering_with {
            builder = answers.get().with(py, |publisher| builder.answering_with(publisher))?;
        }
        let subscriber = away(py, || builder.open())?.map_err(|error| raised(py, error))?;
        let signal = Arc::new(Signal::default());
        let state = Arc::new(State {
            subscriber: Mutex::new(Some(subscriber)),
            birth: handle.birth(),
            node: handle,
            waker: signal.clone().into(),
            signal,
            descriptor: OnceLock::new(),
        });
        let port: Arc<dyn Closing> = state.clone();
        state.node.keep(&port);
        let opened = Self { state, kind, name: String::new(), topic: topic.to_owned() };
        let name = opened.with(|subscriber| subscriber.name().to_owned())?;
        Ok(Self { name, ..opened })
    }

    /// The oldest waiting sample, without waiting. `None`: there is none.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Sample>> {
        self.state.birth.check()?;
        let taken = self.state.take().map_err(|error| raised(py, error))?;
        taken.map(|taken| self.sample(py, taken)).transpose()
    }

    /// The oldest waiting sample; waits for one, for `timeout` seconds at most if they are given. `None`: the time has passed.
    #[pyo3(signature = (timeout=None))]
    #[allow(clippy::disallowed_methods)] // a user waits
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Sample>> {
        let longest = self::timeout(timeout)?;
        if let Some(sample) = self.take(py)? {
            return Ok(Some(sample));
        }
        let _inside = Inside::enter(py)?;
        let mut slice = Instant::now();
        let until = slice + longest;
        loop {
            slice = until.min(slice + SLICE);
            let taken = py.detach(|| self.state.wait(slice)).map_err(|error| raised(py, error))?;
            if let Some(taken) = taken {
                return self.sample(py, taken).map(Some);
            }
            if slice == until {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// The number of a file that is readable when a sample may wait, for event loops. `arm` comes before each wait.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.state.birth.check()?;
        if self.state.descriptor.get().is_none() {
            let made = Descriptor::new().map_err(|error| raised(py, error))?;
            let _ = self.state.descriptor.set(made); // another thread's is as good
        }
        self.state.descriptor.get().map(AsRawFd::as_raw_fd).ok_or_else(closed)
    }

    /// `True` if a sample waits; otherwise the file becomes readable when one does. No thread may wait meanwhile.
    fn arm(&self) -> PyResult<bool> {
        let descriptor = self.state.descriptor.get();
        let descriptor =
            descriptor.ok_or_else(|| UsageError::new_err("arm() before fileno(): nothing waits for the file yet"))?;
        self.with(|subscriber| descriptor.arm(subscriber))
    }

    /// The number of channels.
    #[getter]
    fn connected(&self) -> PyResult<usize> {
        self.with(thalweg::Subscriber::connected)
    }

    /// The number of samples that were dropped because they were not taken in time.
    #[getter]
    fn dropped(&self) -> PyResult<u64> {
        self.with(thalweg::Subscriber::dropped)
    }

    /// Waits until there are `count` channels, for `timeout` seconds at most if they are given. `False`: the time has passed.
    #[pyo3(signature = (count=1, timeout=None))]
    fn wait_connected(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyResult<bool> {
        wait_connected(py, &self.state.node, timeout, || Ok(self.connected()? >= count))
    }

    /// Closes the port. Whoever waits for it is woken.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.state.birth.check()?;
        away(py, || self.state.close())
    }

    fn __repr__(&self) -> String {
        format!("<subscriber {} to {}>", self.name, self.topic)
    }
}
