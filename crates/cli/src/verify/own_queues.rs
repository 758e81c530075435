//! Queues of channels' own, as the kernel of this host counts them: those of publishers that run here.

use linux::queueing::{self, Leaf, Queues};
use qos::plan::{Channel, Plan};
use std::collections::HashMap;

/// Packets that each channel's own queue has dropped, at the last look; `None`: it was not seen.
#[derive(Debug)]
pub(super) struct OwnQueues(Vec<Option<u32>>);

impl OwnQueues {
    /// Before the first look.
    pub(super) fn new(plan: &Plan) -> Self {
        Self(vec![None; plan.channels.len()])
    }

    /// Packets that were dropped since the last look, by channel; `None` where it was not read, such as where its publisher is not here.
    pub(super) fn look(&mut self, plan: &Plan, is_here: impl Fn(usize) -> bool) -> Vec<Option<u64>> {
        let mut read: HashMap<&str, Option<Queues>> = HashMap::new();
        let mut now = |(index, channel): (usize, &'_ Channel)| {
            let own = channel.own_queue.as_ref().filter(|_| is_here(index))?;
            let is_its = |link: &&qos::plan::Link| link.from == channel.publisher && link.name == own.link;
            let device = plan.links.iter().find(is_its)?.device.as_deref()?;
            let queues = read.entry(device).or_insert_with(|| queueing::read(device).ok()).as_ref()?;
            queues.class(Leaf::named(own.number)).map(|class| class.counters.drops)
        };
        let now: Vec<Option<u32>> = plan.channels.iter().enumerate().map(&mut now).collect();
        let grown = self.0.iter().zip(&now).map(|(before, now)| grown(*before, *now)).collect();
        self.0 = now;
        grown
    }
}

/// A counter that went back is that of a queue that was made anew. The first look counts nothing.
fn grown(before: Option<u32>, now: Option<u32>) -> Option<u64> {
    let now = now?;
    let before = before.unwrap_or(now);
    Some(now.checked_sub(before).unwrap_or(now).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_counts_from_the_first_look_at_it() {
        let looks = [(None, Some(7)), (Some(7), Some(9)), (Some(9), Some(2)), (Some(2), None)];
        assert_eq!(looks.map(|(before, now)| grown(before, now)), [Some(0), Some(2), Some(2), None]);
    }
}
