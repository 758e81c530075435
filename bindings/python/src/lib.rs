//! Python bindings: what `import thalweg` is made of. The package beside it (`thalweg/`) has the words that Python's users say.
//!
//! | module | contents |
//! |---|---|
//! | `client` | nodes as Python holds them: ports, lists, priorities |
//! | `port` | publishers, loans of memory to write into, subscribers |
//! | `sample` | received samples, whose memory Python sees without a copy |
//! | `handle` | the nodes that are open, and their ports, which close before them |
//! | `options` | settings and policies from Python's arguments |
//! | `message` | message types: values of Python to bytes and back |
//! | `process` | the end of the interpreter, forks, and calls without the interpreter's lock |
//! | `error` | the exceptions |
//!
//! Threads: no thread of the library ever waits for the interpreter's lock. Callbacks run on threads of Python, which take samples as any
//! other thread; what the library holds (wakers, descriptors) has no Python object in it. Python's threads give the lock up wherever
//! they may wait. No lock of this crate is held while Python code runs.
#![cfg(not(test))] // a program of tests would need an interpreter to link with; tests/python.rs runs them in one
#![allow(unsafe_code)] // Python's buffer protocol: each use has its safety note

mod client;
mod error;
mod handle;
mod message;
mod options;
mod port;
mod process;
mod sample;

use pyo3::prelude::*;

/// The native part of the package `thalweg`. It counts on the interpreter's lock (`process`), so it asks for it.
#[pymodule(gil_used = true)]
fn _thalweg(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add_to(module)?;
    module.add_function(wrap_pyfunction!(handle::end, module)?)?;
    module.add_function(wrap_pyfunction!(process::forked, module)?)?;
    module.add_class::<client::Node>()?;
    module.add_class::<client::Port>()?;
    module.add_class::<port::publisher::Publisher>()?;
    module.add_class::<port::loan::Loan>()?;
    module.add_class::<port::publisher::Published>()?;
    module.add_class::<port::subscriber::Subscriber>()?;
    module.add_class::<sample::Sample>()?;
    module.add_class::<sample::Info>()?;
    module.add_class::<sample::Memory>()?;
    module.add_class::<message::Type>()?;
    module.add_class::<message::definitions::Definitions>()?;
    Ok(())
}
