//! The counters of a host's queues and borders, as its agent reports them.

use crate::borders::Between;
use crate::message::{Exceeded, KeptOut, Owner, Queue};
use crate::queues::own;
use crate::reconcile::Outcome;
use linux::queueing::{self, Counters, Leaf, Queues};
use qos::Class;
use qos::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};

/// Those of a step that was done, with the plan that it installed.
pub(crate) fn of(outcome: &Outcome, plan: Option<&Plan>, host: &str) -> (Vec<Queue>, Vec<KeptOut>, Vec<Exceeded>) {
    let queues = match outcome {
        Outcome::Done { devices, .. } => queues(devices, plan, host),
        Outcome::Failed(_) => Vec::new(),
    };
    let plan = plan.filter(|plan| plan.borders.iter().any(|border| border.node == host));
    // Whoever has no borders asks nobody.
    (queues, plan.map(|_| kept_out()).unwrap_or_default(), plan.map(exceeded).unwrap_or_default())
}

/// What the queues on these devices have sent and dropped. A device that is gone meanwhile has none.
fn queues(devices: &[String], plan: Option<&Plan>, host: &str) -> Vec<Queue> {
    let read: Vec<Queues> = devices.iter().filter_map(|device| queueing::read(device).ok()).collect();
    rows(&read, plan, host)
}

/// First those of classes and of control traffic, device by device, then those of channels' own.
fn rows(read: &[Queues], plan: Option<&Plan>, host: &str) -> Vec<Queue> {
    let classes = read.iter().flat_map(|queues| of_classes(queues).into_iter().chain(of_control(queues)));
    let owned = read.iter().flat_map(|queues| plan.map(|plan| of_channels(queues, plan, host)).unwrap_or_default());
    classes.chain(owned).collect()
}

fn of_classes(queues: &Queues) -> Vec<Queue> {
    queues.carried().into_iter().map(|one| counted(&queues.device, one.class, None, one.counters)).collect()
}

/// The queue of control traffic on a device, if it has one.
fn of_control(queues: &Queues) -> Option<Queue> {
    let counters = queues.control()?;
    Some(Queue { control: true, ..counted(&queues.device, Some(Class::High), None, counters) })
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
        control: false,
        packets: counters.packets,
        bytes: counters.bytes,
        dropped: counters.drops.into(),
        waiting: counters.waiting.into(),
    }
}

/// What the borders of the host have kept out.
fn kept_out() -> Vec<KeptOut> {
    let kept = |queueing::KeptOut { device, class, packets, bytes }| KeptOut { device, class, packets, bytes };
    queueing::kept_out().unwrap_or_default().into_iter().map(kept).collect()
}

/// What they have dropped of sessions that sent more than they reserved, with the sessions' names.
fn exceeded(plan: &Plan) -> Vec<Exceeded> {
    let mut sessions: BTreeMap<Between, BTreeSet<&str>> = BTreeMap::new();
    for one in &plan.admitted {
        sessions.entry((one.class, one.source, one.destination)).or_default().insert(&one.session);
    }
    let named = |found: queueing::Exceeded| {
        let queueing::Exceeded { device, class, source, destination, packets, bytes } = found;
        let of_pair = sessions.get(&(class, source, destination)).filter(|_| packets > 0)?;
        let session = of_pair.iter().copied().collect::<Vec<_>>().join(", ");
        Some(Exceeded { session, device, class, packets, bytes })
    };
    queueing::exceeded().unwrap_or_default().into_iter().filter_map(named).collect()
}
