//! The broker of a domain: it keeps the plan that the domain's hosts have to have, tells it to their agents, and knows what they have. Beside
//! a contract it admits sessions, and refuses those that do not fit.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | the plan, and the state of each host; pure |
//! | [`planning`] | the plan of contract and sessions on the links as they are; pure |
//! | [`sessions`] | the sessions that fit beside a contract; pure |
//! | [`links`] | links that carry less than the contract says; pure |
//! | [`degradation`] | sessions on such links: thinned, or suspended; pure |
//! | [`offers`] | what suspended sessions could have there; pure |
//! | [`ledger`] | the sold parts of pipes; pure |
//! | [`domains`] | sessions over several domains; pure |
//! | [`rules`] | who may ask for how much; pure |
//! | [`leases`] | sessions that have to be asked for again and again; pure |
//! | [`accounts`] | who had how much; pure |
//! | [`store`] | what a broker that starts again has to know |
//! | [`api`] | the requests, and who may make them |
//! | [`serve`] | connections, and their limits |
//! | `testing` | bodies of fuzz targets; feature `testing` |

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // a server runs by the clock; `hosts` takes the time as an argument
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers

pub mod accounts;
pub mod api;
pub mod degradation;
pub mod domains;
pub mod hosts;
pub mod leases;
pub mod ledger;
pub mod links;
pub mod offers;
pub mod planning;
pub mod rules;
pub mod serve;
pub mod sessions;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
