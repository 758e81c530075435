//! How late samples may arrive, from the contract alone.
//!
//! | module | what it holds |
//! |---|---|
//! | `arrivals` | how often something comes in any stretch of time |
//! | `cpu` | threads on a processor: response times (P-24), reservations |
//! | `link` | packets in a link's queue: network calculus |
//! | `queueing` | means of the papers: queues, periods per hop |
//! | `stages` | a contract with routes, places and priorities as a tree of stages |
//! | `end_to_end` | bounds of whole ways: the holistic iteration over all stages |
//! | `steps` | how much is computed for an answer |
//!
//! All times are whole nanoseconds and are rounded so that a bound stays one: demand up, supply down.

pub mod arrivals;
pub mod cpu;
pub mod end_to_end;
pub mod link;
pub mod queueing;
pub mod stages;
pub mod steps;
