//! The selection of a stream's samples: a pure function of the sequence number, so that every proxy selects the same ones,
//! at any place and with any start (P-02, U-34).

use qos::Scale;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// `part` of every `whole` samples, spread evenly: sample `s` is selected if `⌊s·part/whole⌋ ≠ ⌊(s−1)·part/whole⌋`. Any `whole`
/// samples in a row have exactly `part` selected ones. Every n-th is 1 of n: those with `s mod n == 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Selection {
    part: u32,
    whole: u32,
}

/// No such selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectionError(String);

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "selection {:?}: allowed are N (every N-th sample, 1 to {}) and P/Q (P of every Q, ",
            self.0,
            u32::MAX
        )?;
        write!(f, "P at least 1 and at most Q), such as 10 or 3/4")
    }
}

impl std::error::Error for SelectionError {}

impl Selection {
    /// Every sample.
    pub const ALL: Self = Self { part: 1, whole: 1 };

    /// Every n-th sample; `n` ≥ 1.
    ///
    /// # Errors
    /// `n` is 0.
    pub fn every(n: u32) -> Result<Self, SelectionError> {
        Self::rate(1, n).map_err(|_| SelectionError(n.to_string()))
    }

    /// `part` of every `whole` samples: from 10 Hz, 8/10 makes 8 Hz. 1 ≤ `part` ≤ `whole`.
    ///
    /// # Errors
    /// The numbers are not within these bounds.
    pub fn rate(part: u32, whole: u32) -> Result<Self, SelectionError> {
        if part == 0 || part > whole {
            return Err(SelectionError(format!("{part}/{whole}")));
        }
        let common = common_divisor(part.into(), whole.into()) as u32;
        Ok(Self { part: part / common, whole: whole / common })
    }

    /// So many …
    pub fn part(self) -> u32 {
        self.part
    }

    /// … of so many, in lowest terms.
    pub fn whole(self) -> u32 {
        self.whole
    }

    /// The selection that makes this rate (thousandths of a hertz) of samples that come once in a `period`: all, if they are
    /// not faster.
    pub fn of_rate(millihertz: u64, period: Duration) -> Self {
        const UNIT: u128 = 1_000_000_000_000; // nanoseconds in a thousandth of a hertz's period
        let part = u128::from(millihertz).saturating_mul(period.as_nanos());
        let common = common_divisor(part, UNIT).max(1);
        let (mut part, mut whole) = (part / common, UNIT / common);
        if part >= whole {
            return Self::ALL;
        }
        // Larger numbers are rounded, by less than one in a thousand million.
        while whole > u128::from(u32::MAX) {
            (part, whole) = (part / 2, whole / 2);
        }
        Self::rate(part.max(1) as u32, whole as u32).unwrap_or(Self::ALL)
    }

    /// `true` if every sample is selected.
    #[inline]
    pub fn is_all(&self) -> bool {
        self.part == self.whole
    }

    /// `true` if this sample is selected.
    #[inline]
    pub fn takes(self, seq: u64) -> bool {
        // ⌊s·p/q⌋ grows at s exactly if s·p mod q < p. Both factors are below 2³², so nothing overflows.
        self.is_all() || {
            let (part, whole) = (u64::from(self.part), u64::from(self.whole));
            (seq % whole) * part % whole < part
        }
    }

    /// The last selected sample before this one; 0: none (samples are counted from 1).
    pub fn last_before(self, seq: u64) -> u64 {
        self.number(self.count(seq.saturating_sub(1)))
    }

    /// The first selected sample after this one.
    pub fn first_after(self, seq: u64) -> u64 {
        self.number(self.count(seq).saturating_add(1))
    }

    /// The number of selected samples among 1 to `seq`.
    pub fn count(self, seq: u64) -> u64 {
        (u128::from(seq) * u128::from(self.part) / u128::from(self.whole)) as u64
    }

    /// The selected sample with this number, counted from 1.
    fn number(self, count: u64) -> u64 {
        let seq = (u128::from(count) * u128::from(self.whole)).div_ceil(u128::from(self.part));
        u64::try_from(seq).unwrap_or(u64::MAX)
    }

    /// A number that distinguishes selections; 0: all samples.
    pub fn number_of(self) -> u64 {
        if self.is_all() { 0 } else { u64::from(self.part) << 32 | u64::from(self.whole) }
    }

    /// Samples of the source for each that is selected.
    pub fn factor(self) -> f64 {
        f64::from(self.whole) / f64::from(self.part)
    }
}

fn common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl Default for Selection {
    fn default() -> Self {
        Self::ALL
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            1 => write!(f, "{}", self.whole),
            part => write!(f, "{part}/{}", self.whole),
        }
    }
}

