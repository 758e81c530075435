//! The counters of a host's queues and borders, as its agent reports them.

use crate::message::{KeptOut, Owner, Queue};
use crate::queues::own;
use crate::reconcile::Outcome;
use linux::queueing::{self, Counters, Leaf, Queues};
use qos::Class;
use qos::plan::Plan;

/// Those of a step that was done, with the plan that it installed.
pub(crate) fn of(outcome: &Outcome, plan: Option<&Plan>, host: &str) -> (Vec<Queue>, Vec<KeptOut>) {
    let queues = match outcome {
        Outcome::Done { devices, .. } => queues(devices, plan, host),
        Outcome::Failed(_) => Vec::new(),
    };
    (queues, plan.map(|plan| kept_out(plan, host)).unwrap_or_default())
}

/// What the queues on these devices have sent and dropped: those of classes, then those of channels' own. A device that is gone meanwhile has none.
fn queues(devices: &[String], plan: Option<&Plan>, host: &str) -> Vec<Queue> {
    let read: Vec<Queues> = devices.iter().filter_map(|device| queueing::read(device).ok()).collect();
    let classes = read.iter().flat_map(|queues| {
        queues.carried().into_iter().map(move |one| counted(&queues.device, one.class, None, one.counters))
    });
    let owned = read.iter().flat_map(|queues| plan.map(|plan| of_channels(queues, plan, host)).unwrap_or_default());
    classes.chain(owned).collect()
}

/// The queues of channels' own on a device.
fn of_channels(queues: &Queues, plan: &Plan, host: &str) -> Vec<Queue> {
    let all = own(plan, host, &queues.device).into_iter().filter_map(|(channel, own)| {
        let found = queues.class(Leaf::named(own.number))?;
        let (topic, subscriber) = (channel.topic.clone(), channel.subscriber.clone());
        let owner = Owner { topic, subscriber, rate_bits_per_s: own.rate_bits_per_s };
        Some(counted(&queues.device, Some(channel.class), Some(owner), found.counters))
    });
    all.collect()
}

fn counted(device: &str, class: Option<Class>, own: Option<Owner>, counters: Counters) -> Queue {
    Queue {
        device: device.to_owned(),
        class,
        own,
        packets: counters.packets,
        bytes: counters.bytes,
        dropped: counters.drops.into(),
        waiting: counters.waiting.into(),
    }
}

/// What the borders of the host have kept out. Whoever has no borders asks nobody.
fn kept_out(plan: &Plan, host: &str) -> Vec<KeptOut> {
    let is_border = plan.borders.iter().any(|border| border.node == host);
    let found = if is_border { queueing::kept_out().unwrap_or_default() } else { Vec::new() };
    let kept = |queueing::KeptOut { device, class, packets, bytes }| KeptOut { device, class, packets, bytes };
    found.into_iter().map(kept).collect()
}
