//! The order of resources: those that feed others first.

use super::resource;
use crate::analysis::stages::Stages;

/// The flow of samples between resources: queues, then processors.
pub(super) struct Course {
    /// All resources, each after those that feed it, as far as they do not feed each other (reverse postorder, as in data-flow analysis: Kam &
    /// Ullman 1976).
    pub order: Vec<usize>,
    /// The stages of each resource that others follow, with those.
    pub behind: Vec<Vec<(usize, usize)>>,
}

impl Course {
    pub(super) fn new(stages: &Stages) -> Self {
        let mut behind = vec![Vec::new(); stages.egresses.len() + stages.processors.len()];
        for (index, stage) in stages.stages.iter().enumerate() {
            if let Some(after) = stage.after {
                behind[resource(stages, after)].push((after, index));
            }
        }
        let fed = |behind: &Vec<(usize, usize)>| {
            let mut fed: Vec<usize> = behind.iter().map(|(_, index)| resource(stages, *index)).collect();
            fed.sort_unstable();
            fed.dedup();
            fed
        };
        let fed: Vec<Vec<usize>> = behind.iter().map(fed).collect();
        Self { order: downstream(&fed), behind }
    }
}

/// Depth first, each noted when all that it feeds are; then turned round.
fn downstream(fed: &[Vec<usize>]) -> Vec<usize> {
    let mut seen = vec![false; fed.len()];
    let mut order = Vec::with_capacity(fed.len());
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in 0..fed.len() {
        way.extend((!std::mem::replace(&mut seen[root], true)).then_some((root, 0)));
        while let Some((resource, at)) = way.last_mut() {
            match fed[*resource].get(*at) {
                Some(next) => {
                    *at += 1;
                    way.extend((!std::mem::replace(&mut seen[*next], true)).then_some((*next, 0)));
                }
                None => {
                    order.push(*resource);
                    way.pop();
                }
            }
        }
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeding_stages_come_first() {
        // 3 feeds 1 and 2, both feed 0; 0 and 4 feed each other.
        let order = downstream(&[vec![4], vec![0], vec![0], vec![1, 2], vec![0]]);
        let place = |resource| order.iter().position(|other| *other == resource).unwrap();
        assert!(place(3) < place(1) && place(3) < place(2) && place(1) < place(0) && place(2) < place(0), "{order:?}");
        assert_eq!(order.len(), 5);
    }
}
