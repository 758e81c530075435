//! CDR to values, bounded by the length of the message.

use super::numbers;
use super::plan::{Number, Plan};
use super::wrong::{Result, Wrong};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// The length of the encapsulation header; alignment counts from its end.
const ORIGIN: usize = 4;
/// The number of elements of sequences and maps in one message that may take no bytes.
const FREE_ELEMENTS: usize = 1024;
/// Padding that a writer may add behind the value.
const MAX_TRAILING: usize = 3;

/// Decodes one message of CDR version 1, little-endian, as `transcode` gives it, whose bytes are the memory of `owner`.
pub(super) fn message<'py>(plan: &Plan, owner: &Bound<'py, PyAny>, bytes: &[u8]) -> Result<Bound<'py, PyAny>> {
    let mut decoder = Decoder { owner, bytes, at: ORIGIN.min(bytes.len()), free: FREE_ELEMENTS };
    let value = decoder.value(plan)?;
    match decoder.remaining() {
        0..=MAX_TRAILING => Ok(value),
        more => {
            let problem =
                format!("expected the end (or up to {MAX_TRAILING} bytes of padding), found {more} bytes more");
            Err(decoder.wrong(problem))
        }
    }
}

/// A place in one message.
struct Decoder<'a, 'py> {
    owner: &'a Bound<'py, PyAny>,
    bytes: &'a [u8],
    at: usize,
    /// Elements without bytes that may still come.
    free: usize,
}

