//! The shape of round trips by size (P-41 … P-45): they grow along a straight line in the time that their frames take, and what a
//! relay adds beyond its lines is a constant.

use crate::lab::Size;
use crate::results::Check;
use crate::statistics::{LinearFit, median, uncertainty};

/// Bytes of a sample that a frame carries by tcp, with time stamps, and of the headers around them.
const SEGMENT: usize = 1448;
const HEADERS: usize = 14 + 20 + 32;
/// Least share of the variance between sizes that a straight line must explain.
pub(super) const LINEAR: f64 = 0.8;
/// Change between sizes below this factor is too small for a line to show.
const HARDLY: f64 = 1.25;
/// A curve that hardly changes may fall by this factor from the least size to the greatest.
const FALLS: f64 = 1.05;
/// Largest distance of a point from the line, as a part of the rise from the least to the greatest. On a machine that compiled
/// meanwhile 0.01 to 0.03 were found; a curve that grows by the root of the transmission has 0.09, one that halves its slope midway 0.08.
const BENT: f64 = 0.05;
/// A round trip grows by as much as its frames take, within this factor.
pub(super) const PROPORTIONAL: f64 = 1.15;

/// The time in µs that a sample takes on the lines of its way, leg by leg: at the end of a leg it is received whole before it goes on.
/// Between the lines of a leg its frames follow each other, the last one behind a full one.
pub(super) fn transmission_us(size: usize, legs: &[usize], rate: u64) -> f64 {
    let frame = |bytes: usize| (bytes + HEADERS) as f64 * 8e6 / rate as f64;
    let frames = size.div_ceil(SEGMENT).max(1);
    let (full, last) = (frame(SEGMENT), frame(size - (frames - 1) * SEGMENT));
    let first_line = (frames - 1) as f64 * full + last;
    let further = if frames > 1 { full } else { last };
    legs.iter().filter(|lines| **lines > 0).map(|lines| first_line + (lines - 1) as f64 * further).sum()
}

/// One size.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Bytes.
    pub size: f64,
    /// The time on the lines, in µs.
    pub transmission: f64,
    /// What was measured in each repetition, in µs.
    pub found: Vec<f64>,
}

impl Point {
    fn us(&self) -> f64 {
        median(&self.found)
    }
}

/// Judges a curve: it grows along a line in the size, or hardly changes; over lines, in proportion to the transmission, and without a
/// bend.
pub(super) fn judge(of: &str, points: &[Point]) -> Vec<Check> {
    let mut checks = vec![grows(of, points)];
    if points.iter().any(|point| point.transmission > 0.0) {
        checks.extend(follows_the_lines(of, points));
    }
    checks
}

/// Judges what a relay adds to each round trip: beyond its lines it is a constant.
pub(super) fn adds_a_constant(points: &[Point]) -> Vec<Check> {
    let constant = fit(points, |point| point.transmission).a;
    let of = format!("what a relay adds, {constant:.0} µs and its lines");
    if points.iter().all(|point| point.transmission > 0.0) { follows_the_lines(&of, points).into() } else { vec![] }
}

fn grows(of: &str, points: &[Point]) -> Check {
    let line = fit(points, |point| point.size);
    let all = |pick: fn(f64, f64) -> f64| points.iter().map(Point::us).fold(f64::NAN, pick);
    let change = all(f64::max) / all(f64::min);
    // A line that falls is none that grows.
    let explained = if line.b >= 0.0 { line.explained } else { 0.0 };
    let ends = [points.first(), points.last()].map(|point| point.map_or(f64::NAN, |point| line.at(point.size)));
    let hardly = if ends[0] / ends[1] <= FALLS { HARDLY / change } else { 0.0 };
    let name = format!(
        "{of}: a line of {:.1} µs per KiB explains {explained:.3} of it (wanted: {LINEAR}), or the sizes differ by {change:.2} times \
         (wanted: at most {HARDLY}, and no fall); the better of both, relative to what is wanted",
        line.b * 1024.0
    );
    // Without lines, a few samples differ by more than the sizes do: 1.43 times in one of three runs of the ci size.
    Check::at_least(name, (explained / LINEAR).max(hardly), 1.0).judged_from(Size::Quick)
}

fn follows_the_lines(of: &str, points: &[Point]) -> [Check; 2] {
    let line = fit(points, |point| point.transmission);
    let found: Vec<f64> = points.iter().map(Point::us).collect();
    let rise = found.iter().copied().fold(f64::NAN, f64::max) - found.iter().copied().fold(f64::NAN, f64::min);
    let off = points.iter().map(|point| (point.us() - line.at(point.transmission)).abs()).fold(f64::NAN, f64::max);
    let unsure = points.iter().map(|point| uncertainty(&point.found) / rise).fold(0.0, greater);
    let growth = line.b.max(1.0 / line.b);
    // A line that falls has no quotient.
    let growth = if line.b > 0.0 { growth } else { f64::NAN };
    [
        Check::at_most(
            format!("{of}: growth / that of the time on the lines, or the other way round"),
            growth,
            PROPORTIONAL,
        )
        .certain_within(unsure, PROPORTIONAL - 1.0),
        Check::at_most(
            format!("{of}: distance of a size from a line in the time on the lines / rise"),
            off / rise,
            BENT,
        )
        .certain_within(unsure, BENT),
    ]
}

