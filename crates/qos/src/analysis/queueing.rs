//! Mean delays: what the papers' closed forms say. A mean is no bound, and nothing here is mixed up with one.
//!
//! | module | what it holds |
//! |---|---|
//! | `mm1` | queues with Poisson arrivals and exponential service, without limit and with room for K (V-10, V-22) |
//! | `two_state` | Velox's chain of waiting and processing (V-12, V-20) |
//! | `velox` | Velox's delay, term by term, as its Table 2, as its eq. 4, and with the queues taken right (V-21…V-36) |
//! | `hops` | one period per transmitting node (P-20, P-21) |
//!
//! Times are seconds where a formula is pure, and microseconds where the paper's tables are.

mod hops;
mod mm1;
mod two_state;
mod velox;

pub use hops::hop_delay;
pub use mm1::{Mm1, Mm1k};
pub use two_state::{TwoState, as_printed};
pub use velox::{DELAY_BY_SUBSCRIBERS, HAND_OUT_BY_TOPICS, Hop, Line, Velox, network_delay};
