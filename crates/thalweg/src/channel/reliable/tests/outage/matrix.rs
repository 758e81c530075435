//! Outage × rate × carrier × reliability × queue: the time until samples come again, and the missing samples.

use super::*;
use std::fmt;

const OUTAGES_MS: [u64; 8] = [100, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000];
const RATES_HZ: [u64; 4] = [10, 100, 1000, 10_000];
/// The most messages of a run. Longer runs take seconds each without optimisation; THALWEG_TEST_LONG includes them.
const MOST_MESSAGES: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Reliable,
    Deadline,
    BestEffort,
}

/// A flow, and the effect of its outage on members that were cut off.
struct Cell {
    flow: Flow,
    outage: u64,
    back: u64,
    missing: u64,
}

impl Flow {
    fn asking(self, asked: Asked, keeps_last: bool) -> Self {
        let deadline_ns = (asked == Asked::Deadline).then(|| (50 * MS).max(2 * self.period()));
        let window = if keeps_last { 16 } else { 256 };
        Self { reliable: asked != Asked::BestEffort, deadline_ns, window, drops_oldest: keeps_last, ..self }
    }

    /// The most messages that are published in this time.
    fn within(&self, ns: u64) -> u64 {
        ns.div_ceil(self.period())
    }

    /// The most messages that may be missing after an outage: those that the queue does not keep, or that are too old.
    fn may_miss(&self, outage: u64, back: u64) -> u64 {
        let (round_trip, back) = (2 * DELAY_NS, outage + back);
        match (self.reliable, self.deadline_ns) {
            (false, _) => self.within(outage + round_trip),
            (true, Some(deadline)) => self.within(back + deadline + round_trip),
            (true, None) if self.drops_oldest => {
                // The messages that the queue still has when a member asks.
                let kept = (self.window as u64).saturating_sub(self.within(back - outage + 5 * round_trip));
                self.within(back + 5 * round_trip).saturating_sub(kept)
            }
            (true, None) if self.members == 1 => 0,
            // A member that is silent for half a second does not hold up the others: the oldest message is given up for the newest.
            (true, None) => self.within(back + round_trip).saturating_sub(self.window as u64 / 2),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms, {}", self.back as f64 / MS as f64, self.missing)
    }
}

fn cell(flow: Flow, outage: u64) -> Cell {
    let what = format!("{outage} ns, {flow:?}");
    let (down, after) = ((10 * flow.period()).max(100 * MS), (10 * flow.period()).max(300 * MS));
    let up = down + outage;
    let mut field = Field::new(flow);
    field.until(down, true);
    field.cut(true);
    field.until(up, true);
    field.cut(false);
    field.until(up + after, true);
    let settled: Vec<u64> = field.subscribers.iter().map(Subscriber::missed).collect();
    field.until(up + after + 500 * MS, true);
    field.until(up + after + 1500 * MS, false);
    let sent = field.published - field.refused;
    let (mut back, mut missing) = (0, 0);
    for (index, subscriber) in field.subscribers.iter().enumerate() {
        let missed = subscriber.missed();
        assert_eq!(subscriber.delivered.len() as u64 + missed, sent, "all are accounted for: {what}");
        assert_eq!(missed, settled[index], "it goes on losing: {what}");
        assert!(subscriber.delivered.is_sorted_by(|a, b| a.0 < b.0), "{what}");
        if index >= flow.cut {
            assert_eq!(missed, 0, "one that was not cut: {what}");
            continue;
        }
        let returned = subscriber.back_at(up).unwrap_or_else(|| panic!("it never comes back: {what}")) - up;
        (back, missing) = (back.max(returned), missing.max(missed));
        let oldest = subscriber.delivered.iter().map(|(sample, at)| at - sample * flow.period()).max();
        let limit = flow.deadline_ns.map_or(u64::MAX, |deadline| deadline + 5 * DELAY_NS);
        assert!(oldest <= Some(limit), "a sample of {} ms came: {what}", oldest.unwrap() / MS);
    }
    // Samples that are published rarely come no sooner.
    assert!(back <= BACK_NS.max(flow.period() + DELAY_NS), "back after {} ms: {what}", back / MS);
    assert!(missing <= flow.may_miss(outage, back), "{missing} are missing, {}: {what}", flow.may_miss(outage, back));
    if flow.reliable {
        let skipped: u64 = field.subscribers.iter().map(|s| s.receiver.counters().skipped).sum();
        assert_eq!((field.sender.counters().skipped, field.sender.unacknowledged()), (skipped, 0), "{what}");
    }
    Cell { flow, outage, back, missing }
}

impl Subscriber {
    /// The count of its channel.
    fn missed(&self) -> u64 {
        self.accept.counters().lost
    }
}

/// Prints the table of one carrier.
fn matrix(carrier: &str, members: usize, cut: usize) {
    let long = std::env::var_os("THALWEG_TEST_LONG").is_some();
    let ways = [
        ("reliable, keep-last 16", Asked::Reliable, true),
        ("reliable, keep-all 256", Asked::Reliable, false),
        ("deadline, keep-last 16", Asked::Deadline, true),
        ("deadline, keep-all 256", Asked::Deadline, false),
        ("best effort", Asked::BestEffort, true),
    ];
    println!("{carrier}: after how long samples come again, and how many are missing");
    println!("| outage | rate | {} |", ways.map(|(name, ..)| name).join(" | "));
    println!("|---|---|{}", "---|".repeat(ways.len()));
    for hz in RATES_HZ {
        for outage in OUTAGES_MS.into_iter().filter(|ms| long || ms * hz / 1000 <= MOST_MESSAGES) {
            let plain = Flow { hz, members, cut, ..KILOHERTZ };
            let cells = ways.map(|(_, asked, keeps_last)| cell(plain.asking(asked, keeps_last), outage * MS));
            let Cell { outage, flow, .. } = cells[0];
            let cells = cells.map(|cell| cell.to_string()).join(" | ");
            println!("| {:.1} s | {} Hz | {cells} |", outage as f64 / 1e9, flow.hz);
        }
    }
}

#[test]
fn every_outage_of_a_channel() {
    matrix("udp", 1, 1);
}

#[test]
fn every_outage_of_one_member_of_a_group() {
    matrix("mcast, one of three members", 3, 1);
}

#[test]
fn every_outage_of_a_whole_group() {
    matrix("mcast, all three members", 3, 3);
}
