//! The time that `why` and `doctor` take to name a fault (F-13).

use std::time::Duration;

/// Prints how long the command ran whose answer names this fault. `THALWEG_LONGEST_ANSWER` is a limit in seconds: `.ci/nightly` sets it, where
/// nothing runs beside; `./test` has none.
pub fn told(command: &str, fault: &str, took: Duration) {
    println!("FIGURE diagnosis: {command} named {fault} after {:.2} s", took.as_secs_f64());
    if let Ok(limit) = std::env::var("THALWEG_LONGEST_ANSWER") {
        let limit = Duration::from_secs_f64(limit.parse().unwrap());
        assert!(
            took <= limit,
            "{command} named {fault} after {took:?}, later than THALWEG_LONGEST_ANSWER allows: {limit:?}"
        );
    }
}
