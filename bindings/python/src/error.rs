//! Exceptions: one for each kind of the library's errors, below `thalweg.Error`.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(thalweg, Error, PyException, "An error of Thalweg. Its text names the cause and the remedy.");
create_exception!(thalweg, UsageError, Error, "A bad name, a value out of range, a combination that does not exist.");
create_exception!(thalweg, ConfigurationError, Error, "A configuration file or environment variable is wrong.");
create_exception!(
    thalweg,
    KernelError,
    Error,
    "The kernel refused: a permission, a missing feature, a resource in use."
);
create_exception!(
    thalweg,
    PeerError,
    Error,
    "The other end or the network: not reachable, refused, no answer in time."
);
create_exception!(thalweg, NameTakenError, Error, "Another port has the name.");
create_exception!(
    thalweg,
    NotAdmittedError,
    Error,
    "The session is not active, or has no such topic; `offers` would make it fit."
);
create_exception!(thalweg, MessageError, Error, "A value or a message that is none of its type, or too large.");
create_exception!(thalweg, LoanError, Error, "A loan whose memory is still seen, or one that is over.");
create_exception!(thalweg, ClosedError, Error, "The node or port is closed.");
create_exception!(thalweg, ForkedError, Error, "The node belongs to the process from which this one was forked.");

/// Adds the exceptions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("UsageError", py.get_type::<UsageError>())?;
    module.add("ConfigurationError", py.get_type::<ConfigurationError>())?;
    module.add("KernelError", py.get_type::<KernelError>())?;
    module.add("PeerError", py.get_type::<PeerError>())?;
    module.add("NameTakenError", py.get_type::<NameTakenError>())?;
    module.add("NotAdmittedError", py.get_type::<NotAdmittedError>())?;
    module.add("MessageError", py.get_type::<MessageError>())?;
    module.add("LoanError", py.get_type::<LoanError>())?;
    module.add("ClosedError", py.get_type::<ClosedError>())?;
    module.add("ForkedError", py.get_type::<ForkedError>())
}

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: thalweg::Error) -> PyErr {
    use thalweg::Error as Cause;
    let text = error.to_string();
    match error {
        Cause::Usage(_) => UsageError::new_err(text),
        Cause::Configuration(_) => ConfigurationError::new_err(text),
        Cause::System { .. } | Cause::Refused(_) => KernelError::new_err(text),
        Cause::Peer(_) => PeerError::new_err(text),
        Cause::NameTaken { .. } => NameTakenError::new_err(text),
        Cause::NotAdmitted { offers, .. } => {
            let refused = NotAdmittedError::new_err(text);
            refused.value(py).setattr("offers", offers).map_or_else(|failed| failed, |()| refused)
        }
        Cause::Message(_) => MessageError::new_err(text),
        Cause::Closed => closed(),
        other => Error::new_err(other.to_string()),
    }
}

/// The exception of a call on what was closed.
pub(crate) fn closed() -> PyErr {
    ClosedError::new_err("the node or port is closed: open a new one")
}
