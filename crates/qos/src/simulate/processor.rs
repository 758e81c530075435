//! Threads of one processor by rank, pre-emptive; those of a rank in order of arrival.

use std::collections::BTreeMap;

/// What is ready: rank, then order of arrival.
type Turn = (u32, u64);

#[derive(Clone, Copy, Debug)]
struct Job {
    stage: usize,
    sample: usize,
    left: u64,
}

/// One processor.
#[derive(Debug, Default)]
pub struct Processor {
    ready: BTreeMap<Turn, Job>,
    order: u64,
    /// Who runs, and since when.
    running: Option<(Turn, u64)>,
    token: u64,
}

impl Processor {
    /// A sample is at a thread.
    pub fn ready(&mut self, now: u64, rank: u32, stage: usize, sample: usize, execution: u64) {
        self.stop(now);
        self.order += 1;
        self.ready.insert((rank, self.order), Job { stage, sample, left: execution });
    }

    /// Runs the first; says when it will be done unless something comes in between.
    pub fn run(&mut self, now: u64) -> Option<(u64, u64)> {
        let (turn, job) = self.ready.first_key_value()?;
        self.running = Some((*turn, now));
        self.token += 1;
        Some((now.saturating_add(job.left), self.token))
    }

    /// What was done, if that `token` still holds.
    pub fn done(&mut self, now: u64, token: u64) -> Option<(usize, usize)> {
        if token != self.token {
            return None;
        }
        let (turn, _) = self.running?;
        self.stop(now);
        self.ready.remove(&turn).map(|job| (job.stage, job.sample))
    }

    fn stop(&mut self, now: u64) {
        if let Some((turn, since)) = self.running.take()
            && let Some(job) = self.ready.get_mut(&turn)
        {
            job.left = job.left.saturating_sub(now - since);
        }
    }
}
