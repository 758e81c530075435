use super::*;
use crate::testing::compare;

/// 10,000 of them, and the tightness of bounds: `cargo run --release -p thalweg-baseline --example bounds`.
#[test]
fn bounds_hold_against_the_worst_patterns() {
    let compared: Vec<_> = (0..60).map(|seed| compare(seed, 1).unwrap()).collect();
    assert!(compared.iter().map(|one| one.held.len()).sum::<usize>() > 80);
}

#[test]
fn a_plan_is_simulated_as_it_was_made() {
    struct Never;
    impl crate::placement::Watch for Never {
        fn elapsed(&mut self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }
    let contract = crate::contract::Contract::read(include_str!("../../../../examples/robot.toml")).unwrap();
    let plan = crate::plan::make(&contract, crate::plan::Model::Bound, &mut Never);
    let (stages, pairs) = planned(&contract.system, &plan);
    let run = Run { pattern: Pattern::Synchronous, seed: 1, duration: 300_000_000, events: 200_000 };
    let seen = worst(&contract.system, &stages, &run, 1);
    assert!(
        !plan.channels.is_empty() && seen == worst(&contract.system, &stages, &run, 1),
        "the same for the same seed"
    );
    for (channel, pair) in plan.channels.iter().zip(pairs) {
        let seen = seen.pairs[pair.unwrap()];
        let (max, bound) = (seen.max as f64 / 1e3, channel.bound_us.unwrap());
        assert!(seen.count > 0 && max <= bound + 1e-6, "{} to {}: {max} > {bound}", channel.topic, channel.subscriber);
    }
    let (_, unknown) = planned(&crate::system::System::default(), &plan);
    assert!(unknown.iter().all(Option::is_none));
}
