//! Loans: messages that are written in place, and that nobody sees any more when they are published.

use super::publisher::{Held, Published, State};
use crate::error::{LoanError, raised};
use crate::handle::lock;
use crate::message::numbers::numpy_here;
use crate::process::{self, away};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyWeakrefMethods, PyWeakrefReference};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};
use thalweg::OwnedLoan;
use thalweg::codec::Untyped;

/// A message to be written in place. It ends with `publish`, or unpublished when it is dropped.
#[pyclass(frozen, module = "thalweg")]
pub(crate) struct Loan {
    publisher: Arc<State>,
    place: Mutex<Place>,
    size: usize,
}

/// The memory of a loan.
struct Place {
    /// `None`: the loan is over.
    loan: Option<OwnedLoan<Untyped>>,
    /// Where the memory begins. It stays there as long as the loan and its publisher.
    start: Start,
    /// Buffers of Python that show the memory now.
    seen: usize,
    /// Views that were given out, which end with the loan.
    views: Vec<Py<PyWeakrefReference>>,
}

struct Start(*mut u8);

// SAFETY: an address. Whoever goes there holds the interpreter's lock, and the loan, which nobody else writes to.
unsafe impl Send for Start {}

impl Loan {
    /// Borrows `size` bytes of the publisher.
    pub(super) fn of(py: Python<'_>, publisher: &Arc<State>, size: usize) -> PyResult<Self> {
        let lend = |held: &mut Held| match &mut held.publisher {
            Some(publisher) => {
                let loan = publisher.loan_owned(size)?;
                held.loans += 1;
                Ok(loan)
            }
            None => Err(thalweg::Error::Closed),
        };
        let mut loan = away(py, || publisher.with(lend))?.map_err(|error| raised(py, error))?;
        let start = Start(loan.write(|bytes| bytes.as_mut_ptr()));
        let place = Mutex::new(Place { loan: Some(loan), start, seen: 0, views: Vec::new() });
        Ok(Self { publisher: publisher.clone(), place, size })
    }

    /// Ends the views that were given out. Those of which others hold views in turn, such as arrays, cannot end.
    fn end_views(&self, py: Python<'_>) -> PyResult<()> {
        let views = std::mem::take(&mut lock(&self.place).views);
        for view in &views {
            if let Some(view) = view.bind(py).upgrade() {
                // The count below tells whether it was released.
                let _ = view.call_method0("release");
            }
        }
        let mut place = lock(&self.place);
        match place.seen {
            0 => Ok(()),
            seen => {
                place.views = views;
                Err(LoanError::new_err(format!(
                    "{seen} arrays or views of the loan's memory are still there, and would see the published message change: del them \
                     before publish, or fill the loan in one expression, such as loan.array(\"uint8\")[:] = image"
                )))
            }
        }
    }
}

fn over() -> PyErr {
    LoanError::new_err("the loan is over: it was published, or dropped; ask the publisher for a new one")
}

#[pymethods]
impl Loan {
    /// The memory, writable until the loan is published.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        let view = PyMemoryView::from(slf.as_any())?;
        let known = PyWeakrefReference::new(view.as_any())?;
        let mut place = lock(&slf.get().place);
        let py = slf.py();
        place.views.retain(|view| view.bind(py).upgrade().is_some());
        place.views.push(known.unbind());
        Ok(view)
    }

    /// The memory as a numpy array.
    #[pyo3(signature = (dtype="uint8", shape=None))]
    fn array<'py>(
        slf: &Bound<'py, Self>,
        dtype: &str,
        shape: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let array = numpy_here(py)?.call_method1(intern!(py, "frombuffer"), (slf, dtype))?;
        match shape {
            Some(shape) => array.call_method1(intern!(py, "reshape"), (shape,)),
            None => Ok(array),
        }
    }

    fn __len__(&self) -> usize {
        self.size
    }

    /// Publishes the message. Views of it are dead then; an array of it that is still there is an error.
    fn publish(&self, py: Python<'_>) -> PyResult<Published> {
        self.publisher.birth.check()?;
        self.end_views(py)?;
        let loan = lock(&self.place).loan.take().ok_or_else(over)?;
        let published = away(py, || {
            // A closed publisher is there as long as its loans.
            let published = if self.publisher.is_open() { loan.publish() } else { Err(thalweg::Error::Closed) };
            self.publisher.returned();
            published
        })?;
        published.map(Published::from).map_err(|error| raised(py, error))
    }

    /// `with publisher.loan(n) as data:` publishes what was written at the end of the block.
    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        Self::data(slf)
    }

    /// Publishes, unless the block ended with an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        if kind.is_none() {
            self.publish(py)?;
        }
        Ok(false)
    }

    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let loan = slf.get();
        let mut place = lock(&loan.place);
        if place.loan.is_none() {
            return Err(PyBufferError::new_err("the loan is over: it was published, or dropped"));
        }
        // An address of no bytes need not be one of memory.
        let size = ffi::Py_ssize_t::try_from(loan.size).map_err(|_| PyBufferError::new_err("the loan is too large"))?;
        // SAFETY: the memory stays there while the loan lives, which `view` keeps by its owner, and until the loan is published, which
        // `publish` refuses while `seen` counts this view. Nobody else writes to it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), place.start.0.cast(), size, 0, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        place.seen += 1;
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        let mut place = lock(&self.place);
        place.seen = place.seen.saturating_sub(1);
    }

    fn __repr__(&self) -> String {
        let state = if lock(&self.place).loan.is_some() { "" } else { ", over" };
        format!("<loan of {} bytes{state}>", self.size)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(loan) = self.place.get_mut().unwrap_or_else(PoisonError::into_inner).loan.take() else { return };
        if !self.publisher.birth.is_here() {
            std::mem::forget(loan);
            return;
        }
        process::drop_away(|| {
            drop(loan);
            self.publisher.returned();
        });
    }
}
