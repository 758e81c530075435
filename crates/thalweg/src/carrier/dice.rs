//! Seeded chance for the test carriers: the same seed gives the same run on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) with its published
//! constants. Written out here because the stored sweep tables depend on the sequence; not for secrets.

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The same seed gives the same sequence.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with probability `p` (0 to 1).
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.bits() >> 11) as f64 / (1u64 << 53) as f64) < p
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// `middle` plus or minus up to `spread`, not below 0.
    pub fn around(&mut self, middle: u64, spread: u64) -> u64 {
        let drawn = self.below(spread.saturating_mul(2).saturating_add(1));
        middle.saturating_add(drawn).saturating_sub(spread)
    }

    /// Flips one bit of `bytes`.
    pub fn flip(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len() as u64 * 8);
        if let Some(byte) = bytes.get_mut(at as usize / 8) {
            *byte ^= 1 << (at % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs for seed 1234567, as in the reference implementation's test vectors.
        let mut dice = Dice::new(1_234_567);
        let want = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([dice.bits(), dice.bits(), dice.bits()], want);
    }

    #[test]
    fn chances_and_ranges_are_kept() {
        let mut dice = Dice::new(7);
        let hits = (0..10_000).filter(|_| dice.chance(0.1)).count();
        assert!((900..1100).contains(&hits), "{hits} of 10000 at 10 %");
        assert!((0..1000).all(|_| (7..=13).contains(&dice.around(10, 3)) && dice.below(5) < 5));
        assert_eq!((dice.below(0), dice.chance(0.0), dice.chance(1.0)), (0, false, true));
        let mut bytes = [0u8; 4];
        dice.flip(&mut bytes);
        assert_eq!(u32::from_le_bytes(bytes).count_ones(), 1);
        dice.flip(&mut []);
    }
}
