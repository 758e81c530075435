//! `thalweg play`: the samples of a recording at their times, or its figures beside others.
//!
//! | module | contents |
//! |---|---|
//! | [`check`] | the timing test |
//! | [`clock`] | `/clock`, the time of the recording |
//! | [`outlets`] | a publisher for each channel of the file |
//! | [`replay`] | samples as they are due, and the summary |

mod check;
mod clock;
mod outlets;
mod replay;

use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::participant::Common;
use crate::quantity;
use clap::Args;
use recording::read::Recording;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thalweg::control::matching::{absolute, check_name};

/// Publish the samples of a recording at their times, or compare its figures with a baseline or a plan
///
/// Samples go out under their topics, with their types, in the intervals at which they were published. If that cannot be kept up, all
/// topics slow down together, and the end says by how much. With --check nothing is published: exit code 1 if a topic became slower,
/// loses more, or breaks its bound, with the topic and the stage.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg play run.mcap\n         thalweg play monday/ '/camera/*' --rate 0.5 --from 10s --loop\n         thalweg play run.mcap --check baseline.mcap --tolerance 20%\n         thalweg play run.mcap --check plan.toml"
)]
pub(crate) struct Arguments {
    /// The recording: an MCAP file, by `thalweg record`, rosbag2 or others, with those that were split off it; or a directory of rosbag2
    #[arg(value_name = "FILE|DIRECTORY")]
    file: PathBuf,
    /// Further files (*.mcap) that are read with it as one recording; only these topics, or patterns of topics [default: all]
    #[arg(value_name = "FILE.mcap|TOPIC", value_parser = word)]
    words: Vec<Word>,
    /// Speed: 2 is twice as fast
    #[arg(short, long, value_name = "FACTOR", default_value = "1", value_parser = speed, allow_negative_numbers = true)]
    rate: f64,
    /// Begin so long after the first sample: 10, or 500ms
    #[arg(long, value_name = "SECONDS", value_parser = offset, alias = "start-offset", allow_negative_numbers = true)]
    from: Option<Duration>,
    /// End so long after the first sample: 20, or 1min
    #[arg(long, value_name = "SECONDS", value_parser = offset, allow_negative_numbers = true)]
    until: Option<Duration>,
    /// Begin again at the end, until Ctrl-C
    #[arg(short = 'l', long = "loop")]
    repeat: bool,
    /// Publish a topic under another name (repeatable): /camera=/old/camera
    #[arg(long, value_name = "TOPIC=TOPIC", value_parser = renamed)]
    remap: Vec<Renamed>,
    /// With the class and the QoS that the publishers had [default: class normal, and nothing is lost]
    #[arg(long)]
    as_recorded: bool,
    /// Publish the time of the recording on /clock, too (rosgraph_msgs/msg/Clock, 100 times a second)
    #[arg(long)]
    clock: bool,
    /// Compare with this recording (repeatable: with several runs of it), or with this plan (*.toml), and publish nothing
    #[arg(long, value_name = "BASELINE|PLAN", conflicts_with_all = ["rate", "from", "until", "repeat", "remap", "as_recorded", "clock"])]
    check: Vec<PathBuf>,
    /// The part by which a figure may be larger than the baseline's, or a rate than the plan's
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = percent, requires = "check")]
    tolerance: f64,
    /// Smaller changes of a median never count, nor five times as large ones of a 99th percentile
    #[arg(long, value_name = "DURATION", default_value = "100us", value_parser = quantity::duration, requires = "check")]
    floor: Duration,
    /// Topics that are published one by the callback of the other, besides the chains of the attached plan (repeatable): /pose,/path
    #[arg(long, value_name = "TOPIC,TOPIC…", value_parser = chain, requires = "check")]
    chain: Vec<Chain>,
    #[command(flatten)]
    common: Common,
}

/// A word behind the first file.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    File(PathBuf),
    Topic(String),
}

impl Arguments {
    /// The files of the recording.
    fn files(&self) -> Vec<PathBuf> {
        let further = self.words.iter().filter_map(|word| match word {
            Word::File(path) => Some(path),
            Word::Topic(_) => None,
        });
        std::iter::once(&self.file).chain(further).cloned().collect()
    }

    /// The name under which a topic is published.
    fn published_as<'a>(&'a self, topic: &'a str) -> &'a str {
        self.remap.iter().find(|renamed| renamed.from == topic).map_or(topic, |renamed| renamed.to.as_str())
    }

    /// The topics, or patterns of them; none: all.
    fn topics(&self) -> Vec<&str> {
        let topics = self.words.iter().filter_map(|word| match word {
            Word::File(_) => None,
            Word::Topic(topic) => Some(topic.as_str()),
        });
        topics.collect()
    }
}

