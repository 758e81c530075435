//! The laboratory of one run: its options, its folder, the names of what it makes, and the program that plays its parts.

pub mod names;

use crate::error::{Error, Result};
use names::Mark;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Whether somebody asked to stop: set by whoever holds the flag (a signal handler), looked at between steps.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asked by setting this flag.
    pub fn by(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether somebody asked.
    pub fn asked(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Goes on unless somebody asked.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn check(&self) -> Result {
        if self.asked() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Sleeps for this long, unless somebody asks.
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

/// How an experiment is to be run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Fewer cells and repetitions: minutes instead of tens of them.
    pub quick: bool,
    /// Shape without meaning: the least samples and repetitions that fill a document, for tests.
    pub tiny: bool,
    /// Policies and priorities of the ports of `rt-conference`, in place of its own.
    pub profile: Option<PathBuf>,
    /// Of an experiment of many attacks, those alone whose names contain this.
    pub only: Option<String>,
    /// Seed of everything random. The same seed gives the same order of runs and the same send times.
    pub seed: u64,
}

/// The program that plays a part: it must call [`crate::run::play`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments; the role is added, for whoever looks at the list of processes.
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

/// What an experiment has at hand.
pub struct Lab {
    /// How it is to be run.
    pub options: Options,
    /// Whether somebody asked to stop.
    pub stop: Stop,
    /// The program that plays the parts of the experiment.
    pub program: Program,
    mark: Mark,
    folder: PathBuf,
    tell: Box<dyn Fn(&str) + Sync>,
}

impl Lab {
    /// Opens the lab: removes what killed runs left, and makes a folder for this run.
    ///
    /// # Errors
    /// [`Error::System`] when the folder cannot be made.
    pub fn open(options: Options, stop: Stop, program: Program, tell: impl Fn(&str) + Sync + 'static) -> Result<Self> {
        names::sweep();
        let mark = Mark::of_this_process()?;
        let folder = std::env::temp_dir().join(mark.name("run"));
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

    /// Tells people how far it is.
    pub fn tell(&self, text: &str) {
        (self.tell)(text);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
