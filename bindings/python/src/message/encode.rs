//! Values to CDR, byte for byte as `thalweg::codec` writes it: its module `cdr` has the rules.

use super::numbers;
use super::plan::{Number, Plan};
use super::wrong::{Result, Wrong};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// The encapsulation header: CDR, little-endian.
const HEADER: [u8; 4] = [0, 1, 0, 0];
/// The number of elements of sequences and maps in one message that may take no bytes.
const FREE_ELEMENTS: usize = 1024;

/// Appends a value as one message to `out`.
pub(super) fn message(plan: &Plan, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&HEADER);
    let origin = out.len();
    Encoder { out, origin, free: FREE_ELEMENTS }.value(plan, value)
}

/// Appends the parts of one message.
pub(super) struct Encoder<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Where alignment counts from.
    origin: usize,
    /// Elements without bytes that may still come.
    free: usize,
}

impl Encoder<'_> {
    fn value(&mut self, plan: &Plan, value: &Bound<'_, PyAny>) -> Result<()> {
        match plan {
            Plan::Number(number) => self.number(*number, value),
            Plan::Char => self.char(value),
            Plan::Text => self.text(value),
            Plan::Unit if value.is_none() => Ok(()),
            Plan::Unit => Err(Wrong::expected("None", value)),
            Plan::Bytes(length) => self.bytes(*length, value),
            Plan::Memory => self.bytes(None, value),
            Plan::Numbers(number, length) => numbers::encode(self, *number, *length, value),
            Plan::Sequence(element) => self.sequence(element, value),
            Plan::Array(length, element) => self.array(*length, element, value),
            Plan::Tuple(elements) => self.tuple(elements, value),
            Plan::Option(_) if value.is_none() => self.put([0]),
            Plan::Option(inner) => {
                self.put([1])?;
                self.value(inner, value)
            }
            Plan::Map(key, content) => self.map(key, content, value),
            Plan::Struct { class, fields } => {
                for (name, plan) in fields {
                    let part = |wrong: Wrong| wrong.at(&name.bind(value.py()).to_string_lossy());
                    let field = value.getattr(name.bind(value.py())).map_err(|_| part(missing(class, value)))?;
                    self.value(plan, &field).map_err(part)?;
                }
                Ok(())
            }
            Plan::Enum { name, members } => self.member(name, members, value),
        }
    }

    /// Appends bytes, aligned to their number.
    pub(super) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<()> {
        self.align(N);
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    pub(super) fn align(&mut self, to: usize) {
        let padding = (self.out.len() - self.origin).wrapping_neg() & (to - 1);
        self.out.extend_from_slice(&[0; 8][..padding]);
    }

    /// Appends a count or a length.
    pub(super) fn length(&mut self, length: usize) -> Result<()> {
        let length = u32::try_from(length)
            .map_err(|_| Wrong::new(format!("expected at most {} elements, found {length}", u32::MAX)))?;
        self.put(length.to_le_bytes())
    }

    pub(super) fn number(&mut self, number: Number, value: &Bound<'_, PyAny>) -> Result<()> {
        macro_rules! put {
            ($kind:ty) => {
                value
                    .extract::<$kind>()
                    .map(<$kind>::to_le_bytes)
                    .map_err(|_| unfit(number, value))
                    .and_then(|bytes| self.put(bytes))
            };
        }
        match number {
            Number::Bool => {
                value.extract::<bool>().map_err(|_| unfit(number, value)).and_then(|is| self.put([is.into()]))
            }
            Number::U8 => put!(u8),
            Number::U16 => put!(u16),
            Number::U32 => put!(u32),
            Number::U64 => put!(u64),
            Number::I8 => put!(i8),
            Number::I16 => put!(i16),
            Number::I32 => put!(i32),
            Number::I64 => put!(i64),
            Number::F32 => put!(f32),
            Number::F64 => put!(f64),
        }
    }

    fn char(&mut self, value: &Bound<'_, PyAny>) -> Result<()> {
        let scalar: char = value.extract().map_err(|_| Wrong::expected("a str of one character", value))?;
        self.put(u32::from(scalar).to_le_bytes())
    }

    fn text(&mut self, value: &Bound<'_, PyAny>) -> Result<()> {
        let text = value.cast::<PyString>().map_err(|_| Wrong::expected("a str", value))?;
        let text = text.to_cow().map_err(|_| Wrong::expected("a str without surrogates", value))?;
        self.length(text.len().saturating_add(1))?;
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(0);
        Ok(())
    }

    fn bytes(&mut self, length: Option<u32>, value: &Bound<'_, PyAny>) -> Result<()> {
        let count = numbers::byte_count(value)?;
        match length {
            None => self.length(count)?,
            Some(length) => fits(length, count)?,
        }
        numbers::copy_bytes(value, self.out)
    }

    fn sequence(&mut self, element: &Plan, value: &Bound<'_, PyAny>) -> Result<()> {
        let elements = listed(value)?;
        self.length(elements.len())?;
        for (at, element_value) in elements.iter().enumerate() {
            self.element(&[(element, element_value)]).map_err(|wrong| wrong.at(&format!("[{at}]")))?;
        }
        Ok(())
    }

    fn array(&mut self, length: u32, element: &Plan, value: &Bound<'_, PyAny>) -> Result<()> {
        let elements = listed(value)?;
        fits(length, elements.len())?;
        let one = |(at, value): (usize, &Bound<'_, PyAny>)| {
            self.value(element, value).map_err(|wrong| wrong.at(&format!("[{at}]")))
        };
        elements.iter().enumerate().try_for_each(one)
    }

    fn tuple(&mut self, plans: &[Plan], value: &Bound<'_, PyAny>) -> Result<()> {
        let elements = listed(value)?;
        if elements.len() != plans.len() {
            return Err(Wrong::new(format!("expected {} values, found {}", plans.len(), elements.len())));
        }
        plans.iter().zip(&elements).try_for_each(|(plan, value)| self.value(plan, value))
    }

    fn map(&mut self, key: &Plan, content: &Plan, value: &Bound<'_, PyAny>) -> Result<()> {
        let map = value.cast::<PyDict>().map_err(|_| Wrong::expected("a dict", value))?;
        // The copy stays as it is when code of the values changes the dict.
        let pairs: Vec<_> = map.iter().collect();
        self.length(pairs.len())?;
        pairs.iter().try_for_each(|(name, value)| self.element(&[(key, name), (content, value)]))
    }

    /// One element of a sequence or map.
    fn element(&mut self, parts: &[(&Plan, &Bound<'_, PyAny>)]) -> Result<()> {
        let before = self.out.len();
        parts.iter().try_for_each(|(plan, value)| self.value(plan, value))?;
        if self.out.len() == before {
            let most = || Wrong::new(format!("expected at most {FREE_ELEMENTS} elements without bytes, found more"));
            self.free = self.free.checked_sub(1).ok_or_else(most)?;
        }
        Ok(())
    }

    fn member(&mut self, name: &str, members: &[Py<PyAny>], value: &Bound<'_, PyAny>) -> Result<()> {
        let at = members.iter().position(|member| member.is(value));
        let at = at
            .and_then(|at| u32::try_from(at).ok())
            .ok_or_else(|| Wrong::expected(&format!("a member of {name}"), value))?;
        self.put(at.to_le_bytes())
    }
}

/// The elements of a list, tuple, array or the like.
fn listed<'py>(value: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, PyAny>>> {
    if value.is_instance_of::<PyString>() {
        return Err(Wrong::expected("a list", value));
    }
    let elements = value.try_iter().map_err(|_| Wrong::expected("a list", value))?;
    Ok(elements.collect::<PyResult<_>>()?)
}

/// Refuses an array of another length.
pub(super) fn fits(length: u32, count: usize) -> Result<()> {
    if count == length as usize {
        Ok(())
    } else {
        Err(Wrong::new(format!("expected {length} elements, found {count}")))
    }
}

fn unfit(number: Number, value: &Bound<'_, PyAny>) -> Wrong {
    Wrong::expected(number.name(), value)
}

fn missing(class: &Py<PyAny>, value: &Bound<'_, PyAny>) -> Wrong {
    let class = class.bind(value.py()).getattr("__name__").map_or_else(|_| "?".to_owned(), |name| name.to_string());
    Wrong::expected(&format!("an attribute of {class}"), value)
}
