//! From the documents of all rounds to one line per row: medians, ratios, pass or miss.

use super::rounds::Round;
use super::table::{Against, Row, short};
use lab::statistics::{Spread, rounded};
use serde::Serialize;

/// One row of the result. If the figures are null, `error` gives the reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    /// The row's name.
    pub name: &'static str,
    /// Its description, for people.
    pub what: &'static str,
    /// The unit of the figures.
    pub unit: &'static str,
    /// Figures of the reference.
    pub baseline: Option<Spread>,
    /// Figures of the engine that is compared.
    pub thalweg: Option<Spread>,
    /// Ratio of the two, round by round.
    pub ratio: Option<Spread>,
    /// The target, for people.
    pub target: String,
    /// `true` if the target is met; null without a verdict.
    pub pass: Option<bool>,
    /// Percent by which the target is missed.
    pub missed_by_percent: Option<f64>,
    /// Measured messages per round.
    pub n: u64,
    /// Rounds.
    pub rounds: usize,
    /// Reason of missing figures.
    pub error: Option<String>,
}

impl Verdict {
    /// Judges `row` by its rounds. A `quick` run is not judged.
    pub(super) fn new(row: &Row, rounds: &[Round], quick: bool) -> Self {
        let values = |theirs: bool| -> Vec<f64> { rounds.iter().filter_map(|r| figure(row, r, theirs)).collect() };
        let (ours, theirs) = (values(false), values(true));
        let ratio = Spread::of(ours.iter().zip(&theirs).map(|(o, t)| o / t.max(f64::MIN_POSITIVE)));
        let (thalweg, baseline) = (Spread::of(ours), Spread::of(theirs));
        let judged = if row.against == Against::Nothing { thalweg } else { ratio };
        let mut verdict = Self { baseline, thalweg, ratio, rounds: rounds.len(), ..Self::empty(row, quick) };
        match judged {
            Some(spread) if !quick => {
                let pass = row.target.met_by(spread.median);
                verdict.pass = Some(pass);
                verdict.missed_by_percent = (!pass).then(|| rounded(row.target.missed_by_percent(spread.median), 3));
            }
            Some(_) => {}
            None => verdict.error = Some("the measurement gave no such figure".to_owned()),
        }
        verdict
    }

    /// A row that could not be measured.
    pub(super) fn failed(row: &Row, quick: bool, because: String) -> Self {
        Self { error: Some(because), ..Self::empty(row, quick) }
    }

    fn empty(row: &Row, quick: bool) -> Self {
        let (_, _, unit) = row.figure.place();
        let target = row.target.text(if row.against == Against::Nothing { unit } else { "×" });
        let (baseline, thalweg, ratio) = (None, None, None);
        let (pass, missed_by_percent, error) = (None, None, None);
        let (name, what, n) = (row.name, row.what, row.job.count(quick));
        Self { name, what, unit, baseline, thalweg, ratio, target, pass, missed_by_percent, n, rounds: 0, error }
    }

    /// `true` if the row neither failed nor missed its target.
    pub(super) fn good(&self) -> bool {
        self.error.is_none() && self.pass != Some(false)
    }

    /// One line of the table.
    pub(super) fn line(&self) -> String {
        let figure = |s: &Option<Spread>| s.map_or("–".to_owned(), |s| format!("{} {}", short(s.median), self.unit));
        let range = |s: Spread| format!("{:.3} [{:.3}–{:.3}]", s.median, s.min, s.max);
        let ratio = self.ratio.map_or("–".to_owned(), range);
        let (name, what, n) = (self.name, self.what, format!("{}×{}", self.rounds, self.n));
        let (theirs, ours, target) = (figure(&self.baseline), figure(&self.thalweg), &self.target);
        let verdict = self.verdict();
        format!("{name:<15} {what:<38} {n:>10} {theirs:>11} {ours:>11} {ratio:>21} {target:>11}  {verdict}")
    }

    fn verdict(&self) -> String {
        match (&self.error, self.pass, self.missed_by_percent) {
            (Some(error), ..) => format!("failed: {}", error.lines().next().unwrap_or_default()),
            (None, Some(false), Some(by)) => format!("MISSED by {by:.1} %"),
            (None, Some(true), _) => "pass".to_owned(),
            _ => "ran".to_owned(),
        }
    }

    /// The line above the table.
    pub(super) fn head() -> String {
        format!(
            "{:<15} {:<38} {:>10} {:>11} {:>11} {:>21} {:>11}  ",
            "row", "what", "rounds×n", "limit", "measured", "ratio [min–max]", "target"
        )
    }
}

fn figure(row: &Row, round: &Round, theirs: bool) -> Option<f64> {
    let (place, factor, _) = row.figure.place();
    let document = if theirs { round.theirs.as_ref()? } else { &round.ours };
    Some(document.pointer(place)?.as_f64()? * factor)
}

#[cfg(test)]
mod tests {
    use super::super::table::ROWS;
    use super::*;
    use serde_json::json;

    fn rounds(ours: &[f64], theirs: f64) -> Vec<Round> {
        let document = |p50: f64| json!({"rtt_us": {"p50": p50}});
        ours.iter().map(|v| Round { ours: document(*v), theirs: Some(document(theirs)) }).collect()
    }

    #[test]
    fn the_median_of_the_ratios_decides() {
        let passed = Verdict::new(&ROWS[0], &rounds(&[10.5, 30.0, 10.0], 10.0), false);
        assert_eq!(passed.ratio, Some(Spread { median: 1.05, min: 1.0, max: 3.0 }));
        assert_eq!((passed.pass, passed.missed_by_percent), (Some(true), None));
        let missed = Verdict::new(&ROWS[0], &rounds(&[22.0, 22.0], 10.0), false);
        assert_eq!((missed.pass, missed.missed_by_percent), (Some(false), Some(100.0)));
        assert!(missed.line().contains("MISSED by 100.0 %"), "{}", missed.line());
    }

    #[test]
    fn a_quick_run_judges_nothing_and_a_failed_row_is_not_good() {
        let quick = Verdict::new(&ROWS[0], &rounds(&[99.0], 1.0), true);
        assert!(quick.pass.is_none() && quick.good());
        assert!(!Verdict::failed(&ROWS[0], false, "no such engine".into()).good());
        assert!(!Verdict::new(&ROWS[1], &rounds(&[1.0], 1.0), false).good(), "a figure that is not there");
    }
}