/// A topic with another name.
#[derive(Clone, Debug, PartialEq)]
struct Renamed {
    from: String,
    to: String,
}

/// The topics of a chain.
#[derive(Clone, Debug)]
struct Chain(Vec<String>);

/// Replays or compares.
pub(crate) fn run(arguments: &Arguments) -> Result {
    let recording = open(&arguments.files())?;
    match arguments.check.is_empty() {
        true => replay::run(arguments, &recording),
        false => check::run(arguments, &recording),
    }
}

/// Opens a recording, with the files that were split off it if only one is named, and says which of them have no end or cannot be read.
pub(crate) fn open(files: &[PathBuf]) -> Result<Recording> {
    let opened = match files {
        [file] => Recording::open(file),
        files => Recording::open_all(files),
    };
    let recording = opened.map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    for file in recording.unfinished() {
        let text = "its summary is missing or damaged, as after a recorder that was killed: all samples that can be read are used";
        tell(&format!("{}: {text}", file.display()));
    }
    for unread in recording.unread() {
        tell(&format!("{unread}: left out"));
    }
    Ok(recording)
}

fn word(text: &str) -> std::result::Result<Word, Infallible> {
    let is_file = Path::new(text).extension().is_some_and(|end| end == "mcap");
    if is_file { Ok(Word::File(text.into())) } else { quantity::name(text).map(Word::Topic) }
}

/// `/old=/new`, or as ROS 2 writes it, `/old:=/new`.
fn renamed(text: &str) -> std::result::Result<Renamed, String> {
    let parts = text.split_once(":=").or_else(|| text.split_once('='));
    let (from, to) = parts.ok_or("two topics, such as /camera=/old/camera")?;
    check_name(&absolute(to)).map_err(|wrong| wrong.to_string())?;
    Ok(Renamed { from: absolute(from).into_owned(), to: absolute(to).into_owned() })
}

/// A number of seconds, or a duration with a unit.
fn offset(text: &str) -> std::result::Result<Duration, String> {
    let plain = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let offset = plain.or_else(|| qos::parse_duration(text).ok());
    offset.ok_or_else(|| "a number of seconds from 0 up, such as 20, or with a unit: 500ms".to_owned())
}

fn speed(text: &str) -> std::result::Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=1000.0).contains(factor));
    factor.ok_or_else(|| "a factor from 0.001 to 1000, such as 0.5".to_owned())
}

fn percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let number = number.filter(|number| (0.0..=10_000.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| "0% to 10000%, such as 20%".to_owned())
}

fn chain(text: &str) -> std::result::Result<Chain, String> {
    let topics: Vec<String> = text.split(',').map(|topic| topic.trim().to_owned()).collect();
    let sound = topics.len() > 1 && topics.iter().all(|topic| !topic.is_empty());
    sound.then_some(Chain(topics)).ok_or_else(|| "two topics or more, such as /pose,/path".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_invalid_ones_answered_with_the_allowed_ones() {
        assert_eq!((speed("0.5"), percent("20%"), percent("150 %")), (Ok(0.5), Ok(0.2), Ok(1.5)));
        assert_eq!(chain("/a, b").unwrap().0, ["/a", "b"]);
        let topic = |text: &str| Ok(Word::Topic(text.to_owned()));
        assert_eq!((word("a"), word("/b/*")), (topic("/a"), topic("/b/*")));
        let moved = Renamed { from: "/a".to_owned(), to: "/old/a".to_owned() };
        assert_eq!((renamed("/a=/old/a"), renamed("a:=/old/a")), (Ok(moved.clone()), Ok(moved)));
        assert_eq!((offset("0"), offset("2.5")), (Ok(Duration::ZERO), Ok(Duration::from_millis(2500))));
        assert_eq!(offset("1min"), Ok(Duration::from_secs(60)));
        assert_eq!(word("../run-2.mcap"), Ok(Word::File("../run-2.mcap".into())));
        assert!(["0", "-1", "NaN", "1e9", "fast"].iter().all(|bad| speed(bad).is_err()));
        assert!(["", "-1", "soon", "NaN"].iter().all(|bad| offset(bad).is_err()));
        assert!(["/a", "/a=", "/a=/b//c", "/a=/*"].iter().all(|bad| renamed(bad).is_err()));
        assert!(["20", "-1%", "NaN%", "%"].iter().all(|bad| percent(bad).is_err()));
        assert!(["", "/a", "/a,", ",/a"].iter().all(|bad| chain(bad).is_err()));
    }
}