impl FromStr for Selection {
    type Err = SelectionError;
    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let (part, whole) = text.split_once('/').unwrap_or(("1", text));
        let wrong = || SelectionError(text.chars().take(64).collect());
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        Self::rate(number(part)?, number(whole)?).map_err(|_| wrong())
    }
}

impl From<Selection> for Scale {
    fn from(selection: Selection) -> Scale {
        Scale::Rate { p: selection.part, q: selection.whole }
    }
}

impl From<Selection> for String {
    fn from(selection: Selection) -> String {
        selection.to_string()
    }
}

impl TryFrom<String> for Selection {
    type Error = SelectionError;
    fn try_from(text: String) -> Result<Self, SelectionError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, without bounds.
    fn defined(seq: u64, part: u32, whole: u32) -> bool {
        let floor = |s: u64| u128::from(s) * u128::from(part) / u128::from(whole);
        floor(seq) != floor(seq - 1)
    }

    fn rates() -> impl Strategy<Value = (u32, u32)> {
        let some = prop_oneof![1..50u32, any::<u32>().prop_map(|n| n.max(1))];
        (some.clone(), some).prop_map(|(a, b)| (a.min(b), a.max(b)))
    }

    proptest! {
        #[test]
        fn selects_as_defined_wherever_it_starts((part, whole) in rates(), seq in prop_oneof![1..1000u64, 1..=u64::MAX]) {
            let selection = Selection::rate(part, whole).unwrap();
            prop_assert_eq!(selection.takes(seq), defined(seq, part, whole));
            let (before, after) = (selection.last_before(seq), selection.first_after(seq));
            prop_assert!(before < seq && (after > seq || after == u64::MAX));
            prop_assert!(before == 0 || selection.takes(before));
            prop_assert!(after == u64::MAX || selection.takes(after));
            // No sample in between is selected, except perhaps `seq` itself.
            prop_assert_eq!(selection.count(seq - 1), selection.count(before));
            prop_assert!(after == u64::MAX || selection.count(after) == selection.count(seq) + 1);
        }

        /// U-34: 8 of 10 are 8 of 10, not 5.
        #[test]
        fn the_long_run_rate_is_exact(whole in 1..200u32, part in 1..200u32, start in prop_oneof![1..500u64, 1..=u64::MAX - 500]) {
            let part = part.min(whole);
            let selection = Selection::rate(part, whole).unwrap();
            let taken = (start..start + u64::from(whole)).filter(|seq| selection.takes(*seq)).count();
            prop_assert_eq!(taken, part as usize);
        }

        #[test]
        fn every_nth_is_that_with_a_multiple_of_n(n in 1..=u32::MAX, seq in 1..=u64::MAX) {
            let every = Selection::every(n).unwrap();
            prop_assert_eq!(every.takes(seq), seq.is_multiple_of(u64::from(n)));
        }

        #[test]
        fn text_survives((part, whole) in rates()) {
            let selection = Selection::rate(part, whole).unwrap();
            prop_assert_eq!(selection.to_string().parse(), Ok(selection));
        }
    }

    /// A publisher may claim any number for its last sample.
    #[test]
    fn the_highest_number_there_is_has_no_follower_and_harms_nobody() {
        for rate in ["1", "3", "7/9", "4294967295"] {
            let selection: Selection = rate.parse().unwrap();
            let after = selection.first_after(u64::MAX);
            assert!(selection.last_before(u64::MAX) < u64::MAX && after >= u64::MAX - u64::from(selection.whole()));
        }
    }

    #[test]
    fn a_rate_in_hertz_is_one_of_samples_where_the_period_is_known() {
        let of = |millihertz, period| Selection::of_rate(millihertz, Duration::from_nanos(period)).to_string();
        assert_eq!(of(8000, 100_000_000), "4/5"); // 8 of 10 Hz, U-34
        assert_eq!([of(10_000, 100_000_000), of(20_000, 100_000_000)], ["1", "1"]);
        assert!(Selection::of_rate(1, Duration::from_nanos(1)).factor() > 1e9, "rounded, and not to nothing");
        let exact = Selection::of_rate(1_000_003, Duration::from_nanos(999_983));
        assert!((exact.factor() - 1e12 / (1_000_003.0 * 999_983.0)).abs() < 1e-6);
    }

    #[test]
    fn a_selection_of_no_sample_or_too_many_is_refused() {
        for wrong in ["0", "0/5", "6/5", "", "x", "1/0", "-1", "5/", "4294967296"] {
            let said = wrong.parse::<Selection>().unwrap_err().to_string();
            assert!(said.contains("such as 10 or 3/4"), "{wrong}: {said}");
        }
        assert_eq!("6/10".parse::<Selection>().unwrap().to_string(), "3/5");
        assert!(Selection::rate(7, 7).unwrap().is_all());
    }
}
