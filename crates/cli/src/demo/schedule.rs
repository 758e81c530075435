//! The whole demo: both phases next to each other, as text, document and figure.

use super::report::{Channel, Summary};
use super::robot::URGENT;
use super::stage::{Stage, Step};
use crate::output::{micros, table};
use lab::results::{Bar, Figure, Group, Panel};
use serde::Serialize;
use serde_json::{Value, json};

/// One phase.
#[derive(Debug, Serialize)]
pub(super) struct Phase {
    /// `before` or `after` the priorities were set.
    pub phase: &'static str,
    /// Figures of the robot's channels.
    #[serde(flatten)]
    pub summary: Summary,
    /// Rate of the file transfer, where there is one.
    pub transfer_mbit_s: Option<f64>,
}

/// The phases and the steps between them.
pub(super) struct Schedule {
    /// The place of the robot.
    pub stage: &'static str,
    /// The reason why there is no narrow link, if so.
    pub because: Option<String>,
    /// Before, and after unless the demo was interrupted.
    pub phases: Vec<Phase>,
    /// Priorities that were set between the phases.
    pub steps: Vec<Step>,
}

const TITLES: [(&str, char); 10] = [
    ("topic", '<'),
    ("carrier", '<'),
    ("p50 before", '>'),
    ("after", '>'),
    ("p99 before", '>'),
    ("after", '>'),
    ("max before", '>'),
    ("after", '>'),
    ("lost before", '>'),
    ("after", '>'),
];

impl Schedule {
    /// The last phase, which is judged.
    fn last(&self) -> Option<&Summary> {
        self.phases.last().map(|phase| &phase.summary)
    }

    /// `true` if the user ended the demo early: it is shown, not judged.
    pub(super) fn interrupted(&self) -> bool {
        self.phases.iter().any(|phase| phase.summary.interrupted)
    }

    /// Promises that were not kept: a priority is set, and with it the urgent channel loses no sample, keeps its rate
    /// and has a lower latency than before. The other channels may suffer from the load.
    pub(super) fn failures(&self) -> Vec<String> {
        let [before, after] = self.phases.as_slice() else { return Vec::new() };
        let unset = (!self.steps.iter().any(|step| step.done))
            .then(|| format!("no priority was set: {}", steps(&self.steps).join("; ")));
        let lost_or_slow = urgent(after).and_then(Channel::failure);
        let times = urgent(before).zip(urgent(after)).map(|(b, a)| (b.latency_us.p99, a.latency_us.p99));
        let not_better = times.filter(|(before, after)| *before > 0.0 && after >= before).map(|(before, after)| {
            format!("{}: p99 {} before, {} after: the priority did not help", URGENT[0], micros(before), micros(after))
        });
        [unset, lost_or_slow, not_better].into_iter().flatten().collect()
    }

    /// The document of `--json`.
    pub(super) fn document(&self, figure: Option<&str>) -> Value {
        json!({
            "channels": self.last().map(|summary| summary.channels.as_slice()).unwrap_or_default(),
            "stage": self.stage, "because": self.because, "phases": self.phases, "set": self.steps,
            "interrupted": self.interrupted(), "pass": self.failures().is_empty(), "failures": self.failures(),
            "figure": figure,
        })
    }

    /// For people; the last line says how many samples arrived.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        if let [before, after] = self.phases.as_slice() {
            let rows = before.summary.channels.iter().zip(&after.summary.channels).map(|(b, a)| row(b, a));
            lines.push(table(&TITLES, &rows.collect::<Vec<_>>()));
            lines.extend(better(before, after));
        }
        if let Some(why) = &self.because {
            lines.push(format!(
                "as root, with iproute2, it shows the robot behind a 20 Mbit/s link with a file transfer beside it, and what \
                 `set` does there; here not, because {why}"
            ));
        }
        lines.extend(self.phases.iter().map(|phase| format!("{}: {}", phase.phase, phase.summary.verdict())));
        lines.join("\n")
    }

    /// Both phases as bars: the median, and the 99th percentile as a mark.
    pub(super) fn figure(&self, about: &str) -> Figure {
        let bar = |phase: &Phase, topic: &str| {
            let channel = phase.summary.channels.iter().find(|channel| channel.topic == topic)?;
            let (value, mark) = (channel.latency_us.p50, Some(channel.latency_us.p99));
            (value > 0.0).then(|| Bar { series: phase.phase.into(), value, deviation: 0.0, mark })
        };
        let topics = self.last().map(|summary| summary.channels.iter().map(|c| c.topic).collect::<Vec<_>>());
        let group = |topic: &str| {
            let bars = self.phases.iter().filter_map(|phase| bar(phase, topic)).collect();
            Group { label: topic.trim_start_matches("/robot/").into(), bars }
        };
        let groups = topics.unwrap_or_default().into_iter().map(group).collect();
        Figure {
            title: format!("thalweg demo: {about}"),
            axis: "Latency in µs, from publish to callback".into(),
            logarithmic: true,
            panels: vec![Panel { title: self.steps_that_were_done(), groups }],
        }
    }

    fn steps_that_were_done(&self) -> String {
        let done = self.steps.iter().filter(|step| step.done).map(|step| step.command.as_str());
        let done: Vec<&str> = done.collect();
        if done.is_empty() { "nothing was set".into() } else { format!("between them: {}", done.join("; ")) }
    }
}

