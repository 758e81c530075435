//! `thalweg info FILE.mcap`: the contents of a recording. All of it is read, so that files without an index are told as exactly as others.

use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, table, tell};
use crate::play;
use lab::statistics::rounded;
use recording::file::{LOSSES, Loss, SETTINGS};
use recording::read::{CONTRACT, Channel, Message, PLAN, Recording};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// `true` if this names a recording: a file `*.mcap`, or a directory with a `/` at its end, which no port's name has.
pub(super) fn is_recording(what: &str) -> bool {
    what.ends_with('/') || Path::new(what).extension().is_some_and(|end| end == "mcap")
}

/// Reads a recording, and shows what is in it.
pub(super) fn show(output: Output, path: &Path) -> Result {
    let contents = Contents::read(&play::open(&[path.to_owned()])?)?;
    output.result(&contents, || contents.text())
}

/// The document of `--json`.
#[derive(Serialize)]
struct Contents {
    kind: &'static str,
    files: Vec<PathBuf>,
    profile: String,
    /// When the first and the last sample were received, nanoseconds since 1970.
    received_ns: Option<(u64, u64)>,
    samples: u64,
    attachments: Vec<&'static str>,
    channels: Vec<Row>,
}

/// A channel of the recording.
#[derive(Serialize)]
struct Row {
    topic: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    publisher: String,
    samples: u64,
    bytes: u64,
    rate_hz: Option<f64>,
    lost: u64,
    #[serde(skip)]
    received_ns: Option<(u64, u64)>,
}

impl Contents {
    fn read(recording: &Recording) -> Result<Self> {
        let described = recording.channels().filter(|channel| !channel.is_own());
        let mut rows: BTreeMap<u16, Row> = described.map(|channel| (channel.id, Row::of(channel))).collect();
        for item in recording.messages().map_err(|wrong| Failure::Usage(wrong.to_string()))? {
            match item {
                Ok(message) if message.channel.topic == LOSSES => note_loss(&mut rows, &message),
                Ok(message) => rows.get_mut(&message.channel.id).into_iter().for_each(|row| row.take(&message)),
                Err(damage) => tell(&damage.to_string()),
            }
        }
        let mut channels: Vec<Row> = rows.into_values().collect();
        channels.iter_mut().for_each(|row| row.rate_hz = row.rate());
        channels.sort_by(|one, other| (&one.topic, &one.publisher).cmp(&(&other.topic, &other.publisher)));
        let spans = || channels.iter().filter_map(|row| row.received_ns);
        Ok(Self {
            kind: "recording",
            files: recording.paths().map(Path::to_owned).collect(),
            profile: recording.profile().to_owned(),
            received_ns: spans().map(|(first, _)| first).min().zip(spans().map(|(_, last)| last).max()),
            samples: channels.iter().map(|row| row.samples).sum(),
            attachments: [CONTRACT, PLAN, SETTINGS]
                .into_iter()
                .filter(|name| recording.attachment(name).is_some())
                .collect(),
            channels,
        })
    }

    fn text(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let (first_ns, last_ns) = self.received_ns.unwrap_or((0, 0));
        let lines = [
            ("files", files.join(" ")),
            ("profile", self.profile.clone()),
            ("begin", format!("{:.3} s since 1970", first_ns as f64 / 1e9)),
            ("duration", format!("{:.3} s", last_ns.saturating_sub(first_ns) as f64 / 1e9)),
            ("samples", self.samples.to_string()),
            ("attachments", self.attachments.join(" ")),
        ];
        let lines = lines.map(|(key, value)| format!("{key:<12} {value}").trim_end().to_owned()).join("\n");
        let headers = [
            ("topic", '<'),
            ("type", '<'),
            ("publisher", '<'),
            ("samples", '>'),
            ("rate", '>'),
            ("size", '>'),
            ("lost", '>'),
        ];
        format!("{lines}\n\n{}", table(&headers, &self.channels.iter().map(Row::cells).collect::<Vec<_>>()))
    }
}

/// Counts a loss at the channel of its publisher.
fn note_loss(rows: &mut BTreeMap<u16, Row>, message: &Message) {
    let Ok(loss) = serde_json::from_slice::<Loss>(&message.data) else { return };
    let mut rows = rows.values_mut();
    if let Some(row) = rows.find(|row| (&row.topic, &row.publisher) == (&loss.topic, &loss.publisher)) {
        row.lost = row.lost.saturating_add(loss.count);
    }
}

impl Row {
    fn of(channel: &Channel) -> Self {
        Self {
            topic: channel.topic.clone(),
            kind: channel.schema.as_ref().map(|schema| schema.name.clone()),
            publisher: channel.publisher().to_owned(),
            samples: 0,
            bytes: 0,
            rate_hz: None,
            lost: 0,
            received_ns: None,
        }
    }

    fn take(&mut self, message: &Message) {
        self.samples += 1;
        self.bytes += message.data.len() as u64;
        let (first, last) = self.received_ns.unwrap_or((message.log_ns, message.log_ns));
        self.received_ns = Some((first.min(message.log_ns), last.max(message.log_ns)));
    }

    /// Samples per second between the first and the last one.
    fn rate(&self) -> Option<f64> {
        let (first, last) = self.received_ns.filter(|(first, last)| last > first)?;
        Some(rounded(self.samples.saturating_sub(1) as f64 * 1e9 / (last - first) as f64, 2))
    }

    fn cells(&self) -> Vec<String> {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        vec![
            self.topic.clone(),
            or_dash(self.kind.as_deref().unwrap_or_default()),
            or_dash(&self.publisher),
            self.samples.to_string(),
            self.rate_hz.map_or("-".to_owned(), |hz| format!("{hz:.2} Hz")),
            bytes(self.bytes as f64),
            self.lost.to_string(),
        ]
    }
}
