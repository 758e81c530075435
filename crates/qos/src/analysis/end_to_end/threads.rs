//! How long threads keep what comes to them.

use super::{Because, Iteration, why_not};
use crate::analysis::cpu::Work;
use crate::analysis::cpu::response::response;
use crate::analysis::link::queue::Stay;
use crate::analysis::stages::Step;

impl Iteration<'_> {
    /// How long everything stays on a processor.
    pub(super) fn compute(&mut self, processor: usize) {
        let mut higher: Vec<Work> = Vec::new();
        let mut stuck = None;
        let threads = std::mem::take(&mut self.threads[processor]);
        for equals in threads.chunk_by(|(a, _), (b, _)| a == b) {
            let work = |thread: usize| {
                let Step::Compute { execution, .. } = self.stages.stages[thread].step else { return None };
                self.arrivals(thread, self.passages[thread].last).map(|arrivals| Work { arrivals, execution })
            };
            let works: Vec<Option<Work>> = equals.iter().map(|(_, thread)| work(*thread)).collect();
            let unknown = works.iter().position(|work| work.is_none()).and_then(|i| self.because[equals[i].1]);
            stuck = stuck.or(unknown);
            for (own, (_, thread)) in equals.iter().enumerate() {
                let others = works.iter().enumerate().filter(|(i, _)| *i != own).filter_map(|(_, work)| *work);
                let before: Vec<Work> = higher.iter().copied().chain(others).collect();
                let origin = self.stages.arrivals(&self.stages.stages[*thread]);
                match (works[own], stuck) {
                    (Some(work), None) => match response(&work, &origin, &before, 0, self.steps) {
                        Ok(found) => self.stays(*thread, Stay { time: found.time, blocking: 0, higher: 0 }),
                        Err(why) => self.refuse(*thread, why_not(why, self.place(*thread))),
                    },
                    (_, stuck) => self.refuse(*thread, stuck.unwrap_or(Because::TooLong(self.place(*thread)))),
                }
            }
            higher.extend(works.into_iter().flatten());
        }
        self.threads[processor] = threads;
    }
}
