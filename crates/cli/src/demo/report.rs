//! Reports: the lines of a part, the table, the summary.

use super::robot::{Content, LINES, Line};
use crate::output::{bytes, micros, table};
use lab::statistics::{Percentiles, rounded};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A line that a part writes to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(super) enum PartReport {
    /// All ports of the part are open and connected.
    Ready,
    /// Samples published so far.
    Sent {
        /// The topic.
        topic: String,
        /// Samples.
        sent: u64,
        /// All samples are sent, and none waits.
        finished: bool,
    },
    /// Samples received so far.
    Received(Received),
}

/// Samples that a subscriber received so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Received {
    /// The topic.
    pub topic: String,
    /// Samples.
    pub received: u64,
    /// The highest sequence number.
    pub last_seq: u64,
    /// Time from the first to the last sample.
    pub span_ns: u64,
    /// The carrier that was picked.
    pub carrier: String,
    /// Latency of all samples.
    pub latency_us: Option<Percentiles>,
}

/// The state of one channel.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelState {
    /// Samples that were published.
    pub sent: u64,
    /// The publisher has ended.
    pub finished: bool,
    /// The subscriber's last report.
    pub received: Received,
    /// Rate of the last period.
    rate_hz: f64,
}

/// The state of all channels.
#[derive(Debug, Default)]
pub(super) struct ChannelStates(BTreeMap<String, ChannelState>);

impl ChannelStates {
    /// Records a report of a part.
    pub(super) fn note(&mut self, say: PartReport) {
        match say {
            PartReport::Ready => {}
            PartReport::Sent { topic, sent, finished } => {
                let score = self.0.entry(topic).or_default();
                (score.sent, score.finished) = (sent, finished);
            }
            PartReport::Received(received) => self.0.entry(received.topic.clone()).or_default().note(received),
        }
    }

    /// The state of a channel.
    pub(super) fn score(&self, line: &Line) -> ChannelState {
        self.0.get(line.topic).cloned().unwrap_or_default()
    }

    /// `true` if every publisher has ended.
    pub(super) fn is_finished(&self) -> bool {
        LINES.iter().all(|line| self.score(line).finished)
    }

    /// Samples that were received on all channels.
    pub(super) fn received(&self) -> u64 {
        self.0.values().map(|score| score.received.received).sum()
    }

    /// `true` if all published samples have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.is_finished() && self.0.values().all(|score| score.received.received >= score.sent)
    }

    /// The table while the robot runs. The rate is that of the last period; losses are gaps in the sequence numbers.
    pub(super) fn table(&self) -> String {
        let row = |line: &Line| {
            let score = self.score(line);
            let lost = score.received.last_seq.saturating_sub(score.received.received);
            cells(line, &score.received, score.rate_hz, lost)
        };
        table(&HEADERS, &LINES.iter().map(row).collect::<Vec<_>>())
    }
}

impl ChannelState {
    fn note(&mut self, received: Received) {
        let span = received.span_ns.saturating_sub(self.received.span_ns);
        if span > 0 {
            self.rate_hz =
                (received.received - self.received.received.min(received.received)) as f64 * 1e9 / span as f64;
        }
        self.received = received;
    }
}

/// The most important columns come first: a narrow terminal cuts the rest.
const HEADERS: [(&str, char); 11] = [
    ("topic", '<'),
    ("carrier", '<'),
    ("rate Hz", '>'),
    ("wanted", '>'),
    ("p50", '>'),
    ("p99", '>'),
    ("max", '>'),
    ("lost", '>'),
    ("size", '>'),
    ("from", '<'),
    ("to", '<'),
];

fn cells(line: &Line, received: &Received, rate: f64, lost: u64) -> Vec<String> {
    let latency = |of: fn(&Percentiles) -> f64| received.latency_us.as_ref().map_or("-".to_owned(), |l| micros(of(l)));
    vec![
        line.topic.to_owned(),
        received.carrier.clone(),
        format!("{rate:.1}"),
        format!("{:.0}", line.hz),
        latency(|l| l.p50),
        latency(|l| l.p99),
        latency(|l| l.max),
        lost.to_string(),
        bytes(line.size() as f64),
        line.from.to_owned(),
        line.to.to_owned(),
    ]
}

impl Line {
    /// Bytes of the values, before encoding.
    pub(super) fn size(&self) -> usize {
        match self.content {
            Content::Imu => 96,
            Content::Command => 56,
            Content::Bytes(size) => size,
        }
    }
}

