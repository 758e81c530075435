//! Plans that are tried: of changed contracts, or with settings of the plan's own. Their number and their steps are limited.

use super::{Computed, Work, compute};
use crate::analysis::{Steps, channels};
use crate::placement::{Effort, Watch};
use crate::plan::Model;
use crate::system::System;

/// Steps for one place of one channel's proxy.
const PLACE: u64 = 100;

/// The trials that are left.
pub(super) struct Trials {
    left: u32,
    steps: Steps,
    /// Most steps of one.
    most: u64,
}

impl Trials {
    /// At most so many.
    pub(super) fn new(left: u32, work: Work) -> Self {
        Self { left, steps: Steps::new(work.offers), most: work.plan }
    }

    /// The plan of a system; `None`: no more are tried.
    pub(super) fn plan(&mut self, tried: &System, model: Model, watch: &mut dyn Watch) -> Option<Computed> {
        if self.left == 0 || !self.steps.take(PLACE * tried.nodes.len() as u64 * channels(tried)) {
            return None;
        }
        self.left -= 1;
        // It has as many steps as it will have when it is planned for itself.
        let steps = Steps::new(Steps::of(tried).left().min(self.most));
        let had = steps.left();
        let effort = Effort { explain: false, ..Effort::default() };
        let computed = compute(tried, model, &steps, effort, watch);
        self.steps.take(had - steps.left());
        Some(computed)
    }
}
