//! `delay`: passes every sample later (YARP's simulated_network_delay). The thread that publishes or receives doesn't wait.

use super::{Monitor, ParameterError, Seen, Verdict, in_milliseconds, milliseconds, unknown};
use crate::bottle::{Property, Value};
use std::time::Duration;

/// Passes every sample after a delay.
#[derive(Debug, Default)]
pub struct Delay {
    delay: Duration,
}

impl Delay {
    /// A delay of this length.
    pub fn of(delay: Duration) -> Self {
        Self { delay }
    }
}

impl Monitor for Delay {
    fn kind(&self) -> &str {
        "delay"
    }
    fn sample(&mut self, _: &Seen<'_>, _: &mut Vec<u8>) -> Verdict {
        if self.delay.is_zero() { Verdict::Pass } else { Verdict::Late(self.delay) }
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<(), ParameterError> {
        match key {
            "delay_ms" => milliseconds(key, value).map(|delay| self.delay = delay),
            _ => Err(unknown(key, "delay", "delay_ms")),
        }
    }
    fn parameters(&self) -> Vec<Property> {
        vec![("delay_ms".into(), in_milliseconds(self.delay))]
    }
    fn delays(&self) -> bool {
        true
    }
}
