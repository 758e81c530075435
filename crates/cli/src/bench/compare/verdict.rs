//! The verdict of a row, from the documents of its rounds.

use super::Round;
use crate::bench::Carrier;
use crate::bench::targets::{Against, Row, short};
use lab::statistics::{Spread, median, rounded, uncertainty};
use serde::Serialize;
use serde_json::Value;

/// One row of the result. If the figures are null, `error` gives the reason.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Verdict {
    /// The row's name.
    name: &'static str,
    /// Its description, for people.
    what: &'static str,
    /// The unit of the figures.
    unit: &'static str,
    /// Figures of the reference.
    baseline: Option<Spread>,
    /// Figures of the engine that is compared.
    thalweg: Option<Spread>,
    /// Ratio of the two, round by round.
    ratio: Option<Spread>,
    /// The target, for people.
    target: String,
    /// `true` if the target is met; null without a verdict.
    pass: Option<bool>,
    /// Percent by which the target is missed.
    missed_by_percent: Option<f64>,
    /// Measured messages per round.
    pub n: u64,
    /// Rounds.
    rounds: usize,
    /// Reason of missing figures.
    error: Option<String>,
    /// Reason why it cannot be measured here; null if it was.
    pub skipped: Option<String>,
    /// The standard error of the median ratio; null without a reference, or of fewer than three rounds.
    uncertainty: Option<f64>,
    /// `true` if the noise, or too few rounds, hide whether the target is met.
    pub inconclusive: bool,
    /// The reason why it is inconclusive.
    because: Option<String>,
}

impl Verdict {
    /// Judges `row` by its rounds. A `quick` run is not judged.
    pub(super) fn new(row: &Row, rounds: &[Round], quick: bool) -> Self {
        let values = |theirs: bool| -> Vec<f64> { rounds.iter().filter_map(|r| figure(row, r, theirs)).collect() };
        let (ours, theirs) = (values(false), values(true));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(o, t)| o / t.max(f64::MIN_POSITIVE)).collect();
        let error = Some(uncertainty(&ratios)).filter(|error| error.is_finite()).map(|error| rounded(error, 4));
        let (ratio, told) = (Spread::of(ratios.iter().copied()), told(row, rounds));
        let (thalweg, baseline) = (Spread::of(ours), Spread::of(theirs));
        let judged = if row.against == Against::Nothing { thalweg } else { ratio };
        let rounds_made = rounds.first().filter(|_| row.job.is_tool).and_then(|round| round.ours["rounds"].as_u64());
        let rounds_made = rounds_made.and_then(|made| usize::try_from(made).ok()).unwrap_or(rounds.len());
        let mut verdict =
            Self { baseline, thalweg, ratio, rounds: rounds_made, uncertainty: error, ..Self::empty(row, quick) };
        match judged {
            Some(spread) if !quick => {
                verdict.because = match told {
                    Some(check) => unsure(check),
                    None => doubt(row, &ratios),
                };
                verdict.inconclusive = verdict.because.is_some();
                if !verdict.inconclusive {
                    let pass = told.map_or_else(|| row.target.met_by(spread.median), |check| check["pass"] == true);
                    let missed_by = row.target.missed_by_percent(spread.median).max(0.0);
                    verdict.pass = Some(pass);
                    verdict.missed_by_percent = (!pass).then(|| rounded(missed_by, 3));
                }
            }
            Some(_) => {}
            None => verdict.error = Some("the measurement gave no such figure".to_owned()),
        }
        verdict.error = verdict.error.or_else(|| lost(row, rounds));
        verdict
    }

    /// A row that could not be measured.
    pub(super) fn failed(row: &Row, quick: bool, because: String) -> Self {
        Self { error: Some(because), ..Self::empty(row, quick) }
    }

    /// A row whose programs cannot run here.
    pub(super) fn skipped(row: &Row, quick: bool, because: String) -> Self {
        Self { skipped: Some(because), ..Self::empty(row, quick) }
    }

    fn empty(row: &Row, quick: bool) -> Self {
        let (_, _, unit) = row.figure.place();
        let target = row.target.text(if row.against == Against::Nothing { unit } else { "×" });
        let (baseline, thalweg, ratio) = (None, None, None);
        let (pass, missed_by_percent, error) = (None, None, None);
        let (name, what, n) = (row.name, row.what, row.job.count(quick));
        Self {
            name,
            what,
            unit,
            baseline,
            thalweg,
            ratio,
            target,
            pass,
            missed_by_percent,
            n,
            rounds: 0,
            error,
            skipped: None,
            uncertainty: None,
            inconclusive: false,
            because: None,
        }
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
        if let Some(because) = &self.skipped {
            return format!("skipped: because {because}");
        }
        if let Some(because) = &self.because {
            return format!("inconclusive: {because}");
        }
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

/// The check of a tool's own report that judges the figure of a row.
fn told<'a>(row: &Row, rounds: &'a [Round]) -> Option<&'a Value> {
    let figure = row.figure.place().0.strip_prefix("/figures/").filter(|_| row.job.is_tool)?;
    let checks = rounds.first()?.ours["checks"].as_array()?;
    checks.iter().find(|check| check["figure"] == figure)
}

