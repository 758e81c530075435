//! Figures beside their targets. An example whose figures miss one ends with exit code 1.

use std::process::ExitCode;

/// The side on which a figure keeps its target.
#[derive(Clone, Copy)]
pub enum Limit {
    /// Not above this.
    AtMost(f64),
    /// Not below this.
    #[allow(dead_code)] // not every example has one
    AtLeast(f64),
}

/// Figures that were judged.
#[derive(Default)]
pub struct Targets {
    missed: usize,
}

impl Targets {
    /// Prints a figure with its target.
    pub fn judge(&mut self, what: &str, found: f64, unit: &str, limit: Limit) {
        let (words, kept, limit) = match limit {
            Limit::AtMost(limit) => ("at most", found <= limit, limit),
            Limit::AtLeast(limit) => ("at least", found >= limit, limit),
        };
        self.missed += usize::from(!kept);
        let verdict = if kept { "kept" } else { "MISSED" };
        println!("target {verdict}: {what} {found:.2} {unit}, {words} {limit} {unit}");
    }

    /// The result of the example.
    pub fn exit(&self) -> ExitCode {
        ExitCode::from(u8::from(self.missed > 0))
    }
}
