//! What tests share. Public are the suites that carriers, engines and brokers pass by instantiating them, and
//! the bodies of the fuzz targets; they panic when a promise is broken: that is how a test fails.

pub mod conformance;
#[cfg(test)]
pub mod discovery;
pub mod fuzz;
#[cfg(test)]
mod helpers;

pub use crate::carrier::dice::Dice;
#[cfg(test)]
pub(crate) use helpers::{TempDir, port_info};
