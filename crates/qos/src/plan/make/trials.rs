//! Plans that are tried: of changed contracts, or with settings of the plan's own. Their number and their steps are limited.

use super::{Computed, Work, compute};
use crate::analysis::{Steps, channels};
use crate::placement::{Effort, Watch};
use crate::plan::Model;
use crate::system::System;
use std::time::Duration;

/// Steps for one place of one channel's proxy.
const PLACE: u64 = 100;

/// The trials that are left.
pub(super) struct Trials {
    left: u32,
    steps: Steps,
    /// Most steps of one.
    most: u64,
    /// For the placement of each.
    effort: Effort,
    /// The time after which none is tried any more.
    until: Duration,
}

impl Trials {
    /// At most so many.
    pub(super) fn new(left: u32, work: Work) -> Self {
        let (steps, effort) = (Steps::new(work.offers), work.effort());
        Self { left, steps, most: work.plan, effort, until: work.time }
    }

    /// The plan of a system; `None`: no more are tried.
    pub(super) fn plan(&mut self, tried: &System, model: Model, watch: &mut dyn Watch) -> Option<Computed> {
        let is_late = watch.elapsed() > self.until;
        if self.left == 0 || is_late || !self.steps.take(PLACE * tried.nodes.len() as u64 * channels(tried)) {
            return None;
        }
        self.left -= 1;
        // It has as many steps as it will have when it is planned for itself.
        let steps = Steps::new(Steps::of(tried).left().min(self.most));
        let had = steps.left();
        let computed = compute(tried, model, &steps, self.effort.clone(), watch);
        self.steps.take(had - steps.left());
        Some(computed)
    }
}
