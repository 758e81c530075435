//! Controls of the lines that an experiment is measured on: a frame takes at least its transmission time, and no window has more
//! than the line's rate.

use crate::link::{LinkReport, SLACK};
use crate::results::{Check, Findings};
use crate::topology::FULL_PACKET;

/// Bytes of Ethernet, IPv4, UDP or TCP headers around a sample: at least so many, whatever the carrier.
pub(super) const HEADERS: usize = 14 + 20 + 8;

/// Checks the lines' own figures: at no time was one faster than its rate, but for two frames, the first of which was stamped
/// late, and what a late thread makes up for.
pub(super) fn judge(during: &str, reports: &[LinkReport], findings: &mut Findings) {
    for rate in rates(reports) {
        let of_rate = || reports.iter().filter(|report| report.asked.rate == Some(rate));
        let ahead = of_rate().map(|report| report.ahead).max().unwrap_or(u64::MAX);
        let name = format!(
            "lines of {} Mbit/s, {during}: bytes beyond the rate in any window (two frames, and what a late thread makes up for)",
            rate / 1_000_000
        );
        findings.checks.push(Check::at_most(name, ahead as f64, (2 * FULL_PACKET + slack(rate)) as f64));
        let busy = of_rate().filter_map(|report| report.rate).reduce(f64::max);
        let busy =
            busy.map_or("never busy for 10 ms".to_owned(), |rate| format!("{:.2} Mbit/s while busy", rate / 1e6));
        let still: f64 = of_rate().map(|report| report.stood_still_ms).sum();
        let late = of_rate().map(|report| report.lateness_us.p99).fold(0.0, f64::max);
        let overflowed: u64 = of_rate().map(|report| report.counts.overflowed).sum();
        findings.notes.push(format!(
            "lines of {} Mbit/s, {during}: {busy}, a frame late by {late:.0} µs at p99, {overflowed} found the line's \
             queue full, the lines stood still for {still:.1} ms",
            rate / 1_000_000
        ));
    }
}

/// Checks that samples crossed lines that serialise: none was faster than the transmission of its bytes on each.
pub(super) fn judge_idle(of: &str, least_us: f64, bytes: usize, lines: &[u64], findings: &mut Findings) {
    let transmission = lines.iter().map(|rate| transmission_us(bytes, *rate)).sum();
    let name = format!("{of}: the fastest, µs (limit: its transmission over {} lines)", lines.len());
    findings.checks.push(Check::at_least(name, least_us, transmission));
}

/// Checks that a line that is to lose so many percent lost them on the way there, the first of its two. Frames that crossed it before it lost
/// any, while programs found each other, are among the others.
pub(super) fn judge_loss(of: &str, percent: u8, reports: &[LinkReport], findings: &mut Findings) {
    let found = reports.first().map_or(f64::NAN, |there| there.loss_percent);
    let name = format!("{of}: frames that the line lost on the way there, %");
    findings.checks.push(Check::at_least(name, found, REALLY * f64::from(percent)));
}

/// Transmission of a sample with its headers, in µs. More than a packet holds has more headers, which are left out: the limit is
/// the lower one.
pub(super) fn transmission_us(bytes: usize, rate: u64) -> f64 {
    (bytes + HEADERS).max(60) as f64 * 8e6 / rate as f64
}

/// Least part of a stated loss that a line must have had: some standard deviations of a few hundred frames, and the frames before it.
const REALLY: f64 = 0.6;

fn slack(rate: u64) -> u64 {
    (u128::from(SLACK) * u128::from(rate) / 8_000_000_000) as u64
}

fn rates(reports: &[LinkReport]) -> Vec<u64> {
    let mut rates: Vec<u64> = reports.iter().filter_map(|report| report.asked.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Behaviour, Counts, Lateness};

    fn report(ahead: u64) -> LinkReport {
        LinkReport {
            asked: Behaviour { rate: Some(100_000_000), ..Behaviour::default() },
            counts: Counts::default(),
            loss_percent: 0.0,
            rate: Some(99e6),
            lateness_us: Lateness::default(),
            ahead,
            stood_still_ms: 0.0,
        }
    }

    #[test]
    fn a_line_that_was_too_fast_fails() {
        let allowed = 2 * FULL_PACKET + 3125;
        for (ahead, pass) in [(allowed, true), (allowed + 1, false)] {
            let mut findings = Findings::default();
            judge("run", &[report(10), report(ahead)], &mut findings);
            assert_eq!(findings.checks.iter().map(|check| check.pass).collect::<Vec<_>>(), [pass]);
        }
    }

    #[test]
    fn a_line_that_was_never_busy_has_no_rate_while_busy() {
        let noted = |rates: [Option<f64>; 2]| {
            let mut findings = Findings::default();
            judge("run", &rates.map(|rate| LinkReport { rate, ..report(10) }), &mut findings);
            findings.notes.concat()
        };
        assert!(noted([None, Some(99e6)]).contains("run: 99.00 Mbit/s while busy, a frame late"));
        let idle = noted([None, None]);
        assert!(idle.contains("run: never busy for 10 ms, a frame late") && !idle.contains("NaN"), "{idle}");
    }

    #[test]
    fn a_sample_that_took_no_time_on_the_line_fails() {
        // 1024 B and 42 B of headers are 85.28 µs of 100 Mbit/s.
        for (least, pass) in [(85.3, true), (85.2, false), (f64::NAN, false)] {
            let mut findings = Findings::default();
            judge_idle("1024 bytes", least, 1024, &[100_000_000], &mut findings);
            assert_eq!(findings.checks[0].pass, pass, "{least}");
        }
    }

    #[test]
    fn a_line_that_loses_little_of_what_it_should_fails() {
        let line = |loss_percent| LinkReport { loss_percent, ..report(0) };
        let passes = |lines: &[LinkReport]| {
            let mut findings = Findings::default();
            judge_loss("30 % loss", 30, lines, &mut findings);
            findings.checks.iter().all(|check| check.pass)
        };
        assert!(passes(&[line(18.1), line(0.0)]), "the way back counts for nothing");
        assert!(!passes(&[line(17.9), line(30.0)]) && !passes(&[]));
    }
}