/// One channel in the summary.
#[derive(Debug, Serialize)]
pub(super) struct Channel {
    /// The topic.
    pub topic: &'static str,
    /// The publishing port.
    pub publisher: &'static str,
    subscriber: &'static str,
    /// The carrier that was picked.
    pub carrier: String,
    size: usize,
    pub rate_hz: f64,
    pub wanted_hz: f64,
    /// Time from `publish` to the callback.
    pub latency_us: Percentiles,
    sent: u64,
    received: u64,
    /// Samples that did not arrive.
    pub lost: u64,
}

/// One phase.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// All channels of the robot.
    pub channels: Vec<Channel>,
    seconds: f64,
    /// The user ended the phase early: rates and losses are shown, not judged.
    pub interrupted: bool,
    /// Every sample arrived, and every channel kept its rate.
    pub pass: bool,
    /// Promises that were not kept.
    pub failures: Vec<String>,
    #[serde(skip)]
    rows: Vec<Vec<String>>,
}

/// Fraction of its rate that a channel must keep: the machine may be busy with other things.
const RATE_KEPT: f64 = 0.9;

impl Summary {
    /// The summary of the states of all channels after everything was sent and received.
    pub(super) fn of(board: &ChannelStates, ran: Duration, interrupted: bool) -> Self {
        let channels: Vec<Channel> = LINES.iter().map(|line| Channel::of(line, board.score(line))).collect();
        let failures: Vec<String> = channels.iter().filter_map(Channel::failure).collect();
        let row = |(line, channel): (&Line, &Channel)| {
            cells(line, &board.score(line).received, channel.rate_hz, channel.lost)
        };
        let rows = LINES.iter().zip(&channels).map(row).collect();
        let seconds = rounded(ran.as_secs_f64(), 3);
        Self { pass: failures.is_empty(), channels, seconds, interrupted, failures, rows }
    }

    /// The table of the whole run.
    pub(super) fn table(&self) -> String {
        table(&HEADERS, &self.rows)
    }

    /// The verdict.
    pub(super) fn verdict(&self) -> String {
        let (sent, received) = self.channels.iter().fold((0, 0), |(s, r), c| (s + c.sent, r + c.received));
        let when = if self.interrupted { "interrupted after" } else { "in" };
        format!("{received} of {sent} samples arrived, {when} {:.1} s", self.seconds)
    }
}

impl Channel {
    fn of(line: &Line, score: ChannelState) -> Self {
        let ChannelState { sent, received: Received { received, span_ns, carrier, latency_us, .. }, .. } = score;
        let rate = if span_ns > 0 { received.saturating_sub(1) as f64 * 1e9 / span_ns as f64 } else { 0.0 };
        Self {
            topic: line.topic,
            publisher: line.publisher,
            subscriber: line.subscriber,
            carrier,
            size: line.size(),
            rate_hz: rounded(rate, 2),
            wanted_hz: line.hz,
            latency_us: latency_us.unwrap_or_default(),
            sent,
            received,
            lost: sent.saturating_sub(received),
        }
    }

    /// The reason of a failure, if there was one.
    pub(super) fn failure(&self) -> Option<String> {
        let Channel { topic, rate_hz, wanted_hz, .. } = self;
        if self.lost > 0 {
            Some(format!("{topic} lost {} of {} samples", self.lost, self.sent))
        } else if *rate_hz < wanted_hz * RATE_KEPT {
            Some(format!("{topic} ran at {rate_hz:.1} Hz, not at {wanted_hz:.0} Hz: is this machine busy?"))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(lost: u64) -> ChannelStates {
        let mut board = ChannelStates::default();
        for line in &LINES {
            let sent = line.hz as u64 + 1;
            board.note(PartReport::Sent { topic: line.topic.into(), sent, finished: true });
            let received = sent - lost;
            let (topic, span_ns) = (line.topic.to_owned(), 1_000_000_000);
            board.note(PartReport::Received(Received {
                topic,
                received,
                last_seq: sent,
                span_ns,
                ..Received::default()
            }));
        }
        board
    }

    #[test]
    fn a_run_passes_when_all_arrived_at_the_wanted_rate() {
        let summary = Summary::of(&board(0), Duration::from_secs(1), false);
        assert!(summary.pass, "{:?}", summary.failures);
        assert!(board(0).is_complete() && !board(1).is_complete());
        assert!(board(0).table().contains("921.6 kB"));
    }

    #[test]
    fn losses_and_low_rates_are_failures() {
        let failures = Summary::of(&board(1), Duration::from_secs(1), false).failures;
        assert_eq!(failures.len(), 4);
        assert!(failures[0].contains("/robot/imu lost 1 of 1001 samples"));
        assert_eq!(Summary::of(&ChannelStates::default(), Duration::from_secs(1), false).failures.len(), 4);
    }
}
