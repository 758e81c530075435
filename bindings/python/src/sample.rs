//! Received samples. Python sees their memory where it was received; it is given back when the last view of it is gone.
//!
//! The memory and the value are objects of their own: arrays in the value refer to the memory, never to the sample, so there is no ring
//! that a collector would have to find (arrays are not looked at by it).

use crate::error::MessageError;
use crate::message::Type;
use crate::message::numbers::numpy_here;
use crate::process::{Inside, away};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use std::sync::Arc;
use thalweg::codec::Untyped;
use thalweg::{Change, SampleInfo, TakenSample};

/// Where samples come from.
pub(crate) trait Source: Send + Sync {
    /// The name of the port that published a sample.
    fn name(&self, info: &SampleInfo) -> Option<String>;
}

/// The memory of a received message, read only.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub(crate) struct Memory(TakenSample<Untyped>);

#[pymethods]
impl Memory {
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: see `show`.
        unsafe { show(slf.as_any(), slf.get().0.bytes(), view, flags) }
    }
}

/// Shows a message's bytes to Python, read only.
///
/// # Safety
/// `bytes` must be there, unchanged, as long as `owner` is; `view` is what Python's buffer protocol hands over.
unsafe fn show(owner: &Bound<'_, PyAny>, bytes: &[u8], view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
    let size =
        ffi::Py_ssize_t::try_from(bytes.len()).map_err(|_| PyBufferError::new_err("the message is too large"))?;
    let start = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the view keeps the owner, and with it the bytes; it is marked read only (1), so a request to write is refused.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, size, 1, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}

/// A received sample: its value, its memory, and what is known of it.
#[pyclass(frozen, generic, module = "thalweg")]
pub(crate) struct Sample {
    memory: Py<Memory>,
    kind: Py<Type>,
    value: PyOnceLock<Py<PyAny>>,
    source: Arc<dyn Source>,
}

impl Sample {
    pub(crate) fn new(
        py: Python<'_>,
        taken: TakenSample<Untyped>,
        kind: Py<Type>,
        source: Arc<dyn Source>,
    ) -> PyResult<Self> {
        Ok(Self { memory: Py::new(py, Memory(taken))?, kind, value: PyOnceLock::new(), source })
    }
}

#[pymethods]
impl Sample {
    /// The value; decoded when it is first asked for.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = self.value.get(py) {
            return Ok(value.bind(py).clone());
        }
        let _inside = Inside::enter(py)?;
        let memory = self.memory.bind(py);
        let value = self.kind.get().decode_from(memory.as_any(), memory.get().0.bytes())?;
        Ok(self.value.get_or_init(py, || value.unbind()).bind(py).clone())
    }

    /// The received bytes, where they were received.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.memory.bind(py).as_any())
    }

    /// Number, times and source.
    #[getter]
    fn info(&self) -> Info {
        Info { info: *self.memory.get().0.info(), source: self.source.clone() }
    }

    /// The received bytes as a numpy array, where they were received.
    #[pyo3(signature = (dtype="uint8", shape=None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: &str,
        shape: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = numpy_here(py)?.call_method1(intern!(py, "frombuffer"), (self.memory.bind(py), dtype));
        let array = array.map_err(|wrong| {
            MessageError::new_err(format!("the message is no array of {dtype}: {}", wrong.value(py)))
        })?;
        match shape {
            Some(shape) => array.call_method1(intern!(py, "reshape"), (shape,)),
            None => Ok(array),
        }
    }

    fn __len__(&self) -> usize {
        self.memory.get().0.bytes().len()
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get().memory.bind(slf.py());
        // SAFETY: the memory itself is the owner, and keeps its bytes.
        unsafe { show(memory.as_any(), memory.get().0.bytes(), view, flags) }
    }

    fn __repr__(&self) -> String {
        let taken = &self.memory.get().0;
        format!("<sample {} of {} bytes>", taken.info().seq, taken.bytes().len())
    }
}

/// Number, times and source of a sample.
#[pyclass(frozen, module = "thalweg")]
pub(crate) struct Info {
    info: SampleInfo,
    source: Arc<dyn Source>,
}

#[pymethods]
impl Info {
    /// The sample's number, given by its publisher, counted from 1.
    #[getter]
    fn seq(&self) -> u64 {
        self.info.seq
    }

    /// Time of publication: CLOCK_MONOTONIC of the publisher's host (`time.monotonic_ns`), ns.
    #[getter]
    fn source_ns(&self) -> u64 {
        self.info.source_ns
    }

    /// Time of reception: CLOCK_MONOTONIC of this host, ns.
    #[getter]
    fn received_ns(&self) -> u64 {
        self.info.received_ns
    }

    /// Microseconds from publication to reception; `None`: the clocks of the two hosts differ.
    #[getter]
    fn latency_us(&self) -> Option<f64> {
        self.info.latency_ns().map(|ns| ns as f64 / 1e3)
    }

    /// The name of the publishing port; `None`: not known any more.
    #[getter]
    fn source(&self, py: Python<'_>) -> PyResult<Option<String>> {
        away(py, || self.source.name(&self.info)) // the thread that waits at a polled port holds it for up to a slice
    }

    /// The id of the publishing node.
    #[getter]
    fn node(&self) -> u64 {
        self.info.node.0
    }

    /// `True`: it was published before later samples that are here already.
    #[getter]
    fn historical(&self) -> bool {
        self.info.historical
    }

    /// `written`, `disposed` or `unregistered`.
    #[getter]
    fn change(&self) -> &'static str {
        match self.info.change {
            Change::Written => "written",
            Change::Disposed => "disposed",
            Change::Unregistered => "unregistered",
        }
    }

    fn __repr__(&self) -> String {
        let latency = self.latency_us().map_or_else(String::new, |us| format!(", latency_us={us}"));
        format!("Info(seq={}{latency})", self.info.seq)
    }
}
