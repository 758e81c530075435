//! The real binary, in a run directory of its own. Tests wait for its output.
#![allow(dead_code, unused_imports, clippy::unwrap_used)] // each test file uses a part of it

mod chain;
mod domains;
mod row;
pub use chain::Chain;
pub use domains::{DOMAINS, HOSTS, neighbours};
pub use row::Row;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest wait of a test, on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);

/// A run directory: commands of one house see only each other. When dropped it prints its lifetime, for
/// `./test`, which lists the longest.
pub struct Testbed(PathBuf, Instant);

/// `false`, with the reason printed: there is no `nft`, with which routers mark packets.
pub fn has_nft(test: &str) -> bool {
    let found = Command::new("nft").arg("--version").output().is_ok();
    if !found {
        println!("skipped: {test}: because nft is not installed");
    }
    found
}

/// Measures until four of at most five results fit, and returns the last that did. A busy machine may disturb one
/// measurement; a result that comes out wrong more often is wrong.
pub fn mostly<T: std::fmt::Debug>(mut measure: impl FnMut() -> T, fits: impl Fn(&T) -> bool) -> T {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    loop {
        let found = measure();
        if fits(&found) {
            good.push(found)
        } else {
            bad.push(found)
        }
        assert!(bad.len() < 2, "{} fit, these do not: {bad:?}", good.len());
        if good.len() == 4 {
            return good.remove(3);
        }
    }
}

impl Testbed {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("thalweg-cli-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path, Instant::now())
    }

    /// A path in the house.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// `thalweg` with these arguments (separated by spaces).
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(arguments.split_whitespace()).env("THALWEG_RUN_DIR", self.0.join("run"));
        command
    }

    /// Starts the command.
    pub fn start(&self, arguments: &str) -> Running {
        Running::start(self.command(arguments))
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &str) -> Done {
        self.start(arguments).finish()
    }

    /// Repeats `list` until its output fits.
    pub fn wait_for_list(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LONG;
        loop {
            let found = self.run(&format!("list {what} --json")).json();
            if fits(&found[what]) {
                return found[what].clone();
            }
            assert!(Instant::now() < until, "{found}");
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        println!("TOOK {:.1} s", self.1.elapsed().as_secs_f64());
    }
}

/// A running command; killed when dropped.
pub struct Running {
    pub child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

/// Result of a command.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub lines: Vec<String>,
    pub errors: String,
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let (lines, errors) = (follow(child.stdout.take().unwrap()), follow(child.stderr.take().unwrap()));
        Self { input: child.stdin.take(), child, lines, errors }
    }

    /// Writes to its standard input.
    pub fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Ends its standard input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Its next line of output.
    pub fn line(&self) -> String {
        self.lines.recv_timeout(LONG).expect("a line of output")
    }

    /// Its next line of output, unless it ended.
    pub fn try_line(&self) -> Option<String> {
        self.lines.recv_timeout(LONG).ok()
    }

    /// Its next line of standard error, unless it ended.
    pub fn error_line(&self) -> Option<String> {
        self.errors.recv_timeout(LONG).ok()
    }

    /// The lines of output that nobody has taken yet.
    pub fn lines_so_far(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn json_line(&self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub fn finish(self) -> Done {
        // Nothing comes before the end of an experiment, which takes its time on a busy machine.
        self.finish_within(4 * LONG)
    }

    /// Waits for its end, at most so long between two lines. One that says nothing for longer is killed.
    pub fn finish_within(mut self, patience: Duration) -> Done {
        self.input = None;
        let mut lines = Vec::new();
        let ended = loop {
            match self.lines.recv_timeout(patience) {
                Ok(line) => lines.push(line),
                Err(ended) => break ended,
            }
        };
        if ended == RecvTimeoutError::Timeout {
            let _ = self.child.kill();
        }
        let errors: Vec<String> = std::iter::from_fn(|| self.errors.recv_timeout(LONG).ok()).collect();
        Done { status: self.child.wait().unwrap(), lines, errors: errors.join("\n") }
    }

    /// Asks it to end as Ctrl-C does, and waits.
    pub fn interrupt(self) -> Done {
        self.signal(rustix::process::Signal::INT);
        self.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _ = tell.send(line);
        }
    });
    told
}

impl Done {
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Its only line of output as JSON.
    pub fn json(&self) -> Value {
        assert_eq!((self.code(), self.lines.len()), (0, 1), "{:?} {}", self.lines, self.errors);
        serde_json::from_str(&self.lines[0]).unwrap()
    }
}