impl<'a, 'py> Decoder<'a, 'py> {
    fn value(&mut self, plan: &Plan) -> Result<Bound<'py, PyAny>> {
        let py = self.owner.py();
        Ok(match plan {
            Plan::Number(number) => self.number(*number)?,
            Plan::Char => {
                let scalar = u32::from_le_bytes(self.take("a char")?);
                let scalar = char::from_u32(scalar);
                scalar.ok_or_else(|| self.wrong("expected a Unicode scalar value".to_owned()))?.into_bound_py_any(py)?
            }
            Plan::Text => PyString::new(py, self.text()?).into_any(),
            Plan::Unit => py.None().into_bound(py),
            Plan::Bytes(length) => {
                let count =
                    length.map_or_else(|| self.length("the count of a byte sequence"), |length| Ok(length as usize))?;
                PyBytes::new(py, self.slice(count, "bytes")?).into_any()
            }
            Plan::Memory => {
                let count = self.length("the count of a byte sequence")?;
                let start = self.at;
                self.slice(count, "bytes")?;
                numbers::memory(self.owner, start, start + count)?
            }
            Plan::Numbers(number, length) => self.numbers(*number, *length)?,
            Plan::Sequence(element) => {
                let count = self.count()?;
                self.listed(count, element, true)?
            }
            Plan::Array(length, element) => self.listed(*length as usize, element, false)?,
            Plan::Tuple(elements) => {
                let elements = elements.iter().map(|element| self.value(element)).collect::<Result<Vec<_>>>()?;
                PyTuple::new(py, elements)?.into_any()
            }
            Plan::Option(inner) => match self.is_true("the mark of an option")? {
                true => self.value(inner)?,
                false => py.None().into_bound(py),
            },
            Plan::Map(key, content) => self.map(key, content)?,
            Plan::Struct { class, fields } => {
                let part = |(name, plan): &(Py<PyString>, Plan)| {
                    self.value(plan).map_err(|wrong| wrong.at(&name.bind(py).to_string_lossy()))
                };
                let values = fields.iter().map(part).collect::<Result<Vec<_>>>()?;
                class.bind(py).call1(PyTuple::new(py, values)?)?
            }
            Plan::Enum { name, members } => {
                let index = u32::from_le_bytes(self.take("the index of an enum's variant")?);
                let member = members.get(index as usize);
                let count = members.len();
                member
                    .ok_or_else(|| self.wrong(format!("expected one of {count} variants of {name}, found {index}")))?
                    .bind(py)
                    .clone()
            }
        })
    }

    fn number(&mut self, number: Number) -> Result<Bound<'py, PyAny>> {
        let py = self.owner.py();
        macro_rules! taken {
            ($kind:ty) => {
                <$kind>::from_le_bytes(self.take(number.name())?).into_bound_py_any(py)?
            };
        }
        Ok(match number {
            Number::Bool => self.is_true("a bool")?.into_bound_py_any(py)?,
            Number::U8 => taken!(u8),
            Number::U16 => taken!(u16),
            Number::U32 => taken!(u32),
            Number::U64 => taken!(u64),
            Number::I8 => taken!(i8),
            Number::I16 => taken!(i16),
            Number::I32 => taken!(i32),
            Number::I64 => taken!(i64),
            Number::F32 => taken!(f32),
            Number::F64 => taken!(f64),
        })
    }

    /// Numbers where they lie in the message.
    fn numbers(&mut self, number: Number, length: Option<u32>) -> Result<Bound<'py, PyAny>> {
        let count = length.map_or_else(|| self.length("the count of a sequence"), |length| Ok(length as usize))?;
        if count == 0 {
            return Ok(numbers::view(self.owner, number, 0, 0)?);
        }
        let start = self.aligned(number.size());
        self.at = start.min(self.bytes.len());
        let bytes = self.slice(count.saturating_mul(number.size()), "the numbers of a sequence")?;
        if number == Number::Bool && bytes.iter().any(|byte| *byte > 1) {
            return Err(self.wrong("expected bools (0 or 1) before this place, found another byte".to_owned()));
        }
        Ok(numbers::view(self.owner, number, start, count)?)
    }

    /// No room is reserved beforehand: the count may be false.
    fn listed(&mut self, count: usize, element: &Plan, is_counted: bool) -> Result<Bound<'py, PyAny>> {
        let list = PyList::empty(self.owner.py());
        for at in 0..count {
            let before = self.at;
            let value = self.value(element).map_err(|wrong| wrong.at(&format!("[{at}]")))?;
            if is_counted {
                self.spend(before)?;
            }
            list.append(value)?;
        }
        Ok(list.into_any())
    }

    fn map(&mut self, key: &Plan, content: &Plan) -> Result<Bound<'py, PyAny>> {
        let map = PyDict::new(self.owner.py());
        for _ in 0..self.count()? {
            let before = self.at;
            let key = self.value(key)?;
            map.set_item(key, self.value(content)?)?;
            self.spend(before)?;
        }
        Ok(map.into_any())
    }

    /// Counts an element that took no bytes.
    fn spend(&mut self, before: usize) -> Result<()> {
        if self.at == before {
            let most = || self.wrong(format!("expected at most {FREE_ELEMENTS} elements without bytes, found more"));
            self.free = self.free.checked_sub(1).ok_or_else(most)?;
        }
        Ok(())
    }

    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    #[cold]
    fn wrong(&self, problem: String) -> Wrong {
        Wrong::new(format!("byte {}: {problem}", self.at))
    }

    fn aligned(&self, to: usize) -> usize {
        self.at + ((self.at - ORIGIN).wrapping_neg() & (to - 1))
    }

    /// A number of `N` bytes, little-endian, behind its padding.
    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let start = self.aligned(N);
        let found = self.bytes.get(start..).and_then(|rest| rest.first_chunk::<N>());
        let found = *found.ok_or_else(|| self.early(what, N))?;
        self.at = start + N;
        Ok(found)
    }

    fn slice(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let found = found.ok_or_else(|| self.early(what, length))?;
        self.at += length;
        Ok(found)
    }

    #[cold]
    fn early(&self, what: &str, length: usize) -> Wrong {
        self.wrong(format!("expected {what} ({length} bytes), found the end after {} bytes", self.remaining()))
    }

    fn is_true(&mut self, what: &str) -> Result<bool> {
        match self.take(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(self.wrong(format!("expected {what} (0 or 1), found {other}"))),
        }
    }

    fn length(&mut self, what: &str) -> Result<usize> {
        Ok(u32::from_le_bytes(self.take(what)?) as usize)
    }

    /// The count of a sequence or map, limited by the remaining bytes.
    fn count(&mut self) -> Result<usize> {
        let count = self.length("the count of a sequence")?;
        match self.remaining() {
            left if count <= left.saturating_add(FREE_ELEMENTS) => Ok(count),
            left => Err(self.wrong(format!("expected the count of a sequence that fits {left} bytes, found {count}"))),
        }
    }

    fn text(&mut self) -> Result<&'a str> {
        let length = self.length("the length of a string")?;
        let Some((last, text)) = self.slice(length, "a string")?.split_last() else { return Ok("") };
        if *last != 0 {
            return Err(self.wrong(format!("expected the NUL that ends a string, found {last:#04x}")));
        }
        std::str::from_utf8(text).map_err(|_| self.wrong("expected a string in UTF-8 before this place".to_owned()))
    }
}
