//! The message of both programs, its topic, and the promise.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The topic of both programs.
pub const TOPIC: &str = "/position";
/// The longest time between two positions: promised by the publisher, expected by the subscriber.
pub const DEADLINE: Duration = Duration::from_millis(200);

/// A position in metres.
#[derive(Serialize, Deserialize)]
pub struct Position {
    /// To the front.
    pub x: f64,
    /// To the left.
    pub y: f64,
}
