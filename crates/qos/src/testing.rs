//! Shared by tests, fuzz targets and benchmarks: systems of any kind, and the promises of a planner for any of them.
//!
//! | module | contents |
//! |---|---|
//! | `systems` | small systems as a function of their seed |
//! | `bounds` | bounds against simulations |
//! | `fuzz` | bodies of the fuzz targets |

mod bounds;
mod fuzz;
mod systems;

pub use bounds::{Compared, Held, compare};
pub use fuzz::{contract, contracts, planner};
pub use systems::{Sketch, extreme, sketch};
