//! Sealed shared memory (see the module files).

pub mod raw;