/// One line per step: the action, or the reason why it was not done.
pub(super) fn steps(steps: &[Step]) -> Vec<String> {
    let said = |step: &Step| match step.done {
        true => {
            let effects = step.ends.iter().filter(|end| end.tos.is_some()).map(|end| {
                let yes = if end.effective { "yes" } else { "no" };
                format!("\n  {}: effective: {yes}, because {}", end.end, end.because)
            });
            format!("$ {}{}", step.command, effects.collect::<String>())
        }
        false => format!("$ {}\n  refused: {}", step.command, step.because),
    };
    steps.iter().map(said).collect()
}

/// The first line: a description of the load.
pub(super) fn opening(stage: &Stage, seconds: f64) -> String {
    format!("{}: {seconds} s without priorities, then {seconds} s with", stage.about())
}

fn row(before: &Channel, after: &Channel) -> Vec<String> {
    let times = |of: fn(&Channel) -> f64| [of(before), of(after)].map(micros);
    let latencies = [times(|c| c.latency_us.p50), times(|c| c.latency_us.p99), times(|c| c.latency_us.max)];
    let lost = [before.lost, after.lost].map(|lost| lost.to_string());
    let begin = [after.topic.to_owned(), after.carrier.clone()];
    begin.into_iter().chain(latencies.into_iter().flatten()).chain(lost).collect()
}

/// The channel that gets the priority.
fn urgent(phase: &Phase) -> Option<&Channel> {
    phase.summary.channels.iter().find(|channel| channel.publisher == URGENT[0])
}

fn better(before: &Phase, after: &Phase) -> Vec<String> {
    let late = |phase| urgent(phase).map(|c| (c.topic, c.latency_us.p99)).filter(|(_, p99)| *p99 > 0.0);
    let mut lines = Vec::new();
    if let (Some((topic, b)), Some((_, a))) = (late(before), late(after)) {
        let factor = if b >= a { format!("{:.1} times less", b / a) } else { format!("{:.1} times more", a / b) };
        lines.push(format!("{topic}: p99 {} before, {} after: {factor}", micros(b), micros(a)));
    }
    if let (Some(b), Some(a)) = (before.transfer_mbit_s, after.transfer_mbit_s) {
        lines.push(format!("file transfer: {b:.1} Mbit/s before, {a:.1} Mbit/s after"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::report::ChannelStates;
    use super::*;
    use std::time::Duration;

    fn schedule(phases: usize) -> Schedule {
        let phase = |phase| Phase {
            phase,
            summary: Summary::of(&ChannelStates::default(), Duration::from_secs(1), false),
            transfer_mbit_s: Some(18.0),
        };
        let phases = ["before", "after"].into_iter().take(phases).map(phase).collect();
        Schedule { stage: "link", because: None, phases, steps: Vec::new() }
    }

    #[test]
    fn the_document_has_the_channels_of_the_last_phase() {
        let document = schedule(2).document(None);
        assert_eq!(document["channels"].as_array().map(Vec::len), Some(4));
        assert_eq!(document["phases"][0]["phase"], "before");
        assert_eq!((&document["pass"], document["failures"].as_array().map(Vec::len)), (&json!(false), Some(2)));
        // Only the channel with a priority is judged.
        assert_eq!(schedule(1).document(None)["pass"], true);
    }

    #[test]
    fn a_priority_that_was_not_set_or_does_not_help_is_a_failure() {
        let set = |done| Step { command: "thalweg set".into(), done, because: "CAP_SYS_NICE".into(), ends: Vec::new() };
        let failures = |p99: [f64; 2], steps: Vec<Step>| {
            let mut schedule = Schedule { steps, ..schedule(2) };
            for (phase, p99) in schedule.phases.iter_mut().zip(p99) {
                for channel in &mut phase.summary.channels {
                    (channel.rate_hz, channel.latency_us.p99) = (channel.wanted_hz, p99);
                }
            }
            schedule.failures()
        };
        assert_eq!(failures([9000.0, 300.0], vec![set(false), set(true)]), Vec::<String>::new());
        assert!(failures([300.0, 300.0], vec![set(true)])[0].contains("did not help"));
        assert!(failures([9000.0, 300.0], vec![set(false)])[0].contains("no priority was set"));
        assert!(failures([9000.0, 300.0], Vec::new())[0].contains("no priority was set"));
    }

    #[test]
    fn both_phases_stand_next_to_each_other() {
        let text = schedule(2).text();
        assert!(text.contains("p99 before") && text.contains("/robot/command"), "{text}");
        assert!(text.ends_with("samples arrived, in 1.0 s"), "{text}");
        assert_eq!(schedule(2).figure("").panels[0].groups.len(), 4);
    }
}
