//! The other processes of a measurement: this program again, killed when they are dropped.

use crate::bench::Error;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The longest wait for a line: of a recorder whose disk is slow at the end.
const PATIENCE: Duration = Duration::from_secs(300);
/// The longest wait for the end of a process that has told its last.
const ENDING: Duration = Duration::from_secs(30);

/// A process.
pub(super) struct Other {
    what: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
}

impl Other {
    /// Starts this program with these arguments.
    pub(super) fn start<S: AsRef<str>>(arguments: &[S]) -> Result<Self, Error> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let what = arguments.iter().take(3).copied().collect::<Vec<_>>().join(" ");
        let mut command = Command::new("/proc/self/exe");
        command.args(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|wrong| Error::System(format!("cannot start {what}: {wrong}")))?;
        let input = child.stdin.take();
        let (lines, errors) = (follow(child.stdout.take()), follow(child.stderr.take()));
        Ok(Self { what, child, input, lines, errors })
    }

    /// Its next line.
    pub(super) fn line(&self) -> Result<String, Error> {
        self.lines.recv_timeout(PATIENCE).map_err(|_| self.failed())
    }

    /// Its next line as JSON.
    pub(super) fn document(&self) -> Result<Value, Error> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|wrong| Error::Peer(format!("{} printed {line:?}: {wrong}", self.what)))
    }

    /// Sends it a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Error> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        told.unwrap_or(Ok(())).map_err(|_| self.failed())
    }

    /// Asks it to end as Ctrl-C does.
    pub(super) fn interrupt(&self) {
        // One that has ended already is found when its document is read.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::INT);
    }

    /// Closes its input, and waits for its end.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.input = None;
        let until = Instant::now() + ENDING;
        while self.is_alive()? {
            if Instant::now() >= until {
                return Err(Error::Peer(format!("{} has not ended within {ENDING:?}", self.what)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// `true` until it has ended.
    pub(super) fn is_alive(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The error of a process that said nothing, with what it said on standard error.
    fn failed(&self) -> Error {
        let said: Vec<String> = self.errors.try_iter().collect();
        Error::Peer(format!("{} has ended, or says nothing: {}", self.what, said.join("; ")))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a stream, read by a thread of its own.
fn follow(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, told) = channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _ = tell.send(line); // nobody may want it any more
            }
        });
    }
    told
}
