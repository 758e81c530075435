//! Which live channel is which of a plan's.

use crate::plan::Plan;

/// A channel that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its topic.
    pub topic: String,
    /// Publisher's port name.
    pub publisher: String,
    /// Name of the program's node that has this port.
    pub publisher_node: String,
    /// Subscriber's port name.
    pub subscriber: String,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// For each channel of the plan: which of those that run it is.
    pub planned: Vec<Option<usize>>,
    /// Those that run, and are in no plan.
    pub unplanned: Vec<usize>,
}

/// Finds the channels of a plan among those that run. Topic and subscriber's port have the names of the contract (a `/` before the
/// topic's does not matter). A publisher is the contract's node if its node or its port has that name, or the port is `/TOPIC@NODE`;
/// where the subscriber has one publisher only in the plan, whoever publishes is it.
pub fn find(plan: &Plan, live: &[Live]) -> Found {
    let mut taken = vec![false; live.len()];
    let mut planned = vec![None; plan.channels.len()];
    for by_name in [true, false] {
        for (index, channel) in plan.channels.iter().enumerate() {
            let alone = || same_subscription(plan, channel) == 1;
            if planned[index].is_some() || !(by_name || alone()) {
                continue;
            }
            let fits = |one: &Live| {
                bare(&one.topic) == bare(&channel.topic)
                    && one.subscriber == channel.subscriber
                    && (!by_name || is_publisher(one, &channel.publisher))
            };
            planned[index] = (0..live.len()).find(|at| !taken[*at] && fits(&live[*at]));
            planned[index].into_iter().for_each(|at: usize| taken[at] = true);
        }
    }
    let unplanned = (0..live.len()).filter(|at| !taken[*at]).collect();
    Found { planned, unplanned }
}

fn bare(name: &str) -> &str {
    name.strip_prefix('/').unwrap_or(name)
}

fn is_publisher(live: &Live, node: &str) -> bool {
    live.publisher_node == node
        || bare(&live.publisher) == node
        || live.publisher == format!("/{}@{node}", bare(&live.topic))
}

/// Publishers of the same topic for the same subscriber.
fn same_subscription(plan: &Plan, one: &crate::plan::Channel) -> usize {
    plan.channels.iter().filter(|other| (&other.topic, &other.subscriber) == (&one.topic, &one.subscriber)).count()
}
