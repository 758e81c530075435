//! Routers on the way: small samples over one (P-43), and what one adds to a way, by size (P-45, Fig. 10).

use super::linear::{LINEAR, PROPORTIONAL};
use super::sizes::{Curves, PACKET, RATE};
use super::{NONE, quotients};
use crate::experiments::lines;
use crate::lab::Size;
use crate::results::{Bar, Check, Findings, Group, Panel, Table};
use crate::statistics::{LinearFit, median, uncertainty};
use std::ops::RangeInclusive;

/// Over a router, 256 and 512 bytes take at most so many times what they take over one hop.
const ALMOST: f64 = 1.1;
/// A router delays a frame by at most so many times its transmission: its line, and its work.
const ROUTER: f64 = 1.5;
/// Small samples take almost as long over a router as over one hop (P-43).
pub(super) fn as_one_hop(hop: &Curves, router: &Curves, findings: &mut Findings) {
    for (index, size) in hop.sizes.iter().enumerate().filter(|(_, size)| [256, 512].contains(*size)) {
        let ratios = quotients(&router.of(NONE)[index], &hop.of(NONE)[index]);
        let check =
            Check::at_most(format!("{size} bytes: p50 over one router / over one hop"), median(&ratios), ALMOST);
        findings.checks.push(check.certain_within(uncertainty(&ratios), ALMOST - 1.0));
    }
}

/// The delay that one router adds to one direction, by size: half of the increase of the round trip (Fig. 10).
pub(super) fn delay([hop, router, routers]: [&Curves; 3], findings: &mut Findings) {
    let delays = |far: &Curves, near: &Curves, passed: f64| -> Vec<Vec<f64>> {
        let pairs = far.of(NONE).iter().zip(near.of(NONE)).map(|(far, near)| far.pairs(near, |d| d.p50));
        pairs.map(|pairs| pairs.into_iter().map(|(far, near)| (far - near) / 2.0 / passed).collect()).collect()
    };
    let (first, second, both) = (delays(router, hop, 1.0), delays(routers, router, 1.0), delays(routers, hop, 2.0));
    let heads = ["bytes", "first router", "second router", "mean of both"];
    let mut table = Table::new("Fig. 10: what a router adds to one way, µs", &heads);
    for (index, size) in hop.sizes.iter().enumerate() {
        table.row(size.to_string(), &[median(&first[index]), median(&second[index]), median(&both[index])]);
    }
    let found: Vec<f64> = both.iter().map(|found| median(found)).collect();
    let points: Vec<(f64, f64)> = hop.sizes.iter().map(|size| *size as f64).zip(found.iter().copied()).collect();
    let slope = LinearFit::through(&points).map_or(f64::NAN, |line| line.b * 1024.0);
    // Of more than a packet, the last one alone crosses the line behind the router once more.
    let small: Vec<(f64, f64)> = points.iter().copied().filter(|(size, _)| *size < PACKET as f64).collect();
    let times: Vec<f64> = small.iter().map(|(size, us)| us / lines::transmission_us(*size as usize, RATE)).collect();
    let explained = LinearFit::through(&small).map_or(f64::NAN, |line| line.explained);
    // A line that hardly rises explains a constant, too.
    let by_frame: Vec<(f64, f64)> =
        small.iter().map(|(size, us)| (lines::transmission_us(*size as usize, RATE), *us)).collect();
    let growth = LinearFit::through(&by_frame).map_or(f64::NAN, |line| line.b);
    let growth = if growth > 0.0 { growth.max(1.0 / growth) } else { f64::NAN };
    let steeper = |range: RangeInclusive<f64>| {
        let part: Vec<_> = small.iter().copied().filter(|(size, _)| range.contains(size)).collect();
        LinearFit::through(&part).map_or(f64::NAN, |line| line.b * 1024.0)
    };
    findings.notes.push(format!(
        "Fig. 10: {:.0} µs per KiB up to 256 bytes, {:.0} from there to {PACKET}; the paper's is steeper above 256 bytes, which its routers take into several buffers",
        steeper(0.0..=256.0),
        steeper(256.0..=PACKET as f64)
    ));
    let unsure = uncertainty(&times);
    let what = format!("router delay up to {PACKET} bytes");
    findings.checks.extend([
        Check::at_least(format!("{what}: of a frame's time on one more line, median"), median(&times), 1.0),
        Check::at_most(format!("{what}: of a frame's time on one more line, median, at most"), median(&times), ROUTER)
            .certain_within(unsure, ROUTER - 1.0),
        Check::at_most(
            format!("{what}: growth / that of a frame's time, or the other way round"),
            growth,
            PROPORTIONAL,
        )
        .judged_from(Size::Quick),
        Check::at_least(
            format!("{what}: share that a line explains; {slope:.1} µs per KiB of all sizes"),
            explained,
            LINEAR,
        ),
    ]);
    let groups = hop.sizes.iter().zip(&found).map(|(size, value)| {
        let bar = Bar { series: "router delay".into(), value: value.max(0.0), ..Bar::default() };
        Group { label: format!("{size} B"), bars: vec![bar] }
    });
    findings.figure.panels.push(Panel { title: "what a router adds to one way".into(), groups: groups.collect() });
    findings.tables.push(table);
}

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;
    use crate::results::Verdict;
    use crate::stalls::{Stalls, Timed};

    const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 2048];

    /// Three repetitions of one round trip of each size, which takes so many µs.
    fn curves(us: impl Fn(usize) -> f64) -> Curves {
        let mut curves = Curves::new(Layout::Router, &SIZES, &[NONE]);
        for (size, tally) in SIZES.iter().zip(&mut curves.curves[0].1) {
            let trip = Timed { from_ns: 0, ns: (us(*size) * 1000.0) as u64 };
            (0..3).for_each(|_| tally.add(1, &[trip], &Stalls::default()));
        }
        curves
    }

    fn failed(judge: impl Fn(&mut Findings)) -> Vec<String> {
        let mut findings = Findings::default();
        judge(&mut findings);
        let failed = findings.checks.into_iter().filter(|check| check.verdict == Verdict::Fail);
        failed.map(|check| check.name).collect()
    }

    /// The checks that fail if each of two routers adds so many µs to each way.
    fn of_delay(us: fn(usize) -> f64) -> Vec<String> {
        let over = |routers: f64| curves(move |size| 1000.0 + 2.0 * routers * us(size));
        failed(|findings| delay([&over(0.0), &over(1.0), &over(2.0)], findings))
    }

    #[test]
    fn a_router_that_adds_a_frame_and_some_work_passes_and_others_fail() {
        assert_eq!(of_delay(|size| 20.0 + lines::transmission_us(size, RATE)), Vec::<String>::new());
        assert_eq!(of_delay(|_| 0.0).len(), 2, "nothing");
        let constant = of_delay(|_| 300.0);
        assert!(matches!(&constant[..], [growth] if growth.contains("growth")), "{constant:?}");
        assert!(of_delay(|size| 2.0 * lines::transmission_us(size, RATE))[0].ends_with("at most"));
        let saw = of_delay(|size| lines::transmission_us([1024, 64][size.ilog2() as usize % 2], RATE));
        assert!(saw.iter().any(|name| name.contains("share that a line explains")), "{saw:?}");
    }

    #[test]
    fn small_samples_take_no_longer_over_a_router_than_over_a_hop() {
        let over = |router: f64| failed(|found| as_one_hop(&curves(|_| 1000.0), &curves(|_| router), found)).len();
        assert_eq!([over(1050.0), over(1200.0)], [0, 2]);
    }
}