/// The reason why a tool's check is inconclusive, if it is.
fn unsure(check: &Value) -> Option<String> {
    let because = check["because"].as_str().unwrap_or("the machine was too noisy");
    (check["verdict"] == "inconclusive").then(|| because.to_owned())
}

/// The reason why a binding's ratios do not tell whether its target is met: chance may have moved their median to this side of it.
fn doubt(row: &Row, ratios: &[f64]) -> Option<String> {
    if row.job.engine.is_none() || ratios.is_empty() {
        return None;
    }
    let error = SURELY * uncertainty(ratios);
    if error.is_nan() {
        return Some("fewer than three rounds do not show how certain it is".to_owned());
    }
    let distance = (median(ratios) - row.target.limit()).abs();
    (error > distance).then(|| format!("the ratio is uncertain by {error:.3}"))
}

/// Messages that did not come are in no latency and in no rate: more than the carrier may lose fails the row.
fn lost(row: &Row, rounds: &[Round]) -> Option<String> {
    let lost: u64 = rounds.iter().filter_map(|round| round.ours.pointer("/lost")?.as_u64()).sum();
    let sent: u64 = rounds.iter().filter_map(|round| round.ours.pointer("/count")?.as_u64()).sum();
    let may_lose = row.job.carrier == Carrier::Udp && !row.job.reliable;
    let most = if may_lose { sent / 100 } else { 0 };
    (lost > most).then(|| format!("{lost} of {sent} messages were lost"))
}

fn figure(row: &Row, round: &Round, theirs: bool) -> Option<f64> {
    let (place, factor, _) = row.figure.place();
    let document = if theirs { round.theirs.as_ref()? } else { &round.ours };
    Some(document.pointer(place)?.as_f64()? * factor)
}