fn fit(points: &[Point], x: impl Fn(&Point) -> f64) -> LinearFit {
    let nothing = LinearFit { a: f64::NAN, b: f64::NAN, explained: f64::NAN };
    LinearFit::through(&points.iter().map(|point| (x(point), point.us())).collect::<Vec<_>>()).unwrap_or(nothing)
}

/// The greater of two numbers; not a number if one is none.
fn greater(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::NAN } else { one.max(other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    const RATE: u64 = 10_000_000;
    const SIZES: [usize; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];

    /// Three repetitions of each size, `scatter` times the value apart.
    fn points(legs: &[usize], scatter: f64, us: impl Fn(f64, f64) -> f64) -> Vec<Point> {
        let point = |size: usize| {
            let transmission = transmission_us(size, legs, RATE);
            let us = us(size as f64, transmission);
            Point {
                size: size as f64,
                transmission,
                found: [1.0 - scatter, 1.0, 1.0 + scatter].map(|factor| us * factor).into(),
            }
        };
        SIZES.map(point).into()
    }

    fn verdicts(checks: &[Check]) -> Vec<Verdict> {
        checks.iter().map(|check| check.verdict).collect()
    }

    #[test]
    fn frames_take_their_time_on_each_line() {
        // 64 and 66 bytes of 10 Mbit/s: 104 µs.
        let is = |legs: &[usize], size, us: f64| {
            assert!((transmission_us(size, legs, RATE) - us).abs() < 1e-6, "{legs:?} {size}")
        };
        is(&[1], 64, 104.0);
        is(&[2, 2], 64, 416.0);
        // 1448 and 600 bytes; on the second line the last one waits for the full one.
        is(&[1], 2048, (1514.0 + 666.0) * 0.8);
        is(&[2], 2048, (1514.0 + 666.0 + 1514.0) * 0.8);
        is(&[0], 2048, 0.0);
    }

    #[test]
    fn a_line_in_the_transmission_passes_and_noise_makes_it_inconclusive() {
        let found = |scatter| judge("none", &points(&[2, 2], scatter, |_, transmission| 900.0 + 1.03 * transmission));
        assert_eq!(verdicts(&found(0.01)), [Verdict::Pass; 3]);
        assert_eq!(verdicts(&found(0.5))[1..], [Verdict::Inconclusive; 2]);
    }

    #[test]
    fn concave_falling_and_steeper_curves_fail() {
        let fails = |us: fn(f64, f64) -> f64| {
            let checks = judge("none", &points(&[2, 2], 0.01, us));
            checks.iter().map(|check| check.verdict == Verdict::Fail).collect::<Vec<_>>()
        };
        assert!(fails(|_, transmission| 40.0 * transmission.sqrt())[2], "concave");
        assert!(
            fails(|_, transmission| transmission.min(8000.0) + (transmission - 8000.0).max(0.0) / 2.0)[2],
            "a knee"
        );
        assert!(fails(|_, transmission| transmission * transmission / 9000.0)[2], "convex");
        assert_eq!(fails(|_, transmission| 30_000.0 - transmission), [true, true, false], "falling");
        assert_eq!(fails(|_, transmission| 900.0 + 2.0 * transmission), [false, true, false], "twice on each line");
        assert_eq!(fails(|_, _| f64::NAN), [true; 3], "nothing");
    }

    #[test]
    fn on_one_node_it_grows_or_hardly_changes_but_does_not_fall() {
        let passes = |us: fn(f64) -> f64| judge("none", &points(&[0, 0], 0.01, |size, _| us(size)))[0].pass;
        assert!(passes(|size| 50.0 + size / 100.0) && passes(|size| 50.0 + size / 1000.0) && passes(|_| 50.0));
        assert!(!passes(|size| 60.0 - size / 1000.0), "it falls by 15 %");
        let saw = |size: f64| if (size.log2() as u32).is_multiple_of(2) { 50.0 } else { 80.0 };
        assert!(!passes(saw));
    }

    #[test]
    fn what_a_relay_adds_may_not_grow_beyond_its_lines() {
        let found = |us: fn(f64, f64) -> f64| verdicts(&adds_a_constant(&points(&[2], 0.01, us)));
        assert_eq!(found(|_, transmission| 400.0 + transmission), [Verdict::Pass; 2]);
        assert_eq!(found(|_, transmission| 400.0 + 1.5 * transmission)[0], Verdict::Fail);
        assert!(adds_a_constant(&points(&[0], 0.01, |_, _| 10.0)).is_empty(), "without lines it says nothing");
    }
}
