//! The state as text for Prometheus (exposition format 0.0.4).

use crate::top::{Row, Screen};
use crate::verify::show::Document;
use std::fmt::Write;
use thalweg::stages::Figures;

/// Channels in one answer. Each is a time series of every metric, and a collector that keeps millions of them fails.
const MOST_CHANNELS: usize = 2000;

/// All metrics.
pub(super) fn text(screen: &Screen, verification: Option<&Document>) -> String {
    let mut text = Text::default();
    let channels = &screen.channels[..screen.channels.len().min(MOST_CHANNELS)];
    let samples = "Samples of a channel, sent by the publisher's end or delivered at the subscriber's.";
    text.family("thalweg_channel_samples_total", "counter", samples);
    for row in channels {
        let ends = [("publisher", row.channel.sent), ("subscriber", row.channel.received)];
        for (end, value) in ends.into_iter().filter_map(|(end, value)| Some((end, value?))) {
            text.sample(&labels(row, &[("end", end)]), value as f64);
        }
    }
    text.family("thalweg_channel_bytes_total", "counter", "Payload bytes of a channel.");
    channels.iter().for_each(|row| text.sample(&labels(row, &[]), row.channel.bytes as f64));
    let lost = "Samples that did not arrive: dropped by the publisher's end, or lost on the way.";
    text.family("thalweg_channel_lost_total", "counter", lost);
    for row in channels {
        let places = [("publisher", row.channel.dropped), ("network", row.channel.lost)];
        for (place, value) in places.into_iter().filter_map(|(place, value)| Some((place, value?))) {
            text.sample(&labels(row, &[("where", place)]), value as f64);
        }
    }
    text.family("thalweg_channel_waiting", "gauge", "Samples that wait at either end.");
    channels.iter().for_each(|row| text.sample(&labels(row, &[]), row.channel.waiting as f64));
    if let Some(document) = verification {
        planned(&mut text, document);
    }
    text.family("thalweg_channels_left_out", "gauge", "Channels beyond the most that are told.");
    text.sample(&[], screen.channels.len().saturating_sub(MOST_CHANNELS) as f64);
    text.family("thalweg_nodes_silent", "gauge", "Nodes that did not answer.");
    text.sample(&[], screen.silent.len() as f64);
    text.0
}

fn planned(text: &mut Text, document: &Document) {
    let channels: Vec<_> = document.promises().take(MOST_CHANNELS).collect();
    let seconds = |us: Option<f64>| us.map(|us| us / 1e6);
    let latency = "Delays of samples since the dashboard began to look, from publish to the end of the callback.";
    text.family("thalweg_channel_latency_seconds", "summary", latency);
    for promise in &channels {
        promise.latency.iter().for_each(|figures| text.summary(&promise.labels(), figures));
    }
    text.family(
        "thalweg_channel_latency_max_seconds",
        "gauge",
        "The longest delay of a sample so far, from publish to the end of the callback.",
    );
    for promise in &channels {
        seconds(promise.worst_us).iter().for_each(|value| text.sample(&promise.labels(), *value));
    }
    text.family("thalweg_bound_seconds", "gauge", "The latest arrival by the plan.");
    for promise in &channels {
        seconds(promise.bound_us).iter().for_each(|value| text.sample(&promise.labels(), *value));
    }
    text.family("thalweg_channel_late_total", "counter", "Samples that were later than promised.");
    channels.iter().for_each(|promise| text.sample(&promise.labels(), promise.late as f64));
    text.family("thalweg_promise", "gauge", "1 for the state of a channel's promise at the last look.");
    for promise in &channels {
        for state in qos::verification::Verdict::ALL {
            let mut labels = promise.labels();
            let state = (state.to_string(), state == promise.now);
            labels.push(("state", &state.0));
            text.sample(&labels, f64::from(u8::from(state.1)));
        }
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

fn labels<'a>(row: &'a Row, more: &[(&'static str, &'a str)]) -> Labels<'a> {
    let channel = &row.channel;
    let mut labels = vec![
        ("topic", &channel.topic[..]),
        ("publisher", &channel.publisher),
        ("subscriber", &channel.subscriber),
        ("carrier", channel.carrier.as_str()),
    ];
    labels.extend(more);
    labels
}

/// The text, family by family.
#[derive(Default)]
struct Text(String, &'static str);

impl Text {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.1 = name;
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Quantiles, sum and number of times, in seconds.
    fn summary(&mut self, labels: &[(&'static str, &str)], times: &Figures) {
        for (quantile, us) in [("0.5", times.p50_us), ("0.99", times.p99_us)] {
            self.sample(&[labels, &[("quantile", quantile)]].concat(), us / 1e6);
        }
        let count = times.n as f64;
        self.part("_sum", labels, times.mean_us * count / 1e6);
        self.part("_count", labels, count);
    }

    fn sample(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.part("", labels, value);
    }

    /// A part of a family, whose name ends so.
    fn part(&mut self, end: &str, labels: &[(&'static str, &str)], value: f64) {
        let _ = write!(self.0, "{}{end}", self.1);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }
}

/// A label's value: backslash, quotation mark and line end are escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_quantiles_in_seconds_a_sum_and_a_count() {
        let mut text = Text::default();
        text.family("t_seconds", "summary", "Times.");
        let times = Figures { n: 4, mean_us: 2000.0, p50_us: 1500.0, p99_us: 5000.0, ..Figures::default() };
        text.summary(&[("topic", "/a")], &times);
        let expected = "# HELP t_seconds Times.\n# TYPE t_seconds summary\n\
                        t_seconds{topic=\"/a\",quantile=\"0.5\"} 0.0015\nt_seconds{topic=\"/a\",quantile=\"0.99\"} 0.005\n\
                        t_seconds_sum{topic=\"/a\"} 0.008\nt_seconds_count{topic=\"/a\"} 4\n";
        assert_eq!(text.0, expected);
    }

    #[test]
    fn each_family_is_told_before_its_samples_and_labels_are_escaped() {
        let screen = Screen { channels: vec![Row::of_test("/a\"b\\c", "/out", "/in")], silent: vec!["gone".into()] };
        let text = text(&screen, None);
        let sample = "thalweg_channel_samples_total{topic=\"/a\\\"b\\\\c\",publisher=\"/out\",subscriber=\"/in\",carrier=\"tcp\",end=\"publisher\"} 3\n";
        assert!(text.contains(sample), "{text}");
        assert!(text.contains("thalweg_nodes_silent 1\n") && text.ends_with('\n'));
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(typed) => family = typed.split(' ').next().unwrap(),
                None if line.starts_with("# HELP") => {}
                None => assert_eq!(line.split(['{', ' ']).next(), Some(family)),
            }
        }
    }
}
