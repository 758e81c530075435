//! A world of its own for each test: a run directory, and the programs in it, which do not outlive the test.

use crate::programs::Language;
use crate::roles::ROLE;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest wait, such as for a line: a program without one hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// The run directory of a test's programs, which see no others; removed when dropped.
pub struct World {
    folder: PathBuf,
    started: AtomicU32,
}

impl World {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("thalweg-pairs-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(folder.join("run")).unwrap();
        Self { folder, started: AtomicU32::new(0) }
    }

    /// Starts an example.
    pub fn start(&self, language: Language, name: &str, words: &[&str]) -> Running {
        let mut command = language.program(name);
        command.args(words);
        self.begin(command)
    }

    /// Runs an example to its end.
    pub fn run(&self, language: Language, name: &str, words: &[&str]) -> Ended {
        self.start(language, name, words).end()
    }

    /// This program in another part (`roles.rs`), and the line with `text` that it has printed.
    pub fn role(&self, role: &str, text: &str) -> (Running, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("roles::{role}"), "--ignored", "--nocapture"]).env(ROLE, role);
        let mut running = self.begin(command);
        let line = std::iter::repeat_with(|| running.line()).find(|line| line.contains(text)).unwrap();
        (running, line)
    }

    fn begin(&self, mut command: Command) -> Running {
        let errors = self.folder.join(format!("errors-{}", self.started.fetch_add(1, Ordering::Relaxed)));
        command.env("THALWEG_RUN_DIR", self.folder.join("run"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (output, (tell, lines)) = (BufReader::new(child.stdout.take().unwrap()), channel());
        // It ends with the child's output.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Running { child, lines, errors, command: format!("{command:?}") }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that runs; killed when dropped.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: PathBuf,
    command: String,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub lines: Vec<String>,
    pub errors: String,
}

impl Running {
    /// Its next line.
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("{}: no line: {}", self.command, self.said_wrong()))
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{}: hangs after {lines:?}: {}", self.command, self.said_wrong())
                }
            }
        }
        let code = self.child.wait().unwrap().code();
        Ended { code, lines, errors: self.said_wrong() }
    }

    fn said_wrong(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.errors).unwrap_or_default()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
