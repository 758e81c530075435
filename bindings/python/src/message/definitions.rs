//! Types of ROS 2 from their texts.

use super::plan::Number;
use crate::error::UsageError;
use crate::handle::lock;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Mutex;
use thalweg::codec::{Definitions as Texts, RosError, Schema, TypeDescription};

/// A set of definitions.
#[pyclass(frozen, module = "thalweg._thalweg")]
pub(crate) struct Definitions(Mutex<Texts>);

impl Definitions {
    pub(super) fn describe(&self, name: &str) -> PyResult<TypeDescription> {
        lock(&self.0).describe(name).map_err(refused)
    }
}

fn refused(wrong: RosError) -> PyErr {
    UsageError::new_err(wrong.to_string())
}

#[pymethods]
impl Definitions {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Texts::new()))
    }

    /// Adds the text of a file: `.msg`, `.srv`, `.action`.
    fn add(&self, name: &str, text: &str) -> PyResult<()> {
        lock(&self.0).add_concatenated(name, text).map_err(refused)
    }

    /// The full name of a type that this one refers to, or of itself, whose text is missing.
    fn missing(&self, name: &str) -> PyResult<Option<String>> {
        match lock(&self.0).describe(name) {
            Ok(_) => Ok(None),
            Err(RosError::Unknown { name, .. }) => Ok(Some(name)),
            Err(wrong) => Err(refused(wrong)),
        }
    }

    /// The layout of a type; `None` stands for the classes in it.
    fn layout<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let description = self.describe(name)?;
        let none = || {
            UsageError::new_err(format!(
                "{name} has no structure of one message: it is a service or an action, or has a wstring"
            ))
        };
        layout(py, &*description.schema.ok_or_else(none)?)
    }
}

/// The layout of a schema.
fn layout<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyAny>> {
    match schema {
        Schema::Sequence(element) => match number(element) {
            Some(number) => ("numbers", number.name(), None::<u32>).into_bound_py_any(py),
            None => ("sequence", layout(py, element)?).into_bound_py_any(py),
        },
        Schema::Array { len, element } => match number(element) {
            Some(number) => ("numbers", number.name(), *len).into_bound_py_any(py),
            None => ("array", *len, layout(py, element)?).into_bound_py_any(py),
        },
        Schema::Struct { name, fields } => {
            let field = |field: &thalweg::codec::Field| {
                Ok((field.name.clone(), field.name.clone(), layout(py, &field.schema)?))
            };
            let fields = fields.iter().map(field).collect::<PyResult<Vec<_>>>()?;
            ("struct", name, py.None(), PyTuple::new(py, fields)?).into_bound_py_any(py)
        }
        // ROS 2 has no others.
        simple => simple.to_string().into_bound_py_any(py),
    }
}

fn number(schema: &Schema) -> Option<Number> {
    Number::named(&schema.to_string())
}
