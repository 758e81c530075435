//! In which order things are measured.

use thalweg::testing::Dice;

/// 0 … `count` − 1 in an order drawn by lot.
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
