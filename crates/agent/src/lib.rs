//! The agent of one host or router: it installs the host's part of a plan, keeps it installed, and reports to the broker.
//!
//! | module | contents |
//! |---|---|
//! | [`identity`] | the name of a party of a realm: `thalweg://REALM/KIND/NAME` |
//! | [`keys`] | the certificate authority of a realm, and certificates that carry identities |
//! | [`message`] | what agent and broker say to each other |
//! | [`peer`] | what brokers of neighbouring domains say to each other |
//! | [`signature`] | statements that a party has signed |
//! | [`accounts`] | who had how much, in lines that prove each other; pure |
//! | [`client`] | requests to a broker |
//! | `connection` | a connection to it whose packets are marked as control traffic |
//! | [`queues`] | a plan on one of its hosts: the queues of its devices |
//! | [`borders`] | the same at the borders of its domain: tunnels, and what may come in |
//! | [`reconcile`] | the decisions: install, take away, repair, report; pure |
//! | `carriers` | the carriers of its devices and their rates, for the broker |
//! | `drained` | the rate that a device takes of a full queue; pure |
//! | [`mod@run`] | the loop |

//!
//! Without the feature `tls`: [`borders`], [`identity`], [`message`], [`peer`], [`queues`] and [`reconcile`].
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods)] // an agent runs by the clock; `reconcile` takes the time as an argument
#![cfg_attr(test, allow(clippy::unwrap_used))] // tests and their helpers

#[cfg(feature = "tls")]
pub mod accounts;
pub mod borders;
#[cfg(feature = "tls")]
mod carriers;
#[cfg(feature = "tls")]
pub mod client;
#[cfg(feature = "tls")]
mod connection;
#[cfg(feature = "tls")]
mod counters;
#[cfg(feature = "tls")]
mod drained;
pub mod identity;
#[cfg(feature = "tls")]
pub mod keys;
pub mod message;
pub mod peer;
pub mod queues;
pub mod reconcile;
#[cfg(feature = "tls")]
pub mod run;
#[cfg(feature = "tls")]
pub mod signature;
