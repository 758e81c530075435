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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};
use thalweg::codec::Untyped;
use thalweg::{Descriptor, SampleInfo, TakenSample, Waitable};

/// The slices of a wait at a polled port: a little more than a carrier waits at once, so that the receiving call itself does.
const POLLED_SLICE: Duration = Duration::from_millis(110);
const POLLED: &str = "a polled subscriber has no file to wait for: wait() receives, on the thread that calls it; open it without \
                      polled=True for an event loop";

/// A subscriber, until it is closed.
pub(crate) struct State {
    subscriber: Mutex<Option<thalweg::Subscriber<Untyped>>>,
    node: Arc<Handle>,
    birth: Birth,
    /// For threads that wait; all share it, for the library wakes one.
    signal: Arc<Signal>,
    waker: Waker,
    /// The thread that waits receives, with the lock of the subscriber: there is no thread of the library for it.
    polled: bool,
    /// Threads that want that lock for a moment.
    asking: AtomicUsize,
    /// For an event loop that waits. It stays as long as the subscriber: a loop that still has its number watches no other file.
    descriptor: OnceLock<Descriptor>,
}

impl State {
    /// The subscriber, for a moment. The thread that waits at a polled port gives it up at the end of its slice.
    fn held(&self) -> MutexGuard<'_, Option<thalweg::Subscriber<Untyped>>> {
        self.asking.fetch_add(1, Ordering::Relaxed);
        let held = lock(&self.subscriber);
        self.asking.fetch_sub(1, Ordering::Relaxed);
        held
    }

    /// The oldest waiting sample.
    fn take(&self) -> thalweg::Result<Option<TakenSample<Untyped>>> {
        self.held().as_mut().map(thalweg::Subscriber::take).ok_or(thalweg::Error::Closed)
    }

    /// Waits for a sample until this time. The clock is read only when there is none.
    #[allow(clippy::disallowed_methods)] // a user waits
    fn wait(&self, until: Instant) -> thalweg::Result<Option<TakenSample<Untyped>>> {
        if self.polled {
            return self.receive(until);
        }
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

    /// Receives on this thread until this time.
    #[allow(clippy::disallowed_methods)] // a user waits
    fn receive(&self, until: Instant) -> thalweg::Result<Option<TakenSample<Untyped>>> {
        while self.asking.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now(); // otherwise this thread would have the lock again before one that was woken for it
        }
        let mut held = lock(&self.subscriber);
        let subscriber = held.as_mut().ok_or(thalweg::Error::Closed)?;
        Ok(subscriber.wait(until.saturating_duration_since(Instant::now())))
    }
}

impl Source for State {
    fn name(&self, info: &SampleInfo) -> Option<String> {
        let held = if self.birth.is_here() { self.held() } else { return None };
        held.as_ref()?.publisher(info).map(|publisher| publisher.name.clone())
    }
}

impl Closing for State {
    fn close(&self) {
        let subscriber = self.held().take();
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
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&thalweg::Subscriber<Untyped>) -> T + Send,
    ) -> PyResult<T> {
        self.state.birth.check()?;
        if let Ok(held) = self.state.subscriber.try_lock() {
            return held.as_ref().map(work).ok_or_else(closed);
        }
        away(py, || self.state.held().as_ref().map(work))?.ok_or_else(closed)
    }

    fn sample(&self, py: Python<'_>, taken: TakenSample<Untyped>) -> PyResult<Sample> {
        Sample::new(py, taken, self.kind.clone_ref(py), self.state.clone())
    }
}

#[pymethods]
impl Subscriber {
    #[new]
    #[pyo3(signature = (node, topic, kind, options, answering_with=None, polled=false))]
    fn open(
        py: Python<'_>,
        node: &Bound<'_, Node>,
        topic: &str,
        kind: Py<Type>,
        options: Options,
        answering_with: Option<&Bound<'_, Publisher>>,
        polled: bool,
    ) -> PyResult<Self> {
        let handle = node.get().handle().clone();
        let mut builder = with_options!(handle.node()?.subscriber::<Untyped>(topic), options);
        if polled {
            builder = builder.polled();
        }
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
            polled,
            asking: AtomicUsize::new(0),
            descriptor: OnceLock::new(),
        });
        let port: Arc<dyn Closing> = state.clone();
        state.node.keep(&port);
        let opened = Self { state, kind, name: String::new(), topic: topic.to_owned() };
        let name = opened.with(py, |subscriber| subscriber.name().to_owned())?;
        Ok(Self { name, ..opened })
    }

    /// The oldest waiting sample, without waiting. `None`: there is none.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Sample>> {
        self.state.birth.check()?;
        let taken = if self.state.polled { away(py, || self.state.take())? } else { self.state.take() };
        let taken = taken.map_err(|error| raised(py, error))?;
        taken.map(|taken| self.sample(py, taken)).transpose()
    }

    /// The oldest waiting sample; waits for one, for `timeout` seconds at most if they are given. `None`: the time has passed.
    #[pyo3(signature = (timeout=None))]
    #[allow(clippy::disallowed_methods)] // a user waits
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Sample>> {
        let longest = self::timeout(timeout)?;
        // A polled port is asked once: over a socket each look is a call of the kernel.
        if !self.state.polled
            && let Some(sample) = self.take(py)?
        {
            return Ok(Some(sample));
        }
        self.state.birth.check()?;
        let _inside = Inside::enter(py)?;
        let longest_slice = if self.state.polled { POLLED_SLICE } else { SLICE };
        let mut slice = Instant::now();
        let until = slice + longest;
        loop {
            slice = until.min(slice + longest_slice);
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
        if self.state.polled {
            return Err(UsageError::new_err(POLLED));
        }
        if self.state.descriptor.get().is_none() {
            let made = Descriptor::new().map_err(|error| raised(py, error))?;
            let _ = self.state.descriptor.set(made); // another thread's is as good
        }
        self.state.descriptor.get().map(AsRawFd::as_raw_fd).ok_or_else(closed)
    }

    /// `True` if a sample waits; otherwise the file becomes readable when one does. No thread may wait meanwhile.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        let descriptor = self.state.descriptor.get();
        let descriptor =
            descriptor.ok_or_else(|| UsageError::new_err("arm() before fileno(): nothing waits for the file yet"))?;
        self.with(py, |subscriber| descriptor.arm(subscriber))
    }

    /// The number of channels.
    #[getter]
    fn connected(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, thalweg::Subscriber::connected)
    }

    /// The number of samples that were dropped because they were not taken in time.
    #[getter]
    fn dropped(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, thalweg::Subscriber::dropped)
    }

    /// Waits until there are `count` channels, for `timeout` seconds at most if they are given. `False`: the time has passed.
    #[pyo3(signature = (count=1, timeout=None))]
    fn wait_connected(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyResult<bool> {
        wait_connected(py, &self.state.node, timeout, || Ok(self.connected(py)? >= count))
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
