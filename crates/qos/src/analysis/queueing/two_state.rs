//! Velox's chain of two states, 0: waiting, 1: processing (V-12, eq. 2 and 3).

/// A chain that leaves each of its two states at a rate.
///
/// Velox calls it a Gilbert model; that is a model of bursts of losses, while this one says which part of the time a node
/// processes (E-V6). Its matrix (eq. 3) has P00 = P11 = 0 with P01 = λ and P10 = μ: its rows add up to λ and μ, not to 1. Read
/// as rates of a chain in continuous time, eq. 2 holds (E-V2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoState {
    /// P01 = λ: from waiting to processing, per second.
    pub to_processing: f64,
    /// P10 = μ: from processing to waiting, per second.
    pub to_waiting: f64,
}

impl TwoState {
    /// Eq. 2: π0 = P10/(P10+P01), π1 = P01/(P10+P01): the parts of the time spent waiting and processing.
    pub fn occupancy(self) -> [f64; 2] {
        let sum = self.to_waiting + self.to_processing;
        [self.to_waiting / sum, self.to_processing / sum]
    }
}

/// As the text after eq. 3 has it, π0 = λ/(λ+μ) and π1 = μ/(λ+μ): the opposite of eq. 2, and of the 0.9 and 0.1 that the
/// paper itself computes (E-V1).
pub fn as_printed(chain: TwoState) -> [f64; 2] {
    let [waiting, processing] = chain.occupancy();
    [processing, waiting]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_velox_and_the_misprint() {
        let chain = TwoState { to_processing: 12_000.0, to_waiting: 120_000.0 };
        let round = |parts: [f64; 2]| parts.map(|part| (part * 1e4).round() / 1e4);
        assert_eq!(round(chain.occupancy()), [0.9091, 0.0909]);
        assert_eq!(round(as_printed(chain)), [0.0909, 0.9091]);
        // Eq. 3 as a chain in discrete time is periodic: whatever the rates, half of the steps in each state (E-V2).
        let step = |[waiting, processing]: [f64; 2]| [processing, waiting];
        assert_eq!(step(step([0.3, 0.7])), [0.3, 0.7]);
    }
}
