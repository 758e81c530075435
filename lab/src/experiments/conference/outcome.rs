//! The conference's outcome: what came of each stream in each phase, how soon, and whether it went on.

use super::{AT_ONCE, CUT, HOSTS, KINDS, Kind, NARROW, RATE};
use crate::experiments::Tally;
use crate::results::{Bar, Check, Factors, Figure, Findings, Group, Panel, Table};
use crate::statistics::{Distribution, median};
use qos::Class;

/// The samples of each kind that were published for [`CUT`] in one phase, and those of them that arrived, then or later.
pub(super) struct Account {
    pub name: &'static str,
    pub tallies: [Tally; 5],
    pub rates: Vec<[f64; 5]>,
    /// The largest interarrival jitter of any of its streams, in µs (P-75).
    pub jitter_us: [f64; 5],
}

impl Account {
    /// In percent; NaN if nothing was published.
    fn share(&self, kind: usize) -> f64 {
        let tally = &self.tallies[kind];
        (tally.sent() - tally.lost()) as f64 * 100.0 / tally.sent() as f64
    }
}

/// Least share, in percent, of the streams above video on the narrow link. The rest is on its way when the link goes down.
const COMES: f64 = 95.0;
/// Its p99 is at most this, in µs: a packet on the wire and one held ready in front of it take 6 ms each, to and fro.
const SOON_US: f64 = 50_000.0;

/// Its jitter is at most this, in µs: the time from one sample of audio to the next, so that a player that holds back one sample has always one to play.
const ONE_SAMPLE_US: f64 = 20_000.0;

/// What is written or drawn appears within this time, in µs, while the link has room: people notice more.
const NOTICED_US: f64 = 100_000.0;

/// Cells, checks, figure and table.
pub(super) fn judge(phases: &[Account; 4], resumed: &[f64; 5]) -> Findings {
    let mut findings = Findings { notes: notes(), ..Findings::default() };
    for heard in phases {
        for (kind, tally) in KINDS.iter().zip(&heard.tallies) {
            let factors =
                Factors::new().with("arm", heard.name).with("stream", kind.name).with("class", kind.class.to_string());
            let factors = factors.with("measured", kind.carrier).with("payload_bytes", kind.size);
            findings.cells.push(tally.cell(factors, false));
        }
    }
    for (kind, ms) in KINDS.iter().zip(resumed) {
        let name = format!("{}: the last stream that went on after the outage, ms after the link was back", kind.name);
        findings.checks.push(Check::at_most(name, *ms, AT_ONCE.as_secs_f64() * 1e3));
    }
    let narrow = |kind: usize| phases[1].share(kind);
    for (kind, name) in [(0, "audio"), (1, "game")] {
        let p99 = median(&phases[1].tallies[kind].each(|d| d.p99));
        findings.checks.extend([
            Check::at_least(
                format!("{name} over the narrow link: share of what was published, %"),
                narrow(kind),
                COMES,
            ),
            Check::at_most(format!("{name} over the narrow link: p99, µs"), p99, SOON_US),
        ]);
    }
    for heard in &phases[..2] {
        let name = format!("audio, {}: largest jitter (RFC 3550), µs", heard.name);
        findings.checks.push(Check::at_most(name, heard.jitter_us[0], ONE_SAMPLE_US));
    }
    for (kind, tally) in KINDS.iter().zip(&phases[0].tallies).filter(|(kind, _)| kind.class == Class::Low) {
        let p99 = median(&tally.each(|d| d.p99));
        findings.checks.push(Check::at_most(format!("{} before: p99, µs", kind.name), p99, NOTICED_US));
    }
    findings.checks.push(Check::at_most(
        "video over the narrow link gives way: share of what was published, %",
        narrow(2),
        COMES,
    ));
    for (n, kind) in KINDS.iter().enumerate() {
        let lost = |phases: &[Account]| missing(phases.iter().map(|phase| &phase.tallies[n]));
        findings.checks.push(Check::at_most(format!("{} before: lost", kind.name), lost(&phases[..1]), 0.0));
        if kind.carrier == "tcp" {
            findings.checks.push(Check::at_most(format!("{} in all phases: lost", kind.name), lost(phases), 0.0));
        }
    }
    findings.tables.extend([table(phases), jitter(phases), counts(phases)]);
    let bar = |kind: &Kind, rate: f64| Bar { series: kind.name.into(), value: rate, ..Bar::default() };
    let group = |heard: &Account, n: usize, rates: &[f64; 5]| Group {
        label: format!("{} {}", heard.name, n + 1),
        bars: KINDS.iter().zip(rates).map(|(kind, rate)| bar(kind, *rate)).collect(),
    };
    let groups =
        |heard: &Account| heard.rates.iter().enumerate().map(|(n, rates)| group(heard, n, rates)).collect::<Vec<_>>();
    let panel = |heard| Panel { title: String::new(), groups: groups(heard) };
    findings.figure = Figure {
        title: format!("What host {CUT} receives, second by second: its link fails and comes back"),
        axis: "Share of the samples wanted, in %".into(),
        logarithmic: false,
        panels: phases.iter().map(panel).collect(),
    };
    findings
}

