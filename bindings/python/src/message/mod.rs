//! Message types: values of Python to bytes and back, by a plan that is made once for each type.
//!
//! | module | contents |
//! |---|---|
//! | `plan` | the steps from a value to its bytes and back, from the layout that the package `thalweg` makes of a class |
//! | `encode` | values to CDR, byte for byte as `thalweg::codec` writes it |
//! | `decode` | CDR to values |
//! | `numbers` | sequences of numbers, in one copy from arrays and without one to them |
//! | `definitions` | types of ROS 2 from their texts |
//! | `wrong` | what is wrong with a value, and where in it |

mod decode;
pub(crate) mod definitions;
mod encode;
pub(crate) mod numbers;
mod plan;
mod wrong;

use crate::error::{MessageError, UsageError};
use definitions::Definitions;
use plan::Plan;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::borrow::Cow;
use thalweg::codec::{Message, Raw, Schema, TypeDescription, transcode};

/// The type of a topic.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub(crate) struct Type {
    description: TypeDescription,
    content: Content,
}

/// The way of a type's values.
enum Content {
    /// The bytes are the value.
    Bytes,
    /// Any type; a subscriber's only, which gets the bytes.
    Any,
    Planned(Plan, Schema),
}

impl Type {
    pub(crate) fn description(&self) -> &TypeDescription {
        &self.description
    }

    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.content, Content::Bytes)
    }

    pub(crate) fn is_any(&self) -> bool {
        matches!(self.content, Content::Any)
    }

    /// Appends the encoded value.
    pub(crate) fn encode_into(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        let name = &self.description.name;
        match &self.content {
            Content::Bytes => numbers::copy_bytes(value, out).map_err(|wrong| wrong.raised(name)),
            Content::Any => Err(UsageError::new_err("a publisher states its type: only a subscriber takes any")),
            Content::Planned(plan, _) => encode::message(plan, value, out).map_err(|wrong| wrong.raised(name)),
        }
    }

    /// Decodes the message `bytes`, which are the memory of `owner`: arrays refer to it.
    pub(crate) fn decode_from<'py>(&self, owner: &Bound<'py, PyAny>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let Content::Planned(plan, schema) = &self.content else {
            return Ok(pyo3::types::PyMemoryView::from(owner)?.into_any());
        };
        let name = &self.description.name;
        let version_one =
            transcode(schema, bytes).map_err(|wrong| MessageError::new_err(format!("{name}: {wrong}")))?;
        let decoded = match version_one {
            Cow::Borrowed(bytes) => decode::message(plan, owner, bytes),
            Cow::Owned(bytes) => {
                let copy = PyBytes::new(owner.py(), &bytes);
                decode::message(plan, copy.as_any(), copy.as_bytes())
            }
        };
        decoded.map_err(|wrong| wrong.raised(name))
    }
}

#[pymethods]
impl Type {
    /// A type with this layout; with definitions and a name, the ROS 2 type of that name.
    #[new]
    #[pyo3(signature = (layout, definitions=None, name=None))]
    fn new(
        layout: &Bound<'_, PyAny>,
        definitions: Option<&Bound<'_, Definitions>>,
        name: Option<&str>,
    ) -> PyResult<Self> {
        let (plan, schema) = plan::read(layout)?;
        schema.check().map_err(|wrong| UsageError::new_err(wrong.to_string()))?;
        let description = match (definitions, name) {
            (Some(definitions), Some(name)) => definitions.get().describe(name)?,
            _ => TypeDescription::structured(schema.clone()),
        };
        if description.schema.as_deref() != Some(&schema) {
            return Err(UsageError::new_err(format!("{} has another structure than its definition", description.name)));
        }
        Ok(Self { description, content: Content::Planned(plan, schema) })
    }

    /// Plain bytes.
    #[staticmethod]
    fn bytes() -> Self {
        Self { description: Raw::description().as_ref().clone(), content: Content::Bytes }
    }

    /// Any type, for subscribers.
    #[staticmethod]
    fn any() -> Self {
        Self { description: TypeDescription::any(), content: Content::Any }
    }

    /// The type's name.
    #[getter]
    fn name(&self) -> &str {
        &self.description.name
    }

    /// The structure as text; `None`: it has none.
    #[getter]
    fn structure(&self) -> Option<String> {
        self.description.schema.as_ref().map(ToString::to_string)
    }

    /// The type hash of ROS 2; `None`: it is no such type.
    #[getter]
    fn type_hash(&self) -> Option<&str> {
        self.description.ros.as_ref().map(|ros| ros.type_hash.as_str())
    }

    /// The encoded value.
    fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        self.encode_into(value, &mut out)?;
        Ok(PyBytes::new(value.py(), &out))
    }

    /// The value of an encoded message.
    fn decode<'py>(&self, message: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        self.decode_from(message.as_any(), message.as_bytes())
    }

    fn __repr__(&self) -> String {
        format!("<type {}>", self.description.name)
    }
}
