//! The laboratory of one run: its options, its folder, its names, and the program that plays its parts.

use crate::error::{Error, Result};
use crate::iproute::ip;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A request to stop: set through a flag (by a signal handler), checked between steps.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked by setting this flag.
    pub fn by(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// `true` once it was made.
    pub fn asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Checks that there is no request to stop.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn check(&self) -> Result {
        if self.asked() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Sleeps for this long, unless asked to stop.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn sleep(&self, time: Duration) -> Result {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

/// The numbers of cells, repetitions and samples of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Shape without meaning: the least samples and repetitions that fill a document, for tests.
    Tiny,
    /// Seconds: only the checks that this size can hold are judged.
    Ci,
    /// Minutes: fewer cells and repetitions.
    Quick,
    /// Tens of minutes: the cells of the paper.
    #[default]
    Whole,
}

/// A feature that a run can leave out. Its checks must fail then (docs/lab.md, "The gate").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feature {
    /// Marks of packets: a channel of a priority sends unmarked ones.
    Marks,
    /// Policies of threads: a channel of a priority has ordinary ones.
    Threads,
    /// Thinning by proxies: they pass every sample on.
    Proxies,
}

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The numbers of cells, repetitions and samples.
    pub size: Size,
    /// A feature that is left out, to see which checks find that.
    pub without: Option<Feature>,
    /// Policies and priorities of the ports of `rt-conference`, in place of its own.
    pub profile: Option<PathBuf>,
    /// Text in the names of the attacks that an experiment of many is limited to.
    pub only: Option<String>,
    /// Beginnings of the names of parts that may be skipped. Any other skipped part is a failure.
    pub allow_skips: Vec<String>,
    /// Seed of everything random. The same seed gives the same order of runs and the same send times.
    pub seed: u64,
}

/// The program that plays a part: it must call [`crate::run::play`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments; the role is added, for readers of the list of processes.
    pub arguments: Vec<String>,
}

impl Program {
    /// This very program with other arguments.
    ///
    /// # Errors
    /// [`Error::System`] when its path is not known.
    pub fn this(arguments: &[&str]) -> Result<Self> {
        let path = std::env::current_exe().map_err(|e| Error::system("/proc/self/exe", &e, "mount /proc"))?;
        Ok(Self { path, arguments: arguments.iter().map(|a| (*a).to_owned()).collect() })
    }
}

/// The laboratory of one run.
pub struct Lab {
    /// The options.
    pub options: Options,
    /// The request to stop.
    pub stop: Stop,
    /// The program that plays the parts of the experiment.
    pub program: Program,
    mark: Mark,
    folder: PathBuf,
    tell: Box<dyn Fn(&str) + Sync>,
}

impl Lab {
    /// Opens the lab: removes leftovers of killed runs, and makes a folder for this run.
    ///
    /// # Errors
    /// [`Error::System`] when the folder cannot be made.
    pub fn open(options: Options, stop: Stop, program: Program, tell: impl Fn(&str) + Sync + 'static) -> Result<Self> {
        sweep();
        let mark = Mark::of_this_process()?;
        let folder = temporary().join(mark.name("run"));
        std::fs::create_dir(&folder)
            .map_err(|e| Error::system(&folder.display().to_string(), &e, "set TMPDIR to a folder you may write to"))?;
        Ok(Self { options, stop, program, mark, folder, tell: Box::new(tell) })
    }

    /// A folder that goes with the run: sockets and address files of the parts.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A name that nothing else has, for a namespace.
    pub fn name(&self, what: &str) -> String {
        self.mark.name(what)
    }

    /// Reports progress to people.
    pub fn tell(&self, text: &str) {
        (self.tell)(text);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the runs' folders: TMPDIR, else in memory. ext4 looks past each file that was removed in the last half minute when it
/// makes one: the 500 nodes of a run opened in 0.4 s, and in 2.4 s once three such runs were over.
fn temporary() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if std::env::var_os("TMPDIR").is_none() && memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}

const PREFIX: &str = "thalweg-lab";

/// Prefix of all names of one run: the process id and its start time (ids are used again).
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Mark {
    /// The mark of this process.
    ///
    /// # Errors
    /// [`Error::System`] without a readable `/proc`.
    pub fn of_this_process() -> Result<Self> {
        let me = std::process::id();
        let started = started(me).ok_or_else(|| Error::System("/proc/self/stat cannot be read; mount /proc".into()))?;
        Ok(Self(format!("{PREFIX}-{me}-{started}")))
    }

    /// A unique name for `what`.
    pub fn name(&self, what: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("{}-{}-{what}", self.0, COUNT.fetch_add(1, Relaxed))
    }
}

/// Start time of a process, in clock ticks since boot; `None`: there is no such process.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold spaces and parentheses; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// `true` for a name of the laboratory's whose run is over.
fn is_left_over(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let mut numbers = rest.split('-').map(str::parse::<u64>);
    let (Some(Ok(process)), Some(Ok(since))) = (numbers.next(), numbers.next()) else { return false };
    u32::try_from(process).ok().and_then(started) != Some(since)
}

fn left_over_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|name| is_left_over(name)).collect()
}

/// Removes leftovers of killed runs: their namespaces, with their contents, and their folders. Returns their number.
pub fn sweep() -> usize {
    let namespaces = left_over_in(Path::new(linux::namespace::FOLDER));
    let gone = namespaces.iter().filter(|name| ip(&["netns", "delete", name]).is_ok()).count();
    let temporary = temporary();
    let folders = left_over_in(&temporary);
    gone + folders.iter().filter(|name| fs::remove_dir_all(temporary.join(name)).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_runs_that_are_over_are_left_over() {
        let me = std::process::id();
        let mark = Mark::of_this_process().unwrap();
        assert!(!is_left_over(&mark.name("h1")));
        assert_ne!(mark.name("h1"), mark.name("h1"));
        // The same number, started at another time: another process.
        assert!(is_left_over(&format!("{PREFIX}-{me}-1-0-h1")));
        for other in ["h1", "thalweg-lab", "thalweg-lab-x-1-0-h1", "thalweg-lab-1", "my-thalweg-lab-1-1-0-h1"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