/// Samples that did not arrive; NaN if none was published, which is no success.
fn missing<'a>(tallies: impl Iterator<Item = &'a Tally>) -> f64 {
    let (sent, lost) = tallies.fold((0, 0), |(sent, lost), tally| (sent + tally.sent(), lost + tally.lost()));
    if sent == 0 { f64::NAN } else { lost as f64 }
}

/// Samples by stream and phase.
fn counts(phases: &[Account; 4]) -> Table {
    let heads = ["", "before", "narrow", "outage", "after"];
    let mut table =
        Table::new("Samples that came / were published for the third host, by the phase of publication", &heads);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |phase: &Account| {
            let tally = &phase.tallies[n];
            format!("{} / {}", tally.sent() - tally.lost(), tally.sent())
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

/// Latencies by stream and phase.
fn table(phases: &[Account; 4]) -> Table {
    let mut table = Table::new("Latency p50 / p99 in ms", &["", "before", "narrow", "outage", "after"]);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |heard: &Account| {
            let middle = |figure: fn(&Distribution) -> f64| {
                let all: Vec<f64> = heard.tallies[n].each(figure).into_iter().filter(|us| us.is_finite()).collect();
                median(&all) / 1000.0
            };
            let (p50, p99) = (middle(|d| d.p50), middle(|d| d.p99));
            if p50.is_finite() { format!("{p50:.1} / {p99:.1}") } else { String::new() }
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

/// Jitter by stream and phase.
fn jitter(phases: &[Account; 4]) -> Table {
    let heads = ["", "before", "narrow", "outage", "after"];
    let mut table = Table::new("Largest interarrival jitter (RFC 3550) in ms", &heads);
    for (n, kind) in KINDS.iter().enumerate() {
        let of = |phase: &Account| {
            let ms = phase.jitter_us[n] / 1000.0;
            if ms.is_finite() { format!("{ms:.1}") } else { String::new() }
        };
        table.rows.push(std::iter::once(kind.name.to_owned()).chain(phases.iter().map(of)).collect());
    }
    table
}

fn notes() -> Vec<String> {
    let kinds = KINDS.iter().map(|kind| {
        format!(
            "{}: {} B at {} Hz, class {}, {}, threads fifo:{} at both ends",
            kind.name, kind.size, kind.hz, kind.class, kind.carrier, kind.fifo
        )
    });
    let mut notes: Vec<String> = kinds.collect();
    notes.extend([
        format!(
            "Each of {HOSTS} hosts sends all five and takes those of the two others; of video they take every 1st, 2nd and 5th \
             picture, the second host 100x75 of 200x150. Links have {} Mbit/s, classes by DSCP out of the switch.",
            RATE / 1_000_000
        ),
        format!("narrow: the switch's port to the third host has {} Mbit/s, less than it wants.", NARROW / 1_000_000),
        "outage: the switch's port to the third host is down. Streams by tcp repeat afterwards what was published meanwhile.".into(),
        "Cells are of the third host: what the publishers say that they published for it in each phase, of video every 5th picture, and what of that came, then or later.".into(),
    ]);
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stalls::{Stalls, Timed};

    /// 100 samples of each kind in each phase, of which these came.
    fn accounts(came: impl Fn(usize, usize) -> usize) -> [Account; 4] {
        [0, 1, 2, 3].map(|phase| {
            let tallies = [0, 1, 2, 3, 4].map(|kind| {
                let mut tally = Tally::default();
                tally.add(100, &vec![Timed { from_ns: 0, ns: 5_000_000 }; came(phase, kind)], &Stalls::default());
                tally
            });
            Account { name: "phase", tallies, rates: Vec::new(), jitter_us: [0.0; 5] }
        })
    }

    fn failed(came: impl Fn(usize, usize) -> usize) -> Vec<String> {
        let failed = judge(&accounts(came), &[100.0; 5]).checks.into_iter().filter(|check| !check.pass);
        failed.map(|check| check.name).collect()
    }

    #[test]
    fn audio_that_jitters_fails_while_the_link_is_whole_or_narrow() {
        for phase in 0..4 {
            let mut accounts = accounts(as_expected);
            accounts[phase].jitter_us = [20_001.0; 5];
            let failed: Vec<_> = judge(&accounts, &[100.0; 5]).checks.into_iter().filter(|check| !check.pass).collect();
            assert_eq!(failed.len(), usize::from(phase < 2), "{failed:?}");
        }
    }

    /// Video gives way on the narrow link, and datagrams are lost in the outage.
    fn as_expected(phase: usize, kind: usize) -> usize {
        match (phase, KINDS[kind].name, KINDS[kind].carrier) {
            (1, "video", _) => 30,
            (2, _, "udp") => 0,
            _ => 100,
        }
    }

    #[test]
    fn a_stream_that_goes_on_late_or_never_fails() {
        let failed = |resumed: [f64; 5]| -> Vec<String> {
            let checks = judge(&accounts(as_expected), &resumed).checks;
            checks.into_iter().filter(|check| !check.pass).map(|check| check.name).collect()
        };
        assert_eq!(failed([1000.0; 5]), Vec::<String>::new());
        let late = failed([1001.0; 5]);
        assert!(late.len() == 5 && late.iter().all(|name| name.contains("went on after the outage")), "{late:?}");
        let never = failed([100.0, 100.0, 100.0, 100.0, f64::INFINITY]);
        assert!(never.len() == 1 && never[0].starts_with("chat: "), "{never:?}");
    }

    #[test]
    fn nothing_lost_of_nothing_published_fails() {
        let nothing = [0, 1, 2, 3].map(|_| Account {
            name: "phase",
            tallies: Default::default(),
            rates: Vec::new(),
            jitter_us: [0.0; 5],
        });
        let checks = judge(&nothing, &[100.0; 5]).checks;
        let failed = checks.iter().filter(|check| check.name.ends_with(": lost") && !check.pass).count();
        assert_eq!(failed, KINDS.len() + 2, "before, and those by tcp in all phases: {checks:?}");
    }

    #[test]
    fn what_was_published_must_come_where_it_can() {
        assert_eq!(failed(as_expected), Vec::<String>::new());
        let before = failed(|phase, kind| as_expected(phase, kind) - usize::from(phase == 0 && kind == 2));
        assert_eq!(before, ["video before: lost"]);
        let narrow = failed(|phase, kind| if phase == 1 { 90 } else { as_expected(phase, kind) });
        assert_eq!(narrow.iter().filter(|name| name.contains("over the narrow link: share")).count(), 2, "{narrow:?}");
        let outage = failed(|phase, kind| if phase == 2 { 0 } else { as_expected(phase, kind) });
        assert_eq!(outage, ["whiteboard in all phases: lost", "chat in all phases: lost"]);
        assert!(failed(|_, _| 100).iter().any(|name| name.contains("gives way")));
    }
}
