//! The experiments. To add one: a module with a type that is an [`Experiment`], and its line in [`experiments`].

mod big_messages;
mod conference;
mod cpu_contention;
mod goodput;
pub mod hostile;
mod isolation;
mod lossy;
pub mod many_nodes;
mod pull_beside;
mod pushpull;
mod tally;
mod velox;
mod yarp;

use crate::error::{Error, Result};
use crate::lab::Lab;
use crate::results::Findings;
use thalweg::carrier::Dice;

/// An experiment.
pub trait Experiment: Sync {
    /// As `lab run` takes it, such as `yarp-nic`.
    fn name(&self) -> &'static str;
    /// Its purpose, in a line.
    fn about(&self) -> &'static str;
    /// Runs the experiment. A part that could not run is a [`crate::Skipped`] of the findings; an error stops all of
    /// it.
    ///
    /// # Errors
    /// The [`Error`]; [`Error::Stopped`] soon after [`crate::Stop`] was asked.
    fn run(&self, lab: &Lab) -> Result<Findings>;
}

/// All experiments.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &[
        &yarp::YarpNic,
        &yarp::YarpSwitch,
        &cpu_contention::CpuContention,
        &isolation::Isolation,
        &big_messages::BigMessages,
        &pushpull::PushPullProxy,
        &pushpull::PushPullPlaces,
        &pushpull::PushPullSizes(1),
        &pushpull::PushPullSizes(2),
        &pushpull::PushPullSizes(3),
        &pushpull::PushPullSizes(4),
        &pushpull::PushPullLoaded,
        &velox::VeloxTopics,
        &velox::VeloxProcessor,
        &velox::VeloxLan,
        &velox::VeloxSubscribers,
        &conference::Conference,
        &pull_beside::PullBeside,
        &lossy::LossyLink,
        &lossy::Outages,
        &many_nodes::ManyNodes,
        &goodput::Goodput,
        &hostile::Hostile,
    ]
}

/// The experiment with this name.
///
/// # Errors
/// [`Error::Usage`] with all names.
pub fn find(name: &str) -> Result<&'static dyn Experiment> {
    experiments().iter().copied().find(|e| e.name() == name).ok_or_else(|| {
        let names: Vec<&str> = experiments().iter().map(|e| e.name()).collect();
        Error::Usage(format!("experiment {name:?}: there are {}", names.join(", ")))
    })
}

/// The numbers 0 … `count` − 1 in random order.
pub fn shuffled(count: usize, dice: &mut Dice) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, dice.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_turn_once() {
        let mut dice = Dice::new(1);
        let (one, mut other) = (shuffled(20, &mut dice), shuffled(20, &mut dice));
        assert_ne!(one, other);
        other.sort_unstable();
        assert_eq!(other, (0..20).collect::<Vec<_>>());
    }
}
