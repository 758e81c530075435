//! `thalweg top`: all channels, live.

use crate::census::{self, Channel};
use crate::failure::Result;
use crate::output::{Live, bytes, table};
use crate::participant::{Common, Participant};
use crate::quantity;
use clap::Args;
use lab::statistics::rounded;
use serde::Serialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// All channels, live: rates, bytes, losses, what waits
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg top\n         thalweg top --count 2 --json")]
pub(crate) struct Arguments {
    /// Pause between two tables
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = quantity::seconds, allow_negative_numbers = true)]
    interval: Duration,
    /// End after this many tables [default: Ctrl-C ends it]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    common: Common,
}

/// A channel, with its activity since the last look.
#[derive(Serialize)]
pub(crate) struct Row {
    /// The channel.
    #[serde(flatten)]
    pub channel: Channel,
    sent_hz: Option<f64>,
    received_hz: Option<f64>,
    /// Payload bytes per second.
    pub bytes_per_s: f64,
}

/// All channels at one look.
#[derive(Serialize)]
pub(crate) struct Screen {
    /// The channels, sorted.
    pub channels: Vec<Row>,
    /// Names of nodes that did not answer.
    pub silent: Vec<String>,
}

/// Counters at the last look, from which rates are computed.
#[derive(Default)]
pub(crate) struct Rates(HashMap<(String, String, String), (Instant, Channel)>);

/// Shows tables until told to stop.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let mut participant = arguments.common.open("top")?;
    participant.settled();
    let mut rates = Rates::default();
    rates.look(&participant);
    let mut live = Live::default();
    let mut shown = 0;
    while arguments.count.is_none_or(|count| shown < count) {
        if !participant.stop.sleep_until(Instant::now() + arguments.interval) {
            break;
        }
        let screen = rates.look(&participant);
        match participant.output.json {
            true => participant.output.document(&screen)?,
            false => live.show(&screen.text())?,
        }
        shown += 1;
        participant.tell_events();
    }
    Ok(())
}

impl Rates {
    /// Asks all nodes.
    pub(crate) fn look(&mut self, participant: &Participant) -> Screen {
        let found = census::channels(participant, &participant.others());
        let now = Instant::now();
        let mut after = HashMap::new();
        let rows = found.channels.into_iter().map(|channel| {
            let key = (channel.topic.clone(), channel.publisher.clone(), channel.subscriber.clone());
            let row = Row::since(self.0.get(&key), now, channel.clone());
            after.insert(key, (now, channel));
            row
        });
        let channels = rows.collect();
        self.0 = after;
        Screen { channels, silent: found.silent }
    }
}

impl Row {
    fn since(before: Option<&(Instant, Channel)>, now: Instant, channel: Channel) -> Self {
        // A counter that went back belongs to another channel between the same ports.
        let rate = |new: u64, old: u64, since: Instant| {
            rounded(new.saturating_sub(old) as f64 / now.duration_since(since).as_secs_f64().max(1e-9), 1)
        };
        let hz = |of: fn(&Channel) -> Option<u64>| {
            let (since, old) = before?;
            Some(rate(of(&channel)?, of(old)?, *since))
        };
        let bytes_per_s = before.map_or(0.0, |(since, old)| rate(channel.bytes, old.bytes, *since));
        Self { sent_hz: hz(|c| c.sent), received_hz: hz(|c| c.received), bytes_per_s, channel }
    }

    /// A channel that has sent three samples.
    #[cfg(test)]
    pub(crate) fn of_test(topic: &str, publisher: &str, subscriber: &str) -> Self {
        let channel = Channel::sent_of_test(topic, publisher, subscriber);
        Self { channel, sent_hz: None, received_hz: None, bytes_per_s: 0.0 }
    }

    fn cells(&self) -> Vec<String> {
        let hz = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.1}"));
        let count = |value: Option<u64>| value.map_or("-".to_owned(), |v| v.to_string());
        let c = &self.channel;
        vec![
            c.topic.clone(),
            c.publisher.clone(),
            c.subscriber.clone(),
            c.carrier.to_string(),
            hz(self.sent_hz),
            hz(self.received_hz),
            format!("{}/s", bytes(self.bytes_per_s)),
            count(c.dropped),
            count(c.lost),
            c.waiting.to_string(),
        ]
    }
}

impl Screen {
    fn text(&self) -> String {
        let headers = [
            ("topic", '<'),
            ("publisher", '<'),
            ("subscriber", '<'),
            ("carrier", '<'),
            ("sent Hz", '>'),
            ("received Hz", '>'),
            ("bytes", '>'),
            ("dropped", '>'),
            ("lost", '>'),
            ("waiting", '>'),
        ];
        let rows: Vec<_> = self.channels.iter().map(Row::cells).collect();
        let mut text = if rows.is_empty() { "no channels".to_owned() } else { table(&headers, &rows) };
        if !self.silent.is_empty() {
            text.push_str(&format!("\nno answer from {}", self.silent.join(", ")));
        }
        text
    }
}
