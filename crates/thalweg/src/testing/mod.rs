//! Suites that carriers, engines and brokers pass by instantiating them. Everything here panics when a promise is
//! broken: that is how a test fails.

pub mod conformance;
