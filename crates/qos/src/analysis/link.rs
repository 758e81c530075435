//! Packets in a link's queue: deterministic network calculus (Cruz 1991; Le Boudec & Thiran 2001).
//!
//! | module | what it holds |
//! |---|---|
//! | `curve` | arrival and service curves, and what follows from a pair of them |
//! | `queue` | the busy period of one queue under each order of service, with arrivals as stair functions |

pub mod curve;
