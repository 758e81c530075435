//! Sealed shared memory (see the module files).
