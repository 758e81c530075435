//! Figures of the tools: `thalweg record`, `play` and `dashboard`, each as users start it, beside programs that publish and listen.
//!
//! | module | contents |
//! |---|---|
//! | `dashboard` | the cost of the page for a channel, and its own |
//! | `others` | the other processes: tools, and parts of the measurement |
//! | `part` | a program that publishes, listens, reacts, or is a crowd |
//! | `recording` | rate, losses and cost of the recorder |
//! | `replay` | intervals of a replay, and the timing test |
//! | `report` | figures, checks, and the verdict |

pub(super) mod dashboard;
mod others;
pub(super) mod part;
pub(super) mod recording;
pub(super) mod replay;
mod report;

use super::Error;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of the figures of tools.
#[derive(Args, Clone, Debug)]
pub(super) struct ToolOptions {
    /// Measurements of each side, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The time of one measurement, such as 20s [default: recording 60s, the others 10s; with --quick 5s, and 2s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// A folder for recordings, which are removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// One short round that checks that everything runs; times are not judged, but counts are
    #[arg(long)]
    quick: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Bytes per second that are enough for a recording, instead of 500 MB
    #[arg(long, hide = true)]
    rate: Option<f64>,
    /// Break what is measured, to show that it is found
    #[arg(long, hide = true)]
    broken: bool,
}

impl ToolOptions {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    fn time(&self, whole: u64, quick: u64) -> Duration {
        self.time.unwrap_or(Duration::from_secs(if self.quick { quick } else { whole }))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let time = qos::parse_duration(text).map_err(|wrong| wrong.to_string())?;
    let allowed = (Duration::from_millis(500)..=Duration::from_secs(3600)).contains(&time);
    allowed.then_some(time).ok_or_else(|| "500ms to 1h (ms s min h)".to_owned())
}

/// A folder for the files of a measurement, which is removed with them.
struct Folder(PathBuf);

impl Folder {
    fn new(below: &Path) -> Result<Self, Error> {
        let path = below.join(format!("thalweg-bench-{}", std::process::id()));
        let refused =
            |wrong| Error::System(format!("cannot make {}: {wrong}; name another folder with --dir", path.display()));
        std::fs::create_dir(&path).map_err(refused)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
