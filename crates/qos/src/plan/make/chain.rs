//! Chains over several topics: the sums of their channels, and the reasons why one does not fit.

use super::path::Path;
use crate::analysis::chain::{Unsteady, wait};
use crate::plan::{Chain, ChainPart, Channel, Model, Refusal};
use crate::quantity::show_time;
use crate::system::{self, System};
use std::collections::HashMap;

/// All chains, by the bounds of the `channels`, which are those of the `paths`.
pub(super) fn chains(system: &System, paths: &[Path], channels: &[Channel]) -> Vec<Chain> {
    let bound = |(path, channel): (&Path, &Channel)| ((path.publisher, path.index), channel.bound_us);
    let bounds: HashMap<(usize, usize), Option<f64>> = paths.iter().zip(channels).map(bound).collect();
    let part = |chain: &system::Chain, index: usize, part: &system::ChainPart| ChainPart {
        topic: system.topic_of(part).name.clone(),
        publisher: system.nodes[part.publisher].name.clone(),
        subscriber: system.subscribers[part.subscriber].name.clone(),
        sampled: part.sampled,
        wait_us: wait(system, chain, index) as f64 / 1e3,
        bound_us: bounds.get(&(part.publisher, part.subscriber)).copied().flatten(),
    };
    let chain = |chain: &system::Chain| {
        let parts: Vec<ChainPart> =
            chain.parts.iter().enumerate().map(|(index, one)| part(chain, index, one)).collect();
        Chain {
            name: chain.name.clone(),
            bound_us: parts.iter().map(|part| part.bound_us.map(|us| us + part.wait_us)).sum(),
            deadline_us: chain.deadline.map(|ns| ns as f64 / 1e3),
            parts,
        }
    };
    system.chains.iter().map(chain).collect()
}

/// A chain that ends later than it may. Means are no promise, so the models that give them judge no chain.
pub(super) fn of_chain(chain: &Chain, model: Model) -> Option<Refusal> {
    let deadline = chain.deadline_us.filter(|_| !model.is_mean())?;
    let what = format!("deadline of chain {:?}", chain.name);
    let has = show_time(deadline);
    let offers = Vec::new();
    let Some(bound) = chain.bound_us else {
        let part = chain.parts.iter().find(|part| part.bound_us.is_none())?;
        let because = format!(
            "there is no bound of the delay of its part {:?} to {} (model {model})",
            part.topic, part.subscriber
        );
        return Some(Refusal { what, needs: "more than any time".to_owned(), has, because, offers });
    };
    (bound > deadline * (1.0 + 1e-9)).then(|| {
        let (part, us) = largest(chain);
        let because = format!("the sum of its parts (model {model}), most of it {part} ({})", show_time(us));
        Refusal { what, needs: show_time(bound), has, because, offers }
    })
}

/// The part of a chain that takes the longest: a channel, or the wait for a sampled topic.
fn largest(chain: &Chain) -> (String, f64) {
    let parts = chain.parts.iter().flat_map(|part| {
        let channel = (format!("{:?} to {}", part.topic, part.subscriber), part.bound_us.unwrap_or(0.0));
        [(format!("the wait for the next sample of {:?}", part.topic), part.wait_us), channel]
    });
    parts.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

/// A topic that its callback publishes less evenly than the contract states: all bounds rest on that.
pub(super) fn of_unsteady(system: &System, found: &Unsteady) -> Refusal {
    let time = |ns: u64| show_time(ns as f64 / 1e3);
    let topic = &system.topics[found.topic].name;
    Refusal {
        what: format!("jitter of topic {topic:?}"),
        needs: found.needs.map_or("more than any time".to_owned(), time),
        has: time(found.has),
        because: format!(
            "the callback of {} publishes it, whose ends vary by so much: every bound beside it counts on the stated jitter",
            system.subscribers[found.cause].name
        ),
        offers: Vec::new(),
    }
}
