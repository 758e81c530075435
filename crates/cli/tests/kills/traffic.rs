//! A pair of programs whose samples pass all the time.

use crate::support::Running;

/// Samples that have to arrive while a process is dead.
const SOME: usize = 3;

pub struct Traffic {
    subscriber: Running,
    _publisher: Running,
    last: Option<u64>,
}

impl Traffic {
    /// Subscriber and publisher.
    pub fn new([subscriber, publisher]: [Running; 2]) -> Self {
        Self { subscriber, _publisher: publisher, last: None }
    }

    /// All samples have arrived so far, in order, and more do now.
    pub fn goes_on(&mut self, context: &str) {
        let so_far = self.subscriber.lines_so_far();
        let more: Vec<String> = (0..SOME).map(|_| self.subscriber.line()).collect();
        for line in so_far.iter().chain(&more) {
            let sample: serde_json::Value = serde_json::from_str(line).unwrap();
            let seq = sample["seq"].as_u64().unwrap();
            let lost = self.last.filter(|last| seq != last + 1);
            assert!(lost.is_none(), "{context}: after sample {lost:?} comes {seq}");
            self.last = Some(seq);
        }
    }
}
