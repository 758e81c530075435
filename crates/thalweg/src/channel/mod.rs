//! Channels: what lies between a port and a carrier. State machines take `now` and bytes; only the driver reads the
//! clock and calls carriers.

pub mod accept;
pub mod bucket;
pub mod buffer;
pub mod congestion;
pub mod flow;
pub mod fragment;
pub mod history;
pub mod inbound;
pub mod late;
pub mod life;
pub mod memory;
pub mod outgoing;
pub mod parity;
pub mod proxy;
pub mod queue;
pub mod reliable;
pub mod right;