/// So many standard errors from a limit are no chance.
const SURELY: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::super::{Pair, exit_code};
    use super::*;
    use crate::bench::EngineName;
    use crate::bench::targets::{ROWS, rows};
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

    fn python() -> &'static Row {
        rows().find(|row| row.name == "python-shm-64").unwrap()
    }

    fn against(ours: f64, theirs: &[f64]) -> Verdict {
        let document = |p50: f64| json!({"rtt_us": {"p50": p50}});
        let round = |t: &f64| Round { ours: document(ours), theirs: Some(document(*t)) };
        Verdict::new(python(), &theirs.iter().map(round).collect::<Vec<_>>(), false)
    }

    #[test]
    fn a_binding_is_judged_where_its_ratio_is_certain_enough() {
        let met = against(12.0, &[10.0, 10.0, 10.0, 10.1, 30.0]);
        assert_eq!((met.pass, met.inconclusive, met.uncertainty), (Some(true), false, Some(0.0)));
        let missed = against(20.0, &[10.0, 10.0, 10.1]);
        assert_eq!((missed.pass, missed.inconclusive), (Some(false), false));
        let noisy = against(15.0, &[10.0, 11.0, 9.0]);
        assert_eq!((noisy.pass, noisy.inconclusive, noisy.good()), (None, true, true));
        assert!(noisy.line().contains("inconclusive: the ratio is uncertain by 0.4"), "{}", noisy.line());
        let long: Vec<f64> = [10.0, 11.0, 9.0].into_iter().cycle().take(150).collect();
        assert_eq!(against(15.0, &long).pass, Some(true), "more of such rounds tell");
        assert!(against(99.0, &[10.0, 10.0]).inconclusive, "two rounds show no noise");
        let skipped = Verdict::skipped(python(), false, "no module thalweg".to_owned());
        assert!(skipped.line().contains("skipped: because no module thalweg"), "{}", skipped.line());
        assert_eq!(exit_code(&[met.clone(), skipped.clone()]), 0);
        assert_eq!(exit_code(&[met.clone(), noisy.clone()]), 4);
        assert_eq!(exit_code(&[missed, noisy]), 1);
        assert_eq!(exit_code(&[skipped]), 3);
    }

    #[cfg(all(feature = "dashboard", feature = "recording"))]
    #[test]
    fn a_tool_s_own_verdict_is_that_of_its_row() {
        let row = rows().find(|row| row.name == "record-p99").unwrap();
        let verdict = |word: &str| {
            let check = json!({"figure": "p99_ratio", "pass": word == "pass", "verdict": word, "because": "noise"});
            let ours = json!({"rounds": 5, "figures": {"p99_ratio": 1.2}, "checks": [check]});
            Verdict::new(row, &[Round { ours, theirs: None }], false)
        };
        let (missed, unsure) = (verdict("fail"), verdict("inconclusive"));
        assert_eq!((missed.pass, missed.inconclusive, missed.rounds), (Some(false), false, 5));
        assert_eq!((unsure.pass, unsure.inconclusive), (None, true));
        assert!(unsure.line().contains("inconclusive: noise"), "{}", unsure.line());
        assert_eq!(verdict("pass").pass, Some(true));
    }

    #[test]
    fn a_binding_is_compared_with_rust_whatever_engine_is_named() {
        let pair = Pair::of(python(), EngineName::Raw);
        assert_eq!(pair.ours.engine, EngineName::Python);
        assert_eq!(pair.theirs.map(|side| side.engine), Some(EngineName::Thalweg));
        let arguments = pair.ours.job.arguments(pair.ours.engine, [0, 0], 20, false).join(" ");
        assert!(arguments.contains("--engine python") && arguments.ends_with("--plain"), "{arguments}");
        let copies = rows().find(|row| row.name == "python-copies").unwrap();
        let counted = |copies: u64| Round { ours: json!({"copies": copies}), theirs: None };
        assert_eq!(Verdict::new(copies, &[counted(0)], false).pass, Some(true));
        assert_eq!(Verdict::new(copies, &[counted(1)], false).missed_by_percent, Some(100.0));
    }

    #[test]
    fn lost_messages_fail_a_row() {
        let verdict = |name: &str, lost: u64| {
            let row = rows().find(|row| row.name == name).unwrap();
            let document = json!({"latency_us": {"p50": 1.0}, "count": 1000, "lost": lost});
            Verdict::new(row, &[Round { ours: document.clone(), theirs: Some(document) }], false)
        };
        assert!(verdict("fanout-tcp", 0).good() && verdict("fanout-udp", 10).good());
        assert!(!verdict("fanout-tcp", 1).good() && !verdict("fanout-udp", 11).good());
        assert!(verdict("fanout-shm", 3).line().contains("failed: 3 of 1000 messages were lost"));
    }

    #[test]
    fn a_quick_run_judges_nothing_and_a_failed_row_is_not_good() {
        let quick = Verdict::new(&ROWS[0], &rounds(&[99.0], 1.0), true);
        assert!(quick.pass.is_none() && quick.good());
        assert!(!Verdict::failed(&ROWS[0], false, "no such engine".into()).good());
        assert!(!Verdict::new(&ROWS[1], &rounds(&[1.0], 1.0), false).good(), "a figure that is not there");
    }
}
