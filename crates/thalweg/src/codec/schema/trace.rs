//! Finds the structure of a type by driving its `Deserialize` with invented values and recording its requests.
//!
//! One pass sees one variant of each enum. So the shape found is kept, each pass takes at every enum the first
//! variant that is not fully known, and passes follow until all is known. An enum is identified by its place in the
//! type, not by its name, so `Result<A, B>` and `Result<C, D>` in one type are no problem.

mod access;
mod shape;

use super::Schema;
use serde::de::DeserializeOwned;
use shape::Shape;

/// The most types that may be requested in all passes together: ends the tracing of a type that never ends.
const MAX_VISITS: usize = 1 << 18;
/// The most places a type may have, each element of an array counted; the rest is bounded by [`Schema::check`].
const MAX_PLACES: usize = 1 << 16;

/// The knowledge of a type so far.
pub(super) struct Traced {
    /// Its name, if it is a struct or an enum.
    pub name: Option<&'static str>,
    /// Its structure, if it could be found.
    pub schema: Option<Schema>,
}

/// State of one type's tracing.
#[derive(Default)]
struct Run {
    name: Option<&'static str>,
    /// Types asked for.
    visits: usize,
    /// Places made, visited or not.
    places: usize,
    /// Places visited for the first time.
    found: usize,
}

/// Traces `T`.
pub(super) fn trace<T: DeserializeOwned>() -> Traced {
    let mut run = Run::default();
    let mut shape = Shape::default();
    while !shape.is_known() {
        let before = run.found;
        let failed = T::deserialize(access::Tracer::new(&mut shape, &mut run)).is_err();
        if failed || run.found == before {
            return Traced { name: run.name, schema: None };
        }
    }
    let schema = shape.to_schema().filter(|schema| schema.check().is_ok());
    Traced { name: run.name, schema }
}
