//! Sequences of numbers: in one copy from arrays and other buffers, and without one to arrays that show a message's memory.

use super::encode::{Encoder, fits};
use super::plan::Number;
use super::wrong::{Result, Wrong};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PySlice, PyString};

/// Appends numbers: of a buffer in one copy, of a list one by one.
pub(super) fn encode(
    encoder: &mut Encoder<'_>,
    number: Number,
    length: Option<u32>,
    value: &Bound<'_, PyAny>,
) -> Result<()> {
    let Ok(buffer) = PyUntypedBuffer::get(value) else { return encode_each(encoder, number, length, value) };
    let format = buffer.format().to_string_lossy();
    if !is_format(number, &format, buffer.item_size()) {
        let problem = format!(
            "expected {} values, found a buffer of format {format:?}: convert it with astype or cast",
            number.name()
        );
        return Err(Wrong::new(problem));
    }
    begin(encoder, number, length, buffer.item_count())?;
    copy(value, &buffer, encoder.out)
}

fn encode_each(encoder: &mut Encoder<'_>, number: Number, length: Option<u32>, value: &Bound<'_, PyAny>) -> Result<()> {
    let what = format!("an array or list of {}", number.name());
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyDict>() {
        return Err(Wrong::expected(&what, value));
    }
    let elements = value.try_iter().map_err(|_| Wrong::expected(&what, value))?;
    let elements = elements.collect::<PyResult<Vec<_>>>()?;
    begin(encoder, number, length, elements.len())?;
    for (at, element) in elements.iter().enumerate() {
        encoder.number(number, element).map_err(|wrong| wrong.at(&format!("[{at}]")))?;
    }
    Ok(())
}

/// The count, or the check of an array's length; and the padding before the first number.
fn begin(encoder: &mut Encoder<'_>, number: Number, length: Option<u32>, count: usize) -> Result<()> {
    match length {
        None => encoder.length(count)?,
        Some(length) => fits(length, count)?,
    }
    if count > 0 {
        encoder.align(number.size());
    }
    Ok(())
}

/// `true` if a buffer's format is that of the number, in this machine's byte order.
fn is_format(number: Number, format: &str, size: usize) -> bool {
    let native = if cfg!(target_endian = "little") { ['@', '=', '<'] } else { ['@', '=', '>'] };
    let bare = format.strip_prefix(native).unwrap_or(format);
    let is = match number {
        Number::Bool => bare == "?",
        Number::U8 | Number::U16 | Number::U32 | Number::U64 => matches!(bare, "B" | "H" | "I" | "L" | "Q"),
        Number::I8 | Number::I16 | Number::I32 | Number::I64 => matches!(bare, "b" | "h" | "i" | "l" | "q"),
        Number::F32 => bare == "f",
        Number::F64 => bare == "d",
    };
    // numpy's one byte in another order has no order.
    (is || (number.size() == 1 && bare.trim_start_matches('>') == number.format())) && size == number.size()
}

/// The number of bytes of `bytes`, an array of bytes, or the like.
pub(super) fn byte_count(value: &Bound<'_, PyAny>) -> Result<usize> {
    Ok(bytes_of(value)?.len_bytes())
}

/// Appends the bytes of a buffer.
pub(super) fn copy_bytes(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<()> {
    copy(value, &bytes_of(value)?, out)
}

fn bytes_of(value: &Bound<'_, PyAny>) -> Result<PyUntypedBuffer> {
    PyUntypedBuffer::get(value).map_err(|_| Wrong::expected("bytes, or an array or view of numbers", value))
}

/// Appends a buffer's contents, row by row.
fn copy(value: &Bound<'_, PyAny>, buffer: &PyUntypedBuffer, out: &mut Vec<u8>) -> Result<()> {
    let start: *const u8 = buffer.buf_ptr().cast();
    if !buffer.is_c_contiguous() || start.is_null() {
        let bytes = PyMemoryView::from(value)?.call_method0("tobytes")?.cast_into::<PyBytes>().map_err(PyErr::from)?;
        out.extend_from_slice(bytes.as_bytes());
        return Ok(());
    }
    // SAFETY: a contiguous buffer has that many bytes, which stay while `buffer` is held. They are copied with the interpreter's lock, so no
    // Python code changes them meanwhile.
    out.extend_from_slice(unsafe { std::slice::from_raw_parts(start, buffer.len_bytes()) });
    Ok(())
}

/// numpy, if this interpreter has it.
fn numpy(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Option<Py<PyModule>>> = PyOnceLock::new();
    let module = NUMPY.get_or_init(py, || py.import("numpy").ok().map(Bound::unbind));
    module.as_ref().map(|module| module.bind(py).clone())
}

/// numpy, or the reason why it cannot be imported.
pub(crate) fn numpy_here(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    numpy(py).map_or_else(|| py.import(intern!(py, "numpy")), Ok)
}

/// `count` numbers at `start` of a message, as an array that shows the message's memory.
pub(super) fn view<'py>(
    owner: &Bound<'py, PyAny>,
    number: Number,
    start: usize,
    count: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(numpy) = numpy(owner.py()) else {
        return memory(owner, start, start + count * number.size())?.call_method1("cast", (number.format(),));
    };
    let py = owner.py();
    match count {
        0 => numpy.call_method1(intern!(py, "empty"), (0, number.dtype())),
        _ => numpy.call_method1(intern!(py, "frombuffer"), (owner, number.dtype(), count, start)),
    }
}

/// A part of a message's memory.
pub(super) fn memory<'py>(owner: &Bound<'py, PyAny>, start: usize, end: usize) -> PyResult<Bound<'py, PyAny>> {
    let index = |at: usize| isize::try_from(at).unwrap_or(isize::MAX);
    PyMemoryView::from(owner)?.get_item(PySlice::new(owner.py(), index(start), index(end), 1))
}
