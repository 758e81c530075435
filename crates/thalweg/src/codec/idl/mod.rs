//! OMG IDL: the text of `.idl` files as Cyclone DDS, Fast DDS and rosidl have them, the structure of the bytes, and the keys.
//!
//! Sources: the grammar is a subset of OMG IDL 4.2 (formal/18-01-05), clause 7.4, the building blocks core data types, extended
//! data types and annotations; names are looked up by its clause 7.5. Annotations mean what DDS-XTypes 1.3 (formal/20-02-04),
//! clause 7.3.1.2, says. What `rosidl_adapter` makes of `.msg` files is in this subset, except for `wstring` and `long double`,
//! which can be read but not described.

mod annotation;
mod cursor;
mod definitions;
mod enumeration;
mod error;
mod expression;
mod keys;
mod parse;
mod structure;
#[cfg(test)]
mod tests;
mod token;
mod tree;
mod types;

pub use definitions::Idl;
pub use error::IdlError;

/// The longest text that is read at once, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The most text that one set of definitions is made from, in bytes. What is kept of a text can be larger than the text.
const MAX_TEXTS: usize = 16 << 20;
/// The most named types around one another, typedefs and base structs counted: typedefs are no level of a schema, but they are
/// followed by recursion.
const MAX_PATH: usize = 128;
