//! The C++ interface of Thalweg is headers only (`include`). This crate is their tests; `docs/cpp.md` is the page for users.
